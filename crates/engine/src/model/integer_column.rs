//! Kubernetes' integers over a chunk: whole units, exact where floats are not, and non-zero requests.
//!
//! The columns of floats show most of them exactly. A column of integers holds a node's value only where the float does
//! not: fractions of a unit, amounts beyond 2^53, and non-zero requests that differ.

use pumice_kernels::columns::IntegerColumn;
use pumice_kernels::integers::{cut_fractions, put_small};

use super::amounts::{ResourceId, THOUSAND};
use super::column::{ChunkColumn, NodeVector};
use super::mask::{CHUNK_SIZE, NodeMask};
use crate::held_bytes::held_bytes;

/// Vectors of a node in Kubernetes' counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WholeVector {
    /// Amount that pods may use.
    Allocatable = 0,
    /// Requests of all tasks on the node; non-zero requests for cpu and memory.
    Requested = 1,
}

impl WholeVector {
    /// Vector whose columns show these integers as floats.
    pub(super) fn shown(self) -> NodeVector {
        match self {
            Self::Allocatable => NodeVector::Allocatable,
            Self::Requested => NodeVector::Used,
        }
    }
}

/// Number of vectors with whole amounts.
pub(super) const WHOLE_VECTOR_COUNT: usize = 2;

/// Integers that a column of floats does not show exactly.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExactIntegers {
    values: [i128; CHUNK_SIZE],
    present: NodeMask,
}

held_bytes! { plain ExactIntegers }

impl ExactIntegers {
    pub(super) const EMPTY: Self = Self {
        values: [0; CHUNK_SIZE],
        present: NodeMask::NONE,
    };

    pub(super) fn get(&self, offset: usize) -> Option<i128> {
        self.present
            .get(offset)
            .then(|| self.values.get(offset).copied())
            .flatten()
    }

