//! Place, as a server runs it, chooses the nodes and devices of the published model.

#![cfg(test)]

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_engine::decide::{PlaceGroup, PlaceQuery, place};
use pumice_engine::devices::device_indices;
use pumice_engine::model::constraints::{DeviceRequest, NodeDevices, NodeProperties, PodConstraints};
use pumice_engine::model::{
    ClusterState, NodeRecord, ResourceAmounts, ResourceId, SortedTable, TaskFields, TaskRecord, TaskStatus,
};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::{CompileOptions, Policy, compile};
use pumice_lab::allocation::LabCluster;
use pumice_lab::experiment::LabWorkload;
use pumice_lab::policies::{LabPolicy, PublishedPolicy};
use pumice_lab::trace::{LabTask, parse_nodes, parse_tasks};
use pumice_lab::workload::{SeededWorkload, WorkloadTrace};

fn packed(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(format!("{name}.csv.gz"));
    let mut text = String::new();
    let bytes = std::fs::read(file).unwrap();
    flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
    text
}

fn amounts(cpu: i64, memory: i64) -> ResourceAmounts {
    [(ResourceId::CPU, cpu), (ResourceId::MEMORY, memory << 20)]
        .into_iter()
        .collect()
}

fn cluster(seeded: &SeededWorkload<'_>) -> ClusterState {
    let mut index = SortedTable::default();
    for (slot, name) in (0..).zip(seeded.node_names()) {
        index.insert(name, slot);
    }
    let mut state = ClusterState::new(Arc::new(index), 1);
    for (name, node) in seeded.node_names().zip(&seeded.nodes) {
        let devices = NodeDevices {
            model: Arc::clone(&node.model),
            count: u32::try_from(node.devices).unwrap(),
            memory_mib: 0,
        };
        let properties = NodeProperties {
            devices: Some(devices),
            ..NodeProperties::default()
        };
        let record = NodeRecord {
            name,
            allocatable: amounts(node.cpu, node.memory),
            properties: Some(Arc::new(properties)),
            ..NodeRecord::default()
        };
        state.put_node(Arc::new(record), &Arc::from("trace"));
    }
    state
}

fn record(name: String, task: &LabTask) -> TaskRecord {
    let devices = (task.task.count > 0).then(|| DeviceRequest {
        count: task.task.count,
        milli: u32::try_from(task.task.milli).unwrap(),
        models: task.task.models.to_vec(),
        ..DeviceRequest::default()
    });
    let constraints = PodConstraints {
        devices,
        ..PodConstraints::default()
    };
    TaskRecord::from(TaskFields {
        name: name.into(),
        requests: amounts(task.task.cpu, task.memory),
        constraints: (!constraints.is_empty()).then(|| Arc::new(constraints)),
        ..TaskFields::default()
    })
}

fn query(state: &ClusterState, task: TaskRecord, count: usize) -> PlaceQuery {
    PlaceQuery {
        now: None,
        job: None,
        groups: vec![Ok(PlaceGroup {
            task: Arc::new(task),
            count,
            names: Vec::new(),
            warnings: Vec::new(),
            unevaluated: Vec::new(),
        })],
        resources: Arc::clone(state.resources()),
        min_available: Some(1),
        candidates: None,
        exclusions: Vec::new(),
        idle_only: true,
        samples: 0,
        max_pairs: u64::MAX,
    }
}

/// Node and devices of each placed task.
fn placed(state: &ClusterState, policy: &Policy, query: &PlaceQuery) -> Vec<(String, u64)> {
    let result = place(state, policy, &PluginStates::default(), query).unwrap();
    let group = result.groups[0].as_ref().unwrap();
    let devices = group.devices.iter().copied().chain(std::iter::repeat(0));
    let nodes = group
        .allocated
        .iter()
        .map(|slot| state.name_of(*slot).unwrap().to_string());
    nodes.zip(devices).collect()
}

fn policy(published: PublishedPolicy, workload: &LabWorkload) -> Arc<Policy> {
    compile(&published.document(&workload.typical, 42), &CompileOptions::default())
        .unwrap()
        .policy
}

