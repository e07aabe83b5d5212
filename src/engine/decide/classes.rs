//! Equal tasks of a question are judged once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::question::{Answered, Items, Question, QuestionTask};
use crate::engine::model::{Amounts, Problem, ResourceTable, TaskClass, TaskRecord, Texts, View};

/// What plugins of these families read of a task: equal, and the answer is equal. At the end the queue, and the limits,
/// for those that declare that they read them.
type Key<'q> = (
    &'q Amounts,
    &'q Texts,
    [Option<&'q Amounts>; 2],
    Option<(&'q str, Option<&'q Amounts>)>,
);

/// Answers every task, asking `judge` once per class. `judge` answers with what was overlooked in the class. `None`: it
/// was told to stop; that is looked at before each class. `accounts`: the state with the jobs, if queues and limits count.
pub(super) fn answer<T>(
    question: &Question,
    accounts: Option<&View>,
    stop: &dyn Fn() -> bool,
    mut judge: impl FnMut(&TaskClass) -> Result<(T, Vec<Problem>), Problem>,
) -> Option<Items<T>> {
    type Judged<T> = Result<(Arc<T>, Vec<Problem>), Problem>;
    let mut judged: BTreeMap<Key<'_>, Judged<T>> = BTreeMap::new();
    let mut answer_one = |item: &QuestionTask, key| {
        let judged = match judged.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if stop() => return None,
            Entry::Vacant(new) => {
                let class = class_of(&item.task, &question.resources, accounts);
                new.insert(judge(&class).map(|(answer, warnings)| (Arc::new(answer), warnings)))
            }
        };
        Some(match judged {
            Ok((answer, overlooked)) => Ok(Answered {
                answer: Arc::clone(answer),
                warnings: item.warnings.iter().chain(&*overlooked).cloned().collect(),
            }),
            Err(problem) => Err(problem.clone()),
        })
    };
    let tasks = question.tasks.iter();
    tasks
        .map(|item| match item {
            Ok(item) => answer_one(item, key(&item.task, accounts)),
            Err(problem) => Some(Err(problem.clone())),
        })
        .collect()
}

fn key<'q>(task: &'q TaskRecord, accounts: Option<&'q View>) -> Key<'q> {
    let counted = [task.nonzero_requests.as_deref(), task.counted_requests.as_deref()];
    let charge = accounts.map(|view| {
        let queue = queue_of(task, view).map_or("", |queue| queue);
        (queue, task.limits.as_deref())
    });
    (&task.requests, &task.annotations, counted, charge)
}

fn queue_of<'v>(task: &TaskRecord, view: &'v View) -> Option<&'v Arc<str>> {
    view.jobs().get(&task.job).map(|job| &job.record.queue)
}

/// The class of a task. `accounts`: the state with its job, if queues and limits count.
pub(super) fn class_of(task: &TaskRecord, resources: &ResourceTable, accounts: Option<&View>) -> TaskClass {
    let class = TaskClass::of(task, resources);
    match accounts {
        Some(view) => class.charged(task, queue_of(task, view).cloned().unwrap_or_default()),
        None => class,
    }
}
