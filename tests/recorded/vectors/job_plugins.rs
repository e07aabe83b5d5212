//! Families of Volcano's plugins that judge jobs and tasks (priority, conformance, gang, overcommit, sla): orders, states,
//! votes and victims over gRPC; the sums of overcommit, which no call shows, in the engine.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use pb::session_change::Change;
use pumice::server::pb;
use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::decide::{AdmitQuery, AdmitSubject, admit, reduce_order};
use pumice_engine::model::{ResourceTable, ResourceVector};
use pumice_engine::plugins::overcommit::OvercommitState;
use pumice_engine::policy::{self, CompileOptions, Policy};
use serde_json::Value;

use super::cluster::{self, members, text};
use super::queue_hooks::compare_eviction_order;
use super::statements::task_key;
use super::{VectorDifferences, VectorHarness, VectorVerdict, any_variant};
use crate::support::wire::BlockingClients;
use crate::support::{engine, records};

/// Day of the recordings, in seconds since 1970.
pub(super) const NOW: i64 = 1_795_305_600;
const TASK_PRIORITY: &str = "volcano.sh/task-priority";
/// Annotation of a job, which its label stands for.
const PREEMPTABLE: &str = "volcano.sh/preemptable";

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    any_variant(&case["expect"], |expect| check_against(bench, case, expect))
}

fn check_against(bench: &VectorHarness, case: &Value, expect: &Value) -> VectorVerdict {
    let document = cluster::document(case, &case["policy"]["tiers"].to_string());
    let wire = bench.wire().clone();
    let sent = converted_cluster(&case["cluster"]);
    let opened = wire.open_session(pb::OpenSessionRequest {
        against: Some(cluster::inline_ref(sent.clone(), document.clone())),
        ..pb::OpenSessionRequest::default()
    });
    let session = match opened {
        Ok(opened) => opened.session,
        Err(status) => {
            let mut differences = VectorDifferences::default();
            differences.differ("session", "open", &status.to_string());
            return differences.verdict();
        }
    };
    let mut asked = JobSession {
        wire: &wire,
        plugin: text(&case["policy"]["plugin"]),
        name: session.clone(),
        applied: 0,
        case,
        expect,
        engine: EngineCycle::new(&sent, &document),
        differences: VectorDifferences::default(),
    };
    asked.run();
    let differences = std::mem::take(&mut asked.differences);
    drop(wire.close_session(pb::CloseSessionRequest { session }));
    differences.verdict()
}

/// Cluster of a case, with the fields of jobs and tasks that these plugins read, as a sender derives them.
pub(super) fn converted_cluster(recorded: &Value) -> pb::Cluster {
    let mut sent = cluster::cluster(recorded);
    let jobs = members(&recorded["jobs"]);
    let at = |value: &Value| {
        let seconds = value["creationTimestamp"].as_i64().unwrap_or(0);
        Some(prost_types::Timestamp { seconds, nanos: 0 })
    };
    for (job, recorded) in sent.jobs.iter_mut().zip(jobs) {
        let roles = recorded["minTaskMember"].as_object().into_iter().flatten();
        job.min_task_member = roles
            .map(|(role, least)| (role.clone(), number(least).unwrap_or(0)))
            .collect();
        job.sub_group_policies = members(&recorded["subGroupPolicy"])
            .iter()
            .map(sub_group_policy)
            .collect();
        job.annotations = cluster::texts(&recorded["annotations"]);
        if let Some(label) = recorded["labels"][PREEMPTABLE].as_str() {
            let label = label.to_owned();
            job.annotations.entry(PREEMPTABLE.to_owned()).or_insert(label);
        }
        job.creation_time = at(recorded);
    }
    let recorded = jobs
        .iter()
        .flat_map(|job| members(&job["tasks"]).iter().map(move |task| (job, task)));
    for (task, (job, recorded)) in sent.tasks.iter_mut().zip(recorded) {
        let annotated = recorded["annotations"][TASK_PRIORITY]
            .as_str()
            .and_then(|text| text.parse().ok());
        task.priority = annotated.or_else(|| number(&recorded["priority"])).unwrap_or(1);
        task.role = recorded["role"].as_str().unwrap_or_default().to_owned();
        task.priority_class_name = recorded["priorityClassName"].as_str().unwrap_or_default().to_owned();
        task.creation_time = at(recorded);
        task.sub_group = sub_group(&job["subGroupPolicy"], &recorded["labels"]);
    }
    sent
}

