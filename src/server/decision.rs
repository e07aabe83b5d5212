//! `DecisionService`: each call resolves its `against`, reads its request, asks the engine, and writes the result.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use pumice_engine::PolicyInForce;
use pumice_engine::decide::{self, Parallelism};
use pumice_engine::model::ClusterState;
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::DecisionKind;
use pumice_state::{ConnectionShare, OpenSession, SessionBase, SessionStatus};

use super::ServerContext;
use super::codec::weighed;
use super::connection::CallerConnection;
use super::convert;
use super::convert::admit::{self, AdmitCall, AdmitMode};
use super::convert::batch::{SharedResourceNames, batch_outcome, problems, read_batch};
use super::convert::evaluation_ref::{self, EvaluationRef};
use super::convert::listing::page_size;
use super::convert::nodes::NodeEncoding;
use super::convert::not_evaluated::{self, EvaluatedState};
use super::convert::policy::duration;
use super::convert::query;
use super::convert::result::{self, ScoreResultOptions};
use super::decision_metadata::record_decision;
use super::evaluation::{EvaluationContext, response_metadata};
use super::pb;
use super::pb::decision_service_server::DecisionService;
use super::query_size::{least_score_bytes, max_nodes, most_pairs, pair_count};
use super::response_room::ResponseRoom;
use super::status::CallError;
use super::worker_pool::CancellationToken;

/// Number of task-node pairs above which a query leaves the async threads: at some 20 ns each, half a millisecond.
const MAX_ASYNC_PAIRS: usize = 25_000;
/// Number of tasks above which a query leaves the async threads, however few nodes there are.
const MAX_ASYNC_TASKS: usize = 200;

/// Implementation of the service.
#[derive(Debug)]
pub(super) struct DecisionRpc(pub(super) Arc<ServerContext>);

#[tonic::async_trait]
impl DecisionService for DecisionRpc {
    async fn filter(&self, rpc: Request<pb::FilterRequest>) -> Result<Response<pb::FilterResponse>, Status> {
        let (metadata, extensions, mut request) = rpc.into_parts();
        let room = ResponseRoom::of(&extensions);
        let context = self.0.resolve(request.against.take(), &metadata).await?;
        let size = (request.tasks.len(), request.candidates.as_ref().map(max_nodes));
        let pairs = most_pairs(size, &context);
        let reply = self
            .evaluate(size, context, move |edge, context, stop| {
                filter(edge, context, stop, request)
            })
            .await?;
        Ok(room.reserve(reply, pairs).await?)
    }

    async fn score(&self, rpc: Request<pb::ScoreRequest>) -> Result<Response<pb::ScoreResponse>, Status> {
        let (metadata, extensions, mut request) = rpc.into_parts();
        let mut room = ResponseRoom::of(&extensions);
        let context = self.0.resolve(request.against.take(), &metadata).await?;
        let size = (request.tasks.len(), request.candidates.as_ref().map(max_nodes));
        let pairs = most_pairs(size, &context);
        let check = room.hold(least_score_bytes(&request, &context));
        let reply = self
            .evaluate_after(check, size, context, move |edge, context, stop| {
                score(edge, context, stop, request)
            })
            .await?;
        Ok(room.reserve(reply, pairs).await?)
    }

    async fn open_session(
        &self,
        rpc: Request<pb::OpenSessionRequest>,
    ) -> Result<Response<pb::OpenSessionResponse>, Status> {
        Ok(Response::new(self.evaluate_open_session(rpc).await?))
    }

    async fn close_session(
        &self,
        rpc: Request<pb::CloseSessionRequest>,
    ) -> Result<Response<pb::CloseSessionResponse>, Status> {
        let pb::CloseSessionRequest { session } = rpc.into_inner();
        let closed = self.0.state.close_session(&session);
        let applied_through = closed.map_err(|error| self.0.with_session_progress(&session, error.into()))?;
        Ok(Response::new(pb::CloseSessionResponse { applied_through }))
    }

    async fn list_sessions(
        &self,
        rpc: Request<pb::ListSessionsRequest>,
    ) -> Result<Response<pb::ListSessionsResponse>, Status> {
        let pb::Page { size, token } = rpc.into_inner().page.unwrap_or_default();
        let size = page_size(size, self.0.read_options.limits.page_records);
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
        Ok(Response::new(self.evaluate_place(rpc).await?))
    }

    async fn admit(&self, rpc: Request<pb::AdmitRequest>) -> Result<Response<pb::AdmitResponse>, Status> {
        Ok(Response::new(self.evaluate_admit(rpc).await?))
    }

