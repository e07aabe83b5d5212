//! Whether the tasks of a job that wait for one card find room together on the nodes that have it.

use std::sync::Arc;

use super::card_claims::CardClaim;
use super::matching::key_of;
use super::state::CapacityState;
use super::task_need::{CardDemand, TaskNeed};
use crate::model::{
    CHUNK_SIZE, ClusterState, MIN_AMOUNT, NodeChunk, ResourceAmounts, ResourceId, TaskRecord, TaskStatus,
};
use crate::plugins::capacity_card::QuotaAmounts;

/// Requests of tasks, and how many request the same.
pub(super) type GangTasks<'a> = Vec<(&'a ResourceAmounts, i128)>;

/// Tasks of a job that wait for a choice, with what each asks for of it, those that are needed first in front.
pub(super) struct Gang<'a>(Vec<(&'a TaskRecord, i128)>);

impl<'a> Gang<'a> {
    pub(super) fn of(state: &'a CapacityState, cluster_state: &'a ClusterState, job: &str, choice: &str) -> Self {
        let choice = key_of(&Arc::from(choice));
        let mut last: Option<(&TaskRecord, Option<i128>)> = None;
        let mut tasks = Vec::new();
        for task in state.job_tasks(cluster_state, job) {
            if task.status != TaskStatus::Pending || task.gated {
                continue;
            }
            // Tasks of one template ask for the same.
            let known = last.filter(|(other, _)| Arc::ptr_eq(&other.shape, &task.shape));
            let asked = known.map_or_else(|| asked_of(state, cluster_state, task, &choice), |(_, asked)| asked);
            last = Some((task, asked));
            tasks.extend(asked.map(|asked| (task, asked)));
        }
        tasks.sort_by(|(a, _), (b, _)| (-i64::from(a.priority), &a.name).cmp(&(-i64::from(b.priority), &b.name)));
        Self(tasks)
    }

    /// The first tasks, which together ask for so much; where there are not as many, more of those that request this and
    /// ask for `each`. At least one.
    pub(super) fn first<'t>(&'t self, amount: i128, requests: &'t ResourceAmounts, each: i128) -> GangTasks<'t> {
        let mut tasks: GangTasks<'t> = Vec::new();
        let mut left = amount;
        for (task, asked) in &self.0 {
            if left <= 0 {
                break;
            }
            left -= asked;
            match tasks.last_mut() {
                Some((same, count)) if **same == task.requests => *count += 1,
                _ => tasks.push((&task.requests, 1)),
            }
        }
        if left > 0 || tasks.is_empty() {
            tasks.push((requests, ((left + each - 1) / each.max(1)).max(1)));
        }
        tasks
    }

    /// How many of the tasks of a claim, at most `most`, find room on the nodes that have a card, beside tasks of the job that
    /// were `given` it. Tasks that are not known find room.
    pub(super) fn count_on_nodes(
        &self,
        state: &CapacityState,
        cluster_state: &ClusterState,
        card: &str,
        claim: &CardClaim,
        most: i128,
        given: &QuotaAmounts,
    ) -> i128 {
        let Some((like, each)) = self
            .0
            .iter()
            .find(|(_, asked)| *asked == claim.size)
            .or_else(|| self.0.first())
        else {
            return most;
        };
        let is_whole_gang = claim.count == 1 && *each != claim.size;
        let tasks = if is_whole_gang {
            self.first(claim.size, &like.requests, *each)
        } else {
            let before = given.card_or_zero(card) / claim.size;
            vec![(&like.requests, before + most)]
        };
        let left = state.left_on_nodes(cluster_state, &tasks, card);
        if is_whole_gang {
            return if left == 0 { most } else { 0 };
        }
        (most - left).max(0)
    }
}

/// Amount that a task asks for of a choice, if it leaves it.
fn asked_of(state: &CapacityState, cluster_state: &ClusterState, task: &TaskRecord, choice: &str) -> Option<i128> {
    let need = TaskNeed::of(state.need_context(cluster_state), task);
    let own = need.demands.iter().find(|demand| *key_of(&demand.name()) == *choice);
    own.map(CardDemand::max_amount)
}

