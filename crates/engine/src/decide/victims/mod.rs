//! `SelectVictims`: tasks to evict for a preemptor.

mod eviction_order;
mod irreducible;
mod node_verdict;
mod shortfall;
mod shuffle;

use std::sync::Arc;

pub use eviction_order::eviction_order;
use shortfall::PreemptorShortfall;
pub use shuffle::LastRounds;
pub(crate) use shuffle::ShuffleQuery;

use super::plugin_selection::named_plugins;
use super::queue_state::may_queue_reclaim;
use super::reduce_victims;
use crate::cycle::{SchedulingCycle, SessionChange};
use crate::model::{ErrorCode, Problem, TaskRecord, Uid};
use crate::plugin::{DecisionTime, EvictionOrder, Plugin, PluginContext, VictimKind, VictimQuery};
use crate::policy::{Compatibility, Policy};

/// Query of `SelectVictims`.
#[derive(Clone, Debug)]
pub struct VictimsQuery {
    /// Time of the decision, for plugins that compare with it; `None`: the caller gave none.
    pub now: Option<DecisionTime>,
    /// Kind of eviction.
    pub kind: VictimKind,
    /// Groups, one result each. A group that could not be read is its problem.
    pub groups: Vec<Result<VictimGroup, Problem>>,
    /// Plugins to evaluate, each by itself. Empty: the tiers of the policy.
    pub plugins: Vec<Arc<str>>,
    /// True: select only a set from which no victim can be left out.
    pub irreducible: bool,
    /// Last rounds of plugins, for evictions without a preemptor.
    pub last_rounds: LastRounds,
}

/// Preemptor with its node and candidates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VictimGroup {
    /// Task that needs the resources.
    pub preemptor: TaskRecord,
    /// Name of the node; empty: any node, and `fits_after` is not computed.
    pub node: Arc<str>,
    /// Tasks that may be evicted, in order; a task may appear twice.
    pub candidates: Vec<TaskRecord>,
    /// Changes that are assumed for this group only.
    pub assumptions: Vec<SessionChange>,
}

/// Verdict on one group. Numbers are positions among the candidates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VictimVerdict {
    /// Victims; empty with `plugins`.
    pub victims: Vec<usize>,
    /// Choice of each evaluated plugin.
    pub votes: Vec<VictimVote>,
    /// Number of victims, from the first, after whose eviction the preemptor fits: Filter passes the node, Admit
    /// permits the task, and no plugin reports a shortfall. `None`: it never fits, or the group names no node.
    pub fits_after: Option<usize>,
    /// Assumptions that did not fit.
    pub warnings: Vec<Problem>,
    /// Of a reclaim: true if the preemptor's queue may take from other queues at all, false if a plugin objects; `None`: no
    /// plugin has an opinion, or the query names plugins.
    pub queue_may_reclaim: Option<bool>,
}

/// Choice of one plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct VictimVote {
    /// Name of the plugin.
    pub plugin: Arc<str>,
    /// Candidates that the plugin permits to evict; `None`: it abstains.
    pub victims: Option<Vec<usize>>,
}

/// Selects victims for each group, in the state of the cycle and under the group's assumptions.
///
/// # Errors
/// `plugins` names a plugin that the policy does not have or that is not served here.
pub fn victims(
    cycle: &SchedulingCycle,
    policy: &Policy,
    query: &VictimsQuery,
) -> Result<Vec<Result<VictimVerdict, Problem>>, Problem> {
    let each = named_plugins(policy, &query.plugins)?;
    let each: Vec<VictimPlugin<'_>> = each
        .into_iter()
        .map(|registered| (&registered.name, registered.victims.as_ref()))
        .collect();
    let result = |group: &Result<VictimGroup, Problem>| {
        let group = group.as_ref().map_err(Clone::clone)?;
        let asked = VictimSelection {
            kind: query.kind,
            now: query.now,
            policy,
            group,
        };
        if query.kind == VictimKind::Shuffle {
            asked.without_preemptor(cycle, &query.last_rounds, &each)
        } else if query.plugins.is_empty() {
            asked.by_tiers(cycle, query.irreducible)
        } else {
            asked.by_plugins(cycle, &each)
        }
    };
    Ok(query.groups.iter().map(result).collect())
}

