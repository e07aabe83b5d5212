//! Sets of nodes as names, slots and bitmaps, both ways.

use std::collections::BTreeSet;

use crate::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult};
use pumice_engine::model::{ClusterState, ErrorCode, NodeSlot};

/// Maximum number of names that an error repeats.
const MAX_NAMES_SHOWN: usize = 10;

/// Reader of node sets: a cluster state, and the table that its slots belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSetReader<'a> {
    /// State that has the nodes.
    pub(crate) state: &'a ClusterState,
    /// Epoch of this process.
    pub(crate) epoch: u64,
    /// True if the cluster came with the request: its order gives the slots, and no table is needed.
    pub(crate) inline: bool,
    /// Table that the request's slots refer to.
    pub(crate) table: Option<&'a pb::NodeTableVersion>,
}

impl<'a> NodeSetReader<'a> {
    /// Reader of a state of this process, for a request that names no table.
    pub(crate) fn new(state: &'a ClusterState, epoch: u64) -> Self {
        Self {
            state,
            epoch,
            inline: false,
            table: None,
        }
    }

    /// Table that slots refer to.
    pub(crate) fn table_version(self) -> pb::NodeTableVersion {
        pb::NodeTableVersion {
            epoch: self.epoch,
            generation: self.state.generation(),
            length: self.state.slots(),
        }
    }

    /// Checks the table that a request names.
    ///
    /// # Errors
    /// The table's slots mean other nodes than this server's.
    pub(crate) fn check_table(self) -> RpcResult<()> {
        let Some(pb::NodeTableVersion { epoch, generation, .. }) = self.table else {
            return Ok(());
        };
        if *epoch != self.epoch {
            return Err(CallError::new(
                ErrorCode::EpochChanged,
                "the node table belongs to another process: read it again",
            ));
        }
        if *generation != self.state.generation() {
            let message = format!(
                "the node table has generation {generation}, and this state has {}: read the table again",
                self.state.generation()
            );
            return Err(CallError::new(ErrorCode::NodeTableChanged, message));
        }
        Ok(())
    }

    /// Reads a set of nodes, in its order.
    ///
    /// # Errors
    /// The set is given in two ways, holds a node twice, or holds an unknown one. The whole request fails, because the
    /// problem belongs to no task.
    pub(crate) fn read(self, field: &'static str, set: pb::NodeSet) -> RpcResult<Vec<NodeSlot>> {
        let pb::NodeSet { names, slots, bitmap } = set;
        let given = [!names.is_empty(), !slots.is_empty(), !bitmap.is_empty()];
        if given.iter().filter(|given| **given).count() > 1 {
            let message = format!("{field}: give names, slots or a bitmap, not several of them");
            return Err(CallError::new(ErrorCode::NodeSetAmbiguous, message));
        }
        if !names.is_empty() {
            return self.read_names(field, &names);
        }
        if slots.is_empty() && bitmap.is_empty() {
            return Ok(Vec::new());
        }
        if self.table.is_none() && !self.inline {
            let message = format!("{field}: slots need `against.node_table`, the table that they refer to");
            return Err(CallError::new(ErrorCode::NodeTableMissing, message));
        }
        let is_bitmap = !bitmap.is_empty();
        let slots = if bitmap.is_empty() {
            slots
        } else {
            bitmap_slots(field, &bitmap, self.state.slots())?
        };
        let missing: Vec<String> = slots
            .iter()
            .filter(|slot| self.state.node(**slot).is_none())
            .map(ToString::to_string)
            .collect();
        if !missing.is_empty() {
            return Err(unknown_nodes(field, "slot", &missing));
        }
        if is_bitmap {
            return Ok(slots);
        }
        distinct_slots(field, slots, |slot| slot.to_string())
    }

    fn read_names(self, field: &'static str, names: &[String]) -> RpcResult<Vec<NodeSlot>> {
        let mut missing = Vec::new();
        let slots: Vec<NodeSlot> = names
            .iter()
            .filter_map(|name| {
                let slot = self.state.slot_of(name);
                if slot.is_none() {
                    missing.push(name.clone());
                }
                slot
            })
            .collect();
        if !missing.is_empty() {
            return Err(unknown_nodes(field, "node", &missing));
        }
        distinct_slots(field, slots, |slot| name_of(self.state, slot).to_owned())
    }
}

/// Maximum number of nodes in a set.
pub(crate) fn max_nodes(set: &pb::NodeSet) -> usize {
    set.names.len() + set.slots.len() + set.bitmap.len().saturating_mul(8)
}

fn unknown_nodes(field: &str, what: &str, missing: &[String]) -> CallError {
    let shown: Vec<String> = missing
        .iter()
        .take(MAX_NAMES_SHOWN)
        .map(|name| format!("`{name}`"))
        .collect();
    let more = missing.len() - shown.len();
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let message = format!("{field}: no such {what}: {}{more}", shown.join(", "));
    CallError::new(ErrorCode::NodeUnknown, message).with_entry("field", field)
}

