//! Jobs that others wait for and that never start themselves.

use super::free_capacity::{self, ClusterIdleCapacity};
use super::phrases;
use super::report::ExplainReport;
use super::target::{TaskState, task_state};
use super::task_classes::{group_equal_tasks, query_task};
use pumice_console::CommandError;
use pumice_console::pinned_client::{KnownRecords, PinnedClient};
use pumice_protocol::v1 as pb;

/// Number of classes of a job's tasks that are looked at.
const CLASSES_JUDGED: usize = 8;

/// Marks those jobs before the subject, and those that hold a reservation in its queue, that never start.
pub(super) async fn mark_endless(
    client: &mut PinnedClient,
    known: &KnownRecords,
    rooms: &ClusterIdleCapacity,
    report: &mut ExplainReport,
) -> Result<(), CommandError> {
    let after = report.gang.as_mut().and_then(|gang| gang.after_earlier_jobs.as_mut());
    let after = after.filter(|after| !(after.permitted && after.starts));
    for taker in after.into_iter().flat_map(|after| &mut after.competing_jobs) {
        taker.never_starts = reason(client, known, rooms, &taker.job).await?;
    }
    let holders = report.queue.iter_mut().flat_map(|queue| &mut queue.holders);
    for holder in holders.filter(|holder| holder.reserved > 0.0) {
        holder.never_starts = reason(client, known, rooms, &holder.job).await?;
    }
    Ok(())
}

/// Reason that a job never starts, however many tasks end: no node could take one of its tasks. `None`: it may start.
async fn reason(
    client: &mut PinnedClient,
    known: &KnownRecords,
    rooms: &ClusterIdleCapacity,
    job: &str,
) -> Result<Option<String>, CommandError> {
    let tasks = known.tasks.values().filter_map(|stored| stored.task.as_ref());
    let waiting = tasks.filter(|task| task.job == job && task_state(task) == TaskState::Waiting);
    let waiting: Vec<pb::Task> = waiting.cloned().collect();
    for kind in group_equal_tasks(&waiting, true).iter().take(CLASSES_JUDGED) {
        let Some(first) = kind.tasks.first() else { continue };
        if let Some(beyond) = rooms.beyond_every_node(&free_capacity::requests(first)).first() {
            return Ok(Some(phrases::beyond_nodes(beyond)));
        }
        let task = query_task(first, true);
        let found = client
            .filter(&task, pb::ResourceFit::FutureIdle, pb::FilterDetail::Counts)
            .await?;
        let mut reasons = found
            .rejections
            .iter()
            .filter_map(|rejection| rejection.reason.as_ref());
        let lasts = |reason: &pb::Reason| reason.resolution() == pb::Resolution::Unresolvable;
        let most = reasons
            .clone()
            .next()
            .filter(|_| found.fit_count == 0 && reasons.all(lasts));
        if let Some(most) = most {
            return Ok(Some(format!("every node rejects one of its tasks: {}", most.message)));
        }
    }
    Ok(None)
}