    pub(super) fn set(&mut self, offset: usize, value: Option<i128>) {
        self.present.set(offset, value.is_some());
        if let Some(place) = self.values.get_mut(offset) {
            *place = value.unwrap_or(0);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Puts the integers into a column of floats; false: some are negative or not small.
    pub(super) fn show_in(&self, floats: &mut [f64; CHUNK_SIZE]) -> bool {
        let places = floats.as_chunks_mut::<64>().0.iter_mut();
        let of_word = places.zip(self.values.as_chunks::<64>().0).zip(self.present.words());
        of_word.fold(true, |all, ((floats, values), word)| {
            let mut small = true;
            if word == u64::MAX {
                for (float, value) in floats.iter_mut().zip(values) {
                    small &= put_small(*value, float);
                }
                return all & small;
            }
            let mut rest = word;
            while rest != 0 {
                let at = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if let (Some(float), Some(value)) = (floats.get_mut(at), values.get(at)) {
                    small &= put_small(*value, float);
                }
            }
            all & small
        })
    }
}

/// First float from which floats skip integers.
pub(super) const DENSE_INTEGER_LIMIT: f64 = 9_007_199_254_740_992.0;

/// Integer to store beside a float; `None`: the float shows it exactly.
pub(super) fn integer_override(id: ResourceId, shown: Option<f64>, exact: i128) -> Option<i128> {
    let shown = shown.unwrap_or(0.0);
    let is_exact = shown.abs() < DENSE_INTEGER_LIMIT && i128::from(integer_of_float(id, shown)) == exact;
    (!is_exact).then_some(exact)
}

/// Reads all values of a vector. `narrow` cuts an amount that does not fit in 64 bits.
pub(super) fn read_integers(
    id: ResourceId,
    floats: &ChunkColumn,
    exact: Option<&ExactIntegers>,
    narrow: fn(i128) -> i64,
) -> IntegerColumn {
    let mut integers = integers_of_floats(id, &floats.values);
    if let Some(exact) = exact {
        for offset in exact.present.iter() {
            if let (Some(whole), Some(exact)) = (integers.get_mut(offset), exact.values.get(offset)) {
                *whole = narrow(*exact);
            }
        }
    }
    integers
}

/// Integers of a column of floats.
pub(super) fn integers_of_floats(id: ResourceId, floats: &[f64; CHUNK_SIZE]) -> IntegerColumn {
    let mut integers = [0; CHUNK_SIZE];
    if !(id.has_kubernetes_unit() && cut_fractions(floats, &mut integers)) {
        for (whole, float) in integers.iter_mut().zip(floats) {
            *whole = integer_of_float(id, *float);
        }
    }
    integers
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "floats that are no integers within 2^53 are not believed"
)]
pub(super) fn integer_of_float(id: ResourceId, float: f64) -> i64 {
    let amount = float as i64;
    if id.has_kubernetes_unit() {
        amount
    } else {
        amount / THOUSAND + i64::from(amount % THOUSAND > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::model::{
        ClusterState, NodeChunk, NodeRecord, ResourceAmounts, ResourceTable, SortedTable, TaskFields, TaskRecord,
        TaskStatus,
    };

    const DISK: &str = "ephemeral-storage";

    fn empty() -> (ClusterState, ResourceId) {
        let (mut index, mut resources) = (SortedTable::default(), ResourceTable::default());
        for slot in 0..3 {
            index.insert(format!("n{slot}").into(), slot);
        }
        let disk = resources.intern(DISK, 9).unwrap();
        let mut cluster_state = ClusterState::new(Arc::new(index), 1);
        cluster_state.set_resources(Arc::new(resources));
        (cluster_state, disk)
    }

    fn amounts() -> impl Strategy<Value = ResourceAmounts> {
        let amount = || prop_oneof![Just(0_i64), 1..3_000_i64, Just((1 << 53) + 1)];
        let disk = prop_oneof![
            3 => amount().prop_map(|milli| (milli, 0_i64)),
            1 => Just((0, 9_300_000_000_000_000)),
            1 => Just((0, i64::MAX)),
        ];
        (option::of(amount()), option::of(amount()), option::of(disk)).prop_map(|(cpu, memory, disk)| {
            let (_, id) = empty();
            let known = [(ResourceId::CPU, cpu), (ResourceId::MEMORY, memory)];
            let mut amounts: ResourceAmounts = known.into_iter().filter_map(|(id, own)| Some((id, own?))).collect();
            amounts.set(ResourceId::PODS, 1);
            match disk {
                Some((_, whole)) if whole > 0 => amounts.set_whole_units(id, whole),
                Some((milli, _)) => amounts.set(id, milli),
                None => {}
            }
            amounts
        })
    }

    fn node() -> impl Strategy<Value = NodeRecord> {
        let used = || option::of(amounts());
        (0..3, amounts(), used(), used()).prop_map(|(name, allocatable, used, nonzero)| NodeRecord {
            name: format!("n{name}").into(),
            allocatable,
            unattributed_used: used,
            unattributed_nonzero_used: nonzero,
            ..NodeRecord::default()
        })
    }

    fn task() -> impl Strategy<Value = TaskRecord> {
        use TaskStatus::{Pending, Pipelined, Releasing, Running};
        let status = prop::sample::select(vec![Pending, Pipelined, Running, Releasing]);
        let nonzero = option::of(amounts());
        (0..6, 0..4, status, amounts(), nonzero).prop_map(|(name, node, status, requests, nonzero)| {
            TaskRecord::from(TaskFields {
                name: format!("t{name}").into(),
                node: format!("n{node}").into(),
                status,
                requests,
                nonzero_requests: nonzero.map(Box::new),
                ..TaskFields::default()
            })
        })
    }

    /// Kubernetes' amount, computed plainly: each record is rounded by itself, then summed.
    fn plain(cluster_state: &ClusterState, record: &NodeRecord, id: ResourceId, whole: WholeVector) -> i128 {
        let of = |amounts: Option<&ResourceAmounts>| {
            amounts
                .and_then(|amounts| amounts.whole_units(id))
                .map_or(0, i128::from)
        };
        if whole == WholeVector::Allocatable {
            return of(Some(&record.allocatable));
        }
        let foreign = record.unattributed_used.as_ref();
        let nonzero = record.unattributed_nonzero_used.as_ref().or(foreign);
        let mut sum = of(if id <= ResourceId::MEMORY { nonzero } else { foreign });
        let on_node = |task: &&TaskRecord| task.node == record.name && task.status.is_used();
        for task in cluster_state
            .tasks()
            .iter()
            .map(|(_, task)| &task.record)
            .filter(on_node)
        {
            sum += if id <= ResourceId::MEMORY {
                i128::from(task.nonzero_request(id))
            } else {
                of(Some(&task.requests))
            };
        }
        sum
    }

    fn saturated(value: i128) -> i64 {
        i64::try_from(value).unwrap_or(i64::MAX)
    }

    fn chunk(cluster_state: &ClusterState) -> NodeChunk {
        cluster_state
            .chunks()
            .first()
            .map_or_else(|| NodeChunk::at(0), |chunk| NodeChunk::clone(chunk))
    }

    #[derive(Clone, Debug)]
    enum IntegerColumnStep {
        PutNode(NodeRecord),
        RemoveNode(u8),
        PutTask(TaskRecord),
        RemoveTask(u8),
    }

    fn step() -> impl Strategy<Value = IntegerColumnStep> {
        prop_oneof![
            2 => node().prop_map(IntegerColumnStep::PutNode),
            1 => (0..3_u8).prop_map(IntegerColumnStep::RemoveNode),
            6 => task().prop_map(IntegerColumnStep::PutTask),
            2 => (0..6_u8).prop_map(IntegerColumnStep::RemoveTask),
        ]
    }

    proptest! {
        #[test]
        fn integer_columns_equal_a_rebuild(steps in prop::collection::vec(step(), 0..60)) {
            let ((mut cluster_state, disk), source) = (empty(), Arc::<str>::from("s"));
            for step in steps {
                match step {
                    IntegerColumnStep::PutNode(node) => drop(cluster_state.put_node(Arc::new(node), &source)),
                    IntegerColumnStep::RemoveNode(node) => drop(cluster_state.remove_node(&format!("n{node}"))),
                    IntegerColumnStep::PutTask(task) => cluster_state.put_task(task, &source),
                    IntegerColumnStep::RemoveTask(task) => drop(cluster_state.remove_task(&format!("t{task}"))),
                }
            }
            for (slot, entry) in cluster_state.nodes() {
                for id in [ResourceId::CPU, ResourceId::MEMORY, disk] {
                    for whole in [WholeVector::Allocatable, WholeVector::Requested] {
                        let own = chunk(&cluster_state).integer_column(id, whole, saturated)[slot as usize];
                        prop_assert_eq!(own, saturated(plain(&cluster_state, &entry.record, id, whole)));
                    }
                }
            }
            let (mut again, _) = empty();
            for (_, stored) in cluster_state.tasks().iter() {
                again.put_task(stored.record.clone(), &source);
            }
            for (_, entry) in cluster_state.nodes() {
                again.put_node(Arc::clone(&entry.record), &source);
            }
            prop_assert_eq!(&mut chunk(&cluster_state), &mut chunk(&again));
        }
    }

    #[test]
    fn integers_that_floats_hold_take_no_memory() {
        let ((mut cluster_state, disk), source) = (empty(), Arc::<str>::from("s"));
        let requests =
            ResourceAmounts::from_iter([(ResourceId::CPU, 500), (ResourceId::MEMORY, 1 << 30), (disk, 5_000)]);
        let node = NodeRecord {
            name: "n0".into(),
            allocatable: requests.clone(),
            ..NodeRecord::default()
        };
        cluster_state.put_node(Arc::new(node), &source);
        let mut task = TaskRecord::from(TaskFields {
            name: "t".into(),
            node: "n0".into(),
            status: TaskStatus::Running,
            requests,
            ..TaskFields::default()
        });
        cluster_state.put_task(task.clone(), &source);
        assert!(!chunk(&cluster_state).has_exact_integers());
        // Twice 5.001: 6 and 6, not 10.002 rounded up.
        task.requests.set(disk, 5_001);
        cluster_state.put_task(task.clone(), &source);
        task.name = "u".into();
        cluster_state.put_task(task, &source);
        assert!(chunk(&cluster_state).has_exact_integers());
        assert_eq!(
            chunk(&cluster_state).integer_column(disk, WholeVector::Requested, saturated)[0],
            12
        );
        cluster_state.remove_task("t");
        assert!(!chunk(&cluster_state).has_exact_integers());
    }
}
