//! Families drf and hdrf: shares, trees, orders and victims over gRPC; events and the greedy loop in a session.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use pb::session_change::Change;
use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, key, members, text};
use super::{VectorDifferences, VectorHarness, VectorVerdict};
use crate::support::wire::BlockingClients;

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    if paths(case).contains("") {
        return VectorVerdict::NotServed("cases that hang on map order as a whole".to_owned());
    }
    let mut asked = DrfVectorRun::new(bench.wire(), case);
    let expect = &case["expect"];
    match case["request"]["kind"].as_str().unwrap_or_default() {
        _ if expect["error"]["stage"] == "session-open" => asked.no_tree(),
        "state" if expect["variants"].is_array() => asked.state("/initial", &expect["variants"][0]["initial"]),
        "state" => asked.state("/initial", &expect["initial"]),
        "preempt" => asked.victims(pb::VictimKind::Preempt),
        "reclaim" => asked.victims(pb::VictimKind::Reclaim),
        "events" => asked.in_session(DrfVectorRun::events),
        "greedy" => asked.in_session(DrfVectorRun::greedy),
        other => return VectorVerdict::NotServed(other.to_owned()),
    }
    asked.differences.verdict()
}

fn paths(case: &Value) -> BTreeSet<String> {
    members(&case["expect"]["unstable_paths"]).iter().map(text).collect()
}

/// Run of one case: its `against`, and its differences.
struct DrfVectorRun<'a> {
    wire: &'a BlockingClients,
    case: &'a Value,
    cluster: pb::Cluster,
    unstable: BTreeSet<String>,
    /// Session, and the number of its last change.
    session: Option<(String, u64)>,
    differences: VectorDifferences,
}

/// Key of Order, all plugins in one list.
type OrderKeys = Vec<f64>;

impl<'a> DrfVectorRun<'a> {
    fn new(wire: &'a BlockingClients, case: &'a Value) -> Self {
        Self {
            wire,
            case,
            cluster: cluster::cluster(&case["cluster"]),
            unstable: paths(case),
            session: None,
            differences: VectorDifferences::default(),
        }
    }

    fn evaluation_ref(&self, changes: Vec<pb::SessionChange>) -> pb::EvaluationRef {
        if let Some((session, after)) = &self.session {
            let step = pb::SessionRef {
                id: session.clone(),
                after: *after,
                changes,
            };
            return pb::EvaluationRef {
                target: Some(pb::evaluation_ref::Target::Session(step)),
                ..pb::EvaluationRef::default()
            };
        }
        let hierarchy = self.case["policy"]["enableHierarchy"] == Value::Bool(true);
        let tiers = format!("[{{\"plugins\": [{{\"name\": drf, \"enableHierarchy\": {hierarchy}}}]}}]");
        cluster::inline_ref(self.cluster.clone(), cluster::document(self.case, &tiers))
    }

    fn in_session(&mut self, run: fn(&mut Self)) {
        let opened = self.wire.open_session(pb::OpenSessionRequest {
            against: Some(self.evaluation_ref(Vec::new())),
            ..pb::OpenSessionRequest::default()
        });
        match opened {
            Ok(opened) => self.session = Some((opened.session, 0)),
            Err(status) => return self.differences.differ("session", "opened", &status.to_string()),
        }
        run(self);
        if let Some((session, _)) = self.session.take() {
            self.wire.close_session(pb::CloseSessionRequest { session }).unwrap();
        }
    }

    /// Order of all queues and jobs, after a change.
    fn order(&mut self, change: Option<Change>) -> Result<pb::OrderResult, tonic::Status> {
        let changes: Vec<pb::SessionChange> = change
            .into_iter()
            .map(|change| pb::SessionChange { change: Some(change) })
            .collect();
        let count = changes.len() as u64;
        let reply = self.wire.order(pb::OrderRequest {
            against: Some(self.evaluation_ref(changes)),
            queues: Some(pb::NameSet::default()),
            jobs: Some(pb::NameSet::default()),
            with_tree: true,
            ..pb::OrderRequest::default()
        })?;
        if let Some((_, after)) = &mut self.session {
            *after += count;
        }
        Ok(reply.result.unwrap_or_default())
    }

    fn accounts(&self) -> BTreeMap<String, pb::Account> {
        let query = pb::ListJobsRequest {
            against: Some(self.evaluation_ref(Vec::new())),
            page: Some(pb::Page {
                size: 5_000,
                token: String::new(),
            }),
            ..pb::ListJobsRequest::default()
        };
        let jobs = self.wire.list_jobs(query).unwrap().jobs.into_iter();
        jobs.filter_map(|job| {
            Some((
                job.job?.name,
                job.accounts.into_iter().find(|account| account.plugin == "drf")?,
            ))
        })
        .collect()
    }

