//! Pods on nodes by class. A class has its number of pods on each node, so a selector of pods is matched once per
//! class. For example, 500 replicas of a Deployment are one class.

mod counting;
#[cfg(test)]
mod tests;
mod topology;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::constraints::PodConstraints;
use super::pod_identity::PodIdentity;
use super::records::{TaskRecord, TaskStatus};
use super::stored::NodeSlot;
use super::text_map::TextMap;
pub(super) use counting::PodBook;
pub(super) use topology::TopologyCache;
pub use topology::TopologyDomains;

/// Class of pods that selectors and terms do not distinguish.
#[derive(Clone, Debug)]
pub struct PodClass {
    /// Namespace and labels.
    pub pod: PodIdentity,
    /// Constraints of the pods, if some of them are about other pods.
    pub constraints: Option<Arc<PodConstraints>>,
    /// True if the pods are being released.
    pub is_releasing: bool,
}

impl PodClass {
    /// Class of a task.
    pub fn of(task: &TaskRecord) -> Self {
        PodClassKey::of(task).to_class()
    }

    fn key(&self) -> PodClassKey<'_> {
        PodClassKey {
            namespace: &self.pod.namespace,
            labels: &self.pod.labels,
            constraints: self.constraints.as_ref(),
            is_releasing: self.is_releasing,
        }
    }
}

impl PartialEq for PodClass {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// Parts of a task that define its class.
#[derive(Clone, Copy)]
struct PodClassKey<'a> {
    namespace: &'a str,
    labels: &'a TextMap,
    constraints: Option<&'a Arc<PodConstraints>>,
    is_releasing: bool,
}

impl<'a> PodClassKey<'a> {
    fn of(task: &'a TaskRecord) -> Self {
        Self {
            namespace: task.namespace(),
            labels: &task.labels,
            constraints: task.shape.constraints.as_ref().filter(|own| own.selects_pods()),
            is_releasing: task.status == TaskStatus::Releasing,
        }
    }

    fn to_class(self) -> PodClass {
        PodClass {
            pod: PodIdentity {
                namespace: self.namespace.into(),
                labels: Arc::clone(self.labels),
            },
            constraints: self.constraints.cloned(),
            is_releasing: self.is_releasing,
        }
    }
}

impl Ord for PodClassKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let labels = || {
            if Arc::ptr_eq(self.labels, other.labels) {
                Ordering::Equal
            } else {
                self.labels.cmp(other.labels)
            }
        };
        let terms = || match (self.constraints, other.constraints) {
            (Some(own), Some(others)) if Arc::ptr_eq(own, others) => Ordering::Equal,
            (Some(own), Some(others)) => {
                let own = (&own.pod_affinity, &own.pod_anti_affinity);
                own.cmp(&(&others.pod_affinity, &others.pod_anti_affinity))
            }
            (own, others) => own.is_some().cmp(&others.is_some()),
        };
        let first = (self.namespace, self.is_releasing).cmp(&(other.namespace, other.is_releasing));
        first.then_with(labels).then_with(terms)
    }
}

impl PartialOrd for PodClassKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PodClassKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PodClassKey<'_> {}

/// Numbers of pods of one class on nodes, by slot; none is 0.
type NodePodCounts = Vec<(NodeSlot, u32)>;

/// Pods on nodes, by class. Clones share the numbers of each class until one of them changes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodIndex {
    /// Classes in the order of their keys. None is without pods.
    classes: Vec<(Arc<PodClass>, Arc<NodePodCounts>)>,
    /// Number of pods whose node is absent.
    orphans: usize,
}

impl PodIndex {
    /// Index of pods, each with the slot of its node; `None`: the node is absent.
    fn of<'t>(pods: impl Iterator<Item = (&'t TaskRecord, Option<NodeSlot>)>) -> Self {
        let mut slots: BTreeMap<PodClassKey<'t>, Vec<NodeSlot>> = BTreeMap::new();
        let mut orphans = 0;
        for (task, slot) in pods {
            match slot {
                Some(slot) => slots.entry(PodClassKey::of(task)).or_default().push(slot),
                None => orphans += 1,
            }
        }
        let classes = slots.into_iter().map(|(key, mut slots)| {
            slots.sort_unstable();
            let counts = slots.chunk_by(|one, next| one == next);
            let counts = counts.filter_map(|equal| Some((*equal.first()?, u32::try_from(equal.len()).ok()?)));
            (Arc::new(key.to_class()), Arc::new(counts.collect()))
        });
        Self {
            classes: classes.collect(),
            orphans,
        }
    }

    /// Classes with their numbers by slot, in the order of the slots.
    pub fn classes(&self) -> impl Iterator<Item = (&PodClass, &[(NodeSlot, u32)])> {
        self.classes.iter().map(|(class, counts)| (&**class, counts.as_slice()))
    }

    /// Adds pods of a class on a node.
    fn add(&mut self, key: PodClassKey<'_>, slot: NodeSlot, count: u32) {
        match self.find(key) {
            Ok(at) => {
                let Some((_, counts)) = self.classes.get_mut(at) else {
                    return;
                };
                let counts = Arc::make_mut(counts);
                match counts.binary_search_by_key(&slot, |(own, _)| *own) {
                    Ok(found) => {
                        if let Some((_, number)) = counts.get_mut(found) {
                            *number = number.saturating_add(count);
                        }
                    }
                    Err(place) => counts.insert(place, (slot, count)),
                }
            }
            Err(place) => {
                let counts = vec![(slot, count)];
                self.classes.insert(place, (Arc::new(key.to_class()), Arc::new(counts)));
            }
        }
    }

    /// Removes one pod of a class from a node.
    fn remove(&mut self, key: PodClassKey<'_>, slot: NodeSlot) {
        let Ok(at) = self.find(key) else { return };
        let Some((_, counts)) = self.classes.get_mut(at) else {
            return;
        };
        let counts = Arc::make_mut(counts);
        let Ok(found) = counts.binary_search_by_key(&slot, |(own, _)| *own) else {
            return;
        };
        if let Some((_, number)) = counts.get_mut(found)
            && *number > 1
        {
            *number -= 1;
            return;
        }
        counts.remove(found);
        if counts.is_empty() {
            self.classes.remove(at);
        }
    }

    fn find(&self, key: PodClassKey<'_>) -> Result<usize, usize> {
        self.classes.binary_search_by(|(class, _)| class.key().cmp(&key))
    }
}
