//! Equal tasks of a question are judged once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::question::{Answered, Items, Question, QuestionTask};
use crate::engine::model::{Amounts, Problem, ResourceTable, TaskClass, TaskRecord, Texts, View};
use crate::engine::policy::Policy;

/// What plugins of these families read of a task: equal, and the answer is equal. At the end the queue, the job, and the
/// limits, for those that declare that they read them.
type Key<'q> = (
    &'q Amounts,
    &'q Texts,
    [Option<&'q Amounts>; 2],
    Option<(&'q str, &'q str, Option<&'q Amounts>)>,
);

/// Whom tasks are charged to, for plugins that read that.
#[derive(Clone, Copy)]
pub(super) struct Accounts<'a> {
    view: &'a View,
    policy: &'a Policy,
}

impl<'a> Accounts<'a> {
    /// The state with the jobs, if any of these plugins (none: of the policy's) reads whom a task is charged to.
    pub(super) fn of(view: &'a View, policy: &'a Policy, plugins: &[Arc<str>]) -> Option<Self> {
        policy.reads_accounts(plugins).then_some(Self { view, policy })
    }

    /// Queue and job of a task; the job only if what it holds counts.
    fn charged<'t>(&self, task: &'t TaskRecord) -> (Option<&'a Arc<str>>, Option<&'t Arc<str>>) {
        let queue = self.view.jobs().get(&task.job).map(|job| &job.record.queue);
        (queue, self.policy.reads_job(task).then_some(&task.job))
    }
}

/// Answers every task, asking `judge` once per class. `judge` answers with what was overlooked in the class. `None`: it
/// was told to stop; that is looked at before each class. `accounts`: if queues and limits count.
pub(super) fn answer<'q, T>(
    question: &'q Question,
    accounts: Option<Accounts<'q>>,
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

fn key<'q>(task: &'q TaskRecord, accounts: Option<Accounts<'q>>) -> Key<'q> {
    let counted = [task.nonzero_requests.as_deref(), task.counted_requests.as_deref()];
    let charge = accounts.map(|accounts| {
        let (queue, job) = accounts.charged(task);
        (
            queue.map_or("", |queue| queue),
            job.map_or("", |job| job),
            task.limits.as_deref(),
        )
    });
    (&task.requests, &task.annotations, counted, charge)
}

/// The class of a task. `accounts`: if queues and limits count.
pub(super) fn class_of(task: &TaskRecord, resources: &ResourceTable, accounts: Option<Accounts<'_>>) -> TaskClass {
    let class = TaskClass::of(task, resources);
    let Some(accounts) = accounts else { return class };
    let (queue, job) = accounts.charged(task);
    class.charged(
        task,
        queue.cloned().unwrap_or_default(),
        job.cloned().unwrap_or_default(),
    )
}
