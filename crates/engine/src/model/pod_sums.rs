//! Sums over the pods of a node for scores of Kubernetes. They include pipelined tasks, and requests follow the rules
//! of kube-scheduler. Under `compatibility: upstream` an eviction removes a pod at once.
//!
//! The columns contain nearly all sums. A node stores only the differences from its columns.

use pumice_kernels::columns::{IntegerColumn, SMALL_LIMIT};
use pumice_kernels::integers::{add_units, add_whole, are_small, are_small_integers};

use super::amounts::ResourceId;
use super::chunk::NodeChunk;
use super::cluster_state::ClusterState;
use super::column::NodeVector;
use super::integer_column::{WholeVector, integer_of_float, integers_of_floats};
use super::mask::CHUNK_SIZE;
use super::node::NodeEntry;
use super::pod_sum_delta::{PodSum, PodSumDelta};
use super::stored::NodeSlot;

impl NodeEntry {
    /// Differences of the node's sums over pods from what columns show.
    pub(crate) fn pod_sum_delta(&self) -> &PodSumDelta {
        match &self.upstream {
            Some(own) => &own.pod_sums,
            None => &self.usage.pod_sums,
        }
    }
}

/// Float of an integer whose sums with small amounts are exact.
fn small_float(amount: i128) -> Option<f64> {
    let amount = i64::try_from(amount).ok()?;
    (-SMALL_LIMIT..SMALL_LIMIT).contains(&amount).then_some(amount as f64)
}

/// Adds Kubernetes' integers of leading floats; false: some are negative or beyond [`SMALL_LIMIT`].
fn add_integers(id: ResourceId, amounts: &[f64; CHUNK_SIZE], lanes: usize, sums: &mut [f64; CHUNK_SIZE]) -> bool {
    if id.has_kubernetes_unit() {
        add_whole(amounts, lanes, sums)
    } else {
        add_units(amounts, lanes, sums)
    }
}

impl NodeChunk {
    /// Sums over the pods of each node: thousandths of cpu, whole units of anything else. `cluster_state` is the state
    /// that the nodes of a hypothetical chunk were made from.
    pub fn pod_sums(&self, cluster_state: &ClusterState, id: ResourceId, sum: PodSum) -> IntegerColumn {
        let mut integers = self.shown_pod_sums(id, sum);
        if !self.with_pod_sums.is_empty() || self.added_pod_sums.is_some() {
            for (offset, own) in integers.iter_mut().enumerate() {
                add_to(own, self.pod_sum_change(cluster_state, offset, id, sum));
            }
        }
        integers
    }

    /// Column of floats whose integer parts are the sums of [`Self::pod_sums`] at the leading places; `None`: no column shows
    /// them, or some are negative or beyond [`SMALL_LIMIT`].
    pub(crate) fn shown_pod_floats(&self, id: ResourceId, sum: PodSum) -> Option<&[f64; CHUNK_SIZE]> {
        let is_shown = id.has_kubernetes_unit()
            && self.with_pod_sums.is_empty()
            && self.added_pod_sums.is_none()
            && self.column(id, NodeVector::Pipelined).present.is_empty()
            && (sum == PodSum::Requests || self.exact_integers(id, WholeVector::Requested).is_none());
        let used = &self.column(id, NodeVector::Used).values;
        (is_shown && are_small(used, self.lanes())).then_some(used)
    }

