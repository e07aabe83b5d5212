//! Random clusters, policies and jobs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use pumice::server::pb;
use pumice_engine::policy::Compatibility;

use super::constraints::{KINDS, constraints, labels};
use crate::support::records::{amounts, node, task, task_on_node};

const GPU: &str = "nvidia.com/gpu";
const NIC: &str = "example.com/nic";
pub(super) const CARD: &str = "volcano.sh/card.name";
pub(super) const JOB: &str = "ns/job";

/// Policies with every supported plugin.
pub(super) const POLICIES: [&str; 21] = [
    "- name: predicates
  - {name: nodeorder, arguments: {podaffinity.weight: 7, podtopologyspread.weight: 5, balancedresource.weight: 0}}",
    "- {name: nodeorder, arguments: {podaffinity.weight: -3, podtopologyspread.weight: 9, leastrequested.weight: 2}}
  - {name: binpack, arguments: {binpack.cpu: 2, binpack.memory: 1}}",
    "- name: nodeorder
  - {name: binpack, arguments: {binpack.cpu: 2, binpack.memory: 1}}",
    "- name: predicates
  - {name: nodeorder, arguments: {leastrequested.weight: 0, balancedresource.weight: 0, imagelocality.weight: 0, nodeaffinity.weight: 5}}",
    "- {name: nodegroup, arguments: {strict: false, enablePreferredOrder: true}}
  - {name: nodeorder, arguments: {mostrequested.weight: 3, leastrequested.weight: 0}}",
    "- name: capacity-card
  - {name: nodeorder, arguments: {nodeaffinity.weight: 0, balancedresource.weight: 7, tainttoleration.weight: 1}}",
    "- name: predicates
  - {name: binpack, arguments: {binpack.cpu: 2, binpack.memory: 1}}",
    "- name: predicates
  - name: capacity-card
  - name: resource-strategy-fit",
    "- name: binpack
  - {name: predicates, arguments: {predicate.TaintTolerationEnable: false}}
  - name: drf",
    "- name: resource-strategy-fit
    arguments:
      resourceStrategyFitWeight: 10
      resources: {cpu: {type: LeastAllocated, weight: 1}, memory: {type: LeastAllocated, weight: 1}}
      sra: {enable: true, resources: nvidia.com/gpu, weight: 10}
      proportional: {enable: true, resources: nvidia.com/gpu, resourceProportion: {nvidia.com/gpu.cpu: 1, nvidia.com/gpu.memory: 1}}",
    "- name: resource-strategy-fit
    arguments:
      resources: {cpu: {type: MostAllocated, weight: 3}, nvidia.com/gpu*: {type: MostAllocated, weight: 5}}
  - name: drf",
    "- {name: binpack, arguments: {binpack.cpu: 2, binpack.memory: 1, binpack.resources: nvidia.com/gpu}}",
    "- name: capacity-card
  - name: resource-strategy-fit",
    "- {name: capacity-card, arguments: {cardUnlimitedCpuMemory: true, nodeOrderWeight: 2}}
  - {name: drf, enableHierarchy: true}
  - name: binpack",
    "- {name: NodeResourcesFitPlus, arguments: {resources: {cpu: {type: MostAllocated, weight: 2}, nvidia.com/gpu: {type: LeastAllocated, weight: 1}}}}
  - {name: ScarceResourceAvoidance, arguments: {resources: [nvidia.com/gpu]}}",
    "- name: drf",
    "- {name: capacity-card, enabledAllocatable: false}
  - {name: binpack}",
    "- {name: capacity-card, enableNodeOrder: false}
  - {name: NodeResourcesFitPlus, arguments: {resources: {memory: {type: LeastAllocated, weight: 1}}}}",
    "- name: capacity-card
  - name: resource-strategy-fit
    arguments:
      resources: {cpu: {type: MostAllocated, weight: 1}, memory: {type: LeastAllocated, weight: 2}, pods: {type: LeastAllocated, weight: 1}}
      proportional: {enable: true, resources: nvidia.com/gpu, resourceProportion: {nvidia.com/gpu.cpu: 2, nvidia.com/gpu.memory: 1}}",
    "- name: resource-strategy-fit
    arguments:
      resources: {cpu: {type: MostAllocated, weight: 1}, memory: {type: MostAllocated, weight: 1}, pods: {type: LeastAllocated, weight: 7}}
  - {name: NodeResourcesFitPlus, arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}}}}",
    "- {name: capacity-card, arguments: {cardUnlimitedCpuMemory: true}}
  - name: resource-strategy-fit
    arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}, nvidia.com/gpu: {type: MostAllocated, weight: 1}}}",
];

