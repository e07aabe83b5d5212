//! Commits and the store: placements that survive a crash, how their source takes over, and the effects of a failing
//! store.

use std::sync::Arc;

use super::commit_fixture::{BINPACK, CommitFixture, QUOTAS, allocate, bound_task, cluster, node, pending, record};
use super::commit_tests::rejections;
use super::failing_store::StoreErrorMode;
use super::tests::batch;
use super::*;
use crate::engine::cycle::SessionChange;
use crate::engine::model::{Problem, ProblemKind, RecordKind, TaskRecord, TaskStatus};
use crate::store::StoreWrite;

const GANG: [(&str, &str); 2] = [("a/g1", "n1"), ("a/g2", "n2")];

fn released(result: Result<(crate::engine::Revision, Vec<Arc<str>>), StateError>) -> Vec<String> {
    let (_, released) = result.unwrap();
    released.iter().map(ToString::to_string).collect()
}

/// Fixture whose gang is committed, and that has crashed since.
async fn after_a_crash() -> CommitFixture {
    let mut stage = CommitFixture::new().await;
    let committed = stage.place(&GANG).await;
    assert_eq!(
        (rejections(&committed), committed.durability),
        (vec![], Durability::Disk)
    );
    stage.crash();
    stage
}

#[tokio::test]
async fn a_commit_counts_after_a_crash_until_its_lease_ends() {
    let mut stage = after_a_crash().await;
    // It may take any time: leases pause as long as no source reports the tasks.
    stage.clock.advance(3_600_000);
    assert_eq!(stage.stored_tasks().await.len(), 2);
    assert_eq!(stage.state.snapshot().state.assumed_count(), 0);
    stage.report_all(cluster()).await;
    for (task, node) in GANG {
        assert_eq!(stage.task(task), (TaskStatus::Allocated, node.to_owned(), true));
        assert_eq!(stage.used_cpu(node), 600);
    }
    // A task that needs the same capacity comes too late, and the gang is not placed again.
    stage.put(vec![pending("a/big", "", 500)]).await;
    let committed = stage.place(&[("a/big", "n1"), ("a/s", "n2")]).await;
    assert_eq!(rejections(&committed), [("a/big".to_owned(), "InsufficientResource")]);
    let session = stage.open().await;
    let again = stage.commit(&session, &[], &["a/gang"]).await.unwrap();
    assert_eq!(
        rejections(&again),
        [(String::new(), "NothingPlaced")],
        "it is not pending"
    );
    // One full lease, also for placements that were committed later.
    stage.state.expire_leases().await.unwrap();
    stage.advance_clock(270, true).await;
    assert_eq!((stage.used_cpu("n1"), stage.used_cpu("n2")), (600, 900));
    stage.advance_clock(60, true).await;
    assert_eq!((stage.used_cpu("n1"), stage.used_cpu("n2")), (0, 0));
    assert_eq!(stage.stored_tasks().await, Vec::<String>::new());
    stage.crash();
    stage.report_all(cluster()).await;
    assert_eq!(stage.state.snapshot().state.assumed_count(), 0);
}

