//! Families of Volcano's plugins that keep quotas of queues: accounts, orders and votes over gRPC, as the service gives them;
//! which tasks a queue may preempt for, and single comparisons of queues, at the engine's hooks.

use std::collections::BTreeMap;

use pb::session_change::Change;
use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members, text};
use super::queue_hooks::EngineQueues;
use super::statements::task_key;
use super::{VectorDifferences, VectorHarness, VectorVerdict, any_variant};
use crate::support::records;
use crate::support::wire::BlockingClients;

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    any_variant(&case["expect"], |expect| check_against(bench, case, expect).verdict())
}

fn check_against(bench: &mut VectorHarness, case: &Value, expect: &Value) -> VectorDifferences {
    let mut differences = VectorDifferences::default();
    let document = cluster::document(case, &case["policy"]["tiers"].to_string());
    let wire = bench.wire().clone();
    let opened = wire.open_session(pb::OpenSessionRequest {
        against: Some(cluster::inline_ref(
            cluster::queue_cluster(&case["cluster"]),
            document.clone(),
        )),
        ..pb::OpenSessionRequest::default()
    });
    let session = match opened {
        Ok(opened) => opened.session,
        Err(status) => {
            differences.differ("session", "open", &status.to_string());
            return differences;
        }
    };
    let mut asked = QueueSession {
        wire: &wire,
        plugin: text(&case["policy"]["plugin"]),
        name: session.clone(),
        applied: 0,
        case,
        engine: EngineQueues::new(case, &document),
        differences,
    };
    asked.run(bench, expect);
    let differences = std::mem::take(&mut asked.differences);
    drop(wire.close_session(pb::CloseSessionRequest { session }));
    differences
}

/// Session on a case.
struct QueueSession<'a> {
    wire: &'a BlockingClients,
    plugin: String,
    name: String,
    applied: u64,
    case: &'a Value,
    engine: EngineQueues,
    differences: VectorDifferences,
}

