//! Order: the order in which queues, jobs and tasks are served.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::job_state::JobStateJudge;
use super::order_rank::OrderRank;
use super::order_tasks::order_tasks;
use super::plugin_selection::named_plugins;
use super::queue_state::queue_overused;
use super::reduce_order::{TieBreakKey, compare_keys, compare_keys_totally, selection_sort};
use crate::model::{ClusterState, ErrorCode, Problem, SortedTable, StoredRecord};
use crate::plugin::{DecisionTime, OrderKey, OrderKeyMeanings, Plugin, PluginContext, QueueComparison, QueueTreeNode};
use crate::plugin_state::PluginStates;
use crate::plugins;
use crate::policy::{Compatibility, Policy, PolicyHook, RegisteredPlugin};

/// Meanings of the values of a plugin's order keys; of a plugin that is not served none.
pub fn order_key_meanings(plugin: &str) -> OrderKeyMeanings {
    plugins::find(plugin).map_or_else(OrderKeyMeanings::default, |def| def.order_keys)
}

/// Query of Order: queues, jobs and tasks to rank.
#[derive(Clone, Debug, Default)]
pub struct OrderQuery {
    /// Time of the decision, for plugins that compare with it; `None`: the caller gave none.
    pub now: Option<DecisionTime>,
    /// Names of queues to order; empty: all queues; `None`: no queues.
    pub queues: Option<Vec<Arc<str>>>,
    /// Names of jobs to order; empty: all jobs; `None`: no jobs.
    pub jobs: Option<Vec<Arc<str>>>,
    /// Names of tasks to order; empty: all tasks; `None`: no tasks.
    pub tasks: Option<Vec<Arc<str>>>,
    /// Plugins whose keys are returned, without an order; empty: the tiers of the policy.
    pub plugins: Vec<Arc<str>>,
    /// True: the result has the tree of queues.
    pub with_tree: bool,
}

/// Order key of one plugin: plugin name and values. Smaller keys are served first.
type PluginKey = (Arc<str>, Vec<f64>);

/// Result of Order: ranks of queues, jobs and tasks, first served first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrderResult {
    /// Queues in serving order, those with a problem last by name; with `plugins` all by name.
    pub queues: Vec<OrderRank>,
    /// Jobs in serving order. With `plugins`: sorted by name.
    pub jobs: Vec<OrderRank>,
    /// Tasks in serving order. With `plugins`: sorted by name.
    pub tasks: Vec<OrderRank>,
    /// Tree of queues, depth first, children by name; filled with `with_tree`.
    pub tree: Vec<QueueTreeNode>,
}

/// Record to order: name, and its creation time or the problem that it is unknown.
type OrderSubject = (Arc<str>, Result<Option<i64>, Problem>);

