//! Shapes of a document (structures, lists, texts), and the errors for another shape.

use std::collections::BTreeSet;

use super::{MAX_SHOWN_CHARS, SpecLoadResult, SpecLoader};
use crate::policy::diagnostics::{ErrorCode, Severity};
use crate::policy::yaml::{Mark, ResolvedScalar, YamlDecoder, YamlNodeId, YamlScalar, YamlShape, truncate_text};

/// Visitor of the fields of a structure: key, its location, value. Returns true if the key is known.
pub(super) type SpecFieldVisitor<'f, 'r, 't> =
    dyn FnMut(&mut SpecLoader<'r>, &mut YamlDecoder<'t>, &str, Mark, YamlNodeId) -> SpecLoadResult<bool> + 'f;

/// Reader of an entry of a map: key, its place, and the value.
pub(super) type SpecEntryVisitor<'f, 'r, 't> =
    dyn FnMut(&mut SpecLoader<'r>, &mut YamlDecoder<'t>, String, Mark, YamlNodeId) -> SpecLoadResult + 'f;

impl<'r> SpecLoader<'r> {
    /// Reports a value of another shape than the expected one.
    pub(super) fn wrong_type(&mut self, decoder: &YamlDecoder<'_>, mark: Mark, expected: &str, found: &str) {
        let message = format!("expected {expected}, found {found}");
        self.report
            .error(ErrorCode::TypeInvalid, &decoder.path.at(mark), message);
    }

    /// Checks a scalar in the position of a structure, list or map. null is treated as absent.
    pub(super) fn expect_null(
        &mut self,
        decoder: &YamlDecoder<'_>,
        scalar: &YamlScalar<'_>,
        expected: &str,
    ) -> SpecLoadResult {
        let resolved = scalar.resolve()?;
        if resolved != ResolvedScalar::Null {
            let found = format!(
                "{} `{}`",
                scalar_kind(&resolved),
                truncate_text(scalar.text, MAX_SHOWN_CHARS)
            );
            self.wrong_type(decoder, scalar.mark, expected, &found);
        }
        Ok(())
    }

    /// Reads a structure field by field; an unknown key gets a warning.
    pub(super) fn fields<'t>(
        &mut self,
        decoder: &mut YamlDecoder<'t>,
        id: YamlNodeId,
        known: &[&str],
        field: &mut SpecFieldVisitor<'_, 'r, 't>,
    ) -> SpecLoadResult {
        decoder.visit(id, |decoder, mark, shape| {
            let Some(pairs) = self.pairs(decoder, mark, shape, || ())? else {
                return Ok(());
            };
            self.entries(decoder, pairs, true, &mut |loader, decoder, key, mark, value| {
                if !field(loader, decoder, &key, mark, value)? {
                    loader.unknown_key(decoder, &key, mark, known);
                }
                Ok(())
            })
        })
    }

    /// Entries of a map. `None`: the value is null, for which `when_null` runs, or has another type, which is an error.
    pub(super) fn pairs<'t>(
        &mut self,
        decoder: &YamlDecoder<'t>,
        mark: Mark,
        shape: YamlShape<'t>,
        when_null: impl FnOnce(),
    ) -> SpecLoadResult<Option<&'t [(YamlNodeId, YamlNodeId)]>> {
        match shape {
            YamlShape::Mapping(pairs) => return Ok(Some(pairs)),
            YamlShape::Scalar(scalar) => {
                if matches!(scalar.resolve(), Ok(ResolvedScalar::Null)) {
                    when_null();
                }
                self.expect_null(decoder, &scalar, "a map")?;
            }
            YamlShape::Sequence(_) => self.wrong_type(decoder, mark, "a map", "a list"),
        }
        Ok(None)
    }

    /// Reads the entries of a map whose keys are texts. A key that appears twice is noted only if asked for.
    pub(super) fn entries<'t>(
        &mut self,
        decoder: &mut YamlDecoder<'t>,
        pairs: &'t [(YamlNodeId, YamlNodeId)],
        notes_duplicates: bool,
        entry: &mut SpecEntryVisitor<'_, 'r, 't>,
    ) -> SpecLoadResult {
        let mut own_keys = BTreeSet::new();
        decoder.pairs(pairs, true, &mut |decoder, key, value, own| {
            let Some((key, mark)) = self.text(decoder, key)? else {
                return Ok(());
            };
            decoder.path.push_key(&key);
            if notes_duplicates && own && !own_keys.insert(key.clone()) {
                decoder.note_duplicate(mark);
            }
            entry(self, decoder, key, mark, value)?;
            decoder.path.pop();
            Ok(())
        })
    }

    fn unknown_key(&mut self, decoder: &YamlDecoder<'_>, key: &str, mark: Mark, known: &[&str]) {
        let hint = self.report.suggestion(Severity::Warning, key, known);
        let message = format!(
            "unknown key `{}`; it has no effect{hint}",
            truncate_text(key, MAX_SHOWN_CHARS)
        );
        self.report
            .warning(ErrorCode::KeyUnknown, &decoder.path.at(mark), message);
    }

    /// Text field that accepts any scalar as it is written; null is the empty text. `None` after an error.
    pub(super) fn text(
        &mut self,
        decoder: &mut YamlDecoder<'_>,
        id: YamlNodeId,
    ) -> SpecLoadResult<Option<(String, Mark)>> {
        decoder.visit(id, |decoder, mark, shape| {
            let found = match shape {
                YamlShape::Scalar(scalar) => {
                    let text = match scalar.resolve()? {
                        ResolvedScalar::Null => String::new(),
                        ResolvedScalar::Binary(content) => content,
                        ResolvedScalar::Bool(_)
                        | ResolvedScalar::Int(_)
                        | ResolvedScalar::UInt(_)
                        | ResolvedScalar::Float(_)
                        | ResolvedScalar::Text => scalar.text.to_owned(),
                    };
                    return Ok(Some((text, mark)));
                }
                YamlShape::Sequence(_) => "a list",
                YamlShape::Mapping(_) => "a map",
            };
            self.wrong_type(decoder, mark, "a string", found);
            Ok(None)
        })
    }

    /// Reads a list item by item; null is an empty list.
    pub(super) fn items<'t, T>(
        &mut self,
        decoder: &mut YamlDecoder<'t>,
        id: YamlNodeId,
        mut item: impl FnMut(&mut Self, &mut YamlDecoder<'t>, YamlNodeId) -> SpecLoadResult<T>,
    ) -> SpecLoadResult<Vec<T>> {
        decoder.visit(id, |decoder, mark, shape| {
            let mut all = Vec::new();
            match shape {
                YamlShape::Sequence(items) => {
                    for (at, &id) in items.iter().enumerate() {
                        decoder.path.push_index(at);
                        all.push(item(self, decoder, id)?);
                        decoder.path.pop();
                    }
                }
                YamlShape::Scalar(scalar) => self.expect_null(decoder, &scalar, "a list")?,
                YamlShape::Mapping(_) => self.wrong_type(decoder, mark, "a list", "a map"),
            }
            Ok(all)
        })
    }
}

/// Name of a scalar's type, for messages.
pub(super) fn scalar_kind(resolved: &ResolvedScalar) -> &'static str {
    match resolved {
        ResolvedScalar::Null => "null",
        ResolvedScalar::Bool(_) => "the bool",
        ResolvedScalar::Int(_) | ResolvedScalar::UInt(_) => "the integer",
        ResolvedScalar::Float(_) => "the float",
        ResolvedScalar::Text | ResolvedScalar::Binary(_) => "the string",
    }
}
