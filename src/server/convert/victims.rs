//! Requests and results of `SelectVictims`.

use std::sync::Arc;

use crate::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult, check_limit};
use pumice_engine::cycle::SessionChange;
use pumice_engine::decide::{VictimGroup, VictimVerdict, VictimVote, VictimsQuery};
use pumice_engine::model::{ClusterState, ErrorCode, Problem, TaskRecord, TaskStatus};
use pumice_engine::plugin::VictimKind;

use super::amounts::QueryResourceNames;
use super::batch::{problem, problems};
use super::evaluation_ref::read_changes;
use super::not_evaluated::EvaluatedState;
use super::place_result::to_u32;
use super::query::{QueryBasis, read_plugins, read_task};
use super::reader::{WireReader, check_name};

/// Reads a request of `SelectVictims`, whose `against` was taken out before.
///
/// # Errors
/// A field that belongs to no group has a problem.
pub(crate) fn read_victims(request: pb::SelectVictimsRequest, basis: QueryBasis<'_>) -> RpcResult<VictimsQuery> {
    let pb::SelectVictimsRequest {
        against: _,
        kind,
        groups,
        plugins: asked,
        irreducible,
        last_rounds,
    } = request;
    let kind = match pb::VictimKind::try_from(kind) {
        Ok(pb::VictimKind::Preempt) => VictimKind::Preempt,
        Ok(pb::VictimKind::Reclaim) => VictimKind::Reclaim,
        Ok(pb::VictimKind::GangPreempt) => VictimKind::GangPreempt,
        Ok(pb::VictimKind::GangReclaim) => VictimKind::GangReclaim,
        Ok(pb::VictimKind::Shuffle) => VictimKind::Shuffle,
        Ok(pb::VictimKind::Unspecified) | Err(_) => {
            let message =
                "kind: give PREEMPT (within a queue), RECLAIM (between queues), GANG_PREEMPT, GANG_RECLAIM or SHUFFLE";
            return Err(CallError::new(ErrorCode::VictimKindMissing, message));
        }
    };
    let candidates: usize = groups.iter().map(|group| group.candidates.len()).sum();
    let (cluster_state, limits) = (basis.nodes.state, &basis.options.limits);
    let count = groups.len();
    check_limit(count, "victim_groups", limits.victim_groups, || {
        format!("{count} groups")
    })?;
    let message = || format!("{candidates} candidates of all groups");
    check_limit(candidates, "victim_candidates", limits.victim_candidates, message)?;
    let mut names = QueryResourceNames::new(cluster_state.resources(), limits.query_resources);
    let mut reader = WireReader::new(&mut names, basis.options, basis.compatibility);
    let groups = groups
        .into_iter()
        .map(|group| read_group(group, kind, cluster_state, &mut reader));
    let last_rounds = last_rounds.into_iter();
    Ok(VictimsQuery {
        now: basis.now,
        kind,
        groups: groups.collect(),
        plugins: read_plugins(asked, limits.plugins)?,
        irreducible,
        last_rounds: last_rounds.map(|(name, at)| (name.into(), at.seconds)).collect(),
    })
}

/// Reads a group. Fields of problems are relative to it.
fn read_group(
    group: pb::VictimGroup,
    kind: VictimKind,
    cluster_state: &ClusterState,
    reader: &mut WireReader<'_>,
) -> Result<VictimGroup, Problem> {
    let pb::VictimGroup {
        preemptor,
        node,
        candidates,
        hypothetical_changes: assumptions,
    } = group;
    check_name("node", &node, &reader.options.limits)?;
    if kind == VictimKind::Shuffle {
        let given = [("preemptor", preemptor.is_some()), ("node", !node.is_empty())];
        if let Some((field, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            let message = format!("SHUFFLE makes room for no task: leave out `{field}`");
            return Err(Problem::new(ErrorCode::PreemptorUnneeded, field, message));
        }
    }
    let preemptor = match preemptor {
        None if kind == VictimKind::Shuffle => TaskRecord::default(),
        None => {
            let message = "a group needs a preemptor";
            return Err(Problem::new(ErrorCode::PreemptorMissing, "preemptor", message));
        }
        Some(preemptor) => {
            let read = read_task(preemptor, cluster_state, reader).map_err(|problem| problem.within("preemptor"))?;
            Arc::unwrap_or_clone(read.task)
        }
    };
    let mut read = Vec::with_capacity(candidates.len());
    for (at, candidate) in candidates.into_iter().enumerate() {
        // A pod that the API server has seen says its status.
        let whole = candidate.requests.is_some() && candidate.status() == pb::TaskStatus::Unspecified;
        let read_candidate = read_task(candidate, cluster_state, reader);
        let candidate = read_candidate.map_err(|problem| problem.within(&format!("candidates[{at}]")))?;
        let mut record = Arc::unwrap_or_clone(candidate.task);
        if whole {
            // A candidate that is sent whole and without a status counts as running.
            record.status = TaskStatus::Running;
        }
        read.push(record);
    }
    Ok(VictimGroup {
        preemptor,
        node: node.into(),
        candidates: read,
        assumptions: read_assumptions(assumptions, &reader.options.limits)?,
    })
}

fn read_assumptions(assumptions: Vec<pb::SessionChange>, limits: &EdgeLimits) -> Result<Vec<SessionChange>, Problem> {
    let limit = limits.victim_changes;
    if assumptions.len() > limit {
        let message = format!("{} assumptions; limit `victim_changes` is {limit}", assumptions.len());
        return Err(Problem::new(ErrorCode::LimitExceeded, "assumptions", message));
    }
    read_changes(assumptions, "assumptions", limits)
}

/// Result of `SelectVictims`.
pub(crate) fn victims_result(
    query: &VictimsQuery,
    items: &[Result<VictimVerdict, Problem>],
    state: EvaluatedState<'_>,
) -> pb::SelectVictimsResult {
    let numbered = items.iter().zip(&query.groups).enumerate();
    let written = numbered.map(|(at, (verdict, group))| {
        let mut item = victim_item(at, verdict);
        if let (Ok(_), Ok(group)) = (verdict, group) {
            item.not_evaluated = state.of_victim_group(group);
        }
        item
    });
    pb::SelectVictimsResult {
        items: written.collect(),
    }
}

fn victim_item(at: usize, verdict: &Result<VictimVerdict, Problem>) -> pb::VictimItem {
    let place = format!("groups[{at}]");
    match verdict {
        Err(found) => pb::VictimItem {
            problem: Some(problem(&found.clone().within(&place))),
            ..pb::VictimItem::default()
        },
        Ok(VictimVerdict {
            victims,
            votes,
            fits_after,
            warnings,
            queue_may_reclaim,
        }) => {
            let warnings = warnings.iter().map(|warning| warning.clone().within(&place));
            pb::VictimItem {
                problem: None,
                victims: victims.iter().copied().map(to_u32).collect(),
                votes: votes.iter().map(victim_vote).collect(),
                fits_after: fits_after.map(to_u32),
                warnings: problems(warnings),
                not_evaluated: Vec::new(),
                queue_may_reclaim: *queue_may_reclaim,
            }
        }
    }
}

fn victim_vote(vote: &VictimVote) -> pb::VictimVote {
    let VictimVote { plugin, victims } = vote;
    pb::VictimVote {
        plugin: plugin.to_string(),
        abstained: victims.is_none(),
        victims: victims.iter().flatten().copied().map(to_u32).collect(),
    }
}
