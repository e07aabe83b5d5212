//! The action `shuffle`: running tasks are evicted for no preemptor, as plugins name them.

use std::sync::Arc;

use super::CycleEvent;
use super::session::ActionSession;
use crate::cycle::SessionChange;
use crate::decide::ShuffleQuery;
use crate::model::{Problem, TaskRecord, TaskStatus};

/// Evicts the tasks that plugins name, each by itself.
pub(super) fn run(session: &mut ActionSession<'_>) -> Result<(), Problem> {
    session.refresh_tasks();
    let runs = |number: &usize| {
        let task = session.tasks.get(*number);
        task.is_some_and(|task| task.job.is_some() && task.stored.record.status == TaskStatus::Running)
    };
    let running: Vec<usize> = (0..session.tasks.len()).filter(runs).collect();
    let records: Vec<&TaskRecord> = running.iter().filter_map(|task| session.present_task(*task)).collect();
    let query = ShuffleQuery {
        context: session.context(),
        candidates: &records,
        last_rounds: session.last_rounds,
    };
    let shuffled = query.ask_tiers(session.policy)?;
    let victims: Vec<(Arc<str>, Arc<str>)> = shuffled
        .victims
        .iter()
        .filter_map(|at| records.get(*at))
        .map(|record| (Arc::clone(&record.name), Arc::clone(&record.node)))
        .collect();
    let numbers: Vec<usize> = shuffled
        .victims
        .iter()
        .filter_map(|at| running.get(*at).copied())
        .collect();
    session.rounds.extend(shuffled.rounds);
    for (number, (task, node)) in numbers.into_iter().zip(victims) {
        if session.change(number, &SessionChange::Evict(Arc::clone(&task)))? {
            let preemptor = Arc::default();
            session.events.push(CycleEvent::Evicted { task, node, preemptor });
        }
    }
    Ok(())
}
