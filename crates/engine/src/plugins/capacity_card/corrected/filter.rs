//! Which nodes a task may run on those whose cards its queue may still give it.

use pumice_kernels::selection::equal_mask;

use super::path_usage::PathUsage;
use super::state::CapacityState;
use super::task_need::TaskNeed;
use crate::model::{CHUNK_SIZE, ClusterState, NodeChunk, NodeMask, TaskClass};
use crate::plugin::{ChunkRejections, Measurement, NodeFilter, Reason};
use crate::plugins::capacity_card::{
    CardSet, NodeKinds, QuotaAmounts, QuotaDimension, QuotaRejection, TaskRequest, rejection,
};

/// The kind of node passes.
const PASSING_KIND: u16 = u16::MAX;

/// Verdicts on the kinds of nodes.
#[derive(Debug)]
pub(super) struct CardFilter<'a> {
    cluster_state: &'a ClusterState,
    kinds: &'a NodeKinds,
    /// Number of a refusal, by kind.
    rejection_by_kind: Vec<u16>,
    rejections: Vec<QuotaRejection>,
}

impl CapacityState {
    /// The filter for a class; `None`: it asks for no cards, or belongs to no queue that is there.
    pub(super) fn card_filter<'a>(
        &'a self,
        cluster_state: &'a ClusterState,
        class: &TaskClass,
    ) -> Option<CardFilter<'a>> {
        let (charge, task) = (class.charge.as_ref()?, TaskRequest::of_class(class)?);
        let mut need = TaskNeed::of(self.need_context(cluster_state), task);
        if need.is_plain() {
            return None;
        }
        let path = self.queue_path(&charge.queue).ok()?;
        let usage = path.is_configured().then(|| path.usage_for_task());
        self.keep_to_given_cards(cluster_state, task, &mut need, &path);
        let mut rejections: Vec<QuotaRejection> = Vec::new();
        let kinds = self.cards.node_kinds();
        let by_kind = kinds.map_kinds(|kind| {
            let rejection = match &need.request_error {
                Some(problem) => Some(rejection::request_failed(&charge.queue, problem)),
                None => reject_kind(&need, kind, usage.as_ref()),
            };
            let Some(rejection) = rejection else {
                return PASSING_KIND;
            };
            let known = rejections.iter().position(|known| *known == rejection);
            let number = known.unwrap_or(rejections.len());
            if known.is_none() {
                rejections.push(rejection);
            }
            u16::try_from(number).unwrap_or(PASSING_KIND - 1)
        });
        Some(CardFilter {
            cluster_state,
            kinds,
            rejection_by_kind: by_kind,
            rejections,
        })
    }
}

/// Reason against a kind of node. Of several acceptable cards that it has, the first is what a task will use there.
fn reject_kind(need: &TaskNeed, kind: &CardSet, usage: Option<&PathUsage<'_>>) -> Option<QuotaRejection> {
    let mut taken = QuotaAmounts::default();
    for demand in &need.demands {
        let has = |card: &str| kind.iter().any(|(own, _)| **own == *card);
        let Some((card, wanted)) = demand.alternatives.iter().find(|(card, _)| has(card)) else {
            return Some(rejection::card_not_on_node(&demand.name()));
        };
        taken.add_card(card, *wanted);
        let asked = taken.card_or_zero(card);
        if let Some((queue, compared, note)) = usage.and_then(|usage| usage.tightest_quota(card, asked))
            && compared.is_short()
        {
            return Some(rejection::insufficient(
                queue,
                QuotaDimension::Card(card),
                compared,
                &note,
            ));
        }
    }
    None
}

impl NodeFilter for CardFilter<'_> {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        if self.rejections.is_empty() {
            return NodeMask::NONE;
        }
        let mut numbers = [PASSING_KIND; CHUNK_SIZE];
        for (number, kind) in numbers
            .iter_mut()
            .zip(self.kinds.column(chunk, self.cluster_state).iter())
        {
            *number = self
                .rejection_by_kind
                .get(*kind as usize)
                .copied()
                .unwrap_or(PASSING_KIND);
        }
        let refused = among.and_not(&equal_mask(&numbers, PASSING_KIND));
        let mut left = if verdicts.ignores_reasons() {
            NodeMask::NONE
        } else {
            refused
        };
        // As many rounds as there are reasons here.
        while let Some(&number) = left.iter().next().and_then(|first| numbers.get(first)) {
            let alike = equal_mask(&numbers, number);
            verdicts.reject(number, &left.and(&alike));
            left = left.and_not(&alike);
        }
        refused
    }

    fn reason(&self, number: u16) -> Reason {
        match self.rejections.get(usize::from(number)) {
            Some(rejection) => rejection.reason.clone(),
            None => rejection::card_not_on_node("").reason,
        }
    }

    fn has_lasting_reasons(&self) -> bool {
        true
    }

    fn measurements(&self, _: &NodeChunk, _: usize, number: u16) -> Vec<Measurement> {
        let rejection = self.rejections.get(usize::from(number));
        rejection.map_or_else(Vec::new, |rejection| rejection.measurements.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::{ResourceId, SortedTable};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn rejects_each_node_by_its_kind(
            nodes in prop::collection::vec(0_usize..6, CHUNK_SIZE),
            by_kind in prop::collection::vec(prop_oneof![Just(PASSING_KIND), 0_u16..3], 6),
            asked in prop::collection::vec(any::<bool>(), CHUNK_SIZE),
        ) {
            let cluster_state = ClusterState::new(Arc::new(SortedTable::default()), 1);
            let mut kinds = NodeKinds::default();
            // Kinds get their numbers in the order in which they come.
            let mut numbers = BTreeMap::new();
            for (slot, &kind) in (0..).zip(&nodes) {
                let number = numbers.len();
                numbers.entry(kind).or_insert(number);
                kinds.set_node(slot, Some(vec![(format!("card-{kind}").into(), ResourceId::PODS)]));
            }
            let rejections = (0..3).map(|card| rejection::card_not_on_node(&format!("card-{card}"))).collect();
            let filter = CardFilter { cluster_state: &cluster_state, kinds: &kinds, rejection_by_kind: by_kind, rejections };
            let among = NodeMask::gather(|offset| asked[offset]);
            let mut verdicts = ChunkRejections::default();
            let refused = filter.filter(&NodeChunk::at(0), &among, &mut verdicts);
            let reasons: Vec<(u16, NodeMask)> = verdicts.drain().collect();
            for offset in 0..CHUNK_SIZE {
                let number = filter.rejection_by_kind[numbers[&nodes[offset]]];
                let expected = asked[offset] && number != PASSING_KIND;
                prop_assert_eq!(refused.get(offset), expected);
                let reported: Vec<u16> = reasons.iter().filter(|(_, mask)| mask.get(offset)).map(|(own, _)| *own).collect();
                prop_assert_eq!(reported, if expected { vec![number] } else { Vec::new() });
            }
        }
    }
}
