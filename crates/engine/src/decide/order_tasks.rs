//! Order of tasks: by the policy's plugins, then by the numbers in which their names end, creation time and name.

use std::cmp::Ordering;
use std::sync::Arc;

use super::order::sorted_names;
use super::order_rank::OrderRank;
use super::reduce_order::{TieBreakKey, compare_keys_totally, selection_sort};
use crate::model::{ErrorCode, Problem, TaskRecord};
use crate::plugin::{OrderKey, PluginContext};
use crate::policy::{Compatibility, PolicyHook};

/// Task with its order keys.
struct KeyedTask<'a> {
    task: &'a TaskRecord,
    keys: Vec<(Arc<str>, Vec<f64>)>,
}

impl KeyedTask<'_> {
    fn tie_break_key(&self) -> TieBreakKey<'_> {
        TieBreakKey {
            creation_time: self.task.creation_time.seconds(),
            name: &self.task.name,
        }
    }

    fn compare_keys(&self, other: &Self) -> Ordering {
        let both = self.keys.iter().zip(&other.keys);
        let compared = both.map(|((_, own), (_, other))| compare_keys_totally(own, other));
        compared.fold(Ordering::Equal, Ordering::then)
    }

    /// Compares as the reference does; not transitive between tasks with and without a number.
    fn compare(&self, other: &Self) -> Ordering {
        let tie = || self.tie_break_key().compare_tasks(&other.tie_break_key());
        self.compare_keys(other).then_with(tie)
    }

    /// Compares likewise, but tasks with a number come before those without.
    fn compare_totally(&self, other: &Self) -> Ordering {
        let (own, others) = (self.tie_break_key(), other.tie_break_key());
        let numbered = || others.has_number().cmp(&own.has_number());
        let tie = || numbered().then_with(|| own.compare_tasks(&others));
        self.compare_keys(other).then_with(tie)
    }
}

/// Orders tasks, or with `by_name` only returns their keys. Unknown tasks come last, by name.
pub(super) fn order_tasks(
    names: &[Arc<str>],
    hooks: &[PolicyHook],
    context: PluginContext<'_>,
    by_name: bool,
    compatibility: Compatibility,
) -> Vec<OrderRank> {
    let table = context.cluster_state.tasks();
    let names = sorted_names(names, table);
    let (known, unknown): (Vec<Arc<str>>, Vec<Arc<str>>) = names.into_iter().partition(|name| table.contains(name));
    let tasks: Vec<&TaskRecord> = known.iter().filter_map(|name| Some(&table.get(name)?.record)).collect();
    let mut keyed: Vec<KeyedTask<'_>> = tasks.iter().map(|task| KeyedTask { task, keys: Vec::new() }).collect();
    for hook in hooks {
        let Some(keys) = hook.plugin.task_keys(context, &tasks) else {
            continue;
        };
        for (own, key) in keyed.iter_mut().zip(keys.into_iter().map(OrderKey::unwrap_or_default)) {
            own.keys.push((Arc::clone(&hook.name), key));
        }
    }
    if !by_name {
        keyed = arrange(keyed, compatibility);
    }
    let missing = |name: Arc<str>| {
        let message = format!("there is no task `{name}`");
        let problem = Problem::new(ErrorCode::TaskUnknown, "", message);
        OrderRank::new(name, Err(problem))
    };
    let ranked = keyed
        .into_iter()
        .map(|own| OrderRank::new(Arc::clone(&own.task.name), Ok(own.keys)));
    ranked.chain(unknown.into_iter().map(missing)).collect()
}

fn arrange(mut tasks: Vec<KeyedTask<'_>>, compatibility: Compatibility) -> Vec<KeyedTask<'_>> {
    let numbered = tasks.iter().filter(|own| own.tie_break_key().has_number()).count();
    let is_mixed = numbered > 0 && numbered < tasks.len();
    if is_mixed && compatibility.is_upstream() {
        return selection_sort(tasks, |left, right| left.compare(right) == Ordering::Less);
    }
    tasks.sort_by(KeyedTask::compare_totally);
    tasks
}