    async fn order(&self, rpc: Request<pb::OrderRequest>) -> Result<Response<pb::OrderResponse>, Status> {
        let (metadata, _, mut request) = rpc.into_parts();
        let context = self.0.resolve(request.against.take(), &metadata).await?;
        let reply = self
            .evaluate_blocking(context, move |edge, context| order(edge, context, request))
            .await?;
        Ok(Response::new(reply))
    }

    async fn select_victims(
        &self,
        rpc: Request<pb::SelectVictimsRequest>,
    ) -> Result<Response<pb::SelectVictimsResponse>, Status> {
        let (metadata, _, mut request) = rpc.into_parts();
        let context = self.0.resolve(request.against.take(), &metadata).await?;
        let reply = self
            .evaluate_blocking(context, move |edge, context| select_victims(edge, context, request))
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

impl DecisionRpc {
    /// Evaluates a query of this many tasks on these candidates, here or on a blocking thread.
    pub(super) async fn evaluate<T: Send + 'static>(
        &self,
        size: (usize, Option<usize>),
        context: EvaluationContext,
        result: impl FnOnce(&ServerContext, &EvaluationContext, &CancellationToken) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let no_check = std::future::ready(Ok(()));
        self.evaluate_after(no_check, size, context, result).await
    }

    /// Evaluates a query; on a blocking thread after a check only.
    async fn evaluate_after<T: Send + 'static>(
        &self,
        check: impl Future<Output = Result<(), CallError>>,
        (tasks, width): (usize, Option<usize>),
        context: EvaluationContext,
        result: impl FnOnce(&ServerContext, &EvaluationContext, &CancellationToken) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let pairs = most_pairs((tasks, width), &context);
        let small = tasks <= MAX_ASYNC_TASKS && pairs <= MAX_ASYNC_PAIRS && context.has_plugin_states();
        let edge = Arc::clone(&self.0);
        let applied = context.applied_through();
        let result = move |stop: &CancellationToken| {
            result(&edge, &context, stop).map_err(|failure| context.attach_metadata(&edge, failure))
        };
        if small {
            return result(&CancellationToken::default());
        }
        let answered = self.0.workers.queries.run_after(check, result).await;
        // Where no worker was free, the changes are applied all the same.
        answered.map_err(|failure| match applied {
            Some(applied) => failure.with_applied_through(applied),
            None => failure,
        })
    }

