//! `pumice-lab bound`: how much of the devices is allocated, and how much any placement could allocate at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use pumice_console::listings::RecordListing as _;
use pumice_console::policy_args::PolicyArgs;
use pumice_console::what_if::WhatIfArgs;
use pumice_console::{ClientArgs, CommandError, LocalServices, OutputFormat, args, listings, output};
use pumice_engine::devices::{DeviceTask, FreeDevices, WHOLE_DEVICE};
use pumice_engine::model::constraints::{DeviceRequest, NodeDevices, PodConstraints};
use pumice_engine::model::quantity::Quantity;
use pumice_engine::model::resource_name::amount;
use pumice_engine::model::{DeviceUsage, TaskFields, TaskRecord, TaskStatus};
use pumice_kubernetes::import::AmountRules;
use pumice_lab::bound::{AllocationBound, BoundKind, BoundNode, BoundTask, allocation_bound};
use pumice_protocol::v1 as pb;

/// Arguments of `pumice-lab bound`.
#[derive(Debug, Args)]
pub(crate) struct BoundArgs {
    /// Rules for the requests of pods in files
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = args::amount_rules_parser())]
    derivation: AmountRules,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Prints how much of the devices could be allocated at most.
pub(crate) async fn run(args: BoundArgs, services: &dyn LocalServices) -> Result<(), CommandError> {
    let mut target = args
        .what_if
        .connect(&args.client, &args.policy, args.derivation, services)
        .await?;
    let (connection, against) = (&mut target.connection, Some(args.policy.evaluation_ref()));
    let nodes = listings::rows(connection, pb::ListNodesRequest::new(against.clone(), Vec::new())).await?;
    let tasks = listings::rows(connection, pb::ListTasksRequest::new(against, Vec::new())).await?;
    let bounds = DeviceBounds::of(&nodes, &tasks)?;
    match args.client.output {
        OutputFormat::Table => bounds.show(),
        OutputFormat::Json => output::report(&bounds),
    }
}

/// Devices of a cluster, in thousandths.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceBounds {
    /// Number of nodes that report devices.
    nodes: usize,
    /// Number of devices.
    devices: u64,
    /// Thousandths that tasks have.
    allocated_milli: i64,
    /// Number of tasks that wait for devices.
    waiting: usize,
    /// Most that can be allocated while the tasks that have a node stay there.
    with_waiting: BoundReport,
    /// Most that could be allocated if all tasks were placed afresh.
    afresh: BoundReport,
}

/// Upper bound by a linear programme.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BoundReport {
    milli: i64,
    /// `patterns` or `shapes`.
    method: &'static str,
    /// Number of shapes of nodes.
    shapes: usize,
    /// Number of classes of tasks with devices.
    classes: usize,
}

impl BoundReport {
    fn new(bound: AllocationBound, milli: i64) -> Self {
        Self {
            milli,
            method: match bound.kind {
                BoundKind::Patterns => "patterns",
                BoundKind::Shapes => "shapes",
            },
            shapes: bound.shapes,
            classes: bound.classes,
        }
    }
}

/// Resources of a bound in addition to devices: cpu in thousandths, memory in bytes.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// Node with devices, and the tasks on it.
struct DeviceNodeState {
    devices: NodeDevices,
    usage: DeviceUsage,
    /// Amounts of [`RESOURCES`].
    allocatable: [f64; 2],
    /// Unused amounts.
    idle: [f64; 2],
    takes_tasks: bool,
}

impl DeviceBounds {
    /// Bounds of the nodes and tasks of a state.
    ///
    /// # Errors
    /// No node reports devices, or the solver failed.
    fn of(nodes: &[pb::NodeStatus], tasks: &[pb::StoredTask]) -> Result<Self, CommandError> {
        let mut holders: BTreeMap<&str, DeviceNodeState> = nodes.iter().filter_map(device_node).collect();
        if holders.is_empty() {
            return Err(CommandError::message(
                "error: no node reports devices (`Node.devices`), so that there is nothing to bound".to_owned(),
            ));
        }
        let (mut waiting, mut all) = (Vec::new(), Vec::new());
        for task in tasks.iter().filter_map(|stored| stored.task.as_ref()) {
            let Some(request) = task.constraints.as_ref().and_then(|own| own.devices.as_ref()) else {
                continue;
            };
            let Some(status) = status_on_node(task.status()) else {
                if waits(task) {
                    waiting.push(bound_task(task, request));
                }
                continue;
            };
            if let Some(node) = holders.get_mut(task.node.as_str()) {
                node.usage.count_task(&record(request, status), true);
                all.push(bound_task(task, request));
            }
        }
        all.extend(waiting.iter().cloned());
        let mut allocated = 0;
        let (mut now, mut empty) = (Vec::new(), Vec::new());
        for node in holders.values() {
            let free = node.usage.free(&node.devices, false);
            let idle: i64 = free.iter().map(|free| i64::from(*free)).sum();
            allocated += i64::from(node.devices.count) * i64::from(WHOLE_DEVICE) - idle;
            let whole = DeviceUsage::default().free(&node.devices, false);
            empty.push(bound_node(&node.devices, node.allocatable, whole));
            if node.takes_tasks {
                now.push(bound_node(&node.devices, node.idle, free));
            }
        }
        let more = allocation_bound(&now, &waiting).map_err(CommandError::failed)?;
        let afresh = allocation_bound(&empty, &all).map_err(CommandError::failed)?;
        Ok(Self {
            nodes: holders.len(),
            devices: holders.values().map(|node| u64::from(node.devices.count)).sum(),
            allocated_milli: allocated,
            waiting: waiting.len(),
            with_waiting: BoundReport::new(more, allocated + more.milli),
            // Tasks that share a device beyond what it has are not placed afresh.
            afresh: BoundReport::new(afresh, afresh.milli.max(allocated)),
        })
    }

