//! Usage of a cluster, computed only from placements.

use std::collections::BTreeMap;

use serde::Serialize;

use pumice_engine::model::quantity::Quantity;
use pumice_kubernetes::import::{GPU_MILLI_RESOURCE, GPU_RESOURCE};
use pumice_protocol::v1 as pb;

/// Label with the kind of GPU of a node.
const GPU_PRODUCT_LABEL: &str = "nvidia.com/gpu.product";
/// Kind of GPU of a node without that label.
const UNNAMED_CARD: &str = "unnamed";

/// Amounts of the three resources of a report, in thousandths: cores, bytes, GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClusterAmounts {
    pub(super) cpu: i128,
    pub(super) memory: i128,
    pub(super) gpu: i128,
}

impl ClusterAmounts {
    pub(super) fn plus(self, other: Self) -> Self {
        ClusterAmounts {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            gpu: self.gpu.saturating_add(other.gpu),
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.plus(ClusterAmounts {
            cpu: -other.cpu,
            memory: -other.memory,
            gpu: -other.gpu,
        })
    }

    /// Amounts of a list. A quantity that cannot be read counts 0: the server has refused its record.
    pub(super) fn parse_list(list: Option<&pb::ResourceList>) -> Self {
        let milli = |name: &str| {
            let text = list.and_then(|list| list.items.get(name));
            let quantity = text.and_then(|text| Quantity::parse(text).ok());
            i128::from(quantity.and_then(|quantity| quantity.milli().ok()).unwrap_or_default())
        };
        ClusterAmounts {
            cpu: milli("cpu"),
            memory: milli("memory"),
            // Shares are thousandths of GPUs; where there are none, whole GPUs.
            gpu: milli(GPU_RESOURCE).max(milli(GPU_MILLI_RESOURCE) / 1000),
        }
    }
}

/// Requests of a task.
pub(super) fn requested_amounts(task: &pb::Task) -> ClusterAmounts {
    ClusterAmounts::parse_list(task.requests.as_ref())
}

/// Typical GPU task: the medians of cpu and memory per GPU in the workload.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TypicalGpuTask {
    /// Thousandths of a core per GPU.
    pub(super) cpu: i128,
    /// Thousandths of a byte per GPU.
    pub(super) memory: i128,
}

impl TypicalGpuTask {
    /// Typical GPU task: median amounts of `tasks`. Zero without tasks that request a GPU.
    pub(super) fn median_of<'t>(tasks: impl Iterator<Item = &'t pb::Task>) -> Self {
        let gpu: Vec<ClusterAmounts> = tasks.map(requested_amounts).filter(|task| task.gpu > 0).collect();
        let median = |part: fn(&ClusterAmounts) -> i128| {
            let mut each: Vec<i128> = gpu
                .iter()
                .map(|task| part(task).saturating_mul(1000) / task.gpu)
                .collect();
            each.sort_unstable();
            each.get(each.len() / 2).copied().unwrap_or_default()
        };
        TypicalGpuTask {
            cpu: median(|task| task.cpu),
            memory: median(|task| task.memory),
        }
    }
}

/// Capacity and use of a node.
#[derive(Debug, Default)]
struct SimulatedNode {
    /// Kind of GPU. Absent: the node has no GPU.
    card: Option<String>,
    total: ClusterAmounts,
    used: ClusterAmounts,
}

impl SimulatedNode {
    /// Thousandths of free GPUs that a typical task cannot use, because too little cpu or memory is left on the node.
    fn stranded(&self, usual: TypicalGpuTask) -> i128 {
        let free = self.total.minus(self.used);
        let reach = |left: i128, each: i128| {
            if each > 0 {
                left.max(0).saturating_mul(1000) / each
            } else {
                i128::MAX
            }
        };
        let usable = reach(free.cpu, usual.cpu).min(reach(free.memory, usual.memory));
        free.gpu.max(0).saturating_sub(usable).max(0)
    }
}

/// GPUs of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CardUsage {
    /// Number of all GPUs.
    pub(super) total: f64,
    /// Number of GPUs that tasks hold.
    pub(super) allocated: f64,
    /// Number of free GPUs with too little cpu or memory on their node.
    pub(super) stranded: f64,
}

/// Capacity and use of all nodes.
#[derive(Debug, Default)]
pub(super) struct ClusterUsage {
    nodes: BTreeMap<String, SimulatedNode>,
    typical_task: TypicalGpuTask,
    pub(super) total: ClusterAmounts,
    pub(super) used: ClusterAmounts,
    /// Thousandths of GPUs.
    pub(super) stranded: i128,
}

impl ClusterUsage {
    /// Usage of a cluster by its placed tasks.
    pub(super) fn new(cluster: &pb::Cluster, usual: TypicalGpuTask) -> Self {
        let mut account = ClusterUsage {
            typical_task: usual,
            ..ClusterUsage::default()
        };
        for node in &cluster.nodes {
            let total = ClusterAmounts::parse_list(node.allocatable.as_ref());
            let named = node.labels.get(GPU_PRODUCT_LABEL).filter(|name| !name.is_empty());
            let named = named.map_or(UNNAMED_CARD, String::as_str);
            let room = SimulatedNode {
                card: (total.gpu > 0).then(|| named.to_owned()),
                total,
                used: ClusterAmounts::default(),
            };
            account.total = account.total.plus(total);
            account.stranded = account.stranded.saturating_add(room.stranded(usual));
            account.nodes.insert(node.name.clone(), room);
        }
        for task in &cluster.tasks {
            let ended = matches!(task.status(), pb::TaskStatus::Succeeded | pb::TaskStatus::Failed);
            if !ended {
                account.allocate(&task.node, requested_amounts(task));
            }
        }
        account
    }

