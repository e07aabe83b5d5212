//! Shortages: the nodes of a chunk that have too little of something. Amounts are in one unit each.

use crate::columns::at;
use crate::kernel::kernel;
use crate::mask::{CHUNK_SIZE, NodeMask};

/// Amounts of one resource on the nodes of a chunk.
type ChunkAmounts = [f64; CHUNK_SIZE];

kernel! {
    /// Nodes whose `allocatable` − `used` is at most the bound.
    pub fn short / short_portable(bound: f64, allocatable: &ChunkAmounts, used: &ChunkAmounts) -> NodeMask {
        NodeMask::gather(|offset| at(allocatable, offset) - at(used, offset) <= bound)
    }
}

kernel! {
    /// Nodes whose amount after all moves is at most the bound: `now` is allocatable and used, `moving` is releasing
    /// and pipelined amounts.
    pub fn short_later / short_later_portable(bound: f64, now: [&ChunkAmounts; 2], moving: [&ChunkAmounts; 2]) -> NodeMask {
        let ([allocatable, used], [releasing, pipelined]) = (now, moving);
        NodeMask::gather(|offset| {
            let idle = at(allocatable, offset) - at(used, offset);
            idle + at(releasing, offset) - at(pipelined, offset) <= bound
        })
    }
}

kernel! {
    /// Nodes that have no more than the bound even when empty.
    pub fn within / within_portable(bound: f64, allocatable: &ChunkAmounts) -> NodeMask {
        NodeMask::gather(|offset| at(allocatable, offset) <= bound)
    }
}

kernel! {
    /// Nodes without a place for one more pod: `used` and `pipelined` pods, less `released` (0 or 1) times the `releasing` ones,
    /// take all that are `allocatable`.
    pub fn without_place / without_place_portable(
        allocatable: &ChunkAmounts,
        used: &ChunkAmounts,
        pipelined: &ChunkAmounts,
        releasing: &ChunkAmounts,
        released: f64,
    ) -> NodeMask {
        NodeMask::gather(|offset| {
            let pods = at(used, offset) + at(pipelined, offset) - released * at(releasing, offset);
            at(allocatable, offset) <= pods
        })
    }
}

kernel! {
    /// Nodes without a place beside the pods that hold one, ignoring other pods.
    pub fn without_place_beside / without_place_beside_portable(
        allocatable: &ChunkAmounts,
        used: &ChunkAmounts,
    ) -> NodeMask {
        NodeMask::gather(|offset| at(allocatable, offset) <= at(used, offset))
    }
}

/// Factors of bytes per thousandth of a device and unit of ratio; their product is a million, so a decimal gigabyte per
/// device.
const MEMORY_UNIT_FACTORS: [f64; 2] = [1000.0, 1000.0];

/// Reserve per device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReserveRatios {
    /// Cores.
    pub cpu: f64,
    /// Decimal gigabytes.
    pub memory: f64,
}

/// Bytes reserved for idle devices, in the reference's order of operations.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
pub fn memory_reserve(devices: f64, ratio: f64) -> f64 {
    let [first, second] = MEMORY_UNIT_FACTORS;
    devices * ratio * first * second
}

kernel! {
    /// Nodes where the task (thousandths of cpu, bytes of memory) would use what is reserved for idle devices. `idle` is of
    /// cpu, memory and devices, each as two columns whose difference it is.
    pub fn reserve_shortage / reserve_shortage_portable(
        task: [f64; 2],
        idle: [[&ChunkAmounts; 2]; 3],
        ratios: ReserveRatios,
    ) -> NodeMask {
        let [task_cpu, task_memory] = task;
        NodeMask::gather(|offset| {
            let [cpu, memory, devices] = idle.map(|[all, used]| at(all, offset) - at(used, offset));
            (cpu - task_cpu < devices * ratios.cpu)
                | (memory - task_memory < memory_reserve(devices, ratios.memory))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_processor_finds_the_same_shortage(
            values in prop::collection::vec(prop::collection::vec(0_u32..9, CHUNK_SIZE), 4),
            requested in 0_u32..9,
        ) {
            let columns: Vec<ChunkAmounts> = values
                .iter()
                .map(|values| std::array::from_fn(|offset| f64::from(values[offset])))
                .collect();
            let (bound, [a, u, r, p]) = (f64::from(requested) - 0.1, [0, 1, 2, 3].map(|column| &columns[column]));
            prop_assert_eq!(short(bound, a, u), short_portable::<false>(bound, a, u));
            let later = short_later(bound, [a, u], [r, p]);
            prop_assert_eq!(later, short_later_portable::<false>(bound, [a, u], [r, p]));
            prop_assert_eq!(within(bound, a), within_portable::<false>(bound, a));
            for offset in 0..CHUNK_SIZE {
                let available = a[offset] - u[offset] + r[offset] - p[offset];
                prop_assert_eq!(later.get(offset), available <= bound);
            }
        }

        #[test]
        fn reserve_shortage_is_the_same_on_every_processor(
            nodes in prop::collection::vec(prop::collection::vec(0_u32..20, CHUNK_SIZE), 6),
            task in (0_u32..20, 0_u32..20),
            ratios in (0_u32..4, 0_u32..4),
        ) {
            // The unit of memory makes its reserve equal that of cpu.
            let [first, second] = MEMORY_UNIT_FACTORS;
            let units = [1.0, 1.0, first * second, first * second, 1.0, 1.0];
            let columns: Vec<ChunkAmounts> = nodes.iter().zip(units).map(|(nodes, unit)| {
                std::array::from_fn(|offset| f64::from(nodes[offset]) * unit)
            }).collect();
            let [c, cu, m, mu, d, du] = [0, 1, 2, 3, 4, 5].map(|column| &columns[column]);
            let idle = [[c, cu], [m, mu], [d, du]];
            let task = [f64::from(task.0), f64::from(task.1) * first * second];
            let ratios = ReserveRatios { cpu: f64::from(ratios.0), memory: f64::from(ratios.1) / 3.0 };
            let chosen = reserve_shortage(task, idle, ratios);
            prop_assert_eq!(chosen, reserve_shortage_portable::<false>(task, idle, ratios));
            for offset in 0..CHUNK_SIZE {
                let devices = d[offset] - du[offset];
                let cpu = c[offset] - cu[offset] - task[0] < devices * ratios.cpu;
                let memory = m[offset] - mu[offset] - task[1] < devices * ratios.memory * first * second;
                prop_assert_eq!(chosen.get(offset), cpu || memory);
            }
        }
    }
}
