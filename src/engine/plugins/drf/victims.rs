//! Who may have to go: candidates of preemption within a queue, and of reclaim between queues.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::bits::Bits;
use super::needs::Need;
use super::order::compare;
use super::shape::Queue;
use super::share::{Exact, add, subtract};
use super::tree::Leaf;
use super::{Drf, leaf};
use crate::engine::model::{Problem, TaskRecord};
use crate::engine::policy::Compatibility;

/// Shares of jobs that differ by no more than this are equal when one job preempts another (Volcano ed72c7c81, `drf.go`).
const SHARE_DELTA: f64 = 0.000_001;

/// How far a share may be off what is deserved and still count as equal, relatively: shares are sums of quotients.
const DESERVED_DELTA: f64 = 1e-9;

impl Drf {
    /// Preemption: for each candidate, whether it may go, so that the preemptor's job stays behind the candidate's.
    ///
    /// Under `upstream` jobs compare by their shares whatever queue they are in, and a candidate that is spared is still
    /// taken away from its job when later ones are judged. Under `corrected` a candidate in another queue of the hierarchy
    /// goes only if the preemptor's queue comes first, and only those that go are taken away.
    ///
    /// # Errors
    /// Under `upstream`, a candidate is more than its job holds: the reference panics. Under `corrected`, the
    /// preemptor's queue has no place in the tree.
    pub fn preempt(&self, preemptor: &TaskRecord, candidates: &[&TaskRecord]) -> Result<Vec<bool>, Problem> {
        let Some(job) = self.shape.job_number(&preemptor.job) else {
            return Ok(vec![false; candidates.len()]);
        };
        match self.shape.compatibility {
            Compatibility::Upstream => self.preempt_upstream(job, preemptor, candidates),
            Compatibility::Corrected => {
                let asking = self.asking(job, preemptor)?;
                let judge = |trial: &Trial, other: usize, _: &TaskRecord| self.preempts(trial, job, other);
                Ok(asking.judge_each(candidates, judge))
            }
        }
    }

