//! Assumptions: every event that ends one, and events that do not.

use std::sync::Arc;

use super::batch;
use super::commit_fixture::{BINPACK, CommitFixture, allocate, bound_task, node, pending, record};
use super::commit_tests::rejections;
use crate::*;
use pumice_engine::cycle::SessionChange;
use pumice_engine::model::{ErrorCode, Problem, RecordKind, TaskRecord, TaskStatus};

#[tokio::test]
async fn an_assumption_stays_while_its_task_is_still_shown_pending() {
    let mut fixture = CommitFixture::new().await;
    fixture.place(&[("a/s", "n1")]).await;
    fixture.put(vec![pending("a/s", "a/solo", 300)]).await;
    assert_eq!(fixture.task("a/s"), (TaskStatus::Allocated, "n1".to_owned(), true));
    fixture.put(vec![pending("a/s", "a/solo", 400)]).await;
    assert_eq!(
        (fixture.is_assumed("a/s"), fixture.used_cpu("n1")),
        (true, 400),
        "what it asks for is the source's"
    );
    // A full sync without changes, and a record that cannot be read, do not end it either.
    fixture.sequence += 1;
    let put = vec![node("n1", 1_000), pending("a/s", "a/solo", 400)];
    let whole = batch(fixture.sequence, BatchKind::FullSyncLast, put);
    fixture.state.apply_batch(whole).await.unwrap();
    assert!(fixture.is_assumed("a/s"));
    fixture.sequence += 1;
    let mut delta = batch(fixture.sequence, BatchKind::Delta, Vec::new());
    let problem = Problem::new(ErrorCode::QuantityInvalid, "put.tasks[0]", "malformed");
    delta.rejected = vec![RejectedRecord::new(RecordKind::Task, "a/s".into(), vec![problem])];
    fixture.state.apply_batch(delta).await.unwrap();
    assert_eq!((fixture.is_assumed("a/s"), fixture.used_cpu("n1")), (true, 400));
    let released = fixture.state.release_assumptions("", vec!["a/s".into()]).await.unwrap();
    assert_eq!(released.1.len(), 1);
    assert!(
        fixture
            .state
            .snapshot()
            .state
            .tasks()
            .get("a/s")
            .unwrap()
            .invalid()
            .is_some()
    );
    assert_eq!(fixture.used_cpu("n1"), 0);
}

#[tokio::test]
async fn what_the_source_shows_ends_an_assumption() {
    let other = TaskRecord {
        uid: "u2".into(),
        ..record("a/s", "a/solo", 300)
    };
    let cases = [
        (bound_task("a/s", TaskStatus::Running, "n2", 300), 300),
        (bound_task("a/s", TaskStatus::Bound, "n2", 300), 300),
        (bound_task("a/s", TaskStatus::Succeeded, "", 300), 0),
        (bound_task("a/s", TaskStatus::Failed, "n1", 300), 0),
        (BatchRecord::Task(other), 0),
    ];
    for (shown, used) in cases {
        let mut fixture = CommitFixture::new().await;
        fixture.place(&[("a/s", "n1")]).await;
        fixture.put(vec![shown.clone()]).await;
        assert!(!fixture.is_assumed("a/s"), "{shown:?}");
        assert_eq!((fixture.used_cpu("n1"), fixture.used_cpu("n2")), (0, used), "{shown:?}");
        fixture.advance_clock(330, true).await;
        assert_eq!(fixture.used_cpu("n2"), used, "its lease is no more: {shown:?}");
    }
    let mut fixture = CommitFixture::new().await;
    fixture.place(&[("a/s", "n1"), ("a/free", "n1")]).await;
    fixture.remove(RecordKind::Task, "a/s").await;
    assert_eq!(fixture.used_cpu("n1"), 200);
    fixture.sequence += 1;
    let whole = batch(fixture.sequence, BatchKind::FullSyncLast, vec![node("n1", 1_000)]);
    fixture.state.apply_batch(whole).await.unwrap();
    assert_eq!(fixture.used_cpu("n1"), 0, "a snapshot without it is a delete");
    // A task of that name that comes back is another incarnation.
    fixture.put(vec![pending("a/s", "", 300)]).await;
    assert_eq!(fixture.task("a/s"), (TaskStatus::Pending, String::new(), false));
}

#[tokio::test]
async fn a_node_that_goes_does_not_end_an_assumption() {
    let mut fixture = CommitFixture::new().await;
    fixture.place(&[("a/s", "n1")]).await;
    fixture.remove(RecordKind::Node, "n1").await;
    assert!(fixture.is_assumed("a/s"));
    fixture.put(vec![node("n1", 1_000)]).await;
    assert_eq!(
        fixture.used_cpu("n1"),
        300,
        "it was bound there, as far as anybody knows"
    );
}

