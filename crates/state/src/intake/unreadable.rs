//! Tasks that occupy a node and whose newest record is unreadable. If no good record accounts for the task on its node,
//! the node is marked invalid: its free capacity is unknown, and new tasks are not placed there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::batch::RejectedRecord;
use pumice_engine::model::{ClusterState, ErrorCode, Problem, RecordKind};

/// Maximum number of task names in one mark; for further tasks the mark has only their number.
const MAX_NAMED: usize = 10;

/// One such task.
#[derive(Debug)]
struct UnreadableTask {
    source: Arc<str>,
    node: Arc<str>,
}

/// All such tasks, and the nodes to look at again.
#[derive(Debug, Default)]
pub(crate) struct UnreadableTasks {
    by_task: BTreeMap<Arc<str>, UnreadableTask>,
    by_node: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Nodes whose marks may be out of date.
    pending: BTreeSet<Arc<str>>,
}

impl UnreadableTasks {
    /// Number of tasks.
    pub(crate) fn len(&self) -> usize {
        self.by_task.len()
    }

    /// Stores a rejected task. A task without a node needs no mark.
    pub(crate) fn insert(&mut self, source: &Arc<str>, rejected: &RejectedRecord) {
        let (task, node) = (&rejected.key.1, &rejected.node);
        self.forget(task);
        if task.is_empty() || node.is_empty() {
            return;
        }
        let entry = UnreadableTask {
            source: Arc::clone(source),
            node: Arc::clone(node),
        };
        self.by_task.insert(Arc::clone(task), entry);
        self.by_node
            .entry(Arc::clone(node))
            .or_default()
            .insert(Arc::clone(task));
        self.pending.insert(Arc::clone(node));
    }

    /// Forgets a task, whose good record has come.
    pub(crate) fn forget(&mut self, task: &str) {
        let Some(UnreadableTask { node, .. }) = self.by_task.remove(task) else {
            return;
        };
        if let Some(tasks) = self.by_node.get_mut(&node) {
            tasks.remove(task);
            if tasks.is_empty() {
                self.by_node.remove(&node);
            }
        }
        self.pending.insert(node);
    }

    /// Forgets a task that its source removes.
    pub(crate) fn forget_own(&mut self, source: &str, task: &str) {
        if self.by_task.get(task).is_some_and(|own| *own.source == *source) {
            self.forget(task);
        }
    }

    /// Forgets all tasks of a source, which has sent all its records.
    pub(crate) fn forget_source(&mut self, source: &str) {
        let own = self.by_task.iter().filter(|(_, task)| *task.source == *source);
        let own: Vec<Arc<str>> = own.map(|(name, _)| Arc::clone(name)).collect();
        for task in own {
            self.forget(&task);
        }
    }

    /// Updates the mark of a node whose record has changed.
    pub(crate) fn recheck_node(&mut self, node: &Arc<str>) {
        if self.by_node.contains_key(node) {
            self.pending.insert(Arc::clone(node));
        }
    }

    /// Brings the marks of all nodes up to date. True if one changed.
    pub(crate) fn recheck(&mut self, cluster_state: &mut ClusterState) -> bool {
        self.pending.extend(self.by_node.keys().cloned());
        self.mark_nodes(cluster_state)
    }

    /// Brings the marks of pending nodes up to date. True if one changed.
    pub(crate) fn mark_nodes(&mut self, cluster_state: &mut ClusterState) -> bool {
        let mut changed = false;
        for node in std::mem::take(&mut self.pending) {
            let Some(entry) = cluster_state.node_by_name(&node) else {
                continue;
            };
            let before: &[Problem] = entry.invalid.as_deref().map_or(&[], Vec::as_slice);
            let own = before
                .iter()
                .filter(|problem| problem.code != ErrorCode::TaskUnreadable);
            let after: Vec<Problem> = own.cloned().chain(self.mark(&node, cluster_state)).collect();
            if after != before {
                let after = (!after.is_empty()).then(|| after.into());
                cluster_state.set_invalid(RecordKind::Node, &node, after);
                changed = true;
            }
        }
        changed
    }

    /// Mark of a node. `None`: the last good record accounts for every unreadable task on the node.
    fn mark(&self, node: &str, cluster_state: &ClusterState) -> Option<Problem> {
        let tasks = self.by_node.get(node).into_iter().flatten();
        let uncounted: Vec<&Arc<str>> = tasks.filter(|task| !is_counted(cluster_state, task, node)).collect();
        if uncounted.is_empty() {
            return None;
        }
        let named: Vec<String> = uncounted
            .iter()
            .take(MAX_NAMED)
            .map(|task| format!("`{task}`"))
            .collect();
        let more = match uncounted.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "the amounts of {}{more} on this node are unknown: nothing new is placed here until their source sends records \
             that can be read, or removes them",
            named.join(", ")
        );
        let problem = Problem::new(ErrorCode::TaskUnreadable, "tasks", message);
        Some(problem)
    }
}

/// True if the stored record accounts for the task on this node.
fn is_counted(cluster_state: &ClusterState, task: &str, node: &str) -> bool {
    let stored = cluster_state.tasks().get(task);
    stored.is_some_and(|stored| stored.record.status.is_on_node() && *stored.record.node == *node)
}

/// Warning about a rejected record without a good record to use instead. `None`: its last good record is used.
pub(crate) fn uncounted_warning(cluster_state: &ClusterState, rejected: &RejectedRecord) -> Option<Problem> {
    let (kind, name) = &rejected.key;
    let field = rejected.problems.first().map(|problem| problem.field.clone());
    let known = cluster_state.source_of(*kind, name).is_some();
    let node = &rejected.node;
    let message = match kind {
        _ if name.is_empty() => return None,
        RecordKind::Task if !node.is_empty() && !is_counted(cluster_state, name, node) => format!(
            "no good record counts task `{name}` on node `{node}`: the node takes no new tasks until the record can be read \
             or is removed"
        ),
        _ if known => return None,
        RecordKind::Node => format!("no good record of node `{name}` is known: the node is left out"),
        RecordKind::Queue => format!("no good record of queue `{name}` is known: its jobs have no queue"),
        RecordKind::Job => format!("no good record of job `{name}` is known: its tasks have no job"),
        RecordKind::Namespace => format!("no good record of namespace `{name}` is known: its labels are not"),
        RecordKind::Task => format!("no good record of task `{name}` is known: the task is left out"),
        RecordKind::PriorityClass => {
            format!("no good record of priority class `{name}` is known: its value counts for no job and no task")
        }
    };
    Some(Problem::new(
        ErrorCode::RecordNotCounted,
        field.unwrap_or_default(),
        message,
    ))
}
