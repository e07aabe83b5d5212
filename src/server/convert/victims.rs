//! Questions and answers of `SelectVictims`.

use std::sync::Arc;

use crate::engine::cycle::Change;
use crate::engine::decide::{VictimGroup, VictimVerdict, VictimVote, VictimsQuestion};
use crate::engine::model::{Problem, ProblemKind, TaskRecord, TaskStatus, View};
use crate::engine::plugin::VictimKind;
use crate::server::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::Failure;

use super::amounts::QuestionNames;
use super::batch::{problem, problems};
use super::ground::changes;
use super::question::{plugins, sent, stored};
use super::reader::{Declared, Reader};

/// Reads a question of `SelectVictims`; its ground has been taken out before.
///
/// # Errors
/// Something that belongs to no group is wrong.
pub fn question(
    request: pb::SelectVictimsRequest,
    view: &View,
    declared: &Declared,
) -> Result<VictimsQuestion, Failure> {
    let pb::SelectVictimsRequest {
        ground: _,
        kind,
        groups,
        plugins: asked,
        irreducible,
    } = request;
    let kind = match pb::VictimKind::try_from(kind) {
        Ok(pb::VictimKind::Preempt) => VictimKind::Preempt,
        Ok(pb::VictimKind::Reclaim) => VictimKind::Reclaim,
        Ok(pb::VictimKind::Unspecified) | Err(_) => {
            let message = "kind: say PREEMPT (within a queue) or RECLAIM (between queues)";
            return Err(Failure::invalid("VICTIM_KIND_MISSING", message));
        }
    };
    let candidates: usize = groups.iter().map(|group| group.candidates.len()).sum();
    let limits = &declared.limits;
    let sizes = [
        ("groups", groups.len(), limits.victim_groups, "victim_groups"),
        (
            "candidates of all groups",
            candidates,
            limits.victim_candidates,
            "victim_candidates",
        ),
    ];
    for (what, size, limit, name) in sizes {
        if size > limit {
            return Err(Failure::limit(
                "QUESTION_TOO_LARGE",
                name,
                limit,
                &format!("{size} {what}"),
            ));
        }
    }
    let mut names = QuestionNames::new(view.resources(), limits.question_resources);
    let mut reader = Reader::new(&mut names, declared);
    let groups = groups.into_iter().map(|group| self::group(group, view, &mut reader));
    Ok(VictimsQuestion {
        kind,
        groups: groups.collect(),
        plugins: plugins(asked, limits.plugins)?,
        irreducible,
    })
}

/// Reads a group. Fields of problems are relative to it.
fn group(group: pb::VictimGroup, view: &View, reader: &mut Reader<'_>) -> Result<VictimGroup, Problem> {
    let pb::VictimGroup {
        preemptor,
        node,
        candidates,
        assumptions,
    } = group;
    let limits = &reader.declared.limits;
    if node.len() > limits.name_bytes {
        let message = format!("{} bytes; limit `name_bytes` is {}", node.len(), limits.name_bytes);
        return Err(Problem::new(ProblemKind::Invalid, "NAME_TOO_LONG", "node", message));
    }
    let Some(preemptor) = preemptor else {
        let message = "a group needs a preemptor";
        return Err(Problem::new(
            ProblemKind::Invalid,
            "PREEMPTOR_MISSING",
            "preemptor",
            message,
        ));
    };
    let preemptor = task(preemptor, view, reader).map_err(|problem| problem.within("preemptor"))?;
    let mut read = Vec::with_capacity(candidates.len());
    for (at, candidate) in candidates.into_iter().enumerate() {
        let whole = candidate.requests.is_some() && candidate.status() == pb::TaskStatus::Unspecified;
        let mut record =
            task(candidate, view, reader).map_err(|problem| problem.within(&format!("candidates[{at}]")))?;
        if whole {
            // Somebody who may have to go, given whole and without a status, is there.
            record.status = TaskStatus::Running;
        }
        read.push(record);
    }
    Ok(VictimGroup {
        preemptor,
        node: node.into(),
        candidates: read,
        assumptions: assume(assumptions, &reader.declared.limits)?,
    })
}

fn task(task: pb::Task, view: &View, reader: &mut Reader<'_>) -> Result<TaskRecord, Problem> {
    let read = if task.requests.is_some() {
        sent(task, reader)
    } else {
        stored(&task, view)
    };
    read.map(|read| Arc::unwrap_or_clone(read.task))
}

fn assume(assumptions: Vec<pb::Change>, limits: &EdgeLimits) -> Result<Vec<Change>, Problem> {
    let limit = limits.victim_assumptions;
    if assumptions.len() > limit {
        let message = format!("{} of them; limit `victim_assumptions` is {limit}", assumptions.len());
        return Err(Problem::new(
            ProblemKind::Exhausted,
            "TOO_MANY_ASSUMPTIONS",
            "assumptions",
            message,
        ));
    }
    changes(assumptions, limits).map_err(|(at, reason, message)| {
        Problem::new(ProblemKind::Invalid, reason, format!("assumptions[{at}]"), message)
    })
}

/// The answer of `SelectVictims`.
pub fn answer(items: &[Result<VictimVerdict, Problem>]) -> pb::SelectVictimsAnswer {
    let numbered = items.iter().enumerate();
    pb::SelectVictimsAnswer {
        items: numbered.map(|(at, verdict)| item(at, verdict)).collect(),
    }
}

fn item(at: usize, verdict: &Result<VictimVerdict, Problem>) -> pb::VictimItem {
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
        }) => {
            let warnings: Vec<Problem> = warnings.iter().map(|warning| warning.clone().within(&place)).collect();
            pb::VictimItem {
                problem: None,
                victims: victims.iter().copied().map(number).collect(),
                votes: votes.iter().map(vote).collect(),
                fits_after: fits_after.map(number),
                warnings: problems(&warnings),
            }
        }
    }
}

fn vote(vote: &VictimVote) -> pb::VictimVote {
    let VictimVote { plugin, victims } = vote;
    pb::VictimVote {
        plugin: plugin.to_string(),
        abstained: victims.is_none(),
        victims: victims.iter().flatten().copied().map(number).collect(),
    }
}

fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}
