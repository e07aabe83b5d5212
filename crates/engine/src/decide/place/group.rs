//! Placement of one group: on idle amounts first, then on amounts that are being released.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::admission::{GroupAdmitter, NextTask};
use super::pass::{ArrivingTask, PlacePass, RejudgeScope};
use super::pass_steps::PlacePassEnd;
use super::picker::NodeTaskCounts;
use super::{PlaceBlocker, PlaceGroup, PlaceQuery, PlacedGroup, query_too_large};
use crate::decide::admit::AdmitVerdict;
use crate::decide::builtin_filters::node_state_reason;
use crate::decide::candidates::NodeCandidates;
use crate::decide::classes::ClassLookup;
use crate::decide::filter::FilterPass;
use crate::decide::parallelism::Parallelism;
use crate::decide::plugin_selection::PluginSelection;
use crate::decide::query::{FilterDetail, NodeQuery, ResourceFit};
use crate::devices::DeviceMask;
use crate::model::constraints::{ConstraintKind, PodAffinityTerm};
use crate::model::{ClusterState, NodeEntry, NodeSlot, Problem, TaskClass, TaskStatus};
use crate::plugin::{Measurement, PluginContext, Reason};
use crate::plugin_state::PluginStates;
use crate::policy::Policy;

/// State after the groups before.
#[derive(Clone)]
pub(super) struct GroupPlacer<'q> {
    pub(super) state: ClusterState,
    pub(super) plugin_states: PluginStates,
    pub(super) policy: &'q Policy,
    pub(super) query: &'q PlaceQuery,
    pub(super) execution: Parallelism<'q>,
    /// State before the first group.
    pub(super) initial_state: ClusterState,
    /// Nodes that took tasks, pass by pass.
    pub(super) pass_log: Vec<(Rc<ArrivingTask>, NodeTaskCounts)>,
    /// Number of passes that the cluster state shows; nothing reads the later ones any more.
    pub(super) applied_passes: usize,
    /// Nodes whose entries in the cluster state are up to date, because columns do not show all of them.
    pub(super) current_entries: BTreeSet<NodeSlot>,
}

impl<'q> GroupPlacer<'q> {
    /// Places as many tasks of a group as possible; `None`: cancelled.
    pub(super) fn place_group(&mut self, number: usize, group: &'q PlaceGroup) -> Result<Option<PlacedGroup>, Problem> {
        let lookup = ClassLookup::of(&self.state, self.policy, &[]);
        let class = lookup.class_of(&group.task, &self.query.resources);
        let mut gate = GroupAdmitter::new(self.policy, self.context(), number, group);
        let mut placed = PlacedGroup {
            warnings: group.warnings.clone(),
            ..PlacedGroup::default()
        };
        // Which card is chosen may hang on what the groups before have left.
        self.apply_passes();
        let slots = self.candidate_slots();
        let mut scope = self.rejudge_scope(&class);
        let (policy, mut status) = (self.policy, TaskStatus::Allocated);
        let joins = |status, scope| {
            let arriving = ArrivingTask::new(&group.task, status, policy);
            // A pipelined task may open nodes with enough idle to the next one.
            let scope = match (scope, status) {
                (RejudgeScope::Peers, TaskStatus::Pipelined) => RejudgeScope::AllNodes,
                _ => scope,
            };
            Rc::new(arriving.seen_by_selectors(class.pod.is_some(), scope))
        };
        let mut arrival = joins(status, scope);
        while gate.placed_count < group.count {
            if (self.execution.is_cancelled)() {
                return Ok(None);
            }
            if let NextTask::Rejected(admission) = gate.admit_next(&self.state, &mut self.plugin_states)? {
                placed.blockers = admission_blockers(admission);
                break;
            }
            let of_next = self.class_of_next(&gate);
            let own = of_next.as_ref().unwrap_or(&class);
            match self.run_pass(own, &mut gate, &arrival, slots.as_deref(), group.count, &mut placed)? {
                PlacePassEnd::Cancelled => return Ok(None),
                PlacePassEnd::AllPlaced | PlacePassEnd::Rejudge => {
                    // The last task may have opened nodes with enough idle to the next one.
                    if scope != RejudgeScope::OwnNode && status == TaskStatus::Pipelined {
                        status = TaskStatus::Allocated;
                        arrival = joins(status, scope);
                    }
                }
                PlacePassEnd::Inexact => {
                    scope = RejudgeScope::AllNodes;
                    arrival = joins(status, scope);
                }
                PlacePassEnd::NoNodeLeft if status == TaskStatus::Allocated && !self.query.idle_only => {
                    status = TaskStatus::Pipelined;
                    arrival = joins(status, scope);
                }
                PlacePassEnd::NoNodeLeft => {
                    gate.report_placed(&self.state, &mut self.plugin_states)?;
                    placed.blockers = self.blockers(&class, slots.as_deref())?;
                    break;
                }
            }
        }
        gate.report_placed(&self.state, &mut self.plugin_states)?;
        placed.complete();
        Ok(Some(placed))
    }

