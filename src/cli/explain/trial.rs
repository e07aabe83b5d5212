//! Tries a job's placement in a session of its own, task by task, as a scheduler would: first alone, then after the jobs
//! that are before it.

use super::ask::Asker;
use super::classes::asked;
use super::report::{After, Gang, Taker};
use super::words;
use crate::cli::Failure;
use crate::server::pb;
use pb::admit_subject::Subject;
use pb::change::Change;

/// Tasks that are tried in all: each costs two calls.
const TASKS: usize = 400;
/// Jobs ahead that are placed first.
const JOBS: usize = 50;

/// Jobs that are named.
const NAMED: usize = 10;

/// A job with its waiting tasks, in the order of their names.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) job: String,
    pub(super) queue: String,
    /// It is not enqueued yet.
    pub(super) to_be_admitted: bool,
    pub(super) tasks: Vec<pb::Task>,
    /// Tasks that still have to start together, at least one.
    pub(super) needed: usize,
}

/// How far a job came.
#[derive(Debug, Default)]
struct Attempt {
    placed: Vec<String>,
    blocked_by: Option<String>,
}

/// Tries the job alone, and then after those ahead. `held`: of its needed tasks, those that have a node.
pub(super) async fn gang(
    asker: &mut Asker,
    own: &Waiting,
    ahead: &[Waiting],
    (needed, held): (u64, u64),
) -> Result<Gang, Failure> {
    let mut gang = Gang {
        needed,
        held,
        tried: own.tasks.len().min(TASKS) as u64,
        method: "placed in a session",
        ..Gang::default()
    };
    let mut left = TASKS;
    let alone = attempt(asker, own, &mut left).await?;
    gang.placeable = alone.placed.len() as u64;
    gang.blocked_by = alone.blocked_by;
    undo(asker, alone.placed);
    let enough = gang.placeable >= own.needed as u64;
    if enough && !ahead.is_empty() && too_many(own, ahead).is_none() {
        gang.after_those_ahead = Some(after(asker, own, ahead).await?);
    }
    Ok(gang)
}

/// Why those ahead are not placed first, if they are too many.
pub(super) fn too_many(own: &Waiting, ahead: &[Waiting]) -> Option<String> {
    let jobs = ahead.len();
    let tasks: usize = ahead.iter().chain([own]).map(|job| job.tasks.len()).sum();
    if jobs > JOBS {
        let jobs = words::count(jobs as u64);
        return Some(format!(
            "{jobs} jobs are before it; more than {JOBS} are not placed first"
        ));
    }
    (tasks > TASKS).then(|| {
        let tasks = words::count(tasks as u64);
        format!("it and the jobs before it have {tasks} tasks; more than {TASKS} are not tried")
    })
}

async fn after(asker: &mut Asker, own: &Waiting, ahead: &[Waiting]) -> Result<After, Failure> {
    let mut after = After::default();
    let permitted = permitted(asker, own, ahead).await?;
    let own_permitted = permitted.last().copied().unwrap_or(true);
    let mut takers: Vec<&Waiting> = Vec::new();
    let mut left = TASKS;
    for (job, permitted) in ahead.iter().zip(&permitted) {
        if !permitted {
            after.jobs_passed_over = after.jobs_passed_over.saturating_add(1);
            continue;
        }
        let tried = attempt(asker, job, &mut left).await?;
        let has_room = !tried.placed.is_empty();
        if tried.placed.len() < job.needed {
            undo(asker, tried.placed);
            after.jobs_passed_over = after.jobs_passed_over.saturating_add(1);
        } else {
            after.jobs_placed = after.jobs_placed.saturating_add(1);
            takers.extend((own_permitted && has_room).then_some(job));
        }
    }
    if !own_permitted {
        // What it lacks is quota, which those take that are enqueued before it.
        let enqueued = ahead.iter().zip(&permitted);
        takers.extend(
            enqueued
                .filter(|(job, permitted)| job.to_be_admitted && **permitted)
                .map(|(job, _)| job),
        );
    }
    let taker = |job: &&Waiting| Taker {
        job: job.job.clone(),
        queue: job.queue.clone(),
    };
    after.taken_by = takers.iter().take(NAMED).map(taker).collect();
    after.taken_by_count = takers.len() as u64;
    after.permitted = own_permitted;
    let tried = attempt(asker, own, &mut left).await?;
    after.placeable = tried.placed.len() as u64;
    after.blocked_by = tried.blocked_by;
    Ok(after)
}

/// Which jobs are enqueued when all ask in this order, the own one last. Who is enqueued already is not asked.
async fn permitted(asker: &mut Asker, own: &Waiting, ahead: &[Waiting]) -> Result<Vec<bool>, Failure> {
    let all: Vec<&Waiting> = ahead.iter().chain([own]).collect();
    let asking = all.iter().filter(|job| job.to_be_admitted);
    let items = asking.map(|job| {
        Subject::Job(pb::Job {
            name: job.job.clone(),
            ..pb::Job::default()
        })
    });
    let items: Vec<Subject> = items.collect();
    let mut answers = if items.is_empty() {
        Vec::new().into_iter()
    } else {
        asker.admit(items, Vec::new()).await?.into_iter()
    };
    let permitted = |job: &&Waiting| !job.to_be_admitted || answers.next().is_some_and(|answer| answer.permitted);
    Ok(all.iter().map(permitted).collect())
}

/// Places tasks one after the other on the best node with idle room, until one finds none.
async fn attempt(asker: &mut Asker, job: &Waiting, left: &mut usize) -> Result<Attempt, Failure> {
    let mut tried = Attempt::default();
    for task in &job.tasks {
        if *left == 0 {
            return Ok(tried);
        }
        *left = left.saturating_sub(1);
        let named = asked(task, true);
        if !job.job.is_empty() {
            let answer = asker.admit(vec![Subject::Task(named.clone())], Vec::new()).await?;
            let refused = answer.into_iter().find(|one| !one.permitted || one.problem.is_some());
            if let Some(refused) = refused {
                tried.blocked_by = Some(words::refused(&refused));
                return Ok(tried);
            }
        }
        let item = asker.score(&named, pb::ResourceFit::Idle, 1).await?;
        let node = item.nodes.as_ref().and_then(|set| set.names.first());
        let Some(node) = node else {
            tried.blocked_by = Some(words::no_node(&item));
            return Ok(tried);
        };
        let placed = pb::TaskOnNode {
            task: task.name.clone(),
            node: node.clone(),
            ..pb::TaskOnNode::default()
        };
        asker.change([Change::Allocate(placed)]);
        tried.placed.push(task.name.clone());
    }
    Ok(tried)
}

fn undo(asker: &mut Asker, placed: Vec<String>) {
    asker.change(placed.into_iter().rev().map(Change::Unallocate));
}
