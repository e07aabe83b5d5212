//! Recorded case: its cluster as a cluster state, and its dumps.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::steps;
use pumice_engine::cards::NodeCards;
use pumice_engine::model::quantity::Quantity;
use pumice_engine::model::resource_name::amount;
use pumice_engine::model::{
    ClusterState, JobPhase, JobRecord, NodeRecord, NodeSlot, Problem, QueueRecord, QueueState, ResourceAmounts,
    ResourceId, ResourceTable, SortedTable, TaskFields, TaskRecord, TaskStatus, TextMap,
};
use pumice_engine::plugin::{PluginAccounts as _, QueueGauge};
use pumice_engine::plugin_state::{PlacementEvent, PluginState, PluginStateChange, TaskTransition};
use pumice_engine::plugins::capacity_card::{CapacityConfig, QuotaAmounts, UpstreamCapacityState};
use pumice_engine::policy::{
    Compatibility, DiagnosticReport, DocumentPath, Mark, PluginArguments, YamlNode, YamlValue,
};

/// Settings under which a job may use several cards, in queues without a tree.
pub(super) const MIXED: CapacityConfig = CapacityConfig {
    hierarchy: false,
    mixed_cards: true,
    order_by_quota: false,
    victims: false,
    unlimited_cpu_memory: false,
    node_order_weight: 1.0,
    over_commit_milli: 1000,
};
/// Settings under which a job uses one card.
pub(super) const ONE: CapacityConfig = CapacityConfig {
    mixed_cards: false,
    ..MIXED
};

pub(super) fn texts(map: &Json) -> TextMap {
    let entries = map.as_object().into_iter().flatten();
    let mut texts: Vec<(Arc<str>, Arc<str>)> = entries
        .map(|(name, text)| (Arc::from(name.as_str()), Arc::from(text.as_str().unwrap())))
        .collect();
    texts.sort();
    texts.into()
}

fn string(value: &Json) -> Arc<str> {
    Arc::from(value.as_str().unwrap_or_default())
}

fn amounts(resources: &mut ResourceTable, map: &Json) -> Option<ResourceAmounts> {
    let entries = map.as_object()?.iter();
    Some(
        entries
            .map(|(name, quantity)| {
                let quantity = Quantity::parse(quantity.as_str().unwrap()).unwrap();
                (resources.intern(name, 1000).unwrap(), amount(name, &quantity).unwrap())
            })
            .collect(),
    )
}

fn sum(into: &mut ResourceAmounts, other: &ResourceAmounts) {
    for (id, amount) in other.iter() {
        into.set(id, into.get(id).unwrap_or(0) + amount);
    }
}

/// Effective amounts: the sum over containers, at least those of each init container.
fn effective(resources: &mut ResourceTable, task: &Json, field: &str) -> ResourceAmounts {
    let mut total = amounts(resources, &task[field]).unwrap_or_default();
    for container in task["extra_containers"].as_array().into_iter().flatten() {
        sum(&mut total, &amounts(resources, &container[field]).unwrap_or_default());
    }
    for container in task["init_containers"].as_array().into_iter().flatten() {
        for (id, amount) in amounts(resources, &container[field]).unwrap_or_default().iter() {
            total.set(id, total.get(id).unwrap_or(0).max(amount));
        }
    }
    total
}

fn status(text: &Json) -> TaskStatus {
    match text.as_str().unwrap() {
        "Pending" => TaskStatus::Pending,
        "Allocated" => TaskStatus::Allocated,
        "Pipelined" => TaskStatus::Pipelined,
        "Binding" => TaskStatus::Binding,
        "Bound" => TaskStatus::Bound,
        "Running" => TaskStatus::Running,
        "Releasing" => TaskStatus::Releasing,
        "Succeeded" => TaskStatus::Succeeded,
        "Failed" => TaskStatus::Failed,
        "Unknown" => TaskStatus::Unknown,
        other => panic!("{other}"),
    }
}

fn phase(text: &Json) -> JobPhase {
    match text.as_str().unwrap_or_default() {
        "Pending" => JobPhase::Pending,
        "Inqueue" => JobPhase::Inqueue,
        "Running" => JobPhase::Running,
        "Unknown" => JobPhase::Unknown,
        "Completed" => JobPhase::Completed,
        "" => JobPhase::Unspecified,
        other => panic!("{other}"),
    }
}

