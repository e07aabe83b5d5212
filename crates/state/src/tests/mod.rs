//! Writer, sources and sessions, tested from inside.

mod assumption_tests;
mod commit_fixture;
mod commit_quota_tests;
mod commit_reference_tests;
mod commit_store_tests;
mod commit_tests;
mod connection_share_tests;
mod device_tests;
mod ledger_late_tests;
mod ledger_tests;
mod ledger_tree_tests;
mod placed_tests;
mod policy_tests;
mod replica_tests;
mod resource_forgetting_tests;
mod session_race_tests;
mod session_tests;
mod shuttle_card_tests;
mod shuttle_disk;
mod shuttle_fixture;
mod shuttle_tests;
mod unreadable_tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::*;
use pumice_engine::model::{
    ErrorCode, NodeRecord, NodeVector, Problem, RecordKind, ResourceAmounts, ResourceId, TaskFields, TaskRecord,
    TaskStatus,
};

/// Clock that tests set, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct FakeClock(AtomicU64);

impl FakeClock {
    pub(super) fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for FakeClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> Duration {
        self.monotonic()
    }
}

pub(super) fn start() -> (Arc<SharedState>, Arc<FakeClock>) {
    let clock = Arc::new(FakeClock::default());
    let options = StateOptions {
        epoch: 7,
        expected_sources: vec!["kube".into()],
        ..StateOptions::default()
    };
    (SharedState::start(options, Arc::clone(&clock) as _).unwrap(), clock)
}

pub(super) fn node(name: &str, cpu: i64) -> BatchRecord {
    let allocatable = ResourceAmounts::from_iter([(ResourceId::CPU, cpu)]);
    BatchRecord::Node(Arc::new(NodeRecord {
        name: name.into(),
        allocatable,
        ..NodeRecord::default()
    }))
}

pub(super) fn task(name: &str, node: &str, cpu: i64) -> BatchRecord {
    let requests = ResourceAmounts::from_iter([(ResourceId::CPU, cpu), (ResourceId::PODS, 1)]);
    let (name, node) = (name.into(), node.into());
    BatchRecord::Task(TaskRecord::from(TaskFields {
        name,
        node,
        requests,
        status: TaskStatus::Running,
        ..TaskFields::default()
    }))
}

pub(super) fn batch(sequence: u64, kind: BatchKind, put: Vec<BatchRecord>) -> Batch {
    let put = put
        .into_iter()
        .enumerate()
        .map(|(i, put)| (put, RecordLocation::at(i)))
        .collect();
    let part = u32::from(kind != BatchKind::Delta);
    Batch {
        source: "kube".into(),
        source_epoch: 1,
        sequence,
        kind,
        part,
        put,
        ..Batch::default()
    }
}

fn used(snapshot: &pumice_engine::Snapshot, node: &str) -> Option<i128> {
    snapshot
        .state
        .node_by_name(node)?
        .exact(ResourceId::CPU, NodeVector::Used)
}

