//! Budgets of jobs: how many tasks of a job may be evicted at once.

use crate::model::{StatusCounts, TaskStatus, TextMap, find_text};

/// Annotation of a job: number or percentage of its tasks that have to run. It hides [`MAX_UNAVAILABLE`].
pub(super) const MIN_AVAILABLE: &str = "volcano.sh/jdb-min-available";
/// Annotation of a job: number or percentage of its tasks that may be without a running pod.
pub(super) const MAX_UNAVAILABLE: &str = "volcano.sh/jdb-max-unavailable";

/// Evictions that a job without a budget allows, and one that runs fewer tasks than it should.
const LEAST: i64 = 1;

/// Number of tasks that may be evicted of a job with these annotations and numbers of tasks. An unreadable number is 0.
pub(super) fn evictions(annotations: &TextMap, tasks: &StatusCounts) -> i64 {
    let running = tasks.of(TaskStatus::Running);
    let (least, most) = (
        find_text(annotations, MIN_AVAILABLE),
        find_text(annotations, MAX_UNAVAILABLE),
    );
    match (least, most) {
        (Some(""), _) | (None, None | Some("")) => LEAST,
        (Some(least), _) => {
            let spare = running - scaled(least, tasks.total());
            if spare >= 0 { spare } else { LEAST }
        }
        (None, Some(most)) => {
            let ended = tasks.of(TaskStatus::Succeeded) + tasks.of(TaskStatus::Failed);
            let unavailable = tasks.total() - ended - running;
            (scaled(most, tasks.total()) - unavailable).max(0)
        }
    }
}

/// Number of `tasks` that a text such as `2` or `30%` means, rounded up; 0: it is no such text.
fn scaled(text: &str, tasks: i64) -> i64 {
    let number = |text: &str| text.parse::<i32>().ok().map(i64::from);
    match text.strip_suffix('%') {
        None => number(text).unwrap_or(0),
        Some(percent) => {
            let hundredths = number(percent).unwrap_or(0) * tasks;
            hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) > 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::queue_accounts::testing::cluster::{amounts, task};
    use super::*;

    /// Evictions of a job with five tasks: three run, one waits, one succeeded.
    fn of(key: &str, text: &str) -> i64 {
        let mut tasks = StatusCounts::default();
        let (running, cpu) = (TaskStatus::Running, amounts(1000, 0, -1));
        for status in [running, running, running, TaskStatus::Pending, TaskStatus::Succeeded] {
            tasks.change(&task("ns/a", "ns/j", &cpu, status), true);
        }
        let annotations: TextMap = [(key.into(), text.into())].into();
        evictions(&annotations, &tasks)
    }

    #[test]
    fn a_maximum_counts_tasks_that_do_not_run() {
        let cases = [
            ("2", 1),
            ("0", 0),
            ("1", 0),
            ("100%", 4),
            ("30%", 1),
            ("21%", 1),
            ("abc", 0),
            ("-1", 0),
            ("", 1),
            ("1.5", 0),
            ("50 %", 0),
            ("200%", 9),
            ("1e1", 0),
            (" 2", 0),
            ("%", 0),
            ("+3", 2),
        ];
        for (text, evictions) in cases {
            assert_eq!(of(MAX_UNAVAILABLE, text), evictions, "{text}");
        }
    }

    #[test]
    fn below_a_minimum_one_task_may_go() {
        let cases = [
            ("1", 2),
            ("0", 3),
            ("3", 0),
            ("4", 1),
            ("abc", 3),
            ("50%", 0),
            ("-1", 4),
            ("", 1),
        ];
        for (text, evictions) in cases {
            assert_eq!(of(MIN_AVAILABLE, text), evictions, "{text}");
        }
    }

    #[test]
    fn a_minimum_hides_a_maximum() {
        let both: TextMap = [(MAX_UNAVAILABLE.into(), "5".into()), (MIN_AVAILABLE.into(), "".into())].into();
        assert_eq!(evictions(&both, &StatusCounts::default()), 1);
        assert_eq!(evictions(&TextMap::default(), &StatusCounts::default()), 1);
    }
}
