//! `pumice policy check`: a document judged without a server, by the engine itself.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, output, state_load};
use crate::engine::policy::{Compatibility, Limits, LoadOptions, Report, load};

/// Arguments of `pumice policy check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The document: volcano-scheduler.conf; `-`: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Count warnings as faults
    #[arg(long)]
    strict: bool,
}

/// Runs it.
pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let text = state_load::text(&args.file)?;
    let file = args.file.display();
    let mut report = judge(&text);
    report.finish(args.strict);
    for finding in &report.findings {
        output::line(&format!("{file}:{finding}"))?;
    }
    if report.left_out > 0 {
        output::line(&format!("{file}: {} more findings are not listed", report.left_out))?;
    }
    for plugin in &report.not_served {
        let meant = plugin
            .did_you_mean
            .as_ref()
            .map(|name| format!("; did you mean `{name}`?"))
            .unwrap_or_default();
        let mark = plugin.at.mark;
        output::line(&format!(
            "{file}:{}:{}: note: `{}` is not served here{meant}",
            mark.line, mark.column, plugin.name
        ))?;
    }
    let (faults, warnings) = (report.faults().count(), report.warnings().count());
    if faults > 0 {
        return Err(Failure::said(format!(
            "error: {file}: {faults} faults, {warnings} warnings: a server would refuse it"
        )));
    }
    output::line(&format!("{file}: ok, {warnings} warnings"))
}

fn judge(text: &str) -> Report {
    let options = LoadOptions {
        limits: Limits::default(),
        compatibility: Compatibility::default(),
        served: &[],
    };
    load(text, &options).report
}
