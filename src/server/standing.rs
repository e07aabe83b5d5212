//! From the ground that a question names to the state and the policy that it is answered from.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tonic::metadata::MetadataMap;

use crate::engine::cycle::{Cycle, Outcome};
use crate::engine::decide::Kept;
use crate::engine::derived::DerivedSet;
use crate::engine::model::{Problem, View};
use crate::engine::plugin::{EVERY_QUEUE, Facts};
use crate::engine::policy::{self, CompileOptions};
use crate::engine::{PolicyInForce, Revision, World};
use crate::state::{StateError, Stepped};

use super::Edge;
use super::admission::read_timeout;
use super::convert::batch::problems;
use super::convert::ground::{Ground, InlineGround, Step, WorldGround};
use super::convert::nodes::{Encoding, Nodes, Writer};
use super::convert::{self, inline};
use super::pb;
use super::status::Failure;
use super::work::Stop;

/// Name of a policy that came with a question.
const INLINE: &str = "inline";
/// Session steps with more changes than this leave the async threads.
const CHANGES_INLINE: usize = 64;
/// Longest stamp in the trailers of a failure, where it stands as base64.
const STAMP_BYTES: usize = 1_500;
/// What is left of a caller's deadline for the answer itself, in percent.
const ANSWER_SHARE: u32 = 10;

/// An inline cluster, its policy, and what was overlooked.
type Built = (View, Arc<PolicyInForce>, Vec<Problem>);

#[derive(Debug)]
enum Held {
    World(Arc<World>),
    Session(Box<Stepped>),
    Inline(Box<View>),
}

/// What one question is answered from, held to the end of the call.
#[derive(Debug)]
pub(super) struct Standing {
    held: Held,
    pub(super) policy: Arc<PolicyInForce>,
    revision: Revision,
    table: Option<pb::NodeTableVersion>,
    warnings: Vec<Problem>,
}

impl Standing {
    pub(super) fn view(&self) -> &View {
        match &self.held {
            Held::World(world) => &world.view,
            Held::Session(step) => &step.view,
            Held::Inline(view) => view,
        }
    }

    /// What plugins derive from the state. Takes long if that is not there yet.
    pub(super) fn derived(&self) -> DerivedSet {
        match &self.held {
            Held::World(world) => world.derived(&self.policy),
            Held::Session(step) => step.cycle.derived().clone(),
            Held::Inline(view) => self.policy.policy.derive(view),
        }
    }

    /// The same for a question of Filter or Score that asks these plugins; empty if none of them reads it.
    pub(super) fn derived_for(&self, plugins: &[Arc<str>]) -> DerivedSet {
        if self.policy.policy.reads_accounts(plugins) {
            self.derived()
        } else {
            DerivedSet::default()
        }
    }

    /// True if nothing has to be worked out for Filter and Score by the policy's tiers.
    pub(super) fn is_derived(&self) -> bool {
        match &self.held {
            Held::Session(_) => true,
            Held::World(world) => !self.policy.policy.reads_accounts(&[]) || world.derived.is_ready(&self.policy.name),
            Held::Inline(_) => !self.policy.policy.reads_accounts(&[]),
        }
    }

