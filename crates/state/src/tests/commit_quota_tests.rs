//! Commits and quotas: the card that a session chose, a removed queue, and the rules of `upstream`.

use std::sync::Arc;

use super::commit_fixture::{CommitFixture, QUOTAS, allocate, job, machine, pending, queue, record};
use super::commit_tests::rejections;
use crate::*;
use pumice_engine::cycle::{SessionChange, TaskPlacement};
use pumice_engine::model::{NodeRecord, QueueRecord, RecordKind, ResourceNaming, TaskRecord, TaskStatus, TextMap};

/// Policy without filters: only admission checks cards.
const ADMISSION: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n    enablePredicate: false\n";

fn annotations(pairs: &[(&str, &str)]) -> TextMap {
    pairs
        .iter()
        .map(|(key, value)| (Arc::from(*key), Arc::from(*value)))
        .collect()
}

/// Queue with one `A` and one `B`, a node with each, and two jobs with a task that may use either.
async fn cards(document: &str) -> CommitFixture {
    let mut fixture = CommitFixture::with(StateLimits::default(), document).await;
    let gpu = fixture
        .state
        .resource_names()
        .intern("nvidia.com/gpu", ResourceNaming::Offered)
        .unwrap();
    let mut put: Vec<BatchRecord> = [("na", "A"), ("nb", "B")]
        .into_iter()
        .map(|(name, product)| {
            let mut node = NodeRecord {
                labels: annotations(&[
                    ("nvidia.com/gpu.count", "4"),
                    ("nvidia.com/gpu.memory", "81920"),
                    ("nvidia.com/gpu.product", product),
                ]),
                ..machine(name, "", 1_000)
            };
            node.allocatable.set(gpu, 4_000);
            BatchRecord::Node(Arc::new(node))
        })
        .collect();
    put.push(quota(1, 1));
    for name in ["a/x", "a/y"] {
        put.push(job(name, 1));
        let mut task: TaskRecord = record(&format!("{name}-0"), name, 100);
        task.annotations = annotations(&[("volcano.sh/card.name", "A|B")]);
        task.requests.set(gpu, 1_000);
        put.push(BatchRecord::Task(task));
    }
    fixture.put(put).await;
    fixture
}

