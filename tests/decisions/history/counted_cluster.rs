//! Random clusters with all that is counted per node: host ports, devices, cards, pods with terms, images, templates.

use proptest::prelude::*;
use pumice::server::pb;

use crate::support::records::{amounts, job, node, queue, task, task_on_node};

/// Number of nodes and tasks by number.
pub(super) const NODES: usize = 4;
pub(super) const TASKS: usize = 8;
pub(super) const JOBS: usize = 3;

/// Node by number.
#[derive(Clone, Debug)]
struct RandomNode {
    is_there: bool,
    cores: u32,
    zone: u8,
    card: Option<bool>,
    is_tainted: bool,
    has_devices: bool,
    image: u8,
}

/// Task by number.
#[derive(Clone, Debug)]
struct RandomTask {
    job: usize,
    cores: u32,
    port: Option<i32>,
    devices: Option<u32>,
    cards: Option<usize>,
    template: Option<u8>,
    terms: u8,
    zone: Option<u8>,
    runs_on: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct CountedCluster {
    nodes: Vec<RandomNode>,
    tasks: Vec<RandomTask>,
    quota: u32,
    /// Only tasks that wait have ports, so that nodes begin without any.
    are_ports_free: bool,
}

pub(super) fn counted_clusters() -> impl Strategy<Value = CountedCluster> {
    let node = (
        (prop::bool::weighted(0.9), 2..5_u32, 0_u8..2),
        (prop::option::weighted(0.7, any::<bool>()), prop::bool::weighted(0.2)),
        (any::<bool>(), 0_u8..2),
    );
    let node = node.prop_map(
        |((is_there, cores, zone), (card, is_tainted), (has_devices, image))| RandomNode {
            is_there,
            cores,
            zone,
            card,
            is_tainted,
            has_devices,
            image,
        },
    );
    let task = (
        (0..JOBS, 1..3_u32, prop::option::weighted(0.5, 0..2_i32)),
        (
            prop::option::weighted(0.4, prop::sample::select(vec![300_u32, 500, 1000])),
            prop::option::weighted(0.4, 0..3_usize),
        ),
        (prop::option::of(0_u8..2), 0_u8..6, prop::option::weighted(0.2, 0_u8..3)),
        prop::option::weighted(0.4, 0..NODES),
    );
    let task = task.prop_map(
        |((job, cores, port), (devices, cards), (template, terms, zone), runs_on)| RandomTask {
            job,
            cores,
            port,
            devices,
            cards,
            template,
            terms,
            zone,
            runs_on,
        },
    );
    (
        prop::collection::vec(node, NODES),
        prop::collection::vec(task, TASKS),
        0..6_u32,
        any::<bool>(),
    )
        .prop_map(|(nodes, tasks, quota, are_ports_free)| CountedCluster {
            nodes,
            tasks,
            quota,
            are_ports_free,
        })
}

pub(super) fn node_name(number: usize) -> String {
    format!("n{number}")
}

pub(super) fn job_name(number: usize) -> String {
    format!("ns/j{number}")
}

pub(super) fn task_name(number: usize) -> String {
    format!("ns/t{number}")
}

impl RandomNode {
    fn record(&self, number: usize) -> pb::Node {
        let cores = self.cores.to_string();
        let mut items = vec![("cpu", &*cores), ("memory", "64Gi"), ("pods", "6")];
        if self.card.is_some() {
            items.push(("nvidia.com/gpu", "2"));
        }
        let mut record = node(&node_name(number), &items);
        record.labels.insert("zone".to_owned(), self.zone.to_string());
        record
            .labels
            .insert("kubernetes.io/hostname".to_owned(), node_name(number));
        if let Some(is_other) = self.card {
            let card = if is_other { "H100" } else { "A100" };
            for (key, value) in [("product", card), ("count", "2"), ("memory", "81559")] {
                record.labels.insert(format!("nvidia.com/gpu.{key}"), value.to_owned());
            }
        }
        if self.is_tainted {
            record.taints = vec![pb::Taint {
                key: "closed".to_owned(),
                effect: "NoSchedule".to_owned(),
                ..pb::Taint::default()
            }];
        }
        record.images = vec![pb::NodeImage {
            names: vec![format!("i{}:latest", self.image)],
            size_bytes: 500 << 20,
        }];
        record.devices = self.has_devices.then(|| pb::NodeDevices {
            model: "M".to_owned(),
            count: 2,
            memory_mib: 1000,
        });
        record
    }
}

/// Terms about pods with the label `app: a`.
fn affinity(terms: u8) -> Option<pb::Affinity> {
    let term = pb::PodAffinityTerm {
        label_selector: Some(pb::LabelSelector {
            match_labels: [("app".to_owned(), "a".to_owned())].into(),
            ..pb::LabelSelector::default()
        }),
        topology_key: if terms == 1 { "zone" } else { "kubernetes.io/hostname" }.to_owned(),
        ..pb::PodAffinityTerm::default()
    };
    let required = pb::PodAffinity {
        required: vec![term.clone()],
        ..pb::PodAffinity::default()
    };
    let preferred = pb::PodAffinity {
        preferred: vec![pb::WeightedPodAffinityTerm {
            weight: 50,
            term: Some(term),
        }],
        ..pb::PodAffinity::default()
    };
    match terms {
        1 => Some(pb::Affinity {
            pod_anti_affinity: Some(required),
            ..pb::Affinity::default()
        }),
        2 => Some(pb::Affinity {
            pod_affinity: Some(preferred),
            ..pb::Affinity::default()
        }),
        _ => None,
    }
}

impl RandomTask {
    fn record(&self, number: usize) -> pb::Task {
        let cores = self.cores.to_string();
        let mut items = vec![("cpu", &*cores), ("memory", "1Gi")];
        if self.cards.is_some() {
            items.push(("nvidia.com/gpu", "1"));
        }
        let mut record = task(&task_name(number), &job_name(self.job), &items);
        record.uid = format!("u{number}");
        record.labels.insert("app".to_owned(), "a".to_owned());
        if let Some(cards) = self.cards {
            record.limits = Some(amounts(&[("nvidia.com/gpu", "1")]));
            let name = ["A100", "H100", "A100|H100"][cards];
            record
                .annotations
                .insert("volcano.sh/card.name".to_owned(), name.to_owned());
        }
        if let Some(template) = self.template {
            record
                .annotations
                .insert("volcano.sh/template-uid".to_owned(), template.to_string());
        }
        let spread = pb::TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "zone".to_owned(),
            when_unsatisfiable: "DoNotSchedule".to_owned(),
            label_selector: Some(pb::LabelSelector {
                match_labels: [("app".to_owned(), "a".to_owned())].into(),
                ..pb::LabelSelector::default()
            }),
            ..pb::TopologySpreadConstraint::default()
        };
        record.constraints = Some(Box::new(pb::PodConstraints {
            node_selector: self
                .zone
                .map(|zone| ("zone".to_owned(), zone.to_string()))
                .into_iter()
                .collect(),
            affinity: affinity(self.terms),
            topology_spread_constraints: if self.terms == 3 { vec![spread] } else { Vec::new() },
            host_ports: self
                .port
                .map(|port| pb::HostPort {
                    port: 8000 + port,
                    ..pb::HostPort::default()
                })
                .into_iter()
                .collect(),
            images: vec!["i0".to_owned()],
            devices: self.devices.map(|milli| pb::DeviceRequest {
                count: 1,
                milli,
                ..pb::DeviceRequest::default()
            }),
            ..pb::PodConstraints::default()
        }));
        record
    }
}