pub(super) fn document(policy: usize) -> String {
    format!(
        "actions: enqueue, allocate\ntiers:\n- plugins:\n  {}\n",
        POLICIES[policy]
    )
}

/// Group of tasks: cpu, memory in its unit, gpus, usable cards, and number of tasks.
#[derive(Clone, Debug)]
pub(super) struct CaseGroup {
    pub(super) cpu: u32,
    pub(super) memory: u32,
    pub(super) unit: &'static str,
    pub(super) gpu: u32,
    pub(super) card: &'static str,
    pub(super) count: usize,
    /// Kind of its constraints, of [`constraints`].
    constraints: u8,
}

/// Node: cpu, gpus, used parts of both, its card, and its state (0: ready); its zone and number of pods, and whether it
/// is tainted.
type CaseNode = ((u32, u32, u32, u32, usize, u8), (u8, u8, bool));

#[derive(Clone, Debug)]
pub(super) struct PlaceCase {
    pub(super) policy: usize,
    pub(super) compatibility: Compatibility,
    nodes: Vec<CaseNode>,
    /// True if nodes have so much memory, and so little left, that floats skip integers.
    huge: bool,
    /// Tasks on nodes: node, status, cpu, gpus.
    running_tasks: Vec<(usize, usize, u32, u32, u8)>,
    pub(super) groups: Vec<CaseGroup>,
    /// Quota of the queue: cores, cards A and B.
    quota: (u32, u32, u32),
    min_member: i32,
    pub(super) min_available: Option<u32>,
    excluded: Vec<bool>,
    candidates: Option<Vec<bool>>,
    pub(super) idle_only: bool,
}

fn group() -> impl Strategy<Value = CaseGroup> {
    let cards = prop::sample::select(vec!["", "A", "B", "A|B", "B|A", "C|A"]);
    let count = prop_oneof![4 => 0_usize..14, 1 => 14_usize..60];
    let amounts = (0_u32..5, 0_u32..5, 0_u32..3);
    (amounts, cards, count, 0_u8..KINDS).prop_map(|((cpu, memory, gpu), card, count, constraints)| CaseGroup {
        constraints,
        cpu,
        memory,
        unit: "Gi",
        gpu,
        card: if gpu == 0 { "" } else { card },
        count,
    })
}

pub(super) fn case(most_nodes: usize) -> impl Strategy<Value = PlaceCase> {
    let amounts = (1_u32..16, 0_u32..5, 0_u32..6, 0_u32..2, 0_usize..3, 0_u8..12);
    let node = (amounts, (0_u8..4, 0_u8..9, prop::bool::weighted(0.3)));
    // Equal nodes tie at every step.
    let equal = (node.clone(), 1..most_nodes).prop_map(|(node, count)| vec![node; count]);
    let nodes = prop_oneof![4 => prop::collection::vec(node, 1..most_nodes), 1 => equal];
    let statuses = 0..STATUSES.len();
    let state = (
        nodes,
        prop::collection::vec(
            (any::<prop::sample::Index>(), statuses, 0_u32..6, 0_u32..3, 0_u8..KINDS),
            0..12,
        ),
        (4_u32..60, 0_u32..9, 0_u32..9),
        prop::bool::weighted(0.1),
    );
    let query = (
        prop::collection::vec(group(), 1..4),
        0_i32..8,
        prop::option::weighted(0.5, 0_u32..8),
        prop::collection::vec(prop::bool::weighted(0.2), most_nodes),
        prop::option::weighted(0.2, prop::collection::vec(any::<bool>(), most_nodes)),
        any::<bool>(),
    );
    let compatibility = prop::sample::select(vec![Compatibility::Corrected, Compatibility::UPSTREAM]);
    (0..POLICIES.len(), compatibility, state, query).prop_map(
        |(policy, compatibility, (nodes, context, quota, huge), query)| {
            let (mut groups, min_member, min_available, excluded, candidates, idle_only) = query;
            let context = context.into_iter();
            if huge {
                for group in &mut groups {
                    group.unit = "";
                }
            }
            PlaceCase {
                huge,
                policy,
                compatibility,
                running_tasks: context
                    .map(|(node, status, cpu, gpu, own)| (node.index(nodes.len()), status, cpu, gpu, own))
                    .collect(),
                nodes,
                groups,
                quota,
                min_member,
                min_available,
                excluded,
                candidates,
                idle_only,
            }
        },
    )
}

