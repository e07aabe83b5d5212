//! Blocks: parts of a column over which a loop has a constant length.

/// Number of places in a block. Loops of this constant length are computed for several places at once, however few blocks they
/// run over; shorter ones would be unrolled before.
pub(crate) const BLOCK_SIZE: usize = 64;

/// Values of a column at consecutive slots.
pub(crate) type BlockPlaces = [f64; BLOCK_SIZE];

/// Block of a column.
#[inline(always)]
pub(crate) fn block_of(column: &[f64], number: usize) -> &BlockPlaces {
    static NO_PLACES: BlockPlaces = [0.0; BLOCK_SIZE];
    column.as_chunks().0.get(number).unwrap_or(&NO_PLACES)
}
