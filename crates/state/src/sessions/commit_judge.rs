//! Checks of a commit: whether a session's placements still hold under the newest state and policy, job by job in
//! order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::commit_outcome::{CommitRejection, JobCommitOutcome, ProposedJob, ProposedPlacement};
use super::placed_calls::CommitScope;
use super::placement_count::count_placement;
use crate::ledger::assumptions::restore_task;
use pumice_engine::PolicyInForce;
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::decide::{self, FilterDetail, NodeQuery, QueryTask, ResourceFit};
use pumice_engine::devices::{DeviceMask, device_indices};
use pumice_engine::model::reservation::same_incarnation as same;
use pumice_engine::model::{ClusterState, Problem, RejectionCode, ResourceTotals, TaskRecord, TaskStatus};
use pumice_engine::plugin::{Measurement, PluginContext, Reason, Resolution};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::Policy;

/// Plugin name in reasons that the commit itself gives.
const COMMIT_PLUGIN: &str = "commit";

/// Result of judging a commit, before it is written.
#[derive(Debug)]
pub(crate) struct JudgedCommit {
    /// State with the accepted placements.
    pub(crate) cluster_state: ClusterState,
    /// Tasks that were placed, each with its record before the commit.
    pub(crate) placed: Vec<TaskRecord>,
    /// Outcomes by job, in the order of evaluation.
    pub(crate) jobs: Vec<JobCommitOutcome>,
}

/// Strictness of a commit's checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CommitChecks {
    /// All documented checks.
    #[default]
    All,
    /// Only the checks that keep accounts consistent. Tests use this to prove that they notice what the other checks
    /// prevent.
    #[cfg(any(test, feature = "test-doors"))]
    Off,
}

type MeasuredReason = (Reason, Vec<Measurement>);

/// Evaluates jobs in order. Each evaluation includes the placements that were accepted before.
pub(crate) fn judge_commit(
    cluster_state: &ClusterState,
    policy: &PolicyInForce,
    plugin_states: PluginStates,
    jobs: &[&ProposedJob],
    (scope, checks): (&CommitScope, CommitChecks),
) -> JudgedCommit {
    let mut judge = CommitJudge {
        base: cluster_state,
        policy: &policy.policy,
        scope,
        checks,
        job_names: jobs.iter().map(|job| &*job.job).collect(),
        ready_counts: None,
        tentative: TentativeState {
            cluster_state: cluster_state.clone(),
            plugin_states,
            placed: Vec::new(),
        },
    };
    let jobs = jobs.iter().map(|job| judge.judge_job(job)).collect();
    let TentativeState {
        cluster_state, placed, ..
    } = judge.tentative;
    JudgedCommit {
        cluster_state,
        placed,
        jobs,
    }
}

/// State with the placements accepted so far.
struct TentativeState {
    cluster_state: ClusterState,
    plugin_states: PluginStates,
    placed: Vec<TaskRecord>,
}

/// Accepted part of a commit. After a rejected job the evaluation returns to this part. A copy of the whole cluster
/// state would force each job to copy the chunks that it changes.
struct JudgedPart {
    /// Number of tasks placed.
    placed: usize,
    plugin_states: PluginStates,
}

impl TentativeState {
    /// Takes back all placements since then.
    fn return_to(&mut self, before: JudgedPart) {
        for record in self.placed.drain(before.placed..).rev() {
            restore_task(record, &mut self.cluster_state);
        }
        self.plugin_states = before.plugin_states;
    }
}

struct CommitJudge<'a> {
    base: &'a ClusterState,
    policy: &'a Policy,
    scope: &'a CommitScope,
    checks: CommitChecks,
    job_names: BTreeSet<&'a str>,
    /// Number of tasks with a node before the commit, by job. Computed on first use.
    ready_counts: Option<BTreeMap<&'a str, usize>>,
    tentative: TentativeState,
}

