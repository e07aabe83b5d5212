//! Admit with mode CONFIRM: a write at the newest state, through the writer.

use std::sync::Arc;

use tonic::metadata::MetadataMap;

use super::Edge;
use super::convert::admit::{self, AdmitCall};
use super::convert::ground::{self, Ground, Step, WorldGround};
use super::convert::nodes::Encoding;
use super::pb;
use super::standing::stamp;
use super::status::Failure;
use super::work::Stop;
use crate::engine::model::{Problem, View};
use crate::state::{Confirm, ConfirmItem, Confirmation, SessionConfirm, StateError};

impl Edge {
    /// Confirms jobs at the newest state; in a session the jobs that it keeps, too.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        ground: Option<pb::Ground>,
        call: AdmitCall,
        metadata: &MetadataMap,
    ) -> Result<pb::AdmitResponse, Failure> {
        let (ground, _) = ground::ground(ground, &self.declared.limits)?;
        match ground {
            Ground::World(ground) => self.confirm_on_world(ground, call, metadata).await,
            Ground::Session(step) => self.confirm_in_session(step, call).await,
            Ground::Inline(_) => {
                let message = "mode: CONFIRM writes to shared state, and the question stands on a cluster of its own";
                Err(Failure::invalid("CONFIRM_INLINE", message))
            }
        }
    }

    async fn confirm_on_world(
        self: &Arc<Self>,
        ground: WorldGround,
        call: AdmitCall,
        metadata: &MetadataMap,
    ) -> Result<pb::AdmitResponse, Failure> {
        let world = self.world(&ground, metadata).await?;
        let Some(policy) = world.policies.get(&ground.policy).cloned() else {
            return Err(StateError::PolicyUnknown { name: ground.policy }.into());
        };
        let policy = policy.of_profile(&ground.profile).map_err(StateError::ProfileUnknown)?;
        if policy.policy.derives() && !world.derived.is_ready(&policy.name) {
            // Here, so that the writer does not have to.
            let derive = move |_: &Stop| {
                world.derived(&policy);
                Ok(())
            };
            self.work.questions.pass(derive).await?;
        }
        let confirm = Confirm {
            policy: ground.policy,
            profile: ground.profile,
            plugins: call.plugins.clone(),
            lease: call.lease,
            read: self.reading(call),
        };
        let done = self.state.confirm(confirm).await?;
        Ok(pb::AdmitResponse {
            stamp: Some(stamp(self.next_id(), done.revision, &done.policy)),
            ..response(&done)
        })
    }

    async fn confirm_in_session(self: &Arc<Self>, step: Step, call: AdmitCall) -> Result<pb::AdmitResponse, Failure> {
        let name = step.session.clone();
        let (plugins, lease, kept) = (call.plugins.clone(), call.lease, call.size() == 0);
        let confirm = SessionConfirm {
            plugins,
            lease,
            read: (!kept).then(|| self.reading(call)),
        };
        let edge = Arc::clone(self);
        let ask = move |_: &Stop| {
            let Step {
                session,
                after,
                changes,
            } = step;
            Ok(edge.state.confirm_session(&session, after, &changes, confirm)?)
        };
        let answered = self.work.questions.pass(ask).await;
        let (stepped, done) = answered.map_err(|failure| self.say_how_far(&name, failure))?;
        let effects = Self::stepped(stepped).stamp(self, Encoding::Names);
        Ok(pb::AdmitResponse {
            stamp: Some(pb::Stamp {
                effects: effects.effects,
                ..stamp(effects.decision_id, done.revision, &done.policy)
            }),
            ..response(&done)
        })
    }

    /// Reads the items when the writer comes to them.
    fn reading(self: &Arc<Self>, mut call: AdmitCall) -> crate::state::Reading {
        let (edge, items) = (Arc::clone(self), call.take_items());
        Box::new(move |view: &View| -> Vec<Result<ConfirmItem, Problem>> {
            AdmitCall::to_confirm(items, view, &edge.declared)
        })
    }
}

fn response(done: &Confirmation) -> pb::AdmitResponse {
    let durability = super::convert::durability(done.durability);
    pb::AdmitResponse {
        stamp: None,
        answer: Some(admit::confirmed(&done.items)),
        durability: durability.into(),
    }
}
