//! Full sync of a source, part by part.

use prost::Message as _;

use crate::cluster_record::ClusterRecord;
use crate::state_check::StateWarning;
use crate::{CommandError, listings, output};
use pumice_engine::model::ErrorCode;
use pumice_engine::policy::{Compatibility, Release};
use pumice_kubernetes::object;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Bytes of one part: well below the four mebibytes that gRPC servers take by default.
const PART_BYTES: usize = 2 << 20;

/// Outcome of a full sync.
#[derive(Debug)]
pub struct LoadOutcome {
    /// Outcome of the last part. It applies to the whole full sync.
    pub outcome: pb::BatchOutcome,
    /// Rejected records, each with its name and the reason.
    pub rejected: Vec<String>,
    /// Warnings of the outcome, each about its record.
    pub warnings: Vec<StateWarning>,
}

impl LoadOutcome {
    /// Outcome with the records that it is about. `made`: titles of queues that the files do not have.
    fn of(parts: &[SyncPart], outcome: pb::BatchOutcome, made: &[String]) -> Self {
        Self {
            rejected: titles_of_refused(parts, &outcome.refused, made),
            warnings: outcome.warnings.iter().map(|own| warning_of(parts, own)).collect(),
            outcome,
        }
    }
}

/// Sends a cluster as one full sync of a source, part by part, and waits until it is visible.
pub async fn send_full_sync(
    connection: &mut ClientConnection,
    source: &str,
    cluster: pb::Cluster,
) -> Result<LoadOutcome, CommandError> {
    send_full_sync_with(connection, source, cluster, Vec::new(), None).await
}

