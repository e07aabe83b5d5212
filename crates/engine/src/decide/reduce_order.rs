//! Reductions of several plugins' comparisons and votes to one: Volcano's tiers, over results given as data.
//!
//! Iterators hold the results in order, tier by tier, of plugins that are switched on and have the hook. They are read
//! only as far as the rule needs.

use std::cmp::Ordering;

/// Comparison by several plugins: the first value that is not 0, unchanged.
pub fn compare(values: impl IntoIterator<Item = i64>) -> i64 {
    values.into_iter().find(|value| *value != 0).unwrap_or(0)
}

/// True if the left record comes first, by the sign of the first value that is not 0; without one, by `tie`.
pub fn less(values: impl IntoIterator<Item = i64>, tie: impl FnOnce() -> Ordering) -> bool {
    match compare(values) {
        0 => tie() == Ordering::Less,
        value => value < 0,
    }
}

/// True if tasks of the left queue are evicted first. The sign of the first value that is not 0 decides; without such a
/// value, the queue that comes later in the order of queues.
pub fn victim_queue_less(values: impl IntoIterator<Item = i64>, queue_less: impl FnOnce() -> bool) -> bool {
    match compare(values) {
        0 => !queue_less(),
        value => value < 0,
    }
}

/// Key that decides between records that plugins hold equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TieBreakKey<'a> {
    /// Creation time in seconds since 1970; `None`: oldest.
    pub creation_time: Option<i64>,
    /// Name of the record: `namespace/name` of a job, and also of a task, whose uid in Volcano's sense it is.
    pub name: &'a str,
}

impl TieBreakKey<'_> {
    /// Compares by age, the older one first, then by name.
    pub fn compare_by_age(&self, other: &TieBreakKey<'_>) -> Ordering {
        (self.creation_time, self.name).cmp(&(other.creation_time, other.name))
    }

    /// Compares as for tasks. If both names have three or more parts between `-` and end in different integers, the
    /// smaller integer comes first; otherwise [`Self::compare_by_age`] decides. The comparison is not transitive: never
    /// sort by it.
    pub fn compare_tasks(&self, other: &TieBreakKey<'_>) -> Ordering {
        self.compare_numbered(self.task_index(), other, other.task_index())
    }

    /// Compares like [`Self::compare_tasks`], with the integers in which the names end.
    pub(crate) fn compare_numbered(
        &self,
        index: Option<i64>,
        other: &TieBreakKey<'_>,
        other_index: Option<i64>,
    ) -> Ordering {
        match (index, other_index) {
            (Some(own), Some(other)) if own != other => own.cmp(&other),
            _ => self.compare_by_age(other),
        }
    }

    /// True if the name has three or more parts between `-` and ends in an integer.
    pub fn has_number(&self) -> bool {
        self.task_index().is_some()
    }

    /// Integer in which the name ends, if it has three or more parts between `-`.
    pub(crate) fn task_index(&self) -> Option<i64> {
        let name = self.name.rsplit_once('/').map_or(self.name, |(_, name)| name);
        let (_, last) = name.split_once('-')?.1.rsplit_once('-')?;
        last.parse().ok()
    }
}

/// Orders records by repeated selection of the first remaining record: it starts with the first record and replaces it
/// by any record that comes before it. Unlike a sort, this does not need a total order.
pub fn selection_sort<T>(mut left: Vec<T>, mut less: impl FnMut(&T, &T) -> bool) -> Vec<T> {
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let mut first = 0;
        for (at, record) in left.iter().enumerate().skip(1) {
            if left.get(first).is_some_and(|best| less(record, best)) {
                first = at;
            }
        }
        ordered.push(left.remove(first));
    }
    ordered
}

/// Reduction of votes on whether a job may be enqueued or is pipelined: a vote below 0 rejects at once; a tier with a
/// vote above 0 permits, and later tiers are not evaluated; a job without votes is permitted.
pub fn permits<V: IntoIterator<Item = i64>>(tiers: impl IntoIterator<Item = V>) -> bool {
    for tier in tiers {
        let mut permitted = false;
        for vote in tier {
            if vote < 0 {
                return false;
            }
            permitted |= vote > 0;
        }
        if permitted {
            return true;
        }
    }
    true
}

