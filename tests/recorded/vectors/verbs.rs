//! Family verbs: every step of the recorded sequences at the engine's cycle, and over gRPC the steps that it supports.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::cycle::{ChangeOutcome, NodeChangeRules, SchedulingCycle, SessionChange, ShareEvent, TaskPlacement};
use pumice_engine::model::{
    ClusterState, JobRecord, NodeVector, Problem, RecordKind, ResourceTotals, StoredRecord, TaskStatus,
};
use pumice_engine::plugin::{AccountAmounts, PluginAccounts as _};
use pumice_engine::plugins::drf::{self, DrfState};
use pumice_engine::policy::{self, Compatibility, CompileOptions};
use serde_json::Value;

use super::cluster::{self, members};
use super::statements::{StatementError, StatementReplay, StatementTarget, StatementVerb, task_key};
use super::{VectorDifferences, VectorHarness, VectorVerdict};
use crate::support::engine;

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let mut differences = VectorDifferences::default();
    at_engine(bench, &mut differences, case);
    super::verbs_wire::check(bench, &mut differences, case);
    differences.verdict()
}

/// Cycle of the engine.
struct EngineTarget {
    cycle: SchedulingCycle,
    events: Vec<(&'static str, String)>,
}

impl EngineTarget {
    fn note(&mut self, outcome: ChangeOutcome) -> Result<(), StatementError> {
        self.events.extend(outcome.events.into_iter().map(|event| match event {
            ShareEvent::Allocate(task) => ("allocate", task.to_string()),
            ShareEvent::Deallocate(task) => ("deallocate", task.to_string()),
        }));
        if outcome.warnings.is_empty() {
            Ok(())
        } else {
            Err(StatementError::Rejected)
        }
    }
}

fn panic(problem: Problem) -> StatementError {
    StatementError::Panic(problem.message)
}

impl StatementTarget for EngineTarget {
    fn change(&mut self, verb: StatementVerb, task: &str, node: &str) -> Result<(), StatementError> {
        let task: Arc<str> = Arc::from(task);
        let placement = || TaskPlacement {
            task: Arc::clone(&task),
            node: Arc::from(node),
            card: Arc::default(),
            devices: 0,
        };
        let change = match verb {
            StatementVerb::Allocate => SessionChange::Allocate(placement()),
            StatementVerb::Pipeline => SessionChange::Pipeline(placement()),
            StatementVerb::Evict => SessionChange::Evict(task),
            StatementVerb::Unallocate => SessionChange::Unallocate(task),
            StatementVerb::Unpipeline => SessionChange::Unpipeline(task),
            StatementVerb::Unevict => SessionChange::Unevict(task),
        };
        let outcome = self.cycle.apply(&[change]).map_err(panic)?;
        self.note(outcome)
    }

    fn place_without_rollback(&mut self, verb: StatementVerb, task: &str, node: &str) -> Result<(), StatementError> {
        let placement = TaskPlacement {
            task: Arc::from(task),
            node: Arc::from(node),
            card: Arc::default(),
            devices: 0,
        };
        let status = if verb == StatementVerb::Allocate {
            TaskStatus::Allocated
        } else {
            TaskStatus::Pipelined
        };
        let outcome = self
            .cycle
            .place_without_rollback(&placement, status)
            .map_err(|_| StatementError::Rejected)?;
        self.note(outcome)
    }

    fn bind(&mut self, task: &str) -> Result<(), StatementError> {
        self.cycle.bind(task);
        Ok(())
    }

    fn node_of(&mut self, task: &str) -> String {
        let stored = self.cycle.cluster_state().tasks().get(task);
        stored.map_or_else(String::new, |stored| stored.record.node.to_string())
    }

    fn allocated(&mut self, job: &str) -> Vec<String> {
        let tasks = self.cycle.cluster_state().tasks().iter();
        let own = tasks.filter(|(_, task)| *task.record.job == *job && task.record.status == TaskStatus::Allocated);
        own.map(|(name, _)| name.to_string()).collect()
    }