#[tokio::test]
async fn batches_become_visible_in_order_and_once() {
    let (state, clock) = start();
    assert_eq!(
        (state.sources()[0].silence, state.sources()[0].synced),
        (None, false),
        "expected, not yet heard"
    );
    let whole = batch(
        1,
        BatchKind::FullSyncLast,
        vec![task("a/x", "n1", 300), node("n1", 4_000), node("n2", 4_000)],
    );
    let first = state.apply_batch(whole.clone()).await.unwrap();
    assert_eq!((first.revision.number, first.resync.is_none()), (1, true));
    assert_eq!(
        used(&state.snapshot(), "n1"),
        Some(300),
        "a task counts although its node came later"
    );

    let delta = state
        .apply_batch(batch(2, BatchKind::Delta, vec![task("a/x", "n2", 300)]))
        .await
        .unwrap();
    assert_eq!(delta.position.sequence, 2);
    let snapshot = state.snapshot();
    assert_eq!((used(&snapshot, "n1"), used(&snapshot, "n2")), (None, Some(300)));

    let again = state
        .apply_batch(batch(2, BatchKind::Delta, vec![task("a/x", "n1", 9)]))
        .await
        .unwrap();
    assert_eq!(again, delta, "a repeated batch gets the stored outcome");
    let gap = state.apply_batch(batch(4, BatchKind::Delta, vec![])).await.unwrap();
    assert_eq!(gap.resync.map(|resync| resync.reason), Some(ResyncReason::Gap));
    assert!(!state.sources()[0].synced);
    let mended = state
        .apply_batch(batch(9, BatchKind::FullSyncLast, vec![node("n2", 1)]))
        .await
        .unwrap();
    assert_eq!((mended.resync, mended.position.sequence), (None, 9));
    clock.advance(250);
    let status = &state.sources()[0];
    assert_eq!(
        (status.silence, status.synced),
        (Some(Duration::from_millis(250)), true)
    );
    assert!(
        state.snapshot().state.node_by_name("n1").is_none(),
        "a full sync replaces the records of its source"
    );
}

#[tokio::test]
async fn a_lost_part_never_makes_the_rest_look_like_the_whole() {
    let (state, _) = start();
    state
        .apply_batch(batch(1, BatchKind::FullSyncLast, vec![node("n1", 1), node("n2", 1)]))
        .await
        .unwrap();
    let part = |sequence, kind, part, name| Batch {
        part,
        ..batch(sequence, kind, vec![node(name, 2)])
    };
    state
        .apply_batch(part(2, BatchKind::FullSyncPart, 1, "n1"))
        .await
        .unwrap();
    let lost = state
        .apply_batch(part(4, BatchKind::FullSyncPart, 3, "n3"))
        .await
        .unwrap();
    assert_eq!(lost.resync.map(|resync| resync.reason), Some(ResyncReason::Gap));
    let rest = state
        .apply_batch(part(5, BatchKind::FullSyncLast, 4, "n4"))
        .await
        .unwrap();
    assert_eq!(rest.resync.map(|resync| resync.reason), Some(ResyncReason::Gap));
    assert_eq!(state.snapshot().state.node_count(), 2);
    state
        .apply_batch(part(6, BatchKind::FullSyncPart, 1, "n1"))
        .await
        .unwrap();
    assert_eq!(state.snapshot().state.node_count(), 2, "staged until the last part");
    state
        .apply_batch(part(7, BatchKind::FullSyncLast, 2, "n5"))
        .await
        .unwrap();
    let names: Vec<String> = state
        .snapshot()
        .state
        .nodes()
        .map(|(_, entry)| entry.record.name.to_string())
        .collect();
    assert_eq!(names, ["n1", "n5"]);
}

#[tokio::test]
async fn an_epoch_far_ahead_is_refused_and_fences_nobody() {
    let (state, clock) = start();
    let of_epoch = |source_epoch| Batch {
        source_epoch,
        ..batch(1, BatchKind::FullSyncLast, Vec::new())
    };
    state.apply_batch(of_epoch(1)).await.unwrap();
    // An hour ahead of the clock is the time of a machine whose clock is ahead, a century is none.
    let hour = 3_600_000_000_000;
    for far in [u64::MAX, u64::MAX - 1, 1 << 62, hour + 1] {
        let refused = state.apply_batch(of_epoch(far)).await.unwrap_err();
        assert_eq!(refused.reason(), "SOURCE_EPOCH_TOO_HIGH");
        assert!(refused.to_string().contains("Count up by one"), "{refused}");
    }
    clock.advance(1_000);
    for next in [2, 1_000_002, hour + 1_000_000_000, hour + 1_001_000_000] {
        let outcome = state.apply_batch(of_epoch(next)).await.unwrap();
        assert_eq!((outcome.resync, outcome.position.source_epoch), (None, next));
    }
    let fenced = state.apply_batch(of_epoch(3)).await.unwrap().resync.unwrap();
    assert!(
        fenced.message.contains("`pumice state forget kube`"),
        "{}",
        fenced.message
    );
}

