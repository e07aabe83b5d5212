//! Labels and taints of the nodes of a chunk in columns: a selector is matched value by value instead of node by node.
//! For example, `zone in (a, b)` compares each distinct zone once. The columns are computed at the first query, and
//! again after a node with other labels or taints arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::NodeChunk;
use crate::held_bytes::{HeldMemory, held_bytes};
use crate::model::constraints::{NodeSelectorTerm, SelectorRequirement, Taint};
use crate::model::mask::{CHUNK_SIZE, NodeMask};
use crate::model::node::NodeEntry;
use crate::model::text_map::TextMap;

/// Labels, taints and cordons of the nodes of a chunk.
#[derive(Clone, Debug, Default)]
pub struct ChunkAttributes {
    /// Columns of labels, sorted by key.
    labels: Vec<AttributeColumn<Arc<str>, Arc<str>>>,
    /// Lists of taints. A node without taints has none.
    taints: AttributeColumn<(), Arc<[Taint]>>,
    /// Cordoned nodes.
    cordoned: NodeMask,
    /// Names of the nodes, for requirements on fields.
    names: Vec<(Arc<str>, u8)>,
}

held_bytes! { ChunkAttributes { labels, taints, names; cordoned } }

/// Values of one attribute in a chunk, each once, and the number of each node's value.
#[derive(Clone, Debug)]
struct AttributeColumn<K, V> {
    key: K,
    values: Vec<V>,
    present: NodeMask,
    numbers: [u8; CHUNK_SIZE],
}

impl<K: HeldMemory, V: HeldMemory> HeldMemory for AttributeColumn<K, V> {
    fn held_bytes(&self, _: Option<&Self>) -> usize {
        self.key.held_bytes(None) + self.values.held_bytes(None)
    }
}

impl<K: Default, V> Default for AttributeColumn<K, V> {
    fn default() -> Self {
        Self::new(K::default())
    }
}

impl<K, V> AttributeColumn<K, V> {
    fn new(key: K) -> Self {
        Self {
            key,
            values: Vec::new(),
            present: NodeMask::NONE,
            numbers: [0; CHUNK_SIZE],
        }
    }

    /// Sets the value of a node. `position` finds it among the values; an error is the place where it is inserted.
    fn set(&mut self, offset: usize, position: Result<usize, usize>, value: impl FnOnce() -> V) {
        let number = position.unwrap_or_else(|place| {
            self.values.insert(place, value());
            for (at, number) in self.numbers.iter_mut().enumerate() {
                if self.present.get(at) && usize::from(*number) >= place {
                    *number += 1;
                }
            }
            place
        });
        self.present.set(offset, true);
        if let Some(place) = self.numbers.get_mut(offset) {
            *place = u8::try_from(number).unwrap_or(u8::MAX);
        }
    }

    fn value(&self, offset: usize) -> Option<&V> {
        let number = self.numbers.get(offset).filter(|_| self.present.get(offset))?;
        self.values.get(usize::from(*number))
    }

    /// Nodes whose value is accepted; each value is asked about once.
    fn select(&self, accepts: impl Fn(&V) -> bool) -> NodeMask {
        let mut accepted = [false; CHUNK_SIZE];
        let mut any = false;
        for (place, value) in accepted.iter_mut().zip(&self.values) {
            *place = accepts(value);
            any |= *place;
        }
        if any { self.gather(&accepted) } else { NodeMask::NONE }
    }

    /// Fills in a number for the value of each node, 0 for a node without one; each value is asked about once.
    fn map(&self, number: impl Fn(&V) -> f64, numbers: &mut [f64; CHUNK_SIZE]) {
        let mut of_values = [0.0; CHUNK_SIZE];
        for (place, value) in of_values.iter_mut().zip(&self.values) {
            *place = number(value);
        }
        for (offset, (place, value)) in numbers.iter_mut().zip(&self.numbers).enumerate() {
            let own = of_values.get(usize::from(*value)).copied().unwrap_or(0.0);
            *place = if self.present.get(offset) { own } else { 0.0 };
        }
    }

    /// Nodes by the number of their value, in order; each value is asked about once. Values without a number are left out.
    fn group(&self, number: impl Fn(&V) -> Option<u16>) -> BTreeMap<u16, NodeMask> {
        let of_values: Vec<Option<u16>> = self.values.iter().map(number).collect();
        let mut groups: BTreeMap<u16, NodeMask> = BTreeMap::new();
        for offset in self.present.iter() {
            let value = self
                .numbers
                .get(offset)
                .and_then(|value| *of_values.get(usize::from(*value))?);
            if let Some(number) = value {
                groups.entry(number).or_insert(NodeMask::NONE).set(offset, true);
            }
        }
        groups
    }

