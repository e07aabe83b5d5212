//! Fragmentation of a node: the free thousandths of its devices that typical tasks cannot use (Weng et al., "Beware of
//! Fragmentation", USENIX ATC 2023). All sums have the order of the published experiments. For example, a device with
//! 300 free thousandths is fragmented for tasks that need 500.

use std::sync::Arc;

use pumice_kernels::fragments::{FragmentSums, LANES, RequestState, lane_fragments, product_sum};
use smallvec::SmallVec;

use super::usable::{UsableAmounts, UsableWeights};
use super::{DeviceNode, DeviceScore, DeviceTask, FreeDevices, sigmoid, take_devices};
use crate::devices::{DevicePick, pick_devices};

/// Largest number of typical tasks.
pub const MAX_TYPICAL_TASKS: usize = 256;
/// Largest number of models that typical tasks name.
pub const MAX_TYPICAL_MODELS: usize = 16;

/// Class of tasks that the workload is expected to bring.
#[derive(Clone, Debug, PartialEq)]
pub struct TypicalTask {
    /// Request of such a task.
    pub task: DeviceTask,
    /// Part of all tasks that it is.
    pub frequency: f64,
}

/// Typical tasks, prepared for sums over them.
#[derive(Clone, Debug)]
pub struct Fragmentation {
    /// Number of devices and thousandths of each that some typical task asks for, each pair once.
    requests: Vec<(u32, i32)>,
    /// Requested cpu of typical tasks, each once, ascending.
    cpus: Vec<i64>,
    /// Sums on nodes with a model that some typical task names.
    named: Vec<(Arc<str>, ModelSums)>,
    /// Sums on other nodes.
    others: ModelSums,
    /// Amounts for sums in another order; `None`: scores follow from the published order only.
    amounts: Option<UsableAmounts>,
}

/// Frequencies by the sum that they belong to, on nodes of one model.
#[derive(Clone, Debug, Default)]
struct ModelSums {
    /// Frequencies of tasks that name other models.
    inaccessible: Vec<f64>,
    /// By number of cpu requests that fit.
    by_cpu: Vec<CpuSums>,
}

/// Frequencies by the sum that they belong to, on nodes with enough cpu for certain tasks.
#[derive(Clone, Debug, Default)]
struct CpuSums {
    /// Tasks without devices and with enough cpu.
    plain: Vec<f64>,
    /// Tasks without devices and without enough cpu.
    plain_short: Vec<f64>,
    /// Tasks with devices and with enough cpu, and the positions of their requests.
    sharing: Vec<(f64, usize)>,
    /// Tasks with devices and without enough cpu.
    sharing_short: Vec<(f64, usize)>,
    /// The tasks of `sharing` for sums in another order.
    usable: UsableWeights,
}

impl Fragmentation {
    /// Prepares typical tasks; at most [`MAX_TYPICAL_TASKS`] with [`MAX_TYPICAL_MODELS`] models are meant.
    pub fn new(typical: &[TypicalTask]) -> Self {
        let (mut requests, mut cpus, mut models) = (Vec::new(), Vec::new(), Vec::new());
        for TypicalTask { task, .. } in typical {
            cpus.push(task.cpu);
            if task.count > 0 && task.milli > 0 {
                requests.push((task.count, task.milli));
                models.extend(task.models.iter().map(Arc::clone));
            }
        }
        models.sort_unstable();
        models.dedup();
        requests.sort_unstable();
        requests.dedup();
        cpus.sort_unstable();
        cpus.dedup();
        let frequencies = typical.iter().map(|task| task.frequency);
        let amounts = UsableAmounts::new(requests.iter().copied(), frequencies);
        let sums = |model: Option<&str>| {
            let mut own = ModelSums::new(typical, &requests, &cpus, model);
            own.prepare_usable(&requests, amounts.as_ref());
            own
        };
        let named = models.into_iter().map(|model| {
            let sums = sums(Some(&model));
            (model, sums)
        });
        Self {
            named: named.collect(),
            others: sums(None),
            amounts,
            requests,
            cpus,
        }
    }

