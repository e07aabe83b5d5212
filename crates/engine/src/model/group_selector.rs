//! Groups of a job's tasks, found by their labels (Volcano ed72c7c81, `pkg/scheduler/api/sub_job_info.go`).

use std::sync::Arc;

use super::constraints::SelectorRequirement;
use crate::held_bytes::held_bytes;

/// Most bytes of a group's values; longer ones are cut to a hash.
const MAX_VALUE_BYTES: usize = 128;

/// Tasks that a policy about groups is about, and the labels that tell the groups apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSelector {
    demands: Vec<SelectorRequirement>,
    match_label_keys: Vec<Arc<str>>,
}

held_bytes! { interned GroupSelector { demands, match_label_keys } }

impl GroupSelector {
    /// Selector of every task with these labels. `None`: the list of labels is empty.
    pub fn new(match_label_keys: Vec<Arc<str>>) -> Option<Self> {
        (!match_label_keys.is_empty()).then_some(Self {
            demands: Vec::new(),
            match_label_keys,
        })
    }

    /// Adds a demand on a label, by the operators of Kubernetes.
    pub fn require(&mut self, key: Arc<str>, operator: Arc<str>, values: Vec<Arc<str>>) {
        self.demands.push(SelectorRequirement { key, operator, values });
    }

    /// Group of a task with these labels: name of the policy, `/`, and the values of its labels. `None`: the policy is not
    /// about the task.
    pub fn group_of<'l>(&self, policy: &str, label: &dyn Fn(&str) -> Option<&'l str>) -> Option<String> {
        // A selector that the reference cannot read matches nothing.
        let is_read = |own: &SelectorRequirement| matches!(&*own.operator, "In" | "NotIn" | "Exists" | "DoesNotExist");
        let mut demands = self.demands.iter();
        if !demands.all(|own| is_read(own) && own.is_met_by(label(&own.key))) {
            return None;
        }
        let value = |key: &Arc<str>| label(key).filter(|value| !value.is_empty());
        let values: Option<Vec<&str>> = self.match_label_keys.iter().map(value).collect();
        let mut values = values?.join("-");
        if values.len() > MAX_VALUE_BYTES {
            values = format!("{:08x}", fnv32a(&values));
        }
        Some(format!("{policy}/{values}"))
    }

    /// Demands, as keys, operators and values.
    pub fn demands(&self) -> impl Iterator<Item = (&str, &str, &[Arc<str>])> {
        let demands = self.demands.iter();
        demands.map(|demand| (&*demand.key, &*demand.operator, demand.values.as_slice()))
    }

    /// Labels whose values tell the groups apart.
    pub fn match_label_keys(&self) -> &[Arc<str>] {
        &self.match_label_keys
    }

    /// Bytes that the selector holds beyond its own size.
    pub fn text_bytes(&self) -> usize {
        let texts = |list: &[Arc<str>]| size_of_val(list) + list.iter().map(|text| text.len()).sum::<usize>();
        let demands = self.demands.iter();
        let demands = demands.map(|own| own.key.len() + own.operator.len() + texts(&own.values));
        size_of_val(&*self.demands) + demands.sum::<usize>() + texts(&self.match_label_keys)
    }
}

/// Hash of a text by FNV-1a.
fn fnv32a(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}
