//! Histories of a cluster, queries about it, and their results with and without a cache.

use std::sync::Arc;

use crate::decide::{
    self, FilterDetail, NodeQuery, Parallelism, PlaceGroup, PlaceQuery, PluginStateOrigin, QueryTask, ResourceFit,
    ScoreQuery, VerdictCache, VerdictReuse,
};
use crate::model::constraints::{
    HostPort, LabelSelector, NodeImage, NodeProperties, NodeSelectorTerm, PodAffinityTerm, PodConstraints, PodTerms,
    PreferredTerm, SelectorRequirement, SpreadConstraint, SpreadPolicy, Taint, TaintEffect, Toleration,
    WeightedPodTerm,
};
use crate::model::{
    ClusterState, DeviceRequest, NodeDevices, NodeRecord, NodeSlot, ResourceAmounts, ResourceId, ResourceTable,
    SortedTable, TaskFields, TaskRecord, TaskStatus, TextMap,
};
use crate::plugin::PluginContext;
use crate::plugin_state::PluginStates;
use crate::policy::{Compatibility, CompileOptions, Policy, compile};

/// Number of names of nodes: three chunks, the last one nearly empty.
pub(in crate::decide) const NAMES: u32 = 530;
const GPU: &str = "nvidia.com/gpu";
const ZONE: &str = "topology.kubernetes.io/zone";

const VOLCANO: &str = "
actions: allocate
tiers:
- plugins: [{name: predicates}, {name: nodeorder}, {name: binpack}]
- plugins:
  - name: resource-strategy-fit
    arguments:
      resources: {cpu: {type: LeastAllocated, weight: 1}, nvidia.com/gpu: {type: MostAllocated, weight: 2}}
      sra: {enable: true, resources: nvidia.com/gpu, weight: 3}
      proportional: {enable: true, resources: nvidia.com/gpu, resourceProportion: {nvidia.com/gpu.cpu: 1, nvidia.com/gpu.memory: 1}}
";

const KOORDINATOR: &str = "
actions: allocate
tiers:
- plugins:
  - {name: NodeResourcesFitPlus, arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}, memory: {type: MostAllocated, weight: 2}}}}
  - {name: ScarceResourceAvoidance, arguments: {resources: [nvidia.com/gpu]}}
";

const DEVICES: &str = "
actions: allocate
tiers:
- plugins: [{name: gpu-devices}, {name: gpu-packing}, {name: gpu-bestfit}, {name: gpu-random, arguments: {seed: 3}}]
";

const PROFILE: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}]
";

const ACCOUNTS: &str = "
actions: allocate
tiers:
- plugins: [{name: predicates}, {name: capacity-card}, {name: nodegroup}, {name: binpack}]
";

/// Documents of the policies.
pub(in crate::decide) const DOCUMENTS: [&str; 5] = [VOLCANO, KOORDINATOR, DEVICES, PROFILE, ACCOUNTS];

pub(in crate::decide) fn policy(document: &str, compatibility: Compatibility) -> Arc<Policy> {
    let options = CompileOptions {
        compatibility,
        ..CompileOptions::default()
    };
    let compiled = compile(document, &options);
    compiled
        .unwrap_or_else(|report| panic!("{document}\n{:?}", report.diagnostics))
        .policy
}

fn texts(pairs: &[(&str, &str)]) -> TextMap {
    let mut pairs: Vec<(Arc<str>, Arc<str>)> = pairs
        .iter()
        .map(|(key, text)| ((*key).into(), (*text).into()))
        .collect();
    pairs.sort();
    pairs.into()
}

fn name(number: u32) -> Arc<str> {
    // Names are in another order than slots.
    format!("n{:04}", number * 7_919 % 10_007).into()
}

