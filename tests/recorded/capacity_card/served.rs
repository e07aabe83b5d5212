//! Examples of the plugin's design document on a real server, from manifests as users write them.

use std::collections::BTreeMap;

use pumice::server::pb;
use pumice::server::pb::session_change::Change;
use pumice_kubernetes::import::{AmountRules, ClusterImport, GPU_MILLI_RESOURCE, GPU_RESOURCE};

use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync, session_ref, task_on_node};
use crate::support::wire::BlockingClients;

const POLICY: &str = include_str!("../../../examples/cards/policy.yaml");
const CLUSTER: &str = include_str!("../../../examples/cards/cluster.yaml");
const JOBS: &str = include_str!("../../../examples/cards/jobs.yaml");
const NODES: &str = include_str!("../../../examples/cards/trace-nodes.csv");
const TASKS: &str = include_str!("../../../examples/cards/trace-tasks.csv");

const A100: &str = "NVIDIA-A100-80GB";
const H100: &str = "NVIDIA-H100-80GB";
const MPS: &str = "NVIDIA-A100-80GB/mps-80g*1/8";

pub(super) fn import(files: &[(&str, &str)]) -> pb::Cluster {
    let mut import = ClusterImport::new(AmountRules::default());
    for (name, text) in files {
        import.read(name, text).unwrap();
    }
    let imported = import.finish();
    assert_eq!(imported.rejected, []);
    imported.cluster
}

fn served(cluster: pb::Cluster) -> EmbeddedServer {
    served_by(cluster, POLICY)
}

/// A server with a cluster and a policy.
pub(super) fn served_by(cluster: pb::Cluster, policy: &str) -> EmbeddedServer {
    let server = EmbeddedServer::start();
    let outcome = server.wire.apply_batch(full_sync("test", 1, cluster)).unwrap();
    assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
    let policy = pb::ReloadPolicyRequest {
        document: policy.to_owned(),
        ..Default::default()
    };
    server.wire.reload_policy(policy).unwrap();
    server
}

/// One cycle of a scheduler.
struct CardSession<'w> {
    wire: &'w BlockingClients,
    session: String,
    after: u64,
    changes: Vec<Change>,
}

impl<'w> CardSession<'w> {
    fn open(wire: &'w BlockingClients) -> Self {
        let session = wire.open_session(pb::OpenSessionRequest::default()).unwrap().session;
        Self {
            wire,
            session,
            after: 0,
            changes: Vec::new(),
        }
    }

    fn session_ref(&mut self) -> pb::EvaluationRef {
        let changes = std::mem::take(&mut self.changes);
        let sent = changes.len() as u64;
        let evaluation_ref = session_ref(&self.session, self.after, changes);
        self.after += sent;
        evaluation_ref
    }

    fn admit(&mut self, job: &str) -> pb::AdmitItem {
        let named = pb::Job {
            name: job.to_owned(),
            ..Default::default()
        };
        let asked = pb::AdmitRequest {
            against: Some(self.session_ref()),
            mode: pb::AdmitMode::Tentative.into(),
            items: vec![pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Job(named)),
                ..Default::default()
            }],
            ..Default::default()
        };
        let item = self.wire.admit(asked).unwrap().result.unwrap().items.remove(0);
        assert_eq!(item.problem, None, "{job}");
        self.after += 1;
        if item.permitted {
            self.changes.push(Change::JobEnqueued(job.to_owned()));
        }
        item
    }

    fn place(&mut self, task: &str) -> Option<String> {
        let asked = pb::ScoreRequest {
            against: Some(self.session_ref()),
            tasks: vec![pb::Task {
                name: task.to_owned(),
                ..Default::default()
            }],
            with_filter: true,
            limit: Some(1),
            ..Default::default()
        };
        let item = self.wire.score(asked).unwrap().result.unwrap().items.remove(0);
        assert_eq!(item.problem, None, "{task}");
        let node = item.nodes.unwrap_or_default().names.pop()?;
        self.changes.push(Change::Allocate(pb::TaskPlacement {
            task: task.to_owned(),
            node: node.clone(),
            card: String::new(),
            devices: Vec::new(),
        }));
        Some(node)
    }

    /// Allocated cards and quota, by queue and card.
    fn cards(&mut self) -> BTreeMap<(String, String), (f64, f64)> {
        let asked = pb::ListQueuesRequest {
            against: Some(self.session_ref()),
            ..Default::default()
        };
        let mut cards = BTreeMap::new();
        for status in self.wire.list_queues(asked).unwrap().queues {
            let account = &status.accounts[0];
            let quotas = account
                .capability
                .iter()
                .filter(|own| !["cpu", "memory"].contains(&&*own.resource));
            for quota in quotas {
                let held = account.allocated.iter().find(|own| own.resource == quota.resource);
                let held = held.map_or(0.0, |held| held.value);
                let queue = status.queue.as_ref().unwrap().name.clone();
                cards.insert((queue, quota.resource.clone()), (held / 1000.0, quota.value / 1000.0));
            }
        }
        cards
    }
}

