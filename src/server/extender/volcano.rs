//! Volcano's extender protocol: one session of the scheduler per path; its verbs query and change the session.
//!
//! The scheduler's plugin runs without any policy if opening a session fails. Therefore the server always responds to
//! opening with success. A session that could not be opened is *poisoned*: every later verb rejects with the reason, or
//! abstains if a rejection would discard the choice of other plugins.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use pumice_engine::cycle::{SessionChange, TaskPlacement};
use pumice_engine::model::ErrorCode;
use pumice_state::{SessionBase, policy_in_snapshot};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::requests::{
    check_problem, latest_base, node_set, problem_text, read_json, reason_text, to_json, unreadable,
};
use super::volcano_messages::{
    EventMessage, ExtenderTask, JobMessage, PredicateMessage, PrioritizeMessage, QueueMessage, VictimsMessage,
    VictimsResponse,
};
use super::volcano_nodes::state_with_nodes;
use super::volcano_sessions::{ADDRESS_SCHEDULERS, MAX_SCHEDULERS, SchedulerPath, VolcanoSession};
use super::{ExtenderFront, HttpError, error_text};
use crate::server::decision_call::DecisionCall;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult};

/// Codes of Volcano's statuses (pkg/scheduler/api).
const CODE_ERROR: i32 = 1;
const CODE_UNSCHEDULABLE: i32 = 2;
const CODE_UNRESOLVABLE: i32 = 3;
/// Votes of Volcano's plugins.
const PERMIT: i32 = 1;
const ABSTAIN: i32 = 0;
const REJECT: i32 = -1;

/// Verb of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolcanoVerb {
    OnSessionOpen,
    OnSessionClose,
    Predicate,
    Prioritize,
    Preemptable,
    Reclaimable,
    JobEnqueueable,
    JobEnqueued,
    QueueOverused,
    JobReady,
    AllocateFunc,
    DeallocateFunc,
}

/// Verbs by their paths.
pub(super) const VOLCANO_VERBS: &[(&str, VolcanoVerb)] = &[
    ("volcano/onSessionOpen", VolcanoVerb::OnSessionOpen),
    ("volcano/onSessionClose", VolcanoVerb::OnSessionClose),
    ("volcano/predicate", VolcanoVerb::Predicate),
    ("volcano/prioritize", VolcanoVerb::Prioritize),
    ("volcano/preemptable", VolcanoVerb::Preemptable),
    ("volcano/reclaimable", VolcanoVerb::Reclaimable),
    ("volcano/jobEnqueueable", VolcanoVerb::JobEnqueueable),
    ("volcano/jobEnqueued", VolcanoVerb::JobEnqueued),
    ("volcano/queueOverused", VolcanoVerb::QueueOverused),
    ("volcano/jobReady", VolcanoVerb::JobReady),
    ("volcano/allocateFunc", VolcanoVerb::AllocateFunc),
    ("volcano/deallocateFunc", VolcanoVerb::DeallocateFunc),
];

impl ExtenderFront {
    /// Answers a request: the outcome for the metrics, and the JSON to send.
    pub(super) async fn respond_volcano(
        self: &Arc<Self>,
        path: &SchedulerPath,
        verb: VolcanoVerb,
        request: Request<Body>,
    ) -> Result<(&'static str, Vec<u8>), HttpError> {
        let address = request.extensions().get::<IpAddr>().copied();
        let body = self.read_body(request).await;
        if verb == VolcanoVerb::OnSessionOpen {
            let opened = match body {
                Ok(body) => self
                    .open_with_nodes(path, &body.bytes)
                    .await
                    .map_err(|error| error_text(&error)),
                Err((_, text)) => Err(text),
            };
            let outcome = if opened.is_ok() { "Ok" } else { "Poisoned" };
            self.put_session(path, opened, address);
            return Ok((outcome, b"{}".to_vec()));
        }
        let body = body?;
        if verb == VolcanoVerb::OnSessionClose {
            self.end_sessions(self.volcano.close(path));
            return Ok(("Ok", b"{}".to_vec()));
        }
        match self.ask_volcano(path, verb, &body.bytes).await {
            Ok(json) => Ok(("Ok", json)),
            Err(error) => {
                let text = error_text(&error);
                match rejected_response(verb, &text) {
                    Some(json) => Ok((error.reason(), json)),
                    None => Err((StatusCode::SERVICE_UNAVAILABLE, text)),
                }
            }
        }
    }

