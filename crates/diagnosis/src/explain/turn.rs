//! Turn of a job: its place among the waiting jobs, what orders them, and the order of its tasks.

use std::collections::BTreeMap;

use super::phrases;
use super::report::{ExplainReport, JobStateReport, OrderKeyRow, OrderReport, QueueOrderKeyRow};
use super::target::ResolvedTarget;
use super::trial::WaitingJob;
use pumice_console::CommandError;
use pumice_console::pinned_client::{KnownRecords, PinnedClient};
use pumice_engine::decide::order_key_meanings;
use pumice_protocol::v1 as pb;

/// Number of names that are listed.
const NAMED: usize = 10;
/// Most tasks that are put in order in one call.
const TASKS_ORDERED: usize = 100_000;

/// Order keys of two jobs of a queue, plugin by plugin.
fn order_keys(own: Option<&&pb::Rank>, first: Option<&&pb::Rank>) -> Vec<OrderKeyRow> {
    let keys = |rank: Option<&&pb::Rank>| rank.map(|rank| rank.keys.clone()).unwrap_or_default();
    let key = |(own, first): (pb::OrderKey, pb::OrderKey)| OrderKeyRow {
        own_text: phrases::key_text(order_key_meanings(&own.plugin).jobs, &own.values),
        first_in_queue_text: phrases::key_text(order_key_meanings(&first.plugin).jobs, &first.values),
        plugin: own.plugin,
        own: own.values,
        first_in_queue: first.values,
    };
    keys(own).into_iter().zip(keys(first)).map(key).collect()
}

/// Order keys of a queue and of the first queue before it in which jobs wait, plugin by plugin.
fn queue_keys(ranks: &[pb::Rank], own: &str, first: &str) -> Vec<QueueOrderKeyRow> {
    let keys = |name: &str| {
        let rank = ranks.iter().find(|rank| rank.name == name && rank.problem.is_none());
        rank.map(|rank| rank.keys.clone()).unwrap_or_default()
    };
    let key = |(own, first): (pb::OrderKey, pb::OrderKey)| QueueOrderKeyRow {
        own_text: phrases::key_text(order_key_meanings(&own.plugin).queues, &own.values),
        first_queue_text: phrases::key_text(order_key_meanings(&first.plugin).queues, &first.values),
        plugin: own.plugin,
        own: own.values,
        first_queue: first.values,
    };
    keys(own).into_iter().zip(keys(first)).map(key).collect()
}

/// Place of a name among ranks; `None`: it has no rank.
fn place_of<'r>(ranks: impl IntoIterator<Item = &'r pb::Rank>, name: &str) -> Option<usize> {
    let mut ranks = ranks.into_iter();
    ranks.position(|rank| rank.name == name && rank.problem.is_none())
}

/// Adds the state of the job and its position. Returns the jobs before it, first served first.
pub(super) async fn add_turn(
    client: &mut PinnedClient,
    known: &KnownRecords,
    focus: &ResolvedTarget,
    waiting: &BTreeMap<String, WaitingJob>,
    report: &mut ExplainReport,
) -> Result<Vec<WaitingJob>, CommandError> {
    let job = focus.job.as_ref().map(|job| job.name.clone()).unwrap_or_default();
    let mut names: Vec<String> = waiting.keys().cloned().collect();
    if !names.contains(&job) {
        names.push(job.clone());
    }
    let result = client.order(names, Vec::new()).await?;
    let queue_of = |name: &str| {
        let record = known.jobs.get(name).and_then(|status| status.job.as_ref());
        record.map(|record| record.queue.as_str()).unwrap_or_default()
    };
    let own = focus.subject.queue.as_str();
    let queue_place = place_of(&result.queues, own).map_or(0, |place| place as u64 + 1);
    let before = usize::try_from(queue_place.saturating_sub(1)).unwrap_or(0);
    let has_jobs = |queue: &str| waiting.keys().any(|job| queue_of(job) == queue);
    let queues_ahead: Vec<String> = result
        .queues
        .iter()
        .take(before)
        .map(|rank| rank.name.clone())
        .filter(|queue| has_jobs(queue))
        .collect();
    let of_queue = |queue: &str| -> Vec<&pb::Rank> {
        result
            .jobs
            .iter()
            .filter(|rank| queue_of(&rank.name) == queue)
            .collect()
    };
    let in_queue = of_queue(own);
    let job_place = place_of(in_queue.iter().copied(), &job);
    let jobs_ahead: Vec<&pb::Rank> = in_queue.iter().take(job_place.unwrap_or(0)).copied().collect();
    let before_in_queues = queues_ahead.iter().flat_map(|queue| of_queue(queue));
    let ahead = before_in_queues.chain(jobs_ahead.iter().copied());
    let ahead = ahead.filter_map(|rank| waiting.get(&rank.name).cloned()).collect();
    let rank = in_queue.iter().find(|rank| rank.name == job);
    let state = rank.and_then(|rank| rank.state.as_ref());
    report.job_state = state.map(|state| JobStateReport {
        valid: state.valid,
        message: state.message.clone(),
        starving: state.starving,
    });
    report.order = Some(OrderReport {
        queue_keys: queue_keys(&result.queues, own, queues_ahead.first().map_or(own, String::as_str)),
        queue_position: queue_place,
        queues: result.queues.len() as u64,
        queues_ahead,
        job_position: job_place.map_or(0, |place| place as u64 + 1),
        jobs: in_queue.len() as u64,
        jobs_ahead: jobs_ahead.iter().take(NAMED).map(|rank| rank.name.clone()).collect(),
        jobs_ahead_count: jobs_ahead.len() as u64,
        keys: order_keys(rank, in_queue.first()),
    });
    Ok(ahead)
}

/// Puts the tasks of jobs in the order of service.
pub(super) async fn sort_tasks(
    client: &mut PinnedClient,
    own: &mut WaitingJob,
    ahead: &mut [WaitingJob],
) -> Result<(), CommandError> {
    let mut jobs: Vec<&mut WaitingJob> = ahead.iter_mut().chain([own]).collect();
    let tasks = jobs.iter().flat_map(|job| &job.tasks).map(|task| task.name.clone());
    let tasks: Vec<String> = tasks.take(TASKS_ORDERED).collect();
    if tasks.is_empty() {
        return Ok(());
    }
    let ranks = client.order(Vec::new(), tasks).await?.tasks;
    let places = ranks
        .iter()
        .enumerate()
        .map(|(place, rank)| (rank.name.as_str(), place));
    let places: BTreeMap<&str, usize> = places.collect();
    for job in &mut jobs {
        job.tasks
            .sort_by_key(|task| places.get(task.name.as_str()).copied().unwrap_or(usize::MAX));
    }
    Ok(())
}
