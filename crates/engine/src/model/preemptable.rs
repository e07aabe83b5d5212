//! Tasks and jobs that may be preempted, by their annotations and labels.

use super::records::{JobRecord, TaskRecord};
use super::text_map::find_text;

/// Annotation of a task or job, and label of a task: whether it may be evicted, for example `volcano.sh/preemptable: "false"`.
/// The annotation has precedence.
pub const PREEMPTABLE: &str = "volcano.sh/preemptable";

/// Bool as Go's `ParseBool` reads it, such as `true`, `T` or `1`; `None`: another text.
pub fn parse_go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// True if a task with these values of [`PREEMPTABLE`] may be evicted. An invalid value forbids the eviction; an absent value
/// permits it.
pub fn permits_eviction(annotation: Option<&str>, label: Option<&str>) -> bool {
    annotation
        .or(label)
        .is_none_or(|word| parse_go_bool(word) == Some(true))
}

impl TaskRecord {
    /// True if the task may be evicted.
    pub(crate) fn is_preemptable(&self) -> bool {
        permits_eviction(
            find_text(&self.annotations, PREEMPTABLE),
            find_text(&self.labels, PREEMPTABLE),
        )
    }
}

impl JobRecord {
    /// True if the job's annotation says that it may be preempted.
    pub(crate) fn is_preemptable(&self) -> bool {
        find_text(&self.annotations, PREEMPTABLE).and_then(parse_go_bool) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TextMap;

    #[test]
    fn a_task_may_be_preempted_unless_it_says_otherwise_and_a_job_only_if_it_says_so() {
        let texts = |text: Option<&str>| -> TextMap {
            text.map(|text| (PREEMPTABLE.into(), text.into())).into_iter().collect()
        };
        for (annotation, label, of_task, of_job) in [
            (None, None, true, false),
            (Some("T"), Some("0"), true, true),
            (Some("no"), Some("1"), false, false),
            (None, Some("false"), false, false),
        ] {
            let mut task = TaskRecord::default();
            (task.annotations, task.labels) = (texts(annotation), texts(label));
            let job = JobRecord {
                annotations: texts(annotation),
                ..JobRecord::default()
            };
            assert_eq!((task.is_preemptable(), job.is_preemptable()), (of_task, of_job));
        }
    }
}
