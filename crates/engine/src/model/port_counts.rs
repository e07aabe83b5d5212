//! Ports that the tasks of a node take.

use std::collections::BTreeMap;

use super::constraints::HostPort;
use super::records::{TaskRecord, TaskStatus};
use crate::held_bytes::held_bytes;

/// Ports with the number of tasks that take each. Without ports it takes one word.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::box_collection,
    reason = "most nodes have none, and an empty map takes three words"
)]
pub struct PortCounts(Option<Box<BTreeMap<HostPort, u32>>>);

held_bytes! { PortCounts { 0 } }

impl PortCounts {
    /// Adds the ports of a task that is on a node.
    pub fn add(&mut self, task: &TaskRecord) {
        for port in ports(task) {
            let counts = self.0.get_or_insert_default();
            *counts.entry(port.clone()).or_default() += 1;
        }
    }

    /// Subtracts the ports of a task that was added.
    pub fn subtract(&mut self, task: &TaskRecord) {
        let Some(counts) = &mut self.0 else { return };
        for port in ports(task) {
            if let Some(count) = counts.get_mut(port) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    counts.remove(port);
                }
            }
        }
        if counts.is_empty() {
            self.0 = None;
        }
    }

    /// Number of tasks that take a port.
    pub fn count(&self, port: &HostPort) -> u32 {
        let counts = self.0.as_ref();
        counts.and_then(|counts| counts.get(port)).copied().unwrap_or(0)
    }

    /// True if no port is taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Ports that are taken, in order, with the number of tasks.
    pub fn iter(&self) -> impl Iterator<Item = (&HostPort, u32)> {
        self.0
            .iter()
            .flat_map(|counts| counts.iter().map(|(port, count)| (port, *count)))
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
        counts.add(&task(TaskStatus::Succeeded));
        assert!(counts.is_empty());
        counts.add(&task(TaskStatus::Releasing));
        counts.add(&task(TaskStatus::Pipelined));
        counts.subtract(&task(TaskStatus::Releasing));
        assert_eq!(
            counts
                .iter()
                .map(|(port, count)| (port.port, count))
                .collect::<Vec<_>>(),
            [(80, 1)]
        );
        counts.subtract(&task(TaskStatus::Pipelined));
        assert_eq!(counts, PortCounts::default());
    }
}
