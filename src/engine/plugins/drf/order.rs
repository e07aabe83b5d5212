//! Who is next: keys of jobs and queues, and how they compare.

use std::cmp::Ordering;

use super::Drf;
use super::shape::Queue;
use crate::engine::model::{Problem, ProblemKind};

/// One level of a queue's key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    /// Saturated nodes come last.
    pub(super) saturated: bool,
    /// Share divided by weight.
    pub(super) share: f64,
}

impl Drf {
    /// A job's share, which is its key; `None`: there is no such job.
    pub fn job_share(&self, job: &str) -> Option<f64> {
        let account = self.accounts.get(self.shape.job_number(job)?)?;
        Some(self.shape.dims.exact_share(&account.held))
    }

    /// Why a job has no place in the tree.
    pub fn job_problem(&self, job: &str) -> Option<&Problem> {
        let job = self.shape.jobs.get(self.shape.job_number(job)?)?;
        job.leaf.as_ref().err()
    }

    /// A queue's key: for each level below the root saturated (0 or 1), then share divided by weight. Levels where no
    /// queue has a job count as free and empty.
    ///
    /// # Errors
    /// The queue has no place in the tree, or is not there; without hierarchy there is no tree.
    pub fn queue_key(&self, queue: &str) -> Result<Vec<f64>, Problem> {
        let levels = self.levels(self.queue(queue)?);
        let values = levels
            .iter()
            .flat_map(|level| [f64::from(u8::from(level.saturated)), level.share]);
        Ok(values.collect())
    }

    /// A queue's place in the tree.
    pub(super) fn queue(&self, queue: &str) -> Result<&Queue, Problem> {
        match self.shape.queues.get(queue) {
            Some(Ok(queue)) => Ok(queue),
            Some(Err(problem)) => Err(problem.clone()),
            None => {
                let message = format!("there is no queue `{queue}`");
                Err(Problem::new(ProblemKind::NotFound, "UNKNOWN_QUEUE", "", message))
            }
        }
    }

    /// A queue's levels from below the root on.
    pub(super) fn levels(&self, queue: &Queue) -> Vec<Level> {
        let known = queue.nodes.iter().map(|number| self.level(*number));
        let free = Level {
            saturated: false,
            share: 0.0,
        };
        known.chain(std::iter::repeat(free)).take(queue.depth).collect()
    }

    fn level(&self, number: usize) -> Level {
        let figure = self.shape.nodes.get(number).and_then(|node| {
            let (saturated, share) = self.tree.as_ref()?.rank(number)?;
            Some(Level {
                saturated,
                share: share / node.weight,
            })
        });
        figure.unwrap_or(Level {
            saturated: false,
            share: 0.0,
        })
    }
}

/// Compares two queues as the reference does: level by level down to the shorter path. The first difference decides; a
/// share that is not a number equals everything and ends the comparison.
pub(super) fn compare(left: &[Level], right: &[Level]) -> Ordering {
    for (left, right) in left.iter().zip(right) {
        if left.saturated != right.saturated {
            return left.saturated.cmp(&right.saturated);
        }
        if left.share != right.share {
            return left.share.partial_cmp(&right.share).unwrap_or(Ordering::Equal);
        }
    }
    Ordering::Equal
}
