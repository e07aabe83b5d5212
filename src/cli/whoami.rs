//! `pumice whoami`: who the server takes the caller for.

use clap::Args;

use pumice_console::{ClientArgs, CommandError, OutputFormat, output};
use pumice_protocol::v1 as pb;

/// Arguments of `pumice whoami`.
#[derive(Debug, Args)]
pub(super) struct WhoAmIArgs {
    #[command(flatten)]
    client: ClientArgs,
}

/// Asks the server and prints its answer.
pub(super) async fn run(args: WhoAmIArgs) -> Result<(), CommandError> {
    let mut connection = args.client.connect().await?;
    let reply = connection.state.who_am_i(pb::WhoAmIRequest {}).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        return output::json(&reply);
    }
    let pb::WhoAmIResponse {
        identity,
        kind,
        roles,
        sources,
        address,
        transport,
        certificate_names,
    } = reply;
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    for (what, value) in [
        ("identity", or(identity, "none")),
        ("known by", kind),
        ("roles", or(roles.join(", "), "none")),
        ("sources", or(sources.join(", "), "none")),
        ("address", or(address, "Unix socket")),
        ("transport", transport),
        ("certificate", or(certificate_names.join(", "), "none")),
    ] {
        output::line(&format!("{what:<12} {}", pumice_protocol::visible_text(&value)))?;
    }
    Ok(())
}
