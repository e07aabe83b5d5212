//! Order of jobs and queues: their keys, and how the keys compare.

use std::cmp::Ordering;

use super::DrfState;
use super::layout::QueuePosition;
use crate::model::{ErrorCode, Problem};

/// Level of a queue's key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ShareLevel {
    /// True if the node is saturated; saturated nodes come last.
    pub(super) saturated: bool,
    /// Share divided by weight.
    pub(super) share: f64,
}

impl DrfState {
    /// Share of a job, which is its key; `None`: there is no such job.
    pub fn job_share(&self, job: &str) -> Option<f64> {
        let account = self.accounts.get(self.layout.job_number(job)?)?;
        Some(self.layout.dimensions.exact_share(&account.held))
    }

    /// Problem that keeps a job out of the tree.
    pub fn job_problem(&self, job: &str) -> Option<&Problem> {
        let job = self.layout.jobs.get(self.layout.job_number(job)?)?;
        job.leaf.as_ref().err()
    }

    /// Key of a queue: for each level below the root its saturation (0 or 1), then its share divided by its weight. A
    /// level without any job counts as not saturated, with share 0.
    ///
    /// # Errors
    /// The queue is not in the tree, or does not exist; without hierarchy there is no tree.
    pub fn queue_key(&self, queue: &str) -> Result<Vec<f64>, Problem> {
        let levels = self.queue_levels(self.queue_position(queue)?);
        let values = levels
            .iter()
            .flat_map(|level| [f64::from(u8::from(level.saturated)), level.share]);
        Ok(values.collect())
    }

    /// Position of a queue in the tree.
    pub(super) fn queue_position(&self, queue: &str) -> Result<&QueuePosition, Problem> {
        match self.layout.queues.get(queue) {
            Some(Ok(queue)) => Ok(queue),
            Some(Err(problem)) => Err(problem.clone()),
            None => {
                let message = format!("there is no queue `{queue}`");
                Err(Problem::new(ErrorCode::QueueUnknown, "", message))
            }
        }
    }

    /// Levels of a queue from below the root.
    pub(super) fn queue_levels(&self, queue: &QueuePosition) -> Vec<ShareLevel> {
        let known = queue
            .nodes
            .iter()
            .map(|number| self.node_level(*number).unwrap_or_default());
        let free = std::iter::repeat(ShareLevel::default());
        known.chain(free).take(queue.depth).collect()
    }

    fn node_level(&self, number: usize) -> Option<ShareLevel> {
        let weight = self.layout.nodes.get(number)?.weight;
        let (saturated, share) = self.tree.as_ref()?.saturation_and_share(number)?;
        Some(ShareLevel {
            saturated,
            share: share / weight,
        })
    }
}

/// Compares two queues as the reference does: level by level down to the end of the shorter path. The first difference
/// decides; a share that is not a number equals every share and ends the comparison.
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
