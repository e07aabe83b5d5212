//! Evictions that make room for a task, as `SelectVictims` selects them.

use std::collections::BTreeMap;

use super::entitlement::RECLAIM;
use super::free_capacity;
use super::report::{EvictionReport, ExplainReport, TaskClassReport};
use super::target::ResolvedTarget;
use super::task_classes::{EqualTasks, query_task};
use pumice_console::CommandError;
use pumice_console::pinned_client::{KnownRecords, PinnedClient};
use pumice_engine::model::{PREEMPTABLE, permits_eviction};
use pumice_protocol::v1 as pb;

/// Most nodes that are asked about for one class of tasks.
const NODES_ASKED: usize = 1_000;
/// Action that evicts, and the kind of its victims.
const ACTIONS: [(&str, pb::VictimKind); 2] = [("preempt", pb::VictimKind::Preempt), (RECLAIM, pb::VictimKind::Reclaim)];

/// Adds to each class that finds no room the evictions that make room for one of its tasks, and corrects by them whether
/// preemption may help on nodes. Policies of kube-scheduler are not asked: their preemption is not that of Volcano.
pub(super) async fn add_evictions(
    client: &mut PinnedClient,
    known: &KnownRecords,
    focus: &ResolvedTarget,
    kinds: &[EqualTasks],
    report: &mut ExplainReport,
) -> Result<(), CommandError> {
    let Some(actions) = report.actions.clone() else {
        return Ok(());
    };
    let starts = report.gang.as_ref().is_some_and(|gang| gang.starts);
    let may_evict = report.job_state.as_ref().is_some_and(|state| state.starving) && focus.job_stored;
    let job = focus.job.as_ref().map_or("", |job| job.name.as_str());
    let running = RunningTasks::of(known, job, &report.subject.queue);
    for (kind, class) in kinds.iter().zip(&mut report.task_classes) {
        let is_asked = may_evict && !starts && class.problem.is_none() && class.beyond_every_node.is_empty();
        if let Some(first) = kind.tasks.iter().find(|task| !task.gated).filter(|_| is_asked) {
            let task = query_task(first, kind.stored);
            let asks_nothing = free_capacity::asks_nothing(first);
            for (action, victims) in ACTIONS {
                let in_policy = actions.iter().any(|own| own == action);
                let nodes = asked_nodes(class);
                let found = ask(client, &running, &task, asks_nothing, victims, &nodes).await?;
                class.evictions.extend(found.map(|found| EvictionReport {
                    action,
                    in_policy,
                    ..found
                }));
            }
        }
        correct_rejections(class);
    }
    Ok(())
}

/// Nodes on which evictions may make room: those that reject the task for a reason that passes, and those with room if its
/// queue does not admit it.
fn asked_nodes(class: &TaskClassReport) -> Vec<&str> {
    let rows = class.rejections.iter().filter(|row| row.reason.preemption_may_help);
    let mut names: Vec<&str> = rows.flat_map(|row| &row.nodes).map(String::as_str).collect();
    if class.admission.as_ref().is_some_and(|admission| !admission.permitted) {
        names.extend(class.fit_later_names.iter().map(String::as_str));
    }
    names.sort_unstable();
    names.truncate(NODES_ASKED);
    names
}

/// Says of each rejection whether an action of the policy makes room on one of its nodes.
fn correct_rejections(class: &mut TaskClassReport) {
    let evictions = class.evictions.iter().filter(|eviction| eviction.in_policy);
    let helped: Vec<&String> = evictions.flat_map(|eviction| &eviction.nodes).collect();
    for row in &mut class.rejections {
        row.reason.preemption_may_help &= row.nodes.iter().any(|node| helped.contains(&node));
    }
}

/// Tasks of others that run, by node, as far as actions consider them.
struct RunningTasks<'k> {
    /// Tasks of other jobs of the queue.
    of_queue: BTreeMap<&'k str, Vec<&'k pb::Task>>,
    /// Tasks of other queues that may be reclaimed from.
    of_others: BTreeMap<&'k str, Vec<&'k pb::Task>>,
}