    fn same(&mut self, path: &str, expected: &Value, got: impl Into<Value>) {
        let got = got.into();
        if self.unstable.iter().any(|unstable| path.starts_with(unstable.as_str())) {
            return;
        }
        let near = match (expected.as_f64(), got.as_f64()) {
            (Some(expected), Some(got)) => (expected - got).abs() <= 1e-12 * expected.abs().max(got.abs()),
            _ => *expected == got,
        };
        if !near {
            self.differences.differ(path, expected, &got);
        }
    }

    fn same_amounts(&mut self, path: &str, expected: &Value, got: &BTreeMap<String, f64>) {
        let named = expected.as_object().into_iter().flatten();
        let named: BTreeMap<String, f64> = named
            .map(|(name, amount)| (name.clone(), amount.as_f64().unwrap_or(f64::NAN)))
            .collect();
        for name in named.keys().chain(got.keys()) {
            let amount = |amounts: &BTreeMap<String, f64>| Value::from(amounts.get(name).copied().unwrap_or(0.0));
            self.same(&format!("{path}/{name}"), &amount(&named), amount(got));
        }
    }

    fn no_tree(&mut self) {
        let Ok(result) = self.order(None) else { return };
        let faulty = result
            .queues
            .iter()
            .chain(&result.jobs)
            .any(|rank| rank.problem.is_some());
        if !faulty {
            self.differences
                .differ("tree", "a clear error", "an order of everything");
        }
    }

    fn state(&mut self, path: &str, expected: &Value) {
        let result = match self.order(None) {
            Ok(result) => result,
            Err(status) => return self.differences.differ(path, "an order", &status.to_string()),
        };
        let accounts = self.accounts();
        let mut sum: BTreeMap<String, f64> = BTreeMap::new();
        for (at, job) in members(&expected["jobs"]).iter().enumerate() {
            let path = format!("{path}/jobs/{at}");
            let own = accounts.get(&text(&job["job"])).cloned().unwrap_or_default();
            let held = amounts(&own.allocated);
            for (name, amount) in &held {
                *sum.entry(name.clone()).or_default() += amount;
            }
            self.same(&format!("{path}/share"), &job["share"], own.share);
            self.same(&format!("{path}/dominant"), &job["dominant"], own.dominant_resource);
            self.same_amounts(&format!("{path}/allocated"), &job["allocated"], &held);
            self.same_amounts(
                &format!("{path}/totalRequest"),
                &job["totalRequest"],
                &amounts(&own.request),
            );
        }
        let keys = keys(&result.jobs);
        for (at, row) in members(&expected["job_compare"]).iter().enumerate() {
            self.same(&format!("{path}/job_compare/{at}/2"), &row[2], compare(&keys, row));
        }
        let order: Vec<String> = result.jobs.iter().map(|rank| rank.name.clone()).collect();
        self.same(&format!("{path}/job_order"), &expected["job_order"], order);
        if expected["tree"].is_array() {
            self.same_amounts(&format!("{path}/totalAllocated"), &expected["totalAllocated"], &sum);
            self.tree(path, &expected["tree"], &result.tree);
            self.queue_compare(path, expected, &result);
        }
    }

    fn tree(&mut self, path: &str, expected: &Value, tree: &[pb::TreeNode]) {
        self.same(&format!("{path}/tree"), &members(expected).len().into(), tree.len());
        for (at, (expected, node)) in members(expected).iter().zip(tree).enumerate() {
            let path = format!("{path}/tree/{at}");
            self.same(&format!("{path}/path"), &expected["path"], node.path.clone());
            self.same(
                &format!("{path}/job"),
                &expected["job"].as_str().unwrap_or_default().into(),
                node.job.clone(),
            );
            self.same(&format!("{path}/share"), &expected["share"], node.share);
            self.same(&format!("{path}/saturated"), &expected["saturated"], node.saturated);
            self.same(
                &format!("{path}/dominant"),
                &expected["dominant"],
                node.dominant_resource.clone(),
            );
            self.same_amounts(
                &format!("{path}/allocated"),
                &expected["allocated"],
                &amounts(&node.allocated),
            );
            if node.job.is_empty() {
                let weight: Value = match node.weight {
                    weight if weight.is_nan() => "NaN".into(),
                    weight if weight.is_infinite() => "+Inf".into(),
                    weight => weight.into(),
                };
                self.same(&format!("{path}/weight"), &expected["weight"], weight);
            }
        }
    }

