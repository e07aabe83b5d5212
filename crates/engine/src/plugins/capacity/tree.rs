//! Tree of queues by their parents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::queue_accounts::QueueAncestors;
use crate::model::{ClusterState, ErrorCode, Problem};
use crate::policy::Compatibility;

/// Queue above all.
pub(super) const ROOT: &str = "root";

/// Tree of queues.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QuotaTree {
    /// Queues right below each queue, by name.
    pub(super) children: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Queues above each queue, from its parent upwards.
    pub(super) ancestors: QueueAncestors,
    /// Queues that have no place in the tree, with the reason, under `corrected`.
    pub(super) problems: BTreeMap<Arc<str>, Problem>,
    /// Parent that does not exist, with its child; under `upstream` nothing is decided then.
    pub(super) missing_parent: Option<(Arc<str>, Arc<str>)>,
}

impl QuotaTree {
    /// Tree of the queues of a cluster state.
    pub(super) fn of(cluster_state: &ClusterState, compatibility: Compatibility) -> Self {
        let root: Arc<str> = Arc::from(ROOT);
        let mut parents: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
        for (name, stored) in cluster_state.queues().iter().filter(|(name, _)| ***name != *ROOT) {
            let parent = Some(&stored.record.parent)
                .filter(|parent| !parent.is_empty())
                .unwrap_or(&root);
            parents.insert(Arc::clone(name), Arc::clone(parent));
        }
        let exists = |name: &str| cluster_state.queues().contains(name);
        let mut tree = Self::default();
        for (name, parent) in &parents {
            tree.children
                .entry(Arc::clone(parent))
                .or_default()
                .push(Arc::clone(name));
            let is_missing = !exists(parent);
            if is_missing && tree.missing_parent.is_none() {
                tree.missing_parent = Some((Arc::clone(parent), Arc::clone(name)));
            }
            tree.ancestors.insert(Arc::clone(name), above(&parents, name, &exists));
        }
        if compatibility == Compatibility::Corrected {
            for name in parents.keys() {
                if let Some(problem) = place_problem(&parents, name, &exists) {
                    tree.problems.insert(Arc::clone(name), problem);
                }
            }
        }
        tree
    }

    /// True if a queue has no queues below it.
    pub(super) fn is_leaf(&self, queue: &str) -> bool {
        !self.children.contains_key(queue)
    }

    /// Queues above a queue, from its parent upwards.
    pub(super) fn ancestors(&self, queue: &str) -> &[Arc<str>] {
        self.ancestors.get(queue).map_or(&[], |above| above)
    }

    /// Queue and those above it from the root down: the path to it.
    pub(super) fn path<'a>(&'a self, queue: &'a str) -> Vec<&'a str> {
        let above = self.ancestors(queue).iter().rev().map(|name| &**name);
        above.chain(std::iter::once(queue)).collect()
    }

    /// Number of leading common queues above two queues, less 1; 0 if the first differ.
    pub(super) fn common_level(&self, one: &str, other: &str) -> usize {
        let (one, other) = (self.ancestors(one).iter().rev(), self.ancestors(other).iter().rev());
        one.zip(other)
            .take_while(|(one, other)| one == other)
            .count()
            .saturating_sub(1)
    }
}

/// Existing queues above a queue, from its parent upwards, each once.
fn above(parents: &BTreeMap<Arc<str>, Arc<str>>, name: &Arc<str>, exists: &impl Fn(&str) -> bool) -> Arc<[Arc<str>]> {
    let (mut line, mut seen) = (Vec::new(), BTreeSet::from([name]));
    let mut at = name;
    while let Some(parent) = parents.get(at).filter(|parent| exists(parent)) {
        if !seen.insert(parent) {
            break;
        }
        line.push(Arc::clone(parent));
        at = parent;
    }
    line.into()
}

/// Problem of a queue that does not reach the root. The root itself need not exist.
fn place_problem(
    parents: &BTreeMap<Arc<str>, Arc<str>>,
    name: &Arc<str>,
    exists: &impl Fn(&str) -> bool,
) -> Option<Problem> {
    let problem = |reason, message| {
        let field = format!("queues[{name}].parent");
        Some(Problem::new(reason, field, message))
    };
    let mut seen = BTreeSet::from([name]);
    let mut at = name;
    while let Some(parent) = parents.get(at) {
        if **parent == *ROOT {
            return None;
        }
        if !exists(parent) {
            let message =
                format!("there is no queue `{parent}`, the parent of `{at}`; create it or set another parent");
            return problem(ErrorCode::QueueParentUnknown, message);
        }
        if !seen.insert(parent) {
            let message = format!(
                "the parents of queue `{name}` come to `{parent}` again and never to `{ROOT}`; set another parent"
            );
            return problem(ErrorCode::QueueParentCycle, message);
        }
        at = parent;
    }
    None
}
