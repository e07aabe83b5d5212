//! Commits: every conflict, and the placements that hold.

use std::sync::Arc;
use std::time::Duration;

use super::batch;
use super::commit_fixture::{
    BINPACK, CommitFixture, QUOTAS, allocate, bound_task, job, machine, node, pending, record,
};
use crate::*;
use pumice_engine::cycle::{SessionChange, TaskPlacement};
use pumice_engine::model::{ErrorCode, JobRecord, NodeRecord, Problem, RecordKind, TaskRecord, TaskStatus};

/// Conflicts of a commit: task, code.
pub(super) fn rejections(committed: &CommitOutcome) -> Vec<(String, &'static str)> {
    let all = committed.jobs.iter().flat_map(|job| &job.rejections);
    all.map(|conflict| {
        let task = conflict.placement.as_ref().map(|placement| placement.task.to_string());
        (task.unwrap_or_default(), conflict.reason.code)
    })
    .collect()
}

fn rejection_code(committed: &CommitOutcome) -> &'static str {
    rejections(committed).first().map_or("", |(_, code)| code)
}

#[tokio::test]
async fn what_holds_is_assumed_and_the_outcome_is_remembered() {
    let fixture = CommitFixture::new().await;
    let session = fixture.open().await;
    let changes = [allocate("a/s", "n1"), allocate("a/free", "n2")];
    let committed = fixture.commit(&session, &changes, &[]).await.unwrap();
    assert_eq!(committed.revision, fixture.state.snapshot().revision);
    assert_eq!((rejections(&committed), committed.applied_through), (vec![], 2));
    let jobs: Vec<(&str, bool)> = committed.jobs.iter().map(|job| (&*job.job, job.committed)).collect();
    assert_eq!(
        jobs,
        [("a/solo", true), ("", true)],
        "in the order of their first placements"
    );
    assert_eq!(fixture.task("a/s"), (TaskStatus::Allocated, "n1".to_owned(), true));
    assert_eq!((fixture.used_cpu("n1"), fixture.used_cpu("n2")), (300, 200));
    let again = fixture.commit(&session, &changes, &[]).await.unwrap();
    assert!(Arc::ptr_eq(&committed, &again), "a retry gets the recorded outcome");
    assert_eq!(
        fixture.state.step_session(&session, 2, &[]).unwrap_err().reason(),
        "SESSION_EXPIRED"
    );
    assert_eq!(fixture.state.close_session(&session).unwrap(), 2);
    fixture.clock.advance(601_000);
    fixture.state.sessions.sweep();
    let forgotten = fixture.commit(&session, &changes, &[]).await.unwrap_err();
    assert_eq!(forgotten.reason(), "SESSION_UNKNOWN");
}

#[tokio::test]
async fn tasks_that_changed_are_rejected() {
    let mut fixture = CommitFixture::new().await;
    let (one, two) = (fixture.open().await, fixture.open().await);
    let place = [allocate("a/s", "n1")];
    fixture.commit(&one, &place, &[]).await.unwrap();
    let second = fixture.commit(&two, &place, &[]).await.unwrap();
    assert_eq!(rejection_code(&second), "TaskNotPending");
    assert!(
        second.jobs[0].rejections[0]
            .reason
            .message
            .contains("by another commit")
    );
    assert!(!second.jobs[0].committed);

    let session = fixture.open().await;
    fixture
        .put(vec![bound_task("a/free", TaskStatus::Running, "n2", 200)])
        .await;
    let committed = fixture
        .commit(&session, &[allocate("a/free", "n1")], &[])
        .await
        .unwrap();
    assert_eq!(rejection_code(&committed), "TaskNotPending");

    fixture.put(vec![pending("a/b", "", 1), pending("a/c", "", 1)]).await;
    let (one, two) = (fixture.open().await, fixture.open().await);
    fixture.remove(RecordKind::Task, "a/b").await;
    let replaced = TaskRecord {
        uid: "u2".into(),
        ..record("a/c", "", 1)
    };
    fixture.put(vec![BatchRecord::Task(replaced)]).await;
    let gone = fixture.commit(&one, &[allocate("a/b", "n1")], &[]).await.unwrap();
    let replaced = fixture.commit(&two, &[allocate("a/c", "n1")], &[]).await.unwrap();
    assert_eq!(
        (rejection_code(&gone), rejection_code(&replaced)),
        ("TaskGone", "TaskReplaced")
    );
}

