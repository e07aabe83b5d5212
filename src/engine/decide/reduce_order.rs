//! How several plugins' comparisons and votes become one: Volcano's tiers, over answers given as data.
//!
//! Iterators hold the answers in order, tier by tier, of plugins that are switched on and have the hook; they are read
//! only as far as the rule asks.

use std::cmp::Ordering;

/// A comparison by several plugins: the first value that is not 0, as it is.
pub fn compare(values: impl IntoIterator<Item = i64>) -> i64 {
    values.into_iter().find(|value| *value != 0).unwrap_or(0)
}

/// Does the left one come first? The sign of the first value that is not 0; if there is none, `tie`.
pub fn less(values: impl IntoIterator<Item = i64>, tie: impl FnOnce() -> Ordering) -> bool {
    match compare(values) {
        0 => tie() == Ordering::Less,
        value => value < 0,
    }
}

/// Which of two queues gives way first: the sign of the first value that is not 0; if there is none, the one that is not
/// first in the order of queues.
pub fn victim_queue_less(values: impl IntoIterator<Item = i64>, queue_less: impl FnOnce() -> bool) -> bool {
    match compare(values) {
        0 => !queue_less(),
        value => value < 0,
    }
}

/// What decides between records that plugins hold equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TieBreakKey<'a> {
    /// Seconds since 1970; `None`: oldest.
    pub creation_time: Option<i64>,
    /// Name: of a job `namespace/name`, of a task its uid in Volcano's sense, `namespace/name` too.
    pub name: &'a str,
}

impl TieBreakKey<'_> {
    /// The older one first, then by name.
    pub fn compare_by_age(&self, other: &TieBreakKey<'_>) -> Ordering {
        (self.creation_time, self.name).cmp(&(other.creation_time, other.name))
    }

    /// As for tasks: if both names have three or more parts between `-` and end in different whole numbers, the smaller
    /// number first; else as [`Self::tie`]. This is not transitive: never sort by it.
    pub fn compare_tasks(&self, other: &TieBreakKey<'_>) -> Ordering {
        match (self.task_index(), other.task_index()) {
            (Some(own), Some(other)) if own != other => own.cmp(&other),
            _ => self.compare_by_age(other),
        }
    }

    fn task_index(&self) -> Option<i64> {
        let name = self.name.rsplit_once('/').map_or(self.name, |(_, name)| name);
        let (_, last) = name.split_once('-')?.1.rsplit_once('-')?;
        last.parse().ok()
    }
}

/// Puts records in order by choosing, again and again, the first of those left: start with the first, and take another
/// when it comes before. That needs no total order, which a sort would.
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

/// May a job be enqueued, is it pipelined: a vote below 0 refuses at once; a tier with a vote above 0 permits, and later
/// tiers are not asked; nobody: permitted.
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

/// Is a job ready, may a queue preempt, may it take a task: the first no decides, over all tiers; nobody: yes.
pub fn all(results: impl IntoIterator<Item = bool>) -> bool {
    results.into_iter().all(|result| result)
}

/// Is a queue over its share: the first yes decides, over all tiers; nobody: no.
pub fn any(results: impl IntoIterator<Item = bool>) -> bool {
    results.into_iter().any(|result| result)
}

/// Is a job starving: the first tier in which anybody has the hook decides, and there all must say yes; nobody: no.
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

/// Is a job valid: the first objection; `None`: nobody objects.
pub fn objection<O>(results: impl IntoIterator<Item = Option<O>>) -> Option<O> {
    results.into_iter().flatten().next()
}

/// Which job is meant: the first that has the hook answers, also with nobody.
pub fn target<J>(results: impl IntoIterator<Item = Option<J>>) -> Option<J> {
    results.into_iter().next().flatten()
}

/// Compares keys value by value; the first difference decides. Where one key ends, and at a value that is not a number,
/// they are equal, as in the reference: no total order.
pub fn compare_keys(left: &[f64], right: &[f64]) -> Ordering {
    let first = left.iter().zip(right).find(|(left, right)| left != right);
    first
        .and_then(|(left, right)| left.partial_cmp(right))
        .unwrap_or(Ordering::Equal)
}

/// Compares keys value by value; the first difference decides, and a key comes before its own extensions. A total order.
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