    /// Free thousandths of a node that typical tasks cannot use, on average over them.
    pub fn of(&self, node: &DeviceNode<'_>) -> f64 {
        self.of_states(node.model, node.free_cpu, node.idle() as f64, &self.states(node.free))
    }

    /// Score of a node for a task that it has enough for: how much less fragmented the node is with it.
    pub fn score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        self.fast_score(task, node)
            .unwrap_or_else(|| self.published_score(task, node))
    }

    /// Score by sums in the published order.
    #[inline(never)]
    pub(super) fn published_score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        let states = self.states(node.free);
        let before = self.of_states(node.model, node.free_cpu, node.idle() as f64, &states);
        if task.is_share() {
            return self.share_score(task, node, before, &states);
        }
        let after = DeviceNode {
            free_cpu: node.free_cpu - task.cpu,
            free: &after_whole(task, node),
            ..*node
        };
        let (score, _) = sigmoid::score((before - self.of(&after)) / 1000.0);
        DeviceScore::of_node(score)
    }

    /// Score by sums in another order; `None`: the order may decide.
    fn fast_score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> Option<DeviceScore> {
        let amounts = self.amounts.as_ref()?;
        let of_model = self.of_model(node.model);
        let ranks = [node.free_cpu, node.free_cpu - task.cpu].map(|cpu| self.rank(cpu));
        let [before, after] = ranks.map(|rank| of_model.by_cpu.get(rank).map(|sums| &sums.usable));
        let weights = [before?, after?];
        if task.is_share() {
            return amounts.share_score(node.free, task.milli, weights);
        }
        if task.count == 0 {
            if ranks[0] == ranks[1] {
                // All sums are the same.
                return Some(DeviceScore::of_node(sigmoid::score(0.0).0));
            }
            return amounts.node_score([node.free, node.free], weights);
        }
        amounts.node_score([node.free, &after_whole(task, node)], weights)
    }

    /// Score of the best device. Scores are compared as integers: of equal ones the lowest index wins.
    fn share_score(
        &self,
        task: &DeviceTask,
        node: &DeviceNode<'_>,
        before: f64,
        states: &[RequestState],
    ) -> DeviceScore {
        let sums = self.sums(node.model, node.free_cpu - task.cpu);
        let idle = (node.idle() - i64::from(task.milli)) as f64;
        let mut best = DeviceScore::default();
        let mut least_better = f64::NEG_INFINITY;
        for (block, devices) in node.free.chunks(LANES).enumerate() {
            let mut free = [0; LANES];
            for (own, device) in free.iter_mut().zip(devices) {
                *own = *device;
            }
            let mut after = [0.0; LANES];
            if let Some((inaccessible, sums)) = sums {
                lane_fragments(
                    &self.requests,
                    sums.fragments(inaccessible),
                    states,
                    &free,
                    (task.milli, idle),
                    &mut after,
                );
            }
            let mut gains = [f64::NEG_INFINITY; LANES];
            let mut greatest = f64::NEG_INFINITY;
            for ((gain, after), free) in gains.iter_mut().zip(&after).zip(&free) {
                if *free >= task.milli {
                    *gain = (before - after) / 1000.0;
                    greatest = greatest.max(*gain);
                }
            }
            if greatest == f64::NEG_INFINITY || greatest < least_better {
                continue;
            }
            let (value, least) = sigmoid::score(greatest);
            if best.device.is_some() && value <= best.value {
                continue;
            }
            let first = gains
                .iter()
                .position(|gain| *gain >= least && *gain > f64::NEG_INFINITY);
            let device = first.and_then(|lane| u8::try_from(block * LANES + lane).ok());
            (best, least_better) = (DeviceScore { value, device }, least);
        }
        best
    }

    /// State of each request on a node.
    fn states(&self, free: &[i32]) -> SmallVec<[RequestState; 24]> {
        let of = |(_, milli): &(u32, i32)| {
            let mut state = RequestState::default();
            for free in free {
                let has_enough = *free >= *milli;
                state.enough += i32::from(has_enough);
                state.lost += if has_enough { 0 } else { *free };
            }
            state
        };
        self.requests.iter().map(of).collect()
    }

    fn sums(&self, model: &str, free_cpu: i64) -> Option<(&[f64], &CpuSums)> {
        let of_model = self.of_model(model);
        Some((&of_model.inaccessible, of_model.by_cpu.get(self.rank(free_cpu))?))
    }

    fn of_model(&self, model: &str) -> &ModelSums {
        let named = self.named.iter().find(|(own, _)| **own == *model);
        named.map_or(&self.others, |(_, sums)| sums)
    }

    /// Number of cpu requests that fit.
    fn rank(&self, free_cpu: i64) -> usize {
        self.cpus.partition_point(|cpu| *cpu <= free_cpu)
    }

    fn of_states(&self, model: &str, free_cpu: i64, idle: f64, states: &[RequestState]) -> f64 {
        let Some((inaccessible, sums)) = self.sums(model, free_cpu) else {
            return 0.0;
        };
        let [d4, d5, d6] = [&sums.plain, &sums.plain_short, inaccessible].map(|own| product_sum(own, idle));
        let [mut d0, mut d1, mut d3] = [0.0; 3];
        let state = |at: &usize| {
            let (count, _) = self.requests.get(*at).copied().unwrap_or_default();
            let state = states.get(*at).copied().unwrap_or_default();
            (i64::from(state.enough) >= i64::from(count), f64::from(state.lost))
        };
        for (frequency, at) in &sums.sharing {
            let (fits, lost) = state(at);
            d1 += frequency * if fits { lost } else { idle };
        }
        for (frequency, at) in &sums.sharing_short {
            if state(at).0 {
                d3 += frequency * idle;
            } else {
                d0 += frequency * idle;
            }
        }
        ((((d0 + d1) + d3) + d4) + d5) + d6
    }
}