#[tokio::test]
async fn nodes_that_changed_are_rejected() {
    let mut fixture = CommitFixture::new().await;
    let first = machine("n1", "m1", 1_000);
    let with = |change: &dyn Fn(&mut NodeRecord)| {
        let mut record = first.clone();
        change(&mut record);
        vec![BatchRecord::Node(Arc::new(record))]
    };
    let cases: [(&str, Vec<BatchRecord>); 4] = [
        ("NodeReplaced", with(&|node| node.uid = "m2".into())),
        ("NodeNotReady", with(&|node| node.ready = Some(false))),
        ("NodeUnschedulable", with(&|node| node.unschedulable = true)),
        (
            "InsufficientResource",
            with(&|node| node.allocatable = machine("n1", "", 100).allocatable),
        ),
    ];
    for (expected, change) in cases {
        fixture.put(with(&|_| ())).await;
        let session = fixture.open().await;
        fixture.put(change).await;
        let committed = fixture.commit(&session, &[allocate("a/s", "n1")], &[]).await.unwrap();
        assert_eq!(rejection_code(&committed), expected);
        assert!(!fixture.is_assumed("a/s"), "{expected}");
    }
    let session = fixture.open().await;
    fixture.remove(RecordKind::Node, "n1").await;
    let committed = fixture.commit(&session, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(rejection_code(&committed), "NodeGone");

    fixture.put(with(&|_| ())).await;
    let session = fixture.open().await;
    let mut delta = batch(fixture.sequence + 1, BatchKind::Delta, Vec::new());
    let problem = Problem::new(ErrorCode::QuantityInvalid, "put.nodes[0]", "malformed");
    delta.rejected = vec![RejectedRecord::new(RecordKind::Node, "n1".into(), vec![problem])];
    fixture.state.apply_batch(delta).await.unwrap();
    let committed = fixture.commit(&session, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(rejection_code(&committed), "NodeInvalid");
}

#[tokio::test]
async fn taken_capacity_is_reported_in_measurements() {
    let fixture = CommitFixture::new().await;
    let (one, two) = (fixture.open().await, fixture.open().await);
    let gang = [allocate("a/g1", "n1"), allocate("a/g2", "n2")];
    fixture.commit(&one, &gang, &[]).await.unwrap();
    let late = [allocate("a/s", "n1"), allocate("a/free", "n1")];
    let committed = fixture.commit(&two, &late, &[]).await.unwrap();
    assert_eq!(rejections(&committed), [("a/free".to_owned(), "InsufficientResource")]);
    let conflict = &committed.jobs[1].rejections[0];
    let measurements: Vec<(&str, f64, &str)> = conflict
        .measurements
        .iter()
        .map(|measurement| (&*measurement.name, measurement.value, measurement.unit))
        .collect();
    assert_eq!(measurements, [("requested", 0.2, "cores"), ("idle", 0.1, "cores")]);
    assert_eq!(
        (committed.jobs[0].committed, fixture.used_cpu("n1")),
        (true, 900),
        "other jobs go on"
    );
}

#[tokio::test]
async fn a_gang_holds_whole_or_not_at_all() {
    let mut fixture = CommitFixture::new().await;
    let session = fixture.open().await;
    fixture.remove(RecordKind::Node, "n2").await;
    let gang = [allocate("a/g1", "n1"), allocate("a/g2", "n2"), allocate("a/s", "n1")];
    let committed = fixture.commit(&session, &gang, &[]).await.unwrap();
    assert_eq!(
        rejections(&committed),
        [("a/g1".to_owned(), "GangIncomplete"), ("a/g2".to_owned(), "NodeGone")]
    );
    let measurements = &committed.jobs[0].rejections[0].measurements;
    assert_eq!(
        measurements
            .iter()
            .map(|measurement| measurement.value)
            .collect::<Vec<_>>(),
        [1.0, 2.0]
    );
    let committed: Vec<bool> = committed.jobs.iter().map(|job| job.committed).collect();
    assert_eq!(committed, [false, true]);
    assert_eq!(fixture.task("a/g1"), (TaskStatus::Pending, String::new(), false));
    assert_eq!(
        fixture.used_cpu("n1"),
        300,
        "the capacity that it used for a moment is free again"
    );

    // A member of the gang that runs already counts.
    let running = TaskRecord {
        status: TaskStatus::Running,
        node: "n1".into(),
        ..record("a/g1", "a/gang", 600)
    };
    fixture.put(vec![BatchRecord::Task(running), node("n2", 1_000)]).await;
    let committed = fixture.place(&[("a/g2", "n2")]).await;
    assert!(committed.jobs[0].committed, "{:?}", rejections(&committed));
}

#[tokio::test]
async fn jobs_that_changed_are_rejected() {
    let mut fixture = CommitFixture::new().await;
    let with_uid = |uid: &str| {
        let BatchRecord::Job(record) = job("a/solo", 1) else {
            panic!("a job")
        };
        vec![BatchRecord::Job(JobRecord {
            uid: uid.into(),
            ..record
        })]
    };
    fixture.put(with_uid("j1")).await;
    let (one, two) = (fixture.open().await, fixture.open().await);
    fixture.put(with_uid("j2")).await;
    let committed = fixture.commit(&one, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(rejection_code(&committed), "JobReplaced");
    fixture.remove(RecordKind::Job, "a/solo").await;
    let committed = fixture.commit(&two, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(rejection_code(&committed), "JobGone");
    // A task whose job was never reported counts alone.
    let committed = fixture.place(&[("a/s", "n1")]).await;
    assert!(committed.jobs[0].committed);
}

#[tokio::test]
async fn the_newest_policy_admits() {
    let mut fixture = CommitFixture::new().await;
    let (one, two) = (fixture.open().await, fixture.open().await);
    fixture.reload(QUOTAS).await;
    let gang = [allocate("a/g1", "n1"), allocate("a/g2", "n2")];
    let committed = fixture.commit(&one, &gang, &[]).await.unwrap();
    assert_eq!(rejections(&committed), []);
    assert_eq!(committed.policy.1, 2, "version 2 has judged, not the session's");
    let committed = fixture
        .commit(&two, &[allocate("a/s", "n1"), allocate("a/free", "n2")], &[])
        .await
        .unwrap();
    // The queue may use 1.2 + 0.3 cores; a task without a job has no queue.
    assert_eq!(rejections(&committed), [("a/free".to_owned(), "JOB_UNKNOWN")]);
    fixture.put(vec![pending("a/t", "a/solo", 1)]).await;
    let committed = fixture.place(&[("a/t", "n1")]).await;
    assert_eq!(rejection_code(&committed), "InsufficientCPUQuota");
    assert!(!committed.jobs[0].rejections[0].measurements.is_empty());
}

#[tokio::test]
async fn only_named_jobs_are_committed_in_that_order() {
    let fixture = CommitFixture::new().await;
    let session = fixture.open().await;
    let changes = [
        allocate("a/g1", "n1"),
        allocate("a/s", "n1"),
        allocate("a/free", "n2"),
        allocate("a/g2", "n2"),
    ];
    let twice = fixture.commit(&session, &[], &["a/solo", "a/solo"]).await.unwrap_err();
    assert_eq!(twice.reason(), "JOB_DUPLICATE");
    let committed = fixture
        .commit(&session, &changes, &["", "a/none", "a/solo"])
        .await
        .unwrap();
    let jobs: Vec<(&str, bool)> = committed.jobs.iter().map(|job| (&*job.job, job.committed)).collect();
    assert_eq!(jobs, [("", true), ("a/none", false), ("a/solo", true)]);
    assert_eq!(rejections(&committed), [(String::new(), "NothingPlaced")]);
    assert!(!fixture.is_assumed("a/g1") && fixture.is_assumed("a/s") && fixture.is_assumed("a/free"));
}

#[tokio::test]
async fn evictions_and_promises_are_reported_not_committed() {
    let mut fixture = CommitFixture::new().await;
    fixture
        .put(vec![bound_task("a/r", TaskStatus::Running, "n1", 900)])
        .await;
    let pipeline = SessionChange::Pipeline(TaskPlacement {
        task: "a/s".into(),
        node: "n1".into(),
        card: "".into(),
        devices: 0,
    });
    let session = fixture.open().await;
    let committed = fixture
        .commit(&session, &[SessionChange::Evict("a/r".into()), pipeline], &[])
        .await
        .unwrap();
    assert_eq!((committed.evicted.len(), committed.pipelined.len()), (1, 1));
    assert_eq!(committed.jobs, []);
    assert_eq!(fixture.task("a/r").0, TaskStatus::Running);
    assert_eq!(fixture.task("a/s").0, TaskStatus::Pending);
}

#[tokio::test]
async fn what_a_session_took_back_is_not_committed() {
    let fixture = CommitFixture::new().await;
    let session = fixture.open().await;
    let changes = [
        allocate("a/s", "n1"),
        SessionChange::Savepoint("gang".into()),
        allocate("a/g1", "n1"),
        SessionChange::RollbackTo("gang".into()),
        allocate("a/free", "n1"),
        SessionChange::Unallocate("a/free".into()),
    ];
    let committed = fixture.commit(&session, &changes, &[]).await.unwrap();
    assert_eq!(committed.jobs.len(), 1);
    assert_eq!(committed.released, Vec::<Arc<str>>::new());
    assert_eq!(
        (fixture.used_cpu("n1"), fixture.state.snapshot().state.assumed_count()),
        (300, 1)
    );
}

#[tokio::test]
async fn commits_are_bounded_and_a_rejected_one_leaves_its_session() {
    let limits = StateLimits {
        assumptions: 1,
        commit_placements: 2,
        ..StateLimits::default()
    };
    let fixture = CommitFixture::with(limits, BINPACK).await;
    let session = fixture.open().await;
    let three = [allocate("a/s", "n1"), allocate("a/free", "n1"), allocate("a/g1", "n2")];
    let refused = fixture.commit(&session, &three, &[]).await.unwrap_err();
    assert_eq!(
        (refused.reason(), refused.to_string().contains("commit_placements")),
        ("LIMIT_EXCEEDED", true)
    );
    let refused = fixture.commit(&session, &three, &["a/solo", ""]).await.unwrap_err();
    assert!(refused.to_string().contains("`assumptions` is 1"), "{refused}");
    let committed = fixture.commit(&session, &three, &["a/solo"]).await.unwrap();
    assert!(committed.jobs[0].committed, "the session was still there");
    let full = fixture.open().await;
    let refused = fixture
        .commit(&full, &[allocate("a/free", "n1")], &[])
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), "LIMIT_EXCEEDED");
    fixture.commit(&full, &[], &["a/gang"]).await.unwrap_err();
}

#[tokio::test]
async fn the_outcome_of_a_commit_outlives_the_sessions_of_others() {
    let limits = StateLimits {
        tombstones: 2,
        commit_outcomes: 6,
        ..StateLimits::default()
    };
    let age = u64::try_from(limits.tombstone_age.as_millis()).unwrap();
    let fixture = CommitFixture::with(limits, BINPACK).await;
    let session = fixture.open().await;
    let committed = fixture.commit(&session, &[allocate("a/s", "n1")], &[]).await.unwrap();
    let close_ten = async || {
        for _ in 0..10 {
            fixture.clock.advance(1);
            let other = fixture.open().await;
            fixture.state.close_session(&other).unwrap();
        }
        fixture.state.sessions.sweep();
    };
    close_ten().await;
    assert_eq!(fixture.commit(&session, &[], &[]).await.unwrap(), committed);

    // Commits are refused rather than outcomes lost. A session that is refused stays open.
    let mut committed_sessions = 1;
    let refused = loop {
        let other = fixture.open().await;
        match fixture.commit(&other, &[], &["a/gang"]).await {
            Ok(_) => committed_sessions += 1,
            Err(refused) => {
                fixture.state.close_session(&other).unwrap();
                break refused;
            }
        }
    };
    assert_eq!(refused.reason(), "LIMIT_EXCEEDED");
    assert!(refused.to_string().contains("`commit_outcomes` is 6"), "{refused}");
    assert!(committed_sessions > 2, "{committed_sessions}");
    close_ten().await;
    assert_eq!(fixture.commit(&session, &[], &[]).await.unwrap(), committed);

    fixture.clock.advance(age + 1);
    let forgotten = fixture.commit(&session, &[], &[]).await;
    let other = fixture.open().await;
    fixture.commit(&other, &[], &["a/gang"]).await.unwrap();
    assert!(forgotten.is_ok() || forgotten.unwrap_err().reason() == "SESSION_UNKNOWN");
    assert_eq!(
        fixture.commit(&session, &[], &[]).await.unwrap_err().reason(),
        "SESSION_UNKNOWN"
    );
}

#[tokio::test]
async fn nothing_is_applied_for_a_session_that_cannot_open() {
    let fixture = CommitFixture::new().await;
    let open = OpenSession {
        base: SessionBase::Latest {
            policy: "nobody".into(),
            profile: Arc::default(),
        },
        batch: Some(batch(2, BatchKind::Delta, vec![node("n3", 1)])),
        lease: Some(Duration::from_secs(1)),
        connection: None,
    };
    let refused = fixture.state.open_session(open).await.unwrap_err();
    assert_eq!(refused.reason(), "POLICY_UNKNOWN");
    assert!(fixture.state.snapshot().state.slot_of("n3").is_none());
}

#[tokio::test]
async fn a_session_on_its_own_cluster_has_nothing_to_commit_to() {
    let fixture = CommitFixture::new().await;
    let snapshot = fixture.state.snapshot();
    let open = OpenSession {
        base: SessionBase::Inline {
            cluster_state: Box::new(snapshot.state.clone()),
            policy: Arc::clone(&snapshot.policies["default"]),
        },
        batch: None,
        lease: None,
        connection: None,
    };
    let session = fixture.state.open_session(open).await.unwrap().session;
    let refused = fixture.commit(&session, &[], &[]).await.unwrap_err();
    assert_eq!(refused.reason(), "SESSION_INLINE");
}
