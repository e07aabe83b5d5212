//! Evaluation by task class: equal tasks of a query are judged once, and several classes visit the nodes together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::candidates::ChunkSlice;
use super::class_scorers::ScoreScratch;
use super::query::{NodeQuery, Parallelism, QueryTask, TaskResult, TaskResults};
use crate::model::{ClusterState, Problem, ResourceAmounts, ResourceTable, TaskClass, TaskRecord, TextMap};
use crate::policy::Policy;

/// Key of a task class: the parts of a task that plugins read. Tasks with equal keys have equal results. The last
/// element (queue, job, card, limits) is set only for plugins that declare that they read it.
type ClassKey<'q> = (
    &'q ResourceAmounts,
    &'q TextMap,
    [Option<&'q ResourceAmounts>; 2],
    Option<(&'q str, Option<(&'q str, &'q str)>, Option<&'q ResourceAmounts>)>,
);

/// Lookup of the account that a task is charged to, for plugins that read it.
#[derive(Clone, Copy)]
pub(super) struct AccountLookup<'a> {
    state: &'a ClusterState,
    policy: &'a Policy,
}

impl<'a> AccountLookup<'a> {
    /// Lookup in this state, if any of these plugins reads charged accounts; empty: the plugins of the policy.
    pub(super) fn of(cluster_state: &'a ClusterState, policy: &'a Policy, plugins: &[Arc<str>]) -> Option<Self> {
        policy.reads_plugin_state(plugins).then_some(Self {
            state: cluster_state,
            policy,
        })
    }

    /// Queue and job of a task; the job only if its holdings matter.
    fn queue_and_job<'t>(&self, task: &'t TaskRecord) -> (Option<&'a Arc<str>>, Option<&'t Arc<str>>) {
        let queue = self.state.jobs().get(&task.job).map(|job| &job.record.queue);
        (queue, self.policy.reads_job(task).then_some(&task.job))
    }
}

/// Result of a class, with its warnings.
pub(super) type ClassResult<T> = Result<(T, Vec<Problem>), Problem>;

/// Evaluation of one class, which visits the chunks of a query.
pub(super) trait ChunkVisitor {
    /// Result of the class.
    type Output;

    /// Evaluates one chunk.
    fn visit(&mut self, part: &ChunkSlice<'_>, scratch: &mut ScoreScratch);

    /// Result after the last chunk.
    fn finish(self) -> ClassResult<Self::Output>;
}

/// Number of classes that visit a chunk one after the other while it is in the cache.
const CLASSES_PER_PASS: usize = 8;

/// Lets classes visit the same nodes together; `None`: cancelled.
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

/// Evaluates every task of a query and calls `judge` for each class once, for several classes at a time. Results are in
/// the order of the tasks. `None`: cancelled. `accounts` is set if queues and limits matter.
pub(super) fn evaluate_classes<'q, T: Send + Sync>(
    query: &'q NodeQuery,
    accounts: Option<AccountLookup<'q>>,
    parallelism: Parallelism<'_>,
    judge: impl Fn(&[TaskClass]) -> Option<Vec<ClassResult<T>>> + Sync,
) -> Option<TaskResults<T>> {
    // First task of each class, and the class of each task.
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

/// Runs `work` on each item with this many threads; results are in the order of the items. `None`: `work` returned it
/// for some item.
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

/// Class of a task. `accounts` is set if queues and limits matter.
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