#[tokio::test]
async fn sources_own_their_records_and_epochs_fence() {
    let (state, _) = start();
    state
        .apply_batch(batch(1, BatchKind::FullSyncLast, vec![node("n1", 1)]))
        .await
        .unwrap();
    let other = Batch {
        source: "file".into(),
        ..batch(1, BatchKind::FullSyncLast, vec![node("n1", 5), node("n2", 5)])
    };
    let outcome = state.apply_batch(other).await.unwrap();
    assert_eq!(outcome.rejected.len(), 1);
    assert_eq!(
        (outcome.rejected[0].code.name(), &*outcome.rejected[0].field),
        ("RECORD_NOT_OWNED", "batch.put.nodes[0].name")
    );
    assert_eq!(state.snapshot().state.node_count(), 2);
    let newer = Batch {
        source_epoch: 2,
        ..batch(1, BatchKind::FullSyncLast, vec![node("n1", 3)])
    };
    assert_eq!(state.apply_batch(newer).await.unwrap().resync, None);
    let old = state
        .apply_batch(batch(2, BatchKind::Delta, vec![node("n1", 9)]))
        .await
        .unwrap();
    assert_eq!(old.resync.map(|resync| resync.reason), Some(ResyncReason::Fenced));
    let unknown = Batch {
        source: "new".into(),
        ..batch(1, BatchKind::Delta, vec![])
    };
    let unknown = state.apply_batch(unknown).await.unwrap();
    assert_eq!(
        unknown.resync.map(|resync| resync.reason),
        Some(ResyncReason::UnknownSource)
    );
    assert_eq!(state.sources().len(), 2, "a name alone is not remembered");
}

#[tokio::test]
async fn a_rejected_record_marks_the_last_good_one() {
    let (state, _) = start();
    state
        .apply_batch(batch(1, BatchKind::FullSyncLast, vec![node("n1", 1)]))
        .await
        .unwrap();
    let problem = Problem::new(ErrorCode::QuantityInvalid, "put.nodes[0].allocatable", "`x`");
    let refused = vec![RejectedRecord::new(
        RecordKind::Node,
        "n1".into(),
        vec![problem.clone()],
    )];
    let outcome = state
        .apply_batch(Batch {
            rejected: refused,
            ..batch(2, BatchKind::FullSyncLast, vec![])
        })
        .await
        .unwrap();
    assert_eq!(outcome.rejected, [problem.within("batch")]);
    let snapshot = state.snapshot();
    assert!(
        snapshot
            .state
            .node_by_name("n1")
            .is_some_and(|entry| entry.invalid.is_some() && !entry.is_placeable())
    );
    state
        .apply_batch(batch(3, BatchKind::Delta, vec![node("n1", 1)]))
        .await
        .unwrap();
    assert!(
        state
            .snapshot()
            .state
            .node_by_name("n1")
            .is_some_and(|entry| entry.is_placeable())
    );
}

#[tokio::test]
async fn node_slots_are_renewed_when_most_are_dead() {
    let (state, _) = start();
    let nodes = |from: usize, to: usize| (from..to).map(|i| node(&format!("n{i:05}"), 1)).collect::<Vec<_>>();
    for round in 0..6 {
        let put = nodes(round * 1_000, round * 1_000 + 1_000);
        state
            .apply_batch(batch(round as u64 + 1, BatchKind::FullSyncLast, put))
            .await
            .unwrap();
    }
    let snapshot = state.snapshot();
    assert_eq!((snapshot.state.node_count(), snapshot.state.generation()), (1_000, 2));
    assert!(snapshot.state.slots() < 3_000);
    assert_eq!(snapshot.state.ranks().len(), snapshot.state.slots() as usize);
}

