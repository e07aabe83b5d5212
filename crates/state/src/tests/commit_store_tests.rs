//! Commits and the store: placements that survive a crash, how their source takes over, and the effects of a failing
//! store.

use std::sync::Arc;

use super::batch;
use super::commit_fixture::{BINPACK, CommitFixture, QUOTAS, allocate, bound_task, cluster, node, pending, record};
use super::commit_tests::rejections;
use crate::*;
use pumice_engine::cycle::SessionChange;
use pumice_engine::model::{ErrorCode, Problem, RecordKind, TaskRecord, TaskStatus};

use crate::store::{Durability, StoreErrorMode, StoreWrite};

const GANG: [(&str, &str); 2] = [("a/g1", "n1"), ("a/g2", "n2")];

fn released(result: Result<(pumice_engine::Revision, Vec<Arc<str>>), StateError>) -> Vec<String> {
    let (_, released) = result.unwrap();
    released.iter().map(ToString::to_string).collect()
}

/// Fixture whose gang is committed, and that has crashed since.
async fn after_a_crash() -> CommitFixture {
    let mut fixture = CommitFixture::new().await;
    let committed = fixture.place(&GANG).await;
    assert_eq!(
        (rejections(&committed), committed.durability),
        (vec![], Durability::Disk)
    );
    fixture.crash();
    fixture
}

#[tokio::test]
async fn a_commit_counts_after_a_crash_until_its_lease_ends() {
    let mut fixture = after_a_crash().await;
    // It may take any time: leases pause as long as no source reports the tasks.
    fixture.clock.advance(3_600_000);
    assert_eq!(fixture.stored_tasks().await.len(), 2);
    assert_eq!(fixture.state.snapshot().state.assumed_count(), 0);
    fixture.report_all(cluster()).await;
    for (task, node) in GANG {
        assert_eq!(fixture.task(task), (TaskStatus::Allocated, node.to_owned(), true));
        assert_eq!(fixture.used_cpu(node), 600);
    }
    // A task that needs the same capacity comes too late, and the gang is not placed again.
    fixture.put(vec![pending("a/big", "", 500)]).await;
    let committed = fixture.place(&[("a/big", "n1"), ("a/s", "n2")]).await;
    assert_eq!(rejections(&committed), [("a/big".to_owned(), "InsufficientResource")]);
    let session = fixture.open().await;
    let again = fixture.commit(&session, &[], &["a/gang"]).await.unwrap();
    assert_eq!(
        rejections(&again),
        [(String::new(), "NothingPlaced")],
        "it is not pending"
    );
    // One full lease, also for placements that were committed later.
    fixture.state.expire_leases().await.unwrap();
    fixture.advance_clock(270, true).await;
    assert_eq!((fixture.used_cpu("n1"), fixture.used_cpu("n2")), (600, 900));
    fixture.advance_clock(60, true).await;
    assert_eq!((fixture.used_cpu("n1"), fixture.used_cpu("n2")), (0, 0));
    assert_eq!(fixture.stored_tasks().await, Vec::<String>::new());
    fixture.crash();
    fixture.report_all(cluster()).await;
    assert_eq!(fixture.state.snapshot().state.assumed_count(), 0);
}

#[tokio::test]
async fn the_card_of_a_commit_counts_after_a_crash() {
    let mut fixture = CommitFixture::with(StateLimits::default(), QUOTAS).await;
    fixture.place(&GANG).await;
    fixture.crash();
    fixture.report_all(cluster()).await;
    // The queue uses 1.2 of its 1.5 cores.
    fixture.put(vec![pending("a/t", "a/solo", 301)]).await;
    let committed = fixture.place(&[("a/t", "n1")]).await;
    assert_eq!(rejections(&committed), [("a/t".to_owned(), "InsufficientCPUQuota")]);
}