    /// Adds a task to a node.
    pub(super) fn allocate(&mut self, node: &str, amounts: ClusterAmounts) {
        self.adjust(node, amounts, 1);
    }

    /// Removes a task from its node.
    pub(super) fn release(&mut self, node: &str, amounts: ClusterAmounts) {
        self.adjust(node, amounts, -1);
    }

    fn adjust(&mut self, node: &str, amounts: ClusterAmounts, sign: i128) {
        let Some(room) = self.nodes.get_mut(node) else { return };
        let before = room.stranded(self.typical_task);
        let shift = |used: ClusterAmounts| {
            if sign > 0 {
                used.plus(amounts)
            } else {
                used.minus(amounts)
            }
        };
        room.used = shift(room.used);
        self.used = shift(self.used);
        let after = room.stranded(self.typical_task);
        self.stranded = self.stranded.saturating_add(after).saturating_sub(before);
    }

    /// True if this node has a GPU.
    pub(super) fn has_gpu(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|room| room.card.is_some())
    }

    /// GPUs by kind.
    pub(super) fn by_card(&self) -> BTreeMap<String, CardUsage> {
        let mut sums: BTreeMap<&str, [i128; 3]> = BTreeMap::new();
        for room in self.nodes.values() {
            let Some(card) = &room.card else { continue };
            let own = [room.total.gpu, room.used.gpu, room.stranded(self.typical_task)];
            for (sum, own) in sums.entry(card).or_default().iter_mut().zip(own) {
                *sum = sum.saturating_add(own);
            }
        }
        let cards = |[total, allocated, stranded]: [i128; 3]| CardUsage {
            total: from_milli(total),
            allocated: from_milli(allocated),
            stranded: from_milli(stranded),
        };
        sums.into_iter()
            .map(|(card, sums)| (card.to_owned(), cards(sums)))
            .collect()
    }
}

/// Thousandths as a number.
pub(super) fn from_milli(milli: i128) -> f64 {
    milli as f64 / 1000.0
}

/// Share in percent; 0 of 0.
pub(super) fn percent(part: i128, total: i128) -> f64 {
    if total == 0 {
        0.0
    } else {
        100.0 * part as f64 / total as f64
    }
}

/// Length of a list.
pub(super) fn count<T>(things: &[T]) -> u64 {
    u64::try_from(things.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[(&str, &str)]) -> pb::ResourceList {
        let items = items
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        pb::ResourceList { items }
    }

    fn task(items: &[(&str, &str)]) -> pb::Task {
        pb::Task {
            requests: Some(list(items)),
            ..pb::Task::default()
        }
    }

    #[test]
    fn a_gpu_is_stranded_without_cpu_or_memory_for_a_typical_task() {
        let tasks = [
            task(&[("cpu", "4"), ("memory", "8Gi"), (GPU_RESOURCE, "1")]),
            task(&[("cpu", "16"), ("memory", "64Gi"), (GPU_RESOURCE, "2")]),
            task(&[("cpu", "6"), ("memory", "16Gi"), (GPU_MILLI_RESOURCE, "500")]),
            task(&[("cpu", "64")]),
        ];
        let usual = TypicalGpuTask::median_of(tasks.iter());
        assert_eq!(usual.cpu, 8_000, "of 4, 8 and 12 a GPU");
        let node = pb::Node {
            name: "n".to_owned(),
            allocatable: Some(list(&[("cpu", "64"), ("memory", "512Gi"), (GPU_RESOURCE, "8")])),
            ..pb::Node::default()
        };
        let cluster = pb::Cluster {
            nodes: vec![node],
            ..pb::Cluster::default()
        };
        let mut account = ClusterUsage::new(&cluster, usual);
        assert_eq!(account.stranded, 0);
        let cpu_task = requested_amounts(&task(&[("cpu", "20")]));
        account.allocate("n", cpu_task);
        assert_eq!(account.stranded, 2_500, "44 cores serve 5.5 GPUs");
        account.allocate("n", requested_amounts(&task(&[(GPU_RESOURCE, "6")])));
        assert_eq!(account.stranded, 0, "two are free, 44 cores serve them");
        assert_eq!(account.by_card()[UNNAMED_CARD].allocated, 6.0);
        account.release("n", cpu_task);
        assert_eq!(account.used.gpu, 6_000);
        assert_eq!(account.used.cpu, 0);
        assert!(account.has_gpu("n") && !account.has_gpu("m"));
    }

    #[test]
    fn kinds_are_summed_in_thousandths_and_one_without_a_name_is_unnamed() {
        let node = |name: &str| pb::Node {
            name: name.to_owned(),
            labels: [(GPU_PRODUCT_LABEL.to_owned(), String::new())].into(),
            allocatable: Some(list(&[(GPU_RESOURCE, "4")])),
            ..pb::Node::default()
        };
        let cluster = pb::Cluster {
            nodes: ["a", "b", "c"].map(node).into(),
            ..pb::Cluster::default()
        };
        let mut account = ClusterUsage::new(&cluster, TypicalGpuTask::default());
        for (name, share) in [("a", "4000"), ("b", "1001"), ("c", "500")] {
            account.allocate(name, requested_amounts(&task(&[(GPU_MILLI_RESOURCE, share)])));
        }
        let cards = account.by_card();
        assert_eq!(
            (cards[UNNAMED_CARD].total, cards[UNNAMED_CARD].allocated),
            (12.0, 5.501)
        );
    }
}
