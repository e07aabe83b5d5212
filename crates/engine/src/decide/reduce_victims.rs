//! Reductions of several plugins' victims to one list, and the order of evictions: Volcano's tiers, over results given
//! as data.

use super::heap::SchedulingHeap;
use crate::policy::Compatibility;

/// Victims of several plugins. `None` is an abstention, a list is a vote. The lists of a tier are intersected, in the
/// order of the first list: for example `[a, b, c]` and `[c, a]` give `[a, c]`. An empty vote ends the tier, and the next
/// tier is evaluated. Returns `None` without victims.
///
/// After an empty intersection the reference uses the next vote of the tier unchanged, and so loses a veto. Under
/// `corrected` an empty intersection ends the tier like an empty vote. Equal entries of two lists multiply.
pub fn victims<T, V>(tiers: impl IntoIterator<Item = V>, compatibility: Compatibility) -> Option<Vec<T>>
where
    T: Clone + PartialEq,
    V: IntoIterator<Item = Option<Vec<T>>>,
{
    tiers.into_iter().find_map(|tier| tier_victims(tier, compatibility))
}

fn tier_victims<T: Clone + PartialEq>(
    votes: impl IntoIterator<Item = Option<Vec<T>>>,
    compatibility: Compatibility,
) -> Option<Vec<T>> {
    let mut victims: Option<Vec<T>> = None;
    for vote in votes.into_iter().flatten() {
        if vote.is_empty() {
            return None;
        }
        let Some(before) = victims else {
            victims = Some(vote);
            continue;
        };
        let both = before
            .into_iter()
            .flat_map(|victim| {
                let times = vote.iter().filter(|other| **other == victim).count();
                std::iter::repeat_n(victim, times)
            })
            .collect::<Vec<_>>();
        if both.is_empty() && compatibility == Compatibility::Corrected {
            return None;
        }
        victims = (!both.is_empty()).then_some(both);
    }
    victims
}

/// Relation of two victims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimRelation {
    /// Both victims belong to the same job.
    SameJob,
    /// Victims of two jobs of one queue.
    SameQueue,
    /// Victims of two queues.
    OtherQueue,
    /// The left victim's job does not exist.
    LeftJobMissing,
    /// The right victim's job does not exist.
    RightJobMissing,
}

/// Order of two jobs of one queue, whose victims are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimJobs {
    /// Value of the comparison of the jobs: above 0 if the left one comes later. Equal jobs' victims are compared as tasks.
    Compared(i64),
    /// True if the left job comes first, ties included: no victims of the two jobs are mixed.
    Strict(bool),
}

/// True if the left victim is evicted before the right one. Within one job: if it is not first in the order of tasks.
/// Between two queues: by the order of victim queues alone. Between two jobs of one queue: if its job comes later, and
/// between equal jobs as within one job. A victim whose job does not exist comes first.
pub fn evicted_first(
    relation: VictimRelation,
    task_less: impl FnOnce() -> bool,
    jobs: impl FnOnce() -> VictimJobs,
    victim_queue_less: impl FnOnce() -> bool,
) -> bool {
    match relation {
        VictimRelation::SameJob => !task_less(),
        VictimRelation::OtherQueue => victim_queue_less(),
        VictimRelation::SameQueue => match jobs() {
            VictimJobs::Compared(0) => !task_less(),
            VictimJobs::Compared(value) => value > 0,
            VictimJobs::Strict(is_first) => !is_first,
        },
        VictimRelation::LeftJobMissing => true,
        VictimRelation::RightJobMissing => false,
    }
}

/// Order in which a binary heap (Go's container/heap) returns records that were pushed in this order. The order of
/// equal records depends on the heap's swaps, which this function reproduces.
pub fn heap_order<T>(records: Vec<T>, less: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let is_before = |left: usize, right: usize| match (records.get(left), records.get(right)) {
        (Some(left), Some(right)) => less(left, right),
        _ => false,
    };
    let mut heap = SchedulingHeap::new();
    (0..records.len()).for_each(|number| heap.push(number, is_before));
    let order: Vec<usize> = std::iter::from_fn(|| heap.pop(is_before)).collect();
    let mut records: Vec<Option<T>> = records.into_iter().map(Some).collect();
    let taken = order.into_iter().filter_map(|number| records.get_mut(number)?.take());
    taken.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Compatibility::Corrected;

    #[test]
    fn a_lost_veto_is_lost_under_upstream_only() {
        let tier = || [vec![Some(vec![1, 2]), Some(vec![3]), Some(vec![3, 4])]];
        assert_eq!(victims(tier(), Compatibility::UPSTREAM), Some(vec![3, 4]));
        assert_eq!(victims(tier(), Corrected), None::<Vec<i32>>);
    }

    #[test]
    fn an_empty_vote_ends_the_tier_and_the_next_is_asked() {
        for compatibility in [Compatibility::UPSTREAM, Corrected] {
            let tiers = [
                vec![Some(vec![1]), Some(vec![]), Some(vec![1])],
                vec![None, Some(vec![2])],
            ];
            assert_eq!(victims(tiers, compatibility), Some(vec![2]));
            assert_eq!(victims([vec![None::<Vec<i32>>]], compatibility), None);
        }
    }

    #[test]
    fn duplicates_multiply() {
        assert_eq!(
            victims([vec![Some(vec![1, 1]), Some(vec![1, 1])]], Compatibility::UPSTREAM),
            Some(vec![1; 4])
        );
    }

    #[test]
    fn a_heap_sorts_what_is_ordered() {
        assert_eq!(heap_order(vec![3, 1, 2, 5, 4], |a, b| a < b), [1, 2, 3, 4, 5]);
    }
}
