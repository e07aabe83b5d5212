//! `pumice bench`: a load on a running server, and what its callers feel of it. It changes no state.

mod load;
mod pace;
mod questions;
mod report;
mod tally;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::connect::Connection;
use super::policy_args::PolicyArgs;
use super::scrape::MetricsArgs;
use super::{Client, Failure, output, state_load, task};
use crate::import::Counting;
use crate::server::pb;
use load::Load;
use questions::{Kind, Questions};
use report::Report;

/// Callers of an open loop, unless said otherwise.
const CALLERS: usize = 64;

/// Arguments of `pumice bench`.
#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    client: Client,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// What is asked
    #[arg(long, value_enum, default_value_t)]
    question: Kind,
    /// Calls that begin per second, whether or not earlier ones are answered; without it callers wait for their answers
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// Callers, and so calls under way at once [default: 1; with --rate 64]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// Connections that they share
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// How long to measure, such as 500ms, 10s, 2m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = some_time)]
    duration: Duration,
    /// Calls to measure, instead of a time
    #[arg(long, value_name = "CALLS", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Time of load before the measuring begins
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span)]
    warm_up: Duration,
    /// Time that a call gets before it is given up
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span)]
    timeout: Duration,
    /// Tasks of a question
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    tasks: u16,
    /// Different tasks, made from the sizes of the server's nodes
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    classes: u16,
    /// Ask about these pods instead, YAML or JSON
    #[arg(short, long, value_name = "FILE", conflicts_with = "classes")]
    file: Option<PathBuf>,
    /// How the amounts of pods in a file are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = state_load::counting())]
    derivation: Counting,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// Runs it.
pub(super) async fn run(args: BenchArgs) -> Result<(), Failure> {
    let mut connections = Vec::new();
    for _ in 0..args.connections {
        connections.push(Connection::open(&args.client.server).await?);
    }
    let Some(first) = connections.first_mut() else {
        return Err(Failure::Usage("error: no connection to ask over".to_owned()));
    };
    let info = first
        .state
        .get_server_info(pb::GetServerInfoRequest {})
        .await?
        .into_inner();
    let tasks = match &args.file {
        Some(file) => task::pods(file, args.derivation)?,
        None if args.question.has_tasks() => questions::tasks(first, args.classes.into()).await?,
        None => Vec::new(),
    };
    let nodes = questions::nodes(first).await?;
    let questions = Questions::new(args.question, &args.policy.ground(), &tasks, args.tasks.into());
    let load = args.load();
    let measured = load
        .run(questions, &connections, &args.metrics.url(&args.client.server))
        .await?;
    let report = Report {
        head: vec![
            ("server", json!(args.client.server)),
            ("version", json!(info.version)),
            ("nodes", json!(nodes)),
            ("question", json!(args.question.name())),
            ("tasks_per_question", json!(args.tasks)),
            ("connections", json!(args.connections)),
        ],
        sentence: args.sentence(&load, &info.version, nodes),
        load: &load,
        measured: &measured,
    };
    report.show(args.client.output)
}

impl BenchArgs {
    fn load(&self) -> Load {
        let usual = if self.rate.is_some() { CALLERS } else { 1 };
        Load {
            rate: self.rate,
            callers: self.concurrency.map_or(usual, usize::from),
            warm_up: self.warm_up,
            duration: self.duration,
            count: self.count,
            timeout: self.timeout,
        }
    }

    fn sentence(&self, load: &Load, version: &str, nodes: u32) -> String {
        let how = match load.rate {
            Some(rate) => format!("{} calls per second", output::number(rate)),
            None => "as fast as answers come".to_owned(),
        };
        format!(
            "{} questions ({}) to {} (pumice {version}): {how}, {} on {}",
            self.question.name(),
            questions::about(self.question, self.tasks.into(), nodes),
            self.client.server,
            output::count(load.callers, "caller"),
            output::count(self.connections.into(), "connection"),
        )
    }
}

/// Calls per second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.001..=1e6).contains(&rate) => Ok(rate),
        Ok(_) => Err("from 0.001 to 1000000 calls per second".to_owned()),
        Err(_) => Err("no number".to_owned()),
    }
}

/// A time with its unit, and not none.
fn some_time(text: &str) -> Result<Duration, String> {
    match span(text) {
        Ok(Duration::ZERO) => Err("no time at all".to_owned()),
        other => other,
    }
}

/// A time with its unit.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit).unwrap_or((text, ""));
    let unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("write it with a unit: ms, s, m or h".to_owned()),
    };
    let seconds = number.parse::<f64>().map_err(|_| "no number".to_owned())? * unit;
    if seconds > 86_400.0 {
        return Err("a day at most".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(span("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(span("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(span("2m"), Ok(Duration::from_mins(2)));
        for wrong in ["10", "s", "-1s", "2d", "25h", "NaNs"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_positive_and_finite() {
        assert_eq!(rate("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "inf", "NaN", "many"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
