//! Clusters, tasks and documents of the wire for the engine itself, by its public functions alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::constraints;
use pumice::server::pb;
use pumice_engine::decide::{FilterDetail, NodeQuery, QueryTask, ResourceFit, ScoreQuery};
use pumice_engine::model::quantity::Quantity;
use pumice_engine::model::resource_name::{ResourceKind, signed_amount};
use pumice_engine::model::{
    ClusterState, GangMember, GangMinimums, JobPhase, JobRecord, NodeLoad, NodeRecord, NodeSlot, QosClass, QueueRecord,
    QueueState, ResourceAmounts, ResourceId, ResourceTable, SortedTable, SubGroupPolicy, TaskFields, TaskRecord,
    TaskStatus, TextMap,
};

/// Amounts of a list, without names that schedulers do not count.
fn amounts(table: &mut ResourceTable, list: Option<&pb::ResourceList>) -> ResourceAmounts {
    let items = list.into_iter().flat_map(|list| &list.items);
    items
        .filter(|(name, _)| ResourceKind::of(name).counted_by_volcano())
        .map(|(name, quantity)| {
            let quantity = Quantity::parse(quantity).unwrap();
            (
                table.intern(name, usize::MAX).unwrap(),
                signed_amount(name, &quantity).unwrap(),
            )
        })
        .collect()
}

/// Status in the engine's terms.
fn status(task: &pb::Task) -> TaskStatus {
    match task.status() {
        pb::TaskStatus::Unspecified | pb::TaskStatus::Pending => TaskStatus::Pending,
        pb::TaskStatus::Allocated => TaskStatus::Allocated,
        pb::TaskStatus::Pipelined => TaskStatus::Pipelined,
        pb::TaskStatus::Binding => TaskStatus::Binding,
        pb::TaskStatus::Bound => TaskStatus::Bound,
        pb::TaskStatus::Running => TaskStatus::Running,
        pb::TaskStatus::Releasing => TaskStatus::Releasing,
        pb::TaskStatus::Succeeded => TaskStatus::Succeeded,
        pb::TaskStatus::Failed => TaskStatus::Failed,
        pb::TaskStatus::Unknown => TaskStatus::Unknown,
    }
}

/// State of a queue in the engine's terms.
fn queue_state(queue: &pb::Queue) -> QueueState {
    match queue.state() {
        pb::QueueState::Unspecified => QueueState::Unspecified,
        pb::QueueState::Open => QueueState::Open,
        pb::QueueState::Closed => QueueState::Closed,
        pb::QueueState::Closing => QueueState::Closing,
        pb::QueueState::Unknown => QueueState::Unknown,
    }
}

/// Record of a queue.
fn queue_record(table: &mut ResourceTable, queue: &pb::Queue) -> QueueRecord {
    let mut list = |list: &Option<pb::ResourceList>| list.as_ref().map(|list| amounts(table, Some(list)));
    QueueRecord {
        name: Arc::from(&*queue.name),
        annotations: texts(&queue.annotations),
        creation_time: queue.creation_time.map(|time| time.seconds),
        weight: queue.weight,
        priority: queue.priority,
        state: queue_state(queue),
        parent: Arc::from(&*queue.parent),
        reclaimable: queue.reclaimable,
        capability: list(&queue.capability),
        deserved: list(&queue.deserved),
        guarantee: list(&queue.guarantee),
        affinity: queue
            .affinity
            .as_deref()
            .map(|own| Arc::new(constraints::queue_affinity(own))),
        ..QueueRecord::default()
    }
}

/// Phase of a job in the engine's terms.
fn phase(job: &pb::Job) -> JobPhase {
    match job.phase() {
        pb::JobPhase::Unspecified => JobPhase::Unspecified,
        pb::JobPhase::Pending => JobPhase::Pending,
        pb::JobPhase::Inqueue => JobPhase::Inqueue,
        pb::JobPhase::Running => JobPhase::Running,
        pb::JobPhase::Unknown => JobPhase::Unknown,
        pb::JobPhase::Completed => JobPhase::Completed,
    }
}

/// Cluster state of a cluster, every record valid.
pub fn cluster_state(cluster: &pb::Cluster) -> ClusterState {
    let (mut table, source): (_, Arc<str>) = (ResourceTable::default(), Arc::from("test"));
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for (slot, node) in (0..).zip(&cluster.nodes) {
        index.insert(Arc::from(&*node.name), slot);
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 1);
    let nodes: Vec<NodeRecord> = cluster
        .nodes
        .iter()
        .map(|node| NodeRecord {
            name: Arc::from(&*node.name),
            labels: texts(&node.labels),
            ready: node.ready,
            unschedulable: node.unschedulable,
            properties: constraints::properties(node),
            allocatable: amounts(&mut table, node.allocatable.as_ref()),
            load: node.load.as_deref().map(|load| Arc::new(node_load(&mut table, load))),
            unattributed_used: node
                .unattributed_used
                .as_ref()
                .map(|list| amounts(&mut table, Some(list))),
            ..NodeRecord::default()
        })
        .collect();
    let tasks: Vec<TaskRecord> = cluster.tasks.iter().map(|task| self::task(&mut table, task)).collect();
    let queues: Vec<QueueRecord> = cluster
        .queues
        .iter()
        .map(|queue| queue_record(&mut table, queue))
        .collect();
    let mut list = |list: &Option<pb::ResourceList>| list.as_ref().map(|list| amounts(&mut table, Some(list)));
    let min_resources: Vec<Option<ResourceAmounts>> = cluster.jobs.iter().map(|job| list(&job.min_resources)).collect();
    cluster_state.set_resources(Arc::new(table));
    for node in nodes {
        cluster_state.put_node(Arc::new(node), &source);
    }
    cluster_state.refresh_ranks();
    for queue in queues {
        cluster_state.put_queue(queue, &source);
    }
    for (job, min_resources) in cluster.jobs.iter().zip(min_resources) {
        cluster_state.put_job(job_record(job, min_resources), &source);
    }
    for task in tasks {
        cluster_state.put_task(task, &source);
    }
    cluster_state
}