#[tokio::test]
async fn waiting_ends_with_the_revision_or_in_time() {
    let (state, _) = start();
    let wanted = pumice_engine::Revision { epoch: 7, number: 1 };
    let waiting = state.snapshot_at(Some(wanted), &[], Duration::from_mins(1));
    let applying = state.apply_batch(batch(1, BatchKind::FullSyncLast, vec![]));
    let (snapshot, applied) = tokio::join!(waiting, applying);
    assert_eq!(snapshot.unwrap().revision, applied.unwrap().revision);
    let later = pumice_engine::Revision { epoch: 7, number: 99 };
    let error = state
        .snapshot_at(Some(later), &[], Duration::from_millis(5))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "REVISION_NOT_REACHED");
    let elsewhere = pumice_engine::Revision { epoch: 8, number: 1 };
    let error = state
        .snapshot_at(Some(elsewhere), &[], Duration::from_mins(1))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "EPOCH_CHANGED");
}

pub(super) fn bounded(limits: StateLimits) -> (Arc<SharedState>, Arc<FakeClock>) {
    let clock = Arc::new(FakeClock::default());
    let options = StateOptions {
        limits,
        ..StateOptions::default()
    };
    (SharedState::start(options, Arc::clone(&clock) as _).unwrap(), clock)
}

#[tokio::test]
async fn records_are_bounded_and_those_that_are_there_can_change() {
    let (state, _) = bounded(StateLimits {
        records: 2,
        ..StateLimits::default()
    });
    let whole = vec![node("n1", 1), node("n2", 1), task("a/x", "n1", 1)];
    let outcome = state
        .apply_batch(batch(1, BatchKind::FullSyncLast, whole))
        .await
        .unwrap();
    let refused: Vec<_> = outcome
        .rejected
        .iter()
        .map(|problem| (problem.code.name(), &*problem.field))
        .collect();
    assert_eq!(refused, [("LIMIT_EXCEEDED", "batch.put.tasks[2]")]);
    let outcome = state
        .apply_batch(batch(2, BatchKind::Delta, vec![node("n2", 7)]))
        .await
        .unwrap();
    assert_eq!(outcome.rejected, []);
}

#[tokio::test]
async fn full_syncs_share_one_bound_until_they_are_abandoned() {
    let (state, clock) = bounded(StateLimits {
        full_sync_records: 2,
        ..StateLimits::default()
    });
    let part = |source: &str| Batch {
        source: source.into(),
        ..batch(1, BatchKind::FullSyncPart, vec![node(source, 1), task(source, "", 1)])
    };
    state.apply_batch(part("one")).await.unwrap();
    let error = state.apply_batch(part("two")).await.unwrap_err();
    assert_eq!(error.reason(), "LIMIT_EXCEEDED");
    clock.advance(61_000);
    state.apply_batch(part("two")).await.unwrap();
    let late = Batch {
        source: "one".into(),
        part: 2,
        ..batch(2, BatchKind::FullSyncLast, vec![])
    };
    let late = state.apply_batch(late).await.unwrap();
    assert_eq!(late.resync.map(|resync| resync.reason), Some(ResyncReason::Gap));
}

#[tokio::test]
async fn policy_histories_are_bounded_in_bytes() {
    let (state, _) = bounded(StateLimits {
        policy_history_bytes: 1,
        ..StateLimits::default()
    });
    let name: Arc<str> = "default".into();
    for version in 1..=4 {
        let document = format!("actions: allocate # {version}\n");
        let reload = PolicyReload {
            name: Arc::clone(&name),
            document: document.into(),
            expected_version: None,
            dry_run: false,
            strict: false,
            compatibility: pumice_engine::policy::Compatibility::Corrected,
            origin: PolicyOrigin::Rpc("test".to_owned()),
        };
        state.reload_policy(reload).await.unwrap();
        let rollback = PolicyRollback {
            name: Arc::clone(&name),
            version: 0,
            expected_version: Some(version),
            dry_run: true,
            caller: "test".to_owned(),
        };
        assert_eq!(state.rollback_policy(rollback).await.is_ok(), version > 1);
    }
    assert_eq!(state.policy_versions(&name).unwrap().len(), 2);
}
