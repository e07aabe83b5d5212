//! Scores as kube-scheduler's extender protocol takes them: whole numbers from 0 to the most.

use std::sync::Arc;

use super::asked_nodes::AskedNodes;
use super::asked_pod::AskedPod;
use super::{ExtenderFront, ResponseMode};
use crate::server::status::RpcResult;
use pumice_engine::model::NodeSlot;
use pumice_state::policy_in_snapshot;

/// Most that a scheduler expects of an extender (`MaxExtenderPriority` of k8s.io/kube-scheduler).
const MAX_SCORE: f64 = 10.0;

/// Monotone map from a policy's scores to whole numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScoreScale {
    /// Least and greatest score that the policy can give; `None`: it has no bounds.
    bounds: Option<(f64, f64)>,
    most: f64,
}

impl ScoreScale {
    /// The scale for these scores. Where the policy has no bounds, 0 stays 0 and the best node gets the most.
    pub(super) fn fit_to(self, scores: &[f64]) -> Self {
        let seen = || {
            let low = scores.iter().copied().fold(0.0, f64::min);
            (low, scores.iter().copied().fold(0.0, f64::max))
        };
        Self {
            bounds: Some(self.bounds.unwrap_or_else(seen)),
            ..self
        }
    }

    /// Whole number of a score.
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and the most, which is small")]
    pub(super) fn of(self, score: f64) -> i64 {
        let (low, high) = self.bounds.unwrap_or((0.0, 0.0));
        if high <= low || (high - low).is_nan() || score.is_nan() {
            return 0;
        }
        let share = ((score - low) / (high - low)).clamp(0.0, 1.0);
        (share * self.most).round() as i64
    }
}

impl ExtenderFront {
    /// Scale of a policy's scores.
    ///
    /// # Errors
    /// The policy does not exist.
    pub(super) fn scale(&self, policy: &str) -> RpcResult<ScoreScale> {
        let policy = policy_in_snapshot(&self.edge.state.snapshot(), policy, "")?;
        Ok(ScoreScale {
            bounds: policy.policy.score_bounds(),
            most: MAX_SCORE.max(self.edge.read_options.limits.extender_max_score as f64),
        })
    }

    /// Scores of the nodes of a request in the last offer to the pod; `None`: it does not have all of them.
    fn offered_scores(&self, policy: &str, pod: &AskedPod, nodes: &AskedNodes) -> Option<Vec<i64>> {
        let offer = self.offers.get(&pod.offer_key(policy))?;
        let snapshot = self.edge.state.snapshot();
        if offer.scores.generation != snapshot.state.generation() {
            return None;
        }
        let score = |name: &str| offer.scores.of(snapshot.state.slot_of(name)?);
        nodes.names().map(score).collect()
    }

    /// Scores of the nodes of a request, in its order: from the last offer to the pod, or computed now.
    pub(super) async fn scores_of(
        self: &Arc<Self>,
        policy: &str,
        pod: &AskedPod,
        nodes: &AskedNodes,
        mode: ResponseMode,
    ) -> RpcResult<Vec<i64>> {
        if let Some(scores) = self.offered_scores(policy, pod, nodes) {
            return Ok(scores);
        }
        let status = self.status(pod, mode).await?;
        let scored = self.score(policy, pod, nodes, &status).await?;
        let scaled = scored.scaled(self.scale(policy)?);
        let score = |slot: &Option<NodeSlot>| slot.and_then(|slot| scaled.of(slot)).unwrap_or(0);
        Ok(scored.slots.iter().map(score).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_monotone_and_stay_within_their_ends() {
        let bounded = ScoreScale {
            bounds: Some((0.0, 200.0)),
            most: 10.0,
        };
        let fitted = bounded.fit_to(&[100.0, 300.0]);
        assert_eq!(
            [-5.0, 0.0, 9.0, 10.0, 100.0, 199.0, 300.0].map(|score| fitted.of(score)),
            [0, 0, 0, 1, 5, 10, 10]
        );
        let unbounded = ScoreScale {
            bounds: None,
            most: 10.0,
        };
        let fitted = unbounded.fit_to(&[0.0, 3.0, 6.0]);
        assert_eq!([0.0, 3.0, 6.0].map(|score| fitted.of(score)), [0, 5, 10]);
        let fitted = unbounded.fit_to(&[-4.0, 0.0, 4.0]);
        assert_eq!([-4.0, 0.0, 4.0, f64::NAN].map(|score| fitted.of(score)), [0, 5, 10, 0]);
        assert_eq!(unbounded.fit_to(&[0.0, 0.0]).of(0.0), 0);
        let mut last = 0;
        for step in -50_i32..300 {
            let score = bounded.fit_to(&[]).of(f64::from(step));
            assert!(score >= last && score <= 10);
            last = score;
        }
    }
}
