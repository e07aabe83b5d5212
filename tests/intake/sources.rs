//! Sources: positions, epochs, owners, and records that cannot be read.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{amounts, delta, full_sync, full_sync_part, hypothetical_task, node, nodes};
use crate::support::wire::BlockingClients;

fn names(wire: &BlockingClients) -> Vec<String> {
    let reply = wire.list_nodes(pb::ListNodesRequest::default()).unwrap();
    reply
        .nodes
        .into_iter()
        .filter_map(|status| status.node)
        .map(|node| node.name)
        .collect()
}

fn one(name: &str) -> pb::Cluster {
    nodes(vec![node(name, &[("cpu", "8")])])
}

fn resync(outcome: &pb::BatchOutcome) -> &str {
    outcome.resync.as_ref().map_or("", |resync| &resync.reason)
}

fn position(outcome: &pb::BatchOutcome) -> (u64, u64) {
    let position = outcome.position.clone().unwrap_or_default();
    (position.source_epoch, position.sequence)
}

#[test]
fn a_gap_requires_a_resync_and_a_repetition_returns_the_stored_outcome() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let early = wire.apply_batch(delta("s", 1, one("early"))).unwrap();
    assert_eq!(resync(&early), "SOURCE_UNKNOWN");
    wire.apply_batch(full_sync("s", 1, one("a"))).unwrap();
    let second = wire.apply_batch(delta("s", 2, one("b"))).unwrap();
    assert_eq!((resync(&second), position(&second)), ("", (1, 2)));
    let again = wire.apply_batch(delta("s", 2, one("other content"))).unwrap();
    assert_eq!(again, second, "the stored outcome, and nothing done");
    let gap = wire.apply_batch(delta("s", 4, one("d"))).unwrap();
    assert_eq!((resync(&gap), position(&gap)), ("GAP", (1, 2)));
    assert_eq!(names(wire), ["a", "b"], "nothing of a gap is taken");
    let mended = wire.apply_batch(full_sync("s", 9, one("c"))).unwrap();
    assert_eq!((resync(&mended), position(&mended)), ("", (1, 9)));
    assert_eq!(names(wire), ["c"]);
}

#[test]
fn a_higher_epoch_fences_the_lower_and_begins_with_a_full_sync() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let of_epoch = |epoch, batch: pb::Batch| pb::Batch {
        source_epoch: epoch,
        ..batch
    };
    wire.apply_batch(of_epoch(5, full_sync("s", 1, one("old")))).unwrap();
    let early = wire.apply_batch(of_epoch(6, delta("s", 1, one("early")))).unwrap();
    assert_eq!(resync(&early), "EPOCH_CHANGED");
    assert_eq!(names(wire), ["old"]);
    wire.apply_batch(of_epoch(6, full_sync("s", 1, one("new")))).unwrap();
    assert_eq!(names(wire), ["new"]);
    for late in [delta("s", 2, one("late")), full_sync("s", 2, one("late"))] {
        let fenced = wire.apply_batch(of_epoch(5, late)).unwrap();
        assert_eq!((resync(&fenced), position(&fenced)), ("FENCED", (6, 1)));
    }
    assert_eq!(names(wire), ["new"]);
}

#[test]
fn a_full_sync_replaces_only_its_own_sources_records_and_only_when_complete() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    wire.apply_batch(full_sync("s", 1, nodes(vec![node("s-0", &[]), node("s-1", &[])])))
        .unwrap();
    wire.apply_batch(full_sync("t", 1, one("t-0"))).unwrap();
    wire.apply_batch(full_sync_part("s", 2, 1, one("s-2"))).unwrap();
    assert_eq!(names(wire), ["s-0", "s-1", "t-0"], "a part does not show");
    let last = pb::Batch {
        part: 2,
        ..full_sync("s", 3, one("s-3"))
    };
    wire.apply_batch(last).unwrap();
    assert_eq!(names(wire), ["s-2", "s-3", "t-0"]);
    wire.apply_batch(full_sync_part("s", 4, 1, one("s-4"))).unwrap();
    let third = pb::Batch {
        part: 3,
        ..full_sync("s", 6, one("s-6"))
    };
    assert_eq!(
        resync(&wire.apply_batch(third).unwrap()),
        "GAP",
        "the second part was lost"
    );
    assert_eq!(names(wire), ["s-2", "s-3", "t-0"]);
}

