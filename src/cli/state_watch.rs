//! `pumice state watch` and `pumice state diff`: changes of the state of a server, and its differences from a dump.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::local_services::ProgramServices;
use super::records::{self, ClusterRecords, RecordDiff};
use pumice_console::args::parse_duration;
use pumice_console::cluster_record::record_counts;
use pumice_console::{
    ClientArgs, CommandError, OutputFormat, args, full_sync, import_files, listings, output, state_check,
};
use pumice_engine::model::LabelKinds;
use pumice_kubernetes::import::AmountRules;
use pumice_kubernetes::object::missing_queues;
use pumice_protocol::ClientConnection;

/// Arguments of `pumice state watch`.
#[derive(Debug, Args)]
pub(super) struct WatchStateArgs {
    /// Stop after this number of changes [default: run until interrupted]
    #[arg(long, value_name = "COUNT")]
    count: Option<usize>,
    /// Polling interval, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    interval: Duration,
    #[command(flatten)]
    client: ClientArgs,
}

/// Arguments of `pumice state diff`.
#[derive(Debug, Args)]
pub(super) struct DiffStateArgs {
    /// Files to compare, as for `state load`; `-`: standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Compare with the records of this source only
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Fail on warnings about the files
    #[arg(long)]
    strict: bool,
    /// Rules for the requests of pods
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = args::amount_rules_parser())]
    derivation: AmountRules,
    #[command(flatten)]
    client: ClientArgs,
}

/// Prints changes as the revision advances. Listings are read only after it did.
pub(super) async fn watch(args: WatchStateArgs) -> Result<(), CommandError> {
    let mut connection = args.client.connect().await?;
    let mut seen = ClusterRecords::read(&mut connection).await?;
    let mut before = seen.fields()?;
    let number = |records: &ClusterRecords| records.revision.map_or(0, |revision| revision.number);
    if args.client.output == OutputFormat::Table {
        output::line(&format!(
            "watching from revision {} on, {}",
            number(&seen),
            record_counts(&seen.cluster, true)
        ))?;
    }
    let mut warnings = state_check::check_cluster(&seen.cluster, &ProgramServices);
    state_check::report(&warnings);
    let mut reported = 0;
    while args.count.is_none_or(|count| reported < count) {
        tokio::time::sleep(args.interval).await;
        let info = listings::server_info(&mut connection).await?;
        if info.revision == seen.revision {
            continue;
        }
        let restarted = info.revision.map(|new| new.epoch) != seen.revision.map(|old| old.epoch);
        if restarted && args.client.output == OutputFormat::Table {
            output::line("the server was restarted: the next changes are against its state before")?;
        }
        seen = ClusterRecords::read(&mut connection).await?;
        let after = seen.fields()?;
        let changes = records::record_diffs(&before, &after);
        before = after;
        let left = args.count.map_or(usize::MAX, |count| count.saturating_sub(reported));
        for change in changes.iter().take(left) {
            print_change(change, number(&seen), args.client.output)?;
        }
        reported = reported.saturating_add(changes.len());
        let now = state_check::check_cluster(&seen.cluster, &ProgramServices);
        let new_warnings = now.iter().filter(|warning| warnings.binary_search(warning).is_err());
        state_check::report(&new_warnings.cloned().collect::<Vec<_>>());
        warnings = now;
    }
    Ok(())
}

fn print_change(change: &RecordDiff, revision: u64, format: OutputFormat) -> Result<(), CommandError> {
    match format {
        OutputFormat::Table => output::paragraph(&format!("{revision} {}", change.line())),
        OutputFormat::Json => output::line(&json!({ "revision": revision, "change": change }).to_string()),
    }
}

/// Compares files with the state of the server. The same reader processes both sides, which leaves only real
/// differences. For example, `1` and `1000m` are equal, and labels that the server does not store are ignored.
pub(super) async fn diff(args: DiffStateArgs) -> Result<bool, CommandError> {
    let mut connection = args.client.connect().await?;
    let info = listings::server_info(&mut connection).await?;
    let rules = args.derivation.of_release(full_sync::pod_release_in(&info));
    let mut imported = import_files::read(&args.files, rules)?.checked(&ProgramServices);
    let sources = info.sources;
    let stored = LabelKinds {
        nodes: !sources.iter().any(|source| source.without_node_labels),
        tasks: !sources.iter().any(|source| source.without_task_labels),
    };
    let mut local = ProgramServices.start_keeping(stored).await?;
    let cluster = std::mem::take(&mut imported.cluster);
    let made = missing_queues(&cluster);
    let loaded = full_sync::send_full_sync(&mut local.connection, "file", cluster).await?;
    for refused in &loaded.rejected {
        output::note(&format!("refused, and so not compared: {refused}"));
    }
    let given = ClusterRecords::read(&mut local.connection).await?;
    let mut file = given.fields()?;
    state_check::drop_known(&mut connection, None, &mut imported.warnings, &ProgramServices).await?;
    imported.report();
    state_check::refuse_strict(args.strict, imported.warnings.len(), "")?;
    if let Some(source) = &args.source {
        require_source(&mut connection, source).await?;
    }
    let known = ClusterRecords::read(&mut connection).await?;
    let mut server = known.fields()?;
    if let Some(source) = &args.source {
        server.retain(|key, _| known.sources.get(key) == Some(source));
    }
    // A server that has no built-in queue differs in nothing that the file says.
    let is_made = |kind: usize, name: &str| {
        records::KINDS.get(kind) == Some(&"queue") && made.iter().any(|queue| queue.name == name)
    };
    file.retain(|(kind, name), _| !is_made(*kind, name) || server.contains_key(&(*kind, name.clone())));
    let changes = records::record_diffs(&file, &server);
    if args.client.output == OutputFormat::Json {
        let found = json!({
            "same": changes.is_empty(),
            "revision": known.revision.map_or(0, |revision| revision.number),
            "missing": changes_of(&changes, "removed"),
            "extra": changes_of(&changes, "added"),
            "different": changes_of(&changes, "changed"),
        });
        output::line(&format!("{found:#}"))?;
        return Ok(changes.is_empty());
    }
    print_differences(&changes)?;
    if changes.is_empty() {
        output::line(&format!("the same: {}", record_counts(&given.cluster, true)))?;
    }
    Ok(changes.is_empty())
}

fn print_differences(changes: &[RecordDiff]) -> Result<(), CommandError> {
    for (change, head) in [
        ("removed", "missing: in the file, not on the server"),
        ("added", "extra: on the server, not in the file"),
        ("changed", "different: file → server"),
    ] {
        let found = changes_of(changes, change);
        if !found.is_empty() {
            output::line(&format!("{head} ({})", found.len()))?;
        }
        for change in found {
            output::paragraph(&format!(
                "  {}",
                if change.action == "changed" {
                    change.line()
                } else {
                    record_title(change)
                }
            ))?;
        }
    }
    Ok(())
}

/// Fails if the server does not have this source; the error lists the known sources.
async fn require_source(connection: &mut ClientConnection, source: &str) -> Result<(), CommandError> {
    let info = listings::server_info(connection).await?;
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
    Err(CommandError::message(format!(
        "error: the server knows no source `{source}`; it knows: {known}"
    )))
}

fn changes_of<'c>(changes: &'c [RecordDiff], kind: &str) -> Vec<&'c RecordDiff> {
    changes.iter().filter(|change| change.action == kind).collect()
}

fn record_title(change: &RecordDiff) -> String {
    format!("{} {}", change.kind, change.name)
}
