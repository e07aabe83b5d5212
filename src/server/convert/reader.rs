//! Reads the fields of one message after the other, and gathers what is wrong with each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::engine::model::{Problem, ProblemKind, Texts};
use crate::engine::plugin::PluginDef;
use crate::server::limits::EdgeLimits;

use super::amounts::Names;

/// What is read of records: labels and annotations that plugins declare, nothing else, and all within limits.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    pub(super) task_annotations: Patterns,
    pub(super) job_annotations: Patterns,
    pub(super) queue_annotations: Patterns,
    pub(super) node_labels: Patterns,
    /// The limits.
    pub limits: EdgeLimits,
}

impl Declared {
    /// What the plugins of a registry declare.
    pub fn by(registry: &[PluginDef], limits: EdgeLimits) -> Self {
        let gather =
            |of: fn(&PluginDef) -> &'static [&'static str]| Patterns(registry.iter().flat_map(of).copied().collect());
        Self {
            task_annotations: gather(|row| row.task_annotations),
            job_annotations: gather(|row| row.job_annotations),
            queue_annotations: gather(|row| row.queue_annotations),
            node_labels: gather(|row| row.node_labels),
            limits,
        }
    }
}

/// Names; a trailing `*` means any that begins so, a leading one any that ends so.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns(Vec<&'static str>);

impl Patterns {
    fn hold(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|pattern| match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
                (Some(prefix), _) => name.starts_with(prefix),
                (None, Some(suffix)) => name.ends_with(suffix),
                (None, None) => name == *pattern,
            })
    }
}

/// What was found in one message.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// With any of these the message is not taken.
    pub(super) problems: Vec<Problem>,
    /// What was overlooked.
    pub(super) warnings: Vec<Problem>,
}

impl Found {
    /// The same seen from outside the message at `place`.
    pub(super) fn within(self, place: &str) -> Self {
        let prefix = |problems: Vec<Problem>| problems.into_iter().map(|problem| problem.within(place)).collect();
        Self {
            problems: prefix(self.problems),
            warnings: prefix(self.warnings),
        }
    }

    /// True if nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.problems.is_empty() && self.warnings.is_empty()
    }
}

/// Reads messages.
pub(super) struct Reader<'a> {
    pub(super) names: &'a mut dyn Names,
    pub(super) declared: &'a Declared,
    found: Found,
    no_texts: Texts,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reader")
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

impl<'a> Reader<'a> {
    /// A reader that names resources with `names`.
    pub(super) fn new(names: &'a mut dyn Names, declared: &'a Declared) -> Self {
        Self {
            names,
            declared,
            found: Found::default(),
            no_texts: Texts::default(),
        }
    }

    /// What was found since the last call.
    pub(super) fn take(&mut self) -> Found {
        std::mem::take(&mut self.found)
    }

    /// Notes why the message cannot be taken.
    pub(super) fn problem(&mut self, kind: ProblemKind, reason: &'static str, field: String, message: String) {
        self.found.problems.push(Problem::new(kind, reason, field, message));
    }

    /// Notes what is overlooked.
    pub(super) fn warning(&mut self, reason: &'static str, field: String, message: String) {
        let warning = Problem::new(ProblemKind::Invalid, reason, field, message);
        self.found.warnings.push(warning);
    }

    /// Reads a name that may be empty.
    pub(super) fn name(&mut self, field: &'static str, name: String) -> Arc<str> {
        if name.is_empty() {
            return Arc::default();
        }
        let limit = self.declared.limits.name_bytes;
        if name.len() > limit {
            let message = format!("{} bytes; limit `name_bytes` is {limit}", name.len());
            self.problem(ProblemKind::Invalid, "NAME_TOO_LONG", field.to_owned(), message);
            return Arc::default();
        }
        name.into()
    }

    /// Reads a record's key.
    pub(super) fn key(&mut self, name: String) -> Arc<str> {
        if name.is_empty() {
            let message = "a record needs a name".to_owned();
            self.problem(ProblemKind::Invalid, "NAME_MISSING", "name".to_owned(), message);
        }
        self.name("name", name)
    }

    /// Reads labels or annotations, of which only those declared are kept.
    pub(super) fn texts(
        &mut self,
        field: &'static str,
        texts: BTreeMap<String, String>,
        declared: fn(&Declared) -> &Patterns,
    ) -> Texts {
        let EdgeLimits {
            texts: limit,
            text_bytes,
            ..
        } = self.declared.limits;
        if texts.len() > limit {
            let message = format!("{} of them; limit `texts` is {limit}", texts.len());
            self.problem(ProblemKind::Exhausted, "TOO_MANY_TEXTS", field.to_owned(), message);
            return Texts::default();
        }
        let declared = declared(self.declared);
        let kept: Vec<(Arc<str>, Arc<str>)> = texts
            .into_iter()
            .filter(|(name, _)| declared.hold(name))
            .map(|(name, text)| (name.into(), text.into()))
            .collect();
        for (name, text) in kept.iter().filter(|(_, text)| text.len() > text_bytes) {
            let message = format!("{} bytes; limit `text_bytes` is {text_bytes}", text.len());
            self.problem(
                ProblemKind::Exhausted,
                "TEXT_TOO_LONG",
                format!("{field}[{name}]"),
                message,
            );
        }
        if kept.is_empty() {
            return Arc::clone(&self.no_texts);
        }
        kept.into()
    }

    /// Reads a time in whole seconds.
    pub(super) fn seconds(&mut self, field: &'static str, time: Option<prost_types::Timestamp>) -> Option<i64> {
        let prost_types::Timestamp { seconds, nanos } = time?;
        if !(0..1_000_000_000).contains(&nanos) {
            let message = format!("{nanos} nanoseconds are not within a second");
            self.problem(ProblemKind::Invalid, "INVALID_TIME", field.to_owned(), message);
        }
        Some(seconds)
    }

    /// Reads an enumeration; a number that this server does not know is a problem.
    pub(super) fn word<E: TryFrom<i32>>(&mut self, field: &'static str, number: i32) -> Option<E> {
        let word = E::try_from(number).ok();
        if word.is_none() {
            let message = format!("{number} is no value of this field");
            self.problem(ProblemKind::Invalid, "INVALID_ENUM", field.to_owned(), message);
        }
        word
    }
}
