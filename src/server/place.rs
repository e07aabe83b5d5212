//! `DecisionService.Place`: a preview on any ground, or the next change of a session.

use tonic::Request;

use crate::engine::PolicyInForce;
use crate::engine::cycle::{Cycle, Outcome};
use crate::engine::decide;
use crate::engine::derived::DerivedSet;

use super::Edge;
use super::convert::ground::{self, Ground, Step};
use super::convert::nodes::Nodes;
use super::convert::place::{PlaceCall, answer};
use super::decision::{Decisions, given_up};
use super::pb;
use super::standing::Standing;
use super::status::Failure;
use super::work::Stop;

impl Decisions {
    /// Answers Place.
    pub(super) async fn placement(&self, rpc: Request<pb::PlaceRequest>) -> Result<pb::PlaceResponse, Failure> {
        let (metadata, _, mut request) = rpc.into_parts();
        let ground = request.ground.take();
        let width = request.candidates.as_ref().map(super::decision::width);
        let groups = request.groups.len();
        let call = PlaceCall::read(request, &self.0.declared.limits)?;
        if call.in_session {
            return self.place_in_session(ground, call).await;
        }
        let standing = self.0.stand(ground, &metadata).await?;
        // Admission may have to work out what plugins keep.
        let admits = standing.policy.policy.allocators().iter().any(|tier| !tier.is_empty());
        let size = if admits {
            usize::MAX
        } else {
            groups.max(call.tasks / 10)
        };
        let reply = self.answer((size, width), standing, move |edge, standing, stop| {
            preview(edge, standing, stop, call)
        });
        reply.await
    }

    async fn place_in_session(
        &self,
        ground: Option<pb::Ground>,
        call: PlaceCall,
    ) -> Result<pb::PlaceResponse, Failure> {
        let (ground, table) = ground::ground(ground, &self.0.declared.limits)?;
        let Ground::Session(step) = ground else {
            let message = "effect: SESSION changes a session, and the question stands on none";
            return Err(Failure::invalid("SESSION_MISSING", message));
        };
        let encoding = call.encoding;
        let epoch = self.0.state.world().revision.epoch;
        let change = move |edge: &Edge, step: Step, stop: &Stop| {
            let Step {
                session,
                after,
                changes,
            } = step;
            let place = |cycle: &mut Cycle, policy: &PolicyInForce, outcome: &mut Outcome| {
                let nodes = Nodes {
                    view: cycle.view(),
                    epoch,
                    inline: false,
                };
                let question = call.question(nodes, table.as_ref(), &edge.declared)?;
                let placed = decide::place_in(cycle, &policy.policy, &question, &|| stop.is_set())?;
                let (placing, did) = placed.ok_or_else(given_up)?;
                outcome.also(did);
                Ok::<_, Failure>(answer(&placing, cycle.view(), encoding))
            };
            edge.state.ask_cycle(&session, after, &changes, place)
        };
        let (standing, answer) = self.0.change_session(step, change).await?;
        Ok(pb::PlaceResponse {
            stamp: Some(standing.stamp(&self.0, encoding)),
            answer: Some(pb::PlaceAnswer::clone(&answer)),
        })
    }
}

fn preview(edge: &Edge, standing: &Standing, stop: &Stop, call: PlaceCall) -> Result<pb::PlaceResponse, Failure> {
    let encoding = call.encoding;
    let question = call.question(standing.nodes(), standing.table(), &edge.declared)?;
    let policy = &standing.policy.policy;
    let admits = policy.allocators().iter().any(|tier| !tier.is_empty());
    // Filters may read it where nobody is asked for admission.
    let derived = if admits || policy.reads_accounts(&[]) {
        standing.derived()
    } else {
        DerivedSet::default()
    };
    let placed = decide::place_until(standing.view(), policy, standing.kept(&derived), &question, &|| {
        stop.is_set()
    })?;
    let placing = placed.ok_or_else(given_up)?;
    Ok(pb::PlaceResponse {
        stamp: Some(standing.stamp(edge, encoding)),
        answer: Some(answer(&placing, standing.view(), encoding)),
    })
}
