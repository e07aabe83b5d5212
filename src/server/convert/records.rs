//! Records as they arrive: nodes, queues, jobs and tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::server::pb;
use pumice_engine::model::resource_name::ResourceKind;
use pumice_engine::model::{
    ClassPriority, DisruptionBudget, ErrorCode, ExactQuantities, GangMember, GangMinimums, GroupSelector, JobRecord,
    NamespaceQuota, NamespaceRecord, NodeLoad, NodeRecord, PriorityClassRecord, QueueAffinity, QueueRecord,
    ResourceAmounts, ResourceId, ResourceNaming, SubGroupPolicy, TaskFields, TaskRecord, TaskStatus, UnevaluatedFields,
};

use super::amounts::MIN_RESOURCES;
use super::constraints::selector_parts;
use super::reader::WireReader;
use super::wire::Wire;

/// Most roles, group policies, scheduling gates or budgets of a record.
const MAX_GANG_ENTRIES: usize = 256;
/// Most names of unevaluated fields in a record.
const MAX_UNEVALUATED_FIELDS: usize = 32;

impl WireReader<'_> {
    /// Reads a node.
    pub(super) fn node(&mut self, node: pb::Node) -> NodeRecord {
        self.named_by = ResourceNaming::Offered;
        let pb::Node {
            name,
            uid,
            creation_time,
            labels,
            allocatable,
            oversubscription,
            ready,
            unschedulable,
            unattributed_used,
            unattributed_nonzero_used,
            unevaluated_fields,
            taints,
            images,
            devices,
            load,
            object: _,
        } = self.derived_node(node);
        NodeRecord {
            name: self.record_name(name),
            uid: self.name("uid", uid),
            creation_time: self.seconds("creation_time", creation_time),
            labels: self.node_labels(labels),
            allocatable: self.optional_amounts("allocatable", allocatable).unwrap_or_default(),
            oversubscription: self.optional_amounts("oversubscription", oversubscription),
            ready,
            unschedulable,
            unattributed_used: self.optional_amounts("unattributed_used", unattributed_used),
            unattributed_nonzero_used: self.cpu_and_memory("unattributed_nonzero_used", unattributed_nonzero_used),
            unevaluated_fields: self.unevaluated_fields(unevaluated_fields),
            properties: self.node_properties(taints, images, devices),
            load: load.map(|load| Arc::new(self.node_load(*load))),
        }
    }

    /// Reads the measured load of a node.
    fn node_load(&mut self, load: pb::NodeLoad) -> NodeLoad {
        let pb::NodeLoad {
            time,
            cpu_percent,
            memory_percent,
            capacity,
            period,
        } = load;
        for (field, percent) in [
            ("load.cpu_percent", cpu_percent),
            ("load.memory_percent", memory_percent),
        ] {
            if !percent.is_finite() {
                self.problem(
                    ErrorCode::QuantityInvalid,
                    field.to_owned(),
                    format!("{percent} is not a finite number"),
                );
            }
        }
        let capacity = self.cpu_and_memory("load.capacity", capacity);
        let capacity = |id| capacity.as_ref().map(|own| own.get(id).unwrap_or(0));
        NodeLoad {
            time: self.seconds("load.time", time),
            cpu_percent,
            memory_percent,
            cpu_capacity: capacity(ResourceId::CPU),
            memory_capacity: capacity(ResourceId::MEMORY),
            period: self.name("load.period", period),
        }
    }

    /// Reads a queue.
    pub(super) fn queue(&mut self, queue: pb::Queue) -> QueueRecord {
        self.named_by = ResourceNaming::Offered;
        let pb::Queue {
            name,
            uid,
            creation_time,
            annotations,
            weight,
            priority,
            state,
            parent,
            reclaimable,
            capability,
            deserved,
            guarantee,
            affinity,
            object: _,
        } = self.derived_queue(queue);
        QueueRecord {
            name: self.record_name(name),
            uid: self.name("uid", uid),
            creation_time: self.seconds("creation_time", creation_time),
            annotations: self.text_map("annotations", annotations, |declared| &declared.queue_annotations),
            weight,
            priority,
            state: self.model_value::<pb::QueueState, _>("state", state),
            parent: self.name("parent", parent),
            reclaimable,
            capability: self.capability(capability),
            deserved: self.signed_amounts("deserved", deserved),
            guarantee: self.signed_amounts("guarantee", guarantee),
            affinity: affinity.map(|own| Arc::new(queue_affinity(*own))),
        }
    }

    /// Reads a priority class.
    pub(super) fn priority_class(&mut self, class: pb::PriorityClass) -> PriorityClassRecord {
        let pb::PriorityClass {
            name,
            value,
            global_default,
            preemption_policy,
        } = class;
        let policy = self.enum_value("preemption_policy", preemption_policy);
        PriorityClassRecord {
            name: self.record_name(name),
            value,
            global_default,
            never_preempts: policy == Some(pb::PreemptionPolicy::Never),
        }
    }

    /// Reads a job.
    pub(super) fn job(&mut self, job: pb::Job) -> JobRecord {
        self.named_by = ResourceNaming::Asked;
        let pb::Job {
            name,
            uid,
            queue,
            creation_time,
            priority,
            phase,
            min_member,
            min_resources,
            annotations,
            min_task_member,
            sub_group_policies,
            object: _,
            priority_class_name,
        } = self.derived_job(job);
        let class = priority_class_name.map(|class| ClassPriority {
            class: self.name("priority_class_name", class),
            otherwise: priority,
        });
        let exact = min_resources.as_ref().map(|list| self.exact_minimum(list));
        let min_resources = self.signed_amounts(MIN_RESOURCES, min_resources);
        JobRecord {
            name: self.record_name(name),
            uid: self.name("uid", uid),
            queue: self.name("queue", queue),
            creation_time: self.seconds("creation_time", creation_time),
            priority,
            phase: self.model_value::<pb::JobPhase, _>("phase", phase),
            min_member,
            min_resources,
            annotations: self.text_map("annotations", annotations, |declared| &declared.job_annotations),
            gang: self.gang_minimums(min_task_member, sub_group_policies, class, exact.unwrap_or_default()),
        }
    }

    /// Reads a namespace.
    pub(super) fn namespace(&mut self, namespace: pb::Namespace) -> NamespaceRecord {
        let pb::Namespace {
            name,
            labels,
            disruption_budgets,
            resource_quotas,
        } = namespace;
        let few = self.is_short_list("disruption_budgets", disruption_budgets.len());
        let budgets = disruption_budgets.into_iter().filter(|_| few);
        let few_quotas = self.is_short_list("resource_quotas", resource_quotas.len());
        let quotas = resource_quotas.into_iter().filter(|_| few_quotas);
        NamespaceRecord {
            name: self.record_name(name),
            labels: self.text_map("labels", labels, |declared| &declared.namespace_labels),
            disruption_budgets: budgets.map(|budget| self.disruption_budget(budget)).collect(),
            resource_quotas: quotas.map(|quota| self.resource_quota(quota)).collect(),
        }
    }

    /// Reads a quota of a namespace.
    fn resource_quota(&mut self, quota: pb::ResourceQuota) -> NamespaceQuota {
        let pb::ResourceQuota { name, hard, used } = quota;
        NamespaceQuota {
            name: self.name("resource_quotas", name),
            hard: self.exact_amounts("resource_quotas.hard", hard.unwrap_or_default()),
            used: self.exact_amounts("resource_quotas.used", used.unwrap_or_default()),
        }
    }

    /// Reads a budget of a namespace.
    fn disruption_budget(&mut self, budget: pb::DisruptionBudget) -> DisruptionBudget {
        let pb::DisruptionBudget {
            name,
            selector,
            disruptions_allowed,
            disrupted_pods,
        } = budget;
        let parts = selector_parts(selector.as_ref()) + disrupted_pods.len();
        let few = self.check_count("disruption_budgets", parts);
        let names = disrupted_pods.into_iter().filter(|_| few);
        DisruptionBudget {
            name: self.name("disruption_budgets", name),
            selector: Option::read(selector.filter(|_| few)),
            disruptions_allowed,
            disrupted_pods: names.map(|name| self.name("disruption_budgets", name)).collect(),
        }
    }

    /// Reads a task of a batch, which needs a name.
    pub(super) fn stored_task(&mut self, task: pb::Task) -> TaskRecord {
        self.named_by = ResourceNaming::Asked;
        let task = self.derived_task(task);
        if task.name.is_empty() {
            self.record_name(String::new());
        }
        let task = self.task(task);
        if task.status == TaskStatus::Pending && !task.node.is_empty() {
            let message = format!("a pending task takes nothing of node `{}`", task.node);
            self.warning(ErrorCode::TaskPendingOnNode, "status".to_owned(), message);
        }
        task
    }

    /// Reads a task. Its requests include the pod itself.
    #[expect(clippy::too_many_lines, reason = "a line for each field of a task")]
    pub(super) fn task(&mut self, task: pb::Task) -> TaskRecord {
        let pb::Task {
            name,
            uid,
            job,
            priority,
            status,
            node,
            gated,
            nominated_node,
            annotations,
            requests,
            limits,
            nonzero_requests,
            counted_requests,
            creation_time,
            unevaluated_fields,
            labels,
            constraints,
            role,
            priority_class_name,
            scheduling_gates,
            sub_group,
            container_nonzero_requests,
            container_requests,
            kubernetes_requests,
            object: _,
            pod_rules: _,
            priority_from_class,
            preemption_policy: policy,
            owner_kind,
            scheduled_time,
            start_time,
            role_from_label,
            qos_class,
            without_priority,
        } = self.derived_task(task);
        let (requests, kubernetes_requests) = without_quota_counts(requests, kubernetes_requests);
        let requests = self.optional_amounts("requests", requests).unwrap_or_default();
        let counted = self.optional_amounts("counted_requests", counted_requests);
        let [container_nonzero_requests, container_requests] =
            self.of_containers(container_nonzero_requests, container_requests);
        let kubernetes = self.optional_amounts("kubernetes_requests", kubernetes_requests.map(|own| *own));
        let names = [role, sub_group, priority_class_name, owner_kind];
        let gang = self.gang_member(names, scheduling_gates, priority_from_class.then_some(priority), policy);
        let gang = GangMember {
            scheduled_time: self.seconds("scheduled_time", scheduled_time.map(|time| *time)),
            start_time: self.seconds("start_time", start_time.map(|time| *time)),
            role_from_label,
            qos_class: self.model_value::<pb::QosClass, _>("qos_class", qos_class),
            without_priority,
            ..gang
        };
        TaskRecord::from(TaskFields {
            name: self.name("name", name),
            uid: self.name("uid", uid).into(),
            job: self.name("job", job),
            priority,
            status: self.model_value::<pb::TaskStatus, _>("status", status),
            node: self.name("node", node),
            gated: gated || !gang.scheduling_gates.is_empty(),
            nominated_node: self.name("nominated_node", nominated_node),
            annotations: self.text_map("annotations", annotations, |declared| &declared.task_annotations),
            requests: self.with_pod(requests),
            limits: self.optional_amounts("limits", limits).map(Box::new),
            nonzero_requests: self.cpu_and_memory("nonzero_requests", nonzero_requests).map(Box::new),
            counted_requests: counted.map(Box::new),
            container_nonzero_requests,
            container_requests,
            kubernetes_requests: kubernetes.map(Box::new),
            card: Arc::default(),
            unevaluated_fields: self.unevaluated_fields(unevaluated_fields),
            gang: gang.into_field(),
            creation_time: self.seconds("creation_time", creation_time),
            constraints: self.pod_constraints(constraints),
            labels: self.task_labels(labels),
        })
    }

    /// Reads the amounts of the containers alone: non-zero requests, and requests.
    fn of_containers(
        &mut self,
        nonzero: Option<Box<pb::ResourceList>>,
        requests: Option<Box<pb::ResourceList>>,
    ) -> [Option<Box<ResourceAmounts>>; 2] {
        let both = [
            ("container_nonzero_requests", nonzero),
            ("container_requests", requests),
        ];
        both.map(|(field, list)| self.cpu_and_memory(field, list.map(|own| *own)).map(Box::new))
    }

    /// Reads what a task is within its gang.
    fn gang_member(
        &mut self,
        [role, sub_group, priority_class, owner_kind]: [String; 4],
        gates: Vec<String>,
        priority_from_class: Option<i32>,
        policy: i32,
    ) -> GangMember {
        GangMember {
            role: self.name("role", role),
            sub_group: self.name("sub_group", sub_group),
            priority_class: self.name("priority_class_name", priority_class),
            scheduling_gates: self.names("scheduling_gates", gates),
            priority_from_class,
            preemption_policy: self.model_value::<pb::PreemptionPolicy, _>("preemption_policy", policy),
            owner_kind: self.name("owner_kind", owner_kind),
            ..GangMember::default()
        }
    }

    /// Reads a list of names.
    fn names(&mut self, field: &'static str, names: Vec<String>) -> Vec<Arc<str>> {
        let few = self.is_short_list(field, names.len());
        let names = names.into_iter().filter(|_| few);
        names.map(|name| self.name(field, name)).collect()
    }

    /// True if a list of a gang is not too long; else that is a problem.
    fn is_short_list(&mut self, field: &str, len: usize) -> bool {
        let few = len <= MAX_GANG_ENTRIES;
        if !few {
            let message = format!("{len} entries; at most {MAX_GANG_ENTRIES} are allowed");
            self.problem(ErrorCode::LimitExceeded, field.to_owned(), message);
        }
        few
    }

    /// Reads the minimums of a job beside the number of its tasks.
    fn gang_minimums(
        &mut self,
        roles: BTreeMap<String, i32>,
        policies: Vec<pb::SubGroupPolicy>,
        priority_class: Option<ClassPriority>,
        exact_minimum: ExactQuantities,
    ) -> Option<Arc<GangMinimums>> {
        if !self.is_short_list("min_task_member", roles.len())
            || !self.is_short_list("sub_group_policies", policies.len())
        {
            return None;
        }
        let roles = roles
            .into_iter()
            .map(|(role, least)| (self.name("min_task_member", role), least));
        let min_task_member = roles.collect();
        let policies = policies.into_iter().map(|policy| SubGroupPolicy {
            name: self.name("sub_group_policies", policy.name),
            size: policy.size,
            min_groups: policy.min_groups,
            selector: self.group_selector(policy.label_selector, policy.match_label_keys),
        });
        let gang = GangMinimums {
            min_task_member,
            sub_groups: policies.collect(),
            priority_class,
            exact_minimum,
        };
        gang.into_field()
    }

    /// Reads the selector of a sub-group policy. `None`: the policy does not define groups.
    fn group_selector(&mut self, selector: Option<pb::LabelSelector>, keys: Vec<String>) -> Option<Arc<GroupSelector>> {
        let pb::LabelSelector {
            match_labels,
            match_expressions,
        } = selector.unwrap_or_default();
        let values = match_expressions.iter().map(|expression| expression.values.len());
        let entries = keys.len() + match_labels.len() + match_expressions.len() + values.sum::<usize>();
        if !self.is_short_list("sub_group_policies", entries) {
            return None;
        }
        let mut text = |text: String| self.name("sub_group_policies", text);
        let mut selector = GroupSelector::new(keys.into_iter().map(&mut text).collect())?;
        for (key, value) in match_labels {
            selector.require(text(key), "In".into(), vec![text(value)]);
        }
        for expression in match_expressions {
            let values = expression.values.into_iter().map(&mut text).collect();
            selector.require(text(expression.key), text(expression.operator), values);
        }
        Some(Arc::new(selector))
    }

    /// Reads the names of fields that the record does not carry.
    fn unevaluated_fields(&mut self, names: Vec<String>) -> UnevaluatedFields {
        if names.len() > MAX_UNEVALUATED_FIELDS {
            let message = format!("{} names; at most {MAX_UNEVALUATED_FIELDS} are allowed", names.len());
            self.problem(ErrorCode::LimitExceeded, "unevaluated_fields".to_owned(), message);
            return UnevaluatedFields::default();
        }
        let names = names.into_iter().map(|name| self.name("unevaluated_fields", name));
        names.collect()
    }

    /// Adds the pod itself to the requests.
    fn with_pod(&mut self, mut requests: ResourceAmounts) -> ResourceAmounts {
        let pods = requests.get(ResourceId::PODS).unwrap_or(0);
        match pods.checked_add(1) {
            Some(pods) => requests.set(ResourceId::PODS, pods),
            None => self.problem(
                ErrorCode::QuantityTooLarge,
                "requests.items[pods]".to_owned(),
                "the amount is too large to add the pod itself".to_owned(),
            ),
        }
        requests
    }
}

/// Requests of a task without what Volcano counts as no resource (`count/pods`), and the requests as kube-scheduler counts
/// them, which keep it.
fn without_quota_counts(
    requests: Option<pb::ResourceList>,
    kubernetes_requests: Option<Box<pb::ResourceList>>,
) -> (Option<pb::ResourceList>, Option<Box<pb::ResourceList>>) {
    let counts = |name: &str| !name.starts_with("count/") || ResourceKind::of(name) != ResourceKind::CountQuota;
    match requests {
        Some(all) if !all.items.keys().all(|name| counts(name)) => {
            let mut own = all.clone();
            own.items.retain(|name, _| counts(name));
            (Some(own), kubernetes_requests.or_else(|| Some(Box::new(all))))
        }
        requests => (requests, kubernetes_requests),
    }
}

/// Affinity of a queue. A missing side lists nothing.
fn queue_affinity(affinity: pb::QueueAffinity) -> QueueAffinity {
    let pb::QueueAffinity {
        node_group_affinity,
        node_group_anti_affinity,
    } = affinity;
    QueueAffinity {
        affinity: Wire::read(node_group_affinity.unwrap_or_default()),
        anti_affinity: Wire::read(node_group_anti_affinity.unwrap_or_default()),
    }
}
