//! Victims: the candidates that may be evicted in preemption within a queue, and in reclaim between queues.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::layout::QueuePosition;
use super::order::compare_levels;
use super::resource_set::ResourceSet;
use super::saturation::SaturationRule;
use super::share::{ExactAmounts, add_amounts, subtract_amounts};
use super::tree::JobLeaf;
use super::{DrfState, JobAccount, job_leaf};
use crate::model::{Problem, TaskRecord};
use crate::plugin_state::TaskTransition;
use crate::policy::Compatibility;

/// Difference up to which shares of jobs count as equal in preemption (Volcano ed72c7c81, `drf.go`).
const SHARE_DELTA: f64 = 0.000_001;

/// Relative difference up to which a share counts as equal to the deserved one: shares are sums of quotients.
const DESERVED_DELTA: f64 = 1e-9;

impl DrfState {
    /// Preemption: true for each candidate that may be evicted so that the preemptor's job stays behind the
    /// candidate's.
    ///
    /// Under `upstream` jobs compare by their shares whatever their queue, and a spared candidate still counts as
    /// evicted from its job when later ones are judged. Under `corrected` a candidate in another queue of the hierarchy
    /// is evicted only if the preemptor's queue comes first, and only evicted candidates count as evicted.
    ///
    /// # Errors
    /// Under `upstream`, a candidate is more than its job holds: the reference panics. Under `corrected`, the
    /// preemptor's queue is not in the tree.
    pub fn preempt(&self, preemptor: &TaskRecord, candidates: &[&TaskRecord]) -> Result<Vec<bool>, Problem> {
        let Some(job) = self.layout.job_number(&preemptor.job) else {
            return Ok(vec![false; candidates.len()]);
        };
        match self.layout.compatibility {
            Compatibility::Upstream(_) => self.preempt_upstream(job, preemptor, candidates),
            Compatibility::Corrected => {
                let asking = self.with_preemptor_placed(job, preemptor)?;
                let judge = |trial: &VictimTrial, other: usize, _: &TaskRecord| self.may_preempt(trial, job, other);
                Ok(asking.judge_each(candidates, judge))
            }
        }
    }

    /// Reclaim: true for each candidate that may be evicted; `None` without hierarchy, where queues have no shares.
    ///
    /// Under `upstream` a candidate is evicted if the preemptor's queue still comes before the candidate's after both
    /// changed places; each is judged alone. Under `corrected` a candidate is evicted if, below the point where the two
    /// paths part and after the earlier victims are evicted, the preemptor's nodes stay within what they deserve, and
    /// the candidate's keep what they deserve. The holdings that count are those of the resource of which the task is
    /// the largest part, not rescaled: rescaled shares would protect a node whose children hold unequal amounts.
    ///
    /// # Errors
    /// The errors of [`Self::preempt`].
    pub fn reclaim(&self, preemptor: &TaskRecord, candidates: &[&TaskRecord]) -> Result<Option<Vec<bool>>, Problem> {
        if self.tree.is_none() {
            return Ok(None);
        }
        let Some(job) = self.layout.job_number(&preemptor.job) else {
            return Ok(Some(vec![false; candidates.len()]));
        };
        match self.layout.compatibility {
            Compatibility::Upstream(_) => self.reclaim_upstream(job, preemptor, candidates).map(Some),
            Compatibility::Corrected => {
                let asking = self.with_preemptor_placed(job, preemptor)?;
                let wanted = self.largest_requested(preemptor);
                let judge = |trial: &VictimTrial, other: usize, candidate: &TaskRecord| {
                    self.may_reclaim(trial, (job, wanted), (other, self.largest_requested(candidate)))
                };
                Ok(Some(asking.judge_each(candidates, judge)))
            }
        }
    }

