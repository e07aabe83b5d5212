//! Rules that differ under `corrected`, and inheritance. The recorded answers of the reference cover `upstream`.

use std::sync::Arc;

use super::group_rules::{group_scores, permits};
use super::*;
use crate::model::{NodeGroupLists, SortedTable};

fn lists(required: &[&str], preferred: &[&str]) -> NodeGroupLists {
    let shared = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
    NodeGroupLists {
        required: shared(required),
        preferred: shared(preferred),
    }
}

fn affinity(affinity: NodeGroupLists, anti_affinity: NodeGroupLists) -> QueueAffinity {
    QueueAffinity {
        affinity,
        anti_affinity,
    }
}

#[test]
fn a_required_anti_affinity_holds_always() {
    let both = affinity(lists(&["a"], &[]), lists(&["b"], &["b"]));
    assert!(permits(&both, "b", Compatibility::UPSTREAM));
    assert!(!permits(&both, "b", Compatibility::Corrected));
    for compatibility in Compatibility::KINDS {
        assert!(permits(&both, "a", compatibility) && !permits(&both, "c", compatibility));
    }
}

#[test]
fn an_anti_affinity_alone_bans_its_own_groups_only() {
    let anti = affinity(lists(&[], &[]), lists(&["b"], &[]));
    for group in ["a", "b"] {
        assert!(!permits(&anti, group, Compatibility::UPSTREAM));
    }
    assert!(permits(&anti, "a", Compatibility::Corrected));
    assert!(!permits(&anti, "b", Compatibility::Corrected));
}

#[test]
fn a_repeated_group_counts_once() {
    let repeated = affinity(lists(&[], &["a", "b", "b", "b", "a"]), lists(&[], &[]));
    let scores = |compatibility| {
        let scores = group_scores(&repeated, true, compatibility);
        ["a", "b"].map(|group| scores.get(group).copied().unwrap_or_default())
    };
    assert_eq!(scores(Compatibility::UPSTREAM), [-50.0, -25.0], "the last place counts");
    assert_eq!(scores(Compatibility::Corrected), [50.0, 25.0]);
}

#[test]
fn queues_inherit_from_the_nearest_ancestor() {
    let mut state = ClusterState::new(Arc::new(SortedTable::default()), 1);
    let own = |group: &str| Some(Arc::new(affinity(lists(&[group], &[]), lists(&[], &[]))));
    let queues: [(&str, &str, Option<Arc<QueueAffinity>>); 7] = [
        ("root", "", own("r")),
        ("plain", "", None),
        ("parent", "", own("p")),
        ("child", "parent", None),
        ("empty", "parent", Some(Arc::default())),
        ("cycle-1", "cycle-2", None),
        ("cycle-2", "cycle-1", None),
    ];
    for (name, parent, affinity) in queues {
        let record = QueueRecord {
            name: name.into(),
            parent: parent.into(),
            affinity,
            ..QueueRecord::default()
        };
        state.put_queue(record, &Arc::from("s"));
    }
    let of = |name: &str, inherits: bool| {
        let found = queue_affinity(&state, name, inherits)?;
        Some(found.affinity.required.first().map(ToString::to_string))
    };
    let some = |group: &str| Some(Some(group.to_owned()));
    assert_eq!(of("plain", true), some("r"));
    assert_eq!(of("child", true), some("p"));
    assert_eq!(of("child", false), None);
    assert_eq!(of("empty", true), Some(None), "an empty affinity is one of its own");
    assert_eq!(of("cycle-1", true), None);
    assert_eq!(of("missing", true), None);
}
