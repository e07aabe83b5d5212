//! `pumice simulate`: places a workload under several policies, each on the same initial cluster. The results help to
//! choose a policy: for example, the share of GPUs that each policy allocates.

mod cluster;
mod cycle_tasks;
mod cycles;
mod queue_amounts;
mod queues;
mod report;
mod rules;
mod run;
mod standstill;
mod usage;
mod workload;

use std::path::{Path, PathBuf};

use clap::Args;

use cycles::CycleRules;
use pumice_console::not_evaluated::{UnevaluatedRow, UnevaluatedSet};
use pumice_console::{CommandError, LocalServices, OutputFormat, args, files, output};
use pumice_engine::policy::{CompileOptions, Release, compile};
use pumice_kubernetes::import::AmountRules;
use report::SimulationReport;
use rules::{CandidatePolicy, SimulationRules};

/// Name of the policy that a server starts with. It equals one of the examples, so it is simulated only when it is
/// named.
const BUILT_IN: &str = "built-in";
/// Examples of policies that can be named.
const KNOWN_POLICIES: [(&str, &str); 5] = [
    ("spread", include_str!("../../examples/spread.yaml")),
    ("pack", include_str!("../../examples/pack.yaml")),
    ("ai-best-practice", include_str!("../../examples/ai-best-practice.yaml")),
    ("proportional", include_str!("../../examples/proportional.yaml")),
    (
        "scarce-resource-avoidance",
        include_str!("../../examples/scarce-resource-avoidance.yaml"),
    ),
];

/// Arguments of `pumice simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Files with the cluster and the tasks: output of `kubectl get … -o json|yaml`, or openb CSV; `-`: standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Policy to simulate: a file, or one of spread, pack, ai-best-practice, proportional, scarce-resource-avoidance,
    /// built-in; repeatable [default: all names except built-in]
    #[arg(long, value_name = "FILE|NAME")]
    policy: Vec<String>,
    /// Profile of policies that are a `KubeSchedulerConfiguration` with several profiles
    #[arg(long, value_name = "NAME", default_value = "")]
    policy_profile: String,
    /// End tasks after the run time in the files, and retry waiting tasks then
    #[arg(long)]
    departures: bool,
    /// Divide the times between arrivals by this factor; for example, 2 doubles the arrival rate. Run times do not
    /// change
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_factor)]
    arrival_speedup: f64,
    /// Simulated seconds between two attempts to place waiting tasks, such as 60
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = parse_factor)]
    retry: f64,
    /// Run whole scheduling cycles with queues and the actions of each policy (enqueue, allocate, backfill, preempt,
    /// reclaim) instead of placing job by job. SECONDS: simulated time from one cycle to the next
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = parse_period
    )]
    cycles: Option<f64>,
    /// Simulated seconds from the eviction of a task to its end; its controller then creates a new task
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = parse_seconds, requires = "cycles")]
    grace: f64,
    /// Maximum simulated seconds of cycles after the last arrival; cycles stop earlier if nothing changes
    #[arg(long, value_name = "SECONDS", default_value_t = 3600.0, value_parser = parse_seconds, requires = "cycles")]
    after: f64,
    /// Also write the result of each task as JSON lines: status, node, times, evictions
    #[arg(long, value_name = "FILE", requires = "cycles")]
    tasks: Option<PathBuf>,
    /// Rules for the requests of pods
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = args::amount_rules_parser())]
    derivation: AmountRules,
    /// Fail on warnings about the files
    #[arg(long)]
    strict: bool,
    /// Also write the report as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

impl SimulateArgs {
    fn cycle_rules(&self) -> Option<CycleRules> {
        let period = self.cycles?;
        let (grace, after) = (self.grace, self.after);
        Some(CycleRules { period, grace, after })
    }
}

fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        Ok(_) | Err(_) => Err("write a number above 0".to_owned()),
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        Ok(_) | Err(_) => Err("write a number of seconds, 0 or more".to_owned()),
    }
}

fn parse_period(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.001 => Ok(seconds),
        Ok(_) | Err(_) => Err("write a number of seconds, 0.001 or more".to_owned()),
    }
}

/// Runs the simulation and prints the report.
pub async fn run(args: SimulateArgs, services: &dyn LocalServices) -> Result<(), CommandError> {
    let candidates = candidate_policies(&args, services)?;
    let workloads = workload::read_workloads(&args, services, &candidates)?;
    let Some(workload) = workloads.first() else {
        return Err(CommandError::message("error: no policy to simulate"));
    };
    check_workload(&args, workload)?;
    if workload.has_card_names {
        output::note(
            "note: some tasks name the cards that would do; only a policy with quotas of cards keeps them to these",
        );
    }
    let rules = SimulationRules {
        departures: args.departures,
        retry_seconds: args.retry,
    };
    let whole = usage::ClusterUsage::new(&workload.initial_cluster, usage::TypicalGpuTask::default()).total;
    let mut report = SimulationReport {
        nodes: workload.initial_cluster.nodes.len(),
        gpus: usage::from_milli(whole.gpu),
        cores: usage::from_milli(whole.cpu),
        departures: args.departures,
        cycles: args.cycles,
        policies: Vec::new(),
        not_evaluated: Vec::new(),
    };
    let mut fields = UnevaluatedSet::default();
    let steps = workload.arrivals.len().saturating_mul(candidates.len());
    let progress = output::progress(u64::try_from(steps).unwrap_or(u64::MAX), "placing");
    for (candidate, workload) in candidates.iter().zip(&workloads) {
        let mut outcome = match args.cycle_rules() {
            None => run::run(services, workload, candidate, rules, &progress).await?,
            Some(cycle_rules) => cycles::run(services, workload, candidate, rules, cycle_rules, &progress).await?,
        };
        let is_plugin = |row: &UnevaluatedRow| row.subject == "policy";
        let (plugins, of_records) = std::mem::take(&mut outcome.not_evaluated)
            .into_iter()
            .partition(is_plugin);
        outcome.not_evaluated = plugins;
        for row in &of_records {
            fields.add_widest(row);
        }
        report.policies.push(outcome);
    }
    report.not_evaluated = fields.rows();
    progress.finish_and_clear();
    match args.output {
        OutputFormat::Table => report.show(),
        OutputFormat::Json => report.json(),
    }?;
    write_files(&args, &report)
}

