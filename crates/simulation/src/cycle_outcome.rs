//! Outcomes of one whole cycle of a policy, job by job.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use pumice_engine::actions::{CycleAction, CycleEvent, run_cycle};
use pumice_engine::model::{ClusterState, Problem};
use pumice_engine::policy::Policy;

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
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            "-".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// Runs one cycle with the actions of the policy. `None`: the policy has no actions, as one of kube-scheduler.
///
/// # Errors
/// The reference crashes in the cycle.
pub fn run(policy: &Policy, state: ClusterState) -> Result<Option<CycleOutcomes>, Problem> {
    let names = policy.spec().actions.iter();
    let actions: Vec<CycleAction> = names.filter_map(|name| CycleAction::from_name(name)).collect();
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
    Ok(Some(outcomes))
}

fn of_job<'o>(outcomes: &'o mut CycleOutcomes, job: &str) -> &'o mut JobOutcome {
    outcomes.entry(job.to_owned()).or_default()
}
