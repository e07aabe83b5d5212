//! Admission ledger, tested from inside: reservations, their holders and leases, and the effects of a failing store.

use super::{FakeClock, batch};
use crate::store::{Durability, FailingStore, StoreErrorMode, StoreWrite};
use crate::*;
use pumice_engine::cycle::SessionChange;
use pumice_engine::model::{
    ClusterState, JobPhase, JobRecord, QueueRecord, ResourceAmounts, ResourceId, TaskFields, TaskRecord, TaskStatus,
};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::plugins::capacity_card::{CapacityState, PLUGIN, UpstreamCapacityState};
use pumice_engine::policy::Compatibility;

pub(super) const POLICY: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: capacity-card\n";

pub(super) struct LedgerFixture {
    pub(super) state: Arc<SharedState>,
    pub(super) clock: Arc<FakeClock>,
    pub(super) store: FailingStore,
}

impl LedgerFixture {
    /// Server with the policy and a queue `q` that may hold 10 cores.
    pub(super) async fn new(limits: StateLimits, compatibility: Compatibility) -> Self {
        let fixture = Self::with_store(FailingStore::default(), limits, compatibility).await;
        fixture.apply(1, BatchKind::FullSyncLast, vec![queue("q", 10)]).await;
        fixture
    }

    pub(super) async fn with_store(store: FailingStore, limits: StateLimits, compatibility: Compatibility) -> Self {
        let clock = Arc::new(FakeClock::default());
        let options = StateOptions {
            limits,
            epoch: 7,
            ..StateOptions::default()
        };
        let state = SharedState::start_on(options, Arc::clone(&clock) as _, Box::new(store.clone())).unwrap();
        let reload = PolicyReload {
            name: "default".into(),
            document: POLICY.into(),
            expected_version: None,
            dry_run: false,
            strict: false,
            compatibility,
            origin: PolicyOrigin::Rpc("test".to_owned()),
        };
        state.reload_policy(reload).await.unwrap();
        Self { state, clock, store }
    }

    pub(super) async fn apply(&self, sequence: u64, kind: BatchKind, put: Vec<BatchRecord>) {
        let outcome = self.state.apply_batch(batch(sequence, kind, put)).await.unwrap();
        assert!(outcome.resync.is_none() && outcome.rejected.is_empty(), "{outcome:?}");
    }

    pub(super) async fn remove(&self, sequence: u64, job: &str) {
        let batch = Batch {
            remove: vec![(pumice_engine::model::RecordKind::Job, job.into())],
            ..batch(sequence, BatchKind::Delta, Vec::new())
        };
        assert!(self.state.apply_batch(batch).await.unwrap().resync.is_none());
    }

    pub(super) async fn try_confirm(&self, items: Vec<(JobRecord, u64)>) -> Result<ConfirmOutcome, StateError> {
        let items = items.into_iter().map(|(job, attempt)| {
            let job = Arc::new(job);
            Ok(ConfirmItem {
                job,
                attempt,
                names: Arc::default(),
            })
        });
        let items: Vec<_> = items.collect();
        let confirm = LedgerConfirm {
            now: None,
            policy: "default".into(),
            profile: Arc::default(),
            plugins: Vec::new(),
            lease: None,
            items: ConfirmItems::by(move |_| items),
        };
        self.state.confirm(confirm).await
    }

    /// Outcome for one job: permitted, reserved cores, first reason.
    pub(super) async fn confirm(&self, job: JobRecord, attempt: u64) -> (bool, i128, &'static str) {
        let mut done = self.try_confirm(vec![(job, attempt)]).await.unwrap();
        let one = done.items.pop().unwrap().unwrap();
        let cores = one.reserved.first().map_or(0, |(_, milli)| milli / 1_000);
        let reason = one.verdict.reasons.first().map_or("", |(reason, _)| reason.code);
        (one.verdict.permitted, cores, reason)
    }

    pub(super) async fn release(&self, job: &str, attempt: u64) -> bool {
        let release = LedgerRelease {
            job: job.into(),
            uid: Arc::default(),
            attempt,
        };
        self.state.release(release).await.unwrap().is_some()
    }

