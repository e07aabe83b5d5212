//! Required terms of pod affinity and anti-affinity.

use super::marks::DomainMarks;
use super::{PodView, unknown_namespaces};
use crate::model::constraints::{PodAffinityTerm, PodConstraints};
use crate::model::{NodeChunk, NodeMask, NodeSlot, PodClass, Problem};
use crate::policy::Compatibility;

/// Prepared filter of the required terms about other pods.
#[derive(Debug)]
pub(in crate::plugins) struct AffinityFilter {
    /// True if the class has required terms of affinity.
    attracts: bool,
    /// Domains with a pod that matches all of them.
    attracting: DomainMarks,
    /// True if no such pod exists and the class matches its own terms: it may be the first of its group.
    may_be_first: bool,
    /// Domains with a pod that matches a term of the class's anti-affinity.
    repelling: DomainMarks,
    /// Domains with a pod whose anti-affinity matches the class.
    repelled_by: DomainMarks,
}

/// Rejected nodes of a chunk, by reason; a node has at most one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::plugins) struct AffinityRejections {
    /// Nodes without the pods that the class must be near to.
    pub(in crate::plugins) affinity: NodeMask,
    /// Nodes with pods that the class must not be near to.
    pub(in crate::plugins) anti_affinity: NodeMask,
    /// Nodes with pods that must not be near to the class.
    pub(in crate::plugins) existing_anti_affinity: NodeMask,
}

/// Term with the position of its topology key.
type KeyedTerm<'a> = (&'a PodAffinityTerm, usize);

impl AffinityFilter {
    /// Filter of a class; `None`: no node is rejected.
    ///
    /// # Errors
    /// No record tells whether a pod keeps the class away: the labels of the class's namespace are not known.
    pub(in crate::plugins) fn new(view: &PodView<'_>) -> Result<Option<Self>, Problem> {
        let (attracts, repels) = (&view.constraints.pod_affinity, &view.constraints.pod_anti_affinity);
        if attracts.required.is_empty() && repels.required.is_empty() && !view.cluster_state.has_repelling_pods() {
            return Ok(None);
        }
        let mut filter = Self {
            attracts: false,
            attracting: DomainMarks::default(),
            may_be_first: false,
            repelling: DomainMarks::default(),
            repelled_by: DomainMarks::default(),
        };
        let state = view.cluster_state;
        let attracting = keyed_terms(view, &attracts.required, &mut filter.attracting);
        let repelling = keyed_terms(view, &repels.required, &mut filter.repelling);
        filter.attracts = !attracting.is_empty();
        filter.mark_selected(view, &attracting, &repelling);
        if state.has_repelling_pods() {
            filter.mark_repelled(view)?;
        }
        let matches_own = |(term, _): &KeyedTerm<'_>| view.selects(term, view.pod) == Some(true);
        filter.may_be_first = filter.attracting.is_empty() && attracting.iter().all(matches_own);
        Ok(Some(filter))
    }

    /// Marks the domains of pods that the class's terms select.
    fn mark_selected(&mut self, view: &PodView<'_>, attracting: &[KeyedTerm<'_>], repelling: &[KeyedTerm<'_>]) {
        if attracting.is_empty() && repelling.is_empty() {
            return;
        }
        let selects_class = |term: &PodAffinityTerm, class: &PodClass| view.selects(term, &class.pod) == Some(true);
        for (class, counts) in view.classes() {
            let attracted = self.attracts && attracting.iter().all(|(term, _)| selects_class(term, class));
            let keys = attracting.iter().filter(|_| attracted).map(|(_, key)| *key);
            let keys: Vec<usize> = keys.collect();
            let repelled = repelling.iter().filter(|(term, _)| selects_class(term, class));
            let repelled: Vec<usize> = repelled.map(|(_, key)| *key).collect();
            if keys.is_empty() && repelled.is_empty() {
                continue;
            }
            for (slot, _) in counts.iter().filter(|(slot, _)| view.sees_node(*slot)) {
                for key in &keys {
                    self.attracting.mark(*key, *slot);
                }
                for key in &repelled {
                    self.repelling.mark(*key, *slot);
                }
            }
        }
    }

    /// Marks the domains of pods whose anti-affinity matches the class.
    fn mark_repelled(&mut self, view: &PodView<'_>) -> Result<(), Problem> {
        let known = known_at_beginning(view, |own| !own.pod_anti_affinity.required.is_empty());
        let is_known = |slot: NodeSlot| known.as_ref().is_none_or(|known| known.binary_search(&slot).is_ok());
        for (class, counts) in view.classes() {
            let Some(constraints) = &class.constraints else {
                continue;
            };
            for term in &constraints.pod_anti_affinity.required {
                let matches = view.is_selected_by(term, &class.pod);
                if !matches.ok_or_else(|| unknown_anti_affinity(view, class))? {
                    continue;
                }
                let key = self.repelled_by.position(view.cluster_state, &term.topology_key);
                for (slot, _) in counts
                    .iter()
                    .filter(|(slot, _)| view.sees_node(*slot) && is_known(*slot))
                {
                    self.repelled_by.mark(key, *slot);
                }
            }
        }
        Ok(())
    }

    /// Rejected nodes of a chunk.
    pub(in crate::plugins) fn judge(&self, chunk: &NodeChunk, among: &NodeMask) -> AffinityRejections {
        let mut rejections = AffinityRejections::default();
        for offset in among.iter() {
            let Some(slot) = chunk.slot(offset) else { continue };
            if self.attracts
                && self
                    .attracting
                    .marks_all(slot)
                    .is_none_or(|all| !all && !self.may_be_first)
            {
                rejections.affinity.set(offset, true);
            } else if self.repelling.marks_any(slot) {
                rejections.anti_affinity.set(offset, true);
            } else if self.repelled_by.marks_any(slot) {
                rejections.existing_anti_affinity.set(offset, true);
            }
        }
        rejections
    }
}

/// Problem of an anti-affinity of another pod that selects namespaces by their labels.
fn unknown_anti_affinity(view: &PodView<'_>, other: &PodClass) -> Problem {
    unknown_namespaces(
        view,
        other,
        "required",
        "nobody can say whether the pod keeps the namespace's pods away",
    )
}

/// Evaluated terms with their positions among the marks.
fn keyed_terms<'a>(view: &PodView<'_>, terms: &'a [PodAffinityTerm], marks: &mut DomainMarks) -> Vec<KeyedTerm<'a>> {
    let evaluated = terms.iter().filter(|term| view.is_evaluated(term));
    evaluated
        .map(|term| (term, marks.position(view.cluster_state, &term.topology_key)))
        .collect()
}

/// Slots of the nodes that had a pod with such constraints at the beginning of the cycle, sorted; `None`: all nodes count.
/// Volcano lists these nodes when it opens a session.
pub(super) fn known_at_beginning(
    view: &PodView<'_>,
    is_listed: impl Fn(&PodConstraints) -> bool,
) -> Option<Vec<NodeSlot>> {
    let beginning = view.cluster_state.cycle_beginning()?;
    if view.compatibility == Compatibility::Corrected {
        return None;
    }
    let classes = beginning.pods().classes();
    let listed = classes.filter(|(class, _)| class.constraints.as_deref().is_some_and(&is_listed));
    let mut slots: Vec<NodeSlot> = listed.flat_map(|(_, counts)| counts).map(|(slot, _)| *slot).collect();
    slots.sort_unstable();
    slots.dedup();
    Some(slots)
}