    /// How what plugins derived stands to the state.
    pub(super) fn kept<'a>(&self, derived: &'a DerivedSet) -> Kept<'a> {
        match &self.held {
            Held::Session(_) => Kept::Moved(derived),
            Held::World(_) | Held::Inline(_) => Kept::WorkedOut(derived),
        }
    }

    /// What filters and scores read.
    pub(super) fn facts<'a>(&'a self, derived: &'a DerivedSet) -> Facts<'a> {
        Facts {
            view: self.view(),
            derived,
        }
    }

    /// The state as a cycle, with what plugins derive from it. Takes long if that is not there yet.
    pub(super) fn cycle(&self) -> Cycle {
        match &self.held {
            Held::Session(step) => step.cycle.clone(),
            Held::World(_) | Held::Inline(_) => {
                Cycle::new(self.view().clone(), self.policy.policy.compatibility(), self.derived())
            }
        }
    }

    /// The View with the table of its slots.
    pub(super) fn nodes(&self) -> Nodes<'_> {
        Nodes {
            view: self.view(),
            epoch: self.revision.epoch,
            inline: matches!(self.held, Held::Inline(_)),
        }
    }

    /// The table that the question's slots refer to.
    pub(super) fn table(&self) -> Option<&pb::NodeTableVersion> {
        self.table.as_ref()
    }

    /// The stamp of an answer that names nodes in this way.
    pub(super) fn stamp(&self, edge: &Edge, encoding: Encoding) -> pb::Stamp {
        let effects = match &self.held {
            Held::Session(step) => Some(effects(step, encoding)),
            Held::World(_) | Held::Inline(_) => None,
        };
        pb::Stamp {
            node_table: (encoding == Encoding::Slots).then(|| self.nodes().table()),
            effects,
            warnings: problems(&self.warnings),
            ..stamp(edge.next_id(), self.revision, &self.policy)
        }
    }

    /// Number of the last applied change, in a session.
    pub(super) fn applied_through(&self) -> Option<u64> {
        match &self.held {
            Held::Session(step) => Some(step.applied_through),
            Held::World(_) | Held::Inline(_) => None,
        }
    }

    /// A failure, in a session with the stamp that says how far the session came.
    pub(super) fn fail(&self, edge: &Edge, failure: Failure) -> Failure {
        match self.held {
            Held::Session(_) => failure.stamped(&short(self.stamp(edge, Encoding::Names))),
            Held::World(_) | Held::Inline(_) => failure,
        }
    }
}

/// The stamp of a state and a policy.
pub(super) fn stamp(decision_id: String, revision: Revision, policy: &PolicyInForce) -> pb::Stamp {
    let PolicyInForce {
        name,
        version,
        hash,
        profile: _,
        policy: _,
    } = policy;
    pb::Stamp {
        decision_id,
        revision: Some(convert::revision(revision)),
        policy: name.to_string(),
        policy_version: *version,
        policy_hash: hash.to_string(),
        ..pb::Stamp::default()
    }
}

/// All earlier answers are stale.
fn all() -> pb::Invalidation {
    pb::Invalidation {
        scope: pb::InvalidationScope::All.into(),
        ..pb::Invalidation::default()
    }
}

/// A stamp that fits in trailers, of which clients take a few kilobytes: what is too long to name is said at large.
fn short(mut stamp: pb::Stamp) -> pb::Stamp {
    if stamp.encoded_len() > STAMP_BYTES
        && let Some(effects) = &mut stamp.effects
    {
        effects.invalidation = Some(all());
        while stamp.encoded_len() > STAMP_BYTES
            && let Some(effects) = &mut stamp.effects
            && effects.warnings.pop().is_some()
        {}
    }
    stamp
}

fn effects(step: &Stepped, encoding: Encoding) -> pb::SessionEffects {
    let Outcome {
        nodes,
        queues,
        warnings,
        events: _,
    } = &step.outcome;
    let writer = Writer {
        view: &step.view,
        encoding,
    };
    let touched: Vec<_> = nodes.iter().copied().collect();
    let scope = if touched.is_empty() {
        pb::InvalidationScope::None
    } else {
        pb::InvalidationScope::Nodes
    };
    // What repeated changes did was said in a reply that may be lost, and is not remembered. What jobs and queues hold
    // counts on every node.
    let elsewhere = !touched.is_empty() && step.policy.policy.reads_accounts(&[]);
    let invalidation = if step.repeated || elsewhere {
        all()
    } else {
        pb::Invalidation {
            scope: scope.into(),
            nodes: (!touched.is_empty()).then(|| writer.set(&touched)),
            queues: moved_queues(step, queues),
        }
    };
    pb::SessionEffects {
        applied_through: step.applied_through,
        invalidation: Some(invalidation),
        warnings: problems(warnings),
    }
}

