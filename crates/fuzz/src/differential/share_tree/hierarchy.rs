//! Paths of queues, read plainly: those of the random clusters never contradict each other.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use pumice_engine::model::{QueueRecord, find_text};

use super::{HIERARCHY, WEIGHTS};

/// Path of a queue from the root, without the root itself.
#[derive(Clone, Debug)]
pub(super) struct PlainPath {
    pub(super) names: Vec<Arc<str>>,
    pub(super) weights: Vec<f64>,
}

// The plain tree knows paths by the engine's name.
pub(super) use self::PlainPath as HierarchyPath;

fn parts<'a>(queue: &'a QueueRecord, annotation: &str) -> impl Iterator<Item = &'a str> {
    find_text(&queue.annotations, annotation)
        .unwrap_or_default()
        .split('/')
        .skip(1)
}

fn path(queue: &QueueRecord, least: f64) -> PlainPath {
    let weights = parts(queue, WEIGHTS).map(|weight| weight.parse::<f64>().unwrap().max(least));
    PlainPath {
        names: parts(queue, HIERARCHY).map(Arc::from).collect(),
        weights: weights.collect(),
    }
}

/// Path by the reference's rules: no weight is below 1.
#[expect(clippy::unnecessary_wraps, reason = "the engine reads it in a way that can fail")]
pub(super) fn lenient_path(queue: &QueueRecord) -> Result<PlainPath, Infallible> {
    Ok(path(queue, 1.0))
}

/// Paths of all queues.
pub(super) fn consistent_paths<'a>(
    queues: impl Iterator<Item = &'a QueueRecord>,
) -> BTreeMap<Arc<str>, Result<PlainPath, Infallible>> {
    queues
        .map(|queue| (Arc::clone(&queue.name), Ok(path(queue, 0.0))))
        .collect()
}