/// Sends a full sync, and with it the records that could not be read: the server keeps their last good ones. The cluster
/// gets the queues that Volcano makes when it starts, unless another source of the server has them. `pod_release`: the release by
/// whose rules requests of pods were derived; `None`: nothing was derived, or the server does not have to know.
pub async fn send_full_sync_with(
    connection: &mut ClientConnection,
    source: &str,
    mut cluster: pb::Cluster,
    unreadable: Vec<pb::UnreadableRecord>,
    pod_release: Option<Release>,
) -> Result<LoadOutcome, CommandError> {
    let source_epoch = next_epoch(connection, source).await?;
    let mut made = object::missing_queues(&cluster);
    made.retain(|queue| unreadable.iter().all(|record| record.name != queue.name));
    let made_titles: Vec<String> = made.iter().map(|queue| format!("queue {}", queue.name)).collect();
    cluster.queues.extend(made);
    let parts = split_into_parts(cluster, unreadable);
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let mut requests = Some(tokio_stream::wrappers::ReceiverStream::new(receiver));
    let mut replies = None;
    let mut outcome = pb::BatchOutcome::default();
    let progress = output::progress(u64::try_from(parts.len()).unwrap_or(u64::MAX), "sending");
    for (number, part) in (1..).zip(&parts) {
        let last = usize::try_from(number).is_ok_and(|number| number == parts.len());
        let kind = if last {
            pb::BatchKind::FullSyncLast
        } else {
            pb::BatchKind::FullSyncPart
        };
        let batch = pb::Batch {
            source: source.to_owned(),
            source_epoch,
            sequence: number.into(),
            kind: kind.into(),
            put: Some(part.put.clone()),
            unreadable: part.unreadable.clone(),
            source_kind: pb::SourceKind::File.into(),
            part: number,
            pod_release: pod_release.map(Release::name).unwrap_or_default().to_owned(),
            ..pb::Batch::default()
        };
        let closed = || CommandError::message("error: the server ended the stream before the last part");
        sender
            .send(pb::SyncRequest { batch: Some(batch) })
            .await
            .map_err(|_| closed())?;
        // The first part is on its way before the stream is opened: a server may answer the head of the call with
        // its first reply.
        if let Some(requests) = requests.take() {
            replies = Some(connection.state.sync(requests).await?.into_inner());
        }
        let reply = match &mut replies {
            Some(replies) => replies.message().await?,
            None => None,
        };
        outcome = reply.and_then(|reply| reply.outcome).ok_or_else(closed)?;
        if let Some(resync) = &outcome.resync {
            return Err(CommandError::message(format!(
                "error: nothing was taken: {} ({})",
                resync.message, resync.reason
            )));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(LoadOutcome::of(&parts, outcome, &made_titles))
}

/// Refused records, each with its name and the reason. Records that the files did not show readable are reported with their
/// objects, and a queue of `made` may be another source's.
fn titles_of_refused(parts: &[SyncPart], refused: &[pb::Problem], made: &[String]) -> Vec<String> {
    let is_there = |problem: &pb::Problem| {
        let record = record_of_field(parts, &problem.field);
        problem.reason == ErrorCode::RecordNotOwned.name() && record.is_some_and(|(title, _)| made.contains(&title))
    };
    let reported = refused
        .iter()
        .filter(|problem| problem.reason != ErrorCode::UnreadableRecord.name() && !is_there(problem));
    reported.map(|problem| problem_title(parts, problem)).collect()
}

/// Release by whose rules a server wants the requests of pods to be derived.
pub async fn pod_release(connection: &mut ClientConnection) -> Result<Release, CommandError> {
    Ok(pod_release_in(&listings::server_info(connection).await?))
}

/// Release in `pod_release` of the server's response; the newest if that is empty.
pub fn pod_release_in(info: &pb::GetServerInfoResponse) -> Release {
    Compatibility::from_name(&info.pod_release)
        .unwrap_or_default()
        .release()
}

/// Next epoch of this source: one more than the server's last epoch, or 1 for a new source. A load always takes over
/// the source.
pub async fn next_epoch(connection: &mut ClientConnection, source: &str) -> Result<u64, CommandError> {
    let info = listings::server_info(connection).await?;
    let positions = info.sources.iter().filter_map(|status| status.position.as_ref());
    let last = positions
        .filter(|position| position.source == source)
        .map(|position| position.source_epoch)
        .max();
    Ok(last.unwrap_or_default().saturating_add(1))
}

/// A problem with the name of the record that it is about, and the field in this record.
fn problem_title(parts: &[SyncPart], problem: &pb::Problem) -> String {
    match record_of_field(parts, &problem.field) {
        Some((title, field)) => {
            let own = pb::Problem {
                field: field.to_owned(),
                ..problem.clone()
            };
            format!("{title}: {}", output::problem(&own))
        }
        None => output::problem(problem),
    }
}

/// Warning of the server about a record of the parts.
fn warning_of(parts: &[SyncPart], problem: &pb::Problem) -> StateWarning {
    let (subject, field) = match record_of_field(parts, &problem.field) {
        Some((title, field)) => (title, field),
        None => ("the batch".to_owned(), problem.field.as_str()),
    };
    let separator = if field.is_empty() { "" } else { ": " };
    StateWarning::reported(
        ErrorCode::from_name(&problem.reason).unwrap_or(ErrorCode::RecordNotCounted),
        format!("{field}{separator}{}", problem.message),
        subject,
    )
}

/// The record that has a field such as `batch[2].put.nodes[3].allocatable`, and the field in it. `batch` alone is the last part.
fn record_of_field<'f>(parts: &[SyncPart], field: &'f str) -> Option<(String, &'f str)> {
    let (batch, list) = field.split_once('.')?;
    let part = match first_index(batch) {
        Some(number) => parts.get(number.checked_sub(1)?)?,
        None => parts.last()?,
    };
    let (list, rest) = list.split_once('[')?;
    let (at, rest) = rest.split_once(']')?;
    let at = at.parse().ok()?;
    let title = match list {
        "put.nodes" => record_title(&part.put.nodes, at),
        "put.queues" => record_title(&part.put.queues, at),
        "put.jobs" => record_title(&part.put.jobs, at),
        "put.tasks" => record_title(&part.put.tasks, at),
        "put.namespaces" => record_title(&part.put.namespaces, at),
        "unreadable" => part.unreadable.get(at).map(|record| {
            let kind = record.kind().as_str_name().to_lowercase();
            format!("{} {}", kind.trim_start_matches("record_kind_"), record.name)
        }),
        _ => None,
    };
    Some((title?, rest.trim_start_matches('.')))
}

fn record_title<R: ClusterRecord>(records: &[R], at: usize) -> Option<String> {
    records.get(at).map(|record| format!("{} {}", R::KIND, record.name()))
}

/// The number in the first brackets of a field.
fn first_index(field: &str) -> Option<usize> {
    let (_, rest) = field.split_once('[')?;
    rest.split_once(']')?.0.parse().ok()
}

/// Cuts a cluster into parts of bounded size: namespaces, nodes and queues first, then the jobs in them, then the tasks, and
/// unreadable records last.
fn split_into_parts(cluster: pb::Cluster, unreadable: Vec<pb::UnreadableRecord>) -> Vec<SyncPart> {
    let mut parts = SyncParts::default();
    parts.add(cluster.namespaces);
    parts.add(cluster.nodes);
    parts.add(cluster.queues);
    parts.add(cluster.jobs);
    parts.add(cluster.tasks);
    for record in unreadable {
        parts.part_for(record.encoded_len()).unreadable.push(record);
    }
    parts.full.push(parts.open);
    parts.full
}

/// One part of a full sync.
#[derive(Default)]
struct SyncPart {
    put: pb::Cluster,
    unreadable: Vec<pb::UnreadableRecord>,
}

#[derive(Default)]
struct SyncParts {
    full: Vec<SyncPart>,
    open: SyncPart,
    bytes: usize,
}

impl SyncParts {
    fn add<R: ClusterRecord>(&mut self, records: Vec<R>) {
        for record in records {
            R::list_mut(&mut self.part_for(record.encoded_len()).put).push(record);
        }
    }

    /// Part that takes the next record, of this size.
    fn part_for(&mut self, bytes: usize) -> &mut SyncPart {
        // Tag and length of the record are counted generously.
        let bytes = bytes.saturating_add(16);
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > PART_BYTES {
            self.full.push(std::mem::take(&mut self.open));
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        &mut self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_and_complete() {
        let labels = std::collections::BTreeMap::from([("filler".to_owned(), "x".repeat(1000))]);
        let nodes = (0..5000).map(|n| pb::Node {
            name: format!("node-{n}"),
            labels: labels.clone(),
            ..pb::Node::default()
        });
        let cluster = pb::Cluster {
            nodes: nodes.collect(),
            ..pb::Cluster::default()
        };
        let unreadable = vec![pb::UnreadableRecord::default(); 200_000];
        let parts = split_into_parts(cluster, unreadable);
        assert_eq!(parts.len(), 5);
        let bytes = |part: &SyncPart| {
            let records = part.unreadable.iter();
            part.put.encoded_len() + records.map(|record| record.encoded_len() + 2).sum::<usize>()
        };
        assert!(parts.iter().all(|part| bytes(part) <= PART_BYTES));
        assert_eq!(parts.iter().map(|part| part.put.nodes.len()).sum::<usize>(), 5000);
        assert_eq!(parts.iter().map(|part| part.unreadable.len()).sum::<usize>(), 200_000);
    }

    #[test]
    fn an_empty_cluster_is_one_part() {
        assert_eq!(split_into_parts(pb::Cluster::default(), Vec::new()).len(), 1);
    }

    #[test]
    fn a_field_names_its_record() {
        let part = |name: &str| SyncPart {
            put: pb::Cluster {
                tasks: vec![pb::Task {
                    name: name.to_owned(),
                    ..pb::Task::default()
                }],
                ..pb::Cluster::default()
            },
            unreadable: vec![pb::UnreadableRecord {
                kind: pb::RecordKind::Queue.into(),
                name: "q".to_owned(),
                ..pb::UnreadableRecord::default()
            }],
        };
        let parts = [part("default/a"), part("default/b")];
        let name = |field: &str| {
            let found = record_of_field(&parts, field);
            found.map(|(title, field)| format!("{title}: {field}"))
        };
        let amount = "requests.items[cpu]";
        assert_eq!(
            name(&format!("batch[1].put.tasks[0].{amount}")),
            Some(format!("task default/a: {amount}"))
        );
        assert_eq!(
            name(&format!("batch.put.tasks[0].{amount}")),
            Some(format!("task default/b: {amount}"))
        );
        assert_eq!(
            name("batch.unreadable[0].spec.weight").as_deref(),
            Some("queue q: spec.weight")
        );
        assert_eq!(name("batch.put.tasks[7].requests"), None);
        assert_eq!(name("batch.source"), None);
    }
}
