//! Scores by what is requested, over columns of integers: how free and how full nodes become, and how evenly their
//! resources are used. The operations are kube-scheduler's, in its order.

use crate::columns::{ChunkScores, IntegerColumn};
use crate::kernel::kernel;
use crate::mask::CHUNK_SIZE;
use crate::rounding::floor;

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn amount_at(amounts: &IntegerColumn, offset: usize) -> f64 {
    amounts.get(offset).copied().unwrap_or(0) as f64
}

kernel! {
    /// Fills in least and, if it is wanted, most requested, from 0 to 100, of capacities and used amounts of two resources, such
    /// as cpu and memory. Amounts are small: a quotient of exact floats below 2^53 is rounded to an integer only if it is one.
    pub fn compare / compare_portable(
        capacities: &[IntegerColumn; 2],
        used: &[IntegerColumn; 2],
        requests: [f64; 2],
        least: &mut ChunkScores,
        most: Option<&mut ChunkScores>,
    ) {
        match most {
            Some(most) => compare_places::<true>(capacities, used, requests, least, most),
            None => compare_places::<false>(capacities, used, requests, least, &mut [0.0; CHUNK_SIZE]),
        }
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn compare_places<const MOST: bool>(
    capacities: &[IntegerColumn; 2],
    used: &[IntegerColumn; 2],
    requests: [f64; 2],
    least: &mut ChunkScores,
    most: &mut ChunkScores,
) {
    let ([cpu, memory], [used_cpu, used_memory]) = (capacities, used);
    for (offset, (least, most)) in least.iter_mut().zip(most).enumerate() {
        let (mut free, mut taken, mut count) = (0.0, 0.0, 0.0);
        for (capacities, used, request) in [(cpu, used_cpu, requests[0]), (memory, used_memory, requests[1])] {
            let (capacity, total) = (amount_at(capacities, offset), amount_at(used, offset) + request);
            let (divisor, one) = if capacity > 0.0 { (capacity, 1.0) } else { (1.0, 0.0) };
            let left = if capacity > total { capacity - total } else { 0.0 };
            free += floor(left * 100.0 / divisor);
            if MOST {
                let held = if capacity > total { total } else { capacity };
                taken += floor(held * 100.0 / divisor);
            }
            count += one;
        }
        let share = if count > 1.0 { 0.5 } else { 1.0 };
        *least = floor(free * share);
        *most = floor(taken * share);
    }
}

/// Capacities, used amounts and the request of one resource.
pub type DemandColumns<'k> = (&'k IntegerColumn, &'k IntegerColumn, i64);

/// Used fractions of a resource with the pod and without it, at most 1, and whether the node has the resource.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn fractions((capacities, used, request): DemandColumns<'_>, offset: usize) -> ([f64; 2], bool) {
    let used = used.get(offset).copied().unwrap_or(0);
    let capacity = amount_at(capacities, offset);
    let exists = capacity > 0.0;
    let divisor = if exists { capacity } else { 1.0 };
    let fraction = |used: i64| {
        let fraction = used as f64 / divisor;
        if fraction > 1.0 { 1.0 } else { fraction }
    };
    ([fraction(used.saturating_add(request)), fraction(used)], exists)
}

/// Balance from 0 to 100: 100 less the standard deviation of the fractions of resources that the node has, in the
/// reference's order of operations.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn balance_of([first, second, third]: [f64; 3], [has_first, has_second, has_third]: [bool; 3]) -> f64 {
    let mean = (first + second + third) / 3.0;
    let square = |fraction: f64| (fraction - mean) * (fraction - mean);
    let of_three = ((square(first) + square(second) + square(third)) / 3.0).sqrt();
    let of_two = |one: f64, other: f64| ((one - other) / 2.0).abs();
    let deviation = match (has_first, has_second, has_third) {
        (true, true, true) => of_three,
        (true, true, false) => of_two(first, second),
        (true, false, true) => of_two(first, third),
        (false, true, true) => of_two(second, third),
        _ => 0.0,
    };
    floor((1.0 - deviation) * 100.0)
}

kernel! {
    /// Fills in the balance of two resources and, if there is one, a device: with the pod, or of the change that the pod
    /// makes, 50 and half of the gain, and as much again.
    pub fn balance / balance_portable(
        pair: [DemandColumns<'_>; 2],
        device: Option<DemandColumns<'_>>,
        of_change: bool,
        scores: &mut ChunkScores,
    ) {
        let [first, _] = pair;
        match (device, of_change) {
            (Some(device), true) => balance_places::<true, true>(pair, device, scores),
            (Some(device), false) => balance_places::<true, false>(pair, device, scores),
            (None, true) => balance_places::<false, true>(pair, first, scores),
            (None, false) => balance_places::<false, false>(pair, first, scores),
        }
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn balance_places<const DEVICE: bool, const CHANGE: bool>(
    pair: [DemandColumns<'_>; 2],
    device: DemandColumns<'_>,
    scores: &mut ChunkScores,
) {
    let [cpu, memory] = pair;
    for (offset, score) in scores.iter_mut().enumerate() {
        let (cpu, has_cpu) = fractions(cpu, offset);
        let (memory, has_memory) = fractions(memory, offset);
        let (device, has_device) = if DEVICE {
            fractions(device, offset)
        } else {
            ([0.0; 2], false)
        };
        let has = [has_cpu, has_memory, has_device];
        let with = balance_of([cpu[0], memory[0], device[0]], has);
        if !CHANGE {
            *score = with;
            continue;
        }
        let without = balance_of([cpu[1], memory[1], device[1]], has);
        let half = (50.0 + with - without) * 0.5;
        *score = if half < 0.0 {
            50.0 - floor(-half)
        } else {
            50.0 + floor(half)
        };
    }
}