fn queue(resources: &mut ResourceTable, queue: &Json) -> QueueRecord {
    QueueRecord {
        name: string(&queue["name"]),
        annotations: texts(&queue["annotations"]),
        priority: i32::try_from(queue["priority"].as_i64().unwrap_or(0)).unwrap(),
        state: match queue["state"].as_str().unwrap_or("Open") {
            "Open" => QueueState::Open,
            "Closed" => QueueState::Closed,
            "Closing" => QueueState::Closing,
            "Unknown" => QueueState::Unknown,
            other => panic!("{other}"),
        },
        parent: string(&queue["parent"]),
        capability: amounts(resources, &queue["capability"]),
        deserved: amounts(resources, &queue["deserved"]),
        guarantee: amounts(resources, &queue["guarantee"]),
        ..QueueRecord::default()
    }
}

fn job(resources: &mut ResourceTable, job: &Json) -> JobRecord {
    JobRecord {
        name: string(&job["uid"]),
        queue: string(&job["queue"]),
        annotations: texts(&job["annotations"]),
        phase: phase(&job["phase"]),
        min_member: i32::try_from(job["min_member"].as_i64().unwrap_or(0)).unwrap(),
        min_resources: amounts(resources, &job["min_resources"]),
        ..JobRecord::default()
    }
}

fn task(resources: &mut ResourceTable, job: &JobRecord, task: &Json) -> TaskRecord {
    let mut requests = effective(resources, task, "requests");
    requests.set(ResourceId::PODS, 1);
    TaskRecord::from(TaskFields {
        name: format!("{}/{}", job.name, task["name"].as_str().unwrap()).into(),
        job: Arc::clone(&job.name),
        status: status(&task["status"]),
        node: string(&task["node"]),
        gated: task["scheduling_gated"].as_bool().unwrap_or(false),
        annotations: texts(&task["annotations"]),
        requests,
        limits: Some(Box::new(effective(resources, task, "limits"))),
        ..TaskFields::default()
    })
}

/// Cluster state of a case.
pub(crate) fn cluster_state(cluster: &Json) -> ClusterState {
    let mut resources = ResourceTable::default();
    let list = |field: &str| cluster[field].as_array().cloned().unwrap_or_default();
    let source = Arc::from("test");
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    let nodes: Vec<NodeRecord> = list("nodes")
        .iter()
        .map(|node| NodeRecord {
            name: string(&node["name"]),
            labels: texts(&node["labels"]),
            allocatable: amounts(&mut resources, &node["allocatable"]).unwrap_or_default(),
            unschedulable: node["unschedulable"].as_bool().unwrap_or(false),
            ..NodeRecord::default()
        })
        .collect();
    for (slot, node) in (0..).zip(&nodes) {
        index.insert(Arc::clone(&node.name), slot);
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 1);
    let queues: Vec<_> = list("queues")
        .iter()
        .map(|record| queue(&mut resources, record))
        .collect();
    let mut records = Vec::new();
    for one in list("jobs") {
        let record = job(&mut resources, &one);
        let tasks = one["tasks"].as_array().cloned().unwrap_or_default();
        let tasks: Vec<_> = tasks.iter().map(|one| task(&mut resources, &record, one)).collect();
        records.push((record, tasks));
    }
    cluster_state.set_resources(Arc::new(resources));
    for node in nodes {
        assert!(cluster_state.put_node(Arc::new(node), &source));
    }
    for queue in queues {
        cluster_state.put_queue(queue, &source);
    }
    for (job, tasks) in records {
        cluster_state.put_job(job, &source);
        for task in tasks {
            cluster_state.put_task(task, &source);
        }
    }
    cluster_state
}

fn value(json: &Json) -> YamlValue {
    match json {
        Json::Null => YamlValue::Null,
        Json::Bool(bool) => YamlValue::Bool(*bool),
        Json::Number(number) => number
            .as_i64()
            .map_or_else(|| YamlValue::Float(number.as_f64().unwrap()), YamlValue::Int),
        Json::String(text) => YamlValue::String(text.clone()),
        Json::Array(_) | Json::Object(_) => YamlValue::List(Vec::new()),
    }
}

