//! `pumice policy check`: a document judged without a server, by the engine itself.

use std::path::PathBuf;

use clap::Args;

use super::{CommandError, output, state_load};
use crate::engine::policy::{Compatibility, CompileOptions, DiagnosticReport, YamlLimits, compile, unserved_effect};

/// Arguments of `pumice policy check`.
#[derive(Debug, Args)]
pub(super) struct CheckPolicyArgs {
    /// The document: volcano-scheduler.conf; `-`: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Count warnings as faults
    #[arg(long)]
    strict: bool,
}

/// Runs it.
pub(super) fn run(args: &CheckPolicyArgs) -> Result<(), CommandError> {
    let text = state_load::read_text(&args.file)?;
    let file = args.file.display();
    let report = compile_report(&text, args.strict);
    for diagnostic in &report.diagnostics {
        output::line(&format!("{file}:{diagnostic}"))?;
    }
    if report.omitted > 0 {
        output::line(&format!("{file}: {} more findings are not listed", report.omitted))?;
    }
    // Names that Volcano does not know either are among the warnings.
    for plugin in report.unserved_plugins.iter().filter(|plugin| plugin.known_upstream) {
        let mark = plugin.at.mark;
        output::line(&format!(
            "{file}:{}:{}: note: `{}` is not served here. Not evaluated: {}",
            mark.line,
            mark.column,
            plugin.name,
            unserved_effect(&plugin.name)
        ))?;
    }
    let warnings = output::count(report.warnings().count(), "warning");
    match report.errors().count() {
        0 => output::line(&format!("{file}: ok, {warnings}")),
        problems => {
            let problems = output::count(problems, "fault");
            Err(CommandError::message(format!(
                "error: {file}: {problems}, {warnings}: a server would refuse it"
            )))
        }
    }
}

fn compile_report(text: &str, strict: bool) -> DiagnosticReport {
    let options = CompileOptions {
        limits: YamlLimits::default(),
        compatibility: Compatibility::default(),
        strict,
    };
    match compile(text, &options) {
        Ok(compiled) => compiled.report,
        Err(report) => report,
    }
}
