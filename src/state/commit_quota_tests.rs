//! Commits and quotas: the card that a session chose, a queue that went, and what `upstream` judges.

use std::sync::Arc;

use super::commit_stage::{QUOTAS, Stage, allocate, job, machine, pending, queue, record};
use super::commit_tests::conflicts;
use super::*;
use crate::engine::cycle::{Change, Placement};
use crate::engine::model::{Kind, NodeRecord, QueueRecord, TaskRecord, TaskStatus, Texts};

/// Without filters: only admission looks at cards.
const ADMISSION: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n    enablePredicate: false\n";

fn texts(pairs: &[(&str, &str)]) -> Texts {
    pairs
        .iter()
        .map(|(key, value)| (Arc::from(*key), Arc::from(*value)))
        .collect()
}

/// A queue with one `A` and one `B`, a node with each, and two jobs with a task that may use either.
async fn cards() -> Stage {
    let mut stage = Stage::with(Limits::default(), ADMISSION).await;
    let gpu = stage.state.names().intern("nvidia.com/gpu").unwrap();
    let mut put: Vec<Put> = [("na", "A"), ("nb", "B")]
        .into_iter()
        .map(|(name, product)| {
            let mut node = NodeRecord {
                labels: texts(&[
                    ("nvidia.com/gpu.count", "4"),
                    ("nvidia.com/gpu.memory", "81920"),
                    ("nvidia.com/gpu.product", product),
                ]),
                ..machine(name, "", 1_000)
            };
            node.allocatable.set(gpu, 4_000);
            Put::Node(Arc::new(node))
        })
        .collect();
    put.push(Put::Queue(QueueRecord {
        name: "q".into(),
        annotations: texts(&[("volcano.sh/card.quota", r#"{"A": 1, "B": 1}"#)]),
        ..QueueRecord::default()
    }));
    for name in ["a/x", "a/y"] {
        put.push(job(name, 1));
        let mut task: TaskRecord = record(&format!("{name}-0"), name, 100);
        task.annotations = texts(&[("volcano.sh/card.name", "A|B")]);
        task.requests.set(gpu, 1_000);
        put.push(Put::Task(task));
    }
    stage.put(put).await;
    stage
}

fn onto(task: &str, node: &str, card: &str) -> Change {
    Change::Allocate(Placement {
        task: task.into(),
        node: node.into(),
        card: card.into(),
    })
}

#[tokio::test]
async fn a_card_that_was_given_away_meanwhile_conflicts() {
    let stage = cards().await;
    let (one, two) = (stage.open().await, stage.open().await);
    let first = stage.commit(&one, &[onto("a/x-0", "na", "A")], &[]).await.unwrap();
    assert_eq!(conflicts(&first), []);
    let late = stage.commit(&two, &[onto("a/y-0", "na", "A")], &[]).await.unwrap();
    assert_eq!(conflicts(&late), [("a/y-0".to_owned(), "CardNotAdmitted")]);
    let reason = &late.jobs[0].conflicts[0].reason;
    assert_eq!(
        reason.message,
        "the queue of task `a/y-0` no longer admits it to card `A`"
    );
    assert_eq!(stage.task("a/y-0").0, TaskStatus::Pending);
    // The other card is there still; none said: the one that is admitted.
    let again = stage.open().await;
    let committed = stage.commit(&again, &[allocate("a/y-0", "nb")], &[]).await.unwrap();
    assert_eq!(conflicts(&committed), []);
    let world = stage.state.world();
    assert_eq!(&*world.view.tasks().get("a/y-0").unwrap().record.card, "B");
}

#[tokio::test]
async fn a_queue_that_went_meanwhile_conflicts() {
    let mut stage = Stage::with(Limits::default(), QUOTAS).await;
    let session = stage.open().await;
    stage.remove(Kind::Queue, "q").await;
    let committed = stage.commit(&session, &[allocate("a/s", "n1")], &[]).await.unwrap();
    assert_eq!(conflicts(&committed), [("a/s".to_owned(), "UNKNOWN_QUEUE")]);
    assert!(!committed.jobs[0].committed && !stage.is_assumed("a/s"));
    // It comes back, and the job may go on.
    stage.put(vec![queue("q", 1_500)]).await;
    assert!(stage.place(&[("a/s", "n1")]).await.jobs[0].committed);
}

#[tokio::test]
async fn under_upstream_commits_are_judged_as_the_reference_judges() {
    let document = format!("pumice:\n  compatibility: upstream\n{QUOTAS}");
    let mut stage = Stage::with(Limits::default(), &document).await;
    let gang = [("a/g1", "n1"), ("a/g2", "n2")];
    let committed = stage.place(&gang).await;
    assert_eq!(conflicts(&committed), []);
    // What was committed counts for the next one: 1.2 of 1.5 cores are held.
    assert!(stage.place(&[("a/s", "n1")]).await.jobs[0].committed);
    stage.put(vec![pending("a/t", "a/solo", 1)]).await;
    let full = stage.place(&[("a/t", "n1")]).await;
    assert_eq!(conflicts(&full), [("a/t".to_owned(), "InsufficientCPUQuota")]);
    // A queue without a capability may hold nothing there; under `corrected` it is without limit.
    stage
        .put(vec![Put::Queue(QueueRecord {
            name: "q".into(),
            annotations: texts(&[("volcano.sh/card.quota", r#"{"A": 1}"#)]),
            ..QueueRecord::default()
        })])
        .await;
    let closed = stage.place(&[("a/t", "n1")]).await;
    assert_eq!(conflicts(&closed), [("a/t".to_owned(), "InsufficientCPUQuota")]);
    stage.reload(QUOTAS).await;
    assert!(stage.place(&[("a/t", "n1")]).await.jobs[0].committed);
}
