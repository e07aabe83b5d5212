//! Loop that Place must equal: filter, score, assume, one task after the other.

use pumice::server::pb;

/// Scheduler that the loop asks: an engine, or a server.
pub(super) trait TaskByTaskScheduler {
    /// Usable cards of a task that may be allocated, best first; `None`: it may not.
    fn admit(&mut self, task: &pb::Task) -> Option<Vec<String>>;
    /// Nodes that pass every filter with this capacity.
    fn filter(&mut self, task: &pb::Task, fit: pb::ResourceFit) -> Vec<String>;
    /// Scores of these nodes.
    fn score(&mut self, task: &pb::Task, nodes: &[String]) -> Vec<(String, f64)>;
    /// Counts the task on the node.
    fn assume(&mut self, task: &pb::Task, node: &str, pipelined: bool, card: &str);
    /// Undoes all changes.
    fn undo(&mut self);
}

/// Placements of one group's tasks: node, whether it was pipelined, card.
pub(super) type GroupPlacements = Vec<(String, bool, String)>;

/// Places groups of tasks; `has` tells whether a node has a card.
pub(super) fn place(
    scheduler: &mut dyn TaskByTaskScheduler,
    groups: &[Vec<pb::Task>],
    allowed: &[String],
    idle_only: bool,
    needed: usize,
    has: &dyn Fn(&str, &str) -> bool,
) -> (bool, Vec<GroupPlacements>) {
    let mut all = Vec::new();
    for group in groups {
        let mut went = GroupPlacements::new();
        for task in group {
            let Some(cards) = scheduler.admit(task) else { break };
            let keep = |nodes: Vec<String>| -> Vec<String> {
                nodes.into_iter().filter(|node| allowed.contains(node)).collect()
            };
            let later = keep(scheduler.filter(task, pb::ResourceFit::FutureIdle));
            let now = keep(scheduler.filter(task, pb::ResourceFit::Idle));
            let both: Vec<String> = now.into_iter().filter(|node| later.contains(node)).collect();
            let pipelined = both.is_empty() && !idle_only;
            let nodes = if pipelined { later } else { both };
            if nodes.is_empty() {
                break;
            }
            let scores = scheduler.score(task, &nodes);
            let mut best = &scores[0];
            for other in &scores {
                if other.1 > best.1 || (other.1 == best.1 && other.0 < best.0) {
                    best = other;
                }
            }
            let node = best.0.clone();
            let card = cards.iter().find(|card| has(&node, card)).cloned().unwrap_or_default();
            scheduler.assume(task, &node, pipelined, &card);
            went.push((node, pipelined, card));
        }
        all.push(went);
    }
    let placed = all.iter().map(Vec::len).sum::<usize>() >= needed;
    if !placed {
        scheduler.undo();
    }
    (placed, all)
}
