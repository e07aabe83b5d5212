//! Scores of nodes after more equal tasks. A caller that chooses the nodes of equal tasks one by one then needs a
//! single query. For example, 7 further sheets for a job of 8 equal workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::candidates::NodeCandidates;
use super::classes::{self, ClassLookup};
use super::parallelism::Parallelism;
use super::plugin_selection::PluginSelection;
use super::query::{NodeQuery, ScoreQuery, ScoreSheet, TaskResults};
use super::score_pass::ScorePass;
use crate::model::{ClusterState, NodeSlot, TaskClass, TaskRecord, TaskStatus, UniformArrival};
use crate::plugin::PluginContext;
use crate::policy::Policy;

/// Tasks that are added to nodes between two checks for cancellation: a millisecond or less.
const TASKS_UNINTERRUPTED: usize = 1_024;

/// Adds the scores ahead to the sheets of a query that asks for them; `None`: cancelled.
pub(super) fn add_scores_ahead(
    context: PluginContext<'_>,
    policy: &Policy,
    query: &ScoreQuery,
    parallelism: Parallelism<'_>,
    mut results: TaskResults<ScoreSheet>,
) -> Option<TaskResults<ScoreSheet>> {
    if policy.node_change_rules().keeps_pods() {
        // The reference would score a node of its session as if the tasks before were not there.
        return Some(results);
    }
    let node_query = &query.node_query;
    let lookup = ClassLookup::of(context.cluster_state, policy, &node_query.plugins);
    // Tasks of one class share their sheet.
    let mut known: BTreeMap<*const ScoreSheet, Arc<ScoreSheet>> = BTreeMap::new();
    for (item, result) in node_query.tasks.iter().zip(&mut results) {
        let (Ok(item), Ok(result)) = (item, result) else {
            continue;
        };
        let of_class = Arc::as_ptr(&result.result);
        if let Some(sheet) = known.get(&of_class) {
            result.result = Arc::clone(sheet);
            continue;
        }
        let mut sheet = ScoreSheet::clone(&result.result);
        let class = lookup.class_of(&item.task, &node_query.resources);
        if sheet.independent && changes_own_node_only(context.cluster_state, &lookup, &item.task, &class) {
            let pass = AheadPass::new(context, policy, query, &class);
            sheet.ahead = pass.sheets(&item.task, &sheet.nodes, parallelism)?;
        }
        let sheet = Arc::new(sheet);
        known.insert(of_class, Arc::clone(&sheet));
        result.result = sheet;
    }
    Some(results)
}

/// True if a task changes nothing but its own node for the next equal task, and its record shows all that it changes there.
fn changes_own_node_only(state: &ClusterState, lookup: &ClassLookup<'_>, task: &TaskRecord, class: &TaskClass) -> bool {
    // Nodes of a cycle like the reference's have amounts of their own.
    lookup.is_judged_by_columns(class)
        && lookup.template(task).is_none()
        && state.has_no_terms()
        && state.cycle_beginning().is_none()
}

/// Equal tasks that were added to nodes. Only columns are changed while they can represent the sums, because changing a
/// node's entry costs several times more.
struct AheadCounts<'a> {
    task: &'a TaskRecord,
    /// Amounts that each task adds to columns; `None`: columns do not show all of them.
    arrival: Option<UniformArrival>,
    /// Nodes whose entries include the tasks.
    by_entry: BTreeSet<NodeSlot>,
}

impl<'a> AheadCounts<'a> {
    fn new(task: &'a TaskRecord) -> Self {
        let arrival = UniformArrival::of(task);
        Self {
            task,
            arrival: arrival.is_shown_by_columns().then_some(arrival),
            by_entry: BTreeSet::new(),
        }
    }

    /// Adds one more task to a node that has `before` tasks.
    fn add_one(&mut self, state: &mut ClusterState, slot: NodeSlot, before: usize) {
        if let Some(arrival) = self.arrival.as_ref().filter(|_| !self.by_entry.contains(&slot))
            && state.add_uniform(slot, arrival, 1)
        {
            return;
        }
        // The entry has none of those that the columns alone show.
        let more = if self.by_entry.insert(slot) { before + 1 } else { 1 };
        for _ in 0..more {
            state.count_on_node(slot, self.task);
        }
    }
}

/// Pass of one class from depth to depth.
struct AheadPass<'a> {
    context: PluginContext<'a>,
    policy: &'a Policy,
    class: &'a TaskClass,
    /// Query whose sheets have the nodes that pass, and no Filter result.
    query: ScoreQuery,
    depth: usize,
}

impl<'a> AheadPass<'a> {
    fn new(context: PluginContext<'a>, policy: &'a Policy, query: &ScoreQuery, class: &'a TaskClass) -> Self {
        let asked = &query.node_query;
        let node_query = NodeQuery {
            plugins: asked.plugins.clone(),
            ..NodeQuery::about_nodes(asked.now, Arc::clone(&asked.resources), asked.resource_fit)
        };
        Self {
            context,
            policy,
            class,
            depth: query.ahead,
            query: ScoreQuery {
                node_query,
                limit: None,
                ..*query
            },
        }
    }

    /// One sheet for each number of tasks, beginning with one, until no node is left. Empty: verdicts depend on more than the
    /// own state of a node. `None`: cancelled.
    fn sheets(&self, task: &TaskRecord, nodes: &[NodeSlot], parallelism: Parallelism<'_>) -> Option<Vec<ScoreSheet>> {
        let task = TaskRecord {
            status: TaskStatus::Binding,
            ..task.clone()
        };
        let mut state = self.context.cluster_state.clone();
        let mut counts = AheadCounts::new(&task);
        let mut sheets: Vec<ScoreSheet> = Vec::with_capacity(self.depth);
        let mut left = nodes.to_vec();
        while sheets.len() < self.depth && !left.is_empty() {
            // A node whose entry counts the tasks from now on takes those before, too.
            for some in left.chunks((TASKS_UNINTERRUPTED / (sheets.len() + 1)).max(1)) {
                if (parallelism.is_cancelled)() {
                    return None;
                }
                for slot in some {
                    counts.add_one(&mut state, *slot, sheets.len());
                }
            }
            let Some(sheet) = self.sheet(&state, &left, parallelism) else {
                return Some(Vec::new());
            };
            left.clone_from(&sheet.nodes);
            sheets.push(sheet);
        }
        Some(sheets)
    }

    /// Sheet of these nodes in a state. `None`: the sheet depends on more than the nodes' own states, or the
    /// hypothetical state has a problem that the real nodes do not have.
    fn sheet(
        &self,
        cluster_state: &ClusterState,
        nodes: &[NodeSlot],
        parallelism: Parallelism<'_>,
    ) -> Option<ScoreSheet> {
        let context = PluginContext {
            cluster_state,
            ..self.context
        };
        let selection = PluginSelection::of(self.policy, &self.query.node_query).ok()?;
        let candidates = NodeCandidates::of(cluster_state, Some(nodes));
        let pass = ScorePass::new(context, &selection, &self.query, &candidates, self.class).ok()?;
        if !pass.reads_own_nodes_only() {
            return None;
        }
        let visited = classes::visit_chunks(vec![Ok(pass)], &candidates.slices, parallelism.is_cancelled);
        let (sheet, _) = visited?.into_iter().next()?.ok()?;
        Some(ScoreSheet { filter: None, ..sheet })
    }
}