const STATUSES: [pb::TaskStatus; 4] = [
    pb::TaskStatus::Running,
    pb::TaskStatus::Releasing,
    pb::TaskStatus::Releasing,
    pb::TaskStatus::Pipelined,
];

/// Name of a node; names do not follow the order of the slots.
fn name(number: usize) -> String {
    format!("n{:03}", number * 379 % 1000)
}

impl PlaceCase {
    /// Names of the tasks of a group.
    pub(super) fn names(&self, group: usize) -> Vec<String> {
        (0..self.groups[group].count)
            .map(|number| format!("ns/g{group}-{number}"))
            .collect()
    }

    /// Names of the usable nodes.
    pub(super) fn nodes(&self) -> Vec<String> {
        let among = |number: &usize| self.candidates.as_ref().is_none_or(|among| among[*number]);
        (0..self.nodes.len())
            .filter(|number| among(number) && !self.excluded[*number])
            .map(name)
            .collect()
    }

    pub(super) fn candidates(&self) -> Option<Vec<String>> {
        let among = self.candidates.as_ref()?;
        Some(
            (0..self.nodes.len())
                .filter(|number| among[*number])
                .map(name)
                .collect(),
        )
    }

    pub(super) fn exclusions(&self) -> Vec<String> {
        (0..self.nodes.len())
            .filter(|number| self.excluded[*number])
            .map(name)
            .collect()
    }