fn number(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|number| i32::try_from(number).ok())
}

fn sub_group_policy(policy: &Value) -> pb::SubGroupPolicy {
    pb::SubGroupPolicy {
        name: text(&policy["name"]),
        size: number(&policy["subGroupSize"]),
        min_groups: number(&policy["minSubGroups"]),
        ..pb::SubGroupPolicy::default()
    }
}

/// Group of a task by the labels that the first matching policy names; recorded policies have no selectors.
fn sub_group(policies: &Value, labels: &Value) -> String {
    let mut groups = members(policies).iter().filter_map(|policy| {
        let values: Option<Vec<&str>> = members(&policy["matchLabelKeys"])
            .iter()
            .map(|key| labels[key.as_str()?].as_str())
            .collect();
        let values = values.filter(|values| !values.is_empty())?;
        Some(format!("{}/{}", text(&policy["name"]), values.join("-")))
    });
    groups.next().unwrap_or_default()
}

/// Session on a case.
struct JobSession<'a> {
    wire: &'a BlockingClients,
    plugin: String,
    name: String,
    applied: u64,
    case: &'a Value,
    expect: &'a Value,
    engine: EngineCycle,
    differences: VectorDifferences,
}

impl JobSession<'_> {
    fn run(&mut self) {
        let expect = self.expect;
        self.compare("initial", &expect["initial"]);
        let evictions = members(&self.case["request"]["evict"]).iter();
        for (number, (query, expected)) in evictions.zip(members(&expect["evict"])).enumerate() {
            self.evict(&format!("evict {number}"), query, expected);
        }
        let ops = members(&self.case["request"]["ops"]).iter();
        for (number, (op, expected)) in ops.zip(members(&expect["steps"])).enumerate() {
            let what = format!("step {number} ({})", text(&op["op"]));
            if !self.step(&what, op, expected) {
                return;
            }
        }
        if expect["final"].is_object() {
            self.compare("final", &expect["final"]);
        }
    }

    fn against(&self, changes: Vec<Change>) -> pb::EvaluationRef {
        pb::EvaluationRef {
            now: Some(prost_types::Timestamp { seconds: NOW, nanos: 0 }),
            ..records::session_ref(&self.name, self.applied, changes)
        }
    }

    /// Compares all answers at one moment; a key that is not known here is a difference.
    fn compare(&mut self, when: &str, expected: &Value) {
        for (key, recorded) in expected.as_object().into_iter().flatten() {
            let what = format!("{when} {key}");
            match key.as_str() {
                "job_compare" => self.compare_jobs(&what, members(recorded)),
                "job_order" => self.compare_job_order(&what, members(recorded)),
                "task_compare" => self.compare_tasks(&what, members(recorded)),
                "job_valid" | "job_ready" | "job_pipelined" | "job_starving" => {
                    self.compare_states(&what, key, recorded);
                }
                "job_enqueueable" => self.compare_votes(&what, recorded),
                "overcommit" => self.engine.compare(&mut self.differences, &what, recorded),
                _ => self.differences.differ(&what, recorded, "not asked"),
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

    /// Ranks of all jobs by the plugin alone.
    fn ranked_jobs(&self) -> BTreeMap<String, pb::Rank> {
        let result = self.order(pb::OrderRequest {
            jobs: Some(pb::NameSet::default()),
            plugins: vec![self.plugin.clone()],
            ..pb::OrderRequest::default()
        });
        result.jobs.into_iter().map(|rank| (rank.name.clone(), rank)).collect()
    }

    fn compare_jobs(&mut self, what: &str, rows: &[Value]) {
        let ranks = self.ranked_jobs();
        for row in rows {
            let got = compare_ranks(&ranks[&text(&row[0])], &ranks[&text(&row[1])]);
            self.differences
                .same(&format!("{what} {row}"), &row[2].as_i64(), &Some(got));
        }
    }

    fn compare_job_order(&mut self, what: &str, order: &[Value]) {
        let order: Vec<String> = order.iter().map(text).collect();
        let result = self.order(pb::OrderRequest {
            jobs: Some(pb::NameSet { names: order.clone() }),
            ..pb::OrderRequest::default()
        });
        let got: Vec<String> = result.jobs.into_iter().map(|rank| rank.name).collect();
        if !order.is_empty() {
            self.differences.same(what, &order, &got);
        }
    }

    fn compare_tasks(&mut self, what: &str, rows: &[Value]) {
        let result = self.order(pb::OrderRequest {
            tasks: Some(pb::NameSet::default()),
            plugins: vec![self.plugin.clone()],
            ..pb::OrderRequest::default()
        });
        let ranks: BTreeMap<String, pb::Rank> =
            result.tasks.into_iter().map(|rank| (rank.name.clone(), rank)).collect();
        for row in rows {
            let names = [task_key(&text(&row[0])), task_key(&text(&row[1]))];
            let got = compare_ranks(&ranks[&names[0]], &ranks[&names[1]]);
            self.differences
                .same(&format!("{what} {row}"), &row[2].as_i64(), &Some(got));
            let both = self.order(pb::OrderRequest {
                tasks: Some(pb::NameSet { names: names.to_vec() }),
                ..pb::OrderRequest::default()
            });
            let less = both.tasks.first().map(|first| first.name == names[0]);
            self.differences
                .same(&format!("{what} {row} less"), &row[3].as_bool(), &less);
        }
    }

    fn compare_states(&mut self, what: &str, key: &str, recorded: &Value) {
        let ranks = self.ranked_jobs();
        for (job, recorded) in recorded.as_object().into_iter().flatten() {
            let state = ranks[job].state.clone().unwrap_or_default();
            let opinion = state.opinions.first().cloned().unwrap_or_default();
            let what = format!("{what} {job}");
            match key {
                "job_ready" => self.differences.same(&what, &recorded.as_bool(), &opinion.ready),
                "job_starving" => self.differences.same(&what, &recorded.as_bool(), &opinion.starving),
                "job_pipelined" => {
                    let got = opinion.pipelined.map(i64::from);
                    self.differences.same(&what, &recorded.as_i64(), &got);
                    let reduced = got.is_none_or(|vote| vote >= 0);
                    self.differences
                        .same(&format!("{what} reduced"), &reduced, &state.pipelined);
                }
                _ => {
                    let objection = (recorded["reason"].as_str(), recorded["message"].as_str());
                    let got = (!state.valid).then_some((state.reason.as_str(), state.message.as_str()));
                    self.differences.same(&what, &objection.0.zip(objection.1), &got);
                }
            }
        }
    }

    fn compare_votes(&mut self, what: &str, recorded: &Value) {
        for (job, vote) in recorded.as_object().into_iter().flatten() {
            let got = self.vote(pb::AdmitMode::Check, job);
            self.differences.same(&format!("{what} {job}"), &vote.as_i64(), &got);
        }
    }

    /// Vote of the plugin on a job; `None`: a problem.
    fn vote(&self, mode: pb::AdmitMode, job: &str) -> Option<i64> {
        let subject = pb::admit_subject::Subject::Job(pb::Job {
            name: job.to_owned(),
            ..pb::Job::default()
        });
        let reply = self.wire.admit(pb::AdmitRequest {
            against: Some(self.against(Vec::new())),
            mode: mode.into(),
            items: vec![pb::AdmitSubject {
                subject: Some(subject),
                attempt: 0,
            }],
            plugins: vec![self.plugin.clone()],
            ..pb::AdmitRequest::default()
        });
        let item = reply.ok()?.result?.items.into_iter().next()?;
        item.votes.first().map(|vote| i64::from(vote.vote))
    }

    fn evict(&mut self, what: &str, query: &Value, expected: &Value) {
        if query["hook"] == "victimsQueue" {
            let engine = (&self.engine.cycle, &*self.engine.policy);
            return compare_eviction_order(&mut self.differences, engine, (what, query), &expected["order"]);
        }
        let kind = match (query["hook"].as_str(), query["kind"].as_str()) {
            (Some("preemptable"), _) => pb::VictimKind::Preempt,
            (Some("reclaimable"), _) => pb::VictimKind::Reclaim,
            (_, Some("gang-preempt")) => pb::VictimKind::GangPreempt,
            (_, Some("gang-reclaim")) => pb::VictimKind::GangReclaim,
            other => panic!("eviction {other:?}"),
        };
        let stored = |reference: &Value| pb::Task {
            name: task_key(&text(reference)),
            ..pb::Task::default()
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
            plugins: vec![self.plugin.clone()],
            ..pb::SelectVictimsRequest::default()
        });
        let item = reply.unwrap().result.unwrap_or_default().items.remove(0);
        let vote = item.votes.into_iter().next().filter(|vote| !vote.abstained);
        let got: Option<Vec<String>> = vote.map(|vote| {
            let positions = vote.victims.iter().map(|position| *position as usize);
            positions.map(|position| text(&candidates[position])).collect()
        });
        let recorded: Option<Vec<String>> = expected["vote"]
            .as_i64()
            .filter(|vote| *vote != 0)
            .map(|_| members(&expected["victims"]).iter().map(text).collect());
        self.differences.same(what, &recorded, &got);
    }

    /// Makes one step; false: it ends the case.
    fn step(&mut self, what: &str, op: &Value, expected: &Value) -> bool {
        let kind = if op["op"] == "enqueue" {
            let job = text(&op["job"]);
            let vote = self.vote(pb::AdmitMode::Tentative, &job);
            self.applied += 1;
            self.differences
                .same(&format!("{what} vote"), &expected["vote"].as_i64(), &vote);
            self.engine.enqueue(std::slice::from_ref(&job));
            None
        } else {
            self.change(op)
        };
        self.differences
            .same(&format!("{what} error"), &expected["error"].as_str(), &kind);
        for (key, recorded) in expected["state"].as_object().into_iter().flatten() {
            self.differences
                .same(&format!("{what} key"), "overcommit", key.as_str());
            self.engine.compare(&mut self.differences, what, recorded);
        }
        kind != Some("panic")
    }

    /// Makes a change: how the reference fails at it.
    fn change(&mut self, op: &Value) -> Option<&'static str> {
        let task = task_key(&text(&op["task"]));
        let place = || pb::TaskPlacement {
            task: task.clone(),
            node: text(&op["node"]),
            card: String::new(),
            devices: Vec::new(),
        };
        let change = match op["op"].as_str().unwrap_or_default() {
            "allocate" => Change::Allocate(place()),
            "pipeline" => Change::Pipeline(place()),
            "evict" => Change::Evict(task),
            "unallocate" => Change::Unallocate(task),
            "unpipeline" => Change::Unpipeline(task),
            other => panic!("operation {other}"),
        };
        let listed = self.wire.list_queues(pb::ListQueuesRequest {
            against: Some(self.against(vec![change])),
            ..pb::ListQueuesRequest::default()
        });
        let Ok(listed) = listed else { return Some("panic") };
        self.applied += 1;
        let effects = listed.metadata.unwrap_or_default().effects.unwrap_or_default();
        (!effects.warnings.is_empty()).then_some("refused")
    }
}

