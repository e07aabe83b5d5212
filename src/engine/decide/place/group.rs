//! One group: idle room first, then room that is being released, as far as it goes.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use super::admission::{Gate, Next};
use super::field::Taken;
use super::run::{Ended, Joins, Run};
use super::{Blocker, PlaceGroup, PlaceQuestion, PlacedGroup, too_large};
use crate::engine::decide::admit::Admission;
use crate::engine::decide::candidates::Candidates;
use crate::engine::decide::classes::{Accounts, class_of};
use crate::engine::decide::filter::Sieve;
use crate::engine::decide::question::{Detail, Question, ResourceFit};
use crate::engine::decide::room::node_state_reason;
use crate::engine::decide::stages::Asked;
use crate::engine::derived::DerivedSet;
use crate::engine::model::{NodeEntry, Problem, Slot, TaskClass, TaskStatus, View};
use crate::engine::plugin::{Facts, Figure, Reason};
use crate::engine::policy::Policy;

/// The state as the groups before have left it.
pub(super) struct Desk<'q> {
    pub(super) view: View,
    pub(super) derived: DerivedSet,
    pub(super) policy: &'q Policy,
    pub(super) question: &'q PlaceQuestion,
    pub(super) stop: &'q dyn Fn() -> bool,
    /// As everything was before the first group.
    pub(super) opened: View,
    /// Nodes that took tasks, pass by pass.
    pub(super) log: Vec<(Rc<Joins>, Taken)>,
    /// Passes that the View knows of: nobody may ask about the later ones any more.
    pub(super) settled: usize,
    /// Nodes whose entries in the View stand as they should, for columns do not tell all of them.
    pub(super) entries: BTreeSet<Slot>,
}

impl<'q> Desk<'q> {
    /// Places a group as far as it goes; `None`: told to stop.
    pub(super) fn place(&mut self, number: usize, group: &'q PlaceGroup) -> Result<Option<PlacedGroup>, Problem> {
        let accounts = Accounts::of(&self.view, self.policy, &[]);
        let class = class_of(&group.task, &self.question.resources, accounts);
        let mut gate = Gate::new(self.policy, number, group);
        let mut placed = PlacedGroup {
            warnings: group.warnings.clone(),
            ..PlacedGroup::default()
        };
        let slots = self.slots();
        let mut status = TaskStatus::Allocated;
        let joins = |status| Rc::new(Joins::new(&group.task, status, self.policy.compatibility()));
        let mut joining = joins(status);
        while gate.given < group.count {
            if (self.stop)() {
                return Ok(None);
            }
            if let Next::Refused(admission) = gate.next(&self.view, &mut self.derived)? {
                placed.blockers = refused(admission);
                break;
            }
            match self.run(&class, &mut gate, &joining, slots.as_deref(), group.count, &mut placed)? {
                Ended::Stopped => return Ok(None),
                Ended::Full | Ended::Anew => {}
                Ended::Dry if status == TaskStatus::Allocated && !self.question.idle_only => {
                    status = TaskStatus::Pipelined;
                    joining = joins(status);
                }
                Ended::Dry => {
                    gate.tell(&self.view, &mut self.derived)?;
                    placed.blockers = self.blockers(&class, slots.as_deref())?;
                    break;
                }
            }
        }
        gate.tell(&self.view, &mut self.derived)?;
        if !placed.cards.is_empty() {
            placed.cards.resize(placed.found(), Arc::default());
        }
        Ok(Some(placed))
    }

    /// Brings the View up to date: its columns, and nodes' entries where columns do not tell all.
    fn settle(&mut self) {
        for at in self.settled..self.log.len() {
            let Some((joins, taken)) = self.log.get(at) else { break };
            for (slot, times) in taken {
                let kept = joins.need_entries() || self.entries.contains(slot);
                if !kept && joins.join(&mut self.view, *slot, *times) {
                    continue;
                }
                let entry = if kept {
                    self.view.node(*slot).map(|entry| joins.after(entry, *times))
                } else {
                    self.entries.insert(*slot);
                    self.entry(*slot, at)
                };
                if let Some(entry) = entry {
                    self.view.set_node(*slot, Arc::new(entry));
                }
            }
        }
        self.settled = self.log.len();
    }

    /// A node after all that it took up to a pass.
    fn entry(&self, slot: Slot, last: usize) -> Option<NodeEntry> {
        let mut entry = NodeEntry::clone(self.opened.node(slot)?);
        for (joins, taken) in self.log.iter().take(last + 1) {
            for (_, times) in taken.iter().filter(|(own, _)| *own == slot) {
                entry = joins.after(&entry, *times);
            }
        }
        Some(entry)
    }

