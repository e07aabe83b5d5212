//! Fields of jobs and tasks about gangs: roles, groups and minimums. Most records have none, and take one word for them.

use std::sync::Arc;

use super::exact_quantities::ExactQuantities;
use super::group_selector::GroupSelector;
use crate::held_bytes::held_bytes;

/// Policy about groups of a job's tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubGroupPolicy {
    /// Name of the policy. It is the prefix of its groups' names, such as `workers` in `workers/rack1`.
    pub name: Arc<str>,
    /// Number of tasks with which a group is ready; `None`: 1.
    pub size: Option<i32>,
    /// Number of groups that have to be ready; `None`: 0.
    pub min_groups: Option<i32>,
    /// Selector by which the groups of tasks are found; `None`: the tasks say their groups.
    pub selector: Option<Arc<GroupSelector>>,
}

held_bytes! { SubGroupPolicy { name, selector; size, min_groups } }

/// Class by which a job has its priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassPriority {
    /// Name of the class; empty: the global default.
    pub class: Arc<str>,
    /// Priority if there is neither the class nor a global default.
    pub otherwise: i32,
}

held_bytes! { ClassPriority { class; otherwise } }

/// Minimums of a job for roles and groups, in addition to its number of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangMinimums {
    /// Least numbers of tasks by role, sorted by role.
    pub min_task_member: Vec<(Arc<str>, i32)>,
    /// Policies about groups, in order.
    pub sub_groups: Vec<SubGroupPolicy>,
    /// Class whose value is the priority of the job; `None`: the job has a number of its own.
    pub priority_class: Option<ClassPriority>,
    /// Amounts of the job's minimum resources that its record rounds, such as 0.1m of cpu, or does not count, such as
    /// `requests.cpu`. Quotas of namespaces read them.
    pub exact_minimum: ExactQuantities,
}

held_bytes! { interned GangMinimums { min_task_member, sub_groups, priority_class, exact_minimum } }

impl GangMinimums {
    /// Minimums as a record has them; `None`: there are none.
    pub fn into_field(self) -> Option<Arc<Self>> {
        (self != Self::default()).then(|| Arc::new(self))
    }

    /// Number of tasks with which a group is ready, by the first policy of its name; a group of no policy is ready with one.
    pub fn group_size(&self, group: &str) -> i32 {
        let policy = group.rsplit_once('/').map(|(policy, _)| policy);
        let own = policy.and_then(|name| self.sub_groups.iter().find(|policy| *policy.name == *name));
        own.and_then(|policy| policy.size).unwrap_or(1)
    }

    /// True if the groups of the job's tasks are found by their labels.
    pub fn finds_groups(&self) -> bool {
        self.sub_groups.iter().any(|policy| policy.selector.is_some())
    }

    /// Group of a task with these labels, by the first policy that selects it, such as `workers/rack1`. `None`: no
    /// policy selects it.
    pub fn group_of<'l>(&self, label: &dyn Fn(&str) -> Option<&'l str>) -> Option<String> {
        let mut policies = self.sub_groups.iter();
        policies.find_map(|policy| policy.selector.as_ref()?.group_of(&policy.name, label))
    }

    /// All texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Arc<str>> {
        let roles = self.min_task_member.iter_mut().map(|(role, _)| role);
        let policies = self.sub_groups.iter_mut().map(|policy| &mut policy.name);
        let class = self.priority_class.iter_mut().map(|own| &mut own.class);
        roles.chain(policies).chain(class).chain(self.exact_minimum.names_mut())
    }

    /// All texts.
    pub fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        let roles = self.min_task_member.iter().map(|(role, _)| role);
        let policies = self.sub_groups.iter().map(|policy| &policy.name);
        let class = self.priority_class.iter().map(|own| &own.class);
        roles.chain(policies).chain(class).chain(self.exact_minimum.names())
    }
}

/// Whether a task may have others evicted for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionPolicy {
    /// Policy of its priority class, if it has one.
    #[default]
    OfClass,
    /// No task is evicted for it.
    Never,
    /// Tasks of lower priority may be.
    LowerPriority,
}

/// Quality of service that Kubernetes gives a pod by its requests and limits, in the order in which pods go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// No container has requests or limits.
    BestEffort,
    /// Neither of the others, or unknown.
    #[default]
    Burstable,
    /// Each container has limits of cpu and memory, and requests nothing else.
    Guaranteed,
}

/// Place of a task in its job, and fields of its pod that plugins for gangs and actions read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangMember {
    /// Role of the task; empty: none.
    pub role: Arc<str>,
    /// Group of the task: name of the policy, `/`, and the values of its labels; empty: none.
    pub sub_group: Arc<str>,
    /// spec.priorityClassName; empty: none.
    pub priority_class: Arc<str>,
    /// Names of the scheduling gates, if the sender reports them.
    pub scheduling_gates: Vec<Arc<str>>,
    /// Priority without the class, of a task whose priority is the value of its class; `None`: the task has a number of its
    /// own.
    pub priority_from_class: Option<i32>,
    /// spec.preemptionPolicy.
    pub preemption_policy: PreemptionPolicy,
    /// Kind of the pod's first owner, such as `ReplicaSet`; empty: none.
    pub owner_kind: Arc<str>,
    /// Seconds since 1970 at which the running pod was scheduled, if it has a cooldown time. `None`: unknown.
    pub scheduled_time: Option<i64>,
    /// Seconds since 1970 at which the running pod started. `None`: unknown.
    pub start_time: Option<i64>,
    /// True if only a label of the pod has the role, and no annotation.
    pub role_from_label: bool,
    /// Quality of service of the pod.
    pub qos_class: QosClass,
    /// True if the pod has no priority, not even 0.
    pub without_priority: bool,
}

held_bytes! {
    interned GangMember {
        role, sub_group, priority_class, scheduling_gates, owner_kind; priority_from_class, preemption_policy, scheduled_time,
        start_time, role_from_label, qos_class, without_priority
    }
}

impl GangMember {
    /// Fields as a shape has them; `None`: there are none.
    pub fn into_field(self) -> Option<Arc<Self>> {
        (self != Self::default()).then(|| Arc::new(self))
    }

    /// All texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Arc<str>> {
        let single = [
            &mut self.role,
            &mut self.sub_group,
            &mut self.priority_class,
            &mut self.owner_kind,
        ];
        single.into_iter().chain(&mut self.scheduling_gates)
    }

    /// All texts.
    pub fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        let single = [&self.role, &self.sub_group, &self.priority_class, &self.owner_kind];
        single.into_iter().chain(&self.scheduling_gates)
    }
}