    #[expect(clippy::too_many_lines, reason = "one case after another, each short")]
    pub(super) fn cluster(&self) -> pb::Cluster {
        let nodes = self.nodes.iter().enumerate().map(|(number, own)| {
            let ((cpu, gpu, used, gpus_used, card, state), (zone, pods, tainted)) = own;
            let huge = |more: u64| ((1_u64 << 53) + more).to_string();
            let memory = if self.huge { huge(31) } else { format!("{}Gi", cpu * 2) };
            let mut items = vec![("cpu", cpu.to_string()), ("memory", memory)];
            items.push((GPU, gpu.to_string()));
            items.push((NIC, "1".to_owned()));
            items.insert(
                2,
                ("pods", if *pods == 0 { "110".to_owned() } else { pods.to_string() }),
            );
            let items: Vec<_> = items.iter().map(|(name, amount)| (*name, amount.as_str())).collect();
            let mut node = node(&name(number), if *gpu == 0 { &items[..3] } else { &items[..] });
            let mut used = vec![("cpu", used.to_string())];
            if *gpu > 0 {
                used.push((GPU, gpus_used.min(gpu).to_string()));
            }
            if self.huge {
                used.push(("memory", ((1_u64 << 53) - 9 + u64::from(*cpu)).to_string()));
            }
            let used: Vec<_> = used.iter().map(|(name, amount)| (*name, amount.as_str())).collect();
            node.unattributed_used = Some(amounts(&used));
            if *card < 2 && *gpu > 0 {
                let labels = [("product", ["A", "B"][*card]), ("count", "4"), ("memory", "40960")];
                let labels = labels.map(|(end, text)| (format!("{GPU}.{end}"), text.to_owned()));
                node.labels = BTreeMap::from(labels);
            }
            let hostname = name(number);
            node.labels.insert("kubernetes.io/hostname".to_owned(), hostname);
            if *zone < 3 {
                node.labels.insert("zone".to_owned(), zone.to_string());
                let group = ["a", "b", "c"][usize::from(*zone)].to_owned();
                node.labels.insert("volcano.sh/nodegroup-name".to_owned(), group);
            }
            // Few nodes have most of them, so that the worst node may become full.
            for number in 0..pods.saturating_sub(5) {
                node.taints.push(pb::Taint {
                    key: format!("slow-{number}"),
                    value: String::new(),
                    effect: "PreferNoSchedule".to_owned(),
                });
            }
            if *pods > 3 {
                node.images.push(pb::NodeImage {
                    names: vec!["train:latest".to_owned()],
                    size_bytes: 900 << 20,
                });
            }
            if *tainted {
                node.taints.push(pb::Taint {
                    key: "gpu".to_owned(),
                    value: String::new(),
                    effect: "NoSchedule".to_owned(),
                });
            }
            node.ready = (*state == 1).then_some(false);
            node.unschedulable = *state == 2;
            node
        });
        let nodes = nodes.collect();
        let context = self
            .running_tasks
            .iter()
            .enumerate()
            .map(|(number, (on, status, cpu, gpu, own))| {
                let mut there = task(
                    &format!("ns/there-{number}"),
                    "ns/other",
                    &[("cpu", &cpu.to_string()), (GPU, &gpu.to_string())],
                );
                there.constraints = constraints(*own);
                there.labels = labels(*own);
                task_on_node(there, STATUSES[*status], &name(*on))
            });
        let mut tasks: Vec<pb::Task> = context.collect();
        for (number, group) in self.groups.iter().enumerate() {
            let pending = self
                .names(number)
                .into_iter()
                .map(|name| pb::Task { name, ..group.task() });
            tasks.extend(pending);
        }
        let (cores, a, b) = self.quota;
        let queue = pb::Queue {
            name: "q".to_owned(),
            annotations: BTreeMap::from([(
                "volcano.sh/card.quota".to_owned(),
                format!("{{\"A\": {a}, \"B\": {b}}}"),
            )]),
            capability: Some(amounts(&[("cpu", &cores.to_string()), ("memory", "500Gi")])),
            affinity: Some(Box::new(pb::QueueAffinity {
                node_group_affinity: Some(pb::NodeGroupLists {
                    required: vec!["a".to_owned()],
                    preferred: vec!["c".to_owned(), "b".to_owned()],
                }),
                node_group_anti_affinity: None,
            })),
            ..pb::Queue::default()
        };
        let job = |name: &str, min_member| pb::Job {
            name: name.to_owned(),
            queue: "q".to_owned(),
            min_member,
            ..pb::Job::default()
        };
        pb::Cluster {
            namespaces: Vec::new(),
            nodes,
            queues: vec![queue],
            jobs: vec![job(JOB, self.min_member), job("ns/other", 1)],
            tasks,
            ..pb::Cluster::default()
        }
    }
}

impl CaseGroup {
    pub(super) fn task(&self) -> pb::Task {
        let items = [
            ("cpu", self.cpu.to_string()),
            ("memory", format!("{}{}", self.memory, self.unit)),
            (GPU, self.gpu.to_string()),
        ];
        let items: Vec<_> = items.iter().map(|(name, amount)| (*name, amount.as_str())).collect();
        let mut task = task("", JOB, if self.gpu == 0 { &items[..2] } else { &items[..] });
        task.constraints = constraints(self.constraints);
        task.labels = labels(self.constraints);
        if matches!(self.constraints, 6..=7) {
            // The pod as a whole requests other amounts than its containers.
            let of_pod = [("cpu", (self.cpu + 1).to_string()), ("memory", "3Gi".to_owned())];
            let of_pod: Vec<_> = of_pod.iter().map(|(name, amount)| (*name, amount.as_str())).collect();
            task.kubernetes_requests = Some(Box::new(amounts(&of_pod)));
            task.nonzero_requests = Some(amounts(&of_pod));
            task.container_nonzero_requests = Some(Box::new(amounts(&items[..2])));
        }
        if !self.card.is_empty() {
            task.annotations = BTreeMap::from([(CARD.to_owned(), self.card.to_owned())]);
        }
        task
    }
}