pub(super) fn config(policy: &Json) -> CapacityConfig {
    let mut arguments = PluginArguments::new(Mark::START, DocumentPath::default());
    for (key, argument) in policy["arguments"].as_object().unwrap() {
        arguments.set(key.clone(), Mark::START, YamlNode::new(value(argument)));
    }
    CapacityConfig::read(&arguments, Compatibility::UPSTREAM, &mut DiagnosticReport::default())
}

/// Compares a case with its recording.
pub(crate) fn run(case: &Json) -> Result<(), String> {
    let expect = &case["expect"];
    let Some(any) = expect["any_of"].as_array() else {
        return run_against(case, expect);
    };
    let outcomes: Vec<_> = any.iter().map(|expect| run_against(case, expect)).collect();
    if outcomes.iter().any(Result::is_ok) {
        return Ok(());
    }
    outcomes.into_iter().next().unwrap_or(Ok(()))
}

fn run_against(case: &Json, expect: &Json) -> Result<(), String> {
    let cluster_state = cluster_state(&case["cluster"]);
    let config = config(&case["policy"]);
    let mut state = UpstreamCapacityState::of(&cluster_state, config);
    dumps(&expect["open"], &cluster_state, &state, config).map_err(|problem| format!("open: {problem}"))?;
    let steps = case["request"]["steps"].as_array().unwrap();
    for (number, (step, expected)) in steps
        .iter()
        .zip(expect["steps"].as_array().into_iter().flatten())
        .enumerate()
    {
        let got = steps::run(step, &cluster_state, &mut state, config.node_order_weight);
        let mismatch =
            |got: &dyn std::fmt::Display| Err(format!("step {number} {step}: expected {expected}, got {got}"));
        match (expected.get("panic"), got) {
            (Some(_), Err(_)) => return Ok(()),
            (None, Ok(got)) if same(expected, &got) => {}
            (_, Ok(got)) => return mismatch(&got),
            (_, Err(problem)) => return mismatch(&problem.message),
        }
    }
    dumps(&expect["end"], &cluster_state, &state, config).map_err(|problem| format!("end: {problem}"))
}

fn dumps(
    expect: &Json,
    cluster_state: &ClusterState,
    state: &UpstreamCapacityState,
    config: CapacityConfig,
) -> Result<(), String> {
    for (what, expected) in expect.as_object().into_iter().flatten() {
        let got = match what.as_str() {
            "discovery" => discovery(cluster_state, state),
            "state" => accounts(state),
            "metrics" => {
                compare_metrics(expected, cluster_state, state)?;
                continue;
            }
            "config" => {
                json!({"card_unlimited_cpu_memory": config.unlimited_cpu_memory, "node_order_weight": config.node_order_weight})
            }
            "registered" => continue,
            other => panic!("{other}"),
        };
        if !same(expected, &got) {
            return Err(format!("{what}: expected {expected}, got {got}"));
        }
    }
    Ok(())
}

pub(super) fn counts(counts: &QuotaAmounts) -> Json {
    let cards: BTreeMap<&str, f64> = counts.cards().map(|(name, amount)| (&**name, amount as f64)).collect();
    json!({"cpu_milli": counts.cpu as f64, "memory_bytes": counts.memory as f64, "scalars": cards})
}

fn discovery(cluster_state: &ClusterState, state: &UpstreamCapacityState) -> Json {
    let cards = state.cards();
    let node = |(name, node): (&Arc<str>, &NodeCards)| {
        let own: BTreeMap<&str, Json> = node
            .cards
            .iter()
            .map(|(card, on_node)| {
                let resource = cluster_state.resources().name(on_node.resource);
                (&**card, json!({"count": on_node.cards, "resource": resource}))
            })
            .collect();
        let node = json!({
            "product": &*node.product, "count": node.count, "memory_mb": node.memory_mb, "prefix": &*node.prefix,
            "cards": own,
        });
        (name.to_string(), node)
    };
    let nodes: BTreeMap<String, Json> = cards.nodes().map(node).collect();
    let names = cards.nodes().flat_map(|(_, node)| node.cards.keys());
    let kinds: BTreeMap<&str, &str> = names
        .filter_map(|card| Some((&**card, &**cards.resource(card)?.1)))
        .collect();
    json!({"nodes": nodes, "card_to_resource": kinds, "total_resource": counts(cards.total())})
}

