//! Records as listings show them, page by page, with their accounts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::server::evaluation::EvaluationContext;
use crate::server::pb;
use pumice_engine::model::resource_name::format_amount;
use pumice_engine::model::{
    DisruptionBudget, GroupSelector, JobRecord, NamespaceQuota, NamespaceRecord, NodeEntry, NodeGroupLists, NodeLoad,
    NodeRecord, NodeSlot, NodeVector, QueueAffinity, QueueRecord, RecordProblems, ResourceAmounts, ResourceId,
    ResourceTable, SortedTable, StoredRecord, SubGroupPolicy, TaskRecord,
};

use super::accounts::{self, NamedAccounts};
use super::amounts::{exact_list, resource_list, result_amounts, result_totals};
use super::batch::{problem, problems};
use super::constraints::{constraint_messages, taint_messages};
use super::wire::Wire;

/// Number of records on a page if the request gives none.
pub(crate) const DEFAULT_PAGE_SIZE: u32 = 500;

/// Requested names of a listing, and the place to continue at.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    names: BTreeSet<String>,
    /// Name after which the page begins.
    pub(crate) after: String,
    size: usize,
}

impl PageRequest {
    /// Reads the names and the page of a listing.
    pub(crate) fn read(names: Vec<String>, page: Option<pb::Page>, most: usize) -> Self {
        let pb::Page { size, token } = page.unwrap_or_default();
        Self {
            names: names.into_iter().collect(),
            after: token,
            size: page_size(size, most),
        }
    }

    /// Cuts a page out of rows that are sorted by name. Also returns the token of the next page.
    pub(crate) fn cut_page<'a, T>(&self, sorted: impl Iterator<Item = (&'a str, T)>) -> (Vec<T>, String) {
        let mut token = String::new();
        let mut page = Vec::new();
        let mut last = "";
        for (name, record) in sorted {
            if page.len() == self.size {
                last.clone_into(&mut token);
                break;
            }
            last = name;
            page.push(record);
        }
        (page, token)
    }

    /// Page of a table.
    fn rows<'a, R>(&'a self, table: &'a SortedTable<Arc<StoredRecord<R>>>) -> (Vec<&'a Arc<StoredRecord<R>>>, String) {
        if self.names.is_empty() {
            return self.cut_page(table.iter_after(&self.after).map(|(name, row)| (&**name, row)));
        }
        let named = self.names.iter().filter(|name| **name > self.after);
        self.cut_page(named.filter_map(|name| Some((name.as_str(), table.get(name)?))))
    }
}

/// Size of a page, at most `most`.
pub(crate) fn page_size(size: u32, most: usize) -> usize {
    let size = if size == 0 { DEFAULT_PAGE_SIZE } else { size };
    (size as usize).min(most)
}

/// Page of nodes.
pub(crate) fn nodes(context: &EvaluationContext, wanted: &PageRequest) -> (Vec<pb::NodeStatus>, String) {
    let (cluster_state, derived) = (context.cluster_state(), context.plugin_states());
    let by_plugin = derived.accounts();
    let status =
        |(slot, entry): (NodeSlot, &Arc<NodeEntry>)| node_status(slot, entry, cluster_state.resources(), &by_plugin);
    if wanted.names.is_empty() {
        let by_name: BTreeMap<&str, (NodeSlot, &Arc<NodeEntry>)> = cluster_state
            .nodes()
            .map(|(slot, entry)| (&*entry.record.name, (slot, entry)))
            .filter(|(name, _)| **name > *wanted.after || wanted.after.is_empty())
            .collect();
        let (page, token) = wanted.cut_page(by_name.into_iter());
        return (page.into_iter().map(status).collect(), token);
    }
    let named = wanted.names.iter().filter(|name| **name > wanted.after);
    let (page, token) = wanted.cut_page(named.filter_map(|name| {
        let slot = cluster_state.slot_of(name)?;
        Some((name.as_str(), (slot, cluster_state.node(slot)?)))
    }));
    (page.into_iter().map(status).collect(), token)
}