/// Reduction of votes on whether a job is ready, a queue may preempt, or a queue may take a task: the first no over all
/// tiers decides; without a vote yes.
pub fn all(results: impl IntoIterator<Item = bool>) -> bool {
    results.into_iter().all(|result| result)
}

/// Reduction of votes on whether a queue is over its share: the first yes over all tiers decides; without a vote no.
pub fn any(results: impl IntoIterator<Item = bool>) -> bool {
    results.into_iter().any(|result| result)
}

/// Reduction of votes on whether a job is starving: the first tier with the hook decides, and all of its votes must be
/// yes; without a vote no.
pub fn starving<V: IntoIterator<Item = bool>>(tiers: impl IntoIterator<Item = V>) -> bool {
    for tier in tiers {
        let mut asked = false;
        for result in tier {
            if !result {
                return false;
            }
            asked = true;
        }
        if asked {
            return true;
        }
    }
    false
}

/// Reduction of votes on whether a job is valid: the first objection; `None`: there is none.
pub fn objection<O>(results: impl IntoIterator<Item = Option<O>>) -> Option<O> {
    results.into_iter().flatten().next()
}

/// Reduction of target jobs: the first plugin with the hook decides, even if it names no job.
pub fn target<J>(results: impl IntoIterator<Item = Option<J>>) -> Option<J> {
    results.into_iter().next().flatten()
}

/// Compares keys value by value; the first difference decides. At the end of a key, and at NaN, the keys are equal, as
/// in the reference. This is not a total order: `[1]` equals `[1, 2]` and `[1, 3]`.
pub fn compare_keys(left: &[f64], right: &[f64]) -> Ordering {
    let first = left.iter().zip(right).find(|(left, right)| left != right);
    first
        .and_then(|(left, right)| left.partial_cmp(right))
        .unwrap_or(Ordering::Equal)
}

/// Compares keys value by value; the first difference decides, and a key comes before its own extensions. That is a
/// total order.
pub fn compare_keys_totally(left: &[f64], right: &[f64]) -> Ordering {
    let first = left.iter().zip(right).find(|(left, right)| left != right);
    let differ = |(left, right): (&f64, &f64)| left.total_cmp(right);
    first.map_or(Ordering::Equal, differ).then(left.len().cmp(&right.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tie_break_key(name: &str) -> TieBreakKey<'_> {
        TieBreakKey {
            creation_time: None,
            name,
        }
    }

    #[test]
    fn tasks_of_a_row_go_by_number() {
        let first =
            |left: &str, right: &str| tie_break_key(left).compare_tasks(&tie_break_key(right)) == Ordering::Less;
        assert!(first("ns/j-w-9", "ns/j-w-10"));
        assert!(first("ns/j-w--1", "ns/j-w-+3"), "the last part is 1");
        assert!(first("ns/j-10", "ns/j-9"), "two parts only: by name");
        assert!(first("ns/a-b-07", "ns/a-b-7"), "equal numbers: by name");
        assert!(
            first("my-name-space/j-10", "my-name-space/j-9"),
            "the namespace has no say"
        );
    }

    #[test]
    fn keys_end_where_the_shorter_ends() {
        let (short, long, other) = ([0.0, 0.5], [0.0, 0.5, 0.0, 0.1], [0.0, 0.5, 0.0, 0.2]);
        assert_eq!(compare_keys(&short, &long), Ordering::Equal);
        assert_eq!(compare_keys(&long, &other), Ordering::Less);
        assert_eq!(compare_keys(&[f64::NAN, 1.0], &[0.0, 2.0]), Ordering::Equal);
        assert_eq!(compare_keys_totally(&short, &long), Ordering::Less);
        assert_eq!(compare_keys_totally(&[-0.0], &[0.0]), Ordering::Equal);
    }

    #[test]
    fn votes() {
        assert!(permits([vec![0], vec![1, 1], vec![-1]]), "a tier that permits ends it");
        assert!(!permits([vec![0], vec![1, -1]]), "a refusal ends it at once");
        assert!(permits([Vec::new()]));
        assert!(!starving([Vec::new(), vec![true, false], vec![true]]));
        assert!(starving([Vec::new(), vec![true], vec![false]]));
        assert_eq!(target([None, Some(1)]), None);
        assert_eq!(objection([None, Some(1)]), Some(1));
    }
}
