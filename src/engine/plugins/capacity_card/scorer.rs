//! How nodes are scored under `compatibility: corrected`: by the first acceptable card that they have.

use super::annotations::OR;
use super::books::Path;
use super::kinds::NodeKinds;
use super::node_order::score;
use super::state::CapacityState;
use crate::engine::model::{CHUNK, Chunk, TaskClass, View};
use crate::engine::plugin::{Scorer, Scores};

/// Scores of the kinds of nodes.
#[derive(Debug)]
pub(super) struct KindScorer<'a> {
    view: &'a View,
    kinds: &'a NodeKinds,
    by_kind: Vec<f64>,
}

impl CapacityState {
    /// The scorer for a class that may use any of several cards. With `nodeOrderByQuota` cards that the queue may not
    /// give do not count: the others move up, and nodes that have none of them score 0.
    pub(super) fn node_scorer<'a>(&'a self, view: &'a View, class: &TaskClass, name: &str) -> KindScorer<'a> {
        let queue = class.charge.as_ref().map(|charge| &charge.queue);
        let path = queue.filter(|_| self.config.order_by_quota);
        let path = path.and_then(|queue| self.path(queue).ok()).filter(Path::is_configured);
        let ledger = path.as_ref().map(|path| path.for_task());
        let asked = |card: &str| {
            let charge = class.charge.as_ref()?;
            let (id, _) = self.cards.resource(card)?;
            let limit = charge.limits.as_ref().and_then(|limits| limits.get(id));
            Some(super::cards::cards_milli(
                id,
                limit.or_else(|| charge.requests.get(id))?,
            ))
        };
        let left = |card: &&str| match (&ledger, asked(card)) {
            (Some(ledger), Some(asked)) => ledger
                .tightest(card, asked)
                .is_none_or(|(_, compared, _)| compared.total <= compared.capability),
            (None, _) | (_, None) => true,
        };
        let cards: Vec<&str> = name.split(OR).filter(left).collect();
        let kinds = self.cards.kinds_of_nodes();
        let by_kind = kinds.each(|kind| {
            let has = |card: &&str| kind.iter().any(|(own, _)| **own == **card);
            let rank = cards.iter().position(has);
            rank.map_or(0.0, |rank| score(rank, self.config.weight))
        });
        KindScorer { view, kinds, by_kind }
    }
}

impl Scorer for KindScorer<'_> {
    fn parts(&self) -> &[&'static str] {
        &[""]
    }

    fn score(&self, chunk: &Chunk, parts: &mut [Scores]) {
        let Some(scores) = parts.first_mut() else { return };
        *scores = [0.0; CHUNK];
        let column = self.kinds.column(chunk, self.view);
        for (score, kind) in scores.iter_mut().zip(column.iter()) {
            *score = self.by_kind.get(*kind as usize).copied().unwrap_or(0.0);
        }
    }
}