    fn gather(&self, accepted: &[bool; CHUNK_SIZE]) -> NodeMask {
        let of = |number: &u8| accepted.get(usize::from(*number)).copied().unwrap_or_default();
        let mut found = [false; CHUNK_SIZE];
        for (place, number) in found.iter_mut().zip(&self.numbers) {
            *place = of(number);
        }
        NodeMask::from_bools(&found).and(&self.present)
    }
}

impl AttributeColumn<Arc<str>, Arc<str>> {
    /// Nodes that meet a valid requirement on this label; those without the label are not among them.
    fn meet(&self, requirement: &SelectorRequirement) -> NodeMask {
        let is_list = matches!(&*requirement.operator, "In" | "NotIn");
        if !is_list || self.values.len() <= requirement.values.len() {
            return self.select(|value| requirement.is_met_by(Some(value)));
        }
        // Fewer values are listed than the chunk has: the listed ones are looked up.
        let is_in = *requirement.operator == *"In";
        let mut accepted = [!is_in; CHUNK_SIZE];
        for value in &requirement.values {
            let found = self.values.binary_search_by(|own| own.as_ref().cmp(value));
            if let Some(place) = found.ok().and_then(|at| accepted.get_mut(at)) {
                *place = is_in;
            }
        }
        self.gather(&accepted)
    }
}

impl ChunkAttributes {
    /// Attributes of the nodes of a chunk.
    pub(in crate::model) fn of(chunk: &NodeChunk) -> Self {
        let mut own = Self::default();
        for offset in chunk.live().iter() {
            if let Some(entry) = chunk.entry(offset) {
                own.set(offset, entry);
            }
        }
        own.names.sort_unstable();
        own
    }

    fn set(&mut self, offset: usize, entry: &NodeEntry) {
        let record = &entry.record;
        self.cordoned.set(offset, record.unschedulable);
        self.names
            .push((Arc::clone(&record.name), u8::try_from(offset).unwrap_or(u8::MAX)));
        for (key, value) in record.labels.iter() {
            let at = match self.labels.binary_search_by(|column| column.key.cmp(key)) {
                Ok(at) => at,
                Err(at) => {
                    self.labels.insert(at, AttributeColumn::new(Arc::clone(key)));
                    at
                }
            };
            if let Some(column) = self.labels.get_mut(at) {
                let position = column.values.binary_search(value);
                column.set(offset, position, || Arc::clone(value));
            }
        }
        let taints = record.taints();
        if !taints.is_empty() {
            let position = self.taints.values.binary_search_by(|own| (**own).cmp(taints));
            self.taints.set(offset, position, || taints.into());
        }
    }

    /// True if the columns show this node at `offset` as it is.
    pub(in crate::model) fn shows(&self, offset: usize, entry: &NodeEntry) -> bool {
        let record = &entry.record;
        let shown = self.labels.iter().filter(|column| column.present.get(offset)).count();
        let same_label = |key: &Arc<str>, value: &Arc<str>| self.label(key, offset).is_some_and(|own| *own == **value);
        let number = u8::try_from(offset).unwrap_or(u8::MAX);
        shown == record.labels.len()
            && record.labels.iter().all(|(key, value)| same_label(key, value))
            && self.taints(offset) == record.taints()
            && self.cordoned.get(offset) == record.unschedulable
            && self.offset_of(&record.name) == Some(number)
    }

    fn offset_of(&self, name: &str) -> Option<u8> {
        let at = self.names.binary_search_by(|(own, _)| own.as_ref().cmp(name)).ok()?;
        self.names.get(at).map(|(_, offset)| *offset)
    }

    fn column(&self, key: &str) -> Option<&AttributeColumn<Arc<str>, Arc<str>>> {
        let at = self
            .labels
            .binary_search_by(|column| column.key.as_ref().cmp(key))
            .ok()?;
        self.labels.get(at)
    }

    /// Value of a label of the node at `offset`.
    pub fn label(&self, key: &str, offset: usize) -> Option<&str> {
        self.column(key)?.value(offset).map(|value| &**value)
    }

