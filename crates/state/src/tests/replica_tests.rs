//! Several servers on one log: they promise together, serve the same policies, and hold the same.

use super::commit_fixture::{BINPACK, QUOTAS, allocate, bound_task, cluster};
use super::ledger_tests::{LedgerFixture, POLICY, job, queue};
use super::{FakeClock, batch};
use crate::store::{FailingStore, LogHead, Store as _, StoreErrorMode, StoredState};
use crate::*;
use pumice_engine::cycle::SessionChange;
use pumice_engine::model::{NodeVector, ResourceId, TaskStatus};
use pumice_engine::policy::Compatibility;

/// Three servers with the policy, a queue of 10 cores, and a log in common.
async fn three() -> [LedgerFixture; 3] {
    three_with(StateLimits::default()).await
}

async fn three_with(limits: StateLimits) -> [LedgerFixture; 3] {
    let store = FailingStore::default();
    let mut servers = Vec::new();
    for _ in 0..3 {
        let (store, limits) = (store.replica(), limits.clone());
        let server = LedgerFixture::with_store(store, limits, Compatibility::Corrected).await;
        server.apply(1, BatchKind::FullSyncLast, vec![queue("q", 10)]).await;
        servers.push(server);
    }
    servers.try_into().ok().unwrap()
}

/// Reservations of a server. Checks that they equal the content of the log.
async fn promised(server: &LedgerFixture) -> Vec<(String, i128)> {
    server.state.expire_leases().await.unwrap();
    let snapshot = server.state.snapshot();
    let counted = snapshot.state.reservations().iter();
    let counted: Vec<_> = counted
        .map(|(job, row)| (job.to_string(), row.amounts[0].1 / 1_000))
        .collect();
    let (stored, _) = log(server);
    let stored = stored.reservations.iter();
    let stored: Vec<_> = stored
        .map(|row| (row.job.to_string(), row.amounts[0].1 / 1_000))
        .collect();
    assert_eq!(counted, stored, "what a server counts is what the log holds");
    counted
}

fn log(server: &LedgerFixture) -> (StoredState, LogHead) {
    server.store.content().load().unwrap()
}

/// Confirms 30 jobs of one core on three servers at once. Returns the number of permits.
async fn race(servers: &[LedgerFixture; 3]) -> usize {
    let mut asked = Vec::new();
    for (number, server) in (0..30).zip(servers.iter().cycle()) {
        asked.push(server.confirm(job(&format!("ns/{number:02}"), "u", 1), 1));
    }
    let permits = futures_of(asked).await;
    permits.into_iter().filter(|(permitted, ..)| *permitted).count()
}

/// Results of futures that run at the same time.
async fn futures_of<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut all = true;
        for (future, result) in &mut waiting {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *result = Some(value),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, result)| result).collect()
}

#[tokio::test]
async fn servers_that_confirm_at_once_promise_no_more_than_there_is() {
    let servers = three().await;
    assert_eq!(race(&servers).await, 10, "as many as there are, and no more");
    let first = promised(&servers[0]).await;
    assert_eq!(first.len(), 10);
    for server in &servers {
        assert_eq!(promised(server).await, first);
    }
}

/// Confirms a job of 6 of the 10 cores on each server, while all of them judge the same state. Returns the number of permits.
async fn judge_at_once(servers: &[LedgerFixture; 3]) -> usize {
    let blocked: Vec<_> = servers.iter().map(|server| server.store.block_flush()).collect();
    let names = ["ns/a", "ns/b", "ns/c"];
    let asked = servers
        .iter()
        .zip(names)
        .map(|(server, name)| server.confirm(job(name, "u", 6), 1));
    let asked = futures_of(asked.collect());
    let write = async {
        for flush in &blocked {
            flush.wait_for_write();
        }
        drop(blocked);
    };
    let (permits, ()) = tokio::join!(asked, write);
    permits.into_iter().filter(|(permitted, ..)| *permitted).count()
}

#[tokio::test]
async fn servers_that_judge_the_same_state_promise_the_room_once() {
    let servers = three().await;
    assert_eq!(judge_at_once(&servers).await, 1);
    let servers = three().await;
    for server in &servers {
        server.store.set_error_mode(StoreErrorMode::SkipComparison);
    }
    assert_eq!(
        judge_at_once(&servers).await,
        3,
        "the tests notice a log that does not compare"
    );
}

