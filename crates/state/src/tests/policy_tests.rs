//! Policies over a failing store: a policy that was reported as not activated is not active after a crash either.

use super::commit_fixture::{BINPACK, QUOTAS};
use super::ledger_tests::job;
use super::{FakeClock, batch};
use crate::store::StoredState;
use crate::store::{FailingStore, StoreErrorMode};
use crate::*;
use pumice_engine::policy::Compatibility;

const FIT: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: resource-strategy-fit\n";

struct PolicyFixture {
    state: Arc<SharedState>,
    store: FailingStore,
}

impl PolicyFixture {
    fn with_store(store: FailingStore) -> Self {
        let options = StateOptions {
            limits: StateLimits {
                policy_versions: 2,
                ..StateLimits::default()
            },
            epoch: 7,
            ..StateOptions::default()
        };
        let clock = Arc::new(FakeClock::default());
        let state = SharedState::start_on(options, clock, Box::new(store.clone())).unwrap();
        Self { state, store }
    }

    /// Crashes, and starts again.
    fn crash(self) -> Self {
        let store = self.store.crash();
        drop(self);
        Self::with_store(store)
    }

    async fn reload(&self, name: &str, document: &str, origin: PolicyOrigin) -> Result<ReloadedPolicy, PolicyError> {
        let reload = PolicyReload {
            name: name.into(),
            document: document.into(),
            expected_version: None,
            dry_run: false,
            strict: false,
            compatibility: Compatibility::Corrected,
            origin,
        };
        self.state.reload_policy(reload).await
    }

    async fn push(&self, document: &str) -> Result<ReloadedPolicy, PolicyError> {
        self.reload("default", document, PolicyOrigin::Rpc("test".to_owned()))
            .await
    }

    /// The store writes and reports an error; after that it rejects writes.
    async fn fail_late(&self, name: &str, document: &str, origin: PolicyOrigin) {
        let before = self.stored();
        self.store.set_error_mode(StoreErrorMode::FailAfterWrite);
        let error = self.reload(name, document, origin).await.unwrap_err();
        assert!(matches!(error, PolicyError::State(StateError::Store(_))), "{error}");
        assert_ne!(self.stored(), before, "it is there all the same");
    }

    fn stored(&self) -> StoredState {
        self.store.content().content().unwrap()
    }

    /// Name and version of the policies in force, with the versions that are stored.
    fn serving(&self) -> Vec<(String, u64, Vec<u64>)> {
        let active = self.state.active_policies();
        let one = |version: &Arc<PolicyVersion>| {
            let name = &version.in_force.name;
            let stored = self.state.policy_versions(name).unwrap();
            let stored = stored.iter().map(|version| version.in_force.version).collect();
            (name.to_string(), version.in_force.version, stored)
        };
        active.iter().map(one).collect()
    }
}

#[tokio::test]
async fn a_reload_that_failed_is_not_in_force_after_a_crash() {
    let fixture = PolicyFixture::with_store(FailingStore::default());
    for document in [BINPACK, QUOTAS] {
        fixture.push(document).await.unwrap();
    }
    let (serving, stored) = (fixture.serving(), fixture.stored());
    assert_eq!(serving, [("default".to_owned(), 2, vec![2, 1])]);
    // The third version would have replaced the first, and a file would have been accepted.
    fixture
        .fail_late("default", FIT, PolicyOrigin::File("policy.yaml".to_owned()))
        .await;
    fixture
        .fail_late("other", FIT, PolicyOrigin::File("other.yaml".to_owned()))
        .await;
    assert_eq!(fixture.serving(), serving);
    fixture.store.set_error_mode(StoreErrorMode::None);
    fixture.state.expire_leases().await.unwrap();
    assert_eq!(fixture.stored(), stored, "the next look at the clock repairs it");
    let fixture = fixture.crash();
    assert_eq!(fixture.serving(), serving);
    assert!(
        !fixture
            .state
            .file_was_accepted("default", FIT, Compatibility::Corrected)
    );
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one history from its start to its end")]
async fn whatever_is_written_next_sets_it_right() {
    let fixture = PolicyFixture::with_store(FailingStore::default());
    fixture.push(QUOTAS).await.unwrap();
    let stored = fixture.stored();
    // A reservation.
    fixture
        .fail_late("default", FIT, PolicyOrigin::Rpc("test".to_owned()))
        .await;
    fixture.store.set_error_mode(StoreErrorMode::None);
    let release = LedgerRelease {
        job: job("ns/a", "u", 1).name,
        uid: "u".into(),
        attempt: 1,
    };
    fixture.state.release(release).await.unwrap();
    assert_eq!(fixture.stored().policies, stored.policies);
    // Another policy.
    fixture
        .fail_late("default", FIT, PolicyOrigin::Rpc("test".to_owned()))
        .await;
    fixture.store.set_error_mode(StoreErrorMode::None);
    fixture
        .reload("other", BINPACK, PolicyOrigin::Rpc("test".to_owned()))
        .await
        .unwrap();
    let fixture = fixture.crash();
    let names: Vec<_> = fixture
        .serving()
        .into_iter()
        .map(|(name, version, _)| (name, version))
        .collect();
    assert_eq!(names, [("default".to_owned(), 1), ("other".to_owned(), 1)]);
    // The same policy, under the same number.
    fixture
        .fail_late("default", FIT, PolicyOrigin::Rpc("test".to_owned()))
        .await;
    fixture.store.set_error_mode(StoreErrorMode::None);
    assert_eq!(fixture.push(BINPACK).await.unwrap().version.in_force.version, 2);
    let fixture = fixture.crash();
    assert_eq!(
        &*fixture.state.policy_version(&"default".into(), 0).unwrap().document,
        BINPACK
    );
    // The policy that is in force anyway; it is not confirmed while the store fails.
    fixture
        .fail_late("default", FIT, PolicyOrigin::Rpc("test".to_owned()))
        .await;
    assert!(fixture.push(BINPACK).await.is_err());
    fixture.store.set_error_mode(StoreErrorMode::None);
    assert!(fixture.push(BINPACK).await.unwrap().unchanged);
    let fixture = fixture.crash();
    assert_eq!(
        &*fixture.state.policy_version(&"default".into(), 0).unwrap().document,
        BINPACK
    );
    // The end of the server.
    fixture
        .fail_late("default", FIT, PolicyOrigin::Rpc("test".to_owned()))
        .await;
    fixture.store.set_error_mode(StoreErrorMode::None);
    fixture.state.stop().await;
    assert_eq!(
        &*fixture
            .crash()
            .state
            .policy_version(&"default".into(), 0)
            .unwrap()
            .document,
        BINPACK
    );
}

#[tokio::test]
async fn a_failing_store_is_retried_when_time_passes() {
    let fixture = PolicyFixture::with_store(FailingStore::default());
    fixture.push(QUOTAS).await.unwrap();
    fixture
        .fail_late("default", FIT, PolicyOrigin::Rpc("test".to_owned()))
        .await;
    fixture.state.expire_leases().await.unwrap();
    // Batches go on meanwhile.
    let whole = batch(1, BatchKind::FullSyncLast, Vec::new());
    fixture.state.apply_batch(whole).await.unwrap();
    assert_eq!(fixture.stored().policies.len(), 2);
    fixture.store.set_error_mode(StoreErrorMode::None);
    fixture.state.expire_leases().await.unwrap();
    assert_eq!(fixture.stored().policies.len(), 1);
}
