//! Rules that evictions keep, judged by the state before each cycle, its events and its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use pumice_engine::actions::{CycleEvent, CycleReport};
use pumice_engine::cycle::SessionChange;
use pumice_engine::decide::{PlaceGroup, PlaceQuery, place};
use pumice_engine::model::{ClusterState, TaskRecord, TaskStatus};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::Policy;

/// Tally of all cases.
#[derive(Debug, Default)]
pub(crate) struct CaseTally {
    pub(crate) cases: u64,
    pub(crate) violations: Vec<String>,
    pub(crate) evictions: u64,
    /// Claimants that started.
    pub(crate) served_claimants: u64,
    /// Evictions whose claimants wait at the end.
    pub(crate) unserved_evictions: u64,
    pub(crate) pipelined: u64,
}

impl CaseTally {
    pub(crate) fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.violations.extend(other.violations);
        self.evictions += other.evictions;
        self.served_claimants += other.served_claimants;
        self.unserved_evictions += other.unserved_evictions;
        self.pipelined += other.pipelined;
    }
}

impl fmt::Display for CaseTally {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "{} evictions, {} claimants started, {} evictions whose claimants wait at the end, {} tasks pipelined, {} violations",
            self.evictions,
            self.served_claimants,
            self.unserved_evictions,
            self.pipelined,
            self.violations.len()
        )
    }
}

/// Evictions by victim, with the claimants that have not started since.
#[derive(Debug, Default)]
pub(crate) struct ClaimJudge {
    open: BTreeMap<Arc<str>, Arc<str>>,
    /// Claimants whose places the last cycle kept.
    nominated: BTreeSet<Arc<str>>,
}

impl ClaimJudge {
    pub(crate) fn remove_claimant(&mut self, task: &str) {
        self.open.retain(|_, claimant| **claimant != *task);
    }

    /// Only claimant that waits, if its place was kept and it finds one by itself: now, or once others are gone. The next
    /// cycle must not give it away.
    pub(crate) fn claim_to_keep(
        &self,
        state: &ClusterState,
        plugin_states: &PluginStates,
        policy: &Policy,
    ) -> Option<Arc<str>> {
        let mut claimants: BTreeSet<&Arc<str>> = self.open.values().collect();
        claimants.extend(&self.nominated);
        let claimant = claimants
            .pop_first()
            .filter(|own| claimants.is_empty() && self.nominated.contains(*own))?;
        let task = &state.tasks().get(claimant)?.record;
        let is_alone = state.jobs().get(&task.job)?.record.min_member <= 1;
        let node = place_of((state, plugin_states, policy), claimant, false).filter(|_| is_alone);
        node.map(|_| Arc::clone(claimant))
    }

    pub(crate) fn open_evictions(&self) -> u64 {
        u64::try_from(self.open.len()).unwrap()
    }

    /// Violations of one cycle.
    pub(crate) fn judge(&mut self, report: &CycleReport, policy: &Policy, tally: &mut CaseTally) -> Vec<String> {
        let mut found = Vec::new();
        self.nominated.clear();
        for event in &report.events {
            match event {
                CycleEvent::Evicted { task, preemptor, .. } => {
                    tally.evictions += 1;
                    if let Some(claimant) = self.open.insert(Arc::clone(task), Arc::clone(preemptor)) {
                        found.push(format!(
                            "{task} is evicted for {preemptor} while {claimant} waits for its last eviction"
                        ));
                    }
                }
                CycleEvent::Bound { task, .. } => {
                    let before = self.open.len();
                    self.remove_claimant(task);
                    tally.served_claimants += u64::from(self.open.len() < before);
                }
                CycleEvent::Pipelined { task, .. } => {
                    tally.pipelined += 1;
                    if let Some(node) = idle_place(report, policy, task) {
                        found.push(format!("{task} is pipelined, and {node} has what it asks for idle"));
                    }
                }
                CycleEvent::Nominated { task, .. } => drop(self.nominated.insert(Arc::clone(task))),
                CycleEvent::Enqueued(_) | CycleEvent::PassedOver { .. } => {}
            }
        }
        let state = report.cycle.cluster_state();
        for (name, stored) in state.tasks().iter() {
            if stored.record.status == TaskStatus::Allocated && has_enough(state, &stored.record, policy) {
                found.push(format!(
                    "{name} has its place, its job has all that it needs, and it is not bound"
                ));
            }
        }
        let claimants: BTreeSet<&Arc<str>> = self.open.values().collect();
        for claimant in claimants {
            let Some(stored) = state.tasks().get(claimant) else {
                continue;
            };
            let task = &stored.record;
            if task.status == TaskStatus::Pending
                && state
                    .jobs()
                    .get(&task.job)
                    .is_some_and(|job| job.record.min_member <= 1)
                && let Some(node) = idle_place(report, policy, claimant)
            {
                found.push(format!(
                    "claimant {claimant} waits, and {node} has what it asks for idle"
                ));
            }
        }
        found
    }
}