    fn queue_compare(&mut self, path: &str, expected: &Value, result: &pb::OrderResult) {
        let keys = keys(&result.queues);
        for (at, row) in members(&expected["queue_compare"]).iter().enumerate() {
            // Where the reference panics, the queue counts as one without a share.
            if row[2] != "panic" {
                self.same(&format!("{path}/queue_compare/{at}/2"), &row[2], compare(&keys, row));
            }
        }
    }

    fn events(&mut self) {
        let expect = &self.case["expect"];
        self.state("/initial", &expect["initial"]);
        for (number, event) in members(&self.case["request"]["events"]).iter().enumerate() {
            let change = match event["op"].as_str() {
                Some("allocate") => Change::Allocate(placement(task_name(event), text(&event["node"]))),
                _ => Change::Evict(task_name(event)),
            };
            match self.order(Some(change)) {
                Ok(result) => self.step(&format!("/steps/{number}"), &expect["steps"][number], &result),
                Err(_) => return self.same("/error/stage", &expect["error"]["stage"], "event"),
            }
        }
        self.state("/final", &expect["final"]);
    }

    fn step(&mut self, path: &str, expected: &Value, result: &pb::OrderResult) {
        let shares = keys(&result.jobs);
        for (job, share) in expected["job_shares"].as_object().into_iter().flatten() {
            let own = shares.get(job).and_then(|key| key.first()).copied();
            self.same(&format!("{path}/job_shares/{job}"), share, own);
        }
        if let Some(root) = result.tree.first() {
            self.same(&format!("{path}/root_share"), &expected["root_share"], root.share);
            let saturated = result.tree.iter().filter(|node| node.saturated);
            let name = |node: &pb::TreeNode| match node.job.as_str() {
                "" => node.path.clone(),
                job => format!("job:{job}"),
            };
            let saturated: BTreeSet<String> = saturated.map(name).collect();
            let recorded: BTreeSet<String> = members(&expected["saturated"]).iter().map(text).collect();
            self.differences
                .same(&format!("{path}/saturated"), &recorded, &saturated);
            self.queue_compare(path, expected, result);
        }
    }

    fn victims(&mut self, kind: pb::VictimKind) {
        let (request, expect) = (&self.case["request"], &self.case["expect"]);
        let reply = self.wire.select_victims(pb::SelectVictimsRequest {
            against: Some(self.evaluation_ref(Vec::new())),
            kind: kind.into(),
            groups: vec![pb::VictimGroup {
                preemptor: Some(requested_task(&request["preemptor"])),
                candidates: members(&request["candidates"]).iter().map(requested_task).collect(),
                ..pb::VictimGroup::default()
            }],
            ..pb::SelectVictimsRequest::default()
        });
        let item = match reply {
            Ok(reply) => reply
                .result
                .unwrap_or_default()
                .items
                .into_iter()
                .next()
                .unwrap_or_default(),
            Err(status) => return self.differences.differ("victims", "an answer", &status.to_string()),
        };
        if item.problem.is_some() || expect.get("error").is_some() {
            let kind = item.problem.map(|_| "panic");
            return self.differences.same("error", &expect["error"]["kind"].as_str(), &kind);
        }
        let names = item
            .victims
            .iter()
            .filter_map(|position| members(&request["candidates"]).get(*position as usize));
        let names: Vec<String> = names
            .map(|task| format!("{}|{}", text(&task["job"]), text(&task["task"])))
            .collect();
        self.same("/victims", &expect["victims"], names);
        self.state("/initial", &expect["initial"]);
    }

    fn greedy(&mut self) {
        let mut waiting: BTreeMap<String, Vec<pb::Task>> = BTreeMap::new();
        for task in &self.cluster.tasks {
            let empty = task
                .requests
                .iter()
                .all(|list| list.items.iter().all(|(_, amount)| is_zero(amount)));
            if task.status() == pb::TaskStatus::Pending && !empty {
                waiting.entry(task.job.clone()).or_default().push(task.clone());
            }
        }
        for tasks in waiting.values_mut() {
            tasks.sort_by(|a, b| b.name.cmp(&a.name));
        }
        let expect = &self.case["expect"];
        let mut order = Vec::new();
        let mut result = self.order(None).unwrap();
        while let Some((queue, job)) = self.next(&result, &waiting) {
            let tasks = waiting.get_mut(&job).unwrap();
            let task = tasks.pop().unwrap();
            if tasks.is_empty() {
                waiting.remove(&job);
            }
            let node = self.first_fit(&task);
            if let Some(node) = &node {
                let change = Change::Allocate(placement(task.name.clone(), node.clone()));
                result = self.order(Some(change)).unwrap();
            }
            let short = task.name.split_once('/').map_or("", |(_, name)| name).to_owned();
            order.push(Value::from(vec![
                Value::from(queue),
                Value::from(job),
                Value::from(short),
                node.into(),
            ]));
        }
        self.same("/order", &expect["order"], order);
        self.state("/final", &expect["final"]);
    }

