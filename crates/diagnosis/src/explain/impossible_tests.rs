//! Requests that `explain` calls impossible: no end of other jobs lets them start, in random clusters with quotas and cards.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::gather;
use super::report::{ExplainReport, VerdictCode};
use super::target::ExplainTarget;
use pumice::app::InProcessServer;
use pumice_console::full_sync;
use pumice_console::pinned_client::PinnedClient;
use pumice_protocol::v1 as pb;

const CARDS: [&str; 2] = ["A100", "H100"];
const GPU: &str = "nvidia.com/gpu";
/// Number of cards of each node; one node for each card.
const ON_NODE: u32 = 8;

/// Cluster with one queue, an asker and holders.
#[derive(Debug, Clone)]
struct QuotaCase {
    /// Quota of each card; 0: the quota does not name it.
    quotas: [u32; 2],
    /// Cards that the asker accepts, by index.
    accepted: Vec<usize>,
    /// Number of tasks of the asker, and cards of each.
    asker: (u32, u32),
    /// Card and number of cards of each running job.
    holders: Vec<(usize, u32)>,
    enqueued: bool,
}

impl QuotaCase {
    /// True if all tasks of the job could run on an empty cluster with one kind of card.
    fn fits_alone(&self) -> bool {
        let (tasks, each) = self.asker;
        let all = tasks * each;
        self.accepted
            .iter()
            .any(|card| self.quotas[*card] >= all && ON_NODE / each >= tasks)
    }

    fn choice(&self) -> String {
        let names: Vec<&str> = self.accepted.iter().map(|card| CARDS[*card]).collect();
        names.join("|")
    }

    fn cluster(&self, with_holders: bool) -> pb::Cluster {
        let mut cluster = pb::Cluster {
            nodes: CARDS.map(node).into(),
            queues: vec![self.queue()],
            ..pb::Cluster::default()
        };
        let (tasks, each) = self.asker;
        let phase = if self.enqueued {
            pb::JobPhase::Inqueue
        } else {
            pb::JobPhase::Pending
        };
        cluster.jobs.push(pb::Job {
            annotations: [(
                "volcano.sh/card.request".to_owned(),
                format!("{{\"{}\": {}}}", self.choice(), tasks * each),
            )]
            .into(),
            min_resources: Some(amounts(&[("cpu", 1), (GPU, tasks * each)])),
            ..job("a/asker", tasks, phase)
        });
        for at in 0..tasks {
            cluster
                .tasks
                .push(task(&format!("a/asker-{at}"), "a/asker", &self.choice(), each));
        }
        for (at, (card, cards)) in self.holders.iter().enumerate().filter(|_| with_holders) {
            let name = format!("a/holder-{at}");
            cluster.jobs.push(job(&name, 1, pb::JobPhase::Running));
            cluster.tasks.push(pb::Task {
                node: CARDS[*card].to_lowercase(),
                status: pb::TaskStatus::Running.into(),
                ..task(&format!("{name}-0"), &name, CARDS[*card], *cards)
            });
        }
        cluster
    }

    fn queue(&self) -> pb::Queue {
        let named = CARDS.iter().zip(self.quotas).filter(|(_, quota)| *quota > 0);
        let named: Vec<String> = named.map(|(card, quota)| format!("\"{card}\": {quota}")).collect();
        pb::Queue {
            name: "q".to_owned(),
            annotations: [("volcano.sh/card.quota".to_owned(), format!("{{{}}}", named.join(", ")))].into(),
            capability: Some(amounts(&[("cpu", 1000)])),
            state: pb::QueueState::Open.into(),
            ..pb::Queue::default()
        }
    }
}

fn amounts(items: &[(&str, u32)]) -> pb::ResourceList {
    let items = items
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), amount.to_string()));
    pb::ResourceList { items: items.collect() }
}

fn node(card: &str) -> pb::Node {
    let labels = [
        ("product", card.to_owned()),
        ("count", ON_NODE.to_string()),
        ("memory", "81920".to_owned()),
    ];
    pb::Node {
        name: card.to_lowercase(),
        labels: labels.map(|(name, value)| (format!("{GPU}.{name}"), value)).into(),
        allocatable: Some(amounts(&[
            ("cpu", 1000),
            ("memory", u32::MAX),
            ("pods", 100),
            (GPU, ON_NODE),
        ])),
        ..pb::Node::default()
    }
}

fn job(name: &str, min_member: u32, phase: pb::JobPhase) -> pb::Job {
    pb::Job {
        name: name.to_owned(),
        queue: "q".to_owned(),
        min_member: i32::try_from(min_member).unwrap(),
        phase: phase.into(),
        ..pb::Job::default()
    }
}

fn task(name: &str, job: &str, card: &str, cards: u32) -> pb::Task {
    pb::Task {
        name: name.to_owned(),
        job: job.to_owned(),
        annotations: [("volcano.sh/card.name".to_owned(), card.to_owned())].into(),
        requests: Some(amounts(&[("cpu", 1), (GPU, cards)])),
        limits: Some(amounts(&[(GPU, cards)])),
        ..pb::Task::default()
    }
}

