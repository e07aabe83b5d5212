//! Which nodes a task may run on under `compatibility: corrected`: those whose cards its queue may still give it.

use super::books::Ledger;
use super::counts::Counts;
use super::kinds::{CardSet, NodeKinds};
use super::need::{Asks, Need};
use super::refusal::{self, Dimension, Refusal};
use super::state::CapacityState;
use crate::engine::kernel::kernel;
use crate::engine::model::{CHUNK, Charge, Chunk, Mask, TaskClass, View};
use crate::engine::plugin::{Figure, Filterer, Reason, Verdicts};

/// The kind of node passes.
const PASSES: u16 = u16::MAX;

/// Verdicts on the kinds of nodes.
#[derive(Debug)]
pub(super) struct CardFilter<'a> {
    view: &'a View,
    kinds: &'a NodeKinds,
    /// Number of a refusal, by kind.
    by_kind: Vec<u16>,
    refusals: Vec<Refusal>,
}

impl CapacityState {
    /// What a class asks for, if it asks for cards, or for some that cannot be found out.
    pub(super) fn cards_needed<'c>(&self, view: &View, class: &'c TaskClass) -> Option<(&'c Charge, Need)> {
        let charge = class.charge.as_ref()?;
        let asks = Asks {
            annotations: &class.annotations,
            requests: &charge.requests,
            limits: charge.limits.as_deref(),
        };
        let need = Need::anywhere(self.context(view), asks);
        (need.fault.is_some() || !need.demands.is_empty()).then_some((charge, need))
    }

    /// The filter for a class; `None`: it asks for no cards, or belongs to no queue that is there.
    pub(super) fn node_filter<'a>(&'a self, view: &'a View, class: &TaskClass) -> Option<CardFilter<'a>> {
        let (charge, mut need) = self.cards_needed(view, class)?;
        let path = self.path(&charge.queue).ok()?;
        let ledger = path.is_configured().then(|| path.for_task());
        self.keep_to_one_card(
            &charge.job,
            &class.annotations,
            &charge.card,
            &mut need,
            ledger.as_ref(),
        );
        let mut refusals: Vec<Refusal> = Vec::new();
        let kinds = self.cards.kinds_of_nodes();
        let by_kind = kinds.each(|kind| {
            let refusal = match &need.fault {
                Some(fault) => Some(refusal::request_failed(&charge.queue, fault)),
                None => judge(&need, kind, ledger.as_ref()),
            };
            let Some(refusal) = refusal else { return PASSES };
            let known = refusals.iter().position(|known| *known == refusal);
            let number = known.unwrap_or(refusals.len());
            if known.is_none() {
                refusals.push(refusal);
            }
            u16::try_from(number).unwrap_or(PASSES - 1)
        });
        Some(CardFilter {
            view,
            kinds,
            by_kind,
            refusals,
        })
    }
}

/// What stands against a kind of node. Of several acceptable cards that it has, the first is what a task will use there.
fn judge(need: &Need, kind: &CardSet, ledger: Option<&Ledger<'_>>) -> Option<Refusal> {
    let mut taken = Counts::default();
    for demand in &need.demands {
        let has = |card: &str| kind.iter().any(|(own, _)| **own == *card);
        let Some((card, wanted)) = demand.alternatives.iter().find(|(card, _)| has(card)) else {
            return Some(refusal::not_on_node(&demand.name()));
        };
        taken.add_card(card, *wanted);
        let asked = taken.card_or_zero(card);
        if let Some((queue, compared, note)) = ledger.and_then(|ledger| ledger.tightest(card, asked))
            && compared.total > compared.capability
        {
            return Some(refusal::insufficient(queue, Dimension::Card(card), compared, &note));
        }
    }
    None
}

kernel! {
    /// Places with a number.
    fn equal / equal_plainly(numbers: &[u16; CHUNK], number: u16) -> Mask {
        Mask::gather(|offset| numbers.get(offset).copied().unwrap_or_default() == number)
    }
}

impl Filterer for CardFilter<'_> {
    fn filter(&self, chunk: &Chunk, among: &Mask, verdicts: &mut Verdicts) -> Mask {
        if self.refusals.is_empty() {
            return Mask::NONE;
        }
        let mut numbers = [PASSES; CHUNK];
        for (number, kind) in numbers.iter_mut().zip(self.kinds.column(chunk, self.view).iter()) {
            *number = self.by_kind.get(*kind as usize).copied().unwrap_or(PASSES);
        }
        let refused = among.and_not(&equal(&numbers, PASSES));
        let mut left = if verdicts.are_unread() { Mask::NONE } else { refused };
        // As many rounds as there are reasons here.
        while let Some(&number) = left.iter().next().and_then(|first| numbers.get(first)) {
            let alike = equal(&numbers, number);
            verdicts.refuse(number, &left.and(&alike));
            left = left.and_not(&alike);
        }
        refused
    }

    fn reason(&self, number: u16) -> Reason {
        match self.refusals.get(usize::from(number)) {
            Some(refusal) => refusal.reason.clone(),
            None => refusal::not_on_node("").reason,
        }
    }

    fn figures(&self, _: &Chunk, _: usize, number: u16) -> Vec<Figure> {
        let refusal = self.refusals.get(usize::from(number));
        refusal.map_or_else(Vec::new, |refusal| refusal.figures.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::model::{ResourceId, Table};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_node_is_refused_for_what_its_kind_is(
            nodes in prop::collection::vec(0_usize..6, CHUNK),
            by_kind in prop::collection::vec(prop_oneof![Just(PASSES), 0_u16..3], 6),
            asked in prop::collection::vec(any::<bool>(), CHUNK),
        ) {
            let view = View::new(Arc::new(Table::default()), 1);
            let mut kinds = NodeKinds::default();
            // Kinds get their numbers in the order in which they come.
            let mut numbers = BTreeMap::new();
            for (slot, &kind) in (0..).zip(&nodes) {
                let number = numbers.len();
                numbers.entry(kind).or_insert(number);
                kinds.put(slot, Some(vec![(format!("card-{kind}").into(), ResourceId::PODS)]));
            }
            let refusals = (0..3).map(|card| refusal::not_on_node(&format!("card-{card}"))).collect();
            let filter = CardFilter { view: &view, kinds: &kinds, by_kind, refusals };
            let among = Mask::gather(|offset| asked[offset]);
            let mut verdicts = Verdicts::default();
            let refused = filter.filter(&Chunk::at(0), &among, &mut verdicts);
            let reasons: Vec<(u16, Mask)> = verdicts.drain().collect();
            for offset in 0..CHUNK {
                let number = filter.by_kind[numbers[&nodes[offset]]];
                let expected = asked[offset] && number != PASSES;
                prop_assert_eq!(refused.get(offset), expected);
                let told: Vec<u16> = reasons.iter().filter(|(_, mask)| mask.get(offset)).map(|(own, _)| *own).collect();
                prop_assert_eq!(told, if expected { vec![number] } else { Vec::new() });
            }
        }

        #[test]
        fn every_processor_finds_the_same_places(
            numbers in prop::collection::vec(prop_oneof![0_u16..4, Just(PASSES)], CHUNK),
            number in prop_oneof![0_u16..4, Just(PASSES)],
        ) {
            let column: [u16; CHUNK] = std::array::from_fn(|offset| numbers[offset]);
            let chosen = equal(&column, number);
            prop_assert_eq!(chosen, equal_plainly::<false>(&column, number));
            prop_assert!(chosen.iter().eq((0..CHUNK).filter(|&offset| numbers[offset] == number)));
        }
    }
}