/// Value of a comparison by the keys of one plugin: -1, 0 or 1.
pub(super) fn compare_ranks(left: &pb::Rank, right: &pb::Rank) -> i64 {
    let values = |rank: &pb::Rank| rank.keys.first().map(|key| key.values.clone()).unwrap_or_default();
    match reduce_order::compare_keys(&values(left), &values(right)) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}

/// Cycle of the engine that follows enqueued jobs.
pub(super) struct EngineCycle {
    pub(super) cycle: SchedulingCycle,
    pub(super) policy: std::sync::Arc<Policy>,
}

impl EngineCycle {
    pub(super) fn new(sent: &pb::Cluster, document: &str) -> Self {
        let cluster_state = engine::cluster_state(sent);
        let policy = policy::compile(document, &CompileOptions::default()).unwrap().policy;
        let states = policy.compute_plugin_states(&cluster_state);
        Self {
            cycle: SchedulingCycle::new(cluster_state, policy.node_change_rules(), states),
            policy,
        }
    }

    /// Asks about jobs one after the other, as enqueue does; true for each that is permitted.
    pub(super) fn enqueue(&mut self, jobs: &[String]) -> Vec<bool> {
        let policy = std::sync::Arc::clone(&self.policy);
        let asked = self.cycle.query_plugins(|cluster_state, states| {
            let record = |job: &String| {
                let stored = cluster_state.jobs().get(job).unwrap();
                Ok(AdmitSubject::Job(stored.record.clone().into()))
            };
            let query = AdmitQuery {
                now: Some(NOW.into()),
                items: jobs.iter().map(record).collect(),
                plugins: Vec::new(),
            };
            admit(cluster_state, &policy, states, &query)
        });
        let verdicts = asked.unwrap().into_iter();
        verdicts
            .map(|verdict| verdict.is_ok_and(|verdict| verdict.permitted))
            .collect()
    }

