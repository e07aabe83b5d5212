//! Fields of a task's record about its gang.

use std::sync::Arc;

use super::gang::{PreemptionPolicy, QosClass};
use super::records::TaskShape;

/// Scheduling gate that Volcano sets itself while a queue has no room.
pub const VOLCANO_GATE: &str = "scheduling.volcano.sh/queue-allocation-gate";

impl TaskShape {
    /// Role of the task in its job; empty: none.
    pub fn role(&self) -> &str {
        self.gang.as_ref().map_or("", |gang| &gang.role)
    }

    /// True if only a label of the pod has the role.
    pub fn has_role_from_label(&self) -> bool {
        self.gang.as_ref().is_some_and(|gang| gang.role_from_label)
    }

    /// Quality of service of the pod.
    pub fn qos_class(&self) -> QosClass {
        self.gang.as_ref().map_or_else(QosClass::default, |gang| gang.qos_class)
    }

    /// True if the pod has no priority, not even 0.
    pub fn is_without_priority(&self) -> bool {
        self.gang.as_ref().is_some_and(|gang| gang.without_priority)
    }

    /// Group of the task in its job: name of the policy, `/`, and the values of its labels; empty: none.
    pub fn sub_group(&self) -> &str {
        self.gang.as_ref().map_or("", |gang| &gang.sub_group)
    }

    /// Name of the task's priority class; empty: none.
    pub fn priority_class(&self) -> &str {
        self.gang.as_ref().map_or("", |gang| &gang.priority_class)
    }

    /// Kind of the pod's first owner, such as `ReplicaSet`; empty: none.
    pub fn owner_kind(&self) -> &str {
        self.gang.as_ref().map_or("", |gang| &gang.owner_kind)
    }

    /// spec.preemptionPolicy of the pod.
    pub fn preemption_policy(&self) -> PreemptionPolicy {
        let own = self.gang.as_ref().map(|gang| gang.preemption_policy);
        own.unwrap_or_default()
    }

    /// Seconds since 1970 at which the running pod was scheduled, if it has a cooldown time; `None`: unknown.
    pub fn scheduled_time(&self) -> Option<i64> {
        self.gang.as_ref()?.scheduled_time
    }

    /// Seconds since 1970 at which the running pod started; `None`: unknown.
    pub fn start_time(&self) -> Option<i64> {
        self.gang.as_ref()?.start_time
    }

    /// Class whose value is the priority of the task, and the priority without it; `None`: the task has a number of its own.
    pub fn class_of_priority(&self) -> Option<(&str, i32)> {
        let gang = self.gang.as_ref()?;
        Some((&gang.priority_class, gang.priority_from_class?))
    }

    /// Names of the task's scheduling gates, if the sender reports them.
    pub fn scheduling_gates(&self) -> &[Arc<str>] {
        self.gang.as_ref().map_or(&[], |gang| &gang.scheduling_gates)
    }

    /// True if a job's minimum does not count the task: it has a scheduling gate, and where `counts_queue_gated` one other
    /// than Volcano's own.
    pub fn is_withheld(&self, counts_queue_gated: bool) -> bool {
        if counts_queue_gated {
            self.has_foreign_gate()
        } else {
            self.gated
        }
    }

    /// True if the task has a scheduling gate other than Volcano's own gate.
    pub fn has_foreign_gate(&self) -> bool {
        let gates = self.scheduling_gates();
        self.gated && !(gates.len() == 1 && gates.iter().all(|gate| **gate == *VOLCANO_GATE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gang::{GangMember, GangMinimums};

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
