//! Filter: where may a task run?

use std::sync::Arc;

use super::candidates::{Candidates, Part};
use super::classes::{self, Accounts, Judged, Walk};
use super::question::{Effort, FilterVerdict, Items, Question};
use super::reduce;
use super::rejections::Tally;
use super::score::Scratch;
use super::stages::Asked;
use crate::engine::derived::DerivedSet;
use crate::engine::model::{Mask, Problem, Slot, TaskClass, View};
use crate::engine::plugin::Facts;
use crate::engine::policy::Policy;

/// Judges the tasks of a question, each class once.
///
/// Without `plugins`: the node's state, then room as asked for, then the plugins' predicates in the order of the tiers; a
/// node is refused under the first that refuses. With `plugins`: room as asked for and these plugins, each judging every
/// node whatever the others say; their switches in the tiers are not looked at (the caller has tiers of its own), and of
/// a name that stands there twice the last entry with the hook answers. A plugin without the hook passes every node.
///
/// # Errors
/// `plugins` names one that the policy does not have or that is not served here; nothing was judged.
pub fn filter(view: &View, policy: &Policy, question: &Question) -> Result<Items<FilterVerdict>, Problem> {
    let derived = derived_for(view, policy, &question.plugins);
    let facts = Facts {
        view,
        derived: &derived,
    };
    Ok(filter_with(facts, policy, question, Effort::ALONE)?.unwrap_or_default())
}

/// What plugins keep beside a state, if a question of Filter or Score needs it. Who asks often keeps it instead.
pub(super) fn derived_for(view: &View, policy: &Policy, plugins: &[Arc<str>]) -> DerivedSet {
    if policy.reads_accounts(plugins) {
        policy.derive(view)
    } else {
        DerivedSet::default()
    }
}

/// As [`filter()`], with what plugins keep beside the state; `None` as soon as the effort is to stop.
///
/// # Errors
/// As [`filter()`].
pub fn filter_with(
    facts: Facts<'_>,
    policy: &Policy,
    question: &Question,
    effort: Effort<'_>,
) -> Result<Option<Items<FilterVerdict>>, Problem> {
    let asked = Asked::of(policy, question)?;
    let candidates = Candidates::of(facts.view, question.candidates.as_deref());
    let accounts = Accounts::of(facts.view, policy, &question.plugins);
    Ok(classes::answer(question, accounts, effort, |classes| {
        let sieves = classes.iter().map(|class| {
            let sieve = Sieve::new(facts, &asked, question, &candidates, class);
            sieve.map(|sieve| sieve.with_fit(candidates.len()))
        });
        classes::walk(sieves.collect(), &candidates.parts, effort.stop)
    }))
}

/// The filters of one class, and what has come of them so far.
pub(super) struct Sieve<'a> {
    facts: Facts<'a>,
    question: &'a Question,
    absent: &'a [Slot],
    tally: Tally<'a>,
    is_each: bool,
    fit_count: u32,
    /// Slots, if they are wanted.
    fit: Option<Vec<Slot>>,
}

impl<'a> Sieve<'a> {
    /// No node has been judged yet.
    ///
    /// # Errors
    /// A plugin cannot read something in the class.
    pub(super) fn new<'p: 'a>(
        facts: Facts<'a>,
        asked: &Asked<'p>,
        question: &'a Question,
        candidates: &'a Candidates<'_>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        Ok(Self {
            facts,
            question,
            absent: &candidates.absent,
            tally: Tally::new(asked.filterers(facts, question, class)?, question),
            is_each: asked.is_each(),
            fit_count: 0,
            fit: None,
        })
    }

    /// The slots of nodes that pass, at most so many, are wanted, too.
    pub(super) fn with_fit(self, nodes: usize) -> Self {
        Self {
            fit: Some(Vec::with_capacity(nodes)),
            ..self
        }
    }

    /// Judges nodes of one chunk; those that pass.
    pub(super) fn pass(&mut self, part: &Part<'_>) -> Mask {
        let stages = self.tally.stages();
        let tally = &mut self.tally;
        let left = if self.is_each {
            stages.fold(part.among, |left, stage| {
                left.and_not(&tally.ask(stage, part, &part.among))
            })
        } else {
            reduce::conjunction(stages, &part.among, |stage, left| tally.ask(stage, part, left))
        };
        self.fit_count += left.count();
        if let Some(fit) = &mut self.fit {
            part.push_slots(&left, fit);
        }
        left
    }

    /// Judges nodes of all these chunks.
    pub(super) fn judge(mut self, parts: &[Part<'_>]) -> FilterVerdict {
        for part in parts {
            self.pass(part);
        }
        self.verdict()
    }

    /// The verdict on the nodes that were judged.
    pub(super) fn verdict(self) -> FilterVerdict {
        FilterVerdict {
            fit: self.fit.unwrap_or_default(),
            fit_count: self.fit_count,
            rejections: self.tally.rejections(self.facts.view, self.absent, self.question),
        }
    }
}

impl Walk for Sieve<'_> {
    type Answer = FilterVerdict;

    fn step(&mut self, part: &Part<'_>, _: &mut Scratch) {
        self.pass(part);
    }

    fn end(self) -> Judged<FilterVerdict> {
        Ok((self.verdict(), Vec::new()))
    }
}
