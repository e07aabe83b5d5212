//! Equal tasks of a question are judged once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::question::{Answered, Items, Question, QuestionTask};
use crate::engine::model::{Amounts, Problem, TaskClass, Texts};

/// What plugins of these families read of a task: equal, and the answer is equal.
type Key<'q> = (&'q Amounts, &'q Texts);

/// Answers every task, asking `judge` once per class. `judge` answers with what was overlooked in the class.
pub(super) fn answer<T>(
    question: &Question,
    mut judge: impl FnMut(&TaskClass) -> Result<(T, Vec<Problem>), Problem>,
) -> Items<T> {
    type Judged<T> = Result<(Arc<T>, Vec<Problem>), Problem>;
    let mut judged: BTreeMap<Key<'_>, Judged<T>> = BTreeMap::new();
    let mut answer_one = |item: &QuestionTask, key| {
        let judged = judged.entry(key).or_insert_with(|| {
            let class = TaskClass::of(&item.task, &question.resources);
            judge(&class).map(|(answer, warnings)| (Arc::new(answer), warnings))
        });
        let (answer, overlooked) = judged.as_ref().map_err(Problem::clone)?;
        Ok(Answered {
            answer: Arc::clone(answer),
            warnings: item.warnings.iter().chain(overlooked).cloned().collect(),
        })
    };
    let tasks = question.tasks.iter();
    tasks
        .map(|item| match item {
            Ok(item) => answer_one(item, (&item.task.requests, &item.task.annotations)),
            Err(problem) => Err(problem.clone()),
        })
        .collect()
}
