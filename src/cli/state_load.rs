//! `pumice state load`: files as one snapshot of a source, sent in parts.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use prost::Message as _;

use super::connect::Connection;
use super::{Client, Failure, Format, output};
use crate::import::{Counting, Import};
use crate::server::pb;

/// Bytes of one part: well below the four mebibytes that gRPC servers take by default.
const PART_BYTES: usize = 2 << 20;
/// Refused records that are shown one by one.
const REFUSED_SHOWN: usize = 50;

/// Arguments of `pumice state load`.
#[derive(Debug, Args)]
pub(super) struct LoadArgs {
    /// Files; `-`: standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Owner of the records; loading again replaces all that this source loaded before
    #[arg(long, value_name = "NAME", default_value = "file")]
    source: String,
    /// How the amounts of pods are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = counting())]
    derivation: Counting,
    /// Send the snapshot even if the files hold no record: the source then has none
    #[arg(long)]
    empty: bool,
    #[command(flatten)]
    client: Client,
}

/// Reads `--derivation`.
pub(super) fn counting() -> impl TypedValueParser<Value = Counting> {
    PossibleValuesParser::new(Counting::names()).map(|name| Counting::from_name(&name).unwrap_or_default())
}

/// The text of a file; `-` is standard input.
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))
}

/// What became of a snapshot.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The outcome of the whole.
    pub(super) outcome: pb::BatchOutcome,
    /// For each refused record: what it is and why it was refused.
    pub(super) refused: Vec<String>,
}

/// Runs it.
pub(super) async fn run(args: LoadArgs) -> Result<(), Failure> {
    let mut import = Import::new(args.derivation);
    for file in &args.files {
        import.read(&file.display().to_string(), &text(file)?)?;
    }
    for (note, count) in import.notes() {
        output::note(&format!("note: {note} ({count} ×)"));
    }
    let unread: Vec<String> = import
        .refused()
        .iter()
        .map(|one| format!("{}: {}", one.object, one.error))
        .collect();
    let cluster = import.into_cluster();
    if cluster == pb::Cluster::default() && !args.empty {
        return Err(nothing(&unread, &args.source));
    }
    let counts = counts(&cluster);
    let mut connection = Connection::open(&args.client.server).await?;
    let loaded = send(&mut connection, &args.source, cluster).await?;
    if args.client.output == Format::Json {
        output::json("BatchOutcome", &loaded.outcome)?;
    } else {
        let number = loaded.outcome.revision.map_or(0, |revision| revision.number);
        output::line(&format!(
            "source {}: sent {counts}; visible at revision {number}",
            args.source
        ))?;
    }
    for warning in &loaded.outcome.warnings {
        output::note(&format!("warning: {}", output::problem(warning)));
    }
    if unread.is_empty() && loaded.refused.is_empty() {
        Ok(())
    } else {
        Err(refusal(&unread, &loaded.refused, &args.source))
    }
}

/// A line for each refused record, up to a bound.
fn listed(refused: &[&String]) -> Vec<String> {
    let shown = refused.iter().take(REFUSED_SHOWN);
    let mut lines: Vec<String> = shown.map(|one| format!("refused: {one}")).collect();
    if refused.len() > REFUSED_SHOWN {
        lines.push(format!("… and {} more", refused.len() - REFUSED_SHOWN));
    }
    lines
}

/// An empty snapshot takes all its records from a source. Most often it is the trace of a dump that failed.
fn nothing(unread: &[String], source: &str) -> Failure {
    let mut lines = listed(&unread.iter().collect::<Vec<_>>());
    lines.push(format!(
        "error: no usable record in the files: nothing was sent, source {source} keeps its records"
    ));
    lines.push("hint: --empty takes all records from the source".to_owned());
    Failure::said(lines.join("\n"))
}

/// Records that could not be read, and those that the server refused.
fn refusal(unread: &[String], refused: &[String], source: &str) -> Failure {
    let all: Vec<&String> = unread.iter().chain(refused).collect();
    let mut lines = listed(&all);
    if !unread.is_empty() {
        lines.push(format!(
            "{} could not be read and not be sent: what the server knew of that from source {source}, it no longer knows",
            output::count(unread.len(), "record")
        ));
    }
    lines.push(format!(
        "error: {} refused; the others were taken",
        output::count(all.len(), "record")
    ));
    Failure::said(lines.join("\n"))
}

fn counts(cluster: &pb::Cluster) -> String {
    let [nodes, queues, jobs, tasks] = [
        cluster.nodes.len(),
        cluster.queues.len(),
        cluster.jobs.len(),
        cluster.tasks.len(),
    ];
    let counts = [(nodes, "node"), (queues, "queue"), (jobs, "job"), (tasks, "task")];
    counts.map(|(number, thing)| output::count(number, thing)).join(", ")
}

