//! `pumice state watch` and `pumice state diff`: what changes in what the server knows, and how it differs from a dump.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::bench::span;
use super::connect::Connection;
use super::local::Local;
use super::records::{self, Change, Records};
use super::{Client, Failure, Format, output, state_load};
use crate::import::{Counting, Import};
use crate::server::pb;

/// Arguments of `pumice state watch`.
#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// End after so many changes; without it: when interrupted
    #[arg(long, value_name = "COUNT")]
    count: Option<usize>,
    /// Time between two looks at the revision, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = span)]
    interval: Duration,
    #[command(flatten)]
    client: Client,
}

/// Arguments of `pumice state diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// Files as for `state load`; `-`: standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Compare with the records of this source only
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// How the amounts of pods are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = state_load::counting())]
    derivation: Counting,
    #[command(flatten)]
    client: Client,
}

/// Shows changes as the revision advances. Lists are read only when it did.
pub(super) async fn watch(args: WatchArgs) -> Result<(), Failure> {
    let mut connection = Connection::open(&args.client.server).await?;
    let mut seen = Records::read(&mut connection).await?;
    let mut before = seen.fields()?;
    let number = |records: &Records| records.revision.map_or(0, |revision| revision.number);
    if args.client.output == Format::Table {
        output::line(&format!(
            "watching from revision {} on, {}",
            number(&seen),
            counts(&seen)
        ))?;
    }
    let mut told = 0;
    while args.count.is_none_or(|count| told < count) {
        tokio::time::sleep(args.interval).await;
        let info = connection
            .state
            .get_server_info(pb::GetServerInfoRequest {})
            .await?
            .into_inner();
        if info.revision == seen.revision {
            continue;
        }
        let restarted = info.revision.map(|new| new.epoch) != seen.revision.map(|old| old.epoch);
        if restarted && args.client.output == Format::Table {
            output::line("the server was started anew: what follows is against what it knew before")?;
        }
        seen = Records::read(&mut connection).await?;
        let after = seen.fields()?;
        let changes = records::changes(&before, &after);
        before = after;
        let left = args.count.map_or(usize::MAX, |count| count.saturating_sub(told));
        for change in changes.iter().take(left) {
            tell(change, number(&seen), args.client.output)?;
        }
        told = told.saturating_add(changes.len());
    }
    Ok(())
}

fn tell(change: &Change, revision: u64, format: Format) -> Result<(), Failure> {
    match format {
        Format::Table => output::line(&format!("{revision} {}", change.line())),
        Format::Json => output::line(&json!({ "revision": revision, "change": change }).to_string()),
    }
}

fn counts(records: &Records) -> String {
    let cluster = &records.cluster;
    let counts = [
        (cluster.nodes.len(), "node"),
        (cluster.queues.len(), "queue"),
        (cluster.jobs.len(), "job"),
        (cluster.tasks.len(), "task"),
    ];
    counts.map(|(number, thing)| output::count(number, thing)).join(", ")
}

/// Compares files with what the server knows. Both go through the same reader, so that a difference is one of content:
/// `1` and `1000m` are the same, and labels that no plugin reads are in neither.
pub(super) async fn diff(args: DiffArgs) -> Result<bool, Failure> {
    let cluster = import(&args.files, args.derivation)?;
    let mut local = Local::start().await?;
    let loaded = state_load::send(&mut local.connection, "file", cluster).await?;
    for refused in &loaded.refused {
        output::note(&format!("refused, and so not compared: {refused}"));
    }
    let given = Records::read(&mut local.connection).await?;
    let file = given.fields()?;
    let mut connection = Connection::open(&args.client.server).await?;
    if let Some(source) = &args.source {
        known_source(&mut connection, source).await?;
    }
    let known = Records::read(&mut connection).await?;
    let mut server = known.fields()?;
    if let Some(source) = &args.source {
        server.retain(|(kind, name), _| {
            let kind = records::KINDS.get(*kind).copied().unwrap_or_default();
            known.sources.get(&(kind, name.clone())) == Some(source)
        });
    }
    let changes = records::changes(&file, &server);
    if args.client.output == Format::Json {
        let found = json!({
            "same": changes.is_empty(),
            "revision": known.revision.map_or(0, |revision| revision.number),
            "missing": of(&changes, "removed"),
            "extra": of(&changes, "added"),
            "different": of(&changes, "changed"),
        });
        output::line(&format!("{found:#}"))?;
        return Ok(changes.is_empty());
    }
    for (change, head) in [
        ("removed", "missing: in the file, not on the server"),
        ("added", "extra: on the server, not in the file"),
        ("changed", "different: file → server"),
    ] {
        let found = of(&changes, change);
        if !found.is_empty() {
            output::line(&format!("{head} ({})", found.len()))?;
        }
        for change in found {
            output::line(&format!(
                "  {}",
                if change.what == "changed" {
                    change.line()
                } else {
                    named(change)
                }
            ))?;
        }
    }
    if changes.is_empty() {
        output::line(&format!("the same: {}", counts(&given)))?;
    }
    Ok(changes.is_empty())
}

/// Fails, and names those that there are, if the server knows no such source.
async fn known_source(connection: &mut Connection, source: &str) -> Result<(), Failure> {
    let info = connection
        .state
        .get_server_info(pb::GetServerInfoRequest {})
        .await?
        .into_inner();
    let names = info.sources.into_iter().filter_map(|status| status.position);
    let names: Vec<String> = names.map(|position| position.source).collect();
    if names.iter().any(|name| name == source) {
        return Ok(());
    }
    let known = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    Err(Failure::said(format!(
        "error: the server knows no source `{source}`; it knows: {known}"
    )))
}

fn of<'c>(changes: &'c [Change], kind: &str) -> Vec<&'c Change> {
    changes.iter().filter(|change| change.what == kind).collect()
}

fn named(change: &Change) -> String {
    format!("{} {}", change.kind, change.name)
}

/// The records of files; what could not be used is said.
pub(super) fn import(files: &[PathBuf], counting: Counting) -> Result<pb::Cluster, Failure> {
    let mut import = Import::new(counting);
    for file in files {
        import.read(&file.display().to_string(), &state_load::text(file)?)?;
    }
    for refused in import.refused() {
        output::note(&format!(
            "refused, and so left out: {}: {}",
            refused.object, refused.error
        ));
    }
    Ok(import.into_cluster())
}
