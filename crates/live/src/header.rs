//! Metadata of an object or a list, read without what comes after them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::requests::RequestError;

/// Metadata of an object or a list; the default without metadata. The text after the metadata is not read, so its
/// errors are found only later.
pub(crate) fn metadata<'t, M: Deserialize<'t> + Default>(text: &'t [u8]) -> Result<M, RequestError> {
    let mut found = None;
    let visitor = MetadataVisitor {
        found: &mut found,
        text: PhantomData,
    };
    let read = serde_json::Deserializer::from_slice(text).deserialize_map(visitor);
    match (found, read) {
        (Some(metadata), _) => Ok(metadata),
        (None, Ok(())) => Ok(M::default()),
        (None, Err(error)) => Err(RequestError::Unreadable(error.to_string())),
    }
}

/// Visitor of an object that ends with its metadata.
struct MetadataVisitor<'m, 't, M> {
    found: &'m mut Option<M>,
    text: PhantomData<&'t ()>,
}

impl<'t, M: Deserialize<'t>> Visitor<'t> for MetadataVisitor<'_, 't, M> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of the API")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key::<Cow<'_, str>>()? {
            if key == "metadata" {
                *self.found = Some(fields.next_value()?);
                return Err(A::Error::custom("the rest is not read"));
            }
            fields.next_value::<IgnoredAny>()?;
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
        for wrong in ["[]", "<html>", "", r#"{"metadata":{"continue":7}}"#, r#"{"items":[{]}"#] {
            assert!(matches!(position(wrong), Err(RequestError::Unreadable(_))), "{wrong}");
        }
    }
}