/// Queues whose keys moved, by name.
fn moved_queues(step: &Stepped, queues: &BTreeSet<Arc<str>>) -> Vec<String> {
    if queues.contains(EVERY_QUEUE) {
        return step.view.queues().iter().map(|(name, _)| name.to_string()).collect();
    }
    queues.iter().map(ToString::to_string).collect()
}

impl Edge {
    /// Answers a question that changes its session: one more change, numbered after those that ride along.
    pub(super) async fn ask_session<T: Any + Send + Sync>(
        self: &Arc<Self>,
        step: Step,
        question: impl FnOnce(&View, &PolicyInForce, &mut DerivedSet) -> Result<T, Problem> + Send + 'static,
    ) -> Result<(Standing, Arc<T>), Failure> {
        let asked = move |edge: &Edge, step: Step, _: &Stop| {
            let Step {
                session,
                after,
                changes,
            } = step;
            Ok(edge.state.ask(&session, after, &changes, question)?)
        };
        self.change_session(step, asked).await
    }

    /// Does on a worker what changes a session, and stands on the session as it is then.
    pub(super) async fn change_session<T: Any + Send + Sync>(
        self: &Arc<Self>,
        step: Step,
        change: impl FnOnce(&Self, Step, &Stop) -> Result<(Stepped, Arc<T>), Failure> + Send + 'static,
    ) -> Result<(Standing, Arc<T>), Failure> {
        let edge = Arc::clone(self);
        let name = step.session.clone();
        let changed = move |stop: &Stop| change(&edge, step, stop);
        let answered = self.work.questions.pass(changed).await;
        let (stepped, answer) = answered.map_err(|failure| self.say_how_far(&name, failure))?;
        Ok((Self::stepped(stepped), answer))
    }

    /// What an answer about a session stands on.
    pub(super) fn stepped(stepped: Stepped) -> Standing {
        Standing {
            policy: Arc::clone(&stepped.policy),
            revision: stepped.revision,
            held: Held::Session(Box::new(stepped)),
            table: None,
            warnings: Vec::new(),
        }
    }

    /// Finds, waits for or builds what a question stands on. A failure says how far the session came, if it is about one.
    pub(super) async fn stand(
        self: &Arc<Self>,
        ground: Option<pb::Ground>,
        metadata: &MetadataMap,
    ) -> Result<Standing, Failure> {
        let session = match ground.as_ref().and_then(|ground| ground.ground.as_ref()) {
            Some(pb::ground::Ground::Session(step)) => Some(step.session.clone()),
            Some(pb::ground::Ground::World(_) | pb::ground::Ground::Inline(_)) | None => None,
        };
        let found = self.find(ground, metadata).await;
        found.map_err(|failure| match session {
            Some(session) => self.say_how_far(&session, failure),
            None => failure,
        })
    }

    /// The failure with a stamp that says how far the session came, if that is known.
    pub(super) fn say_how_far(&self, session: &str, failure: Failure) -> Failure {
        match self.state.applied_through(session) {
            Some(applied) => failure.stamped_through(applied),
            None => failure,
        }
    }

    async fn find(self: &Arc<Self>, ground: Option<pb::Ground>, metadata: &MetadataMap) -> Result<Standing, Failure> {
        let (ground, table) = convert::ground::ground(ground, &self.declared.limits)?;
        let standing = match ground {
            Ground::World(ground) => self.on_world(ground, metadata).await?,
            Ground::Session(step) => self.on_session(step).await?,
            Ground::Inline(ground) => {
                let edge = Arc::clone(self);
                let (view, policy, warnings) = self.heavily(move || edge.on_inline(*ground)).await?;
                let revision = Revision {
                    number: 0,
                    ..self.state.world().revision
                };
                Standing {
                    held: Held::Inline(Box::new(view)),
                    policy,
                    revision,
                    table: None,
                    warnings,
                }
            }
        };
        Ok(Standing { table, ..standing })
    }

