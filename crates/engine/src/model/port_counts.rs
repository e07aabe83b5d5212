//! Ports that the tasks of a node take.

use super::constraints::HostPort;
use super::key_counts::KeyCounts;
use super::records::{TaskRecord, TaskStatus};
use crate::held_bytes::held_bytes;

/// Ports with the number of tasks that take each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortCounts(KeyCounts<HostPort>);

held_bytes! { PortCounts { 0 } }

impl PortCounts {
    /// Adds the ports of a task that is on a node, or takes them off again.
    pub fn count_task(&mut self, task: &TaskRecord, adds: bool) {
        for port in ports(task) {
            self.0.count(port, adds);
        }
    }

    /// Number of tasks that take a port.
    pub fn count(&self, port: &HostPort) -> u32 {
        self.0.get(port)
    }

    /// True if no port is taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ports that are taken, in order, with the number of tasks.
    pub fn iter(&self) -> impl Iterator<Item = (&HostPort, u32)> {
        self.0.iter()
    }
}

/// Ports of a task that is on a node.
fn ports(task: &TaskRecord) -> &[HostPort] {
    let on_node = !matches!(
        task.status,
        TaskStatus::Pending | TaskStatus::Succeeded | TaskStatus::Failed
    );
    if on_node { task.host_ports() } else { &[] }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::TaskFields;
    use crate::model::constraints::PodConstraints;

    #[test]
    fn a_port_is_free_again_after_its_last_task() {
        let task = |status| {
            let port = HostPort {
                protocol: "TCP".into(),
                host_ip: Arc::default(),
                port: 80,
            };
            let constraints = PodConstraints {
                host_ports: vec![port],
                ..PodConstraints::default()
            };
            TaskRecord::from(TaskFields {
                status,
                constraints: Some(Arc::new(constraints)),
                ..TaskFields::default()
            })
        };
        let mut counts = PortCounts::default();
        counts.count_task(&task(TaskStatus::Succeeded), true);
        assert!(counts.is_empty());
        counts.count_task(&task(TaskStatus::Releasing), true);
        counts.count_task(&task(TaskStatus::Pipelined), true);
        counts.count_task(&task(TaskStatus::Releasing), false);
        assert_eq!(
            counts
                .iter()
                .map(|(port, count)| (port.port, count))
                .collect::<Vec<_>>(),
            [(80, 1)]
        );
        counts.count_task(&task(TaskStatus::Pipelined), false);
        assert_eq!(counts, PortCounts::default());
    }
}
