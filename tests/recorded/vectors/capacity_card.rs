//! Families capacity-card: every case by the plugin's public functions, and over gRPC the part that a user could
//! request.
//!
//! Over gRPC a case is a session of its own: enqueue is Admit with mode TENTATIVE, allocatable is Admit with mode
//! CHECK, allocate, pipeline and deallocate are changes sent with a listing, node order is Score, and the dumps are
//! listings.

use std::collections::BTreeMap;

use pb::session_change::Change;
use pumice::server::pb;
use pumice_engine::model::ResourceId;
use pumice_engine::model::resource_name::format_amount;
use serde_json::{Value, json};

use super::cluster::{self, members, resources, text};
use super::{VectorDifferences, VectorHarness, VectorVerdict, config};
use crate::capacity_card::case;
use crate::support::records;
use crate::support::wire::BlockingClients;

const PLUGIN: &str = "capacity-card";

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let mut differences = VectorDifferences::default();
    if let Err(problem) = case::run(case) {
        differences.differ("public functions", "as recorded", &problem);
    }
    let any = case["expect"]["any_of"].as_array();
    let expected: Vec<&Value> = any.map_or_else(|| vec![&case["expect"]], |any| any.iter().collect());
    let mut problems = Vec::new();
    for expect in expected {
        match over_grpc(bench, case, expect) {
            Ok(()) => {
                problems.clear();
                break;
            }
            Err(problem) => problems.push(problem),
        }
    }
    if let Some(problem) = problems.first() {
        differences.differ("gRPC", "as recorded", problem);
    }
    differences.verdict()
}

fn texts(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(name, value)| (name.clone(), text(value))).collect()
}

fn number(value: &Value) -> i32 {
    i32::try_from(value.as_i64().unwrap_or(0)).unwrap()
}

/// Enum value on the wire for a recorded word.
fn word(kind: &str, value: &Value) -> String {
    format!("{kind}_{}", value.as_str().unwrap_or_default().to_uppercase())
}

fn queue(queue: &Value) -> pb::Queue {
    let state = pb::QueueState::from_str_name(&word("QUEUE_STATE", &queue["state"]));
    pb::Queue {
        name: text(&queue["name"]),
        annotations: texts(&queue["annotations"]),
        priority: number(&queue["priority"]),
        state: state.unwrap_or_default().into(),
        parent: queue["parent"].as_str().unwrap_or_default().to_owned(),
        capability: resources(&queue["capability"]),
        deserved: resources(&queue["deserved"]),
        guarantee: resources(&queue["guarantee"]),
        ..pb::Queue::default()
    }
}

fn job(job: &Value) -> pb::Job {
    let phase = pb::JobPhase::from_str_name(&word("JOB_PHASE", &job["phase"]));
    pb::Job {
        name: text(&job["uid"]),
        queue: text(&job["queue"]),
        annotations: texts(&job["annotations"]),
        phase: phase.unwrap_or_default().into(),
        min_member: number(&job["min_member"]),
        min_resources: resources(&job["min_resources"]),
        ..pb::Job::default()
    }
}

fn records(case: &Value) -> pb::Cluster {
    let cluster_state = case::cluster_state(&case["cluster"]);
    let list = |amounts: &pumice_engine::model::ResourceAmounts| pb::ResourceList {
        items: amounts
            .iter()
            .filter(|(id, _)| *id != ResourceId::PODS)
            .map(|(id, amount)| {
                let name = cluster_state.resources().name(id);
                (name.to_owned(), format_amount(name, amount.into()))
            })
            .collect(),
    };
    let cluster = &case["cluster"];
    pb::Cluster {
        namespaces: Vec::new(),
        nodes: members(&cluster["nodes"])
            .iter()
            .map(|node| pb::Node {
                name: text(&node["name"]),
                labels: texts(&node["labels"]),
                allocatable: resources(&node["allocatable"]),
                ..pb::Node::default()
            })
            .collect(),
        queues: members(&cluster["queues"]).iter().map(queue).collect(),
        jobs: members(&cluster["jobs"]).iter().map(job).collect(),
        tasks: members(&cluster["jobs"])
            .iter()
            .flat_map(|job| members(&job["tasks"]).iter().map(move |task| (job, task)))
            .map(|(job, task)| {
                let name = format!("{}/{}", text(&job["uid"]), text(&task["name"]));
                let record = &cluster_state.tasks().get(&name).unwrap().record;
                pb::Task {
                    name,
                    job: text(&job["uid"]),
                    status: cluster::status(task["status"].as_str().unwrap()).into(),
                    node: record.node.to_string(),
                    gated: record.gated,
                    annotations: texts(&task["annotations"]),
                    requests: Some(list(&record.requests)),
                    limits: record.limits.as_ref().map(|limits| list(limits)),
                    ..pb::Task::default()
                }
            })
            .collect(),
        ..pb::Cluster::default()
    }
}

