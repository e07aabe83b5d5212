//! `pumice extender check`: sends a scheduler's request to the extender endpoint and prints the response.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use pumice_console::args::value_name;
use pumice_console::scrape::{MetricsArgs, http_post};
use pumice_console::{ClientArgs, CommandError, OutputFormat, files, output};
use pumice_protocol::visible_text;

/// Header of a request that is answered without a hold.
const DRY_RUN: (&str, &str) = ("pumice-dry-run", "true");

/// Commands about extender protocols.
#[derive(Debug, Subcommand)]
pub(super) enum ExtenderCommand {
    /// Send a request of kube-scheduler and print the response; changes nothing on the server
    Check(ExtenderCheckArgs),
}

/// Arguments of `pumice extender check`.
#[derive(Debug, Args)]
pub(super) struct ExtenderCheckArgs {
    /// Verb of the protocol
    #[arg(value_enum)]
    verb: ExtenderVerb,
    /// Body of the request as JSON; `-`: standard input
    #[arg(value_name = "FILE")]
    body: PathBuf,
    /// Name of the policy
    #[arg(long, value_name = "NAME", default_value = "default")]
    policy: String,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Verb of kube-scheduler's extender protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExtenderVerb {
    /// Nodes on which the pod may run
    Filter,
    /// Scores of nodes
    Prioritize,
    /// Victims that may be evicted
    Preempt,
}

/// Runs a command about extender protocols.
///
/// # Errors
/// The body cannot be read, the server does not respond, or the server rejects the request.
pub(super) async fn run(command: ExtenderCommand) -> Result<(), CommandError> {
    let ExtenderCommand::Check(args) = command;
    let body = files::read_text(&args.body)?;
    let path = format!("/kube-scheduler/policy/{}/{}", args.policy, value_name(&args.verb));
    let address = args.metrics.beside(&args.client, &path)?;
    let url = address.url();
    let (status, response) = http_post(&address, body, DRY_RUN)
        .await
        .map_err(|error| CommandError::Message(format!("error: {url}: {error}; --metrics names another HTTP port")))?;
    if status != 200 {
        let text = visible_text(response.trim_end());
        return Err(CommandError::Message(format!(
            "error: {url}: HTTP status {status}: {text}"
        )));
    }
    if args.client.output == OutputFormat::Json {
        return output::line(&response);
    }
    let response: Value = serde_json::from_str(&response)
        .map_err(|error| CommandError::Message(format!("error: {url}: the response is no JSON: {error}")))?;
    output::line(&text_of(args.verb, &response)?)
}

/// Text of a response, for people.
///
/// # Errors
/// The response is an error, or no node fits.
fn text_of(verb: ExtenderVerb, response: &Value) -> Result<String, CommandError> {
    match verb {
        ExtenderVerb::Filter => filter_text(response),
        ExtenderVerb::Prioritize => {
            let hosts = response.as_array().map(Vec::as_slice).unwrap_or_default();
            let line = |host: &Value| format!("{:>4}  {}", host["Score"], name(&host["Host"]));
            Ok(hosts.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        ExtenderVerb::Preempt => {
            let nodes = response["NodeNameToMetaVictims"].as_object();
            let line = |(node, victims): (&String, &Value)| {
                let count = victims["Pods"].as_array().map_or(0, Vec::len);
                format!("{}: {count} victims", visible_text(node))
            };
            let lines: Vec<String> = nodes.into_iter().flatten().map(line).collect();
            Ok(if lines.is_empty() {
                "no node stays".to_owned()
            } else {
                lines.join("\n")
            })
        }
    }
}

fn filter_text(response: &Value) -> Result<String, CommandError> {
    let error = response["Error"].as_str().unwrap_or_default();
    if !error.is_empty() {
        return Err(CommandError::Message(format!("error: {}", visible_text(error))));
    }
    let names = response["NodeNames"].as_array().into_iter().flatten().map(name);
    let items = response
        .pointer("/Nodes/items")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let fitting: Vec<String> = names
        .chain(items.filter_map(|item| Some(name(item.pointer("/metadata/name")?))))
        .collect();
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (field, note) in [
        ("FailedNodes", ""),
        ("FailedAndUnresolvableNodes", "; evictions cannot help"),
    ] {
        for reason in response[field].as_object().into_iter().flat_map(|nodes| nodes.values()) {
            *reasons.entry((reason.as_str().unwrap_or_default(), note)).or_default() += 1;
        }
    }
    let mut lines = vec![format!("fits on {}: {}", fitting.len(), fitting.join(", "))];
    lines.extend(
        reasons
            .iter()
            .map(|((reason, note), count)| format!("{count} refuse: {}{note}", visible_text(reason))),
    );
    let text = lines.join("\n");
    if fitting.is_empty() {
        Err(CommandError::Message(text))
    } else {
        Ok(text)
    }
}

fn name(value: &Value) -> String {
    visible_text(value.as_str().unwrap_or_default()).into_owned()
}
