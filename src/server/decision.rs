//! `DecisionService`: its calls, each by the one way from bytes to result.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Request, Response, Status};

use pumice_engine::decide::{self, Parallelism};
use pumice_engine::policy::DecisionKind;

use super::ServerContext;
use super::convert;
use super::convert::nodes::NodeEncoding;
use super::convert::query;
use super::convert::result::{self, ScoreResultOptions};
use super::decision_call::{CallWork, DecisionCall, cancelled};
use super::decision_metadata::record_decision;
use super::evaluation::EvaluationContext;
use super::pb;
use super::pb::decision_service_server::DecisionService;
use super::query_size::{least_score_bytes, max_nodes, pair_count};
use super::status::CallError;
use super::worker_pool::CancellationToken;

/// Implementation of the service.
#[derive(Debug)]
pub(super) struct DecisionRpc(pub(super) Arc<ServerContext>);

impl DecisionRpc {
    /// Responds to a call; `against` takes its reference to state and policy out of it.
    async fn respond<C: DecisionCall>(
        &self,
        rpc: Request<C>,
        against: fn(&mut C) -> Option<pb::EvaluationRef>,
    ) -> Result<Response<C::Response>, Status> {
        let (metadata, extensions, mut call) = rpc.into_parts();
        let against = against(&mut call);
        Ok(self.0.decide(call, against, (&metadata, &extensions)).await?)
    }
}

#[tonic::async_trait]
impl DecisionService for DecisionRpc {
    async fn filter(&self, rpc: Request<pb::FilterRequest>) -> Result<Response<pb::FilterResponse>, Status> {
        self.respond(rpc, |call| call.against.take()).await
    }

    async fn score(&self, rpc: Request<pb::ScoreRequest>) -> Result<Response<pb::ScoreResponse>, Status> {
        self.respond(rpc, |call| call.against.take()).await
    }

    async fn order(&self, rpc: Request<pb::OrderRequest>) -> Result<Response<pb::OrderResponse>, Status> {
        self.respond(rpc, |call| call.against.take()).await
    }

    async fn select_victims(
        &self,
        rpc: Request<pb::SelectVictimsRequest>,
    ) -> Result<Response<pb::SelectVictimsResponse>, Status> {
        self.respond(rpc, |call| call.against.take()).await
    }

    async fn place(&self, rpc: Request<pb::PlaceRequest>) -> Result<Response<pb::PlaceResponse>, Status> {
        Ok(self.0.place(rpc).await?)
    }

    async fn admit(&self, rpc: Request<pb::AdmitRequest>) -> Result<Response<pb::AdmitResponse>, Status> {
        Ok(self.0.admit(rpc).await?)
    }

    async fn open_session(
        &self,
        rpc: Request<pb::OpenSessionRequest>,
    ) -> Result<Response<pb::OpenSessionResponse>, Status> {
        Ok(Response::new(self.0.open_session(rpc).await?))
    }

    async fn close_session(
        &self,
        rpc: Request<pb::CloseSessionRequest>,
    ) -> Result<Response<pb::CloseSessionResponse>, Status> {
        Ok(Response::new(self.0.close_session(&rpc.into_inner())?))
    }

    async fn list_sessions(
        &self,
        rpc: Request<pb::ListSessionsRequest>,
    ) -> Result<Response<pb::ListSessionsResponse>, Status> {
        Ok(Response::new(self.0.list_sessions(rpc.into_inner())))
    }

    async fn commit_session(
        &self,
        rpc: Request<pb::CommitSessionRequest>,
    ) -> Result<Response<pb::CommitSessionResponse>, Status> {
        Ok(Response::new(self.0.commit_session(rpc.into_inner()).await?))
    }
}

impl DecisionCall for pb::FilterRequest {
    type Response = pb::FilterResponse;

    fn work(&self, _: &EvaluationContext) -> CallWork {
        CallWork::Pairs {
            tasks: self.tasks.len(),
            width: self.candidates.as_ref().map(max_nodes),
            ahead: 0,
        }
    }

    fn object_bytes(&self) -> usize {
        self.tasks.iter().map(|task| task.object.len()).sum()
    }