/// Checks that there is something to simulate.
fn check_workload(args: &SimulateArgs, workload: &workload::Workload) -> Result<(), CommandError> {
    let cluster = &workload.initial_cluster;
    if args.cycles.is_some() {
        // A job may be enqueued before it has tasks.
        if cluster.jobs.is_empty() && workload.arrivals.is_empty() {
            return Err(CommandError::message(
                "error: the files hold no job, and no task that waits: name both the cluster and the workload",
            ));
        }
        if cluster.nodes.is_empty() {
            output::note("note: the files hold no node: nothing can be placed");
        }
    } else if cluster.nodes.is_empty() || workload.arrivals.is_empty() {
        return Err(CommandError::message(
            "error: the files hold no node, or no task that waits: name both the cluster and the workload",
        ));
    }
    if args.departures && workload.arrivals.iter().all(|arrival| arrival.run_seconds.is_none()) {
        return Err(CommandError::Usage(
            "error: --departures: the files do not tell how long tasks run".to_owned(),
        ));
    }
    Ok(())
}

/// Writes the requested files. This is the last step: a failed write does not affect other output.
fn write_files(args: &SimulateArgs, report: &SimulationReport) -> Result<(), CommandError> {
    let write = |file: &PathBuf, text: String| {
        std::fs::write(file, text).map_err(|error| CommandError::file_error(file, &error))
    };
    if let Some(file) = &args.tasks {
        write(file, report.task_lines()?)?;
    }
    args.svg.as_ref().map_or(Ok(()), |file| write(file, report.chart()))
}

/// Policies to judge. Diagnostics of their documents go to standard error.
fn candidate_policies(args: &SimulateArgs, services: &dyn LocalServices) -> Result<Vec<CandidatePolicy>, CommandError> {
    let given: Vec<String> = if args.policy.is_empty() {
        KNOWN_POLICIES.iter().map(|(name, _)| (*name).to_owned()).collect()
    } else {
        args.policy.clone()
    };
    let mut candidates: Vec<CandidatePolicy> = Vec::new();
    for given in &given {
        let (mut name, document) = read_policy(given, services)?;
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
        let (profile, release) = check_document(given, &document, &args.policy_profile)?;
        candidates.push(CandidatePolicy {
            name,
            document,
            profile,
            release,
        });
    }
    Ok(candidates)
}

/// Name and document of a policy that was given by name or as a file.
fn read_policy(given: &str, services: &dyn LocalServices) -> Result<(String, String), CommandError> {
    if let Some((name, document)) = KNOWN_POLICIES.iter().find(|(name, _)| *name == given) {
        return Ok(((*name).to_owned(), (*document).to_owned()));
    }
    if given == BUILT_IN {
        return Ok((given.to_owned(), services.built_in_policy().to_owned()));
    }
    let path = Path::new(given);
    if !path.exists() {
        let names = KNOWN_POLICIES.iter().map(|(name, _)| *name).chain([BUILT_IN]);
        let names: Vec<&str> = names.collect();
        let message = format!("error: `{given}` is no file, and none of {}", names.join(", "));
        return Err(CommandError::Usage(message));
    }
    let name = path.file_stem().map_or(given.into(), |stem| stem.to_string_lossy());
    Ok((name.into_owned(), files::read_text(path)?))
}

/// Prints the diagnostics of a document. Returns the profile to use, which is the one named if the document has several, and
/// the release that the policy follows.
fn check_document(given: &str, document: &str, named: &str) -> Result<(String, Release), CommandError> {
    let (policy, report) = match compile(document, &CompileOptions::default()) {
        Ok(compiled) => (Some(compiled.policy), compiled.report),
        Err(report) => (None, report),
    };
    for diagnostic in &report.diagnostics {
        output::note(&format!("{given}:{diagnostic}"));
    }
    let Some(policy) = policy else {
        let problems = output::count(report.errors().count(), "error");
        return Err(CommandError::message(format!("error: {given}: {problems}: no policy")));
    };
    let release = policy.compatibility().release();
    if policy.profile("").is_ok() {
        return Ok((String::new(), release));
    }
    match policy.profile(named) {
        Ok(_) => Ok((named.to_owned(), release)),
        Err(unknown) => Err(CommandError::message(format!("error: {given}: {unknown}"))),
    }
}
