//! Victims of whom none can be left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Asked, Candidate, Room};
use crate::engine::cycle::Cycle;
use crate::engine::derived::{DerivedSet, Movement, TaskMove};
use crate::engine::model::{Problem, TaskRecord, TaskStatus};

/// How often another set is looked for when jobs of one would win their places back.
const ROUNDS: usize = 64;

impl Asked<'_> {
    /// Victims none of whom can be left out: without any one of them the preemptor does not fit, and none of them would
    /// win the place straight back. Candidates that stand later are left out first.
    ///
    /// Jobs that would win a place back give up half as many, and at last nobody; others take their turn. Not every set is
    /// tried: nobody goes if none is found so.
    pub(super) fn irreducible<'c>(
        &self,
        cycle: &Cycle,
        chosen: Vec<Candidate<'c>>,
    ) -> Result<Vec<Candidate<'c>>, Problem> {
        let Some(room) = self.room(cycle)? else {
            return Ok(Vec::new());
        };
        let mut known = BTreeSet::new();
        let mut open: Vec<Candidate<'c>> = chosen
            .into_iter()
            .filter(|victim| room.gains_by(victim) && known.insert(victim.identity()))
            .collect();
        for round in 0..ROUNDS {
            let Some(kept) = fewest(room.clone(), &open) else {
                return Ok(Vec::new());
            };
            let returning = self.returning(cycle, &kept)?;
            if returning.is_empty() {
                return Ok(kept);
            }
            if round == 0 {
                open = self.without_hopeless(cycle, open)?;
            }
            let mut most = halves(&kept, &returning);
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
    fn without_hopeless<'c>(&self, cycle: &Cycle, open: Vec<Candidate<'c>>) -> Result<Vec<Candidate<'c>>, Problem> {
        let mut staying = Vec::with_capacity(open.len());
        let mut judged = Judged::default();
        for victim in open {
            let returns = if let Some(known) = judged.get(victim.task) {
                known
            } else {
                let returns = !self.returning(cycle, std::slice::from_ref(&victim))?.is_empty();
                judged.put(victim.task, returns);
                returns
            };
            if !returns {
                staying.push(victim);
            }
        }
        Ok(staying)
    }

    /// Jobs of victims that, once the preemptor has its place, could in turn have the preemptor go.
    fn returning<'c>(&self, cycle: &Cycle, victims: &[Candidate<'c>]) -> Result<BTreeSet<&'c str>, Problem> {
        let mut derived = cycle.derived().clone();
        for victim in victims {
            derived.follow(cycle.view(), &Movement::Deallocate(standing(victim.task)))?;
        }
        derived.follow(cycle.view(), &Movement::Pipeline(standing(&self.group.preemptor)))?;
        let placed = TaskRecord {
            status: TaskStatus::Pipelined,
            node: Arc::clone(&self.group.node),
            ..self.group.preemptor.clone()
        };
        let (mut returning, mut judged) = (BTreeSet::new(), Judged::default());
        for victim in victims {
            if returning.contains(&*victim.task.job) || judged.get(victim.task).is_some() {
                continue;
            }
            let wins = self.wins_back(&derived, victim.task, &placed)?;
            judged.put(victim.task, wins);
            if wins {
                returning.insert(&*victim.task.job);
            }
        }
        Ok(returning)
    }

    fn wins_back(&self, derived: &DerivedSet, victim: &TaskRecord, placed: &TaskRecord) -> Result<bool, Problem> {
        let candidate = Candidate {
            position: 0,
            task: placed,
        };
        let goes = self.tiers(derived, victim, &[candidate], &mut Vec::new())?;
        Ok(!goes.is_empty())
    }
}

/// As few of these as make room, from the front; `None`: all of them do not.
fn fewest<'c>(mut room: Room<'_>, open: &[Candidate<'c>]) -> Option<Vec<Candidate<'c>>> {
    let needed = room.filled_after(open)?;
    let mut kept: Vec<Candidate<'c>> = open.iter().take(needed).rev().cloned().collect();
    kept.retain(|victim| !room.spare(victim));
    kept.reverse();
    Some(kept)
}

/// Half of what these jobs lose.
fn halves<'c>(kept: &[Candidate<'c>], returning: &BTreeSet<&'c str>) -> BTreeMap<&'c str, usize> {
    let lost = |job: &str| kept.iter().filter(|victim| *victim.task.job == *job).count();
    returning.iter().map(|job| (*job, lost(job) / 2)).collect()
}

/// What was found out about one task of each job, which holds for the next of the same kind.
#[derive(Default)]
struct Judged<'c>(BTreeMap<&'c str, (&'c TaskRecord, bool)>);

impl<'c> Judged<'c> {
    fn get(&self, task: &TaskRecord) -> Option<bool> {
        let (known, verdict) = self.0.get(&*task.job)?;
        let alike = TaskRecord {
            name: Arc::clone(&known.name),
            uid: known.uid.clone(),
            ..task.clone()
        };
        (alike == **known).then_some(*verdict)
    }

    fn put(&mut self, task: &'c TaskRecord, verdict: bool) {
        self.0.insert(&task.job, (task, verdict));
    }
}

/// A move that changes nothing but what counts.
fn standing(task: &TaskRecord) -> TaskMove<'_> {
    TaskMove {
        before: task,
        after: task,
        card: "",
    }
}