    /// Opens a session on the newest state, with the nodes of the body.
    async fn open_with_nodes(self: &Arc<Self>, path: &SchedulerPath, body: &Bytes) -> RpcResult<Arc<str>> {
        let snapshot = self.edge.state.snapshot();
        let (known, edge) = (Arc::clone(&snapshot), Arc::clone(&self.edge));
        let read = move |body: &Bytes| state_with_nodes(&known.state, body, &edge.read_options);
        let base = match self.read_message(body, read).await? {
            None => latest_base(&path.policy),
            Some(cluster_state) => SessionBase::Inline {
                cluster_state: Box::new(cluster_state),
                policy: policy_in_snapshot(&snapshot, &path.policy, "")?,
            },
        };
        self.open_session(base).await
    }

    /// Ends sessions in the state. One that is gone needs no end.
    fn end_sessions(&self, sessions: impl IntoIterator<Item = VolcanoSession>) {
        for session in sessions {
            if let VolcanoSession::Open(id) = session {
                let _ = self.edge.state.close_session(&id);
            }
        }
    }

    /// Puts the session of a path in the place of the one before.
    fn put_session(&self, path: &SchedulerPath, opened: Result<Arc<str>, String>, address: Option<IpAddr>) {
        let session = match opened {
            Ok(id) => VolcanoSession::Open(id),
            Err(text) => {
                tracing::warn!(
                    scheduler = path.scheduler,
                    reason = text,
                    "a session of Volcano is poisoned"
                );
                VolcanoSession::Poisoned(text.into())
            }
        };
        match self.volcano.put(path, session.clone(), address, Instant::now()) {
            Ok(over) => self.end_sessions(over),
            Err(limit) => {
                tracing::warn!(
                    scheduler = path.scheduler,
                    limit,
                    "too many names of schedulers: the session of a new one is not kept"
                );
                self.end_sessions([session]);
            }
        }
    }

    /// The session of a path, as it is now.
    fn session_of(&self, path: &SchedulerPath) -> RpcResult<pb::SessionRef> {
        match self.volcano.get(path) {
            Some(VolcanoSession::Open(id)) => Ok(pb::SessionRef {
                after: self.edge.state.applied_through(&id).unwrap_or(0),
                id: id.to_string(),
                changes: Vec::new(),
            }),
            Some(VolcanoSession::Poisoned(text)) => Err(CallError::new(ErrorCode::SessionPoisoned, text.to_string())),
            Some(VolcanoSession::Closed) | None => {
                let message = format!(
                    "scheduler `{}` has opened no session: set onSessionOpenVerb; a server keeps {MAX_SCHEDULERS} names of \
                     schedulers, {ADDRESS_SCHEDULERS} of one address",
                    path.scheduler
                );
                Err(CallError::new(ErrorCode::SessionMissing, message))
            }
        }
    }

