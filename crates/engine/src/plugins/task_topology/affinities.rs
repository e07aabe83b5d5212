//! Affinities between the roles of a job, as the annotations of its pod group write them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::held_bytes::held_bytes;
use crate::model::{TextMap, find_text};

/// Annotation: groups of roles, separated by `;`, whose tasks belong together, such as `ps,worker;reader`.
pub(super) const AFFINITY: &str = "volcano.sh/task-topology-affinity";
/// Annotation: groups of roles whose tasks belong apart.
pub(super) const ANTI_AFFINITY: &str = "volcano.sh/task-topology-anti-affinity";
/// Annotation: roles in the order in which their tasks are placed.
pub(super) const TASK_ORDER: &str = "volcano.sh/task-topology-task-order";

/// Priorities of a role in groups of one and of several roles that belong together or apart.
const SELF_AFFINITY: u8 = 2;
const OTHERS_AFFINITY: u8 = 3;
const SELF_ANTI_AFFINITY: u8 = 4;
const OTHERS_ANTI_AFFINITY: u8 = 1;

/// Unordered pair of roles; a role with itself: its tasks among each other.
type RolePair = (Arc<str>, Arc<str>);

/// Affinities of a job's roles.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RoleAffinities {
    together: Vec<RolePair>,
    apart: Vec<RolePair>,
    /// Largest priority of each role in a group. A role without one has no topology.
    priorities: BTreeMap<Arc<str>, u8>,
    /// Number of each role in the order, the first role with the largest.
    order: BTreeMap<Arc<str>, usize>,
}

held_bytes! { RoleAffinities { together, apart, priorities, order } }

impl RoleAffinities {
    /// Affinities of a job with these annotations and roles; `None`: it has none, or an annotation names a role that no task
    /// has, or one twice in a group. Nothing is trimmed.
    pub(super) fn of(annotations: &TextMap, has_role: impl Fn(&str) -> bool) -> Option<Self> {
        let [together, apart, order] = [AFFINITY, ANTI_AFFINITY, TASK_ORDER].map(|name| find_text(annotations, name));
        together.or(apart).or(order)?;
        let mut own = Self::default();
        for group in together.into_iter().flat_map(|text| text.split(';')) {
            let roles = roles_of(group, &has_role)?;
            add_group(
                &mut own.together,
                &mut own.priorities,
                &roles,
                [SELF_AFFINITY, OTHERS_AFFINITY],
            );
        }
        for group in apart.into_iter().flat_map(|text| text.split(';')) {
            let roles = roles_of(group, &has_role)?;
            let priorities = [SELF_ANTI_AFFINITY, OTHERS_ANTI_AFFINITY];
            add_group(&mut own.apart, &mut own.priorities, &roles, priorities);
        }
        if let Some(order) = order {
            let roles = roles_of(order, &has_role)?;
            let numbered = roles.iter().rev().zip(1..);
            own.order = numbered.map(|(role, number)| (Arc::clone(role), number)).collect();
        }
        Some(own)
    }

    /// True if a role is in a group.
    pub(super) fn has_topology(&self, role: &str) -> bool {
        self.priorities.contains_key(role)
    }

    /// Numbers by which tasks of a role come earlier: its place in the order, and its priority.
    pub(super) fn order_of(&self, role: &str) -> [usize; 2] {
        let priority = self.priorities.get(role).copied().unwrap_or(0);
        [self.order.get(role).copied().unwrap_or(0), priority.into()]
    }

    /// Affinity of a role to tasks of these roles: their number, those apart negative. `only_apart`: without the others.
    pub(super) fn affinity(&self, role: &str, roles: &BTreeMap<Arc<str>, i64>, only_apart: bool) -> i64 {
        let one = |(other, count): (&Arc<str>, &i64)| {
            let holds = |pairs: &[RolePair]| {
                let (first, second) = if role <= &**other {
                    (role, &**other)
                } else {
                    (&**other, role)
                };
                let mut found = pairs.iter();
                found.any(|(one, two)| **one == *first && **two == *second)
            };
            let together = i64::from(!only_apart && holds(&self.together));
            (together - i64::from(holds(&self.apart))) * count
        };
        roles.iter().map(one).sum()
    }
}

/// Roles of one group; `None`: one is unknown, or occurs twice. An empty role is another role.
fn roles_of(group: &str, has_role: &impl Fn(&str) -> bool) -> Option<Vec<Arc<str>>> {
    let roles: Vec<Arc<str>> = group.split(',').map(Arc::from).collect();
    let named: Vec<&Arc<str>> = roles.iter().filter(|role| !role.is_empty()).collect();
    let distinct: BTreeSet<&Arc<str>> = named.iter().copied().collect();
    (distinct.len() == named.len() && named.iter().all(|role| has_role(role))).then_some(roles)
}

fn add_group(
    pairs: &mut Vec<RolePair>,
    priorities: &mut BTreeMap<Arc<str>, u8>,
    roles: &[Arc<str>],
    [of_one, of_several]: [u8; 2],
) {
    for (number, role) in roles.iter().enumerate() {
        let priority = if roles.len() == 1 { of_one } else { of_several };
        let known = priorities.entry(Arc::clone(role)).or_default();
        *known = (*known).max(priority);
        let others = roles.iter().take(number);
        let itself = (roles.len() == 1).then_some(role);
        for other in others.chain(itself) {
            let (first, second) = if role <= other { (role, other) } else { (other, role) };
            let pair = (Arc::clone(first), Arc::clone(second));
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
    }
}
