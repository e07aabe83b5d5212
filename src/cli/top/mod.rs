//! `pumice top`: what a server does, live in the terminal, or once as plain text.

mod figures;
mod screen;
mod view;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::bench::span;
use super::connect::Connection;
use super::scrape::{MetricsArgs, Page};
use super::{Client, Failure, output};
use crate::server::pb;
use figures::Board;
use view::Ui;

/// Width of a frame that is written as text, in columns.
const WIDTH: u16 = 100;

/// Arguments of `pumice top`.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    client: Client,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Time between two looks, such as 2s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = span)]
    interval: Duration,
    /// Order of the queues
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Name of the policy whose accounts of queues are shown
    #[arg(long, value_name = "NAME", default_value = "default")]
    policy: String,
    /// Write one frame as plain text, figures since the start of the server; so it is where no terminal is, too
    #[arg(long)]
    once: bool,
}

/// Order of the queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Largest share first
    #[default]
    Share,
    /// By name
    Name,
}

/// One look at a server.
#[derive(Debug, Clone)]
struct Look {
    info: pb::GetServerInfoResponse,
    queues: Vec<pb::QueueStatus>,
    page: Result<Page, String>,
}

/// Where to look.
#[derive(Debug, Clone)]
struct Lookout {
    connection: Connection,
    metrics: String,
    policy: String,
}

impl Lookout {
    async fn look(&mut self) -> Result<Look, Failure> {
        let info = self.connection.state.get_server_info(pb::GetServerInfoRequest {});
        let info = info.await?.into_inner();
        let world = pb::World {
            policy: self.policy.clone(),
            ..pb::World::default()
        };
        let mut request = pb::ListQueuesRequest {
            ground: Some(pb::Ground {
                ground: Some(pb::ground::Ground::World(world)),
                ..pb::Ground::default()
            }),
            ..pb::ListQueuesRequest::default()
        };
        let mut queues = Vec::new();
        loop {
            let reply = self.connection.state.list_queues(request.clone()).await?.into_inner();
            queues.extend(reply.queues);
            if reply.next_page_token.is_empty() {
                break;
            }
            request.page = Some(pb::Page {
                token: reply.next_page_token,
                ..pb::Page::default()
            });
        }
        let page = Page::fetch(&self.metrics).await;
        Ok(Look { info, queues, page })
    }
}

/// Runs it.
pub(super) async fn run(args: TopArgs) -> Result<(), Failure> {
    let mut lookout = Lookout {
        connection: Connection::open(&args.client.server).await?,
        metrics: args.metrics.url(&args.client.server),
        policy: args.policy.clone(),
    };
    let ui = Ui {
        server: args.client.server.clone(),
        sort: args.sort,
        colours: output::colours(),
        ..Ui::default()
    };
    let first = lookout.look().await?;
    if args.once || !std::io::stdout().is_terminal() {
        let board = Board::new(&first, None);
        if let Err(why) = &first.page {
            output::note(&format!("warning: no metrics: {why}"));
        }
        return output::write(&view::text(&board, &ui, WIDTH));
    }
    screen::run(lookout, first, ui, args.interval).await
}