    /// Evaluates a query on a blocking thread, because plugin states may have to be computed first.
    async fn evaluate_blocking<T: Send + 'static>(
        &self,
        context: EvaluationContext,
        result: impl FnOnce(&ServerContext, &EvaluationContext) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let edge = Arc::clone(&self.0);
        let applied = context.applied_through();
        let result = move |_: &CancellationToken| {
            result(&edge, &context).map_err(|failure| context.attach_metadata(&edge, failure))
        };
        let answered = self.0.workers.queries.run(result).await;
        // Where no worker was free, the changes are applied all the same.
        answered.map_err(|failure| match applied {
            Some(applied) => failure.with_applied_through(applied),
            None => failure,
        })
    }

    async fn evaluate_admit(&self, rpc: Request<pb::AdmitRequest>) -> Result<pb::AdmitResponse, CallError> {
        let (metadata, _, mut request) = rpc.into_parts();
        let evaluation_ref = request.against.take();
        let call = AdmitCall::read(request, &self.0.read_options.limits)?;
        if call.mode == AdmitMode::Confirm {
            return self.0.confirm(evaluation_ref, call, &metadata).await;
        }
        if call.mode == AdmitMode::Check {
            let context = self.0.resolve(evaluation_ref, &metadata).await?;
            return self
                .evaluate_blocking(context, move |edge, context| check_admit(edge, context, call))
                .await;
        }
        let now = evaluation_ref::decision_time(evaluation_ref.as_ref());
        let (evaluation_ref, _) = evaluation_ref::read_ref(evaluation_ref, &self.0.read_options.limits)?;
        let EvaluationRef::Session(step) = evaluation_ref else {
            let message = "mode: TENTATIVE counts in a session, and the request names none";
            return Err(CallError::invalid("TENTATIVE_WITHOUT_SESSION", message));
        };
        let edge = Arc::clone(&self.0);
        let plugins = call.plugins.clone();
        let ask = move |cluster_state: &ClusterState, policy: &PolicyInForce, derived: &mut PluginStates| {
            let mut query = call.into_query(cluster_state, &edge.read_options);
            query.now = now;
            let items = decide::admit(cluster_state, &policy.policy, derived, &query)?;
            let bytes = items.len() * size_of::<pb::AdmitItem>();
            let state = EvaluatedState::new(cluster_state, &policy.policy);
            Ok(weighed(admit::admit_result(&query, &items, state), bytes))
        };
        let (mut context, result) = self.0.query_session(step, ask).await?;
        context.now = now;
        Ok(pb::AdmitResponse {
            metadata: Some(context.decision_metadata(&self.0, NodeEncoding::Names, DecisionKind::Admit, &plugins)),
            result: Some(pb::AdmitResult::clone(&result)),
            durability: pb::Durability::Unspecified.into(),
        })
    }

    async fn evaluate_open_session(
        &self,
        rpc: Request<pb::OpenSessionRequest>,
    ) -> Result<pb::OpenSessionResponse, CallError> {
        let connection = CallerConnection::state_share(rpc.extensions());
        let (metadata, _, request) = rpc.into_parts();
        let pb::OpenSessionRequest { against, batch, lease } = request;
        let lease = evaluation_ref::read_duration("lease", lease)?;
        let (evaluation_ref, _) = evaluation_ref::read_ref(against, &self.0.read_options.limits)?;
        let (evaluation_ref, warnings) = match evaluation_ref {
            EvaluationRef::Session(_) => {
                let message = "against.session: a session cannot be opened on a session";
                return Err(CallError::invalid("EVALUATION_REF_INVALID", message));
            }
            EvaluationRef::Latest(evaluation_ref) => {
                self.0.resolve_snapshot(&evaluation_ref, &metadata).await?;
                let (policy, profile) = (evaluation_ref.policy, evaluation_ref.profile);
                (SessionBase::Latest { policy, profile }, Vec::new())
            }
            EvaluationRef::Inline(_) if batch.is_some() => {
                let message = "batch: a batch changes shared state, and the session has an inline cluster";
                return Err(CallError::invalid("BATCH_WITH_INLINE", message));
            }
            EvaluationRef::Inline(evaluation_ref) => {
                let edge = Arc::clone(&self.0);
                self.0
                    .run_blocking(move || {
                        let (cluster_state, policy, warnings) = edge.resolve_inline(*evaluation_ref)?;
                        let cluster_state = Box::new(cluster_state);
                        Ok((SessionBase::Inline { cluster_state, policy }, warnings))
                    })
                    .await?
            }
        };
        let batch = match batch {
            Some(batch) => Some(self.0.read_batch(batch, connection.clone()).await?),
            None => None,
        };
        let opened = self
            .0
            .state
            .open_session(OpenSession {
                base: evaluation_ref,
                batch,
                lease,
                connection,
            })
            .await?;
        Ok(pb::OpenSessionResponse {
            metadata: Some(pb::ResponseMetadata {
                warnings: problems(&warnings),
                not_evaluated: not_evaluated::of_policy(&opened.policy.policy, DecisionKind::Session),
                ..response_metadata(self.0.next_decision_id(), opened.revision, &opened.policy)
            }),
            session: opened.session.to_string(),
            outcome: opened.batch_outcome.map(batch_outcome),
            lease: Some(duration(opened.lease)),
            max_age: Some(duration(opened.max_age)),
        })
    }
}

