//! Checks of other pods: inter-pod affinity, anti-affinity and topology spread.

use super::added_rules::AddedRules;
use super::arguments::{PredicateArguments, PredicateCheck};
use super::rejection_kind::{NotedRejections, RejectionKind};
use crate::model::{NodeChunk, NodeMask, Problem, TaskClass};
use crate::plugin::{PeerFilter, PluginContext};
use crate::plugins::inter_pod::{AffinityFilter, PodView, SpreadFilter};
use crate::policy::Compatibility;

/// Prepared checks of other pods. A check that rejects no node of the class is left out.
#[derive(Debug, Default)]
pub(super) struct PodChecks<'a> {
    /// Class with the pods that it sees; `None`: nothing about pods is evaluated.
    view: Option<PodView<'a>>,
    affinity: Option<AffinityFilter>,
    spread: Option<SpreadFilter>,
    /// True if a node takes one pod of the class.
    one_per_node: bool,
}

impl<'a> PodChecks<'a> {
    pub(super) fn new(
        arguments: PredicateArguments,
        compatibility: Compatibility,
        context: PluginContext<'a>,
        class: &'a TaskClass,
        added: &'a AddedRules,
    ) -> Result<Self, Problem> {
        let Some(pod) = &class.pod else {
            return Ok(Self::default());
        };
        let view = PodView {
            cluster_state: context.cluster_state,
            pod,
            constraints: class.constraints(),
            spread_defaults: &added.spread_defaults,
            compatibility,
            opens_selectors: added.opens_selectors || compatibility.is_upstream(),
            after_release: context.after_release && compatibility == Compatibility::Corrected,
        };
        let affinity = arguments
            .has(PredicateCheck::PodAffinity)
            .then(|| AffinityFilter::new(&view));
        Ok(Self {
            view: Some(view),
            affinity: affinity.transpose()?.flatten(),
            spread: arguments
                .has(PredicateCheck::TopologySpread)
                .then(|| SpreadFilter::new(&view))
                .flatten(),
            one_per_node: arguments.has(PredicateCheck::PodAffinity)
                && context.cluster_state.repel_each_other_by_node(class.constraints(), pod),
        })
    }

    /// True if a check reads pods and domains of other nodes.
    pub(super) fn reads_other_nodes(&self) -> bool {
        self.affinity.is_some() || self.spread.is_some()
    }

    /// Splits off the checks that depend on other nodes.
    pub(super) fn split_peers(&mut self) -> Vec<Box<dyn PeerFilter>> {
        let mut filters: Vec<Box<dyn PeerFilter>> = Vec::new();
        let Some(view) = self.view else { return filters };
        if let Some(affinity) = self.affinity.take() {
            filters.push(Box::new(affinity.following(&view)));
        }
        if let Some(spread) = self.spread.take() {
            filters.push(Box::new(spread.following(&view)));
        }
        filters
    }

    /// Adds rejected nodes with their reasons, in the order of the reference: a node that lacks pods for its affinity has that
    /// reason alone.
    pub(super) fn judge(&self, chunk: &NodeChunk, among: &NodeMask, rejected: &mut NotedRejections) {
        if chunk.is_detached() {
            // Nodes of a detached chunk passed and took a task of the class. A class whose tasks change verdicts on other nodes
            // is judged task by task.
            if self.one_per_node {
                rejected.push((RejectionKind::PodAntiAffinity, *among));
            }
            return;
        }
        let mut left = *among;
        if let Some(affinity) = &self.affinity {
            let rejections = affinity.judge(chunk, among);
            left = left.and_not(&rejections.affinity);
            rejected.extend([
                (RejectionKind::PodAffinity, rejections.affinity),
                (RejectionKind::PodAntiAffinity, rejections.anti_affinity),
                (
                    RejectionKind::ExistingPodAntiAffinity,
                    rejections.existing_anti_affinity,
                ),
            ]);
        }
        if let Some(spread) = &self.spread {
            let rejections = spread.judge(chunk, &left);
            rejected.extend([
                (RejectionKind::MissingTopologyLabel, rejections.missing_label),
                (RejectionKind::TopologySpread, rejections.skew),
            ]);
        }
    }
}
