//! Filter: where may a task run?

use super::candidates::Candidates;
use super::classes;
use super::question::{FilterVerdict, Items, Question};
use super::reduce;
use super::rejections::Tally;
use super::stages::Asked;
use crate::engine::model::{Mask, Problem, TaskClass, View};
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
    Ok(filter_until(view, policy, question, &|| false)?.unwrap_or_default())
}

/// As [`filter()`]; `None` as soon as `stop` says so, which is asked before each class.
///
/// # Errors
/// As [`filter()`].
pub fn filter_until(
    view: &View,
    policy: &Policy,
    question: &Question,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Items<FilterVerdict>>, Problem> {
    let asked = Asked::of(policy, question)?;
    let candidates = Candidates::of(view, question.candidates.as_deref());
    Ok(classes::answer(question, stop, |class| {
        let (verdict, _) = judge(view, &asked, question, &candidates, class)?;
        Ok((verdict, Vec::new()))
    }))
}

/// The verdict on one class, and the nodes that passed, part by part of the candidates.
pub(super) fn judge(
    view: &View,
    asked: &Asked<'_>,
    question: &Question,
    candidates: &Candidates<'_>,
    class: &TaskClass,
) -> Result<(FilterVerdict, Vec<Mask>), Problem> {
    let mut tally = Tally::new(asked.filterers(view, question, class)?);
    let mut passed = Vec::with_capacity(candidates.parts.len());
    let mut fit = Vec::with_capacity(candidates.len());
    for part in &candidates.parts {
        let stages = tally.stages();
        let left = if asked.is_each() {
            stages.fold(part.among, |left, stage| {
                left.and_not(&tally.ask(stage, part, &part.among))
            })
        } else {
            reduce::conjunction(stages, &part.among, |stage, left| tally.ask(stage, part, left))
        };
        part.push_slots(&left, &mut fit);
        passed.push(left);
    }
    let rejections = tally.rejections(view, &candidates.absent, question);
    Ok((FilterVerdict { fit, rejections }, passed))
}