    /// Allocated and inqueue cores of the queue. Checks that a rebuild gives the same.
    fn account(&self) -> (i128, i128) {
        let snapshot = self.state.snapshot();
        let policy = snapshot.policies.get("default").unwrap();
        let own = queue_account(&snapshot.plugin_states(policy));
        assert_eq!(
            own,
            queue_account(&policy.policy.compute_plugin_states(&snapshot.state))
        );
        own
    }
}

pub(super) fn queue_account(derived: &PluginStates) -> (i128, i128) {
    let account = match derived.get::<CapacityState>(PLUGIN) {
        Some(state) => state.account("q"),
        None => derived.get::<UpstreamCapacityState>(PLUGIN).unwrap().account("q"),
    };
    account.map_or((0, 0), |account| {
        (account.allocated.cpu / 1_000, account.inqueue.cpu / 1_000)
    })
}

pub(super) fn cpu(cores: i64) -> ResourceAmounts {
    ResourceAmounts::from_iter([(ResourceId::CPU, cores * 1_000)])
}

pub(super) fn queue(name: &str, cores: i64) -> BatchRecord {
    BatchRecord::Queue(QueueRecord {
        name: name.into(),
        capability: Some(cpu(cores)),
        ..QueueRecord::default()
    })
}

pub(super) fn job(name: &str, uid: &str, cores: i64) -> JobRecord {
    JobRecord {
        name: name.into(),
        uid: uid.into(),
        queue: "q".into(),
        min_member: 1,
        min_resources: Some(cpu(cores)),
        phase: JobPhase::Pending,
        ..JobRecord::default()
    }
}

pub(super) fn running(name: &str, job: &str, cores: i64) -> BatchRecord {
    BatchRecord::Task(TaskRecord::from(TaskFields {
        name: name.into(),
        job: job.into(),
        node: "n".into(),
        status: TaskStatus::Running,
        requests: cpu(cores),
        ..TaskFields::default()
    }))
}

#[tokio::test]
async fn permits_are_promised_once_and_seen_by_all() {
    let fixture = LedgerFixture::new(StateLimits::default(), Compatibility::Corrected).await;
    let before = fixture.state.snapshot().revision.number;
    let done = fixture
        .try_confirm(vec![
            (job("ns/a", "u", 6), 1),
            (job("ns/b", "u", 5), 1),
            (job("ns/c", "u", 4), 1),
        ])
        .await
        .unwrap();
    let permitted: Vec<bool> = done.items.iter().flatten().map(|item| item.verdict.permitted).collect();
    assert_eq!(permitted, [true, false, true], "each sees the permits before it");
    assert_eq!((done.revision.number, done.durability), (before + 1, Durability::Disk));
    assert_eq!(fixture.account(), (0, 10));
    // The same content gets the recorded outcome, and nothing is published. Another size replaces the reservation, if
    // it fits.
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    assert_eq!(fixture.state.snapshot().revision.number, before + 1);
    assert_eq!(
        fixture.confirm(job("ns/a", "u", 7), 1).await,
        (false, 6, "InsufficientCPUQuota")
    );
    assert_eq!(fixture.confirm(job("ns/a", "u", 2), 1).await, (true, 2, ""));
    assert_eq!(fixture.account(), (0, 6));
    // An earlier attempt gets the recorded outcome.
    assert_eq!(fixture.confirm(job("ns/a", "u", 3), 2).await, (true, 3, ""));
    assert_eq!(fixture.confirm(job("ns/a", "u", 9), 1).await, (true, 3, ""));
    assert_eq!(fixture.account(), (0, 7));
}

#[tokio::test]
async fn a_release_cannot_be_undone_by_a_late_request() {
    let fixture = LedgerFixture::new(StateLimits::default(), Compatibility::Corrected).await;
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    assert!(!fixture.release("ns/a", 0).await, "an attempt before it");
    assert!(fixture.release("ns/a", 1).await);
    assert!(!fixture.release("ns/a", 1).await);
    assert_eq!(fixture.account(), (0, 0));
    assert_eq!(
        fixture.confirm(job("ns/a", "u", 6), 1).await,
        (false, 0, "ReservationReleased")
    );
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 2).await, (true, 6, ""));
    // The next incarnation is another job and replaces the previous one.
    assert_eq!(fixture.confirm(job("ns/a", "v", 8), 1).await, (true, 8, ""));
    assert_eq!(fixture.account(), (0, 8));
    // A release may come before the request that it is about.
    assert!(!fixture.release("ns/z", 4).await);
    assert_eq!(fixture.confirm(job("ns/z", "u", 1), 4).await.2, "ReservationReleased");
}