/// Session on a case.
struct CardVectorSession<'a> {
    wire: &'a BlockingClients,
    name: String,
    applied: u64,
    case: &'a Value,
}

/// Result of a step, or the reason why the rest of the case is not run over gRPC.
enum StepResult {
    Json(Value),
    Panic,
    Skipped(String),
}

fn over_grpc(bench: &mut VectorHarness, case: &Value, expect: &Value) -> Result<(), String> {
    let wire = bench.wire().clone();
    let document = cluster::document(case, &cluster::plugin_tiers(PLUGIN, &case["policy"]["arguments"]));
    let open = &expect["open"];
    if let Some(expected) = open.get("config") {
        let effective = config::effective(&wire, &document).map_err(|problem| format!("{problem:?}"))?;
        let own = config::arguments(&effective, PLUGIN);
        let got = json!({"card_unlimited_cpu_memory": own["cardUnlimitedCpuMemory"],
            "node_order_weight": own["nodeOrderWeight"]});
        same("config", expected, &got)?;
    }
    let opened = wire.open_session(pb::OpenSessionRequest {
        against: Some(cluster::inline_ref(records(case), document)),
        ..pb::OpenSessionRequest::default()
    });
    let session = opened.map_err(|status| status.to_string())?.session;
    let mut asked = CardVectorSession {
        wire: &wire,
        name: session.clone(),
        applied: 0,
        case,
    };
    let done = asked.run(bench, expect);
    let closed = wire.close_session(pb::CloseSessionRequest { session });
    closed.map_err(|status| status.to_string())?;
    done
}

