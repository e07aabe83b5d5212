//! Division of the cluster among queues by weight, in rounds: what a queue does not ask for goes to the others.

use crate::model::{MIN_AMOUNT, ResourceId, ResourceVector};
use crate::policy::Compatibility;

/// Most rounds of a division; weights below 1 may never come to an end in the reference.
const MAX_ROUNDS: usize = 100_000;

/// Queue that takes part in the division.
#[derive(Clone, Debug)]
pub(super) struct DivisionShare<'a> {
    /// `spec.weight`; at least 1 under `corrected`.
    pub(super) weight: i32,
    /// Amounts held or waited for, which the queue does not get more than.
    pub(super) request: ResourceVector,
    /// Upper limit.
    pub(super) real_capability: &'a ResourceVector,
    /// Amounts that the queue gets in any case.
    pub(super) guarantee: &'a ResourceVector,
}

/// Amount of one resource of one queue.
#[derive(Clone, Copy, Debug)]
struct DivisionCell {
    deserved: f64,
    /// True if the deserved amounts name the resource; cpu and memory are always there.
    is_named: bool,
    /// Least of what is requested and may be held.
    limit: f64,
    request: f64,
    /// True if the requests name the resource; a scalar that they do not name becomes 0, whatever it was.
    is_requested: bool,
    guarantee: f64,
    is_guaranteed: bool,
}

/// Queues of a division in dense rows.
struct DivisionTable {
    ids: Vec<ResourceId>,
    cells: Vec<DivisionCell>,
    /// True for queues that request a resource that nobody can give them.
    wants_more: Vec<bool>,
    is_met: Vec<bool>,
}

impl DivisionTable {
    fn new(total: &ResourceVector, queues: &[DivisionShare<'_>]) -> Self {
        let guaranteed = queues.iter().flat_map(|queue| queue.guarantee.iter());
        let mut ids: Vec<ResourceId> = total.iter().chain(guaranteed).map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        let cell = |queue: &DivisionShare<'_>, id: ResourceId| {
            let (request, limit) = (queue.request.amount(id), queue.real_capability.get(id));
            let guarantee = queue.guarantee.get(id);
            DivisionCell {
                deserved: 0.0,
                is_named: id <= ResourceId::MEMORY,
                limit: limit.map_or(request, |limit| limit.min(request)),
                request,
                is_requested: id <= ResourceId::MEMORY || queue.request.get(id).is_some(),
                guarantee: guarantee.unwrap_or(0.0),
                // Negative scalars are left out.
                is_guaranteed: guarantee.is_some_and(|amount| amount >= 0.0 || id <= ResourceId::MEMORY),
            }
        };
        let mut cells = Vec::with_capacity(queues.len() * ids.len());
        for queue in queues {
            cells.extend(ids.iter().map(|id| cell(queue, *id)));
        }
        let wants_more = |queue: &DivisionShare<'_>| {
            let mut foreign = queue.request.iter().filter(|(id, _)| ids.binary_search(id).is_err());
            foreign.any(|(_, amount)| amount >= MIN_AMOUNT)
        };
        Self {
            cells,
            wants_more: queues.iter().map(wants_more).collect(),
            is_met: vec![false; queues.len()],
            ids,
        }
    }

    /// Gives a queue its part of the rest, and adds what it got and gave back to `moved`.
    fn give(&mut self, queue: usize, rest: &[Option<f64>], part: f64, moved: &mut [[f64; 2]]) {
        let width = self.ids.len();
        let Some(cells) = self.cells.get_mut(queue * width..(queue + 1) * width) else {
            return;
        };
        let (mut has_changed, mut has_all) = (false, true);
        for ((cell, rest), moved) in cells.iter_mut().zip(rest).zip(moved) {
            let (before, was_named) = (cell.deserved, cell.is_named);
            let mut amount = before;
            let mut is_named = was_named;
            if let Some(rest) = rest {
                amount += rest * part;
                is_named = true;
            }
            amount = if is_named && cell.is_requested {
                amount.min(cell.limit)
            } else {
                0.0
            };
            if cell.is_guaranteed && amount < cell.guarantee {
                amount = cell.guarantee;
            }
            // So are negative amounts by weights below 1.
            is_named = cell.is_guaranteed || is_named && amount >= 0.0;
            amount = if is_named { amount } else { 0.0 };
            (cell.deserved, cell.is_named) = (amount, is_named);
            has_changed |= amount != before || is_named != was_named;
            let [given, returned] = moved;
            *given += (amount - before).max(0.0);
            *returned += (before - amount).max(0.0);
            has_all &= cell.request < amount || (cell.request - amount).abs() < MIN_AMOUNT;
        }
        let is_met = has_all && !self.wants_more.get(queue).is_some_and(|wants| *wants) || !has_changed;
        if let Some(entry) = self.is_met.get_mut(queue) {
            *entry = is_met;
        }
    }

    fn deserved(&self) -> Vec<ResourceVector> {
        let rows = self.cells.chunks(self.ids.len().max(1));
        let vector = |row: &[DivisionCell]| {
            let named = self.ids.iter().zip(row).filter(|(_, cell)| cell.is_named);
            named.map(|(id, cell)| (*id, cell.deserved)).collect()
        };
        rows.map(vector).collect()
    }
}

/// Divides the total of the cluster among queues, in their order; returns what each deserves. All queues of a round share the
/// same remainder.
pub(super) fn divide(
    total: &ResourceVector,
    queues: &[DivisionShare<'_>],
    compatibility: Compatibility,
) -> Vec<ResourceVector> {
    let mut table = DivisionTable::new(total, queues);
    let mut rest: Vec<Option<f64>> = table.ids.iter().map(|id| total.get(*id)).collect();
    for _ in 0..MAX_ROUNDS {
        let weights = weight_sum(queues, &table.is_met, compatibility);
        if weights == 0.0 {
            break;
        }
        let mut moved = vec![[0.0; 2]; rest.len()];
        for (number, queue) in queues.iter().enumerate() {
            if table.is_met.get(number) == Some(&false) {
                table.give(number, &rest, f64::from(queue.weight) / weights, &mut moved);
            }
        }
        let left = rest
            .iter()
            .zip(&moved)
            .zip(&table.ids)
            .map(|((rest, [given, returned]), id)| {
                let left = (rest.unwrap_or(0.0) + returned - given).max(0.0);
                (left > 0.0 || *id <= ResourceId::MEMORY).then_some(left)
            });
        let left: Vec<Option<f64>> = left.collect();
        let mut amounts = table.ids.iter().zip(&left).filter(|(id, _)| **id != ResourceId::PODS);
        let is_empty = amounts.all(|(_, amount)| amount.is_none_or(|amount| amount < MIN_AMOUNT));
        if is_empty || left == rest {
            break;
        }
        rest = left;
    }
    table.deserved()
}

/// Sum of the weights of the queues that are not met. Under `upstream` it is a 32-bit integer that wraps, as in the
/// reference.
fn weight_sum(queues: &[DivisionShare<'_>], is_met: &[bool], compatibility: Compatibility) -> f64 {
    let open = queues
        .iter()
        .zip(is_met)
        .filter(|(_, is_met)| !**is_met)
        .map(|(queue, _)| queue.weight);
    match compatibility {
        Compatibility::Upstream(_) => f64::from(open.fold(0_i32, i32::wrapping_add)),
        Compatibility::Corrected => open.map(f64::from).sum(),
    }
}