    /// Nodes that have a label with a value that is selected.
    pub fn select_label(&self, key: &str, select: impl Fn(&str) -> bool) -> NodeMask {
        let column = self.column(key);
        column.map_or(NodeMask::NONE, |column| column.select(|value| select(value)))
    }

    /// Fills in a number for the value of a label at each node; 0 at nodes without the label.
    pub fn map_label(&self, key: &str, of_value: impl Fn(&str) -> f64, numbers: &mut [f64; CHUNK_SIZE]) {
        match self.column(key) {
            Some(column) => column.map(|value| of_value(value), numbers),
            None => numbers.fill(0.0),
        }
    }

    /// Nodes that have a label.
    pub fn with_label(&self, key: &str) -> NodeMask {
        self.column(key).map_or(NodeMask::NONE, |column| column.present)
    }

    /// Nodes by the number of a label's value, in order. Values without a number are left out.
    pub fn group_label(&self, key: &str, number: impl Fn(&str) -> Option<u16>) -> BTreeMap<u16, NodeMask> {
        let column = self.column(key);
        column.map_or_else(BTreeMap::new, |column| column.group(|value| number(value)))
    }

    /// Values of a label, each once.
    pub fn label_values(&self, key: &str) -> impl Iterator<Item = &Arc<str>> {
        self.column(key).into_iter().flat_map(|column| &column.values)
    }

    /// Taints of the node at `offset`.
    pub fn taints(&self, offset: usize) -> &[Taint] {
        self.taints.value(offset).map_or(&[], |taints| taints)
    }

    /// Lists of taints that nodes have, each once.
    pub fn taint_lists(&self) -> impl Iterator<Item = &[Taint]> {
        self.taints.values.iter().map(|taints| &**taints)
    }

    /// Nodes whose list of taints is selected; nodes without taints are not among them.
    pub fn select_taints(&self, select: impl Fn(&[Taint]) -> bool) -> NodeMask {
        self.taints.select(|taints| select(taints))
    }

    /// Nodes by the number of their list of taints, in order. Lists without a number are left out.
    pub fn group_taints(&self, number: impl Fn(&[Taint]) -> Option<u16>) -> BTreeMap<u16, NodeMask> {
        self.taints.group(|taints| number(taints))
    }

    /// Fills in a number for the list of taints of each node, 0 at nodes without taints; or returns the number of all these
    /// nodes, which are the live ones.
    pub fn map_taints(
        &self,
        live: &NodeMask,
        of_list: impl Fn(&[Taint]) -> f64,
        numbers: &mut [f64; CHUNK_SIZE],
    ) -> Option<f64> {
        match &*self.taints.values {
            [] => return Some(0.0),
            [only] if live.and_not(&self.taints.present).is_empty() => return Some(of_list(only)),
            _ => self.taints.map(|taints| of_list(taints), numbers),
        }
        None
    }

    /// Cordoned nodes.
    pub fn cordoned(&self) -> &NodeMask {
        &self.cordoned
    }

    /// Nodes that have all these labels. Places without a node may be among them, so for all masks here.
    pub fn with_labels(&self, labels: &TextMap) -> NodeMask {
        labels.iter().fold(NodeMask::ALL, |left, (key, value)| {
            let column = self.column(key);
            let equal = column.map_or(NodeMask::NONE, |column| column.select(|own| own == value));
            left.and(&equal)
        })
    }