    /// Prints the bounds for people.
    fn show(&self) -> Result<(), CommandError> {
        let percent = |milli: i64| format!("{:.2} %", milli as f64 / self.devices as f64 / 10.0);
        let all = format!("{} devices of {} nodes", self.devices, self.nodes);
        output::line(&format!("{all}: {} allocated", percent(self.allocated_milli)))?;
        output::paragraph(&format!(
            "at most {} with {} that may be placed, while the others stay where they are",
            percent(self.with_waiting.milli),
            output::count(self.waiting, "waiting task")
        ))?;
        output::paragraph(&format!(
            "at most {} if all were placed afresh, by a linear programme over {} shapes of nodes and {} classes of tasks",
            percent(self.afresh.milli),
            self.afresh.shapes,
            self.afresh.classes
        ))
    }
}

fn device_node(status: &pb::NodeStatus) -> Option<(&str, DeviceNodeState)> {
    let record = status.node.as_ref()?;
    let own = record.devices.as_ref().filter(|own| own.count > 0)?;
    let amount = |name| {
        let lists = [&record.allocatable, &record.oversubscription];
        lists
            .into_iter()
            .map(|list| read_amount(list.as_ref(), name))
            .sum::<f64>()
    };
    let used = |name: &str| {
        let used = status.used.iter().find(|used| used.resource == name);
        used.map_or(0.0, |used| used.value)
    };
    let allocatable = RESOURCES.map(amount);
    let state = DeviceNodeState {
        idle: RESOURCES.map(|name| amount(name) - used(name)),
        allocatable,
        devices: NodeDevices {
            model: own.model.as_str().into(),
            count: own.count,
            memory_mib: own.memory_mib,
        },
        usage: DeviceUsage::default(),
        takes_tasks: record.ready.unwrap_or(true) && !record.unschedulable && status.invalid.is_empty(),
    };
    Some((&record.name, state))
}

/// True if a task may get a node.
fn waits(task: &pb::Task) -> bool {
    let status = task.status();
    let is_open = matches!(
        status,
        pb::TaskStatus::Unspecified | pb::TaskStatus::Pending | pb::TaskStatus::Pipelined
    );
    is_open && !task.gated
}

/// Status of a task that has a node, as far as its devices depend on it; `None`: it has none.
fn status_on_node(status: pb::TaskStatus) -> Option<TaskStatus> {
    match status {
        pb::TaskStatus::Allocated
        | pb::TaskStatus::Binding
        | pb::TaskStatus::Bound
        | pb::TaskStatus::Running
        | pb::TaskStatus::Unknown => Some(TaskStatus::Running),
        pb::TaskStatus::Releasing => Some(TaskStatus::Releasing),
        pb::TaskStatus::Unspecified
        | pb::TaskStatus::Pending
        | pb::TaskStatus::Pipelined
        | pb::TaskStatus::Succeeded
        | pb::TaskStatus::Failed => None,
    }
}

/// Thousandths that a request asks for apart from its memory.
fn milli(request: &pb::DeviceRequest) -> u32 {
    match (request.milli, request.memory_mib) {
        (0, 0) => WHOLE_DEVICE.cast_unsigned(),
        (milli, _) => milli,
    }
}

/// Record with the devices of a task, for the usage of its node.
fn record(request: &pb::DeviceRequest, status: TaskStatus) -> TaskRecord {
    let assigned = request.assigned.iter().filter(|device| **device < 64);
    let constraints = PodConstraints {
        devices: Some(DeviceRequest {
            count: request.count,
            milli: milli(request),
            memory_mib: request.memory_mib,
            models: Vec::new(),
            assigned: assigned.fold(0, |set, device| set | 1 << device),
        }),
        ..PodConstraints::default()
    };
    TaskRecord::from(TaskFields {
        status,
        constraints: Some(Arc::new(constraints)),
        ..TaskFields::default()
    })
}

