//! `pumice bench fleet`: several schedulers fill one cluster at once. Each call places and commits a job. A check of
//! all responses finds overcommitted nodes and tasks with two placements.

mod cluster;
mod report;
mod scheduler;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::placement_history::{HistoryViolation, PlacementHistory};
use cluster::{FleetCluster, FleetSize};
use pumice_console::args::{CredentialArgs, parse_duration};
use pumice_console::full_sync::send_full_sync;
use pumice_console::{CommandError, LocalServices, OutputFormat, ServedServer, files, listings, output};
use pumice_protocol::v1 as pb;
use pumice_protocol::{ClientConnection, ConnectOptions};
use report::FleetReport;
use scheduler::{FleetScheduler, SchedulerLog};

/// Name of the source of the cluster.
const SOURCE: &str = "pumice-bench-fleet";
/// Name of the policy that a policy file is put in force under.
const POLICY: &str = "default";

/// Arguments of `pumice bench fleet`.
#[derive(Debug, Args)]
pub(super) struct FleetArgs {
    /// Address of a running server without nodes; the command loads a cluster into it and does not remove the cluster
    /// [default: a temporary server in this process]
    #[arg(long, value_name = "URL")]
    address: Option<String>,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Empty directory for the durable state of the temporary server; without it, the state is in memory
    #[arg(long, value_name = "DIR", conflicts_with = "address")]
    data_dir: Option<PathBuf>,
    /// Policy document to activate first [default: the active policy "default"]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Number of schedulers; each has its own connection
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    schedulers: u16,
    /// Concurrent calls of each scheduler
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    in_flight: u16,
    /// Number of nodes
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    nodes: u32,
    /// Number of tasks of all jobs
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    tasks: u32,
    /// Number of tasks of each job; one call places one job
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    gang: u32,
    /// Percentage of the nodes that all tasks fill
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=99))]
    fill: u32,
    /// Maximum number of jobs to place [default: all]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Deadline of each call, such as 10s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Server that a fleet is measured against.
struct FleetServer {
    options: ConnectOptions,
    /// Server of this process; it ends when this is dropped.
    _own: Option<ServedServer>,
}

/// Result of a run.
#[derive(Debug)]
struct FleetRun {
    logs: Vec<SchedulerLog>,
    elapsed: Duration,
    begun: Instant,
    violations: Vec<HistoryViolation>,
}

/// Runs the fleet and prints the report. Fails if the check finds a violation, or a call failed.
pub(super) async fn run(args: FleetArgs, services: &dyn LocalServices) -> Result<(), CommandError> {
    let server = args.server(services).await?;
    let mut connection = ClientConnection::open_with(&server.options).await?;
    args.put_policy(&mut connection).await?;
    let cluster = args.size().cluster();
    load(&mut connection, &cluster).await?;
    let mut jobs = Arc::clone(&cluster.jobs);
    if let Some(most) = args.jobs {
        Arc::make_mut(&mut jobs).truncate(most as usize);
    }
    let begun = Instant::now();
    let mut schedulers = JoinSet::new();
    for number in 0..args.schedulers {
        let own = FleetScheduler {
            number: number.into(),
            count: args.schedulers.into(),
            jobs: Arc::clone(&jobs),
            begun: Arc::default(),
            policy: pb::EvaluationRef::default(),
            run: format!("fleet-{}", std::process::id()),
            timeout: args.timeout,
            connection: ClientConnection::open_with(&server.options).await?,
        };
        for _ in 0..args.in_flight {
            schedulers.spawn(own.clone().run());
        }
    }
    let mut logs = Vec::new();
    while let Some(ended) = schedulers.join_next().await {
        let ended = ended.map_err(|error| CommandError::message(format!("error: a scheduler ended badly: {error}")))?;
        logs.push(ended?);
    }
    let elapsed = begun.elapsed();
    let violations = check(&mut connection, &cluster, &mut logs).await?;
    let run = FleetRun {
        logs,
        elapsed,
        begun,
        violations,
    };
    FleetReport { args: &args, run: &run }.show()
}

impl FleetArgs {
    fn size(&self) -> FleetSize {
        FleetSize {
            nodes: self.nodes,
            tasks: self.tasks,
            gang: self.gang,
            fill: self.fill,
        }
    }

    async fn server(&self, services: &dyn LocalServices) -> Result<FleetServer, CommandError> {
        if let Some(address) = &self.address {
            return Ok(FleetServer {
                options: self.credentials.read(address)?,
                _own: None,
            });
        }
        let own = services.serve(self.data_dir.clone()).await?;
        Ok(FleetServer {
            options: ConnectOptions::new(&own.address),
            _own: Some(own),
        })
    }

    async fn put_policy(&self, connection: &mut ClientConnection) -> Result<(), CommandError> {
        let Some(file) = &self.policy else { return Ok(()) };
        let request = pb::ReloadPolicyRequest {
            name: POLICY.to_owned(),
            document: files::read_text(file)?,
            ..pb::ReloadPolicyRequest::default()
        };
        connection.policies.reload_policy(request).await?;
        Ok(())
    }
}

/// Loads the cluster into a server without nodes.
async fn load(connection: &mut ClientConnection, cluster: &FleetCluster) -> Result<(), CommandError> {
    let table = connection
        .state
        .get_node_table(pb::GetNodeTableRequest::default())
        .await?
        .into_inner();
    if !table.names.is_empty() {
        let message = "error: the server has nodes already: a fleet fills one that has none";
        return Err(CommandError::message(message));
    }
    let loaded = send_full_sync(connection, SOURCE, cluster.records()).await?;
    match loaded.rejected.first() {
        None => Ok(()),
        Some(first) => Err(CommandError::message(format!(
            "error: the server refused {} records, the first: {first}",
            loaded.rejected.len()
        ))),
    }
}

/// Checks the responses to the schedulers, and compares the final state with the server's state.
async fn check(
    connection: &mut ClientConnection,
    cluster: &FleetCluster,
    logs: &mut [SchedulerLog],
) -> Result<Vec<HistoryViolation>, CommandError> {
    let tasks = cluster.jobs.iter().flat_map(|job| {
        let amounts = job.task_amounts();
        job.tasks.iter().map(move |task| (task.clone(), amounts.clone()))
    });
    let nodes = cluster.nodes.iter();
    let history = PlacementHistory {
        nodes: nodes.map(|node| (node.clone(), cluster.node_amounts.clone())).collect(),
        tasks: tasks.collect(),
        commits: logs
            .iter_mut()
            .flat_map(|log| std::mem::take(&mut log.commits))
            .collect(),
        releases: Vec::new(),
    };
    let shown = shown_nodes(connection).await?;
    let mut violations = history.violations();
    let pairs = shown.iter().map(|(task, node)| (task.as_str(), node.as_str()));
    violations.extend(history.differences(pairs));
    Ok(violations)
}

/// Node of each task, as the server lists them.
async fn shown_nodes(connection: &mut ClientConnection) -> Result<BTreeMap<String, String>, CommandError> {
    let tasks = listings::rows(connection, pb::ListTasksRequest::default()).await?;
    output::note(&format!(
        "compared with {} that the server lists",
        output::count(tasks.len(), "task")
    ));
    let tasks = tasks.into_iter().filter_map(|stored| stored.task);
    Ok(tasks.map(|task| (task.name, task.node)).collect())
}