    fn against(&self, path: &SchedulerPath) -> RpcResult<pb::EvaluationRef> {
        let session = self.session_of(path)?;
        Ok(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Session(session)),
            ..pb::EvaluationRef::default()
        })
    }

    async fn decide_in<C: DecisionCall>(self: &Arc<Self>, path: &SchedulerPath, call: C) -> RpcResult<C::Response> {
        let against = self.against(path)?;
        self.ask(call, against).await
    }

    async fn ask_volcano(
        self: &Arc<Self>,
        path: &SchedulerPath,
        verb: VolcanoVerb,
        body: &Bytes,
    ) -> RpcResult<Vec<u8>> {
        match verb {
            VolcanoVerb::OnSessionOpen | VolcanoVerb::OnSessionClose => Ok(b"{}".to_vec()),
            VolcanoVerb::Predicate => self.predicate(path, body).await,
            VolcanoVerb::Prioritize => self.volcano_scores(path, body).await,
            VolcanoVerb::Preemptable => self.victims(path, body, pb::VictimKind::Preempt).await,
            VolcanoVerb::Reclaimable => self.victims(path, body, pb::VictimKind::Reclaim).await,
            VolcanoVerb::JobEnqueueable => self.job_enqueueable(path, body).await,
            VolcanoVerb::JobEnqueued => {
                let message: JobMessage = self.read_message(body, |body| read_json(body)).await?;
                self.change(path, SessionChange::JobEnqueued(message.job.uid.into()))
                    .await?;
                Ok(b"{}".to_vec())
            }
            VolcanoVerb::QueueOverused => self.queue_overused(path, body).await,
            VolcanoVerb::JobReady => self.job_ready(path, body).await,
            VolcanoVerb::AllocateFunc => self.event(path, body, allocated).await,
            VolcanoVerb::DeallocateFunc => {
                let undone = |task: &ExtenderTask| SessionChange::Unallocate(task.record_name().into());
                self.event(path, body, undone).await
            }
        }
    }

    async fn predicate(self: &Arc<Self>, path: &SchedulerPath, body: &Bytes) -> RpcResult<Vec<u8>> {
        let message: PredicateMessage = read_json(body)?;
        let request = pb::FilterRequest {
            tasks: vec![message.task.task()],
            candidates: Some(node_set([message.node.name])),
            resource_fit: pb::ResourceFit::None.into(),
            ..pb::FilterRequest::default()
        };
        let answered = self.decide_in(path, request).await?;
        let item = answered.result.unwrap_or_default().items.pop().unwrap_or_default();
        let (status, code) = match (item.problem, item.rejections.into_iter().next()) {
            (Some(problem), _) => (problem_text(&problem), CODE_ERROR),
            (None, None) => (String::new(), 0),
            (None, Some(rejection)) => {
                let reason = rejection.reason.unwrap_or_default();
                let code = match reason.resolution() {
                    pb::Resolution::Unresolvable => CODE_UNRESOLVABLE,
                    pb::Resolution::Unschedulable | pb::Resolution::Unspecified => CODE_UNSCHEDULABLE,
                };
                (reason_text(&reason), code)
            }
        };
        Ok(to_json(&json!({ "status": status, "code": code })))
    }

    async fn volcano_scores(self: &Arc<Self>, path: &SchedulerPath, body: &Bytes) -> RpcResult<Vec<u8>> {
        let message: PrioritizeMessage = self.read_message(body, |body| read_json(body)).await?;
        let request = pb::ScoreRequest {
            tasks: vec![message.task.task()],
            candidates: Some(node_set(message.nodes.into_iter().map(|node| node.name))),
            ..pb::ScoreRequest::default()
        };
        let answered = self.decide_in(path, request).await?;
        let item = answered.result.unwrap_or_default().items.pop().unwrap_or_default();
        check_problem(ErrorCode::PodUnreadable, item.problem.as_ref())?;
        let names = item.nodes.unwrap_or_default().names;
        let scores: BTreeMap<String, f64> = names.into_iter().zip(item.totals).collect();
        Ok(to_json(&json!({ "nodeScore": scores, "errorMessage": "" })))
    }

    async fn victims(self: &Arc<Self>, path: &SchedulerPath, body: &Bytes, kind: pb::VictimKind) -> RpcResult<Vec<u8>> {
        let message: VictimsMessage<'_> = read_json(body)?;
        let evictees = message.evictees.unwrap_or_default();
        let read_task = |raw: &&RawValue| {
            let task: Result<ExtenderTask, _> = serde_json::from_str(raw.get());
            task.map_err(|error| unreadable("evictees", &error))
        };
        let candidates: Vec<ExtenderTask> = evictees.iter().map(read_task).collect::<Result<_, _>>()?;
        let request = pb::SelectVictimsRequest {
            kind: kind.into(),
            groups: vec![pb::VictimGroup {
                preemptor: Some(message.evictor.task()),
                candidates: candidates.iter().map(ExtenderTask::stored).collect(),
                ..pb::VictimGroup::default()
            }],
            ..pb::SelectVictimsRequest::default()
        };
        let answered = self.decide_in(path, request).await?;
        let item = answered.result.unwrap_or_default().items.pop().unwrap_or_default();
        check_problem(ErrorCode::VictimsNotEvaluated, item.problem.as_ref())?;
        let judged = item.votes.iter().any(|vote| !vote.abstained);
        let chosen = item.victims.iter().filter_map(|at| evictees.get(*at as usize).copied());
        Ok(to_json(&VictimsResponse {
            status: if judged { PERMIT } else { ABSTAIN },
            victims: chosen.collect(),
        }))
    }

    async fn job_enqueueable(self: &Arc<Self>, path: &SchedulerPath, body: &Bytes) -> RpcResult<Vec<u8>> {
        let message: JobMessage = self.read_message(body, |body| read_json(body)).await?;
        let job = pb::Job {
            name: message.job.uid,
            ..pb::Job::default()
        };
        let request = pb::AdmitRequest {
            against: Some(self.against(path)?),
            mode: pb::AdmitMode::Tentative.into(),
            items: vec![pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Job(job)),
                ..pb::AdmitSubject::default()
            }],
            ..pb::AdmitRequest::default()
        };
        let answered = Arc::clone(&self.edge).admit(tonic::Request::new(request)).await?;
        let item = answered.result.unwrap_or_default().items.pop().unwrap_or_default();
        // Without a plugin that judges jobs, those of later tiers are to be asked.
        let judged = self.judges_jobs(&path.policy);
        let status = match (item.problem, item.permitted) {
            (None, true) if judged => PERMIT,
            (None, true) => ABSTAIN,
            (Some(_), _) | (None, false) => REJECT,
        };
        Ok(to_json(&json!({ "status": status })))
    }

    fn judges_jobs(&self, policy: &str) -> bool {
        let policy = policy_in_snapshot(&self.edge.state.snapshot(), policy, "");
        policy.is_ok_and(|policy| policy.policy.hooks().enqueuers.iter().any(|tier| !tier.is_empty()))
    }

    async fn queue_overused(self: &Arc<Self>, path: &SchedulerPath, body: &Bytes) -> RpcResult<Vec<u8>> {
        let message: QueueMessage = self.read_message(body, |body| read_json(body)).await?;
        let request = pb::OrderRequest {
            queues: Some(name_set(message.queue.name)),
            ..pb::OrderRequest::default()
        };
        let answered = self.decide_in(path, request).await?;
        let rank = answered.result.unwrap_or_default().queues.pop().unwrap_or_default();
        let overused = rank.overused.unwrap_or(rank.problem.is_some());
        Ok(to_json(&json!({ "overused": overused })))
    }

    async fn job_ready(self: &Arc<Self>, path: &SchedulerPath, body: &Bytes) -> RpcResult<Vec<u8>> {
        let message: JobMessage = self.read_message(body, |body| read_json(body)).await?;
        let request = pb::OrderRequest {
            jobs: Some(name_set(message.job.uid)),
            ..pb::OrderRequest::default()
        };
        let answered = self.decide_in(path, request).await?;
        let rank = answered.result.unwrap_or_default().jobs.pop().unwrap_or_default();
        let status = rank.state.is_some_and(|state| state.ready);
        Ok(to_json(&json!({ "status": status })))
    }

    async fn event(
        self: &Arc<Self>,
        path: &SchedulerPath,
        body: &Bytes,
        change: impl FnOnce(&ExtenderTask) -> SessionChange,
    ) -> RpcResult<Vec<u8>> {
        let message: EventMessage = self.read_message(body, |body| read_json(body)).await?;
        self.change(path, change(&message.task)).await?;
        Ok(to_json(&json!({ "errorMessage": "" })))
    }

    /// Applies a change to the session of a path.
    async fn change(self: &Arc<Self>, path: &SchedulerPath, change: SessionChange) -> RpcResult<()> {
        let session = self.session_of(path)?;
        let edge = Arc::clone(&self.edge);
        let step = move || -> RpcResult<()> {
            edge.state.step_session(&session.id, session.after, &[change])?;
            Ok(())
        };
        self.edge.run_blocking(step).await
    }
}

