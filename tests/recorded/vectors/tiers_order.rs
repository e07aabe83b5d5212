//! Family tiers: orders, votes and victims, at the engine's reduction functions. The results of stubs are given as
//! data; those of drf are requested over gRPC, for drf alone; `priority`, which is not supported, is written out here.

use std::cell::RefCell;
use std::cmp::Ordering;

use pumice::server::pb;
use pumice_engine::decide::reduce_order::{self, TieBreakKey};
use serde_json::Value;

use super::cluster::{self, key, members, text};
use super::{VectorDifferences, VectorHarness, VectorVerdict};
use crate::support::wire::BlockingClients;

/// Judges one case.
pub(crate) fn check(bench: &VectorHarness, case: &Value) -> VectorVerdict {
    let mut tiers = match OrderCase::new(bench.wire(), case) {
        Ok(tiers) => tiers,
        Err(status)
            if case["expect"]["error"]["kind"] == "refused" && status.code() == tonic::Code::InvalidArgument =>
        {
            return VectorVerdict::Pass;
        }
        Err(status) => {
            let mut differences = VectorDifferences::default();
            differences.differ("policy", "taken", &status.to_string());
            return differences.verdict();
        }
    };
    match case["request"]["kind"].as_str().unwrap_or_default() {
        "jobOrder" => tiers.job_order(),
        "queueOrder" => tiers.queue_order(),
        "taskOrder" => tiers.task_order(),
        "vote" => tiers.vote(),
        "evict" => tiers.evict(),
        "victimsQueue" => tiers.victims_queue(),
        other => return VectorVerdict::NotServed(other.to_owned()),
    }
    tiers.differences.verdict()
}

/// Plugin in a tier.
pub(super) struct OrderPlugin<'a> {
    pub(super) name: &'a str,
    entry: &'a Value,
    /// Results of a stub.
    pub(super) stub: Option<&'a Value>,
}

impl<'a> OrderPlugin<'a> {
    pub(super) fn is_on(&self, switch: &str) -> bool {
        switch.is_empty() || self.entry[switch].as_bool().unwrap_or(true)
    }

    pub(super) fn stub_result(&self, switch: &str, hook: &str) -> Option<&'a Value> {
        self.stub?.get(hook).filter(|_| self.is_on(switch))
    }
}

/// Case with the results of real plugins.
pub(super) struct OrderCase<'a> {
    pub(super) wire: &'a BlockingClients,
    pub(super) case: &'a Value,
    pub(super) evaluation_ref: pb::EvaluationRef,
    pub(super) tiers: Vec<Vec<OrderPlugin<'a>>>,
    /// Order of everything, by drf.
    order: pb::OrderResult,
    called_plugins: RefCell<Vec<String>>,
    pub(super) differences: VectorDifferences,
}

