//! `DecisionService`: each call finds its ground, reads its question, asks the engine, and writes the answer.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use crate::engine::decide::{self, Effort, Question};
use crate::engine::derived::DerivedSet;
use crate::engine::model::View;
use crate::engine::{PolicyInForce, plugins};
use crate::state::{OpenSession, SessionGround, SessionStatus};

use super::Edge;
use super::convert;
use super::convert::admit::{self, AdmitCall, Mode};
use super::convert::answer::{self, ScoreShape};
use super::convert::batch::{SharedNames, batch, outcome, problems};
use super::convert::ground::{self, Ground};
use super::convert::listing::page_size;
use super::convert::nodes::Encoding;
use super::convert::policy::duration;
use super::convert::question;
use super::pb;
use super::pb::decision_service_server::DecisionService;
use super::standing::{Standing, stamp};
use super::status::Failure;
use super::work::Stop;

/// Task-node pairs above which a question leaves the async threads: at some 20 ns each, half a millisecond.
const PAIRS_INLINE: usize = 25_000;
/// Tasks above which a question leaves the async threads, however few nodes there are.
const TASKS_INLINE: usize = 200;

/// The service.
#[derive(Debug)]
pub(super) struct Decisions(pub(super) Arc<Edge>);

#[tonic::async_trait]
impl DecisionService for Decisions {
    async fn filter(&self, rpc: Request<pb::FilterRequest>) -> Result<Response<pb::FilterResponse>, Status> {
        let (metadata, _, mut request) = rpc.into_parts();
        let standing = self.0.stand(request.ground.take(), &metadata).await?;
        let size = (request.tasks.len(), request.candidates.as_ref().map(width));
        let reply = self
            .answer(size, standing, move |edge, standing, stop| {
                filter(edge, standing, stop, request)
            })
            .await?;
        Ok(Response::new(reply))
    }

    async fn score(&self, rpc: Request<pb::ScoreRequest>) -> Result<Response<pb::ScoreResponse>, Status> {
        let (metadata, _, mut request) = rpc.into_parts();
        let standing = self.0.stand(request.ground.take(), &metadata).await?;
        let size = (request.tasks.len(), request.candidates.as_ref().map(width));
        let reply = self
            .answer(size, standing, move |edge, standing, stop| {
                score(edge, standing, stop, request)
            })
            .await?;
        Ok(Response::new(reply))
    }

    async fn open_session(
        &self,
        rpc: Request<pb::OpenSessionRequest>,
    ) -> Result<Response<pb::OpenSessionResponse>, Status> {
        Ok(Response::new(self.open(rpc).await?))
    }

    async fn close_session(
        &self,
        rpc: Request<pb::CloseSessionRequest>,
    ) -> Result<Response<pb::CloseSessionResponse>, Status> {
        let pb::CloseSessionRequest { session } = rpc.into_inner();
        let closed = self.0.state.close_session(&session);
        let applied_through = closed.map_err(|error| self.0.say_how_far(&session, error.into()))?;
        Ok(Response::new(pb::CloseSessionResponse { applied_through }))
    }

    async fn list_sessions(
        &self,
        rpc: Request<pb::ListSessionsRequest>,
    ) -> Result<Response<pb::ListSessionsResponse>, Status> {
        let pb::Page { size, token } = rpc.into_inner().page.unwrap_or_default();
        let size = page_size(size, self.0.declared.limits.page_records);
        let all = self.0.state.list_sessions();
        let mut rest = all.iter().filter(|status| *status.session > *token);
        let sessions: Vec<_> = rest.by_ref().take(size).map(session_status).collect();
        let last = sessions.last().map(|last| last.session.clone());
        let next_page_token = rest.next().and(last).unwrap_or_default();
        Ok(Response::new(pb::ListSessionsResponse {
            sessions,
            next_page_token,
        }))
    }

    async fn place(&self, rpc: Request<pb::PlaceRequest>) -> Result<Response<pb::PlaceResponse>, Status> {
        Ok(Response::new(self.placement(rpc).await?))
    }

    async fn admit(&self, rpc: Request<pb::AdmitRequest>) -> Result<Response<pb::AdmitResponse>, Status> {
        Ok(Response::new(self.admissions(rpc).await?))
    }

