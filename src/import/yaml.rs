//! YAML to the same JSON values that a JSON dump gives, read by the policy loader's own reader.

use serde_json::{Map, Number, Value};

use crate::engine::policy::yaml::{Decoder, Limits, NodeId, ReadError, Resolved, Scalar, Shape, Tree};

/// Deepest nesting that is read: Kubernetes objects stay far below.
const DEPTH: usize = 64;

/// One document of a text, and the line before its first.
pub(super) struct Document<'t> {
    pub(super) text: &'t str,
    pub(super) lines_before: u32,
}

/// Splits a text at its `---` lines, as `kubectl` and `cat` put them.
pub(super) fn documents(text: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let (mut start, mut first_line) = (0, 0);
    let mut position = 0;
    for (number, line) in (0..).zip(text.split_inclusive('\n')) {
        if line.trim_end() == "---" {
            documents.push(Document {
                text: text.get(start..position).unwrap_or_default(),
                lines_before: first_line,
            });
            start = position + line.len();
            first_line = number + 1;
        }
        position += line.len();
    }
    documents.push(Document {
        text: text.get(start..).unwrap_or_default(),
        lines_before: first_line,
    });
    documents
}

/// Reads one document; `None` if there is nothing in it.
///
/// # Errors
/// If the text is no YAML 1.1, or nested too deeply, with the line in its own document.
pub(super) fn read(text: &str) -> Result<Option<Value>, ReadError> {
    // The file is the caller's own: nothing bounds its length, only what aliases may make of it.
    let limits = Limits {
        bytes: usize::MAX,
        read_bytes: text.len().saturating_mul(2).saturating_add(1 << 20),
        depth: DEPTH,
        nodes: usize::MAX,
        reads: text.len().saturating_mul(2).saturating_add(1_000),
    };
    let tree = Tree::read(text, &limits)?;
    let Some(root) = tree.root() else { return Ok(None) };
    value(&mut Decoder::new(&tree, &limits), root).map(|value| (!value.is_null()).then_some(value))
}

fn value(decoder: &mut Decoder<'_>, id: NodeId) -> Result<Value, ReadError> {
    decoder.visit(id, |decoder, _, shape| match shape {
        Shape::Scalar(scalar) => typed(&scalar),
        Shape::Sequence(items) => items
            .iter()
            .map(|&item| value(decoder, item))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        Shape::Mapping(pairs) => map(decoder, pairs),
    })
}

fn map<'t>(decoder: &mut Decoder<'t>, pairs: &'t [(NodeId, NodeId)]) -> Result<Value, ReadError> {
    let mut object = Map::new();
    decoder.pairs(pairs, true, &mut |decoder, key, content, _| {
        let key = decoder.visit(key, |_, mark, shape| match shape {
            Shape::Scalar(scalar) => Ok(scalar.text.to_owned()),
            Shape::Sequence(_) | Shape::Mapping(_) => {
                Err(ReadError::syntax(mark, "a list or a map cannot be the key of a map"))
            }
        })?;
        let content = value(decoder, content)?;
        object.insert(key, content);
        Ok(())
    })?;
    Ok(Value::Object(object))
}

fn typed(scalar: &Scalar<'_>) -> Result<Value, ReadError> {
    Ok(match scalar.resolve()? {
        Resolved::Null => Value::Null,
        Resolved::Bool(flag) => Value::Bool(flag),
        // Quantities are read from the text of a number, so the text is kept where JSON can write it so.
        Resolved::Int(number) => Value::Number(as_written(scalar.text).unwrap_or_else(|| number.into())),
        Resolved::UInt(number) => Value::Number(as_written(scalar.text).unwrap_or_else(|| number.into())),
        Resolved::Float(number) => match as_written(scalar.text).or_else(|| Number::from_f64(number)) {
            Some(number) => Value::Number(number),
            None => Value::String(scalar.text.to_owned()),
        },
        Resolved::Text => Value::String(scalar.text.to_owned()),
        Resolved::Binary(content) => Value::String(content),
    })
}

fn as_written(text: &str) -> Option<Number> {
    serde_json::from_str(text).ok()
}