/// Record of a node; `variant` varies one property at a time.
fn node(number: u32, variant: u32, gpu: ResourceId) -> NodeRecord {
    let zone = (number % 4 + u32::from(variant % 16 == 1)).to_string();
    let taint = |key: &str, effect| Taint {
        key: key.into(),
        value: Arc::default(),
        effect,
    };
    let taints = match variant % 16 {
        2 => vec![taint("team", TaintEffect::NoSchedule)],
        3 => vec![taint("team", TaintEffect::PreferNoSchedule)],
        7 => vec![taint("disk", TaintEffect::NoExecute)],
        8 => vec![
            taint("rack", TaintEffect::NoSchedule),
            taint("team", TaintEffect::NoSchedule),
        ],
        _ => Vec::new(),
    };
    let image = NodeImage {
        names: vec!["app:1".into()],
        size_bytes: 900 << 20,
    };
    let properties = NodeProperties {
        taints,
        images: if variant % 16 == 4 { vec![image] } else { Vec::new() },
        devices: number.is_multiple_of(3).then(|| NodeDevices {
            model: "G2".into(),
            count: 2 + variant % 3,
            memory_mib: 0,
        }),
    };
    let cpu = 4_000 + i64::from(number % 5) * 4_000 + i64::from(variant % 7) * 500;
    let mut allocatable = ResourceAmounts::from_iter([
        (ResourceId::CPU, cpu),
        (ResourceId::MEMORY, 16 << 30),
        (ResourceId::PODS, 6),
    ]);
    if number.is_multiple_of(2) {
        allocatable.set(gpu, 4_000 + i64::from(variant % 2) * 1_000);
    }
    NodeRecord {
        name: name(number),
        labels: texts(&[
            (ZONE, &zone),
            ("pool", if number.is_multiple_of(5) { "a" } else { "b" }),
        ]),
        allocatable,
        ready: (variant % 16 == 5).then_some(false),
        unschedulable: variant % 16 == 6,
        properties: (!properties.is_empty()).then(|| Arc::new(properties)),
        ..NodeRecord::default()
    }
}

fn source() -> Arc<str> {
    "test".into()
}

/// Cluster without tasks, in which the last ten names have no nodes.
pub(in crate::decide) fn cluster() -> ClusterState {
    let mut resources = ResourceTable::default();
    let gpu = resources.intern(GPU, 100).unwrap();
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for number in 0..NAMES {
        index.insert(name(number), number);
    }
    let mut state = ClusterState::new(Arc::new(index), 1);
    state.set_resources(Arc::new(resources));
    for number in 0..NAMES - 10 {
        state.put_node(Arc::new(node(number, 0, gpu)), &source());
    }
    state.refresh_ranks();
    state
}

/// Change of a cluster.
#[derive(Clone, Copy, Debug)]
pub(in crate::decide) struct ClusterChange {
    pub(in crate::decide) kind: u32,
    pub(in crate::decide) number: u32,
    pub(in crate::decide) variant: u32,
}

impl ClusterChange {
    pub(in crate::decide) fn apply(self, state: &mut ClusterState) {
        let Self { kind, number, variant } = self;
        let number = number % NAMES;
        let gpu = state.resources().get(GPU).unwrap();
        match kind % 8 {
            0 | 1 => {
                state.put_node(Arc::new(node(number, variant, gpu)), &source());
            }
            2 => {
                state.remove_node(&name(number));
            }
            3 => {
                let mut resources = ResourceTable::clone(state.resources());
                resources.intern(&format!("example.com/r{variant}"), 100).unwrap();
                state.set_resources(Arc::new(resources));
            }
            4 => {
                state.remove_task(&format!("team/t{}", variant % 40));
            }
            _ => {
                state.put_task(placed(number, variant, gpu), &source());
            }
        }
        state.refresh_ranks();
    }
}