fn allocated(task: &ExtenderTask) -> SessionChange {
    SessionChange::Allocate(TaskPlacement {
        task: task.record_name().into(),
        node: task.node.as_str().into(),
        card: Arc::default(),
        devices: 0,
    })
}

fn name_set(name: String) -> pb::NameSet {
    pb::NameSet { names: vec![name] }
}

/// Answer that refuses, with the reason where the protocol has a place for it; `None`: the verb has no answer that refuses.
fn rejected_response(verb: VolcanoVerb, text: &str) -> Option<Vec<u8>> {
    let response = match verb {
        VolcanoVerb::Predicate => json!({ "status": text, "code": CODE_ERROR }),
        VolcanoVerb::Prioritize => json!({ "nodeScore": null, "errorMessage": text }),
        // A rejection would take away what the plugins before chose.
        VolcanoVerb::Preemptable | VolcanoVerb::Reclaimable => json!({ "status": ABSTAIN, "victims": [] }),
        VolcanoVerb::JobEnqueueable => json!({ "status": REJECT }),
        VolcanoVerb::QueueOverused => json!({ "overused": true }),
        VolcanoVerb::JobReady => json!({ "status": false }),
        VolcanoVerb::AllocateFunc | VolcanoVerb::DeallocateFunc => json!({ "errorMessage": text }),
        VolcanoVerb::OnSessionOpen | VolcanoVerb::OnSessionClose | VolcanoVerb::JobEnqueued => return None,
    };
    Some(to_json(&response))
}
