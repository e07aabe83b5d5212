//! Admit: whether a job may be enqueued, or a task allocated.

use std::sync::Arc;

use smallvec::SmallVec;

use super::plugin_selection::named_plugins;
use super::reduce_order::permits;
use crate::model::{ClusterState, ErrorCode, JobRecord, NamedAmounts, Problem, QueueState, TaskRecord};
use crate::plugin::{AdmitOpinion, DecisionTime, Measurement, Plugin, PluginContext, QuotaPlugin, Reason, Resolution};
use crate::plugin_state::PluginStates;
use crate::policy::{Compatibility, Policy, PolicyHook};

/// Subject of admission.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmitSubject {
    /// Job that is to be enqueued.
    Job(Arc<JobRecord>),
    /// Task that is to be allocated.
    Task(Arc<TaskRecord>),
}

/// Query of Admit: jobs and tasks to evaluate, in order.
#[derive(Clone, Debug)]
pub struct AdmitQuery {
    /// Time of the decision, for plugins that compare with it; `None`: the caller gave none.
    pub now: Option<DecisionTime>,
    /// Subjects in order. Each verdict includes the earlier permits. An unreadable item is replaced by its problem.
    pub items: Vec<Result<AdmitSubject, Problem>>,
    /// Plugins to evaluate, each by itself. Empty: the tiers of the policy.
    pub plugins: Vec<Arc<str>>,
}

/// Verdict on a job or a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmitVerdict {
    /// True if the subject is admitted.
    pub permitted: bool,
    /// Reasons against it, with measurements, in the order plugin, code, resource.
    pub reasons: Vec<(Reason, Vec<Measurement>)>,
    /// Vote of each named plugin: 1, 0 or −1.
    pub votes: Vec<(Arc<str>, i64)>,
    /// Cards that a task may use, best first, each with the number of such tasks that the queue still admits on it.
    pub cards: Vec<(Arc<str>, u64)>,
    /// Number of equal tasks that the queue still admits, for example 3 if 6 GPUs are left and each task requests 2.
    /// `None`: unlimited, or a job.
    pub headroom: Option<u64>,
    /// Amounts to reserve for a permitted job, by name.
    pub reserve: NamedAmounts,
}

/// Name in place of a plugin in reasons about the queue.
const QUEUE_STATE: &str = "queue-state";
/// Code: the queue's newest record was rejected.
const QUEUE_INVALID: &str = "QueueInvalid";
/// Code of a queue that is closed, closing or in Volcano's state Unknown.
const QUEUE_NOT_OPEN: &str = "QueueNotOpen";

/// Evaluates jobs and tasks. The needs of permitted jobs are reserved in `derived`. A caller that only checks discards
/// `derived`.
///
/// A vote against a job rejects the job. A tier with a vote for the job permits it; later tiers are not evaluated. A
/// job without votes is permitted. A task must pass every plugin. With `plugins` the verdict lists the vote of each
/// named plugin and depends on all of them.
///
/// # Errors
/// `plugins` names a plugin that the policy does not have or that this server does not implement. Nothing was
/// evaluated.
pub fn admit(
    cluster_state: &ClusterState,
    policy: &Policy,
    plugin_states: &mut PluginStates,
    query: &AdmitQuery,
) -> Result<Vec<Result<AdmitVerdict, Problem>>, Problem> {
    let plugins = AdmitPlugins::of(policy, &query.plugins)?;
    for quota in &plugins.quotas {
        quota.release_tentative(plugin_states)?;
    }
    let judge = |item: &Result<AdmitSubject, Problem>| match item {
        Err(problem) => Err(problem.clone()),
        Ok(AdmitSubject::Job(job)) => plugins.judge_job(cluster_state, query.now, plugin_states, job, true),
        Ok(AdmitSubject::Task(task)) => {
            let context = PluginContext::new(cluster_state, plugin_states, query.now);
            plugins.judge_task(context, task)
        }
    };
    Ok(query.items.iter().map(judge).collect())
}

/// Evaluation of jobs for a ledger that stores the permits itself.
#[derive(Debug)]
pub struct JobAdmitter<'p>(AdmitPlugins<'p>);

impl<'p> JobAdmitter<'p> {
    /// Evaluation with the policy's tiers, or with the named plugins, each by itself.
    ///
    /// # Errors
    /// `plugins` names a plugin that the policy does not have or that is not served here.
    pub fn new(policy: &'p Policy, plugins: &[Arc<str>]) -> Result<Self, Problem> {
        AdmitPlugins::of(policy, plugins).map(Self)
    }

    /// Evaluates one job and reserves nothing. The verdict has the amounts to reserve.
    ///
    /// # Errors
    /// The job cannot be evaluated.
    pub fn judge(
        &self,
        cluster_state: &ClusterState,
        plugin_states: &mut PluginStates,
        now: Option<DecisionTime>,
        job: &JobRecord,
    ) -> Result<AdmitVerdict, Problem> {
        // Nobody can be promised less than nothing, whatever the compatibility.
        refuse_negative(cluster_state, job)?;
        self.0.judge_job(cluster_state, now, plugin_states, job, false)
    }
}

