//! Reader of message fields, which collects the problems of each message.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::wire::Wire;
use crate::limits::EdgeLimits;
use pumice_engine::model::{
    ErrorCode, JobRecord, LabelKinds, PREEMPTABLE, Problem, ResourceId, ResourceNaming, TextMap, TooManyResourcesError,
};
use pumice_engine::plugin::{EVERY_LABEL, PluginDef};
use pumice_engine::policy::{Compatibility, Release};

/// Table that assigns ids to resource names.
pub trait ResourceInterner {
    /// Id of a name that the table has.
    fn lookup(&self, name: &str) -> Option<ResourceId>;

    /// Id of a name. Adds the name if it is new.
    ///
    /// # Errors
    /// The table is full.
    fn intern(&mut self, name: &str, named_by: ResourceNaming) -> Result<ResourceId, TooManyResourcesError>;

    /// Id that names share which have no place. `None`: such a name is refused.
    fn others(&mut self) -> Option<ResourceId>;
}

/// Options for reading records: only labels and annotations that plugins declare are stored, and everything is within
/// limits.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    pub(super) task_annotations: KeyPatterns,
    pub(super) job_annotations: KeyPatterns,
    pub(super) queue_annotations: KeyPatterns,
    pub(super) node_labels: KeyPatterns,
    pub(super) task_labels: KeyPatterns,
    pub(super) namespace_labels: KeyPatterns,
    /// Limits on what is read.
    pub limits: EdgeLimits,
}

impl ReadOptions {
    /// Options with the labels and annotations that plugins of a registry declare or that actions read.
    pub fn from_registry(registry: &[PluginDef], limits: EdgeLimits) -> Self {
        let gather = |of: fn(&PluginDef) -> &'static [&'static str]| {
            KeyPatterns(registry.iter().flat_map(of).copied().collect())
        };
        let with = |KeyPatterns(declared), more| KeyPatterns([declared, vec![more]].concat());
        Self {
            task_annotations: with(gather(|row| row.task_annotations), PREEMPTABLE),
            job_annotations: gather(|row| row.job_annotations),
            queue_annotations: gather(|row| row.queue_annotations),
            node_labels: gather(|row| row.node_labels),
            task_labels: with(gather(|row| row.task_labels), PREEMPTABLE),
            // Selectors of namespaces name any label.
            namespace_labels: KeyPatterns(vec![EVERY_LABEL]),
            limits,
        }
    }
}

/// Patterns of keys; a trailing `*` matches any suffix, a leading one any prefix.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyPatterns(Vec<&'static str>);

impl KeyPatterns {
    /// True if a pattern matches. `EVERY_LABEL` applies only to kinds of records that keep all labels.
    fn matches(&self, name: &str, keeps_all: bool) -> bool {
        self.0
            .iter()
            .filter(|pattern| keeps_all || **pattern != EVERY_LABEL)
            .any(|pattern| match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
                (Some(prefix), _) => name.starts_with(prefix),
                (None, Some(suffix)) => name.ends_with(suffix),
                (None, None) => name == *pattern,
            })
    }
}

/// Problems and warnings of one message.
#[derive(Debug, Default)]
pub(super) struct ReadProblems {
    /// Problems. The message is rejected if the list is not empty.
    pub(super) problems: Vec<Problem>,
    /// Warnings about parts that are ignored.
    pub(super) warnings: Vec<Problem>,
}

impl ReadProblems {
    /// Problems with field paths that start at the message around `place`.
    pub(super) fn within(self, place: &str) -> Self {
        let prefix = |problems: Vec<Problem>| problems.into_iter().map(|problem| problem.within(place)).collect();
        Self {
            problems: prefix(self.problems),
            warnings: prefix(self.warnings),
        }
    }

    /// True if there is neither a problem nor a warning.
    pub(super) fn is_empty(&self) -> bool {
        self.problems.is_empty() && self.warnings.is_empty()
    }
}