impl CardVectorSession<'_> {
    fn run(&mut self, bench: &mut VectorHarness, expect: &Value) -> Result<(), String> {
        self.dumps("open", &expect["open"])?;
        let steps = members(&self.case["request"]["steps"]).iter();
        for (number, (step, expected)) in steps.zip(members(&expect["steps"])).enumerate() {
            let what = format!("step {number} ({})", text(&step["op"]));
            match (expected.get("panic"), self.step(step)?) {
                (_, StepResult::Skipped(why)) => {
                    bench.skip(format!("over gRPC: {why}"));
                    return Ok(());
                }
                (Some(_), StepResult::Panic) => return Ok(()),
                (None, StepResult::Json(got)) => same(&what, expected, &got)?,
                (Some(_), StepResult::Json(got)) => return Err(format!("{what}: a panic was recorded, got {got}")),
                (None, StepResult::Panic) => return Err(format!("{what}: {expected} was recorded, got an error")),
            }
        }
        self.dumps("end", &expect["end"])
    }

    fn session_ref(&self) -> pb::EvaluationRef {
        records::session_ref(&self.name, self.applied, Vec::new())
    }

    fn step(&mut self, step: &Value) -> Result<StepResult, String> {
        match step["op"].as_str().unwrap_or_default() {
            "enqueue" => self.enqueue(&text(&step["job"])),
            "allocatable" => self.allocatable(&text(&step["task"])),
            "allocate" | "pipeline" | "deallocate" => self.change(step),
            "node_order" => self.node_order(&text(&step["task"]), &text(&step["node"])),
            "job_view" => self.job_state(&text(&step["job"])),
            inner => Ok(StepResult::Skipped(format!("{inner} is no question of its own"))),
        }
    }

    fn admit(&self, mode: pb::AdmitMode, subject: pb::admit_subject::Subject) -> Result<pb::AdmitItem, String> {
        let reply = self.wire.admit(pb::AdmitRequest {
            against: Some(self.session_ref()),
            mode: mode.into(),
            items: vec![pb::AdmitSubject {
                subject: Some(subject),
                attempt: 0,
            }],
            plugins: vec![PLUGIN.to_owned()],
            lease: None,
        });
        let mut items = reply
            .map_err(|status| status.to_string())?
            .result
            .unwrap_or_default()
            .items;
        items.pop().ok_or_else(|| "no item".to_owned())
    }

    fn enqueue(&mut self, name: &str) -> Result<StepResult, String> {
        let job = pb::Job {
            name: name.to_owned(),
            ..pb::Job::default()
        };
        let admission = self.admit(pb::AdmitMode::Tentative, pb::admit_subject::Subject::Job(job))?;
        self.applied += 1;
        if admission.problem.is_some() {
            return Ok(StepResult::Panic);
        }
        let job = members(&self.case["cluster"]["jobs"])
            .iter()
            .find(|job| job["uid"] == name)
            .unwrap();
        let account = self.account(&text(&job["queue"]))?;
        Ok(StepResult::Json(json!({
            "permitted": admission.permitted, "vote": admission.votes[0].vote,
            "events": events(&admission, &format!("podgroup:{name}"), ""),
            "queue_inqueue_after": counts(&account.inqueue),
            "enqueue_action_skips_check": job.get("min_resources").is_none_or(Value::is_null),
        })))
    }

    fn allocatable(&mut self, name: &str) -> Result<StepResult, String> {
        let task = pb::Task {
            name: name.to_owned(),
            ..pb::Task::default()
        };
        let admission = self.admit(pb::AdmitMode::Check, pb::admit_subject::Subject::Task(task))?;
        if admission.problem.is_some() {
            return Ok(StepResult::Panic);
        }
        let object = format!("pod:{}", short(name));
        let events = events(&admission, &object, name);
        Ok(StepResult::Json(
            json!({"allocatable": admission.permitted, "events": events}),
        ))
    }

    fn change(&mut self, step: &Value) -> Result<StepResult, String> {
        let name = text(&step["task"]);
        let listed = self.wire.list_tasks(pb::ListTasksRequest {
            against: Some(self.session_ref()),
            names: vec![name.clone()],
            page: None,
        });
        let mut tasks = listed.map_err(|status| status.to_string())?.tasks;
        let task = tasks.pop().and_then(|stored| stored.task).ok_or("no such task")?;
        let nodes = members(&self.case["cluster"]["nodes"]);
        let on = |node: &Value| pb::TaskPlacement {
            task: name.clone(),
            node: text(node),
            card: String::new(),
            devices: Vec::new(),
        };
        let change = match (step["op"].as_str().unwrap_or_default(), task.status()) {
            ("allocate", pb::TaskStatus::Pending) => Change::Allocate(on(&step["node"])),
            ("pipeline", pb::TaskStatus::Pending) if !nodes.is_empty() => Change::Pipeline(on(&nodes[0]["name"])),
            ("deallocate", pb::TaskStatus::Allocated) => Change::Unallocate(name.clone()),
            ("deallocate", pb::TaskStatus::Pipelined) => Change::Unpipeline(name.clone()),
            ("deallocate", pb::TaskStatus::Running | pb::TaskStatus::Bound) => Change::Evict(name.clone()),
            (op, status) => {
                return Ok(StepResult::Skipped(format!(
                    "{op} of a task in {status:?} is no change"
                )));
            }
        };
        let changes = vec![pb::SessionChange { change: Some(change) }];
        let mut evaluation_ref = self.session_ref();
        if let Some(pb::evaluation_ref::Target::Session(step)) = &mut evaluation_ref.target {
            step.changes = changes;
        }
        let listed = self.wire.list_queues(pb::ListQueuesRequest {
            against: Some(evaluation_ref),
            ..pb::ListQueuesRequest::default()
        });
        let Ok(listed) = listed else {
            return Ok(StepResult::Panic);
        };
        self.applied += 1;
        let effects = listed.metadata.unwrap_or_default().effects.unwrap_or_default();
        if !effects.warnings.is_empty() {
            return Ok(StepResult::Skipped("the place is refused".to_owned()));
        }
        let job = name.rsplit_once('/').map_or("", |(job, _)| job);
        let job = members(&self.case["cluster"]["jobs"])
            .iter()
            .find(|known| known["uid"] == job)
            .unwrap();
        let account = self.account(&text(&job["queue"]))?;
        Ok(StepResult::Json(json!({
            "queue_allocated_after": counts(&account.allocated), "queue_share_after": account.share,
        })))
    }

    fn node_order(&mut self, task: &str, node: &str) -> Result<StepResult, String> {
        let reply = self.wire.score(pb::ScoreRequest {
            against: Some(self.session_ref()),
            tasks: vec![pb::Task {
                name: task.to_owned(),
                ..pb::Task::default()
            }],
            plugins: vec![PLUGIN.to_owned()],
            resource_fit: pb::ResourceFit::None.into(),
            with_parts: true,
            ..pb::ScoreRequest::default()
        });
        let items = reply
            .map_err(|status| status.to_string())?
            .result
            .unwrap_or_default()
            .items;
        let item = items.into_iter().next().ok_or("no item")?;
        let names = item.nodes.unwrap_or_default().names;
        let at = names.iter().position(|name| name == node);
        Ok(match at.and_then(|at| item.totals.get(at)) {
            Some(score) => StepResult::Json(json!({"score": score})),
            None => StepResult::Skipped("node order of a node that is not there".to_owned()),
        })
    }

    fn job_state(&mut self, name: &str) -> Result<StepResult, String> {
        let listed = self.wire.list_jobs(pb::ListJobsRequest {
            against: Some(self.session_ref()),
            names: vec![name.to_owned()],
            page: None,
        });
        let jobs = listed.map_err(|status| status.to_string())?.jobs;
        let account = jobs.first().and_then(|job| job.accounts.first()).ok_or("no account")?;
        Ok(StepResult::Json(json!({
            "card_request": counts(&account.request), "allocated": counts(&account.allocated),
            "min_resources": counts(&account.min_resources), "elastic": counts(&account.elastic),
        })))
    }

    fn accounts(&self) -> Result<BTreeMap<String, pb::Account>, String> {
        let listed = self.wire.list_queues(pb::ListQueuesRequest {
            against: Some(self.session_ref()),
            ..pb::ListQueuesRequest::default()
        });
        let queues = listed.map_err(|status| status.to_string())?.queues.into_iter();
        let accounts = queues.filter_map(|status| Some((status.queue?.name, status.accounts.into_iter().next()?)));
        Ok(accounts.collect())
    }

    fn account(&self, queue: &str) -> Result<pb::Account, String> {
        self.accounts()?
            .remove(queue)
            .ok_or_else(|| format!("queue {queue} has no account"))
    }

    fn dumps(&self, when: &str, expect: &Value) -> Result<(), String> {
        if let Some(state) = expect.get("state") {
            let got: BTreeMap<String, Value> = self
                .accounts()?
                .into_iter()
                .map(|(name, account)| {
                    let account = json!({
                        "capability": counts(&account.capability), "deserved": counts(&account.deserved),
                        "guarantee": counts(&account.guarantee),
                        "real_capability": counts(&account.real_capability),
                        "allocated": counts(&account.allocated), "request": counts(&account.request),
                        "inqueue": counts(&account.inqueue), "elastic": counts(&account.elastic),
                        "share": account.share,
                    });
                    (name, account)
                })
                .collect();
            same(&format!("{when}: queues"), &state["queues"], &json!(got))?;
        }
        let Some(discovery) = expect.get("discovery") else {
            return Ok(());
        };
        let listed = self.wire.list_nodes(pb::ListNodesRequest {
            against: Some(self.session_ref()),
            ..pb::ListNodesRequest::default()
        });
        for status in listed.map_err(|status| status.to_string())?.nodes {
            let name = status.node.unwrap_or_default().name;
            let cards: BTreeMap<String, Value> = status
                .cards
                .into_iter()
                .map(|card| (card.card, json!({"count": card.count, "resource": card.resource})))
                .collect();
            let expected = &discovery["nodes"][&name]["cards"];
            let expected = if expected.is_null() { &json!({}) } else { expected };
            same(&format!("{when}: cards of {name}"), expected, &json!(cards))?;
        }
        Ok(())
    }
}