impl CommitJudge<'_> {
    fn judge_job(&mut self, wanted: &ProposedJob) -> JobCommitOutcome {
        let ProposedJob { job, placements, .. } = wanted;
        let nothing = |conflicts| JobCommitOutcome {
            job: Arc::clone(job),
            committed: false,
            rejections: conflicts,
        };
        if placements.is_empty() {
            let why = commit_reason(
                RejectionCode::NothingPlaced,
                format!("the session places no task of job `{job}`"),
            );
            return nothing(vec![commit_rejection(None, why)]);
        }
        if let Some(why) = self.run_check(|judge| judge.job_gone(wanted)) {
            let all = placements.iter();
            return nothing(
                all.map(|one| commit_rejection(Some(&one.placement), why.clone()))
                    .collect(),
            );
        }
        let before = JudgedPart {
            placed: self.tentative.placed.len(),
            plugin_states: self.tentative.plugin_states.clone(),
        };
        let rejection: Vec<Option<MeasuredReason>> = placements
            .iter()
            .map(|one| self.judge_placement(job, one).err())
            .collect();
        let placed = rejection.iter().filter(|why| why.is_none()).count();
        if *self.scope == CommitScope::Calls && placed < placements.len() {
            self.tentative.return_to(before);
            let all = placements.iter().zip(rejection);
            return nothing(
                all.filter_map(|(one, why)| Some(commit_rejection(Some(&one.placement), why?)))
                    .collect(),
            );
        }
        let short = self.run_check(|judge| judge.check_gang(job, placed));
        if short.is_some() {
            self.tentative.return_to(before);
        }
        let conflicts: Vec<CommitRejection> = placements
            .iter()
            .zip(rejection)
            .filter_map(|(one, why)| Some(commit_rejection(Some(&one.placement), why.or_else(|| short.clone())?)))
            .collect();
        JobCommitOutcome {
            job: Arc::clone(job),
            committed: short.is_none() && placed > 0,
            rejections: conflicts,
        }
    }

    fn run_check(&mut self, check: impl FnOnce(&mut Self) -> Option<MeasuredReason>) -> Option<MeasuredReason> {
        match self.checks {
            CommitChecks::All => check(self),
            #[cfg(any(test, feature = "test-doors"))]
            CommitChecks::Off => None,
        }
    }

    /// Reason why nothing of a job can hold, if there is one.
    fn job_gone(&self, wanted: &ProposedJob) -> Option<MeasuredReason> {
        let uid = wanted.uid.as_ref()?;
        let job = &wanted.job;
        let Some(stored) = self.tentative.cluster_state.jobs().get(job) else {
            return Some(commit_reason(
                RejectionCode::JobGone,
                format!("job `{job}` no longer exists"),
            ));
        };
        (!same(uid, &stored.record.uid)).then(|| {
            let message = format!("job `{job}` is now another incarnation, `{}`", stored.record.uid);
            commit_reason(RejectionCode::JobReplaced, message)
        })
    }

    /// Places one task, if the placement still holds.
    fn judge_placement(&mut self, job: &str, wanted: &ProposedPlacement) -> Result<(), MeasuredReason> {
        let TaskPlacement {
            task,
            node,
            card,
            devices,
        } = &wanted.placement;
        let Some(stored) = self.tentative.cluster_state.tasks().get(task) else {
            return Err(commit_reason(
                RejectionCode::TaskGone,
                format!("task `{task}` no longer exists"),
            ));
        };
        let record = Arc::new(stored.record.clone());
        if !wanted.uid.may_equal(&record.uid) || *record.job != *job {
            let message = format!(
                "task `{task}` is now another one, `{}` of job `{}`",
                record.uid, record.job
            );
            return Err(commit_reason(RejectionCode::TaskReplaced, message));
        }
        if record.status != TaskStatus::Pending {
            let assumed = if self.tentative.cluster_state.is_assumed(task) {
                ", by another commit"
            } else {
                ""
            };
            let message = format!(
                "task `{task}` is {:?} on node `{}`{assumed}",
                record.status, record.node
            );
            return Err(commit_reason(RejectionCode::TaskNotPending, message));
        }
        let mut card = Arc::clone(card);
        if self.checks == CommitChecks::All {
            // The task is judged as one that names its card, so that free cards elsewhere do not choose another card
            // for its job.
            let mut asked = Arc::clone(&record);
            if asked.card != card {
                Arc::make_mut(&mut asked).card = Arc::clone(&card);
            }
            if asked.device_request().is_some() {
                Arc::make_mut(&mut asked).assign_devices(*devices);
                self.check_devices(&asked, node)?;
            }
            self.check_node(&asked, node, &wanted.node_uid)?;
            card = self.admitted_card(&asked, node, &card)?;
        }
        self.apply_placement(&record, node, &card, *devices)
    }

    /// Checks that the named devices exist and have enough free capacity, independently of the policy.
    fn check_devices(&self, task: &TaskRecord, node: &str) -> Result<(), MeasuredReason> {
        let named = task.assigned_devices();
        let entry = self.tentative.cluster_state.node_by_name(node);
        let Some((request, entry)) = task.device_request().zip(entry).filter(|_| named != 0) else {
            return Ok(());
        };
        let milli = request.milli_of(entry.record.devices().map_or(0, |devices| devices.memory_mib));
        let free = entry.free_devices(false);
        let left = |device: u32| free.get(device as usize).copied().unwrap_or(0);
        if let Some(taken) = device_indices(named).find(|device| left(*device) < milli) {
            let message = format!(
                "device {taken} of node `{node}` has {} thousandths left, and task `{}` takes {milli}",
                left(taken),
                task.name
            );
            return Err(commit_reason(RejectionCode::DeviceTaken, message));
        }
        if named.count_ones() != request.count {
            let message = format!(
                "the placement names {} devices, and task `{}` asks for {}",
                named.count_ones(),
                task.name,
                request.count
            );
            return Err(commit_reason(RejectionCode::DeviceCount, message));
        }
        Ok(())
    }

    /// Checks that the node is still the same, that it has free capacity, and that the policy's filters pass it.
    fn check_node(&self, task: &Arc<TaskRecord>, node: &str, uid: &str) -> Result<(), MeasuredReason> {
        let cluster_state = &self.tentative.cluster_state;
        let (Some(slot), Some(entry)) = (cluster_state.slot_of(node), cluster_state.node_by_name(node)) else {
            return Err(commit_reason(
                RejectionCode::NodeGone,
                format!("node `{node}` no longer exists"),
            ));
        };
        if !same(uid, &entry.record.uid) {
            let message = format!("node `{node}` is now another incarnation, `{}`", entry.record.uid);
            return Err(commit_reason(RejectionCode::NodeReplaced, message));
        }
        let query = NodeQuery {
            now: None,
            tasks: vec![Ok(QueryTask {
                task: Arc::clone(task),
                warnings: Vec::new(),
            })],
            resources: Arc::clone(cluster_state.resources()),
            candidates: Some(vec![slot]),
            plugins: Vec::new(),
            resource_fit: match self.scope {
                CommitScope::Session { .. } | CommitScope::Calls => ResourceFit::Idle,
                CommitScope::Hold { .. } => ResourceFit::None,
            },
            samples: 1,
            detail: FilterDetail::Samples,
        };
        let items = decide::filter_with(
            self.plugin_context(),
            self.policy,
            &query,
            decide::Parallelism::SEQUENTIAL,
        );
        let items = items.map_err(|problem| unjudged_reason(&problem))?.unwrap_or_default();
        let Some(item) = items.into_iter().next() else {
            return Ok(());
        };
        let answered = item.map_err(|problem| unjudged_reason(&problem))?;
        match answered.result.rejections.first() {
            None => Ok(()),
            Some(rejection) => {
                let measurements = rejection.samples.first().map(|(_, measurements)| measurements.clone());
                Err((rejection.reason.clone(), measurements.unwrap_or_default()))
            }
        }
    }

    /// Context of all checks. A commit gives no time: it applies what was decided at one.
    fn plugin_context(&self) -> PluginContext<'_> {
        PluginContext::new(&self.tentative.cluster_state, &self.tentative.plugin_states, None)
    }

    /// Card that the task uses on the node, if the policy admits the task: the named card, or the policy's choice on
    /// the node.
    fn admitted_card(&self, task: &TaskRecord, node: &str, card: &Arc<str>) -> Result<Arc<str>, MeasuredReason> {
        let cluster_state = &self.tentative.cluster_state;
        let context = self.plugin_context();
        let asks = self.policy.has_allocators();
        let queue = cluster_state.jobs().get(&task.job).map(|job| &job.record.queue);
        if !asks && !queue.is_some_and(|queue| cluster_state.queues().contains(queue)) {
            return Ok(Arc::clone(card));
        }
        if matches!(self.scope, CommitScope::Hold { .. }) && task.job.is_empty() {
            // It belongs to no queue, so that no quota is about it.
            return Ok(Arc::clone(card));
        }
        let admission = decide::admit_task(context, self.policy, task).map_err(|problem| unjudged_reason(&problem))?;
        if !admission.permitted {
            let rejection = || {
                commit_reason(
                    RejectionCode::NotAdmitted,
                    format!("the policy does not admit task `{}`", task.name),
                )
            };
            return Err(admission.reasons.into_iter().next().unwrap_or_else(rejection));
        }
        let mut cards: Vec<Arc<str>> = admission.cards.into_iter().map(|(card, _)| card).collect();
        if !card.is_empty() {
            if cards.is_empty() {
                return Ok(Arc::clone(card));
            }
            cards.retain(|admitted| admitted == card);
            if cards.is_empty() {
                let message = format!("the queue of task `{}` no longer admits it to card `{card}`", task.name);
                return Err(commit_reason(RejectionCode::CardNotAdmitted, message));
            }
        }
        let first = self.policy.card_on_node(context, task, node, &cards);
        if first.is_none() && !cards.is_empty() {
            // Without this check any other card of the node would be counted.
            let message = format!(
                "node `{node}` has none of the cards that task `{}` may use: {}",
                task.name,
                cards.join(", ")
            );
            return Err(commit_reason(RejectionCode::CardNotAdmitted, message));
        }
        Ok(first.unwrap_or_default())
    }

    /// Charges the task to the node where it was placed.
    fn apply_placement(
        &mut self,
        before: &TaskRecord,
        node: &Arc<str>,
        card: &Arc<str>,
        devices: DeviceMask,
    ) -> Result<(), MeasuredReason> {
        let TentativeState {
            cluster_state,
            plugin_states,
            placed,
        } = &mut self.tentative;
        let put = (before, node, card, devices);
        count_placement(cluster_state, plugin_states, put).map_err(|problem| unjudged_reason(&problem))?;
        placed.push(before.clone());
        Ok(())
    }

    /// Reason why a job with `placed` more tasks would be an incomplete gang, if it would be.
    fn check_gang(&mut self, job: &str, placed: usize) -> Option<MeasuredReason> {
        if matches!(self.scope, CommitScope::Hold { .. }) {
            return None;
        }
        let stored = self.base.jobs().get(job)?;
        let least = usize::try_from(stored.record.min_member).unwrap_or(0);
        // Tasks that hold resources are counted at hand, with those placed; only others have to be looked for.
        let tentative = &self.tentative.cluster_state;
        let holding = tentative.job_allocated(job).map_or(0, ResourceTotals::records);
        if placed.max(holding as usize) >= least {
            return None;
        }
        let ready = self.ready_count(job) + placed;
        if ready >= least {
            return None;
        }
        let message = format!("{ready} of the tasks of job `{job}` would have their place, it needs {least}");
        let measurement = |name: &str, value: usize| Measurement {
            name: name.to_owned(),
            value: value as f64,
            unit: "",
        };
        let (reason, _) = commit_reason(RejectionCode::GangIncomplete, message);
        Some((
            reason,
            vec![measurement("ready", ready), measurement("min member", least)],
        ))
    }

    fn ready_count(&mut self, job: &str) -> usize {
        let (opened, names) = (self.base, &self.job_names);
        let ready = self.ready_counts.get_or_insert_with(|| {
            let mut ready = BTreeMap::new();
            for (_, stored) in opened.tasks().iter().filter(|(_, stored)| is_ready(&stored.record)) {
                if let Some(name) = names.get(&*stored.record.job) {
                    *ready.entry(*name).or_default() += 1;
                }
            }
            ready
        });
        ready.get(job).copied().unwrap_or(0)
    }
}

/// True if a gang need no longer wait for the task.
fn is_ready(task: &TaskRecord) -> bool {
    task.status.is_allocated() || task.status == TaskStatus::Succeeded
}

fn commit_rejection(placement: Option<&TaskPlacement>, (reason, measurements): MeasuredReason) -> CommitRejection {
    CommitRejection {
        placement: placement.cloned(),
        reason,
        measurements,
    }
}

fn commit_reason(code: RejectionCode, message: String) -> MeasuredReason {
    measured_reason(code.name(), message)
}

/// Rejection of a placement that cannot be evaluated.
fn unjudged_reason(problem: &Problem) -> MeasuredReason {
    measured_reason(problem.code.name(), problem.message.clone())
}

fn measured_reason(code: &'static str, message: String) -> MeasuredReason {
    let reason = Reason {
        plugin: Arc::from(COMMIT_PLUGIN),
        code,
        message,
        resolution: Resolution::Unresolvable,
        resource: Arc::default(),
    };
    (reason, Vec::new())
}