/// Task on a node.
fn placed(number: u32, variant: u32, gpu: ResourceId) -> TaskRecord {
    let constraints = PodConstraints {
        host_ports: if variant.is_multiple_of(3) {
            vec![port()]
        } else {
            Vec::new()
        },
        pod_affinity: if variant.is_multiple_of(11) {
            rather_near("web")
        } else {
            PodTerms::default()
        },
        pod_anti_affinity: if variant.is_multiple_of(17) {
            near("db")
        } else {
            PodTerms::default()
        },
        devices: variant.is_multiple_of(5).then(|| DeviceRequest {
            count: 1,
            milli: 300,
            assigned: 1,
            ..DeviceRequest::default()
        }),
        ..PodConstraints::default()
    };
    let statuses = [TaskStatus::Running, TaskStatus::Releasing, TaskStatus::Pipelined];
    TaskFields {
        name: format!("team/t{}", variant % 40).into(),
        node: name(number),
        status: statuses[variant as usize % 3],
        requests: ResourceAmounts::from_iter([
            (ResourceId::CPU, 500 + i64::from(variant % 9) * 250),
            (ResourceId::MEMORY, 1 << 30),
            (ResourceId::PODS, 1),
            (gpu, i64::from(variant % 2) * 1_000),
        ]),
        labels: texts(&[("app", if variant.is_multiple_of(2) { "web" } else { "db" })]),
        constraints: Some(Arc::new(constraints)),
        ..TaskFields::default()
    }
    .into()
}

fn port() -> HostPort {
    HostPort {
        protocol: Arc::default(),
        host_ip: Arc::default(),
        port: 9_000,
    }
}

fn near(app: &str) -> PodTerms {
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: texts(&[("app", app)]),
            ..LabelSelector::default()
        }),
        topology_key: ZONE.into(),
        ..PodAffinityTerm::default()
    };
    PodTerms {
        required: vec![term],
        ..PodTerms::default()
    }
}

fn rather_near(app: &str) -> PodTerms {
    let preferred = near(app).required.into_iter();
    PodTerms {
        preferred: preferred.map(|term| WeightedPodTerm { weight: 50, term }).collect(),
        ..PodTerms::default()
    }
}

fn preferred(weight: i32) -> PreferredTerm {
    let requirement = SelectorRequirement {
        key: ZONE.into(),
        operator: "In".into(),
        values: vec!["4".into()],
    };
    PreferredTerm {
        weight,
        term: NodeSelectorTerm {
            match_expressions: vec![requirement],
            ..NodeSelectorTerm::default()
        },
    }
}

fn spread() -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: ZONE.into(),
        is_hard: false,
        label_selector: near("web").required.remove(0).label_selector,
        min_domains: None,
        node_affinity_policy: SpreadPolicy::Honor,
        node_taints_policy: SpreadPolicy::Ignore,
        match_label_keys: Vec::new(),
    }
}

/// Constraints of the classes of a query.
fn constraints() -> [PodConstraints; 8] {
    let none = PodConstraints::default;
    let tolerates = vec![Toleration {
        key: "team".into(),
        operator: "Exists".into(),
        value: Arc::default(),
        effect: Arc::default(),
    }];
    [
        none(),
        PodConstraints {
            node_selector: texts(&[("pool", "a")]),
            tolerations: tolerates,
            ..none()
        },
        PodConstraints {
            preferred_node_terms: vec![preferred(30)],
            ..none()
        },
        PodConstraints {
            preferred_node_terms: vec![preferred(-30)],
            ..none()
        },
        PodConstraints {
            images: vec!["app:1".into(), "other".into()],
            host_ports: vec![port()],
            ..none()
        },
        PodConstraints {
            pod_anti_affinity: near("web"),
            ..none()
        },
        PodConstraints {
            spread_constraints: vec![spread()],
            ..none()
        },
        PodConstraints {
            devices: Some(DeviceRequest {
                count: 1,
                milli: 500,
                ..DeviceRequest::default()
            }),
            ..none()
        },
    ]
}

/// Query about one task of each class.
pub(in crate::decide) fn all_classes(state: &ClusterState) -> ScoreQuery {
    let gpu = state.resources().get(GPU).unwrap();
    let tasks = (0_u32..).zip(constraints()).map(|(number, constraints)| {
        let task = TaskFields {
            name: format!("team/q{number}").into(),
            requests: ResourceAmounts::from_iter([
                (ResourceId::CPU, 1_000),
                (ResourceId::MEMORY, 2 << 30),
                (ResourceId::PODS, 1),
                (gpu, i64::from(number % 3) * 1_000),
            ]),
            labels: texts(&[("app", "web")]),
            constraints: Some(Arc::new(constraints)),
            ..TaskFields::default()
        };
        let task = Arc::new(TaskRecord::from(task));
        Ok(QueryTask {
            task,
            warnings: Vec::new(),
        })
    });
    ScoreQuery {
        node_query: NodeQuery {
            now: None,
            tasks: tasks.collect(),
            resources: Arc::clone(state.resources()),
            candidates: None,
            plugins: Vec::new(),
            resource_fit: ResourceFit::FutureIdle,
            samples: 3,
            detail: FilterDetail::Nodes,
        },
        ahead: 0,
        with_filter: true,
        limit: Some(1),
        with_parts: false,
    }
}

