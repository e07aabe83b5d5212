//! `pumice policy`: checks a document in this process, activates it on a server, reads the active policy.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tonic::Code;

use super::local_services::ProgramServices;
use super::{policy_check, policy_diff};
use pumice_console::{ClientArgs, CommandError, OutputFormat, files, listings, output};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Command on policies.
#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Check a document without a server; prints all diagnostics with line and column
    Check(policy_check::CheckPolicyArgs),
    /// Compare two documents or versions, with defaults and repairs applied; exit code 1: they differ
    Diff(policy_diff::DiffPolicyArgs),
    /// Run policy test cases without a server; exit code 1: a case failed
    Test(pumice_simulation::policy_test::TestPolicyArgs),
    /// Activate a document; if it is rejected, the current version stays active
    Push(PushPolicyArgs),
    /// Print the active document or an earlier version
    Get(GetPolicyArgs),
    /// List the versions of a policy, newest first
    History(PolicyHistoryArgs),
    /// Activate an earlier version again, for example after a bad push
    Rollback(RollbackPolicyArgs),
    /// Delete a policy with all its versions; deleting `default` activates the built-in policy
    Delete(DeletePolicyArgs),
}

/// Arguments of `pumice policy push`.
#[derive(Debug, Args)]
pub(super) struct PushPolicyArgs {
    /// Document, such as volcano-scheduler.conf; `-`: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the policy
    #[arg(long, default_value = "default")]
    name: String,
    /// Fail unless this version is active, such as 3; 0: fail if the policy exists
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    /// Show the changes without activating the document
    #[arg(long)]
    dry_run: bool,
    /// Reject a document with warnings
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Arguments of `pumice policy get`.
#[derive(Debug, Args)]
pub(super) struct GetPolicyArgs {
    /// Name of the policy
    #[arg(long, default_value = "default")]
    name: String,
    /// Version to print, such as 3; 0: the active version
    #[arg(long, default_value_t = 0)]
    version: u64,
    /// Print the effective document: with all defaults and repairs
    #[arg(long, conflicts_with = "loaded")]
    effective: bool,
    /// Print the document as loaded: with typed values, without defaults and repairs
    #[arg(long)]
    loaded: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Arguments of `pumice policy history`.
#[derive(Debug, Args)]
pub(super) struct PolicyHistoryArgs {
    /// Name of the policy; empty: list the active version of every policy
    #[arg(long, default_value = "default")]
    name: String,
    #[command(flatten)]
    client: ClientArgs,
}

/// Arguments of `pumice policy rollback`.
#[derive(Debug, Args)]
pub(super) struct RollbackPolicyArgs {
    /// Version to activate again, such as 2; 0: the version before the active version
    #[arg(value_name = "VERSION", default_value_t = 0)]
    version: u64,
    /// Name of the policy
    #[arg(long, default_value = "default")]
    name: String,
    /// Fail unless this version is active, such as 3
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    /// Show the changes without rolling back
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Arguments of `pumice policy delete`.
#[derive(Debug, Args)]
pub(super) struct DeletePolicyArgs {
    /// Name of the policy
    #[arg(value_name = "NAME")]
    name: String,
    /// Fail unless this version is active, such as 3
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) async fn run(command: PolicyCommand) -> Result<(), CommandError> {
    match command {
        PolicyCommand::Check(args) => policy_check::run(&args),
        PolicyCommand::Diff(args) => CommandError::require_same(policy_diff::run(args).await?),
        PolicyCommand::Test(args) => pumice_simulation::policy_test::run(args, &ProgramServices).await,
        PolicyCommand::Push(args) => push(args).await,
        PolicyCommand::Get(args) => get(args).await,
        PolicyCommand::History(args) => history(args).await,
        PolicyCommand::Rollback(args) => rollback(args).await,
        PolicyCommand::Delete(args) => delete(args).await,
    }
}

async fn push(args: PushPolicyArgs) -> Result<(), CommandError> {
    let request = pb::ReloadPolicyRequest {
        name: args.name,
        document: files::read_text(&args.file)?,
        expected_version: args.expected_version,
        dry_run: args.dry_run,
        strict: args.strict,
        ..pb::ReloadPolicyRequest::default()
    };
    let mut connection = args.client.connect().await?;
    let before = stored_version(&mut connection, &request.name, 0).await?;
    let reply = connection.policies.reload_policy(request).await?.into_inner();
    let tried = args.dry_run.then(|| args.file.display().to_string());
    print_change(&mut connection, before, reply, tried, args.client.output).await
}

async fn rollback(args: RollbackPolicyArgs) -> Result<(), CommandError> {
    let request = pb::RollbackPolicyRequest {
        name: args.name,
        version: args.version,
        expected_version: args.expected_version,
        dry_run: args.dry_run,
    };
    let mut connection = args.client.connect().await?;
    let before = stored_version(&mut connection, &request.name, 0).await?;
    let reply = connection.policies.rollback_policy(request).await?.into_inner();
    let tried = args.dry_run.then(|| "the earlier version".to_owned());
    print_change(&mut connection, before, reply, tried, args.client.output).await
}

/// Prints the sources that have to send their records again.
fn note_awaited_sources(sources: &[String]) {
    if !sources.is_empty() {
        output::note(&format!(
            "note: records were read for other policies, without labels that this one reads or with pods derived by another release; \
             filters that read such labels refuse until the records come again. Sources that follow a cluster are asked for a full \
             sync, and files have to be loaded again: {}",
            sources.join(", ")
        ));
    }
}

/// A stored version of a policy, 0 for the one in force; `None` if there is none.
async fn stored_version(
    connection: &mut ClientConnection,
    name: &str,
    version: u64,
) -> Result<Option<pb::GetPolicyResponse>, CommandError> {
    let request = pb::GetPolicyRequest {
        name: name.to_owned(),
        version,
    };
    match connection.policies.get_policy(request).await {
        Ok(reply) => Ok(Some(reply.into_inner())),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}

/// Prints how the policy changed, then its diagnostics, then the version in force. `before` is the version that was in
/// force before the call, and `dry_run` names the document that a dry run tried.
async fn print_change(
    connection: &mut ClientConnection,
    mut before: Option<pb::GetPolicyResponse>,
    reply: pb::ReloadPolicyResponse,
    dry_run: Option<String>,
    format: OutputFormat,
) -> Result<(), CommandError> {
    if format == OutputFormat::Json {
        return output::json(&reply);
    }
    output::durability(reply.durability())?;
    note_awaited_sources(&reply.awaited_sources);
    let (policy, report) = (reply.policy.unwrap_or_default(), reply.report.unwrap_or_default());
    let unchanged = reply.unchanged;
    let version =
        |reply: &Option<pb::GetPolicyResponse>| reply.as_ref().and_then(|reply| Some(reply.policy.as_ref()?.version));
    // Somebody else may have put a version in force between the two calls.
    let previous = policy.version.saturating_sub(1);
    if !unchanged && dry_run.is_none() && version(&before) != Some(previous) {
        before = if previous == 0 {
            None
        } else {
            stored_version(connection, &policy.name, previous).await?
        };
    }
    let others = if unchanged {
        report.diagnostics.clone()
    } else {
        let title = dry_run.clone();
        let title = title.unwrap_or_else(|| format!("{}@{}", policy.name, policy.version));
        policy_diff::show_change(before, (&policy, &report), title)?
    };
    for diagnostic in &others {
        output::note(&output::diagnostic(diagnostic));
    }
    if !report.unserved_plugins.is_empty() {
        let names = report.unserved_plugins.join(", ");
        output::note(&format!("note: plugins that Pumice does not serve: {names}"));
    }
    let hash = policy.hash.get(..12).unwrap_or(&policy.hash);
    let name = &policy.name;
    output::line(&match (unchanged, dry_run.is_some()) {
        (true, _) => format!(
            "policy {name}: unchanged, version {} ({hash}) is active",
            policy.version
        ),
        (false, true) => format!("policy {name}: would be accepted ({hash}); nothing was changed"),
        (false, false) => format!("policy {name}: version {} ({hash}) is active", policy.version),
    })
}

async fn delete(args: DeletePolicyArgs) -> Result<(), CommandError> {
    let request = pb::DeletePolicyRequest {
        name: args.name,
        expected_version: args.expected_version,
    };
    let mut connection = args.client.connect().await?;
    let reply = connection.policies.delete_policy(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        return output::json(&reply);
    }
    let durability = reply.durability();
    let deleted = reply.deleted.unwrap_or_default();
    let now = match &reply.replacement {
        Some(now) => format!("the built-in policy is active as version {}", now.version),
        None => "no policy of that name is active".to_owned(),
    };
    output::durability(durability)?;
    output::line(&format!(
        "policy {}: deleted with all versions up to {}; {now}",
        deleted.name, deleted.version
    ))
}

async fn get(args: GetPolicyArgs) -> Result<(), CommandError> {
    let request = pb::GetPolicyRequest {
        name: args.name,
        version: args.version,
    };
    let mut connection = args.client.connect().await?;
    let reply = connection.policies.get_policy(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        return output::json(&reply);
    }
    let policy = reply.policy.unwrap_or_default();
    let hash = policy.hash.get(..12).unwrap_or(&policy.hash);
    output::note(&format!(
        "# {} version {} ({hash}), from {}",
        policy.name, policy.version, policy.origin
    ));
    let document = if args.effective {
        &policy.effective_document
    } else if args.loaded {
        &policy.loaded_document
    } else {
        &policy.document
    };
    output::document(document.trim_end_matches('\n'))
}

async fn history(args: PolicyHistoryArgs) -> Result<(), CommandError> {
    let mut connection = args.client.connect().await?;
    let request = pb::ListPoliciesRequest {
        name: args.name,
        ..pb::ListPoliciesRequest::default()
    };
    let head = ["POLICY", "VERSION", "HASH", "ACTIVE", "ACCEPTED", "FROM"];
    listings::show(&mut connection, request, args.client.output, &head, version_cells, None).await
}

fn version_cells(policy: pb::Policy) -> [String; 6] {
    let origin = if policy.origin.starts_with("rollback:") && !policy.caller.is_empty() {
        format!("{} by {}", policy.origin, policy.caller)
    } else {
        policy.origin
    };
    [
        policy.name,
        policy.version.to_string(),
        policy.hash.get(..12).unwrap_or(&policy.hash).to_owned(),
        if policy.active { "yes" } else { "" }.to_owned(),
        policy.accept_time.map(|time| time.to_string()).unwrap_or_default(),
        origin,
    ]
}
