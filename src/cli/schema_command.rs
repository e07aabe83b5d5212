//! `pumice schema`: the JSON schemas of documents.

use clap::{Args, ValueEnum};

use pumice_console::{CommandError, output};

/// Arguments of `pumice schema`.
#[derive(Debug, Args)]
pub(super) struct SchemaArgs {
    /// Kind of document
    #[arg(value_name = "KIND", value_enum)]
    kind: DocumentKind,
}

/// Kind of document that has a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DocumentKind {
    /// Policy: volcano-scheduler.conf or `KubeSchedulerConfiguration`
    Policy,
    /// Settings file of `pumice serve`
    Settings,
    /// Identities file of `pumice serve`
    Identities,
    /// Case file of `pumice policy test`
    PolicyTest,
}

/// Writes the schema.
pub(super) fn run(args: &SchemaArgs) -> Result<(), CommandError> {
    let schema = match args.kind {
        DocumentKind::Policy => include_str!("../../schemas/policy.schema.json"),
        DocumentKind::Settings => include_str!("../../schemas/settings.schema.json"),
        DocumentKind::Identities => include_str!("../../schemas/identities.schema.json"),
        DocumentKind::PolicyTest => include_str!("../../schemas/policy-test.schema.json"),
    };
    output::line(schema.trim_end())
}