/// Hook that returns a plugin's keys.
type OrderKeysHook = fn(&dyn Plugin, PluginContext<'_>, &[Arc<str>]) -> Option<Vec<OrderKey>>;

/// Orders queues and jobs by the policy's plugins, or returns their keys.
///
/// The first plugin in tier order whose keys differ decides, then creation time, then name. Under `corrected` a key
/// comes before its own extensions, which makes the order total. Under `upstream` the plugin holds the two equal. Where
/// that, or a share that is not a number, leaves no total order, the order is a repeated selection of the first.
///
/// # Errors
/// `plugins` names a plugin that the policy does not have or that is not served here.
pub fn order(
    cluster_state: &ClusterState,
    policy: &Policy,
    plugin_states: &PluginStates,
    query: &OrderQuery,
) -> Result<OrderResult, Problem> {
    let context = PluginContext::new(cluster_state, plugin_states, query.now);
    let named = named_plugins(policy, &query.plugins)?;
    let each: Vec<PolicyHook> = named.iter().filter_map(|own| own.hook(own.order.as_ref())).collect();
    let task_orders = task_orders(policy, &named);
    let is_each = !query.plugins.is_empty();
    let hooks = |tiers: &'_ [PolicyHook]| if is_each { each.clone() } else { tiers.to_vec() };
    let arrange = |subjects: Vec<OrderSubject>, hooks: Vec<PolicyHook>, ask: OrderKeysHook| {
        let (ranks, _) = order_entries(subjects, &hooks, context, ask);
        arrange_ranks(ranks, is_each, policy.compatibility(), &[])
    };
    let arrange_queues = |subjects: Vec<OrderSubject>, hooks: Vec<PolicyHook>| {
        let ask: OrderKeysHook = |plugin, context, names| plugin.queue_keys(context, names);
        let (mut ranks, known) = order_entries(subjects, &hooks, context, ask);
        if policy.compatibility().is_upstream() {
            refuse_breaking(&mut ranks, &hooks, is_each, context);
        }
        if !is_each {
            add_overuse(&mut ranks, policy, context);
        }
        let comparisons = queue_comparisons(&known, &hooks, context);
        let positions: BTreeMap<&Arc<str>, usize> = known.iter().zip(0..).collect();
        let mut ranks = arrange_ranks(ranks, is_each, policy.compatibility(), &comparisons);
        show_compared(&mut ranks, &positions, &comparisons);
        ranks
    };
    let queues = subjects(
        query.queues.as_deref(),
        cluster_state.queues(),
        |queue| queue.creation_time,
        "queue",
        ErrorCode::QueueUnknown,
    );
    let jobs = subjects(
        query.jobs.as_deref(),
        cluster_state.jobs(),
        |job| job.creation_time,
        "job",
        ErrorCode::JobUnknown,
    );
    let accounts = if query.with_tree {
        plugin_states.accounts()
    } else {
        Vec::new()
    };
    let mut trees = accounts.iter().map(|(_, accounts)| accounts.queue_tree());
    let tree = trees.find(|tree| !tree.is_empty());
    let mut jobs = arrange(jobs, hooks(&policy.hooks().job_orders), |plugin, context, names| {
        plugin.job_keys(context, names)
    });
    add_states(&mut jobs, JobStateJudge::of(policy, named), context);
    let tasks = query
        .tasks
        .as_ref()
        .map(|names| order_tasks(names, &task_orders, context, is_each, policy.compatibility()));
    Ok(OrderResult {
        queues: arrange_queues(queues, hooks(&policy.hooks().queue_orders)),
        jobs,
        tasks: tasks.unwrap_or_default(),
        tree: tree.unwrap_or_default(),
    })
}

/// Plugins that order tasks: the named plugins, or the plugins of the tiers.
fn task_orders(policy: &Policy, named: &[&RegisteredPlugin]) -> Vec<PolicyHook> {
    if named.is_empty() {
        return policy.hooks().task_orders.clone();
    }
    let hooks = named.iter().filter_map(|own| own.hook(own.task_order.as_ref()));
    hooks.collect()
}

/// Adds the states of jobs that exist.
fn add_states(jobs: &mut [OrderRank], judge: Option<JobStateJudge<'_>>, context: PluginContext<'_>) {
    let Some(judge) = judge else { return };
    for rank in jobs {
        let stored = context.cluster_state.jobs().get(&rank.name);
        rank.state = stored.map(|stored| Box::new(judge.judge(context, &stored.record)));
    }
}

/// Adds to each queue whether it is overused. A queue that cannot be evaluated has no rank.
fn add_overuse(queues: &mut [OrderEntry], policy: &Policy, context: PluginContext<'_>) {
    for entry in queues.iter_mut().filter(|entry| entry.rank.keys.is_ok()) {
        match queue_overused(policy, context, &entry.rank.name) {
            Ok(overused) => entry.rank.overused = overused,
            Err(problem) => entry.rank.keys = Err(problem),
        }
    }
}

/// Records to order, by name: those of `names`; all if it is empty, none if it is `None`.
fn subjects<R>(
    names: Option<&[Arc<str>]>,
    table: &SortedTable<Arc<StoredRecord<R>>>,
    created: fn(&R) -> Option<i64>,
    what: &str,
    unknown: ErrorCode,
) -> Vec<OrderSubject> {
    let subject = |name: Arc<str>| {
        let stored = table.get(&name).map(|stored| created(&stored.record));
        let created = stored.ok_or_else(|| Problem::new(unknown, "", format!("there is no {what} `{name}`")));
        (name, created)
    };
    let names = names.map_or_else(Vec::new, |names| sorted_names(names, table));
    names.into_iter().map(subject).collect()
}

/// Sorted and distinct names; all names of the table if there are none.
pub(super) fn sorted_names<V: Clone>(names: &[Arc<str>], table: &SortedTable<V>) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = if names.is_empty() {
        table.iter().map(|(name, _)| Arc::clone(name)).collect()
    } else {
        names.to_vec()
    };
    names.sort();
    names.dedup();
    names
}