    fn decide(
        self,
        edge: &ServerContext,
        context: &EvaluationContext,
        stop: &CancellationToken,
    ) -> Result<Self::Response, CallError> {
        let mut call = query::read_filter(self, context.node_sets(), context.node_table(), &edge.read_options)?;
        call.query.now = context.now;
        let query = &call.query;
        let start = Instant::now();
        let derived = context.plugin_states_for(&query.plugins);
        let cores = edge.workers.queries.lease_cores(pair_count(context, query));
        let parallelism = Parallelism {
            threads: cores.core_count(),
            is_cancelled: &|| stop.is_cancelled(),
            verdicts: context.verdict_reuse(edge),
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
        let result = result::filter_result(query, items, context.evaluated_state(&query.plugins), call.encoding);
        Ok(pb::FilterResponse {
            metadata: Some(context.decision_metadata(edge, call.encoding, DecisionKind::Filter, &query.plugins)),
            result: Some(result),
        })
    }
}

impl DecisionCall for pb::ScoreRequest {
    type Response = pb::ScoreResponse;

    fn work(&self, _: &EvaluationContext) -> CallWork {
        CallWork::Pairs {
            tasks: self.tasks.len(),
            width: self.candidates.as_ref().map(max_nodes),
            ahead: self.ahead as usize,
        }
    }

    fn object_bytes(&self) -> usize {
        self.tasks.iter().map(|task| task.object.len()).sum()
    }

    fn least_bytes(&self, context: &EvaluationContext) -> usize {
        least_score_bytes(self, context)
    }

    fn decide(
        self,
        edge: &ServerContext,
        context: &EvaluationContext,
        stop: &CancellationToken,
    ) -> Result<Self::Response, CallError> {
        let mut call = query::read_score(self, context.node_sets(), context.node_table(), &edge.read_options)?;
        call.query.node_query.now = context.now;
        let query = &call.query;
        let start = Instant::now();
        let derived = context.plugin_states_for(&query.node_query.plugins);
        let cores = edge.workers.queries.lease_cores(pair_count(context, &query.node_query));
        let parallelism = Parallelism {
            threads: cores.core_count(),
            is_cancelled: &|| stop.is_cancelled(),
            verdicts: context.verdict_reuse(edge),
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
            result: Some(result::score_result(
                query,
                items,
                context.evaluated_state(&query.plugins),
                shape,
            )),
        })
    }
}

impl DecisionCall for pb::OrderRequest {
    type Response = pb::OrderResponse;

    fn work(&self, _: &EvaluationContext) -> CallWork {
        CallWork::PluginStates
    }

    fn decide(
        self,
        edge: &ServerContext,
        context: &EvaluationContext,
        _: &CancellationToken,
    ) -> Result<Self::Response, CallError> {
        let mut query = convert::order::read_order(self, &edge.read_options.limits)?;
        query.now = context.now;
        let cluster_state = context.cluster_state();
        let result = decide::order(cluster_state, &context.policy.policy, &context.plugin_states(), &query)?;
        Ok(pb::OrderResponse {
            metadata: Some(context.decision_metadata(edge, NodeEncoding::Names, DecisionKind::Order, &query.plugins)),
            result: Some(convert::order::order_result(result)),
        })
    }
}

impl DecisionCall for pb::SelectVictimsRequest {
    type Response = pb::SelectVictimsResponse;

    fn work(&self, _: &EvaluationContext) -> CallWork {
        CallWork::PluginStates
    }

    fn decide(
        self,
        edge: &ServerContext,
        context: &EvaluationContext,
        _: &CancellationToken,
    ) -> Result<Self::Response, CallError> {
        let mut query = convert::victims::read_victims(self, context.cluster_state(), &edge.read_options)?;
        query.now = context.now;
        let items = decide::victims(&context.cycle(), &context.policy.policy, &query)?;
        Ok(pb::SelectVictimsResponse {
            metadata: Some(context.decision_metadata(edge, NodeEncoding::Names, DecisionKind::Victims, &query.plugins)),
            result: Some(convert::victims::victims_result(
                &query,
                &items,
                context.evaluated_state(&query.plugins),
            )),
        })
    }
}