fn cases() -> impl Strategy<Value = QuotaCase> {
    let accepted = prop_oneof![Just(vec![0]), Just(vec![1]), Just(vec![0, 1]), Just(vec![1, 0])];
    // One node of each card: running jobs hold at most its cards.
    let holders = (0_u32..=8, 0_u32..=8).prop_map(|(a, b)| {
        let held = [(0, a), (1, b)].into_iter();
        held.filter(|(_, cards)| *cards > 0).collect::<Vec<(usize, u32)>>()
    });
    let asker = (1_u32..=3, 1_u32..=10);
    (
        prop::array::uniform2(0_u32..=12),
        accepted,
        asker,
        holders,
        any::<bool>(),
    )
        .prop_map(|(quotas, accepted, asker, holders, enqueued)| QuotaCase {
            quotas,
            accepted,
            asker,
            holders,
            enqueued,
        })
}

async fn explain(server: &InProcessServer, cluster: pb::Cluster) -> ExplainReport {
    let mut connection = server.connection.clone();
    let loaded = full_sync::send_full_sync(&mut connection, "test", cluster)
        .await
        .unwrap();
    assert_eq!(loaded.rejected, Vec::<String>::new());
    let mut client = PinnedClient::open(connection, pb::LatestRef::default()).await.unwrap();
    let report = gather::explain(&mut client, ExplainTarget::Job("a/asker".to_owned()), 1).await;
    client.close().await;
    report.unwrap()
}

async fn started(mixed: bool) -> InProcessServer {
    let server = InProcessServer::start().await.unwrap();
    let request = pb::ReloadPolicyRequest {
        document: format!(
            "actions: \"enqueue, allocate\"\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments: {{mixedCards: {mixed}}}\n  - name: drf\n"
        ),
        ..pb::ReloadPolicyRequest::default()
    };
    server.connection.clone().policies.reload_policy(request).await.unwrap();
    server
}

fn run(mixed: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(started(mixed));
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(60)
    });
    let tested = runner.run(&cases(), |case| {
        let report = runtime.block_on(explain(&server, case.cluster(true)));
        let verdict = &report.verdict;
        prop_assert!(!verdict.waiting || !verdict.hints.is_empty(), "no remedy: {verdict:?}");
        let said = verdict.hints.iter().any(|hint| hint.contains("never fits"));
        prop_assert_eq!(said, verdict.impossible, "{:?}", verdict);
        if verdict.impossible {
            prop_assert!(!case.fits_alone(), "{verdict:?}");
            let alone = runtime.block_on(explain(&server, case.cluster(false)));
            prop_assert_ne!(alone.verdict.code, VerdictCode::Placeable, "{:?}", verdict);
        } else if verdict.code == VerdictCode::Quota && !mixed {
            let (tasks, each) = case.asker;
            let needed = if case.enqueued { each } else { tasks * each };
            let largest = case.accepted.iter().map(|card| case.quotas[*card]).max();
            prop_assert!(
                largest.is_some_and(|quota| quota >= needed),
                "it never fits: {verdict:?}"
            );
        }
        Ok(())
    });
    tested.unwrap();
}

#[test]
fn a_job_called_impossible_fits_after_no_end_of_other_jobs() {
    run(false);
}

#[test]
fn a_job_of_several_cards_called_impossible_fits_after_no_end_of_other_jobs() {
    run(true);
}

#[test]
fn a_gang_whose_tasks_take_different_cards_is_not_called_impossible() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(started(true));
    // One task finds six of the first kind only when the holder has ended, the other six of the second kind.
    let case = QuotaCase {
        quotas: [6, 10],
        accepted: vec![0, 1],
        asker: (2, 6),
        holders: vec![(0, 1)],
        enqueued: true,
    };
    let verdict = runtime.block_on(explain(&server, case.cluster(true))).verdict;
    assert_eq!(
        (verdict.code, verdict.impossible),
        (VerdictCode::Quota, false),
        "{verdict:?}"
    );
    let alone = runtime.block_on(explain(&server, case.cluster(false))).verdict;
    assert_eq!(alone.code, VerdictCode::Placeable, "{alone:?}");
}

#[test]
fn a_job_that_fits_when_another_ends_is_not_called_impossible() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let case = QuotaCase {
        quotas: [12, 4],
        accepted: vec![0, 1],
        asker: (1, 8),
        holders: vec![(0, 8), (0, 4)],
        enqueued: false,
    };
    let report = runtime.block_on(async {
        let server = started(false).await;
        let mut cluster = case.cluster(true);
        cluster.nodes.push(pb::Node {
            name: "more".to_owned(),
            ..node("A100")
        });
        if let Some(task) = cluster.tasks.last_mut() {
            task.node = "more".to_owned();
        }
        explain(&server, cluster).await
    });
    assert_eq!(report.verdict.code, VerdictCode::Quota);
    assert!(!report.verdict.impossible, "{:?}", report.verdict);
    let hints = report.verdict.hints.join("\n");
    assert!(!hints.contains("never"), "{hints}");
    assert!(
        hints.contains("it fits when 8 cards of one of A100, H100 are given back"),
        "{hints}"
    );
}
