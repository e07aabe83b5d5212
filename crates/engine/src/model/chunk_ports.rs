//! Ports that tasks take on the nodes of a chunk, so that a question about a port reads only the nodes that have it. They are
//! made at the first question, and made again after other ports were taken.

use std::sync::Arc;

use super::chunk::NodeChunk;
use super::constraints::HostPort;
use super::mask::NodeMask;
use super::node::NodeEntry;

/// Nodes of a chunk by number of a port that a task takes there.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkPorts(Vec<(i32, NodeMask)>);

impl ChunkPorts {
    fn of(chunk: &NodeChunk) -> Self {
        let mut own = Self::default();
        for offset in chunk.with_ports.iter() {
            for number in chunk.entry(offset).into_iter().flat_map(|entry| port_numbers(entry)) {
                let at = own.0.binary_search_by_key(&number, |(own, _)| *own);
                let at = at.unwrap_or_else(|place| {
                    own.0.insert(place, (number, NodeMask::NONE));
                    place
                });
                if let Some((_, nodes)) = own.0.get_mut(at) {
                    nodes.set(offset, true);
                }
            }
        }
        own
    }

    /// Nodes on which some task takes a port of this number.
    fn with_number(&self, number: i32) -> NodeMask {
        let at = self.0.binary_search_by_key(&number, |(own, _)| *own).ok();
        at.and_then(|at| self.0.get(at))
            .map_or(NodeMask::NONE, |(_, nodes)| *nodes)
    }

    /// True if the ports of this node are those at `offset`.
    fn shows(&self, offset: usize, entry: &NodeEntry) -> bool {
        let shown = self
            .0
            .iter()
            .filter(|(_, nodes)| nodes.get(offset))
            .map(|(number, _)| *number);
        let mut numbers: Vec<i32> = port_numbers(entry).collect();
        numbers.sort_unstable();
        numbers.dedup();
        shown.eq(numbers)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.len() * size_of::<(i32, NodeMask)>()
    }
}

/// Numbers of the ports that tasks take on a node; a number may repeat.
fn port_numbers(entry: &NodeEntry) -> impl Iterator<Item = i32> + '_ {
    let ports = entry.upstream.as_ref().map_or(&entry.usage.ports, |own| &own.ports);
    ports.iter().map(|(port, _)| port.port)
}

impl NodeChunk {
    /// Nodes on which some task takes a port of the same number as one of these.
    pub fn with_ports_like(&self, ports: &[HostPort]) -> NodeMask {
        if self.with_ports.is_empty() {
            return NodeMask::NONE;
        }
        let own = self.ports.get_or_init(|| ChunkPorts::of(self));
        let nodes = ports.iter().map(|port| own.with_number(port.port));
        nodes.fold(NodeMask::NONE, |all, nodes| all.or(&nodes))
    }

    /// Notes the ports of a node's entry.
    pub(super) fn set_ports(&mut self, offset: usize, entry: Option<&NodeEntry>) {
        let has_ports = entry.is_some_and(NodeEntry::has_ports);
        let had_ports = self.with_ports.get(offset);
        self.with_ports.set(offset, has_ports);
        if !has_ports && !had_ports {
            return;
        }
        let shown = |own: &ChunkPorts| entry.is_some_and(|entry| own.shows(offset, entry));
        if !self.ports.get().is_none_or(shown) {
            self.ports = Arc::default();
        }
    }

    /// Bytes of the list of ports.
    pub(super) fn unshared_port_bytes(&self, older: &Self) -> usize {
        let own = self.ports.get().filter(|_| !Arc::ptr_eq(&self.ports, &older.ports));
        own.map_or(0, ChunkPorts::bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::constraints::PodConstraints;
    use crate::model::{ClusterState, NodeRecord, SortedTable, TaskFields, TaskStatus};

    /// Task by number, the node that it is on and its ports; no ports: it goes.
    type Step = (u8, u32, Vec<i32>, bool);

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
            steps in prop::collection::vec((0_u8..6, 0_u32..3, prop::collection::vec(1..4_i32, 0..3), any::<bool>()), 1..30),
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
            for (number, node, ports, asks) in steps as Vec<Step> {
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
                        status: TaskStatus::Running,
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
                        chunk.entry(offset).is_some_and(|entry| port_numbers(entry).any(|own| own == wanted))
                    };
                    prop_assert_eq!(chunk.with_ports_like(&[port(wanted)]), NodeMask::gather(takes));
                }
                let all = chunk.with_ports_like(&[port(1), port(2), port(3)]);
                prop_assert_eq!(all, NodeMask::gather(|offset| chunk.entry(offset).is_some_and(|entry| entry.has_ports())));
            }
        }
    }
}
