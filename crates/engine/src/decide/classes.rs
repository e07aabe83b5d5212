//! Evaluation by task class: equal tasks of a query are evaluated once, and several classes visit the nodes together.
//! For example, 1,000 equal workers cost as much as one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::candidates::ChunkSlice;
use super::class_scorers::ScoreScratch;
use super::parallelism::Parallelism;
use super::query::{NodeQuery, QueryTask, TaskResult, TaskResults};
use crate::model::constraints::{ConstraintKind, ConstraintSet, PodConstraints};
use crate::model::{
    ClusterState, PodIdentity, Problem, ResourceAmounts, ResourceTable, TaskClass, TaskRecord, TextMap, find_text,
};
use crate::plugin::TemplateRule;
use crate::policy::Policy;

/// Key of a task class: the parts of a task that plugins read. Tasks with equal keys have equal results.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassKey<'q> {
    requests: &'q ResourceAmounts,
    annotations: &'q TextMap,
    counted: [Option<&'q ResourceAmounts>; 5],
    /// Set only for plugins that declare that they read the charged account.
    charge: Option<ChargeKey<'q>>,
    /// Constraints of the first task of the template, for plugins that judge a template by it.
    template: (bool, Option<&'q PodConstraints>),
    /// Set only for plugins that evaluate constraints.
    constraints: Option<&'q PodConstraints>,
    /// Namespace and labels, set only for plugins that select pods.
    pod: Option<(&'q str, &'q TextMap)>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ChargeKey<'q> {
    queue: &'q str,
    /// Job and card, if what the job holds matters.
    job: Option<(&'q str, &'q str)>,
    /// Name, if tasks of a job are told apart.
    task: Option<&'q str>,
    limits: Option<&'q ResourceAmounts>,
}

/// Queue of a task's job, and the job.
type QueueAndJob<'a, 't> = (Option<&'a Arc<str>>, Option<&'t Arc<str>>);

/// Parts of tasks by which the plugins of a query tell classes apart.
#[derive(Clone, Copy)]
pub(super) struct ClassLookup<'a> {
    state: &'a ClusterState,
    policy: &'a Policy,
    reads_accounts: bool,
    reads_tasks: bool,
    reads_devices: bool,
    evaluated: ConstraintSet,
    template: Option<TemplateRule>,
}

/// First task of each template in a query, with its number.
struct TemplateFirsts<'q>(BTreeMap<&'q str, (usize, &'q TaskRecord)>);

impl<'a> ClassLookup<'a> {
    /// Lookup in this state for these plugins; empty: the plugins of the policy.
    pub(super) fn of(cluster_state: &'a ClusterState, policy: &'a Policy, plugins: &[Arc<str>]) -> Self {
        let reads_accounts = policy.reads_plugin_state(plugins);
        Self {
            state: cluster_state,
            policy,
            reads_accounts,
            reads_tasks: reads_accounts && policy.reads_tasks(),
            reads_devices: policy.reads_devices(plugins),
            evaluated: policy.registered_constraints(plugins),
            template: policy.template_rule(plugins),
        }
    }

    /// True if columns show all that filters and scores read for a class, apart from terms of the pods that are there. Accounts and
    /// other pods stand outside of nodes, and ports and devices of a node are in no column.
    pub(super) fn is_judged_by_columns(&self, class: &TaskClass) -> bool {
        let constraints = class.constraints();
        let selects_pods = constraints.selects_pods() || constraints.default_spread_selector().is_some();
        let asks_ports = self.evaluated.contains(ConstraintKind::HostPorts) && !constraints.host_ports.is_empty();
        !(self.reads_accounts || self.reads_devices || (self.evaluated.selects_pods() && selects_pods) || asks_ports)
    }

    /// Queue and job of a task; the job only if its holdings matter. `None`: no plugin reads charged accounts.
    fn queue_and_job<'t>(&self, task: &'t TaskRecord) -> Option<QueueAndJob<'a, 't>> {
        if !self.reads_accounts {
            return None;
        }
        let queue = self.state.jobs().get(&task.job).map(|job| &job.record.queue);
        Some((queue, self.policy.reads_job(task).then_some(&task.job)))
    }

    /// True if a plugin tells a task apart from the others of its job.
    pub(super) fn reads_task(&self, task: &TaskRecord) -> bool {
        self.reads_tasks && self.policy.reads_task(self.state, task)
    }

    /// First task of each template in a query, if a plugin evaluates only this task for a template.
    fn first_of_templates<'q>(&self, query: &'q NodeQuery) -> TemplateFirsts<'q> {
        let mut firsts = BTreeMap::new();
        let read = query.tasks.iter().enumerate();
        let read = read.filter_map(|(number, item)| Some((number, item.as_ref().ok()?)));
        let Some(rule) = self.template else {
            return TemplateFirsts(firsts);
        };
        for (number, item) in read {
            let conflicts =
                |task: &TaskRecord| task.constraints.as_ref().is_some_and(|own| own.has_conflicting_terms());
            if let Some(template) = self.template(&item.task)
                && !(rule.skips_conflicts && conflicts(&item.task))
            {
                firsts.entry(template).or_insert((number, &*item.task));
            }
        }
        TemplateFirsts(firsts)
    }

    /// Template of a task, if a plugin evaluates only the first task of a template.
    pub(super) fn template<'q>(&self, task: &'q TaskRecord) -> Option<&'q str> {
        let template = find_text(&task.annotations, self.template?.annotation);
        template.filter(|template| !template.is_empty())
    }

    /// First task of a task's template, if it is another one.
    fn first_of_template<'q>(
        &self,
        number: usize,
        task: &TaskRecord,
        firsts: &TemplateFirsts<'q>,
    ) -> Option<&'q TaskRecord> {
        let (first, record) = firsts.0.get(self.template(task)?)?;
        (*first != number).then_some(record)
    }

    pub(super) fn key<'q>(&self, task: &'q TaskRecord, first: Option<&'q TaskRecord>) -> ClassKey<'q>
    where
        'a: 'q,
    {
        let charge = self.queue_and_job(task).map(|(queue, job)| ChargeKey {
            queue: queue.map_or("", |queue| queue),
            job: job.map(|job| (&**job, &*task.card)),
            task: self.reads_task(task).then_some(&task.name),
            limits: task.limits.as_deref(),
        });
        let constraints = task.constraints.as_deref();
        ClassKey {
            template: (first.is_some(), first.and_then(|first| first.constraints.as_deref())),
            requests: &task.requests,
            annotations: &task.annotations,
            counted: [
                task.nonzero_requests.as_deref(),
                task.counted_requests.as_deref(),
                task.container_nonzero_requests.as_deref(),
                task.container_requests.as_deref(),
                task.kubernetes_requests.as_deref(),
            ],
            charge,
            constraints: constraints.filter(|_| !self.evaluated.is_empty()),
            pod: self.evaluated.selects_pods().then(|| (task.namespace(), &task.labels)),
        }
    }

    /// Class of a task whose resources are named by `resources`.
    pub(super) fn class_of(&self, task: &TaskRecord, resources: &ResourceTable) -> TaskClass {
        let mut class = TaskClass::of(task, resources);
        if self.evaluated.selects_pods() {
            class.pod = Some(PodIdentity::of(task));
        }
        match self.queue_and_job(task) {
            None => class,
            Some((queue, job)) => class.charged(
                task,
                queue.cloned().unwrap_or_default(),
                job.cloned().unwrap_or_default(),
                if self.reads_task(task) {
                    Arc::clone(&task.name)
                } else {
                    Arc::default()
                },
            ),
        }
    }
}

