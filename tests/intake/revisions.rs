//! Requests for a state that is new enough, and node tables of another generation.

use pumice::server::pb;
use tonic::Code;

use crate::support::records::{delta, full_sync, hypothetical_task, latest_ref, node, nodes};
use crate::support::wire::BlockingClients;
use crate::support::{EmbeddedServer, reason};

fn score(
    wire: &BlockingClients,
    evaluation_ref: Option<pb::EvaluationRef>,
) -> Result<pb::ScoreResponse, tonic::Status> {
    wire.score(pb::ScoreRequest {
        against: evaluation_ref,
        tasks: vec![hypothetical_task(&[("cpu", "1")])],
        ..Default::default()
    })
}

fn revision(wire: &BlockingClients) -> pb::Revision {
    wire.get_server_info(pb::GetServerInfoRequest {})
        .unwrap()
        .revision
        .unwrap_or_default()
}

#[test]
fn a_revision_is_waited_for_and_another_epoch_fails_at_once() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let outcome = wire
        .apply_batch(full_sync("s", 1, nodes(vec![node("a", &[("cpu", "8")])])))
        .unwrap();
    let now = outcome.revision.unwrap_or_default();
    assert_eq!(now, revision(wire), "acknowledged means visible");
    assert!(score(wire, Some(latest_ref(now, 0))).is_ok());
    let next = pb::Revision {
        number: now.number + 1,
        ..now
    };
    let late = score(wire, Some(latest_ref(next, 20))).unwrap_err();
    assert_eq!(
        (late.code(), &*reason(&late)),
        (Code::FailedPrecondition, "REVISION_NOT_REACHED")
    );
    let other = pb::Revision {
        epoch: now.epoch ^ 1,
        number: 0,
    };
    let changed = score(wire, Some(latest_ref(other, 900))).unwrap_err();
    assert_eq!(
        (changed.code(), &*reason(&changed)),
        (Code::FailedPrecondition, "EPOCH_CHANGED")
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut evaluation_ref = latest_ref(next, 0);
            if let Some(pb::evaluation_ref::Target::Latest(snapshot)) = &mut evaluation_ref.target {
                snapshot.max_wait = Some(prost_types::Duration { seconds: 25, nanos: 0 });
            }
            score(wire, Some(evaluation_ref))
        });
        wire.apply_batch(delta("s", 2, nodes(vec![node("b", &[("cpu", "8")])])))
            .unwrap();
        let reply = waiting.join().unwrap().unwrap();
        assert!(reply.metadata.unwrap_or_default().revision.unwrap_or_default().number >= next.number);
        let names = reply
            .result
            .unwrap_or_default()
            .items
            .remove(0)
            .nodes
            .unwrap_or_default()
            .names;
        assert_eq!(names, ["a", "b"], "it saw what it waited for");
    });
}

#[test]
fn a_sources_position_is_waited_for() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    wire.apply_batch(full_sync("s", 4, pb::Cluster::default())).unwrap();
    let at = |sequence| {
        let position = pb::SourcePosition {
            source: "s".to_owned(),
            source_epoch: 1,
            sequence,
        };
        let wait = Some(prost_types::Duration {
            seconds: 0,
            nanos: 20_000_000,
        });
        let snapshot = pb::LatestRef {
            positions: vec![position],
            max_wait: wait,
            ..Default::default()
        };
        Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Latest(snapshot)),
            ..pb::EvaluationRef::default()
        })
    };
    assert!(score(wire, at(4)).is_ok());
    assert_eq!(score(wire, at(5)).unwrap_err().code(), Code::FailedPrecondition);
}

fn table(wire: &BlockingClients) -> pb::GetNodeTableResponse {
    wire.get_node_table(pb::GetNodeTableRequest::default()).unwrap()
}

/// Names of a set of nodes by slot, in the stated order.
fn named(table: &[String], set: &pb::NodeSet) -> Vec<String> {
    let bits = set.bitmap.iter().enumerate().flat_map(|(byte, bits)| {
        (0..8)
            .filter(move |bit| bits >> bit & 1 == 1)
            .map(move |bit| byte * 8 + bit)
    });
    let slots = set.slots.iter().map(|slot| *slot as usize).chain(bits);
    slots.map(|slot| table[slot].clone()).collect()
}

/// Result with its nodes by name: scores (sorted by name unless there is a limit), fitting nodes, their number, and the
/// rejected nodes by reason.
type DecodedScores = (
    Vec<(String, u64)>,
    Vec<String>,
    u32,
    Vec<(Option<pb::Reason>, u32, Vec<String>)>,
);

