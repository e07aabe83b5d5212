//! Weights of sessions against the memory that they take: the limit of the bytes of sessions is one of memory.

#![cfg(test)]

use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

use cap::Cap;
use pumice_engine::PolicyInForce;
use pumice_engine::cycle::{SessionChange, TaskPlacement};
use pumice_engine::model::{
    ClusterState, JobRecord, NodeRecord, NodeSlot, QueueRecord, ResourceAmounts, ResourceId, ResourceNaming,
    SortedTable, TaskFields, TaskRecord, TextMap,
};
use pumice_engine::policy::{Compatibility, CompileOptions, compile};
use pumice_state::{
    Batch, BatchKind, BatchRecord, OpenSession, PolicyOrigin, PolicyReload, RecordLocation, ResourceNames, SessionBase,
    SharedState, StateLimits, StateOptions, SystemClock, document_hash,
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const NODES: usize = 1_000;
const QUEUES: usize = 40;
const JOBS: usize = 200;
const TASKS: usize = 4_000;

const PLAIN: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n";
const SHARES: &str = "actions: allocate\ntiers:\n- plugins:\n  - {name: drf, enableHierarchy: true}\n";
const QUOTAS: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: overcommit\n  - name: proportion\n";
const CARDS: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n";

fn texts(pairs: &[(&str, &str)]) -> TextMap {
    pairs
        .iter()
        .map(|(key, value)| (Arc::from(*key), Arc::from(*value)))
        .collect()
}

fn amounts(cpu: i64, gpu: (ResourceId, i64)) -> ResourceAmounts {
    ResourceAmounts::from_iter([(ResourceId::CPU, cpu), (ResourceId::MEMORY, cpu << 20), gpu])
}

/// Records of a cluster with cards and a tree of queues.
fn records(gpu: ResourceId) -> Vec<BatchRecord> {
    let nodes = (0..NODES).map(|number| {
        BatchRecord::Node(Arc::new(NodeRecord {
            name: format!("node-{number:05}").into(),
            labels: texts(&[
                ("nvidia.com/gpu.count", "8"),
                ("nvidia.com/gpu.memory", "81920"),
                (
                    "nvidia.com/gpu.product",
                    if number.is_multiple_of(2) { "A" } else { "B" },
                ),
            ]),
            allocatable: amounts(64_000, (gpu, 8_000)),
            ..NodeRecord::default()
        }))
    });
    let queues = (0..QUEUES).map(|number| {
        BatchRecord::Queue(QueueRecord {
            name: format!("queue-{number}").into(),
            annotations: texts(&[
                ("volcano.sh/card.quota", r#"{"A": 1000, "B": 1000}"#),
                (
                    "volcano.sh/hierarchy",
                    &format!("root/group-{}/queue-{number}", number % 8),
                ),
                ("volcano.sh/hierarchy-weights", &format!("1/{}/1", number % 8 + 1)),
            ]),
            ..QueueRecord::default()
        })
    });
    let jobs = (0..JOBS).map(|number| {
        BatchRecord::Job(JobRecord {
            name: format!("space/job-{number}").into(),
            queue: format!("queue-{}", number % QUEUES).into(),
            min_member: 1,
            ..JobRecord::default()
        })
    });
    let tasks = (0..TASKS).map(|number| BatchRecord::Task(task(number, gpu)));
    nodes.chain(queues).chain(jobs).chain(tasks).collect()
}

fn task(number: usize, gpu: ResourceId) -> TaskRecord {
    TaskFields {
        name: task_name(number).into(),
        job: format!("space/job-{}", number % JOBS).into(),
        annotations: texts(&[("volcano.sh/card.name", "A|B")]),
        requests: amounts(500, (gpu, 1_000)),
        ..TaskFields::default()
    }
    .into()
}

fn task_name(number: usize) -> String {
    format!("space/task-{number:06}")
}

/// Cluster state of a request's own.
fn inline_state() -> ClusterState {
    let names = ResourceNames::new(64);
    let put = records(names.intern("nvidia.com/gpu", ResourceNaming::Offered).unwrap());
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for record in &put {
        if let BatchRecord::Node(node) = record {
            index.insert(Arc::clone(&node.name), NodeSlot::try_from(index.len()).unwrap());
        }
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 0);
    cluster_state.set_resources(names.current_table());
    let source: Arc<str> = "inline".into();
    for record in put {
        match record {
            BatchRecord::Node(node) => drop(cluster_state.put_node(node, &source)),
            BatchRecord::Queue(queue) => cluster_state.put_queue(queue, &source),
            BatchRecord::Job(job) => cluster_state.put_job(job, &source),
            BatchRecord::Task(task) => cluster_state.put_task(task, &source),
            BatchRecord::Namespace(namespace) => cluster_state.put_namespace(namespace, &source),
            BatchRecord::PriorityClass(class) => cluster_state.put_priority_class(class, &source),
        }
    }
    cluster_state.refresh_ranks();
    cluster_state
}

fn batch(sequence: u64, put: Vec<BatchRecord>) -> Batch {
    let kind = if sequence == 1 {
        BatchKind::FullSyncLast
    } else {
        BatchKind::Delta
    };
    let put = put.into_iter().enumerate();
    Batch {
        source: "source".into(),
        source_epoch: 1,
        sequence,
        kind,
        part: u32::from(sequence == 1),
        put: put.map(|(at, record)| (record, RecordLocation::at(at))).collect(),
        ..Batch::default()
    }
}

/// Placements of tasks from this one on.
fn placements(first: usize, count: usize) -> Vec<SessionChange> {
    let place = |number: usize| {
        let node = (number * 7) % NODES;
        SessionChange::Allocate(TaskPlacement {
            task: task_name(number).into(),
            node: format!("node-{node:05}").into(),
            card: if node.is_multiple_of(2) { "A" } else { "B" }.into(),
            devices: 0,
        })
    };
    (first..first + count).map(place).collect()
}

/// State with the cluster, under one policy.
struct WeighedState {
    state: Arc<SharedState>,
    policy: Arc<PolicyInForce>,
    gpu: ResourceId,
    /// Name of the policy, for messages.
    what: String,
}

impl WeighedState {
    async fn start(document: &'static str, compatibility: Compatibility) -> Self {
        let options = StateOptions {
            limits: StateLimits {
                session_lease: Duration::from_hours(1),
                sessions: 10_000,
                ..StateLimits::default()
            },
            ..StateOptions::default()
        };
        let state = SharedState::start(options, Arc::new(SystemClock::default())).unwrap();
        let gpu = state
            .resource_names()
            .intern("nvidia.com/gpu", ResourceNaming::Offered)
            .unwrap();
        state.apply_batch(batch(1, records(gpu))).await.unwrap();
        let reload = PolicyReload {
            name: "default".into(),
            document: document.into(),
            expected_version: None,
            dry_run: false,
            strict: false,
            compatibility,
            origin: PolicyOrigin::Rpc("test".to_owned()),
        };
        state.reload_policy(reload).await.unwrap();
        let options = CompileOptions {
            compatibility,
            ..CompileOptions::default()
        };
        let policy = Arc::new(PolicyInForce {
            name: "inline".into(),
            version: 0,
            profile: Arc::default(),
            hash: document_hash(document),
            policy: compile(document, &options).unwrap().policy,
        });
        let name = document
            .rsplit("name: ")
            .next()
            .unwrap()
            .split([',', '\n'])
            .next()
            .unwrap();
        let weighed = Self {
            state,
            policy,
            gpu,
            what: format!("{name}, {compatibility:?}"),
        };
        // All that is worked out once is there before anything is weighed.
        let session = weighed.open(None).await;
        weighed.change(&session, 0, &placements(0, 1));
        weighed.state.close_session(&session).unwrap();
        weighed
    }

    async fn open(&self, inline: Option<ClusterState>) -> Arc<str> {
        let base = match inline {
            Some(cluster_state) => SessionBase::Inline {
                cluster_state: Box::new(cluster_state),
                policy: Arc::clone(&self.policy),
            },
            None => SessionBase::Latest {
                policy: "default".into(),
                profile: Arc::default(),
            },
        };
        let open = OpenSession {
            base,
            batch: None,
            lease: None,
            connection: None,
        };
        self.state.open_session(open).await.unwrap().session
    }

    fn change(&self, session: &str, after: u64, changes: &[SessionChange]) {
        let stepped = self.state.step_session(session, after, changes).unwrap();
        assert_eq!(stepped.outcome.warnings, [], "{}", self.what);
    }

    /// Checks that what `work` leaves in sessions weighs about as much as it takes.
    async fn check(&self, name: &str, work: impl AsyncFnOnce() -> Vec<Arc<str>>) {
        let used = || (ALLOCATOR.allocated(), self.state.session_bytes());
        let (taken, weighed) = used();
        let sessions = work().await;
        let (taken_after, weighed_after) = used();
        let (taken, weighed) = (taken_after - taken, weighed_after - weighed);
        let what = format!("{}, {name}: {taken} bytes are taken, {weighed} weighed", self.what);
        assert!(taken.abs_diff(weighed) <= taken / 5, "{what}");
        for session in sessions {
            self.state.close_session(&session).unwrap();
        }
        self.wait_for_none().await;
    }

    async fn check_all(&self) {
        self.check("clusters of their own", async || {
            let mut sessions = Vec::new();
            for _ in 0..3 {
                sessions.push(self.open(Some(inline_state())).await);
            }
            sessions
        })
        .await;
        for (name, count, steps, step) in [
            ("one change each", 400, 1, 1),
            ("some changes, one by one", 100, 20, 1),
            ("many changes", 5, 10, 300),
        ] {
            self.check(name, async || {
                let mut sessions = Vec::new();
                for _ in 0..count {
                    let session = self.open(None).await;
                    for number in 0..steps {
                        self.change(&session, (number * step) as u64, &placements(number * step, step));
                    }
                    sessions.push(session);
                }
                sessions
            })
            .await;
        }
        self.check("savepoints", async || {
            let mut sessions = Vec::new();
            for _ in 0..10 {
                let session = self.open(None).await;
                for number in 0..20 {
                    let mut changes = placements(number * 10, 10);
                    changes.push(SessionChange::Savepoint("mark".into()));
                    self.change(&session, number as u64 * 11, &changes);
                }
                sessions.push(session);
            }
            sessions
        })
        .await;
    }

    /// Former states are counted every half second.
    async fn wait_for_count(&self) {
        tokio::time::sleep(Duration::from_millis(700)).await;
    }

    /// Waits until closed sessions weigh nothing, which a busy machine counts late.
    async fn wait_for_none(&self) {
        for _ in 0..40 {
            // Freed bytes leave the sum with the next count.
            self.wait_for_count().await;
            if self.state.session_bytes() == 0 {
                return;
            }
        }
        panic!("{}: closed sessions still weigh", self.what);
    }

    /// Weighs former states. Their records differ from the present ones in these many tasks.
    async fn check_former(&self, mut sequence: u64, count: usize, tasks: usize) -> u64 {
        let from = sequence;
        self.check(&format!("{count} former states, {tasks} tasks each"), async || {
            let mut sessions = Vec::new();
            for round in 0..count {
                sessions.push(self.open(None).await);
                let put = (0..tasks).map(|at| {
                    let mut task = task((round * tasks + at * 13) % TASKS, self.gpu);
                    task.creation_time = i64::try_from(round + 1).ok().into();
                    BatchRecord::Task(task)
                });
                sequence += 1;
                self.state.apply_batch(batch(sequence, put.collect())).await.unwrap();
            }
            // The plugin states of the newest state are there.
            let newest = self.open(None).await;
            self.state.close_session(&newest).unwrap();
            self.wait_for_count().await;
            sessions
        })
        .await;
        assert_eq!(sequence, from + count as u64);
        sequence
    }
}

#[tokio::test]
async fn sessions_weigh_about_what_they_take() {
    for document in [PLAIN, SHARES, QUOTAS, CARDS] {
        for compatibility in [Compatibility::Corrected, Compatibility::UPSTREAM] {
            let weighed = WeighedState::start(document, compatibility).await;
            weighed.check_all().await;
            let sequence = weighed.check_former(1, 20, 100).await;
            weighed.check_former(sequence, 4, TASKS).await;
        }
    }
}
