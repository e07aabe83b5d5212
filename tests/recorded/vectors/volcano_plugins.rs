//! Families of Volcano's plugins beside the usual ones (limits of node groups, cdp, pdb, …): verdicts and scores of nodes, orders,
//! states, votes and victims over gRPC in a session; whole cycles in the engine.

use std::collections::BTreeMap;

use pb::session_change::Change;
use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members, text};
use super::job_plugins::compare_ranks;
use super::query::{self, QueryError, TaskQuery};
use super::statements::task_key;
use super::stock::stored;
use super::{VectorDifferences, VectorHarness, VectorVerdict, any_variant};
use super::{cycles, pod_cluster};
use crate::support::records;
use crate::support::wire::BlockingClients;

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    if case["expect"]["error"].is_object() {
        return VectorVerdict::NotServed("a case in which the reference crashes".to_owned());
    }
    if case["request"]["kind"] == "actions" {
        return cycles::check(bench, case);
    }
    any_variant(&case["expect"], |expect| check_against(bench, case, expect))
}

fn check_against(bench: &mut VectorHarness, case: &Value, expect: &Value) -> VectorVerdict {
    let mut document = cluster::document(case, &case["policy"]["tiers"].to_string());
    if case["policy"]["metrics"].is_object() {
        document = format!("{document}metrics: {}\n", case["policy"]["metrics"]);
    }
    let wire = bench.wire().clone();
    let opened = wire.open_session(pb::OpenSessionRequest {
        against: Some(cluster::inline_ref(cluster_with_budgets(case), document)),
        ..pb::OpenSessionRequest::default()
    });
    let session = match opened {
        Ok(opened) => opened.session,
        // A document with which the reference crashes when it is asked is rejected.
        Err(status) if members(&expect["evict"]).iter().any(|outcome| *outcome == "panic") => {
            let mut differences = VectorDifferences::default();
            let is_of_document = status.message().contains("policy_document: 1 errors");
            differences.same(&format!("rejection: {status}"), &true, &is_of_document);
            return differences.verdict();
        }
        Err(status) => {
            let mut differences = VectorDifferences::default();
            differences.differ("session", "open", &status.to_string());
            return differences.verdict();
        }
    };
    let mut asked = PluginSession {
        wire: &wire,
        bench,
        plugin: text(&case["policy"]["plugin"]),
        name: session.clone(),
        applied: 0,
        now: pod_cluster::time(case),
        last_round: case["request"]["lastRunAge"]
            .as_i64()
            .map(|age| pod_cluster::time(case).seconds - age),
        case,
        differences: VectorDifferences::default(),
    };
    asked.run(expect);
    let differences = std::mem::take(&mut asked.differences);
    drop(wire.close_session(pb::CloseSessionRequest { session }));
    differences.verdict()
}

/// Complete cluster of a case, with the budgets of its namespaces.
fn cluster_with_budgets(case: &Value) -> pb::Cluster {
    let mut namespaces: BTreeMap<String, pb::Namespace> = BTreeMap::new();
    for budget in members(&case["cluster"]["podDisruptionBudgets"]) {
        let name = text(&budget["namespace"]);
        let namespace = namespaces.entry(name.clone()).or_insert_with(|| pb::Namespace {
            name,
            ..pb::Namespace::default()
        });
        namespace.disruption_budgets.push(pb::DisruptionBudget {
            name: text(&budget["name"]),
            selector: budget["selector"].is_object().then(|| selector(&budget["selector"])),
            disruptions_allowed: i32::try_from(budget["disruptionsAllowed"].as_i64().unwrap()).unwrap(),
            disrupted_pods: members(&budget["disruptedPods"]).iter().map(text).collect(),
        });
    }
    for quota in members(&case["cluster"]["resourceQuotas"]) {
        let name = text(&quota["namespace"]);
        let namespace = namespaces.entry(name.clone()).or_insert_with(|| pb::Namespace {
            name,
            ..pb::Namespace::default()
        });
        namespace.resource_quotas.push(pb::ResourceQuota {
            name: text(&quota["name"]),
            hard: cluster::resources(&quota["hard"]),
            used: cluster::resources(&quota["used"]),
        });
    }
    pb::Cluster {
        namespaces: namespaces.into_values().collect(),
        ..cycles::session_cluster(case)
    }
}