#[tokio::test]
async fn leases_end_assumptions_but_not_while_the_source_is_stale() {
    let mut fixture = CommitFixture::new().await;
    fixture.place(&[("a/s", "n1")]).await;
    fixture.state.expire_leases().await.unwrap();
    fixture.advance_clock(270, true).await;
    assert!(fixture.is_assumed("a/s"));
    let before = fixture.state.snapshot().revision;
    fixture.advance_clock(30, true).await;
    assert_eq!(fixture.task("a/s"), (TaskStatus::Pending, String::new(), false));
    assert!(fixture.state.snapshot().revision.number > before.number);
    assert_eq!(fixture.used_cpu("n1"), 0);

    // Time without any lease does not count against the next lease.
    fixture.advance_clock(3_000, true).await;
    fixture.place(&[("a/free", "n1")]).await;
    fixture.advance_clock(30, true).await;
    assert!(fixture.is_assumed("a/free"));
    fixture.advance_clock(3_000, false).await;
    assert!(fixture.is_assumed("a/free"), "no source could have reported it");
    // Two silences of half a minute each passed before the source counted as stale.
    fixture.put(Vec::new()).await;
    fixture.advance_clock(180, true).await;
    assert!(fixture.is_assumed("a/free"));
    fixture.advance_clock(30, true).await;
    assert!(!fixture.is_assumed("a/free"));
}

#[tokio::test]
async fn who_committed_may_release() {
    let fixture = CommitFixture::new().await;
    let session = fixture.open().await;
    let changes = [allocate("a/s", "n1"), allocate("a/free", "n1")];
    fixture.commit(&session, &changes, &[]).await.unwrap();
    let release = |session: &str, tasks: &[&str]| {
        let tasks = tasks.iter().map(|task| Arc::from(*task)).collect();
        let (own, session) = (Arc::clone(&fixture.state), session.to_owned());
        async move { own.release_assumptions(&session, tasks).await }
    };
    assert_eq!(release("", &[]).await.unwrap_err().reason(), "SELECTION_MISSING");
    assert_eq!(release("another", &["a/s"]).await.unwrap().1, Vec::<Arc<str>>::new());
    assert_eq!(release(&session, &["a/s", "a/g1"]).await.unwrap().1, ["a/s".into()]);
    assert_eq!(fixture.task("a/s"), (TaskStatus::Pending, String::new(), false));
    fixture.place(&[("a/s", "n2")]).await;
    assert_eq!(
        release(&session, &[]).await.unwrap().1,
        ["a/free".into()],
        "a late retry does not touch what another commit made"
    );
    assert!(fixture.is_assumed("a/s"));
}

#[tokio::test]
async fn a_failed_bind_reported_in_a_session_ends_the_assumption() {
    let fixture = CommitFixture::new().await;
    fixture.place(&[("a/s", "n1"), ("a/free", "n1")]).await;
    let changes = [
        SessionChange::BindFailed("a/s".into()),
        allocate("a/s", "n2"),
        SessionChange::BindFailed("a/free".into()),
    ];
    let session = fixture.open().await;
    let committed = fixture.commit(&session, &changes, &[]).await.unwrap();
    let released: Vec<&str> = committed.released.iter().map(|task| &**task).collect();
    assert_eq!((released, rejections(&committed)), (vec!["a/free", "a/s"], vec![]));
    assert_eq!(fixture.task("a/s"), (TaskStatus::Allocated, "n2".to_owned(), true));
    assert_eq!(fixture.task("a/free"), (TaskStatus::Pending, String::new(), false));
}

#[tokio::test]
async fn what_sessions_copy_is_bounded_and_given_back() {
    let limits = StateLimits {
        session_bytes: 205_000,
        ..StateLimits::default()
    };
    let mut fixture = CommitFixture::with(limits, BINPACK).await;
    let mut open = Vec::new();
    let full = loop {
        let session = fixture.open().await;
        let stepped = fixture.state.step_session(&session, 0, &[allocate("a/s", "n1")]);
        match stepped {
            Ok(_) => open.push(session),
            Err(error) => break (session, error),
        }
    };
    assert!(full.1.to_string().contains("`session_bytes` is 205000"), "{}", full.1);
    let (held, each) = (
        fixture.state.sessions.bytes(),
        fixture.state.sessions.bytes() / open.len(),
    );
    assert!(
        (2_048..50_000).contains(&each),
        "{each} bytes for one column of a chunk and what goes with it"
    );
    // Rolled back, the placement costs only the memory of the task.
    fixture
        .state
        .step_session(&open[0], 1, &[SessionChange::Unallocate("a/s".into())])
        .unwrap();
    assert!(fixture.state.sessions.bytes() <= held);
    for session in &open {
        fixture.state.close_session(session).unwrap();
    }
    let unchanged = fixture.state.sessions.bytes();
    assert!(unchanged < 2_048, "the session that could not grow: {unchanged}");
    assert!(
        fixture.state.step_session(&full.0, 0, &[allocate("a/s", "n1")]).is_ok(),
        "memory is free again"
    );
    fixture.state.close_session(&full.0).unwrap();
    // A session without changes keeps a former state alive.
    let still = fixture.open().await;
    fixture.state.sessions.recount_retained(&fixture.state.snapshot());
    assert_eq!(fixture.state.sessions.bytes(), unchanged, "its state is the newest");
    fixture.put(vec![node("n1", 2_000)]).await;
    fixture.state.sessions.recount_retained(&fixture.state.snapshot());
    assert!(fixture.state.sessions.bytes() > 4_096);
    fixture.state.close_session(&still).unwrap();
    fixture.state.sessions.recount_retained(&fixture.state.snapshot());
    assert_eq!(fixture.state.sessions.bytes(), 0);
}
