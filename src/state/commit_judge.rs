//! What of a session's placements still holds: judged job by job, in order, against the newest state and policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::cycle::TaskPlacement;
use crate::engine::decide::{self, FilterDetail, NodeQuery, QueryTask, ResourceFit};
use crate::engine::model::reservation::same_incarnation as same;
use crate::engine::model::{ClusterState, Problem, RecordKind, TaskRecord, TaskStatus, Uid};
use crate::engine::plugin::{Measurement, PrepareContext, Reason, Resolution};
use crate::engine::plugin_state::{PlacementEvent, PluginStates, TaskTransition};
use crate::engine::policy::Policy;
use crate::engine::{PolicyInForce, Revision};
use crate::store::Durability;

/// Stands for a plugin in reasons that the commit itself gives.
pub const COMMIT_PLUGIN: &str = "commit";

/// What became of a commit.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitOutcome {
    /// From here on the placements are visible.
    pub revision: Revision,
    /// Name, version and hash of the policy that judged.
    pub policy: (Arc<str>, u64, Arc<str>),
    /// Number of the session's last change.
    pub applied_through: u64,
    /// Where the placements are kept.
    pub durability: Durability,
    /// In the order judged.
    pub jobs: Vec<JobCommitOutcome>,
    /// Tasks whose assumption ended, by name.
    pub released: Vec<Arc<str>>,
    /// Tasks that the session evicted, by name: not committed.
    pub evicted: Vec<Arc<str>>,
    /// Tasks that the session pipelined, by name: not committed.
    pub pipelined: Vec<Arc<str>>,
}

impl CommitOutcome {
    /// Jobs, tasks and conflicts in it.
    pub(super) fn item_count(&self) -> usize {
        let conflicts: usize = self.jobs.iter().map(|job| job.rejections.len()).sum();
        self.jobs.len() + conflicts + self.released.len() + self.evicted.len() + self.pipelined.len()
    }
}

/// What became of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobCommitOutcome {
    /// The job; empty: tasks without one.
    pub job: Arc<str>,
    /// Something of it was committed.
    pub committed: bool,
    /// What was not.
    pub rejections: Vec<CommitRejection>,
}

/// A placement that was not committed.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitRejection {
    /// The placement; `None`: the job was named and has none.
    pub placement: Option<TaskPlacement>,
    /// Why.
    pub reason: Reason,
    /// The figures of the reason.
    pub measurements: Vec<Measurement>,
}

/// A placement as the session made it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProposedPlacement {
    pub(super) placement: TaskPlacement,
    /// Incarnation of the task in the session; empty: not said.
    pub(super) uid: Uid,
    /// Incarnation of the node, likewise.
    pub(super) node_uid: Arc<str>,
}

/// The placements of one job, in the order in which the session made them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ProposedJob {
    pub(super) job: Arc<str>,
    /// Its incarnation in the session; `None`: the session knew no such job.
    pub(super) uid: Option<Arc<str>>,
    pub(super) placements: Vec<ProposedPlacement>,
}

/// What a commit would make of the state.
#[derive(Debug)]
pub(super) struct JudgedCommit {
    /// The state with what holds.
    pub(super) cluster_state: ClusterState,
    /// What was placed, with the task's record before.
    pub(super) placed: Vec<TaskRecord>,
    /// In the order judged.
    pub(super) jobs: Vec<JobCommitOutcome>,
}

/// How strictly a commit judges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CommitChecks {
    /// As documented.
    #[default]
    All,
    /// Only what keeps the books whole: shows that tests see what the checks prevent.
    #[cfg(debug_assertions)]
    Off,
}

type MeasuredReason = (Reason, Vec<Measurement>);