fn bound_task(task: &pb::Task, request: &pb::DeviceRequest) -> BoundTask {
    let asked = |name| read_amount(task.requests.as_ref(), name);
    let [cpu, memory] = RESOURCES.map(asked);
    BoundTask {
        task: DeviceTask {
            cpu: whole(cpu.floor()),
            count: request.count,
            milli: i32::try_from(milli(request)).unwrap_or(i32::MAX),
            models: request.models.iter().map(|model| Arc::from(model.as_str())).collect(),
        },
        memory: whole((memory / MIB).floor()),
        device_memory: request.memory_mib,
    }
}

fn bound_node(devices: &NodeDevices, [cpu, memory]: [f64; 2], free: FreeDevices) -> BoundNode {
    BoundNode {
        cpu: whole(cpu.ceil()),
        memory: whole((memory / MIB).ceil()),
        free,
        model: devices.model.to_string(),
        device_memory: devices.memory_mib,
    }
}

const MIB: f64 = 1_048_576.0;

#[expect(
    clippy::cast_possible_truncation,
    reason = "whole amounts far below 2^63, and the cast saturates"
)]
fn whole(amount: f64) -> i64 {
    amount as i64
}

/// Amount of a resource in the engine's units. Records that the server listed hold nothing that it could not read.
fn read_amount(list: Option<&pb::ResourceList>, name: &str) -> f64 {
    let text = list.and_then(|list| list.items.get(name));
    let quantity = text.and_then(|text| Quantity::parse(text).ok());
    quantity
        .and_then(|own| amount(name, &own).ok())
        .map_or(0.0, |own| own as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(cpu: &str, memory: &str) -> pb::ResourceList {
        let items = [("cpu", cpu), ("memory", memory)];
        pb::ResourceList {
            items: items.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into(),
        }
    }

    fn node(name: &str, cpu: &str, used: f64) -> pb::NodeStatus {
        pb::NodeStatus {
            node: Some(pb::Node {
                name: name.to_owned(),
                allocatable: Some(list(cpu, "64Gi")),
                devices: Some(pb::NodeDevices {
                    model: "T4".to_owned(),
                    count: 2,
                    memory_mib: 16_000,
                }),
                ..pb::Node::default()
            }),
            used: vec![pb::Amount {
                resource: "cpu".to_owned(),
                value: used,
            }],
            ..pb::NodeStatus::default()
        }
    }

    fn task(node: &str, request: pb::DeviceRequest) -> pb::StoredTask {
        let status = if node.is_empty() {
            pb::TaskStatus::Pending
        } else {
            pb::TaskStatus::Running
        };
        pb::StoredTask {
            task: Some(pb::Task {
                node: node.to_owned(),
                status: status.into(),
                requests: Some(list("4", "1Gi")),
                constraints: Some(Box::new(pb::PodConstraints {
                    devices: Some(request),
                    ..pb::PodConstraints::default()
                })),
                ..pb::Task::default()
            }),
            ..pb::StoredTask::default()
        }
    }

    fn share(milli: u32, assigned: &[u32]) -> pb::DeviceRequest {
        pb::DeviceRequest {
            count: 1,
            milli,
            assigned: assigned.to_vec(),
            ..pb::DeviceRequest::default()
        }
    }

    #[test]
    fn running_tasks_stay_or_are_placed_afresh() {
        // Two shares lie on two devices of one node, so that no pair of whole devices is left there.
        let nodes = [node("a", "16", 8_000.0), node("b", "4", 0.0)];
        let pair = pb::DeviceRequest {
            count: 2,
            ..pb::DeviceRequest::default()
        };
        let by_memory = pb::DeviceRequest {
            count: 1,
            memory_mib: 4_000,
            ..pb::DeviceRequest::default()
        };
        let tasks = [
            task("a", share(500, &[0])),
            task("a", share(500, &[1])),
            task("", pair.clone()),
            task("", pair),
            task("", by_memory),
        ];
        let bounds = DeviceBounds::of(&nodes, &tasks).unwrap();
        assert_eq!((bounds.devices, bounds.allocated_milli, bounds.waiting), (4, 1_000, 3));
        // A pair on b, and a quarter on a.
        assert_eq!(bounds.with_waiting.milli, 1_000 + 2_000 + 250);
        // Afresh each node would hold a pair, and no other task.
        assert_eq!(bounds.afresh.milli, 4_000);
        let error = DeviceBounds::of(&[], &[]).unwrap_err();
        assert!(error.to_string().contains("no node reports devices"), "{error}");
    }

    #[test]
    fn nodes_that_take_no_tasks_keep_theirs() {
        let mut cordoned = node("a", "16", 4_000.0);
        cordoned.node.as_mut().unwrap().unschedulable = true;
        let bounds = DeviceBounds::of(&[cordoned], &[task("a", share(500, &[0])), task("", share(500, &[]))]).unwrap();
        assert_eq!((bounds.with_waiting.milli, bounds.afresh.milli), (500, 1_000));
    }
}
