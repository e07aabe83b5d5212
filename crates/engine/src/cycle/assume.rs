//! Node after one more task, as a change would leave it.

use super::{NodeChangeRules, upstream};
use crate::model::{NodeEntry, TaskRecord};
use crate::policy::Compatibility;

/// Adds a task to a node as Allocate or Pipeline does (depending on its status), without the rest of the state.
pub(crate) fn assume(entry: &mut NodeEntry, task: &TaskRecord, rules: NodeChangeRules) {
    match rules.compatibility {
        Compatibility::Corrected => entry.usage.count_task(task, true),
        Compatibility::Upstream(_) => upstream::change_entry(entry, task, true, rules.moves_pods),
    }
}
