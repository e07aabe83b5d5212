//! Commits and the store: what outlives a crash, what takes it over, and what a store that fails leaves.

use std::sync::Arc;

use super::commit_stage::{BINPACK, QUOTAS, Stage, allocate, cluster, node, on, pending, record};
use super::commit_tests::conflicts;
use super::fallible::Fault;
use super::tests::batch;
use super::*;
use crate::engine::cycle::Change;
use crate::engine::model::{Kind, Problem, ProblemKind, TaskRecord, TaskStatus};
use crate::store::Write;

const GANG: [(&str, &str); 2] = [("a/g1", "n1"), ("a/g2", "n2")];

fn released(answer: Result<(crate::engine::Revision, Vec<Arc<str>>), StateError>) -> Vec<String> {
    let (_, released) = answer.unwrap();
    released.iter().map(ToString::to_string).collect()
}

/// A stage whose gang is committed, and that has been through a crash since.
async fn after_a_crash() -> Stage {
    let mut stage = Stage::new().await;
    let committed = stage.place(&GANG).await;
    assert_eq!(
        (conflicts(&committed), committed.durability),
        (vec![], Durability::Disk)
    );
    stage.crash();
    stage
}

#[tokio::test]
async fn a_commit_counts_after_a_crash_until_its_lease_ends() {
    let mut stage = after_a_crash().await;
    // However long it takes: leases stand still as long as nobody tells.
    stage.clock.turn(3_600_000);
    assert_eq!(stage.kept().await.len(), 2);
    assert_eq!(stage.state.world().view.assumed_count(), 0);
    stage.tell(cluster()).await;
    for (task, node) in GANG {
        assert_eq!(stage.task(task), (TaskStatus::Allocated, node.to_owned(), true));
        assert_eq!(stage.used(node), 600);
    }
    // Who needs the same room comes too late, and nobody places the gang again.
    stage.put(vec![pending("a/big", "", 500)]).await;
    let committed = stage.place(&[("a/big", "n1"), ("a/s", "n2")]).await;
    assert_eq!(conflicts(&committed), [("a/big".to_owned(), "InsufficientResource")]);
    let session = stage.open().await;
    let again = stage.commit(&session, &[], &["a/gang"]).await.unwrap();
    assert_eq!(
        conflicts(&again),
        [(String::new(), "NothingPlaced")],
        "it is not pending"
    );
    // One full lease, that of what was committed later included.
    stage.state.look_at_leases().await.unwrap();
    stage.wait(270, true).await;
    assert_eq!((stage.used("n1"), stage.used("n2")), (600, 900));
    stage.wait(60, true).await;
    assert_eq!((stage.used("n1"), stage.used("n2")), (0, 0));
    assert_eq!(stage.kept().await, Vec::<String>::new());
    stage.crash();
    stage.tell(cluster()).await;
    assert_eq!(stage.state.world().view.assumed_count(), 0);
}

#[tokio::test]
async fn the_card_of_a_commit_counts_after_a_crash() {
    let mut stage = Stage::with(Limits::default(), QUOTAS).await;
    stage.place(&GANG).await;
    stage.crash();
    stage.tell(cluster()).await;
    // The queue holds 1.2 of its 1.5 cores.
    stage.put(vec![pending("a/t", "a/solo", 301)]).await;
    let committed = stage.place(&[("a/t", "n1")]).await;
    assert_eq!(conflicts(&committed), [("a/t".to_owned(), "InsufficientCPUQuota")]);
}