    async fn order(&self, rpc: Request<pb::OrderRequest>) -> Result<Response<pb::OrderResponse>, Status> {
        let (metadata, _, mut request) = rpc.into_parts();
        let standing = self.0.stand(request.ground.take(), &metadata).await?;
        let reply = self
            .heavily(standing, move |edge, standing| order(edge, standing, request))
            .await?;
        Ok(Response::new(reply))
    }

    async fn select_victims(
        &self,
        rpc: Request<pb::SelectVictimsRequest>,
    ) -> Result<Response<pb::SelectVictimsResponse>, Status> {
        let (metadata, _, mut request) = rpc.into_parts();
        let standing = self.0.stand(request.ground.take(), &metadata).await?;
        let reply = self
            .heavily(standing, move |edge, standing| select_victims(edge, standing, request))
            .await?;
        Ok(Response::new(reply))
    }

    async fn commit_session(
        &self,
        rpc: Request<pb::CommitSessionRequest>,
    ) -> Result<Response<pb::CommitSessionResponse>, Status> {
        Ok(Response::new(self.0.commit_session(rpc.into_inner()).await?))
    }
}

impl Decisions {
    /// Answers a question of so many tasks on these candidates, here or on a blocking thread.
    pub(super) async fn answer<T: Send + 'static>(
        &self,
        (tasks, width): (usize, Option<usize>),
        standing: Standing,
        answer: impl FnOnce(&Edge, &Standing, &Stop) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let width = width.unwrap_or(standing.view().slots() as usize);
        let small = tasks <= TASKS_INLINE && tasks.saturating_mul(width) <= PAIRS_INLINE && standing.is_derived();
        let edge = Arc::clone(&self.0);
        let applied = standing.applied_through();
        let answer = move |stop: &Stop| answer(&edge, &standing, stop).map_err(|failure| standing.fail(&edge, failure));
        if small {
            return answer(&Stop::default());
        }
        let answered = self.0.work.questions.pass(answer).await;
        // Where no worker was free, the changes are applied all the same.
        answered.map_err(|failure| match applied {
            Some(applied) => failure.stamped_through(applied),
            None => failure,
        })
    }

    /// Answers a question on a blocking thread: derived state may have to be worked out first.
    async fn heavily<T: Send + 'static>(
        &self,
        standing: Standing,
        answer: impl FnOnce(&Edge, &Standing) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let edge = Arc::clone(&self.0);
        let applied = standing.applied_through();
        let answer = move |_: &Stop| answer(&edge, &standing).map_err(|failure| standing.fail(&edge, failure));
        let answered = self.0.work.questions.pass(answer).await;
        // Where no worker was free, the changes are applied all the same.
        answered.map_err(|failure| match applied {
            Some(applied) => failure.stamped_through(applied),
            None => failure,
        })
    }

    async fn admissions(&self, rpc: Request<pb::AdmitRequest>) -> Result<pb::AdmitResponse, Failure> {
        let (metadata, _, mut request) = rpc.into_parts();
        let ground = request.ground.take();
        let call = AdmitCall::read(request, &self.0.declared.limits)?;
        if call.mode == Mode::Confirm {
            return self.0.confirm(ground, call, &metadata).await;
        }
        if call.mode == Mode::Check {
            let standing = self.0.stand(ground, &metadata).await?;
            return self
                .heavily(standing, move |edge, standing| check(edge, standing, call))
                .await;
        }
        let (ground, _) = ground::ground(ground, &self.0.declared.limits)?;
        let Ground::Session(step) = ground else {
            let message = "mode: TENTATIVE counts in a session, and the question stands on none";
            return Err(Failure::invalid("TENTATIVE_WITHOUT_SESSION", message));
        };
        let edge = Arc::clone(&self.0);
        let ask = move |view: &View, policy: &PolicyInForce, derived: &mut DerivedSet| {
            let question = call.question(view, &edge.declared);
            let items = decide::admit(view, &policy.policy, derived, &question)?;
            Ok(admit::answer(&items))
        };
        let (standing, answer) = self.0.ask_session(step, ask).await?;
        Ok(pb::AdmitResponse {
            stamp: Some(standing.stamp(&self.0, Encoding::Names)),
            answer: Some(pb::AdmitAnswer::clone(&answer)),
            durability: pb::Durability::Unspecified.into(),
        })
    }

    async fn open(&self, rpc: Request<pb::OpenSessionRequest>) -> Result<pb::OpenSessionResponse, Failure> {
        let (metadata, _, request) = rpc.into_parts();
        let pb::OpenSessionRequest { ground, batch, lease } = request;
        let lease = ground::duration("lease", lease)?;
        let (ground, _) = ground::ground(ground, &self.0.declared.limits)?;
        let (ground, warnings) = match ground {
            Ground::Session(_) => {
                let message = "ground.session: a session cannot be opened on a session";
                return Err(Failure::invalid("GROUND_INVALID", message));
            }
            Ground::World(ground) => {
                self.0.world(&ground, &metadata).await?;
                let (policy, profile) = (ground.policy, ground.profile);
                (SessionGround::World { policy, profile }, Vec::new())
            }
            Ground::Inline(_) if batch.is_some() => {
                let message = "batch: an inline cluster comes whole, a batch would change shared state only";
                return Err(Failure::invalid("BATCH_WITH_INLINE", message));
            }
            Ground::Inline(ground) => {
                let edge = Arc::clone(&self.0);
                self.0
                    .heavily(move || {
                        let (view, policy, warnings) = edge.on_inline(*ground)?;
                        let view = Box::new(view);
                        Ok((SessionGround::Inline { view, policy }, warnings))
                    })
                    .await?
            }
        };
        let batch = match batch {
            Some(batch) => Some(self.0.read_batch(batch).await?),
            None => None,
        };
        let opened = self.0.state.open_session(OpenSession { ground, batch, lease }).await?;
        Ok(pb::OpenSessionResponse {
            stamp: Some(pb::Stamp {
                warnings: problems(&warnings),
                ..stamp(self.0.next_id(), opened.revision, &opened.policy)
            }),
            session: opened.session.to_string(),
            outcome: opened.outcome.map(outcome),
            lease: Some(duration(opened.lease)),
            max_age: Some(duration(opened.max_age)),
        })
    }
}