    fn preempt_upstream(
        &self,
        job: usize,
        preemptor: &TaskRecord,
        candidates: &[&TaskRecord],
    ) -> Result<Vec<bool>, Problem> {
        let mut wanted = self.job_held(job);
        add_amounts(&mut wanted, &self.layout.dimensions.by_position(&preemptor.requests).0);
        let wanted = self.layout.dimensions.exact_share(&wanted);
        let mut left: BTreeMap<usize, ExactAmounts> = BTreeMap::new();
        let judged = candidates.iter().enumerate().map(|(number, candidate)| {
            let Some(job) = self.layout.job_number(&candidate.job) else {
                return Ok(false);
            };
            let left = left.entry(job).or_insert_with(|| self.job_held(job));
            self.subtract_requests(left, &candidate.requests, &candidate.job)
                .map_err(|problem| problem.within(&format!("candidates[{number}]")))?;
            Ok(stays_behind(wanted, self.layout.dimensions.exact_share(left)))
        });
        judged.collect()
    }

    fn reclaim_upstream(
        &self,
        job: usize,
        preemptor: &TaskRecord,
        candidates: &[&TaskRecord],
    ) -> Result<Vec<bool>, Problem> {
        let Some(own) = self.queue_of(job)? else {
            return Ok(vec![false; candidates.len()]);
        };
        let mut moved = self.clone();
        let (requests, _) = self.layout.dimensions.by_position(&preemptor.requests);
        moved.set_held(job, |held, allocated| {
            add_amounts(held, &requests);
            add_amounts(allocated, &requests);
        });
        let judged = candidates.iter().enumerate().map(|(number, candidate)| {
            let Some(other) = self.layout.job_number(&candidate.job) else {
                return Ok(false);
            };
            let Some(queue) = self.queue_of(other)? else {
                return Ok(false);
            };
            let mut left = self.job_held(other);
            self.subtract_requests(&mut left, &candidate.requests, &candidate.job)
                .map_err(|problem| problem.within(&format!("candidates[{number}]")))?;
            let (taken, _) = self.layout.dimensions.by_position(&candidate.requests);
            let mut trial = moved.clone();
            trial.set_held(other, |held, allocated| {
                *held = left;
                subtract_amounts(allocated, &taken);
            });
            if other == job {
                // The reference restores the holdings that the job had before the query.
                moved.set_held(job, |held, _| *held = self.job_held(job));
            }
            Ok(compare_levels(&trial.queue_levels(own), &trial.queue_levels(queue)) == Ordering::Less)
        });
        judged.collect()
    }

    /// Holdings of a job.
    fn job_held(&self, job: usize) -> ExactAmounts {
        self.accounts
            .get(job)
            .map(|account| account.held.clone())
            .unwrap_or_default()
    }

    /// Queue of a job; `None`: there is no such queue.
    ///
    /// # Errors
    /// The queue is not in the tree.
    fn queue_of(&self, job: usize) -> Result<Option<&QueuePosition>, Problem> {
        let queue = self
            .layout
            .jobs
            .get(job)
            .and_then(|job| self.layout.queues.get(&job.queue));
        match queue {
            Some(Ok(queue)) => Ok(Some(queue)),
            Some(Err(problem)) => Err(problem.clone()),
            None => Ok(None),
        }
    }

    /// Changes the holdings of a job, and of all jobs.
    fn set_held(&mut self, job: usize, change: impl FnOnce(&mut ExactAmounts, &mut ExactAmounts)) {
        let Some(mut account) = self.accounts.get(job).map(|own| JobAccount::clone(own)) else {
            return;
        };
        let mut allocated = self.allocated.clone();
        change(&mut account.held, &mut allocated);
        self.update_job(job, account, allocated);
    }

    /// State in which the preemptor is placed and its job still requests more. The exhausted resources are those
    /// without the preemptor: amounts that candidates free are then available, and count in the shares.
    fn with_preemptor_placed(&self, job: usize, preemptor: &TaskRecord) -> Result<VictimTrial, Problem> {
        if self.tree.is_some() {
            self.layout
                .jobs
                .get(job)
                .map_or(Ok(()), |job| job.leaf.clone().map(|_| ()))?;
        }
        let mut moved = self.clone();
        let Some(mut account) = self.accounts.get(job).map(|own| JobAccount::clone(own)) else {
            return Ok(VictimTrial { state: moved, job });
        };
        add_amounts(
            &mut account.held,
            &self.layout.dimensions.by_position(&preemptor.requests).0,
        );
        if let (Some(tree), Some(place)) = (&mut moved.tree, self.leaf_position(job)) {
            let asking = JobLeaf {
                saturation: SaturationRule::AnyExhausted(ResourceSet::empty(self.layout.dimensions.len())),
                ..job_leaf(&self.layout, job, &account)
            };
            tree.set_leaf(&self.layout, place, asking);
        }
        moved.set_account(job, account);
        Ok(VictimTrial { state: moved, job })
    }

