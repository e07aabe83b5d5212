//! Policies over a store that fails: what was refused to the operator is not in force after a crash.

use super::commit_stage::{BINPACK, QUOTAS};
use super::fallible::{Fallible, Fault};
use super::ledger_tests::job;
use super::tests::{HandClock, batch};
use super::*;
use crate::engine::policy::Compatibility;
use crate::store::Kept;

const FIT: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: resource-strategy-fit\n";

struct Office {
    state: Arc<State>,
    store: Fallible,
}

impl Office {
    fn over(store: Fallible) -> Self {
        let options = StateOptions {
            limits: Limits {
                policy_versions: 2,
                ..Limits::default()
            },
            epoch: 7,
            ..StateOptions::default()
        };
        let clock = Arc::new(HandClock::default());
        let state = State::start_on(options, clock, Box::new(store.clone())).unwrap();
        Self { state, store }
    }

    /// Dies, and starts again.
    fn crash(self) -> Self {
        let store = self.store.crash();
        drop(self);
        Self::over(store)
    }

    async fn reload(&self, name: &str, document: &str, origin: Origin) -> Result<Reloaded, PolicyError> {
        let reload = Reload {
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

    async fn push(&self, document: &str) -> Result<Reloaded, PolicyError> {
        self.reload("default", document, Origin::Rpc("test".to_owned())).await
    }

    /// The store writes, and says that it failed; after that it refuses.
    async fn fail_late(&self, name: &str, document: &str, origin: Origin) {
        let before = self.kept();
        self.store.fail(Fault::Late);
        let error = self.reload(name, document, origin).await.unwrap_err();
        assert!(matches!(error, PolicyError::State(StateError::Store(_))), "{error}");
        assert_ne!(self.kept(), before, "it is there all the same");
    }

    fn kept(&self) -> Kept {
        self.store.content().load().unwrap()
    }

    /// Name and version of what is in force, and which versions are kept.
    fn serving(&self) -> Vec<(String, u64, Vec<u64>)> {
        let active = self.state.active_policies();
        let one = |version: &Arc<PolicyVersion>| {
            let name = &version.in_force.name;
            let kept = self.state.policy_versions(name).unwrap();
            let kept = kept.iter().map(|version| version.in_force.version).collect();
            (name.to_string(), version.in_force.version, kept)
        };
        active.iter().map(one).collect()
    }
}

#[tokio::test]
async fn a_reload_that_failed_is_not_in_force_after_a_crash() {
    let office = Office::over(Fallible::default());
    for document in [BINPACK, QUOTAS] {
        office.push(document).await.unwrap();
    }
    let (serving, kept) = (office.serving(), office.kept());
    assert_eq!(serving, [("default".to_owned(), 2, vec![2, 1])]);
    // The third would have taken the place of the first, and a file would have been accepted.
    office
        .fail_late("default", FIT, Origin::File("policy.yaml".to_owned()))
        .await;
    office
        .fail_late("other", FIT, Origin::File("other.yaml".to_owned()))
        .await;
    assert_eq!(office.serving(), serving);
    office.store.fail(Fault::None);
    office.state.look_at_leases().await.unwrap();
    assert_eq!(office.kept(), kept, "it is set right when time passes");
    let office = office.crash();
    assert_eq!(office.serving(), serving);
    assert!(!office.state.file_was_accepted("default", FIT, Compatibility::Corrected));
}

#[tokio::test]
async fn whatever_is_written_next_sets_it_right() {
    let office = Office::over(Fallible::default());
    office.push(QUOTAS).await.unwrap();
    let kept = office.kept();
    // A promise.
    office.fail_late("default", FIT, Origin::Rpc("test".to_owned())).await;
    office.store.fail(Fault::None);
    let release = Release {
        job: job("ns/a", "u", 1).name,
        uid: "u".into(),
        attempt: 1,
    };
    office.state.release(release).await.unwrap();
    assert_eq!(office.kept().policies, kept.policies);
    // Another policy.
    office.fail_late("default", FIT, Origin::Rpc("test".to_owned())).await;
    office.store.fail(Fault::None);
    office
        .reload("other", BINPACK, Origin::Rpc("test".to_owned()))
        .await
        .unwrap();
    let office = office.crash();
    let names: Vec<_> = office
        .serving()
        .into_iter()
        .map(|(name, version, _)| (name, version))
        .collect();
    assert_eq!(names, [("default".to_owned(), 1), ("other".to_owned(), 1)]);
    // The same policy, under the same number.
    office.fail_late("default", FIT, Origin::Rpc("test".to_owned())).await;
    office.store.fail(Fault::None);
    assert_eq!(office.push(BINPACK).await.unwrap().version.in_force.version, 2);
    let office = office.crash();
    assert_eq!(&*office.state.policy(&"default".into(), 0).unwrap().document, BINPACK);
    // The policy that is in force anyway; it is not confirmed while the store fails.
    office.fail_late("default", FIT, Origin::Rpc("test".to_owned())).await;
    assert!(office.push(BINPACK).await.is_err());
    office.store.fail(Fault::None);
    assert!(office.push(BINPACK).await.unwrap().unchanged);
    let office = office.crash();
    assert_eq!(&*office.state.policy(&"default".into(), 0).unwrap().document, BINPACK);
    // The end of the server.
    office.fail_late("default", FIT, Origin::Rpc("test".to_owned())).await;
    office.store.fail(Fault::None);
    office.state.stop().await;
    assert_eq!(
        &*office.crash().state.policy(&"default".into(), 0).unwrap().document,
        BINPACK
    );
}

#[tokio::test]
async fn a_store_that_goes_on_failing_is_asked_when_time_passes() {
    let office = Office::over(Fallible::default());
    office.push(QUOTAS).await.unwrap();
    office.fail_late("default", FIT, Origin::Rpc("test".to_owned())).await;
    office.state.look_at_leases().await.unwrap();
    // Batches go on meanwhile.
    let whole = batch(1, BatchKind::SnapshotLast, Vec::new());
    office.state.apply(whole).await.unwrap();
    assert_eq!(office.kept().policies.len(), 2);
    office.store.fail(Fault::None);
    office.state.look_at_leases().await.unwrap();
    assert_eq!(office.kept().policies.len(), 1);
}
