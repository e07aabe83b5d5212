//! `pumice state forget`: a source that does not come back.

use clap::Args;

use super::{ClientArgs, CommandError, OutputFormat, output};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Arguments of `pumice state forget`.
#[derive(Debug, Args)]
pub(super) struct ForgetSourceArgs {
    /// Name of the source
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Forget the source even if it was heard a moment ago
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs it.
pub(super) async fn run(args: ForgetSourceArgs) -> Result<(), CommandError> {
    let mut connection = ClientConnection::open(&args.client.server).await?;
    let request = pb::ForgetSourceRequest {
        source: args.source.clone(),
        force: args.force,
    };
    let reply = connection.state.forget_source(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        return output::json("ForgetSourceResponse", &reply);
    }
    let count = |number: u64, thing| output::count(usize::try_from(number).unwrap_or(usize::MAX), thing);
    output::line(&format!(
        "source {}: forgotten with {} and {}; visible at revision {}",
        args.source,
        count(reply.records, "record"),
        count(reply.reservations, "reservation"),
        reply.revision.map_or(0, |revision| revision.number)
    ))?;
    if reply.reservations == 0 {
        return Ok(());
    }
    output::durability(reply.durability())
}