impl CpuSums {
    fn fragments<'s>(&'s self, inaccessible: &'s [f64]) -> FragmentSums<'s> {
        FragmentSums {
            inaccessible,
            plain: &self.plain,
            plain_short: &self.plain_short,
            sharing: &self.sharing,
            sharing_short: &self.sharing_short,
        }
    }
}

impl ModelSums {
    fn new(typical: &[TypicalTask], requests: &[(u32, i32)], cpus: &[i64], model: Option<&str>) -> Self {
        let mut own = Self::default();
        let is_plain = |task: &DeviceTask| task.count == 0 || task.milli == 0;
        let accepts = |task: &DeviceTask| model.map_or(task.models.is_empty(), |model| task.accepts(model));
        for TypicalTask { task, frequency } in typical {
            if !is_plain(task) && !accepts(task) {
                own.inaccessible.push(*frequency);
            }
        }
        for rank in 0..=cpus.len() {
            let mut sums = CpuSums::default();
            for TypicalTask { task, frequency } in typical {
                let fits = cpus.iter().take(rank).any(|cpu| *cpu == task.cpu);
                let request = requests.binary_search(&(task.count, task.milli)).unwrap_or(0);
                match (is_plain(task), fits) {
                    (true, true) => sums.plain.push(*frequency),
                    (true, false) => sums.plain_short.push(*frequency),
                    (false, _) if !accepts(task) => {}
                    (false, true) => sums.sharing.push((*frequency, request)),
                    (false, false) => sums.sharing_short.push((*frequency, request)),
                }
            }
            own.by_cpu.push(sums);
        }
        own
    }

    fn prepare_usable(&mut self, requests: &[(u32, i32)], amounts: Option<&UsableAmounts>) {
        let Some(amounts) = amounts else { return };
        for sums in &mut self.by_cpu {
            let request = |(frequency, at): &(f64, usize)| Some((*requests.get(*at)?, *frequency));
            let own: Vec<((u32, i32), f64)> = sums.sharing.iter().filter_map(request).collect();
            sums.usable = amounts.weights(requests, &own);
        }
    }
}

/// Free devices after a task without a share: what is left does not depend on the indices, and whole devices are equal.
fn after_whole(task: &DeviceTask, node: &DeviceNode<'_>) -> FreeDevices {
    let mut after = FreeDevices::from_slice(node.free);
    let taken = pick_devices(DevicePick::Tightest, task, node.free, None).unwrap_or(0);
    take_devices(&mut after, taken, task.milli);
    after
}
