//! Sessions: sequence, leases and ends, tested from inside with a fake clock.

use std::sync::Arc;
use std::time::Duration;

use super::{FakeClock, batch, node, start, task};
use crate::*;
use pumice_engine::cycle::{SessionChange, TaskPlacement};
use pumice_engine::model::{ClusterState, TaskRecord, TaskStatus};
use pumice_engine::policy::{Compatibility, CompileOptions, compile};

pub(super) const DOCUMENT: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n";

async fn open(compatibility: Compatibility) -> (Arc<SharedState>, Arc<FakeClock>, Arc<str>) {
    let (state, clock) = start();
    let reload = PolicyReload {
        name: "default".into(),
        document: DOCUMENT.into(),
        expected_version: None,
        dry_run: false,
        strict: false,
        compatibility,
        origin: PolicyOrigin::Rpc("test".to_owned()),
    };
    state.reload_policy(reload).await.unwrap();
    let pending = |name: &str| {
        let BatchRecord::Task(record) = task(name, "", 100) else {
            panic!("a task")
        };
        BatchRecord::Task(TaskRecord {
            status: TaskStatus::Pending,
            ..record
        })
    };
    let put = vec![
        node("n1", 4_000),
        node("n2", 4_000),
        pending("a/x"),
        pending("a/y"),
        task("a/r", "n1", 300),
    ];
    state.apply_batch(batch(1, BatchKind::FullSyncLast, put)).await.unwrap();
    let opened = state.open_session(open_request(None)).await.unwrap();
    (state, clock, opened.session)
}

pub(super) fn inline_policy() -> Arc<pumice_engine::PolicyInForce> {
    let compiled = compile(DOCUMENT, &CompileOptions::default()).unwrap();
    Arc::new(pumice_engine::PolicyInForce {
        name: "inline".into(),
        version: 0,
        profile: Arc::default(),
        hash: document_hash(DOCUMENT),
        policy: compiled.policy,
    })
}

pub(super) fn open_request(lease: Option<Duration>) -> OpenSession {
    OpenSession {
        base: SessionBase::Latest {
            policy: "default".into(),
            profile: Arc::default(),
        },
        batch: None,
        lease,
        connection: None,
    }
}

pub(super) fn allocate(task: &str, node: &str) -> SessionChange {
    SessionChange::Allocate(TaskPlacement {
        task: task.into(),
        node: node.into(),
        card: "".into(),
        devices: 0,
    })
}

fn status(cluster_state: &ClusterState, task: &str) -> (TaskStatus, String) {
    let stored = cluster_state.tasks().get(task).unwrap();
    (stored.record.status, stored.record.node.to_string())
}

fn reason<T: std::fmt::Debug>(result: Result<T, StateError>) -> &'static str {
    result.unwrap_err().reason()
}

#[tokio::test]
async fn changes_are_numbered_applied_once_and_seen() {
    let (state, _, session) = open(Compatibility::Corrected).await;
    let stepped = state
        .step_session(&session, 0, &[allocate("a/x", "n1"), allocate("a/y", "n2")])
        .unwrap();
    assert_eq!((stepped.applied_through, stepped.outcome.nodes.len()), (2, 2));
    let again = state
        .step_session(&session, 0, &[allocate("a/x", "n1"), allocate("a/y", "n2")])
        .unwrap();
    assert_eq!(
        (again.applied_through, again.outcome.warnings.len()),
        (2, 0),
        "skipped, not done twice"
    );
    let tail = [allocate("a/y", "n2"), SessionChange::Unallocate("a/x".into())];
    let tail = state.step_session(&session, 1, &tail).unwrap();
    assert_eq!(
        (tail.applied_through, status(&tail.cluster_state, "a/x").0),
        (3, TaskStatus::Pending)
    );
    assert_eq!(
        reason(state.step_session(&session, 7, &[allocate("a/x", "n1")])),
        "SEQUENCE_GAP"
    );
    assert_eq!(reason(state.step_session(&session, 2, &[])), "SEQUENCE_MISMATCH");
    assert_eq!(
        reason(state.step_session(&session, 0, &[allocate("a/x", "n1")])),
        "SEQUENCE_MISMATCH",
        "later changes exist"
    );
    assert_eq!(state.step_session(&session, 3, &[]).unwrap().applied_through, 3);
    let untouched = state.snapshot();
    assert_eq!(
        status(&untouched.state, "a/y").0,
        TaskStatus::Pending,
        "nothing of it shows outside"
    );
}

