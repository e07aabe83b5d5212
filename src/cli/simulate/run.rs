//! One workload under one policy, in a process of its own making: the services without a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indicatif::ProgressBar;
use prost::Message as _;
use tokio::time::Instant;

use super::account::{Account, Usual, asked, percent, whole};
use super::report::{CpuOnly, Mean, Outcome, Sample, Speed, State, Tasks};
use super::workload::{Arrival, Workload};
use crate::cli::local::Local;
use crate::cli::{Failure, decide, output, state_load, task};
use crate::server::pb;

/// Owner of all records of a simulation.
const SOURCE: &str = "simulate";
/// Points of a line, about.
const SAMPLES: usize = 200;

/// A policy to judge.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) document: String,
    /// Which of a document's profiles.
    pub(super) profile: String,
}

/// How it is simulated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Tasks leave when their time is over.
    pub(super) ends: bool,
    /// Seconds between two attempts at what waits.
    pub(super) retry: f64,
}

/// Tasks that found no place.
struct Left {
    tasks: Vec<pb::Task>,
    /// What kept the first of them from one, in a few words.
    why: String,
}

struct Run<'w> {
    connection: crate::cli::connect::Connection,
    policy: &'w Candidate,
    rules: Rules,
    workload: &'w Workload,
    account: Account,
    position: (u64, u64),
    /// Tasks that hold room, with their nodes: by time of their end in microseconds, then by arrival.
    ends: BTreeMap<(u64, usize), Vec<(String, String)>>,
    /// Tasks that wait, by arrival.
    waiting: BTreeMap<usize, Vec<pb::Task>>,
    /// Tasks that are there or were put there, by job.
    held: BTreeMap<String, u64>,
    /// Faults and warnings that were said already.
    said: BTreeSet<String>,
    /// Something left since what waits was tried.
    freed: bool,
    tried: f64,
    took: Vec<Duration>,
    tasks: Tasks,
    cpu_only: CpuOnly,
    refused: BTreeMap<String, u64>,
    samples: Vec<Sample>,
    mean: Mean,
    now: f64,
}

/// Runs it to its end.
pub(super) async fn run(
    workload: &Workload,
    policy: &Candidate,
    rules: Rules,
    progress: &ProgressBar,
) -> Result<Outcome, Failure> {
    let local = Local::start().await?;
    let mut connection = local.connection.clone();
    let request = pb::ReloadPolicyRequest {
        document: policy.document.clone(),
        ..pb::ReloadPolicyRequest::default()
    };
    connection.policies.reload_policy(request).await?;
    let loaded = state_load::send(&mut connection, SOURCE, workload.standing.clone()).await?;
    for refused in &loaded.refused {
        output::note(&format!("refused, and so left out: {refused}"));
    }
    let position = loaded.outcome.position.unwrap_or_default();
    let usual = Usual::of(workload.arrivals.iter().flat_map(|arrival| &arrival.tasks));
    let mut run = Run {
        connection,
        policy,
        rules,
        workload,
        account: Account::new(&workload.standing, usual),
        position: (position.source_epoch, position.sequence),
        ends: BTreeMap::new(),
        waiting: BTreeMap::new(),
        held: BTreeMap::new(),
        said: BTreeSet::new(),
        freed: false,
        tried: 0.0,
        took: Vec::new(),
        tasks: Tasks::default(),
        cpu_only: CpuOnly::default(),
        refused: BTreeMap::new(),
        samples: Vec::new(),
        mean: Mean::default(),
        now: 0.0,
    };
    run.holds(&workload.standing.tasks);
    let every = workload.arrivals.len().div_ceil(SAMPLES).max(1);
    for (number, arrival) in workload.arrivals.iter().enumerate() {
        run.until(arrival.at).await?;
        run.arrives(number).await?;
        if number % every == 0 {
            run.sample();
        }
        progress.inc(1);
    }
    run.sample();
    Ok(run.outcome())
}

