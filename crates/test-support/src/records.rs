//! Short ways to write records, batches and references.

use pumice::server::pb;

/// List of amounts.
pub fn amounts(items: &[(&str, &str)]) -> pb::ResourceList {
    let items = items
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()));
    pb::ResourceList { items: items.collect() }
}

/// Node with 110 pods besides the given amounts.
pub fn node(name: &str, items: &[(&str, &str)]) -> pb::Node {
    let mut allocatable = amounts(items);
    allocatable
        .items
        .entry("pods".to_owned())
        .or_insert_with(|| "110".to_owned());
    pb::Node {
        name: name.to_owned(),
        allocatable: Some(allocatable),
        ..pb::Node::default()
    }
}

/// Job in a queue.
pub fn job(name: &str, queue: &str) -> pb::Job {
    pb::Job {
        name: name.to_owned(),
        queue: queue.to_owned(),
        ..pb::Job::default()
    }
}

/// Queue with this name.
pub fn queue(name: &str) -> pb::Queue {
    pb::Queue {
        name: name.to_owned(),
        ..pb::Queue::default()
    }
}

/// Pending task of a job.
pub fn task(name: &str, job: &str, requests: &[(&str, &str)]) -> pb::Task {
    pb::Task {
        name: name.to_owned(),
        job: job.to_owned(),
        requests: Some(amounts(requests)),
        ..pb::Task::default()
    }
}

/// Task with a status and a node.
pub fn task_on_node(mut task: pb::Task, status: pb::TaskStatus, node: &str) -> pb::Task {
    task.set_status(status);
    node.clone_into(&mut task.node);
    task
}

/// Task that is not stored.
pub fn hypothetical_task(requests: &[(&str, &str)]) -> pb::Task {
    task("", "", requests)
}

/// Batch of epoch 1.
fn batch(source: &str, sequence: u64, kind: pb::BatchKind, put: pb::Cluster) -> pb::Batch {
    pb::Batch {
        source: source.to_owned(),
        source_epoch: 1,
        sequence,
        kind: kind.into(),
        put: Some(put),
        ..pb::Batch::default()
    }
}

/// Complete full sync in one part.
pub fn full_sync(source: &str, sequence: u64, put: pb::Cluster) -> pb::Batch {
    pb::Batch {
        part: 1,
        ..batch(source, sequence, pb::BatchKind::FullSyncLast, put)
    }
}

/// Part of a full sync, not the last.
pub fn full_sync_part(source: &str, sequence: u64, part: u32, put: pb::Cluster) -> pb::Batch {
    pb::Batch {
        part,
        ..batch(source, sequence, pb::BatchKind::FullSyncPart, put)
    }
}

/// Changes of a source.
pub fn delta(source: &str, sequence: u64, put: pb::Cluster) -> pb::Batch {
    batch(source, sequence, pb::BatchKind::Delta, put)
}

/// Cluster of nodes only.
pub fn nodes(nodes: Vec<pb::Node>) -> pb::Cluster {
    pb::Cluster {
        nodes,
        ..pb::Cluster::default()
    }
}

/// Step of a session.
pub fn session_ref(session: &str, after: u64, changes: Vec<pb::session_change::Change>) -> pb::EvaluationRef {
    let changes = changes
        .into_iter()
        .map(|change| pb::SessionChange { change: Some(change) });
    let step = pb::SessionRef {
        id: session.to_owned(),
        after,
        changes: changes.collect(),
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Session(step)),
        ..pb::EvaluationRef::default()
    }
}

/// Shared state, at least at this revision.
pub fn latest_ref(revision: pb::Revision, wait_milliseconds: i32) -> pb::EvaluationRef {
    let snapshot = pb::LatestRef {
        at_least: Some(revision),
        max_wait: Some(prost_types::Duration {
            seconds: 0,
            nanos: wait_milliseconds * 1_000_000,
        }),
        ..pb::LatestRef::default()
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Latest(snapshot)),
        ..pb::EvaluationRef::default()
    }
}