/// Evaluates one task with the policy's tiers.
///
/// # Errors
/// The task cannot be evaluated.
pub fn admit_task(context: PluginContext<'_>, policy: &Policy, task: &TaskRecord) -> Result<AdmitVerdict, Problem> {
    AdmitPlugins {
        policy,
        named: None,
        quotas: SmallVec::new(),
    }
    .judge_task(context, task)
}

/// Named plugin, and its hook if it has one.
type AdmitPlugin<'p> = (&'p Arc<str>, Option<&'p Arc<dyn Plugin>>);

/// Plugins that an Admit asks.
#[derive(Debug)]
struct AdmitPlugins<'p> {
    policy: &'p Policy,
    /// Plugins that vote by themselves; `None`: the tiers of the policy vote.
    named: Option<Vec<AdmitPlugin<'p>>>,
    /// Quotas among the plugins, each once. They are found once, not for each job.
    quotas: SmallVec<[&'p dyn QuotaPlugin; 4]>,
}

impl<'p> AdmitPlugins<'p> {
    fn of(policy: &'p Policy, plugins: &[Arc<str>]) -> Result<Self, Problem> {
        if plugins.is_empty() {
            return Ok(Self::of_tiers(policy));
        }
        let each = named_plugins(policy, plugins)?.into_iter();
        let each: Vec<AdmitPlugin<'p>> = each.map(|plugin| (&plugin.name, plugin.admit.as_ref())).collect();
        let quotas = each.iter().filter_map(|(_, plugin)| plugin.and_then(|own| own.quota()));
        Ok(Self {
            policy,
            quotas: quotas.collect(),
            named: Some(each),
        })
    }

    fn of_tiers(policy: &'p Policy) -> Self {
        let hooks = policy.hooks();
        let hooks = hooks.enqueuers.iter().chain(&hooks.allocators).flatten();
        let mut distinct: SmallVec<[&PolicyHook; 4]> = SmallVec::new();
        for hook in hooks.filter(|hook| hook.plugin.quota().is_some()) {
            if distinct.iter().all(|known| known.name != hook.name) {
                distinct.push(hook);
            }
        }
        Self {
            policy,
            named: None,
            quotas: distinct.into_iter().filter_map(|hook| hook.plugin.quota()).collect(),
        }
    }

    fn judge_job(
        &self,
        cluster_state: &ClusterState,
        now: Option<DecisionTime>,
        plugin_states: &mut PluginStates,
        job: &JobRecord,
        keep: bool,
    ) -> Result<AdmitVerdict, Problem> {
        let mut admission = AdmitVerdict::default();
        let rules = self.policy.compatibility().release().rules();
        if self.policy.compatibility() == Compatibility::Corrected {
            refuse_negative(cluster_state, job)?;
        }
        reject_unavailable_queue(cluster_state, &job.queue, self.policy.compatibility(), &mut admission)?;
        let closed = !admission.reasons.is_empty();
        let mut ask = |plugin: &Arc<dyn Plugin>, admission: &mut AdmitVerdict| {
            let opinion = match plugin.quota() {
                Some(quota) if keep && !closed => quota.permit_job(plugin_states, cluster_state, now, job)?,
                _ => plugin.admit_job(PluginContext::new(cluster_state, plugin_states, now), job)?,
            };
            Ok::<i64, Problem>(merge_opinion(opinion, admission))
        };
        let permitted = match &self.named {
            None => {
                let mut permitted = true;
                for tier in &self.policy.hooks().enqueuers {
                    let mut votes: SmallVec<[i64; 4]> = SmallVec::new();
                    for hook in tier {
                        votes.push(ask(&hook.plugin, &mut admission)?);
                        // Where votes reserve, it matters that nobody is asked after a refusal.
                        if votes.last() == Some(&-1) && !rules.reserves_after_votes {
                            break;
                        }
                    }
                    permitted = permits([votes.iter().copied()]);
                    if !permitted || votes.contains(&1) {
                        break;
                    }
                }
                permitted
            }
            Some(each) => vote_named(each, &mut admission, &mut ask)?,
        };
        if keep && permitted && !closed {
            for quota in &self.quotas {
                quota.enqueue_job(plugin_states, cluster_state, job)?;
            }
        }
        Ok(finish_verdict(admission, permitted && !closed))
    }