    /// Places tasks of a group in one gradient, until it has no node left or something must be looked at anew.
    fn run(
        &mut self,
        class: &TaskClass,
        gate: &mut Gate<'_>,
        joins: &Rc<Joins>,
        slots: Option<&[Slot]>,
        count: usize,
        placed: &mut PlacedGroup,
    ) -> Result<Ended, Problem> {
        self.settle();
        gate.tell(&self.view, &mut self.derived)?;
        let question = self.filter_question();
        // As it stands now: what follows moves a copy.
        let derived = self.derived.clone();
        let facts = Facts {
            view: &self.view,
            derived: &derived,
        };
        let run = Run::new(facts, self.policy, class, &question, joins)?;
        let candidates = Candidates::of(&self.view, slots);
        if run.looks_at_all() || gate.looks_anew() {
            let pairs = (count as u64).saturating_mul(candidates.len() as u64);
            if pairs > self.question.pairs {
                return Err(too_large(count, candidates.len(), self.question.pairs));
            }
        }
        let (derived, view) = (&mut self.derived, &self.view);
        let mut put = |slot: Slot, gate: &mut Gate<'_>| -> Result<bool, Problem> {
            let card = gate.put(view, derived, slot, joins.status())?;
            placed.put(slot, joins.status(), card);
            if gate.given == count {
                return Ok(false);
            }
            Ok(matches!(gate.next(view, derived)?, Next::Go))
        };
        let (ended, taken) = run.go(&candidates, count, gate, self.stop, &mut put)?;
        drop(run);
        self.log.push((Rc::clone(joins), taken));
        Ok(ended)
    }

    fn slots(&self) -> Option<Vec<Slot>> {
        let question = self.question;
        if question.exclusions.is_empty() {
            return question.candidates.clone();
        }
        let excluded: BTreeSet<Slot> = question.exclusions.iter().copied().collect();
        let left = |slots: &mut dyn Iterator<Item = Slot>| slots.filter(|slot| !excluded.contains(slot)).collect();
        Some(match &question.candidates {
            Some(slots) => left(&mut slots.iter().copied()),
            None => left(&mut self.view.nodes().map(|(slot, _)| slot)),
        })
    }

    fn filter_question(&self) -> Question {
        Question {
            tasks: Vec::new(),
            resources: Arc::clone(&self.question.resources),
            candidates: None,
            plugins: Vec::new(),
            resource_fit: ResourceFit::FutureIdle,
            samples: self.question.samples,
            detail: Detail::Samples,
        }
    }

    /// Why every node refuses the next task.
    fn blockers(&mut self, class: &TaskClass, slots: Option<&[Slot]>) -> Result<Vec<Blocker>, Problem> {
        self.settle();
        let mut question = self.filter_question();
        let asked = Asked::of(self.policy, &question)?;
        let mut candidates = Candidates::of(&self.view, slots);
        let mut rejections = Vec::new();
        let facts = Facts {
            view: &self.view,
            derived: &self.derived,
        };
        if self.question.idle_only {
            question.resource_fit = ResourceFit::Idle;
            let sieve = Sieve::new(facts, &asked, &question, &candidates, class)?;
            let verdict = sieve.with_fit(candidates.len()).judge(&candidates.parts);
            // What is idle there may be promised already.
            candidates = Candidates::at(&self.view, verdict.fit);
            rejections = verdict.rejections;
            question.resource_fit = ResourceFit::FutureIdle;
        }
        let sieve = Sieve::new(facts, &asked, &question, &candidates, class)?;
        let verdict = sieve.judge(&candidates.parts);
        rejections.extend(verdict.rejections);
        if rejections.is_empty() {
            let reason = node_state_reason("NoCandidates", "there is no node to choose from");
            return Ok(vec![Blocker::plain(reason, Vec::new())]);
        }
        let blocker = |rejection| Blocker {
            rejection,
            figures: Vec::new(),
        };
        Ok(rejections.into_iter().map(blocker).collect())
    }
}

impl PlacedGroup {
    /// The next task went there.
    fn put(&mut self, slot: Slot, status: TaskStatus, card: Option<Arc<str>>) {
        if let Some(card) = card.filter(|card| !card.is_empty()) {
            // Most tasks use none.
            self.cards.resize(self.found(), Arc::default());
            self.cards.push(card);
        }
        if status == TaskStatus::Pipelined {
            self.pipelined.push(slot);
        } else {
            self.allocated.push(slot);
        }
    }
}

fn refused(admission: Admission) -> Vec<Blocker> {
    let blocker = |(reason, figures): (Reason, Vec<Figure>)| Blocker::plain(reason, figures);
    admission.reasons.into_iter().map(blocker).collect()
}