/// Result of a class, with its warnings.
pub(super) type ClassResult<T> = Result<(T, Vec<Problem>), Problem>;

/// Evaluation of one class, which visits the chunks of a query.
pub(super) trait ChunkVisitor {
    /// Result of the class.
    type Output;

    /// Surveys all chunks before the first chunk is evaluated.
    ///
    /// # Errors
    /// The class cannot be evaluated on these nodes.
    fn prepare(&mut self, slices: &[ChunkSlice<'_>]) -> Result<(), Problem> {
        let _ = slices;
        Ok(())
    }

    /// Evaluates one chunk.
    fn visit(&mut self, slice: &ChunkSlice<'_>, scratch: &mut ScoreScratch);

    /// Result after the last chunk.
    fn finish(self) -> ClassResult<Self::Output>;
}

/// Number of classes that visit a chunk one after the other while it is in the cache.
const CLASSES_PER_PASS: usize = 8;

/// Lets classes visit the same nodes together; `None`: cancelled.
pub(super) fn visit_chunks<W: ChunkVisitor>(
    mut walks: Vec<Result<W, Problem>>,
    slices: &[ChunkSlice<'_>],
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<Vec<ClassResult<W::Output>>> {
    // Made before it is known whether a visit needs it: to clear twelve kilobytes costs less than to move them.
    let mut scratch = ScoreScratch::new();
    for walk in &mut walks {
        if stop() {
            return None;
        }
        if let Ok(visitor) = walk
            && let Err(problem) = visitor.prepare(slices)
        {
            *walk = Err(problem);
        }
    }
    for slice in slices {
        if stop() {
            return None;
        }
        for walk in walks.iter_mut().flatten() {
            walk.visit(slice, &mut scratch);
        }
    }
    Some(walks.into_iter().map(|walk| walk?.finish()).collect())
}

/// Evaluates every task of a query and calls `judge` for each class once, for several classes at a time. Results are in
/// the order of the tasks. `None`: cancelled.
pub(super) fn evaluate_classes<'q, T: Send + Sync>(
    query: &'q NodeQuery,
    lookup: ClassLookup<'q>,
    parallelism: Parallelism<'_>,
    judge: impl Fn(&[TaskClass]) -> Option<Vec<ClassResult<T>>> + Sync,
) -> Option<TaskResults<T>> {
    let templates = lookup.first_of_templates(query);
    // First task of each class, with the first one of its template; and the class of each task.
    let mut firsts: Vec<(&TaskRecord, Option<&TaskRecord>)> = Vec::new();
    let mut known: BTreeMap<ClassKey<'_>, usize> = BTreeMap::new();
    let mut classes = Vec::with_capacity(query.tasks.len());
    for (number, item) in query.tasks.iter().enumerate() {
        classes.push(item.as_ref().ok().map(|item| {
            let template = lookup.first_of_template(number, &item.task, &templates);
            *known.entry(lookup.key(&item.task, template)).or_insert_with(|| {
                firsts.push((&item.task, template));
                firsts.len() - 1
            })
        }));
    }
    let fair = firsts.len().div_ceil(parallelism.threads.max(1));
    let groups: Vec<&[(&TaskRecord, Option<&TaskRecord>)]> = firsts.chunks(fair.clamp(1, CLASSES_PER_PASS)).collect();
    let judge_some = |tasks: &&[(&TaskRecord, Option<&TaskRecord>)]| {
        let classes = tasks.iter().map(|(task, template)| {
            let mut class = lookup.class_of(task, &query.resources);
            class.template_constraints = template.map(|first| first.constraints.clone().unwrap_or_default());
            class
        });
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