#[tokio::test]
async fn what_a_job_holds_is_handed_over_and_ends_with_it() {
    let fixture = LedgerFixture::new(StateLimits::default(), Compatibility::Corrected).await;
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    // The job's own record comes, then its phase, then its tasks: no amount is free twice, whatever the order.
    fixture
        .apply(
            2,
            BatchKind::Delta,
            vec![running("ns/a-0", "ns/a", 2), BatchRecord::Job(job("ns/a", "u", 6))],
        )
        .await;
    assert_eq!(fixture.account(), (2, 4));
    let inqueue = JobRecord {
        phase: JobPhase::Inqueue,
        ..job("ns/a", "u", 6)
    };
    fixture
        .apply(3, BatchKind::Delta, vec![BatchRecord::Job(inqueue)])
        .await;
    assert_eq!(
        fixture.account(),
        (2, 4),
        "the phase and the ledger tell of one promise"
    );
    // Another incarnation of the name has no reservation.
    fixture
        .apply(4, BatchKind::Delta, vec![BatchRecord::Job(job("ns/a", "v", 6))])
        .await;
    assert_eq!(fixture.account(), (2, 0));
    assert!(fixture.state.snapshot().state.reservations().is_empty());
    assert_eq!(
        fixture.confirm(job("ns/a", "u", 6), 9).await.2,
        "ReservationReleased",
        "that job is over"
    );
    // A removed job, and a completed one.
    assert_eq!(fixture.confirm(job("ns/b", "u", 3), 1).await, (true, 3, ""));
    fixture
        .apply(5, BatchKind::Delta, vec![BatchRecord::Job(job("ns/b", "u", 3))])
        .await;
    fixture.remove(6, "ns/b").await;
    assert_eq!(fixture.confirm(job("ns/c", "u", 3), 1).await, (true, 3, ""));
    let done = JobRecord {
        phase: JobPhase::Completed,
        ..job("ns/c", "u", 3)
    };
    fixture.apply(7, BatchKind::Delta, vec![BatchRecord::Job(done)]).await;
    assert_eq!(fixture.account(), (2, 0));
}

#[tokio::test]
async fn a_lease_ends_by_an_event_and_waits_for_its_source() {
    let fixture = LedgerFixture::new(StateLimits::default(), Compatibility::Corrected).await;
    let lease = StateLimits::default().reservation_lease;
    let minutes = |minutes: u64| fixture.clock.advance(minutes * 60_000);
    fixture.state.expire_leases().await.unwrap();
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    assert_eq!(fixture.state.lease_left("ns/a"), Some(lease));
    // The source falls silent: the lease pauses.
    minutes(60);
    fixture.state.expire_leases().await.unwrap();
    assert_eq!((fixture.account(), fixture.state.lease_left("ns/a")), ((0, 6), None));
    // The source is heard again, and requests of the caller start the lease again.
    for sequence in 2..30 {
        fixture.apply(sequence, BatchKind::Delta, Vec::new()).await;
        fixture.state.expire_leases().await.unwrap();
        if sequence == 8 {
            assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
            assert_eq!(fixture.state.lease_left("ns/a"), Some(lease));
        }
        let held = fixture.account().1 == 6;
        assert_eq!(held, sequence < 18, "{sequence}");
        minutes(1);
    }
    // The job may ask again: its reservation was not released.
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
}