/// Sends a cluster as one snapshot of a source, part by part, and waits until it is visible.
pub(super) async fn send(connection: &mut Connection, source: &str, cluster: pb::Cluster) -> Result<Loaded, Failure> {
    let source_epoch = next_epoch(connection, source).await?;
    let parts = split(cluster);
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let mut requests = Some(tokio_stream::wrappers::ReceiverStream::new(receiver));
    let mut replies = None;
    let mut outcome = pb::BatchOutcome::default();
    let progress = output::progress(u64::try_from(parts.len()).unwrap_or(u64::MAX), "sending");
    for (number, part) in (1..).zip(&parts) {
        let last = usize::try_from(number).is_ok_and(|number| number == parts.len());
        let kind = if last {
            pb::BatchKind::SnapshotLast
        } else {
            pb::BatchKind::SnapshotPart
        };
        let batch = pb::Batch {
            source: source.to_owned(),
            source_epoch,
            sequence: number.into(),
            kind: kind.into(),
            put: Some(part.clone()),
            remove: None,
            snapshot_part: number,
        };
        let closed = || Failure::said("error: the server ended the stream before the last part");
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
            return Err(Failure::said(format!(
                "error: nothing was taken: {} ({})",
                resync.message, resync.reason
            )));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let refused = outcome.refused.iter().map(|problem| named(&parts, problem)).collect();
    Ok(Loaded { outcome, refused })
}

/// The epoch after the last one that the server knows of this source: a load always takes the source over.
async fn next_epoch(connection: &mut Connection, source: &str) -> Result<u64, Failure> {
    let info = connection
        .state
        .get_server_info(pb::GetServerInfoRequest {})
        .await?
        .into_inner();
    let positions = info.sources.iter().filter_map(|status| status.position.as_ref());
    let last = positions
        .filter(|position| position.source == source)
        .map(|position| position.source_epoch)
        .max();
    Ok(last.unwrap_or_default().saturating_add(1))
}

/// A problem with the name of the record that it is about.
fn named(parts: &[pb::Cluster], problem: &pb::Problem) -> String {
    match record(parts, &problem.field) {
        Some(name) => format!("{name}: {}", output::problem(problem)),
        None => output::problem(problem),
    }
}

/// The record that a field such as `batch[2].put.nodes[3].allocatable` stands in. `batch` alone is the last part.
fn record(parts: &[pb::Cluster], field: &str) -> Option<String> {
    let (batch, rest) = field.split_once(".put.")?;
    let part = match index(batch) {
        Some(number) => parts.get(number.checked_sub(1)?)?,
        None => parts.last()?,
    };
    let at = index(rest)?;
    let (list, _) = rest.split_once('[')?;
    Some(match list {
        "nodes" => format!("node {}", part.nodes.get(at)?.name),
        "queues" => format!("queue {}", part.queues.get(at)?.name),
        "jobs" => format!("job {}", part.jobs.get(at)?.name),
        "tasks" => format!("task {}", part.tasks.get(at)?.name),
        _ => return None,
    })
}

/// The number in the first brackets of a field.
fn index(field: &str) -> Option<usize> {
    let (_, rest) = field.split_once('[')?;
    rest.split_once(']')?.0.parse().ok()
}

/// Cuts a cluster into parts of bounded size: nodes and queues first, then the jobs in them, then the tasks.
fn split(cluster: pb::Cluster) -> Vec<pb::Cluster> {
    let mut parts = Parts::default();
    for node in cluster.nodes {
        parts.room(node.encoded_len()).nodes.push(node);
    }
    for queue in cluster.queues {
        parts.room(queue.encoded_len()).queues.push(queue);
    }
    for job in cluster.jobs {
        parts.room(job.encoded_len()).jobs.push(job);
    }
    for task in cluster.tasks {
        parts.room(task.encoded_len()).tasks.push(task);
    }
    parts.full.push(parts.open);
    parts.full
}

#[derive(Default)]
struct Parts {
    full: Vec<pb::Cluster>,
    open: pb::Cluster,
    bytes: usize,
}

impl Parts {
    /// The part that takes the next record of so many bytes.
    fn room(&mut self, bytes: usize) -> &mut pb::Cluster {
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
        let parts = split(pb::Cluster {
            nodes: nodes.collect(),
            ..pb::Cluster::default()
        });
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.encoded_len() <= PART_BYTES));
        assert_eq!(parts.iter().map(|part| part.nodes.len()).sum::<usize>(), 5000);
    }

    #[test]
    fn an_empty_cluster_is_one_part() {
        assert_eq!(split(pb::Cluster::default()).len(), 1);
    }

    #[test]
    fn a_field_names_its_record() {
        let part = |name: &str| pb::Cluster {
            tasks: vec![pb::Task {
                name: name.to_owned(),
                ..pb::Task::default()
            }],
            ..pb::Cluster::default()
        };
        let parts = [part("default/a"), part("default/b")];
        let name = |field: &str| record(&parts, field);
        assert_eq!(
            name("batch[1].put.tasks[0].requests.items[cpu]").as_deref(),
            Some("task default/a")
        );
        assert_eq!(
            name("batch.put.tasks[0].requests.items[cpu]").as_deref(),
            Some("task default/b")
        );
        assert_eq!(name("batch.put.tasks[7].requests"), None);
        assert_eq!(name("batch.source"), None);
    }
}
