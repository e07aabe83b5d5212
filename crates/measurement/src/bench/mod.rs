//! `pumice bench`: a load on a running server, and the latencies of its callers. A load changes no state; a fleet of
//! schedulers, `pumice bench fleet`, fills a cluster of its own.

mod fleet;
mod load;
mod queries;
mod report;
mod schedule;
mod stats;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use load::LoadSpec;
use pumice_console::args::parse_duration;
use pumice_console::policy_args::PolicyArgs;
use pumice_console::scrape::MetricsArgs;
use pumice_console::{ClientArgs, CommandError, LocalServices, args, listings, output, task};
use pumice_kubernetes::import::AmountRules;
use queries::{BenchQueries, BenchQuery};
use report::BenchReport;

/// Callers of an open loop, unless said otherwise.
const OPEN_LOOP_CALLERS: usize = 64;

/// Loads of another kind.
#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Fill a cluster with several concurrent schedulers: each call places and commits a job. Checks that no node is
    /// overcommitted
    Fleet(fleet::FleetArgs),
}

/// Arguments of `pumice bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Kind of query
    #[arg(long, value_enum, default_value_t)]
    query: BenchQuery,
    /// Calls to start per second, independent of earlier calls, such as 500; without it each caller waits for its
    /// response before the next call
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Number of callers, and maximum number of concurrent calls [default: 1; with --rate 64]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// Number of connections, shared by the callers
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Length of the measurement, such as 500ms, 10s, 2m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// Number of calls to measure, instead of a duration
    #[arg(long, value_name = "CALLS", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Duration of the load before the measurement starts
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    warm_up: Duration,
    /// Deadline of each call, such as 1s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
    /// Number of tasks in each query
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    tasks: u16,
    /// Number of different tasks, derived from the sizes of the server's nodes
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    distinct_tasks: u16,
    /// File with pods to use as tasks (YAML or JSON)
    #[arg(short, long, value_name = "FILE", conflicts_with = "distinct_tasks")]
    file: Option<PathBuf>,
    /// Rules for the requests of pods in the file
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = args::amount_rules_parser())]
    derivation: AmountRules,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// Runs the load and prints the report.
pub async fn run(mut args: BenchArgs, services: &dyn LocalServices) -> Result<(), CommandError> {
    if let Some(BenchCommand::Fleet(fleet)) = args.command.take() {
        return fleet::run(fleet, services).await;
    }
    let mut connections = Vec::new();
    for _ in 0..args.connections {
        connections.push(args.client.connect().await?);
    }
    let Some(first) = connections.first_mut() else {
        return Err(CommandError::Usage("error: no connection to ask over".to_owned()));
    };
    let info = listings::server_info(first).await?;
    let tasks = match &args.file {
        Some(file) => task::pods(file, args.derivation)?,
        None if args.query.has_tasks() => queries::sample_tasks(first, args.distinct_tasks.into()).await?,
        None => Vec::new(),
    };
    let nodes = queries::count_nodes(first).await?;
    let queries = BenchQueries::new(args.query, &args.policy.evaluation_ref(), &tasks, args.tasks.into());
    let load = args.load_spec();
    let measured = load
        .run(queries, &connections, &args.metrics.page(&args.client)?)
        .await?;
    let report = BenchReport {
        head: vec![
            ("server", json!(args.client.server)),
            ("version", json!(info.version)),
            ("nodes", json!(nodes)),
            ("query", json!(args::value_name(&args.query))),
            ("tasksPerQuery", json!(args.tasks)),
            ("connections", json!(args.connections)),
        ],
        summary: args.summary(&load, &info.version, nodes),
        load: &load,
        result: &measured,
    };
    report.show(args.client.output)
}

impl BenchArgs {
    fn load_spec(&self) -> LoadSpec {
        let usual = if self.rate.is_some() { OPEN_LOOP_CALLERS } else { 1 };
        LoadSpec {
            rate: self.rate,
            callers: self.concurrency.map_or(usual, usize::from),
            warm_up: self.warm_up,
            duration: self.duration,
            count: self.count,
            timeout: self.timeout,
        }
    }

    fn summary(&self, load: &LoadSpec, version: &str, nodes: u32) -> String {
        let how = match load.rate {
            Some(rate) => format!("{} calls per second", output::number(rate)),
            None => "as fast as results come".to_owned(),
        };
        format!(
            "{} queries ({}) to {} (pumice {version}): {how}, {} on {}",
            args::value_name(&self.query),
            queries::describe_size(self.query, self.tasks.into(), nodes),
            self.client.server,
            output::count(load.callers, "caller"),
            output::count(self.connections.into(), "connection"),
        )
    }
}

/// Calls per second.
fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.001..=1e6).contains(&rate) => Ok(rate),
        Ok(_) => Err("from 0.001 to 1000000 calls per second".to_owned()),
        Err(_) => Err("no number".to_owned()),
    }
}

/// A time with its unit, and not none.
fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("no time at all".to_owned()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_positive_and_finite() {
        assert_eq!(parse_rate("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "inf", "NaN", "many"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }
}