#[tokio::test]
async fn what_one_server_acknowledges_all_others_know_at_once() {
    let [one, other, third] = three().await;
    assert_eq!(one.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    assert_eq!(
        other.confirm(job("ns/b", "u", 6), 1).await,
        (false, 0, "InsufficientCPUQuota")
    );
    assert_eq!(
        third.confirm(job("ns/a", "u", 6), 1).await,
        (true, 6, ""),
        "asked elsewhere"
    );
    assert!(third.release("ns/a", 1).await);
    // The verdict needs the newest state, although nothing is written.
    assert_eq!(one.confirm(job("ns/a", "u", 6), 1).await.2, "ReservationReleased");
    assert_eq!(other.confirm(job("ns/b", "u", 6), 1).await, (true, 6, ""));
    for server in [&one, &other, &third] {
        assert_eq!(promised(server).await, [("ns/b".to_owned(), 6)]);
    }
}

#[tokio::test]
async fn a_policy_that_one_server_takes_is_served_by_all() {
    let [one, other, third] = three().await;
    let reload = |document: &str, expected_version| PolicyReload {
        name: "default".into(),
        document: document.into(),
        expected_version,
        dry_run: false,
        strict: false,
        compatibility: Compatibility::Corrected,
        origin: PolicyOrigin::Rpc("test".to_owned()),
    };
    one.state.reload_policy(reload(BINPACK, Some(1))).await.unwrap();
    // The version that the caller expects is judged by the newest state.
    let late = other.state.reload_policy(reload(QUOTAS, Some(1))).await.unwrap_err();
    assert!(matches!(late, PolicyError::VersionMismatch { active: 2, .. }), "{late}");
    other.state.reload_policy(reload(POLICY, Some(2))).await.unwrap();
    for server in [&one, &other, &third] {
        server.state.expire_leases().await.unwrap();
        let active = server.state.active_policies();
        assert_eq!(
            (active.len(), active[0].in_force.version, &*active[0].document),
            (1, 3, POLICY)
        );
        let snapshot = server.state.snapshot();
        assert_eq!(snapshot.policies.get("default").unwrap().version, 3);
        let versions = server.state.policy_versions(&"default".into()).unwrap();
        assert_eq!(versions.len(), 3);
    }
    let deletion = PolicyDeletion {
        name: "default".into(),
        expected_version: Some(3),
        replacement: None,
    };
    third.state.delete_policy(deletion).await.unwrap();
    one.state.expire_leases().await.unwrap();
    assert!(one.state.active_policies().is_empty());
    assert!(one.state.snapshot().policies.is_empty());
}

#[tokio::test]
async fn an_entry_whose_outcome_was_not_known_counts_if_it_is_in_the_log() {
    let cases = [
        (StoreErrorMode::LoseReply, vec![("ns/a".to_owned(), 6)]),
        (StoreErrorMode::LoseWrite, vec![]),
    ];
    for (mode, expected) in cases {
        let [one, other, _] = three().await;
        one.store.set_error_mode(mode);
        let error = one.try_confirm(vec![(job("ns/a", "u", 6), 1)]).await.unwrap_err();
        assert_eq!(error.reason(), "OUTCOME_UNKNOWN");
        let StateError::UnknownOutcome { key, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(key, "job `ns/a`, attempt 1");
        assert!(!error.to_string().contains("nothing was written"), "{error}");
        assert_eq!(promised(&other).await, expected, "{mode:?}");
        assert_eq!(promised(&one).await, expected, "{mode:?}");
        assert_eq!(one.confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""), "asked again");
        assert_eq!(promised(&other).await, [("ns/a".to_owned(), 6)], "{mode:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_cut_off_promises_nothing_and_comes_back() {
    let [one, other, _] = three().await;
    assert_eq!(one.confirm(job("ns/a", "u", 4), 1).await, (true, 4, ""));
    one.store.set_error_mode(StoreErrorMode::RejectWrites);
    let error = one.try_confirm(vec![(job("ns/b", "u", 1), 1)]).await.unwrap_err();
    assert!(matches!(error, StateError::Store(_)), "{error}");
    assert!(one.state.store_status().problem.is_some());
    // Decisions and batches go on.
    one.apply(2, BatchKind::Delta, vec![queue("r", 1)]).await;
    assert!(one.state.snapshot().state.queues().contains("r"));
    assert_eq!(other.confirm(job("ns/c", "u", 6), 1).await, (true, 6, ""));
    one.store.set_error_mode(StoreErrorMode::None);
    assert_eq!(
        one.confirm(job("ns/b", "u", 1), 1).await,
        (false, 0, "InsufficientCPUQuota")
    );
    assert_eq!(promised(&one).await, promised(&other).await);
}

#[tokio::test]
async fn a_server_that_missed_too_many_entries_reads_the_content() {
    let [one, other, third] = three().await;
    assert_eq!(one.confirm(job("ns/old", "u", 1), 1).await, (true, 1, ""));
    let held = promised(&third).await;
    assert_eq!(held, [("ns/old".to_owned(), 1)]);
    let blocked = third.store.block_flush();
    let confirm = third.try_confirm(vec![(job("ns/late", "u", 1), 1)]);
    let rest = async {
        assert!(one.release("ns/old", 1).await);
        for attempt in 2..400 {
            assert_eq!(other.confirm(job("ns/new", "u", 2), attempt).await, (true, 2, ""));
        }
        drop(blocked);
    };
    let (late, ()) = tokio::join!(confirm, rest);
    assert!(late.unwrap().items[0].as_ref().unwrap().verdict.permitted);
    let expected = [("ns/late".to_owned(), 1), ("ns/new".to_owned(), 2)];
    for server in [&one, &other, &third] {
        assert_eq!(promised(server).await, expected);
    }
    assert_eq!(third.confirm(job("ns/old", "u", 1), 1).await.2, "ReservationReleased");
}

#[tokio::test]
async fn a_lease_that_one_server_renews_runs_on_all() {
    let limits = StateLimits {
        reservation_lease: std::time::Duration::from_secs(10),
        ..StateLimits::default()
    };
    let servers = three_with(limits).await;
    assert_eq!(servers[0].confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
    for number in 0..6 {
        for server in &servers {
            server.clock.advance(4_000);
            server.apply(number + 2, BatchKind::Delta, Vec::new()).await;
        }
        assert_eq!(servers[1].confirm(job("ns/a", "u", 6), 1).await, (true, 6, ""));
        for server in &servers {
            assert_eq!(promised(server).await.len(), 1, "after {} s", 4 * (number + 1));
        }
    }
    for server in &servers {
        server.clock.advance(11_000);
        server.apply(8, BatchKind::Delta, Vec::new()).await;
        assert_eq!(promised(server).await, []);
    }
}

/// Two servers that place tasks, on a log in common.
async fn two_that_place() -> [PlacingServer; 2] {
    let store = FailingStore::default();
    let mut servers = Vec::new();
    for number in 1..3 {
        let clock = Arc::new(FakeClock::default());
        // Names of sessions begin with the upper half of the epoch.
        let options = StateOptions {
            epoch: number << 32,
            ..StateOptions::default()
        };
        let own = store.replica();
        let state = SharedState::start_on(options, clock, Box::new(own.clone())).unwrap();
        let reload = PolicyReload {
            name: "default".into(),
            document: BINPACK.into(),
            expected_version: None,
            dry_run: false,
            strict: false,
            compatibility: Compatibility::Corrected,
            origin: PolicyOrigin::Rpc("test".to_owned()),
        };
        state.reload_policy(reload).await.unwrap();
        let whole = batch(1, BatchKind::FullSyncLast, cluster());
        state.apply_batch(whole).await.unwrap();
        servers.push(PlacingServer { state, store: own });
    }
    servers.try_into().ok().unwrap()
}

struct PlacingServer {
    state: Arc<SharedState>,
    store: FailingStore,
}

impl PlacingServer {
    async fn open(&self) -> Arc<str> {
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

    async fn place(&self, placements: &[(&str, &str)]) -> Arc<CommitOutcome> {
        self.place_in(self.open().await, placements).await
    }

    async fn place_in(&self, session: Arc<str>, placements: &[(&str, &str)]) -> Arc<CommitOutcome> {
        let changes = placements.iter().map(|(task, node)| allocate(task, node)).collect();
        self.commit(&session, 0, changes).await.unwrap()
    }

    async fn commit(
        &self,
        session: &str,
        after: u64,
        changes: Vec<SessionChange>,
    ) -> Result<Arc<CommitOutcome>, StateError> {
        let (state, session) = (Arc::clone(&self.state), session.to_owned());
        tokio::task::spawn_blocking(move || state.commit_session(&session, after, &changes, &[], || ()))
            .await
            .unwrap()
    }

    /// CPU that tasks use of a node, by this server's state.
    async fn used_cpu(&self, node: &str) -> i128 {
        self.state.expire_leases().await.unwrap();
        let snapshot = self.state.snapshot();
        let entry = snapshot.state.node_by_name(node).unwrap();
        entry.exact(ResourceId::CPU, NodeVector::Used).unwrap_or(0)
    }

    fn stored(&self) -> Vec<String> {
        let stored = self.store.content().content().unwrap().assumptions;
        stored.iter().map(|one| one.task.to_string()).collect()
    }

    async fn put(&self, sequence: u64, put: Vec<BatchRecord>) {
        self.state
            .apply_batch(batch(sequence, BatchKind::Delta, put))
            .await
            .unwrap();
        self.state.expire_leases().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_one_server_counts_on_the_other_until_its_own_source_shows_the_task() {
    let [one, other] = two_that_place().await;
    let late = other.open().await;
    let committed = one.place(&[("a/g1", "n1"), ("a/g2", "n2")]).await;
    assert!(committed.jobs.iter().all(|job| job.committed), "{committed:?}");
    assert_eq!((other.used_cpu("n1").await, other.used_cpu("n2").await), (600, 600));
    // Nobody places them again, or takes their room.
    let again = other.place_in(late, &[("a/g1", "n2"), ("a/g2", "n1")]).await;
    assert!(again.jobs.iter().all(|job| !job.committed), "{again:?}");
    // The source of one server shows both tasks; that of the other lags behind.
    let bound = |name, node| bound_task(name, TaskStatus::Running, node, 600);
    one.put(2, vec![bound("a/g1", "n1"), bound("a/g2", "n2")]).await;
    assert_eq!(
        one.stored(),
        Vec::<String>::new(),
        "the log need not name them any more"
    );
    assert_eq!(
        (other.used_cpu("n1").await, other.used_cpu("n2").await),
        (600, 600),
        "they count on"
    );
    other.put(2, vec![bound("a/g1", "n1"), bound("a/g2", "n2")]).await;
    assert_eq!((other.used_cpu("n1").await, other.used_cpu("n2").await), (600, 600));
    assert_eq!(other.state.snapshot().state.assumed_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_outcome_was_not_known_is_made_once_when_it_is_repeated() {
    for mode in [StoreErrorMode::LoseReply, StoreErrorMode::LoseWrite] {
        let [one, other] = two_that_place().await;
        let session = one.open().await;
        let gang = vec![allocate("a/g1", "n1"), allocate("a/g2", "n2"), allocate("a/s", "n1")];
        one.store.set_error_mode(mode);
        let error = one.commit(&session, 0, gang.clone()).await.unwrap_err();
        assert!(
            matches!(&error, StateError::UnknownOutcome { key, .. } if key.starts_with("session `")),
            "{error}"
        );
        let again = one.commit(&session, 0, gang).await.unwrap();
        assert!(again.jobs.iter().all(|job| job.committed), "{mode:?}: {again:?}");
        assert_eq!(again.released, Vec::<Arc<str>>::new(), "{mode:?}");
        for server in [&one, &other] {
            assert_eq!((server.used_cpu("n1").await, server.used_cpu("n2").await), (900, 600));
        }
        assert_eq!(one.stored(), ["a/g1", "a/g2", "a/s"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_releases_what_an_earlier_one_of_its_session_may_have_placed_and_it_does_not() {
    for mode in [StoreErrorMode::LoseReply, StoreErrorMode::LoseWrite] {
        let [one, other] = two_that_place().await;
        let session = one.open().await;
        one.store.set_error_mode(mode);
        let first = vec![allocate("a/g1", "n1"), allocate("a/g2", "n2"), allocate("a/s", "n1")];
        one.commit(&session, 0, first).await.unwrap_err();
        let rethought = vec![
            SessionChange::Unallocate("a/s".into()),
            SessionChange::Unallocate("a/g2".into()),
            allocate("a/g2", "n2"),
        ];
        let second = one.commit(&session, 3, rethought).await.unwrap();
        assert!(second.jobs.iter().all(|job| job.committed), "{mode:?}: {second:?}");
        let is_in_log = matches!(mode, StoreErrorMode::LoseReply);
        let released: &[Arc<str>] = if is_in_log { &["a/s".into()] } else { &[] };
        assert_eq!(second.released, released, "{mode:?}");
        for server in [&one, &other] {
            assert_eq!((server.used_cpu("n1").await, server.used_cpu("n2").await), (600, 600));
        }
        assert_eq!(one.stored(), ["a/g1", "a/g2"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_placement_that_one_server_releases_is_free_on_the_other() {
    let [one, other] = two_that_place().await;
    one.place(&[("a/g1", "n1"), ("a/g2", "n2")]).await;
    assert_eq!(other.used_cpu("n1").await, 600);
    let (_, released) = other
        .state
        .release_assumptions("", vec!["a/g1".into(), "a/g2".into()])
        .await
        .unwrap();
    assert_eq!(released.len(), 2);
    assert_eq!((one.used_cpu("n1").await, one.used_cpu("n2").await), (0, 0));
    assert_eq!(one.state.snapshot().state.assumed_count(), 0);
    let committed = other.place(&[("a/s", "n1")]).await;
    assert!(committed.jobs.iter().all(|job| job.committed), "{committed:?}");
}