#[tokio::test]
async fn a_rejected_change_leaves_nothing_of_its_batch() {
    let (state, _, session) = open(Compatibility::Corrected).await;
    let changes = [allocate("a/x", "n1"), SessionChange::RollbackTo("nowhere".into())];
    let error = state.step_session(&session, 0, &changes).unwrap_err();
    assert_eq!(
        (error.reason(), error.applied_through()),
        ("SAVEPOINT_UNKNOWN", Some(0))
    );
    assert_eq!(
        status(&state.peek_session(&session).unwrap(), "a/x").0,
        TaskStatus::Pending
    );
    // The whole call is sent again, corrected.
    assert_eq!(
        state.step_session(&session, 0, &changes[..1]).unwrap().applied_through,
        1
    );
}

#[tokio::test]
async fn savepoints_bring_everything_back() {
    for compatibility in [Compatibility::Corrected, Compatibility::UPSTREAM] {
        let (state, _, session) = open(compatibility).await;
        let before = state
            .step_session(&session, 0, &[SessionChange::Savepoint("s".into())])
            .unwrap();
        let changes = [
            allocate("a/x", "n1"),
            SessionChange::Evict("a/r".into()),
            allocate("a/y", "n2"),
        ];
        let stepped = state.step_session(&session, 1, &changes).unwrap();
        assert_eq!(status(&stepped.cluster_state, "a/r").0, TaskStatus::Releasing);
        let after = state
            .step_session(&session, 4, &[SessionChange::RollbackTo("s".into())])
            .unwrap();
        assert_eq!(
            (after.applied_through, after.outcome.nodes.len()),
            (5, 2),
            "both nodes are stale again"
        );
        assert!(
            before.cluster_state.nodes().eq(after.cluster_state.nodes())
                && before
                    .cluster_state
                    .tasks()
                    .iter()
                    .eq(after.cluster_state.tasks().iter())
        );
        let twice = state
            .step_session(
                &session,
                5,
                &[allocate("a/x", "n2"), SessionChange::RollbackTo("s".into())],
            )
            .unwrap();
        assert_eq!(
            status(&twice.cluster_state, "a/x").0,
            TaskStatus::Pending,
            "the mark stays"
        );
    }
}

#[tokio::test]
async fn what_does_not_fit_is_left_out_with_a_warning() {
    let (state, _, session) = open(Compatibility::Corrected).await;
    let changes = [
        allocate("a/r", "n1"),
        allocate("a/x", "nowhere"),
        SessionChange::Unevict("a/r".into()),
        SessionChange::Evict("a/ghost".into()),
        SessionChange::Unpipeline("a/x".into()),
        SessionChange::JobEnqueued("a/job".into()),
    ];
    let stepped = state.step_session(&session, 0, &changes).unwrap();
    let warnings: Vec<(&str, &str)> = stepped
        .outcome
        .warnings
        .iter()
        .map(|warning| (warning.code.name(), &*warning.field))
        .collect();
    let expected = [
        ("CHANGE_DOES_NOT_FIT", "changes[0].allocate"),
        ("CHANGE_DOES_NOT_FIT", "changes[1].allocate"),
        ("CHANGE_DOES_NOT_FIT", "changes[2].unevict"),
        ("TASK_UNKNOWN", "changes[3].evict"),
        ("CHANGE_DOES_NOT_FIT", "changes[4].unpipeline"),
        ("JOB_UNKNOWN", "changes[5].job_enqueued"),
    ];
    assert_eq!(warnings, expected);
    assert!(stepped.outcome.nodes.is_empty() && stepped.outcome.events.is_empty());
    assert!(stepped.cluster_state.nodes().eq(state.snapshot().state.nodes()));
}

#[tokio::test]
async fn leases_end_sessions_but_not_during_a_query() {
    let (state, clock, session) = open(Compatibility::Corrected).await;
    clock.advance(29_000);
    drop(state.step_session(&session, 0, &[]).unwrap());
    clock.advance(29_000);
    let held = state.step_session(&session, 0, &[]).unwrap();
    clock.advance(60_000);
    assert!(state.peek_session(&session).is_ok(), "a call is under way");
    drop(held);
    clock.advance(31_000);
    assert_eq!(reason(state.step_session(&session, 0, &[])), "SESSION_EXPIRED");
    assert_eq!(reason(state.close_session(&session)), "SESSION_EXPIRED");
    assert_eq!(reason(state.step_session("never", 0, &[])), "SESSION_UNKNOWN");
}