/// Query with a result that verdicts may change.
pub(in crate::decide) enum AskedQuery {
    Filter(NodeQuery),
    Score(ScoreQuery),
    Place(PlaceQuery),
}

/// Form of a query, by a number.
pub(in crate::decide) fn form(state: &ClusterState, form: u32) -> AskedQuery {
    let all = all_classes(state);
    let limits = [Some(1), Some(16), None, Some(0), Some(1_000)];
    let candidates = match form / 16 % 4 {
        0 => Some(
            (0..NAMES)
                .rev()
                .filter(|slot| slot % 256 < 200 || *slot < 256)
                .collect(),
        ),
        1 => Some((0..NAMES).collect()),
        _ => None,
    };
    let node_query = NodeQuery {
        resource_fit: [ResourceFit::FutureIdle, ResourceFit::Idle][form as usize / 2 % 2],
        detail: [FilterDetail::Counts, FilterDetail::Samples, FilterDetail::Nodes][form as usize % 3],
        candidates,
        ..all.node_query
    };
    let query = ScoreQuery {
        node_query,
        with_filter: !form.is_multiple_of(5),
        limit: limits[form as usize % 5],
        with_parts: form.is_multiple_of(7),
        ahead: 0,
    };
    match form / 64 % 3 {
        0 => AskedQuery::Filter(query.node_query),
        1 => AskedQuery::Score(query),
        _ => AskedQuery::Place(place(query.node_query, form)),
    }
}

/// Query that places groups of the tasks.
pub(in crate::decide) fn place(query: NodeQuery, form: u32) -> PlaceQuery {
    let groups = query.tasks.into_iter().flatten().map(|asked| {
        Ok(PlaceGroup {
            task: asked.task,
            count: [1, 3, 12, 40][form as usize / 8 % 4],
            names: Vec::new(),
            warnings: Vec::new(),
            unevaluated: Vec::new(),
        })
    });
    PlaceQuery {
        now: None,
        job: None,
        groups: groups.collect(),
        resources: query.resources,
        min_available: Some(1),
        candidates: query.candidates,
        exclusions: if form.is_multiple_of(5) {
            vec![7, 300]
        } else {
            Vec::new()
        },
        idle_only: form.is_multiple_of(2),
        samples: 2,
        max_pairs: 20_000,
    }
}

/// Text of the results of a query, which differs if a bit does.
pub(in crate::decide) fn results(
    state: &ClusterState,
    policy: &Arc<Policy>,
    query: &AskedQuery,
    cache: Option<(&VerdictCache, &str)>,
) -> String {
    let plugin_states = if policy.reads_plugin_state(&[]) {
        policy.compute_plugin_states(state)
    } else {
        PluginStates::default()
    };
    let context = PluginContext::new(state, &plugin_states, None);
    let parallelism = Parallelism {
        verdicts: cache.map(|(cache, lineage)| VerdictReuse { cache, policy, lineage }),
        ..Parallelism::SEQUENTIAL
    };
    match query {
        AskedQuery::Filter(query) => format!("{:?}", decide::filter_with(context, policy, query, parallelism)),
        AskedQuery::Score(query) => format!("{:?}", decide::score_with(context, policy, query, parallelism)),
        AskedQuery::Place(query) => {
            let origin = PluginStateOrigin::Computed(&plugin_states);
            format!(
                "{:?}",
                decide::place_cancellable(state, policy, origin, query, parallelism)
            )
        }
    }
}