    /// Reclaim: for each candidate, whether it may go; `None` without hierarchy, where queues have no shares.
    ///
    /// Under `upstream` a candidate goes if the preemptor's queue still comes before the candidate's once the two
    /// changed places; each is judged alone. Under `corrected` a candidate goes if, from where the two paths part, the
    /// preemptor's queue and all above it stay within what they deserve, and the candidate's keep what they deserve, all
    /// earlier victims gone. What counts is what they hold, as it is, of the resource of which the task is the largest
    /// part: rescaled shares would shield a node whose children hold unequal amounts.
    ///
    /// # Errors
    /// As [`Self::preempt`].
    pub fn reclaim(&self, preemptor: &TaskRecord, candidates: &[&TaskRecord]) -> Result<Option<Vec<bool>>, Problem> {
        if self.tree.is_none() {
            return Ok(None);
        }
        let Some(job) = self.shape.job_number(&preemptor.job) else {
            return Ok(Some(vec![false; candidates.len()]));
        };
        match self.shape.compatibility {
            Compatibility::Upstream => self.reclaim_upstream(job, preemptor, candidates).map(Some),
            Compatibility::Corrected => {
                let asking = self.asking(job, preemptor)?;
                let wanted = self.largest(preemptor);
                let judge = |trial: &Trial, other: usize, candidate: &TaskRecord| {
                    self.reclaims(trial, (job, wanted), (other, self.largest(candidate)))
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
        let mut wanted = self.held(job);
        add(&mut wanted, &self.shape.dims.place(&preemptor.requests).0);
        let wanted = self.shape.dims.exact_share(&wanted);
        let mut left: BTreeMap<usize, Exact> = BTreeMap::new();
        let judged = candidates.iter().enumerate().map(|(number, candidate)| {
            let Some(job) = self.shape.job_number(&candidate.job) else {
                return Ok(false);
            };
            let left = left.entry(job).or_insert_with(|| self.held(job));
            self.take(left, &candidate.requests, &candidate.job)
                .map_err(|problem| problem.within(&format!("candidates[{number}]")))?;
            Ok(stays_behind(wanted, self.shape.dims.exact_share(left)))
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
        let (requests, _) = self.shape.dims.place(&preemptor.requests);
        moved.set_held(job, |held, allocated| {
            add(held, &requests);
            add(allocated, &requests);
        });
        let judged = candidates.iter().enumerate().map(|(number, candidate)| {
            let Some(other) = self.shape.job_number(&candidate.job) else {
                return Ok(false);
            };
            let Some(queue) = self.queue_of(other)? else {
                return Ok(false);
            };
            let mut left = self.held(other);
            self.take(&mut left, &candidate.requests, &candidate.job)
                .map_err(|problem| problem.within(&format!("candidates[{number}]")))?;
            let (taken, _) = self.shape.dims.place(&candidate.requests);
            let mut trial = moved.clone();
            trial.set_held(other, |held, allocated| {
                *held = left;
                subtract(allocated, &taken);
            });
            if other == job {
                // The reference puts back what the job held before it asked.
                moved.set_held(job, |held, _| *held = self.held(job));
            }
            Ok(compare(&trial.levels(own), &trial.levels(queue)) == Ordering::Less)
        });
        judged.collect()
    }

    /// What a job holds.
    fn held(&self, job: usize) -> Exact {
        self.accounts
            .get(job)
            .map(|account| account.held.clone())
            .unwrap_or_default()
    }

    /// The queue of a job; `None`: there is no such queue.
    ///
    /// # Errors
    /// The queue has no place in the tree.
    fn queue_of(&self, job: usize) -> Result<Option<&Queue>, Problem> {
        let queue = self
            .shape
            .jobs
            .get(job)
            .and_then(|job| self.shape.queues.get(&job.queue));
        match queue {
            Some(Ok(queue)) => Ok(Some(queue)),
            Some(Err(problem)) => Err(problem.clone()),
            None => Ok(None),
        }
    }

    /// Changes what a job holds, and what all do.
    fn set_held(&mut self, job: usize, change: impl FnOnce(&mut Exact, &mut Exact)) {
        let Some(mut account) = self.accounts.get(job).cloned() else {
            return;
        };
        let mut allocated = self.allocated.clone();
        change(&mut account.held, &mut allocated);
        self.restate(job, account, allocated);
    }

    /// The state in which a task has what it asks for, and its job still asks. What is exhausted stays as it is without
    /// it: what candidates give back is then to be had, and counts in the shares.
    fn asking(&self, job: usize, preemptor: &TaskRecord) -> Result<Trial, Problem> {
        if self.tree.is_some() {
            self.shape
                .jobs
                .get(job)
                .map_or(Ok(()), |job| job.leaf.clone().map(|_| ()))?;
        }
        let mut moved = self.clone();
        let Some(mut account) = self.accounts.get(job).cloned() else {
            return Ok(Trial { moved, job });
        };
        add(&mut account.held, &self.shape.dims.place(&preemptor.requests).0);
        if let (Some(tree), Some(place)) = (&mut moved.tree, self.place(job)) {
            let asking = Leaf {
                need: Need::Any(Bits::none(self.shape.dims.len())),
                ..leaf(&self.shape, job, &account)
            };
            tree.set_leaf(&self.shape, place, asking);
        }
        moved.put_account(job, account);
        Ok(Trial { moved, job })
    }

    /// The rule of preemption under `corrected`, with the candidate gone.
    fn preempts(&self, trial: &Trial, job: usize, candidate: usize) -> bool {
        let queues = (self.queue_of(job), self.queue_of(candidate));
        if let (Ok(Some(own)), Ok(Some(other))) = queues
            && own.nodes != other.nodes
        {
            return compare(&trial.moved.levels(own), &trial.moved.levels(other)) == Ordering::Less;
        }
        let share = |job| self.shape.dims.exact_share(&trial.moved.held(job));
        stays_behind(share(job), share(candidate))
    }

    /// The resource of which a task's requests are the largest part.
    fn largest(&self, task: &TaskRecord) -> Option<usize> {
        self.shape.dims.largest(&self.shape.dims.place(&task.requests).0)
    }

    /// The rule of reclaim under `corrected`, with the candidate gone. Jobs come with the resource that counts.
    fn reclaims(
        &self,
        trial: &Trial,
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
            let part = self.shape.dims.part(trial.moved.below.get(number)?, resource?)?;
            Some((part, self.shape.nodes.get(number)?.deserved))
        };
        let within =
            |node: &usize| has(*node, wanted).is_none_or(|(part, deserved)| part <= deserved * (1.0 + DESERVED_DELTA));
        let keeps =
            |node: &usize| has(*node, given).is_some_and(|(part, deserved)| part >= deserved * (1.0 - DESERVED_DELTA));
        !own.is_empty() && !other.is_empty() && own.iter().all(within) && other.iter().all(keeps)
    }
}

/// A state in which the preemptor has what it asks for, and victims are gone.
struct Trial {
    moved: Drf,
    /// The preemptor's job.
    job: usize,
}

impl Trial {
    /// Judges candidates in order; those that go are gone when the next is judged. Spared are those of the preemptor's own
    /// job, which would gain nothing, and one that its job does not hold, or of which nothing is left since it stood here
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
            let job = self.moved.shape.job_number(&candidate.job);
            let Some(job) = job.filter(|job| *job != self.job) else {
                return false;
            };
            if self.moved.count(candidate, false).is_err() {
                return false;
            }
            let goes = judge(&self, job, candidate);
            if !goes {
                // What is counted in integers is put back exactly, and adding never fails.
                let _ = self.moved.count(candidate, true);
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
