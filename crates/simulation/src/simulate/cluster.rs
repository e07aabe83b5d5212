//! Cluster of a simulation: its records in the services of this process, and totals of their changes.

use std::time::Duration;

use super::report::{
    AllocationLevels, CpuTaskCounts, DecisionSpeed, PolicyOutcome, TaskCounts, TimelineSample, WeightedAllocation,
};
use super::rules::{CandidatePolicy, SimulationRules};
use super::usage::{ClusterUsage, TypicalGpuTask, from_milli, percent, requested_amounts};
use super::workload::Workload;
use pumice_console::not_evaluated::UnevaluatedSet;
use pumice_console::{CommandError, full_sync, output, task};
use pumice_console::{LocalServer, LocalServices};
use pumice_protocol::v1 as pb;

/// Owner of all records of a simulation.
const SOURCE: &str = "simulate";

/// Cluster of a simulation.
pub(super) struct SimulatedCluster {
    pub(super) server: LocalServer,
    pub(super) usage: ClusterUsage,
    pub(super) tasks: TaskCounts,
    cpu_only: CpuTaskCounts,
    pub(super) samples: Vec<TimelineSample>,
    pub(super) unevaluated: UnevaluatedSet,
    /// Seconds after the first arrival.
    pub(super) now: f64,
    mean: WeightedAllocation,
    position: (u64, u64),
}

impl SimulatedCluster {
    /// Starts the services with these records, under a policy.
    pub(super) async fn start(
        services: &dyn LocalServices,
        workload: &Workload,
        initial: pb::Cluster,
        policy: &CandidatePolicy,
    ) -> Result<Self, CommandError> {
        let server = services.start().await?;
        let mut connection = server.connection.clone();
        let request = pb::ReloadPolicyRequest {
            document: policy.document.clone(),
            ..pb::ReloadPolicyRequest::default()
        };
        connection.policies.reload_policy(request).await?;
        let usual = TypicalGpuTask::median_of(workload.arrivals.iter().flat_map(|arrival| &arrival.tasks));
        let usage = ClusterUsage::new(&initial, usual);
        let loaded = full_sync::send_full_sync(&mut connection, SOURCE, initial).await?;
        for refused in &loaded.rejected {
            output::note(&format!("refused, and so left out: {refused}"));
        }
        let position = loaded.outcome.position.unwrap_or_default();
        Ok(Self {
            server,
            usage,
            tasks: TaskCounts::default(),
            cpu_only: CpuTaskCounts::default(),
            samples: Vec::new(),
            unevaluated: UnevaluatedSet::default(),
            now: 0.0,
            mean: WeightedAllocation::default(),
            position: (position.source_epoch, position.sequence),
        })
    }

    /// Counts a task that its node takes; `is_new`: it arrived and had no place before.
    pub(super) fn count_bound(&mut self, task: &pb::Task, is_new: bool) {
        let amounts = requested_amounts(task);
        self.usage.allocate(&task.node, amounts);
        if !is_new {
            return;
        }
        self.tasks.placed = self.tasks.placed.saturating_add(1);
        if amounts.gpu == 0 {
            self.cpu_only.placed = self.cpu_only.placed.saturating_add(1);
            let on = u64::from(self.usage.has_gpu(&task.node));
            self.cpu_only.on_gpu_nodes = self.cpu_only.on_gpu_nodes.saturating_add(on);
        }
    }

    /// Advances the time while the cluster stays as it is. Returns the seconds that passed.
    pub(super) fn advance_clock(&mut self, to: f64, rules: SimulationRules) -> f64 {
        // Ends are rounded to microseconds.
        let lasted = (to - self.now).max(0.0);
        if rules.departures {
            self.mean.add(self.allocation(), lasted);
        }
        self.now += lasted;
        lasted
    }

    /// Adds the present allocation to the mean, once for each arrived task.
    pub(super) fn add_to_mean(&mut self, tasks: u64) {
        self.mean.add(self.allocation(), tasks as f64);
    }

