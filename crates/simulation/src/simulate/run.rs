//! One workload under one policy, by the services in this process, without a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indicatif::ProgressBar;
use prost::Message as _;
use tokio::time::Instant;

use super::cluster::{SimulatedCluster, micros};
use super::report::{PolicyOutcome, RejectionCount};
use super::rules::{CandidatePolicy, SimulationRules};
use super::usage::{count, requested_amounts};
use super::workload::{ArrivingJob, Workload};
use pumice_console::{CommandError, LocalServices, node_query, output, task};
use pumice_protocol::v1 as pb;

/// Approximate number of points of a chart line.
pub(super) const TIMELINE_POINTS: usize = 200;

/// Tasks that were not placed.
struct UnplacedTasks {
    tasks: Vec<pb::Task>,
    /// Reason against the first of them, in a few words.
    reason: String,
}

struct SimulationRun<'w> {
    cluster: SimulatedCluster,
    policy: &'w CandidatePolicy,
    rules: SimulationRules,
    workload: &'w Workload,
    /// Placed tasks with their nodes, by time of their end in microseconds, then by arrival.
    departures: BTreeMap<(u64, usize), Vec<(String, String)>>,
    /// Tasks that wait, by arrival.
    waiting: BTreeMap<usize, Vec<pb::Task>>,
    /// Number of placed tasks, by job.
    placed_by_job: BTreeMap<String, u64>,
    /// Problems and warnings that were printed already.
    reported: BTreeSet<String>,
    /// True if a task left since the waiting tasks were tried.
    capacity_freed: bool,
    last_retry: f64,
    place_durations: Vec<Duration>,
    /// Arrivals that were already tried. A retry does not add their tasks to the totals again.
    asked: BTreeSet<usize>,
    rejected: BTreeMap<String, u64>,
}

/// Runs the simulation to its end.
pub(super) async fn run(
    services: &dyn LocalServices,
    workload: &Workload,
    policy: &CandidatePolicy,
    rules: SimulationRules,
    progress: &ProgressBar,
) -> Result<PolicyOutcome, CommandError> {
    let cluster = SimulatedCluster::start(services, workload, workload.initial_cluster.clone(), policy).await?;
    let mut run = SimulationRun {
        cluster,
        policy,
        rules,
        workload,
        departures: BTreeMap::new(),
        waiting: BTreeMap::new(),
        placed_by_job: BTreeMap::new(),
        reported: BTreeSet::new(),
        capacity_freed: false,
        last_retry: 0.0,
        place_durations: Vec::new(),
        asked: BTreeSet::new(),
        rejected: BTreeMap::new(),
    };
    run.count_placed(&workload.initial_cluster.tasks);
    let every = workload.arrivals.len().div_ceil(TIMELINE_POINTS).max(1);
    for (number, arrival) in workload.arrivals.iter().enumerate() {
        run.advance_to(arrival.arrival_seconds).await?;
        run.handle_arrival(number).await?;
        if number % every == 0 {
            run.record_sample();
        }
        progress.inc(1);
    }
    run.record_sample();
    Ok(run.into_outcome())
}

