//! Records and requests as they are sent.

use std::sync::atomic::{AtomicU64, Ordering};

use pumice::server::pb;

use super::fixtures::{gang, task_class};

/// Number of nodes in the requests.
pub(crate) const NODES: u32 = 10_000;
/// Number of different tasks in the largest request.
const CLASSES: u32 = 64;

/// Amounts by resource.
pub(crate) fn amounts<const N: usize>(items: [(&str, String); N]) -> pb::ResourceList {
    pb::ResourceList {
        items: items.map(|(name, amount)| (name.to_owned(), amount)).into(),
    }
}

/// Node of the cluster, equal to those on which the engine's measurements place gangs.
fn node(slot: u32) -> pb::Node {
    let [cpu, memory, pods, gpus] = gang::amounts(slot);
    let list = |of: fn((i64, i64)) -> i64| {
        amounts([
            ("cpu", format!("{}m", of(cpu))),
            ("memory", of(memory).to_string()),
            ("pods", of(pods).to_string()),
            (gang::GPU, of(gpus).to_string()),
            (task_class::NIC, of((2, i64::from(slot % 3))).to_string()),
        ])
    };
    pb::Node {
        name: format!("node-{slot:06}"),
        allocatable: Some(list(|(all, _)| all)),
        unattributed_used: Some(list(|(_, used)| used)),
        ..pb::Node::default()
    }
}

/// Complete cluster.
pub(crate) fn cluster() -> pb::Cluster {
    let queue = pb::Queue {
        name: gang::QUEUE.to_owned(),
        capability: Some(amounts([("cpu", "1M".to_owned()), ("memory", "1Pi".to_owned())])),
        ..pb::Queue::default()
    };
    let job = pb::Job {
        name: gang::JOB.to_owned(),
        queue: gang::QUEUE.to_owned(),
        ..pb::Job::default()
    };
    pb::Cluster {
        nodes: (0..NODES).map(node).collect(),
        queues: vec![queue],
        jobs: vec![job],
        ..pb::Cluster::default()
    }
}

/// Task of four resources, a little different for each number.
fn task(number: u32) -> pb::Task {
    pb::Task {
        job: gang::JOB.to_owned(),
        requests: Some(amounts([
            ("cpu", format!("{}m", 4_000 + number)),
            ("memory", "16Gi".to_owned()),
            (gang::GPU, "1".to_owned()),
        ])),
        ..pb::Task::default()
    }
}

fn score(tasks: u32, limit: Option<u32>) -> pb::ScoreRequest {
    pb::ScoreRequest {
        tasks: (0..tasks).map(task).collect(),
        with_filter: limit.is_some(),
        limit,
        filter_detail: pb::FilterDetail::Counts.into(),
        node_encoding: pb::NodeEncoding::Slots.into(),
        ..pb::ScoreRequest::default()
    }
}

/// Changes the memory that tasks request to an amount that no request had before.
pub(crate) fn change_class(tasks: &mut [pb::Task]) {
    static CHANGED: AtomicU64 = AtomicU64::new(1);
    for list in tasks.iter_mut().filter_map(|task| task.requests.as_mut()) {
        let bytes = (16 << 30) + CHANGED.fetch_add(1, Ordering::Relaxed);
        list.items.insert("memory".to_owned(), bytes.to_string());
    }
}

/// Request for the best of all nodes, filtered and scored.
pub(crate) fn best() -> pb::ScoreRequest {
    score(1, Some(1))
}

/// Request for the best of all nodes under a policy with the filters and scores of pods.
pub(crate) fn best_with_pods() -> pb::ScoreRequest {
    pb::ScoreRequest {
        against: Some(latest(POD_POLICY)),
        ..best()
    }
}

/// Name of the policy with the filters and scores of pods.
pub(crate) const POD_POLICY: &str = "pods";

/// Latest state under a policy.
fn latest(policy: &str) -> pb::EvaluationRef {
    let snapshot = pb::LatestRef {
        policy: policy.to_owned(),
        ..pb::LatestRef::default()
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Latest(snapshot)),
        ..pb::EvaluationRef::default()
    }
}

/// Request for all scores of one task.
pub(crate) fn all() -> pb::ScoreRequest {
    score(1, None)
}

/// Request for the best 16 nodes of each of 64 different tasks.
pub(crate) fn classes() -> pb::ScoreRequest {
    score(CLASSES, Some(16))
}

/// Task of the gang.
pub(crate) fn gang_task() -> pb::Task {
    pb::Task {
        job: gang::JOB.to_owned(),
        requests: Some(amounts([("cpu", "4".to_owned()), ("memory", "16Gi".to_owned())])),
        ..pb::Task::default()
    }
}

/// Request to place the gang.
pub(crate) fn place() -> pb::PlaceRequest {
    let group = pb::TaskGroup {
        task: Some(gang_task()),
        count: Some(gang::TASKS),
        ..pb::TaskGroup::default()
    };
    pb::PlaceRequest {
        against: Some(latest(gang::QUEUE)),
        groups: vec![group],
        node_encoding: pb::NodeEncoding::Slots.into(),
        ..pb::PlaceRequest::default()
    }
}
