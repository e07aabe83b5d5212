//! `pumice state load`: files as one full sync of a source, sent in parts.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::local_services::ProgramServices;
use pumice_console::args::amount_rules_parser;
use pumice_console::cluster_record::record_counts;
use pumice_console::full_sync::{LoadOutcome, pod_release, send_full_sync_with};
use pumice_console::import_files::{ImportedFiles, ReleaseFiles};
use pumice_console::{ClientArgs, CommandError, OutputFormat, output, state_check};
use pumice_engine::model::ErrorCode;
use pumice_kubernetes::import::AmountRules;
use pumice_protocol::v1 as pb;

/// Refused records that the output names.
const REJECTED_SHOWN: usize = 50;

/// Arguments of `pumice state load`.
#[derive(Debug, Args)]
pub(super) struct LoadStateArgs {
    /// Files to load; `-`: standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Source that owns the records; a later load replaces all records of the source
    #[arg(long, value_name = "NAME", default_value = "file")]
    source: String,
    /// Rules for the requests of pods
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = amount_rules_parser())]
    derivation: AmountRules,
    /// Also load files without any record; this removes all records of the source
    #[arg(long)]
    allow_empty: bool,
    /// Load nothing if there are warnings, such as misspelt fields, duplicate records, dangling references or
    /// unreadable annotations
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the load and prints its outcome.
pub(super) async fn run(args: LoadStateArgs) -> Result<(), CommandError> {
    let files = ReleaseFiles::read(&args.files, args.derivation)?;
    let mut connection = args.client.connect().await?;
    let release = pod_release(&mut connection).await?;
    let ImportedFiles {
        cluster,
        rejected,
        unnamed,
        unreadable,
        mut warnings,
        ..
    } = ImportedFiles::clone(&*files.under(release)?).checked(&ProgramServices);
    let unread = UnreadObjects {
        lines: rejected,
        unnamed,
    };
    if cluster == pb::Cluster::default() && !args.allow_empty {
        state_check::report(&warnings);
        return Err(nothing_loaded(&unread.lines, &args.source));
    }
    let counts = record_counts(&cluster, true);
    state_check::drop_known(&mut connection, Some(&args.source), &mut warnings, &ProgramServices).await?;
    if args.strict {
        state_check::report(&warnings);
        state_check::refuse_strict(true, warnings.len(), ": nothing was sent")?;
    }
    let loaded = send_full_sync_with(&mut connection, &args.source, cluster, unreadable, Some(release)).await?;
    if args.client.output == OutputFormat::Json {
        let mut outcome = output::json_value(&loaded.outcome)?;
        if let Some(outcome) = outcome.as_object_mut() {
            outcome.insert("loadWarnings".to_owned(), json!(state_check::group(&warnings)));
        }
        output::line(&format!("{outcome:#}"))?;
    } else {
        let number = loaded.outcome.revision.map_or(0, |revision| revision.number);
        output::line(&format!(
            "source {}: sent {counts}; visible at revision {number}",
            args.source
        ))?;
    }
    warnings.extend(loaded.warnings.iter().cloned());
    state_check::report(&warnings);
    if unread.lines.is_empty() && loaded.rejected.is_empty() {
        let warnings = loaded.warnings.len();
        state_check::refuse_strict(args.strict, warnings, ": the records are visible all the same")
    } else {
        Err(load_rejected(&unread, &loaded, &args.source))
    }
}

/// Objects of the files that could not be read.
struct UnreadObjects {
    /// Lines for people: the object and the reason.
    lines: Vec<String>,
    /// Number of unread objects without a readable name.
    unnamed: usize,
}

/// A line for each refused record, up to a bound.
fn rejected_lines(refused: &[&String]) -> Vec<String> {
    let shown = refused.iter().take(REJECTED_SHOWN);
    let mut lines: Vec<String> = shown.map(|one| format!("refused: {one}")).collect();
    if refused.len() > REJECTED_SHOWN {
        lines.push(format!("… and {} more", refused.len() - REJECTED_SHOWN));
    }
    lines
}

/// Error of files without a usable record. An empty full sync would remove all records of the source, and most often the
/// cause is a dump that failed.
fn nothing_loaded(unread: &[String], source: &str) -> CommandError {
    let mut lines = rejected_lines(&unread.iter().collect::<Vec<_>>());
    lines.push(format!(
        "error: no usable record in the files: nothing was sent, source {source} keeps its records"
    ));
    lines.push("hint: --allow-empty takes all records from the source".to_owned());
    CommandError::message(lines.join("\n"))
}

/// Records that could not be read, and records that the server rejected.
fn load_rejected(unread: &UnreadObjects, loaded: &LoadOutcome, source: &str) -> CommandError {
    let all: Vec<&String> = unread.lines.iter().chain(&loaded.rejected).collect();
    let mut lines = rejected_lines(&all);
    let uncounted = loaded
        .outcome
        .warnings
        .iter()
        .filter(|warning| warning.reason == ErrorCode::RecordNotCounted.name());
    let (named, uncounted) = (all.len().saturating_sub(unread.unnamed), uncounted.count());
    if named > uncounted {
        let good = output::count(named.saturating_sub(uncounted), "record");
        lines.push(format!(
            "{good} refused, of which the last good one goes on counting, marked invalid"
        ));
    }
    if unread.unnamed > 0 {
        lines.push(format!(
            "{} had no readable name and could not be sent: what the server knew of that from source {source}, it no longer knows",
            output::count(unread.unnamed, "object")
        ));
    }
    lines.push(format!(
        "error: {} refused; the others were taken",
        output::count(all.len(), "record")
    ));
    CommandError::message(lines.join("\n"))
}
