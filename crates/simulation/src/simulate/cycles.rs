//! One workload under one policy by whole scheduling cycles: the actions of the policy, over and over, while tasks arrive,
//! end and are evicted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::time::Instant;

use super::cluster::{SimulatedCluster, micros};
use super::cycle_tasks::CycleTasks;
use super::queue_amounts::QueueAmounts;
use super::queues::QueueTallies;
use super::report::{AllocationLevels, CycleOutcome, PolicyOutcome};
use super::rules::{CandidatePolicy, SimulationRules};
use super::run::TIMELINE_POINTS;
use super::standstill::{StandstillWatch, TaskStandstill};
use super::usage::{count, requested_amounts};
use super::workload::Workload;
use crate::cycle_outcome::{note_unsimulated_actions, simulated_actions};
use pumice_console::{CommandError, LocalServices, output};
use pumice_engine::PolicyInForce;
use pumice_engine::actions::{CycleAction, CycleClaims, CycleEvent, CycleQuery, run_cycle_with};
use pumice_engine::decide::{self, LastRounds, UnevaluatedTask};
use pumice_engine::model::{ClusterState, NodeSlot};
use pumice_engine::policy::DecisionKind;
use pumice_protocol::v1 as pb;

/// Number of periods after which a cycle runs although nothing has changed, where the time alone can change its result.
const IDLE_PERIODS: u64 = 60;

/// Rules of whole cycles.
#[derive(Debug, Clone, Copy)]
pub(super) struct CycleRules {
    /// Time from the start of a cycle to the start of the next cycle, in seconds.
    pub(super) period: f64,
    /// Time from the eviction of a task to its end, in seconds.
    pub(super) grace: f64,
    /// Time from the last arrival to the end of the simulation at the latest, in seconds.
    pub(super) after: f64,
}

impl CycleRules {
    fn period_micros(self) -> u64 {
        micros(self.period).max(1)
    }
}

/// Change that the simulation makes at its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TimedChange {
    /// The run time of a task is over.
    Ends,
    /// An evicted task is gone, and its controller makes another.
    Returns,
    /// A task that was being deleted from the start is gone; its controller has made another already.
    Vanishes,
}

struct CycleRun<'w> {
    cluster: SimulatedCluster,
    candidate: &'w CandidatePolicy,
    policy: Arc<PolicyInForce>,
    actions: Vec<CycleAction>,
    rules: SimulationRules,
    cycle_rules: CycleRules,
    workload: &'w Workload,
    tasks: CycleTasks,
    /// Claims that the cycles so far left.
    claims: CycleClaims,
    /// Last rounds of evictions without a preemptor.
    last_rounds: LastRounds,
    standstill: StandstillWatch,
    queues: QueueTallies,
    /// Changes to come by their times, with the names of tasks.
    timeline: BTreeSet<(u64, TimedChange, String)>,
    /// Tasks that arrived after the last cycle.
    fresh: Vec<String>,
    /// True if a record has changed since the last cycle.
    changed: bool,
    /// Number of the last cycle, including skipped cycles.
    last_tick: Option<u64>,
    next_arrival: usize,
    durations: Vec<Duration>,
    passed_over: BTreeSet<String>,
    after_last_arrival: Option<AllocationLevels>,
    /// True if the simulation ended before the cluster came to rest.
    is_cut: bool,
}

