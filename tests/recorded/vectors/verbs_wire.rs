//! Family verbs over gRPC: operations that a client-side list can translate, one change per call, sent with a listing
//! and compared by listings. The bind of a task has no change, so Binding is read as Allocated.

use std::collections::{BTreeMap, BTreeSet};

use pb::session_change::Change;
use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members};
use super::statements::{StatementError, StatementReplay, StatementTarget, StatementVerb, task_key};
use super::verbs::{RecordedAmounts, recorded_amounts};
use super::{VectorDifferences, VectorHarness};
use crate::support::wire::BlockingClients;

/// Judges the steps of one case.
pub(crate) fn check(bench: &mut VectorHarness, differences: &mut VectorDifferences, case: &Value) {
    let wire = bench.wire().clone();
    let document = cluster::document(case, &case["policy"]["tiers"].to_string());
    let opened = wire.open_session(pb::OpenSessionRequest {
        against: Some(cluster::inline_ref(cluster::cluster(&case["cluster"]), document)),
        ..pb::OpenSessionRequest::default()
    });
    let session = match opened {
        Ok(opened) => opened.session,
        Err(status) => return differences.differ("gRPC: session", "opened", &status.to_string()),
    };
    let target = SessionTarget {
        wire: wire.clone(),
        name: session.clone(),
        applied: 0,
        bound: BTreeSet::new(),
    };
    let mut scheduler = StatementReplay::new(case, target);
    compare_state(
        differences,
        "gRPC: initial",
        &case["expect"]["initial"],
        &scheduler.target,
    );
    for (number, op) in members(&case["request"]["ops"]).iter().enumerate() {
        let Some(expected) = case["expect"]["steps"].get(number) else {
            break;
        };
        let what = format!("gRPC: step {number} ({})", op["op"].as_str().unwrap_or_default());
        let problem = scheduler.run(op).err();
        let kind = match &problem {
            None => None,
            Some(StatementError::Rejected) => Some("refused"),
            Some(StatementError::Panic(_)) => Some("panic"),
            Some(StatementError::Unsupported(why)) => {
                bench.skip(format!("rest of a sequence over gRPC: {why}"));
                break;
            }
        };
        differences.same(&format!("{what} error"), &expected["error"]["kind"].as_str(), &kind);
        if kind == Some("panic") {
            break;
        }
        compare_state(differences, &what, expected, &scheduler.target);
    }
    if let Err(status) = wire.close_session(pb::CloseSessionRequest { session }) {
        differences.differ("gRPC: session", "closed", &status.to_string());
    }
}

/// Session of the server.
struct SessionTarget {
    wire: BlockingClients,
    name: String,
    applied: u64,
    /// Tasks whose bind was sent.
    bound: BTreeSet<String>,
}

impl SessionTarget {
    fn session_ref(&self, changes: Vec<pb::SessionChange>) -> pb::EvaluationRef {
        let step = pb::SessionRef {
            id: self.name.clone(),
            after: self.applied,
            changes,
        };
        pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Session(step)),
            ..pb::EvaluationRef::default()
        }
    }

    fn nodes(&self) -> Vec<pb::NodeStatus> {
        let query = pb::ListNodesRequest {
            against: Some(self.session_ref(Vec::new())),
            ..pb::ListNodesRequest::default()
        };
        self.wire.list_nodes(query).unwrap().nodes
    }

    fn tasks(&self, names: &[&str]) -> Vec<pb::Task> {
        let query = pb::ListTasksRequest {
            against: Some(self.session_ref(Vec::new())),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..pb::ListTasksRequest::default()
        };
        let stored = self.wire.list_tasks(query).unwrap().tasks;
        stored.into_iter().filter_map(|stored| stored.task).collect()
    }

    fn jobs(&self) -> Vec<pb::JobStatus> {
        let query = pb::ListJobsRequest {
            against: Some(self.session_ref(Vec::new())),
            ..pb::ListJobsRequest::default()
        };
        self.wire.list_jobs(query).unwrap().jobs
    }
}

