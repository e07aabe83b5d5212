//! Placement of a job by Place, which decides whether the job starts: first alone, then in a session after the jobs before it.

use std::collections::BTreeMap;

use super::phrases;
use super::report::{CompetingJob, GangAfterEarlierJobs, GangReport, ShortMembers};
use pb::admit_subject::Subject;
use pumice_console::CommandError;
use pumice_console::pinned_client::PinnedClient;
use pumice_console::task::task_groups;
use pumice_protocol::v1 as pb;

/// Limit of earlier jobs that are placed first: each costs a call.
const MAX_JOBS_AHEAD: usize = 200;

/// Number of jobs that are named.
const JOBS_NAMED: usize = 10;

/// Waiting job with its waiting tasks, in the order of service.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingJob {
    /// Name of the job; empty: its tasks are placed without one, and no quota applies.
    pub(super) job: String,
    pub(super) queue: String,
    /// True: the job is not enqueued yet.
    pub(super) not_enqueued: bool,
    pub(super) tasks: Vec<pb::Task>,
    /// True: the server has the tasks.
    pub(super) tasks_stored: bool,
    /// True: the job has a minimum, which Place applies with those of its roles and groups; else one task starts it.
    pub(super) has_minimum: bool,
    /// Whole job, if it differs from the server's or the server has none.
    pub(super) hypothetical: Option<pb::Job>,
}

/// Tasks of a job that count towards its minimums, by role and by group.
#[derive(Debug, Clone, Default)]
pub(super) struct MemberCounts {
    pub(super) roles: BTreeMap<String, u64>,
    pub(super) groups: BTreeMap<String, u64>,
}

impl MemberCounts {
    /// Adds a number of tasks that are like this one.
    pub(super) fn add(&mut self, task: &pb::Task, number: u64) {
        for (counts, name) in [(&mut self.roles, &task.role), (&mut self.groups, &task.sub_group)] {
            if !name.is_empty() {
                let count = counts.entry(name.clone()).or_default();
                *count = count.saturating_add(number);
            }
        }
    }

    /// Minimums of the job that these tasks do not meet. Minimums of roles apply if their sum is at most that of the job.
    pub(super) fn short_of(&self, job: &pb::Job) -> Vec<ShortMembers> {
        let least = |number: i32| u64::try_from(number).unwrap_or(0);
        let sum = job
            .min_task_member
            .values()
            .fold(0_u64, |sum, number| sum.saturating_add(least(*number)));
        let applies = sum <= least(job.min_member);
        let roles = job
            .min_task_member
            .iter()
            .filter(|_| applies)
            .map(|(role, number)| ShortMembers {
                kind: "task",
                name: role.clone(),
                needed: least(*number),
                found: self.roles.get(role).copied().unwrap_or(0),
            });
        let groups = job.sub_group_policies.iter().map(|policy| {
            let size = policy.size.map_or(1, least);
            let of_policy = |name: &String| name.rsplit_once('/').is_some_and(|(own, _)| own == policy.name);
            let complete = self
                .groups
                .iter()
                .filter(|(name, count)| of_policy(name) && **count >= size);
            ShortMembers {
                kind: "group",
                name: policy.name.clone(),
                needed: policy.min_groups.map_or(0, least),
                found: complete.count() as u64,
            }
        });
        roles.chain(groups).filter(|short| short.found < short.needed).collect()
    }
}

/// Request of Place for the tasks of a job, in their order.
pub(super) fn place_request(job: &WaitingJob, effect: pb::PlaceEffect) -> pb::PlaceRequest {
    pb::PlaceRequest {
        job: job.hypothetical.clone(),
        groups: groups_of(job),
        min_available: (!job.has_minimum).then_some(1),
        effect: effect.into(),
        idle_only: true,
        ..pb::PlaceRequest::default()
    }
}

/// True if Place starts a job: enough of its tasks find a place, and at least one.
pub(super) fn is_started(result: &pb::PlaceResult) -> bool {
    result.placed && result.placed_count > 0
}

