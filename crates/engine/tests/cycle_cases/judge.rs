//! What must hold of evictions, judged by the events and the end of each cycle alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use pumice_engine::actions::{CycleEvent, CycleReport};
use pumice_engine::cycle::SessionChange;
use pumice_engine::decide::{PlaceGroup, PlaceQuery, place};
use pumice_engine::model::{ClusterState, TaskRecord, TaskStatus};
use pumice_engine::policy::Policy;

/// What happened in all cases.
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
}

impl ClaimJudge {
    pub(crate) fn remove_claimant(&mut self, task: &str) {
        self.open.retain(|_, claimant| **claimant != *task);
    }

    pub(crate) fn open_evictions(&self) -> u64 {
        u64::try_from(self.open.len()).unwrap()
    }

    /// Violations of one cycle.
    pub(crate) fn judge(&mut self, report: &CycleReport, policy: &Policy, tally: &mut CaseTally) -> Vec<String> {
        let mut found = Vec::new();
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
                CycleEvent::Enqueued(_) | CycleEvent::Nominated { .. } | CycleEvent::PassedOver { .. } => {}
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
    let state = cycle.cluster_state();
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
        idle_only: true,
        samples: 0,
        max_pairs: u64::MAX,
    };
    let placed = place(state, policy, cycle.plugin_states(), &query).unwrap();
    let group = placed.groups.iter().flatten().find(|_| placed.placed)?;
    group.allocated.first().and_then(|slot| state.name_of(*slot))
}
