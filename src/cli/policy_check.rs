//! `pumice policy check`: checks a document in this process, without a server.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use pumice_console::{CommandError, OutputFormat, files, output};
use pumice_engine::policy::{
    CompileOptions, Diagnostic, DiagnosticReport, Severity, UnservedPlugin, compile, unserved_effect,
};

/// Arguments of `pumice policy check`.
#[derive(Debug, Args)]
pub(super) struct CheckPolicyArgs {
    /// Document, such as volcano-scheduler.conf; `-`: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Diagnostics of a document as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckReport<'r> {
    file: String,
    /// False: a server would refuse the document.
    accepted: bool,
    errors: usize,
    warnings: usize,
    diagnostics: Vec<CheckedDiagnostic<'r>>,
    /// Number of diagnostics beyond those listed.
    omitted: usize,
    unserved_plugins: Vec<CheckedPlugin<'r>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckedDiagnostic<'r> {
    /// `error` or `warning`.
    severity: &'static str,
    code: &'static str,
    line: u32,
    column: u32,
    path: &'r str,
    message: &'r str,
}

/// A plugin of the document that Pumice does not serve.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckedPlugin<'r> {
    name: &'r str,
    line: u32,
    column: u32,
    /// True: Volcano or Kubernetes has a plugin of this name.
    known_upstream: bool,
    did_you_mean: Option<&'r str>,
}

/// Checks the document and prints its diagnostics.
pub(super) fn run(args: &CheckPolicyArgs) -> Result<(), CommandError> {
    let text = files::read_text(&args.file)?;
    let file = args.file.display().to_string();
    let options = CompileOptions {
        strict: args.strict,
        ..CompileOptions::default()
    };
    let report = compile(&text, &options).map_or_else(|report| report, |compiled| compiled.report);
    match args.output {
        OutputFormat::Table => print_table(&file, &report),
        OutputFormat::Json => {
            output::report(&check_report(file, &report))?;
            CommandError::require_same(!report.has_errors())
        }
    }
}

fn print_table(file: &str, report: &DiagnosticReport) -> Result<(), CommandError> {
    for diagnostic in &report.diagnostics {
        output::line(&format!("{file}:{diagnostic}"))?;
    }
    if report.omitted > 0 {
        let omitted = output::count(report.omitted, "more diagnostic");
        output::line(&format!("{file}: {omitted} not listed"))?;
    }
    // Names that Volcano does not know either are among the warnings.
    for plugin in report.unserved_plugins.iter().filter(|plugin| plugin.known_upstream) {
        let mark = plugin.at.mark;
        output::line(&format!(
            "{file}:{}:{}: note: Pumice does not serve `{}`. Not evaluated: {}",
            mark.line,
            mark.column,
            plugin.name,
            unserved_effect(&plugin.name)
        ))?;
    }
    let warnings = output::count(report.warnings().count(), "warning");
    match report.errors().count() {
        0 => output::line(&format!("{file}: ok, {warnings}")),
        errors => {
            let errors = output::count(errors, "error");
            Err(CommandError::message(format!(
                "error: {file}: {errors}, {warnings}: a server would reject it"
            )))
        }
    }
}

fn check_report(file: String, report: &DiagnosticReport) -> CheckReport<'_> {
    CheckReport {
        file,
        accepted: !report.has_errors(),
        errors: report.errors().count(),
        warnings: report.warnings().count(),
        diagnostics: report.diagnostics.iter().map(CheckedDiagnostic::from).collect(),
        omitted: report.omitted,
        unserved_plugins: report.unserved_plugins.iter().map(CheckedPlugin::from).collect(),
    }
}

impl<'r> From<&'r Diagnostic> for CheckedDiagnostic<'r> {
    fn from(diagnostic: &'r Diagnostic) -> Self {
        let Diagnostic {
            severity,
            code,
            message,
            line,
            column,
            path,
        } = diagnostic;
        CheckedDiagnostic {
            severity: match severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            code: code.name(),
            line: *line,
            column: *column,
            path,
            message,
        }
    }
}

impl<'r> From<&'r UnservedPlugin> for CheckedPlugin<'r> {
    fn from(plugin: &'r UnservedPlugin) -> Self {
        let UnservedPlugin {
            name,
            at,
            known_upstream,
            did_you_mean,
        } = plugin;
        CheckedPlugin {
            name,
            line: at.mark.line,
            column: at.mark.column,
            known_upstream: *known_upstream,
            did_you_mean: did_you_mean.as_deref(),
        }
    }
}
