//! Numbers of pods of a cluster state. The index is computed at the first query, and updated with each change. A state
//! without queries only stores a flag for each task.

use std::sync::{Arc, OnceLock};

use super::{PodClass, PodClassKey, PodIndex, TopologyCache, TopologyDomains};
use crate::model::cluster_state::ClusterState;
use crate::model::constraints::{PodAffinityTerm, PodConstraints};
use crate::model::pod_identity::PodIdentity;
use crate::model::records::{TaskRecord, TaskStatus};
use crate::model::stored::NodeSlot;

/// Pods of a cluster state.
#[derive(Clone, Debug, Default)]
pub(in crate::model) struct PodBook {
    /// Index, from the first question about it. Copies of the state share it.
    index: Arc<OnceLock<PodIndex>>,
    /// Number of pods with required terms of anti-affinity.
    repelling: usize,
    /// Number of pods with preferred terms.
    preferring: usize,
    /// Hypothetical pods, which have no records, with their numbers.
    hypothetical: Arc<Vec<(Arc<PodClass>, NodeSlot, u32)>>,
    /// Domains by topology key.
    pub(in crate::model) topologies: TopologyCache,
    /// State at the beginning of the cycle under `compatibility: upstream`, where an eviction takes a pod off its node at
    /// once; `None` elsewhere.
    beginning: Option<Arc<ClusterState>>,
    /// True: pods stay as the cycle found them.
    is_frozen: bool,
}

impl PodBook {
    /// Forgets the index.
    pub(in crate::model) fn forget(&mut self) {
        self.index = Arc::default();
    }

    /// Forgets the index if some pod waits for its node to come. An index that is not computed yet may belong to a copy of
    /// the state without the node.
    pub(in crate::model) fn forget_orphans(&mut self) {
        if self.index.get().is_none_or(|index| index.orphans > 0) {
            self.forget();
        }
    }

    /// Index to change; `None`: it is computed later, from what the state will be.
    fn index_mut(&mut self) -> Option<&mut PodIndex> {
        if self.index.get().is_some() {
            return Arc::make_mut(&mut self.index).get_mut();
        }
        if Arc::get_mut(&mut self.index).is_none() {
            self.forget();
        }
        None
    }

    /// Adds or removes the terms of pods.
    fn count_terms(&mut self, constraints: &PodConstraints, count: usize, add: bool) {
        let change = |total: &mut usize| {
            *total = if add {
                total.saturating_add(count)
            } else {
                total.saturating_sub(count)
            };
        };
        if !constraints.pod_anti_affinity.required.is_empty() {
            change(&mut self.repelling);
        }
        if !(constraints.pod_affinity.preferred.is_empty() && constraints.pod_anti_affinity.preferred.is_empty()) {
            change(&mut self.preferring);
        }
    }
}

impl ClusterState {
    /// Pods on nodes, by class. The first question computes the index.
    pub fn pods(&self) -> &PodIndex {
        if let Some(beginning) = self.cycle_beginning().filter(|_| self.keeps_pods()) {
            return beginning.pods();
        }
        self.pod_book.index.get_or_init(|| {
            let tasks = self.tasks().iter().map(|(_, stored)| &stored.record);
            let on_nodes = tasks.filter(|task| self.has_pod_on_node(task));
            let mut index = PodIndex::of(on_nodes.map(|task| (task, self.slot_of(&task.node))));
            for (class, slot, count) in self.pod_book.hypothetical.iter() {
                index.add(class.key(), *slot, *count);
            }
            index
        })
    }

    /// True if the records leave open which pods a term of this pod selects: it reads the labels of a namespace without
    /// a record.
    pub fn leaves_open(&self, term: &PodAffinityTerm, pod: &PodIdentity) -> bool {
        let is_open = |other: &PodIdentity| term.matches(&pod.namespace, other, self.namespaces()).is_none();
        term.needs_namespaces() && (is_open(pod) || self.pods().classes().any(|(class, _)| is_open(&class.pod)))
    }

    /// Domains of a topology key.
    pub fn topology_domains(&self, key: &Arc<str>) -> Arc<TopologyDomains> {
        self.pod_book.topologies.domains(self, key)
    }

    /// True if some pod has required terms of anti-affinity.
    pub fn has_repelling_pods(&self) -> bool {
        self.pod_book.repelling > 0
    }

    /// True if some pod has preferred terms about other pods.
    pub fn has_preferring_pods(&self) -> bool {
        self.pod_book.preferring > 0
    }

    /// True if no pod has terms about other pods that a later pod must heed.
    pub fn has_no_terms(&self) -> bool {
        !self.has_repelling_pods() && !self.has_preferring_pods()
    }

    /// State at the beginning of the cycle under `compatibility: upstream`; `None`: this state belongs to no such cycle.
    pub fn cycle_beginning(&self) -> Option<&Self> {
        self.pod_book.beginning.as_deref()
    }

    /// Begins a cycle under `compatibility: upstream`. Without `moves_pods`, selectors see the pods of the beginning until its
    /// end.
    pub(crate) fn begin_upstream_cycle(&mut self, moves_pods: bool) {
        self.pod_book.beginning = None;
        self.pod_book.is_frozen = false;
        let beginning = Arc::new(self.clone());
        self.pod_book.beginning = Some(beginning);
        self.pod_book.is_frozen = !moves_pods;
    }

    /// True if selectors see the pods as the cycle found them.
    pub(crate) fn keeps_pods(&self) -> bool {
        self.pod_book.is_frozen
    }

    /// Adds hypothetical pods of a class on a node.
    pub(crate) fn add_hypothetical_pods(&mut self, class: &Arc<PodClass>, slot: NodeSlot, count: u32) {
        let book = &mut self.pod_book;
        if book.is_frozen {
            return;
        }
        if let Some(constraints) = &class.constraints {
            book.count_terms(constraints, count as usize, true);
        }
        Arc::make_mut(&mut book.hypothetical).push((Arc::clone(class), slot, count));
        if let Some(index) = book.index_mut() {
            index.add(class.key(), slot, count);
        }
    }

    /// Adds the pod of a task, or removes it.
    pub(in crate::model) fn count_pod(&mut self, task: &TaskRecord, add: bool) {
        if self.keeps_pods() || !self.has_pod_on_node(task) {
            return;
        }
        if let Some(constraints) = &task.constraints {
            self.pod_book.count_terms(constraints, 1, add);
        }
        if self.pod_book.index_mut().is_none() {
            return;
        }
        let slot = self.slot_of(&task.node);
        let Some(index) = self.pod_book.index_mut() else { return };
        match (slot, add) {
            (Some(slot), true) => index.add(PodClassKey::of(task), slot, 1),
            (Some(slot), false) => index.remove(PodClassKey::of(task), slot),
            (None, true) => index.orphans += 1,
            (None, false) => index.orphans = index.orphans.saturating_sub(1),
        }
    }

    /// True if filters and scores see the task's pod on its node.
    fn has_pod_on_node(&self, task: &TaskRecord) -> bool {
        if task.node.is_empty() || !task.status.is_on_node() {
            return false;
        }
        let Some(beginning) = self.cycle_beginning().filter(|_| task.status == TaskStatus::Releasing) else {
            return true;
        };
        let before = beginning.tasks().get(&task.name);
        before.is_none_or(|before| before.record.status == TaskStatus::Releasing)
    }
}