    /// True if `corrected` permits the preemption of the candidate, which is already evicted in the trial.
    fn may_preempt(&self, trial: &VictimTrial, job: usize, candidate: usize) -> bool {
        let queues = (self.queue_of(job), self.queue_of(candidate));
        if let (Ok(Some(own)), Ok(Some(other))) = queues
            && own.nodes != other.nodes
        {
            return compare_levels(&trial.state.queue_levels(own), &trial.state.queue_levels(other)) == Ordering::Less;
        }
        let share = |job| self.layout.dimensions.exact_share(&trial.state.job_held(job));
        stays_behind(share(job), share(candidate))
    }

    /// Resource of which a task's requests are the largest part.
    fn largest_requested(&self, task: &TaskRecord) -> Option<usize> {
        self.layout
            .dimensions
            .largest_resource(&self.layout.dimensions.by_position(&task.requests).0)
    }

    /// True if `corrected` permits to reclaim the candidate, which is already evicted in the trial. Jobs come with the
    /// resource that counts.
    fn may_reclaim(
        &self,
        trial: &VictimTrial,
        (job, wanted): (usize, Option<usize>),
        (other, given): (usize, Option<usize>),
    ) -> bool {
        let (Ok(Some(own)), Ok(Some(other))) = (self.queue_of(job), self.queue_of(other)) else {
            return false;
        };
        let both = own.nodes.iter().zip(&other.nodes);
        let common = both.take_while(|(own, other)| own == other).count();
        let (Some(own), Some(other)) = (own.nodes.get(common..), other.nodes.get(common..)) else {
            return false;
        };
        let has = |number: usize, resource: Option<usize>| {
            let part = self
                .layout
                .dimensions
                .resource_part(trial.state.held_below.get(number)?, resource?)?;
            Some((part, self.layout.nodes.get(number)?.deserved))
        };
        let within =
            |node: &usize| has(*node, wanted).is_none_or(|(part, deserved)| part <= deserved * (1.0 + DESERVED_DELTA));
        let keeps =
            |node: &usize| has(*node, given).is_some_and(|(part, deserved)| part >= deserved * (1.0 - DESERVED_DELTA));
        !own.is_empty() && !other.is_empty() && own.iter().all(within) && other.iter().all(keeps)
    }
}

/// State in which the preemptor is placed, and victims are evicted.
struct VictimTrial {
    state: DrfState,
    /// Number of the preemptor's job.
    job: usize,
}

impl VictimTrial {
    /// Judges candidates in order; evicted ones stay evicted when the next is judged. Spared are tasks of the
    /// preemptor's own job, which would gain nothing, and tasks that their job does not hold or that were evicted
    /// before.
    fn judge_each(
        mut self,
        candidates: &[&TaskRecord],
        judge: impl Fn(&Self, usize, &TaskRecord) -> bool,
    ) -> Vec<bool> {
        let mut gone: BTreeSet<&str> = BTreeSet::new();
        let judged = candidates.iter().map(|candidate| {
            let named = !candidate.name.is_empty();
            if named && gone.contains(&*candidate.name) {
                return false;
            }
            let job = self.state.layout.job_number(&candidate.job);
            let Some(job) = job.filter(|job| *job != self.job) else {
                return false;
            };
            let moved = TaskTransition::new(candidate, candidate, "");
            if self.state.apply_tasks(std::iter::once((moved, false))).is_err() {
                return false;
            }
            let goes = judge(&self, job, candidate);
            if !goes {
                // Integers are restored exactly, and an addition never fails.
                let _ = self.state.apply_tasks(std::iter::once((moved, true)));
            } else if named {
                gone.insert(&candidate.name);
            }
            goes
        });
        judged.collect()
    }
}

/// True if a job with the first share does not come after one with the second.
fn stays_behind(own: f64, other: f64) -> bool {
    own < other || (own - other).abs() <= SHARE_DELTA
}
