//! Placement of a job by Place: first alone, then in a session after the jobs before it.

use super::phrases;
use super::report::{CompetingJob, GangAfterEarlierJobs, GangReport};
use pb::admit_subject::Subject;
use pumice_console::CommandError;
use pumice_console::pinned_client::PinnedClient;
use pumice_console::task::task_groups;
use pumice_protocol::v1 as pb;

/// Limit of earlier jobs that are placed first: each costs a call.
const MAX_JOBS_AHEAD: usize = 200;

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

/// Places the job alone, and then after earlier jobs. `held`: number of its needed tasks that have a node.
pub(super) async fn try_gang(
    client: &mut PinnedClient,
    own: &WaitingJob,
    ahead: &[WaitingJob],
    needed: u64,
    held: u64,
) -> Result<GangReport, CommandError> {
    let alone = preview(client, own).await?;
    let mut gang = GangReport {
        min_count: needed,
        placed_count: held,
        attempted: own.tasks.len() as u64,
        placeable: alone.placed_count.into(),
        blocked_by: phrases::place_blockers(&alone),
        method: "placed in a session",
        ..GangReport::default()
    };
    let enough = gang.placeable >= own.min_count as u64;
    if enough && !ahead.is_empty() && too_many_ahead(ahead).is_none() {
        gang.after_earlier_jobs = Some(try_after_ahead(client, own, ahead).await?);
    }
    Ok(gang)
}

/// Note that too many earlier jobs exist to place them first.
pub(super) fn too_many_ahead(ahead: &[WaitingJob]) -> Option<String> {
    let jobs = ahead.len();
    (jobs > MAX_JOBS_AHEAD).then(|| {
        let jobs = phrases::count(jobs as u64);
        format!("{jobs} jobs are before it; more than {MAX_JOBS_AHEAD} are not placed first")
    })
}

async fn try_after_ahead(
    client: &mut PinnedClient,
    own: &WaitingJob,
    ahead: &[WaitingJob],
) -> Result<GangAfterEarlierJobs, CommandError> {
    let mut after = GangAfterEarlierJobs::default();
    let permitted = enqueue_verdicts(client, own, ahead).await?;
    let own_permitted = permitted.last().copied().unwrap_or(true);
    let mut takers: Vec<&WaitingJob> = Vec::new();
    for (job, permitted) in ahead.iter().zip(&permitted) {
        if !permitted {
            after.jobs_skipped = after.jobs_skipped.saturating_add(1);
            continue;
        }
        let placed = client
            .place(groups_of(job), job.min_count, pb::PlaceEffect::Session)
            .await?;
        if placed.placed {
            after.jobs_placed = after.jobs_placed.saturating_add(1);
            takers.extend((own_permitted && placed.placed_count > 0).then_some(job));
        } else {
            after.jobs_skipped = after.jobs_skipped.saturating_add(1);
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
    let own_place = preview(client, own).await?;
    after.placeable = own_place.placed_count.into();
    after.blocked_by = phrases::place_blockers(&own_place);
    Ok(after)
}

/// Jobs that are enqueued when all ask in this order, the own job last. Jobs that are enqueued already do not ask.
async fn enqueue_verdicts(
    client: &mut PinnedClient,
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
        client.admit(items, Vec::new()).await?.into_iter()
    };
    let permitted = |job: &&WaitingJob| !job.not_enqueued || results.next().is_some_and(|result| result.permitted);
    Ok(all.iter().map(permitted).collect())
}

/// Place of as many of the job's tasks as find one, as a preview.
async fn preview(client: &mut PinnedClient, job: &WaitingJob) -> Result<pb::PlaceResult, CommandError> {
    client.place(groups_of(job), 0, pb::PlaceEffect::Preview).await
}

/// Tasks of a job as Place takes them: by name, or where no queue can be asked, without their job.
fn groups_of(job: &WaitingJob) -> Vec<pb::TaskGroup> {
    let mut groups = task_groups(job.tasks.clone(), 1);
    let mut names = job.tasks.iter().map(|task| task.name.clone());
    for group in &mut groups {
        if !job.job.is_empty() {
            let count = group.count.take().unwrap_or_default();
            group.names = names.by_ref().take(count as usize).collect();
            group.task = None;
        } else if let Some(task) = &mut group.task {
            task.job.clear();
        }
    }
    groups
}
