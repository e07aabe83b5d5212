//! Copies of a chunk are independent: their ports, labels, taints and images equal the values of a chunk with the same
//! entries, in any order of queries.

use std::sync::Arc;

use proptest::prelude::*;

use super::NodeChunk;
use crate::model::constraints::{
    HostPort, NodeImage, NodeProperties, NodeSelectorTerm, PodConstraints, SelectorRequirement, Taint, TaintEffect,
};
use crate::model::node::NodeEntry;
use crate::model::{NodeMask, NodeRecord, NodeUsage, TaskFields, TaskRecord, TaskStatus};

/// Number of nodes.
const NODES: usize = 3;

/// Content of a node: its label, whether it is tainted, its image, and the ports of its tasks.
type ShownNode = Option<(u8, bool, u8, Vec<i32>)>;

#[derive(Clone, Debug)]
enum CopyStep {
    /// Copies the chunk of this number.
    Copy(usize),
    /// Changes a node of a chunk.
    Change(usize, usize, ShownNode),
    /// Asks a chunk.
    Ask(usize),
}

fn port(number: i32) -> HostPort {
    HostPort {
        protocol: Arc::default(),
        host_ip: Arc::default(),
        port: number,
    }
}

fn entry(at: usize, (label, is_tainted, image, ports): (u8, bool, u8, Vec<i32>)) -> Arc<NodeEntry> {
    let taint = Taint {
        key: "closed".into(),
        value: Arc::default(),
        effect: TaintEffect::NoSchedule,
    };
    let properties = NodeProperties {
        taints: is_tainted.then_some(taint).into_iter().collect(),
        images: vec![NodeImage {
            names: vec![format!("i{image}").into()],
            size_bytes: 1,
        }],
        ..NodeProperties::default()
    };
    let record = NodeRecord {
        name: format!("n{at}").into(),
        labels: Arc::new([("zone".into(), label.to_string().into())]),
        properties: Some(Arc::new(properties)),
        ..NodeRecord::default()
    };
    let mut usage = NodeUsage::default();
    for number in ports {
        let constraints = PodConstraints {
            host_ports: vec![port(number)],
            ..PodConstraints::default()
        };
        let task = TaskRecord::from(TaskFields {
            status: TaskStatus::Running,
            constraints: Some(Arc::new(constraints)),
            ..TaskFields::default()
        });
        usage.count_task(&task, true);
    }
    Arc::new(NodeEntry {
        record: Arc::new(record),
        source: "s".into(),
        usage,
        invalid: None,
        upstream: None,
    })
}

/// All answers of a chunk.
fn results(chunk: &NodeChunk) -> Vec<NodeMask> {
    let in_zone = |zone: u8| NodeSelectorTerm {
        match_expressions: vec![SelectorRequirement {
            key: "zone".into(),
            operator: "In".into(),
            values: vec![zone.to_string().into()],
        }],
        match_fields: Vec::new(),
    };
    let attributes = chunk.attributes();
    let mut all = vec![
        attributes
            .select_taints(|taints| taints.iter().any(Taint::rejects))
            .and(chunk.live()),
    ];
    for number in 0..3_u8 {
        all.push(attributes.matching(&in_zone(number)).and(chunk.live()));
        all.push(chunk.images().with_image(&format!("i{number}")).and(chunk.live()));
        all.extend(chunk.with_conflicting_ports(&[port(i32::from(number))]));
    }
    all
}

fn steps() -> impl Strategy<Value = Vec<CopyStep>> {
    let node = prop::option::weighted(
        0.9,
        (0_u8..3, any::<bool>(), 0_u8..3, prop::collection::vec(0..3_i32, 0..2)),
    );
    let chunk = 0..8_usize;
    let step = prop_oneof![
        2 => chunk.clone().prop_map(CopyStep::Copy),
        4 => (chunk.clone(), 0..NODES, node).prop_map(|(chunk, at, node)| CopyStep::Change(chunk, at, node)),
        2 => chunk.prop_map(CopyStep::Ask),
    ];
    prop::collection::vec(step, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn copies_show_their_own_content(steps in steps()) {
        let mut chunks = vec![NodeChunk::default()];
        for step in steps {
            match step {
                CopyStep::Copy(of) => {
                    let copy = chunks[of % chunks.len()].clone();
                    chunks.push(copy);
                }
                CopyStep::Change(of, at, node) => {
                    let of = of % chunks.len();
                    chunks[of].set_entry(at, node.map(|node| entry(at, node)));
                }
                CopyStep::Ask(of) => {
                    let _ = results(&chunks[of % chunks.len()]);
                }
            }
        }
        for chunk in &chunks {
            let mut rebuilt = NodeChunk::default();
            for offset in chunk.live().iter() {
                rebuilt.set_entry(offset, chunk.entry(offset).cloned());
            }
            prop_assert_eq!(results(chunk), results(&rebuilt));
        }
    }
}