/// Runs the simulation to its end.
pub(super) async fn run(
    services: &dyn LocalServices,
    workload: &Workload,
    candidate: &CandidatePolicy,
    rules: SimulationRules,
    cycle_rules: CycleRules,
    progress: &ProgressBar,
) -> Result<PolicyOutcome, CommandError> {
    let (initial, tasks) = CycleTasks::split(workload);
    let cluster = SimulatedCluster::start(services, workload, initial.clone(), candidate).await?;
    let snapshot = cluster.server.snapshot();
    let policy = snapshot.policies.values().next().cloned();
    let policy = policy.and_then(|policy| policy.of_profile(&candidate.profile).ok());
    let Some(policy) = policy else {
        return Err(CommandError::message(format!("error: {}: no policy", candidate.name)));
    };
    let mut queues = QueueTallies::new(&initial.queues, QueueAmounts::of_nodes(&initial.nodes));
    let mut timeline = BTreeSet::new();
    for task in tasks.placed() {
        queues.hold(tasks.queue_of(&task.record), &QueueAmounts::requested(&task.record));
        if task.record.status() == pb::TaskStatus::Releasing {
            let name = task.record.name.clone();
            timeline.insert((micros(cycle_rules.grace), TimedChange::Vanishes, name));
        }
    }
    note_unsimulated_actions(&policy.policy, &candidate.name);
    let mut run = CycleRun {
        actions: simulated_actions(&policy.policy),
        cluster,
        candidate,
        policy,
        rules,
        cycle_rules,
        workload,
        tasks,
        claims: CycleClaims::default(),
        last_rounds: LastRounds::new(),
        standstill: StandstillWatch::default(),
        queues,
        timeline,
        fresh: Vec::new(),
        changed: true,
        last_tick: None,
        next_arrival: 0,
        durations: Vec::new(),
        passed_over: BTreeSet::new(),
        after_last_arrival: None,
        is_cut: false,
    };
    run.run_to_end(progress).await?;
    Ok(run.into_outcome())
}

