//! `DecisionService.Place`: a preview on any `against`, or the next change of a session.

use std::sync::Arc;

use tonic::{Request, Response};

use crate::access::PLACE_COMMIT;
use pumice_engine::PolicyInForce;
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle};
use pumice_engine::decide::{self, Parallelism};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::DecisionKind;

use super::ServerContext;
use super::access_layer::check_access;
use super::codec::weighed;
use super::convert::evaluation_ref::{self, EvaluationRef, SessionRef};
use super::convert::nodes::NodeSetReader;
use super::convert::not_evaluated::EvaluatedState;
use super::convert::place::{PlaceCall, PlacementEffect};
use super::convert::place_result::place_result;
use super::decision_call::{CallWork, DecisionCall, cancelled};
use super::evaluation::EvaluationContext;
use super::pb;
use super::query_size::max_nodes;
use super::status::CallError;
use super::worker_pool::CancellationToken;

impl ServerContext {
    /// Places groups of tasks: a preview, or the next change of a session.
    pub(super) async fn place(
        self: &Arc<Self>,
        rpc: Request<pb::PlaceRequest>,
    ) -> Result<Response<pb::PlaceResponse>, CallError> {
        let (metadata, extensions, mut request) = rpc.into_parts();
        if request.effect == i32::from(pb::PlaceEffect::Commit) {
            check_access(&extensions, PLACE_COMMIT)?;
        }
        let evaluation_ref = request.against.take();
        let width = request.candidates.as_ref().map(max_nodes);
        let groups = request.groups.len();
        let tasks = request.groups.iter().filter_map(|group| group.task.as_ref());
        let object_bytes = tasks.map(|task| task.object.len()).sum();
        let call = PlaceCall::read(request, &self.read_options.limits)?;
        match call.effect {
            PlacementEffect::Preview => {}
            PlacementEffect::Session => {
                return Ok(Response::new(self.place_in_session(evaluation_ref, call).await?));
            }
            PlacementEffect::Commit => {
                return self
                    .place_and_commit(evaluation_ref, call, (&metadata, &extensions))
                    .await;
            }
        }
        let preview = PlacePreview {
            call,
            groups,
            width,
            object_bytes,
        };
        self.decide(preview, evaluation_ref, (&metadata, &extensions)).await
    }

    async fn place_in_session(
        self: &Arc<Self>,
        evaluation_ref: Option<pb::EvaluationRef>,
        call: PlaceCall,
    ) -> Result<pb::PlaceResponse, CallError> {
        let now = evaluation_ref::decision_time(evaluation_ref.as_ref());
        let (evaluation_ref, table) = evaluation_ref::read_ref(evaluation_ref, &self.read_options.limits)?;
        let EvaluationRef::Session(step) = evaluation_ref else {
            let message = "effect: SESSION changes a session, and the request names none";
            return Err(CallError::invalid("SESSION_MISSING", message));
        };
        let encoding = call.encoding;
        let epoch = self.state.snapshot().revision.epoch;
        let change = move |edge: &ServerContext, step: SessionRef, stop: &CancellationToken| {
            let SessionRef {
                session,
                after,
                changes,
            } = step;
            let place = |cycle: &mut SchedulingCycle, policy: &PolicyInForce, outcome: &mut ChangeOutcome| {
                let nodes = NodeSetReader {
                    state: cycle.cluster_state(),
                    epoch,
                    inline: false,
                };
                let mut query =
                    call.into_query(nodes, table.as_ref(), policy.policy.compatibility(), &edge.read_options)?;
                query.now = now;
                let execution = Parallelism {
                    is_cancelled: &|| stop.is_cancelled(),
                    verdicts: Some(edge.verdict_reuse(&policy.policy, &session)),
                    ..Parallelism::SEQUENTIAL
                };
                let placed = decide::place_in_cycle(cycle, &policy.policy, &query, execution)?;
                let (placing, did) = placed.ok_or_else(cancelled)?;
                outcome.merge(did);
                let result = place_result(
                    &query,
                    &placing,
                    EvaluatedState::new(cycle.cluster_state(), &policy.policy, &[]),
                    encoding,
                );
                let groups = result.groups.len() * size_of::<pb::PlacedGroup>();
                Ok::<_, CallError>(weighed(result, groups))
            };
            edge.state.query_cycle(&session, after, &changes, place)
        };
        let (mut context, result) = self.change_session(step, change).await?;
        context.now = now;
        Ok(pb::PlaceResponse {
            metadata: Some(context.decision_metadata(self, encoding, DecisionKind::Place, &[])),
            result: Some(pb::PlaceResult::clone(&result)),
            commit: None,
        })
    }
}

/// Place that changes nothing.
#[derive(Debug)]
struct PlacePreview {
    call: PlaceCall,
    /// Number of groups.
    groups: usize,
    /// Number of nodes that the request names; none: all.
    width: Option<usize>,
    /// Bytes of the objects that its tasks carry.
    object_bytes: usize,
}

/// True if plugins of the policy admit tasks, which may take plugin states.
fn admits(context: &EvaluationContext) -> bool {
    context.policy.policy.has_allocators()
}

impl DecisionCall for PlacePreview {
    type Response = pb::PlaceResponse;

    fn work(&self, context: &EvaluationContext) -> CallWork {
        if admits(context) {
            CallWork::PluginStates
        } else {
            CallWork::Pairs {
                tasks: self.groups.max(self.call.tasks / 10),
                width: self.width,
                ahead: 0,
            }
        }
    }

    fn object_bytes(&self) -> usize {
        self.object_bytes
    }

    fn decide(
        self,
        edge: &ServerContext,
        context: &EvaluationContext,
        stop: &CancellationToken,
    ) -> Result<Self::Response, CallError> {
        let call = self.call;
        let encoding = call.encoding;
        let policy = &context.policy.policy;
        let mut query = call.into_query(
            context.node_sets(),
            context.node_table(),
            policy.compatibility(),
            &edge.read_options,
        )?;
        query.now = context.now;
        let admits = admits(context);
        // Filters may read plugin states where no plugin is asked for admission.
        let derived = if admits || policy.reads_plugin_state(&[]) {
            context.plugin_states()
        } else {
            PluginStates::default()
        };
        let placed = decide::place_cancellable(
            context.cluster_state(),
            policy,
            context.plugin_state_origin(&derived),
            &query,
            Parallelism {
                is_cancelled: &|| stop.is_cancelled(),
                verdicts: context.verdict_reuse(edge),
                ..Parallelism::SEQUENTIAL
            },
        )?;
        let placing = placed.ok_or_else(cancelled)?;
        Ok(pb::PlaceResponse {
            metadata: Some(context.decision_metadata(edge, encoding, DecisionKind::Place, &[])),
            result: Some(place_result(&query, &placing, context.evaluated_state(&[]), encoding)),
            commit: None,
        })
    }
}