impl SimulationRun<'_> {
    /// Advances the time: finished tasks leave, waiting tasks are tried again.
    async fn advance_to(&mut self, at: f64) -> Result<(), CommandError> {
        while let Some(entry) = self
            .departures
            .first_entry()
            .filter(|entry| entry.key().0 <= micros(at))
        {
            let ((end, number), tasks) = entry.remove_entry();
            self.cluster.advance_clock(end as f64 / 1e6, self.rules);
            self.handle_departure(number, tasks).await?;
            self.retry_if_due().await?;
        }
        self.cluster.advance_clock(at, self.rules);
        self.retry_if_due().await
    }

    async fn retry_if_due(&mut self) -> Result<(), CommandError> {
        if self.capacity_freed && self.cluster.now - self.last_retry >= self.rules.retry_seconds {
            return self.retry_waiting().await;
        }
        Ok(())
    }

    async fn handle_arrival(&mut self, number: usize) -> Result<(), CommandError> {
        let Some(arrival) = self.workload.arrivals.get(number) else {
            return Ok(());
        };
        self.cluster.tasks.arrived = self.cluster.tasks.arrived.saturating_add(count(&arrival.tasks));
        if let Some(left) = self.place(number, arrival.tasks.clone()).await? {
            let waits = count(&left.tasks);
            let seen = self.rejected.entry(left.reason).or_default();
            *seen = seen.saturating_add(waits);
            self.cluster.tasks.delayed = self.cluster.tasks.delayed.saturating_add(waits);
            self.waiting.insert(number, left.tasks);
        }
        if !self.rules.departures {
            self.cluster.add_to_mean(count(&arrival.tasks));
        }
        Ok(())
    }

    /// Tries the waiting tasks in the order of arrival. One rejection is enough for equal jobs.
    async fn retry_waiting(&mut self) -> Result<(), CommandError> {
        self.capacity_freed = false;
        self.last_retry = self.cluster.now;
        let mut hopeless: BTreeSet<Vec<u8>> = BTreeSet::new();
        for (number, tasks) in std::mem::take(&mut self.waiting) {
            let (like, waited) = (self.equivalence_key(number, &tasks), tasks.len());
            if hopeless.contains(&like) {
                self.waiting.insert(number, tasks);
                continue;
            }
            if let Some(left) = self.place(number, tasks).await? {
                if left.tasks.len() == waited {
                    hopeless.insert(like);
                }
                self.waiting.insert(number, left.tasks);
            }
        }
        Ok(())
    }

    /// Places the tasks of an arrival. Returns the tasks that were not placed.
    async fn place(&mut self, number: usize, tasks: Vec<pb::Task>) -> Result<Option<UnplacedTasks>, CommandError> {
        let job = self.arrival(number).and_then(|arrival| arrival.job.clone());
        let asked_at = Instant::now();
        let (groups, result) = self.cluster.ask_place(self.policy, job, tasks.clone()).await?;
        self.place_durations.push(asked_at.elapsed());
        if self.asked.insert(number) {
            for group in &result.groups {
                self.cluster.unevaluated.add(&group.not_evaluated, 1);
            }
        }
        if let Some(why) = self.report_problems(&groups, &result) {
            return Ok(Some(UnplacedTasks { tasks, reason: why }));
        }
        if !result.placed {
            let why = rejection_summary(&result);
            return Ok(Some(UnplacedTasks { tasks, reason: why }));
        }
        let (bound, left) = assign_nodes(tasks, &groups, &result);
        self.apply_placement(number, bound).await?;
        let why = rejection_summary(&result);
        Ok((!left.is_empty()).then_some(UnplacedTasks {
            tasks: left,
            reason: why,
        }))
    }

    fn arrival(&self, number: usize) -> Option<&ArrivingJob> {
        self.workload.arrivals.get(number)
    }

    /// Prints problems and warnings of a query, each once. Returns the reason of a problem, with which nothing can be
    /// placed.
    fn report_problems(&mut self, groups: &[pb::TaskGroup], result: &pb::PlaceResult) -> Option<String> {
        let mut problem = None;
        for (group, placed) in groups.iter().zip(&result.groups) {
            let reported = placed.warnings.iter().map(|warning| (warning, &warning.message));
            let problems = placed.problem.iter().map(|problem| (problem, &problem.reason));
            for (problem, key) in reported.chain(problems) {
                if self.reported.insert(key.clone()) {
                    let title = node_query::task_title(&group.task.clone().unwrap_or_default());
                    let (policy, problem) = (&self.policy.name, output::problem(problem));
                    output::note(&format!("warning: {policy}: {title}: {problem}"));
                }
            }
            problem = problem.or_else(|| placed.problem.as_ref().map(|problem| problem.reason.clone()));
        }
        problem
    }

    /// Adds placed tasks to the totals of their jobs.
    fn count_placed(&mut self, tasks: &[pb::Task]) {
        for task in tasks.iter().filter(|task| !task.job.is_empty()) {
            let held = self.placed_by_job.entry(task.job.clone()).or_default();
            *held = held.saturating_add(1);
        }
    }

    async fn apply_placement(&mut self, number: usize, bound: Vec<pb::Task>) -> Result<(), CommandError> {
        if bound.is_empty() {
            return Ok(());
        }
        for task in &bound {
            self.cluster.count_bound(task, true);
        }
        self.count_placed(&bound);
        let runs = self.arrival(number).and_then(|arrival| arrival.run_seconds);
        if let Some(runs) = runs.filter(|_| self.rules.departures) {
            let tasks = bound.iter().map(|task| (task.name.clone(), task.node.clone()));
            let end = micros(self.cluster.now + runs);
            self.departures.entry((end, number)).or_default().extend(tasks);
        }
        let put = pb::Cluster {
            tasks: bound,
            ..pb::Cluster::default()
        };
        self.cluster.send_batch(put, pb::Removals::default()).await
    }

    async fn handle_departure(&mut self, number: usize, placed: Vec<(String, String)>) -> Result<(), CommandError> {
        let Some(arrival) = self.workload.arrivals.get(number) else {
            return Ok(());
        };
        let tasks: BTreeMap<&str, &pb::Task> = arrival.tasks.iter().map(|task| (task.name.as_str(), task)).collect();
        let mut names = Vec::new();
        for (name, node) in placed {
            if let Some(task) = tasks.get(name.as_str()) {
                self.cluster.usage.release(&node, requested_amounts(task));
                if let Some(held) = self.placed_by_job.get_mut(&task.job) {
                    *held = held.saturating_sub(1);
                }
            }
            names.push(name);
        }
        self.cluster.tasks.finished = self.cluster.tasks.finished.saturating_add(count(&names));
        self.capacity_freed = true;
        let gone = pb::Removals {
            tasks: names,
            ..pb::Removals::default()
        };
        self.cluster.send_batch(pb::Cluster::default(), gone).await
    }

    /// Properties that arrivals with equal results share.
    fn equivalence_key(&self, number: usize, tasks: &[pb::Task]) -> Vec<u8> {
        let mut like = Vec::new();
        if let Some(job) = self.arrival(number).and_then(|arrival| arrival.job.as_ref()) {
            // What the job holds already it need not find.
            let held = self.placed_by_job.get(&job.name).copied().unwrap_or_default();
            like.extend(held.to_le_bytes());
            let job = pb::Job {
                name: String::new(),
                uid: String::new(),
                creation_time: None,
                ..job.clone()
            };
            like.extend(job.encode_length_delimited_to_vec());
        }
        for group in task::task_groups(tasks.to_vec(), 1) {
            let task = pb::Task {
                name: String::new(),
                job: String::new(),
                ..group.task.unwrap_or_default()
            };
            like.extend(task.encode_length_delimited_to_vec());
            like.extend(group.count.unwrap_or(1).to_le_bytes());
        }
        like
    }

    /// Tasks that wait.
    fn waiting_count(&self) -> u64 {
        self.waiting.values().map(|tasks| count(tasks)).sum()
    }

    fn record_sample(&mut self) {
        let waiting = self.waiting_count();
        self.cluster.record_sample(waiting);
    }

    fn into_outcome(self) -> PolicyOutcome {
        let waiting = self.waiting_count();
        let rejected = self.rejected.into_iter();
        let mut rejected: Vec<RejectionCount> = rejected
            .map(|(reason, tasks)| RejectionCount { reason, tasks })
            .collect();
        rejected.sort_by(|a, b| b.tasks.cmp(&a.tasks).then_with(|| a.reason.cmp(&b.reason)));
        let (policy, durations) = (&self.policy.name, self.place_durations);
        PolicyOutcome {
            rejected,
            ..self.cluster.into_outcome(policy, waiting, durations)
        }
    }
}

