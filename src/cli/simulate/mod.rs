//! `pumice simulate`: a workload placed under several policies, each on the same cluster from its beginning, so that a
//! policy is chosen by what would come of it.

mod account;
mod report;
mod run;
mod workload;

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, Format, output, state_load};
use crate::engine::policy::{CompileOptions, compile};
use crate::import::Counting;
use report::Report;
use run::{Candidate, Rules};

/// Policies that are compared when none is named: the examples with these names, and what the server starts with.
const KNOWN: [(&str, &str); 6] = [
    ("spread", include_str!("../../../examples/spread.yaml")),
    ("pack", include_str!("../../../examples/pack.yaml")),
    (
        "ai-best-practice",
        include_str!("../../../examples/ai-best-practice.yaml"),
    ),
    ("proportional", include_str!("../../../examples/proportional.yaml")),
    (
        "scarce-resource-avoidance",
        include_str!("../../../examples/scarce-resource-avoidance.yaml"),
    ),
    ("built-in", crate::server::BUILT_IN_POLICY),
];
/// How many of them, when none is named; what the server starts with says the same as one of them.
const COMPARED: usize = 5;

/// Arguments of `pumice simulate`.
#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    /// Files with the cluster and the tasks: `kubectl get … -o json|yaml`, or openb's CSV; `-`: standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// A policy to judge: a file, or one of spread, pack, ai-best-practice, proportional, scarce-resource-avoidance,
    /// built-in; may be repeated. Without it: all of these but the last
    #[arg(long, value_name = "FILE|NAME")]
    policy: Vec<String>,
    /// Profile of the policies, where they are a `KubeSchedulerConfiguration` with several
    #[arg(long, value_name = "NAME", default_value = "")]
    policy_profile: String,
    /// Let tasks leave when they have run as long as the files tell; what waits is tried again then
    #[arg(long)]
    ends: bool,
    /// Divide the times between arrivals by this; how long tasks run stays
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    speed: f64,
    /// Seconds of the simulated time between two attempts at what waits
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = factor)]
    retry: f64,
    /// How the amounts of pods are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = state_load::counting())]
    derivation: Counting,
    /// Also draw it, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// How the outcome is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        Ok(_) | Err(_) => Err("write a number above 0".to_owned()),
    }
}

/// Runs it.
pub(super) async fn run(args: SimulateArgs) -> Result<(), Failure> {
    let candidates = candidates(&args)?;
    let workload = workload::read(&args.files, args.derivation, args.speed)?;
    if workload.standing.nodes.is_empty() || workload.arrivals.is_empty() {
        return Err(Failure::said(
            "error: the files hold no node, or no task that waits: name both the cluster and the workload",
        ));
    }
    if args.ends && workload.arrivals.iter().all(|arrival| arrival.runs.is_none()) {
        return Err(Failure::Usage(
            "error: --ends: the files do not tell how long tasks run".to_owned(),
        ));
    }
    if workload.names_cards {
        output::note(
            "note: some tasks name the cards that would do; only a policy with capacity-card keeps them to these",
        );
    }
    let rules = Rules {
        ends: args.ends,
        retry: args.retry,
    };
    let whole = account::Account::new(&workload.standing, account::Usual::default()).total;
    let mut report = Report {
        nodes: workload.standing.nodes.len(),
        gpus: account::whole(whole.gpu),
        cores: account::whole(whole.cpu),
        ends: args.ends,
        policies: Vec::new(),
    };
    let steps = workload.arrivals.len().saturating_mul(candidates.len());
    let progress = output::progress(u64::try_from(steps).unwrap_or(u64::MAX), "placing");
    for candidate in &candidates {
        report
            .policies
            .push(run::run(&workload, candidate, rules, &progress).await?);
    }
    progress.finish_and_clear();
    match args.output {
        Format::Table => report.show(),
        Format::Json => report.json(),
    }?;
    // Last: a file that cannot be written takes nothing else along.
    match &args.svg {
        Some(file) => std::fs::write(file, report.chart()).map_err(|error| Failure::file(file, &error)),
        None => Ok(()),
    }
}

/// The policies to judge; what is odd in a document is said, with its name.
fn candidates(args: &SimulateArgs) -> Result<Vec<Candidate>, Failure> {
    let known = || KNOWN.iter().take(COMPARED).map(|(name, _)| (*name).to_owned());
    let given: Vec<String> = if args.policy.is_empty() {
        known().collect()
    } else {
        args.policy.clone()
    };
    let mut candidates: Vec<Candidate> = Vec::new();
    for given in &given {
        let (mut name, document) = read(given)?;
        let taken = |name: &str| candidates.iter().any(|other| other.name == name);
        if taken(&name) {
            name.clone_from(given);
        }
        let plain = name.clone();
        let mut number = 2_u32;
        while taken(&name) {
            name = format!("{plain} ({number})");
            number = number.saturating_add(1);
        }
        let profile = check(given, &document, &args.policy_profile)?;
        candidates.push(Candidate {
            name,
            document,
            profile,
        });
    }
    Ok(candidates)
}

/// A policy as it was given, a name or a file: what it is called, and its document.
fn read(given: &str) -> Result<(String, String), Failure> {
    if let Some((name, document)) = KNOWN.iter().find(|(name, _)| *name == given) {
        return Ok(((*name).to_owned(), (*document).to_owned()));
    }
    let path = Path::new(given);
    if !path.exists() {
        let names: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
        let message = format!("error: `{given}` is no file, and none of {}", names.join(", "));
        return Err(Failure::Usage(message));
    }
    let name = path.file_stem().map_or(given.into(), |stem| stem.to_string_lossy());
    Ok((name.into_owned(), state_load::text(path)?))
}

/// Says what is odd in a document; which profile of it is meant: the one named, if it has several.
fn check(given: &str, document: &str, named: &str) -> Result<String, Failure> {
    let (policy, report) = match compile(document, &CompileOptions::default()) {
        Ok(compiled) => (Some(compiled.policy), compiled.report),
        Err(report) => (None, report),
    };
    for finding in &report.findings {
        output::note(&format!("{given}:{finding}"));
    }
    let Some(policy) = policy else {
        let faults = output::count(report.faults().count(), "fault");
        return Err(Failure::said(format!("error: {given}: {faults}: no policy")));
    };
    if policy.profile("").is_ok() {
        return Ok(String::new());
    }
    match policy.profile(named) {
        Ok(_) => Ok(named.to_owned()),
        Err(unknown) => Err(Failure::said(format!("error: {given}: {unknown}"))),
    }
}
