//! Nodes of a request of kube-scheduler's extender protocol: where their names, and they themselves, are in the body. A body of
//! megabytes is read once, and its parts are neither copied nor read again.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use axum::body::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::asked_pod::AskedPod;
use super::requests::{read_json, unreadable};
use crate::server::status::{CallError, RpcResult};
use pumice_engine::model::ErrorCode;

/// Request of filter and prioritize.
#[derive(Debug, Deserialize)]
struct NodesMessage<'b> {
    #[serde(rename = "Pod", borrow)]
    pod: &'b RawValue,
    #[serde(rename = "Nodes", borrow, default)]
    nodes: Option<NodeList<'b>>,
    #[serde(rename = "NodeNames", borrow, default)]
    node_names: Option<Vec<NameText<'b>>>,
}

/// List of whole nodes.
#[derive(Debug, Deserialize)]
struct NodeList<'b> {
    #[serde(borrow, default)]
    items: Option<Vec<&'b RawValue>>,
}

/// Text that stays in the body if it has no escapes there.
#[derive(Debug, Deserialize)]
struct NameText<'b>(#[serde(borrow)] Cow<'b, str>);

#[derive(Debug)]
enum NodeName {
    /// Place of the name in the body.
    Place(Range<usize>),
    /// Name that the body has with escapes.
    Text(String),
}

/// Nodes that a request is about, in its order.
#[derive(Debug)]
pub(super) struct AskedNodes {
    body: Bytes,
    names: Vec<NodeName>,
    /// Where each whole node is in the body; `None`: the request names nodes only.
    whole: Option<Vec<Range<usize>>>,
}

impl AskedNodes {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| match name {
            NodeName::Text(text) => text.as_str(),
            NodeName::Place(place) => self.text(place).unwrap_or_default(),
        })
    }

    fn text(&self, place: &Range<usize>) -> Option<&str> {
        std::str::from_utf8(self.body.get(place.clone())?).ok()
    }

    /// JSON of the whole nodes, in their order; `None`: the request names nodes only.
    pub(super) fn whole(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let places = self.whole.as_ref()?;
        Some(
            places
                .iter()
                .map(|place| self.body.get(place.clone()).unwrap_or_default()),
        )
    }

    /// Number of bytes of the request.
    pub(super) fn body_bytes(&self) -> usize {
        self.body.len()
    }
}

/// Reads a request of filter or prioritize.
pub(super) fn read_nodes_message(body: &Bytes) -> RpcResult<(AskedPod, AskedNodes)> {
    let message: NodesMessage<'_> = read_json(body)?;
    let pod = AskedPod::read(message.pod)?;
    let start = body.as_ptr().addr();
    let place = |text: &str| {
        let at = text.as_ptr().addr().saturating_sub(start);
        at..at.saturating_add(text.len())
    };
    let name = |text: Cow<'_, str>| match text {
        Cow::Borrowed(text) => NodeName::Place(place(text)),
        Cow::Owned(text) => NodeName::Text(text),
    };
    let (names, whole) = match (message.nodes, message.node_names) {
        (Some(list), _) => {
            let items = list.items.unwrap_or_default();
            let mut names = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                let own = object_name(item).map_err(|error| unreadable(&format!("Nodes.items[{index}]"), &error))?;
                names.push(name(own));
            }
            (names, Some(items.into_iter().map(|item| place(item.get())).collect()))
        }
        (None, Some(names)) => (names.into_iter().map(|NameText(text)| name(text)).collect(), None),
        (None, None) => {
            let message = "Nodes and NodeNames: both are absent";
            return Err(CallError::new(ErrorCode::NodesMissing, message));
        }
    };
    let body = body.clone();
    Ok((pod, AskedNodes { body, names, whole }))
}

/// Name of an object; empty: it has none. It stands near the beginning, and what is behind it is not read again: a raw value is
/// JSON already.
fn object_name(object: &RawValue) -> Result<Cow<'_, str>, serde_json::Error> {
    let mut found = None;
    let fields = FieldSearch {
        path: &["metadata", "name"],
        found: &mut found,
    };
    let read = fields.deserialize(&mut serde_json::Deserializer::from_str(object.get()));
    match found {
        Some(name) => Ok(name),
        None => read.map(|()| Cow::Borrowed("")),
    }
}

/// Search for one text in nested objects, which ends with an error once it is found.
struct FieldSearch<'f, 'b> {
    path: &'static [&'static str],
    found: &'f mut Option<Cow<'b, str>>,
}

impl<'b> DeserializeSeed<'b> for FieldSearch<'_, 'b> {
    type Value = ();

    fn deserialize<D: Deserializer<'b>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'b> Visitor<'b> for FieldSearch<'_, 'b> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'b>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(NameText(key)) = map.next_key()? {
            match self.path.split_first() {
                Some((own, [])) if key == *own => {
                    let NameText(text) = map.next_value()?;
                    *self.found = Some(text);
                    return Ok(());
                }
                Some((own, rest)) if key == *own => {
                    let found = &mut *self.found;
                    map.next_value_seed(FieldSearch { path: rest, found })?;
                }
                Some(_) | None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Appends a text as JSON.
pub(super) fn push_text(json: &mut Vec<u8>, text: &str) {
    push_json(json, &text);
}

/// Appends a value as JSON.
pub(super) fn push_json(json: &mut Vec<u8>, value: &impl Serialize) {
    // Texts and numbers can always be written.
    let _ = serde_json::to_writer(json, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> RpcResult<(Vec<String>, Option<Vec<String>>)> {
        let (_, nodes) = read_nodes_message(&Bytes::copy_from_slice(body.as_bytes()))?;
        let names = nodes.names().map(str::to_owned).collect();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let whole = nodes.whole().map(|whole| whole.map(text).collect());
        Ok((names, whole))
    }

    const POD: &str = r#""Pod":{"metadata":{"name":"p"}}"#;

    #[test]
    fn names_are_read_with_and_without_escapes() {
        let (names, whole) = read(&format!(r#"{{{POD},"NodeNames":["a","b\u002dc","ü"]}}"#)).unwrap();
        assert_eq!((names, whole), (["a", "b-c", "ü"].map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn whole_nodes_are_named_wherever_their_names_stand() {
        let items = [
            r#"{"metadata":{"name":"a","labels":{"name":"other"}},"spec":{}}"#,
            r#"{"spec":{"metadata":{"name":"x"}},"metadata":{"labels":{"k":"v"},"name":"b\u002dc"}}"#,
            r#"{"spec":{}}"#,
        ];
        let (names, whole) = read(&format!(r#"{{{POD},"Nodes":{{"items":[{}]}}}}"#, items.join(", "))).unwrap();
        assert_eq!(names, ["a", "b-c", ""]);
        assert_eq!(whole.unwrap(), items);
    }

    #[test]
    fn what_is_no_node_is_named() {
        for (items, wanted) in [
            (r#"{"metadata":{"name":1}}"#, "Nodes.items[0]"),
            (r"{},[]", "Nodes.items[1]"),
            (r#"{"metadata":{"name":"a"},}"#, "the body"),
        ] {
            let error = read(&format!(r#"{{{POD},"Nodes":{{"items":[{items}]}}}}"#)).unwrap_err();
            assert!(error.message().contains(wanted), "{items}: {}", error.message());
        }
        assert!(read(&format!("{{{POD}}}")).unwrap_err().message().contains("absent"));
    }
}
