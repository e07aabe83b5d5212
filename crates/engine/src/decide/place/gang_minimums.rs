//! Minimums of a job for roles and groups: placements that leave a role or a group short are rejected.

use std::sync::Arc;

use super::admission::hypothetical_task;
use super::{GANG, PlaceBlocker, PlaceQuery, PlaceResult, PluginStateOrigin};
use crate::decide::job_state::JobStateJudge;
use crate::model::{ClusterState, JobRecord, NodeSlot, TaskRecord, TaskStatus};
use crate::plugin::{PluginContext, Reason, Resolution};
use crate::policy::Policy;

/// Blocker of placements with which the policy's plugins would not keep the job's places, because a role or a group of
/// the job is short; `None`: they keep them, or the job has no such minimums.
pub(super) fn short_of_minimums(
    cluster_state: &ClusterState,
    origin: PluginStateOrigin<'_>,
    with_job: &ClusterState,
    policy: &Policy,
    query: &PlaceQuery,
    placing: &PlaceResult,
) -> Option<PlaceBlocker> {
    if query.min_available.is_some() || !placing.placed {
        return None;
    }
    let hooks = &policy.hooks().job_pipelined;
    let judge = JobStateJudge::of(policy, Vec::new()).filter(|_| hooks.iter().any(|tier| !tier.is_empty()))?;
    let mut groups = query.groups.iter().filter_map(|group| group.as_ref().ok());
    let stored = groups.find_map(|group| with_job.jobs().get(&group.task.job))?;
    let job: &JobRecord = &stored.record;
    job.gang.as_ref()?;
    let placed = with_placements(with_job, query, placing);
    let is_asked = |name: &str| hooks.iter().flatten().any(|hook| *hook.name == *name);
    let before = match origin {
        PluginStateOrigin::Computed(states) => Some((cluster_state, states)),
        PluginStateOrigin::Modified(_) => None,
    };
    let states = policy.compute_selected_plugin_states(is_asked, &placed, before);
    let context = PluginContext::new(&placed, &states, query.now);
    if judge.judge(context, job).pipelined {
        return None;
    }
    let message = format!("job `{}` would still lack tasks of a role or a group", job.name);
    let reason = Reason::new(GANG, "TooFewOfRole", message, Resolution::Unschedulable);
    Some(PlaceBlocker::without_nodes(reason, Vec::new()))
}

/// State in which the tasks are where they were placed.
fn with_placements(with_job: &ClusterState, query: &PlaceQuery, placing: &PlaceResult) -> ClusterState {
    let mut state = with_job.clone();
    let groups = query.groups.iter().zip(&placing.groups).enumerate();
    for (number, (asked, placed)) in groups {
        let (Ok(asked), Ok(placed)) = (asked, placed) else {
            continue;
        };
        let allocated = placed.allocated.iter().map(|slot| (*slot, TaskStatus::Allocated));
        let pipelined = placed.pipelined.iter().map(|slot| (*slot, TaskStatus::Pipelined));
        for (place, (slot, status)) in allocated.chain(pipelined).enumerate() {
            let named = asked.names.get(place).and_then(|name| with_job.tasks().get(name));
            let task = named.map_or_else(
                || hypothetical_task(number, place, &asked.task),
                |stored| stored.record.clone(),
            );
            state.put_task(on_node(task, &state, slot, status), &Arc::from(""));
        }
    }
    state
}

fn on_node(task: TaskRecord, state: &ClusterState, slot: NodeSlot, status: TaskStatus) -> TaskRecord {
    TaskRecord {
        node: state.name_of(slot).unwrap_or_default(),
        status,
        ..task
    }
}