fn selector(recorded: &Value) -> pb::LabelSelector {
    let requirements = members(&recorded["matchExpressions"]).iter();
    let requirements = requirements.map(|own| pb::SelectorRequirement {
        key: text(&own["key"]),
        operator: text(&own["operator"]),
        values: members(&own["values"]).iter().map(text).collect(),
    });
    pb::LabelSelector {
        match_labels: cluster::texts(&recorded["matchLabels"]),
        match_expressions: requirements.collect(),
    }
}

/// Session on a case.
struct PluginSession<'a> {
    wire: &'a BlockingClients,
    bench: &'a mut VectorHarness,
    plugin: String,
    name: String,
    applied: u64,
    now: prost_types::Timestamp,
    /// Seconds since 1970 of the plugin's last round without a preemptor.
    last_round: Option<i64>,
    case: &'a Value,
    differences: VectorDifferences,
}

impl PluginSession<'_> {
    fn run(&mut self, expect: &Value) {
        self.compare("initial", &expect["initial"]);
        let evictions = members(&self.case["request"]["evict"]).iter();
        for (number, (query, expected)) in evictions.zip(members(&expect["evict"])).enumerate() {
            self.evict(&format!("evict {number}"), query, expected);
        }
        let ops = members(&self.case["request"]["ops"]).iter();
        for (number, (op, expected)) in ops.zip(members(&expect["steps"])).enumerate() {
            if expected["error"] == "panic" {
                return self.bench.skip("what follows a crash of the reference");
            }
            self.step(&format!("step {number} ({})", text(&op["op"])), op, expected);
        }
        self.compare("final", &expect["final"]);
    }

    fn against(&self, changes: Vec<Change>) -> pb::EvaluationRef {
        pb::EvaluationRef {
            now: Some(self.now),
            utc_offset_seconds: pod_cluster::utc_offset(self.case),
            ..records::session_ref(&self.name, self.applied, changes)
        }
    }

    /// Compares all answers at one moment; a key that is not known here is a difference.
    fn compare(&mut self, when: &str, expected: &Value) {
        for (key, recorded) in expected.as_object().into_iter().flatten() {
            let what = format!("{when} {key}");
            match key.as_str() {
                "tasks" => members(recorded).iter().for_each(|task| self.compare_task(when, task)),
                "state" if recorded.is_null() => {}
                "state" => self.bench.skip("accounts by themselves"),
                "job_enqueueable" => self.compare_votes(&what, recorded),
                "task_compare" => self.compare_tasks(&what, members(recorded)),
                "job_compare" => self.compare_jobs(&what, members(recorded)),
                "job_pipelined" | "job_starving" => self.compare_states(&what, key, recorded),
                _ => self.differences.differ(&what, recorded, "not asked"),
            }
        }
    }

    fn compare_task(&mut self, when: &str, expected: &Value) {
        let task = text(&expected["task"]);
        let asked = TaskQuery {
            evaluation_ref: self.against(Vec::new()),
            task: stored(&expected["task"]),
            plugins: vec![self.plugin.clone()],
        };
        let what = format!("{when} {task}");
        if expected["predicate"].is_object() {
            let filtered = query::filter(self.wire, &asked);
            self.compare_verdicts(&what, &expected["predicate"], filtered);
        }
        if expected["node_order"].is_object() {
            let scores = query::score(self.wire, &asked).map(|scores| scores.totals);
            let mut recorded = expected["node_order"].as_object().unwrap().values();
            let is_refused = recorded.any(|score| score["error"].is_string());
            match scores {
                // One node without a score leaves the task without all of them.
                Err(QueryError::Other(problem)) if is_refused => {
                    let named = problem.contains("SCORE_OUT_OF_RANGE");
                    self.differences.same(&format!("{what}: {problem}"), &true, &named);
                }
                Ok(scores) => self.compare_scores(&what, &expected["node_order"], &scores),
                Err(error) => self.differences.differ(&what, "scores", &format!("{error:?}")),
            }
        }
    }

    fn compare_verdicts(&mut self, what: &str, expected: &Value, filtered: Result<query::FilteredNodes, QueryError>) {
        let filtered = match filtered {
            Ok(filtered) => filtered,
            Err(error) => return self.differences.differ(what, "verdicts", &format!("{error:?}")),
        };
        for (node, verdict) in expected.as_object().unwrap() {
            let what = format!("{what} on {node}");
            let rejections = filtered.rejected.get(node).map_or(&[][..], Vec::as_slice);
            let statuses = rejections.iter().map(|rejection| {
                let code = if rejection.resolution == pb::Resolution::Unschedulable {
                    "Unschedulable"
                } else {
                    "UnschedulableAndUnresolvable"
                };
                (code.to_owned(), rejection.message.clone())
            });
            let statuses: Vec<(String, String)> = statuses.collect();
            let wanted: Vec<(String, String)> = members(verdict)
                .iter()
                .map(|status| (text(&status[0]), text(&status[1])))
                .collect();
            // The words of Go's time parser are its own.
            let is_of_parser = wanted.iter().any(|(_, reason)| reason.starts_with("parsing time"));
            if is_of_parser {
                let codes =
                    |statuses: &[(String, String)]| statuses.iter().map(|own| own.0.clone()).collect::<Vec<_>>();
                self.differences.same(&what, &codes(&wanted), &codes(&statuses));
            } else {
                self.differences.same(&what, &wanted, &statuses);
            }
            let fits = filtered.fit.contains(node);
            self.differences
                .same(&format!("{what} fits"), &(*verdict == true), &fits);
        }
    }

    fn compare_scores(&mut self, what: &str, expected: &Value, scores: &BTreeMap<String, f64>) {
        for (node, score) in expected.as_object().unwrap() {
            let got = scores.get(node).copied().unwrap_or(f64::NAN);
            let wanted = score.as_f64().unwrap_or(f64::NAN);
            if (wanted - got).abs() > 1e-12 * wanted.abs().max(got.abs()) || got.is_nan() != wanted.is_nan() {
                self.differences.differ(&format!("{what} score on {node}"), score, &got);
            }
        }
    }

    /// Ranks of all jobs by the plugin alone.
    fn ranked_jobs(&self) -> BTreeMap<String, pb::Rank> {
        let reply = self.wire.order(pb::OrderRequest {
            against: Some(self.against(Vec::new())),
            jobs: Some(pb::NameSet::default()),
            plugins: vec![self.plugin.clone()],
            ..pb::OrderRequest::default()
        });
        let ranks = reply.unwrap().result.unwrap_or_default().jobs.into_iter();
        ranks.map(|rank| (rank.name.clone(), rank)).collect()
    }

    fn compare_jobs(&mut self, what: &str, rows: &[Value]) {
        let ranks = self.ranked_jobs();
        for row in rows {
            let got = compare_ranks(&ranks[&text(&row[0])], &ranks[&text(&row[1])]);
            self.differences
                .same(&format!("{what} {row}"), &row[2].as_i64(), &Some(got));
        }
    }

    /// Compares all waiting tasks of each job with each other. Tasks of different jobs are never in one order; of them
    /// the reference compares only whether both are in a bucket, which is the first number of a key.
    fn compare_tasks(&mut self, what: &str, rows: &[Value]) {
        let reply = self.wire.order(pb::OrderRequest {
            against: Some(self.against(Vec::new())),
            tasks: Some(pb::NameSet::default()),
            plugins: vec![self.plugin.clone()],
            ..pb::OrderRequest::default()
        });
        let ranks = reply.unwrap().result.unwrap_or_default().tasks.into_iter();
        let ranks: BTreeMap<String, pb::Rank> = ranks.map(|rank| (rank.name.clone(), rank)).collect();
        let job_of = |task: &str| task.split_once('|').map(|(job, _)| job.to_owned());
        let mut recorded: BTreeMap<(String, String), i64> = BTreeMap::new();
        for row in rows {
            recorded.insert((text(&row[0]), text(&row[1])), row[2].as_i64().unwrap());
        }
        for job in members(&self.case["cluster"]["jobs"]) {
            let key = cluster::key(&job["namespace"], &job["name"]);
            let waiting = members(&job["tasks"]).iter().filter(|task| task["status"] == "Pending");
            let mut names: Vec<String> = waiting.map(|task| format!("{key}|{}", text(&task["name"]))).collect();
            names.sort();
            let pairs = names.iter().enumerate();
            for (one, other) in pairs.flat_map(|(at, one)| names.iter().skip(at + 1).map(move |other| (one, other))) {
                recorded.entry((one.clone(), other.clone())).or_insert(0);
            }
        }
        for ((left, right), wanted) in recorded {
            let mut both = [ranks[&task_key(&left)].clone(), ranks[&task_key(&right)].clone()];
            if job_of(&left) != job_of(&right) {
                for values in both
                    .iter_mut()
                    .flat_map(|rank| &mut rank.keys)
                    .map(|key| &mut key.values)
                {
                    values.truncate(1);
                }
            }
            let got = compare_ranks(&both[0], &both[1]);
            self.differences.same(&format!("{what} {left} {right}"), &wanted, &got);
        }
    }

    fn compare_states(&mut self, what: &str, key: &str, recorded: &Value) {
        let ranks = self.ranked_jobs();
        for (job, recorded) in recorded.as_object().into_iter().flatten() {
            let state = ranks[job].state.clone().unwrap_or_default();
            let opinion = state.opinions.first().cloned().unwrap_or_default();
            let what = format!("{what} {job}");
            if key == "job_starving" {
                self.differences.same(&what, &recorded.as_bool(), &opinion.starving);
            } else {
                self.differences
                    .same(&what, &recorded.as_i64(), &opinion.pipelined.map(i64::from));
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
        let (kind, by_tiers) = match query["hook"].as_str().unwrap_or_default() {
            "preemptable" => (pb::VictimKind::Preempt, false),
            "reclaimable" => (pb::VictimKind::Reclaim, false),
            "unifiedEvictable" => (pb::VictimKind::GangPreempt, false),
            "session.preemptable" => (pb::VictimKind::Preempt, true),
            "victimTasks" => (pb::VictimKind::Shuffle, false),
            "session.victimTasks" => (pb::VictimKind::Shuffle, true),
            other => panic!("victims by {other}"),
        };
        let is_shuffle = kind == pb::VictimKind::Shuffle;
        // The reference's tdm takes any running task, whatever it is asked about; here victims are candidates.
        let asks_about_all = is_shuffle && self.plugin == "tdm";
        let candidates = self.candidates(if asks_about_all {
            &Value::Null
        } else {
            &query["candidates"]
        });
        let preemptor = (!is_shuffle).then(|| query.get("preemptor").map_or_else(hypothetical, stored));
        let reply = self.select_victims(kind, by_tiers, preemptor, &candidates);
        let item = reply.unwrap().result.unwrap_or_default().items.remove(0);
        self.differences.same(&format!("{what} problem"), &None, &item.problem);
        let named = |positions: &[u32]| -> Vec<String> {
            let positions = positions.iter().map(|position| *position as usize);
            positions.map(|position| candidates[position].clone()).collect()
        };
        let recorded = |expected: &Value| members(&expected["victims"]).iter().map(text).collect::<Vec<String>>();
        if by_tiers {
            let mut got = named(&item.victims);
            if is_shuffle {
                got.sort();
            }
            return self.differences.same(what, &recorded(expected), &got);
        }
        let vote = item.votes.into_iter().next().filter(|vote| !vote.abstained);
        if is_shuffle {
            return self.compare_round(what, expected, vote.map(|vote| named(&vote.victims)));
        }
        // A vote against all is one with no victims.
        let wanted = expected["vote"]
            .as_i64()
            .filter(|vote| *vote != 0)
            .map(|_| recorded(expected));
        let mut got = vote.map(|vote| named(&vote.victims));
        if expected["per_job"].is_object() {
            // The reference takes the jobs in the order of a map.
            if let Some(got) = &mut got {
                got.sort();
            }
        }
        self.differences.same(what, &wanted, &got);
    }

    /// Victims of one group: by all tiers, or by the plugin alone.
    fn select_victims(
        &self,
        kind: pb::VictimKind,
        by_tiers: bool,
        preemptor: Option<pb::Task>,
        candidates: &[String],
    ) -> Result<pb::SelectVictimsResponse, tonic::Status> {
        let last = self
            .last_round
            .map(|seconds| prost_types::Timestamp { seconds, nanos: 0 });
        self.wire.select_victims(pb::SelectVictimsRequest {
            against: Some(self.against(Vec::new())),
            kind: kind.into(),
            last_rounds: last.map(|last| (self.plugin.clone(), last)).into_iter().collect(),
            groups: vec![pb::VictimGroup {
                preemptor,
                candidates: candidates
                    .iter()
                    .map(|task| stored(&Value::from(task.clone())))
                    .collect(),
                ..pb::VictimGroup::default()
            }],
            plugins: if by_tiers {
                Vec::new()
            } else {
                vec![self.plugin.clone()]
            },
            ..pb::SelectVictimsRequest::default()
        })
    }

    /// Compares the victims of a round; `None`: the plugin made none.
    fn compare_round(&mut self, what: &str, expected: &Value, got: Option<Vec<String>>) {
        if got.is_some() {
            self.last_round = Some(self.now.seconds);
        }
        let wanted = expected["victims"]
            .as_array()
            .map(|all| all.iter().map(text).collect::<Vec<String>>());
        // A hook of tdm answers between its rounds too, with no victims.
        let mut got = got.or_else(|| (self.plugin == "tdm").then(Vec::new));
        if self.plugin == "tdm" {
            let got = got.get_or_insert_default();
            let free: Vec<String> = members(&expected["free_choice"]).iter().map(text).collect();
            let mut per_job: BTreeMap<String, u64> = BTreeMap::new();
            for victim in got.iter() {
                *per_job.entry(victim.split_once('|').unwrap().0.to_owned()).or_default() += 1;
            }
            if expected["per_job"].is_object() {
                let per_job = serde_json::to_value(&per_job).unwrap();
                self.differences
                    .same(&format!("{what} by job"), &expected["per_job"], &per_job);
            }
            got.retain(|victim| !free.iter().any(|job| victim.starts_with(&format!("{job}|"))));
            got.sort();
        }
        self.differences.same(what, &wanted, &got);
    }

    /// Candidates of a question, or all running tasks by job and name.
    fn candidates(&self, named: &Value) -> Vec<String> {
        if let Some(named) = named.as_array() {
            return named.iter().map(text).collect();
        }
        let mut running = Vec::new();
        for job in members(&self.case["cluster"]["jobs"]) {
            let key = cluster::key(&job["namespace"], &job["name"]);
            let tasks = members(&job["tasks"]).iter().filter(|task| task["status"] == "Running");
            running.extend(tasks.map(|task| format!("{key}|{}", text(&task["name"]))));
        }
        running.sort_by_key(|reference| {
            reference
                .split_once('|')
                .map(|(job, task)| (job.to_owned(), task.to_owned()))
        });
        running
    }

    fn step(&mut self, what: &str, op: &Value, expected: &Value) {
        if op["now"].is_string() {
            self.now = pod_cluster::time(op);
        }
        let error = match op["op"].as_str().unwrap_or_default() {
            "clock" => return,
            "victimTasks" => {
                let query = serde_json::json!({"hook": "victimTasks"});
                return self.evict(what, &query, &expected["result"]);
            }
            "enqueue" => {
                let vote = self.vote(pb::AdmitMode::Tentative, &text(&op["job"]));
                self.applied += 1;
                self.differences
                    .same(&format!("{what} vote"), &expected["vote"].as_i64(), &vote);
                None
            }
            _ => self.change(op),
        };
        self.differences
            .same(&format!("{what} error"), &expected["error"].as_str(), &error);
    }

    /// Makes a change: how the reference fails at it.
    fn change(&mut self, op: &Value) -> Option<&'static str> {
        let task = task_key(&text(&op["task"]));
        let place = || pb::TaskPlacement {
            task: task.clone(),
            node: text(&op["node"]),
            ..pb::TaskPlacement::default()
        };
        let change = match op["op"].as_str().unwrap_or_default() {
            "allocate" => Change::Allocate(place()),
            "pipeline" => Change::Pipeline(place()),
            "evict" => Change::Evict(task),
            "unallocate" => Change::Unallocate(task),
            "unpipeline" => Change::Unpipeline(task),
            "unevict" => Change::Unevict(task),
            "enqueued" => Change::JobEnqueued(text(&op["job"])),
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

/// Preemptor of a question that names none.
fn hypothetical() -> pb::Task {
    pb::Task {
        requests: Some(pb::ResourceList::default()),
        ..pb::Task::default()
    }
}
