//! `pumice state forget`: a source that does not come back, or a resource name that no record uses.

use clap::Args;

use pumice_console::{ClientArgs, CommandError, OutputFormat, output};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Arguments of `pumice state forget`.
#[derive(Debug, Args)]
pub(super) struct ForgetSourceArgs {
    /// Name of the source
    #[arg(value_name = "SOURCE", required_unless_present = "resource")]
    source: Option<String>,
    /// Forget this resource name instead of a source, such as example.com/old-device
    #[arg(long, value_name = "NAME", conflicts_with_all = ["source", "force"])]
    resource: Option<String>,
    /// Also forget a source that has sent a batch recently
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub(super) async fn run(args: ForgetSourceArgs) -> Result<(), CommandError> {
    let mut connection = args.client.connect().await?;
    if let Some(resource) = args.resource {
        return forget_resource(connection, resource, args.client.output).await;
    }
    let source = args.source.unwrap_or_default();
    let request = pb::ForgetSourceRequest {
        source: source.clone(),
        force: args.force,
    };
    let reply = connection.state.forget_source(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        return output::json(&reply);
    }
    let count = |number: u64, thing| output::count(usize::try_from(number).unwrap_or(usize::MAX), thing);
    output::line(&format!(
        "source {source}: forgotten with {} and {}; visible at revision {}",
        count(reply.records, "record"),
        count(reply.reservations, "reservation"),
        reply.revision.map_or(0, |revision| revision.number)
    ))?;
    if reply.reservations == 0 {
        return Ok(());
    }
    output::durability(reply.durability())
}

async fn forget_resource(
    mut connection: ClientConnection,
    resource: String,
    format: OutputFormat,
) -> Result<(), CommandError> {
    let request = pb::ForgetResourceRequest {
        resource: resource.clone(),
    };
    let reply = connection.state.forget_resource(request).await?.into_inner();
    if format == OutputFormat::Json {
        return output::json(&reply);
    }
    let revision = reply.revision.map_or(0, |revision| revision.number);
    output::line(&format!("resource {resource}: forgotten; gone at revision {revision}"))
}