/// Page of queues.
pub(crate) fn queues(context: &EvaluationContext, wanted: &PageRequest) -> (Vec<pb::QueueStatus>, String) {
    let (cluster_state, derived) = (context.cluster_state(), context.plugin_states());
    let by_plugin = derived.accounts();
    let (page, token) = wanted.rows(cluster_state.queues());
    let status = |stored: &Arc<StoredRecord<QueueRecord>>| pb::QueueStatus {
        queue: Some(queue(&stored.record, cluster_state.resources())),
        source: stored.source.to_string(),
        accounts: accounts::queue_accounts(&stored.record.name, &by_plugin),
        invalid: queue_problems(stored, &by_plugin),
    };
    (page.into_iter().map(status).collect(), token)
}

/// Page of jobs.
pub(crate) fn jobs(context: &EvaluationContext, wanted: &PageRequest) -> (Vec<pb::JobStatus>, String) {
    let (cluster_state, derived) = (context.cluster_state(), context.plugin_states());
    let by_plugin = derived.accounts();
    let (page, token) = wanted.rows(cluster_state.jobs());
    let allocated = |name: &str| {
        let totals = cluster_state.job_allocated(name);
        totals.map(|totals| result_totals(totals, cluster_state.resources()))
    };
    let status = |stored: &Arc<StoredRecord<JobRecord>>| pb::JobStatus {
        job: Some(job(&stored.record, cluster_state.resources())),
        source: stored.source.to_string(),
        accounts: accounts::job_accounts(cluster_state, &stored.record, &by_plugin),
        invalid: record_problems(stored.invalid()),
        allocated: allocated(&stored.record.name).unwrap_or_default(),
    };
    (page.into_iter().map(status).collect(), token)
}

/// Page of tasks.
pub(crate) fn tasks(context: &EvaluationContext, wanted: &PageRequest) -> (Vec<pb::StoredTask>, String) {
    let cluster_state = context.cluster_state();
    let (page, token) = wanted.rows(cluster_state.tasks());
    let status = |stored: &Arc<StoredRecord<TaskRecord>>| pb::StoredTask {
        task: Some(task(&stored.record, cluster_state.resources())),
        source: stored.source.to_string(),
        assumed: cluster_state.is_assumed(&stored.record.name),
        card: stored.record.card.to_string(),
        invalid: record_problems(stored.invalid()),
    };
    (page.into_iter().map(status).collect(), token)
}

/// Page of namespaces.
pub(crate) fn namespaces(context: &EvaluationContext, wanted: &PageRequest) -> (Vec<pb::NamespaceStatus>, String) {
    let cluster_state = context.cluster_state();
    let (page, token) = wanted.rows(cluster_state.namespaces());
    let status = |stored: &Arc<StoredRecord<NamespaceRecord>>| pb::NamespaceStatus {
        namespace: Some(pb::Namespace {
            name: stored.record.name.to_string(),
            labels: stored.record.labels.write(),
            disruption_budgets: stored.record.disruption_budgets.iter().map(disruption_budget).collect(),
            resource_quotas: stored.record.resource_quotas.iter().map(resource_quota).collect(),
        }),
        source: stored.source.to_string(),
        invalid: record_problems(stored.invalid()),
    };
    (page.into_iter().map(status).collect(), token)
}

fn disruption_budget(budget: &DisruptionBudget) -> pb::DisruptionBudget {
    pb::DisruptionBudget {
        name: budget.name.to_string(),
        selector: budget.selector.write(),
        disruptions_allowed: budget.disruptions_allowed,
        disrupted_pods: budget.disrupted_pods.iter().map(ToString::to_string).collect(),
    }
}

fn resource_quota(quota: &NamespaceQuota) -> pb::ResourceQuota {
    pb::ResourceQuota {
        name: quota.name.to_string(),
        hard: Some(exact_list(&quota.hard)),
        used: Some(exact_list(&quota.used)),
    }
}

/// Problems of a newer, rejected record, and problems that exclude the queue from a plugin's accounts.
fn queue_problems(stored: &StoredRecord<QueueRecord>, by_plugin: &NamedAccounts<'_>) -> Vec<pb::Problem> {
    let found = by_plugin
        .iter()
        .filter_map(|(_, accounts)| accounts.queue_problem(&stored.record.name));
    let mut all = record_problems(stored.invalid());
    all.extend(found.map(problem));
    all
}

fn record_problems(invalid: Option<&RecordProblems>) -> Vec<pb::Problem> {
    invalid.map(|found| problems(found.iter())).unwrap_or_default()
}

