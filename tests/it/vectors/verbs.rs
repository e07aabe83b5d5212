//! Family verbs: every step of the recorded sequences at the engine's cycle, and over gRPC what can be asked there.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice::engine::cycle::{Change, Cycle, Event, Outcome, Placement};
use pumice::engine::model::{Kind, Problem, ResourceId, TaskStatus, Totals, Vector, View};
use pumice::engine::plugins::drf::{self, Drf};
use pumice::engine::policy::{self, Compatibility, CompileOptions};
use serde_json::Value;

use super::cluster::{self, members};
use super::statements::{Fault, Scheduler, Target, Verb, task_key};
use super::{Bench, Differences, Verdict};
use crate::support::engine;

/// Judges one case.
pub(crate) fn check(bench: &mut Bench, case: &Value) -> Verdict {
    let mut differences = Differences::default();
    at_engine(bench, &mut differences, case);
    super::verbs_wire::check(bench, &mut differences, case);
    differences.verdict()
}

/// The engine's cycle.
struct Engine {
    cycle: Cycle,
    events: Vec<(&'static str, String)>,
}

impl Engine {
    fn note(&mut self, outcome: Outcome) -> Result<(), Fault> {
        self.events.extend(outcome.events.into_iter().map(|event| match event {
            Event::Allocate(task) => ("allocate", task.to_string()),
            Event::Deallocate(task) => ("deallocate", task.to_string()),
        }));
        if outcome.warnings.is_empty() {
            Ok(())
        } else {
            Err(Fault::Refused)
        }
    }
}

fn panic(problem: Problem) -> Fault {
    Fault::Panic(problem.message)
}

impl Target for Engine {
    fn change(&mut self, verb: Verb, task: &str, node: &str) -> Result<(), Fault> {
        let task: Arc<str> = Arc::from(task);
        let placement = || Placement {
            task: Arc::clone(&task),
            node: Arc::from(node),
            card: Arc::default(),
        };
        let change = match verb {
            Verb::Allocate => Change::Allocate(placement()),
            Verb::Pipeline => Change::Pipeline(placement()),
            Verb::Evict => Change::Evict(task),
            Verb::Unallocate => Change::Unallocate(task),
            Verb::Unpipeline => Change::Unpipeline(task),
            Verb::Unevict => Change::Unevict(task),
        };
        let outcome = self.cycle.apply(&[change]).map_err(panic)?;
        self.note(outcome)
    }

    fn place_without_rollback(&mut self, verb: Verb, task: &str, node: &str) -> Result<(), Fault> {
        let placement = Placement {
            task: Arc::from(task),
            node: Arc::from(node),
            card: Arc::default(),
        };
        let status = if verb == Verb::Allocate {
            TaskStatus::Allocated
        } else {
            TaskStatus::Pipelined
        };
        let outcome = self
            .cycle
            .place_without_rollback(&placement, status)
            .map_err(|_| Fault::Refused)?;
        self.note(outcome)
    }

    fn bind(&mut self, task: &str) -> Result<(), Fault> {
        self.cycle.bind(task);
        Ok(())
    }

    fn node_of(&mut self, task: &str) -> String {
        let stored = self.cycle.view().tasks().get(task);
        stored.map_or_else(String::new, |stored| stored.record.node.to_string())
    }

    fn allocated(&mut self, job: &str) -> Vec<String> {
        let tasks = self.cycle.view().tasks().iter();
        let own = tasks.filter(|(_, task)| *task.record.job == *job && task.record.status == TaskStatus::Allocated);
        own.map(|(name, _)| name.to_string()).collect()
    }