/// Asks for scores in an encoding and reads the result with the node table.
fn ask(
    wire: &BlockingClients,
    names: &[String],
    encoding: pb::NodeEncoding,
    candidates: Option<&pb::NodeSet>,
    limit: Option<u32>,
) -> DecodedScores {
    let version = table(wire).table.unwrap_or_default();
    let by_slot = candidates.is_some_and(|set| set.names.is_empty());
    let evaluation_ref = pb::EvaluationRef {
        node_table: Some(version),
        ..pb::EvaluationRef::default()
    };
    let reply = wire.score(pb::ScoreRequest {
        against: by_slot.then_some(evaluation_ref),
        tasks: vec![hypothetical_task(&[("cpu", "4")])],
        candidates: candidates.cloned(),
        node_encoding: encoding.into(),
        with_filter: true,
        limit,
        ..Default::default()
    });
    let reply = reply.unwrap();
    let slots = encoding == pb::NodeEncoding::Slots;
    assert_eq!(reply.metadata.unwrap_or_default().node_table, slots.then_some(version));
    let item = reply.result.unwrap_or_default().items.remove(0);
    let read = |set: Option<&pb::NodeSet>| {
        let set = set.cloned().unwrap_or_default();
        if slots { named(names, &set) } else { set.names }
    };
    let sorted = |set| {
        let mut names = read(set);
        names.sort();
        names
    };
    let filter = item.filter.clone().unwrap_or_default();
    let rejections = filter.rejections.iter();
    let rejections = rejections.map(|group| (group.reason.clone(), group.count, sorted(group.nodes.as_ref())));
    let bits = item.totals.iter().map(|total| total.to_bits());
    let mut scores: Vec<_> = read(item.nodes.as_ref()).into_iter().zip(bits).collect();
    if limit.is_none() {
        scores.sort();
    }
    (
        scores,
        sorted(filter.fit.as_ref()),
        filter.fit_count,
        rejections.collect(),
    )
}

#[test]
fn slots_and_names_give_the_same_results() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let sizes = ["7", "3", "12", "1", "9", "5", "2", "30", "4", "8", "6"];
    // Names run against the order of arrival, so slots do not follow names.
    let all = sizes.iter().enumerate();
    let all = all.map(|(number, cpu)| node(&format!("n{:02}", 40 - number), &[("cpu", cpu)]));
    wire.apply_batch(full_sync("s", 1, nodes(all.collect()))).unwrap();
    let names = table(wire).names;
    assert_eq!(names.len(), sizes.len());
    let by_name = pb::NodeSet {
        names: names.iter().step_by(2).cloned().collect(),
        ..Default::default()
    };
    let by_slot = pb::NodeSet {
        slots: (0..11).step_by(2).collect(),
        ..Default::default()
    };
    let by_bit = pb::NodeSet {
        bitmap: vec![0b0101_0101, 0b0000_0101].into(),
        ..Default::default()
    };
    for limit in [None, Some(1), Some(3), Some(100)] {
        let of_all = ask(wire, &names, pb::NodeEncoding::Names, None, limit);
        assert!(of_all.2 > 3 && !of_all.3.is_empty(), "some fit and some do not");
        assert_eq!(ask(wire, &names, pb::NodeEncoding::Slots, None, limit), of_all);
        let of_some = ask(wire, &names, pb::NodeEncoding::Names, Some(&by_name), limit);
        assert_ne!(of_some, of_all);
        for encoding in [pb::NodeEncoding::Names, pb::NodeEncoding::Slots] {
            for set in [&by_slot, &by_bit] {
                assert_eq!(ask(wire, &names, encoding, Some(set), limit), of_some);
            }
        }
    }
}

#[test]
fn the_table_only_grows_and_another_one_is_rejected() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    wire.apply_batch(full_sync(
        "s",
        1,
        nodes(["c", "a", "b"].map(|name| node(name, &[("cpu", "8")])).to_vec()),
    ))
    .unwrap();
    let before = table(wire);
    let removed = pb::Removals {
        nodes: vec![before.names[0].clone()],
        ..Default::default()
    };
    wire.apply_batch(pb::Batch {
        remove: Some(removed),
        ..delta("s", 2, nodes(vec![node("d", &[("cpu", "8")])]))
    })
    .unwrap();
    let after = table(wire);
    let (old, new) = (before.table.unwrap_or_default(), after.table.unwrap_or_default());
    assert_eq!((old.epoch, old.generation, 4), (new.epoch, new.generation, new.length));
    assert_eq!(
        after.names[..3],
        before.names,
        "slots keep their names, that of the removed node too"
    );
    assert_eq!(after.names[3], "d");
    let rest = pb::GetNodeTableRequest {
        from_slot: 3,
        ..Default::default()
    };
    assert_eq!(wire.get_node_table(rest).unwrap().names, ["d"]);
    let ask = |version: pb::NodeTableVersion| {
        wire.filter(pb::FilterRequest {
            against: Some(pb::EvaluationRef {
                node_table: Some(version),
                ..pb::EvaluationRef::default()
            }),
            tasks: vec![hypothetical_task(&[("cpu", "1")])],
            candidates: Some(pb::NodeSet {
                slots: vec![1, 2],
                ..Default::default()
            }),
            ..Default::default()
        })
    };
    assert!(ask(old).is_ok(), "a shorter table of the same generation still holds");
    for other in [
        pb::NodeTableVersion {
            epoch: new.epoch ^ 1,
            ..new
        },
        pb::NodeTableVersion {
            generation: new.generation + 1,
            ..new
        },
    ] {
        assert_eq!(ask(other).unwrap_err().code(), Code::FailedPrecondition);
    }
}