/// Record of a job.
fn job_record(job: &pb::Job, min_resources: Option<ResourceAmounts>) -> JobRecord {
    JobRecord {
        name: Arc::from(&*job.name),
        queue: Arc::from(&*job.queue),
        creation_time: job.creation_time.map(|time| time.seconds),
        priority: job.priority,
        phase: phase(job),
        min_member: job.min_member,
        min_resources,
        gang: gang_minimums(job).into_field(),
        annotations: texts(&job.annotations),
        ..JobRecord::default()
    }
}

/// Names and texts in the engine's form.
fn texts(map: &BTreeMap<String, String>) -> TextMap {
    map.iter()
        .map(|(name, text)| (Arc::from(name.as_str()), Arc::from(text.as_str())))
        .collect()
}

/// Record of a task, its pod counted.
pub fn task(table: &mut ResourceTable, task: &pb::Task) -> TaskRecord {
    let mut requests = amounts(table, task.requests.as_ref());
    requests.set(ResourceId::PODS, 1 + requests.get(ResourceId::PODS).unwrap_or(0));
    let mut list = |list: Option<&pb::ResourceList>| list.map(|list| Box::new(amounts(table, Some(list))));
    TaskRecord::from(TaskFields {
        nonzero_requests: list(task.nonzero_requests.as_ref()),
        container_nonzero_requests: list(task.container_nonzero_requests.as_deref()),
        container_requests: list(task.container_requests.as_deref()),
        kubernetes_requests: list(task.kubernetes_requests.as_deref()),
        name: Arc::from(&*task.name),
        job: Arc::from(&*task.job),
        status: status(task),
        node: Arc::from(&*task.node),
        constraints: constraints::constraints(task),
        labels: texts(&task.labels),
        priority: task.priority,
        gated: task.gated,
        creation_time: task.creation_time.map(|time| time.seconds),
        annotations: texts(&task.annotations),
        requests,
        gang: gang_member(task).into_field(),
        nominated_node: Arc::from(&*task.nominated_node),
        ..TaskFields::default()
    })
}

/// Measured load of a node.
fn node_load(table: &mut ResourceTable, load: &pb::NodeLoad) -> NodeLoad {
    let capacity = load.capacity.as_ref().map(|list| amounts(table, Some(list)));
    let capacity = |id| capacity.as_ref().map(|own| own.get(id).unwrap_or(0));
    NodeLoad {
        time: load.time.as_ref().map(|time| time.seconds),
        cpu_percent: load.cpu_percent,
        memory_percent: load.memory_percent,
        cpu_capacity: capacity(ResourceId::CPU),
        memory_capacity: capacity(ResourceId::MEMORY),
        period: Arc::from(&*load.period),
    }
}

/// Place of a task in its gang.
fn gang_member(task: &pb::Task) -> GangMember {
    GangMember {
        role: Arc::from(&*task.role),
        sub_group: Arc::from(&*task.sub_group),
        priority_class: Arc::from(&*task.priority_class_name),
        scheduling_gates: task.scheduling_gates.iter().map(|gate| Arc::from(&**gate)).collect(),
        owner_kind: Arc::from(&*task.owner_kind),
        role_from_label: task.role_from_label,
        without_priority: task.without_priority,
        qos_class: match task.qos_class() {
            pb::QosClass::BestEffort => QosClass::BestEffort,
            pb::QosClass::Guaranteed => QosClass::Guaranteed,
            pb::QosClass::Burstable | pb::QosClass::Unspecified => QosClass::Burstable,
        },
        start_time: task.start_time.as_ref().map(|time| time.seconds),
        scheduled_time: task.scheduled_time.as_ref().map(|time| time.seconds),
        ..GangMember::default()
    }
}

/// Minimums of a gang.
fn gang_minimums(job: &pb::Job) -> GangMinimums {
    let sub_group = |policy: &pb::SubGroupPolicy| SubGroupPolicy {
        name: Arc::from(&*policy.name),
        size: policy.size,
        min_groups: policy.min_groups,
        selector: None,
    };
    let roles = job.min_task_member.iter();
    GangMinimums {
        min_task_member: roles.map(|(role, least)| (Arc::from(&**role), *least)).collect(),
        sub_groups: job.sub_group_policies.iter().map(sub_group).collect(),
        ..GangMinimums::default()
    }
}

/// Query of Score for one task, with its filter and parts.
pub fn score_query(cluster_state: &ClusterState, task: &pb::Task) -> ScoreQuery {
    let mut table = (**cluster_state.resources()).clone();
    let task = QueryTask {
        task: Arc::new(self::task(&mut table, task)),
        warnings: Vec::new(),
    };
    let query = NodeQuery {
        now: None,
        tasks: vec![Ok(task)],
        resources: Arc::new(table),
        candidates: None,
        plugins: Vec::new(),
        resource_fit: ResourceFit::default(),
        samples: 3,
        detail: FilterDetail::Nodes,
    };
    ScoreQuery {
        node_query: query,
        with_filter: true,
        limit: None,
        with_parts: true,
        ahead: 0,
    }
}
