//! Columns of one resource over a chunk, with properties that kernels read without a look at each node.

use std::sync::Arc;

use pumice_kernels::division::reciprocal;

use super::amounts::ResourceId;
use super::integer_column::{ExactIntegers, WHOLE_VECTOR_COUNT};
use super::mask::{CHUNK_SIZE, NodeMask};
use crate::held_bytes::held_bytes;

/// Column of one vector of one resource over a chunk. Absent values are 0. The values are aligned to a cache line: a
/// group of eight values never spans two lines.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct ChunkColumn {
    /// Nodes that have a value. The mask is in the cache line before the values.
    pub present: NodeMask,
    gap: [u64; 4],
    /// Values in the resource's unit.
    pub values: [f64; CHUNK_SIZE],
}

held_bytes! { plain ChunkColumn }

impl ChunkColumn {
    /// Column without values.
    pub const EMPTY: Self = Self {
        present: NodeMask::NONE,
        gap: [0; 4],
        values: [0.0; CHUNK_SIZE],
    };

    /// Value of the node at a place; `None`: it has none.
    pub fn get(&self, offset: usize) -> Option<f64> {
        self.present
            .get(offset)
            .then(|| self.values.get(offset).copied())
            .flatten()
    }
}

/// Empty column: zeros, present nowhere.
static EMPTY: ChunkColumn = ChunkColumn::EMPTY;

/// Reciprocals of the allocatable amounts; 0 where there is none.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub(super) struct ReciprocalColumn([f64; CHUNK_SIZE]);

held_bytes! { plain ReciprocalColumn }

impl ReciprocalColumn {
    const EMPTY: Self = Self([0.0; CHUNK_SIZE]);
}

/// Vector of amounts of a node, such as allocatable or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeVector {
    /// Amount that pods may use, oversubscription included.
    Allocatable = 0,
    /// Requests of all tasks on the node, releasing ones included.
    Used = 1,
    /// Part of `Used` that is being released.
    Releasing = 2,
    /// Requests of pipelined tasks, which wait for releasing amounts.
    Pipelined = 3,
    /// Idle amount of a node in a session under `compatibility: upstream`, where it may differ from allocatable − used.
    Idle = 4,
}

const VECTOR_COUNT: usize = 5;

/// Columns of one resource; a vector that no node of the chunk has takes no memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResourceColumns {
    pub(super) id: ResourceId,
    pub(super) vectors: [Option<Arc<ChunkColumn>>; VECTOR_COUNT],
    /// Nodes with more than nothing allocatable.
    pub(super) offered: NodeMask,
    /// Minimum of the offered amounts.
    pub(super) least_offered: f64,
    /// Reciprocals of the allocatable amounts, if there are any.
    pub(super) reciprocals: Option<Arc<ReciprocalColumn>>,
    /// Nodes whose allocatable amount has no exact reciprocal. Kernels must divide by it.
    inexact_reciprocals: NodeMask,
    /// Kubernetes' integers that the floats do not show exactly.
    pub(super) integers: [Option<Arc<ExactIntegers>>; WHOLE_VECTOR_COUNT],
}

held_bytes! { ResourceColumns { vectors, reciprocals, integers; id, offered, least_offered, inexact_reciprocals } }

impl ResourceColumns {
    pub(super) fn new(id: ResourceId) -> Self {
        Self {
            id,
            vectors: [const { None }; VECTOR_COUNT],
            offered: NodeMask::NONE,
            least_offered: f64::INFINITY,
            reciprocals: None,
            inexact_reciprocals: NodeMask::NONE,
            integers: [const { None }; WHOLE_VECTOR_COUNT],
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.vectors.iter().all(Option::is_none) && self.integers.iter().all(Option::is_none)
    }

    /// Updates the derived properties after an allocatable amount changed from `before`; the column already shows it.
    pub(super) fn record_allocatable(&mut self, offset: usize, before: f64, allocatable: f64) {
        self.offered.set(offset, allocatable > 0.0);
        if allocatable > 0.0 && allocatable <= self.least_offered {
            self.least_offered = allocatable;
        } else if before == self.least_offered {
            let column = self
                .vectors
                .get(NodeVector::Allocatable as usize)
                .and_then(Option::as_deref);
            let offered = column.into_iter().flat_map(|column| &column.values);
            let offered = offered.filter(|amount| **amount > 0.0);
            self.least_offered = offered.fold(f64::INFINITY, |least, amount| least.min(*amount));
        }
        let reciprocal = reciprocal(allocatable);
        self.inexact_reciprocals.set(offset, reciprocal.is_none());
        let reciprocals = self
            .reciprocals
            .get_or_insert_with(|| Arc::new(ReciprocalColumn::EMPTY));
        if let Some(place) = Arc::make_mut(reciprocals).0.get_mut(offset) {
            *place = reciprocal.unwrap_or(0.0);
        }
    }

    /// Shares the column of allocatable amounts with the first equal column.
    pub(super) fn share_columns<'o>(&mut self, mut others: impl Iterator<Item = &'o Self>) {
        const ALLOCATABLE: usize = NodeVector::Allocatable as usize;
        let [Some(own), ..] = &mut self.vectors else { return };
        let equal = others.find_map(|other| {
            let column = other.vectors.get(ALLOCATABLE)?.as_ref()?;
            (Arc::ptr_eq(own, column) || own == column).then_some((column, &other.reciprocals))
        });
        if let Some((column, reciprocals)) = equal {
            own.clone_from(column);
            self.reciprocals.clone_from(reciprocals);
        }
    }
}

/// Columns of one resource over a chunk, looked up once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkResource<'k>(pub(super) Option<&'k ResourceColumns>);

impl<'k> ChunkResource<'k> {
    /// Column of a vector; zeros without presence if no node has it.
    pub(crate) fn column(self, vector: NodeVector) -> &'k ChunkColumn {
        self.stored(vector).map_or(&EMPTY, |column| column)
    }

    /// True if no node has this vector.
    pub(crate) fn is_absent(self, vector: NodeVector) -> bool {
        self.stored(vector).is_none()
    }

    /// Nodes with more than nothing allocatable.
    pub(crate) fn offered(self) -> NodeMask {
        self.0.map_or(NodeMask::NONE, |columns| columns.offered)
    }

    /// True if each of these nodes has more than this amount allocatable. False: unknown.
    pub(crate) fn all_above(self, amount: f64, among: &NodeMask) -> bool {
        self.0
            .is_some_and(|columns| columns.least_offered > amount && among.and_not(&columns.offered).is_empty())
    }

    /// Reciprocals of the allocatable amounts for [`quotient`](pumice_kernels::division::quotient); `None`: no node has
    /// any, or some amount has no exact reciprocal.
    pub(crate) fn reciprocals(self) -> Option<&'k [f64; CHUNK_SIZE]> {
        let columns = self.0.filter(|columns| columns.inexact_reciprocals.is_empty())?;
        columns.reciprocals.as_deref().map(|own| &own.0)
    }

    pub(super) fn stored(self, vector: NodeVector) -> Option<&'k ChunkColumn> {
        self.0?.vectors.get(vector as usize)?.as_deref()
    }
}
