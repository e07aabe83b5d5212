//! Simulation of a job's placement in a session, task by task, as a scheduler would place it: first alone, then after the
//! jobs before it.

use super::phrases;
use super::report::{CompetingJob, GangAfterEarlierJobs, GangReport};
use super::task_classes::query_task;
use pb::admit_subject::Subject;
use pb::session_change::Change;
use pumice_console::CommandError;
use pumice_console::pinned_client::PinnedClient;
use pumice_protocol::v1 as pb;

/// Limit of tasks that are simulated: each costs two calls.
const MAX_TASKS: usize = 400;
/// Limit of earlier jobs that are placed first.
const MAX_JOBS_AHEAD: usize = 50;

/// Number of jobs that are named.
const JOBS_NAMED: usize = 10;

/// Waiting job with its waiting tasks, in the order of their names.
#[derive(Debug, Clone)]
pub(super) struct WaitingJob {
    pub(super) job: String,
    pub(super) queue: String,
    /// True: the job is not enqueued yet.
    pub(super) not_enqueued: bool,
    pub(super) tasks: Vec<pb::Task>,
    /// Number of tasks that still must start together, at least one.
    pub(super) min_count: usize,
}

/// Outcome of placing a job.
#[derive(Debug, Default)]
struct PlacementAttempt {
    placed: Vec<String>,
    blocked_by: Option<String>,
}

/// Simulates the job alone, and then after earlier jobs. `held`: number of its needed tasks that have a node.
pub(super) async fn try_gang(
    asker: &mut PinnedClient,
    own: &WaitingJob,
    ahead: &[WaitingJob],
    (needed, held): (u64, u64),
) -> Result<GangReport, CommandError> {
    let mut gang = GangReport {
        min_count: needed,
        placed_count: held,
        attempted: own.tasks.len().min(MAX_TASKS) as u64,
        method: "placed in a session",
        ..GangReport::default()
    };
    let mut left = MAX_TASKS;
    let alone = try_job(asker, own, &mut left).await?;
    gang.placeable = alone.placed.len() as u64;
    gang.blocked_by = alone.blocked_by;
    undo_placements(asker, alone.placed);
    let enough = gang.placeable >= own.min_count as u64;
    if enough && !ahead.is_empty() && too_many_ahead(own, ahead).is_none() {
        gang.after_earlier_jobs = Some(try_after_ahead(asker, own, ahead).await?);
    }
    Ok(gang)
}

/// Note that too many earlier jobs or tasks exist to place them first.
pub(super) fn too_many_ahead(own: &WaitingJob, ahead: &[WaitingJob]) -> Option<String> {
    let jobs = ahead.len();
    let tasks: usize = ahead.iter().chain([own]).map(|job| job.tasks.len()).sum();
    if jobs > MAX_JOBS_AHEAD {
        let jobs = phrases::count(jobs as u64);
        return Some(format!(
            "{jobs} jobs are before it; more than {MAX_JOBS_AHEAD} are not placed first"
        ));
    }
    (tasks > MAX_TASKS).then(|| {
        let tasks = phrases::count(tasks as u64);
        format!("it and the jobs before it have {tasks} tasks; more than {MAX_TASKS} are not tried")
    })
}

async fn try_after_ahead(
    asker: &mut PinnedClient,
    own: &WaitingJob,
    ahead: &[WaitingJob],
) -> Result<GangAfterEarlierJobs, CommandError> {
    let mut after = GangAfterEarlierJobs::default();
    let permitted = enqueue_verdicts(asker, own, ahead).await?;
    let own_permitted = permitted.last().copied().unwrap_or(true);
    let mut takers: Vec<&WaitingJob> = Vec::new();
    let mut left = MAX_TASKS;
    for (job, permitted) in ahead.iter().zip(&permitted) {
        if !permitted {
            after.jobs_skipped = after.jobs_skipped.saturating_add(1);
            continue;
        }
        let tried = try_job(asker, job, &mut left).await?;
        let has_room = !tried.placed.is_empty();
        if tried.placed.len() < job.min_count {
            undo_placements(asker, tried.placed);
            after.jobs_skipped = after.jobs_skipped.saturating_add(1);
        } else {
            after.jobs_placed = after.jobs_placed.saturating_add(1);
            takers.extend((own_permitted && has_room).then_some(job));
        }
    }
    if !own_permitted {
        // The job lacks quota, which jobs take that are enqueued before it.
        let enqueued = ahead.iter().zip(&permitted);
        takers.extend(
            enqueued
                .filter(|(job, permitted)| job.not_enqueued && **permitted)
                .map(|(job, _)| job),
        );
    }
    let taker = |job: &&WaitingJob| CompetingJob {
        job: job.job.clone(),
        queue: job.queue.clone(),
    };
    after.competing_jobs = takers.iter().take(JOBS_NAMED).map(taker).collect();
    after.competing_job_count = takers.len() as u64;
    after.permitted = own_permitted;
    let tried = try_job(asker, own, &mut left).await?;
    after.placeable = tried.placed.len() as u64;
    after.blocked_by = tried.blocked_by;
    Ok(after)
}

/// Jobs that are enqueued when all ask in this order, the own job last. Jobs that are enqueued already do not ask.
async fn enqueue_verdicts(
    asker: &mut PinnedClient,
    own: &WaitingJob,
    ahead: &[WaitingJob],
) -> Result<Vec<bool>, CommandError> {
    let all: Vec<&WaitingJob> = ahead.iter().chain([own]).collect();
    let asking = all.iter().filter(|job| job.not_enqueued);
    let items = asking.map(|job| {
        Subject::Job(pb::Job {
            name: job.job.clone(),
            ..pb::Job::default()
        })
    });
    let items: Vec<Subject> = items.collect();
    let mut results = if items.is_empty() {
        Vec::new().into_iter()
    } else {
        asker.admit(items, Vec::new()).await?.into_iter()
    };
    let permitted = |job: &&WaitingJob| !job.not_enqueued || results.next().is_some_and(|result| result.permitted);
    Ok(all.iter().map(permitted).collect())
}

/// Places tasks one after the other, each on the best node with idle capacity, until one finds none.
async fn try_job(
    asker: &mut PinnedClient,
    job: &WaitingJob,
    left: &mut usize,
) -> Result<PlacementAttempt, CommandError> {
    let mut tried = PlacementAttempt::default();
    for task in &job.tasks {
        if *left == 0 {
            return Ok(tried);
        }
        *left = left.saturating_sub(1);
        let named = query_task(task, true);
        if !job.job.is_empty() {
            let result = asker.admit(vec![Subject::Task(named.clone())], Vec::new()).await?;
            let refused = result.into_iter().find(|one| !one.permitted || one.problem.is_some());
            if let Some(refused) = refused {
                tried.blocked_by = Some(phrases::admit_rejection(&refused));
                return Ok(tried);
            }
        }
        let item = asker.score(&named, pb::ResourceFit::Idle, 1).await?;
        let node = item.nodes.as_ref().and_then(|set| set.names.first());
        let Some(node) = node else {
            tried.blocked_by = Some(phrases::no_node_reason(&item));
            return Ok(tried);
        };
        let placed = pb::TaskPlacement {
            task: task.name.clone(),
            node: node.clone(),
            ..pb::TaskPlacement::default()
        };
        asker.queue_changes([Change::Allocate(placed)]);
        tried.placed.push(task.name.clone());
    }
    Ok(tried)
}

fn undo_placements(asker: &mut PinnedClient, placed: Vec<String>) {
    asker.queue_changes(placed.into_iter().rev().map(Change::Unallocate));
}