fn node_status(
    slot: NodeSlot,
    entry: &NodeEntry,
    resources: &ResourceTable,
    by_plugin: &NamedAccounts<'_>,
) -> pb::NodeStatus {
    let ids: BTreeSet<ResourceId> = entry.resources().collect();
    let vector = |vector: NodeVector| {
        let amounts = ids.iter().filter_map(|id| Some((*id, entry.exact(*id, vector)?)));
        result_amounts(amounts, resources)
    };
    pb::NodeStatus {
        node: Some(node(&entry.record, resources)),
        source: entry.source.to_string(),
        used: vector(NodeVector::Used),
        releasing: vector(NodeVector::Releasing),
        pipelined: vector(NodeVector::Pipelined),
        cards: accounts::node_cards(&entry.record.name, resources, by_plugin),
        invalid: record_problems(entry.invalid.as_ref()),
        slot,
    }
}

/// Time in whole seconds as the wire has it.
pub(crate) fn timestamp(seconds: Option<i64>) -> Option<prost_types::Timestamp> {
    seconds.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 })
}

fn node(record: &NodeRecord, resources: &ResourceTable) -> pb::Node {
    let optional =
        |amounts: &Option<ResourceAmounts>| amounts.as_ref().map(|amounts| resource_list(amounts, resources));
    let properties = record.properties.as_deref();
    pb::Node {
        object: Vec::new(),
        name: record.name.to_string(),
        uid: record.uid.to_string(),
        creation_time: timestamp(record.creation_time),
        labels: record.labels.write(),
        allocatable: Some(resource_list(&record.allocatable, resources)),
        oversubscription: optional(&record.oversubscription),
        ready: record.ready,
        unschedulable: record.unschedulable,
        unattributed_used: optional(&record.unattributed_used),
        unattributed_nonzero_used: optional(&record.unattributed_nonzero_used),
        unevaluated_fields: record.unevaluated_fields.iter().map(ToString::to_string).collect(),
        taints: properties.map_or_else(Vec::new, taint_messages),
        images: properties.map_or_else(Vec::new, |own| own.images.write()),
        devices: properties.and_then(|own| own.devices.write()),
        load: record.load.as_deref().map(|load| Box::new(node_load(load))),
    }
}

fn node_load(load: &NodeLoad) -> pb::NodeLoad {
    let amount = |name: &str, amount: Option<i64>| Some((name.to_owned(), format_amount(name, amount?.into())));
    let capacity = [amount("cpu", load.cpu_capacity), amount("memory", load.memory_capacity)];
    let items: BTreeMap<String, String> = capacity.into_iter().flatten().collect();
    pb::NodeLoad {
        time: timestamp(load.time),
        cpu_percent: load.cpu_percent,
        memory_percent: load.memory_percent,
        capacity: (!items.is_empty()).then_some(pb::ResourceList { items }),
        period: load.period.to_string(),
    }
}

fn queue(record: &QueueRecord, resources: &ResourceTable) -> pb::Queue {
    let optional =
        |amounts: &Option<ResourceAmounts>| amounts.as_ref().map(|amounts| resource_list(amounts, resources));
    pb::Queue {
        object: Vec::new(),
        name: record.name.to_string(),
        uid: record.uid.to_string(),
        creation_time: timestamp(record.creation_time),
        annotations: record.annotations.write(),
        weight: record.weight,
        priority: record.priority,
        state: record.state.write().into(),
        parent: record.parent.to_string(),
        reclaimable: record.reclaimable,
        capability: optional(&record.capability),
        deserved: optional(&record.deserved),
        guarantee: optional(&record.guarantee),
        affinity: record.affinity.as_deref().map(|own| Box::new(queue_affinity(own))),
    }
}

fn queue_affinity(affinity: &QueueAffinity) -> pb::QueueAffinity {
    let lists = |lists: &NodeGroupLists| (!lists.is_empty()).then(|| lists.write());
    pb::QueueAffinity {
        node_group_affinity: lists(&affinity.affinity),
        node_group_anti_affinity: lists(&affinity.anti_affinity),
    }
}

