//! Late requests, requests for another incarnation, and jobs that hold more than their reservation.

use super::ledger_tests::{LedgerFixture, job, running};
use crate::*;
use pumice_engine::policy::Compatibility;

const HOUR: u64 = 3_600_000;

async fn ledger_fixture() -> LedgerFixture {
    LedgerFixture::new(StateLimits::default(), Compatibility::Corrected).await
}

#[tokio::test]
async fn an_ended_job_is_remembered_however_long_the_server_runs() {
    let fixture = ledger_fixture().await;
    fixture.clock.advance(HOUR);
    fixture.state.expire_leases().await.unwrap();
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    fixture
        .apply(2, BatchKind::Delta, vec![BatchRecord::Job(job("ns/a", "u", 6))])
        .await;
    fixture.remove(3, "ns/a").await;
    fixture.clock.advance(500);
    fixture.state.expire_leases().await.unwrap();
    let late = fixture.confirm(job("ns/a", "u", 6), 1).await;
    assert_eq!(late, (false, 0, "ReservationReleased"));
    fixture.clock.advance(HOUR);
    fixture.state.expire_leases().await.unwrap();
    assert!(
        fixture.confirm(job("ns/a", "u", 6), 1).await.0,
        "it is not remembered forever"
    );
}

#[tokio::test]
async fn leases_end_however_often_something_is_written() {
    let fixture = ledger_fixture().await;
    fixture.state.expire_leases().await.unwrap();
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    for attempt in 1..=500 {
        fixture.clock.advance(1_500);
        fixture.apply(attempt + 1, BatchKind::Delta, Vec::new()).await;
        fixture.confirm(job("ns/b", "u", 1), attempt).await;
        fixture.release("ns/b", attempt).await;
    }
    let snapshot = fixture.state.snapshot();
    assert!(
        snapshot.state.reservations().get("ns/a").is_none(),
        "its lease of ten minutes is over"
    );
}

#[tokio::test]
async fn a_release_for_another_incarnation_opens_no_way_back() {
    let fixture = ledger_fixture().await;
    let release = |uid: &str, attempt| LedgerRelease {
        job: "ns/a".into(),
        uid: uid.into(),
        attempt,
    };
    fixture
        .apply(2, BatchKind::Delta, vec![BatchRecord::Job(job("ns/a", "u", 6))])
        .await;
    assert!(fixture.confirm(job("ns/a", "u", 6), 5).await.0);
    // That incarnation has no reservation; the next release removes the row.
    assert!(fixture.state.release(release("old", 9)).await.unwrap().is_none());
    assert!(fixture.state.release(release("", 5)).await.unwrap().is_some());
    let late = (false, 0, "ReservationReleased");
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 5).await, late);
    // A release for a third incarnation changes nothing about it.
    assert!(fixture.state.release(release("older", 0)).await.unwrap().is_none());
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 5).await, late);
    assert!(fixture.confirm(job("ns/a", "u", 6), 6).await.0);
}

#[tokio::test]
async fn a_former_incarnation_cannot_take_the_promise_of_the_job_that_is_there() {
    let fixture = ledger_fixture().await;
    fixture
        .apply(2, BatchKind::Delta, vec![BatchRecord::Job(job("ns/a", "new", 6))])
        .await;
    assert_eq!(fixture.confirm(job("ns/a", "new", 6), 1).await, (true, 6, ""));
    let mut late = fixture.try_confirm(vec![(job("ns/a", "old", 2), 1)]).await.unwrap();
    let problem = late.items.pop().unwrap().unwrap_err();
    assert_eq!(
        (problem.code.name(), &*problem.field),
        ("UID_MISMATCH", "items[0].job.uid")
    );
    assert_eq!(fixture.confirm(job("ns/a", "new", 6), 1).await, (true, 6, ""));
}

#[tokio::test]
async fn a_larger_size_counts_what_is_elastic_no_longer() {
    let fixture = ledger_fixture().await;
    let put = vec![BatchRecord::Job(job("ns/a", "u", 2)), running("ns/a-0", "ns/a", 6)];
    fixture.apply(2, BatchKind::Delta, put).await;
    // The job holds 6 cores of 10 and needs 2: four are elastic and free for others.
    assert!(fixture.confirm(job("ns/b", "u", 4), 1).await.0);
    let larger = fixture.confirm(job("ns/a", "u", 8), 1).await;
    assert_eq!((larger.0, larger.2), (false, "InsufficientCPUQuota"), "6 + 4 + 2 of 10");
    assert!(fixture.release("ns/b", 1).await);
    assert!(fixture.confirm(job("ns/a", "u", 8), 1).await.0);
    assert!(fixture.confirm(job("ns/c", "u", 2), 1).await.0);
    let more = fixture.confirm(job("ns/d", "u", 1), 1).await;
    assert_eq!(
        (more.0, more.2),
        (false, "InsufficientCPUQuota"),
        "what is promised is not elastic"
    );
}
