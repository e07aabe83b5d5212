//! Family of whole sessions under the configuration that Volcano's chart installs: the answers of the session over gRPC, each
//! against the state that the placements before left, and the outcome of a cycle by the engine.

use std::collections::{BTreeMap, BTreeSet};

use pb::session_change::Change;
use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members, text};
use super::job_plugins::{EngineCycle, NOW};
use super::queue_hooks::compare_eviction_order;
use super::statements::task_key;
use super::{VectorDifferences, VectorHarness, VectorVerdict, cycles};
use crate::support::records;
use crate::support::wire::BlockingClients;

/// Parts of a case that [`StockSession::compare`] asks for; any other one is a difference.
const COMPARED_PARTS: [&str; 9] = [
    "queue_order",
    "job_order",
    "overused",
    "job_valid",
    "job_ready",
    "job_pipelined",
    "job_starving",
    "job_enqueueable",
    "allocatable",
];
/// Parts of a case that are compared elsewhere.
const OTHER_PARTS: [&str; 6] = [
    "after",
    "allocate_action",
    "allocate_action_variants",
    "enqueue",
    "evict",
    "placements",
];

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let expect = &case["expect"];
    let outcomes = match members(&expect["allocate_action_variants"]) {
        [] => std::slice::from_ref(&expect["allocate_action"]),
        variants => variants,
    };
    if expect["allocate_action"].is_object() || outcomes.len() > 1 {
        let actions = ["enqueue".to_owned(), "allocate".to_owned()];
        let ended = cycles::compare_outcome(case, &actions, outcomes, "tasks");
        if !matches!(ended, VectorVerdict::Pass) {
            return ended;
        }
    }
    let document = cluster::document(case, &case["policy"]["tiers"].to_string());
    let wire = bench.wire().clone();
    let sent = cycles::session_cluster(case);
    let mut differences = VectorDifferences::default();
    let engine = EngineCycle::new(&sent, &document);
    let opened = wire.open_session(pb::OpenSessionRequest {
        against: Some(cluster::inline_ref(sent, document)),
        ..pb::OpenSessionRequest::default()
    });
    let session = match opened {
        Ok(opened) => opened.session,
        Err(status) => {
            differences.differ("session", "open", &status.to_string());
            return differences.verdict();
        }
    };
    let mut asked = StockSession {
        wire: &wire,
        name: session.clone(),
        applied: 0,
        engine,
        differences,
    };
    asked.run(case);
    let differences = std::mem::take(&mut asked.differences);
    drop(wire.close_session(pb::CloseSessionRequest { session }));
    differences.verdict()
}

/// Session on a case.
struct StockSession<'a> {
    wire: &'a BlockingClients,
    name: String,
    applied: u64,
    /// Cycle of the engine on the same case, as it was opened.
    engine: EngineCycle,
    differences: VectorDifferences,
}

