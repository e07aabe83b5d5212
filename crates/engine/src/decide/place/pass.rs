//! Pass of equal tasks over the nodes: all nodes are evaluated once, and after each task only its node.

use std::sync::Arc;

use super::devices::DeviceChooser;
use super::peers::{OwnScore, PeerHooks};
use crate::cycle::{NodeChangeRules, assume};
use crate::decide::candidates::{ChunkSlice, NodeCandidates};
use crate::decide::class_scorers::{ClassScorers, ScoreScratch};
use crate::decide::plugin_selection::PluginSelection;
use crate::decide::query::{NodeQuery, ResourceFit};
use crate::decide::reduce;
use crate::decide::verdict_cache::ClassReuse;
use crate::devices::DeviceMask;
use crate::model::{
    ClusterState, NodeChunk, NodeEntry, NodeMask, NodeSlot, PodClass, Problem, TaskClass, TaskRecord, TaskStatus,
    UniformArrival,
};
use crate::plugin::{ChunkRejections, NodeFilter, PluginContext};
use crate::policy::{Compatibility, Policy};

/// Nodes that a task of a class may change for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RejudgeScope {
    /// Only the node that took the task.
    OwnNode,
    /// Peers, by hooks that follow the placements of the class.
    Peers,
    /// Any node.
    AllNodes,
}

/// Task in the state in which it will be on its node.
#[derive(Debug)]
pub(super) struct ArrivingTask {
    task: TaskRecord,
    rules: NodeChangeRules,
    /// Amounts that it adds to columns; `None`: nodes have vectors of their own.
    uniform_arrival: Option<UniformArrival>,
    /// Class of the pod, if selectors of the policy's plugins see it.
    pod_class: Option<Arc<PodClass>>,
    /// Choice of its devices; `None`: it asks for none.
    device_chooser: Option<DeviceChooser>,
    /// Nodes that are evaluated again after each task.
    scope: RejudgeScope,
}

impl ArrivingTask {
    pub(super) fn new(task: &TaskRecord, status: TaskStatus, policy: &Policy) -> Self {
        let task = TaskRecord { status, ..task.clone() };
        let rules = policy.node_change_rules();
        // Columns do not show the devices of nodes.
        let by_columns = rules.compatibility == Compatibility::Corrected && !policy.reads_devices(&[]);
        let uniform_arrival = by_columns.then(|| UniformArrival::of(&task));
        Self {
            device_chooser: DeviceChooser::of(policy, &task),
            task,
            rules,
            uniform_arrival,
            pod_class: None,
            scope: RejudgeScope::OwnNode,
        }
    }

    /// Marks the task as visible to selectors of pods. Nodes in `scope` are evaluated again after it.
    pub(super) fn seen_by_selectors(self, seen: bool, scope: RejudgeScope) -> Self {
        Self {
            pod_class: seen.then(|| Arc::new(PodClass::of(&self.task))),
            scope,
            ..self
        }
    }

    /// Class of the pod, if selectors see it.
    pub(super) fn pod_class(&self) -> Option<&Arc<PodClass>> {
        self.pod_class.as_ref()
    }

    /// Status of the task on the node.
    pub(super) fn status(&self) -> TaskStatus {
        self.task.status
    }

    /// Node after `times` more of the tasks.
    pub(super) fn entry_after(&self, entry: &NodeEntry, times: u32) -> NodeEntry {
        let mut after = entry.clone();
        for _ in 0..times {
            self.arrive(&mut after);
        }
        after
    }

    /// Adds one more task to a node. Returns its devices.
    pub(super) fn arrive(&self, entry: &mut NodeEntry) -> DeviceMask {
        let Some(chooser) = &self.device_chooser else {
            assume(entry, &self.task, self.rules);
            return 0;
        };
        let devices = chooser.choose(entry, self.task.status == TaskStatus::Pipelined);
        let mut task = self.task.clone();
        task.assign_devices(devices);
        assume(entry, &task, self.rules);
        devices
    }