impl<'a> OrderCase<'a> {
    fn new(wire: &'a BlockingClients, case: &'a Value) -> Result<Self, tonic::Status> {
        let policy = &case["policy"];
        let stub = |name: &str| members(&policy["stubs"]).iter().find(|stub| stub["name"] == name);
        let plugin = |entry: &'a Value| {
            let name = entry["name"].as_str().unwrap_or_default();
            OrderPlugin {
                name,
                entry,
                stub: stub(name).map(|stub| &stub["answers"]),
            }
        };
        let tier = |tier: &'a Value| members(&tier["plugins"]).iter().map(plugin).collect::<Vec<_>>();
        let tiers: Vec<_> = members(&policy["tiers"]).iter().map(tier).collect();
        let has_drf = tiers.iter().flatten().any(|plugin| plugin.name == "drf");
        let written = if policy["tiers"].is_null() {
            "[]".to_owned()
        } else {
            policy["tiers"].to_string()
        };
        let evaluation_ref = cluster::inline_ref(cluster::cluster(&case["cluster"]), cluster::document(case, &written));
        let order = wire.order(pb::OrderRequest {
            against: Some(evaluation_ref.clone()),
            queues: Some(pb::NameSet::default()),
            jobs: Some(pb::NameSet::default()),
            plugins: has_drf.then(|| "drf".to_owned()).into_iter().collect(),
            ..pb::OrderRequest::default()
        })?;
        Ok(Self {
            wire,
            case,
            evaluation_ref,
            tiers,
            order: order.result.unwrap_or_default(),
            called_plugins: RefCell::default(),
            differences: VectorDifferences::default(),
        })
    }

    fn plugins(&self) -> impl Iterator<Item = &OrderPlugin<'a>> {
        self.tiers.iter().flatten()
    }

    pub(super) fn note(&self, plugin: &OrderPlugin<'_>) {
        self.called_plugins.borrow_mut().push(plugin.name.to_owned());
    }

    pub(super) fn job(&self, name: &str) -> &'a Value {
        let jobs = members(&self.case["cluster"]["jobs"]).iter();
        jobs.into_iter()
            .find(|job| key(&job["namespace"], &job["name"]) == name)
            .unwrap_or(&Value::Null)
    }

    /// Job and task for a reference to a task.
    pub(super) fn task(&self, reference: &str) -> (&'a Value, &'a Value) {
        let (job, name) = reference.split_once('|').unwrap();
        let job = self.job(job);
        let task = members(&job["tasks"]).iter().find(|task| task["name"] == name);
        (job, task.unwrap_or(&Value::Null))
    }

    /// Comparison by the keys of drf.
    fn by_drf(ranks: &[pb::Rank], left: &str, right: &str) -> i64 {
        let key = |name: &str| -> Vec<f64> {
            let rank = ranks.iter().find(|rank| rank.name == name);
            rank.into_iter()
                .flat_map(|rank| &rank.keys)
                .flat_map(|key| key.values.clone())
                .collect()
        };
        reduce_order::compare_keys(&key(left), &key(right)) as i64
    }

    /// Values of a comparison in order.
    pub(super) fn values(&self, switch: &'static str, hook: &'static str, left: &str, right: &str) -> Vec<i64> {
        let value = |plugin: &OrderPlugin<'a>| {
            if let Some(table) = plugin.stub_result(switch, hook) {
                let entry = |left: &str, right: &str| table[format!("{left}|{right}")].as_i64();
                return Some(
                    entry(left, right)
                        .or_else(|| entry(right, left).map(|value| -value))
                        .unwrap_or(0),
                );
            }
            let real = plugin.stub.is_none() && plugin.is_on(switch);
            match (plugin.name, hook) {
                ("drf", "jobOrder") if real => Some(Self::by_drf(&self.order.jobs, left, right)),
                ("drf", "queueOrder") if real => Some(Self::by_drf(&self.order.queues, left, right)),
                ("priority", "jobOrder") if real => {
                    let priority = |job| self.job(job)["priority"].as_i64().unwrap_or(0);
                    Some(priority(right).cmp(&priority(left)) as i64)
                }
                _ => None,
            }
        };
        self.plugins().filter_map(value).collect()
    }

    fn task_values(&self, left: &str, right: &str) -> Vec<i64> {
        let ((_, one), (_, other)) = (self.task(left), self.task(right));
        let name = |task: &Value| text(&task["name"]);
        let priority = |task: &Value| task["priority"].as_i64().unwrap_or(0);
        let value = |plugin: &OrderPlugin<'a>| {
            if let Some(table) = plugin.stub_result("enableTaskOrder", "taskOrder") {
                let entry = |left: &Value, right: &Value| table[format!("{}|{}", name(left), name(right))].as_i64();
                return Some(
                    entry(one, other)
                        .or_else(|| entry(other, one).map(|value| -value))
                        .unwrap_or(0),
                );
            }
            let real = plugin.stub.is_none() && plugin.name == "priority" && plugin.is_on("enableTaskOrder");
            real.then(|| priority(other).cmp(&priority(one)) as i64)
        };
        self.plugins().filter_map(value).collect()
    }

    pub(super) fn task_less(&self, left: &str, right: &str) -> bool {
        let uid = |reference: &str| {
            let (job, task) = self.task(reference);
            key(&job["namespace"], &task["name"])
        };
        let (one, other) = (uid(left), uid(right));
        let age = |name| TieBreakKey {
            creation_time: None,
            name,
        };
        reduce_order::less(self.task_values(left, right), || age(&one).compare_tasks(&age(&other)))
    }

    fn job_less(&self, left: &str, right: &str) -> bool {
        let created = |job: &str| self.job(job)["creationTimestamp"].as_i64();
        let values = self.values("enableJobOrder", "jobOrder", left, right);
        reduce_order::less(values, || tie((created(left), left), (created(right), right)))
    }

    fn queue_less(&self, left: &str, right: &str) -> bool {
        let queues = members(&self.case["cluster"]["queues"]);
        let created = |name: &str| {
            queues
                .iter()
                .find(|queue| queue["name"] == name)
                .and_then(|queue| queue["creationTimestamp"].as_i64())
        };
        let values = self.values("enableQueueOrder", "queueOrder", left, right);
        reduce_order::less(values, || tie((created(left), left), (created(right), right)))
    }

    pub(super) fn victim_queue_less(&self, left: &str, right: &str) -> bool {
        let values = self.values("", "victimQueueOrder", left, right);
        reduce_order::victim_queue_less(values, || self.queue_less(left, right))
    }

    fn subjects(&self) -> Vec<String> {
        members(&self.case["request"]["subjects"]).iter().map(text).collect()
    }

    /// Compares rows `[left, right, value]`.
    fn rows(&mut self, what: &str, got: impl Fn(&Self, &str, &str) -> Value) {
        for row in members(&self.case["expect"][what]) {
            let (left, right) = (text(&row[0]), text(&row[1]));
            let got = got(self, &left, &right);
            self.differences.same(&format!("{what} {left} {right}"), &row[2], &got);
        }
    }

    fn select(&mut self, less: fn(&Self, &str, &str) -> bool) {
        let order = reduce_order::selection_sort(self.subjects(), |left, right| less(self, left, right));
        let expected: Vec<String> = members(&self.case["expect"]["order"]).iter().map(text).collect();
        self.differences.same("order", &expected, &order);
    }

    fn job_order(&mut self) {
        self.rows("compare", |tiers, left, right| {
            reduce_order::compare(tiers.values("enableJobOrder", "jobOrder", left, right)).into()
        });
        self.rows("less", |tiers, left, right| tiers.job_less(left, right).into());
        self.select(Self::job_less);
        self.served_order();
    }

    /// Compares Order where drf alone orders.
    fn served_order(&mut self) {
        if self
            .plugins()
            .any(|plugin| plugin.name != "drf" && plugin.name != "binpack")
        {
            return;
        }
        let reply = self.wire.order(pb::OrderRequest {
            against: Some(self.evaluation_ref.clone()),
            jobs: Some(pb::NameSet { names: self.subjects() }),
            ..pb::OrderRequest::default()
        });
        let order: Vec<String> = reply
            .unwrap()
            .result
            .unwrap_or_default()
            .jobs
            .into_iter()
            .map(|rank| rank.name)
            .collect();
        let expected: Vec<String> = members(&self.case["expect"]["order"]).iter().map(text).collect();
        self.differences.same("order over gRPC", &expected, &order);
    }

    fn queue_order(&mut self) {
        self.rows("less", |tiers, left, right| tiers.queue_less(left, right).into());
        self.rows("victim_less", |tiers, left, right| {
            tiers.victim_queue_less(left, right).into()
        });
        self.select(Self::queue_less);
    }

    fn task_order(&mut self) {
        self.rows("compare", |tiers, left, right| {
            reduce_order::compare(tiers.task_values(left, right)).into()
        });
        self.rows("less", |tiers, left, right| tiers.task_less(left, right).into());
    }

    fn vote(&mut self) {
        let hook = text(&self.case["request"]["hook"]);
        for result in members(&self.case["expect"]["results"]) {
            let subject = text(&result["subject"]);
            self.called_plugins.take();
            let got = self.voted(&hook, &subject);
            self.differences
                .same(&format!("{hook} {subject}"), &result["result"], &got);
            self.compare_called(&result["asked"]);
        }
    }

    pub(super) fn compare_called(&mut self, expected: &Value) {
        let expected: Vec<String> = members(expected).iter().map(text).collect();
        let asked = self.called_plugins.take();
        self.differences.same("asked", &expected, &asked);
    }

    fn voted(&self, hook: &str, subject: &str) -> Value {
        let results = |switch: &'static str| {
            self.plugins().filter_map(move |plugin| {
                let result = plugin.stub_result(switch, hook)?;
                Some((plugin, &result[subject]))
            })
        };
        let bools = |switch, none: bool| {
            results(switch).map(move |(plugin, result)| {
                self.note(plugin);
                result.as_bool().unwrap_or(none)
            })
        };
        let tiers = |switch: &'static str| {
            self.tiers.iter().map(move |tier| {
                tier.iter().filter_map(move |plugin| {
                    let result = plugin.stub_result(switch, hook)?;
                    Some((plugin, &result[subject]))
                })
            })
        };
        let votes = |switch: &'static str| {
            reduce_order::permits(tiers(switch).map(|tier| {
                tier.map(|(plugin, result)| {
                    self.note(plugin);
                    result.as_i64().unwrap_or(0)
                })
            }))
            .into()
        };
        match hook {
            "jobEnqueueable" => votes("enableJobEnqueued"),
            "jobPipelined" => votes("enableJobPipelined"),
            "jobReady" => reduce_order::all(bools("enableJobReady", true)).into(),
            "preemptive" => reduce_order::all(bools("enablePreemptive", true)).into(),
            "allocatable" => reduce_order::all(bools("enabledAllocatable", true)).into(),
            "overused" => reduce_order::any(bools("enabledOverused", false)).into(),
            "jobStarving" => self.starving(subject).into(),
            "jobValid" => {
                let objections = results("").map(|(plugin, result)| {
                    self.note(plugin);
                    (result["pass"] == false).then(|| result.clone())
                });
                reduce_order::objection(objections).unwrap_or(Value::Null)
            }
            _ => {
                let results = self.plugins().filter_map(|plugin| {
                    let result = plugin.stub_result("enableTargetJob", hook)?;
                    self.note(plugin);
                    Some(result.get("job").cloned())
                });
                reduce_order::target(results).unwrap_or(Value::Null)
            }
        }
    }

    fn starving(&self, subject: &str) -> bool {
        const SWITCH: &str = "enableJobStarving";
        let tiers = self.tiers.iter().map(|tier| {
            tier.iter().filter_map(|plugin| match plugin.stub {
                Some(_) => {
                    let result = plugin.stub_result(SWITCH, "jobStarving")?;
                    self.note(plugin);
                    Some(result[subject].as_bool().unwrap_or(false))
                }
                None => (plugin.name == "priority" && plugin.is_on(SWITCH)).then(|| {
                    let tasks = members(&self.job(subject)["tasks"]).iter();
                    tasks.into_iter().any(|task| task["status"] == "Pending")
                }),
            })
        });
        reduce_order::starving(tiers)
    }
}

fn tie(left: (Option<i64>, &str), right: (Option<i64>, &str)) -> Ordering {
    let age = |(creation_time, name)| TieBreakKey { creation_time, name };
    age(left).compare_by_age(&age(right))
}
