//! Waiting tasks, equal ones together, and the verdict of every plugin on each class.

use std::collections::BTreeMap;

use prost::Message as _;

use super::free_capacity::{self, ClusterIdleCapacity};
use super::report::{
    AdmissionReport, AdmitVote, PluginRejections, ReasonMeasurement, RejectionReason, RejectionRow, RequestedDevices,
    ScoreComponent, ScoredNode, TaskClassReport, TaskDevices,
};
use super::target::is_open;
use pumice_console::pinned_client::PinnedClient;
use pumice_console::{CommandError, node_query, output};
use pumice_protocol::v1 as pb;

/// Number of tasks that are named.
const NAMED: usize = 10;

/// Tasks that are equal but for their names.
#[derive(Debug)]
pub struct EqualTasks {
    /// Tasks of the kind, in the order of the request.
    pub tasks: Vec<pb::Task>,
    /// True: the tasks are stored on the server.
    pub(super) stored: bool,
}

/// Groups tasks that differ in name and age only, in the order of their first.
pub fn group_equal_tasks(tasks: &[pb::Task], stored: bool) -> Vec<EqualTasks> {
    let mut kinds: Vec<EqualTasks> = Vec::new();
    let mut known: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for task in tasks {
        let like = pb::Task {
            name: String::new(),
            uid: String::new(),
            creation_time: None,
            priority: 0,
            ..task.clone()
        };
        let next = kinds.len();
        let place = *known.entry(like.encode_to_vec()).or_insert(next);
        match kinds.get_mut(place) {
            Some(kind) => kind.tasks.push(task.clone()),
            None => kinds.push(EqualTasks {
                tasks: vec![task.clone()],
                stored,
            }),
        }
    }
    kinds
}

/// Task of a query: the name alone of a stored task, else the whole task.
pub(super) fn query_task(task: &pb::Task, stored: bool) -> pb::Task {
    if !stored {
        return task.clone();
    }
    pb::Task {
        name: task.name.clone(),
        ..pb::Task::default()
    }
}

/// Report on one class of tasks. `in_queue`: the job is stored, so the admission by its queue can be evaluated.
pub(super) async fn class_report(
    client: &mut PinnedClient,
    kind: &EqualTasks,
    rooms: &ClusterIdleCapacity,
    top: u32,
    in_queue: bool,
) -> Result<TaskClassReport, CommandError> {
    let Some(first) = kind.tasks.first() else {
        return Ok(TaskClassReport::default());
    };
    let task = query_task(first, kind.stored);
    let later = client
        .filter(&task, pb::ResourceFit::FutureIdle, pb::FilterDetail::Nodes)
        .await?;
    let count = u32::try_from(kind.tasks.len()).unwrap_or(u32::MAX);
    client.unevaluated.add(&later.not_evaluated, count);
    let mut class = TaskClassReport {
        tasks: kind.tasks.iter().take(NAMED).map(|task| task.name.clone()).collect(),
        count: kind.tasks.len() as u64,
        gated: kind.tasks.iter().filter(|task| !is_open(task)).count() as u64,
        requests: first.requests.clone().unwrap_or_default().items,
        devices: requested_devices(first),
        problem: later.problem.as_ref().map(output::problem),
        nodes: rooms.node_count(),
        ..TaskClassReport::default()
    };
    if class.problem.is_some() {
        return Ok(class);
    }
    let now = client
        .filter(&task, pb::ResourceFit::Idle, pb::FilterDetail::Nodes)
        .await?;
    class.fit_now = now.fit_count.into();
    class.fit_later = later.fit_count.into();
    class.fit_later_names = later.fit.as_ref().map(|set| set.names.clone()).unwrap_or_default();
    class.rejections = rejection_rows(&later, rooms);
    let alone = client.rejections_by_plugin(&task).await?.into_iter();
    class.rejections_by_plugin = alone
        .map(|(plugin, refused)| PluginRejections {
            plugin,
            rejected: refused,
        })
        .collect();
    if class.fit_later == 0 {
        class.nearest_nodes = rooms.nearest(&free_capacity::requests(first));
        class.beyond_every_node = rooms.beyond_every_node(&free_capacity::requests(first));
    } else {
        let fit = if class.fit_now > 0 {
            pb::ResourceFit::Idle
        } else {
            pb::ResourceFit::FutureIdle
        };
        class.best_nodes = best_nodes(&client.score(&task, fit, top).await?);
    }
    if class.devices.is_some() && class.fit_now > 0 {
        class.would_get = would_get(client, first).await?;
    }
    if in_queue {
        let subject = pb::admit_subject::Subject::Task(task);
        class.admission = Some(admission_report(client, subject).await?);
    }
    Ok(class)
}