    /// The newest World, or one that is as new as asked for.
    pub(super) async fn world(&self, ground: &WorldGround, metadata: &MetadataMap) -> Result<Arc<World>, Failure> {
        if ground.at_least.is_none() && ground.positions.is_empty() {
            return Ok(self.state.world());
        }
        let wait = patience(ground.max_wait.min(self.state.limits().wait), metadata);
        let world = self.state.world_at(ground.at_least, &ground.positions, wait).await;
        Ok(world?)
    }

    async fn on_world(&self, ground: WorldGround, metadata: &MetadataMap) -> Result<Standing, Failure> {
        let world = self.world(&ground, metadata).await?;
        let Some(policy) = world.policies.get(&ground.policy) else {
            return Err(StateError::PolicyUnknown { name: ground.policy }.into());
        };
        let policy = policy.of_profile(&ground.profile);
        Ok(Standing {
            policy: policy.map_err(StateError::ProfileUnknown)?,
            revision: world.revision,
            held: Held::World(world),
            table: None,
            warnings: Vec::new(),
        })
    }

    async fn on_session(self: &Arc<Self>, step: Step) -> Result<Standing, Failure> {
        let edge = Arc::clone(self);
        let many = step.changes.len() > CHANGES_INLINE;
        let step = move || -> Result<Stepped, Failure> {
            let Step {
                session,
                after,
                changes,
            } = step;
            Ok(edge.state.step(&session, after, &changes)?)
        };
        let stepped = if many { self.heavily(step).await? } else { step()? };
        Ok(Self::stepped(stepped))
    }

    /// Builds the cluster and the policy that came with a question, and says what was overlooked.
    pub(super) fn on_inline(&self, ground: InlineGround) -> Result<Built, Failure> {
        let InlineGround {
            cluster,
            document,
            profile,
            compatibility,
        } = ground;
        let policy = self.inline_policy(&document, &compatibility)?;
        let policy = policy.of_profile(&profile).map_err(StateError::ProfileUnknown)?;
        let (view, warnings) = inline::view(cluster, &self.declared)?;
        Ok((view, policy, warnings))
    }

    fn inline_policy(&self, document: &str, compatibility: &str) -> Result<Arc<PolicyInForce>, Failure> {
        let document = if document.is_empty() {
            super::BUILT_IN_POLICY
        } else {
            document
        };
        let options = CompileOptions {
            limits: self.state.limits().of_policy_text(),
            compatibility: convert::policy::compatibility("ground.inline.compatibility", compatibility)?,
            strict: false,
        };
        let compiled = policy::compile(document, &options).map_err(|report| {
            let message = format!("ground.inline.policy_document: {} faults", report.faults().count());
            let failure = Failure::invalid("POLICY_REFUSED", message);
            failure.reported(convert::policy::report(&report))
        })?;
        Ok(Arc::new(PolicyInForce {
            name: Arc::from(INLINE),
            version: 0,
            hash: crate::state::hash(document),
            profile: Arc::default(),
            policy: compiled.policy,
        }))
    }
}

/// How long to wait for a state, so that the refusal still comes before the caller's deadline.
fn patience(wanted: Duration, metadata: &MetadataMap) -> Duration {
    let timeout = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok());
    match timeout.and_then(read_timeout) {
        Some(timeout) => wanted.min(timeout.saturating_sub(timeout * ANSWER_SHARE / 100)),
        None => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_before_the_deadline() {
        let mut metadata = MetadataMap::new();
        assert_eq!(patience(Duration::from_secs(3), &metadata), Duration::from_secs(3));
        metadata.insert("grpc-timeout", "1000m".parse().unwrap());
        assert_eq!(patience(Duration::from_secs(3), &metadata), Duration::from_millis(900));
        assert_eq!(read_timeout("99999999H"), Some(Duration::from_hours(99_999_999)));
        for wrong in ["", "S", "1", "123456789S", "1x", "-1S", "1é"] {
            assert_eq!(read_timeout(wrong), None, "{wrong}");
        }
    }
}