#[tokio::test]
async fn no_session_outlives_its_maximum_age() {
    let (state, clock, session) = open(Compatibility::Corrected).await;
    let held = state.step_session(&session, 0, &[]).unwrap();
    clock.advance(601_000);
    assert_eq!(reason(state.step_session(&session, 0, &[])), "SESSION_EXPIRED");
    drop(held);
}

#[tokio::test]
async fn nothing_ends_a_session_under_a_change() {
    let (state, clock, session) = open(Compatibility::Corrected).await;
    let busy = state.sessions.find(&session).unwrap();
    let changing = state.sessions.claim_open(&busy.0).unwrap();
    assert_eq!(reason(state.close_session(&session)), "SESSION_BUSY");
    clock.advance(601_000);
    state.sessions.sweep();
    assert_eq!(state.session_count(), 1);
    assert_eq!(reason(state.close_session(&session)), "SESSION_BUSY");
    drop(changing);
    state.sessions.sweep();
    assert_eq!(state.session_count(), 0);
}

#[tokio::test]
async fn closing_is_remembered_for_retries() {
    let (state, clock, session) = open(Compatibility::Corrected).await;
    drop(state.step_session(&session, 0, &[allocate("a/x", "n1")]).unwrap());
    assert_eq!(state.close_session(&session).unwrap(), 1);
    assert_eq!(
        state.close_session(&session).unwrap(),
        1,
        "a retry gets the recorded outcome"
    );
    assert_eq!(reason(state.step_session(&session, 1, &[])), "SESSION_EXPIRED");
    assert_eq!(state.session_count(), 0);
    clock.advance(601_000);
    state.sessions.sweep();
    assert_eq!(
        reason(state.close_session(&session)),
        "SESSION_UNKNOWN",
        "after ten minutes it is forgotten"
    );
}

#[tokio::test]
async fn nothing_of_others_shows_in_a_session() {
    let (state, _, session) = open(Compatibility::Corrected).await;
    let pinned = state.step_session(&session, 0, &[]).unwrap();
    state
        .apply_batch(batch(2, BatchKind::FullSyncLast, vec![node("n9", 1)]))
        .await
        .unwrap();
    let seen = state.step_session(&session, 0, &[allocate("a/x", "n2")]).unwrap();
    assert_eq!(
        status(&seen.cluster_state, "a/x"),
        (TaskStatus::Allocated, "n2".to_owned())
    );
    assert_eq!((seen.revision, seen.cluster_state.node_count()), (pinned.revision, 2));
    assert_eq!(
        pinned
            .cluster_state
            .node_by_name("n2")
            .unwrap()
            .usage
            .used
            .iter()
            .count(),
        0,
        "what was handed out stays"
    );
}

#[tokio::test]
async fn a_return_over_several_marks_names_all_that_changed() {
    let (state, _, session) = open(Compatibility::Corrected).await;
    let mark = |name: &str| SessionChange::Savepoint(name.into());
    let changes = [
        mark("a"),
        allocate("a/x", "n1"),
        mark("b"),
        allocate("a/y", "n2"),
        mark("c"),
    ];
    assert!(!state.step_session(&session, 0, &changes).unwrap().repeated);
    let back = state
        .step_session(&session, 5, &[SessionChange::RollbackTo("a".into())])
        .unwrap();
    assert_eq!(back.outcome.nodes.len(), 2);
    let again = state
        .step_session(&session, 6, &[SessionChange::RollbackTo("a".into())])
        .unwrap();
    assert_eq!(again.outcome.nodes.len(), 0, "nothing changed since");
    let late = [SessionChange::RollbackTo("a".into()), allocate("a/x", "n1")];
    let late = state.step_session(&session, 6, &late).unwrap();
    assert!(late.repeated, "what the first of them did is not in the outcome");
    assert_eq!(
        reason(state.step_session(&session, 8, &[SessionChange::RollbackTo("b".into())])),
        "SAVEPOINT_UNKNOWN"
    );
}

#[tokio::test]
async fn savepoints_that_were_rolled_back_no_longer_count() {
    let (state, _, session) = open(Compatibility::Corrected).await;
    let most = u64::try_from(StateLimits::default().session_savepoints).unwrap();
    for round in 0..most + 10 {
        let changes = [
            SessionChange::Savepoint("job".into()),
            SessionChange::Savepoint("task".into()),
            SessionChange::RollbackTo("job".into()),
        ];
        if round == 0 {
            state.step_session(&session, 0, &changes).unwrap();
        } else {
            state
                .step_session(&session, 3 + (round - 1) * 2, &changes[1..])
                .unwrap();
        }
    }
}