    /// Mean allocation so far.
    fn mean(&self) -> AllocationLevels {
        self.mean.mean_or(self.allocation())
    }

    pub(super) fn allocation(&self) -> AllocationLevels {
        let (used, total) = (self.usage.used, self.usage.total);
        AllocationLevels {
            gpu_allocated_percent: percent(used.gpu, total.gpu),
            cpu_allocated_percent: percent(used.cpu, total.cpu),
            memory_allocated_percent: percent(used.memory, total.memory),
            gpus_stranded: from_milli(self.usage.stranded),
        }
    }

    /// Outcome of a policy that leaves so many tasks waiting, after decisions that took these times.
    pub(super) fn into_outcome(mut self, policy: &str, waiting: u64, durations: Vec<Duration>) -> PolicyOutcome {
        self.tasks.waiting = waiting;
        PolicyOutcome {
            policy: policy.to_owned(),
            tasks: self.tasks,
            after_last_arrival: self.allocation(),
            mean: self.mean(),
            cpu_only: self.cpu_only,
            cards: self.usage.by_card(),
            rejected: Vec::new(),
            not_evaluated: self.unevaluated.rows(),
            cycles: None,
            decision_speed: DecisionSpeed::from_durations(durations),
            samples: self.samples,
            task_outcomes: Vec::new(),
        }
    }

    pub(super) fn record_sample(&mut self, waiting: u64) {
        self.samples.push(TimelineSample {
            seconds: self.now,
            arrived: self.tasks.arrived,
            waiting,
            evicted: self.tasks.evicted,
            cpu_only_on_gpu_nodes: self.cpu_only.on_gpu_nodes,
            state: self.allocation(),
        });
    }

    /// Asks where a job with these tasks would go now.
    pub(super) async fn ask_place(
        &mut self,
        policy: &CandidatePolicy,
        job: Option<pb::Job>,
        tasks: Vec<pb::Task>,
    ) -> Result<(Vec<pb::TaskGroup>, pb::PlaceResult), CommandError> {
        let snapshot = pb::LatestRef {
            profile: policy.profile.clone(),
            ..pb::LatestRef::default()
        };
        let groups = task::task_groups(tasks, 1);
        let request = pb::PlaceRequest {
            against: Some(pb::EvaluationRef {
                target: Some(pb::evaluation_ref::Target::Latest(snapshot)),
                ..pb::EvaluationRef::default()
            }),
            job,
            groups: groups.clone(),
            idle_only: true,
            ..pb::PlaceRequest::default()
        };
        let reply = self.server.connection.decisions.place(request).await?.into_inner();
        self.unevaluated.add_metadata(reply.metadata.as_ref());
        Ok((groups, reply.result.unwrap_or_default()))
    }

    /// Sends one batch of changes.
    pub(super) async fn send_batch(&mut self, put: pb::Cluster, gone: pb::Removals) -> Result<(), CommandError> {
        let (source_epoch, sequence) = self.position;
        self.position.1 = sequence.saturating_add(1);
        let batch = pb::Batch {
            source: SOURCE.to_owned(),
            source_epoch,
            sequence: self.position.1,
            kind: pb::BatchKind::Delta.into(),
            put: Some(put),
            remove: Some(gone),
            ..pb::Batch::default()
        };
        let request = pb::ApplyRequest { batch: Some(batch) };
        let reply = self.server.connection.state.apply(request).await?;
        let outcome = reply.into_inner().outcome.unwrap_or_default();
        if let Some(problem) = outcome.refused.first() {
            return Err(CommandError::message(format!("error: {}", output::problem(problem))));
        }
        match outcome.resync {
            Some(resync) => Err(CommandError::message(format!(
                "error: {} ({})",
                resync.message, resync.reason
            ))),
            None => Ok(()),
        }
    }
}

/// Microseconds of a time in seconds.
pub(super) fn micros(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds.max(0.0))
        .ok()
        .and_then(|time| u64::try_from(time.as_micros()).ok())
        .unwrap_or(u64::MAX)
}