/// Checks the length of a name in a request.
pub(in crate::server) fn check_name(field: &str, name: &str, limits: &EdgeLimits) -> Result<(), Problem> {
    let (bytes, limit) = (name.len(), limits.name_bytes);
    if bytes <= limit {
        return Ok(());
    }
    let message = format!("{bytes} bytes; limit `name_bytes` is {limit}");
    Err(Problem::new(ErrorCode::NameTooLong, field, message))
}

/// Reader of wire messages.
pub(super) struct WireReader<'a> {
    pub(super) resource_names: &'a mut dyn ResourceInterner,
    pub(super) options: &'a ReadOptions,
    problems: ReadProblems,
    empty_texts: TextMap,
    /// True if negative amounts of queues and jobs are kept, and not refused.
    pub(super) keeps_negative: bool,
    /// Release by whose rules amounts of pods are derived.
    pub(super) release: Release,
    /// This release, if amounts of a pod were derived.
    pub(super) derived_by: Option<Release>,
    /// Kinds of records that keep all labels which plugins of the registry read.
    stored_labels: LabelKinds,
    /// Labels that were left out, although some plugin of the registry reads them.
    pub(super) dropped_labels: LabelKinds,
    /// Rules for names of resources in the record that is being read.
    pub(super) named_by: ResourceNaming,
    /// True if the list that is being read has no place for new names.
    pub(super) is_list_full: bool,
    /// True if resources share one name, because there is no place for theirs.
    pub(super) has_others: bool,
}

impl fmt::Debug for WireReader<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reader")
            .field("found", &self.problems)
            .finish_non_exhaustive()
    }
}

impl<'a> WireReader<'a> {
    /// Reader for policies of a compatibility: it keeps negative amounts of queues and jobs if every policy follows a release,
    /// and derives amounts of pods by the rules of that release. It takes the ids of resources from `resource_names` and keeps
    /// all labels.
    pub(super) fn new(
        resource_names: &'a mut dyn ResourceInterner,
        options: &'a ReadOptions,
        compatibility: Compatibility,
    ) -> Self {
        Self {
            resource_names,
            options,
            problems: ReadProblems::default(),
            empty_texts: TextMap::default(),
            keeps_negative: compatibility.is_upstream(),
            release: compatibility.release(),
            derived_by: None,
            stored_labels: LabelKinds::ALL,
            dropped_labels: LabelKinds::default(),
            named_by: ResourceNaming::Asked,
            is_list_full: false,
            has_others: false,
        }
    }

    /// Reader that keeps all labels of these kinds of records, and for other records only the labels that plugins name.
    pub(super) fn keeping(self, stored_labels: LabelKinds) -> Self {
        Self { stored_labels, ..self }
    }

    /// Keeps all labels of tasks if a job finds the groups of its tasks by them.
    pub(super) fn keep_labels_for(&mut self, job: &JobRecord) {
        self.stored_labels.tasks |= job.finds_groups();
    }

    /// Reads the labels of a node.
    pub(super) fn node_labels(&mut self, labels: BTreeMap<String, String>) -> TextMap {
        let (read, dropped) = self.filtered_texts("labels", labels, |own| &own.node_labels, self.stored_labels.nodes);
        self.dropped_labels.nodes |= dropped;
        read
    }

    /// Reads the labels of a task.
    pub(super) fn task_labels(&mut self, labels: BTreeMap<String, String>) -> TextMap {
        let (read, dropped) = self.filtered_texts("labels", labels, |own| &own.task_labels, self.stored_labels.tasks);
        self.dropped_labels.tasks |= dropped;
        read
    }

    /// Takes the problems and warnings since the last call.
    pub(super) fn take_problems(&mut self) -> ReadProblems {
        std::mem::take(&mut self.problems)
    }

    /// Records a problem, which rejects the message.
    pub(super) fn problem(&mut self, code: ErrorCode, field: String, message: String) {
        self.problems.problems.push(Problem::new(code, field, message));
    }