impl CycleRun<'_> {
    async fn run_to_end(&mut self, progress: &ProgressBar) -> Result<(), CommandError> {
        let last = self.workload.arrivals.last().map_or(0.0, |last| last.arrival_seconds);
        let end = micros(last + self.cycle_rules.after);
        let spacing = (last + self.cycle_rules.after) / TIMELINE_POINTS as f64;
        loop {
            let arrival = self.workload.arrivals.get(self.next_arrival);
            let arrival = arrival.map(|arrival| micros(arrival.arrival_seconds));
            let change = self.timeline.first().map(|(at, ..)| *at);
            let cycle = self.next_cycle();
            let Some(at) = [arrival, change, cycle].into_iter().flatten().min() else {
                break;
            };
            if at > end {
                self.is_cut = true;
                break;
            }
            self.advance_to(at);
            if arrival == Some(at) {
                self.handle_arrival();
                progress.inc(1);
            } else if change == Some(at) {
                self.handle_change();
            } else {
                self.run_cycle(at).await?;
                let seen = self.cluster.samples.last().map(|sample| sample.seconds);
                if seen.is_none_or(|seen| self.cluster.now - seen >= spacing) {
                    self.record_sample();
                }
            }
        }
        self.record_sample();
        Ok(())
    }

    fn record_sample(&mut self) {
        self.cluster.record_sample(self.queues.waiting());
        self.queues.record_sample(self.cluster.now);
    }

    /// Time of the next cycle, in microseconds; `None`: nothing needs one.
    fn next_cycle(&self) -> Option<u64> {
        let period = self.cycle_rules.period_micros();
        let following = self.last_tick.map_or(0, |last| last.saturating_add(1));
        let reads_time = self.policy.policy.time_effects().next().is_some();
        let tick = if self.changed {
            following.max(micros(self.cluster.now).div_ceil(period))
        } else if reads_time && (self.queues.waiting() > 0 || self.actions.contains(&CycleAction::Shuffle)) {
            following.saturating_add(IDLE_PERIODS)
        } else {
            return None;
        };
        Some(tick.saturating_mul(period))
    }

    fn advance_to(&mut self, at: u64) {
        // The mean is over the time of the arrivals.
        let arriving = SimulationRules {
            departures: self.rules.departures && self.next_arrival < self.workload.arrivals.len(),
            ..self.rules
        };
        let passed = self.cluster.advance_clock(at as f64 / 1e6, arriving);
        self.queues.pass(passed);
    }

    /// Makes the records of the tasks that arrive.
    fn handle_arrival(&mut self) {
        let number = self.next_arrival;
        self.next_arrival = number.saturating_add(1);
        let Some(arrival) = self.workload.arrivals.get(number) else {
            return;
        };
        self.cluster.tasks.arrived = self.cluster.tasks.arrived.saturating_add(count(&arrival.tasks));
        if let Some(job) = &arrival.job {
            self.tasks.put_job(job);
        }
        for task in &arrival.tasks {
            self.fresh.push(task.name.clone());
            let runs = arrival.run_seconds.filter(|_| self.rules.departures);
            self.tasks.put(task, Some(self.cluster.now), runs);
            let queue = self.tasks.queue_of(task);
            self.queues.wait(queue, &QueueAmounts::requested(task), true);
        }
        self.changed = true;
    }

    /// Makes the first change of the timeline.
    fn handle_change(&mut self) {
        let Some((_, change, name)) = self.timeline.pop_first() else {
            return;
        };
        let Some(task) = self.tasks.get(&name) else { return };
        let record = task.record.clone();
        let queue = self.tasks.queue_of(&record).to_owned();
        let amounts = QueueAmounts::requested(&record);
        self.cluster.usage.release(&record.node, requested_amounts(&record));
        self.queues.leave(&queue, &amounts);
        match change {
            TimedChange::Ends => {
                self.cluster.tasks.finished = self.cluster.tasks.finished.saturating_add(1);
                self.tasks.finish(&name);
            }
            TimedChange::Returns => {
                self.tasks.recreate(&name, self.workload.time_at(self.cluster.now));
                self.queues.wait(&queue, &amounts, false);
            }
            TimedChange::Vanishes => {
                if let Some(job) = self.tasks.end_terminating(&name) {
                    self.tasks.remove_job(&job);
                }
            }
        }
        self.changed = true;
    }

    async fn run_cycle(&mut self, at: u64) -> Result<(), CommandError> {
        self.last_tick = Some(at / self.cycle_rules.period_micros());
        self.send_changes().await?;
        let snapshot = self.cluster.server.snapshot();
        let now = self.workload.time_at(self.cluster.now);
        let began = Instant::now();
        let plugin_states = snapshot.plugin_states(&self.policy);
        let state = snapshot.state.clone();
        let query = CycleQuery {
            actions: &self.actions,
            now: Some(now.into()),
            claims: &self.claims,
            last_rounds: &self.last_rounds,
        };
        let report = run_cycle_with(state, plugin_states, &self.policy.policy, query);
        self.durations.push(began.elapsed());
        let report = report.map_err(|problem| {
            let (policy, seconds) = (&self.candidate.name, self.cluster.now);
            CommandError::message(format!(
                "error: {policy}: the cycle at {seconds} s: {}",
                problem.message
            ))
        })?;
        self.note_unevaluated(&snapshot.state, &report.events);
        self.changed = false;
        self.tasks.forget_promises();
        self.claims.record(&report.events);
        self.last_rounds
            .extend(report.rounds.iter().map(|plugin| (Arc::clone(plugin), now)));
        let phases = self.tasks.closing_phases(&self.policy.policy, &report);
        for event in &report.events {
            self.handle_event(event);
        }
        let cycle = self.last_tick.unwrap_or_default();
        self.standstill.follow(&report.events, &self.tasks, cycle);
        for (job, phase) in phases {
            if self.tasks.has_ended(&job) {
                self.tasks.remove_job(&job);
            } else {
                self.changed |= self.tasks.set_phase(&job, phase);
            }
        }
        self.count_first_cycle();
        Ok(())
    }

    /// Notes what a cycle does not take into account: plugins of the policy, fields of the tasks that are new to it and of the
    /// nodes that it chose.
    fn note_unevaluated(&mut self, state: &ClusterState, events: &[CycleEvent]) {
        let policy = &self.policy.policy;
        let evaluated = policy.evaluated_constraints(&[]);
        let fresh = self.fresh.iter().filter_map(|name| state.tasks().get(name));
        let fresh = fresh.map(|stored| (UnevaluatedTask::of(&stored.record), 1));
        let chosen: BTreeSet<NodeSlot> = events
            .iter()
            .filter_map(|event| match event {
                CycleEvent::Bound { node, .. } => state.slot_of(node),
                CycleEvent::Enqueued(_)
                | CycleEvent::Evicted { .. }
                | CycleEvent::Pipelined { .. }
                | CycleEvent::Nominated { .. }
                | CycleEvent::PassedOver { .. } => None,
            })
            .collect();
        let found = &mut self.cluster.unevaluated;
        found.add_found(decide::not_evaluated_of_policy(policy, DecisionKind::Session));
        found.add_found(decide::not_evaluated_for_labels(policy, state));
        found.add_found(decide::not_evaluated_of_tasks(fresh, state, evaluated));
        found.add_found(decide::not_evaluated_of_nodes(state, chosen, evaluated));
    }

    fn handle_event(&mut self, event: &CycleEvent) {
        match event {
            CycleEvent::Enqueued(_) => {}
            CycleEvent::Bound { task, node } => self.bind(task, node),
            CycleEvent::Evicted { task, preemptor, .. } => self.evict(task, preemptor),
            // The next cycle decides again.
            CycleEvent::Pipelined { task, node, .. } => return self.tasks.pipeline(task, node),
            CycleEvent::Nominated { .. } => return,
            CycleEvent::PassedOver { name, problem } => {
                if self.passed_over.insert(problem.message.clone()) {
                    let policy = &self.candidate.name;
                    output::note(&format!("warning: {policy}: {name}: {}", problem.message));
                }
                return;
            }
        }
        self.changed = true;
    }

    fn bind(&mut self, name: &str, node: &str) {
        let now = self.cluster.now;
        let Some((record, first_wait, runs)) = self.tasks.bind(name, node, now) else {
            return;
        };
        let amounts = QueueAmounts::requested(&record);
        self.queues.place(self.tasks.queue_of(&record), &amounts, first_wait);
        self.cluster.count_bound(&record, first_wait.is_some());
        if let Some(runs) = runs {
            self.timeline
                .insert((micros(now + runs), TimedChange::Ends, name.to_owned()));
        }
    }

    fn evict(&mut self, name: &str, preemptor: &str) {
        let queue = self
            .tasks
            .get(name)
            .map(|task| self.tasks.queue_of(&task.record).to_owned());
        let other = self.tasks.get(preemptor).map(|task| self.tasks.queue_of(&task.record));
        // A task that no other one needs the place of leaves for its own queue.
        let other = other.or_else(|| queue.as_deref().filter(|_| preemptor.is_empty()));
        let (Some(queue), Some(other)) = (&queue, other) else {
            return;
        };
        self.queues.evict(queue, other);
        self.cluster.tasks.evicted = self.cluster.tasks.evicted.saturating_add(1);
        self.tasks.evict(name);
        self.timeline
            .retain(|(_, change, task)| *change != TimedChange::Ends || task != name);
        let gone = micros(self.cluster.now + self.cycle_rules.grace);
        self.timeline.insert((gone, TimedChange::Returns, name.to_owned()));
    }

    /// Records the tasks that still waited after the first cycle since their arrival.
    fn count_first_cycle(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        if fresh.is_empty() {
            return;
        }
        let waits = |name: &&String| self.tasks.get(name).is_some_and(|task| task.first_placed_at.is_none());
        let delayed = fresh.iter().filter(waits).count();
        self.cluster.tasks.delayed = self.cluster.tasks.delayed.saturating_add(delayed as u64);
        if !self.rules.departures {
            self.cluster.add_to_mean(count(&fresh));
        }
        if self.next_arrival == self.workload.arrivals.len() {
            self.after_last_arrival.get_or_insert(self.cluster.allocation());
        }
    }

    /// Sends the records that changed since the last cycle.
    async fn send_changes(&mut self) -> Result<(), CommandError> {
        let (put, gone) = self.tasks.take_changes();
        self.cluster.send_batch(put, gone).await
    }

    /// Tasks that no further cycle would bind. While something else still changes, those that have waited longer than any
    /// eviction takes.
    fn standstills(&self) -> Vec<TaskStandstill> {
        let period = self.cycle_rules.period;
        let margin = if self.is_cut { self.cycle_rules.grace } else { 0.0 };
        let latest = micros(self.cluster.now - margin) / self.cycle_rules.period_micros();
        self.standstill.since(latest, period)
    }

    fn into_outcome(self) -> PolicyOutcome {
        let cycles = CycleOutcome {
            seconds: self.cluster.now,
            came_to_rest: !self.is_cut,
            at_end: self.cluster.allocation(),
            standstills: self.standstills(),
            pending_jobs: self.tasks.pending_jobs(),
            queues: self.queues.outcomes(),
        };
        let (policy, waiting) = (&self.candidate.name, self.queues.waiting());
        PolicyOutcome {
            after_last_arrival: self.after_last_arrival.unwrap_or(cycles.at_end),
            cycles: Some(cycles),
            task_outcomes: self.tasks.into_outcomes(policy),
            ..self.cluster.into_outcome(policy, waiting, self.durations)
        }
    }
}