#[tokio::test]
async fn what_the_source_shows_after_a_crash_ends_it() {
    let other = TaskRecord {
        uid: "u2".into(),
        ..record("a/g1", "a/gang", 600)
    };
    let cases = [
        (Some(on("a/g1", TaskStatus::Running, "n2", 600)), "n2"),
        (Some(on("a/g1", TaskStatus::Succeeded, "", 600)), ""),
        (Some(Put::Task(other)), ""),
        (None, ""),
    ];
    for (shown, at) in cases {
        let mut stage = after_a_crash().await;
        let mut whole = cluster();
        whole.retain(|put| put.key() != (Kind::Task, &"a/g1".into()));
        whole.extend(shown.clone());
        stage.tell(whole).await;
        assert_eq!(stage.used("n1"), 0, "{shown:?}");
        assert_eq!(stage.used("n2"), if at == "n2" { 1_200 } else { 600 }, "{shown:?}");
        assert_eq!(stage.kept().await, ["a/g2"], "{shown:?}");
        // A task of that name that comes later is another one.
        stage.remove(Kind::Task, "a/g1").await;
        stage.put(vec![pending("a/g1", "a/gang", 600)]).await;
        assert!(!stage.is_assumed("a/g1"), "{shown:?}");
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_read_is_waited_for() {
    let mut stage = after_a_crash().await;
    let fault = Problem::new(ProblemKind::Invalid, "INVALID", "put.tasks[0]", "malformed");
    let mut whole = batch(7, BatchKind::SnapshotLast, cluster());
    whole.put.retain(|(put, _)| put.key().0 != Kind::Task);
    whole.refused = ["a/g1", "a/g2"]
        .map(|task| (Kind::Task, task.into(), vec![fault.clone()]))
        .to_vec();
    stage.state.apply(whole).await.unwrap();
    stage.sequence = 7;
    stage.put(vec![pending("a/g1", "a/gang", 600)]).await;
    assert!(stage.is_assumed("a/g1"));
    // It is deleted before it could be read.
    stage.remove(Kind::Task, "a/g2").await;
    assert_eq!(stage.kept().await, ["a/g1"]);
}

#[tokio::test]
async fn another_source_that_tells_of_the_task_takes_it_over() {
    let mut stage = after_a_crash().await;
    let whole = Batch {
        source: "other".into(),
        ..batch(1, BatchKind::SnapshotLast, cluster())
    };
    stage.state.apply(whole).await.unwrap();
    assert!(stage.is_assumed("a/g1") && stage.is_assumed("a/g2"));
    // The former owner has no part in it any more.
    stage.tell(Vec::new()).await;
    assert!(stage.is_assumed("a/g1"));
    assert_eq!(stage.kept().await, ["a/g1", "a/g2"]);
    let kept = stage.store.content().load().unwrap().assumptions;
    assert!(kept.iter().all(|one| &*one.source == "other"));
}

#[tokio::test]
async fn who_committed_may_release_after_a_crash() {
    let mut stage = Stage::new().await;
    let session = stage.open().await;
    let changes = GANG.map(|(task, node)| allocate(task, node));
    stage.commit(&session, &changes, &[]).await.unwrap();
    stage.place(&[("a/s", "n1"), ("a/free", "n2")]).await;
    stage.crash();
    // Before anybody has told of the tasks.
    let server = Arc::clone(&stage.state);
    assert_eq!(
        released(server.release_assumptions("", vec!["a/s".into()]).await),
        ["a/s"]
    );
    assert_eq!(
        released(server.release_assumptions("another", vec!["a/free".into()]).await),
        Vec::<String>::new()
    );
    stage.tell(cluster()).await;
    assert_eq!(stage.task("a/s"), (TaskStatus::Pending, String::new(), false));
    assert_eq!(
        released(server.release_assumptions(&session, Vec::new()).await),
        ["a/g1", "a/g2"]
    );
    assert_eq!((stage.used("n1"), stage.used("n2")), (0, 200));
    // What is answered is kept.
    stage.crash();
    stage.tell(cluster()).await;
    assert_eq!((stage.used("n1"), stage.used("n2")), (0, 200));
}

#[tokio::test]
async fn a_gang_is_one_write_with_what_it_takes_back() {
    let stage = Stage::new().await;
    stage.place(&[("a/s", "n1")]).await;
    stage.store.written();
    let mut changes = vec![
        Change::BindFailed("a/s".into()),
        allocate("a/s", "n2"),
        allocate("a/free", "n2"),
    ];
    changes.extend([allocate("a/g1", "n1"), allocate("a/g2", "n1")]);
    let session = stage.open().await;
    let committed = stage.commit(&session, &changes, &[]).await.unwrap();
    assert_eq!(conflicts(&committed).len(), 2, "the gang does not fit: {committed:?}");
    let mut written = stage.store.written();
    let tasks: Vec<(&str, &str)> = (written[0].iter())
        .map(|write| {
            let Write::Task {
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
    // Without anything that holds, nothing is written.
    written.clear();
    let session = stage.open().await;
    stage.commit(&session, &[], &["a/gang"]).await.unwrap();
    assert_eq!(stage.store.written(), written);
}

#[tokio::test]
async fn a_store_that_fails_commits_nothing() {
    for fault in [Fault::Refuses, Fault::Late] {
        let mut stage = Stage::new().await;
        stage.place(&[("a/s", "n1")]).await;
        let before = stage.state.world().revision;
        stage.store.fail(fault);
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
        assert_eq!(stage.state.world().revision, before, "nothing has happened");
        assert!(stage.is_assumed("a/s") && !stage.is_assumed("a/g1"));
        // Batches go on, and what they show ends what was assumed.
        stage.put(vec![on("a/free", TaskStatus::Running, "n2", 200)]).await;
        stage.store.fail(Fault::None);
        assert_eq!(
            stage.kept().await,
            ["a/s"],
            "what was there all the same is taken back: {fault:?}"
        );
        // The session is still there.
        let committed = stage.commit(&session, &changes, &[]).await.unwrap();
        assert_eq!(conflicts(&committed), []);
        stage.crash();
        stage.tell(cluster()).await;
        assert_eq!(stage.state.world().view.assumed_count(), 3);
    }
}

#[tokio::test]
async fn what_a_failed_write_left_is_whole_and_ends() {
    let mut stage = Stage::new().await;
    stage.store.fail(Fault::Late);
    let session = stage.open().await;
    let changes = GANG.map(|(task, node)| allocate(task, node));
    stage.commit(&session, &changes, &[]).await.unwrap_err();
    // Nobody can take it back before the server dies.
    stage.crash();
    stage.tell(cluster()).await;
    assert!(stage.is_assumed("a/g1") && stage.is_assumed("a/g2"));
    stage.state.look_at_leases().await.unwrap();
    stage.wait(300, true).await;
    assert_eq!(stage.state.world().view.assumed_count(), 0);
    assert_eq!(stage.kept().await, Vec::<String>::new());
}

#[tokio::test]
async fn leases_end_whatever_the_store_says() {
    let mut stage = Stage::new().await;
    stage.place(&GANG).await;
    stage.state.look_at_leases().await.unwrap();
    stage.store.fail(Fault::Refuses);
    stage.wait(300, true).await;
    assert_eq!((stage.used("n1"), stage.used("n2")), (0, 0));
    stage.store.fail(Fault::None);
    assert_eq!(stage.kept().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_source_that_never_comes_back_is_waited_for_a_day() {
    let stage = after_a_crash().await;
    let hours = async |hours: u64| {
        stage.clock.turn(hours * 3_600_000);
        stage.kept().await.len()
    };
    assert_eq!([hours(0).await, hours(23).await, hours(1).await], [2, 2, 0]);
}

#[tokio::test]
async fn what_waits_counts_towards_the_limit() {
    let limits = Limits {
        assumptions: 3,
        ..Limits::default()
    };
    let mut stage = Stage::with(limits, BINPACK).await;
    stage.place(&GANG).await;
    stage.crash();
    stage.tell(vec![node("n3", 1_000)]).await;
    assert_eq!(stage.kept().await, Vec::<String>::new(), "their tasks are gone");
    stage.tell(cluster()).await;
    stage.place(&GANG).await;
    let session = stage.open().await;
    let two = [allocate("a/s", "n1"), allocate("a/free", "n1")];
    let refused = stage.commit(&session, &two, &[]).await.unwrap_err();
    assert!(refused.to_string().contains("2 are there"), "{refused}");
    // What the commit itself takes back makes room within it.
    let change = [Change::BindFailed("a/g1".into()), allocate("a/s", "n1")];
    let session = stage.open().await;
    stage.commit(&session, &change, &[]).await.unwrap();
    assert_eq!(stage.kept().await, ["a/g2", "a/s"]);
}

#[tokio::test]
async fn without_a_directory_a_commit_says_memory() {
    let mut stage = Stage::new().await;
    stage.state = State::start(StateOptions::default(), Arc::clone(&stage.clock) as _).unwrap();
    stage.reload(BINPACK).await;
    stage.tell(cluster()).await;
    assert_eq!(stage.place(&GANG).await.durability, Durability::Memory);
}
