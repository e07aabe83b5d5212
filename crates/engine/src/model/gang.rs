//! Fields of jobs and tasks about gangs: roles, groups and minimums. Most records have none, and take one word for them.

use std::sync::Arc;

use super::group_selector::GroupSelector;
use super::records::TaskShape;

/// Scheduling gate that Volcano sets itself while a queue has no room.
const VOLCANO_GATE: &str = "scheduling.volcano.sh/queue-allocation-gate";

/// Policy about groups of a job's tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubGroupPolicy {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Number of tasks with which a group is ready; `None`: 1.
    pub size: Option<i32>,
    /// Number of groups that have to be ready; `None`: 0.
    pub min_groups: Option<i32>,
    /// Selector by which the groups of tasks are found; `None`: the tasks say their groups.
    pub selector: Option<Arc<GroupSelector>>,
}

/// Class by which a job has its priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassPriority {
    /// Name of the class; empty: the global default.
    pub class: Arc<str>,
    /// Priority if there is neither the class nor a global default.
    pub otherwise: i32,
}

/// Minimums of a job beside the number of its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangMinimums {
    /// Least numbers of tasks by role, sorted by role.
    pub min_task_member: Vec<(Arc<str>, i32)>,
    /// Policies about groups, in order.
    pub sub_groups: Vec<SubGroupPolicy>,
    /// Class whose value is the priority of the job; `None`: the job has a number of its own.
    pub priority_class: Option<ClassPriority>,
}

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

    /// Group of a task with these labels: that of the first policy that is about it; `None`: no policy is.
    pub fn group_of<'l>(&self, label: &dyn Fn(&str) -> Option<&'l str>) -> Option<String> {
        let mut policies = self.sub_groups.iter();
        policies.find_map(|policy| policy.selector.as_ref()?.group_of(&policy.name, label))
    }

    /// All texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Arc<str>> {
        let roles = self.min_task_member.iter_mut().map(|(role, _)| role);
        let policies = self.sub_groups.iter_mut().map(|policy| &mut policy.name);
        let class = self.priority_class.iter_mut().map(|own| &mut own.class);
        roles.chain(policies).chain(class)
    }

    /// All texts.
    pub fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        let roles = self.min_task_member.iter().map(|(role, _)| role);
        let policies = self.sub_groups.iter().map(|policy| &policy.name);
        let class = self.priority_class.iter().map(|own| &own.class);
        roles.chain(policies).chain(class)
    }
}

/// Place of a task in its job, and fields of its pod that plugins for gangs read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangMember {
    /// Role of the task; empty: none.
    pub role: Arc<str>,
    /// Group of the task: name of the policy, `/`, and the values of its labels; empty: none.
    pub sub_group: Arc<str>,
    /// spec.priorityClassName; empty: none.
    pub priority_class: Arc<str>,
    /// Names of the scheduling gates, as far as the sender tells them.
    pub scheduling_gates: Vec<Arc<str>>,
    /// Priority without the class, of a task whose priority is the value of its class; `None`: the task has a number of its
    /// own.
    pub priority_from_class: Option<i32>,
}

impl GangMember {
    /// Fields as a shape has them; `None`: there are none.
    pub fn into_field(self) -> Option<Arc<Self>> {
        (self != Self::default()).then(|| Arc::new(self))
    }

    /// All texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Arc<str>> {
        let single = [&mut self.role, &mut self.sub_group, &mut self.priority_class];
        single.into_iter().chain(&mut self.scheduling_gates)
    }

    /// All texts.
    pub fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        let single = [&self.role, &self.sub_group, &self.priority_class];
        single.into_iter().chain(&self.scheduling_gates)
    }
}

impl TaskShape {
    /// Role of the task in its job; empty: none.
    pub fn role(&self) -> &str {
        self.gang.as_ref().map_or("", |gang| &gang.role)
    }

    /// Group of the task in its job: name of the policy, `/`, and the values of its labels; empty: none.
    pub fn sub_group(&self) -> &str {
        self.gang.as_ref().map_or("", |gang| &gang.sub_group)
    }

    /// Name of the task's priority class; empty: none.
    pub fn priority_class(&self) -> &str {
        self.gang.as_ref().map_or("", |gang| &gang.priority_class)
    }

    /// Class whose value is the priority of the task, and the priority without it; `None`: the task has a number of its own.
    pub fn class_of_priority(&self) -> Option<(&str, i32)> {
        let gang = self.gang.as_ref()?;
        Some((&gang.priority_class, gang.priority_from_class?))
    }

    /// Names of the task's scheduling gates, as far as the sender tells them.
    pub fn scheduling_gates(&self) -> &[Arc<str>] {
        self.gang.as_ref().map_or(&[], |gang| &gang.scheduling_gates)
    }

    /// True if the task has a scheduling gate, and not only the one that Volcano sets itself.
    pub fn has_foreign_gate(&self) -> bool {
        let gates = self.scheduling_gates();
        self.gated && !(gates.len() == 1 && gates.iter().all(|gate| **gate == *VOLCANO_GATE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gated(names: &[&str]) -> TaskShape {
        let gang = GangMember {
            scheduling_gates: names.iter().map(|name| Arc::from(*name)).collect(),
            ..GangMember::default()
        };
        TaskShape {
            gated: true,
            gang: gang.into_field(),
            ..TaskShape::default()
        }
    }

    #[test]
    fn only_the_gate_of_volcano_itself_is_not_foreign() {
        assert!(gated(&[]).has_foreign_gate(), "a sender that does not name the gates");
        assert!(gated(&["example.com/wait"]).has_foreign_gate());
        assert!(gated(&[VOLCANO_GATE, "example.com/wait"]).has_foreign_gate());
        assert!(!gated(&[VOLCANO_GATE]).has_foreign_gate());
        assert!(!TaskShape::default().has_foreign_gate());
    }

    #[test]
    fn a_shape_without_fields_of_gangs_has_no_place_for_them() {
        let shape = TaskShape::default();
        assert_eq!((shape.role(), shape.sub_group(), shape.priority_class()), ("", "", ""));
        assert!(GangMember::default().into_field().is_none() && GangMinimums::default().into_field().is_none());
    }
}
