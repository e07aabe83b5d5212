//! Family tiers: victims of several plugins, and their order.

use std::collections::BTreeSet;

use pumice::server::pb;
use pumice_engine::decide::reduce_order;
use pumice_engine::decide::reduce_victims::{self, VictimJobs, VictimRelation};
use pumice_engine::policy::Compatibility;
use serde_json::Value;

use super::cluster::{key, members, text};
use super::tier_reductions::victim_tasks;
use super::tiers_order::{OrderCase, OrderPlugin};

/// Vote of a plugin; `None`: it abstains.
struct RecordedVictims(Option<Vec<String>>);

impl OrderCase<'_> {
    fn candidates(&self) -> Vec<String> {
        members(&self.case["request"]["candidates"]).iter().map(text).collect()
    }

    /// Checks victims as the session's functions choose them.
    pub(super) fn evict(&mut self) {
        let hook = text(&self.case["request"]["hook"]);
        let switch = match hook.as_str() {
            "preemptable" => "enablePreemptable",
            "reclaimable" => "enableReclaimable",
            "victimTasks" => "enabledVictim",
            _ => "",
        };
        let victims = if hook == "victimTasks" {
            let tiers = self.tiers.iter().map(|tier| {
                let functions = tier.iter().flat_map(|plugin| {
                    let functions = plugin.stub_result(switch, "victimTasks").map_or(&[][..], members);
                    functions.iter().map(move |list| (plugin, list))
                });
                functions.map(|(plugin, list)| {
                    self.note(plugin);
                    members(list).iter().map(text).collect()
                })
            });
            Some(victim_tasks(tiers)).filter(|victims| !victims.is_empty())
        } else {
            let tiers = self.tiers.iter().map(|tier| {
                let choices = tier.iter().filter_map(|plugin| self.choice(plugin, switch, &hook));
                choices.map(|RecordedVictims(victims)| victims)
            });
            reduce_victims::victims(tiers, Compatibility::UPSTREAM)
        };
        let expect = &self.case["expect"];
        let recorded = expect["victims"]
            .as_array()
            .map(|victims| victims.iter().map(text).collect::<Vec<_>>());
        if hook == "victimTasks" {
            let set =
                |victims: Option<Vec<String>>| victims.map(|victims| victims.into_iter().collect::<BTreeSet<_>>());
            self.differences.same("victims", &set(recorded), &set(victims));
        } else {
            self.differences.same("victims", &recorded, &victims);
        }
        self.compare_called(&expect["asked"]);
    }

    /// Vote of a plugin; `None`: it has no such hook.
    fn choice(&self, plugin: &OrderPlugin<'_>, switch: &str, hook: &str) -> Option<RecordedVictims> {
        if plugin.stub.is_some() {
            let result = plugin.stub_result(switch, hook)?;
            self.note(plugin);
            let list = members(&result["victims"]).iter().map(text).collect();
            return Some(RecordedVictims((result["vote"] != 0).then_some(list)));
        }
        if !plugin.is_on(switch) {
            return None;
        }
        match (plugin.name, hook) {
            ("drf", "preemptable") => Some(RecordedVictims(self.drf_victims(pb::VictimKind::Preempt))),
            ("drf", "reclaimable") => Some(RecordedVictims(self.drf_victims(pb::VictimKind::Reclaim))),
            ("priority", "preemptable") => Some(RecordedVictims(Some(self.priority_victims()))),
            _ => None,
        }
    }

    fn drf_victims(&self, kind: pb::VictimKind) -> Option<Vec<String>> {
        let stored = |reference: &str| {
            let (job, task) = self.task(reference);
            pb::Task {
                name: key(&job["namespace"], &task["name"]),
                ..pb::Task::default()
            }
        };
        let candidates = self.candidates();
        let reply = self.wire.select_victims(pb::SelectVictimsRequest {
            against: Some(self.evaluation_ref.clone()),
            kind: kind.into(),
            groups: vec![pb::VictimGroup {
                preemptor: Some(stored(&text(&self.case["request"]["preemptor"]))),
                candidates: candidates.iter().map(|candidate| stored(candidate)).collect(),
                ..pb::VictimGroup::default()
            }],
            plugins: vec!["drf".to_owned()],
            ..pb::SelectVictimsRequest::default()
        });
        let item = reply
            .unwrap()
            .result
            .unwrap_or_default()
            .items
            .into_iter()
            .next()
            .unwrap_or_default();
        let vote = item.votes.into_iter().next()?;
        let chosen = vote
            .victims
            .iter()
            .filter_map(|position| candidates.get(*position as usize).cloned());
        (!vote.abstained).then(|| chosen.collect())
    }

    fn priority_victims(&self) -> Vec<String> {
        let (job, task) = self.task(self.case["request"]["preemptor"].as_str().unwrap_or_default());
        let priority = |record: &Value| record["priority"].as_i64().unwrap_or(0);
        let lower = |reference: &String| {
            let (other_job, other) = self.task(reference);
            if std::ptr::eq(job, other_job) {
                priority(other) < priority(task)
            } else {
                priority(other_job) < priority(job)
            }
        };
        self.candidates().into_iter().filter(lower).collect()
    }

    /// Checks the order of victims.
    pub(super) fn victims_queue(&mut self) {
        let job_of = |reference: &str| reference.split('|').next().unwrap_or_default().to_owned();
        let queue_of = |reference: &str| text(&self.job(&job_of(reference))["queue"]);
        let less = |left: &String, right: &String| {
            let (one, other) = (job_of(left), job_of(right));
            let (own, their) = (queue_of(left), queue_of(right));
            let relation = if one == other {
                VictimRelation::SameJob
            } else if own == their {
                VictimRelation::SameQueue
            } else {
                VictimRelation::OtherQueue
            };
            reduce_victims::evicted_first(
                relation,
                || self.task_less(left, right),
                || {
                    VictimJobs::Compared(reduce_order::compare(self.values(
                        "enableJobOrder",
                        "jobOrder",
                        &one,
                        &other,
                    )))
                },
                || self.victim_queue_less(&own, &their),
            )
        };
        let order = reduce_victims::heap_order(self.candidates(), less);
        let expected: Vec<String> = members(&self.case["expect"]["order"]).iter().map(text).collect();
        self.differences.same("order", &expected, &order);
    }
}