#[test]
fn a_name_of_another_source_is_rejected_and_stays_its_owners() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    wire.apply_batch(full_sync("s", 1, one("shared"))).unwrap();
    let two = nodes(vec![node("shared", &[("cpu", "99")]), node("own", &[])]);
    let outcome = wire.apply_batch(full_sync("t", 1, two)).unwrap();
    let [problem] = &outcome.refused[..] else {
        panic!("one is refused: {outcome:?}")
    };
    assert!(problem.field.contains("put.nodes[0]"), "{problem:?}");
    assert!(problem.message.contains('s'), "names the owner: {problem:?}");
    let reply = wire.list_nodes(pb::ListNodesRequest::default()).unwrap();
    let owners: Vec<_> = reply.nodes.iter().map(|status| &*status.source).collect();
    assert_eq!(
        (names(wire), owners),
        (vec!["own".to_owned(), "shared".to_owned()], vec!["t", "s"])
    );
    wire.apply_batch(full_sync("t", 2, pb::Cluster::default())).unwrap();
    assert_eq!(names(wire), ["shared"]);
    wire.apply_batch(full_sync("s", 2, pb::Cluster::default())).unwrap();
    let taken = wire.apply_batch(delta("t", 3, one("shared"))).unwrap();
    assert!(taken.refused.is_empty(), "a name without an owner is free: {taken:?}");
}

/// Nodes that fit, and the reasons that reject the others.
fn verdict(wire: &BlockingClients) -> (Vec<String>, Vec<String>) {
    let query = pb::FilterRequest {
        tasks: vec![hypothetical_task(&[("cpu", "1")])],
        ..Default::default()
    };
    let item = wire.filter(query).unwrap().result.unwrap_or_default().items.remove(0);
    let reasons = item
        .rejections
        .into_iter()
        .map(|rejection| rejection.reason.unwrap_or_default().plugin);
    (item.fit.unwrap_or_default().names, reasons.collect())
}

#[test]
fn a_malformed_record_is_rejected_alone_and_the_last_valid_one_counts_until_it_is_fixed() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let put = nodes(vec![node("a", &[("cpu", "8")]), node("b", &[("cpu", "8")])]);
    wire.apply_batch(full_sync("s", 1, put)).unwrap();
    let problems = [("8 cores", "not a quantity"), ("-1", "negative"), ("", "empty")];
    for (sequence, (amount, what)) in (2..).zip(problems) {
        let put = nodes(vec![node("a", &[("cpu", amount)]), node("b", &[("cpu", "4")])]);
        let outcome = wire.apply_batch(delta("s", sequence, put)).unwrap();
        let [problem] = &outcome.refused[..] else {
            panic!("{what}: {outcome:?}")
        };
        assert!(
            problem.field.ends_with("put.nodes[0].allocatable.items[cpu]"),
            "{problem:?}"
        );
        assert_eq!(outcome.resync, None);
        let listed = wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
        let shown = |at: usize| listed[at].node.clone().unwrap_or_default().allocatable;
        assert_eq!(
            shown(0),
            Some(amounts(&[("cpu", "8"), ("pods", "110")])),
            "the last good one is shown"
        );
        assert_eq!(
            shown(1),
            Some(amounts(&[("cpu", "4"), ("pods", "110")])),
            "the other one was taken"
        );
        assert!(
            !listed[0].invalid.is_empty() && listed[1].invalid.is_empty(),
            "{listed:?}"
        );
        assert_eq!(
            verdict(wire),
            (vec!["b".to_owned()], vec!["node-state".to_owned()]),
            "nothing new is placed on it"
        );
    }
    wire.apply_batch(delta("s", 5, one("a"))).unwrap();
    assert!(
        wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes[0]
            .invalid
            .is_empty()
    );
    assert_eq!(verdict(wire), (vec!["a".to_owned(), "b".to_owned()], vec![]));
}

#[test]
fn a_required_term_that_can_match_no_node_is_reported() {
    let server = EmbeddedServer::start();
    let term = |operator: &str, value: &str| pb::NodeSelectorTerm {
        match_expressions: vec![pb::SelectorRequirement {
            key: "rank".to_owned(),
            operator: operator.to_owned(),
            values: vec![value.to_owned()],
        }],
        ..pb::NodeSelectorTerm::default()
    };
    let affinity = pb::Affinity {
        node_affinity: Some(pb::NodeAffinity {
            required: Some(pb::NodeSelector {
                terms: vec![term("Gt", "5"), term("Gt", "-5"), term("in", "5")],
            }),
            ..pb::NodeAffinity::default()
        }),
        ..pb::Affinity::default()
    };
    let asked = pb::Task {
        name: "a/b".to_owned(),
        constraints: Some(Box::new(pb::PodConstraints {
            affinity: Some(affinity),
            ..pb::PodConstraints::default()
        })),
        ..hypothetical_task(&[("cpu", "1")])
    };
    let batch = full_sync(
        "s",
        1,
        pb::Cluster {
            tasks: vec![asked],
            ..pb::Cluster::default()
        },
    );
    let outcome = server.wire.apply_batch(batch).unwrap();
    let fields = outcome
        .warnings
        .iter()
        .map(|warning| (warning.reason.as_str(), warning.field.as_str()));
    let at = "batch.put.tasks[0].constraints.affinity.node_affinity.required";
    let (second, third) = (format!("{at}[1]"), format!("{at}[2]"));
    assert_eq!(
        fields.collect::<Vec<_>>(),
        [
            ("NODE_TERM_INVALID", second.as_str()),
            ("NODE_TERM_INVALID", third.as_str())
        ]
    );
    assert!(outcome.refused.is_empty());
}
