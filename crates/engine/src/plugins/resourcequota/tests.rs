//! Votes with small numbers, and the state over random histories.

use super::super::queue_accounts::testing::cluster::{
    amounts, cluster_state, job, put_job, put_task, reservation, task,
};
use super::super::queue_accounts::testing::histories::assert_follows;
use super::*;
use crate::model::{JobPhase, NamespaceRecord, TaskStatus};
use crate::plugin_state::PlacementEvent;

/// Billionths of one.
const ONE: i128 = 1_000_000_000;

fn exact(pairs: &[(&str, i128)]) -> ExactQuantities {
    pairs
        .iter()
        .map(|(name, amount)| (Arc::from(*name), amount * ONE))
        .collect()
}

/// State whose namespace `ns` has a quota.
fn state(hard: &[(&str, i128)], used: &[(&str, i128)]) -> ClusterState {
    let mut state = cluster_state(&[]);
    let quota = NamespaceQuota {
        name: "a".into(),
        hard: exact(hard),
        used: exact(used),
    };
    let record = NamespaceRecord {
        name: "ns".into(),
        resource_quotas: vec![quota],
        ..NamespaceRecord::default()
    };
    state.put_namespace(record, &Arc::from("test"));
    state
}

/// Waiting job that needs cores.
fn cores(name: &str, cores: i64) -> JobRecord {
    job(name, "q", Some(amounts(cores * 1000, -1, -1)), JobPhase::Pending)
}

struct AdmissionBench {
    guard: NamespaceQuotaGuard,
    state: ClusterState,
    states: PluginStates,
}

impl AdmissionBench {
    fn new(state: ClusterState, compatibility: Compatibility) -> Self {
        let guard = NamespaceQuotaGuard { compatibility };
        let mut states = PluginStates::default();
        let own = guard.build_state(&state, &PluginSwitches::default()).unwrap();
        states.insert(NAME.into(), own);
        Self { guard, state, states }
    }

    /// Messages against a job.
    fn messages(&self, job: &JobRecord) -> Vec<String> {
        let context = PluginContext::new(&self.state, &self.states, None);
        let opinion = self.guard.admit_job(context, job).unwrap().unwrap();
        opinion.reasons.into_iter().map(|(reason, _)| reason.message).collect()
    }

    fn permits(&self, job: &JobRecord) -> bool {
        self.messages(job).is_empty()
    }

    fn enqueue(&mut self, job: &JobRecord) {
        self.guard.enqueue_job(&mut self.states, &self.state, job).unwrap();
    }
}

#[test]
fn a_job_may_use_what_quotas_leave() {
    for compatibility in Compatibility::KINDS {
        let bench = AdmissionBench::new(state(&[("cpu", 4)], &[("cpu", 1)]), compatibility);
        assert!(bench.permits(&cores("ns/x", 3)) && bench.permits(&cores("other/x", 9)));
        let message = "resource quota a insufficient for cpu: requested: 4, used: 1, pending: 0, limited: 4";
        assert_eq!(bench.messages(&cores("ns/x", 4)), [message]);
        let without = job("ns/x", "q", None, JobPhase::Pending);
        assert!(bench.permits(&without));
    }
}

#[test]
fn corrected_reads_requests_of_a_resource_as_the_resource() {
    for (compatibility, permits) in [(Compatibility::UPSTREAM, true), (Compatibility::Corrected, false)] {
        let bench = AdmissionBench::new(state(&[("requests.cpu", 4)], &[("requests.cpu", 2)]), compatibility);
        assert_eq!(bench.permits(&cores("ns/x", 3)), permits);
        assert!(bench.permits(&cores("ns/x", 2)));
        let bench = AdmissionBench::new(state(&[("limits.cpu", 1)], &[]), compatibility);
        assert!(bench.permits(&cores("ns/x", 3)));
    }
}