#[tokio::test]
async fn what_the_source_shows_after_a_crash_ends_it() {
    let other = TaskRecord {
        uid: "u2".into(),
        ..record("a/g1", "a/gang", 600)
    };
    let cases = [
        (Some(bound_task("a/g1", TaskStatus::Running, "n2", 600)), "n2"),
        (Some(bound_task("a/g1", TaskStatus::Succeeded, "", 600)), ""),
        (Some(BatchRecord::Task(other)), ""),
        (None, ""),
    ];
    for (shown, at) in cases {
        let mut fixture = after_a_crash().await;
        let mut whole = cluster();
        whole.retain(|put| put.key() != (RecordKind::Task, &"a/g1".into()));
        whole.extend(shown.clone());
        fixture.report_all(whole).await;
        assert_eq!(fixture.used_cpu("n1"), 0, "{shown:?}");
        assert_eq!(
            fixture.used_cpu("n2"),
            if at == "n2" { 1_200 } else { 600 },
            "{shown:?}"
        );
        assert_eq!(fixture.stored_tasks().await, ["a/g2"], "{shown:?}");
        // A later task of that name is another incarnation.
        fixture.remove(RecordKind::Task, "a/g1").await;
        fixture.put(vec![pending("a/g1", "a/gang", 600)]).await;
        assert!(!fixture.is_assumed("a/g1"), "{shown:?}");
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_read_is_waited_for() {
    let mut fixture = after_a_crash().await;
    let problem = Problem::new(ErrorCode::QuantityInvalid, "put.tasks[0]", "malformed");
    let mut whole = batch(7, BatchKind::FullSyncLast, cluster());
    whole.put.retain(|(put, _)| put.key().0 != RecordKind::Task);
    whole.rejected = ["a/g1", "a/g2"]
        .map(|task| RejectedRecord::new(RecordKind::Task, task.into(), vec![problem.clone()]))
        .to_vec();
    fixture.state.apply_batch(whole).await.unwrap();
    fixture.sequence = 7;
    fixture.put(vec![pending("a/g1", "a/gang", 600)]).await;
    assert!(fixture.is_assumed("a/g1"));
    // The source deletes the task before its record could be read.
    fixture.remove(RecordKind::Task, "a/g2").await;
    assert_eq!(fixture.stored_tasks().await, ["a/g1"]);
}

#[tokio::test]
async fn another_source_that_reports_the_task_takes_it_over() {
    let mut fixture = after_a_crash().await;
    let whole = Batch {
        source: "other".into(),
        ..batch(1, BatchKind::FullSyncLast, cluster())
    };
    fixture.state.apply_batch(whole).await.unwrap();
    assert!(fixture.is_assumed("a/g1") && fixture.is_assumed("a/g2"));
    // The former owner has no part in it any more.
    fixture.report_all(Vec::new()).await;
    assert!(fixture.is_assumed("a/g1"));
    assert_eq!(fixture.stored_tasks().await, ["a/g1", "a/g2"]);
    let stored = fixture.store.content().content().unwrap().assumptions;
    assert!(stored.iter().all(|one| &*one.source == "other"));
}

#[tokio::test]
async fn who_committed_may_release_after_a_crash() {
    let mut fixture = CommitFixture::new().await;
    let session = fixture.open().await;
    let changes = GANG.map(|(task, node)| allocate(task, node));
    fixture.commit(&session, &changes, &[]).await.unwrap();
    fixture.place(&[("a/s", "n1"), ("a/free", "n2")]).await;
    fixture.crash();
    // No source has reported the tasks yet.
    let server = Arc::clone(&fixture.state);
    assert_eq!(
        released(server.release_assumptions("", vec!["a/s".into()]).await),
        ["a/s"]
    );
    assert_eq!(
        released(server.release_assumptions("another", vec!["a/free".into()]).await),
        Vec::<String>::new()
    );
    fixture.report_all(cluster()).await;
    assert_eq!(fixture.task("a/s"), (TaskStatus::Pending, String::new(), false));
    assert_eq!(
        released(server.release_assumptions(&session, Vec::new()).await),
        ["a/g1", "a/g2"]
    );
    assert_eq!((fixture.used_cpu("n1"), fixture.used_cpu("n2")), (0, 200));
    // A committed placement whose reply was sent is durable.
    fixture.crash();
    fixture.report_all(cluster()).await;
    assert_eq!((fixture.used_cpu("n1"), fixture.used_cpu("n2")), (0, 200));
}

#[tokio::test]
async fn a_gang_is_one_write_with_what_it_takes_back() {
    let fixture = CommitFixture::new().await;
    fixture.place(&[("a/s", "n1")]).await;
    fixture.store.take_written();
    let mut changes = vec![
        SessionChange::BindFailed("a/s".into()),
        allocate("a/s", "n2"),
        allocate("a/free", "n2"),
    ];
    changes.extend([allocate("a/g1", "n1"), allocate("a/g2", "n1")]);
    let session = fixture.open().await;
    let committed = fixture.commit(&session, &changes, &[]).await.unwrap();
    assert_eq!(rejections(&committed).len(), 2, "the gang does not fit: {committed:?}");
    let mut written = fixture.store.take_written();
    let tasks: Vec<(&str, &str)> = (written[0].iter())
        .map(|write| {
            let StoreWrite::Task {
                task,
                assumption: Some(one),
                is_reported: false,
            } = write
            else {
                panic!("{write:?}")
            };
            (&**task, &*one.node)
        })
        .collect();
    assert_eq!(tasks, [("a/free", "n2"), ("a/s", "n2")], "what holds, and only that");
    assert_eq!(written.len(), 1);
    // If no placement holds, nothing is written.
    written.clear();
    let session = fixture.open().await;
    fixture.commit(&session, &[], &["a/gang"]).await.unwrap();
    assert_eq!(fixture.store.take_written(), written);
}

#[tokio::test]
async fn a_store_that_fails_commits_nothing() {
    for problem in [StoreErrorMode::RejectWrites, StoreErrorMode::FailAfterWrite] {
        let mut fixture = CommitFixture::new().await;
        fixture.place(&[("a/s", "n1")]).await;
        let before = fixture.state.snapshot().revision;
        fixture.store.set_error_mode(problem);
        let session = fixture.open().await;
        let changes = GANG.map(|(task, node)| allocate(task, node));
        let error = fixture.commit(&session, &changes, &[]).await.unwrap_err();
        assert_eq!(error.reason(), "STORE_FAILED");
        let error = fixture
            .state
            .release_assumptions("", vec!["a/s".into()])
            .await
            .unwrap_err();
        assert_eq!(error.reason(), "STORE_FAILED");
        assert_eq!(fixture.state.snapshot().revision, before, "nothing has happened");
        assert!(fixture.is_assumed("a/s") && !fixture.is_assumed("a/g1"));
        // Batches go on, and what they show ends what was assumed.
        fixture
            .put(vec![bound_task("a/free", TaskStatus::Running, "n2", 200)])
            .await;
        fixture.store.set_error_mode(StoreErrorMode::None);
        assert_eq!(
            fixture.stored_tasks().await,
            ["a/s"],
            "what was there all the same is taken back: {problem:?}"
        );
        // The session still exists.
        let committed = fixture.commit(&session, &changes, &[]).await.unwrap();
        assert_eq!(rejections(&committed), []);
        fixture.crash();
        fixture.report_all(cluster()).await;
        assert_eq!(fixture.state.snapshot().state.assumed_count(), 3);
    }
}

#[tokio::test]
async fn what_a_failed_write_left_is_whole_and_ends() {
    let mut fixture = CommitFixture::new().await;
    fixture.store.set_error_mode(StoreErrorMode::FailAfterWrite);
    let session = fixture.open().await;
    let changes = GANG.map(|(task, node)| allocate(task, node));
    fixture.commit(&session, &changes, &[]).await.unwrap_err();
    // Nothing can release it before the server crashes.
    fixture.crash();
    fixture.report_all(cluster()).await;
    assert!(fixture.is_assumed("a/g1") && fixture.is_assumed("a/g2"));
    fixture.state.expire_leases().await.unwrap();
    fixture.advance_clock(300, true).await;
    assert_eq!(fixture.state.snapshot().state.assumed_count(), 0);
    assert_eq!(fixture.stored_tasks().await, Vec::<String>::new());
}

#[tokio::test]
async fn leases_end_whatever_the_store_says() {
    let mut fixture = CommitFixture::new().await;
    fixture.place(&GANG).await;
    fixture.state.expire_leases().await.unwrap();
    fixture.store.set_error_mode(StoreErrorMode::RejectWrites);
    fixture.advance_clock(300, true).await;
    assert_eq!((fixture.used_cpu("n1"), fixture.used_cpu("n2")), (0, 0));
    fixture.store.set_error_mode(StoreErrorMode::None);
    assert_eq!(fixture.stored_tasks().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_source_that_never_comes_back_is_waited_for_a_day() {
    let fixture = after_a_crash().await;
    let hours = async |hours: u64| {
        fixture.clock.advance(hours * 3_600_000);
        fixture.stored_tasks().await.len()
    };
    assert_eq!([hours(0).await, hours(23).await, hours(1).await], [2, 2, 0]);
}

#[tokio::test]
async fn what_waits_counts_towards_the_limit() {
    let limits = StateLimits {
        assumptions: 3,
        ..StateLimits::default()
    };
    let mut fixture = CommitFixture::with(limits, BINPACK).await;
    fixture.place(&GANG).await;
    fixture.crash();
    fixture.report_all(vec![node("n3", 1_000)]).await;
    assert_eq!(
        fixture.stored_tasks().await,
        Vec::<String>::new(),
        "their tasks are gone"
    );
    fixture.report_all(cluster()).await;
    fixture.place(&GANG).await;
    let session = fixture.open().await;
    let two = [allocate("a/s", "n1"), allocate("a/free", "n1")];
    let refused = fixture.commit(&session, &two, &[]).await.unwrap_err();
    assert!(refused.to_string().contains("2 are in use"), "{refused}");
    // Releases within the commit make room for its placements.
    let change = [SessionChange::BindFailed("a/g1".into()), allocate("a/s", "n1")];
    let session = fixture.open().await;
    fixture.commit(&session, &change, &[]).await.unwrap();
    assert_eq!(fixture.stored_tasks().await, ["a/g2", "a/s"]);
}

#[tokio::test]
async fn without_a_directory_a_commit_reports_memory() {
    let mut fixture = CommitFixture::new().await;
    fixture.state = SharedState::start(StateOptions::default(), Arc::clone(&fixture.clock) as _).unwrap();
    fixture.reload(BINPACK).await;
    fixture.report_all(cluster()).await;
    assert_eq!(fixture.place(&GANG).await.durability, Durability::Memory);
}
