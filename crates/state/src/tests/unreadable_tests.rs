//! Unreadable records: the last good record is used, or the node of the task accepts no new tasks.

use super::{batch, node, start, task};
use crate::*;
use pumice_engine::model::{ErrorCode, NodeVector, Problem, RecordKind, ResourceId};

fn unreadable(task: &str, node: &str) -> RejectedRecord {
    let problem = Problem::new(ErrorCode::UnreadableRecord, "unreadable[0]", "`64gi`");
    RejectedRecord {
        node: node.into(),
        ..RejectedRecord::new(RecordKind::Task, task.into(), vec![problem])
    }
}

/// Cores used on a node in thousandths, and whether it takes new tasks.
fn stand(state: &SharedState, node: &str) -> (i128, bool) {
    let snapshot = state.snapshot();
    let entry = snapshot.state.node_by_name(node).unwrap();
    let used = entry.exact(ResourceId::CPU, NodeVector::Used).unwrap_or_default();
    (used, entry.is_placeable())
}

async fn send(state: &SharedState, batch: Batch) -> Vec<&'static str> {
    let outcome = state.apply_batch(batch).await.unwrap();
    assert!(outcome.resync.is_none(), "{outcome:?}");
    outcome.warnings.iter().map(|warning| warning.code.name()).collect()
}

#[tokio::test]
async fn the_last_good_record_of_an_unreadable_task_goes_on_counting() {
    let (state, _) = start();
    let put = vec![node("n1", 4_000), task("a/x", "n1", 300)];
    send(&state, batch(1, BatchKind::FullSyncLast, put)).await;
    let bad = Batch {
        rejected: vec![unreadable("a/x", "n1")],
        ..batch(2, BatchKind::FullSyncLast, vec![node("n1", 4_000)])
    };
    assert_eq!(send(&state, bad).await, [""; 0], "what is counted needs no warning");
    assert_eq!(stand(&state, "n1"), (300, true));
    let snapshot = state.snapshot();
    assert!(snapshot.state.tasks().get("a/x").unwrap().invalid().is_some());
}

#[tokio::test]
async fn a_node_with_an_uncounted_task_takes_nothing_new() {
    let (state, _) = start();
    let whole = |sequence| {
        batch(
            sequence,
            BatchKind::FullSyncLast,
            vec![node("n1", 4_000), node("n2", 4_000)],
        )
    };
    let bad = Batch {
        rejected: vec![unreadable("a/x", "n1"), unreadable("a/waits", "")],
        ..whole(1)
    };
    assert_eq!(send(&state, bad.clone()).await, ["RECORD_NOT_COUNTED"; 2]);
    assert_eq!((stand(&state, "n1"), stand(&state, "n2")), ((0, false), (0, true)));
    let delta = |sequence, put| batch(sequence, BatchKind::Delta, put);
    send(&state, delta(2, vec![node("n1", 8_000)])).await;
    assert_eq!(
        stand(&state, "n1"),
        (0, false),
        "a new record of the node changes nothing"
    );
    send(&state, delta(3, vec![task("a/x", "n1", 300)])).await;
    assert_eq!(stand(&state, "n1"), (300, true), "the task can be read");

    let moved = Batch {
        rejected: vec![unreadable("a/x", "n2")],
        ..delta(4, vec![])
    };
    assert_eq!(send(&state, moved).await, ["RECORD_NOT_COUNTED"]);
    assert_eq!(
        (stand(&state, "n1"), stand(&state, "n2")),
        ((300, true), (0, false)),
        "the last good record is on another node"
    );
    let remove = Batch {
        remove: vec![(RecordKind::Task, "a/x".into())],
        ..delta(5, vec![])
    };
    send(&state, remove).await;
    assert_eq!((stand(&state, "n1"), stand(&state, "n2")), ((0, true), (0, true)));

    send(&state, Batch { sequence: 6, ..bad }).await;
    assert_eq!(stand(&state, "n1"), (0, false));
    send(&state, whole(7)).await;
    assert_eq!(stand(&state, "n1"), (0, true), "a full sync leaves it out");
}