/// Positions of the candidates that the policy's tiers permit to evict for a preemptor, in the order of the tiers.
///
/// # Errors
/// A plugin cannot judge the candidates.
pub(crate) fn tier_victims(
    policy: &Policy,
    kind: VictimKind,
    context: PluginContext<'_>,
    preemptor: &TaskRecord,
    candidates: &[&TaskRecord],
) -> Result<Vec<usize>, Problem> {
    let group = VictimGroup::default();
    let selection = VictimSelection {
        kind,
        now: context.now,
        policy,
        group: &group,
    };
    let numbered = candidates.iter().enumerate();
    let candidates: Vec<VictimCandidate<'_>> = numbered
        .map(|(position, task)| VictimCandidate { position, task })
        .collect();
    let chosen = selection.select_by_tiers(context, preemptor, &candidates, &mut Vec::new())?;
    Ok(chosen.into_iter().map(|candidate| candidate.position).collect())
}

/// Candidate at its position; candidates of one task are equal.
#[derive(Clone, Debug)]
struct VictimCandidate<'a> {
    position: usize,
    task: &'a TaskRecord,
}

impl<'a> VictimCandidate<'a> {
    /// Identity of the candidate: the incarnation of its task, or its position if the task has no name.
    fn identity(&self) -> (&'a str, &'a Uid, usize) {
        let task = self.task;
        let position = if task.name.is_empty() { self.position } else { 0 };
        (&task.name, &task.uid, position)
    }
}

impl PartialEq for VictimCandidate<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

/// Named plugin, and its hook if it has one.
type VictimPlugin<'a> = (&'a Arc<str>, Option<&'a Arc<dyn Plugin>>);

struct VictimSelection<'a> {
    kind: VictimKind,
    now: Option<DecisionTime>,
    policy: &'a Policy,
    group: &'a VictimGroup,
}