    /// True if the task asks for devices.
    pub(super) fn asks_devices(&self) -> bool {
        self.device_chooser.is_some()
    }

    /// Adds `times` tasks to a node's columns. False: nothing changed, and the caller must change the node's entry.
    pub(super) fn add_to_columns(&self, cluster_state: &mut ClusterState, slot: NodeSlot, times: u32) -> bool {
        // Columns do not show the devices of tasks.
        let arrival = self.uniform_arrival.as_ref();
        let is_shown = |arrival: &&UniformArrival| arrival.is_shown_by_columns() && !self.asks_devices();
        let arrival = arrival.filter(is_shown);
        arrival.is_some_and(|arrival| cluster_state.add_uniform(slot, arrival, times))
    }
}

/// Filters of a class for tasks that will have a status on the node. An allocated task needs idle amounts, unless the query
/// asks for no check of amounts.
pub(super) fn status_filters<'a, 'p: 'a>(
    context: PluginContext<'a>,
    selection: &PluginSelection<'p>,
    query: &NodeQuery,
    class: &'a TaskClass,
    status: TaskStatus,
) -> Result<Vec<Box<dyn NodeFilter + 'a>>, Problem> {
    let at = |after_release: bool| PluginContext {
        after_release,
        ..context
    };
    let mut filterers = selection.filterers(at(status == TaskStatus::Pipelined), query, class)?;
    if status == TaskStatus::Allocated
        && query.resource_fit != ResourceFit::None
        && let Some(room) = selection.resource_fit(class, ResourceFit::Idle)
    {
        filterers.push(Box::new(room));
        if class.constraints().may_fail_after_release() {
            filterers.extend(selection.filterers(at(true), query, class)?);
        }
    }
    Ok(filterers)
}

/// Prepared filters, scorers and state of a pass.
pub(super) struct PlacePass<'a> {
    pub(super) state: &'a ClusterState,
    pub(super) filterers: Vec<Box<dyn NodeFilter + 'a>>,
    pub(super) scorers: ClassScorers<'a>,
    pub(super) arriving_task: &'a ArrivingTask,
    /// Stored verdicts. `None`: nodes are evaluated without them.
    pub(super) reuse: Option<ClassReuse<'a>>,
}

impl<'a> PlacePass<'a> {
    pub(super) fn new(
        context: PluginContext<'a>,
        policy: &'a Policy,
        class: &'a TaskClass,
        query: &NodeQuery,
        joins: &'a ArrivingTask,
    ) -> Result<Self, Problem> {
        let selection = PluginSelection::of(policy, query)?;
        let filterers = status_filters(context, &selection, query, class, joins.task.status)?;
        let pass = Self::without_filters(context, &selection, class, joins)?;
        Ok(Self { filterers, ..pass })
    }

    /// Pass of tasks that get idle amounts.
    ///
    /// # Errors
    /// A plugin cannot read something in the class.
    pub(super) fn of_idle(
        context: PluginContext<'a>,
        policy: &'a Policy,
        class: &'a TaskClass,
        joins: &'a ArrivingTask,
    ) -> Result<Self, Problem> {
        let resources = Arc::clone(context.cluster_state.resources());
        let query = NodeQuery::about_nodes(context.now, resources, ResourceFit::FutureIdle);
        Self::new(context, policy, class, &query, joins)
    }

    /// Splits off the hooks that depend on other nodes or on the candidates.
    pub(super) fn split_peers(&mut self) -> PeerHooks {
        let filters = self.filterers.iter_mut().flat_map(|filter| filter.split_peers());
        PeerHooks::new(filters.collect(), self.scorers.split_peers())
    }

    /// Leaves out the hooks that [`Self::split_peers`] splits off, and returns their number.
    pub(super) fn drop_peers(&mut self) -> usize {
        let filters = self.filterers.iter_mut().map(|filter| filter.split_peers().len());
        filters.sum::<usize>() + self.scorers.drop_peers()
    }