impl QueueSession<'_> {
    fn run(&mut self, bench: &mut VectorHarness, expect: &Value) {
        self.compare("initial", &expect["initial"]);
        let evictions = members(&self.case["request"]["evict"]).iter();
        for (number, (query, expected)) in evictions.zip(members(&expect["evict"])).enumerate() {
            self.evict(bench, &format!("evict {number}"), query, expected);
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

    fn session_ref(&self) -> pb::EvaluationRef {
        records::session_ref(&self.name, self.applied, Vec::new())
    }

    /// Compares all answers at one moment.
    fn compare(&mut self, when: &str, expected: &Value) {
        self.compare_accounts(when, &expected["queues"]);
        if let Some(jobs) = expected["job_enqueueable"].as_object() {
            for (job, vote) in jobs.iter().filter(|(_, vote)| *vote != "panic") {
                let got = self.vote(pb::AdmitMode::Check, job_subject(job));
                self.differences
                    .same(&format!("{when} job_enqueueable {job}"), &vote.as_i64(), &got);
            }
        }
        for entry in members(&expected["allocatable"])
            .iter()
            .filter(|entry| entry[2] != "panic")
        {
            self.allocatable(when, entry);
        }
        let order = members(&expected["queue_order"]);
        if !order.is_empty() {
            let names: Vec<String> = order.iter().map(text).collect();
            let got: Vec<String> = self.ranks(&names).into_iter().map(|rank| rank.name).collect();
            self.differences.same(&format!("{when} queue_order"), &names, &got);
        }
        let problems = self.engine.compare(expected);
        for (what, expected, got) in problems {
            self.differences.differ(&format!("{when} {what}"), &expected, &got);
        }
    }

    fn ranks(&self, names: &[String]) -> Vec<pb::Rank> {
        let reply = self.wire.order(pb::OrderRequest {
            against: Some(self.session_ref()),
            queues: Some(pb::NameSet { names: names.to_vec() }),
            ..pb::OrderRequest::default()
        });
        reply.unwrap().result.unwrap_or_default().queues
    }

    fn accounts(&self) -> BTreeMap<String, pb::Account> {
        let listed = self.wire.list_queues(pb::ListQueuesRequest {
            against: Some(self.session_ref()),
            ..pb::ListQueuesRequest::default()
        });
        let queues = listed.unwrap().queues.into_iter();
        let own = |accounts: Vec<pb::Account>| accounts.into_iter().find(|account| account.plugin == self.plugin);
        let accounts = queues.filter_map(|status| Some((status.queue?.name, own(status.accounts)?)));
        accounts.collect()
    }

    fn compare_accounts(&mut self, when: &str, expected: &Value) {
        let accounts = self.accounts();
        for expected in members(expected).iter().filter(|expected| expected.is_object()) {
            let queue = text(&expected["queue"]);
            let Some(account) = accounts.get(&queue) else {
                self.differences
                    .differ(&format!("{when} {queue}"), "an account", "none");
                continue;
            };
            let vectors = [
                ("deserved", &account.deserved),
                ("allocated", &account.allocated),
                ("request", &account.request),
                ("elastic", &account.elastic),
                ("inqueue", &account.inqueue),
                ("capability", &account.capability),
                ("realCapability", &account.real_capability),
                ("guarantee", &account.guarantee),
            ];
            for (name, got) in vectors.into_iter().filter(|(name, _)| expected[*name].is_object()) {
                same_vector(
                    &mut self.differences,
                    &format!("{when} {queue} {name}"),
                    &expected[name],
                    got,
                );
            }
            if let Some(share) = expected["share"]
                .as_f64()
                .filter(|share| !is_near(*share, account.share))
            {
                self.differences
                    .differ(&format!("{when} {queue} share"), &share, &account.share);
            }
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
            plugins: vec![self.plugin.clone()],
            ..pb::AdmitRequest::default()
        });
        let items = reply
            .map_err(|status| status.to_string())?
            .result
            .unwrap_or_default()
            .items;
        let item = items.into_iter().next().ok_or("no item")?;
        item.problem.clone().map_or(Ok(item), |problem| Err(problem.reason))
    }

    /// Vote of the plugin; `None`: a problem.
    fn vote(&self, mode: pb::AdmitMode, subject: pb::admit_subject::Subject) -> Option<i64> {
        let item = self.admit(mode, subject).ok()?;
        item.votes.first().map(|vote| i64::from(vote.vote))
    }

    fn allocatable(&mut self, when: &str, entry: &Value) {
        let (queue, reference) = (text(&entry[0]), text(&entry[1]));
        let what = format!("{when} allocatable {queue} {reference}");
        let job = reference.split('|').next().unwrap_or_default();
        let own = members(&self.case["cluster"]["jobs"]).iter().any(|known| {
            cluster::key(&known["namespace"], &known["name"]) == job && known["queue"].as_str() == Some(&queue)
        });
        if !own {
            // The wire asks about a task in its own queue.
            let got = self.engine.allocatable(&queue, &task_key(&reference));
            return self.differences.same(&what, &entry[2].as_bool(), &got);
        }
        let task = pb::Task {
            name: task_key(&reference),
            ..pb::Task::default()
        };
        let subject = pb::admit_subject::Subject::Task(task);
        let got = self.vote(pb::AdmitMode::Check, subject).map(|vote| vote >= 0);
        self.differences.same(&what, &entry[2].as_bool(), &got);
    }

    fn evict(&mut self, bench: &mut VectorHarness, what: &str, query: &Value, expected: &Value) {
        if query["hook"] == "victimsQueue" {
            return self
                .engine
                .evicted_in_order(&mut self.differences, (what, query), &expected["order"]);
        }
        let kind = match (query["hook"].as_str(), query["kind"].as_str()) {
            (Some("reclaimable"), _) => pb::VictimKind::Reclaim,
            (Some("preemptable"), _) => pb::VictimKind::Preempt,
            (_, Some("gang-preempt")) => pb::VictimKind::GangPreempt,
            (_, Some("gang-reclaim")) => pb::VictimKind::GangReclaim,
            (hook, kind) => return bench.skip(format!("{hook:?} {kind:?}")),
        };
        let stored = |reference: &Value| pb::Task {
            name: task_key(&text(reference)),
            ..pb::Task::default()
        };
        let candidates = members(&query["candidates"]);
        let reply = self.wire.select_victims(pb::SelectVictimsRequest {
            against: Some(self.session_ref()),
            kind: kind.into(),
            groups: vec![pb::VictimGroup {
                preemptor: Some(stored(&query["preemptor"])),
                candidates: candidates.iter().map(stored).collect(),
                ..pb::VictimGroup::default()
            }],
            plugins: vec![self.plugin.clone()],
            ..pb::SelectVictimsRequest::default()
        });
        let items = reply.map(|reply| reply.result.unwrap_or_default().items);
        let item = items
            .ok()
            .and_then(|items| items.into_iter().next())
            .unwrap_or_default();
        if expected == "panic" {
            let reason = item.problem.map(|problem| problem.reason);
            return self
                .differences
                .same(what, &Some("REFERENCE_PANICS"), &reason.as_deref());
        }
        let vote = item.votes.into_iter().next().filter(|vote| !vote.abstained);
        let got = vote.map(|vote| {
            let positions = vote.victims.iter().map(|position| *position as usize);
            positions.map(|position| text(&candidates[position])).collect()
        });
        let recorded: Option<Vec<String>> = (expected["vote"] != 0 && expected != "no hook")
            .then(|| members(&expected["victims"]).iter().map(text).collect());
        self.differences.same(what, &recorded, &got);
    }

    /// Makes one step; false: it ends the case.
    fn step(&mut self, what: &str, op: &Value, expected: &Value) -> bool {
        let panics = expected["error"] == "panic";
        let done = if op["op"] == "enqueue" || op["op"] == "ask" {
            self.enqueue(what, op, expected)
        } else {
            self.change(op)
        };
        let error = self.engine.step(op);
        let kind = match &done {
            Ok(false) => None,
            Ok(true) => Some("refused"),
            Err(_) => Some("panic"),
        };
        self.differences
            .same(&format!("{what} error"), &expected["error"].as_str(), &kind);
        self.differences
            .same(&format!("{what} error in the engine"), &panics, &error.is_some());
        if panics || kind == Some("panic") {
            return false;
        }
        self.compare_accounts(what, &expected["state"]["queues"]);
        for (name, expected, got) in self.engine.compare(expected) {
            self.differences.differ(&format!("{what} {name}"), &expected, &got);
        }
        true
    }

    fn enqueue(&mut self, what: &str, op: &Value, expected: &Value) -> Result<bool, String> {
        // A vote that nobody confirms still reserves, in releases whose votes do.
        let mode = if op["op"] == "ask" && cluster::reserves_after_votes(self.case) {
            pb::AdmitMode::Check
        } else {
            pb::AdmitMode::Tentative
        };
        let item = self.admit(mode, job_subject(&text(&op["job"])));
        self.applied += u64::from(mode == pb::AdmitMode::Tentative);
        let vote = item?.votes.first().map(|vote| i64::from(vote.vote));
        self.differences
            .same(&format!("{what} vote"), &expected["vote"].as_i64(), &vote);
        Ok(false)
    }

    /// Makes a change; true: the place was refused.
    fn change(&mut self, op: &Value) -> Result<bool, String> {
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
        let against = records::session_ref(&self.name, self.applied, vec![change]);
        let listed = self.wire.list_queues(pb::ListQueuesRequest {
            against: Some(against),
            ..pb::ListQueuesRequest::default()
        });
        let listed = listed.map_err(|status| status.to_string())?;
        self.applied += 1;
        let effects = listed.metadata.unwrap_or_default().effects.unwrap_or_default();
        Ok(!effects.warnings.is_empty())
    }
}

