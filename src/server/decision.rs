//! Filter, Score, Order and `SelectVictims`.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::Request;

use pumice_engine::decide::{self, NodeQuery, Parallelism};
use pumice_engine::model::Problem;
use pumice_engine::plugin::{PluginContext, VictimKind};
use pumice_engine::plugins;
use pumice_engine::policy::{DecisionKind, PolicyHook};

use super::ServerContext;
use super::convert;
use super::convert::nodes::{NodeEncoding, max_nodes};
use super::convert::query;
use super::convert::result;
use super::decision_call::{CallWork, DecisionCall, Evaluation, cancelled};
use super::evaluation::EvaluationContext;
use super::pb;
use super::status::RpcResult;

/// Declares the calls that only decide, each by the one way from bytes to result.
macro_rules! decisions {
    ($($method:ident: $request:ident -> $response:ident;)*) => {
        impl ServerContext {$(
            pub(super) fn $method(
                self: Arc<Self>,
                rpc: Request<pb::$request>,
            ) -> impl Future<Output = RpcResult<pb::$response>> + Send {
                let mut call = rpc.into_inner();
                let against = self.read_against(call.against.take());
                self.decide(call, against)
            }
        )*}
    };
}

decisions! {
    filter: FilterRequest -> FilterResponse;
    score: ScoreRequest -> ScoreResponse;
    order: OrderRequest -> OrderResponse;
    select_victims: SelectVictimsRequest -> SelectVictimsResponse;
}

/// Evaluates a query of tasks on nodes by a function of the engine, on as many cores as are free. Records the decision in
/// metrics, with the hooks that took part.
fn query_nodes<T>(
    Evaluation { edge, context, stop }: Evaluation<'_>,
    query: &NodeQuery,
    (rpc, hooks): (&'static str, &[PolicyHook]),
    ask: impl FnOnce(PluginContext<'_>, Parallelism<'_>) -> Result<Option<T>, Problem>,
) -> RpcResult<T> {
    let start = (!query.tasks.is_empty()).then(Instant::now);
    let derived = context.plugin_states_for(&query.plugins);
    let pairs = query
        .tasks
        .len()
        .saturating_mul(query::node_count(query, context.cluster_state()));
    let cores = edge.workers.queries.lease_cores(pairs);
    let is_cancelled = || stop.is_cancelled();
    let execution = context.parallelism(edge, cores.core_count(), &is_cancelled);
    let items = ask(context.prepare_context(&derived), execution)?.ok_or_else(cancelled)?;
    let Some(start) = start else { return Ok(items) };
    let asked: Vec<&str> = if query.plugins.is_empty() {
        hooks.iter().map(|hook| &*hook.name).collect()
    } else {
        query.plugins.iter().map(|name| &**name).collect()
    };
    // Names as the registry has them: callers must not be able to invent labels.
    let served = plugins::REGISTRY.iter().map(|row| row.name);
    let plugins: Vec<&'static str> = served.filter(|name| asked.contains(name)).collect();
    edge.metrics
        .record_decision(rpc, query.tasks.len(), &plugins, start.elapsed());
    Ok(items)
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

    fn tasks(&self) -> &[pb::Task] {
        &self.tasks
    }

    fn decide(self, evaluation: Evaluation<'_>) -> RpcResult<Self::Response> {
        let Evaluation { edge, context, .. } = evaluation;
        let (query, encoding) = query::read_filter(self, context.query_basis(edge))?;
        let policy = &context.policy.policy;
        let hooks = ("Filter", policy.hooks().filters.as_slice());
        let items = query_nodes(evaluation, &query, hooks, |prepared, execution| {
            decide::filter_with(prepared, policy, &query, execution)
        })?;
        let result = result::filter_result(&query, items, context.evaluated_state(&query.plugins), encoding);
        Ok(pb::FilterResponse {
            metadata: Some(context.decision_metadata(edge, encoding, DecisionKind::Filter, &query.plugins)),
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

    fn tasks(&self) -> &[pb::Task] {
        &self.tasks
    }

    fn least_bytes(&self, context: &EvaluationContext) -> usize {
        // The number of nodes that a filter leaves is not known before.
        if self.with_filter {
            return 0;
        }
        let all = context.cluster_state().node_count() as usize;
        let width = self.candidates.as_ref().map_or(all, |set| all.min(max_nodes(set)));
        let shown = self.limit.map_or(width, |limit| width.min(limit as usize));
        self.tasks.len().saturating_mul(shown).saturating_mul(size_of::<f64>())
    }

    fn decide(self, evaluation: Evaluation<'_>) -> RpcResult<Self::Response> {
        let Evaluation { edge, context, .. } = evaluation;
        let (query, encoding) = query::read_score(self, context.query_basis(edge))?;
        let policy = &context.policy.policy;
        let hooks = ("Score", policy.hooks().scorers.as_slice());
        let items = query_nodes(evaluation, &query.node_query, hooks, |prepared, execution| {
            decide::score_with(prepared, policy, &query, execution)
        })?;
        let kind = if query.with_filter {
            DecisionKind::FilteredScore
        } else {
            DecisionKind::Score
        };
        let plugins = &query.node_query.plugins;
        let result = result::score_result(&query, items, context.evaluated_state(plugins), encoding);
        Ok(pb::ScoreResponse {
            metadata: Some(context.decision_metadata(edge, encoding, kind, plugins)),
            result: Some(result),
        })
    }
}

impl DecisionCall for pb::OrderRequest {
    type Response = pb::OrderResponse;

    fn work(&self, _: &EvaluationContext) -> CallWork {
        CallWork::PluginStates
    }

    fn decide(self, evaluation: Evaluation<'_>) -> RpcResult<Self::Response> {
        let Evaluation { edge, context, .. } = evaluation;
        let query = convert::order::read_order(self, context.query_basis(edge))?;
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

    fn decide(self, evaluation: Evaluation<'_>) -> RpcResult<Self::Response> {
        let Evaluation { edge, context, .. } = evaluation;
        let query = convert::victims::read_victims(self, context.query_basis(edge))?;
        let items = decide::victims(&context.cycle(), &context.policy.policy, &query)?;
        let kind = if query.kind == VictimKind::Shuffle {
            DecisionKind::Shuffle
        } else {
            DecisionKind::Victims
        };
        Ok(pb::SelectVictimsResponse {
            metadata: Some(context.decision_metadata(edge, NodeEncoding::Names, kind, &query.plugins)),
            result: Some(convert::victims::victims_result(
                &query,
                &items,
                context.evaluated_state(&query.plugins),
            )),
        })
    }
}
