//! A cluster that comes with a question, as a View of its own.

use std::sync::Arc;

use crate::engine::model::{Kind, Problem, Slot, Table, View};
use crate::server::pb;
use crate::server::status::Failure;
use crate::state::{Batch, Place, Put};

use super::amounts::QuestionNames;
use super::batch::cluster;
use super::reader::{Declared, Reader};

/// Owner of all records of an inline cluster.
pub const SOURCE: &str = "inline";

/// Builds the View of a cluster; the order of its nodes is their slots. Also says what was overlooked.
///
/// # Errors
/// A record cannot be read, or stands there twice: no answer could be trusted then.
pub fn view(cluster: pb::Cluster, declared: &Declared) -> Result<(View, Vec<Problem>), Failure> {
    let records = cluster.nodes.len() + cluster.queues.len() + cluster.jobs.len() + cluster.tasks.len();
    let limit = declared.limits.inline_records;
    if records > limit {
        let message = format!("ground.inline.cluster: {records} records");
        return Err(Failure::limit("CLUSTER_TOO_LARGE", "inline_records", limit, &message));
    }
    let empty = View::new(Arc::new(Table::<Slot>::default()), 0);
    let mut names = QuestionNames::new(empty.resources(), declared.limits.question_resources);
    let mut batch = Batch::default();
    self::cluster(cluster, &mut Reader::new(&mut names, declared), &mut batch);
    let outside = |problem: Problem| Problem {
        field: format!("ground.inline.cluster{}", problem.field.trim_start_matches("put")),
        ..problem
    };
    let refused: Vec<Problem> = batch
        .refused
        .into_iter()
        .flat_map(|(_, _, found)| found)
        .map(outside)
        .collect();
    if !refused.is_empty() {
        return Err(Failure::of(&refused));
    }
    let warnings = batch.warnings.into_iter().map(outside).collect();
    Ok((build(batch.put, names)?, warnings))
}

fn build(put: Vec<(Put, Place)>, names: QuestionNames) -> Result<View, Failure> {
    let mut index: Table<Slot> = Table::default();
    for (record, place) in &put {
        let Put::Node(node) = record else { continue };
        let next = Slot::try_from(index.len()).unwrap_or(Slot::MAX);
        if index.insert(Arc::clone(&node.name), next).is_some() {
            return Err(twice("node", &node.name, &place.field(Kind::Node)));
        }
    }
    let mut view = View::new(Arc::new(index), 0);
    view.set_resources(names.into_table());
    let source: Arc<str> = Arc::from(SOURCE);
    for (record, place) in put {
        let known = match &record {
            Put::Node(_) => false,
            Put::Queue(queue) => view.queues().contains(&queue.name),
            Put::Job(job) => view.jobs().contains(&job.name),
            Put::Task(task) => view.tasks().contains(&task.name),
        };
        if known {
            let (kind, name) = record.key();
            return Err(twice("record", name, &place.field(kind)));
        }
        match record {
            Put::Node(node) => {
                view.put_node(node, &source);
            }
            Put::Queue(queue) => view.put_queue(queue, &source),
            Put::Job(job) => view.put_job(job, &source),
            Put::Task(task) => view.put_task(task, &source),
        }
    }
    view.refresh_ranks();
    Ok(view)
}

fn twice(what: &str, name: &str, place: &str) -> Failure {
    let place = place.trim_start_matches("put.");
    let message = format!("ground.inline.cluster.{place}: the {what} `{name}` stands there twice");
    Failure::invalid("DUPLICATE_RECORD", message)
}