impl VictimSelection<'_> {
    /// Selects tasks without a preemptor: by the tiers, or each of these plugins by itself.
    fn without_preemptor(
        &self,
        cycle: &SchedulingCycle,
        last_rounds: &LastRounds,
        plugins: &[VictimPlugin<'_>],
    ) -> Result<VictimVerdict, Problem> {
        let (cycle, warnings) = self.with_assumptions(cycle)?;
        let candidates = self.candidates();
        let tasks: Vec<&TaskRecord> = candidates.iter().map(|candidate| candidate.task).collect();
        let shuffle = ShuffleQuery {
            context: cycle.plugin_context(self.now),
            candidates: &tasks,
            last_rounds,
        };
        let mut verdict = VictimVerdict {
            warnings,
            ..VictimVerdict::default()
        };
        if plugins.is_empty() {
            let shuffled = shuffle.ask_tiers(self.policy)?;
            (verdict.victims, verdict.votes) = (shuffled.victims, shuffled.votes);
        }
        for (name, plugin) in plugins {
            let victims = match plugin {
                Some(plugin) => shuffle.ask(name, &***plugin)?,
                None => None,
            };
            let plugin = Arc::clone(name);
            verdict.votes.push(VictimVote { plugin, victims });
        }
        // Positions are those of the query, which has candidates that no plugin sees.
        let votes = verdict.votes.iter_mut().filter_map(|vote| vote.victims.as_mut());
        for position in votes.flatten().chain(&mut verdict.victims) {
            *position = candidates
                .get(*position)
                .map_or(*position, |candidate| candidate.position);
        }
        Ok(verdict)
    }

    fn by_plugins(&self, cycle: &SchedulingCycle, plugins: &[VictimPlugin<'_>]) -> Result<VictimVerdict, Problem> {
        let (cycle, warnings) = self.with_assumptions(cycle)?;
        let candidates = self.candidates();
        let vote = |(name, plugin): &VictimPlugin<'_>| {
            let chosen = match plugin {
                Some(plugin) => {
                    let context = cycle.plugin_context(self.now);
                    self.select_by_plugin(&***plugin, context, &self.group.preemptor, &candidates)?
                }
                None => None,
            };
            Ok(vote(name, chosen.as_deref()))
        };
        Ok(VictimVerdict {
            votes: plugins.iter().map(vote).collect::<Result<_, _>>()?,
            warnings,
            ..VictimVerdict::default()
        })
    }

    fn by_tiers(&self, cycle: &SchedulingCycle, irreducible: bool) -> Result<VictimVerdict, Problem> {
        let (cycle, mut warnings) = self.with_assumptions(cycle)?;
        if irreducible && self.group.node.is_empty() {
            let message = "`irreducible` needs a node on which the preemptor must fit: set `node`";
            return Err(Problem::new(ErrorCode::NodeMissing, "node", message));
        }
        let mut votes = Vec::new();
        let mut chosen = self.select_by_tiers(
            cycle.plugin_context(self.now),
            &self.group.preemptor,
            &self.candidates(),
            &mut votes,
        )?;
        let shortfall = self.shortfall(&cycle)?;
        // Without the tasks that other plugins spared, the victims may not cover the plugins' shortfalls.
        if shortfall
            .as_ref()
            .is_some_and(|shortfall| shortfall.leaves_shortfall(&chosen))
        {
            chosen.clear();
        }
        let mut fits_after = match shortfall {
            Some(shortfall) => {
                let choice = (&mut chosen, &mut warnings);
                self.fit_choice(&cycle, shortfall, irreducible, choice)?
            }
            None => None,
        };
        let queue_may_reclaim = self.queue_may_reclaim(&cycle, &mut warnings);
        if self.evicts_nobody(&cycle, queue_may_reclaim, &mut warnings) {
            fits_after = fits_after.filter(|victims| *victims == 0);
            chosen.clear();
        }
        Ok(VictimVerdict {
            victims: chosen.iter().map(|victim| victim.position).collect(),
            votes,
            fits_after,
            queue_may_reclaim,
            warnings,
        })
    }

    /// True if no task is evicted for the preemptor, whoever could go: its own policy says so, which gives a warning, or under
    /// `corrected` its queue may take nothing from others.
    fn evicts_nobody(
        &self,
        cycle: &SchedulingCycle,
        queue_may_reclaim: Option<bool>,
        warnings: &mut Vec<Problem>,
    ) -> bool {
        if cycle.cluster_state().never_preempts(&self.group.preemptor) {
            let message = "its preemptionPolicy, or that of its priority class, is Never: no task is evicted for it";
            warnings.push(Problem::new(ErrorCode::TaskNeverPreempts, "preemptor", message));
            return true;
        }
        self.policy.compatibility() == Compatibility::Corrected && queue_may_reclaim == Some(false)
    }

    /// True if the preemptor's queue may take from other queues. A queue that cannot be judged gets a warning.
    fn queue_may_reclaim(&self, cycle: &SchedulingCycle, warnings: &mut Vec<Problem>) -> Option<bool> {
        if !matches!(self.kind, VictimKind::Reclaim | VictimKind::GangReclaim) {
            return None;
        }
        let preemptor = &self.group.preemptor;
        let job = cycle.cluster_state().jobs().get(&preemptor.job)?;
        let context = cycle.plugin_context(self.now);
        may_queue_reclaim(self.policy, context, &job.record.queue, preemptor).unwrap_or_else(|problem| {
            warnings.push(problem.within("preemptor"));
            None
        })
    }

    /// Reduces the chosen victims to an irreducible set if requested, and computes after how many evictions the
    /// preemptor fits. A preemptor that a plugin cannot read does not fit, and the plugin's problem becomes a warning.
    fn fit_choice(
        &self,
        cycle: &SchedulingCycle,
        shortfall: PreemptorShortfall<'_>,
        irreducible: bool,
        (chosen, warnings): (&mut Vec<VictimCandidate<'_>>, &mut Vec<Problem>),
    ) -> Result<Option<usize>, Problem> {
        let unresolvable = self.is_unresolvable(cycle).unwrap_or_else(|problem| {
            warnings.push(problem.within("preemptor"));
            true
        });
        if unresolvable {
            if irreducible {
                chosen.clear();
            }
            return Ok(None);
        }
        if irreducible {
            *chosen = self.irreducible(cycle, std::mem::take(chosen))?;
            if !self.passes_after(cycle, chosen, chosen.len())? {
                chosen.clear();
            }
        }
        self.fits_after(cycle, shortfall, chosen)
    }

    /// State after the assumptions.
    fn with_assumptions(&self, cycle: &SchedulingCycle) -> Result<(SchedulingCycle, Vec<Problem>), Problem> {
        let mut cycle = cycle.clone();
        let relative = |problem: Problem| Problem {
            field: problem.field.replacen("changes[", "assumptions[", 1),
            ..problem
        };
        let outcome = cycle.apply(&self.group.assumptions).map_err(relative)?;
        Ok((cycle, outcome.warnings.into_iter().map(relative).collect()))
    }

    /// Candidates that plugins evaluate. Under `corrected` a releasing task or a task without resources is not a
    /// candidate.
    fn candidates(&self) -> Vec<VictimCandidate<'_>> {
        let all = self.group.candidates.iter().enumerate();
        let all = all.map(|(position, task)| VictimCandidate { position, task });
        all.filter(|candidate| self.policy.compatibility().is_upstream() || candidate.task.status.is_allocated())
            .collect()
    }

    /// Choice of the tiers; `votes` receives the choice of each plugin that was asked.
    fn select_by_tiers<'c>(
        &self,
        context: PluginContext<'_>,
        preemptor: &TaskRecord,
        candidates: &[VictimCandidate<'c>],
        votes: &mut Vec<VictimVote>,
    ) -> Result<Vec<VictimCandidate<'c>>, Problem> {
        let mut failed = None;
        let tiers = self.policy.victims(self.kind);
        let votes = std::cell::RefCell::new(votes);
        let failure = std::cell::RefCell::new(&mut failed);
        let tiers = tiers.iter().map(|tier| {
            tier.iter().map(
                |hook| match self.select_by_plugin(&*hook.plugin, context, preemptor, candidates) {
                    Ok(chosen) => {
                        votes.borrow_mut().push(vote(&hook.name, chosen.as_deref()));
                        chosen
                    }
                    Err(problem) => {
                        failure.borrow_mut().get_or_insert(problem);
                        None
                    }
                },
            )
        });
        let chosen = reduce_victims::victims(tiers, self.policy.compatibility());
        match failed {
            Some(problem) => Err(problem),
            None => Ok(chosen.unwrap_or_default()),
        }
    }

    fn select_by_plugin<'c>(
        &self,
        plugin: &dyn Plugin,
        context: PluginContext<'_>,
        preemptor: &TaskRecord,
        candidates: &[VictimCandidate<'c>],
    ) -> Result<Option<Vec<VictimCandidate<'c>>>, Problem> {
        let tasks: Vec<&TaskRecord> = candidates.iter().map(|candidate| candidate.task).collect();
        let order = || eviction_order(context, self.policy, preemptor, &tasks);
        let query = VictimQuery {
            kind: self.kind,
            preemptor,
            candidates: &tasks,
            eviction_order: EvictionOrder::new(&order),
        };
        let goes = plugin.ordered_victims(context, &query)?;
        Ok(goes.map(|goes| {
            let chosen = goes.into_iter().filter_map(|position| candidates.get(position));
            chosen.cloned().collect()
        }))
    }

    /// Shortfall of the preemptor on the node; `None`: the group names no node.
    fn shortfall(&self, cycle: &SchedulingCycle) -> Result<Option<PreemptorShortfall<'_>>, Problem> {
        let mut lacks = Vec::new();
        if !self.group.node.is_empty() {
            let tasks: Vec<&TaskRecord> = self.group.candidates.iter().collect();
            let query = VictimQuery {
                kind: self.kind,
                preemptor: &self.group.preemptor,
                candidates: &tasks,
                eviction_order: EvictionOrder::default(),
            };
            for hook in self.policy.victims(self.kind).iter().flatten() {
                if let Some(quota) = hook.plugin.quota() {
                    lacks.extend(quota.shortfalls(cycle.plugin_context(self.now), &query, &self.group.node)?);
                }
            }
        }
        PreemptorShortfall::of(self.group, cycle.cluster_state(), lacks, self.policy.compatibility())
    }
}

fn vote(plugin: &Arc<str>, chosen: Option<&[VictimCandidate<'_>]>) -> VictimVote {
    VictimVote {
        plugin: Arc::clone(plugin),
        victims: chosen.map(|chosen| chosen.iter().map(|candidate| candidate.position).collect()),
    }
}
