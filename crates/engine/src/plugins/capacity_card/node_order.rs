//! The node order score: nodes with an earlier one of the acceptable cards first.

use super::amounts::CARD_SEPARATOR;
use crate::cards::NodeCards;

/// 100 for a node with the first of several acceptable cards, half as much for each later one, times the weight; 0 for
/// a single card, and for a node without any of them.
pub fn node_order(card_name: &str, node: Option<&NodeCards>, weight: f64) -> f64 {
    let Some(node) = node.filter(|_| card_name.contains(CARD_SEPARATOR)) else {
        return 0.0;
    };
    let rank = card_name
        .split(CARD_SEPARATOR)
        .position(|card| node.cards.contains_key(card));
    rank.map_or(0.0, |rank| rank_score(rank, weight))
}

/// The score of the acceptable card of this rank, from 0.
pub(super) fn rank_score(rank: usize, weight: f64) -> f64 {
    let halvings = i32::try_from(rank).unwrap_or(i32::MAX);
    100.0 * 0.5_f64.powi(halvings) * weight
}
