//! Kinds of records of a cluster: their names, and their lists in its messages.

use prost::{Message, Name};

use crate::output;
use pumice_protocol::v1 as pb;

/// Record such as a node or a task, with its place in the lists of a cluster.
pub trait ClusterRecord: Message + Name + Clone {
    /// Kind in sentences, such as `node`.
    const KIND: &'static str;

    /// Name, with its namespace if it has one.
    fn name(&self) -> &str;

    /// Records of the kind.
    fn list(cluster: &pb::Cluster) -> &[Self];

    /// Records of the kind, to change them.
    fn list_mut(cluster: &mut pb::Cluster) -> &mut Vec<Self>;
}

/// Numbers of the records of each kind, such as `2 nodes, 1 queue`. `with_zero`: also kinds without records, except namespaces.
pub fn record_counts(cluster: &pb::Cluster, with_zero: bool) -> String {
    let counts = [
        (cluster.nodes.len(), "node"),
        (cluster.queues.len(), "queue"),
        (cluster.jobs.len(), "job"),
        (cluster.tasks.len(), "task"),
        (cluster.namespaces.len(), "namespace"),
    ];
    let shown = counts.into_iter();
    let shown = shown.filter(|(number, kind)| *number > 0 || (with_zero && *kind != "namespace"));
    let shown: Vec<String> = shown.map(|(number, kind)| output::count(number, kind)).collect();
    shown.join(", ")
}

macro_rules! cluster_record {
    ($message:ident, $kind:literal, $list:ident) => {
        impl ClusterRecord for pb::$message {
            const KIND: &'static str = $kind;

            fn name(&self) -> &str {
                &self.name
            }

            fn list(cluster: &pb::Cluster) -> &[Self] {
                &cluster.$list
            }

            fn list_mut(cluster: &mut pb::Cluster) -> &mut Vec<Self> {
                &mut cluster.$list
            }
        }
    };
}

cluster_record!(Node, "node", nodes);
cluster_record!(Queue, "queue", queues);
cluster_record!(Job, "job", jobs);
cluster_record!(Task, "task", tasks);
cluster_record!(Namespace, "namespace", namespaces);
cluster_record!(PriorityClass, "priority class", priority_classes);