/// Placed tasks with their nodes, and the tasks that were not placed.
fn assign_nodes(
    tasks: Vec<pb::Task>,
    groups: &[pb::TaskGroup],
    result: &pb::PlaceResult,
) -> (Vec<pb::Task>, Vec<pb::Task>) {
    let (mut bound, mut left) = (Vec::new(), Vec::new());
    // Groups hold the tasks in their order.
    let mut tasks = tasks.into_iter();
    for (group, placed) in groups.iter().zip(&result.groups) {
        let count = usize::try_from(group.count.unwrap_or(1)).unwrap_or(usize::MAX);
        let mut nodes = placed.allocated.clone().unwrap_or_default().names.into_iter();
        for task in tasks.by_ref().take(count) {
            match nodes.next() {
                Some(node) => bound.push(pb::Task {
                    node,
                    status: pb::TaskStatus::Running.into(),
                    ..task
                }),
                None => left.push(task),
            }
        }
    }
    (bound, left)
}

/// Reason against the first task, in a few words.
fn rejection_summary(result: &pb::PlaceResult) -> String {
    let most = result.blockers.iter().max_by_key(|blocker| blocker.count);
    let Some(reason) = most.and_then(|blocker| blocker.reason.as_ref()) else {
        return "fewer places than its job needs".to_owned();
    };
    let resource = if reason.resource.is_empty() {
        String::new()
    } else {
        format!(" {}", reason.resource)
    };
    format!("{} {}{resource}", reason.plugin, reason.code)
}
