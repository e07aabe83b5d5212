//! One whole cycle of a cluster under two policies: jobs whose tasks start, wait or go otherwise.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use pumice_console::CommandError;
use pumice_engine::actions::{CycleAction, CycleEvent, run_cycle};
use pumice_engine::model::ClusterState;
use pumice_engine::policy::{CompileOptions, compile};

/// What a cycle does with the tasks of one job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobOutcome {
    /// True if the job is enqueued.
    enqueued: bool,
    /// Tasks that start, with their nodes.
    bound: BTreeSet<(String, String)>,
    /// Tasks that wait on a node for amounts that are being released.
    pipelined: BTreeSet<(String, String)>,
    /// Tasks that are evicted.
    evicted: BTreeSet<String>,
}

impl JobOutcome {
    /// Words for a table, such as `enqueued, 2 bound (n1, n2)`.
    pub(super) fn text(&self) -> String {
        let nodes = |places: &BTreeSet<(String, String)>| {
            let nodes: Vec<&str> = places.iter().map(|(_, node)| node.as_str()).collect();
            format!("{} ({})", places.len(), nodes.join(", "))
        };
        let mut parts = Vec::new();
        if self.enqueued {
            parts.push("enqueued".to_owned());
        }
        if !self.bound.is_empty() {
            parts.push(format!("bound {}", nodes(&self.bound)));
        }
        if !self.pipelined.is_empty() {
            parts.push(format!("waits on {}", nodes(&self.pipelined)));
        }
        if !self.evicted.is_empty() {
            parts.push(format!("evicted {}", self.evicted.len()));
        }
        if parts.is_empty() {
            "-".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// Job that two cycles end differently for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobDifference {
    pub(super) job: String,
    pub(super) before: JobOutcome,
    pub(super) after: JobOutcome,
}

/// Jobs for which one cycle of each policy ends differently, by name; each policy has its own reading of the cluster. `None`: a
/// policy has no actions, as one of kube-scheduler.
///
/// # Errors
/// A document cannot be compiled, or a cycle ends where the reference would crash.
pub(super) fn compare(
    documents: [&str; 2],
    states: [ClusterState; 2],
) -> Result<Option<Vec<JobDifference>>, CommandError> {
    let mut outcomes = Vec::new();
    for (document, state) in documents.into_iter().zip(states) {
        let Some(outcome) = outcome(document, state)? else {
            return Ok(None);
        };
        outcomes.push(outcome);
    }
    let (Some(after), Some(before)) = (outcomes.pop(), outcomes.pop()) else {
        return Ok(None);
    };
    let jobs: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |all: &BTreeMap<String, JobOutcome>, job: &str| all.get(job).cloned().unwrap_or_default();
    let each = jobs.into_iter().map(|job| JobDifference {
        job: job.clone(),
        before: of(&before, job),
        after: of(&after, job),
    });
    Ok(Some(each.filter(|own| own.before != own.after).collect()))
}

/// What one cycle does, by job.
fn outcome(document: &str, state: ClusterState) -> Result<Option<BTreeMap<String, JobOutcome>>, CommandError> {
    let failed = |message: String| CommandError::message(format!("error: a cycle of the policy: {message}"));
    let compiled = compile(document, &CompileOptions::default());
    let policy = compiled
        .map_err(|report| failed(format!("{:?}", report.diagnostics)))?
        .policy;
    let names = policy.spec().actions.iter();
    let actions: Vec<CycleAction> = names.filter_map(|name| CycleAction::from_name(name)).collect();
    if actions.is_empty() {
        return Ok(None);
    }
    let tasks = state.clone();
    let report = run_cycle(state, &policy, &actions, None).map_err(|problem| failed(problem.message))?;
    let job_of = |task: &str| {
        let stored = tasks.tasks().get(task);
        stored.map_or_else(String::new, |stored| stored.record.job.to_string())
    };
    let mut outcomes: BTreeMap<String, JobOutcome> = BTreeMap::new();
    for event in &report.events {
        match event {
            CycleEvent::Enqueued(job) => outcomes.entry(job.to_string()).or_default().enqueued = true,
            CycleEvent::Bound { task, node } => {
                let own = outcomes.entry(job_of(task)).or_default();
                own.bound.insert((task.to_string(), node.to_string()));
            }
            CycleEvent::Pipelined { task, node, .. } => {
                let own = outcomes.entry(job_of(task)).or_default();
                own.pipelined.insert((task.to_string(), node.to_string()));
            }
            CycleEvent::Evicted { task, .. } => {
                outcomes
                    .entry(job_of(task))
                    .or_default()
                    .evicted
                    .insert(task.to_string());
            }
            CycleEvent::Nominated { .. } | CycleEvent::PassedOver { .. } => {}
        }
    }
    Ok(Some(outcomes))
}
