//! Placements of calls: whole or not at all, each after those before it, and known by their names.

use std::sync::Arc;

use super::commit_fixture::{BINPACK, CommitFixture, QUOTAS, bound_task, job, machine, node, pending};
use crate::*;
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::model::{TaskStatus, Uid};

/// Placement of a call: its name, its job, and tasks on nodes.
fn call(hold: &str, of_job: &str, placements: &[(&str, &str)]) -> PlacedCall {
    let proposed = placements.iter().map(|(task, node)| ProposedPlacement {
        placement: TaskPlacement {
            task: (*task).into(),
            node: (*node).into(),
            card: Arc::default(),
            devices: 0,
        },
        uid: Uid::default(),
        node_uid: Arc::default(),
    });
    PlacedCall {
        hold: hold.into(),
        job: ProposedJob {
            job: of_job.into(),
            uid: None,
            placements: proposed.collect(),
        },
    }
}

async fn commit(fixture: &CommitFixture, calls: Vec<PlacedCall>) -> Result<CommitOutcome, StateError> {
    let state = Arc::clone(&fixture.state);
    let calls = PlacementCommit {
        scope: CommitScope::Calls,
        policy: ("default".into(), Arc::default()),
        calls: Arc::new(calls),
    };
    tokio::task::spawn_blocking(move || state.commit_placed(calls, || ()))
        .await
        .unwrap()
}

/// Codes of the rejections of each call; `None`: it was committed.
fn verdicts(outcome: &CommitOutcome) -> Vec<Option<Vec<&'static str>>> {
    let codes = |job: &JobCommitOutcome| job.rejections.iter().map(|one| one.reason.code).collect();
    let jobs = outcome.jobs.iter();
    jobs.map(|job| (!job.committed).then(|| codes(job))).collect()
}

async fn held(fixture: &CommitFixture, hold: &str) -> Vec<(String, String)> {
    let placements = fixture.state.held_placements(hold.into()).await.unwrap();
    let pair = |one: &TaskPlacement| (one.task.to_string(), one.node.to_string());
    placements.iter().map(pair).collect()
}

#[tokio::test]
async fn a_call_is_committed_as_a_whole_after_those_before_it() {
    let fixture = CommitFixture::new().await;
    let calls = vec![
        call("place/one", "a/gang", &[("a/g1", "n1"), ("a/g2", "n2")]),
        // The first has taken 600 of 1,000.
        call("place/two", "a/solo", &[("a/s", "n1")]),
        call("place/three", "", &[("a/free", "n1")]),
        // Nothing is left on the first node.
        call("place/four", "a/solo", &[("a/s", "n1")]),
    ];
    let outcome = commit(&fixture, calls).await.unwrap();
    assert_eq!(
        verdicts(&outcome),
        [
            None,
            None,
            Some(vec!["InsufficientResource"]),
            Some(vec!["TaskNotPending"])
        ]
    );
    assert_eq!((fixture.used_cpu("n1"), fixture.used_cpu("n2")), (900, 600));
    assert_eq!(outcome.revision, fixture.state.snapshot().revision);
    assert_eq!(fixture.task("a/free"), (TaskStatus::Pending, String::new(), false));
    assert_eq!(held(&fixture, "place/three").await, []);
    let of_first = [("a/g1", "n1"), ("a/g2", "n2")].map(|(task, node)| (task.to_owned(), node.to_owned()));
    assert_eq!(held(&fixture, "place/one").await, of_first);
}

#[tokio::test]
async fn one_task_that_does_not_hold_keeps_the_others_from_being_placed() {
    let mut fixture = CommitFixture::new().await;
    fixture
        .put(vec![pending("a/x", "a/solo", 900), pending("a/y", "a/solo", 100)])
        .await;
    let both = call("place/both", "a/solo", &[("a/y", "n1"), ("a/x", "n1"), ("a/s", "n2")]);
    fixture
        .put(vec![bound_task("b/there", TaskStatus::Running, "n1", 200)])
        .await;
    let outcome = commit(&fixture, vec![both.clone()]).await.unwrap();
    assert_eq!(verdicts(&outcome), [Some(vec!["InsufficientResource"])]);
    let rejected = outcome.jobs[0].rejections[0].placement.as_ref().unwrap();
    assert_eq!(&*rejected.task, "a/x");
    assert_eq!((fixture.used_cpu("n1"), fixture.used_cpu("n2")), (200, 0));
    assert_eq!(fixture.state.snapshot().state.assumed_count(), 0);
    // Later calls of the same command are judged without it.
    let outcome = commit(&fixture, vec![both, call("place/y", "a/solo", &[("a/y", "n1")])])
        .await
        .unwrap();
    assert_eq!(verdicts(&outcome), [Some(vec!["InsufficientResource"]), None]);
    assert_eq!(fixture.used_cpu("n1"), 300);
}

