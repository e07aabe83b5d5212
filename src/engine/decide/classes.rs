//! Equal tasks of a question are judged once, and classes go over the nodes together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::candidates::ChunkSlice;
use super::query::{NodeQuery, Parallelism, QueryTask, TaskResult, TaskResults};
use super::score::ScoreScratch;
use crate::engine::model::{ClusterState, Problem, ResourceAmounts, ResourceTable, TaskClass, TaskRecord, TextMap};
use crate::engine::policy::Policy;

/// What plugins of these families read of a task: equal, and the answer is equal. At the end the queue, the job, its
/// card, and the limits, for those that declare that they read them.
type ClassKey<'q> = (
    &'q ResourceAmounts,
    &'q TextMap,
    [Option<&'q ResourceAmounts>; 2],
    Option<(&'q str, Option<(&'q str, &'q str)>, Option<&'q ResourceAmounts>)>,
);

/// Whom tasks are charged to, for plugins that read that.
#[derive(Clone, Copy)]
pub(super) struct AccountLookup<'a> {
    state: &'a ClusterState,
    policy: &'a Policy,
}

impl<'a> AccountLookup<'a> {
    /// The state with the jobs, if any of these plugins (none: of the policy's) reads whom a task is charged to.
    pub(super) fn of(cluster_state: &'a ClusterState, policy: &'a Policy, plugins: &[Arc<str>]) -> Option<Self> {
        policy.reads_plugin_state(plugins).then_some(Self {
            state: cluster_state,
            policy,
        })
    }

    /// Queue and job of a task; the job only if what it holds counts.
    fn queue_and_job<'t>(&self, task: &'t TaskRecord) -> (Option<&'a Arc<str>>, Option<&'t Arc<str>>) {
        let queue = self.state.jobs().get(&task.job).map(|job| &job.record.queue);
        (queue, self.policy.reads_job(task).then_some(&task.job))
    }
}

/// The answer on a class, and what was overlooked in it.
pub(super) type ClassResult<T> = Result<(T, Vec<Problem>), Problem>;

/// One class on its way over the chunks of a question.
pub(super) trait ChunkVisitor {
    /// Its answer.
    type Output;

    /// Goes over one chunk.
    fn visit(&mut self, part: &ChunkSlice<'_>, scratch: &mut ScoreScratch);

    /// What came of it.
    fn finish(self) -> ClassResult<Self::Output>;
}

/// Classes that go over a chunk one after the other while it is near.
const CLASSES_PER_PASS: usize = 8;

/// Takes classes over the same nodes side by side; `None`: told to stop.
pub(super) fn visit_chunks<W: ChunkVisitor>(
    mut walks: Vec<Result<W, Problem>>,
    parts: &[ChunkSlice<'_>],
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<Vec<ClassResult<W::Output>>> {
    let mut scratch = ScoreScratch::new();
    for part in parts {
        if stop() {
            return None;
        }
        for walk in walks.iter_mut().flatten() {
            walk.visit(part, &mut scratch);
        }
    }
    Some(walks.into_iter().map(|walk| walk?.finish()).collect())
}

/// Answers every task, asking `judge` about each class once: about some at a time, answers in their order. `None`: it was
/// told to stop. `accounts`: if queues and limits count.
pub(super) fn evaluate_classes<'q, T: Send + Sync>(
    query: &'q NodeQuery,
    accounts: Option<AccountLookup<'q>>,
    parallelism: Parallelism<'_>,
    judge: impl Fn(&[TaskClass]) -> Option<Vec<ClassResult<T>>> + Sync,
) -> Option<TaskResults<T>> {
    // The first task of each class, and the class of each task.
    let mut firsts: Vec<&TaskRecord> = Vec::new();
    let mut known: BTreeMap<ClassKey<'_>, usize> = BTreeMap::new();
    let mut classes = Vec::with_capacity(query.tasks.len());
    for item in &query.tasks {
        classes.push(item.as_ref().ok().map(|item| {
            *known.entry(class_key(&item.task, accounts)).or_insert_with(|| {
                firsts.push(&item.task);
                firsts.len() - 1
            })
        }));
    }
    let fair = firsts.len().div_ceil(parallelism.threads.max(1));
    let groups: Vec<&[&TaskRecord]> = firsts.chunks(fair.clamp(1, CLASSES_PER_PASS)).collect();
    let judge_some = |tasks: &&[&TaskRecord]| {
        let classes = tasks.iter().map(|task| class_of(task, &query.resources, accounts));
        judge(&classes.collect::<Vec<_>>())
    };
    let judged = run_parallel(&groups, parallelism.threads, judge_some)?
        .into_iter()
        .flatten();
    let judged = judged.map(|judged| judged.map(|(result, warnings)| (Arc::new(result), warnings)));
    let judged: Vec<ClassResult<Arc<T>>> = judged.collect();
    let answered = |item: &QueryTask, class: Option<usize>| -> Option<Result<TaskResult<T>, Problem>> {
        Some(match judged.get(class?)? {
            Ok((result, overlooked)) => Ok(TaskResult {
                result: Arc::clone(result),
                warnings: item.warnings.iter().chain(overlooked).cloned().collect(),
            }),
            Err(problem) => Err(problem.clone()),
        })
    };
    let items = query.tasks.iter().zip(classes);
    items
        .map(|(item, class)| match item {
            Ok(item) => answered(item, class),
            Err(problem) => Some(Err(problem.clone())),
        })
        .collect()
}

/// Does the same with each of these, on so many threads; results stand in their order. `None`: one of them is.
fn run_parallel<I: Sync, O: Send>(
    items: &[I],
    parallelism: usize,
    work: impl Fn(&I) -> Option<O> + Sync,
) -> Option<Vec<O>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return done };
            let Some(result) = work(item) else { return done };
            done.push((number, result));
        }
    };
    let helpers = parallelism.min(items.len()).saturating_sub(1);
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

fn class_key<'q>(task: &'q TaskRecord, accounts: Option<AccountLookup<'q>>) -> ClassKey<'q> {
    let counted = [task.nonzero_requests.as_deref(), task.counted_requests.as_deref()];
    let charge = accounts.map(|accounts| {
        let (queue, job) = accounts.queue_and_job(task);
        (
            queue.map_or("", |queue| queue),
            job.map(|job| (&**job, &*task.card)),
            task.limits.as_deref(),
        )
    });
    (&task.requests, &task.annotations, counted, charge)
}

/// The class of a task. `accounts`: if queues and limits count.
pub(super) fn class_of(task: &TaskRecord, resources: &ResourceTable, accounts: Option<AccountLookup<'_>>) -> TaskClass {
    let class = TaskClass::of(task, resources);
    let Some(accounts) = accounts else { return class };
    let (queue, job) = accounts.queue_and_job(task);
    class.charged(
        task,
        queue.cloned().unwrap_or_default(),
        job.cloned().unwrap_or_default(),
    )
}
