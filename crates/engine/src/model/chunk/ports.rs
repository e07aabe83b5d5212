//! Host ports of tasks on the nodes of a chunk: a query about a port compares each port once. The index is computed at
//! the first query, and again after ports have changed.

use super::NodeChunk;
use crate::held_bytes::held_bytes;
use crate::model::constraints::HostPort;
use crate::model::mask::NodeMask;
use crate::model::node::NodeEntry;

/// Nodes of a chunk by port that a task takes there.
#[derive(Clone, Debug, Default)]
pub(in crate::model) struct ChunkPorts {
    /// Ports in order, with the nodes.
    ports: Vec<(HostPort, NodeMask)>,
    /// Nodes with tasks that are being released and take ports.
    releasing: NodeMask,
}

held_bytes! { ChunkPorts { ports; releasing } }

impl ChunkPorts {
    fn of(chunk: &NodeChunk) -> Self {
        let mut own = Self::default();
        for offset in chunk.with_ports.iter() {
            let Some(entry) = chunk.entry(offset) else { continue };
            own.releasing.set(offset, has_releasing_ports(entry));
            for port in ports_of(entry) {
                let at = own.ports.binary_search_by(|(own, _)| own.cmp(port));
                let at = at.unwrap_or_else(|place| {
                    own.ports.insert(place, (port.clone(), NodeMask::NONE));
                    place
                });
                if let Some((_, nodes)) = own.ports.get_mut(at) {
                    nodes.set(offset, true);
                }
            }
        }
        own
    }

    /// True if the ports of this node are those at `offset`.
    fn shows(&self, offset: usize, entry: &NodeEntry) -> bool {
        let shown = self
            .ports
            .iter()
            .filter(|(_, nodes)| nodes.get(offset))
            .map(|(port, _)| port);
        shown.eq(ports_of(entry)) && self.releasing.get(offset) == has_releasing_ports(entry)
    }
}

/// Ports that tasks take on a node, in order, each once.
fn ports_of(entry: &NodeEntry) -> impl Iterator<Item = &HostPort> {
    let ports = entry.upstream.as_ref().map_or(&entry.usage.ports, |own| &own.ports);
    ports.iter().map(|(port, _)| port)
}

/// True if some port may be free once tasks that are being released are gone.
fn has_releasing_ports(entry: &NodeEntry) -> bool {
    entry.upstream.is_none() && !entry.usage.releasing_ports.is_empty()
}

impl NodeChunk {
    /// Nodes with a task whose port conflicts with any port in `ports`, and the nodes among them on which a task with a
    /// port is being released.
    pub fn with_conflicting_ports(&self, ports: &[HostPort]) -> [NodeMask; 2] {
        if self.with_ports.is_empty() {
            return [NodeMask::NONE; 2];
        }
        let own = self.ports.get_or_init(|| ChunkPorts::of(self));
        let conflicting = own
            .ports
            .iter()
            .filter(|(own, _)| ports.iter().any(|port| port.conflicts_with(own)));
        let taken = conflicting.fold(NodeMask::NONE, |all, (_, nodes)| all.or(nodes));
        [taken, taken.and(&own.releasing)]
    }

    /// Notes the ports of a node's entry.
    pub(in crate::model) fn set_ports(&mut self, offset: usize, entry: Option<&NodeEntry>) {
        let before = self.with_ports.get(offset);
        self.with_ports.set(offset, entry.is_some_and(NodeEntry::has_ports));
        if !before && !self.with_ports.get(offset) {
            return;
        }
        let shown = |own: &ChunkPorts| entry.is_some_and(|entry| own.shows(offset, entry));
        self.ports.retain(shown);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::constraints::PodConstraints;
    use crate::model::{ClusterState, NodeRecord, SortedTable, TaskFields, TaskStatus};

    /// Task by number, the node that it is on and its ports; no ports: it goes.
    type Step = (u8, u32, Vec<i32>, (bool, bool));

    fn port(number: i32) -> HostPort {
        HostPort {
            protocol: Arc::default(),
            host_ip: Arc::default(),
            port: number,
        }
    }

    proptest! {
        #[test]
        fn nodes_with_a_port_follow_changes(
            steps in prop::collection::vec((0_u8..6, 0_u32..3, prop::collection::vec(1..4_i32, 0..3), any::<(bool, bool)>()), 1..30),
        ) {
            let mut index = SortedTable::default();
            for slot in 0..3 {
                index.insert(format!("n{slot}").into(), slot);
            }
            let (mut state, source) = (ClusterState::new(Arc::new(index), 1), Arc::from("s"));
            for slot in 0..3 {
                let record = NodeRecord { name: format!("n{slot}").into(), ..NodeRecord::default() };
                state.put_node(Arc::new(record), &source);
            }
            for (number, node, ports, (asks, releasing)) in steps as Vec<Step> {
                let name = format!("ns/t{number}");
                if ports.is_empty() {
                    state.remove_task(&name);
                } else {
                    let constraints = PodConstraints {
                        host_ports: ports.into_iter().map(port).collect(),
                        ..PodConstraints::default()
                    };
                    let task = TaskFields {
                        name: name.into(),
                        node: format!("n{node}").into(),
                        status: if releasing { TaskStatus::Releasing } else { TaskStatus::Running },
                        constraints: Some(Arc::new(constraints)),
                        ..TaskFields::default()
                    };
                    state.put_task(task.into(), &source);
                }
                if !asks {
                    continue;
                }
                let chunk = state.chunks().get(0).unwrap();
                for wanted in 1..4 {
                    let takes = |offset: usize| {
                        chunk.entry(offset).is_some_and(|entry| ports_of(entry).any(|own| own.port == wanted))
                    };
                    let releases = |offset: usize| chunk.entry(offset).is_some_and(|entry| has_releasing_ports(entry));
                    let expected = [NodeMask::gather(takes), NodeMask::gather(|offset| takes(offset) && releases(offset))];
                    prop_assert_eq!(chunk.with_conflicting_ports(&[port(wanted)]), expected);
                }
                let all = chunk.with_conflicting_ports(&[port(1), port(2), port(3)])[0];
                prop_assert_eq!(all, NodeMask::gather(|offset| chunk.entry(offset).is_some_and(|entry| entry.has_ports())));
            }
        }
    }
}