impl CapacityState {
    /// Number of tasks that find no room on nodes with a card: on those on which something new may be placed, with what will
    /// be idle there. Tasks that request the same are put on one node after the other, by name: of several requests it
    /// matters which node comes first.
    pub(super) fn left_on_nodes(&self, cluster_state: &ClusterState, tasks: &GangTasks<'_>, card: &str) -> i128 {
        let kinds = self.cards.node_kinds();
        let with_card = kinds.map_kinds(|kind| kind.iter().any(|(own, _)| **own == *card));
        let mut left: Vec<i128> = tasks.iter().map(|(_, count)| *count).collect();
        let mut nodes: Vec<(&str, usize, usize)> = Vec::new();
        let mut idle: Vec<Vec<Idle>> = Vec::new();
        for chunk in cluster_state.chunks().iter() {
            let column = kinds.column(chunk, cluster_state);
            let on = |offset: &usize| {
                let kind = column.get(*offset).copied().unwrap_or(u32::MAX);
                with_card.get(kind as usize).copied().unwrap_or(false)
            };
            let name = |offset: usize| chunk.entry(offset).map_or("", |entry| &*entry.record.name);
            let own = chunk.placeable().iter().filter(on);
            let before = nodes.len();
            nodes.extend(own.map(|offset| (name(offset), idle.len(), offset)));
            if nodes.len() > before {
                idle.push(idle_columns(chunk, tasks));
            }
            if tasks.len() == 1 {
                fill(nodes.drain(..), &mut idle, tasks, &mut left);
                idle.clear();
                if left.iter().all(|left| *left <= 0) {
                    return 0;
                }
            }
        }
        nodes.sort_unstable();
        fill(nodes.drain(..), &mut idle, tasks, &mut left);
        left.iter().map(|left| (*left).max(0)).sum()
    }
}

/// Idle amount of a resource at each place of a chunk.
type Idle = (ResourceId, [f64; CHUNK_SIZE]);

/// Idle amounts of all that tasks request, at each place of a chunk.
fn idle_columns(chunk: &NodeChunk, tasks: &GangTasks<'_>) -> Vec<Idle> {
    let mut idle: Vec<Idle> = Vec::new();
    for (id, _) in tasks.iter().flat_map(|(requests, _)| requests.iter()) {
        if idle.iter().all(|(own, _)| *own != id) {
            idle.push((id, chunk.future_idle(id).values));
        }
    }
    idle
}

/// Puts tasks on nodes, given by their places in the columns of their chunk.
fn fill<'n>(
    nodes: impl Iterator<Item = (&'n str, usize, usize)>,
    idle: &mut [Vec<Idle>],
    tasks: &GangTasks<'_>,
    left: &mut [i128],
) {
    for (_, chunk, offset) in nodes {
        let Some(idle) = idle.get_mut(chunk) else { continue };
        for ((requests, _), left) in tasks.iter().zip(left.iter_mut()).filter(|(_, left)| **left > 0) {
            let some = requests.iter().filter(|(_, amount)| *amount > 0);
            let fitting = some.map(|(id, amount)| {
                let own = idle.iter().find(|(own, _)| *own == id);
                let idle = own.and_then(|(_, idle)| idle.get(offset)).copied().unwrap_or(0.0);
                times(idle, amount)
            });
            let count = fitting.min().unwrap_or(*left).min(*left);
            for (id, amount) in requests.iter() {
                let own = idle.iter_mut().find(|(own, _)| *own == id);
                if let Some(idle) = own.and_then(|(_, idle)| idle.get_mut(offset)) {
                    *idle -= amount as f64 * count as f64;
                }
            }
            *left -= count;
        }
    }
}

/// How often an amount above 0 fits in what is idle; amounts below the tolerance are none.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a whole number, and casts of floats saturate"
)]
fn times(idle: f64, amount: i64) -> i128 {
    ((idle + MIN_AMOUNT * 0.5) / amount as f64).floor().max(0.0) as i128
}
