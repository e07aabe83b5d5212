//! Slices of nodes, with what they say about each node as they come, change and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pumice_engine::devices::MAX_DEVICES;
use pumice_protocol::v1 as pb;

/// Slice with the devices of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeSlice {
    pub(super) node: String,
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) generation: i64,
    pub(super) devices: Vec<SliceDevice>,
}

impl NodeSlice {
    fn pool_name(&self) -> PoolName {
        (self.driver.clone(), self.pool.clone())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SliceDevice {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) memory_mib: u32,
}

/// Driver of a pool, and its name.
type PoolName = (String, String);

/// Device of a node with its driver and pool; devices of a node are numbered in this order.
pub(super) type DeviceKey<'a> = (&'a str, &'a str, (&'a str, u64));

/// Devices of a node in the order of their numbers.
pub(super) type NumberedDevices<'a> = BTreeMap<DeviceKey<'a>, &'a SliceDevice>;

/// Slices of single nodes. Only the latest generation of each pool is used.
#[derive(Debug, Default)]
pub(super) struct NodeSlices {
    slices: BTreeMap<Arc<str>, NodeSlice>,
    /// Slices of each pool by generation.
    pools: BTreeMap<PoolName, BTreeMap<i64, BTreeSet<Arc<str>>>>,
    /// Names of slices, by the name of their node.
    nodes: BTreeMap<String, BTreeSet<Arc<str>>>,
}

/// Node whose devices changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChangedNode {
    pub(super) name: String,
    /// True if the record of the node has other devices.
    pub(super) has_other_record: bool,
}

impl NodeSlices {
    pub(super) fn get(&self, name: &str) -> Option<&NodeSlice> {
        self.slices.get(name)
    }

    /// Nodes with slices.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Puts a slice in the place of an earlier one of its name; `None` removes that. Returns the nodes whose devices changed.
    pub(super) fn set(&mut self, name: &str, slice: Option<NodeSlice>) -> Vec<ChangedNode> {
        let former = self.slices.get(name);
        if former == slice.as_ref() {
            return Vec::new();
        }
        let nodes = self.affected_nodes(former, slice.as_ref());
        let before: Vec<_> = nodes.iter().map(|node| self.summary(node)).collect();
        self.remove(name);
        if let Some(slice) = slice {
            self.insert(name.into(), slice);
        }
        let changed = nodes.into_iter().zip(before).filter_map(|(name, before)| {
            let after = self.summary(&name);
            let has_other_record = before.0 != after.0;
            (before != after).then_some(ChangedNode { name, has_other_record })
        });
        changed.collect()
    }

    /// Nodes whose devices may change: nodes of the changed slices, and nodes whose slices become or cease to be the
    /// latest generation.
    fn affected_nodes(&self, former: Option<&NodeSlice>, slice: Option<&NodeSlice>) -> BTreeSet<String> {
        let mut nodes = BTreeSet::new();
        let mut add = |slices: &BTreeSet<Arc<str>>| {
            let slices = slices.iter().filter_map(|name| self.slices.get(name));
            nodes.extend(slices.map(|slice| slice.node.clone()));
        };
        if let Some(slice) = slice
            && let Some((latest, slices)) = self.pools.get(&slice.pool_name()).and_then(BTreeMap::last_key_value)
            && slice.generation > *latest
        {
            add(slices);
        }
        if let Some(former) = former
            && let Some(generations) = self.pools.get(&former.pool_name())
        {
            let mut latest = generations.iter().rev();
            let is_last = latest
                .next()
                .is_some_and(|(latest, slices)| *latest == former.generation && slices.len() == 1);
            if let Some((_, next)) = latest.next().filter(|_| is_last) {
                add(next);
            }
        }
        nodes.extend([former, slice].into_iter().flatten().map(|slice| slice.node.clone()));
        nodes
    }

    fn insert(&mut self, name: Arc<str>, slice: NodeSlice) {
        let generations = self.pools.entry(slice.pool_name()).or_default();
        generations
            .entry(slice.generation)
            .or_default()
            .insert(Arc::clone(&name));
        let of_node = self.nodes.entry(slice.node.clone()).or_default();
        of_node.insert(Arc::clone(&name));
        self.slices.insert(name, slice);
    }

    fn remove(&mut self, name: &str) {
        let Some(slice) = self.slices.remove(name) else { return };
        let pool = slice.pool_name();
        if let Some(generations) = self.pools.get_mut(&pool) {
            remove_member(generations, &slice.generation, name);
            if generations.is_empty() {
                self.pools.remove(&pool);
            }
        }
        remove_member(&mut self.nodes, &slice.node, name);
    }

    /// Devices of a node in the order of their numbers.
    pub(super) fn devices(&self, node: &str) -> NumberedDevices<'_> {
        let mut found = BTreeMap::new();
        for name in self.nodes.get(node).into_iter().flatten() {
            let Some(slice) = self.slices.get(name) else { continue };
            let generations = self.pools.get(&slice.pool_name());
            let latest = generations.and_then(|own| own.keys().next_back());
            if latest != Some(&slice.generation) {
                continue;
            }
            for device in &slice.devices {
                let key = (&*slice.driver, &*slice.pool, numbered(&device.name));
                found.insert(key, device);
            }
        }
        found
    }

    /// Devices of a node as its record has them, and the order of their names.
    fn summary(&self, node: &str) -> (Option<pb::NodeDevices>, Vec<[String; 3]>) {
        let devices = self.devices(node);
        let names = devices
            .iter()
            .map(|((driver, pool, _), device)| [(*driver).to_owned(), (*pool).to_owned(), device.name.clone()]);
        (node_devices(&devices), names.collect())
    }
}

/// Removes a member of a set, and the set with the last one.
pub(super) fn remove_member<K: Ord, M: Ord + std::borrow::Borrow<str>>(
    sets: &mut BTreeMap<K, BTreeSet<M>>,
    key: &K,
    member: &str,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(member);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

/// Name of a device, apart from the number at its end, by which names are ordered.
pub(super) fn numbered(name: &str) -> (&str, u64) {
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(start.len()..).and_then(|digits| digits.parse().ok());
    number.map_or((name, 0), |number| (start, number))
}

/// Devices of a node's record; `None`: there are none, too many, or of several models.
pub(super) fn node_devices(devices: &NumberedDevices<'_>) -> Option<pb::NodeDevices> {
    let first = devices.values().next()?;
    let same = devices.values().all(|device| device.model == first.model);
    let memory = devices.values().map(|device| device.memory_mib).min();
    (same && devices.len() <= MAX_DEVICES).then(|| pb::NodeDevices {
        model: first.model.clone(),
        count: u32::try_from(devices.len()).unwrap_or(0),
        memory_mib: memory.unwrap_or(0),
    })
}
