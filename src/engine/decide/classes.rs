//! Equal tasks of a question are judged once, and classes go over the nodes together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::candidates::Part;
use super::question::{Answered, Effort, Items, Question, QuestionTask};
use super::score::Scratch;
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

/// The answer on a class, and what was overlooked in it.
pub(super) type Judged<T> = Result<(T, Vec<Problem>), Problem>;

/// One class on its way over the chunks of a question.
pub(super) trait Walk {
    /// Its answer.
    type Answer;

    /// Goes over one chunk.
    fn step(&mut self, part: &Part<'_>, scratch: &mut Scratch);

    /// What came of it.
    fn end(self) -> Judged<Self::Answer>;
}

/// Classes that go over a chunk one after the other while it is near.
const TOGETHER: usize = 8;

/// Takes classes over the same nodes side by side; `None`: told to stop.
pub(super) fn walk<W: Walk>(
    mut walks: Vec<Result<W, Problem>>,
    parts: &[Part<'_>],
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<Vec<Judged<W::Answer>>> {
    let mut scratch = Scratch::new();
    for part in parts {
        if stop() {
            return None;
        }
        for walk in walks.iter_mut().flatten() {
            walk.step(part, &mut scratch);
        }
    }
    Some(walks.into_iter().map(|walk| walk?.end()).collect())
}

/// Answers every task, asking `judge` about each class once: about some at a time, answers in their order. `None`: it was
/// told to stop. `accounts`: if queues and limits count.
pub(super) fn answer<'q, T: Send + Sync>(
    question: &'q Question,
    accounts: Option<Accounts<'q>>,
    effort: Effort<'_>,
    judge: impl Fn(&[TaskClass]) -> Option<Vec<Judged<T>>> + Sync,
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
    let fair = firsts.len().div_ceil(effort.hands.max(1));
    let groups: Vec<&[&TaskRecord]> = firsts.chunks(fair.clamp(1, TOGETHER)).collect();
    let judge_some = |tasks: &&[&TaskRecord]| {
        let classes = tasks.iter().map(|task| class_of(task, &question.resources, accounts));
        judge(&classes.collect::<Vec<_>>())
    };
    let judged = each(&groups, effort.hands, judge_some)?.into_iter().flatten();
    let judged = judged.map(|judged| judged.map(|(answer, warnings)| (Arc::new(answer), warnings)));
    let judged: Vec<Judged<Arc<T>>> = judged.collect();
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

/// Does the same with each of these, on so many threads; results stand in their order. `None`: one of them is.
fn each<I: Sync, O: Send>(items: &[I], hands: usize, work: impl Fn(&I) -> Option<O> + Sync) -> Option<Vec<O>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return done };
            let Some(answer) = work(item) else { return done };
            done.push((number, answer));
        }
    };
    let helpers = hands.min(items.len()).saturating_sub(1);
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
