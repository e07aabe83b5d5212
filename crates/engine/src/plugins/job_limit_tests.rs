//! The example of a plugin in docs/internals/plugin.md works as the page says.

use std::sync::Arc;

use super::job_limit::StartedJobs;
use super::queue_accounts::testing::cluster::{cluster_state, job, put_job, put_queue, queue, reservation};
use crate::decide::{self, AdmitQuery, AdmitSubject};
use crate::model::{ClusterState, JobPhase, StateDiff};
use crate::plugin_state::{PlacementEvent, PluginState as _, PluginStateChange, PluginStates};
use crate::policy::{CompileOptions, Policy, compile};

const PAGE: &str = include_str!("../../../../docs/internals/plugin.md");
const EXAMPLE: &str = include_str!("job_limit.rs");

fn policy(limit: i64) -> Arc<Policy> {
    let document =
        format!("actions: enqueue\ntiers:\n- plugins:\n  - {{name: job-limit, arguments: {{limit: {limit}}}}}\n");
    compile(&document, &CompileOptions::default()).unwrap().policy
}

/// Queue `q` with jobs `a`, which runs, `b` and `c`, which wait, and queue `other`.
fn cluster() -> ClusterState {
    let mut state = cluster_state(&[(8, 8, 0)]);
    for name in ["q", "other"] {
        put_queue(&mut state, queue(name, 1));
    }
    put_job(&mut state, job("a", "q", None, JobPhase::Running));
    for (name, queue) in [("b", "q"), ("c", "q"), ("d", "other")] {
        put_job(&mut state, job(name, queue, None, JobPhase::Pending));
    }
    state
}

/// Votes on jobs, one after the other.
fn admit(state: &ClusterState, policy: &Policy, states: &mut PluginStates, jobs: &[&str]) -> Vec<bool> {
    let subject = |name: &&str| {
        Ok(AdmitSubject::Job(Arc::new(
            state.jobs().get(name).unwrap().record.clone(),
        )))
    };
    let query = AdmitQuery {
        items: jobs.iter().map(subject).collect(),
        plugins: Vec::new(),
        now: None,
    };
    let items = decide::admit(state, policy, states, &query).unwrap();
    items.into_iter().map(|item| item.unwrap().permitted).collect()
}

#[test]
fn at_most_so_many_jobs_of_a_queue_run_at_once() {
    let (mut state, policy) = (cluster(), policy(2));
    let mut states = policy.compute_plugin_states(&state);
    assert_eq!(
        admit(&state, &policy, &mut states, &["b", "c", "d"]),
        [true, false, true]
    );
    // The permit of `b` was not kept, and then a reservation counts.
    assert_eq!(admit(&state, &policy, &mut states, &["c", "b"]), [true, false]);
    let before = state.clone();
    state.put_reservation(reservation("c", "q", 1));
    let name: Arc<str> = "c".into();
    states.apply(&state, &[PlacementEvent::Reserve(&name)]).unwrap();
    assert_eq!(admit(&state, &policy, &mut states, &["b", "c"]), [false, true]);
    // One that follows a step equals one that is built.
    let mut followed = StartedJobs::build(&before);
    let step = StateDiff {
        old: &before,
        new: &state,
    };
    followed.apply(&PluginStateChange::Step(step)).unwrap();
    assert_eq!(followed, StartedJobs::build(&state));
    assert_ne!(followed, StartedJobs::build(&before));
}

#[test]
fn the_example_is_one_small_file_and_one_row() {
    assert!(EXAMPLE.lines().filter(|line| !line.trim().is_empty()).count() <= 120);
    assert!(PAGE.contains("`job_limit.rs`"));
}
