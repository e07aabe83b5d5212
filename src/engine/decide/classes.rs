//! Equal tasks of a question are judged once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::question::{Answered, Effort, Items, Question, QuestionTask};
use crate::engine::model::{Amounts, Problem, ResourceTable, TaskClass, TaskRecord, Texts, View};
use crate::engine::policy::Policy;

/// What plugins of these families read of a task: equal, and the answer is equal. At the end the queue, the job, its
/// card, and the limits, for those that declare that they read them.
type Key<'q> = (
    &'q Amounts,
    &'q Texts,
    [Option<&'q Amounts>; 2],
    Option<(&'q str, Option<(&'q str, &'q str)>, Option<&'q Amounts>)>,
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

/// The answer of a class, and what was overlooked in it.
type Judged<T> = Result<(Arc<T>, Vec<Problem>), Problem>;

/// Answers every task, asking `judge` once per class. `judge` answers with what was overlooked in the class. `None`: it
/// was told to stop. `accounts`: if queues and limits count.
pub(super) fn answer<'q, T: Send + Sync>(
    question: &'q Question,
    accounts: Option<Accounts<'q>>,
    effort: Effort<'_>,
    judge: impl Fn(&TaskClass) -> Result<(T, Vec<Problem>), Problem> + Sync,
) -> Option<Items<T>> {
    // The first task of each class, and the class of each task.
    let mut firsts: Vec<&TaskRecord> = Vec::new();
    let mut known: BTreeMap<Key<'_>, usize> = BTreeMap::new();
    let mut classes = Vec::with_capacity(question.tasks.len());
    for item in &question.tasks {
        classes.push(item.as_ref().ok().map(|item| {
            *known.entry(key(&item.task, accounts)).or_insert_with(|| {
                firsts.push(&item.task);
                firsts.len() - 1
            })
        }));
    }
    let judge_one = |task: &TaskRecord| -> Judged<T> {
        let class = class_of(task, &question.resources, accounts);
        judge(&class).map(|(answer, warnings)| (Arc::new(answer), warnings))
    };
    let judged = each(&firsts, effort, |task| judge_one(task))?;
    let answered = |item: &QuestionTask, class: Option<usize>| -> Option<Result<Answered<T>, Problem>> {
        Some(match judged.get(class?)? {
            Ok((answer, overlooked)) => Ok(Answered {
                answer: Arc::clone(answer),
                warnings: item.warnings.iter().chain(overlooked).cloned().collect(),
            }),
            Err(problem) => Err(problem.clone()),
        })
    };
    let items = question.tasks.iter().zip(classes);
    items
        .map(|(item, class)| match item {
            Ok(item) => answered(item, class),
            Err(problem) => Some(Err(problem.clone())),
        })
        .collect()
}

/// Does the same with each of these, on so many threads; results stand in their order. `None`: told to stop.
fn each<I: Sync, O: Send>(items: &[I], effort: Effort<'_>, work: impl Fn(&I) -> O + Sync) -> Option<Vec<O>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return done };
            if (effort.stop)() {
                return done;
            }
            done.push((number, work(item)));
        }
    };
    let helpers = effort.hands.min(items.len()).saturating_sub(1);
    let mut done = if helpers == 0 {
        some()
    } else {
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(some)).collect();
            let mut done = some();
            for helper in helpers {
                match helper.join() {
                    Ok(more) => done.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        })
    };
    done.sort_unstable_by_key(|(number, _)| *number);
    (done.len() == items.len()).then(|| done.into_iter().map(|(_, one)| one).collect())
}

fn key<'q>(task: &'q TaskRecord, accounts: Option<Accounts<'q>>) -> Key<'q> {
    let counted = [task.nonzero_requests.as_deref(), task.counted_requests.as_deref()];
    let charge = accounts.map(|accounts| {
        let (queue, job) = accounts.charged(task);
        (
            queue.map_or("", |queue| queue),
            job.map(|job| (&**job, &*task.card)),
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
