//! Who is next: keys of jobs and queues, and how they compare.

use std::cmp::Ordering;

use super::DrfState;
use super::layout::QueuePosition;
use crate::engine::model::{Problem, ProblemKind};

/// One level of a queue's key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ShareLevel {
    /// Saturated nodes come last.
    pub(super) saturated: bool,
    /// Share divided by weight.
    pub(super) share: f64,
}

impl DrfState {
    /// A job's share, which is its key; `None`: there is no such job.
    pub fn job_share(&self, job: &str) -> Option<f64> {
        let account = self.accounts.get(self.layout.job_number(job)?)?;
        Some(self.layout.dimensions.exact_share(&account.held))
    }

    /// Why a job has no place in the tree.
    pub fn job_problem(&self, job: &str) -> Option<&Problem> {
        let job = self.layout.jobs.get(self.layout.job_number(job)?)?;
        job.leaf.as_ref().err()
    }

    /// A queue's key: for each level below the root saturated (0 or 1), then share divided by weight. Levels where no
    /// queue has a job count as free and empty.
    ///
    /// # Errors
    /// The queue has no place in the tree, or is not there; without hierarchy there is no tree.
    pub fn queue_key(&self, queue: &str) -> Result<Vec<f64>, Problem> {
        let levels = self.queue_levels(self.queue_position(queue)?);
        let values = levels
            .iter()
            .flat_map(|level| [f64::from(u8::from(level.saturated)), level.share]);
        Ok(values.collect())
    }

    /// A queue's place in the tree.
    pub(super) fn queue_position(&self, queue: &str) -> Result<&QueuePosition, Problem> {
        match self.layout.queues.get(queue) {
            Some(Ok(queue)) => Ok(queue),
            Some(Err(problem)) => Err(problem.clone()),
            None => {
                let message = format!("there is no queue `{queue}`");
                Err(Problem::new(ProblemKind::NotFound, "UNKNOWN_QUEUE", "", message))
            }
        }
    }

    /// A queue's levels from below the root on.
    pub(super) fn queue_levels(&self, queue: &QueuePosition) -> Vec<ShareLevel> {
        let known = queue.nodes.iter().map(|number| self.node_level(*number));
        let free = ShareLevel {
            saturated: false,
            share: 0.0,
        };
        known.chain(std::iter::repeat(free)).take(queue.depth).collect()
    }

    fn node_level(&self, number: usize) -> ShareLevel {
        let measurement = self.layout.nodes.get(number).and_then(|node| {
            let (saturated, share) = self.tree.as_ref()?.saturation_and_share(number)?;
            Some(ShareLevel {
                saturated,
                share: share / node.weight,
            })
        });
        measurement.unwrap_or(ShareLevel {
            saturated: false,
            share: 0.0,
        })
    }
}

/// Compares two queues as the reference does: level by level down to the shorter path. The first difference decides; a
/// share that is not a number equals everything and ends the comparison.
pub(super) fn compare_levels(left: &[ShareLevel], right: &[ShareLevel]) -> Ordering {
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