#[tokio::test]
async fn sessions_are_bounded() {
    let clock = Arc::new(FakeClock::default());
    let limits = StateLimits {
        sessions: 2,
        session_changes: 3,
        session_savepoints: 1,
        ..StateLimits::default()
    };
    let state = SharedState::start(
        StateOptions {
            limits,
            ..StateOptions::default()
        },
        Arc::clone(&clock) as _,
    )
    .unwrap();
    let policy = inline_policy();
    let inline = || OpenSession {
        base: SessionBase::Inline {
            cluster_state: Box::new(state.snapshot().state.clone()),
            policy: Arc::clone(&policy),
        },
        ..open_request(None)
    };
    let first = state.open_session(inline()).await.unwrap().session;
    state.open_session(inline()).await.unwrap();
    assert_eq!(reason(state.open_session(inline()).await), "LIMIT_EXCEEDED");
    let evict = || SessionChange::Evict("x".into());
    assert_eq!(
        reason(state.step_session(&first, 0, &[evict(), evict(), evict(), evict()])),
        "LIMIT_EXCEEDED"
    );
    let mark = || SessionChange::Savepoint("m".into());
    assert_eq!(
        reason(state.step_session(&first, 0, &[mark(), mark()])),
        "LIMIT_EXCEEDED"
    );
    clock.advance(31_000);
    assert!(state.open_session(inline()).await.is_ok(), "expired ones make room");
}

#[tokio::test]
async fn a_recount_loses_no_change_of_the_bytes() {
    let (state, _, stored) = open(Compatibility::Corrected).await;
    drop(state.step_session(&stored, 0, &[allocate("a/x", "n1")]).unwrap());
    let bytes = state.sessions.bytes();
    assert!(bytes > 0);
    let recount = std::thread::spawn({
        let state = Arc::downgrade(&state);
        move || {
            while let Some(state) = state.upgrade() {
                state.sessions.recount_retained(&state.snapshot());
            }
        }
    });
    // Each of these sessions counts while it is open, and not a moment longer.
    for round in 0..2_000 {
        let session = state.open_session(open_request(None)).await.unwrap().session;
        drop(state.step_session(&session, 0, &[allocate("a/y", "n2")]).unwrap());
        state.close_session(&session).unwrap();
        assert_eq!(state.sessions.bytes(), bytes, "round {round}");
    }
    state.close_session(&stored).unwrap();
    assert_eq!(state.sessions.bytes(), 0);
    drop(state);
    recount.join().unwrap();
}

#[tokio::test]
async fn a_cluster_of_a_sessions_own_counts_while_it_is_open() {
    let limits = StateLimits {
        session_bytes: 1_000_000,
        ..StateLimits::default()
    };
    let (clock, policy) = (Arc::new(FakeClock::default()), inline_policy());
    let options = StateOptions {
        limits,
        ..StateOptions::default()
    };
    let state = SharedState::start(options, clock as _).unwrap();
    let mut cluster_state = ClusterState::clone(&state.snapshot().state);
    for number in 0..1_000 {
        let BatchRecord::Task(record) = task(&format!("a/{number}"), "", 100) else {
            panic!("a task")
        };
        cluster_state.put_task(record, &"own".into());
    }
    let bytes = cluster_state.held_bytes();
    let inline = || OpenSession {
        base: SessionBase::Inline {
            // A copy of its own, as if it had come in a request.
            cluster_state: Box::new(cluster_state.clone()),
            policy: Arc::clone(&policy),
        },
        ..open_request(None)
    };
    let mut open = Vec::new();
    let full = loop {
        match state.open_session(inline()).await {
            Ok(opened) => open.push(opened.session),
            Err(error) => break error,
        }
        assert!(open.len() <= 1_000_000 / bytes + 1, "{bytes} bytes each");
        assert!(state.sessions.bytes() >= open.len() * bytes / 2);
    };
    assert!(full.to_string().contains("`session_bytes` is 1000000"), "{full}");
    // The recount counts none of it twice.
    let held = state.sessions.bytes();
    state.sessions.recount_retained(&state.snapshot());
    assert_eq!(state.sessions.bytes(), held);
    for session in &open {
        state.close_session(session).unwrap();
    }
    assert_eq!(state.sessions.bytes(), 0);
}