fn tasks_of(cluster: &pb::Cluster, job: &str) -> Vec<String> {
    let own = cluster.tasks.iter().filter(|task| task.job == format!("default/{job}"));
    own.map(|task| task.name.clone()).collect()
}

#[test]
fn the_examples_of_the_design_document_come_out_as_it_says() {
    let cluster = import(&[("cluster.yaml", CLUSTER), ("jobs.yaml", JOBS)]);
    let server = served(cluster.clone());
    let mut cycle = CardSession::open(&server.wire);
    let mut by_node: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for job in ["training", "flexible-training", "inference"] {
        assert!(cycle.admit(&format!("default/{job}")).permitted, "{job}");
        for task in tasks_of(&cluster, job) {
            let node = cycle.place(&task).expect("there is room, and quota");
            *by_node
                .entry((job, node.split('-').next().unwrap().to_owned()))
                .or_default() += 1;
        }
    }
    let of = |job, node: &str| by_node.get(&(job, node.to_owned())).copied().unwrap_or(0);
    assert_eq!(of("training", "a100"), 4);
    assert_eq!(
        (of("flexible-training", "a100"), of("flexible-training", "h100")),
        (0, 4),
        "all on the card that has room for all"
    );
    assert_eq!(of("inference", "mps"), 16);
    let refused = cycle.admit("default/too-large");
    let [reason] = &refused.reasons[..] else {
        panic!("{refused:?}")
    };
    assert_eq!((&*reason.code, &*reason.resource), ("InsufficientScalarQuota", A100));
    assert!(reason.message.contains("requested <6 cards>") && reason.message.contains("capability is <5 cards>"));
    let cards = cycle.cards();
    let held = |queue: &str, card: &str| cards[&(queue.to_owned(), card.to_owned())];
    assert_eq!((held("team-a", A100), held("team-a", H100)), ((4.0, 5.0), (4.0, 4.0)));
    assert_eq!(held("team-b", MPS), (16.0, 32.0));
}