/// Judges jobs in order; each sees what was committed before it.
pub(super) fn judge_commit(
    cluster_state: &ClusterState,
    policy: &PolicyInForce,
    derived: PluginStates,
    jobs: &[ProposedJob],
    checks: CommitChecks,
) -> JudgedCommit {
    let mut judge = CommitJudge {
        base: cluster_state,
        policy: &policy.policy,
        checks,
        job_names: jobs.iter().map(|job| &*job.job).collect(),
        ready_counts: None,
        tentative: TentativeState {
            cluster_state: cluster_state.clone(),
            plugin_states: derived,
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

/// The state as it would be.
#[derive(Clone)]
struct TentativeState {
    cluster_state: ClusterState,
    plugin_states: PluginStates,
    placed: Vec<TaskRecord>,
}

struct CommitJudge<'a> {
    base: &'a ClusterState,
    policy: &'a Policy,
    checks: CommitChecks,
    job_names: BTreeSet<&'a str>,
    /// Tasks that have their place before the commit, by job; counted when first needed.
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
            let why = commit_reason("NothingPlaced", format!("the session places no task of job `{job}`"));
            return nothing(vec![commit_rejection(None, why)]);
        }
        if let Some(why) = self.run_check(|judge| judge.job_gone(wanted)) {
            let all = placements.iter();
            return nothing(
                all.map(|one| commit_rejection(Some(&one.placement), why.clone()))
                    .collect(),
            );
        }
        let before = self.tentative.clone();
        let refused: Vec<Option<MeasuredReason>> = placements
            .iter()
            .map(|one| self.judge_placement(job, one).err())
            .collect();
        let placed = refused.iter().filter(|why| why.is_none()).count();
        let short = self.run_check(|judge| judge.check_gang(job, placed));
        if short.is_some() {
            self.tentative = before;
        }
        let conflicts: Vec<CommitRejection> = placements
            .iter()
            .zip(refused)
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
            #[cfg(debug_assertions)]
            CommitChecks::Off => None,
        }
    }

    /// Why nothing of a job can hold, if so.
    fn job_gone(&self, wanted: &ProposedJob) -> Option<MeasuredReason> {
        let uid = wanted.uid.as_ref()?;
        let job = &wanted.job;
        let Some(stored) = self.tentative.cluster_state.jobs().get(job) else {
            return Some(commit_reason("JobGone", format!("job `{job}` is gone")));
        };
        (!same(uid, &stored.record.uid)).then(|| {
            let message = format!("job `{job}` is now another incarnation, `{}`", stored.record.uid);
            commit_reason("JobReplaced", message)
        })
    }

    /// Places one task, if that still holds.
    fn judge_placement(&mut self, job: &str, wanted: &ProposedPlacement) -> Result<(), MeasuredReason> {
        let TaskPlacement { task, node, card } = &wanted.placement;
        let Some(stored) = self.tentative.cluster_state.tasks().get(task) else {
            return Err(commit_reason("TaskGone", format!("task `{task}` is gone")));
        };
        let record = Arc::new(stored.record.clone());
        if !wanted.uid.may_equal(&record.uid) || *record.job != *job {
            let message = format!(
                "task `{task}` is now another one, `{}` of job `{}`",
                record.uid, record.job
            );
            return Err(commit_reason("TaskReplaced", message));
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
            return Err(commit_reason("TaskNotPending", message));
        }
        let mut card = Arc::clone(card);
        if self.checks == CommitChecks::All {
            // Judged as one that names its card: what came free elsewhere meanwhile chooses no other for its job.
            let mut asked = Arc::clone(&record);
            if asked.card != card {
                Arc::make_mut(&mut asked).card = Arc::clone(&card);
            }
            self.check_node(&asked, node, &wanted.node_uid)?;
            card = self.admitted_card(&asked, node, &card)?;
        }
        self.apply_placement(&record, node, &card)
    }

    /// The node is the same, and has room; the policy's filters pass it.
    fn check_node(&self, task: &Arc<TaskRecord>, node: &str, uid: &str) -> Result<(), MeasuredReason> {
        let cluster_state = &self.tentative.cluster_state;
        let (Some(slot), Some(entry)) = (cluster_state.slot_of(node), cluster_state.node_by_name(node)) else {
            return Err(commit_reason("NodeGone", format!("node `{node}` is gone")));
        };
        if !same(uid, &entry.record.uid) {
            let message = format!("node `{node}` is now another incarnation, `{}`", entry.record.uid);
            return Err(commit_reason("NodeReplaced", message));
        }
        let query = NodeQuery {
            tasks: vec![Ok(QueryTask {
                task: Arc::clone(task),
                warnings: Vec::new(),
            })],
            resources: Arc::clone(cluster_state.resources()),
            candidates: Some(vec![slot]),
            plugins: Vec::new(),
            resource_fit: ResourceFit::Idle,
            samples: 1,
            detail: FilterDetail::Samples,
        };
        let facts = PrepareContext {
            state: cluster_state,
            plugin_states: &self.tentative.plugin_states,
        };
        let items = decide::filter_with(facts, self.policy, &query, decide::Parallelism::SEQUENTIAL);
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

    /// The policy admits the task, and to this card if one was said; else the card that it uses there.
    fn admitted_card(&self, task: &TaskRecord, node: &str, card: &Arc<str>) -> Result<Arc<str>, MeasuredReason> {
        let cluster_state = &self.tentative.cluster_state;
        let asks = self.policy.allocators().iter().any(|tier| !tier.is_empty());
        let queue = cluster_state.jobs().get(&task.job).map(|job| &job.record.queue);
        if !asks && !queue.is_some_and(|queue| cluster_state.queues().contains(queue)) {
            return Ok(Arc::clone(card));
        }
        let admission = decide::admit_task(cluster_state, self.policy, &self.tentative.plugin_states, task)
            .map_err(|problem| unjudged_reason(&problem))?;
        if !admission.permitted {
            let refused = || commit_reason("NotAdmitted", format!("the policy does not admit task `{}`", task.name));
            return Err(admission.reasons.into_iter().next().unwrap_or_else(refused));
        }
        let mut cards: Vec<Arc<str>> = admission.cards.into_iter().map(|(card, _)| card).collect();
        if !card.is_empty() {
            if cards.is_empty() {
                return Ok(Arc::clone(card));
            }
            cards.retain(|admitted| admitted == card);
            if cards.is_empty() {
                let message = format!("the queue of task `{}` no longer admits it to card `{card}`", task.name);
                return Err(commit_reason("CardNotAdmitted", message));
            }
        }
        let mut plugins = self.policy.allocators().iter().flatten();
        let first = plugins.find_map(|hook| {
            hook.plugin
                .card_on_node(&self.tentative.plugin_states, task, node, &cards)
        });
        if first.is_none() && !cards.is_empty() {
            // Whatever card the node has would be counted in its place.
            let message = format!(
                "node `{node}` has none of the cards that task `{}` may use: {}",
                task.name,
                cards.join(", ")
            );
            return Err(commit_reason("CardNotAdmitted", message));
        }
        Ok(first.unwrap_or_default())
    }

    /// Counts the task where it was placed.
    fn apply_placement(&mut self, before: &TaskRecord, node: &Arc<str>, card: &Arc<str>) -> Result<(), MeasuredReason> {
        let TentativeState {
            cluster_state,
            plugin_states: derived,
            placed,
        } = &mut self.tentative;
        let opened = cluster_state.tasks().get(&before.name).cloned();
        cluster_state.assume(&before.name, node, card);
        if let (Some(stored), Some(opened)) = (cluster_state.tasks().get(&before.name).cloned(), opened) {
            let moved = TaskTransition {
                before,
                after: &stored.record,
                card,
            };
            let mut next = derived.clone();
            if let Err(problem) = next.apply(cluster_state, &PlacementEvent::Allocate(moved)) {
                cluster_state.put_task(before.clone(), &opened.source);
                cluster_state.set_invalid(RecordKind::Task, &before.name, opened.invalid().cloned());
                return Err(unjudged_reason(&problem));
            }
            *derived = next;
        }
        placed.push(before.clone());
        Ok(())
    }

    /// Why a job that got so many more tasks placed would be split, if it would.
    fn check_gang(&mut self, job: &str, placed: usize) -> Option<MeasuredReason> {
        let stored = self.base.jobs().get(job)?;
        let least = usize::try_from(stored.record.min_member).unwrap_or(0);
        if placed >= least {
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
        let (reason, _) = commit_reason("GangIncomplete", message);
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

/// A task that a gang need not wait for any more.
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

fn commit_reason(code: &'static str, message: String) -> MeasuredReason {
    let reason = Reason {
        plugin: Arc::from(COMMIT_PLUGIN),
        code,
        message,
        resolution: Resolution::Unresolvable,
        resource: Arc::default(),
    };
    (reason, Vec::new())
}

/// Something cannot be judged, and so it is refused.
fn unjudged_reason(problem: &Problem) -> MeasuredReason {
    commit_reason(problem.reason, problem.message.clone())
}