fn same(what: &str, expected: &Value, got: &Value) -> Result<(), String> {
    if case::same(expected, got) {
        return Ok(());
    }
    Err(format!("{what}: expected {expected}, got {got}"))
}

fn short(name: &str) -> String {
    let parts: Vec<&str> = name.split('/').collect();
    format!("{}/{}", parts[0], parts[parts.len() - 1])
}

fn counts(amounts: &[pb::Amount]) -> Value {
    let of = |name: &str| {
        let found = amounts.iter().find(|amount| amount.resource == name);
        found.map_or(0.0, |amount| amount.value)
    };
    let cards = amounts
        .iter()
        .filter(|amount| !["cpu", "memory"].contains(&&*amount.resource));
    let cards: BTreeMap<&str, f64> = cards.map(|amount| (&*amount.resource, amount.value)).collect();
    json!({"cpu_milli": of("cpu"), "memory_bytes": of("memory"), "scalars": cards})
}

/// Reasons as the events that the reference emits; it only logs that a queue is not open.
fn events(admission: &pb::AdmitItem, object: &str, long: &str) -> Value {
    let reasons = admission.reasons.iter().filter(|reason| reason.code != "QueueNotOpen");
    let events: Vec<Value> = reasons
        .map(|reason| {
            let message = reason
                .message
                .replace(&format!("<{long}>"), &format!("<{}>", short(long)));
            json!({"object": object, "type": "Warning", "reason": reason.code, "message": message})
        })
        .collect();
    json!(events)
}