    /// Records a warning about a part that is ignored.
    pub(super) fn warning(&mut self, code: ErrorCode, field: String, message: String) {
        self.problems.warnings.push(Problem::new(code, field, message));
    }

    /// Reads a name that may be empty.
    pub(super) fn name(&mut self, field: &'static str, name: String) -> Arc<str> {
        if name.is_empty() {
            return Arc::default();
        }
        if let Err(problem) = check_name(field, &name, &self.options.limits) {
            self.problems.problems.push(problem);
            return Arc::default();
        }
        name.into()
    }

    /// Reads a record's key.
    pub(super) fn record_name(&mut self, name: String) -> Arc<str> {
        if name.is_empty() {
            let message = "a record needs a name".to_owned();
            self.problem(ErrorCode::NameMissing, "name".to_owned(), message);
        }
        self.name("name", name)
    }

    /// Reads labels or annotations. Only declared ones are stored.
    pub(super) fn text_map(
        &mut self,
        field: &'static str,
        texts: BTreeMap<String, String>,
        declared: fn(&ReadOptions) -> &KeyPatterns,
    ) -> TextMap {
        self.filtered_texts(field, texts, declared, true).0
    }

    /// Texts of the declared names, and whether one was left out only because not all are kept.
    fn filtered_texts(
        &mut self,
        field: &'static str,
        texts: BTreeMap<String, String>,
        declared: fn(&ReadOptions) -> &KeyPatterns,
        keeps_all: bool,
    ) -> (TextMap, bool) {
        let EdgeLimits {
            labels: limit,
            label_bytes,
            ..
        } = self.options.limits;
        if texts.len() > limit {
            let message = format!("{} entries; limit `labels` is {limit}", texts.len());
            self.problem(ErrorCode::LimitExceeded, field.to_owned(), message);
            return (TextMap::default(), false);
        }
        let declared = declared(self.options);
        let dropped = !keeps_all
            && texts
                .keys()
                .any(|name| declared.matches(name, true) && !declared.matches(name, false));
        let stored: Vec<(Arc<str>, Arc<str>)> = texts
            .into_iter()
            .filter(|(name, _)| declared.matches(name, keeps_all))
            .map(|(name, text)| (name.into(), text.into()))
            .collect();
        for (name, text) in stored.iter().filter(|(_, text)| text.len() > label_bytes) {
            let message = format!("{} bytes; limit `label_bytes` is {label_bytes}", text.len());
            self.problem(ErrorCode::LimitExceeded, format!("{field}[{name}]"), message);
        }
        if stored.is_empty() {
            return (Arc::clone(&self.empty_texts), dropped);
        }
        (stored.into(), dropped)
    }

    /// Reads a time in whole seconds.
    pub(super) fn seconds(&mut self, field: &'static str, time: Option<prost_types::Timestamp>) -> Option<i64> {
        let prost_types::Timestamp { seconds, nanos } = time?;
        if !(0..1_000_000_000).contains(&nanos) {
            let message = format!("{nanos} nanoseconds are not within a second");
            self.problem(ErrorCode::TimeInvalid, field.to_owned(), message);
        }
        Some(seconds)
    }

    /// Reads a value of the model, whose default a number that this server does not know stands for.
    pub(super) fn model_value<E: TryFrom<i32>, M: Wire<E> + Default>(&mut self, field: &'static str, number: i32) -> M {
        self.enum_value(field, number).map(M::read).unwrap_or_default()
    }

    /// Reads an enumeration value; a number that this server does not know is a problem.
    pub(super) fn enum_value<E: TryFrom<i32>>(&mut self, field: &'static str, number: i32) -> Option<E> {
        let word = E::try_from(number).ok();
        if word.is_none() {
            let message = format!("invalid value: {number}");
            self.problem(ErrorCode::EnumInvalid, field.to_owned(), message);
        }
        word
    }
}