#[tokio::test]
async fn the_card_of_a_commit_counts_after_a_crash() {
    let mut stage = CommitFixture::with(StateLimits::default(), QUOTAS).await;
    stage.place(&GANG).await;
    stage.crash();
    stage.report_all(cluster()).await;
    // The queue uses 1.2 of its 1.5 cores.
    stage.put(vec![pending("a/t", "a/solo", 301)]).await;
    let committed = stage.place(&[("a/t", "n1")]).await;
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
        let mut stage = after_a_crash().await;
        let mut whole = cluster();
        whole.retain(|put| put.key() != (RecordKind::Task, &"a/g1".into()));
        whole.extend(shown.clone());
        stage.report_all(whole).await;
        assert_eq!(stage.used_cpu("n1"), 0, "{shown:?}");
        assert_eq!(stage.used_cpu("n2"), if at == "n2" { 1_200 } else { 600 }, "{shown:?}");
        assert_eq!(stage.stored_tasks().await, ["a/g2"], "{shown:?}");
        // A later task of that name is another incarnation.
        stage.remove(RecordKind::Task, "a/g1").await;
        stage.put(vec![pending("a/g1", "a/gang", 600)]).await;
        assert!(!stage.is_assumed("a/g1"), "{shown:?}");
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_read_is_waited_for() {
    let mut stage = after_a_crash().await;
    let problem = Problem::new(ProblemKind::Invalid, "INVALID", "put.tasks[0]", "malformed");
    let mut whole = batch(7, BatchKind::FullSyncLast, cluster());
    whole.put.retain(|(put, _)| put.key().0 != RecordKind::Task);
    whole.rejected = ["a/g1", "a/g2"]
        .map(|task| RejectedRecord::new(RecordKind::Task, task.into(), vec![problem.clone()]))
        .to_vec();
    stage.state.apply_batch(whole).await.unwrap();
    stage.sequence = 7;
    stage.put(vec![pending("a/g1", "a/gang", 600)]).await;
    assert!(stage.is_assumed("a/g1"));
    // The source deletes the task before its record could be read.
    stage.remove(RecordKind::Task, "a/g2").await;
    assert_eq!(stage.stored_tasks().await, ["a/g1"]);
}

#[tokio::test]
async fn another_source_that_reports_the_task_takes_it_over() {
    let mut stage = after_a_crash().await;
    let whole = Batch {
        source: "other".into(),
        ..batch(1, BatchKind::FullSyncLast, cluster())
    };
    stage.state.apply_batch(whole).await.unwrap();
    assert!(stage.is_assumed("a/g1") && stage.is_assumed("a/g2"));
    // The former owner has no part in it any more.
    stage.report_all(Vec::new()).await;
    assert!(stage.is_assumed("a/g1"));
    assert_eq!(stage.stored_tasks().await, ["a/g1", "a/g2"]);
    let stored = stage.store.content().load().unwrap().assumptions;
    assert!(stored.iter().all(|one| &*one.source == "other"));
}

#[tokio::test]
async fn who_committed_may_release_after_a_crash() {
    let mut stage = CommitFixture::new().await;
    let session = stage.open().await;
    let changes = GANG.map(|(task, node)| allocate(task, node));
    stage.commit(&session, &changes, &[]).await.unwrap();
    stage.place(&[("a/s", "n1"), ("a/free", "n2")]).await;
    stage.crash();
    // No source has reported the tasks yet.
    let server = Arc::clone(&stage.state);
    assert_eq!(
        released(server.release_assumptions("", vec!["a/s".into()]).await),
        ["a/s"]
    );
    assert_eq!(
        released(server.release_assumptions("another", vec!["a/free".into()]).await),
        Vec::<String>::new()
    );
    stage.report_all(cluster()).await;
    assert_eq!(stage.task("a/s"), (TaskStatus::Pending, String::new(), false));
    assert_eq!(
        released(server.release_assumptions(&session, Vec::new()).await),
        ["a/g1", "a/g2"]
    );
    assert_eq!((stage.used_cpu("n1"), stage.used_cpu("n2")), (0, 200));
    // A committed placement whose reply was sent is durable.
    stage.crash();
    stage.report_all(cluster()).await;
    assert_eq!((stage.used_cpu("n1"), stage.used_cpu("n2")), (0, 200));
}

#[tokio::test]
async fn a_gang_is_one_write_with_what_it_takes_back() {
    let stage = CommitFixture::new().await;
    stage.place(&[("a/s", "n1")]).await;
    stage.store.take_written();
    let mut changes = vec![
        SessionChange::BindFailed("a/s".into()),
        allocate("a/s", "n2"),
        allocate("a/free", "n2"),
    ];
    changes.extend([allocate("a/g1", "n1"), allocate("a/g2", "n1")]);
    let session = stage.open().await;
    let committed = stage.commit(&session, &changes, &[]).await.unwrap();
    assert_eq!(rejections(&committed).len(), 2, "the gang does not fit: {committed:?}");
    let mut written = stage.store.take_written();
    let tasks: Vec<(&str, &str)> = (written[0].iter())
        .map(|write| {
            let StoreWrite::Task {
                task,
                assumption: Some(one),
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
    let session = stage.open().await;
    stage.commit(&session, &[], &["a/gang"]).await.unwrap();
    assert_eq!(stage.store.take_written(), written);
}

#[tokio::test]
async fn a_store_that_fails_commits_nothing() {
    for problem in [StoreErrorMode::RejectWrites, StoreErrorMode::FailAfterWrite] {
        let mut stage = CommitFixture::new().await;
        stage.place(&[("a/s", "n1")]).await;
        let before = stage.state.snapshot().revision;
        stage.store.set_error_mode(problem);
        let session = stage.open().await;
        let changes = GANG.map(|(task, node)| allocate(task, node));
        let error = stage.commit(&session, &changes, &[]).await.unwrap_err();
        assert_eq!(error.reason(), "STORE_FAILED");
        let error = stage
            .state
            .release_assumptions("", vec!["a/s".into()])
            .await
            .unwrap_err();
        assert_eq!(error.reason(), "STORE_FAILED");
        assert_eq!(stage.state.snapshot().revision, before, "nothing has happened");
        assert!(stage.is_assumed("a/s") && !stage.is_assumed("a/g1"));
        // Batches go on, and what they show ends what was assumed.
        stage
            .put(vec![bound_task("a/free", TaskStatus::Running, "n2", 200)])
            .await;
        stage.store.set_error_mode(StoreErrorMode::None);
        assert_eq!(
            stage.stored_tasks().await,
            ["a/s"],
            "what was there all the same is taken back: {problem:?}"
        );
        // The session still exists.
        let committed = stage.commit(&session, &changes, &[]).await.unwrap();
        assert_eq!(rejections(&committed), []);
        stage.crash();
        stage.report_all(cluster()).await;
        assert_eq!(stage.state.snapshot().state.assumed_count(), 3);
    }
}

#[tokio::test]
async fn what_a_failed_write_left_is_whole_and_ends() {
    let mut stage = CommitFixture::new().await;
    stage.store.set_error_mode(StoreErrorMode::FailAfterWrite);
    let session = stage.open().await;
    let changes = GANG.map(|(task, node)| allocate(task, node));
    stage.commit(&session, &changes, &[]).await.unwrap_err();
    // Nothing can release it before the server crashes.
    stage.crash();
    stage.report_all(cluster()).await;
    assert!(stage.is_assumed("a/g1") && stage.is_assumed("a/g2"));
    stage.state.expire_leases().await.unwrap();
    stage.advance_clock(300, true).await;
    assert_eq!(stage.state.snapshot().state.assumed_count(), 0);
    assert_eq!(stage.stored_tasks().await, Vec::<String>::new());
}

#[tokio::test]
async fn leases_end_whatever_the_store_says() {
    let mut stage = CommitFixture::new().await;
    stage.place(&GANG).await;
    stage.state.expire_leases().await.unwrap();
    stage.store.set_error_mode(StoreErrorMode::RejectWrites);
    stage.advance_clock(300, true).await;
    assert_eq!((stage.used_cpu("n1"), stage.used_cpu("n2")), (0, 0));
    stage.store.set_error_mode(StoreErrorMode::None);
    assert_eq!(stage.stored_tasks().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_source_that_never_comes_back_is_waited_for_a_day() {
    let stage = after_a_crash().await;
    let hours = async |hours: u64| {
        stage.clock.advance(hours * 3_600_000);
        stage.stored_tasks().await.len()
    };
    assert_eq!([hours(0).await, hours(23).await, hours(1).await], [2, 2, 0]);
}

#[tokio::test]
async fn what_waits_counts_towards_the_limit() {
    let limits = StateLimits {
        assumptions: 3,
        ..StateLimits::default()
    };
    let mut stage = CommitFixture::with(limits, BINPACK).await;
    stage.place(&GANG).await;
    stage.crash();
    stage.report_all(vec![node("n3", 1_000)]).await;
    assert_eq!(stage.stored_tasks().await, Vec::<String>::new(), "their tasks are gone");
    stage.report_all(cluster()).await;
    stage.place(&GANG).await;
    let session = stage.open().await;
    let two = [allocate("a/s", "n1"), allocate("a/free", "n1")];
    let refused = stage.commit(&session, &two, &[]).await.unwrap_err();
    assert!(refused.to_string().contains("2 are in use"), "{refused}");
    // Releases within the commit make room for its placements.
    let change = [SessionChange::BindFailed("a/g1".into()), allocate("a/s", "n1")];
    let session = stage.open().await;
    stage.commit(&session, &change, &[]).await.unwrap();
    assert_eq!(stage.stored_tasks().await, ["a/g2", "a/s"]);
}

#[tokio::test]
async fn without_a_directory_a_commit_reports_memory() {
    let mut stage = CommitFixture::new().await;
    stage.state = SharedState::start(StateOptions::default(), Arc::clone(&stage.clock) as _).unwrap();
    stage.reload(BINPACK).await;
    stage.report_all(cluster()).await;
    assert_eq!(stage.place(&GANG).await.durability, Durability::Memory);
}
