//! Preempt of kube-scheduler's extender protocol: which of kube-scheduler's own choices of victims the policy permits.
//!
//! An extender can remove nodes from the choice but cannot choose other victims. A node stays if the policy permits
//! each of its victims. If the policy has no plugin for victims, or the preemptor's job is unknown, all nodes stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::ExtenderFront;
use super::asked_pod::AskedPod;
use super::requests::{check_problem, latest, read_json, to_json};
use crate::server::pb;
use crate::server::status::RpcResult;
use crate::server::worker_pool::CancellationToken;
use pumice_engine::Snapshot;
use pumice_engine::model::ErrorCode;

/// Request of preempt: victims by node, as whole pods or by uid.
#[derive(Debug, Deserialize)]
struct PreemptMessage<'b> {
    #[serde(rename = "Pod", borrow)]
    pod: &'b RawValue,
    #[serde(rename = "NodeNameToVictims", default)]
    victims: Option<VictimsByNode>,
    #[serde(rename = "NodeNameToMetaVictims", default)]
    meta_victims: Option<VictimsByNode>,
}

type VictimsByNode = BTreeMap<String, Option<Victims>>;

/// Victims on one node: whole pods in the request, uids in the response.
#[derive(Debug, Deserialize, Serialize)]
struct Victims {
    #[serde(rename = "Pods", default)]
    pods: Option<Vec<VictimPod>>,
    #[serde(rename = "NumPDBViolations", default)]
    violations: i64,
}

#[derive(Debug, Deserialize, Serialize)]
struct VictimPod {
    #[serde(rename = "UID", default)]
    uid: String,
    #[serde(default, skip_serializing)]
    metadata: VictimMetadata,
}

#[derive(Debug, Default, Deserialize)]
struct VictimMetadata {
    #[serde(default)]
    uid: String,
}

#[derive(Debug, Serialize)]
struct PreemptResponse {
    #[serde(rename = "NodeNameToMetaVictims")]
    meta_victims: BTreeMap<String, Victims>,
}

fn read_preempt(body: &Bytes) -> RpcResult<(AskedPod, BTreeMap<String, Victims>)> {
    let message: PreemptMessage<'_> = read_json(body)?;
    let pod = AskedPod::read(message.pod)?;
    // kube-scheduler sends one of the two, by nodeCacheCapable, and reads uids only.
    let sent = message.meta_victims.filter(|victims| !victims.is_empty());
    let sent = sent.or(message.victims).unwrap_or_default().into_iter();
    let mut of_nodes: BTreeMap<String, Victims> = sent.filter_map(|(node, own)| Some((node, own?))).collect();
    for victims in of_nodes.values_mut() {
        for pod in victims.pods.get_or_insert_default() {
            if pod.uid.is_empty() {
                pod.uid = std::mem::take(&mut pod.metadata.uid);
            }
        }
    }
    Ok((pod, of_nodes))
}

impl ExtenderFront {
    pub(super) async fn preempt(self: &Arc<Self>, policy: &str, body: &Bytes) -> RpcResult<Vec<u8>> {
        let (pod, mut of_nodes) = self.read_message(body, read_preempt).await?;
        let snapshot = self.edge.state.snapshot();
        let job = snapshot
            .state
            .tasks()
            .get(pod.name.as_str())
            .map(|stored| Arc::clone(&stored.record.job));
        let job = job.filter(|job| snapshot.state.jobs().contains(job));
        if let Some(job) = job {
            let uids: BTreeSet<String> = of_nodes.values().flat_map(victim_uids).map(str::to_owned).collect();
            // All tasks are looked at.
            let find = move |_: &CancellationToken| Ok(tasks_of_uids(&snapshot, &uids));
            let names = self.edge.workers.queries.run(find).await?;
            let request = pb::SelectVictimsRequest {
                kind: pb::VictimKind::Preempt.into(),
                groups: victim_groups(&names, &pod, &job, &of_nodes),
                ..pb::SelectVictimsRequest::default()
            };
            let items = self
                .ask(request, latest(policy))
                .await?
                .result
                .unwrap_or_default()
                .items;
            let nodes: Vec<String> = of_nodes.keys().cloned().collect();
            for (node, item) in nodes.iter().zip(&items) {
                check_problem(ErrorCode::VictimsNotEvaluated, item.problem.as_ref())?;
                let judged = item.votes.iter().any(|vote| !vote.abstained);
                let whole = of_nodes.get(node).map_or(0, |victims| victim_uids(victims).count());
                // A victim that the state does not have is one that no plugin permits.
                if judged && item.victims.len() < whole {
                    of_nodes.remove(node);
                }
            }
        }
        Ok(to_json(&PreemptResponse { meta_victims: of_nodes }))
    }
}

/// Uids of the victims on one node.
fn victim_uids(victims: &Victims) -> impl Iterator<Item = &str> {
    victims.pods.iter().flatten().map(|pod| pod.uid.as_str())
}

/// Names of the tasks that have these uids, by uid.
fn tasks_of_uids(snapshot: &Snapshot, uids: &BTreeSet<String>) -> BTreeMap<String, String> {
    let named = snapshot.state.tasks().iter();
    let named = named.map(|(name, stored)| (stored.record.uid.to_string(), name));
    named
        .filter(|(uid, _)| uids.contains(uid))
        .map(|(uid, name)| (uid, name.to_string()))
        .collect()
}

/// One group per node: the preemptor, and kube-scheduler's victims that the state has as candidates.
fn victim_groups(
    names: &BTreeMap<String, String>,
    pod: &AskedPod,
    job: &str,
    of_nodes: &BTreeMap<String, Victims>,
) -> Vec<pb::VictimGroup> {
    let preemptor = pb::Task {
        job: job.to_owned(),
        ..pod.task()
    };
    let candidate = |uid: &str| {
        Some(pb::Task {
            name: names.get(uid)?.clone(),
            ..pb::Task::default()
        })
    };
    let group = |(node, victims): (&String, &Victims)| pb::VictimGroup {
        preemptor: Some(preemptor.clone()),
        node: node.clone(),
        candidates: victim_uids(victims).filter_map(candidate).collect(),
        ..pb::VictimGroup::default()
    };
    of_nodes.iter().map(group).collect()
}