impl Edge {
    /// Reads a batch; a large one on a blocking thread.
    pub(super) async fn read_batch(self: &Arc<Self>, sent: pb::Batch) -> Result<crate::state::Batch, Failure> {
        let records = sent.put.as_ref().map_or(0, |put| {
            put.nodes.len() + put.queues.len() + put.jobs.len() + put.tasks.len()
        });
        let edge = Arc::clone(self);
        let read = move || batch(sent, &mut SharedNames::new(edge.state.names()), &edge.declared);
        if records <= TASKS_INLINE {
            read()
        } else {
            self.heavily(read).await
        }
    }
}

fn session_status(status: &SessionStatus) -> pb::SessionStatus {
    let SessionStatus {
        session,
        source,
        age,
        idle,
        lease_left,
        changes,
        savepoints,
        questions,
        policy,
        revision,
    } = status;
    pb::SessionStatus {
        session: session.to_string(),
        source: source.as_ref().map(ToString::to_string).unwrap_or_default(),
        age: Some(duration(*age)),
        idle: idle.map(duration),
        lease_left: lease_left.map(duration),
        changes: *changes,
        savepoints: u32::try_from(*savepoints).unwrap_or(u32::MAX),
        questions: *questions,
        policy: policy.name.to_string(),
        policy_version: policy.version,
        revision: Some(convert::revision(*revision)),
    }
}

/// The caller is gone, so nobody reads this.
pub(super) fn given_up() -> Failure {
    Failure::new(
        Code::Cancelled,
        "CANCELLED",
        "the caller does not wait for the answer any more",
    )
}

/// Counts what was decided, and by whom.
fn measure(edge: &Edge, standing: &Standing, rpc: &'static str, question: &Question, start: Instant) {
    let policy = &standing.policy.policy;
    let hooks = if rpc == "Filter" {
        policy.filters()
    } else {
        policy.scorers()
    };
    let asked: Vec<&str> = if question.plugins.is_empty() {
        hooks.iter().map(|hook| &*hook.name).collect()
    } else {
        question.plugins.iter().map(|name| &**name).collect()
    };
    // As the registry has them: a caller must not be able to invent labels.
    let served = plugins::REGISTRY.iter().map(|row| row.name);
    let plugins: Vec<&'static str> = served.filter(|name| asked.contains(name)).collect();
    edge.metrics
        .decided(rpc, question.tasks.len(), &plugins, start.elapsed());
}