/// True if a job has the tasks that it needs to start.
fn has_enough(state: &ClusterState, task: &TaskRecord, policy: &Policy) -> bool {
    let gang = policy
        .spec()
        .tiers
        .iter()
        .flatten()
        .any(|plugin| &*plugin.name == "gang");
    let job = &state.jobs().get(&task.job).unwrap().record;
    let counts = |other: &&TaskRecord| {
        other.job == task.job
            && (other.status.is_started() || other.status == TaskStatus::Pending && other.requests.is_only_pods())
    };
    let records = state.tasks().iter().map(|(_, stored)| &stored.record);
    !gang || i32::try_from(records.filter(counts).count()).unwrap() >= job.min_member
}

/// Node on which Place puts the task on idle amounts, as if it had no place at the end of the cycle.
fn idle_place(report: &CycleReport, policy: &Policy, task: &Arc<str>) -> Option<Arc<str>> {
    let mut cycle = report.cycle.clone();
    let record = cycle.cluster_state().tasks().get(task).unwrap().record.clone();
    if record.status == TaskStatus::Pipelined {
        cycle.apply(&[SessionChange::Unpipeline(Arc::clone(task))]).unwrap();
    }
    place_of((cycle.cluster_state(), cycle.plugin_states(), policy), task, true)
}

/// Violation by the first eviction of a cycle, if no task was placed before it: its claimant found a place without it.
pub(crate) fn judge_first_eviction(report: &CycleReport, before: &ClusterState, policy: &Policy) -> Option<String> {
    let changes = |event: &&CycleEvent| !matches!(event, CycleEvent::Enqueued(_) | CycleEvent::PassedOver { .. });
    let Some(CycleEvent::Evicted { task, preemptor, .. }) = report.events.iter().find(changes) else {
        return None;
    };
    let job = &before.tasks().get(preemptor)?.record.job;
    let is_alone = before.jobs().get(job)?.record.min_member <= 1;
    let plugin_states = policy.compute_plugin_states(before);
    let node = place_of((before, &plugin_states, policy), preemptor, true).filter(|_| is_alone)?;
    Some(format!(
        "{task} is evicted for {preemptor}, which finds room on {node} without that"
    ))
}

/// True if a task has no place at the end of a cycle.
pub(crate) fn waits_without_place(report: &CycleReport, task: &str) -> bool {
    let stored = report.cycle.cluster_state().tasks().get(task);
    stored.is_some_and(|stored| stored.record.status == TaskStatus::Pending)
}

/// Node on which Place puts a task that waits. `idle_only`: on amounts that are idle now.
fn place_of(
    (state, plugin_states, policy): (&ClusterState, &PluginStates, &Policy),
    task: &Arc<str>,
    idle_only: bool,
) -> Option<Arc<str>> {
    let record = state.tasks().get(task).unwrap().record.clone();
    if record.status != TaskStatus::Pending {
        return None;
    }
    let group = PlaceGroup {
        task: Arc::new(record),
        count: 1,
        names: vec![Arc::clone(task)],
        warnings: Vec::new(),
        unevaluated: Vec::new(),
    };
    let query = PlaceQuery {
        now: None,
        job: None,
        groups: vec![Ok(group)],
        resources: Arc::clone(state.resources()),
        min_available: Some(1),
        candidates: None,
        exclusions: Vec::new(),
        idle_only,
        samples: 0,
        max_pairs: u64::MAX,
    };
    let placed = place(state, policy, plugin_states, &query).unwrap();
    let group = placed.groups.iter().flatten().find(|_| placed.placed)?;
    let slot = group.allocated.first().or_else(|| group.pipelined.first())?;
    state.name_of(*slot)
}