fn accounts(state: &UpstreamCapacityState) -> Json {
    let queues: BTreeMap<&str, Json> = (**state)
        .accounts()
        .map(|(name, account)| {
            let limits = &account.limits;
            let account = json!({
                "capability": counts(&limits.capability), "deserved": counts(&limits.deserved),
                "guarantee": counts(&limits.guarantee), "real_capability": counts(&limits.real_capability),
                "allocated": counts(&account.allocated), "request": counts(&account.request),
                "inqueue": counts(&account.inqueue), "elastic": counts(&account.elastic), "share": account.share(),
            });
            (&**name, account)
        })
        .collect();
    json!({
        "total_resource": counts(state.cards().total()), "total_guarantee": counts(state.total_guaranteed()),
        "queues": queues,
    })
}

fn compare_metrics(expected: &Json, cluster_state: &ClusterState, state: &UpstreamCapacityState) -> Result<(), String> {
    type Key = (String, String, String);
    let label = |labels: &Json, name: &str| labels[name].as_str().unwrap_or_default().to_owned();
    let expected: BTreeMap<Key, f64> = expected
        .as_array()
        .unwrap()
        .iter()
        .map(|series| {
            let labels = &series["labels"];
            let key = (
                series["name"].as_str().unwrap().to_owned(),
                label(labels, "queue_name"),
                label(labels, "resource"),
            );
            (key, series["value"].as_f64().unwrap())
        })
        .collect();
    // The gauges of cards are our own.
    let is_recorded = |gauge: &QueueGauge| !gauge.name.starts_with("volcano_queue_card_");
    let gauges = state.queue_gauges(cluster_state).into_iter();
    let got: BTreeMap<Key, f64> = gauges
        .filter(is_recorded)
        .map(|gauge| {
            let key = (
                gauge.name.to_owned(),
                gauge.queue.to_string(),
                gauge
                    .label
                    .map_or_else(String::new, |(_, resource)| resource.to_string()),
            );
            (key, gauge.value)
        })
        .collect();
    for key in expected.keys().chain(got.keys()) {
        let of = |series: &BTreeMap<Key, f64>| series.get(key).copied().unwrap_or(0.0);
        if !close(of(&expected), of(&got)) {
            return Err(format!("{key:?}: expected {}, got {}", of(&expected), of(&got)));
        }
    }
    Ok(())
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// True if two amounts are equal; a missing card counts as 0.
pub(crate) fn same(expected: &Json, got: &Json) -> bool {
    match (expected, got) {
        (Json::Object(a), Json::Object(b)) => a.keys().chain(b.keys()).all(|key| match (a.get(key), b.get(key)) {
            (Some(a), Some(b)) => same(a, b),
            (Some(one), None) | (None, Some(one)) => one.as_f64() == Some(0.0),
            (None, None) => true,
        }),
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Json::Number(a), Json::Number(b)) => close(a.as_f64().unwrap(), b.as_f64().unwrap()),
        _ => expected == got,
    }
}

/// Applies the event of a task that moves. The task keeps its status; `Deallocate` leaves its node.
pub(crate) fn move_task(
    state: &mut impl PluginState,
    cluster_state: &ClusterState,
    task: &TaskRecord,
    moved: TaskMove<'_>,
) -> Result<(), Problem> {
    let mut after = task.clone();
    if let TaskMove::Allocate(node) | TaskMove::Pipeline(node) = moved {
        after.node = node.into();
    }
    let transition = TaskTransition::new(task, &after, "");
    let event = match moved {
        TaskMove::Allocate(_) => PlacementEvent::Allocate(transition),
        TaskMove::Pipeline(_) => PlacementEvent::Pipeline(transition),
        TaskMove::Deallocate => PlacementEvent::Deallocate(transition),
    };
    state.apply(&PluginStateChange::Events(cluster_state, &[event]))?;
    Ok(())
}

/// How a task moves.
#[derive(Clone, Copy)]
pub(crate) enum TaskMove<'a> {
    Allocate(&'a str),
    Pipeline(&'a str),
    Deallocate,
}