#[tokio::test]
async fn after_a_restart_promises_hold_and_leases_restart() {
    let fixture = LedgerFixture::new(StateLimits::default(), Compatibility::Corrected).await;
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 3).await, (true, 6, ""));
    assert_eq!(fixture.confirm(job("ns/b", "u", 1), 1).await, (true, 1, ""));
    assert!(fixture.release("ns/b", 1).await);
    let fixture = LedgerFixture::with_store(fixture.store, StateLimits::default(), Compatibility::Corrected).await;
    // Without the queue nothing new is promised; existing promises are known.
    let done = fixture.try_confirm(vec![(job("ns/c", "u", 1), 1)]).await.unwrap();
    assert_eq!(done.items[0].as_ref().unwrap_err().code.name(), "QUEUE_UNKNOWN");
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 3).await, (true, 6, ""));
    fixture.apply(1, BatchKind::FullSyncLast, vec![queue("q", 10)]).await;
    assert_eq!(fixture.account(), (0, 6));
    assert_eq!(fixture.confirm(job("ns/b", "u", 1), 1).await.2, "ReservationReleased");
    assert_eq!(
        fixture.confirm(job("ns/c", "u", 5), 1).await,
        (false, 0, "InsufficientCPUQuota")
    );
    fixture.state.expire_leases().await.unwrap();
    assert_eq!(
        fixture.state.lease_left("ns/a"),
        Some(StateLimits::default().reservation_lease)
    );
}

#[tokio::test]
async fn a_store_that_fails_changes_nothing() {
    let fixture = LedgerFixture::new(StateLimits::default(), Compatibility::Corrected).await;
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    let before = fixture.state.snapshot().revision.number;
    fixture.store.set_error_mode(StoreErrorMode::RejectWrites);
    let error = fixture.try_confirm(vec![(job("ns/b", "u", 2), 1)]).await.unwrap_err();
    assert_eq!(
        (error.reason(), error.to_string().as_str()),
        ("STORE_FAILED", "nothing was written: there: full")
    );
    let release = LedgerRelease {
        job: "ns/a".into(),
        uid: Arc::default(),
        attempt: 1,
    };
    assert!(fixture.state.release(release).await.is_err());
    assert_eq!(
        (fixture.account(), fixture.state.snapshot().revision.number),
        ((0, 6), before)
    );
    // The next write repairs whatever reached the disk.
    fixture
        .store
        .content()
        .append_to_head(&[StoreWrite::Job {
            job: "ns/b".into(),
            reservation: fixture.state.snapshot().state.reservations().get("ns/a").cloned(),
            tombstone: None,
        }])
        .unwrap();
    fixture.store.set_error_mode(StoreErrorMode::None);
    assert_eq!(fixture.confirm(job("ns/c", "u", 4), 1).await, (true, 4, ""));
    let stored = fixture.store.content().content().unwrap();
    let rows: Vec<&str> = stored.reservations.iter().map(|row| &*row.job).collect();
    assert_eq!(rows, ["ns/a", "ns/c"]);
}

#[tokio::test]
async fn rows_and_tombstones_are_bounded() {
    let limits = StateLimits {
        reservations: 2,
        reservation_tombstones: 1,
        ..StateLimits::default()
    };
    let fixture = LedgerFixture::new(limits, Compatibility::Corrected).await;
    for name in ["ns/a", "ns/b"] {
        assert_eq!(fixture.confirm(job(name, "u", 1), 1).await, (true, 1, ""));
    }
    let done = fixture
        .try_confirm(vec![(job("ns/c", "u", 1), 1), (job("ns/a", "u", 2), 1)])
        .await
        .unwrap();
    let refused = done.items[0].as_ref().unwrap_err();
    assert_eq!(
        (refused.code.name(), refused.field.as_str()),
        ("LIMIT_EXCEEDED", "items[0].job")
    );
    assert!(
        done.items[1].as_ref().unwrap().verdict.permitted,
        "one in the place of another"
    );
    fixture.clock.advance(1_000);
    assert!(fixture.release("ns/a", 1).await);
    fixture.clock.advance(1_000);
    assert!(fixture.release("ns/b", 1).await);
    fixture.state.expire_leases().await.unwrap();
    // The older tombstone made room for the newer.
    assert_eq!(fixture.confirm(job("ns/a", "u", 1), 1).await, (true, 1, ""));
    assert_eq!(fixture.confirm(job("ns/b", "u", 1), 1).await.2, "ReservationReleased");
    // All tombstones grow old.
    fixture.clock.advance(3_600_000);
    fixture.state.expire_leases().await.unwrap();
    assert_eq!(fixture.confirm(job("ns/b", "u", 1), 1).await, (true, 1, ""));
}

