//! Reasons of rejections, with the amounts that were compared.

use std::sync::Arc;

use crate::model::resource_name::ResourceKind;

/// Effect of evictions on a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    /// Evictions may help (Unschedulable).
    Unschedulable,
    /// Evictions cannot help (`UnschedulableAndUnresolvable`).
    Unresolvable,
}

/// Reason of a rejection, for people and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// Name of the plugin, or `node-state`, `resource-fit`.
    pub plugin: Arc<str>,
    /// Stable code, usable as the reason of a Kubernetes event.
    pub code: &'static str,
    /// Sentence, usable as the message of that event.
    pub message: String,
    /// Effect of evictions.
    pub resolution: Resolution,
    /// Resource that was short; empty: none in particular.
    pub resource: Arc<str>,
}

impl Reason {
    /// Reason about no resource in particular.
    pub fn new(plugin: &str, code: &'static str, message: impl Into<String>, resolution: Resolution) -> Self {
        Self {
            plugin: Arc::from(plugin),
            code,
            message: message.into(),
            resolution,
            resource: Arc::default(),
        }
    }
}

/// Measurement of a reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Name of the measured amount: `requested`, `idle memory`.
    pub name: String,
    /// Value in `unit`.
    pub value: f64,
    /// Unit: `cores`, `bytes` or `cards`. Empty: a plain number.
    pub unit: &'static str,
}

impl Measurement {
    /// Measurement of a plain number.
    pub fn number(name: impl Into<String>, value: f64) -> Self {
        Self {
            name: name.into(),
            value,
            unit: "",
        }
    }

    /// Measurement of a resource: converts an amount from the engine's unit to people's.
    pub fn of_resource(name: impl Into<String>, resource: &str, amount: f64) -> Self {
        let (divisor, unit) = match ResourceKind::of(resource) {
            ResourceKind::Cpu => (1000.0, "cores"),
            ResourceKind::Memory => (1.0, "bytes"),
            ResourceKind::Pods => (1.0, ""),
            ResourceKind::EphemeralStorage => (1000.0, "bytes"),
            ResourceKind::Scalar if resource.starts_with("hugepages-") => (1000.0, "bytes"),
            ResourceKind::Scalar | ResourceKind::CountQuota | ResourceKind::Uncounted => (1000.0, ""),
        };
        Self {
            name: name.into(),
            value: amount / divisor,
            unit,
        }
    }
}
