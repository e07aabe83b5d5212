//! Standstills: tasks that wait for amounts of a node on which nothing is being released.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::cycle_tasks::CycleTasks;
use pumice_engine::actions::{CycleAction, CycleEvent};

/// Task that every cycle gives a place that is free, and that no cycle binds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskStandstill {
    pub(super) task: String,
    /// Node that the task waits on.
    pub(super) node: String,
    /// Action that pipelines the task there.
    pub(super) action: String,
    /// Number of the cycle from which nothing changes for the task; the first cycle is 0.
    pub(super) cycle: u64,
    /// Time of that cycle, in seconds after the first arrival.
    pub(super) seconds: f64,
}

/// Tasks that stand still, cycle by cycle.
#[derive(Debug, Default)]
pub(super) struct StandstillWatch {
    /// By task: node, action, and the cycle of the beginning.
    waiting_since: BTreeMap<Arc<str>, (Arc<str>, CycleAction, u64)>,
}

impl StandstillWatch {
    /// Follows the events of a cycle, after they have changed the tasks.
    pub(super) fn follow(&mut self, events: &[CycleEvent], tasks: &CycleTasks, cycle: u64) {
        let before = std::mem::take(&mut self.waiting_since);
        for event in events {
            let CycleEvent::Pipelined { task, node, action } = event else {
                continue;
            };
            if !tasks.is_releasing_on(node) {
                let same = before
                    .get(task)
                    .filter(|(at, by, _)| at == node && by == action)
                    .map(|(.., since)| *since);
                let since = same.unwrap_or(cycle);
                self.waiting_since
                    .insert(Arc::clone(task), (Arc::clone(node), *action, since));
            }
        }
    }

    /// Tasks that have stood still since this cycle or an earlier one, by name.
    pub(super) fn since(&self, latest: u64, period: f64) -> Vec<TaskStandstill> {
        let waiting_since = self.waiting_since.iter().filter(|(_, (.., since))| *since <= latest);
        let waiting_since = waiting_since.map(|(task, (node, action, since))| TaskStandstill {
            task: task.to_string(),
            node: node.to_string(),
            action: action.name().to_owned(),
            cycle: *since,
            seconds: *since as f64 * period,
        });
        waiting_since.collect()
    }
}
