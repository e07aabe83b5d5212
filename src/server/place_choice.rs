//! Choice of nodes for a call that places and commits: the call, the state that it chooses in, and its responses.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ServerContext;
use super::convert::evaluation_ref::LatestRef;
use super::convert::nodes::{NodeSetReader, NodeSetWriter};
use super::convert::not_evaluated::EvaluatedState;
use super::convert::place::PlaceCall;
use super::convert::place_result::{held_result, place_result};
use super::convert::query::QueryBasis;
use super::convert::{self, commit};
use super::evaluation::{EvaluationContext, HeldState};
use super::pb;
use super::status::{CallError, RpcResult};
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::decide::{self, Parallelism, PlaceQuery, PlaceResult, PluginStateOrigin};
use pumice_engine::model::{ClusterState, ErrorCode, ResourceTotals};
use pumice_engine::plugin::DecisionTime;
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::DecisionKind;
use pumice_engine::{PolicyInForce, Revision, Snapshot};
use pumice_state::{
    CommitOutcome, CommitRejection, CommitScope, PlacedCall, PlacementCommit, ProposedJob, ProposedPlacement,
    policy_in_snapshot,
};

/// Maximum number of times that one call chooses nodes.
pub(super) const MAX_TRIES: u32 = 8;
/// Prefix of the names of held placements. Session ids never have it.
const HOLD_PREFIX: &str = "place/";

/// Call that places and commits, without its place in a queue.
#[derive(Debug)]
pub(super) struct CommitCall {
    call: PlaceCall,
    table: Option<pb::NodeTableVersion>,
    /// Name under which the placement is held.
    hold: Arc<str>,
    policy: (Arc<str>, Arc<str>),
    /// Time of the decision.
    now: Option<DecisionTime>,
}

/// State in which nodes are chosen.
#[derive(Debug)]
pub(super) struct ChoiceState {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) policy: Arc<PolicyInForce>,
    /// State of the snapshot, with the placements that were chosen before and are not committed yet.
    pub(super) cluster_state: ClusterState,
    pub(super) plugin_states: PluginStates,
}

/// Nodes that were chosen for a call.
#[derive(Debug)]
pub(super) struct PlacementChoice {
    /// Placement to commit; `None`: too few tasks have a node.
    pub(super) placed: Option<PlacedCall>,
    pub(super) result: pb::PlaceResult,
}

/// Tries of a call so far.
#[derive(Debug, Default)]
pub(super) struct CommitTries {
    pub(super) count: u32,
    /// Rejections of the first try that did not hold.
    pub(super) conflicts: Vec<CommitRejection>,
}

impl CommitTries {
    /// Notes that a try did not hold. Error once no more is made.
    pub(super) fn conflicted(&mut self, rejections: Vec<CommitRejection>) -> RpcResult<()> {
        let why = rejections.first().map(|first| first.reason.message.clone());
        if self.conflicts.is_empty() {
            self.conflicts = rejections;
        }
        if self.count < MAX_TRIES {
            return Ok(());
        }
        let message = format!(
            "others changed the chosen nodes {MAX_TRIES} times in a row, the last time: {}; send the call again",
            why.unwrap_or_default()
        );
        Err(CallError::new(ErrorCode::PlacementConflict, message))
    }
}

impl ChoiceState {
    /// Newest state of the server, under the policy of a call.
    pub(super) fn newest(edge: &ServerContext, call: &CommitCall) -> RpcResult<Self> {
        let snapshot = edge.state.snapshot();
        let policy = policy_in_snapshot(&snapshot, &call.policy.0, &call.policy.1)?;
        let plugin_states = if policy.policy.places_by_plugin_state() {
            snapshot.plugin_states(&policy)
        } else {
            PluginStates::default()
        };
        Ok(Self {
            cluster_state: snapshot.state.clone(),
            snapshot,
            policy,
            plugin_states,
        })
    }
}

impl CommitCall {
    /// Call by the policy of a reference to the newest state.
    pub(super) fn new(
        call: PlaceCall,
        table: Option<pb::NodeTableVersion>,
        (latest, now): (LatestRef, Option<DecisionTime>),
    ) -> Self {
        Self {
            hold: format!("{HOLD_PREFIX}{}", call.request.commit_key).into(),
            call,
            table,
            policy: (latest.policy, latest.profile),
            now,
        }
    }