#[test]
fn the_larger_of_both_names_is_compared() {
    let written = |requests: i128| JobRecord {
        gang: crate::model::GangMinimums {
            exact_minimum: exact(&[("requests.cpu", requests)]),
            ..Default::default()
        }
        .into_field(),
        ..cores("ns/x", 2)
    };
    let bench = AdmissionBench::new(state(&[("requests.cpu", 2)], &[]), Compatibility::Corrected);
    assert_eq!(
        [1, 2, 3].map(|requests| bench.permits(&written(requests))),
        [true, true, false]
    );
    let bench = AdmissionBench::new(state(&[("requests.cpu", 2)], &[]), Compatibility::UPSTREAM);
    assert_eq!(
        [1, 2, 3].map(|requests| bench.permits(&written(requests))),
        [true, true, false]
    );
}

#[test]
fn permitted_jobs_count_until_the_next_admission_or_the_end_of_the_session() {
    for (compatibility, twice, after) in [
        (Compatibility::UPSTREAM, false, false),
        (Compatibility::Corrected, true, true),
    ] {
        let mut bench = AdmissionBench::new(state(&[("cpu", 4)], &[]), compatibility);
        let (one, other) = (cores("ns/x", 3), cores("ns/y", 2));
        bench.enqueue(&one);
        assert!(!bench.permits(&other) && bench.permits(&cores("os/y", 2)));
        // Under `upstream` a job that is asked about again counts twice.
        assert_eq!(bench.permits(&one), twice);
        bench.guard.release_tentative(&mut bench.states).unwrap();
        assert_eq!(bench.permits(&other), after);
    }
}

#[test]
fn corrected_counts_enqueued_jobs_until_their_pods_exist() {
    for (compatibility, permits) in [(Compatibility::UPSTREAM, true), (Compatibility::Corrected, false)] {
        let mut state = state(&[("cpu", 4)], &[]);
        let mut enqueued = cores("ns/x", 3);
        enqueued.phase = JobPhase::Inqueue;
        put_job(&mut state, enqueued.clone());
        let bench = AdmissionBench::new(state.clone(), compatibility);
        assert_eq!(bench.permits(&cores("ns/y", 2)), permits);
        assert!(bench.permits(&enqueued), "the job itself does not count twice");
        let pod = task("ns/p", "ns/x", &amounts(1000, 0, -1), TaskStatus::Pending);
        put_task(&mut state, pod);
        assert!(AdmissionBench::new(state, compatibility).permits(&cores("ns/y", 2)));
    }
}

#[test]
fn a_reservation_counts() {
    for compatibility in Compatibility::KINDS {
        let mut state = state(&[("cpu", 4)], &[]);
        put_job(&mut state, cores("ns/x", 3));
        state.put_reservation(reservation("ns/x", "q", 3000));
        let bench = AdmissionBench::new(state, compatibility);
        assert!(!bench.permits(&cores("ns/y", 2)));
    }
}

#[test]
fn a_job_that_is_enqueued_for_good_counts_once_and_leaves_when_it_waits_again() {
    for compatibility in Compatibility::KINDS {
        let mut bench = AdmissionBench::new(state(&[("cpu", 4)], &[]), compatibility);
        let mut own = cores("ns/x", 3);
        bench.enqueue(&own);
        own.phase = JobPhase::Inqueue;
        put_job(&mut bench.state, own.clone());
        let AdmissionBench { state, states, .. } = &mut bench;
        states.apply(state, &[PlacementEvent::Enqueue("ns/x")]).unwrap();
        bench.guard.release_tentative(&mut bench.states).unwrap();
        assert!(!bench.permits(&cores("ns/y", 2)) && bench.permits(&cores("ns/y", 1)));
        own.phase = JobPhase::Pending;
        put_job(&mut bench.state, own);
        let AdmissionBench { state, states, .. } = &mut bench;
        states.apply(state, &[PlacementEvent::Dequeue(&"ns/x".into())]).unwrap();
        assert!(bench.permits(&cores("ns/y", 4)));
    }
}

#[test]
fn a_state_that_followed_equals_a_rebuild() {
    assert_follows(PendingMinimums::of, |old, _, followed| {
        if let Some((_, stored)) = old.jobs().iter().next() {
            followed.enqueue_tentatively(old, &stored.record);
        }
    });
}
