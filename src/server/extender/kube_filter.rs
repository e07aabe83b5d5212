//! Filter of kube-scheduler's extender protocol, and the hold that it leaves behind.
//!
//! kube-scheduler chooses a node from the response and sends the next pod before the first pod is visibly bound. The
//! server therefore *holds* each pod that it offers nodes to: it assumes the pod on the best node. Queues are charged
//! for the pod once, for every caller. The hold ends when the pod's source reports the pod as placed, ended or deleted,
//! when kube-scheduler sends the pod again, or with its lease.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::{Instant, sleep};

use super::asked_nodes::{AskedNodes, read_nodes_message};
use super::asked_pod::AskedPod;
use super::node_verdicts::{NodeVerdict, RequestVerdicts};
use super::offers::Offer;
use super::requests::{check_problem, latest, latest_base, reason_text};
use super::scored_nodes::ScoredNodes;
use super::{ExtenderFront, ResponseMode};
use crate::server::pb;
use crate::server::status::{CallError, RpcResult};
use crate::server::worker_pool::{CancellationToken, HeldWorker};
use pumice_engine::Snapshot;
use pumice_engine::decide;
use pumice_engine::model::{ErrorCode, TaskRecord, TaskStatus};
use pumice_engine::plugin::{PluginContext, Resolution};
use pumice_state::{CommitRejection, TaskHold, policy_in_snapshot};

/// Nodes on which a hold is tried: where the best ones refuse a pod for its queue, the others do as well.
const HOLD_NODES: usize = 16;
/// Name of the holder of all holds, in place of a session id.
pub(super) const HOLDER: &str = "kube-scheduler-extender";
/// Time between two looks for a pod that its source has not reported.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Number of times that a request is asked again because its nodes have got other slots.
const TABLE_CHANGES: usize = 3;
/// Text in a rejection that only holds cause.
const BY_HOLDS: &str = " (counting pods that were offered nodes and are not seen bound yet)";

/// Status of the pod of a request in the state.
pub(super) enum AskedPodStatus {
    /// The pod waits for a node; true: the pod is held.
    Waiting(Arc<TaskRecord>, bool),
    /// According to its source, the pod is on this node or has ended.
    Placed(Arc<str>),
    /// Sources have not reported the pod yet; only a dry run continues.
    Unknown,
}

/// Fitting nodes that a pod is offered.
enum PodOffer {
    All,
    One(Arc<str>),
    /// None, for this reason.
    None(NodeVerdict),
}

impl ExtenderFront {
    pub(super) async fn filter(self: &Arc<Self>, policy: &str, body: &Bytes, mode: ResponseMode) -> RpcResult<Vec<u8>> {
        let (pod, nodes) = self.read_message(body, read_nodes_message).await?;
        let verdicts = self.verdicts(policy, &pod, &nodes, mode).await?;
        self.read_message(body, move |_| Ok(verdicts.response(&nodes))).await
    }

    /// Verdict on each node of a request. The pod is held if it fits somewhere.
    async fn verdicts(
        self: &Arc<Self>,
        policy: &str,
        pod: &AskedPod,
        nodes: &AskedNodes,
        mode: ResponseMode,
    ) -> RpcResult<RequestVerdicts> {
        let status = self.status(pod, mode).await?;
        let scored = self.score(policy, pod, nodes, &status).await?;
        let offer = match (&status, mode) {
            (AskedPodStatus::Placed(_), _) | (AskedPodStatus::Unknown, ResponseMode::Hold) => PodOffer::All,
            (AskedPodStatus::Waiting(..) | AskedPodStatus::Unknown, ResponseMode::DryRun) => {
                self.preview(policy, pod).await?
            }
            (AskedPodStatus::Waiting(task, held), ResponseMode::Hold) => {
                self.offer(policy, task, *held, &scored).await?
            }
        };
        if mode == ResponseMode::Hold {
            self.offers.put(Offer {
                key: pod.offer_key(policy),
                scores: scored.scaled(self.scale(policy)?),
            });
        }
        let mut verdicts = scored.verdicts();
        match offer {
            PodOffer::All => {}
            PodOffer::One(node) => {
                let elsewhere = format!("pumice: the pod's devices are held on node {node}");
                let own = scored.slot_of(&node);
                let others = scored.fitting().map(|(slot, _)| slot);
                let others = others.filter(|slot| Some(*slot) != own);
                verdicts.reject(NodeVerdict::Fails(elsewhere.into()), others);
            }
            PodOffer::None(verdict) => verdicts.reject_fitting(verdict),
        }
        Ok(verdicts)
    }