    /// Compares the sums of overcommit.
    fn compare(&self, differences: &mut VectorDifferences, what: &str, recorded: &Value) {
        let state: &OvercommitState = self.cycle.plugin_states().get("overcommit").unwrap();
        let names = self.cycle.cluster_state().resources();
        for (key, recorded) in recorded.as_object().into_iter().flatten() {
            let what = format!("{what} {key}");
            match key.as_str() {
                "factor" => differences.same_float(&what, recorded.as_f64().unwrap(), state.factor()),
                "total" => same_vector(differences, &what, recorded, &state.total(), names),
                "idle" => same_vector(differences, &what, recorded, &state.idle(), names),
                "inqueue" => same_vector(differences, &what, recorded, &state.inqueue(), names),
                _ => differences.differ(&what, recorded, "not asked"),
            }
        }
    }
}

/// Compares a recorded vector; a missing name is 0.
fn same_vector(
    differences: &mut VectorDifferences,
    what: &str,
    recorded: &Value,
    got: &ResourceVector,
    names: &ResourceTable,
) {
    let recorded = recorded.as_object().into_iter().flatten();
    let mut left: BTreeMap<&str, f64> = recorded
        .map(|(name, amount)| (name.as_str(), amount.as_f64().unwrap()))
        .collect();
    for (id, amount) in got.iter() {
        let expected = left.remove(names.name(id)).unwrap_or(0.0);
        if (expected - amount).abs() > 1e-12 * expected.abs().max(amount.abs()) {
            differences.differ(&format!("{what} {}", names.name(id)), &expected, &amount);
        }
    }
    for (name, amount) in left.into_iter().filter(|(_, amount)| *amount != 0.0) {
        differences.differ(&format!("{what} {name}"), &amount, &0.0);
    }
}
