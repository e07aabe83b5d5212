//! Names of resources and of sources that go with time, and ids that keep their meaning meanwhile.

use super::{FakeClock, batch, node};
use crate::*;
use pumice_engine::model::{NodeRecord, ResourceAmounts, ResourceId, ResourceNaming, ResourceTable};

const HOUR: u64 = 3_600_000;

fn start(resource_names: usize) -> (Arc<SharedState>, Arc<FakeClock>) {
    let clock = Arc::new(FakeClock::default());
    let options = StateOptions {
        limits: StateLimits {
            resource_names,
            resource_name_age: std::time::Duration::from_millis(HOUR),
            source_age: std::time::Duration::from_millis(24 * HOUR),
            ..StateLimits::default()
        },
        ..StateOptions::default()
    };
    (SharedState::start(options, Arc::clone(&clock) as _).unwrap(), clock)
}

/// Node with one device of this kind, and the id of the device.
fn node_with(state: &SharedState, name: &str, device: &str) -> (BatchRecord, ResourceId) {
    let id = state.resource_names().intern(device, ResourceNaming::Offered).unwrap();
    let record = NodeRecord {
        name: name.into(),
        allocatable: ResourceAmounts::from_iter([(ResourceId::CPU, 1_000), (id, 1_000)]),
        ..NodeRecord::default()
    };
    (BatchRecord::Node(Arc::new(record)), id)
}

async fn put(state: &SharedState, sequence: u64, put: Vec<BatchRecord>) -> Result<BatchOutcome, StateError> {
    let names = Some(state.resource_names().current_table());
    let sent = batch(sequence, BatchKind::FullSyncLast, put);
    state.apply_batch(Batch { names, ..sent }).await
}

fn names(state: &SharedState) -> Vec<String> {
    let table = state.resource_names().current_table();
    table.names().skip(3).map(|(_, name)| name.to_string()).collect()
}

/// Lets time pass, and the writer look at it.
async fn pass(state: &SharedState, clock: &FakeClock, millis: u64) {
    clock.advance(millis);
    state.expire_leases().await.unwrap();
}

#[tokio::test]
async fn an_unused_name_goes_with_time_if_places_are_scarce() {
    let (state, clock) = start(7);
    let (used, _) = node_with(&state, "n1", "x.io/kept");
    put(&state, 1, vec![used]).await.unwrap();
    state
        .resource_names()
        .intern("x.io/old", ResourceNaming::Offered)
        .unwrap();
    pass(&state, &clock, 2 * HOUR).await;
    pass(&state, &clock, 10_000).await;
    assert_eq!(
        names(&state),
        ["x.io/kept", "x.io/old"],
        "an hour is counted from the first look"
    );
    pass(&state, &clock, HOUR).await;
    assert_eq!(names(&state), ["x.io/kept"]);
    state
        .resource_names()
        .intern("x.io/new", ResourceNaming::Offered)
        .unwrap();
    pass(&state, &clock, 10_000).await;
    put(&state, 2, vec![node("n1", 1)]).await.unwrap();
    pass(&state, &clock, HOUR / 2).await;
    let (used_again, _) = node_with(&state, "n1", "x.io/new");
    put(&state, 3, vec![used_again]).await.unwrap();
    pass(&state, &clock, HOUR / 2).await;
    assert_eq!(names(&state), ["x.io/kept", "x.io/new"]);
    pass(&state, &clock, HOUR / 2).await;
    assert_eq!(names(&state), ["x.io/new"]);
    let (roomy, clock) = start(100);
    roomy
        .resource_names()
        .intern("x.io/old", ResourceNaming::Offered)
        .unwrap();
    for _ in 0..3 {
        pass(&roomy, &clock, 2 * HOUR).await;
    }
    assert_eq!(names(&roomy), ["x.io/old"], "there is room");
}

#[tokio::test]
async fn an_id_means_another_resource_only_when_nobody_knows_the_old_one() {
    let (state, clock) = start(7);
    let (old, id) = node_with(&state, "n1", "x.io/old");
    put(&state, 1, vec![old.clone()]).await.unwrap();
    let error = state.forget_resource("x.io/old".into()).await.unwrap_err();
    assert!(error.to_string().contains("is used by node n1:"), "{error}");
    put(&state, 2, vec![node("n1", 1)]).await.unwrap();
    let reader = state.snapshot();
    // A batch that was read before, and comes after.
    let read_before = state.resource_names().current_table();
    state.forget_resource("x.io/old".into()).await.unwrap();
    let late = Batch {
        names: Some(read_before),
        ..batch(3, BatchKind::Delta, vec![old])
    };
    assert_eq!(state.apply_batch(late).await.unwrap_err(), StateError::NamesForgotten);
    pass(&state, &clock, 10_000).await;
    let (first, first_id) = node_with(&state, "n1", "x.io/first");
    assert_ne!(first_id, id, "a snapshot with the old name is being read");
    put(&state, 3, vec![first]).await.unwrap();
    drop(reader);
    // Snapshots are freed by a thread of their own.
    let mut freed = false;
    for _ in 0..1_000 {
        pass(&state, &clock, 10_000).await;
        let mut table = ResourceTable::clone(&state.resource_names().current_table());
        freed = table.intern_shared("x.io/second", ResourceNaming::Offered, 9) == Ok(id);
        if freed {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(freed, "the id is free when the last reader is gone");
}

#[tokio::test]
async fn names_of_a_full_sync_that_is_being_sent_stay() {
    let (state, clock) = start(7);
    let (staged, _) = node_with(&state, "n1", "x.io/staged");
    let part = batch(1, BatchKind::FullSyncPart, vec![staged]);
    state.apply_batch(part).await.unwrap();
    let error = state.forget_resource("x.io/staged".into()).await.unwrap_err();
    assert!(error.to_string().contains("node n1"), "{error}");
    state
        .resource_names()
        .intern("x.io/other", ResourceNaming::Offered)
        .unwrap();
    pass(&state, &clock, 10_000).await;
    pass(&state, &clock, HOUR).await;
    assert_eq!(names(&state), ["x.io/staged"]);
}

#[tokio::test]
async fn a_live_source_goes_with_time_and_a_file_stays() {
    let (state, clock) = start(7);
    let from = |source: &str, source_kind| Batch {
        source: source.into(),
        source_kind,
        ..batch(1, BatchKind::FullSyncLast, vec![node(source, 1)])
    };
    for (source, kind) in [("file", SourceKind::File), ("live", SourceKind::Live)] {
        state.apply_batch(from(source, kind)).await.unwrap();
    }
    pass(&state, &clock, 24 * HOUR).await;
    assert_eq!(state.sources().len(), 2);
    pass(&state, &clock, HOUR).await;
    let left: Vec<_> = state.sources().into_iter().map(|known| known.position.source).collect();
    assert_eq!(left, ["file".into()]);
    let snapshot = state.snapshot();
    assert_eq!(snapshot.state.node_count(), 1);
}