    /// Holds a pod on the best of its fitting nodes, unless it is held on one of them already.
    async fn offer(
        self: &Arc<Self>,
        policy: &str,
        task: &TaskRecord,
        held: bool,
        scored: &ScoredNodes,
    ) -> RpcResult<PodOffer> {
        let keeps = held && scored.fits(&task.node);
        let best = scored.best(HOLD_NODES);
        let node = if keeps {
            Ok(Some(Arc::clone(&task.node)))
        } else if best.is_empty() && !held {
            Ok(None)
        } else {
            self.hold(policy, task, best).await?
        };
        Ok(match node {
            // Which devices are left depends on the node that the pod goes to, so that it is offered no other.
            Ok(Some(node)) if task.device_request().is_some() => PodOffer::One(node),
            Ok(_) => PodOffer::All,
            Err(rejection) => PodOffer::None(self.verdict_of_rejection(policy, task, &rejection).await),
        })
    }

    /// Status of the pod in the state. Waits for a pod that its source has not reported yet.
    ///
    /// # Errors
    /// The source does not report the pod in time.
    pub(super) async fn status(&self, pod: &AskedPod, mode: ResponseMode) -> RpcResult<AskedPodStatus> {
        let wait = self.edge.read_options.limits.extender_wait;
        let start = Instant::now();
        loop {
            if let Some(status) = pod_status(&self.edge.state.snapshot(), pod) {
                return Ok(status);
            }
            if mode == ResponseMode::DryRun {
                return Ok(AskedPodStatus::Unknown);
            }
            if start.elapsed() >= wait {
                let message = format!(
                    "pod `{}` is not known: no source has reported this incarnation of it within limit `extender_wait_ms` \
                     ({}); run the server with a source of pods, such as `pumice state sync`",
                    pod.name,
                    wait.as_millis()
                );
                return Err(CallError::new(ErrorCode::PodUnknown, message));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Filters and scores the nodes of a request that the state has; a held pod as if it were not.
    pub(super) async fn score(
        self: &Arc<Self>,
        policy: &str,
        pod: &AskedPod,
        nodes: &AskedNodes,
        status: &AskedPodStatus,
    ) -> RpcResult<ScoredNodes> {
        let mut changes: usize = 0;
        loop {
            match self.score_once(policy, pod, nodes, status).await {
                Err(error) if matches!(error.error_code(), ErrorCode::NodeTableChanged | ErrorCode::NodeUnknown) => {
                    changes = changes.saturating_add(1);
                    if changes == TABLE_CHANGES {
                        return Err(error);
                    }
                }
                scored => return scored,
            }
        }
    }

    async fn score_once(
        self: &Arc<Self>,
        policy: &str,
        pod: &AskedPod,
        nodes: &AskedNodes,
        status: &AskedPodStatus,
    ) -> RpcResult<ScoredNodes> {
        let mut scored = ScoredNodes::find(self.edge.state.snapshot(), nodes)?;
        let Some(candidates) = scored.candidates() else {
            return Ok(scored);
        };
        let mut task = pod.task();
        if let AskedPodStatus::Waiting(known, _) = status {
            // What a record has from others, such as its owners, the pod alone does not tell.
            task.job = known.job.to_string();
        }
        let request = pb::ScoreRequest {
            tasks: vec![task],
            candidates: Some(candidates),
            resource_fit: pb::ResourceFit::None.into(),
            node_encoding: pb::NodeEncoding::Slots.into(),
            with_filter: true,
            filter_detail: pb::FilterDetail::Nodes.into(),
            samples: Some(0),
            ..pb::ScoreRequest::default()
        };
        let (session, against) = match status {
            AskedPodStatus::Waiting(known, true) => {
                let (session, against) = self.session_without(policy, known).await?;
                (Some(session), against)
            }
            AskedPodStatus::Waiting(_, false) | AskedPodStatus::Placed(_) | AskedPodStatus::Unknown => {
                (None, latest(policy))
            }
        };
        let against = pb::EvaluationRef {
            node_table: Some(scored.table()),
            ..against
        };
        let decided = self.ask(request, against).await;
        if let Some(session) = session {
            // A session that is gone needs no end.
            let _ = self.edge.state.close_session(&session);
        }
        let mut items = decided?.result.unwrap_or_default().items;
        let item = items.pop().unwrap_or_default();
        check_problem(ErrorCode::PodUnreadable, item.problem.as_ref())?;
        scored.item = item;
        Ok(scored)
    }

    /// Session on the newest state in which a held pod has no node.
    async fn session_without(
        self: &Arc<Self>,
        policy: &str,
        task: &TaskRecord,
    ) -> RpcResult<(Arc<str>, pb::EvaluationRef)> {
        let session = self.open_session(latest_base(policy)).await?;
        let change = pb::SessionChange {
            change: Some(pb::session_change::Change::BindFailed(task.name.to_string())),
        };
        let step = pb::SessionRef {
            id: session.to_string(),
            after: 0,
            changes: vec![change],
        };
        let against = pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Session(step)),
            ..pb::EvaluationRef::default()
        };
        Ok((session, against))
    }

    /// Holds a pod on the best of the given nodes. Without nodes: ends its hold. Returns the node, or the reason why
    /// the best node rejects the pod.
    pub(super) async fn hold(
        self: &Arc<Self>,
        policy: &str,
        task: &TaskRecord,
        nodes: Vec<Arc<str>>,
    ) -> RpcResult<Result<Option<Arc<str>>, CommitRejection>> {
        let hold = TaskHold {
            task: Arc::clone(&task.name),
            uid: task.uid.clone(),
            job: Arc::clone(&task.job),
            nodes,
            policy: (policy.into(), Arc::default()),
            holder: HOLDER.into(),
            lease: self.edge.read_options.limits.extender_hold,
        };
        let edge = Arc::clone(&self.edge);
        let work = move |worker: HeldWorker, _: &CancellationToken| Ok(edge.state.hold_task(hold, || drop(worker))?);
        self.edge.workers.queries.run_to_disk(work).await
    }

    /// Offer to a pod by the policy's admission alone.
    async fn preview(self: &Arc<Self>, policy: &str, pod: &AskedPod) -> RpcResult<PodOffer> {
        if !pod.names_job() {
            return Ok(PodOffer::All);
        }
        let subject = pb::AdmitSubject {
            subject: Some(pb::admit_subject::Subject::Task(pod.task())),
            ..pb::AdmitSubject::default()
        };
        let request = pb::AdmitRequest {
            against: Some(latest(policy)),
            items: vec![subject],
            ..pb::AdmitRequest::default()
        };
        let answered = Arc::clone(&self.edge).admit(tonic::Request::new(request)).await?;
        let item = answered.result.unwrap_or_default().items.pop().unwrap_or_default();
        if item.permitted {
            return Ok(PodOffer::All);
        }
        let text = match (item.reasons.into_iter().next(), item.problem) {
            (Some(reason), _) => reason_text(&reason),
            (None, problem) => format!("pumice: {}", problem.unwrap_or_default().message),
        };
        Ok(PodOffer::None(NodeVerdict::Fails(text.into())))
    }

    /// Verdict on all nodes where a hold was refused.
    async fn verdict_of_rejection(
        self: &Arc<Self>,
        policy: &str,
        task: &TaskRecord,
        rejection: &CommitRejection,
    ) -> NodeVerdict {
        let reason = &rejection.reason;
        let (edge, name, policy_name) = (Arc::clone(&self.edge), Arc::clone(&task.name), policy.to_owned());
        // Without an answer, the refusal says nothing of holds.
        let by_holds = self.edge.workers.queries.run(move |_| {
            let snapshot = edge.state.snapshot();
            Ok(is_admitted_without_holds(&snapshot, &policy_name, &name))
        });
        let by_holds = if by_holds.await.unwrap_or(false) { BY_HOLDS } else { "" };
        let text = Arc::from(format!("{}: {}{by_holds}", reason.plugin, reason.message));
        match reason.resolution {
            Resolution::Unresolvable if by_holds.is_empty() => NodeVerdict::NeverFits(text),
            Resolution::Unresolvable | Resolution::Unschedulable => NodeVerdict::Fails(text),
        }
    }
}

/// Status of a pod in a snapshot. `None`: the snapshot does not have this incarnation.
fn pod_status(snapshot: &Snapshot, pod: &AskedPod) -> Option<AskedPodStatus> {
    let stored = snapshot.state.tasks().get(pod.name.as_str())?;
    let record = &stored.record;
    let same = pod.uid.is_empty() || record.uid.is_empty() || record.uid.to_string() == pod.uid;
    if !same {
        return None;
    }
    let held = snapshot.state.is_assumed(&pod.name);
    Some(if held || record.status == TaskStatus::Pending {
        AskedPodStatus::Waiting(Arc::new(record.clone()), held)
    } else {
        AskedPodStatus::Placed(Arc::clone(&record.node))
    })
}

/// True if the policy would admit the task without all assumed placements.
fn is_admitted_without_holds(snapshot: &Snapshot, policy: &str, task: &str) -> bool {
    let policy = policy_in_snapshot(snapshot, policy, "");
    let (Ok(policy), Some(stored)) = (policy, snapshot.state.tasks().get(task)) else {
        return false;
    };
    if snapshot.state.assumed_count() == 0 {
        return false;
    }
    let without_node = |record: &TaskRecord| TaskRecord {
        status: TaskStatus::Pending,
        node: Arc::default(),
        ..record.clone()
    };
    let mut state = snapshot.state.clone();
    let held = snapshot
        .state
        .tasks()
        .iter()
        .filter(|(name, _)| snapshot.state.is_assumed(name));
    for (_, held) in held {
        state.put_task(without_node(&held.record), &held.source);
    }
    let plugin_states = policy.policy.compute_plugin_states(&state);
    let context = PluginContext::new(&state, &plugin_states, None);
    decide::admit_task(context, &policy.policy, &without_node(&stored.record))
        .is_ok_and(|admission| admission.permitted)
}
