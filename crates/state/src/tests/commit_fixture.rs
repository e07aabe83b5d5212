//! Small cluster and its clock, for tests of commits and assumptions.

use std::sync::Arc;
use std::time::Duration;

use super::{FakeClock, batch, task};
use crate::store::FailingStore;
use crate::*;
use pumice_engine::cycle::{SessionChange, TaskPlacement};
use pumice_engine::model::{
    JobRecord, NodeRecord, NodeVector, QueueRecord, RecordKind, ResourceAmounts, ResourceId, TaskRecord, TaskStatus,
};
use pumice_engine::policy::Compatibility;

pub(super) const BINPACK: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n";
pub(super) const QUOTAS: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n";

/// State, its clock, and the number of the next batch.
pub(super) struct CommitFixture {
    pub(super) state: Arc<SharedState>,
    pub(super) clock: Arc<FakeClock>,
    pub(super) sequence: u64,
    pub(super) store: FailingStore,
    limits: StateLimits,
    /// Number of starts.
    boots: u64,
}

fn start(limits: &StateLimits, clock: &Arc<FakeClock>, store: &FailingStore, boots: u64) -> Arc<SharedState> {
    let options = StateOptions {
        limits: limits.clone(),
        // Names of sessions begin with the upper half of the epoch.
        epoch: boots << 32,
        ..StateOptions::default()
    };
    SharedState::start_on(options, Arc::clone(clock) as _, Box::new(store.clone())).unwrap()
}

impl CommitFixture {
    fn with_store_limits(limits: StateLimits) -> Self {
        let (clock, store) = (Arc::new(FakeClock::default()), FailingStore::default());
        Self {
            state: start(&limits, &clock, &store, 1),
            clock,
            sequence: 1,
            store,
            limits,
            boots: 1,
        }
    }

    /// Crashes the server and starts another on its store. No source has reported anything to it yet.
    pub(super) fn crash(&mut self) {
        self.store = self.store.crash();
        self.boots += 1;
        self.state = start(&self.limits, &self.clock, &self.store, self.boots);
    }

    /// Sends all records of the source.
    pub(super) async fn report_all(&mut self, put: Vec<BatchRecord>) {
        self.sequence += 1;
        let whole = batch(self.sequence, BatchKind::FullSyncLast, put);
        self.state.apply_batch(whole).await.unwrap();
    }

    /// Tasks whose placement the store holds, after a look at the clock.
    pub(super) async fn stored_tasks(&self) -> Vec<String> {
        self.state.expire_leases().await.unwrap();
        let stored = self.store.content().content().unwrap().assumptions;
        stored.iter().map(|one| one.task.to_string()).collect()
    }

    /// Fixture without records; sessions live as long as needed.
    pub(super) async fn bare() -> Self {
        let long = Duration::from_hours(24);
        let limits = StateLimits {
            session_lease: long,
            session_lease_max: long,
            session_age: long,
            ..StateLimits::default()
        };
        let mut fixture = Self::with_store_limits(limits);
        fixture.reload(BINPACK).await;
        fixture
            .state
            .apply_batch(batch(1, BatchKind::FullSyncLast, Vec::new()))
            .await
            .unwrap();
        fixture
    }

    pub(super) async fn with(limits: StateLimits, document: &str) -> Self {
        let mut fixture = Self::with_store_limits(limits);
        fixture.reload(document).await;
        let whole = batch(1, BatchKind::FullSyncLast, cluster());
        fixture.state.apply_batch(whole).await.unwrap();
        fixture
    }

    pub(super) async fn new() -> Self {
        Self::with(StateLimits::default(), BINPACK).await
    }

    pub(super) async fn reload(&mut self, document: &str) {
        let reload = PolicyReload {
            name: "default".into(),
            document: document.into(),
            expected_version: None,
            dry_run: false,
            strict: false,
            compatibility: Compatibility::Corrected,
            origin: PolicyOrigin::Rpc("test".to_owned()),
        };
        self.state.reload_policy(reload).await.unwrap();
    }

    pub(super) async fn put(&mut self, put: Vec<BatchRecord>) -> BatchOutcome {
        self.sequence += 1;
        let delta = batch(self.sequence, BatchKind::Delta, put);
        self.state.apply_batch(delta).await.unwrap()
    }

    pub(super) async fn remove(&mut self, kind: RecordKind, name: &str) {
        self.sequence += 1;
        let mut delta = batch(self.sequence, BatchKind::Delta, Vec::new());
        delta.remove = vec![(kind, name.into())];
        self.state.apply_batch(delta).await.unwrap();
    }

    pub(super) async fn open(&self) -> Arc<str> {
        let open = OpenSession {
            base: SessionBase::Latest {
                policy: "default".into(),
                profile: Arc::default(),
            },
            batch: None,
            lease: None,
            connection: None,
        };
        self.state.open_session(open).await.unwrap().session
    }

