//! Ranks of queues, jobs and tasks.

use std::sync::Arc;

use super::job_state::JobState;
use crate::model::Problem;

/// Order keys by plugin name, in tier order. For example, `[("priority", [-10.0]), ("drf", [0.25])]`.
pub type PluginKeys = Vec<(Arc<str>, Vec<f64>)>;

/// Rank of a queue, job or task.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderRank {
    /// Name of the queue, job or task.
    pub name: Arc<str>,
    /// Keys by plugin, in tier order; or the problem that it has no rank.
    pub keys: Result<PluginKeys, Problem>,
    /// State of a job; `None`: no plugin has an opinion on it. Boxed, since ranks move while they are sorted.
    pub state: Option<Box<JobState>>,
    /// Of a queue: true if it is served no more tasks; `None`: no plugin has an opinion, or the query names plugins.
    pub overused: Option<bool>,
}

impl OrderRank {
    pub(super) fn new(name: Arc<str>, keys: Result<PluginKeys, Problem>) -> Self {
        Self {
            name,
            keys,
            state: None,
            overused: None,
        }
    }
}