    /// Pass whose candidates have passed all filters.
    pub(super) fn without_filters<'p: 'a>(
        context: PluginContext<'a>,
        selection: &PluginSelection<'p>,
        class: &'a TaskClass,
        joins: &'a ArrivingTask,
    ) -> Result<Self, Problem> {
        let context = PluginContext {
            after_release: joins.task.status == TaskStatus::Pipelined,
            ..context
        };
        Ok(Self {
            state: context.cluster_state,
            filterers: Vec::new(),
            scorers: ClassScorers::totals_only(selection, context, class)?,
            arriving_task: joins,
            reuse: None,
        })
    }

    pub(super) fn state(&self) -> &'a ClusterState {
        self.state
    }

    /// Amounts that a task adds to columns; `None`: nodes have vectors of their own.
    pub(super) fn uniform_arrival(&self) -> Option<&'a UniformArrival> {
        self.arriving_task.uniform_arrival.as_ref()
    }

    /// Node after `times` more of the tasks.
    pub(super) fn entry_after(&self, entry: &NodeEntry, times: u32) -> NodeEntry {
        self.arriving_task.entry_after(entry, times)
    }

    /// True if the scores of all nodes must be computed again after each task.
    pub(super) fn rescores_all(&self) -> bool {
        self.arriving_task.scope == RejudgeScope::AllNodes || self.scorers.have_ranges()
    }

    /// True if the hooks of peers follow the placements, and nothing else changes the verdicts on other nodes.
    pub(super) fn follows_peers(&self) -> bool {
        self.arriving_task.scope == RejudgeScope::Peers && !self.scorers.have_ranges()
    }

    /// Removes a node from the candidates. Returns true if the candidates must be surveyed again.
    pub(super) fn leave(&self, slot: NodeSlot) -> bool {
        self.scorers.leave(slot)
    }

    /// Nodes of a chunk that pass every filter.
    pub(super) fn passing_nodes(&self, chunk: &NodeChunk, among: &NodeMask) -> NodeMask {
        let mut verdicts = ChunkRejections::without_reasons();
        reduce::conjunction(&self.filterers, among, |filterer, left| {
            filterer.filter(chunk, left, &mut verdicts).and(left)
        })
    }

    /// Scores the nodes of a hypothetical chunk that pass, and returns these.
    pub(super) fn score_chunk(&self, chunk: &NodeChunk, among: &NodeMask, scratch: &mut ScoreScratch) -> NodeMask {
        let passed = self.passing_nodes(chunk, among);
        if !passed.is_empty() {
            let slice = hypothetical_slice(chunk, passed);
            self.scorers.score_slice(&slice, scratch, |_, _, _| {});
        }
        passed
    }

    /// Scores like [`Self::score_chunk`], each node by its own state. False: scores do not sum up exactly.
    pub(super) fn score_chunk_apart(
        &self,
        chunk: &NodeChunk,
        among: &NodeMask,
        scratch: &mut ScoreScratch,
    ) -> (NodeMask, bool) {
        let passed = self.passing_nodes(chunk, among);
        let slice = hypothetical_slice(chunk, passed);
        let exact = passed.is_empty() || self.scorers.score_slice_apart(&slice, scratch);
        (passed, exact)
    }

    /// Nodes that pass by their own state, with their scores; `None`: scores do not sum up exactly.
    pub(super) fn own_scores(&self, candidates: &NodeCandidates<'_>) -> Option<Vec<(NodeSlot, OwnScore)>> {
        let mut scratch = ScoreScratch::new();
        let mut found = Vec::with_capacity(candidates.len());
        for slice in &candidates.slices {
            let (passed, exact) = self.score_chunk_apart(slice.chunk, &slice.candidates, &mut scratch);
            if !exact {
                return None;
            }
            found.extend(
                passed
                    .iter()
                    .map(|offset| (slice.slot(offset), scratch.score_apart(offset))),
            );
        }
        Some(found)
    }
}

fn hypothetical_slice(chunk: &NodeChunk, candidates: NodeMask) -> ChunkSlice<'_> {
    ChunkSlice {
        first_slot: 0,
        chunk,
        candidates,
    }
}