    pub(super) async fn commit(
        &self,
        session: &str,
        changes: &[SessionChange],
        jobs: &[&str],
    ) -> Result<Arc<CommitOutcome>, StateError> {
        let (state, session, changes) = (Arc::clone(&self.state), session.to_owned(), changes.to_vec());
        let jobs: Vec<Arc<str>> = jobs.iter().map(|job| Arc::from(*job)).collect();
        tokio::task::spawn_blocking(move || state.commit_session(&session, 0, &changes, &jobs, || ()))
            .await
            .unwrap()
    }

    /// Commits all placements of a session so far.
    pub(super) async fn commit_at(&self, session: &str, after: u64) -> Result<Arc<CommitOutcome>, StateError> {
        let (state, session) = (Arc::clone(&self.state), session.to_owned());
        tokio::task::spawn_blocking(move || state.commit_session(&session, after, &[], &[], || ()))
            .await
            .unwrap()
    }

    /// Commits these placements in a session of their own.
    pub(super) async fn place(&self, placements: &[(&str, &str)]) -> Arc<CommitOutcome> {
        let changes: Vec<SessionChange> = placements.iter().map(|(task, node)| allocate(task, node)).collect();
        self.commit(&self.open().await, &changes, &[]).await.unwrap()
    }

    /// Status and node of a task, and whether it is assumed.
    pub(super) fn task(&self, name: &str) -> (TaskStatus, String, bool) {
        let cluster_state = &self.state.snapshot().state;
        let record = &cluster_state.tasks().get(name).unwrap().record;
        (record.status, record.node.to_string(), cluster_state.is_assumed(name))
    }

    pub(super) fn is_assumed(&self, name: &str) -> bool {
        self.state.snapshot().state.is_assumed(name)
    }

    pub(super) fn used_cpu(&self, node: &str) -> i128 {
        let snapshot = self.state.snapshot();
        let entry = snapshot.state.node_by_name(node).unwrap();
        entry.exact(ResourceId::CPU, NodeVector::Used).unwrap_or(0)
    }

    /// Advances the clock by `seconds`. If `heard`, the source sends a batch every half minute.
    pub(super) async fn advance_clock(&mut self, seconds: u64, heard: bool) {
        for _ in 0..seconds / 30 {
            self.clock.advance(30_000);
            if heard {
                self.put(Vec::new()).await;
            }
            self.state.expire_leases().await.unwrap();
        }
    }
}

/// Two nodes, a gang of two, a job of one, and a task without a job.
pub(super) fn cluster() -> Vec<BatchRecord> {
    vec![
        node("n1", 1_000),
        node("n2", 1_000),
        queue("q", 1_500),
        job("a/gang", 2),
        job("a/solo", 1),
        pending("a/g1", "a/gang", 600),
        pending("a/g2", "a/gang", 600),
        pending("a/s", "a/solo", 300),
        pending("a/free", "", 200),
    ]
}

pub(super) fn machine(name: &str, uid: &str, cpu: i64) -> NodeRecord {
    NodeRecord {
        name: name.into(),
        uid: uid.into(),
        allocatable: ResourceAmounts::from_iter([(ResourceId::CPU, cpu), (ResourceId::PODS, 110)]),
        ..NodeRecord::default()
    }
}

pub(super) fn node(name: &str, cpu: i64) -> BatchRecord {
    BatchRecord::Node(Arc::new(machine(name, "", cpu)))
}

pub(super) fn queue(name: &str, cpu: i64) -> BatchRecord {
    BatchRecord::Queue(QueueRecord {
        name: name.into(),
        capability: Some(ResourceAmounts::from_iter([(ResourceId::CPU, cpu)])),
        ..QueueRecord::default()
    })
}

pub(super) fn job(name: &str, least: i32) -> BatchRecord {
    BatchRecord::Job(JobRecord {
        name: name.into(),
        queue: "q".into(),
        min_member: least,
        ..JobRecord::default()
    })
}

pub(super) fn record(name: &str, job: &str, cpu: i64) -> TaskRecord {
    let BatchRecord::Task(record) = task(name, "", cpu) else {
        panic!("a task")
    };
    TaskRecord {
        status: TaskStatus::Pending,
        job: job.into(),
        uid: "u1".into(),
        ..record
    }
}

pub(super) fn pending(name: &str, job: &str, cpu: i64) -> BatchRecord {
    BatchRecord::Task(record(name, job, cpu))
}

pub(super) fn bound_task(name: &str, status: TaskStatus, node: &str, cpu: i64) -> BatchRecord {
    BatchRecord::Task(TaskRecord {
        status,
        node: node.into(),
        ..record(name, "", cpu)
    })
}

pub(super) fn allocate(task: &str, node: &str) -> SessionChange {
    SessionChange::Allocate(TaskPlacement {
        task: task.into(),
        node: node.into(),
        card: "".into(),
        devices: 0,
    })
}
