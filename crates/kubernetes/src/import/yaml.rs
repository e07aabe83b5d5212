//! JSON values from YAML, equal to the values of a JSON dump. The reader of the policy loader parses them.

use serde_json::{Map, Number, Value};

use pumice_engine::policy::yaml::{
    ResolvedScalar, YamlDecoder, YamlError, YamlLimits, YamlNodeId, YamlScalar, YamlShape, YamlTree,
};

/// Deepest nesting that is read: Kubernetes objects stay far below.
const MAX_DEPTH: usize = 64;

/// One document of a text, and the line before its first.
pub(super) struct ImportDocument<'t> {
    pub(super) text: &'t str,
    pub(super) lines_before: u32,
}

/// Splits a text at its `---` lines, as `kubectl` and `cat` put them.
pub(super) fn documents(text: &str) -> Vec<ImportDocument<'_>> {
    let mut documents = Vec::new();
    let (mut start, mut first_line) = (0, 0);
    let mut position = 0;
    for (number, line) in (0..).zip(text.split_inclusive('\n')) {
        if line.trim_end() == "---" {
            documents.push(ImportDocument {
                text: text.get(start..position).unwrap_or_default(),
                lines_before: first_line,
            });
            start = position + line.len();
            first_line = number + 1;
        }
        position += line.len();
    }
    documents.push(ImportDocument {
        text: text.get(start..).unwrap_or_default(),
        lines_before: first_line,
    });
    documents
}

/// Reads one document; `None` if it is empty.
///
/// # Errors
/// The text is not YAML 1.1, or nested too deeply. The error has the line in its own document.
pub fn read(text: &str) -> Result<Option<Value>, YamlError> {
    // The file is the caller's own: its length is not bounded, only the text that aliases repeat.
    let limits = YamlLimits {
        bytes: usize::MAX,
        read_bytes: text.len().saturating_mul(2).saturating_add(1 << 20),
        depth: MAX_DEPTH,
        nodes: usize::MAX,
        reads: text.len().saturating_mul(2).saturating_add(1_000),
    };
    let tree = YamlTree::read(text, &limits)?;
    let Some(root) = tree.root() else { return Ok(None) };
    value(&mut YamlDecoder::new(&tree, &limits), root).map(|value| (!value.is_null()).then_some(value))
}

fn value(decoder: &mut YamlDecoder<'_>, id: YamlNodeId) -> Result<Value, YamlError> {
    decoder.visit(id, |decoder, _, shape| match shape {
        YamlShape::Scalar(scalar) => typed(&scalar),
        YamlShape::Sequence(items) => items
            .iter()
            .map(|&item| value(decoder, item))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        YamlShape::Mapping(pairs) => map(decoder, pairs),
    })
}

fn map<'t>(decoder: &mut YamlDecoder<'t>, pairs: &'t [(YamlNodeId, YamlNodeId)]) -> Result<Value, YamlError> {
    let mut object = Map::new();
    decoder.pairs(pairs, true, &mut |decoder, key, content, _| {
        let key = decoder.visit(key, |_, mark, shape| match shape {
            YamlShape::Scalar(scalar) => Ok(scalar.text.to_owned()),
            YamlShape::Sequence(_) | YamlShape::Mapping(_) => {
                Err(YamlError::syntax(mark, "a list or a map cannot be the key of a map"))
            }
        })?;
        let content = value(decoder, content)?;
        object.insert(key, content);
        Ok(())
    })?;
    Ok(Value::Object(object))
}

fn typed(scalar: &YamlScalar<'_>) -> Result<Value, YamlError> {
    Ok(match scalar.resolve()? {
        ResolvedScalar::Null => Value::Null,
        ResolvedScalar::Bool(flag) => Value::Bool(flag),
        // Quantities are read from the text of a number, so the text is preserved where JSON can represent it.
        ResolvedScalar::Int(number) => Value::Number(as_written(scalar.text).unwrap_or_else(|| number.into())),
        ResolvedScalar::UInt(number) => Value::Number(as_written(scalar.text).unwrap_or_else(|| number.into())),
        ResolvedScalar::Float(number) => match as_written(scalar.text).or_else(|| Number::from_f64(number)) {
            Some(number) => Value::Number(number),
            None => Value::String(scalar.text.to_owned()),
        },
        ResolvedScalar::Text => Value::String(scalar.text.to_owned()),
        ResolvedScalar::Binary(content) => Value::String(content),
    })
}

fn as_written(text: &str) -> Option<Number> {
    serde_json::from_str(text).ok()
}
