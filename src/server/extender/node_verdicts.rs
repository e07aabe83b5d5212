//! Verdicts on the nodes of a filter request, and the response that they are written to.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::asked_nodes::{AskedNodes, push_text};
use pumice_engine::model::NodeSlot;

/// Reason of a node that no source has reported.
const NODE_UNKNOWN: &str = "pumice: the node is not known yet";
/// Number of the verdict on nodes that no source has reported.
const UNKNOWN: u32 = 0;
/// Number of the verdict on nodes that fit.
const FITS: u32 = 1;

/// Verdict on one node of a filter request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeVerdict {
    /// The pod may run there.
    Fits,
    /// The pod does not fit on the node now. Evictions may change that.
    Fails(Arc<str>),
    /// The pod never fits on the node, even after evictions.
    NeverFits(Arc<str>),
}

/// Verdicts on the nodes of a request. Many nodes share one.
#[derive(Debug)]
pub(super) struct RequestVerdicts {
    verdicts: Vec<NodeVerdict>,
    /// Number of its verdict, by slot.
    by_slot: Vec<u32>,
    /// Slot of each node of the request; `None`: no source has reported it.
    slots: Vec<Option<NodeSlot>>,
}

impl RequestVerdicts {
    /// Verdicts on nodes that have these slots, of so many: none of them fits.
    pub(super) fn new(slots: Vec<Option<NodeSlot>>, count: NodeSlot) -> Self {
        Self {
            verdicts: vec![NodeVerdict::Fails(NODE_UNKNOWN.into()), NodeVerdict::Fits],
            by_slot: vec![UNKNOWN; count as usize],
            slots,
        }
    }

    /// Notes that nodes fit.
    pub(super) fn accept(&mut self, slots: impl Iterator<Item = NodeSlot>) {
        self.set(FITS, slots);
    }

    /// Notes that nodes have this verdict.
    pub(super) fn reject(&mut self, verdict: NodeVerdict, slots: impl Iterator<Item = NodeSlot>) {
        let number = u32::try_from(self.verdicts.len()).unwrap_or(UNKNOWN);
        self.verdicts.push(verdict);
        self.set(number, slots);
    }

    /// Gives all nodes that fit this verdict.
    pub(super) fn reject_fitting(&mut self, verdict: NodeVerdict) {
        if let Some(fits) = self.verdicts.get_mut(FITS as usize) {
            *fits = verdict;
        }
    }

    fn set(&mut self, number: u32, slots: impl Iterator<Item = NodeSlot>) {
        for slot in slots {
            if let Some(own) = self.by_slot.get_mut(slot as usize) {
                *own = number;
            }
        }
    }

    /// Verdict on each node of the request, in its order.
    fn of_nodes(&self) -> impl Iterator<Item = Option<&NodeVerdict>> {
        self.slots.iter().map(|slot| {
            let number = slot.and_then(|slot| self.by_slot.get(slot as usize));
            self.verdicts.get(number.copied().unwrap_or(UNKNOWN) as usize)
        })
    }