#[test]
fn place_decides_as_the_experiments_do() {
    let nodes = parse_nodes(&packed("nodes")).unwrap();
    let tasks = parse_tasks(&packed("default")).unwrap();
    let workload = LabWorkload::new("default", WorkloadTrace::new(nodes, tasks));
    let seeded = workload.trace.seeded(42);
    let decisions = packed("decisions");
    for published in PublishedPolicy::ALL
        .into_iter()
        .filter(|own| *own != PublishedPolicy::Random)
    {
        let policy = policy(published, &workload);
        let mut state = cluster(&seeded);
        let lines = decisions
            .lines()
            .filter(|line| line.split(',').next() == Some(published.name()));
        for (arrival, line) in seeded.arrivals.iter().zip(lines) {
            let fields: Vec<&str> = line.split(',').collect();
            let task = record(arrival.name(), arrival.task);
            let chosen = placed(&state, &policy, &query(&state, task.clone(), 1));
            let (node, devices) = &chosen[0];
            let numbers: Vec<String> = device_indices(*devices).map(|device| device.to_string()).collect();
            assert_eq!(
                (node.as_str(), numbers.join("-").as_str()),
                (fields[4], fields[5]),
                "{line}"
            );
            let mut running = TaskRecord {
                node: node.as_str().into(),
                status: TaskStatus::Running,
                ..task
            };
            running.assign_devices(*devices);
            state.put_task(running, &Arc::from("trace"));
            let free = state.node_by_name(node).unwrap().free_devices(false);
            let free: Vec<String> = free.iter().map(ToString::to_string).collect();
            assert_eq!(free.join("-"), fields[7], "{line}");
        }
    }
}

#[test]
#[ignore = "a minute: all tasks of one experiment, policy by policy"]
#[expect(clippy::print_stderr, reason = "the times are figures that readers ask for")]
#[expect(clippy::disallowed_methods, reason = "times are printed, and decide nothing")]
fn place_decides_whole_experiments() {
    let nodes = parse_nodes(&packed("nodes")).unwrap();
    let tasks = parse_tasks(&packed("default")).unwrap();
    let workload = LabWorkload::new("default", WorkloadTrace::new(nodes, tasks));
    let seeded = workload.trace.seeded(42);
    for published in PublishedPolicy::ALL {
        let compiled = LabPolicy::compile(&published.document(&workload.typical, 42)).unwrap();
        let policy = policy(published, &workload);
        let mut own = LabCluster::new(&seeded.nodes, &compiled, workload.measure());
        let (mut state, mut time, mut placed_count) = (cluster(&seeded), Duration::ZERO, 0);
        for (number, arrival) in seeded.arrivals.iter().enumerate() {
            let task = record(format!("ns/{number}"), arrival.task);
            let query = query(&state, task.clone(), 1);
            let begin = Instant::now();
            let chosen = placed(&state, &policy, &query).pop();
            time += begin.elapsed();
            if published != PublishedPolicy::Random {
                let class = own.class_of(&arrival.task.task);
                let expected = own.place(arrival.task, class);
                let expected =
                    expected.map(|own| (seeded.node_names().nth(own.node).unwrap().to_string(), own.devices));
                assert_eq!(chosen, expected, "{published:?} {number}");
            }
            let Some((node, devices)) = chosen else { continue };
            placed_count += 1;
            let mut running = TaskRecord {
                node: node.as_str().into(),
                status: TaskStatus::Running,
                ..task
            };
            running.assign_devices(devices);
            state.put_task(running, &Arc::from("trace"));
        }
        let each = time.as_secs_f64() * 1e6 / seeded.arrivals.len() as f64;
        eprintln!(
            "{}: {placed_count} tasks placed, {each:.0} microseconds a decision",
            published.name()
        );
    }
}

#[test]
fn a_gang_is_placed_as_its_tasks_one_by_one() {
    let nodes = parse_nodes(&packed("nodes")).unwrap();
    let tasks = parse_tasks(&packed("default")).unwrap();
    let workload = LabWorkload::new("default", WorkloadTrace::new(nodes, tasks));
    let seeded = workload.trace.seeded(42);
    for published in PublishedPolicy::ALL {
        let policy = policy(published, &workload);
        for number in [1_usize, 20] {
            let mut state = cluster(&seeded);
            let task = record("gang".to_owned(), seeded.arrivals[number].task);
            let together = placed(&state, &policy, &query(&state, task.clone(), 12));
            let mut one_by_one = Vec::new();
            for member in 0..12 {
                let Some(chosen) = placed(&state, &policy, &query(&state, task.clone(), 1)).pop() else {
                    break;
                };
                let mut running = TaskRecord {
                    name: format!("ns/{member}").into(),
                    node: chosen.0.as_str().into(),
                    status: TaskStatus::Running,
                    ..task.clone()
                };
                running.assign_devices(chosen.1);
                state.put_task(running, &Arc::from("trace"));
                one_by_one.push(chosen);
            }
            assert_eq!(together, one_by_one, "{published:?} {number}");
        }
    }
}