impl CountedCluster {
    /// Tasks of this cluster on the nodes of another one.
    pub(super) fn on_nodes_of(&self, other: &Self) -> Self {
        Self {
            nodes: other.nodes.clone(),
            ..self.clone()
        }
    }

    /// Records of the cluster.
    pub(super) fn cluster(&self) -> pb::Cluster {
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.is_there);
        let tasks = self.tasks.iter().enumerate().map(|(number, own)| {
            let mut record = own.record(number);
            let Some(at) = own.runs_on.filter(|at| self.nodes[*at].is_there) else {
                return record;
            };
            if let Some(constraints) = record.constraints.as_mut().filter(|_| self.are_ports_free) {
                constraints.host_ports.clear();
            }
            task_on_node(record, pb::TaskStatus::Running, &node_name(at))
        });
        let quota = format!(r#"{{"A100": {}, "H100": 3}}"#, self.quota);
        let limited = |name: &str, parent: &str, cores: u32| pb::Queue {
            parent: parent.to_owned(),
            capability: Some(amounts(&[("cpu", &cores.to_string()), ("memory", "64Gi")])),
            deserved: Some(amounts(&[("cpu", "3"), ("memory", "9Gi")])),
            annotations: [("volcano.sh/card.quota".to_owned(), quota.clone())].into(),
            ..queue(name)
        };
        let jobs = (0..JOBS).map(|number| pb::Job {
            min_member: 1,
            phase: [pb::JobPhase::Running, pb::JobPhase::Inqueue, pb::JobPhase::Pending][number].into(),
            min_resources: Some(amounts(&[("cpu", "2"), ("memory", "2Gi")])),
            ..job(&job_name(number), ["q0", "q1", "q1"][number])
        });
        pb::Cluster {
            nodes: nodes.map(|(number, node)| node.record(number)).collect(),
            queues: vec![
                queue("root"),
                limited("q0", "root", 4 + self.quota),
                limited("q1", "root", 9),
            ],
            jobs: jobs.collect(),
            tasks: tasks.collect(),
            ..pb::Cluster::default()
        }
    }

    /// Tasks that run, by number and node; and those that wait.
    pub(super) fn running(&self) -> impl Iterator<Item = usize> {
        let runs = |own: &RandomTask| own.runs_on.is_some_and(|at| self.nodes[at].is_there);
        self.tasks
            .iter()
            .enumerate()
            .filter(move |(_, own)| runs(own))
            .map(|(number, _)| number)
    }

    /// True if a task may use several cards.
    pub(super) fn accepts_cards(&self, task: usize) -> bool {
        self.tasks[task].cards == Some(2)
    }

    pub(super) fn is_running(&self, task: usize) -> bool {
        self.running().any(|own| own == task)
    }

    pub(super) fn has_node(&self, node: usize) -> bool {
        self.nodes[node].is_there
    }
}