/// Devices that a task would get on the node that it would get.
async fn would_get(client: &mut PinnedClient, task: &pb::Task) -> Result<Option<TaskDevices>, CommandError> {
    let placed = client.preview(task).await?;
    let node = placed.allocated.and_then(|nodes| nodes.names.into_iter().next());
    let devices = placed.devices.into_iter().next();
    Ok(node.zip(devices).map(|(node, set)| TaskDevices {
        task: task.name.clone(),
        node,
        devices: set.numbers,
    }))
}

fn requested_devices(task: &pb::Task) -> Option<RequestedDevices> {
    let own = task.constraints.as_ref()?.devices.as_ref()?;
    Some(RequestedDevices {
        count: own.count,
        milli: own.milli,
        memory_mib: own.memory_mib,
        models: own.models.clone(),
    })
}

/// Verdict of Admit on one subject, with the vote of every plugin.
pub(super) async fn admission_report(
    client: &mut PinnedClient,
    subject: pb::admit_subject::Subject,
) -> Result<AdmissionReport, CommandError> {
    let verdict = client
        .admit(vec![subject.clone()], Vec::new())
        .await?
        .into_iter()
        .next();
    let verdict = verdict.unwrap_or_default();
    let problem = verdict.problem.as_ref().map(output::problem);
    let votes = match problem {
        Some(_) => Vec::new(),
        None => client.plugin_votes(&subject).await?,
    };
    Ok(AdmissionReport {
        permitted: verdict.permitted,
        problem,
        votes: votes
            .into_iter()
            .map(|vote| AdmitVote {
                plugin: vote.plugin,
                vote: vote.vote,
            })
            .collect(),
        reasons: verdict
            .reasons
            .iter()
            .map(|one| rejection_reason(one, &one.measurements))
            .collect(),
        headroom: verdict.headroom,
        cards: verdict.cards.into_iter().map(|choice| choice.card).collect(),
    })
}

pub(super) fn rejection_reason(reason: &pb::Reason, measurements: &[pb::Measurement]) -> RejectionReason {
    let measurement = |measurement: &pb::Measurement| ReasonMeasurement {
        name: measurement.name.clone(),
        value: measurement.value,
        unit: measurement.unit.clone(),
    };
    RejectionReason {
        plugin: reason.plugin.clone(),
        code: reason.code.clone(),
        message: reason.message.clone(),
        resource: reason.resource.clone(),
        preemption_may_help: node_query::preemption_text(reason, measurements) == "may help",
        measurements: measurements.iter().map(measurement).collect(),
    }
}

/// Rejections of nodes, most nodes first, each with the node that is nearest to fitting.
fn rejection_rows(verdict: &pb::FilterItem, rooms: &ClusterIdleCapacity) -> Vec<RejectionRow> {
    let mut rejections: Vec<RejectionRow> = verdict.rejections.iter().map(|one| rejection_row(one, rooms)).collect();
    rejections.sort_by_key(|rejection| std::cmp::Reverse(rejection.count));
    rejections
}

fn rejection_row(rejection: &pb::Rejection, rooms: &ClusterIdleCapacity) -> RejectionRow {
    let why = rejection.reason.clone().unwrap_or_default();
    let among = rejection
        .nodes
        .as_ref()
        .map(|set| set.names.as_slice())
        .unwrap_or_default();
    let nearest = if why.resource.is_empty() {
        None
    } else {
        rooms.most_idle(among, &why.resource).map(|(node, _)| node.to_owned())
    };
    let samples = &rejection.samples;
    let named = samples.iter().find(|sample| Some(&sample.node) == nearest.as_ref());
    let sample = named.or(samples.first()).cloned().unwrap_or_default();
    RejectionRow {
        count: rejection.count.into(),
        reason: rejection_reason(&why, &sample.measurements),
        node: sample.node,
        nodes: among.to_vec(),
    }
}

fn best_nodes(item: &pb::ScoreItem) -> Vec<ScoredNode> {
    let names = item.nodes.iter().flat_map(|set| &set.names);
    let scored = |(at, node): (usize, &String)| ScoredNode {
        node: node.clone(),
        score: item.totals.get(at).copied().unwrap_or_default(),
        parts: item
            .parts
            .iter()
            .map(|part| ScoreComponent {
                name: if part.part.is_empty() {
                    part.plugin.clone()
                } else {
                    format!("{}/{}", part.plugin, part.part)
                },
                score: part.scores.get(at).copied().unwrap_or_default(),
            })
            .collect(),
    };
    names.enumerate().map(scored).collect()
}
