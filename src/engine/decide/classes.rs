//! Equal tasks of a question are judged once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::question::{Answered, Items, Question, QuestionTask};
use crate::engine::model::{Amounts, Problem, TaskClass, TaskRecord, Texts};

/// What plugins of these families read of a task: equal, and the answer is equal.
type Key<'q> = (&'q Amounts, &'q Texts, [Option<&'q Amounts>; 2]);

/// Answers every task, asking `judge` once per class. `judge` answers with what was overlooked in the class. `None`: it
/// was told to stop; that is looked at before each class.
pub(super) fn answer<T>(
    question: &Question,
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
                let class = TaskClass::of(&item.task, &question.resources);
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
            Ok(item) => answer_one(item, key(&item.task)),
            Err(problem) => Some(Err(problem.clone())),
        })
        .collect()
}

fn key(task: &TaskRecord) -> Key<'_> {
    let counted = [task.nonzero_requests.as_deref(), task.counted_requests.as_deref()];
    (&task.requests, &task.annotations, counted)
}