/// Places the job alone: now, and once releasing tasks are gone. `started`: its tasks that count already.
pub(super) async fn try_alone(
    client: &mut PinnedClient,
    own: &WaitingJob,
    job: Option<&pb::Job>,
    started: &MemberCounts,
) -> Result<(GangReport, pb::PlaceResult), CommandError> {
    let alone = client.place(place_request(own, pb::PlaceEffect::Preview)).await?;
    let later = if is_started(&alone) {
        alone.clone()
    } else {
        let request = pb::PlaceRequest {
            idle_only: false,
            ..place_request(own, pb::PlaceEffect::Preview)
        };
        client.place(request).await?
    };
    let problem = alone.groups.iter().find_map(|group| group.problem.as_ref());
    let mut members = started.clone();
    for (group, placed) in groups_of(own).iter().zip(&alone.groups) {
        let first = group.names.first();
        let named = first.and_then(|name| own.tasks.iter().find(|task| task.name == *name));
        if let Some(task) = named.or(group.task.as_ref()) {
            let number = placed.allocated.as_ref().map_or(0, |set| set.names.len());
            members.add(task, number as u64);
        }
    }
    let starts = is_started(&alone);
    let gang = GangReport {
        attempted: own.tasks.len() as u64,
        placeable: alone.placed_count.into(),
        placeable_later: later.placed_count.into(),
        starts,
        starts_later: is_started(&later),
        method: "placed",
        short_members: job
            .filter(|_| !starts)
            .map(|job| members.short_of(job))
            .unwrap_or_default(),
        problem: problem.map(pumice_console::output::problem),
        blocked_by: phrases::place_blockers(&alone),
        ..GangReport::default()
    };
    Ok((gang, alone))
}

/// Note that too many earlier jobs exist to place them first.
pub(super) fn too_many_ahead(ahead: &[WaitingJob]) -> Option<String> {
    let jobs = ahead.len();
    (jobs > MAX_JOBS_AHEAD).then(|| {
        let jobs = phrases::count(jobs as u64);
        format!("{jobs} jobs are before it; more than {MAX_JOBS_AHEAD} are not placed first")
    })
}

/// Places the earlier jobs in the session, and then the job.
pub(super) async fn try_after_ahead(
    client: &mut PinnedClient,
    own: &WaitingJob,
    ahead: &[WaitingJob],
) -> Result<GangAfterEarlierJobs, CommandError> {
    let mut after = GangAfterEarlierJobs::default();
    let permitted = enqueue_verdicts(client, own, ahead).await?;
    let own_permitted = permitted.last().copied().unwrap_or(true);
    let mut takers: Vec<&WaitingJob> = Vec::new();
    for (job, permitted) in ahead.iter().zip(&permitted) {
        // Tasks are made when such a job is enqueued.
        let is_placed = *permitted && !job.tasks.is_empty() && {
            let request = place_request(job, pb::PlaceEffect::Session);
            is_started(&client.place(request).await?)
        };
        if is_placed {
            after.jobs_placed = after.jobs_placed.saturating_add(1);
            takers.extend(own_permitted.then_some(job));
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
        never_starts: None,
    };
    after.competing_jobs = takers.iter().take(JOBS_NAMED).map(taker).collect();
    after.competing_job_count = takers.len() as u64;
    after.permitted = own_permitted;
    let own_place = client.place(place_request(own, pb::PlaceEffect::Preview)).await?;
    after.placeable = own_place.placed_count.into();
    after.starts = is_started(&own_place);
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
        Subject::Job(job.hypothetical.clone().unwrap_or_else(|| pb::Job {
            name: job.job.clone(),
            ..pb::Job::default()
        }))
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

/// Tasks of a job as Place takes them: by name, or whole where the server does not have them as tasks that may be placed.
fn groups_of(job: &WaitingJob) -> Vec<pb::TaskGroup> {
    let is_named = |task: &pb::Task| !task.job.is_empty() && task.job == job.job && !task.gated;
    let by_name = job.tasks_stored && job.tasks.iter().all(is_named);
    let open = |task: &pb::Task| pb::Task {
        job: job.job.clone(),
        gated: false,
        scheduling_gates: Vec::new(),
        ..task.clone()
    };
    let mut groups = task_groups(job.tasks.iter().map(open).collect(), 1);
    let mut names = job.tasks.iter().map(|task| task.name.clone());
    for group in groups.iter_mut().filter(|_| by_name) {
        let count = group.count.take().unwrap_or_default();
        group.names = names.by_ref().take(count as usize).collect();
        group.task = None;
    }
    groups
}
