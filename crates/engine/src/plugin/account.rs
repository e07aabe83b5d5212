//! Accounts that plugins keep, as data: what listings, metrics and the order of queues show of them.

use std::fmt::Debug;
use std::sync::Arc;

use crate::model::{ClusterState, JobRecord, Problem, Reservation, ResourceId};

/// Amounts by name of the resource or card, in the engine's unit of each: cpu, memory, then the others by name.
pub type AccountAmounts = Vec<(Arc<str>, f64)>;

/// Account of a job or a queue. An absent amount is 0, or unlimited in `capability` and `real_capability`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginAccount {
    /// Amounts held.
    pub allocated: AccountAmounts,
    /// Amounts held or requested.
    pub request: AccountAmounts,
    /// Amounts admitted and not yet held.
    pub inqueue: AccountAmounts,
    /// Amounts held above the minimum.
    pub elastic: AccountAmounts,
    /// Effective entitlement.
    pub deserved: AccountAmounts,
    /// Effective guarantee.
    pub guarantee: AccountAmounts,
    /// Effective upper limit.
    pub capability: AccountAmounts,
    /// Upper limit that the cluster leaves after the guarantees of other queues.
    pub real_capability: AccountAmounts,
    /// Minimum that a job needs.
    pub min_resources: AccountAmounts,
    /// Share that the plugin compares: the highest ratio of allocated to deserved, or a dominant share.
    pub share: f64,
    /// Resource that sets the share; empty: the share is 0.
    pub dominant_resource: Arc<str>,
}

/// Node of a tree of queues and their jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueTreeNode {
    /// Path from the root; for a leaf the path of its parent.
    pub path: Arc<str>,
    /// Name of the job if the node is a leaf.
    pub job: Option<Arc<str>>,
    /// Weight; 0 for a leaf.
    pub weight: f64,
    /// Dominant share.
    pub share: f64,
    /// Resource that sets the dominant share; `None`: the share is 0.
    pub dominant: Option<Arc<str>>,
    /// True if the node wants nothing more, or nothing that is left.
    pub saturated: bool,
    /// Held amounts, without zeros; rescaled for an inner node.
    pub held: AccountAmounts,
}

/// Gauge of a queue, for the page of metrics.
#[derive(Clone, Debug)]
pub struct QueueGauge {
    /// Name of the metric.
    pub name: &'static str,
    /// Sentence about a metric of this name, with its unit.
    pub help: fn(&str) -> String,
    /// Value of the label `queue_name`.
    pub queue: Arc<str>,
    /// Another label and its value; `None`: the metric has no other.
    pub label: Option<(&'static str, Arc<str>)>,
    /// Value of the gauge, in the unit of its metric.
    pub value: f64,
}

/// Cards of one kind on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCard {
    /// Name of the card.
    pub card: Arc<str>,
    /// Resource that pods request.
    pub resource: ResourceId,
    /// Number of whole cards.
    pub count: u64,
}

/// Accounts of a plugin's state.
pub trait PluginAccounts: Debug {
    /// Account of a job; `None`: the plugin keeps none of it.
    fn job_account(&self, cluster_state: &ClusterState, job: &JobRecord) -> Option<PluginAccount>;

    /// Account of a queue; `None`: the plugin keeps none of it.
    fn queue_account(&self, queue: &str) -> Option<PluginAccount>;

    /// Problem that keeps a queue out of the accounts; `None`: it has none.
    fn queue_problem(&self, queue: &str) -> Option<&Problem> {
        let _ = queue;
        None
    }

    /// Nodes of the tree of queues, depth first, children by name; empty: the plugin has no tree.
    fn queue_tree(&self) -> Vec<QueueTreeNode> {
        Vec::new()
    }

    /// Gauges of all queues, for plugins whose registry entry declares gauges.
    fn queue_gauges(&self, cluster_state: &ClusterState) -> Vec<QueueGauge> {
        let _ = cluster_state;
        Vec::new()
    }

    /// Amounts of a reservation that its job does not hold yet, without zeros; `None`: the plugin reserves nothing.
    fn remaining_reservation(&self, reservation: &Reservation) -> Option<AccountAmounts> {
        let _ = reservation;
        None
    }

    /// Cards of a node, by name.
    fn node_cards(&self, node: &str) -> Vec<NodeCard> {
        let _ = node;
        Vec::new()
    }
}
