//! `pumice top`: the load, state and queues of a server, live in the terminal, or once as plain text.

mod dashboard;
mod screen;
mod view;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, ValueEnum};

use dashboard::DashboardContent;
use pumice_console::args::parse_duration;
use pumice_console::listings::RecordListing as _;
use pumice_console::scrape::{MetricsAddress, MetricsArgs, MetricsPage};
use pumice_console::{ClientArgs, CommandError, listings, output, policy_args};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;
use pumice_protocol::visible_text;
use view::ViewOptions;

/// Least width of a frame that is written as text, in columns.
const TEXT_WIDTH: u16 = 100;

/// Arguments of `pumice top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Polling interval, such as 2s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    interval: Duration,
    /// Order of the queues
    #[arg(long, value_enum, default_value_t)]
    sort: QueueSort,
    /// Policy whose accounts of queues are shown
    #[arg(long, value_name = "NAME", default_value = "default")]
    policy: String,
    /// Print one frame as plain text, with rates since the start of the server; default if standard output is not a
    /// terminal
    #[arg(long)]
    once: bool,
}

/// Order of the queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum QueueSort {
    /// Largest share first
    #[default]
    Share,
    /// By name
    Name,
}

/// One poll of a server.
#[derive(Debug, Clone)]
struct ServerReading {
    info: pb::GetServerInfoResponse,
    queues: Vec<pb::QueueStatus>,
    metrics: Result<MetricsPage, String>,
}

/// Poller of a server: its connection and its metrics page.
#[derive(Debug, Clone)]
struct ServerPoller {
    connection: ClientConnection,
    metrics: MetricsAddress,
    policy: String,
}

impl ServerPoller {
    async fn poll(&mut self) -> Result<ServerReading, CommandError> {
        let info = listings::server_info(&mut self.connection).await?;
        let snapshot = pb::LatestRef {
            policy: self.policy.clone(),
            ..pb::LatestRef::default()
        };
        let request = pb::ListQueuesRequest::new(Some(policy_args::against(snapshot)), Vec::new());
        let queues = listings::rows(&mut self.connection, request).await?;
        let page = MetricsPage::fetch(&self.metrics).await;
        Ok(ServerReading {
            info,
            queues,
            metrics: page,
        })
    }
}

/// Runs the command.
pub async fn run(args: TopArgs) -> Result<(), CommandError> {
    let mut lookout = ServerPoller {
        connection: args.client.connect().await?,
        metrics: args.metrics.page(&args.client)?,
        policy: args.policy.clone(),
    };
    let ui = ViewOptions {
        server: args.client.server.clone(),
        sort: args.sort,
        color: output::stdout_is_colored(),
        ..ViewOptions::default()
    };
    let first = lookout.poll().await?;
    if args.once || !std::io::stdout().is_terminal() {
        let content = DashboardContent::new(&first, None);
        if let Err(why) = &first.metrics {
            output::note(&format!("warning: no metrics: {why}"));
        }
        return output::write(&visible_text(&view::text(&content, &ui, TEXT_WIDTH)));
    }
    screen::run(lookout, first, ui, args.interval).await
}