    /// Nodes that match a term, which is valid and not empty.
    pub fn matching(&self, term: &NodeSelectorTerm) -> NodeMask {
        let mut left = NodeMask::ALL;
        for requirement in &term.match_expressions {
            let column = self.column(&requirement.key);
            let present = column.map_or(NodeMask::NONE, |column| column.present);
            let met = column.map_or(NodeMask::NONE, |column| column.meet(requirement));
            let absent_meets = requirement.is_met_by(None);
            let met = if absent_meets {
                met.or(&NodeMask::ALL.and_not(&present))
            } else {
                met
            };
            left = left.and(&met);
        }
        if term.match_fields.is_empty() {
            return left;
        }
        let mut named = NodeMask::NONE;
        for (name, offset) in &self.names {
            if term.fields_match(name) {
                named.set(usize::from(*offset), true);
            }
        }
        left.and(&named)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::constraints::{NodeLabels, NodeProperties, TaintEffect};
    use crate::model::{NodeRecord, NodeUsage};

    fn entry(record: NodeRecord) -> Arc<NodeEntry> {
        Arc::new(NodeEntry {
            record: Arc::new(record),
            source: Arc::default(),
            usage: NodeUsage::default(),
            invalid: None,
            upstream: None,
        })
    }

    fn record() -> impl Strategy<Value = NodeRecord> {
        let labels = prop::collection::btree_map(0_u8..4, 0_u16..300, 0..4);
        let taint = (0_u8..3, 0_u8..2).prop_map(|(key, effect)| Taint {
            key: format!("t{key}").into(),
            value: Arc::default(),
            effect: [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule][usize::from(effect)],
        });
        let taints = prop::collection::vec(taint, 0..3);
        (labels, taints, any::<bool>(), 0_u16..999).prop_map(|(labels, taints, unschedulable, name)| NodeRecord {
            name: format!("n{name}").into(),
            labels: labels
                .into_iter()
                .map(|(key, value)| (format!("k{key}").into(), value.to_string().into()))
                .collect(),
            unschedulable,
            properties: (!taints.is_empty()).then(|| {
                Arc::new(NodeProperties {
                    taints,
                    ..NodeProperties::default()
                })
            }),
            ..NodeRecord::default()
        })
    }

    fn requirement() -> impl Strategy<Value = SelectorRequirement> {
        let operator = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
        (0_u8..5, operator, prop::collection::vec(0_u16..300, 1..4)).prop_map(|(key, operator, mut values)| {
            match operator {
                "Exists" | "DoesNotExist" => values.clear(),
                "Gt" | "Lt" => values.truncate(1),
                _ => {}
            }
            SelectorRequirement {
                key: format!("k{key}").into(),
                operator: operator.into(),
                values: values.iter().map(|value| value.to_string().into()).collect(),
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn columns_match_like_records(
            records in prop::collection::vec(prop::option::weighted(0.9, record()), 0..CHUNK_SIZE),
            changes in prop::collection::vec((0..CHUNK_SIZE, prop::option::of(record())), 0..4),
            match_expressions in prop::collection::vec(requirement(), 0..3),
            fields in prop::collection::vec((any::<bool>(), 0_u16..999), 0..2),
        ) {
            let term = NodeSelectorTerm {
                match_expressions,
                match_fields: fields
                    .into_iter()
                    .map(|(is_in, name)| SelectorRequirement {
                        key: "metadata.name".into(),
                        operator: if is_in { "In" } else { "NotIn" }.into(),
                        values: vec![format!("n{name}").into()],
                    })
                    .collect(),
            };
            let mut chunk = NodeChunk::default();
            // Names are unique in a node table.
            let unique = |at: usize, record: NodeRecord| NodeRecord { name: format!("n{at}").into(), ..record };
            for (at, record) in records.into_iter().enumerate() {
                chunk.set_entry(at, record.map(|record| entry(unique(at, record))));
            }
            let _ = chunk.attributes();
            for (at, record) in changes {
                chunk.set_entry(at, record.map(|record| entry(unique(at, record))));
            }
            let attributes = chunk.attributes();
            let matching = attributes.matching(&term);
            for offset in chunk.live().iter() {
                let record = &chunk.entry(offset).unwrap().record;
                let node = NodeLabels { name: &record.name, labels: &record.labels };
                let expected = term.is_empty() || term.matches(node);
                prop_assert_eq!(matching.get(offset), expected, "{:?} {:?}", record, term);
                prop_assert_eq!(attributes.taints(offset), record.taints());
                prop_assert_eq!(attributes.cordoned().get(offset), record.unschedulable);
                prop_assert_eq!(attributes.with_labels(&record.labels).get(offset), true);
                for (key, value) in record.labels.iter() {
                    let nodes = attributes.select_label(key, |own| *own == **value);
                    prop_assert!(nodes.get(offset));
                }
            }
            let number = |taints: &[Taint]| u16::try_from(taints.len()).ok().filter(|count| *count > 1);
            let groups = attributes.group_taints(number);
            for offset in chunk.live().iter() {
                let numbers = groups.iter().filter(|(_, nodes)| nodes.get(offset)).map(|(number, _)| *number);
                let taints = chunk.entry(offset).unwrap().record.taints();
                prop_assert_eq!(numbers.collect::<Vec<_>>(), Vec::from_iter(number(taints)));
            }
            let rejected = attributes.select_taints(|taints| taints.iter().any(Taint::rejects));
            for offset in chunk.live().iter() {
                let record = &chunk.entry(offset).unwrap().record;
                prop_assert_eq!(rejected.get(offset), record.taints().iter().any(Taint::rejects));
            }
        }
    }
}