    /// First queue of Order that has pending tasks, and its first job.
    fn next(&self, result: &pb::OrderResult, waiting: &BTreeMap<String, Vec<pb::Task>>) -> Option<(String, String)> {
        let queue_of = |name: &str| {
            self.cluster
                .jobs
                .iter()
                .find(|job| job.name == *name)
                .map(|job| job.queue.clone())
        };
        let queues: BTreeSet<String> = waiting.keys().filter_map(|job| queue_of(job)).collect();
        let keys = keys(&result.queues);
        let created = |name: &str| {
            self.cluster
                .queues
                .iter()
                .find(|queue| queue.name == *name)
                .and_then(|queue| queue.creation_time)
        };
        let seconds = |name: &str| created(name).map_or(0, |time| time.seconds);
        let less = |left: &String, right: &String| {
            let none = OrderKeys::new();
            let order = compare_keys(keys.get(left).unwrap_or(&none), keys.get(right).unwrap_or(&none));
            order.then_with(|| (seconds(left), left).cmp(&(seconds(right), right))) == Ordering::Less
        };
        let queue = queues
            .into_iter()
            .reduce(|first, other| if less(&other, &first) { other } else { first })?;
        let jobs = result.jobs.iter().map(|rank| &rank.name);
        let mut own = jobs.filter(|job| waiting.contains_key(*job) && queue_of(job).as_deref() == Some(queue.as_str()));
        let job = own.next()?.clone();
        Some((queue, job))
    }

    /// First node, in the order of the case, that has capacity.
    fn first_fit(&self, task: &pb::Task) -> Option<String> {
        let reply = self.wire.filter(pb::FilterRequest {
            against: Some(self.evaluation_ref(Vec::new())),
            tasks: vec![pb::Task {
                name: task.name.clone(),
                ..pb::Task::default()
            }],
            resource_fit: pb::ResourceFit::Idle.into(),
            ..pb::FilterRequest::default()
        });
        let item = reply.unwrap().result.unwrap_or_default().items.into_iter().next()?;
        let fit = item.fit.unwrap_or_default().names;
        let mut nodes = self.cluster.nodes.iter().map(|node| &node.name);
        nodes.find(|node| fit.contains(node)).cloned()
    }
}

fn amounts(amounts: &[pb::Amount]) -> BTreeMap<String, f64> {
    amounts
        .iter()
        .map(|amount| (amount.resource.clone(), amount.value))
        .collect()
}

fn is_zero(quantity: &str) -> bool {
    !quantity.contains(|c: char| ('1'..='9').contains(&c))
}

fn placement(task: String, node: String) -> pb::TaskPlacement {
    pb::TaskPlacement {
        task,
        node,
        card: String::new(),
        devices: Vec::new(),
    }
}

/// `namespace/task` of a task that is named with its job.
fn task_name(task: &Value) -> String {
    let job = text(&task["job"]);
    let namespace = job.split('/').next().unwrap_or_default();
    key(&Value::from(namespace), &task["task"])
}

/// Task by stored name, or given whole.
fn requested_task(task: &Value) -> pb::Task {
    let name = task_name(task);
    match cluster::resources(&task["request"]) {
        None => pb::Task {
            name,
            ..pb::Task::default()
        },
        requests => pb::Task {
            name,
            job: text(&task["job"]),
            requests,
            ..pb::Task::default()
        },
    }
}

fn keys(ranks: &[pb::Rank]) -> BTreeMap<String, OrderKeys> {
    let key = |rank: &pb::Rank| rank.keys.iter().flat_map(|key| key.values.iter().copied()).collect();
    ranks.iter().map(|rank| (rank.name.clone(), key(rank))).collect()
}

/// Order of keys under `compatibility: upstream`, as the protocol defines it.
fn compare_keys(left: &[f64], right: &[f64]) -> Ordering {
    let first = left.iter().zip(right).find(|(left, right)| left != right);
    first
        .and_then(|(left, right)| left.partial_cmp(right))
        .unwrap_or(Ordering::Equal)
}

fn compare(keys: &BTreeMap<String, OrderKeys>, row: &Value) -> Value {
    let side = |at: usize| keys.get(&text(&row[at]));
    match (side(0), side(1)) {
        (Some(left), Some(right)) => Value::from(compare_keys(left, right) as i64),
        _ => Value::Null,
    }
}
