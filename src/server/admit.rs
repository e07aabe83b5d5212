//! `Admit`: a check on any `against`, or the next change of a session; `confirm.rs` has the third mode.

use std::sync::Arc;

use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::decide;
use pumice_engine::model::Problem;
use pumice_engine::policy::DecisionKind;
use tonic::Request;

use super::ServerContext;
use super::access_layer::check_access;
use super::codec::weighed;
use super::convert::admit::{self, AdmitCall};
use super::convert::nodes::NodeEncoding;
use super::convert::not_evaluated::EvaluatedState;
use super::decision_call::{CallWork, DecisionCall, Evaluation};
use super::evaluation::EvaluationContext;
use super::pb;
use super::resolve::SessionQuery;
use super::status::RpcResult;
use crate::access::ADMIT_CONFIRM;

impl DecisionCall for AdmitCall {
    type Response = pb::AdmitResponse;

    fn work(&self, _: &EvaluationContext) -> CallWork {
        CallWork::PluginStates
    }

    fn decide(self, evaluation: Evaluation<'_>) -> RpcResult<Self::Response> {
        let Evaluation { edge, context, .. } = evaluation;
        let query = self.into_query(context.query_basis(edge));
        let mut derived = context.plugin_states();
        let items = decide::admit(context.cluster_state(), &context.policy.policy, &mut derived, &query)?;
        Ok(pb::AdmitResponse {
            metadata: Some(context.decision_metadata(edge, NodeEncoding::Names, DecisionKind::Admit, &query.plugins)),
            result: Some(admit::admit_result(
                &query,
                &items,
                context.evaluated_state(&query.plugins),
            )),
            durability: pb::Durability::Unspecified.into(),
        })
    }
}

impl ServerContext {
    /// Evaluates whether jobs and tasks are admitted, in the request's mode.
    pub(super) async fn admit(self: Arc<Self>, rpc: Request<pb::AdmitRequest>) -> RpcResult<pb::AdmitResponse> {
        let (_, extensions, mut request) = rpc.into_parts();
        let against = request.against.take();
        let call = AdmitCall::read(request, &self.read_options.limits)?;
        match call.mode {
            pb::AdmitMode::Unspecified | pb::AdmitMode::Check => {
                let against = self.read_against(against);
                self.decide(call, against).await
            }
            pb::AdmitMode::Tentative => self.admit_in_session(against, call).await,
            pb::AdmitMode::Confirm => {
                check_access(&extensions, ADMIT_CONFIRM)?;
                self.confirm(against, call).await
            }
        }
    }

    /// Admits jobs in a session. The session is charged with the permits.
    async fn admit_in_session(
        self: &Arc<Self>,
        against: Option<pb::EvaluationRef>,
        call: AdmitCall,
    ) -> RpcResult<pb::AdmitResponse> {
        let plugins = call.plugins.clone();
        let ask = move |asked: SessionQuery<'_>, cycle: &mut SchedulingCycle| {
            let policy = &asked.policy.policy;
            Ok(cycle.query_plugins(|cluster_state, derived| {
                let query = call.into_query(asked.basis(cluster_state));
                let items = decide::admit(cluster_state, policy, derived, &query)?;
                let bytes = items.len() * size_of::<pb::AdmitItem>();
                let state = EvaluatedState::new(cluster_state, policy, &query.plugins);
                Ok::<_, Problem>(weighed(admit::admit_result(&query, &items, state), bytes))
            })?)
        };
        let purpose = "mode: TENTATIVE counts in a session";
        let (context, result) = self.query_session(against, purpose, ask).await?;
        Ok(pb::AdmitResponse {
            metadata: Some(context.decision_metadata(self, NodeEncoding::Names, DecisionKind::Admit, &plugins)),
            result: Some(pb::AdmitResult::clone(&result)),
            durability: pb::Durability::Unspecified.into(),
        })
    }
}