fn job(record: &JobRecord, resources: &ResourceTable) -> pb::Job {
    let minimums = record.gang.as_deref().cloned().unwrap_or_default();
    let roles = minimums.min_task_member.iter();
    let policies = minimums.sub_groups.iter().map(sub_group_policy);
    pb::Job {
        name: record.name.to_string(),
        uid: record.uid.to_string(),
        queue: record.queue.to_string(),
        creation_time: timestamp(record.creation_time),
        priority: record.priority,
        phase: record.phase.write().into(),
        min_member: record.min_member,
        min_resources: record.min_resources.as_ref().map(|amounts| {
            let mut list = resource_list(amounts, resources);
            list.items.extend(exact_list(&minimums.exact_minimum).items);
            list
        }),
        annotations: record.annotations.write(),
        min_task_member: roles.map(|(role, least)| (role.to_string(), *least)).collect(),
        sub_group_policies: policies.collect(),
        object: Vec::new(),
        priority_class_name: minimums.priority_class.as_ref().map(|own| own.class.to_string()),
    }
}

fn sub_group_policy(policy: &SubGroupPolicy) -> pb::SubGroupPolicy {
    let texts = |list: &[Arc<str>]| list.iter().map(ToString::to_string).collect();
    let requirement = |(key, operator, values): (&str, &str, &[Arc<str>])| pb::SelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: texts(values),
    };
    let selector = policy.selector.as_deref();
    let demands: Vec<_> = selector
        .into_iter()
        .flat_map(GroupSelector::demands)
        .map(requirement)
        .collect();
    pb::SubGroupPolicy {
        name: policy.name.to_string(),
        size: policy.size,
        min_groups: policy.min_groups,
        label_selector: (!demands.is_empty()).then(|| pb::LabelSelector {
            match_labels: BTreeMap::new(),
            match_expressions: demands,
        }),
        match_label_keys: selector.map(|own| texts(own.match_label_keys())).unwrap_or_default(),
    }
}

fn task(record: &TaskRecord, resources: &ResourceTable) -> pb::Task {
    let shape = &*record.shape;
    let optional =
        |amounts: &Option<Box<ResourceAmounts>>| amounts.as_ref().map(|amounts| resource_list(amounts, resources));
    pb::Task {
        labels: record.labels.write(),
        constraints: shape
            .constraints
            .as_deref()
            .map(|own| Box::new(constraint_messages(own))),
        name: record.name.to_string(),
        uid: record.uid.to_string(),
        job: record.job.to_string(),
        priority: shape.priority,
        status: record.status.write().into(),
        node: record.node.to_string(),
        gated: shape.gated,
        nominated_node: shape.nominated_node.to_string(),
        annotations: shape.annotations.write(),
        requests: Some(resource_list(&without_pod(&shape.requests), resources)),
        limits: optional(&shape.limits),
        nonzero_requests: optional(&shape.nonzero_requests),
        counted_requests: optional(&shape.counted_requests),
        container_nonzero_requests: optional(&shape.container_nonzero_requests).map(Box::new),
        container_requests: optional(&shape.container_requests).map(Box::new),
        kubernetes_requests: optional(&shape.kubernetes_requests).map(Box::new),
        creation_time: timestamp(record.creation_time.seconds()),
        unevaluated_fields: shape.unevaluated_fields.iter().map(ToString::to_string).collect(),
        role: shape.role().to_owned(),
        priority_class_name: shape.priority_class().to_owned(),
        scheduling_gates: shape.scheduling_gates().iter().map(ToString::to_string).collect(),
        sub_group: shape.sub_group().to_owned(),
        object: Vec::new(),
        pod_rules: pb::PodRules::Unspecified.into(),
        priority_from_class: shape.class_of_priority().is_some(),
        preemption_policy: shape.preemption_policy().write().into(),
        owner_kind: shape.owner_kind().to_owned(),
        scheduled_time: timestamp(shape.scheduled_time()).map(Box::new),
        start_time: timestamp(shape.start_time()).map(Box::new),
        role_from_label: shape.has_role_from_label(),
        qos_class: shape.qos_class().write().into(),
        without_priority: shape.is_without_priority(),
    }
}

/// Requests as they were sent, without the engine's own `pods: 1`.
fn without_pod(requests: &ResourceAmounts) -> ResourceAmounts {
    let sent = requests.iter().map(|(id, amount)| {
        let own = i64::from(id == ResourceId::PODS);
        (id, amount - own)
    });
    sent.filter(|(id, amount)| *id != ResourceId::PODS || *amount > 0)
        .collect()
}
