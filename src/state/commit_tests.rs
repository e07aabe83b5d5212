//! Commits: every conflict, and what holds.

use std::sync::Arc;
use std::time::Duration;

use super::commit_stage::{BINPACK, QUOTAS, Stage, allocate, job, machine, node, on, pending, record};
use super::tests::batch;
use super::*;
use crate::engine::cycle::{Change, Placement};
use crate::engine::model::{JobRecord, Kind, NodeRecord, Problem, ProblemKind, TaskRecord, TaskStatus};

/// The conflicts of a commit: task, code.
pub(super) fn conflicts(committed: &Committed) -> Vec<(String, &'static str)> {
    let all = committed.jobs.iter().flat_map(|job| &job.conflicts);
    all.map(|conflict| {
        let task = conflict.placement.as_ref().map(|placement| placement.task.to_string());
        (task.unwrap_or_default(), conflict.reason.code)
    })
    .collect()
}

fn code(committed: &Committed) -> &'static str {
    conflicts(committed).first().map_or("", |(_, code)| code)
}

#[tokio::test]
async fn what_holds_is_assumed_and_the_outcome_is_remembered() {
    let stage = Stage::new().await;
    let session = stage.open().await;
    let changes = [allocate("a/s", "n1"), allocate("a/free", "n2")];
    let committed = stage.commit(&session, &changes, &[]).await.unwrap();
    assert_eq!(committed.revision, stage.state.world().revision);
    assert_eq!((conflicts(&committed), committed.applied_through), (vec![], 2));
    let jobs: Vec<(&str, bool)> = committed.jobs.iter().map(|job| (&*job.job, job.committed)).collect();
    assert_eq!(
        jobs,
        [("a/solo", true), ("", true)],
        "in the order of their first placements"
    );
    assert_eq!(stage.task("a/s"), (TaskStatus::Allocated, "n1".to_owned(), true));
    assert_eq!((stage.used("n1"), stage.used("n2")), (300, 200));
    let again = stage.commit(&session, &changes, &[]).await.unwrap();
    assert!(Arc::ptr_eq(&committed, &again), "a retry gets the recorded outcome");
    assert_eq!(
        stage.state.step(&session, 2, &[]).unwrap_err().reason(),
        "SESSION_EXPIRED"
    );
    assert_eq!(stage.state.close_session(&session).unwrap(), 2);
    stage.clock.turn(601_000);
    stage.state.sessions.sweep();
    let forgotten = stage.commit(&session, &changes, &[]).await.unwrap_err();
    assert_eq!(forgotten.reason(), "SESSION_UNKNOWN");
}

#[tokio::test]
async fn tasks_that_changed_conflict() {
    let mut stage = Stage::new().await;
    let (one, two) = (stage.open().await, stage.open().await);
    let place = [allocate("a/s", "n1")];
    stage.commit(&one, &place, &[]).await.unwrap();
    let second = stage.commit(&two, &place, &[]).await.unwrap();
    assert_eq!(code(&second), "TaskNotPending");
    assert!(second.jobs[0].conflicts[0].reason.message.contains("by another commit"));
    assert!(!second.jobs[0].committed);

    let session = stage.open().await;
    stage.put(vec![on("a/free", TaskStatus::Running, "n2", 200)]).await;
    let committed = stage.commit(&session, &[allocate("a/free", "n1")], &[]).await.unwrap();
    assert_eq!(code(&committed), "TaskNotPending");

    stage.put(vec![pending("a/b", "", 1), pending("a/c", "", 1)]).await;
    let (one, two) = (stage.open().await, stage.open().await);
    stage.remove(Kind::Task, "a/b").await;
    let replaced = TaskRecord {
        uid: "u2".into(),
        ..record("a/c", "", 1)
    };
    stage.put(vec![Put::Task(replaced)]).await;
    let gone = stage.commit(&one, &[allocate("a/b", "n1")], &[]).await.unwrap();
    let replaced = stage.commit(&two, &[allocate("a/c", "n1")], &[]).await.unwrap();
    assert_eq!((code(&gone), code(&replaced)), ("TaskGone", "TaskReplaced"));
}