/// Task-node pairs of a question.
fn pairs(standing: &Standing, question: &Question) -> usize {
    let nodes = question
        .candidates
        .as_ref()
        .map_or(standing.view().slots() as usize, Vec::len);
    question.tasks.len().saturating_mul(nodes)
}

/// At most so many nodes are in the set.
pub(super) fn width(set: &pb::NodeSet) -> usize {
    set.names.len() + set.slots.len() + set.bitmap.len().saturating_mul(8)
}

fn filter(
    edge: &Edge,
    standing: &Standing,
    stop: &Stop,
    request: pb::FilterRequest,
) -> Result<pb::FilterResponse, Failure> {
    let call = question::filter(request, standing.nodes(), standing.table(), &edge.declared)?;
    let question = &call.question;
    let start = Instant::now();
    let derived = standing.derived_for(&question.plugins);
    let hands = edge.work.questions.hands(pairs(standing, question));
    let effort = Effort {
        hands: hands.count(),
        stop: &|| stop.is_set(),
    };
    let items = decide::filter_with(standing.facts(&derived), &standing.policy.policy, question, effort)?;
    drop(hands);
    let items = items.ok_or_else(given_up)?;
    measure(edge, standing, "Filter", question, start);
    let answer = answer::filter(&items, standing.view(), call.encoding, question.detail);
    Ok(pb::FilterResponse {
        stamp: Some(standing.stamp(edge, call.encoding)),
        answer: Some(answer),
    })
}

fn check(edge: &Edge, standing: &Standing, call: AdmitCall) -> Result<pb::AdmitResponse, Failure> {
    let question = call.question(standing.view(), &edge.declared);
    let mut derived = standing.derived();
    let items = decide::admit(standing.view(), &standing.policy.policy, &mut derived, &question)?;
    Ok(pb::AdmitResponse {
        stamp: Some(standing.stamp(edge, Encoding::Names)),
        answer: Some(admit::answer(&items)),
        durability: pb::Durability::Unspecified.into(),
    })
}

fn order(edge: &Edge, standing: &Standing, request: pb::OrderRequest) -> Result<pb::OrderResponse, Failure> {
    let question = convert::order::question(request, &edge.declared.limits)?;
    let view = standing.view();
    let answer = decide::order(view, &standing.policy.policy, &standing.derived(), &question)?;
    Ok(pb::OrderResponse {
        stamp: Some(standing.stamp(edge, Encoding::Names)),
        answer: Some(convert::order::answer(answer, view.resources())),
    })
}

fn select_victims(
    edge: &Edge,
    standing: &Standing,
    request: pb::SelectVictimsRequest,
) -> Result<pb::SelectVictimsResponse, Failure> {
    let question = convert::victims::question(request, standing.view(), &edge.declared)?;
    let items = decide::victims(&standing.cycle(), &standing.policy.policy, &question)?;
    Ok(pb::SelectVictimsResponse {
        stamp: Some(standing.stamp(edge, Encoding::Names)),
        answer: Some(convert::victims::answer(&items)),
    })
}

fn score(
    edge: &Edge,
    standing: &Standing,
    stop: &Stop,
    request: pb::ScoreRequest,
) -> Result<pb::ScoreResponse, Failure> {
    let call = question::score(request, standing.nodes(), standing.table(), &edge.declared)?;
    let question = &call.question;
    let start = Instant::now();
    let derived = standing.derived_for(&question.question.plugins);
    let hands = edge.work.questions.hands(pairs(standing, &question.question));
    let effort = Effort {
        hands: hands.count(),
        stop: &|| stop.is_set(),
    };
    let items = decide::score_with(standing.facts(&derived), &standing.policy.policy, question, effort)?;
    drop(hands);
    let items = items.ok_or_else(given_up)?;
    measure(edge, standing, "Score", &question.question, start);
    let shape = ScoreShape {
        encoding: call.encoding,
        limited: question.limit.is_some(),
        candidates: question.question.candidates.is_some(),
        detail: question.question.detail,
    };
    Ok(pb::ScoreResponse {
        stamp: Some(standing.stamp(edge, call.encoding)),
        answer: Some(answer::score(&items, standing.view(), shape)),
    })
}