fn quota(of_a: u32, of_b: u32) -> BatchRecord {
    let quota = format!(r#"{{"A": {of_a}, "B": {of_b}}}"#);
    BatchRecord::Queue(QueueRecord {
        name: "q".into(),
        annotations: annotations(&[("volcano.sh/card.quota", &quota)]),
        ..QueueRecord::default()
    })
}

fn onto(task: &str, node: &str, card: &str) -> SessionChange {
    SessionChange::Allocate(TaskPlacement {
        task: task.into(),
        node: node.into(),
        card: card.into(),
        devices: 0,
    })
}

#[tokio::test]
async fn a_card_that_was_given_away_meanwhile_is_rejected() {
    let fixture = cards(ADMISSION).await;
    let (one, two) = (fixture.open().await, fixture.open().await);
    let first = fixture.commit(&one, &[onto("a/x-0", "na", "A")], &[]).await.unwrap();
    assert_eq!(rejections(&first), []);
    let late = fixture.commit(&two, &[onto("a/y-0", "na", "A")], &[]).await.unwrap();
    assert_eq!(rejections(&late), [("a/y-0".to_owned(), "CardNotAdmitted")]);
    let reason = &late.jobs[0].rejections[0].reason;
    assert_eq!(
        reason.message,
        "the queue of task `a/y-0` no longer admits it to card `A`"
    );
    assert_eq!(fixture.task("a/y-0").0, TaskStatus::Pending);
    // The node's card does not count either if the session names none, or one that the node lacks.
    for card in ["", "B"] {
        let again = fixture.open().await;
        let passed = fixture.commit(&again, &[onto("a/y-0", "na", card)], &[]).await.unwrap();
        assert_eq!(
            rejections(&passed),
            [("a/y-0".to_owned(), "CardNotAdmitted")],
            "`{card}`"
        );
        assert_eq!(
            passed.jobs[0].rejections[0].reason.message,
            "node `na` has none of the cards that task `a/y-0` may use: B"
        );
    }
    // The other card is still free; if the session names none, the admitted one is chosen.
    let again = fixture.open().await;
    let committed = fixture.commit(&again, &[allocate("a/y-0", "nb")], &[]).await.unwrap();
    assert_eq!(rejections(&committed), []);
    let snapshot = fixture.state.snapshot();
    assert_eq!(&*snapshot.state.tasks().get("a/y-0").unwrap().record.card, "B");
}

#[tokio::test]
async fn a_card_with_capacity_left_holds_whatever_came_free_elsewhere() {
    for document in [ADMISSION, QUOTAS] {
        let mut fixture = cards(document).await;
        let snapshot = fixture.state.snapshot();
        let other = TaskRecord {
            name: "a/y-1".into(),
            ..snapshot.state.tasks().get("a/y-0").unwrap().record.clone()
        };
        fixture.put(vec![BatchRecord::Task(other), quota(1, 0)]).await;
        let session = fixture.open().await;
        // Now `B` has quota for both tasks of the job, `A` only for one.
        fixture.put(vec![quota(1, 2)]).await;
        let committed = fixture
            .commit(&session, &[onto("a/y-0", "na", "A")], &[])
            .await
            .unwrap();
        assert_eq!(rejections(&committed), [], "{document}");
        // From here on `B` is the job's card, and the second task cannot use `A`.
        let late = fixture.open().await;
        let late = fixture.commit(&late, &[onto("a/y-1", "nb", "B")], &[]).await.unwrap();
        assert_eq!(rejections(&late).len(), 1, "{document}");
    }
}

#[tokio::test]
async fn a_queue_that_went_meanwhile_is_rejected() {
    let mut fixture = CommitFixture::with(StateLimits::default(), QUOTAS).await;
    let session = fixture.open().await;
    fixture.remove(RecordKind::Queue, "q").await;
    let committed = fixture.commit(&session, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(rejections(&committed), [("a/s".to_owned(), "QUEUE_UNKNOWN")]);
    assert!(!committed.jobs[0].committed && !fixture.is_assumed("a/s"));
    // The queue comes back, and the job may go on.
    fixture.put(vec![queue("q", 1_500)]).await;
    assert!(fixture.place(&[("a/s", "n1")]).await.jobs[0].committed);
}

#[tokio::test]
async fn under_upstream_commits_are_judged_as_the_reference_judges() {
    let document = format!("pumice:\n  compatibility: upstream\n{QUOTAS}");
    let mut fixture = CommitFixture::with(StateLimits::default(), &document).await;
    let gang = [("a/g1", "n1"), ("a/g2", "n2")];
    let committed = fixture.place(&gang).await;
    assert_eq!(rejections(&committed), []);
    // The committed placement counts for the next one: 1.2 of 1.5 cores are used.
    assert!(fixture.place(&[("a/s", "n1")]).await.jobs[0].committed);
    fixture.put(vec![pending("a/t", "a/solo", 1)]).await;
    let full = fixture.place(&[("a/t", "n1")]).await;
    assert_eq!(rejections(&full), [("a/t".to_owned(), "InsufficientCPUQuota")]);
    // Under `upstream` a queue without a capability may hold nothing; under `corrected` it has no limit.
    fixture
        .put(vec![BatchRecord::Queue(QueueRecord {
            name: "q".into(),
            annotations: annotations(&[("volcano.sh/card.quota", r#"{"A": 1}"#)]),
            ..QueueRecord::default()
        })])
        .await;
    let closed = fixture.place(&[("a/t", "n1")]).await;
    assert_eq!(rejections(&closed), [("a/t".to_owned(), "InsufficientCPUQuota")]);
    fixture.reload(QUOTAS).await;
    assert!(fixture.place(&[("a/t", "n1")]).await.jobs[0].committed);
}