#[tokio::test]
async fn nodes_that_changed_conflict() {
    let mut stage = Stage::new().await;
    let first = machine("n1", "m1", 1_000);
    let with = |change: &dyn Fn(&mut NodeRecord)| {
        let mut record = first.clone();
        change(&mut record);
        vec![Put::Node(Arc::new(record))]
    };
    let cases: [(&str, Vec<Put>); 4] = [
        ("NodeReplaced", with(&|node| node.uid = "m2".into())),
        ("NodeNotReady", with(&|node| node.ready = Some(false))),
        ("NodeUnschedulable", with(&|node| node.unschedulable = true)),
        (
            "InsufficientResource",
            with(&|node| node.allocatable = machine("n1", "", 100).allocatable),
        ),
    ];
    for (expected, change) in cases {
        stage.put(with(&|_| ())).await;
        let session = stage.open().await;
        stage.put(change).await;
        let committed = stage.commit(&session, &[allocate("a/s", "n1")], &[]).await.unwrap();
        assert_eq!(code(&committed), expected);
        assert!(!stage.is_assumed("a/s"), "{expected}");
    }
    let session = stage.open().await;
    stage.remove(Kind::Node, "n1").await;
    let committed = stage.commit(&session, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(code(&committed), "NodeGone");

    stage.put(with(&|_| ())).await;
    let session = stage.open().await;
    let mut delta = batch(stage.sequence + 1, BatchKind::Delta, Vec::new());
    let fault = Problem::new(ProblemKind::Invalid, "INVALID", "put.nodes[0]", "malformed");
    delta.refused = vec![(Kind::Node, "n1".into(), vec![fault])];
    stage.state.apply(delta).await.unwrap();
    let committed = stage.commit(&session, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(code(&committed), "NodeInvalid");
}

#[tokio::test]
async fn room_that_was_taken_is_said_in_figures() {
    let stage = Stage::new().await;
    let (one, two) = (stage.open().await, stage.open().await);
    let gang = [allocate("a/g1", "n1"), allocate("a/g2", "n2")];
    stage.commit(&one, &gang, &[]).await.unwrap();
    let late = [allocate("a/s", "n1"), allocate("a/free", "n1")];
    let committed = stage.commit(&two, &late, &[]).await.unwrap();
    assert_eq!(conflicts(&committed), [("a/free".to_owned(), "InsufficientResource")]);
    let conflict = &committed.jobs[1].conflicts[0];
    let figures: Vec<(&str, f64, &str)> = conflict
        .figures
        .iter()
        .map(|figure| (&*figure.name, figure.value, figure.unit))
        .collect();
    assert_eq!(figures, [("requested", 0.2, "cores"), ("idle", 0.1, "cores")]);
    assert_eq!(
        (committed.jobs[0].committed, stage.used("n1")),
        (true, 900),
        "other jobs go on"
    );
}

#[tokio::test]
async fn a_gang_holds_whole_or_not_at_all() {
    let mut stage = Stage::new().await;
    let session = stage.open().await;
    stage.remove(Kind::Node, "n2").await;
    let gang = [allocate("a/g1", "n1"), allocate("a/g2", "n2"), allocate("a/s", "n1")];
    let committed = stage.commit(&session, &gang, &[]).await.unwrap();
    assert_eq!(
        conflicts(&committed),
        [("a/g1".to_owned(), "GangIncomplete"), ("a/g2".to_owned(), "NodeGone")]
    );
    let figures = &committed.jobs[0].conflicts[0].figures;
    assert_eq!(
        figures.iter().map(|figure| figure.value).collect::<Vec<_>>(),
        [1.0, 2.0]
    );
    let committed: Vec<bool> = committed.jobs.iter().map(|job| job.committed).collect();
    assert_eq!(committed, [false, true]);
    assert_eq!(stage.task("a/g1"), (TaskStatus::Pending, String::new(), false));
    assert_eq!(stage.used("n1"), 300, "the room that it had for a moment is free again");

    // One that runs already counts.
    let running = TaskRecord {
        status: TaskStatus::Running,
        node: "n1".into(),
        ..record("a/g1", "a/gang", 600)
    };
    stage.put(vec![Put::Task(running), node("n2", 1_000)]).await;
    let committed = stage.place(&[("a/g2", "n2")]).await;
    assert!(committed.jobs[0].committed, "{:?}", conflicts(&committed));
}

#[tokio::test]
async fn jobs_that_changed_conflict() {
    let mut stage = Stage::new().await;
    let with_uid = |uid: &str| {
        let Put::Job(record) = job("a/solo", 1) else {
            panic!("a job")
        };
        vec![Put::Job(JobRecord {
            uid: uid.into(),
            ..record
        })]
    };
    stage.put(with_uid("j1")).await;
    let (one, two) = (stage.open().await, stage.open().await);
    stage.put(with_uid("j2")).await;
    let committed = stage.commit(&one, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(code(&committed), "JobReplaced");
    stage.remove(Kind::Job, "a/solo").await;
    let committed = stage.commit(&two, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(code(&committed), "JobGone");
    // A task whose job was never told is one by itself.
    let committed = stage.place(&[("a/s", "n1")]).await;
    assert!(committed.jobs[0].committed);
}

#[tokio::test]
async fn the_newest_policy_admits() {
    let mut stage = Stage::new().await;
    let (one, two) = (stage.open().await, stage.open().await);
    stage.reload(QUOTAS).await;
    let gang = [allocate("a/g1", "n1"), allocate("a/g2", "n2")];
    let committed = stage.commit(&one, &gang, &[]).await.unwrap();
    assert_eq!(conflicts(&committed), []);
    assert_eq!(committed.policy.1, 2, "version 2 has judged, not the session's");
    let committed = stage
        .commit(&two, &[allocate("a/s", "n1"), allocate("a/free", "n2")], &[])
        .await
        .unwrap();
    // 1.2 + 0.3 cores are what the queue may hold; a task without a job has no queue to ask.
    assert_eq!(conflicts(&committed), [("a/free".to_owned(), "UNKNOWN_JOB")]);
    stage.put(vec![pending("a/t", "a/solo", 1)]).await;
    let committed = stage.place(&[("a/t", "n1")]).await;
    assert_eq!(code(&committed), "InsufficientCPUQuota");
    assert!(!committed.jobs[0].conflicts[0].figures.is_empty());
}

#[tokio::test]
async fn only_named_jobs_are_committed_in_that_order() {
    let stage = Stage::new().await;
    let session = stage.open().await;
    let changes = [
        allocate("a/g1", "n1"),
        allocate("a/s", "n1"),
        allocate("a/free", "n2"),
        allocate("a/g2", "n2"),
    ];
    let twice = stage.commit(&session, &[], &["a/solo", "a/solo"]).await.unwrap_err();
    assert_eq!(twice.reason(), "JOBS_REPEATED");
    let committed = stage
        .commit(&session, &changes, &["", "a/none", "a/solo"])
        .await
        .unwrap();
    let jobs: Vec<(&str, bool)> = committed.jobs.iter().map(|job| (&*job.job, job.committed)).collect();
    assert_eq!(jobs, [("", true), ("a/none", false), ("a/solo", true)]);
    assert_eq!(conflicts(&committed), [(String::new(), "NothingPlaced")]);
    assert!(!stage.is_assumed("a/g1") && stage.is_assumed("a/s") && stage.is_assumed("a/free"));
}

#[tokio::test]
async fn evictions_and_promises_are_not_committed_and_said_so() {
    let mut stage = Stage::new().await;
    stage.put(vec![on("a/r", TaskStatus::Running, "n1", 900)]).await;
    let pipeline = Change::Pipeline(Placement {
        task: "a/s".into(),
        node: "n1".into(),
        card: "".into(),
    });
    let session = stage.open().await;
    let committed = stage
        .commit(&session, &[Change::Evict("a/r".into()), pipeline], &[])
        .await
        .unwrap();
    assert_eq!((committed.evicted.len(), committed.pipelined.len()), (1, 1));
    assert_eq!(committed.jobs, []);
    assert_eq!(stage.task("a/r").0, TaskStatus::Running);
    assert_eq!(stage.task("a/s").0, TaskStatus::Pending);
}

#[tokio::test]
async fn what_a_session_took_back_is_not_committed() {
    let stage = Stage::new().await;
    let session = stage.open().await;
    let changes = [
        allocate("a/s", "n1"),
        Change::Savepoint("gang".into()),
        allocate("a/g1", "n1"),
        Change::RollbackTo("gang".into()),
        allocate("a/free", "n1"),
        Change::Unallocate("a/free".into()),
    ];
    let committed = stage.commit(&session, &changes, &[]).await.unwrap();
    assert_eq!(committed.jobs.len(), 1);
    assert_eq!(committed.released, Vec::<Arc<str>>::new());
    assert_eq!((stage.used("n1"), stage.state.world().view.assumed_count()), (300, 1));
}

#[tokio::test]
async fn commits_are_bounded_and_a_refused_one_leaves_its_session() {
    let limits = Limits {
        assumptions: 1,
        commit_placements: 2,
        commit_outcomes: 1,
        ..Limits::default()
    };
    let stage = Stage::with(limits, BINPACK).await;
    let session = stage.open().await;
    let three = [allocate("a/s", "n1"), allocate("a/free", "n1"), allocate("a/g1", "n2")];
    let refused = stage.commit(&session, &three, &[]).await.unwrap_err();
    assert_eq!(
        (refused.reason(), refused.to_string().contains("commit_placements")),
        ("LIMIT_EXCEEDED", true)
    );
    let refused = stage.commit(&session, &three, &["a/solo", ""]).await.unwrap_err();
    assert!(refused.to_string().contains("`assumptions` is 1"), "{refused}");
    let committed = stage.commit(&session, &three, &["a/solo"]).await.unwrap();
    assert!(committed.jobs[0].committed, "the session was still there");
    let full = stage.open().await;
    let refused = stage.commit(&full, &[allocate("a/free", "n1")], &[]).await.unwrap_err();
    assert_eq!(refused.reason(), "LIMIT_EXCEEDED");
    stage.commit(&full, &[], &["a/gang"]).await.unwrap_err();
    // Only so much is remembered of how commits went; that they went stays.
    stage.state.sessions.sweep();
    assert!(stage.commit(&session, &three, &[]).await.is_ok());
    let other = stage.open().await;
    stage.clock.turn(1);
    stage.commit(&other, &[], &["a/gang"]).await.unwrap();
    stage.state.sessions.sweep();
    let forgotten = stage.commit(&session, &three, &[]).await.unwrap_err();
    assert_eq!(
        forgotten.to_string(),
        format!("session `{session}` has ended: it was committed")
    );
}

#[tokio::test]
async fn nothing_is_applied_for_a_session_that_cannot_open() {
    let stage = Stage::new().await;
    let open = OpenSession {
        ground: SessionGround::World {
            policy: "nobody".into(),
            profile: Arc::default(),
        },
        batch: Some(batch(2, BatchKind::Delta, vec![node("n3", 1)])),
        lease: Some(Duration::from_secs(1)),
    };
    let refused = stage.state.open_session(open).await.unwrap_err();
    assert_eq!(refused.reason(), "POLICY_UNKNOWN");
    assert!(stage.state.world().view.slot_of("n3").is_none());
}

#[tokio::test]
async fn a_session_on_its_own_cluster_has_nothing_to_commit_to() {
    let stage = Stage::new().await;
    let world = stage.state.world();
    let open = OpenSession {
        ground: SessionGround::Inline {
            view: Box::new(world.view.clone()),
            policy: Arc::clone(&world.policies["default"]),
        },
        batch: None,
        lease: None,
    };
    let session = stage.state.open_session(open).await.unwrap().session;
    let refused = stage.commit(&session, &[], &[]).await.unwrap_err();
    assert_eq!(refused.reason(), "SESSION_INLINE");
}
