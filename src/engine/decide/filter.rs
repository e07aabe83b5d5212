//! Filter: where may a task run?

use std::sync::Arc;

use super::candidates::Candidates;
use super::classes::{self, Accounts};
use super::question::{Effort, FilterVerdict, Items, Question};
use super::reduce;
use super::rejections::Tally;
use super::stages::Asked;
use crate::engine::derived::DerivedSet;
use crate::engine::model::{Mask, Problem, TaskClass, View};
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
    Ok(classes::answer(question, accounts, effort, |class| {
        let (verdict, _) = judge(facts, &asked, question, &candidates, class, true)?;
        Ok((verdict, Vec::new()))
    }))
}

/// The verdict on one class, and the nodes that passed, part by part of the candidates. `with_fit`: their slots are
/// wanted, too.
pub(super) fn judge(
    facts: Facts<'_>,
    asked: &Asked<'_>,
    question: &Question,
    candidates: &Candidates<'_>,
    class: &TaskClass,
    with_fit: bool,
) -> Result<(FilterVerdict, Vec<Mask>), Problem> {
    let mut tally = Tally::new(asked.filterers(facts, question, class)?, question);
    let mut passed = Vec::with_capacity(candidates.parts.len());
    let mut fit_count = 0;
    let mut fit = Vec::with_capacity(if with_fit { candidates.len() } else { 0 });
    for part in &candidates.parts {
        let stages = tally.stages();
        let left = if asked.is_each() {
            stages.fold(part.among, |left, stage| {
                left.and_not(&tally.ask(stage, part, &part.among))
            })
        } else {
            reduce::conjunction(stages, &part.among, |stage, left| tally.ask(stage, part, left))
        };
        fit_count += left.count();
        if with_fit {
            part.push_slots(&left, &mut fit);
        }
        passed.push(left);
    }
    let rejections = tally.rejections(facts.view, &candidates.absent, question);
    let verdict = FilterVerdict {
        fit,
        fit_count,
        rejections,
    };
    Ok((verdict, passed))
}