    fn holds(&mut self, node: &str, task: &str) -> Option<bool> {
        Some(self.cycle.node_tasks(node).iter().any(|(name, _)| **name == *task))
    }
}

fn at_engine(bench: &mut VectorHarness, differences: &mut VectorDifferences, case: &Value) {
    let cluster_state = engine::cluster_state(&cluster::cluster(&case["cluster"]));
    let document = cluster::document(case, &case["policy"]["tiers"].to_string());
    let compiled = match policy::compile(&document, &CompileOptions::default()) {
        Ok(compiled) => compiled,
        Err(report) => return differences.differ("policy", "taken", &report.diagnostics),
    };
    let derived = compiled.policy.compute_plugin_states(&cluster_state);
    let rules = NodeChangeRules {
        compatibility: Compatibility::UPSTREAM,
        ..compiled.policy.node_change_rules()
    };
    let cycle = SchedulingCycle::new(cluster_state, rules, derived);
    compare_state(differences, "initial", &case["expect"]["initial"], &cycle);
    let mut scheduler = StatementReplay::new(
        case,
        EngineTarget {
            cycle,
            events: Vec::new(),
        },
    );
    for (number, op) in members(&case["request"]["ops"]).iter().enumerate() {
        let Some(expected) = case["expect"]["steps"].get(number) else {
            break;
        };
        let what = format!("step {number} ({})", op["op"].as_str().unwrap_or_default());
        scheduler.target.events.clear();
        let problem = scheduler.run(op).err();
        let kind = match &problem {
            None => None,
            Some(StatementError::Rejected) => Some("refused"),
            Some(StatementError::Panic(_)) => Some("panic"),
            Some(StatementError::Unsupported(why)) => {
                bench.skip(format!("rest of a sequence at the engine: {why}"));
                return;
            }
        };
        differences.same(&format!("{what} error"), &expected["error"]["kind"].as_str(), &kind);
        if kind == Some("panic") {
            break;
        }
        let events: Vec<(&str, String)> = scheduler.target.events.clone();
        differences.same(
            &format!("{what} events"),
            &recorded_events(&expected["events"]),
            &events,
        );
        differences.same(
            &format!("{what} pending"),
            &recorded_pending(&expected["pending"]),
            &scheduler.pending(),
        );
        compare_state(differences, &what, expected, &scheduler.target.cycle);
    }
}

/// Recorded events, tasks by key.
fn recorded_events(events: &Value) -> Vec<(&str, String)> {
    members(events)
        .iter()
        .map(|event| {
            (
                event[0].as_str().unwrap_or_default(),
                task_key(event[1].as_str().unwrap_or_default()),
            )
        })
        .collect()
}

fn recorded_pending(pending: &Value) -> BTreeMap<String, usize> {
    let entries = pending.as_object().into_iter().flatten();
    entries
        .map(|(name, held)| {
            (
                name.clone(),
                held.as_u64().and_then(|held| usize::try_from(held).ok()).unwrap_or(0),
            )
        })
        .collect()
}

/// Recorded vector, or one of the cluster state, without zeros, because a missing key is 0.
pub(crate) type RecordedAmounts = BTreeMap<String, f64>;

/// Recorded vector without its zeros.
pub(crate) fn recorded_amounts(vector: &Value) -> RecordedAmounts {
    let entries = vector.as_object().into_iter().flatten();
    let entries = entries.map(|(name, amount)| (name.clone(), amount.as_f64().unwrap_or(f64::NAN)));
    entries.filter(|(_, amount)| *amount != 0.0).collect()
}

/// Vector of one node, as decisions read it.
fn node_vector(cluster_state: &ClusterState, node: &str, name: &str) -> RecordedAmounts {
    let Some(slot) = cluster_state.slot_of(node) else {
        return RecordedAmounts::new();
    };
    let (chunk, offset) = (
        cluster_state.chunks().get(slot as usize / 256).unwrap(),
        slot as usize % 256,
    );
    let value = |id| match name {
        "idle" => chunk.idle(id).values[offset],
        "futureIdle" => chunk.future_idle(id).values[offset],
        "used" => chunk.column(id, NodeVector::Used).values[offset],
        "releasing" => chunk.column(id, NodeVector::Releasing).values[offset],
        _ => chunk.column(id, NodeVector::Pipelined).values[offset],
    };
    let all = chunk
        .resources()
        .map(|id| (cluster_state.resources().name(id).to_owned(), value(id)));
    all.filter(|(_, amount)| *amount != 0.0).collect()
}

fn compare_state(differences: &mut VectorDifferences, what: &str, expected: &Value, cycle: &SchedulingCycle) {
    let cluster_state = cycle.cluster_state();
    for (node, vectors) in expected["nodes"].as_object().into_iter().flatten() {
        for name in ["idle", "used", "releasing", "pipelined", "futureIdle"] {
            let got = node_vector(cluster_state, node, name);
            differences.same(
                &format!("{what} {node} {name}"),
                &recorded_amounts(&vectors[name]),
                &got,
            );
        }
        let copies = vectors["tasks"].as_object().into_iter().flatten();
        let copies: BTreeMap<String, String> = copies
            .map(|(task, status)| (task_key(task), cluster::text(status)))
            .collect();
        let own = cycle.node_tasks(node).into_iter();
        let own: BTreeMap<String, String> = own
            .map(|(task, status)| (task.to_string(), format!("{status:?}")))
            .collect();
        differences.same(&format!("{what} {node} copies"), &copies, &own);
    }
    for (reference, context) in expected["tasks"].as_object().into_iter().flatten() {
        let task = cluster_state
            .tasks()
            .get(&task_key(reference))
            .map(|stored| &stored.record);
        let got = task.map(|task| (format!("{:?}", task.status), task.node.to_string()));
        let recorded = (cluster::text(&context[0]), cluster::text(&context[1]));
        differences.same(&format!("{what} {reference}"), &Some(recorded), &got);
    }
    for (job, account) in expected["jobs"].as_object().into_iter().flatten() {
        let totals = cluster_state
            .job_allocated(job)
            .into_iter()
            .flat_map(ResourceTotals::iter);
        let got: RecordedAmounts = totals
            .map(|(id, amount)| (cluster_state.resources().name(id).to_owned(), amount as f64))
            .filter(|(_, amount)| *amount != 0.0)
            .collect();
        differences.same(
            &format!("{what} {job} allocated"),
            &recorded_amounts(&account["allocated"]),
            &got,
        );
        debug_assert!(cluster_state.source_of(RecordKind::Job, job).is_some());
    }
    compare_shares(differences, what, expected, cycle);
}

/// Compares the shares that drf has counted.
fn compare_shares(differences: &mut VectorDifferences, what: &str, expected: &Value, cycle: &SchedulingCycle) {
    let Some(shares) = cycle.plugin_states().get::<DrfState>(drf::NAME) else {
        return differences.differ(what, "shares", "none");
    };
    let named = |amounts: AccountAmounts| -> RecordedAmounts {
        let named = amounts.into_iter().map(|(name, amount)| (name.to_string(), amount));
        named.collect()
    };
    let cluster_state = cycle.cluster_state();
    for (job, expected) in expected["jobs"].as_object().into_iter().flatten() {
        let stored = cluster_state.jobs().get(job.as_str());
        let account = |stored: &Arc<StoredRecord<JobRecord>>| shares.job_account(cluster_state, &stored.record);
        let Some(own) = stored.and_then(account) else {
            differences.differ(what, job, "no account");
            continue;
        };
        let counted = recorded_amounts(&expected["drfAllocated"]);
        differences.same(&format!("{what} {job} counted"), &counted, &named(own.allocated));
        differences.same_float(&format!("{what} {job} share"), number(&expected["share"]), own.share);
    }
    if expected["totalAllocated"].is_object() {
        let counted = recorded_amounts(&expected["totalAllocated"]);
        differences.same(&format!("{what} counted"), &counted, &named(shares.total_allocated()));
        let tree = shares.queue_tree();
        let got = tree.first().map_or(f64::NAN, |root| root.share);
        let expected = number(&expected["rootShare"]);
        if (expected - got).abs() > 1e-12 * expected.abs() {
            differences.differ(&format!("{what} share of the root"), &expected, &got);
        }
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}
