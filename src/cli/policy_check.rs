//! `pumice policy check`: a document judged without a server, by the engine itself.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, output, state_load};
use crate::engine::policy::{Compatibility, CompileOptions, Limits, Report, compile};

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
    let report = judge(&text, args.strict);
    for finding in &report.findings {
        output::line(&format!("{file}:{finding}"))?;
    }
    if report.left_out > 0 {
        output::line(&format!("{file}: {} more findings are not listed", report.left_out))?;
    }
    // Names that Volcano does not know either are among the warnings.
    for plugin in report.not_served.iter().filter(|plugin| plugin.known_upstream) {
        let mark = plugin.at.mark;
        output::line(&format!(
            "{file}:{}:{}: note: `{}` is not served here",
            mark.line, mark.column, plugin.name
        ))?;
    }
    let warnings = output::count(report.warnings().count(), "warning");
    match report.faults().count() {
        0 => output::line(&format!("{file}: ok, {warnings}")),
        faults => {
            let faults = output::count(faults, "fault");
            Err(Failure::said(format!(
                "error: {file}: {faults}, {warnings}: a server would refuse it"
            )))
        }
    }
}

fn judge(text: &str, strict: bool) -> Report {
    let options = CompileOptions {
        limits: Limits::default(),
        compatibility: Compatibility::default(),
        strict,
    };
    match compile(text, &options) {
        Ok(compiled) => compiled.report,
        Err(report) => report,
    }
}