    /// Response of filter. Exactly one of both lists of nodes is there, as in the request.
    pub(super) fn response(&self, nodes: &AskedNodes) -> Vec<u8> {
        let mut json = Vec::with_capacity(nodes.body_bytes());
        let fits = |verdict: Option<&NodeVerdict>| verdict == Some(&NodeVerdict::Fits);
        if let Some(whole) = nodes.whole() {
            json.extend_from_slice(br#"{"Nodes":{"metadata":{},"items":["#);
            let fitting = whole.zip(self.of_nodes()).filter(|(_, verdict)| fits(*verdict));
            push_each(&mut json, fitting, |json, (node, _)| json.extend_from_slice(node));
            json.extend_from_slice(br#"]},"NodeNames":null"#);
        } else {
            json.extend_from_slice(br#"{"Nodes":null,"NodeNames":["#);
            let fitting = nodes.names().zip(self.of_nodes()).filter(|(_, verdict)| fits(*verdict));
            push_each(&mut json, fitting, |json, (name, _)| push_text(json, name));
            json.push(b']');
        }
        let fails = |verdict: &NodeVerdict| match verdict {
            NodeVerdict::Fails(reason) => Some(Arc::clone(reason)),
            NodeVerdict::Fits | NodeVerdict::NeverFits(_) => None,
        };
        let never_fits = |verdict: &NodeVerdict| match verdict {
            NodeVerdict::NeverFits(reason) => Some(Arc::clone(reason)),
            NodeVerdict::Fits | NodeVerdict::Fails(_) => None,
        };
        json.extend_from_slice(br#","FailedNodes":{"#);
        self.push_reasons(&mut json, nodes, fails);
        json.extend_from_slice(br#"},"FailedAndUnresolvableNodes":{"#);
        self.push_reasons(&mut json, nodes, never_fits);
        json.extend_from_slice(br#"},"Error":""}"#);
        json
    }

    /// Appends the reasons of rejected nodes, each name once.
    fn push_reasons(&self, json: &mut Vec<u8>, nodes: &AskedNodes, reason: impl Fn(&NodeVerdict) -> Option<Arc<str>>) {
        let mut seen = BTreeSet::new();
        let rejected = nodes.names().zip(self.of_nodes());
        let rejected = rejected.filter_map(|(name, verdict)| Some((name, reason(verdict?)?)));
        push_each(
            json,
            rejected.filter(|(name, _)| seen.insert(*name)),
            |json, (name, reason)| {
                push_text(json, name);
                json.push(b':');
                push_text(json, &reason);
            },
        );
    }
}

/// Appends items with commas between them.
pub(super) fn push_each<T>(json: &mut Vec<u8>, items: impl Iterator<Item = T>, push: impl Fn(&mut Vec<u8>, T)) {
    for (number, item) in items.enumerate() {
        if number > 0 {
            json.push(b',');
        }
        push(json, item);
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use serde_json::{Value, json};

    use super::super::asked_nodes::read_nodes_message;
    use super::*;

    #[test]
    fn every_node_of_a_request_gets_its_verdict() {
        let names = json!({"Pod": {"metadata": {"name": "p"}}, "NodeNames": ["a", "b\"", "c", "d", "c"]});
        let item = |name: &str| json!({"metadata": {"name": name}, "spec": {"text": "\u{e9}\n"}});
        let items: Vec<Value> = ["a", "b\"", "c", "d", "c"].map(item).to_vec();
        let whole = json!({"Pod": {"metadata": {"name": "p"}}, "Nodes": {"items": items}});
        for body in [names, whole] {
            let (_, nodes) = read_nodes_message(&Bytes::from(body.to_string())).unwrap();
            let mut verdicts = RequestVerdicts::new(vec![Some(3), Some(1), None, Some(0), None], 4);
            verdicts.accept([0, 3].into_iter());
            verdicts.reject(NodeVerdict::NeverFits("why: \"not\"".into()), [1].into_iter());
            let response: Value = serde_json::from_slice(&verdicts.response(&nodes)).unwrap();
            assert_eq!(response["FailedNodes"], json!({"c": NODE_UNKNOWN}));
            assert_eq!(response["FailedAndUnresolvableNodes"], json!({"b\"": "why: \"not\""}));
            if body["Nodes"].is_null() {
                assert_eq!(
                    (&response["NodeNames"], &response["Nodes"]),
                    (&json!(["a", "d"]), &Value::Null)
                );
            } else {
                assert_eq!(response["Nodes"]["items"], json!([items[0], items[3]]));
                assert_eq!(response["NodeNames"], Value::Null);
            }
            verdicts.reject_fitting(NodeVerdict::Fails("full".into()));
            let response: Value = serde_json::from_slice(&verdicts.response(&nodes)).unwrap();
            assert_eq!(
                response["FailedNodes"],
                json!({"a": "full", "d": "full", "c": NODE_UNKNOWN})
            );
        }
    }
}
