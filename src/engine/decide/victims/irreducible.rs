//! Victims of whom none can be left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{PreemptorShortfall, VictimCandidate, VictimSelection};
use crate::engine::cycle::SchedulingCycle;
use crate::engine::model::{Problem, TaskRecord, TaskStatus};
use crate::engine::plugin_state::{PlacementEvent, PluginStates, TaskTransition};

/// How often another set is looked for when jobs of one would win their places back.
const MAX_ROUNDS: usize = 64;

impl VictimSelection<'_> {
    /// Victims none of whom can be left out: without any one of them the preemptor does not fit, and none of them would
    /// win the place straight back. Candidates that stand later are left out first.
    ///
    /// Jobs that would win a place back give up half as many, and at last nobody; others take their turn. Not every set is
    /// tried: nobody goes if none is found so.
    pub(super) fn irreducible<'c>(
        &self,
        cycle: &SchedulingCycle,
        chosen: Vec<VictimCandidate<'c>>,
    ) -> Result<Vec<VictimCandidate<'c>>, Problem> {
        let Some(room) = self.shortfall(cycle)? else {
            return Ok(Vec::new());
        };
        let mut known = BTreeSet::new();
        let mut open: Vec<VictimCandidate<'c>> = chosen
            .into_iter()
            .filter(|victim| room.gains_from(victim) && known.insert(victim.identity()))
            .collect();
        for round in 0..MAX_ROUNDS {
            let Some(kept) = minimal_victims(room.clone(), &open) else {
                return Ok(Vec::new());
            };
            let returning = self.returning_jobs(cycle, &kept)?;
            if returning.is_empty() {
                return Ok(kept);
            }
            if round == 0 {
                open = self.without_hopeless(cycle, open)?;
            }
            let mut most = halved_losses(&kept, &returning);
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

    /// Leaves out those who would win their place back even if they were the only ones to go.
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

    /// Jobs of victims that, once the preemptor has its place, could in turn have the preemptor go.
    fn returning_jobs<'c>(
        &self,
        cycle: &SchedulingCycle,
        victims: &[VictimCandidate<'c>],
    ) -> Result<BTreeSet<&'c str>, Problem> {
        let mut derived = cycle.plugin_states().clone();
        for victim in victims {
            derived.apply(
                cycle.cluster_state(),
                &PlacementEvent::Deallocate(unchanged_move(victim.task)),
            )?;
        }
        derived.apply(
            cycle.cluster_state(),
            &PlacementEvent::Pipeline(unchanged_move(&self.group.preemptor)),
        )?;
        let placed = TaskRecord {
            status: TaskStatus::Pipelined,
            node: Arc::clone(&self.group.node),
            ..self.group.preemptor.clone()
        };
        let (mut returning, mut judged) = (BTreeSet::new(), ReturnVerdicts::default());
        for victim in victims {
            if returning.contains(&*victim.task.job) || judged.get(victim.task).is_some() {
                continue;
            }
            let wins = self.wins_back(&derived, victim.task, &placed)?;
            judged.insert(victim.task, wins);
            if wins {
                returning.insert(&*victim.task.job);
            }
        }
        Ok(returning)
    }

    fn wins_back(&self, derived: &PluginStates, victim: &TaskRecord, placed: &TaskRecord) -> Result<bool, Problem> {
        let candidate = VictimCandidate {
            position: 0,
            task: placed,
        };
        let goes = self.select_by_tiers(derived, victim, &[candidate], &mut Vec::new())?;
        Ok(!goes.is_empty())
    }
}

/// As few of these as make room, from the front; `None`: all of them do not.
fn minimal_victims<'c>(
    mut room: PreemptorShortfall<'_>,
    open: &[VictimCandidate<'c>],
) -> Option<Vec<VictimCandidate<'c>>> {
    let needed = room.covered_after(open)?;
    let mut kept: Vec<VictimCandidate<'c>> = open.iter().take(needed).rev().cloned().collect();
    kept.retain(|victim| !room.try_spare(victim));
    kept.reverse();
    Some(kept)
}

/// Half of what these jobs lose.
fn halved_losses<'c>(kept: &[VictimCandidate<'c>], returning: &BTreeSet<&'c str>) -> BTreeMap<&'c str, usize> {
    let lost = |job: &str| kept.iter().filter(|victim| *victim.task.job == *job).count();
    returning.iter().map(|job| (*job, lost(job) / 2)).collect()
}

/// What was found out about one task of each job, which holds for the next of the same kind.
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

/// A move that changes nothing but what counts.
fn unchanged_move(task: &TaskRecord) -> TaskTransition<'_> {
    TaskTransition {
        before: task,
        after: task,
        card: "",
    }
}
