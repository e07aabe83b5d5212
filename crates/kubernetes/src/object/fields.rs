//! Readers of single fields of a JSON object. Errors name the field.

use std::collections::BTreeMap;

use prost_types::Timestamp;
use serde_json::{Map, Value};

use pumice_protocol::v1 as pb;

/// Error of a field that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct FieldError {
    /// Path of the field in its object, such as `status.allocatable[cpu]`.
    pub field: String,
    /// Problem of the field.
    pub reason: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        FieldError {
            field: field.into(),
            reason: reason.into(),
        }
    }

    fn wrong_type(field: &str, value: &Value, wanted: &str) -> Self {
        FieldError::new(field, format!("is {}, not {wanted}", kind(value)))
    }
}

type ImportFieldResult<T> = Result<T, FieldError>;

/// Name of this kind of value for people.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Value at a dotted path, such as `spec.queue`. null is treated as absent.
pub(crate) fn get<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.')
        .try_fold(object, |value, key| value.get(key))
        .filter(|value| !value.is_null())
}

/// Text; empty if absent.
pub(crate) fn text(object: &Value, path: &str) -> ImportFieldResult<String> {
    match get(object, path) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(FieldError::wrong_type(path, other, "a text")),
    }
}

/// Text that must be present.
pub(crate) fn required_text(object: &Value, path: &str) -> ImportFieldResult<String> {
    let text = text(object, path)?;
    if text.is_empty() {
        Err(FieldError::new(path, "is missing"))
    } else {
        Ok(text)
    }
}

/// Boolean at a path.
pub(crate) fn boolean(object: &Value, path: &str) -> ImportFieldResult<Option<bool>> {
    match get(object, path) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(FieldError::wrong_type(path, other, "a boolean")),
    }
}

/// Whole number of 32 bits.
pub(crate) fn integer(object: &Value, path: &str) -> ImportFieldResult<Option<i32>> {
    let Some(value) = get(object, path) else {
        return Ok(None);
    };
    let Some(number) = value.as_i64() else {
        return Err(FieldError::wrong_type(path, value, "a whole number"));
    };
    i32::try_from(number)
        .map(Some)
        .map_err(|_| FieldError::new(path, format!("{number} does not fit in 32 bits")))
}

/// Map of whole numbers of 32 bits; empty if absent.
pub(crate) fn integers(object: &Value, path: &str) -> ImportFieldResult<BTreeMap<String, i32>> {
    let read = |(key, value): (&String, &Value)| {
        let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
        let wrong = || FieldError::wrong_type(&format!("{path}[{key}]"), value, "a whole number of 32 bits");
        number.map(|number| (key.clone(), number)).ok_or_else(wrong)
    };
    map(object, path)?.into_iter().flatten().map(read).collect()
}

/// Map; `None` if absent.
fn map<'v>(object: &'v Value, path: &str) -> ImportFieldResult<Option<&'v Map<String, Value>>> {
    match get(object, path) {
        None => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(other) => Err(FieldError::wrong_type(path, other, "an object")),
    }
}

/// List; empty if absent.
pub(crate) fn list<'v>(object: &'v Value, path: &str) -> ImportFieldResult<&'v [Value]> {
    match get(object, path) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(FieldError::wrong_type(path, other, "a list")),
    }
}

/// Map of texts; empty if absent.
pub(crate) fn texts(object: &Value, path: &str) -> ImportFieldResult<BTreeMap<String, String>> {
    let entries = map(object, path)?.into_iter().flatten();
    entries
        .map(|(key, value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            Value::Null => Ok((key.clone(), String::new())),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(FieldError::wrong_type(&format!("{path}[{key}]"), other, "a text"))
            }
        })
        .collect()
}

/// Amounts by resource name, by the rules of Kubernetes: surrounding white space is trimmed, a number is read from its
/// text, null is 0.
pub(crate) fn amounts(object: &Value, path: &str) -> ImportFieldResult<Option<pb::ResourceList>> {
    let Some(map) = map(object, path)? else {
        return Ok(None);
    };
    let items = map
        .iter()
        .map(|(name, amount)| match amount {
            Value::String(text) => Ok((name.clone(), text.trim().to_owned())),
            Value::Number(number) => Ok((name.clone(), number.to_string())),
            Value::Null => Ok((name.clone(), "0".to_owned())),
            other @ (Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                Err(FieldError::wrong_type(&format!("{path}[{name}]"), other, "a quantity"))
            }
        })
        .collect::<ImportFieldResult<_>>()?;
    Ok(Some(pb::ResourceList { items }))
}

/// Point in time, as Kubernetes writes it.
pub(crate) fn time(object: &Value, path: &str) -> ImportFieldResult<Option<Timestamp>> {
    let text = text(object, path)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| FieldError::new(path, format!("`{text}` is not a time")))
}

/// `namespace/name` of an object; `default/name` without a namespace, as in a hand-written file.
pub(crate) fn namespaced(object: &Value) -> Result<String, FieldError> {
    let namespace = text(object, "metadata.namespace")?;
    let name = required_text(object, "metadata.name")?;
    Ok(format!(
        "{}/{name}",
        if namespace.is_empty() { "default" } else { &namespace }
    ))
}