impl ServerContext {
    /// Reads a batch that came by this connection; a large one on a blocking thread.
    pub(super) async fn read_batch(
        self: &Arc<Self>,
        sent: pb::Batch,
        connection: Option<ConnectionShare>,
    ) -> Result<pumice_state::Batch, CallError> {
        let records = sent.put.as_ref().map_or(0, |put| {
            put.nodes.len() + put.queues.len() + put.jobs.len() + put.tasks.len()
        });
        let edge = Arc::clone(self);
        let read = move || {
            let mut names = SharedResourceNames::new(edge.state.resource_names());
            let batch = read_batch(sent, &mut names, &edge.read_options)?;
            Ok(pumice_state::Batch {
                names: Some(names.into_first_table()),
                connection,
                ..batch
            })
        };
        if records <= MAX_ASYNC_TASKS {
            read()
        } else {
            self.run_blocking(read).await
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
        active_queries: queries,
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
        requests_in_progress: *queries,
        policy: policy.name.to_string(),
        policy_version: policy.version,
        revision: Some(convert::revision(*revision)),
    }
}

/// Error of a call whose caller is gone: nobody reads it.
pub(super) fn cancelled() -> CallError {
    CallError::new(
        Code::Cancelled,
        "CANCELLED",
        "the caller no longer waits for the response",
    )
}

fn filter(
    edge: &ServerContext,
    context: &EvaluationContext,
    stop: &CancellationToken,
    request: pb::FilterRequest,
) -> Result<pb::FilterResponse, CallError> {
    let mut call = query::read_filter(request, context.node_sets(), context.node_table(), &edge.read_options)?;
    call.query.now = context.now;
    let query = &call.query;
    let start = Instant::now();
    let derived = context.plugin_states_for(&query.plugins);
    let cores = edge.workers.queries.lease_cores(pair_count(context, query));
    let parallelism = Parallelism {
        threads: cores.core_count(),
        is_cancelled: &|| stop.is_cancelled(),
    };
    let items = decide::filter_with(
        context.prepare_context(&derived),
        &context.policy.policy,
        query,
        parallelism,
    )?;
    drop(cores);
    let items = items.ok_or_else(cancelled)?;
    record_decision(edge, context, "Filter", query, start);
    let result = result::filter_result(query, items, context.evaluated_state(), call.encoding);
    Ok(pb::FilterResponse {
        metadata: Some(context.decision_metadata(edge, call.encoding, DecisionKind::Filter, &query.plugins)),
        result: Some(result),
    })
}

fn check_admit(
    edge: &ServerContext,
    context: &EvaluationContext,
    call: AdmitCall,
) -> Result<pb::AdmitResponse, CallError> {
    let mut query = call.into_query(context.cluster_state(), &edge.read_options);
    query.now = context.now;
    let mut derived = context.plugin_states();
    let items = decide::admit(context.cluster_state(), &context.policy.policy, &mut derived, &query)?;
    Ok(pb::AdmitResponse {
        metadata: Some(context.decision_metadata(edge, NodeEncoding::Names, DecisionKind::Admit, &query.plugins)),
        result: Some(admit::admit_result(&query, &items, context.evaluated_state())),
        durability: pb::Durability::Unspecified.into(),
    })
}

fn order(
    edge: &ServerContext,
    context: &EvaluationContext,
    request: pb::OrderRequest,
) -> Result<pb::OrderResponse, CallError> {
    let mut query = convert::order::read_order(request, &edge.read_options.limits)?;
    query.now = context.now;
    let cluster_state = context.cluster_state();
    let result = decide::order(cluster_state, &context.policy.policy, &context.plugin_states(), &query)?;
    Ok(pb::OrderResponse {
        metadata: Some(context.decision_metadata(edge, NodeEncoding::Names, DecisionKind::Order, &query.plugins)),
        result: Some(convert::order::order_result(result)),
    })
}

fn select_victims(
    edge: &ServerContext,
    context: &EvaluationContext,
    request: pb::SelectVictimsRequest,
) -> Result<pb::SelectVictimsResponse, CallError> {
    let mut query = convert::victims::read_victims(request, context.cluster_state(), &edge.read_options)?;
    query.now = context.now;
    let items = decide::victims(&context.cycle(), &context.policy.policy, &query)?;
    Ok(pb::SelectVictimsResponse {
        metadata: Some(context.decision_metadata(edge, NodeEncoding::Names, DecisionKind::Victims, &query.plugins)),
        result: Some(convert::victims::victims_result(
            &query,
            &items,
            context.evaluated_state(),
        )),
    })
}

fn score(
    edge: &ServerContext,
    context: &EvaluationContext,
    stop: &CancellationToken,
    request: pb::ScoreRequest,
) -> Result<pb::ScoreResponse, CallError> {
    let mut call = query::read_score(request, context.node_sets(), context.node_table(), &edge.read_options)?;
    call.query.node_query.now = context.now;
    let query = &call.query;
    let start = Instant::now();
    let derived = context.plugin_states_for(&query.node_query.plugins);
    let cores = edge.workers.queries.lease_cores(pair_count(context, &query.node_query));
    let parallelism = Parallelism {
        threads: cores.core_count(),
        is_cancelled: &|| stop.is_cancelled(),
    };
    let items = decide::score_with(
        context.prepare_context(&derived),
        &context.policy.policy,
        query,
        parallelism,
    )?;
    drop(cores);
    let items = items.ok_or_else(cancelled)?;
    record_decision(edge, context, "Score", &query.node_query, start);
    let shape = ScoreResultOptions {
        encoding: call.encoding,
        limited: query.limit.is_some(),
        candidates: query.node_query.candidates.is_some(),
        detail: query.node_query.detail,
    };
    let kind = if query.with_filter {
        DecisionKind::FilteredScore
    } else {
        DecisionKind::Score
    };
    let query = &query.node_query;
    Ok(pb::ScoreResponse {
        metadata: Some(context.decision_metadata(edge, call.encoding, kind, &query.plugins)),
        result: Some(result::score_result(query, items, context.evaluated_state(), shape)),
    })
}
