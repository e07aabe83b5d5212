//! `pumice sessions`: lists the open sessions, and ends one.

use clap::{Args, Subcommand};

use pumice_console::{ClientArgs, CommandError, OutputFormat, listings, output};
use pumice_protocol::v1 as pb;

/// Arguments of `pumice sessions`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct SessionsArgs {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Command on sessions.
#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// Close a session; later calls of its scheduler fail with `SESSION_EXPIRED`
    Close(CloseSessionArgs),
}

/// Arguments of `pumice sessions close`.
#[derive(Debug, Args)]
struct CloseSessionArgs {
    /// Id of the session, such as 5f1c-2
    #[arg(value_name = "ID")]
    session: String,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) async fn run(args: SessionsArgs) -> Result<(), CommandError> {
    match args.command {
        None => list(args.client).await,
        Some(SessionsCommand::Close(args)) => close(args).await,
    }
}

async fn list(client: ClientArgs) -> Result<(), CommandError> {
    let mut connection = client.connect().await?;
    let request = pb::ListSessionsRequest::default();
    listings::show(&mut connection, request, client.output, &HEAD, cells, Some("session")).await
}

/// Columns of the list of sessions.
const HEAD: [&str; 9] = [
    "SESSION",
    "SOURCE",
    "AGE",
    "IDLE",
    "LEASE LEFT",
    "CHANGES",
    "SAVEPOINTS",
    "POLICY",
    "REVISION",
];

fn cells(session: pb::SessionStatus) -> [String; 9] {
    [
        session.session,
        session.source,
        seconds(session.age),
        if session.requests_in_progress > 0 {
            format!("{} under way", session.requests_in_progress)
        } else {
            seconds(session.idle)
        },
        seconds(session.lease_left),
        session.changes.to_string(),
        session.savepoints.to_string(),
        match session.policy_version {
            0 => session.policy,
            version => format!("{}@{version}", session.policy),
        },
        session
            .revision
            .map(|revision| revision.number.to_string())
            .unwrap_or_default(),
    ]
}

fn seconds(time: Option<prost_types::Duration>) -> String {
    let time = time.unwrap_or_default();
    format!("{}.{} s", time.seconds, time.nanos / 100_000_000)
}

async fn close(args: CloseSessionArgs) -> Result<(), CommandError> {
    let mut connection = args.client.connect().await?;
    let request = pb::CloseSessionRequest {
        session: args.session.clone(),
    };
    let reply = connection.decisions.close_session(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        return output::json(&reply);
    }
    output::line(&format!(
        "session {}: closed after {}",
        args.session,
        output::count(usize::try_from(reply.applied_through).unwrap_or(usize::MAX), "change")
    ))
}
