//! Metadata of an object or a list, read without what comes after them.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::requests::RequestError;

/// Metadata of an object; the default without metadata. The text after the metadata is not read, so its errors are found only
/// later.
pub(crate) fn metadata<'t, M: Deserialize<'t> + Default>(text: &'t [u8]) -> Result<M, RequestError> {
    let header = read(text, &["metadata"])?;
    Ok(header.metadata.unwrap_or_default())
}

/// Kind of a list and its metadata; `None`: it has none. Of a list that has both first, the items are not read.
pub(crate) fn kind_and_metadata<'t, M: Deserialize<'t>>(
    text: &'t [u8],
) -> Result<(Option<String>, Option<M>), RequestError> {
    let header = read(text, &["kind", "metadata"])?;
    Ok((header.kind.map(Cow::into_owned), header.metadata))
}

/// Fields at the beginning of an object.
struct Header<'t, M> {
    kind: Option<Cow<'t, str>>,
    metadata: Option<M>,
    /// Fields that are still to be found.
    wanted: &'static [&'static str],
    found: usize,
}

fn read<'t, M: Deserialize<'t>>(
    text: &'t [u8],
    wanted: &'static [&'static str],
) -> Result<Header<'t, M>, RequestError> {
    let mut header = Header {
        kind: None,
        metadata: None,
        wanted,
        found: 0,
    };
    let read = serde_json::Deserializer::from_slice(text).deserialize_map(HeaderVisitor(&mut header));
    match read {
        Err(error) if header.found < wanted.len() => Err(RequestError::Unreadable(error.to_string())),
        Ok(()) | Err(_) => Ok(header),
    }
}

/// Visitor of an object that ends with the last field that is wanted.
struct HeaderVisitor<'h, 't, M>(&'h mut Header<'t, M>);

impl<'t, M: Deserialize<'t>> Visitor<'t> for HeaderVisitor<'_, 't, M> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of the API")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut fields: A) -> Result<(), A::Error> {
        let Self(header) = self;
        while let Some(key) = fields.next_key::<Cow<'_, str>>()? {
            match &*key {
                key if !header.wanted.contains(&key) => {
                    fields.next_value::<IgnoredAny>()?;
                    continue;
                }
                "kind" => header.kind = Some(fields.next_value()?),
                _ => header.metadata = Some(fields.next_value()?),
            }
            header.found += 1;
            if header.found == header.wanted.len() {
                return Err(A::Error::custom("the rest is not read"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize)]
    struct Position {
        #[serde(default, rename = "resourceVersion")]
        version: String,
        #[serde(default, rename = "continue")]
        place: String,
    }

    fn position(text: &str) -> Result<(String, String), RequestError> {
        metadata(text.as_bytes()).map(|Position { version, place }| (version, place))
    }

    fn place(text: &str) -> String {
        position(text).unwrap().1
    }

    #[test]
    fn metadata_are_read_without_what_comes_after_them() {
        let page =
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"a": 1.0},{"b":[]}]}"#;
        assert_eq!(position(page).unwrap(), ("7".to_owned(), "x".to_owned()));
        assert_eq!(place(r#"{"metadata":{"continue":"x"},"items":["#), "x");
        assert_eq!(place("{}"), "");
        assert_eq!(place(r#"{"items":[{}],"metadata":{"continue":"y"}}"#), "y");
        let both = |text: &str| {
            kind_and_metadata::<Position>(text.as_bytes()).map(|(kind, found)| (kind, found.map(|own| own.place)))
        };
        let expected = (Some("PodList".to_owned()), Some("x".to_owned()));
        assert_eq!(both(page).unwrap(), expected);
        // Custom resources have their fields sorted by name.
        assert_eq!(
            both(r#"{"items":[{}],"kind":"PodList","metadata":{"continue":"x"}}"#).unwrap(),
            expected
        );
        assert_eq!(both("{}").unwrap(), (None, None));
        assert!(both(r#"{"kind":"PodList","metadata":null}"#).is_err());
        for wrong in ["[]", "<html>", "", r#"{"metadata":{"continue":7}}"#, r#"{"items":[{]}"#] {
            assert!(matches!(position(wrong), Err(RequestError::Unreadable(_))), "{wrong}");
        }
    }
}