impl StatementTarget for SessionTarget {
    fn change(&mut self, verb: StatementVerb, task: &str, node: &str) -> Result<(), StatementError> {
        let placed = pb::TaskPlacement {
            task: task.to_owned(),
            node: node.to_owned(),
            card: String::new(),
            devices: Vec::new(),
        };
        let task = task.to_owned();
        if matches!(
            verb,
            StatementVerb::Allocate | StatementVerb::Pipeline | StatementVerb::Unallocate | StatementVerb::Unpipeline
        ) {
            self.bound.remove(&task);
        }
        let change = match verb {
            StatementVerb::Allocate => Change::Allocate(placed),
            StatementVerb::Pipeline => Change::Pipeline(placed),
            StatementVerb::Evict => Change::Evict(task),
            StatementVerb::Unallocate => Change::Unallocate(task),
            StatementVerb::Unpipeline => Change::Unpipeline(task),
            StatementVerb::Unevict => Change::Unevict(task),
        };
        let query = pb::ListNodesRequest {
            against: Some(self.session_ref(vec![pb::SessionChange { change: Some(change) }])),
            ..pb::ListNodesRequest::default()
        };
        let reply = self
            .wire
            .list_nodes(query)
            .map_err(|status| StatementError::Panic(status.to_string()))?;
        let effects = reply.metadata.unwrap_or_default().effects.unwrap_or_default();
        self.applied += 1;
        assert_eq!(effects.applied_through, self.applied, "the number of the last change");
        if effects.warnings.is_empty() {
            Ok(())
        } else {
            Err(StatementError::Rejected)
        }
    }

    fn place_without_rollback(&mut self, verb: StatementVerb, task: &str, node: &str) -> Result<(), StatementError> {
        match self.change(verb, task, node) {
            Err(StatementError::Rejected) => Err(StatementError::Unsupported(
                "a refused placement that is not rolled back".to_owned(),
            )),
            done => done,
        }
    }

    fn bind(&mut self, task: &str) -> Result<(), StatementError> {
        let status = self.tasks(&[task]).first().map(pb::Task::status);
        if !matches!(status, Some(pb::TaskStatus::Allocated | pb::TaskStatus::Binding)) {
            return Err(StatementError::Unsupported(
                "bind of a task that is no longer Allocated".to_owned(),
            ));
        }
        self.bound.insert(task.to_owned());
        Ok(())
    }

    fn node_of(&mut self, task: &str) -> String {
        self.tasks(&[task]).pop().map_or_else(String::new, |task| task.node)
    }

    fn allocated(&mut self, job: &str) -> Vec<String> {
        let tasks = self.tasks(&[]).into_iter();
        let own = tasks.filter(|task| task.job == job && task.status() == pb::TaskStatus::Allocated);
        own.map(|task| task.name)
            .filter(|name| !self.bound.contains(name))
            .collect()
    }

    fn holds(&mut self, _: &str, _: &str) -> Option<bool> {
        None
    }
}

/// Amounts of a result by name, without zeros.
fn amounts(amounts: &[pb::Amount]) -> RecordedAmounts {
    let amounts = amounts.iter().filter(|amount| amount.value != 0.0);
    amounts.map(|amount| (amount.resource.clone(), amount.value)).collect()
}

/// Status and node, with Binding read as Allocated.
fn status_on_node(status: pb::TaskStatus, node: String) -> (pb::TaskStatus, String) {
    let status = if status == pb::TaskStatus::Binding {
        pb::TaskStatus::Allocated
    } else {
        status
    };
    (status, node)
}

fn compare_state(differences: &mut VectorDifferences, what: &str, expected: &Value, session: &SessionTarget) {
    let nodes = session.nodes();
    let nodes: BTreeMap<&str, &pb::NodeStatus> = nodes
        .iter()
        .map(|status| (status.node.as_ref().map_or("", |node| &*node.name), status))
        .collect();
    for (name, vectors) in expected["nodes"].as_object().into_iter().flatten() {
        let Some(node) = nodes.get(&**name) else {
            differences.differ(&format!("{what} node"), name, "not listed");
            continue;
        };
        for (vector, got) in [
            ("used", &node.used),
            ("releasing", &node.releasing),
            ("pipelined", &node.pipelined),
        ] {
            let expected = recorded_amounts(&vectors[vector]);
            differences.same(&format!("{what} {name} {vector}"), &expected, &amounts(got));
        }
    }
    let tasks = session.tasks(&[]).into_iter();
    let tasks: BTreeMap<String, _> = tasks
        .map(|task| (task.name.clone(), status_on_node(task.status(), task.node)))
        .collect();
    for (reference, recorded) in expected["tasks"].as_object().into_iter().flatten() {
        let status = cluster::status(recorded[0].as_str().unwrap_or_default());
        let recorded = status_on_node(status, cluster::text(&recorded[1]));
        differences.same(
            &format!("{what} {reference}"),
            &Some(&recorded),
            &tasks.get(&task_key(reference)),
        );
    }
    let jobs = session.jobs();
    for (name, account) in expected["jobs"].as_object().into_iter().flatten() {
        let job = jobs
            .iter()
            .find(|job| job.job.as_ref().is_some_and(|job| job.name == *name));
        let expected = recorded_amounts(&account["allocated"]);
        let got = job.map(|job| amounts(&job.allocated));
        differences.same(&format!("{what} {name} allocated"), &Some(expected), &got);
    }
}
