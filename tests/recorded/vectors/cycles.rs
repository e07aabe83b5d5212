//! Families of whole scheduling cycles: the engine's actions on a recorded cluster, compared with what became of every task
//! and of every job's phase.

use std::collections::BTreeMap;

use pumice::server::pb;
use pumice_engine::actions::{CycleAction, closing_phase, run_cycle};
use pumice_engine::model::{ClusterState, JobPhase, JobRecord};
use pumice_engine::policy::{self, CompileOptions, Policy};
use serde_json::{Value, json};

use super::cluster::{self, members, text};
use super::statements::task_key;
use super::{VectorDifferences, VectorHarness, VectorVerdict, any_outcome, loads, pod_cluster};
use crate::support::engine;

/// Judges one case of the family `actions`.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let names = members(&case["request"]["actionList"]).iter().map(text);
    let names: Vec<String> = names.collect();
    if let Some(name) = names.iter().find(|name| CycleAction::from_name(name).is_none()) {
        return VectorVerdict::NotServed(format!("action {name}"));
    }
    let expect = &case["expect"];
    let variants = match members(&expect["variants"]) {
        [] => std::slice::from_ref(expect),
        variants => variants,
    };
    let _ = bench;
    compare_outcome(case, &names, variants, "changed")
}

/// Runs a cycle and compares it with the recorded outcomes, one of which must be met.
pub(super) fn compare_outcome(case: &Value, actions: &[String], outcomes: &[Value], key: &str) -> VectorVerdict {
    let ended = match CycleEnd::of(case, actions) {
        Ok(ended) => ended,
        Err(problem) => {
            return VectorVerdict::Fail {
                expected: outcomes.first().unwrap_or(&Value::Null).to_string(),
                got: problem,
            };
        }
    };
    let got = if key == "changed" {
        &ended.changed
    } else {
        &ended.waited
    };
    any_outcome(outcomes, |outcome| {
        let mut differences = VectorDifferences::default();
        let recorded: BTreeMap<String, Value> = entries(&outcome[key]).map(|(name, end)| (name, end.clone())).collect();
        for (task, end) in &recorded {
            differences.same(task, end, got.get(task).unwrap_or(&Value::Null));
        }
        for (task, end) in got.iter().filter(|(task, _)| !recorded.contains_key(*task)) {
            differences.same(task, &Value::Null, end);
        }
        for (job, phase) in entries(&outcome["phases"]) {
            let got = ended.phases.get(&job).map(String::as_str);
            differences.same(&format!("phase of {job}"), &phase.as_str(), &got);
        }
        for (job, phase) in entries(&outcome["closed"]) {
            let got = ended.closed.get(&job).map(String::as_str);
            differences.same(&format!("phase of {job} at the end"), &phase.as_str(), &got);
        }
        differences.verdict()
    })
}

fn entries(map: &Value) -> impl Iterator<Item = (String, &Value)> {
    map.as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value))
}

/// End of a cycle in the words of the recordings.
struct CycleEnd {
    /// Status and node of every task of which one changed.
    changed: BTreeMap<String, Value>,
    /// Status and node of every task that waited.
    waited: BTreeMap<String, Value>,
    phases: BTreeMap<String, String>,
    /// Phases that the session writes when it closes.
    closed: BTreeMap<String, String>,
}

impl CycleEnd {
    fn of(case: &Value, actions: &[String]) -> Result<Self, String> {
        let document = cluster::document(case, &case["policy"]["tiers"].to_string());
        let compiled = policy::compile(&document, &CompileOptions::default()).unwrap();
        let opening = engine::cluster_state(&session_cluster(case));
        let actions: Vec<CycleAction> = actions.iter().filter_map(|name| CycleAction::from_name(name)).collect();
        let report = run_cycle(
            opening.clone(),
            &compiled.policy,
            &actions,
            Some(pod_cluster::decision_time(case)),
        );
        let report = report.map_err(|problem| problem.message)?;
        Ok(Self::between(
            case,
            &compiled.policy,
            &opening,
            report.cycle.cluster_state(),
        ))
    }

    fn between(case: &Value, policy: &Policy, opening: &ClusterState, ended: &ClusterState) -> Self {
        let (mut changed, mut waited) = (BTreeMap::new(), BTreeMap::new());
        for job in members(&case["cluster"]["jobs"]) {
            for task in members(&job["tasks"]) {
                let reference = format!(
                    "{}|{}",
                    cluster::key(&job["namespace"], &job["name"]),
                    text(&task["name"])
                );
                let end = |state: &ClusterState| {
                    let record = &state.tasks().get(&task_key(&reference)).unwrap().record;
                    json!([format!("{:?}", record.status), &*record.node])
                };
                let (before, after) = (end(opening), end(ended));
                if task["status"] == "Pending" {
                    waited.insert(reference.clone(), after.clone());
                }
                if before != after {
                    changed.insert(reference, after);
                }
            }
        }
        let phases = |phase: &dyn Fn(&JobRecord) -> JobPhase| {
            let jobs = ended
                .jobs()
                .iter()
                .map(|(name, job)| (name.to_string(), phase(&job.record)));
            jobs.map(|(name, phase)| (name, format!("{phase:?}").replace("Unspecified", "")))
                .collect()
        };
        let closing = |job: &JobRecord| {
            let tasks = ended.tasks().iter().map(|(_, task)| &task.record);
            closing_phase(policy, job, tasks.filter(|task| task.job == job.name))
        };
        Self {
            changed,
            waited,
            phases: phases(&|job| job.phase),
            closed: phases(&closing),
        }
    }
}

/// Complete cluster of a case: pods through the importer, and the fields of jobs and tasks that plugins for gangs read.
pub(super) fn session_cluster(case: &Value) -> pb::Cluster {
    let mut sent = pod_cluster::cluster(case);
    let plain = super::job_plugins::converted_cluster(&case["cluster"]);
    sent.jobs = plain.jobs;
    let mut own: BTreeMap<String, pb::Task> = plain.tasks.into_iter().map(|task| (task.name.clone(), task)).collect();
    for task in &mut sent.tasks {
        if let Some(plain) = own.remove(&task.name) {
            task.priority = plain.priority;
            task.role_from_label = plain.role.is_empty() && !task.role.is_empty();
            if !plain.role.is_empty() {
                task.role = plain.role;
            }
            task.priority_class_name = plain.priority_class_name;
            task.creation_time = plain.creation_time;
            task.sub_group = plain.sub_group;
            task.gated = plain.gated;
        }
    }
    if ["usage", "rescheduling"]
        .iter()
        .any(|plugin| case["policy"]["plugin"] == *plugin)
    {
        loads::add_loads(case, &mut sent);
    }
    sent
}