    fn holds(&mut self, node: &str, task: &str) -> Option<bool> {
        Some(self.cycle.node_tasks(node).iter().any(|(name, _)| **name == *task))
    }
}

fn at_engine(bench: &mut Bench, differences: &mut Differences, case: &Value) {
    let view = engine::view(&cluster::cluster(&case["cluster"]));
    let document = cluster::document(&case["policy"]["tiers"].to_string());
    let compiled = match policy::compile(&document, &CompileOptions::default()) {
        Ok(compiled) => compiled,
        Err(report) => return differences.differ("policy", "taken", &report.findings),
    };
    let derived = compiled.policy.derive(&view);
    let cycle = Cycle::new(view, Compatibility::Upstream, derived);
    compare_state(differences, "initial", &case["expect"]["initial"], &cycle);
    let mut scheduler = Scheduler::new(
        case,
        Engine {
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
        let fault = scheduler.run(op).err();
        let kind = match &fault {
            None => None,
            Some(Fault::Refused) => Some("refused"),
            Some(Fault::Panic(_)) => Some("panic"),
            Some(Fault::NotAskable(why)) => {
                bench.not_asked(format!("rest of a sequence at the engine: {why}"));
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

/// The recorded events, tasks by key.
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

/// A recorded vector or one of the View's; zeros are left out, as a missing key is 0.
pub(crate) type Amounts = BTreeMap<String, f64>;

/// A recorded vector without its zeros.
pub(crate) fn recorded_amounts(vector: &Value) -> Amounts {
    let entries = vector.as_object().into_iter().flatten();
    let entries = entries.map(|(name, amount)| (name.clone(), amount.as_f64().unwrap_or(f64::NAN)));
    entries.filter(|(_, amount)| *amount != 0.0).collect()
}

/// A vector of one node, as decisions read it.
fn node_vector(view: &View, node: &str, name: &str) -> Amounts {
    let Some(slot) = view.slot_of(node) else {
        return Amounts::new();
    };
    let (chunk, offset) = (view.chunks().get(slot as usize / 256).unwrap(), slot as usize % 256);
    let value = |id| match name {
        "idle" => chunk.idle(id).values[offset],
        "futureIdle" => chunk.future_idle(id).values[offset],
        "used" => chunk.column(id, Vector::Used).values[offset],
        "releasing" => chunk.column(id, Vector::Releasing).values[offset],
        _ => chunk.column(id, Vector::Pipelined).values[offset],
    };
    let all = chunk
        .resources()
        .map(|id| (view.resources().name(id).to_owned(), value(id)));
    all.filter(|(_, amount)| *amount != 0.0).collect()
}

fn compare_state(differences: &mut Differences, what: &str, expected: &Value, cycle: &Cycle) {
    let view = cycle.view();
    for (node, vectors) in expected["nodes"].as_object().into_iter().flatten() {
        for name in ["idle", "used", "releasing", "pipelined", "futureIdle"] {
            let got = node_vector(view, node, name);
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
    for (reference, standing) in expected["tasks"].as_object().into_iter().flatten() {
        let task = view.tasks().get(&task_key(reference)).map(|stored| &stored.record);
        let got = task.map(|task| (format!("{:?}", task.status), task.node.to_string()));
        let recorded = (cluster::text(&standing[0]), cluster::text(&standing[1]));
        differences.same(&format!("{what} {reference}"), &Some(recorded), &got);
    }
    for (job, account) in expected["jobs"].as_object().into_iter().flatten() {
        let totals = view.job_allocated(job).into_iter().flat_map(Totals::iter);
        let got: Amounts = totals
            .map(|(id, amount)| (view.resources().name(id).to_owned(), amount as f64))
            .filter(|(_, amount)| *amount != 0.0)
            .collect();
        differences.same(
            &format!("{what} {job} allocated"),
            &recorded_amounts(&account["allocated"]),
            &got,
        );
        debug_assert!(view.source_of(Kind::Job, job).is_some());
    }
    compare_shares(differences, what, expected, cycle);
}

/// What drf has counted.
fn compare_shares(differences: &mut Differences, what: &str, expected: &Value, cycle: &Cycle) {
    let Some(shares) = cycle.derived().get::<Drf>(drf::NAME) else {
        return differences.differ(what, "shares", "none");
    };
    let named = |amounts: Vec<(ResourceId, i128)>| -> Amounts {
        let resources = cycle.view().resources();
        let named = amounts
            .into_iter()
            .map(|(id, amount)| (resources.name(id).to_owned(), amount as f64));
        named.collect()
    };
    for (job, account) in expected["jobs"].as_object().into_iter().flatten() {
        let Some(own) = shares.job(job) else {
            differences.differ(what, job, "no account");
            continue;
        };
        let counted = recorded_amounts(&account["drfAllocated"]);
        differences.same(&format!("{what} {job} counted"), &counted, &named(own.held));
        differences.same_float(&format!("{what} {job} share"), number(&account["share"]), own.share);
    }
    if expected["totalAllocated"].is_object() {
        let counted = recorded_amounts(&expected["totalAllocated"]);
        differences.same(&format!("{what} counted"), &counted, &named(shares.allocated()));
        let (expected, got) = (number(&expected["rootShare"]), shares.root_share().unwrap_or(f64::NAN));
        if (expected - got).abs() > 1e-12 * expected.abs() {
            differences.differ(&format!("{what} share of the root"), &expected, &got);
        }
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}
