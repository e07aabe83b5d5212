//! Irreducible victims: none of them can be left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{PreemptorShortfall, VictimCandidate, VictimSelection};
use crate::cycle::SchedulingCycle;
use crate::model::{Problem, TaskRecord, TaskStatus};
use crate::plugin::PluginContext;
use crate::plugin_state::{PlacementEvent, TaskTransition};

/// Number of attempts to find a set without a job that would preempt in turn.
const MAX_ROUNDS: usize = 64;

impl VictimSelection<'_> {
    /// Irreducible set of victims: every victim is necessary, and no victim could in turn preempt the preemptor. Later
    /// candidates are left out first.
    ///
    /// A job that could preempt in turn loses half as many tasks in the next attempt, and finally none; other jobs
    /// replace it. Not every set is tried. If no set is found, the result is empty.
    pub(super) fn irreducible<'c>(
        &self,
        cycle: &SchedulingCycle,
        chosen: Vec<VictimCandidate<'c>>,
    ) -> Result<Vec<VictimCandidate<'c>>, Problem> {
        let Some(shortfall) = self.shortfall(cycle)? else {
            return Ok(Vec::new());
        };
        let mut known = BTreeSet::new();
        let mut open: Vec<VictimCandidate<'c>> = chosen
            .into_iter()
            .filter(|victim| shortfall.gains_from(victim) && known.insert(victim.identity()))
            .collect();
        for round in 0..MAX_ROUNDS {
            let Some(minimal) = minimal_victims(shortfall.clone(), &open) else {
                return Ok(Vec::new());
            };
            let returning = self.returning_jobs(cycle, &minimal)?;
            if returning.is_empty() {
                return Ok(minimal);
            }
            if round == 0 {
                open = self.without_hopeless(cycle, open)?;
            }
            let mut most = halved_losses(&minimal, &returning);
            open.retain(|victim| match most.get_mut(&*victim.task.job) {
                Some(0) => false,
                Some(left) => {
                    *left -= 1;
                    true
                }
                None => true,
            });
        }
        Ok(Vec::new())
    }

    /// Removes victims that could preempt in turn even if they were the only ones.
    fn without_hopeless<'c>(
        &self,
        cycle: &SchedulingCycle,
        open: Vec<VictimCandidate<'c>>,
    ) -> Result<Vec<VictimCandidate<'c>>, Problem> {
        let mut staying = Vec::with_capacity(open.len());
        let mut judged = ReturnVerdicts::default();
        for victim in open {
            let returns = if let Some(known) = judged.get(victim.task) {
                known
            } else {
                let returns = !self.returning_jobs(cycle, std::slice::from_ref(&victim))?.is_empty();
                judged.insert(victim.task, returns);
                returns
            };
            if !returns {
                staying.push(victim);
            }
        }
        Ok(staying)
    }

    /// Jobs of victims that, once the preemptor is placed, could preempt it in turn.
    fn returning_jobs<'c>(
        &self,
        cycle: &SchedulingCycle,
        victims: &[VictimCandidate<'c>],
    ) -> Result<BTreeSet<&'c str>, Problem> {
        let mut plugin_states = cycle.plugin_states().clone();
        let evicted = victims.iter().map(|victim| unchanged_move(victim.task));
        let mut events: Vec<PlacementEvent<'_>> = evicted.map(PlacementEvent::Deallocate).collect();
        events.push(PlacementEvent::Pipeline(unchanged_move(&self.group.preemptor)));
        plugin_states.apply(cycle.cluster_state(), &events)?;
        let placed = TaskRecord {
            status: TaskStatus::Pipelined,
            node: Arc::clone(&self.group.node),
            ..self.group.preemptor.clone()
        };
        let (mut returning, mut judged) = (BTreeSet::new(), ReturnVerdicts::default());
        let context = PluginContext {
            plugin_states: &plugin_states,
            ..cycle.plugin_context(self.now)
        };
        for victim in victims {
            if returning.contains(&*victim.task.job) || judged.get(victim.task).is_some() {
                continue;
            }
            let wins = self.wins_back(context, victim.task, &placed)?;
            judged.insert(victim.task, wins);
            if wins {
                returning.insert(&*victim.task.job);
            }
        }
        Ok(returning)
    }

    fn wins_back(&self, context: PluginContext<'_>, victim: &TaskRecord, placed: &TaskRecord) -> Result<bool, Problem> {
        let candidate = VictimCandidate {
            position: 0,
            task: placed,
        };
        let goes = self.select_by_tiers(context, victim, &[candidate], &mut Vec::new())?;
        Ok(!goes.is_empty())
    }
}

/// Shortest prefix of these victims that covers the shortfall, without unnecessary victims. `None`: all victims
/// together are not enough.
fn minimal_victims<'c>(
    mut shortfall: PreemptorShortfall<'_>,
    open: &[VictimCandidate<'c>],
) -> Option<Vec<VictimCandidate<'c>>> {
    let needed = shortfall.covered_after(open)?;
    let mut minimal: Vec<VictimCandidate<'c>> = open.iter().take(needed).rev().cloned().collect();
    minimal.retain(|victim| !shortfall.try_spare(victim));
    minimal.reverse();
    Some(minimal)
}

/// Half of each job's losses.
fn halved_losses<'c>(minimal: &[VictimCandidate<'c>], returning: &BTreeSet<&'c str>) -> BTreeMap<&'c str, usize> {
    let lost = |job: &str| minimal.iter().filter(|victim| *victim.task.job == *job).count();
    returning.iter().map(|job| (*job, lost(job) / 2)).collect()
}

/// Verdicts on one task per job, which hold for equal tasks of the job.
#[derive(Default)]
struct ReturnVerdicts<'c>(BTreeMap<&'c str, (&'c TaskRecord, bool)>);

impl<'c> ReturnVerdicts<'c> {
    fn get(&self, task: &TaskRecord) -> Option<bool> {
        let (known, verdict) = self.0.get(&*task.job)?;
        let alike = TaskRecord {
            name: Arc::clone(&known.name),
            uid: known.uid.clone(),
            ..task.clone()
        };
        (alike == **known).then_some(*verdict)
    }

    fn insert(&mut self, task: &'c TaskRecord, verdict: bool) {
        self.0.insert(&task.job, (task, verdict));
    }
}

/// Transition that only adds or removes the task's requests.
fn unchanged_move(task: &TaskRecord) -> TaskTransition<'_> {
    TaskTransition::new(task, task, "")
}