#[test]
fn choices_of_a_trace_stay_within_the_quotas() {
    let mut cluster = import(&[("nodes.csv", NODES), ("tasks.csv", TASKS)]);
    cluster
        .tasks
        .sort_by_key(|task| task.creation_time.map_or(0, |time| time.seconds));
    for (number, task) in cluster.tasks.iter_mut().enumerate() {
        task.job.clone_from(&task.name);
        let items = &task.requests.as_ref().unwrap().items;
        if items.contains_key(GPU_MILLI_RESOURCE) && !items.contains_key(GPU_RESOURCE) {
            task.limits = Some(pb::ResourceList {
                items: [(GPU_RESOURCE.to_owned(), "1".to_owned())].into(),
            });
        }
        cluster.jobs.push(pb::Job {
            name: task.name.clone(),
            queue: ["red", "blue"][number % 2].to_owned(),
            phase: pb::JobPhase::Pending.into(),
            min_member: 1,
            ..Default::default()
        });
    }
    for (queue, quota) in [
        ("red", r#"{"T4": 2, "V100M16": 2, "V100M32": 3, "P100": 1, "G2": 4}"#),
        ("blue", r#"{"T4": 3, "V100M32": 2}"#),
    ] {
        cluster.queues.push(pb::Queue {
            name: queue.to_owned(),
            annotations: [("volcano.sh/card.quota".to_owned(), quota.to_owned())].into(),
            ..Default::default()
        });
    }
    let names: Vec<String> = cluster.tasks.iter().map(|task| task.name.clone()).collect();
    let server = served(cluster);
    let mut cycle = CardSession::open(&server.wire);
    let (mut placed, mut refused) = (0, 0);
    for name in &names {
        if cycle.admit(name).permitted {
            placed += usize::from(cycle.place(name).is_some());
        } else {
            refused += 1;
        }
        for ((queue, card), (held, quota)) in cycle.cards() {
            assert!(held <= quota, "{queue} holds {held} of {card}, and may hold {quota}");
        }
    }
    assert!(placed >= 10 && refused >= 10, "{placed} placed, {refused} refused");
    let full = cycle.cards().values().filter(|(held, quota)| held >= quota).count();
    assert!(full >= 4, "{:?}", cycle.cards());
}

#[test]
fn queue_metrics_match_the_state() {
    let cluster = import(&[("cluster.yaml", CLUSTER), ("jobs.yaml", JOBS)]);
    let server = served(cluster.clone());
    let read = |series: &str| {
        let (_, page) = server.page("/metrics");
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse::<f64>().unwrap())
    };
    let card = |metric: &str, card: &str| {
        read(&format!(
            "volcano_queue_card_{metric}{{policy=\"default\",queue_name=\"team-a\",card=\"{card}\"}}"
        ))
    };
    let plain = |metric: &str| {
        read(&format!(
            "volcano_queue_{metric}{{policy=\"default\",queue_name=\"team-a\"}}"
        ))
    };
    assert_eq!((card("capacity", A100), card("deserved", H100)), (Some(5.0), Some(4.0)));
    assert_eq!((card("request", A100), card("allocated", A100)), (Some(4.0), None));
    assert_eq!(card("request", &format!("{A100}|{H100}")), Some(4.0));
    assert_eq!(
        (plain("capacity_milli_cpu"), plain("share")),
        (Some(100_000.0), Some(0.0))
    );
    let scalar = format!(
        "volcano_queue_capacity_scalar_resources{{policy=\"default\",queue_name=\"team-a\",resource=\"{A100}\"}}"
    );
    assert_eq!(read(&scalar), Some(5000.0));
    // Two tasks run, and a node loses two of its cards: the incremental state shows both.
    let running: Vec<pb::Task> = cluster
        .tasks
        .iter()
        .filter(|task| task.job == "default/training")
        .take(2)
        .map(|task| task_on_node(task.clone(), pb::TaskStatus::Running, "a100-0"))
        .collect();
    let mut node = cluster.nodes.iter().find(|node| node.name == "a100-1").unwrap().clone();
    node.allocatable
        .as_mut()
        .unwrap()
        .items
        .insert(GPU_RESOURCE.to_owned(), "2".to_owned());
    let more = pb::Cluster {
        tasks: running,
        nodes: vec![node],
        ..Default::default()
    };
    let outcome = server.wire.apply_batch(delta("test", 2, more)).unwrap();
    assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
    assert_eq!((card("allocated", A100), card("request", A100)), (Some(2.0), Some(4.0)));
    assert_eq!(plain("share"), Some(0.4));
    assert_eq!(read("pumice_queue_series_omitted"), Some(0.0));
}

/// A queue whose source leaves the state out takes jobs, whatever plugin keeps quotas.
#[test]
fn a_queue_without_a_state_takes_jobs() {
    let server = EmbeddedServer::start();
    let permits = |plugin: &str, compatibility: &str, state: pb::QueueState| {
        let cluster = pb::Cluster {
            namespaces: Vec::new(),
            nodes: vec![crate::support::records::node(
                "n",
                &[("cpu", "8"), ("memory", "8Gi"), ("pods", "9")],
            )],
            queues: vec![pb::Queue {
                name: "q".to_owned(),
                state: state.into(),
                capability: Some(crate::support::records::amounts(&[("cpu", "8"), ("memory", "8Gi")])),
                ..pb::Queue::default()
            }],
            jobs: vec![pb::Job {
                name: "ns/j".to_owned(),
                queue: "q".to_owned(),
                min_member: 1,
                min_resources: Some(crate::support::records::amounts(&[("cpu", "1")])),
                ..pb::Job::default()
            }],
            tasks: vec![crate::support::records::task("ns/t", "ns/j", &[("cpu", "1")])],
            ..pb::Cluster::default()
        };
        let document = format!(
            "actions: enqueue\ntiers: [{{plugins: [{{name: {plugin}}}]}}]\npumice: {{compatibility: {compatibility}}}\n"
        );
        let inline = pb::InlineSnapshot {
            cluster: Some(cluster),
            policy_document: document,
            ..pb::InlineSnapshot::default()
        };
        let request = pb::AdmitRequest {
            against: Some(pb::EvaluationRef {
                target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
                ..pb::EvaluationRef::default()
            }),
            items: vec![pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Job(pb::Job {
                    name: "ns/j".to_owned(),
                    ..pb::Job::default()
                })),
                ..pb::AdmitSubject::default()
            }],
            ..pb::AdmitRequest::default()
        };
        let item = server.wire.admit(request).unwrap().result.unwrap().items.remove(0);
        assert_eq!(item.problem, None, "{plugin}");
        item.permitted
    };
    for plugin in ["capacity-card", "capacity", "proportion"] {
        for compatibility in ["upstream", "corrected"] {
            assert!(permits(plugin, compatibility, pb::QueueState::Unspecified), "{plugin}");
            assert!(!permits(plugin, compatibility, pb::QueueState::Closed), "{plugin}");
        }
    }
}