    /// Call with this key that asks for nothing.
    #[cfg(test)]
    pub(super) fn for_tests(key: &str) -> Self {
        let request = pb::PlaceRequest {
            groups: vec![pb::TaskGroup::default()],
            effect: pb::PlaceEffect::Commit.into(),
            commit_key: key.to_owned(),
            ..pb::PlaceRequest::default()
        };
        Self {
            call: PlaceCall::read(request, &crate::limits::EdgeLimits::default()).unwrap(),
            table: None,
            hold: format!("{HOLD_PREFIX}{key}").into(),
            policy: Default::default(),
            now: None,
        }
    }

    /// Name under which the placement is held.
    pub(super) fn hold(&self) -> &Arc<str> {
        &self.hold
    }

    /// Name and profile of the policy.
    pub(super) fn policy(&self) -> &(Arc<str>, Arc<str>) {
        &self.policy
    }

    /// Chooses nodes in a state; `None`: `stop` returned true.
    pub(super) fn choose(
        &self,
        edge: &ServerContext,
        state: &ChoiceState,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> RpcResult<Option<PlacementChoice>> {
        let policy = &state.policy.policy;
        let mut query = self.call.clone().into_query(QueryBasis {
            nodes: NodeSetReader {
                table: self.table.as_ref(),
                ..NodeSetReader::new(&state.cluster_state, state.snapshot.revision.epoch)
            },
            compatibility: policy.compatibility(),
            now: self.now,
            options: &edge.read_options,
        })?;
        // The writer counts a gang by its job, whatever the request says.
        let least = gang_minimum(&state.cluster_state, &query);
        query.min_available = query.min_available.map(|given| given.max(least));
        let origin = PluginStateOrigin::Modified(&state.plugin_states);
        let execution = Parallelism {
            is_cancelled: stop,
            verdicts: Some(edge.verdict_reuse(policy, "")),
            ..Parallelism::SEQUENTIAL
        };
        let placed = decide::place_cancellable(&state.cluster_state, policy, origin, &query, execution)?;
        let Some(mut placing) = placed else { return Ok(None) };
        placing.min_count = placing.min_count.max(least);
        placing.placed &= placing.placed_count >= least;
        let evaluated = EvaluatedState::new(&state.cluster_state, policy, &[]);
        Ok(Some(PlacementChoice {
            placed: (placing.placed && placing.placed_count > 0).then(|| PlacedCall {
                hold: Arc::clone(&self.hold),
                job: proposed_job(&state.cluster_state, &query, &placing),
            }),
            result: place_result(&query, &placing, evaluated, self.call.encoding),
        }))
    }

    /// Placements of this call alone, for the writer.
    pub(super) fn placed_calls(&self, calls: Arc<Vec<PlacedCall>>) -> PlacementCommit {
        PlacementCommit {
            scope: CommitScope::Calls,
            policy: self.policy.clone(),
            calls,
        }
    }

    /// Response to a call whose placement is not committed.
    pub(super) fn unplaced(
        &self,
        edge: &ServerContext,
        state: &ChoiceState,
        result: pb::PlaceResult,
    ) -> pb::PlaceResponse {
        pb::PlaceResponse {
            metadata: Some(self.metadata(edge, (&state.snapshot, &state.policy), state.snapshot.revision)),
            result: Some(result),
            commit: None,
        }
    }

    /// Response to a call whose placement is committed.
    pub(super) fn committed(
        &self,
        edge: &ServerContext,
        origin: (&Arc<Snapshot>, &Arc<PolicyInForce>),
        (result, tries): (pb::PlaceResult, &CommitTries),
        outcome: &CommitOutcome,
    ) -> pb::PlaceResponse {
        let metadata = self.metadata(edge, origin, outcome.revision);
        let (_, policy_version, policy_hash) = &outcome.policy;
        pb::PlaceResponse {
            metadata: Some(pb::ResponseMetadata {
                policy_version: *policy_version,
                policy_hash: policy_hash.to_string(),
                ..metadata
            }),
            result: Some(result),
            commit: Some(pb::CommittedPlacement {
                session: self.hold.to_string(),
                durability: convert::durability(outcome.durability).into(),
                tries: tries.count,
                repeated: false,
                conflicts: tries.conflicts.iter().map(commit::rejection).collect(),
            }),
        }
    }

    /// Response to a repeated call whose placement is held; `None`: the held tasks are not the first ones of their groups.
    ///
    /// # Errors
    /// The key is one of another request.
    pub(super) fn repeated(
        &self,
        edge: &ServerContext,
        held: &[TaskPlacement],
    ) -> RpcResult<Option<pb::PlaceResponse>> {
        let snapshot = edge.state.snapshot();
        let policy = policy_in_snapshot(&snapshot, &self.policy.0, &self.policy.1)?;
        let writer = NodeSetWriter::new(&snapshot.state, self.call.encoding);
        let groups = &self.call.request.groups;
        let asked: BTreeSet<&str> = groups
            .iter()
            .flat_map(|group| &group.names)
            .map(String::as_str)
            .collect();
        if let Some(other) = held.iter().find(|own| !asked.contains(&*own.task)) {
            let message = format!(
                "commit_key: another request committed task `{}` under this key: use a new key for each request",
                other.task
            );
            return Err(CallError::new(ErrorCode::CommitKeyReused, message));
        }
        let least = minimum_before(&snapshot.state, held);
        let names: usize = groups.iter().map(|group| group.names.len()).sum();
        let min_count = match (self.call.request.min_available, least) {
            (Some(given), least) => (given as usize).max(least.unwrap_or(0)),
            (None, least) => least.unwrap_or(names),
        };
        let result = held_result(groups, held, min_count, writer);
        let response = |result| pb::PlaceResponse {
            metadata: Some(self.metadata(edge, (&snapshot, &policy), snapshot.revision)),
            result: Some(result),
            commit: Some(pb::CommittedPlacement {
                session: self.hold.to_string(),
                durability: convert::durability(edge.state.durability()).into(),
                tries: 0,
                repeated: true,
                conflicts: Vec::new(),
            }),
        };
        Ok(result.map(response))
    }

    fn metadata(
        &self,
        edge: &ServerContext,
        (snapshot, policy): (&Arc<Snapshot>, &Arc<PolicyInForce>),
        revision: Revision,
    ) -> pb::ResponseMetadata {
        let state = HeldState::Snapshot(Arc::clone(snapshot));
        let mut context = EvaluationContext::new(state, Arc::clone(policy), revision);
        context.now = self.now;
        context.decision_metadata(edge, self.call.encoding, DecisionKind::Place, &[])
    }
}

/// Placement of a call for the writer's evaluation.
fn proposed_job(cluster_state: &ClusterState, query: &PlaceQuery, placing: &PlaceResult) -> ProposedJob {
    let mut placements = Vec::with_capacity(placing.placed_count);
    let groups = query.groups.iter().zip(&placing.groups);
    let groups = groups.filter_map(|(asked, placed)| Some((asked.as_ref().ok()?, placed.as_ref().ok()?)));
    let mut job: Arc<str> = Arc::default();
    for (asked, placed) in groups {
        job.clone_from(&asked.task.job);
        let (mut cards, mut devices) = (placed.cards.iter(), placed.devices.iter().copied());
        for (task, slot) in asked.names.iter().zip(&placed.allocated) {
            let (card, devices) = (cards.next().cloned().unwrap_or_default(), devices.next().unwrap_or(0));
            let Some(node) = cluster_state.node(*slot) else {
                continue;
            };
            let known = cluster_state.tasks().get(task);
            placements.push(ProposedPlacement {
                placement: TaskPlacement {
                    task: Arc::clone(task),
                    node: Arc::clone(&node.record.name),
                    card,
                    devices,
                },
                uid: known.map(|known| known.record.uid.clone()).unwrap_or_default(),
                node_uid: Arc::clone(&node.record.uid),
            });
        }
    }
    let known = cluster_state.jobs().get(&job);
    ProposedJob {
        uid: known.map(|known| Arc::clone(&known.record.uid)),
        job,
        placements,
    }
}

/// Number of tasks that a job needs in addition to tasks that hold resources, ignoring `of_them` of the holding tasks.
/// `None`: the job has no minimum.
fn missing_members(cluster_state: &ClusterState, job: &str, of_them: usize) -> Option<usize> {
    let members = usize::try_from(cluster_state.jobs().get(job)?.record.min_member).unwrap_or(0);
    let holding = cluster_state.job_allocated(job).map_or(0, ResourceTotals::records) as usize;
    (members > 0).then(|| members.saturating_sub(holding.saturating_sub(of_them)))
}

/// Number of tasks that the job of a query needs; 0: no minimum is known.
fn gang_minimum(cluster_state: &ClusterState, query: &PlaceQuery) -> usize {
    let first = query.groups.iter().find_map(|group| group.as_ref().ok());
    first
        .and_then(|first| missing_members(cluster_state, &first.task.job, 0))
        .unwrap_or(0)
}

/// Number of tasks that the job of held tasks needed before they were held; `None`: it has no minimum.
fn minimum_before(cluster_state: &ClusterState, held: &[TaskPlacement]) -> Option<usize> {
    let first = cluster_state.tasks().get(&held.first()?.task)?;
    missing_members(cluster_state, &first.record.job, held.len())
}