#[tokio::test]
async fn marks_of_a_node_and_of_its_own_record_stand_side_by_side() {
    let (state, _) = start();
    let own = Problem::new(ErrorCode::QuantityInvalid, "put.nodes[0].allocatable", "`x`");
    let whole = batch(1, BatchKind::FullSyncLast, vec![node("n1", 4_000)]);
    send(&state, whole).await;
    let bad = Batch {
        rejected: vec![
            unreadable("a/x", "n1"),
            RejectedRecord::new(RecordKind::Node, "n1".into(), vec![own]),
        ],
        ..batch(2, BatchKind::Delta, vec![])
    };
    send(&state, bad).await;
    let reasons = || {
        let snapshot = state.snapshot();
        let invalid = snapshot.state.node_by_name("n1").unwrap().invalid.clone();
        invalid
            .unwrap_or_default()
            .iter()
            .map(|one| one.code.name())
            .collect::<Vec<_>>()
    };
    assert_eq!(reasons(), ["QUANTITY_INVALID", "TASK_UNREADABLE"]);
    send(&state, batch(3, BatchKind::Delta, vec![node("n1", 4_000)])).await;
    assert_eq!(reasons(), ["TASK_UNREADABLE"]);
    let foreign = Batch {
        source: "other".into(),
        rejected: vec![unreadable("a/x", "")],
        ..batch(1, BatchKind::FullSyncLast, vec![task("b/y", "n1", 100)])
    };
    send(&state, foreign).await;
    assert_eq!(reasons(), [""; 0], "the newest word on a task that nobody owns counts");
    assert_eq!(stand(&state, "n1"), (100, true));
}

#[tokio::test]
async fn a_live_source_becomes_stale_and_a_file_does_not() {
    let (state, clock) = start();
    let of = |source: &str, kind, sequence| Batch {
        source: source.into(),
        source_kind: kind,
        ..batch(sequence, BatchKind::FullSyncLast, vec![])
    };
    send(&state, of("kube", SourceKind::Live, 1)).await;
    send(&state, of("file", SourceKind::File, 1)).await;
    let status = |name: &str| {
        let all = state.sources();
        let one = all.iter().find(|one| *one.position.source == *name).unwrap();
        (one.synced, one.stale, one.silence.unwrap().as_secs())
    };
    clock.advance(60_000);
    assert_eq!((status("kube"), status("file")), ((true, false, 60), (true, false, 60)));
    clock.advance(1_000);
    assert_eq!((status("kube"), status("file")), ((false, true, 61), (true, false, 61)));
    // A fenced batch of a predecessor is no sign of life; an empty delta is.
    let fenced = Batch {
        source_epoch: 0,
        ..of("kube", SourceKind::Live, 2)
    };
    let outcome = state.apply_batch(fenced).await.unwrap();
    assert_eq!(outcome.resync.map(|resync| resync.reason), Some(ResyncReason::Fenced));
    assert_eq!(status("kube"), (false, true, 61));
    send(&state, batch(2, BatchKind::Delta, vec![])).await;
    assert_eq!(status("kube"), (true, false, 0));
    // A batch of a source that may miss other changes is applied, and its silence goes on.
    clock.advance(59_000);
    let missing = |sequence, kind| Batch {
        changes_missing: true,
        ..batch(sequence, kind, vec![])
    };
    send(&state, missing(3, BatchKind::Delta)).await;
    clock.advance(2_000);
    send(&state, missing(4, BatchKind::Delta)).await;
    assert_eq!(status("kube"), (false, true, 61));
    // Nobody forgets it meanwhile, for it is there.
    let forgotten = state
        .forget_source(ForgetSource {
            source: "kube".into(),
            force: false,
        })
        .await;
    assert!(matches!(forgotten, Err(StateError::SourceActive { .. })));
    send(&state, batch(5, BatchKind::Delta, vec![])).await;
    assert_eq!(status("kube"), (true, false, 0));
}