impl Run<'_> {
    /// Lets time pass: what is over leaves, what waits is tried again.
    async fn until(&mut self, at: f64) -> Result<(), Failure> {
        while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= micros(at)) {
            let ((end, number), tasks) = entry.remove_entry();
            self.pass(end as f64 / 1e6);
            self.leaves(number, tasks).await?;
            self.retry_in_time().await?;
        }
        self.pass(at);
        self.retry_in_time().await
    }

    /// Time goes on to this moment, and all stays as it is.
    fn pass(&mut self, to: f64) {
        // Ends are rounded to microseconds.
        let lasted = (to - self.now).max(0.0);
        if self.rules.ends {
            self.mean.add(self.state(), lasted);
        }
        self.now += lasted;
    }

    async fn retry_in_time(&mut self) -> Result<(), Failure> {
        if self.freed && self.now - self.tried >= self.rules.retry {
            return self.retry().await;
        }
        Ok(())
    }

    async fn arrives(&mut self, number: usize) -> Result<(), Failure> {
        let Some(arrival) = self.workload.arrivals.get(number) else {
            return Ok(());
        };
        self.tasks.arrived = self.tasks.arrived.saturating_add(count(&arrival.tasks));
        if let Some(left) = self.place(number, arrival.tasks.clone()).await? {
            let waits = count(&left.tasks);
            let seen = self.refused.entry(left.why).or_default();
            *seen = seen.saturating_add(waits);
            self.tasks.had_to_wait = self.tasks.had_to_wait.saturating_add(waits);
            self.waiting.insert(number, left.tasks);
        }
        if !self.rules.ends {
            self.mean.add(self.state(), count(&arrival.tasks) as f64);
        }
        Ok(())
    }

    /// Tries what waits, in the order of arrival; of equal jobs one refusal is enough.
    async fn retry(&mut self) -> Result<(), Failure> {
        self.freed = false;
        self.tried = self.now;
        let mut hopeless: BTreeSet<Vec<u8>> = BTreeSet::new();
        for (number, tasks) in std::mem::take(&mut self.waiting) {
            let (like, waited) = (self.likeness(number, &tasks), tasks.len());
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

    /// Asks for places for tasks of an arrival; those that found none are handed back.
    async fn place(&mut self, number: usize, tasks: Vec<pb::Task>) -> Result<Option<Left>, Failure> {
        let world = pb::World {
            profile: self.policy.profile.clone(),
            ..pb::World::default()
        };
        let groups = task::groups(tasks.clone(), 1);
        let request = pb::PlaceRequest {
            ground: Some(pb::Ground {
                ground: Some(pb::ground::Ground::World(world)),
                ..pb::Ground::default()
            }),
            job: self.arrival(number).and_then(|arrival| arrival.job.clone()),
            groups: groups.clone(),
            idle_only: true,
            ..pb::PlaceRequest::default()
        };
        let asked_at = Instant::now();
        let reply = self.connection.decisions.place(request).await?.into_inner();
        self.took.push(asked_at.elapsed());
        let answer = reply.answer.unwrap_or_default();
        if let Some(why) = self.overlooked(&groups, &answer) {
            return Ok(Some(Left { tasks, why }));
        }
        if !answer.placed {
            let why = why(&answer);
            return Ok(Some(Left { tasks, why }));
        }
        let (bound, left) = bind(tasks, &groups, &answer);
        self.binds(number, bound).await?;
        let why = why(&answer);
        Ok((!left.is_empty()).then_some(Left { tasks: left, why }))
    }

    fn arrival(&self, number: usize) -> Option<&Arrival> {
        self.workload.arrivals.get(number)
    }

    /// Says what is odd with tasks that were asked about, each oddity once; with a fault, which nothing can be placed with,
    /// its name.
    fn overlooked(&mut self, groups: &[pb::TaskGroup], answer: &pb::PlaceAnswer) -> Option<String> {
        let mut fault = None;
        for (group, placed) in groups.iter().zip(&answer.groups) {
            let told = placed.warnings.iter().map(|warning| (warning, &warning.message));
            let faults = placed.problem.iter().map(|problem| (problem, &problem.reason));
            for (problem, key) in told.chain(faults) {
                if self.said.insert(key.clone()) {
                    let title = decide::title(&group.task.clone().unwrap_or_default());
                    let (policy, problem) = (&self.policy.name, output::problem(problem));
                    output::note(&format!("warning: {policy}: {title}: {problem}"));
                }
            }
            fault = fault.or_else(|| placed.problem.as_ref().map(|problem| problem.reason.clone()));
        }
        fault
    }

    /// Counts tasks that hold room, by job.
    fn holds(&mut self, tasks: &[pb::Task]) {
        for task in tasks.iter().filter(|task| !task.job.is_empty()) {
            let held = self.held.entry(task.job.clone()).or_default();
            *held = held.saturating_add(1);
        }
    }

    async fn binds(&mut self, number: usize, bound: Vec<pb::Task>) -> Result<(), Failure> {
        if bound.is_empty() {
            return Ok(());
        }
        for task in &bound {
            let amounts = asked(task);
            self.account.take(&task.node, amounts);
            self.tasks.placed = self.tasks.placed.saturating_add(1);
            if amounts.gpu == 0 {
                self.cpu_only.placed = self.cpu_only.placed.saturating_add(1);
                let on = u64::from(self.account.has_gpu(&task.node));
                self.cpu_only.on_gpu_nodes = self.cpu_only.on_gpu_nodes.saturating_add(on);
            }
        }
        self.holds(&bound);
        let runs = self.arrival(number).and_then(|arrival| arrival.runs);
        if let Some(runs) = runs.filter(|_| self.rules.ends) {
            let tasks = bound.iter().map(|task| (task.name.clone(), task.node.clone()));
            let end = micros(self.now + runs);
            self.ends.entry((end, number)).or_default().extend(tasks);
        }
        let put = pb::Cluster {
            tasks: bound,
            ..pb::Cluster::default()
        };
        self.tell(put, Vec::new()).await
    }

    async fn leaves(&mut self, number: usize, placed: Vec<(String, String)>) -> Result<(), Failure> {
        let Some(arrival) = self.workload.arrivals.get(number) else {
            return Ok(());
        };
        let tasks: BTreeMap<&str, &pb::Task> = arrival.tasks.iter().map(|task| (task.name.as_str(), task)).collect();
        let mut names = Vec::new();
        for (name, node) in placed {
            if let Some(task) = tasks.get(name.as_str()) {
                self.account.give_back(&node, asked(task));
                if let Some(held) = self.held.get_mut(&task.job) {
                    *held = held.saturating_sub(1);
                }
            }
            names.push(name);
        }
        self.tasks.ended = self.tasks.ended.saturating_add(count(&names));
        self.freed = true;
        self.tell(pb::Cluster::default(), names).await
    }

    /// Sends one batch of changes.
    async fn tell(&mut self, put: pb::Cluster, gone: Vec<String>) -> Result<(), Failure> {
        let (source_epoch, sequence) = self.position;
        self.position.1 = sequence.saturating_add(1);
        let batch = pb::Batch {
            source: SOURCE.to_owned(),
            source_epoch,
            sequence: self.position.1,
            kind: pb::BatchKind::Delta.into(),
            put: Some(put),
            remove: Some(pb::Removals {
                tasks: gone,
                ..pb::Removals::default()
            }),
            ..pb::Batch::default()
        };
        let request = pb::ApplyRequest { batch: Some(batch) };
        let outcome = self
            .connection
            .state
            .apply(request)
            .await?
            .into_inner()
            .outcome
            .unwrap_or_default();
        if let Some(problem) = outcome.refused.first() {
            return Err(Failure::said(format!("error: {}", output::problem(problem))));
        }
        match outcome.resync {
            Some(resync) => Err(Failure::said(format!("error: {} ({})", resync.message, resync.reason))),
            None => Ok(()),
        }
    }

    /// What arrivals have in common that get the same answer.
    fn likeness(&self, number: usize, tasks: &[pb::Task]) -> Vec<u8> {
        let mut like = Vec::new();
        if let Some(job) = self.arrival(number).and_then(|arrival| arrival.job.as_ref()) {
            // What the job holds already it need not find.
            let held = self.held.get(&job.name).copied().unwrap_or_default();
            like.extend(held.to_le_bytes());
            let job = pb::Job {
                name: String::new(),
                uid: String::new(),
                creation_time: None,
                ..job.clone()
            };
            like.extend(job.encode_length_delimited_to_vec());
        }
        for group in task::groups(tasks.to_vec(), 1) {
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

    fn state(&self) -> State {
        let (used, total) = (self.account.used, self.account.total);
        State {
            gpu_allocated_percent: percent(used.gpu, total.gpu),
            cpu_allocated_percent: percent(used.cpu, total.cpu),
            memory_allocated_percent: percent(used.memory, total.memory),
            gpus_stranded: whole(self.account.stranded),
        }
    }

    /// Tasks that wait.
    fn wait(&self) -> u64 {
        self.waiting.values().map(|tasks| count(tasks)).sum()
    }

    fn sample(&mut self) {
        self.samples.push(Sample {
            seconds: self.now,
            arrived: self.tasks.arrived,
            waiting: self.wait(),
            cpu_only_on_gpu_nodes: self.cpu_only.on_gpu_nodes,
            state: self.state(),
        });
    }

    fn outcome(mut self) -> Outcome {
        self.tasks.waiting = self.wait();
        let mut refused: Vec<(String, u64)> = std::mem::take(&mut self.refused).into_iter().collect();
        refused.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Outcome {
            policy: self.policy.name.clone(),
            tasks: self.tasks,
            at_end: self.state(),
            mean: self.mean.of(self.state()),
            cpu_only: self.cpu_only,
            cards: self.account.by_card(),
            refused,
            speed: Speed::of(self.took),
            samples: self.samples,
        }
    }
}

fn micros(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds.max(0.0))
        .ok()
        .and_then(|time| u64::try_from(time.as_micros()).ok())
        .unwrap_or(u64::MAX)
}

fn count<T>(things: &[T]) -> u64 {
    u64::try_from(things.len()).unwrap_or(u64::MAX)
}

/// Tasks with the nodes that they found, and those that found none.
fn bind(tasks: Vec<pb::Task>, groups: &[pb::TaskGroup], answer: &pb::PlaceAnswer) -> (Vec<pb::Task>, Vec<pb::Task>) {
    let (mut bound, mut left) = (Vec::new(), Vec::new());
    // Groups hold the tasks in their order.
    let mut tasks = tasks.into_iter();
    for (group, placed) in groups.iter().zip(&answer.groups) {
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

/// What kept the first task from its place, in a few words.
fn why(answer: &pb::PlaceAnswer) -> String {
    let most = answer.blockers.iter().max_by_key(|blocker| blocker.count);
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
