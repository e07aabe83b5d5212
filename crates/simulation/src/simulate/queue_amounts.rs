//! Amounts by which queues are compared: all resources of the cluster but the number of pods.

use std::collections::BTreeMap;

use pumice_engine::model::quantity::Quantity;
use pumice_kubernetes::import::{GPU_MILLI_RESOURCE, GPU_RESOURCE};
use pumice_protocol::v1 as pb;

/// Resource that every task takes one of, and that no queue is about.
const PODS: &str = "pods";

/// Amounts by resource, in thousandths. Shares of GPUs are GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct QueueAmounts(BTreeMap<String, i128>);

impl QueueAmounts {
    /// Amounts of a list. A quantity that cannot be read counts 0: the server has refused its record.
    pub(super) fn parse(list: Option<&pb::ResourceList>) -> Self {
        let mut amounts = BTreeMap::new();
        for (name, text) in list.iter().flat_map(|list| &list.items) {
            let quantity = Quantity::parse(text).ok().and_then(|quantity| quantity.milli().ok());
            let milli = i128::from(quantity.unwrap_or_default());
            let (name, milli) = match name.as_str() {
                PODS => continue,
                GPU_MILLI_RESOURCE => (GPU_RESOURCE, milli / 1000),
                name => (name, milli),
            };
            let own = amounts.entry(name.to_owned()).or_insert(milli);
            *own = milli.max(*own);
        }
        Self(amounts)
    }

    /// Requests of a task.
    pub(super) fn requested(task: &pb::Task) -> Self {
        Self::parse(task.requests.as_ref())
    }

    /// Amounts of all nodes.
    pub(super) fn of_nodes(nodes: &[pb::Node]) -> Self {
        let mut total = Self::default();
        for node in nodes {
            total.add(&Self::parse(node.allocatable.as_ref()));
        }
        total
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = own.saturating_add(*amount);
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = own.saturating_sub(*amount);
        }
    }

    /// The smaller amounts of both. An absent limit is unlimited, and so is a negative one, which only policies under
    /// `upstream` take.
    pub(super) fn at_most(mut self, limits: &Self) -> Self {
        for (name, limit) in limits.0.iter().filter(|(_, limit)| **limit >= 0) {
            if let Some(own) = self.0.get_mut(name) {
                *own = (*own).min(*limit);
            }
        }
        self
    }

    /// The largest part of a whole, from 0 to 1; of nothing there is no part.
    pub(super) fn dominant_part(&self, whole: &Self) -> f64 {
        let parts = whole.0.iter().filter(|(_, whole)| **whole > 0);
        parts
            .map(|(name, whole)| self.0.get(name).copied().unwrap_or(0) as f64 / *whole as f64)
            .fold(0.0, f64::max)
    }
}
