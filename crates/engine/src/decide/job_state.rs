//! State of jobs: the opinions of the policy's plugins, reduced as Volcano's tiers reduce them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::reduce_order::{objection, permits, starving};
use crate::model::JobRecord;
use crate::plugin::{JobObjection, JobOpinion, Plugin, PluginContext, TaskGroup};
use crate::policy::{Policy, PolicyHook, RegisteredPlugin};

/// State of a job, combined from the opinions of the policy's plugins as in Volcano.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobState {
    /// First objection; `None`: the job is valid.
    pub objection: Option<JobObjection>,
    /// True if the tasks that hold resources are enough to start the job.
    pub ready: bool,
    /// True if the job is ready when tasks that wait for resources being released are included.
    pub pipelined: bool,
    /// True if the job may evict others to get its tasks.
    pub starving: bool,
    /// Opinion of each named plugin; empty: the query names none.
    pub opinions: Vec<(Arc<str>, JobOpinion)>,
}

/// Plugins that judge the state of jobs.
pub(super) enum JobStateJudge<'p> {
    /// Plugins of the policy's tiers.
    Tiers(&'p Policy),
    /// Named plugins, as if they were one tier.
    Named(Vec<&'p RegisteredPlugin>),
}

impl<'p> JobStateJudge<'p> {
    /// Judge by the tiers, or by these plugins; `None`: no plugin has an opinion.
    pub(super) fn of(policy: &'p Policy, named: Vec<&'p RegisteredPlugin>) -> Option<Self> {
        if !named.is_empty() {
            let any = named.iter().any(|plugin| plugin.job_state.is_some());
            return any.then_some(Self::Named(named));
        }
        // Whatever its switches say, a plugin may object to a job.
        let any = !policy.hooks().job_validators.is_empty();
        any.then_some(Self::Tiers(policy))
    }

    /// Evaluates the state of a job.
    pub(super) fn judge(&self, context: PluginContext<'_>, job: &JobRecord) -> JobState {
        match self {
            Self::Tiers(policy) => judge_by_tiers(policy, context, job),
            Self::Named(named) => judge_by_names(named, context, job),
        }
    }
}

/// Opinions by name; each plugin is asked once.
struct AskedOpinions<'a> {
    context: PluginContext<'a>,
    job: &'a JobRecord,
    known: BTreeMap<Arc<str>, JobOpinion>,
}

impl AskedOpinions<'_> {
    fn of(&mut self, hook: &PolicyHook) -> &JobOpinion {
        let plugin: &dyn Plugin = &*hook.plugin;
        let (context, job) = (self.context, self.job);
        let place = self.known.entry(Arc::clone(&hook.name));
        place.or_insert_with(|| plugin.job_opinion(context, job))
    }

    fn all<T>(&mut self, hooks: &[PolicyHook], opinion: impl Fn(&JobOpinion) -> Option<T>) -> Vec<T> {
        hooks.iter().filter_map(|hook| opinion(self.of(hook))).collect()
    }

    fn by_tier<T>(&mut self, tiers: &[Vec<PolicyHook>], opinion: impl Fn(&JobOpinion) -> Option<T>) -> Vec<Vec<T>> {
        tiers.iter().map(|tier| self.all(tier, &opinion)).collect()
    }
}

fn judge_by_tiers(policy: &Policy, context: PluginContext<'_>, job: &JobRecord) -> JobState {
    let hooks = policy.hooks();
    let mut asked = AskedOpinions {
        context,
        job,
        known: BTreeMap::new(),
    };
    JobState {
        objection: objection(asked.all(&hooks.job_validators, |own| Some(own.objection.clone()))),
        ready: !asked.all(&hooks.job_ready, |own| own.ready).contains(&false),
        pipelined: permits(asked.by_tier(&hooks.job_pipelined, |own| own.pipelined)),
        starving: starving(asked.by_tier(&hooks.job_starving, |own| own.starving)),
        opinions: Vec::new(),
    }
}

/// Objection of the tiers to a job; `None`: it is valid.
pub(crate) fn job_objection(policy: &Policy, context: PluginContext<'_>, job: &JobRecord) -> Option<JobObjection> {
    let hooks = policy.hooks().job_validators.iter();
    objection(hooks.map(|hook| hook.plugin.job_opinion(context, job).objection))
}

/// True if the tiers hold a job ready.
pub(crate) fn is_job_ready(policy: &Policy, context: PluginContext<'_>, job: &JobRecord) -> bool {
    let mut hooks = policy.hooks().job_ready.iter();
    hooks.all(|hook| hook.plugin.job_opinion(context, job).ready.unwrap_or(true))
}

/// True if the tiers hold a job pipelined.
pub(crate) fn is_job_pipelined(policy: &Policy, context: PluginContext<'_>, job: &JobRecord) -> bool {
    let vote = |hook: &PolicyHook| hook.plugin.job_opinion(context, job).pipelined;
    let tiers = policy.hooks().job_pipelined.iter();
    permits(tiers.map(|tier| tier.iter().filter_map(vote)))
}

/// True if the tiers hold a job starving.
pub(crate) fn is_job_starving(policy: &Policy, context: PluginContext<'_>, job: &JobRecord) -> bool {
    let vote = |hook: &PolicyHook| hook.plugin.job_opinion(context, job).starving;
    let tiers = policy.hooks().job_starving.iter();
    starving(tiers.map(|tier| tier.iter().filter_map(vote)))
}

/// True if the tiers hold a group of a job ready.
pub(crate) fn is_group_ready(policy: &Policy, context: PluginContext<'_>, group: TaskGroup<'_>) -> bool {
    let mut hooks = policy.hooks().group_ready.iter();
    hooks.all(|hook| hook.plugin.group_opinion(context, group).ready.unwrap_or(true))
}

/// True if the tiers hold a group of a job pipelined.
pub(crate) fn is_group_pipelined(policy: &Policy, context: PluginContext<'_>, group: TaskGroup<'_>) -> bool {
    let vote = |hook: &PolicyHook| hook.plugin.group_opinion(context, group).pipelined;
    let tiers = policy.hooks().group_pipelined.iter();
    permits(tiers.map(|tier| tier.iter().filter_map(vote)))
}

fn judge_by_names(named: &[&RegisteredPlugin], context: PluginContext<'_>, job: &JobRecord) -> JobState {
    let opinion = |plugin: &&RegisteredPlugin| {
        let hook = plugin.job_state.as_ref();
        let own = hook.map(|hook| hook.job_opinion(context, job)).unwrap_or_default();
        (Arc::clone(&plugin.name), own)
    };
    let opinions: Vec<(Arc<str>, JobOpinion)> = named.iter().map(opinion).collect();
    let each = || opinions.iter().map(|(_, own)| own);
    JobState {
        objection: objection(each().map(|own| own.objection.clone())),
        ready: each().filter_map(|own| own.ready).all(|ready| ready),
        pipelined: permits([each().filter_map(|own| own.pipelined)]),
        starving: starving([each().filter_map(|own| own.starving)]),
        opinions,
    }
}
