//! Ledger with a hierarchy of queues: a reservation is charged along the whole path.

use super::ledger_tests::{LedgerFixture, cpu, job, queue, running};
use crate::*;
use pumice_engine::model::{JobRecord, QueueRecord, TextMap};
use pumice_engine::plugins::capacity_card::{CapacityState, PLUGIN};
use pumice_engine::policy::Compatibility;

const TREE: &str =
    "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments: {cardHierarchy: true}\n";
const HDRF: &str = "  - name: drf\n    enableHierarchy: true\n";

/// Queues `x` and `y` below `dept`, which may hold 10 cores like each of them, and 4 cards `A`; `q` is outside.
async fn tree_fixture(document: &str) -> LedgerFixture {
    let fixture = LedgerFixture::new(StateLimits::default(), Compatibility::Corrected).await;
    let reload = PolicyReload {
        name: "default".into(),
        document: document.into(),
        expected_version: None,
        dry_run: false,
        strict: false,
        compatibility: Compatibility::Corrected,
        origin: PolicyOrigin::Rpc("test".to_owned()),
    };
    fixture.state.reload_policy(reload).await.unwrap();
    let put = [
        ("dept", "", "root/dept", r#"{"A": 4}"#),
        ("x", "dept", "root/dept/x", r#"{"A": 3}"#),
        ("y", "dept", "root/dept/y", ""),
    ];
    let below = |(name, parent, place, quota): (&str, &str, &str, &str)| {
        let weights = ["1"; 3][..place.split('/').count()].join("/");
        let texts = [
            ("volcano.sh/card.quota", quota),
            ("volcano.sh/hierarchy", place),
            ("volcano.sh/hierarchy-weights", &*weights),
        ];
        let said = texts.into_iter().filter(|(_, text)| !text.is_empty());
        let annotations: TextMap = said.map(|(key, text)| (key.into(), text.into())).collect();
        BatchRecord::Queue(QueueRecord {
            name: name.into(),
            parent: parent.into(),
            capability: Some(cpu(10)),
            annotations,
            ..QueueRecord::default()
        })
    };
    let mut put: Vec<BatchRecord> = put.into_iter().map(below).collect();
    put.push(queue("q", 10));
    fixture.apply(2, BatchKind::FullSyncLast, put).await;
    fixture
}

fn job_of_queue(name: &str, queue: &str, cores: i64, cards: u32) -> JobRecord {
    let request = [("volcano.sh/card.request".into(), format!(r#"{{"A": {cards}}}"#).into())];
    JobRecord {
        queue: queue.into(),
        annotations: if cards == 0 {
            TextMap::default()
        } else {
            request.into_iter().collect()
        },
        ..job(name, "u", cores)
    }
}

impl LedgerFixture {
    /// Reserved cores and cards of each of these queues, and their allocated cores. Checks that a rebuild gives the
    /// same.
    fn queue_accounts(&self, queues: [&str; 3]) -> [(i128, i128, i128); 3] {
        let snapshot = self.state.snapshot();
        let policy = snapshot.policies.get("default").unwrap();
        let (incremental, rebuilt) = (
            snapshot.plugin_states(policy),
            policy.policy.compute_plugin_states(&snapshot.state),
        );
        let [incremental, rebuilt] =
            [&incremental, &rebuilt].map(|derived| derived.get::<CapacityState>(PLUGIN).unwrap());
        assert!(incremental.accounts().eq(rebuilt.accounts()));
        queues.map(|queue| {
            let account = incremental.account(queue).unwrap();
            let cards = account.inqueue.card_or_zero("A") / 1_000;
            (account.inqueue.cpu / 1_000, cards, account.allocated.cpu / 1_000)
        })
    }

    /// Verdict: `permitted`, or the first reason with the queue that it names.
    async fn confirm_verdict(&self, job: JobRecord, attempt: u64) -> String {
        let mut done = self.try_confirm(vec![(job, attempt)]).await.unwrap();
        let one = done.items.pop().unwrap().unwrap();
        match one.verdict.reasons.first() {
            None if one.verdict.permitted => "permitted".to_owned(),
            None => "refused".to_owned(),
            Some((reason, _)) => {
                let queue = reason.message.split_inclusive('>').next().unwrap();
                format!("{} {queue}", reason.code)
            }
        }
    }
}

const QUEUE_PATH: [&str; 3] = ["dept", "x", "y"];

#[tokio::test]
async fn a_promise_is_held_by_every_queue_of_the_path() {
    for document in [
        TREE.to_owned(),
        format!("{TREE}{HDRF}"),
        TREE.replace("plugins:\n", &format!("plugins:\n{HDRF}")),
    ] {
        let fixture = tree_fixture(&document).await;
        assert_eq!(
            fixture.confirm_verdict(job_of_queue("ns/a", "x", 6, 3), 1).await,
            "permitted"
        );
        assert_eq!(fixture.queue_accounts(QUEUE_PATH), [(6, 3, 0), (6, 3, 0), (0, 0, 0)]);
        // `y` itself has headroom for both; the queue above it has not.
        assert_eq!(
            fixture.confirm_verdict(job_of_queue("ns/b", "y", 5, 0), 1).await,
            "InsufficientCPUQuota Queue <dept>"
        );
        assert_eq!(
            fixture.confirm_verdict(job_of_queue("ns/b", "y", 1, 2), 1).await,
            "InsufficientScalarQuota Queue <dept>"
        );
        assert_eq!(
            fixture.confirm_verdict(job_of_queue("ns/b", "y", 4, 1), 1).await,
            "permitted"
        );
        assert_eq!(fixture.queue_accounts(QUEUE_PATH), [(10, 4, 0), (6, 3, 0), (4, 1, 0)]);
        // Other queues are not affected.
        assert_eq!(
            fixture.confirm_verdict(job_of_queue("ns/c", "q", 10, 0), 1).await,
            "permitted"
        );
        assert!(fixture.release("ns/a", 1).await);
        assert_eq!(fixture.queue_accounts(QUEUE_PATH), [(4, 1, 0), (0, 0, 0), (4, 1, 0)]);
        assert_eq!(
            fixture.confirm_verdict(job_of_queue("ns/b", "y", 7, 2), 1).await,
            "permitted"
        );
        assert_eq!(fixture.queue_accounts(QUEUE_PATH), [(7, 2, 0), (0, 0, 0), (7, 2, 0)]);
    }
}

#[tokio::test]
async fn what_runs_is_handed_over_along_the_path() {
    let fixture = tree_fixture(TREE).await;
    assert_eq!(
        fixture.confirm_verdict(job_of_queue("ns/a", "x", 6, 0), 1).await,
        "permitted"
    );
    let records = vec![
        BatchRecord::Job(job_of_queue("ns/a", "x", 6, 0)),
        running("ns/a-0", "ns/a", 4),
    ];
    fixture.apply(3, BatchKind::Delta, records).await;
    assert_eq!(fixture.queue_accounts(QUEUE_PATH), [(2, 0, 4), (2, 0, 4), (0, 0, 0)]);
    assert_eq!(
        fixture.confirm_verdict(job_of_queue("ns/b", "y", 5, 0), 1).await,
        "InsufficientCPUQuota Queue <dept>"
    );
    assert_eq!(
        fixture.confirm_verdict(job_of_queue("ns/b", "y", 4, 0), 1).await,
        "permitted"
    );
    fixture.remove(4, "ns/a").await;
    // The task has no job any more and counts nowhere; the promise ended with the job.
    assert_eq!(fixture.queue_accounts(QUEUE_PATH), [(4, 0, 0), (0, 0, 0), (4, 0, 0)]);
}

#[tokio::test]
async fn a_queue_that_moves_takes_its_promises_along() {
    let fixture = tree_fixture(TREE).await;
    assert_eq!(
        fixture.confirm_verdict(job_of_queue("ns/a", "x", 6, 3), 1).await,
        "permitted"
    );
    let alone = BatchRecord::Queue(QueueRecord {
        name: "x".into(),
        parent: "q".into(),
        capability: Some(cpu(10)),
        ..QueueRecord::default()
    });
    fixture.apply(3, BatchKind::Delta, vec![alone]).await;
    assert_eq!(
        fixture.queue_accounts(["dept", "q", "x"]),
        [(0, 0, 0), (6, 3, 0), (6, 3, 0)]
    );
    assert_eq!(
        fixture.confirm_verdict(job_of_queue("ns/b", "q", 5, 0), 1).await,
        "InsufficientCPUQuota Queue <q>"
    );
    assert_eq!(
        fixture.confirm_verdict(job_of_queue("ns/b", "y", 10, 0), 1).await,
        "permitted"
    );
}