    fn judge_task(&self, context: PluginContext<'_>, task: &TaskRecord) -> Result<AdmitVerdict, Problem> {
        let cluster_state = context.cluster_state;
        let Some(job) = cluster_state.jobs().get(&task.job) else {
            let message = format!("task `{}` has no job that is there: `{}`", task.name, task.job);
            return Err(Problem::new(ErrorCode::JobUnknown, "job", message));
        };
        let queue = &job.record.queue;
        let mut admission = AdmitVerdict::default();
        reject_unavailable_queue(cluster_state, queue, self.policy.compatibility(), &mut admission)?;
        let closed = !admission.reasons.is_empty();
        let mut ask = |plugin: &Arc<dyn Plugin>, admission: &mut AdmitVerdict| {
            let opinion = plugin.admit_task(context, queue, task)?;
            Ok::<i64, Problem>(merge_opinion(opinion, admission))
        };
        let permitted = match &self.named {
            None => {
                let mut permitted = true;
                for hook in self.policy.hooks().allocators.iter().flatten() {
                    permitted &= ask(&hook.plugin, &mut admission)? >= 0;
                }
                permitted
            }
            Some(each) => vote_named(each, &mut admission, &mut ask)?,
        };
        Ok(finish_verdict(admission, permitted && !closed))
    }
}

type AdmitCallback<'a> = dyn FnMut(&Arc<dyn Plugin>, &mut AdmitVerdict) -> Result<i64, Problem> + 'a;

fn vote_named(
    each: &[AdmitPlugin<'_>],
    admission: &mut AdmitVerdict,
    ask: &mut AdmitCallback<'_>,
) -> Result<bool, Problem> {
    let mut permitted = true;
    for (name, plugin) in each {
        let vote = plugin.map_or(Ok(0), |plugin| ask(plugin, admission))?;
        permitted &= vote >= 0;
        admission.votes.push((Arc::clone(name), vote));
    }
    Ok(permitted)
}

/// Merges an opinion into the verdict and returns its vote.
fn merge_opinion(opinion: Option<AdmitOpinion>, admission: &mut AdmitVerdict) -> i64 {
    let Some(opinion) = opinion else { return 0 };
    let vote = if opinion.reasons.is_empty() { 1 } else { -1 };
    admission.reasons.extend(opinion.reasons);
    admission.cards.extend(opinion.cards);
    if !opinion.reserve.is_empty() {
        admission.reserve = opinion.reserve;
    }
    admission.headroom = match (admission.headroom, opinion.headroom) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    vote
}

fn finish_verdict(mut admission: AdmitVerdict, permitted: bool) -> AdmitVerdict {
    admission.permitted = permitted;
    admission
        .reasons
        .sort_by(|(a, _), (b, _)| (&a.plugin, a.code, &a.resource).cmp(&(&b.plugin, b.code, &b.resource)));
    // A plugin that judges the state of the queue says it of the queues above, too: its reasons are enough.
    let of_plugin = |(reason, _): &(Reason, _)| reason.code == QUEUE_NOT_OPEN && *reason.plugin != *QUEUE_STATE;
    if admission.reasons.iter().any(of_plugin) {
        let of_state = |reason: &Reason| reason.code == QUEUE_NOT_OPEN && *reason.plugin == *QUEUE_STATE;
        admission.reasons.retain(|(reason, _)| !of_state(reason));
    }
    if !permitted {
        admission.cards.clear();
        admission.headroom = admission.headroom.map(|_| 0);
    }
    admission
}

/// Refuses a job that needs less than nothing of a resource.
fn refuse_negative(cluster_state: &ClusterState, job: &JobRecord) -> Result<(), Problem> {
    // The names of a job of a request may be newer than those of the state.
    job.negative_problem(cluster_state.resources()).map_or(Ok(()), Err)
}

/// Rejects jobs and tasks of a queue whose newest record was rejected, and under `corrected` of a queue that is not
/// open. Such a queue accepts nothing new; running tasks are not affected.
fn reject_unavailable_queue(
    cluster_state: &ClusterState,
    queue: &str,
    compatibility: Compatibility,
    admission: &mut AdmitVerdict,
) -> Result<(), Problem> {
    let Some(stored) = cluster_state.queues().get(queue) else {
        let message = format!("there is no queue `{queue}`");
        return Err(Problem::new(ErrorCode::QueueUnknown, "queue", message));
    };
    let mut reject = |code, message: String| {
        let reason = Reason::new(QUEUE_STATE, code, message, Resolution::Unresolvable);
        admission.reasons.push((reason, Vec::new()));
    };
    if let Some(problem) = stored.invalid().and_then(|problems| problems.first()) {
        let (field, message) = (&problem.field, &problem.message);
        reject(
            QUEUE_INVALID,
            format!("the newest record of queue <{queue}> was refused: {field}: {message}"),
        );
    }
    let open = matches!(stored.record.state, QueueState::Open | QueueState::Unspecified);
    if !open && compatibility == Compatibility::Corrected {
        reject(QUEUE_NOT_OPEN, format!("Queue <{queue}> is not open"));
    }
    Ok(())
}