fn job_subject(name: &str) -> pb::admit_subject::Subject {
    pb::admit_subject::Subject::Job(pb::Job {
        name: name.to_owned(),
        ..pb::Job::default()
    })
}

/// Amount that means: not limited.
fn is_unlimited(name: &str, amount: f64) -> bool {
    let most = if name == "cpu" || name == "memory" {
        f64::MAX
    } else {
        9_223_372_036_854_775_807.0
    };
    amount >= most
}

pub(super) fn is_near(expected: f64, got: f64) -> bool {
    expected == got || (expected - got).abs() <= 1e-12 * expected.abs().max(got.abs())
}

/// Compares a recorded vector; a missing name is 0, and the service leaves out what is not limited.
fn same_vector(differences: &mut VectorDifferences, what: &str, expected: &Value, got: &[pb::Amount]) {
    let mut left: BTreeMap<&str, f64> = got.iter().map(|amount| (&*amount.resource, amount.value)).collect();
    for (name, amount) in expected.as_object().into_iter().flatten() {
        let amount = amount.as_f64().unwrap_or(f64::NAN);
        let got = left.remove(&**name);
        let same = match got {
            None => amount == 0.0 || is_unlimited(name, amount),
            Some(got) => is_near(amount, got),
        };
        if !same {
            differences.differ(&format!("{what} {name}"), &amount, &got);
        }
    }
    for (name, amount) in left.into_iter().filter(|(_, amount)| *amount != 0.0) {
        differences.differ(&format!("{what} {name}"), &0.0, &amount);
    }
}
