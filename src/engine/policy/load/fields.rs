//! The shapes that a document is made of: structures read field by field, lists, texts; and what to say of another shape.

use std::collections::BTreeSet;

use super::{Loader, Read, SHOWN};
use crate::engine::policy::findings::{Severity, code, shorten};
use crate::engine::policy::slip;
use crate::engine::policy::yaml::{Decoder, Mark, NodeId, Resolved, Scalar, Shape};

/// Called with each field of a structure: key, its place, value. Says whether the key is known.
pub(super) type Field<'f, 'r, 't> = dyn FnMut(&mut Loader<'r>, &mut Decoder<'t>, &str, Mark, NodeId) -> Read<bool> + 'f;

impl<'r> Loader<'r> {
    /// A fault: another shape than this one was expected.
    pub(super) fn wrong_type(&mut self, decoder: &Decoder<'_>, mark: Mark, expected: &str, found: &str) {
        let message = format!("expected {expected}, found {found}");
        self.report.fault(code::WRONG_TYPE, &decoder.path.at(mark), message);
    }

    /// A scalar where a structure, list or map is expected: null is an absent one.
    pub(super) fn no_scalar(&mut self, decoder: &Decoder<'_>, scalar: &Scalar<'_>, expected: &str) -> Read {
        let resolved = scalar.resolve()?;
        if resolved != Resolved::Null {
            let found = format!("{} `{}`", kind(&resolved), shorten(scalar.text, SHOWN));
            self.wrong_type(decoder, scalar.mark, expected, &found);
        }
        Ok(())
    }

    /// Reads a structure field by field; keys that are not known get a warning.
    pub(super) fn fields<'t>(
        &mut self,
        decoder: &mut Decoder<'t>,
        id: NodeId,
        known: &[&str],
        field: &mut Field<'_, 'r, 't>,
    ) -> Read {
        decoder.visit(id, |decoder, mark, shape| {
            let pairs = match shape {
                Shape::Mapping(pairs) => pairs,
                Shape::Scalar(scalar) => return self.no_scalar(decoder, &scalar, "a map"),
                Shape::Sequence(_) => {
                    self.wrong_type(decoder, mark, "a map", "a list");
                    return Ok(());
                }
            };
            let mut own_keys = BTreeSet::new();
            decoder.pairs(pairs, true, &mut |decoder, key, value, own| {
                let Some((key, mark)) = self.text(decoder, key)? else {
                    return Ok(());
                };
                decoder.path.push_key(&key);
                if own && !own_keys.insert(key.clone()) {
                    decoder.note_duplicate(mark);
                }
                if !field(self, decoder, &key, mark, value)? {
                    self.unknown_key(decoder, &key, mark, known);
                }
                decoder.path.pop();
                Ok(())
            })
        })
    }

    fn unknown_key(&mut self, decoder: &Decoder<'_>, key: &str, mark: Mark, known: &[&str]) {
        // Looking for the nearest key takes time, which a flood of unknown keys must not add up.
        let near = if self.report.is_full(Severity::Warning) {
            None
        } else {
            slip::nearest(key, known)
        };
        let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let message = format!("unknown key `{}`; it has no effect{hint}", shorten(key, SHOWN));
        self.report.warning(code::UNKNOWN_KEY, &decoder.path.at(mark), message);
    }

    /// A field that takes any scalar as it is written; null is "". `None` after a fault.
    pub(super) fn text(&mut self, decoder: &mut Decoder<'_>, id: NodeId) -> Read<Option<(String, Mark)>> {
        decoder.visit(id, |decoder, mark, shape| {
            let found = match shape {
                Shape::Scalar(scalar) => {
                    let text = match scalar.resolve()? {
                        Resolved::Null => String::new(),
                        Resolved::Binary(content) => content,
                        Resolved::Bool(_)
                        | Resolved::Int(_)
                        | Resolved::UInt(_)
                        | Resolved::Float(_)
                        | Resolved::Text => scalar.text.to_owned(),
                    };
                    return Ok(Some((text, mark)));
                }
                Shape::Sequence(_) => "a list",
                Shape::Mapping(_) => "a map",
            };
            self.wrong_type(decoder, mark, "a string", found);
            Ok(None)
        })
    }

    /// Reads a list item by item; null is an empty one.
    pub(super) fn items<'t, T>(
        &mut self,
        decoder: &mut Decoder<'t>,
        id: NodeId,
        mut item: impl FnMut(&mut Self, &mut Decoder<'t>, NodeId) -> Read<T>,
    ) -> Read<Vec<T>> {
        decoder.visit(id, |decoder, mark, shape| {
            let mut all = Vec::new();
            match shape {
                Shape::Sequence(items) => {
                    for (at, &id) in items.iter().enumerate() {
                        decoder.path.push_index(at);
                        all.push(item(self, decoder, id)?);
                        decoder.path.pop();
                    }
                }
                Shape::Scalar(scalar) => self.no_scalar(decoder, &scalar, "a list")?,
                Shape::Mapping(_) => self.wrong_type(decoder, mark, "a list", "a map"),
            }
            Ok(all)
        })
    }
}

/// What a message calls a scalar.
pub(super) fn kind(resolved: &Resolved) -> &'static str {
    match resolved {
        Resolved::Null => "null",
        Resolved::Bool(_) => "the bool",
        Resolved::Int(_) | Resolved::UInt(_) => "the integer",
        Resolved::Float(_) => "the float",
        Resolved::Text | Resolved::Binary(_) => "the string",
    }
}