#[tokio::test]
async fn a_gang_of_several_calls_is_counted_over_all_of_them() {
    let mut fixture = CommitFixture::new().await;
    fixture.put(vec![pending("a/g3", "a/gang", 100)]).await;
    let alone = commit(&fixture, vec![call("place/1", "a/gang", &[("a/g1", "n1")])])
        .await
        .unwrap();
    assert_eq!(verdicts(&alone), [Some(vec!["GangIncomplete"])]);
    let calls = vec![
        call("place/2", "a/gang", &[("a/g1", "n1"), ("a/g2", "n2")]),
        call("place/3", "a/gang", &[("a/g3", "n1")]),
    ];
    let both = commit(&fixture, calls).await.unwrap();
    assert_eq!(verdicts(&both), [None, None], "the gang has its tasks already");
}

#[tokio::test]
async fn quotas_count_the_calls_before() {
    let fixture = CommitFixture::with(StateLimits::default(), QUOTAS).await;
    // The queue may hold 1,500.
    let calls = vec![
        call("place/1", "a/gang", &[("a/g1", "n1"), ("a/g2", "n2")]),
        call("place/2", "a/solo", &[("a/s", "n1")]),
    ];
    let outcome = commit(&fixture, calls.clone()).await.unwrap();
    assert_eq!(verdicts(&outcome), [None, None]);
    let mut full = CommitFixture::with(StateLimits::default(), QUOTAS).await;
    full.put(vec![pending("a/s", "a/solo", 301)]).await;
    let outcome = commit(&full, calls).await.unwrap();
    let codes = verdicts(&outcome);
    assert!(codes[0].is_none() && codes[1].is_some(), "{codes:?}");
}

#[tokio::test]
async fn a_placement_is_known_by_its_name_until_it_ends() {
    let mut fixture = CommitFixture::new().await;
    commit(&fixture, vec![call("place/s", "a/solo", &[("a/s", "n1")])])
        .await
        .unwrap();
    let before = fixture.state.snapshot().revision;
    let own = vec![("a/s".to_owned(), "n1".to_owned())];
    assert_eq!(held(&fixture, "place/s").await, own);
    assert_eq!(held(&fixture, "place/other").await, []);
    assert_eq!(fixture.state.snapshot().revision, before, "a look changes nothing");
    fixture.crash();
    assert_eq!(held(&fixture, "place/s").await, own, "it is durable");
    fixture.report_all(super::commit_fixture::cluster()).await;
    assert_eq!(held(&fixture, "place/s").await, own, "its task is still pending");
    let released = fixture.state.release_assumptions("place/s", Vec::new()).await.unwrap();
    assert_eq!(released.1, ["a/s".into()]);
    assert_eq!(held(&fixture, "place/s").await, []);
}

#[tokio::test]
async fn limits_and_changed_nodes_are_reported() {
    let limits = StateLimits {
        assumptions: 2,
        commit_placements: 2,
        ..StateLimits::default()
    };
    let mut fixture = CommitFixture::with(limits, BINPACK).await;
    let three = call("place/3", "", &[("a/s", "n1"), ("a/free", "n1"), ("a/g1", "n1")]);
    let error = commit(&fixture, vec![three]).await.unwrap_err();
    assert!(
        matches!(
            error,
            StateError::Limit {
                limit: "commit_placements",
                ..
            }
        ),
        "{error}"
    );
    let calls = vec![
        call("place/1", "a/gang", &[("a/g1", "n1"), ("a/g2", "n2")]),
        call("place/2", "a/solo", &[("a/s", "n1")]),
    ];
    let error = commit(&fixture, calls).await.unwrap_err();
    assert!(
        matches!(
            error,
            StateError::Limit {
                limit: "assumptions",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(fixture.state.snapshot().state.assumed_count(), 0);
    fixture
        .put(vec![
            BatchRecord::Node(Arc::new(machine("n1", "new", 1_000))),
            node("n3", 10),
            job("a/solo", 1),
        ])
        .await;
    let mut replaced = call("place/1", "a/solo", &[("a/s", "n1")]);
    replaced.job.placements[0].node_uid = "old".into();
    let outcome = commit(&fixture, vec![replaced]).await.unwrap();
    assert_eq!(verdicts(&outcome), [Some(vec!["NodeReplaced"])]);
}