/// Record with its keys, or its problem; by name.
struct OrderEntry {
    rank: OrderRank,
    creation_time: Option<i64>,
    /// Position among the records that exist; comparisons were made for these.
    position: usize,
}

/// Comparisons of queues by plugin, where its keys cannot tell.
type QueueComparisons<'a> = [(&'a Arc<str>, Box<dyn QueueComparison + 'a>)];

/// Comparisons of these queues that plugins have in addition to their keys.
fn queue_comparisons<'a>(
    names: &[Arc<str>],
    hooks: &'a [PolicyHook],
    context: PluginContext<'a>,
) -> Vec<(&'a Arc<str>, Box<dyn QueueComparison + 'a>)> {
    let comparisons = hooks.iter();
    comparisons
        .filter_map(|hook| Some((&hook.name, hook.plugin.queue_comparison(context, names)?)))
        .collect()
}

/// Records with their keys, and the names of existing records.
fn order_entries(
    subjects: Vec<OrderSubject>,
    hooks: &[PolicyHook],
    context: PluginContext<'_>,
    ask: OrderKeysHook,
) -> (Vec<OrderEntry>, Vec<Arc<str>>) {
    let known: Vec<Arc<str>> = subjects
        .iter()
        .filter(|(_, known)| known.is_ok())
        .map(|(name, _)| Arc::clone(name))
        .collect();
    let results = hooks
        .iter()
        .filter_map(|hook| Some((&hook.name, ask(&*hook.plugin, context, &known)?.into_iter())));
    let mut results: Vec<_> = results.collect();
    let mut existing = 0;
    let keyed = |(name, known): OrderSubject| {
        let position = existing;
        let (keys, creation_time) = match known {
            Err(problem) => (Err(problem), None),
            Ok(created) => {
                existing += 1;
                // Every column advances by one, whatever the others return.
                let own: Vec<_> = results
                    .iter_mut()
                    .map(|(plugin, column)| (Arc::clone(plugin), column.next()))
                    .collect();
                let own = own
                    .into_iter()
                    .filter_map(|(plugin, key)| Some(key?.map(|key| (plugin, key))));
                (own.collect::<Result<Vec<_>, _>>(), created)
            }
        };
        OrderEntry {
            rank: OrderRank::new(name, keys),
            creation_time,
            position,
        }
    };
    (subjects.into_iter().map(keyed).collect(), known)
}

/// Gives queues the keys that tell what a plugin compares, in place of its own; without such keys it shows none.
fn show_compared(ranks: &mut [OrderRank], positions: &BTreeMap<&Arc<str>, usize>, comparisons: &QueueComparisons<'_>) {
    for rank in ranks {
        let Ok(keys) = &mut rank.keys else { continue };
        for (plugin, comparison) in comparisons {
            let position = positions.get(&rank.name);
            match position.and_then(|position| comparison.key(*position)) {
                Some(key) => keys
                    .iter_mut()
                    .filter(|(name, _)| name == *plugin)
                    .for_each(|own| own.1.clone_from(&key)),
                None => keys.retain(|(name, _)| name != *plugin),
            }
        }
    }
}