fn distinct_slots(field: &str, slots: Vec<NodeSlot>, name: impl Fn(NodeSlot) -> String) -> RpcResult<Vec<NodeSlot>> {
    let mut seen = BTreeSet::new();
    match slots.iter().find(|slot| !seen.insert(**slot)) {
        Some(twice) => {
            let message = format!("{field}: `{}` is named twice", name(*twice));
            Err(CallError::new(ErrorCode::NodeDuplicate, message).with_entry("field", field))
        }
        None => Ok(slots),
    }
}

fn bitmap_slots(field: &str, bitmap: &[u8], length: NodeSlot) -> RpcResult<Vec<NodeSlot>> {
    let mut slots = Vec::new();
    for (byte, bits) in bitmap.iter().enumerate().filter(|(_, bits)| **bits != 0) {
        // Checked before the slots are collected: a long bitmap must not become a list 32 times as long.
        let first = NodeSlot::try_from(byte).ok().and_then(|byte| byte.checked_mul(8));
        let Some(first) = first.filter(|first| *first < length) else {
            let message = format!("{field}: the node table has {length} slots, and the bitmap names later ones");
            return Err(CallError::new(ErrorCode::NodeUnknown, message).with_entry("field", field));
        };
        slots.extend((0..8).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    Ok(slots)
}

/// Name of a node; empty if it does not exist.
pub(super) fn name_of(cluster_state: &ClusterState, slot: NodeSlot) -> &str {
    cluster_state.node(slot).map_or("", |entry| &entry.record.name)
}

/// Encoding of nodes in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeEncoding {
    /// Node names, such as `gpu-node-7`.
    Names,
    /// Slots of the node table, as lists or bitmaps.
    Slots,
}

impl NodeEncoding {
    /// Limit of the task-node pairs in a response, with its name.
    pub(super) fn pair_limit(self, limits: &EdgeLimits) -> (&'static str, usize) {
        match self {
            Self::Names => ("named_pairs", limits.named_pairs),
            Self::Slots => ("slot_pairs", limits.slot_pairs),
        }
    }
}

/// Writer of node sets of a cluster state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSetWriter<'a> {
    /// State that has the nodes.
    pub(crate) state: &'a ClusterState,
    /// Encoding from the request.
    pub(crate) encoding: NodeEncoding,
}

impl<'a> NodeSetWriter<'a> {
    /// Writer of a state's nodes, in the encoding from the request.
    pub(crate) fn new(state: &'a ClusterState, encoding: NodeEncoding) -> Self {
        Self { state, encoding }
    }

    /// Nodes as a list, in its order.
    pub(crate) fn list(self, slots: &[NodeSlot]) -> pb::NodeSet {
        match self.encoding {
            NodeEncoding::Names => self.names(slots.iter().copied()),
            NodeEncoding::Slots => pb::NodeSet {
                slots: slots.to_vec(),
                ..pb::NodeSet::default()
            },
        }
    }

    /// Nodes as a set: sorted names, or a bitmap.
    pub(crate) fn set(self, slots: &[NodeSlot]) -> pb::NodeSet {
        match self.encoding {
            NodeEncoding::Names => self.names(self.order(slots).into_iter().filter_map(|i| slots.get(i).copied())),
            NodeEncoding::Slots => pb::NodeSet {
                bitmap: bitmap(slots).into(),
                ..pb::NodeSet::default()
            },
        }
    }

    /// Positions of the slots in the order of a set: by name, or by slot.
    pub(crate) fn order(self, slots: &[NodeSlot]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..slots.len()).collect();
        let slot = |i: usize| slots.get(i).copied().unwrap_or_default();
        let ranks = self.state.ranks();
        match self.encoding {
            NodeEncoding::Slots => order.sort_unstable_by_key(|i| slot(*i)),
            NodeEncoding::Names if ranks.len() == self.state.slots() as usize => {
                order.sort_unstable_by_key(|i| ranks.get(slot(*i) as usize));
            }
            NodeEncoding::Names => order.sort_unstable_by_key(|i| name_of(self.state, slot(*i))),
        }
        order
    }

    fn names(self, slots: impl Iterator<Item = NodeSlot>) -> pb::NodeSet {
        pb::NodeSet {
            names: slots.map(|slot| name_of(self.state, slot).to_owned()).collect(),
            ..pb::NodeSet::default()
        }
    }
}

/// Bitmap of slots.
pub(in crate::server) fn bitmap(slots: &[NodeSlot]) -> Vec<u8> {
    let length = slots.iter().max().map_or(0, |last| *last as usize / 8 + 1);
    let mut bytes = vec![0; length];
    // Usually these are all nodes: whole bytes are written at once.
    let is_run = slots.is_sorted()
        && slots.first() == Some(&0)
        && slots.last().map(|last| *last as usize + 1) == Some(slots.len());
    if is_run {
        bytes.fill(u8::MAX);
        if let (Some(last), 1..8) = (bytes.last_mut(), slots.len() % 8) {
            *last = u8::MAX >> (8 - slots.len() % 8);
        }
        return bytes;
    }
    for slot in slots {
        if let Some(byte) = bytes.get_mut(*slot as usize / 8) {
            *byte |= 1u8 << (slot % 8);
        }
    }
    bytes
}
