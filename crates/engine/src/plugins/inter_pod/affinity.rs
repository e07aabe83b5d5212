//! Required terms of pod affinity and anti-affinity.

use super::marks::DomainMarks;
use super::{PodView, unknown_namespaces};
use crate::model::constraints::{PodAffinityTerm, PodConstraints};
use crate::model::{NodeChunk, NodeMask, NodeSlot, PodClass, Problem};
use crate::plugin::{PeerFilter, PeerHook, PeerKey};
use crate::policy::Compatibility;

/// Prepared filter of the required terms about other pods.
#[derive(Debug, Default)]
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
    /// Nodes whose pods with anti-affinity are included, sorted. `None`: all nodes.
    known: Option<Vec<NodeSlot>>,
    /// Marks that each further pod of the class makes; empty unless the filter follows placements.
    own: OwnMarks,
}

/// Positions of the topology keys whose domains a pod of the class marks.
#[derive(Debug, Default)]
struct OwnMarks {
    attracting: Vec<usize>,
    repelling: Vec<usize>,
    repelled_by: Vec<usize>,
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
    /// Filter of a class. `None`: the class never rejects nodes.
    ///
    /// # Errors
    /// It is unknown whether a pod rejects the class: the labels of the class's namespace are missing.
    pub(in crate::plugins) fn new(view: &PodView<'_>) -> Result<Option<Self>, Problem> {
        let (attracts, repels) = (&view.constraints.pod_affinity, &view.constraints.pod_anti_affinity);
        if attracts.required.is_empty() && repels.required.is_empty() && !view.cluster_state.has_repelling_pods() {
            return Ok(None);
        }
        let mut filter = Self {
            known: known_at_beginning(view, |own| !own.pod_anti_affinity.required.is_empty()),
            ..Self::default()
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
        filter.may_be_first = !filter.attracting.has_marks() && attracting.iter().all(matches_own);
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
            for (slot, _) in counts {
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
                let known = self.known.as_deref();
                for (slot, _) in counts.iter().filter(|(slot, _)| is_known(known, *slot)) {
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

/// True if the pods on a node count: it is one of these nodes, which are sorted. `None`: the pods on all nodes count.
pub(super) fn is_known(known: Option<&[NodeSlot]>, slot: NodeSlot) -> bool {
    known.is_none_or(|known| known.binary_search(&slot).is_ok())
}

impl AffinityFilter {
    /// Filter that is updated with placements of the class. All its terms can be evaluated.
    pub(in crate::plugins) fn following(mut self, view: &PodView<'_>) -> Self {
        let (attracts, repels) = (&view.constraints.pod_affinity, &view.constraints.pod_anti_affinity);
        let state = view.cluster_state;
        let is_own = |(term, _): &KeyedTerm<'_>| view.selects(term, view.pod) == Some(true);
        let mut attracting = keyed_terms(view, &attracts.required, &mut self.attracting);
        if !attracting.iter().all(is_own) {
            attracting.clear();
        }
        let mut repelling = keyed_terms(view, &repels.required, &mut self.repelling);
        repelling.retain(is_own);
        let keys = |terms: &[KeyedTerm<'_>]| terms.iter().map(|(_, key)| *key).collect();
        let repelled_by = repelling
            .iter()
            .map(|(term, _)| self.repelled_by.position(state, &term.topology_key));
        self.own = OwnMarks {
            repelled_by: repelled_by.collect(),
            attracting: keys(&attracting),
            repelling: keys(&repelling),
        };
        for marks in [&mut self.attracting, &mut self.repelling, &mut self.repelled_by] {
            marks.split(state.slots());
        }
        self
    }
}

impl PeerHook for AffinityFilter {
    fn append_key(&self, slot: NodeSlot, key: &mut PeerKey) {
        for marks in [&self.attracting, &self.repelling, &self.repelled_by] {
            marks.append_key(slot, key);
        }
    }

    fn place(&mut self, slot: NodeSlot, changed: &mut Vec<NodeSlot>) {
        for key in &self.own.attracting {
            self.attracting.mark_peers(*key, slot, changed);
        }
        self.may_be_first &= !self.attracting.has_marks();
        for key in &self.own.repelling {
            self.repelling.mark_peers(*key, slot, changed);
        }
        if is_known(self.known.as_deref(), slot) {
            for key in &self.own.repelled_by {
                self.repelled_by.mark_peers(*key, slot, changed);
            }
        }
    }
}

impl PeerFilter for AffinityFilter {
    fn passes(&self, key: &[i64]) -> bool {
        let (attracting, key) = key.split_at_checked(self.attracting.len()).unwrap_or_default();
        let (repelling, repelled_by) = key.split_at_checked(self.repelling.len()).unwrap_or_default();
        let mut attracted = self.attracting.marks_of(attracting);
        let all = attracted.try_fold(true, |all, mark| Some(all & mark?));
        let lacks = self.attracts && all.is_none_or(|all| !all && !self.may_be_first);
        let mut marks = self
            .repelling
            .marks_of(repelling)
            .chain(self.repelled_by.marks_of(repelled_by));
        !lacks && !marks.any(|mark| mark == Some(true))
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

/// Slots of the nodes that had a pod with such constraints at the start of the cycle, sorted. Volcano lists these nodes
/// when it opens a session. `None`: all nodes.
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