/// Takes records out of the order that the reference cannot compare with another one, where no earlier plugin decides.
/// Plugins that are asked each by itself (`is_each`) have no earlier ones.
fn refuse_breaking(ranks: &mut [OrderEntry], hooks: &[PolicyHook], is_each: bool, context: PluginContext<'_>) {
    let breaks = |own: &OrderEntry| {
        hooks.iter().find_map(|hook| {
            let quota = hook.plugin.quota()?;
            let earlier = |keyed: &OrderEntry| {
                let keys = keyed.rank.keys.as_ref().ok()?;
                let before = keys.iter().take_while(|(name, _)| *name != hook.name);
                Some(before.map(|(_, key)| key.clone()).collect::<Vec<Vec<f64>>>())
            };
            let reached = |other: &&OrderEntry| {
                let (Some(own), Some(other)) = (earlier(own), earlier(other)) else {
                    return false;
                };
                own.iter()
                    .zip(&other)
                    .all(|(own, other)| compare_keys(own, other).is_eq())
            };
            let mut others = ranks.iter().filter(|other| other.rank.name != own.rank.name);
            others.find_map(|other| {
                let problem = quota.breaks_order(context, &own.rank.name, &other.rank.name)?;
                (is_each || reached(&other)).then_some(problem)
            })
        })
    };
    let broken: Vec<Option<Problem>> = ranks.iter().map(breaks).collect();
    for (keyed, problem) in ranks.iter_mut().zip(broken) {
        if let Some(problem) = problem {
            keyed.rank.keys = Err(problem);
        }
    }
}

fn arrange_ranks(
    ranks: Vec<OrderEntry>,
    by_name: bool,
    compatibility: Compatibility,
    comparisons: &QueueComparisons<'_>,
) -> Vec<OrderRank> {
    if by_name {
        return ranks.into_iter().map(|keyed| keyed.rank).collect();
    }
    let (mut placed, without): (Vec<OrderEntry>, Vec<OrderEntry>) =
        ranks.into_iter().partition(|keyed| keyed.rank.keys.is_ok());
    let is_total = is_totally_ordered(&placed) && comparisons.iter().all(|(_, own)| own.is_total());
    let placed = if compatibility.is_upstream() && !is_total {
        selection_sort(placed, |left, right| {
            compare(left, right, compare_keys, comparisons) == Ordering::Less
        })
    } else {
        placed.sort_by(|left, right| compare(left, right, compare_keys_totally, comparisons));
        placed
    };
    placed.into_iter().chain(without).map(|keyed| keyed.rank).collect()
}

/// True if the reference's comparison is a total order on these: keys of one plugin have equal lengths, and all values
/// are numbers.
fn is_totally_ordered(ranks: &[OrderEntry]) -> bool {
    let shape = |keyed: &OrderEntry| {
        keyed
            .rank
            .keys
            .as_ref()
            .ok()
            .map(|keys| keys.iter().map(|(_, key)| key.len()).collect())
    };
    let first: Option<Vec<usize>> = ranks.first().and_then(shape);
    let mut values = ranks
        .iter()
        .flat_map(|keyed| keyed.rank.keys.iter().flatten())
        .flat_map(|(_, key)| key);
    ranks.iter().all(|keyed| shape(keyed) == first) && values.all(|value| !value.is_nan())
}

fn compare(
    left: &OrderEntry,
    right: &OrderEntry,
    keys: fn(&[f64], &[f64]) -> Ordering,
    comparisons: &QueueComparisons<'_>,
) -> Ordering {
    let both = left.rank.keys.iter().flatten().zip(right.rank.keys.iter().flatten());
    let by_plugin = |(one, other): (&PluginKey, &PluginKey)| {
        let own = comparisons.iter().find(|(name, _)| **name == one.0);
        own.map_or_else(
            || keys(&one.1, &other.1),
            |(_, own)| own.compare(left.position, right.position).cmp(&0),
        )
    };
    let differing = both.map(by_plugin).find(|order| order.is_ne());
    differing.unwrap_or_else(|| tie_break_key(left).compare_by_age(&tie_break_key(right)))
}

fn tie_break_key(keyed: &OrderEntry) -> TieBreakKey<'_> {
    TieBreakKey {
        creation_time: keyed.creation_time,
        name: &keyed.rank.name,
    }
}