#[tokio::test]
async fn under_upstream_a_promise_counts_until_the_reference_counts_it() {
    let fixture = LedgerFixture::new(StateLimits::default(), Compatibility::UPSTREAM).await;
    fixture
        .apply(2, BatchKind::Delta, vec![BatchRecord::Job(job("ns/a", "u", 6))])
        .await;
    assert_eq!(fixture.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    assert_eq!(
        fixture.confirm(job("ns/b", "u", 5), 1).await,
        (false, 0, "InsufficientCPUQuota")
    );
    assert_eq!(fixture.account(), (0, 6));
    let inqueue = JobRecord {
        phase: JobPhase::Inqueue,
        ..job("ns/a", "u", 6)
    };
    fixture
        .apply(3, BatchKind::Delta, vec![BatchRecord::Job(inqueue)])
        .await;
    assert_eq!(fixture.account(), (0, 6));
    assert!(fixture.release("ns/a", 1).await);
    assert_eq!(fixture.account(), (0, 6), "the reference goes by the phase");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_confirms_the_jobs_it_enqueued() {
    let fixture = LedgerFixture::new(StateLimits::default(), Compatibility::Corrected).await;
    let jobs = [("ns/a", 4), ("ns/b", 4), ("ns/c", 1)].map(|(name, cores)| BatchRecord::Job(job(name, "u", cores)));
    fixture.apply(2, BatchKind::Delta, jobs.to_vec()).await;
    let open = super::session_tests::open_request(None);
    let session = fixture.state.open_session(open).await.unwrap().session;
    // While the session goes on, another caller takes 4 of the 10 cores.
    assert_eq!(fixture.confirm(job("ns/x", "u", 4), 1).await, (true, 4, ""));
    let enqueue = |job: &str| SessionChange::JobEnqueued(job.into());
    let confirm = |after, changes: Vec<SessionChange>| {
        let confirm = SessionConfirm {
            now: None,
            plugins: Vec::new(),
            lease: None,
            read_items: None,
        };
        let (state, session) = (Arc::clone(&fixture.state), Arc::clone(&session));
        tokio::task::spawn_blocking(move || state.confirm_session(&session, after, &changes, confirm, || ()))
    };
    let (stepped, done) = confirm(0, vec![enqueue("ns/b"), enqueue("ns/a")])
        .await
        .unwrap()
        .unwrap();
    let said: Vec<(&str, bool)> = (done.items.iter().flatten())
        .map(|item| (&*item.job, item.verdict.permitted))
        .collect();
    assert_eq!(
        said,
        [("ns/b", true), ("ns/a", false)],
        "in the order in which they were enqueued"
    );
    assert_eq!(stepped.applied_through, 3);
    let phase = |cluster_state: &ClusterState, job: &str| cluster_state.jobs().get(job).unwrap().record.phase;
    assert_eq!(phase(&stepped.cluster_state, "ns/b"), JobPhase::Inqueue);
    assert_eq!(
        phase(&stepped.cluster_state, "ns/a"),
        JobPhase::Pending,
        "it left the session, too"
    );
    assert_eq!(queue_account(stepped.cycle.plugin_states()), (0, 4));
    drop(stepped);
    assert_eq!(fixture.account(), (0, 8));
    // A retry gets the recorded outcome.
    let (again, recorded) = confirm(0, vec![enqueue("ns/b"), enqueue("ns/a")])
        .await
        .unwrap()
        .unwrap();
    assert!(again.repeated && Arc::ptr_eq(&recorded, &done));
    drop(again);
    // The next action confirms the jobs that were enqueued since.
    fixture.release("ns/x", 1).await;
    let (_, done) = confirm(3, vec![enqueue("ns/a")]).await.unwrap().unwrap();
    assert!(done.items.len() == 1 && done.items[0].as_ref().unwrap().verdict.permitted);
    // A failing store leaves the session as it was.
    fixture.store.set_error_mode(StoreErrorMode::RejectWrites);
    let error = confirm(5, vec![enqueue("ns/c")]).await.unwrap().map(drop).unwrap_err();
    assert_eq!(error.reason(), "STORE_FAILED");
    assert_eq!(fixture.state.applied_through(&session), Some(5));
}