impl StockSession<'_> {
    /// Asks what enqueue would do with jobs, one after the other.
    fn enqueue(&mut self, case: &Value) {
        let jobs: Vec<String> = members(&case["request"]["enqueue"]).iter().map(text).collect();
        let permitted = self.engine.enqueue(&jobs);
        for ((job, permitted), recorded) in jobs.iter().zip(permitted).zip(members(&case["expect"]["enqueue"])) {
            self.differences
                .same(&format!("enqueue {job}"), &recorded.as_bool(), &Some(permitted));
        }
    }

    fn run(&mut self, case: &Value) {
        let expect = &case["expect"];
        self.compare("opening", expect);
        self.enqueue(case);
        let evictions = members(&case["request"]["evict"]).iter();
        for (number, (query, expected)) in evictions.zip(members(&expect["evict"])).enumerate() {
            self.evict(&format!("evict {number}"), query, expected);
        }
        for placement in members(&expect["placements"]) {
            self.placement(placement);
        }
        self.compare("after", &expect["after"]);
    }

    fn against(&self, changes: Vec<Change>) -> pb::EvaluationRef {
        pb::EvaluationRef {
            now: Some(prost_types::Timestamp { seconds: NOW, nanos: 0 }),
            ..records::session_ref(&self.name, self.applied, changes)
        }
    }

    /// Compares the answers of the session at one moment.
    fn compare(&mut self, when: &str, expected: &Value) {
        let ranks = self.job_ranks(&expected["job_order"]);
        for (key, recorded) in expected.as_object().into_iter().flatten() {
            let what = format!("{when} {key}");
            match key.as_str() {
                "queue_order" => self.compare_queue_order(&what, recorded),
                "job_order" => {
                    let got: Vec<&str> = ranks.iter().map(|rank| rank.name.as_str()).collect();
                    self.differences.same(&what, &names(recorded), &got);
                }
                "overused" => self.compare_overused(&what, recorded),
                "job_valid" | "job_ready" | "job_pipelined" | "job_starving" => {
                    self.compare_states(&what, key, recorded);
                }
                "job_enqueueable" => self.compare_enqueueable(&what, recorded),
                "allocatable" => self.compare_allocatable(&what, recorded),
                _ if when == "opening" && OTHER_PARTS.contains(&key.as_str()) => {}
                _ => {
                    assert!(!COMPARED_PARTS.contains(&key.as_str()), "{key} is compared");
                    self.differences.differ(&what, recorded, "not asked");
                }
            }
        }
    }

    fn order(&self, request: pb::OrderRequest) -> pb::OrderResult {
        let reply = self.wire.order(pb::OrderRequest {
            against: Some(self.against(Vec::new())),
            ..request
        });
        reply.unwrap().result.unwrap_or_default()
    }

    /// Ranks of these jobs, in order; without names those of all jobs.
    fn job_ranks(&self, order: &Value) -> Vec<pb::Rank> {
        let names = members(order).iter().map(text).collect();
        let asked = pb::OrderRequest {
            jobs: Some(pb::NameSet { names }),
            ..pb::OrderRequest::default()
        };
        self.order(asked).jobs
    }

    fn compare_queue_order(&mut self, what: &str, recorded: &Value) {
        let order: Vec<String> = members(recorded).iter().map(text).collect();
        if order.is_empty() {
            // No queue has a job. Without names the request would be about all of them.
            return;
        }
        let asked = pb::OrderRequest {
            queues: Some(pb::NameSet { names: order }),
            ..pb::OrderRequest::default()
        };
        let ranks = self.order(asked).queues;
        let got: Vec<&str> = ranks.iter().map(|rank| rank.name.as_str()).collect();
        self.differences.same(what, &names(recorded), &got);
    }

    fn compare_overused(&mut self, what: &str, recorded: &Value) {
        let Some(recorded) = recorded.as_object().filter(|recorded| !recorded.is_empty()) else {
            return;
        };
        let asked = pb::OrderRequest {
            queues: Some(pb::NameSet {
                names: recorded.keys().cloned().collect(),
            }),
            ..pb::OrderRequest::default()
        };
        let ranks = self.order(asked).queues;
        for (queue, recorded) in recorded {
            let rank = ranks.iter().find(|rank| rank.name == *queue).cloned();
            let got = rank
                .filter(|rank| rank.problem.is_none())
                .map(|rank| rank.overused.unwrap_or(false));
            self.differences
                .same(&format!("{what} {queue}"), &recorded.as_bool(), &got);
        }
    }

    fn compare_states(&mut self, what: &str, key: &str, recorded: &Value) {
        let ranks = self.job_ranks(&Value::Null);
        let ranks: BTreeMap<&str, &pb::Rank> = ranks.iter().map(|rank| (rank.name.as_str(), rank)).collect();
        for (job, recorded) in recorded.as_object().into_iter().flatten() {
            // A policy without an opinion on jobs has no state of them: they are ready.
            let state = ranks[job.as_str()].state.clone().unwrap_or(pb::JobState {
                valid: true,
                ready: true,
                pipelined: true,
                ..pb::JobState::default()
            });
            let what = format!("{what} {job}");
            let same = |differences: &mut VectorDifferences, got: bool| {
                differences.same(&what, &recorded.as_bool(), &Some(got));
            };
            match key {
                "job_ready" => same(&mut self.differences, state.ready),
                "job_pipelined" => same(&mut self.differences, state.pipelined),
                "job_starving" => same(&mut self.differences, state.starving),
                _ => {
                    let objection = recorded["reason"].as_str().zip(recorded["message"].as_str());
                    let got = (!state.valid).then_some((state.reason.as_str(), state.message.as_str()));
                    self.differences.same(&what, &objection, &got);
                }
            }
        }
    }

    /// True if the session permits a subject; `None`: a problem.
    fn permits(&self, subject: pb::admit_subject::Subject) -> Option<bool> {
        let reply = self.wire.admit(pb::AdmitRequest {
            against: Some(self.against(Vec::new())),
            mode: pb::AdmitMode::Check.into(),
            items: vec![pb::AdmitSubject {
                subject: Some(subject),
                attempt: 0,
            }],
            ..pb::AdmitRequest::default()
        });
        let item = reply.ok()?.result?.items.into_iter().next()?;
        item.problem.is_none().then_some(item.permitted)
    }

    fn compare_enqueueable(&mut self, what: &str, recorded: &Value) {
        for (job, recorded) in recorded.as_object().into_iter().flatten() {
            let got = self.permits(pb::admit_subject::Subject::Job(pb::Job {
                name: job.clone(),
                ..pb::Job::default()
            }));
            self.differences
                .same(&format!("{what} {job}"), &recorded.as_bool(), &got);
        }
    }

    fn compare_allocatable(&mut self, what: &str, recorded: &Value) {
        for entry in members(recorded) {
            let got = self.permits(pb::admit_subject::Subject::Task(stored(&entry[1])));
            self.differences
                .same(&format!("{what} {entry}"), &entry[2].as_bool(), &got);
        }
    }

    fn evict(&mut self, what: &str, query: &Value, expected: &Value) {
        let kind = match query["hook"].as_str() {
            Some("preemptable") => pb::VictimKind::Preempt,
            Some("reclaimable") => pb::VictimKind::Reclaim,
            Some("victimsQueue") => {
                let engine = (&self.engine.cycle, &*self.engine.policy);
                return compare_eviction_order(&mut self.differences, engine, (what, query), expected);
            }
            other => panic!("eviction {other:?}"),
        };
        let candidates = members(&query["candidates"]);
        let reply = self.wire.select_victims(pb::SelectVictimsRequest {
            against: Some(self.against(Vec::new())),
            kind: kind.into(),
            groups: vec![pb::VictimGroup {
                preemptor: Some(stored(&query["preemptor"])),
                candidates: candidates.iter().map(stored).collect(),
                ..pb::VictimGroup::default()
            }],
            ..pb::SelectVictimsRequest::default()
        });
        let item = reply.unwrap().result.unwrap_or_default().items.remove(0);
        if expected == "panic" {
            let reason = item.problem.map(|problem| problem.reason);
            return self
                .differences
                .same(what, &Some("REFERENCE_PANICS"), &reason.as_deref());
        }
        let victims = item
            .victims
            .iter()
            .map(|position| text(&candidates[*position as usize]));
        let recorded: Vec<String> = members(expected).iter().map(text).collect();
        self.differences.same(what, &recorded, &victims.collect());
    }

    /// Compares the verdicts and scores of one task, and places it where the reference placed it.
    fn placement(&mut self, expected: &Value) {
        let task = text(&expected["task"]);
        if let Some(pre) = expected["pre"].as_str() {
            let refused = self.filtered(&task, pb::ResourceFit::None).refused;
            let says = |statuses: &Vec<(String, String)>| statuses.iter().any(|(_, reason)| reason == pre);
            let all = !refused.is_empty() && refused.values().all(says);
            return self.differences.same(&format!("{task} pre"), &true, &all);
        }
        let future = self.filtered(&task, pb::ResourceFit::FutureIdle);
        let idle = self.filtered(&task, pb::ResourceFit::Idle);
        let mut group = BTreeSet::new();
        for node in members(&expected["nodes"]) {
            let name = text(&node["node"]);
            let what = format!("{task} on {name}");
            let got = match (idle.fit.contains(&name), future.fit.contains(&name)) {
                (true, true) => "idle",
                (false, true) => "futureIdle",
                _ if future.short.contains_key(&name) => "insufficient",
                _ => "refused",
            };
            self.differences.same(&what, &node["result"].as_str(), &Some(got));
            if let Some(resource) = future.short.get(&name) {
                let known = names(&node["resources"]).contains(&resource.as_str());
                self.differences
                    .same(&format!("{what}: short of {resource}"), &true, &known);
            }
            if got == "refused" {
                let statuses = members(&node["statuses"]).iter();
                let mut statuses: Vec<_> = statuses.map(|status| (text(&status[0]), text(&status[1]))).collect();
                statuses.sort();
                let mut refused = future.refused.get(&name).cloned().unwrap_or_default();
                refused.sort();
                self.differences.same(&what, &statuses, &refused);
            }
            if node["result"] == expected["group"] {
                group.insert(name);
            }
        }
        self.scores(&task, expected, &group);
    }

    fn scores(&mut self, task: &str, expected: &Value, group: &BTreeSet<String>) {
        let Some(recorded) = expected["scores"].as_object() else {
            return;
        };
        let reply = self.wire.score(pb::ScoreRequest {
            against: Some(self.against(Vec::new())),
            tasks: vec![stored(&expected["task"])],
            candidates: Some(pb::NodeSet {
                names: group.iter().cloned().collect(),
                ..pb::NodeSet::default()
            }),
            resource_fit: pb::ResourceFit::None.into(),
            ..pb::ScoreRequest::default()
        });
        let item = reply.unwrap().result.unwrap_or_default().items.remove(0);
        let nodes = item.nodes.unwrap_or_default().names;
        let scores: BTreeMap<&String, f64> = nodes.iter().zip(item.totals.iter().copied()).collect();
        self.differences
            .same(&format!("{task} scored"), &recorded.len(), &scores.len());
        for (node, score) in recorded {
            let (score, got) = (score.as_f64().unwrap(), scores.get(node).copied().unwrap_or(f64::NAN));
            if !super::queue_plugins::is_near(score, got) {
                self.differences
                    .differ(&format!("{task} score of {node}"), &score, &got);
            }
        }
        let best = scores.values().copied().fold(f64::NEG_INFINITY, f64::max);
        let best = scores.iter().filter(|(_, score)| **score == best);
        let best: Vec<&str> = best.map(|(node, _)| node.as_str()).collect();
        let mut wanted = names(&expected["best"]);
        wanted.sort_unstable();
        self.differences.same(&format!("{task} best"), &wanted, &best);
        let Some(node) = wanted.first() else { return };
        let placement = pb::TaskPlacement {
            task: task_key(task),
            node: (*node).to_owned(),
            card: String::new(),
            devices: Vec::new(),
        };
        let idle = expected["group"] == "idle";
        let change = if idle {
            Change::Allocate(placement)
        } else {
            Change::Pipeline(placement)
        };
        let refused = self.apply(change);
        self.differences
            .same(&format!("{task} placed"), &expected["placed"].as_str(), &refused);
    }

    /// Makes a change: how the reference fails at it.
    fn apply(&mut self, change: Change) -> Option<&'static str> {
        let listed = self.wire.list_queues(pb::ListQueuesRequest {
            against: Some(self.against(vec![change])),
            ..pb::ListQueuesRequest::default()
        });
        let Ok(listed) = listed else { return Some("panic") };
        self.applied += 1;
        let effects = listed.metadata.unwrap_or_default().effects.unwrap_or_default();
        (!effects.warnings.is_empty()).then_some("refused")
    }

    fn filtered(&self, task: &str, fit: pb::ResourceFit) -> TaskFilterRows {
        let reply = self.wire.filter(pb::FilterRequest {
            against: Some(self.against(Vec::new())),
            tasks: vec![stored(&Value::from(task))],
            resource_fit: fit.into(),
            ..pb::FilterRequest::default()
        });
        let item = reply.unwrap().result.unwrap_or_default().items.remove(0);
        let mut filtered = TaskFilterRows {
            fit: item.fit.unwrap_or_default().names.into_iter().collect(),
            ..TaskFilterRows::default()
        };
        for rejection in item.rejections {
            let reason = rejection.reason.unwrap_or_default();
            for node in rejection.nodes.unwrap_or_default().names {
                if reason.plugin == "resource-fit" {
                    filtered.short.insert(node, reason.resource.clone());
                    continue;
                }
                let code = if reason.resolution() == pb::Resolution::Unschedulable {
                    "Unschedulable"
                } else {
                    "UnschedulableAndUnresolvable"
                };
                let status = (code.to_owned(), reason.message.clone());
                filtered.refused.entry(node).or_default().push(status);
            }
        }
        filtered
    }
}

/// Nodes that Filter judged for one task.
#[derive(Default)]
struct TaskFilterRows {
    fit: BTreeSet<String>,
    /// Nodes that lack amounts, each with the resource that is named.
    short: BTreeMap<String, String>,
    /// Codes and reasons of the other rejected nodes.
    refused: BTreeMap<String, Vec<(String, String)>>,
}

fn names(list: &Value) -> Vec<&str> {
    members(list).iter().filter_map(Value::as_str).collect()
}

pub(super) fn stored(reference: &Value) -> pb::Task {
    pb::Task {
        name: task_key(&text(reference)),
        ..pb::Task::default()
    }
}