    /// Sums of [`Self::pod_sums`] at the leading places as floats, in `room`, which has zeros; `None`: some amount is negative
    /// or beyond [`SMALL_LIMIT`].
    pub(crate) fn pod_sums_as_floats<'c>(
        &self,
        cluster_state: &ClusterState,
        id: ResourceId,
        sum: PodSum,
        room: &'c mut [f64; CHUNK_SIZE],
    ) -> Option<&'c [f64; CHUNK_SIZE]> {
        let (lanes, used) = (self.lanes(), &self.column(id, NodeVector::Used).values);
        let pipelined = self.column(id, NodeVector::Pipelined);
        let exact = match sum {
            PodSum::Requests if id.has_kubernetes_unit() => None,
            PodSum::Requests | PodSum::NonzeroRequests => self.exact_integers(id, WholeVector::Requested),
        };
        let is_changed = !self.with_pod_sums.is_empty() || self.added_pod_sums.is_some();
        if !add_integers(id, used, lanes, room) || exact.is_some_and(|exact| !exact.show_in(room)) {
            return None;
        }
        if !pipelined.present.is_empty() && !add_integers(id, &pipelined.values, lanes, room) {
            return None;
        }
        if is_changed {
            for (offset, own) in room.iter_mut().enumerate().take(lanes) {
                *own += small_float(self.pod_sum_change(cluster_state, offset, id, sum))?;
            }
        }
        are_small(room, lanes).then_some(room)
    }

    /// Column of floats that shows the allocatable amounts at the leading places in Kubernetes' integers; `None`: no column
    /// does, or some are negative or beyond [`SMALL_LIMIT`].
    pub(crate) fn shown_capacities(&self, id: ResourceId) -> Option<&[f64; CHUNK_SIZE]> {
        let amounts = &self.column(id, NodeVector::Allocatable).values;
        let is_shown = id.has_kubernetes_unit() && self.exact_integers(id, WholeVector::Allocatable).is_none();
        (is_shown && are_small_integers(amounts, self.lanes())).then_some(amounts)
    }

    /// Allocatable amounts at the leading places in Kubernetes' integers as floats, in `room`, which has zeros; `None`: some
    /// amount is negative or beyond [`SMALL_LIMIT`].
    pub(crate) fn capacities_as_floats<'c>(
        &self,
        id: ResourceId,
        room: &'c mut [f64; CHUNK_SIZE],
    ) -> Option<&'c [f64; CHUNK_SIZE]> {
        let amounts = &self.column(id, NodeVector::Allocatable).values;
        let exact = self.exact_integers(id, WholeVector::Allocatable);
        let is_small = add_integers(id, amounts, self.lanes(), room) && exact.is_none_or(|exact| exact.show_in(room));
        is_small.then_some(room)
    }

    /// Difference of one sum of a node from what the columns show.
    fn pod_sum_change(&self, cluster_state: &ClusterState, offset: usize, id: ResourceId, sum: PodSum) -> i128 {
        let mut change = 0;
        if self.with_pod_sums.get(offset) {
            // Nodes of a hypothetical chunk have no entries there.
            if let Some(entry) = self.entry(offset) {
                change = entry.pod_sum_delta().get(id, sum);
            } else if let Some(slot) = self.slot(offset) {
                change = stored_delta(cluster_state, slot, id, sum);
            }
        }
        if let Some(added) = &self.added_pod_sums {
            let times = added.added_tasks.get(offset).copied().unwrap_or(0);
            change += added.delta.get(id, sum) * i128::from(times);
        }
        change
    }

    /// Sums that the columns show.
    fn shown_pod_sums(&self, id: ResourceId, sum: PodSum) -> IntegerColumn {
        let floats = sum == PodSum::Requests && id.has_kubernetes_unit();
        let mut integers = if floats {
            integers_of_floats(id, &self.column(id, NodeVector::Used).values)
        } else {
            self.integer_column(id, WholeVector::Requested, saturate)
        };
        let pipelined = self.column(id, NodeVector::Pipelined);
        if !pipelined.present.is_empty() {
            for (own, more) in integers.iter_mut().zip(&pipelined.values) {
                *own = own.saturating_add(integer_of_float(id, *more));
            }
        }
        integers
    }
}

/// Difference of one sum of the node at a slot.
fn stored_delta(cluster_state: &ClusterState, slot: NodeSlot, id: ResourceId, sum: PodSum) -> i128 {
    let (number, offset) = (slot as usize / CHUNK_SIZE, slot as usize % CHUNK_SIZE);
    let chunk = cluster_state.chunks().get(number);
    let entry = chunk
        .filter(|chunk| chunk.with_pod_sums.get(offset))
        .and_then(|chunk| chunk.entry(offset));
    entry.map_or(0, |entry| entry.pod_sum_delta().get(id, sum))
}

fn add_to(own: &mut i64, more: i128) {
    if more != 0 {
        *own = saturate(i128::from(*own) + more);
    }
}

fn saturate(wide: i128) -> i64 {
    i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
}