    /// Class of the next task of a group whose tasks a plugin tells apart; `None`: they have one class.
    fn class_of_next(&self, admitter: &GroupAdmitter<'_>) -> Option<TaskClass> {
        let next = admitter.has_own_classes.then(|| admitter.next_task(&self.state))?;
        Some(ClassLookup::of(&self.state, self.policy, &[]).class_of(&next, &self.query.resources))
    }

    /// Context of the present state.
    fn context(&self) -> PluginContext<'_> {
        PluginContext::new(&self.state, &self.plugin_states, self.query.now)
    }

    /// Nodes that each task of a class may change for the next one.
    fn rejudge_scope(&self, class: &TaskClass) -> RejudgeScope {
        // Devices are judged on the nodes themselves: no column shows them, and scores may be relative to all nodes.
        if self.policy.reads_devices(&[]) {
            return RejudgeScope::AllNodes;
        }
        if self.state.keeps_pods() {
            return RejudgeScope::OwnNode;
        }
        let Some((own, pod)) = class.constraints.as_ref().zip(class.pod.as_ref()) else {
            return RejudgeScope::OwnNode;
        };
        let mut kinds = self.policy.registered_constraints(&[]);
        if self.state.repel_each_other_by_node(own, pod) {
            kinds = kinds.without(ConstraintKind::PodAntiAffinity);
        }
        if !own.selects_itself(pod, kinds) {
            return RejudgeScope::OwnNode;
        }
        let about_pods = [
            ConstraintKind::PodAffinity,
            ConstraintKind::PreferredPodAffinity,
            ConstraintKind::PodAntiAffinity,
            ConstraintKind::PreferredPodAntiAffinity,
        ];
        // Whether such a term selects the class itself depends on records of namespaces.
        let needs_namespaces = |kind: &ConstraintKind| own.has_term(*kind, PodAffinityTerm::needs_namespaces);
        if about_pods.iter().any(needs_namespaces) {
            return RejudgeScope::AllNodes;
        }
        RejudgeScope::Peers
    }

    /// Updates the cluster state: its columns, and the entries of nodes that columns do not show completely.
    fn apply_passes(&mut self) {
        for at in self.applied_passes..self.pass_log.len() {
            let Some((joins, taken)) = self.pass_log.get(at) else {
                break;
            };
            for (slot, times) in taken {
                if let Some(pod) = joins.pod_class() {
                    self.state.add_hypothetical_pods(pod, *slot, *times);
                }
                let upstream = self.policy.compatibility().is_upstream();
                let is_current = upstream || self.current_entries.contains(slot);
                if !is_current && joins.add_to_columns(&mut self.state, *slot, *times) {
                    continue;
                }
                let entry = if is_current {
                    self.state.node(*slot).map(|entry| joins.entry_after(entry, *times))
                } else {
                    self.current_entries.insert(*slot);
                    self.entry_at_pass(*slot, at)
                };
                if let Some(entry) = entry {
                    self.state.set_node(*slot, Arc::new(entry));
                }
            }
        }
        self.applied_passes = self.pass_log.len();
    }

    /// Node after all tasks that it took up to a pass.
    fn entry_at_pass(&self, slot: NodeSlot, last: usize) -> Option<NodeEntry> {
        let mut entry = NodeEntry::clone(self.initial_state.node(slot)?);
        for (joins, taken) in self.pass_log.iter().take(last + 1) {
            for (_, times) in taken.iter().filter(|(own, _)| *own == slot) {
                entry = joins.entry_after(&entry, *times);
            }
        }
        Some(entry)
    }

    /// Places tasks of a group in one gradient, until no node is left or nodes must be evaluated again.
    fn run_pass(
        &mut self,
        class: &TaskClass,
        admitter: &mut GroupAdmitter<'_>,
        joins: &Rc<ArrivingTask>,
        slots: Option<&[NodeSlot]>,
        count: usize,
        placed: &mut PlacedGroup,
    ) -> Result<PlacePassEnd, Problem> {
        self.apply_passes();
        admitter.report_placed(&self.state, &mut self.plugin_states)?;
        let query = self.filter_query();
        // The pass reads this copy, while later events change the original.
        let derived = self.plugin_states.clone();
        let context = PluginContext::new(&self.state, &derived, self.query.now);
        let run = PlacePass::new(context, self.policy, class, &query, joins)?;
        let mut run = run.with_reuse(self.execution.verdicts, self.policy, &query, class);
        let candidates = NodeCandidates::of(&self.state, slots);
        if run.rescores_all() || admitter.refilters_each() {
            let pairs = (count as u64).saturating_mul(candidates.len() as u64);
            if pairs > self.query.max_pairs {
                return Err(query_too_large(count, candidates.len(), self.query.max_pairs));
            }
        }
        let (derived, cluster_state) = (&mut self.plugin_states, &self.state);
        let mut entries: BTreeMap<NodeSlot, NodeEntry> = BTreeMap::new();
        let mut put = |slot: NodeSlot, admitter: &mut GroupAdmitter<'_>| -> Result<bool, Problem> {
            let card = admitter.place_next(cluster_state, derived, slot, joins.status())?;
            let devices = if joins.asks_devices() {
                let before = cluster_state.node(slot);
                before.map_or(0, |before| {
                    joins.arrive(entries.entry(slot).or_insert_with(|| NodeEntry::clone(before)))
                })
            } else {
                0
            };
            placed.push(slot, joins.status(), card, devices);
            if admitter.placed_count == count {
                return Ok(false);
            }
            Ok(matches!(
                admitter.admit_next(cluster_state, derived)?,
                NextTask::Admitted
            ))
        };
        let (ended, taken) = run.place_tasks(&candidates, count, admitter, self.execution.is_cancelled, &mut put)?;
        drop(run);
        self.pass_log.push((Rc::clone(joins), taken));
        Ok(ended)
    }

    fn candidate_slots(&self) -> Option<Vec<NodeSlot>> {
        let query = self.query;
        if query.exclusions.is_empty() {
            return query.candidates.clone();
        }
        let excluded: BTreeSet<NodeSlot> = query.exclusions.iter().copied().collect();
        let left = |slots: &mut dyn Iterator<Item = NodeSlot>| slots.filter(|slot| !excluded.contains(slot)).collect();
        Some(match &query.candidates {
            Some(slots) => left(&mut slots.iter().copied()),
            None => left(&mut self.state.nodes().map(|(slot, _)| slot)),
        })
    }

    fn filter_query(&self) -> NodeQuery {
        let resources = Arc::clone(&self.query.resources);
        NodeQuery {
            samples: self.query.samples,
            detail: FilterDetail::Samples,
            ..NodeQuery::about_nodes(self.query.now, resources, ResourceFit::FutureIdle)
        }
    }

    /// Reasons for which every node rejects the next task.
    fn blockers(&mut self, class: &TaskClass, slots: Option<&[NodeSlot]>) -> Result<Vec<PlaceBlocker>, Problem> {
        self.apply_passes();
        let mut query = self.filter_query();
        let selection = PluginSelection::of(self.policy, &query)?;
        let mut candidates = NodeCandidates::of(&self.state, slots);
        let mut rejections = Vec::new();
        let context = self.context();
        if self.query.idle_only {
            query.resource_fit = ResourceFit::Idle;
            let filter_pass = FilterPass::new(context, &selection, &query, &candidates, class)?;
            let verdict = filter_pass
                .with_fit_slots(candidates.len())
                .filter_all(&candidates.slices);
            // Idle amounts there may be promised already.
            candidates = NodeCandidates::at_slots(&self.state, verdict.fit);
            rejections = verdict.rejections;
            query.resource_fit = ResourceFit::FutureIdle;
        }
        let filter_pass = FilterPass::new(context, &selection, &query, &candidates, class)?;
        let verdict = filter_pass.filter_all(&candidates.slices);
        rejections.extend(verdict.rejections);
        if rejections.is_empty() {
            let reason = node_state_reason("NoCandidates", "there is no node to choose from");
            return Ok(vec![PlaceBlocker::without_nodes(reason, Vec::new())]);
        }
        let blocker = |rejection| PlaceBlocker {
            rejection,
            measurements: Vec::new(),
        };
        Ok(rejections.into_iter().map(blocker).collect())
    }
}

impl PlacedGroup {
    /// Gives each task a card and devices, if one has them.
    fn complete(&mut self) {
        let tasks = self.placed_count();
        if !self.cards.is_empty() {
            self.cards.resize(tasks, Arc::default());
        }
        if !self.devices.is_empty() {
            self.devices.resize(tasks, 0);
        }
    }

    /// Records the placement of the next task.
    fn push(&mut self, slot: NodeSlot, status: TaskStatus, card: Option<Arc<str>>, devices: DeviceMask) {
        if devices != 0 {
            self.devices.resize(self.placed_count(), 0);
            self.devices.push(devices);
        }
        if let Some(card) = card.filter(|card| !card.is_empty()) {
            // Most tasks use no card.
            self.cards.resize(self.placed_count(), Arc::default());
            self.cards.push(card);
        }
        if status == TaskStatus::Pipelined {
            self.pipelined.push(slot);
        } else {
            self.allocated.push(slot);
        }
    }
}

fn admission_blockers(admission: AdmitVerdict) -> Vec<PlaceBlocker> {
    let blocker =
        |(reason, measurements): (Reason, Vec<Measurement>)| PlaceBlocker::without_nodes(reason, measurements);
    admission.reasons.into_iter().map(blocker).collect()
}
