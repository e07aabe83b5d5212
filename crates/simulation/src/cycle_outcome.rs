//! Outcomes of one whole cycle of a policy, job by job.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use pumice_console::output;
use pumice_engine::actions::{CycleAction, CycleEvent, closing_phase, run_cycle};
use pumice_engine::model::{ClusterState, JobPhase, Problem, TaskRecord};
use pumice_engine::policy::Policy;
use pumice_protocol::v1 as pb;

/// Outcome of a cycle for one job and its tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobOutcome {
    /// True if the job is enqueued.
    pub enqueued: bool,
    /// Nodes of the tasks that start, by task.
    pub bound: BTreeMap<String, String>,
    /// Nodes of the tasks that wait there for amounts that are being released, by task.
    pub pipelined: BTreeMap<String, String>,
    /// Tasks that are evicted.
    pub evicted: BTreeSet<String>,
    /// Phase that the end of the cycle writes, such as `unknown`; `None`: the one before, or that of a job which is enqueued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// Outcomes of all jobs that a cycle changes, by name of the job.
pub type CycleOutcomes = BTreeMap<String, JobOutcome>;

impl JobOutcome {
    /// Words for a table, such as `enqueued, bound 2 (n1, n2)`.
    pub fn text(&self) -> String {
        let nodes = |places: &BTreeMap<String, String>| {
            let nodes: Vec<&str> = places.values().map(String::as_str).collect();
            format!("{} ({})", places.len(), nodes.join(", "))
        };
        let parts = [
            self.enqueued.then(|| "enqueued".to_owned()),
            (!self.bound.is_empty()).then(|| format!("bound {}", nodes(&self.bound))),
            (!self.pipelined.is_empty()).then(|| format!("waits on {}", nodes(&self.pipelined))),
            (!self.evicted.is_empty()).then(|| format!("evicted {}", self.evicted.len())),
            self.phase.as_ref().map(|phase| format!("gets {phase}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            "-".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// Names the actions of a policy that no cycle runs here, once for a subject such as a file.
pub fn note_unsimulated_actions(policy: &Policy, subject: &str) {
    for name in &policy.spec().actions {
        if CycleAction::from_name(name).is_none() {
            output::note(&format!("warning: {subject}: the action {name} is not simulated"));
        }
    }
}

/// Actions of a policy that cycles run here.
pub(crate) fn simulated_actions(policy: &Policy) -> Vec<CycleAction> {
    let names = policy.spec().actions.iter();
    names.filter_map(|name| CycleAction::from_name(name)).collect()
}

/// Runs one cycle with the actions of the policy. `None`: the policy has no actions, as one of kube-scheduler.
///
/// # Errors
/// The reference crashes in the cycle.
pub fn run(policy: &Policy, state: ClusterState) -> Result<Option<CycleOutcomes>, Problem> {
    let actions = simulated_actions(policy);
    if actions.is_empty() {
        return Ok(None);
    }
    let tasks = state.tasks().clone();
    let report = run_cycle(state, policy, &actions, None)?;
    let mut outcomes = CycleOutcomes::new();
    let job_of = |task: &str| tasks.get(task).map_or("", |stored| &*stored.record.job);
    for event in &report.events {
        match event {
            CycleEvent::Enqueued(job) => of_job(&mut outcomes, job).enqueued = true,
            CycleEvent::Bound { task, node } => {
                let own = of_job(&mut outcomes, job_of(task));
                own.bound.insert(task.to_string(), node.to_string());
            }
            CycleEvent::Pipelined { task, node, .. } => {
                let own = of_job(&mut outcomes, job_of(task));
                own.pipelined.insert(task.to_string(), node.to_string());
            }
            CycleEvent::Evicted { task, .. } => {
                of_job(&mut outcomes, job_of(task)).evicted.insert(task.to_string());
            }
            CycleEvent::Nominated { .. } | CycleEvent::PassedOver { .. } => {}
        }
    }
    add_phases(&mut outcomes, policy, report.cycle.cluster_state());
    Ok(Some(outcomes))
}

/// Adds the phases that a cycle with this end writes, where they differ from those that its actions left.
fn add_phases(outcomes: &mut CycleOutcomes, policy: &Policy, end: &ClusterState) {
    let mut tasks: BTreeMap<&str, Vec<&TaskRecord>> = BTreeMap::new();
    for (_, stored) in end.tasks().iter() {
        tasks.entry(&stored.record.job).or_default().push(&stored.record);
    }
    for (name, stored) in end.jobs().iter() {
        let own = tasks.get(&**name).into_iter().flatten().copied();
        let phase = closing_phase(policy, &stored.record, own);
        let is_known =
            phase == stored.record.phase || phase == JobPhase::Pending && stored.record.phase == JobPhase::Unspecified;
        if !is_known {
            let word = wire_phase(phase).as_str_name().trim_start_matches("JOB_PHASE_");
            of_job(outcomes, name).phase = Some(word.to_lowercase());
        }
    }
}

/// Phase as records have it.
pub(crate) fn wire_phase(phase: JobPhase) -> pb::JobPhase {
    match phase {
        JobPhase::Unspecified => pb::JobPhase::Unspecified,
        JobPhase::Pending => pb::JobPhase::Pending,
        JobPhase::Inqueue => pb::JobPhase::Inqueue,
        JobPhase::Running => pb::JobPhase::Running,
        JobPhase::Unknown => pb::JobPhase::Unknown,
        JobPhase::Completed => pb::JobPhase::Completed,
    }
}

fn of_job<'o>(outcomes: &'o mut CycleOutcomes, job: &str) -> &'o mut JobOutcome {
    outcomes.entry(job.to_owned()).or_default()
}
