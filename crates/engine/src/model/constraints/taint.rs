//! Taints of nodes, and tolerations of pods.

use crate::held_bytes::held_bytes;
use std::sync::Arc;

/// Effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// Any other text, also none: the taint has no effect.
    #[default]
    Other,
    /// No new pod without a toleration.
    NoSchedule,
    /// Rather no new pod without a toleration.
    PreferNoSchedule,
    /// No pod without a toleration.
    NoExecute,
}

impl TaintEffect {
    /// Effect with this name, such as `NoSchedule`. `None`: the name is not an effect of Kubernetes.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => return None,
        })
    }

    /// Name of the effect; empty for [`Self::Other`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "",
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// Taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Key of the taint, such as `nvidia.com/gpu`.
    pub key: Arc<str>,
    /// Value; empty: none.
    pub value: Arc<str>,
    /// Effect on pods that do not tolerate the taint.
    pub effect: TaintEffect,
}

held_bytes! { Taint { key, value; effect } }

impl Taint {
    /// True if the taint keeps away pods that do not tolerate it.
    pub fn rejects(&self) -> bool {
        matches!(self.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute)
    }
}

/// Toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// Key of the taint; empty: any.
    pub key: Arc<str>,
    /// Operator: `Equal`, `Exists`, or empty for `Equal`. Any other one tolerates nothing.
    pub operator: Arc<str>,
    /// Value of the taint, for `Equal`.
    pub value: Arc<str>,
    /// Effect of the taint; empty: any.
    pub effect: Arc<str>,
}

impl Toleration {
    /// True if a taint is tolerated (Kubernetes v1.36.1, `ToleratesTaint` without the comparison operators).
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || *self.effect == *taint.effect.name();
        let key = self.key.is_empty() || self.key == taint.key;
        let value = match &*self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        };
        effect && key && value
    }

    /// True if the toleration is about taints of this effect: it names the effect, or none.
    pub fn is_about(&self, effect: TaintEffect) -> bool {
        self.effect.is_empty() || *self.effect == *effect.name()
    }

    pub(super) fn each_text(&mut self, visit: &mut dyn FnMut(&mut Arc<str>)) {
        let Self {
            key,
            operator,
            value,
            effect,
        } = self;
        [key, operator, value, effect].into_iter().for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        Toleration {
            key: key.into(),
            operator: operator.into(),
            value: value.into(),
            effect: effect.into(),
        }
    }

    #[test]
    fn tolerations_follow_key_operator_value_and_effect() {
        let taint = Taint {
            key: "gpu".into(),
            value: "a100".into(),
            effect: TaintEffect::NoSchedule,
        };
        let tolerated = [
            toleration("gpu", "", "a100", ""),
            toleration("gpu", "Equal", "a100", "NoSchedule"),
            toleration("gpu", "Exists", "ignored", ""),
            toleration("", "Exists", "", ""),
            toleration("", "Equal", "a100", ""),
        ];
        assert!(tolerated.iter().all(|own| own.tolerates(&taint)));
        let others = [
            toleration("gpu", "", "", ""),
            toleration("gpu", "Equal", "a100", "NoExecute"),
            toleration("cpu", "Exists", "", ""),
            toleration("gpu", "Gt", "a100", ""),
            toleration("gpu", "exists", "a100", ""),
        ];
        assert!(!others.iter().any(|own| own.tolerates(&taint)));
    }
}