impl<'k> RunningTasks<'k> {
    fn of(known: &'k KnownRecords, job: &str, queue: &str) -> Self {
        let mut running = Self {
            of_queue: BTreeMap::new(),
            of_others: BTreeMap::new(),
        };
        for task in known.tasks.values().filter_map(|stored| stored.task.as_ref()) {
            let their = known.jobs.get(&task.job).and_then(|status| status.job.as_ref());
            let Some(their) = their.filter(|_| task.job != job && !task.node.is_empty() && is_preemptable(task)) else {
                continue;
            };
            let gives_back = |name: &str| {
                let stored = known.queues.get(name).and_then(|status| status.queue.as_ref());
                stored.is_some_and(|stored| stored.reclaimable != Some(false))
            };
            let by_node = match task.status() {
                pb::TaskStatus::Running | pb::TaskStatus::Bound if their.queue == queue => &mut running.of_queue,
                pb::TaskStatus::Running if their.queue != queue && gives_back(&their.queue) => &mut running.of_others,
                pb::TaskStatus::Running
                | pb::TaskStatus::Bound
                | pb::TaskStatus::Unspecified
                | pb::TaskStatus::Pending
                | pb::TaskStatus::Pipelined
                | pb::TaskStatus::Allocated
                | pb::TaskStatus::Binding
                | pb::TaskStatus::Releasing
                | pb::TaskStatus::Succeeded
                | pb::TaskStatus::Failed
                | pb::TaskStatus::Unknown => continue,
            };
            by_node.entry(&task.node).or_default().push(task);
        }
        running
    }

    /// Names of the tasks on a node that a task may evict. One that requests nothing preempts only tasks like it.
    fn on(&self, kind: pb::VictimKind, node: &str, asks_nothing: bool) -> Vec<&'k str> {
        let is_preempted = kind == pb::VictimKind::Preempt;
        let by_node = if is_preempted { &self.of_queue } else { &self.of_others };
        let tasks = by_node.get(node).into_iter().flatten();
        let may_go = tasks.filter(|task| !is_preempted || !asks_nothing || free_capacity::asks_nothing(task));
        may_go.map(|task| task.name.as_str()).collect()
    }
}

/// False if the pod forbids its eviction.
fn is_preemptable(task: &pb::Task) -> bool {
    let [annotation, label] = [&task.annotations, &task.labels].map(|texts| texts.get(PREEMPTABLE).map(String::as_str));
    permits_eviction(annotation, label)
}

/// Evictions of one kind that make room for a task on some of these nodes.
async fn ask(
    client: &mut PinnedClient,
    running: &RunningTasks<'_>,
    task: &pb::Task,
    asks_nothing: bool,
    kind: pb::VictimKind,
    nodes: &[&str],
) -> Result<Option<EvictionReport>, CommandError> {
    let candidates = nodes.iter().map(|node| (*node, running.on(kind, node, asks_nothing)));
    let candidates: Vec<(&str, Vec<&str>)> = candidates.filter(|(_, names)| !names.is_empty()).collect();
    if candidates.is_empty() {
        return Ok(None);
    }
    let candidate = |name: &&str| pb::Task {
        name: (*name).to_owned(),
        ..pb::Task::default()
    };
    let group = |(node, names): &(&str, Vec<&str>)| pb::VictimGroup {
        preemptor: Some(task.clone()),
        node: (*node).to_owned(),
        candidates: names.iter().map(candidate).collect(),
        ..pb::VictimGroup::default()
    };
    let items = client.victims(kind, candidates.iter().map(group).collect()).await?;
    let mut found = EvictionReport::default();
    for ((node, names), item) in candidates.into_iter().zip(items) {
        let count = item.fits_after.unwrap_or(0) as usize;
        if count == 0 || item.queue_may_reclaim == Some(false) {
            continue;
        }
        if found.nodes.is_empty() {
            let evicted = item.victims.iter().take(count);
            let named = evicted.filter_map(|at| names.get(*at as usize));
            found.tasks = named.map(|name| (*name).to_owned()).collect();
            node.clone_into(&mut found.node);
        }
        found.nodes.push(node.to_owned());
    }
    found.node_count = found.nodes.len() as u64;
    Ok((!found.nodes.is_empty()).then_some(found))
}
