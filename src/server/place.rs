//! `DecisionService.Place`: a preview on any `against`, or the next change of a session.

use std::sync::Arc;

use tonic::Request;

use crate::access::PLACE_COMMIT;
use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::decide::{self, Parallelism};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::DecisionKind;

use super::ServerContext;
use super::access_layer::check_access;
use super::codec::weighed;
use super::convert::nodes::max_nodes;
use super::convert::not_evaluated::EvaluatedState;
use super::convert::place::PlaceCall;
use super::convert::place_result::place_result;
use super::decision_call::{CallWork, DecisionCall, Evaluation, cancelled};
use super::evaluation::EvaluationContext;
use super::pb;
use super::resolve::SessionQuery;
use super::status::RpcResult;

impl ServerContext {
    /// Places groups of tasks: a preview, or the next change of a session.
    pub(super) async fn place(self: Arc<Self>, rpc: Request<pb::PlaceRequest>) -> RpcResult<pb::PlaceResponse> {
        let (_, extensions, mut request) = rpc.into_parts();
        if request.effect == i32::from(pb::PlaceEffect::Commit) {
            check_access(&extensions, PLACE_COMMIT)?;
        }
        let against = request.against.take();
        let call = PlaceCall::read(request, &self.read_options.limits)?;
        match call.effect {
            pb::PlaceEffect::Unspecified | pb::PlaceEffect::Preview => {
                let against = self.read_against(against);
                self.decide(call, against).await
            }
            pb::PlaceEffect::Session => self.place_in_session(against, call).await,
            pb::PlaceEffect::Commit => self.place_and_commit(against, call).await,
        }
    }

    async fn place_in_session(
        self: &Arc<Self>,
        against: Option<pb::EvaluationRef>,
        call: PlaceCall,
    ) -> RpcResult<pb::PlaceResponse> {
        let encoding = call.encoding;
        let place = move |asked: SessionQuery<'_>, cycle: &mut SchedulingCycle| {
            let (policy, stop) = (&asked.policy.policy, asked.stop);
            let query = call.into_query(asked.basis(cycle.cluster_state()))?;
            let execution = Parallelism {
                is_cancelled: &|| stop.is_cancelled(),
                verdicts: Some(asked.edge.verdict_reuse(policy, asked.session)),
                ..Parallelism::SEQUENTIAL
            };
            let placed = decide::place_in_cycle(cycle, policy, &query, execution)?;
            let (placing, did) = placed.ok_or_else(cancelled)?;
            asked.outcome.merge(did);
            let state = EvaluatedState::new(cycle.cluster_state(), policy, &[]);
            let result = place_result(&query, &placing, state, encoding);
            let groups = result.groups.len() * size_of::<pb::PlacedGroup>();
            Ok(weighed(result, groups))
        };
        let purpose = "effect: SESSION changes a session";
        let (context, result) = self.query_session(against, purpose, place).await?;
        Ok(pb::PlaceResponse {
            metadata: Some(context.decision_metadata(self, encoding, DecisionKind::Place, &[])),
            result: Some(pb::PlaceResult::clone(&result)),
            commit: None,
        })
    }
}

/// Place that changes nothing.
impl DecisionCall for PlaceCall {
    type Response = pb::PlaceResponse;

    fn work(&self, context: &EvaluationContext) -> CallWork {
        if context.policy.policy.places_by_plugin_state() {
            CallWork::PluginStates
        } else {
            CallWork::Pairs {
                tasks: self.request.groups.len().max(self.tasks / 10),
                width: self.request.candidates.as_ref().map(max_nodes),
                ahead: 0,
            }
        }
    }

    fn object_bytes(&self) -> usize {
        let tasks = self.request.groups.iter().filter_map(|group| group.task.as_ref());
        tasks.map(|task| task.object.len()).sum()
    }

    fn decide(self, evaluation: Evaluation<'_>) -> RpcResult<Self::Response> {
        let Evaluation { edge, context, stop } = evaluation;
        let encoding = self.encoding;
        let policy = &context.policy.policy;
        let query = self.into_query(context.query_basis(edge))?;
        // Filters may read plugin states where no plugin is asked for admission.
        let derived = if policy.places_by_plugin_state() {
            context.plugin_states()
        } else {
            PluginStates::default()
        };
        let placed = decide::place_cancellable(
            context.cluster_state(),
            policy,
            context.plugin_state_origin(&derived),
            &query,
            context.parallelism(edge, 1, &|| stop.is_cancelled()),
        )?;
        let placing = placed.ok_or_else(cancelled)?;
        Ok(pb::PlaceResponse {
            metadata: Some(context.decision_metadata(edge, encoding, DecisionKind::Place, &[])),
            result: Some(place_result(&query, &placing, context.evaluated_state(&[]), encoding)),
            commit: None,
        })
    }
}
