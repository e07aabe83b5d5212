//! Keys by which queues, jobs and tasks are ordered.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::decide::reduce_order::TieBreakKey;
use crate::model::TaskRecord;
use crate::plugin::{OrderKey, PluginContext};
use crate::policy::Policy;

/// Keys of one record, hook by hook; `None`: the hook orders nothing of the kind.
pub(super) type HookKeys = Vec<Option<OrderKey>>;

/// Known keys of records by their numbers; `None`: not known.
pub(super) type KeyCache = RefCell<Vec<Option<Arc<HookKeys>>>>;

/// Known keys of queues and jobs.
#[derive(Debug)]
pub(super) struct KeyCaches {
    pub(super) queues: KeyCache,
    pub(super) jobs: KeyCache,
}

impl KeyCaches {
    pub(super) fn new(queues: usize, jobs: usize) -> Self {
        Self {
            queues: RefCell::new(vec![None; queues]),
            jobs: RefCell::new(vec![None; jobs]),
        }
    }
}

/// Keys of a task, by which the policy's plugins order it.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskOrderKeys {
    /// Key of each plugin that orders tasks; `None`: the task has none.
    pub(super) keys: SmallVec<[Option<SmallVec<[f64; 2]>>; 1]>,
    /// Integer in which the name ends.
    pub(super) index: Option<i64>,
}

/// Keys of tasks, in their order.
pub(super) fn task_order_keys(
    policy: &Policy,
    context: PluginContext<'_>,
    tasks: &[&TaskRecord],
) -> Vec<TaskOrderKeys> {
    let index = |task: &&TaskRecord| TaskOrderKeys {
        keys: SmallVec::new(),
        index: tie_break(task).task_index(),
    };
    let mut all: Vec<TaskOrderKeys> = tasks.iter().map(index).collect();
    for hook in &policy.hooks().task_orders {
        let keys = hook.plugin.task_keys(context, tasks);
        let keys = keys.into_iter().flatten();
        for (own, key) in all.iter_mut().zip(keys) {
            own.keys.push(key.ok().map(SmallVec::from_vec));
        }
    }
    all
}

pub(super) fn tie_break(task: &TaskRecord) -> TieBreakKey<'_> {
    TieBreakKey {
        creation_time: task.creation_time.seconds(),
        name: &task.name,
    }
}
