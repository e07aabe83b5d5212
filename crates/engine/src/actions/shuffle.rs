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
    let runs = |number: usize| {
        let task = session.tasks.get(number)?;
        let is_running = task.job.is_some() && task.stored.record.status == TaskStatus::Running;
        Some((number, session.present_task(number).filter(|_| is_running)?))
    };
    let running: Vec<(usize, &TaskRecord)> = (0..session.tasks.len()).filter_map(runs).collect();
    let records: Vec<&TaskRecord> = running.iter().map(|(_, record)| *record).collect();
    let query = ShuffleQuery {
        context: session.context(),
        candidates: &records,
        last_rounds: session.last_rounds,
    };
    let shuffled = query.ask_tiers(session.policy)?;
    let victim = |at: usize| {
        let (number, record) = running.get(at)?;
        Some((*number, Arc::clone(&record.name), Arc::clone(&record.node)))
    };
    let victims: Vec<_> = shuffled.victims.into_iter().filter_map(victim).collect();
    session.rounds.extend(shuffled.rounds);
    for (number, task, node) in victims {
        if session.change(number, &SessionChange::Evict(Arc::clone(&task)))? {
            let preemptor = Arc::default();
            session.events.push(CycleEvent::Evicted { task, node, preemptor });
        }
    }
    Ok(())
}
