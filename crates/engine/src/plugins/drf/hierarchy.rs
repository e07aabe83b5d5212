//! Position of a queue in the hierarchy: its annotations, by the reference's lenient rules and by strict ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::go_float;
use crate::model::{ErrorCode, Problem, QueueRecord, find_text};

/// Annotation with the path of a queue: `root/eng/dev`.
pub const HIERARCHY: &str = "volcano.sh/hierarchy";
/// Annotation with the weights along the path: `1/2/8`.
pub const WEIGHTS: &str = "volcano.sh/hierarchy-weights";

/// Largest number of levels below the root.
const MAX_DEPTH: usize = 64;

/// Path of a queue from the root, without the root itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HierarchyPath {
    /// Names of the levels.
    pub(super) names: Vec<Arc<str>>,
    /// Weights of the levels. If there are fewer weights than names, the reference crashes when it creates the level.
    pub(super) weights: Vec<f64>,
}

/// Path by the reference's rules: the first component has no meaning, a weight that is below 1 or unreadable is 1, and
/// extra weights are ignored.
pub(super) fn lenient_path(queue: &QueueRecord) -> Result<HierarchyPath, Problem> {
    let names = path_names(queue);
    check_depth(queue, &names)?;
    let weights = find_text(&queue.annotations, WEIGHTS).unwrap_or_default();
    let weights = weights.split('/').skip(1).take(names.len());
    let weights = weights.map(|weight| {
        let weight = go_float::parse(weight).unwrap_or(0.0);
        if weight < 1.0 { 1.0 } else { weight }
    });
    Ok(HierarchyPath {
        names,
        weights: weights.collect(),
    })
}

/// Path by strict rules: one weight per component, above 0 and finite. A queue without a path, or whose path is the
/// root, is below the root under its own name with weight 1.
pub(super) fn strict_path(queue: &QueueRecord) -> Result<HierarchyPath, Problem> {
    let names = path_names(queue);
    check_depth(queue, &names)?;
    if names.is_empty() {
        return Ok(HierarchyPath {
            names: vec![Arc::clone(&queue.name)],
            weights: vec![1.0],
        });
    }
    let written = find_text(&queue.annotations, WEIGHTS).unwrap_or_default();
    let count = written.split('/').count();
    if count != names.len() + 1 {
        let path = find_text(&queue.annotations, HIERARCHY).unwrap_or_default();
        let message = format!(
            "queue `{}` has {count} weights (`{written}`) for the {} components of its path `{path}`",
            queue.name,
            names.len() + 1
        );
        return refuse(queue, WEIGHTS, ErrorCode::HierarchyWeightsCount, message);
    }
    let weights = written.split('/').skip(1).map(|weight| match go_float::parse(weight) {
        Some(weight) if weight > 0.0 && weight.is_finite() => Ok(weight),
        _ => {
            let message = format!("weight `{weight}` of queue `{}` is not a number above 0", queue.name);
            refuse(queue, WEIGHTS, ErrorCode::HierarchyWeightInvalid, message)
        }
    });
    Ok(HierarchyPath {
        weights: weights.collect::<Result<_, _>>()?,
        names,
    })
}

fn path_names(queue: &QueueRecord) -> Vec<Arc<str>> {
    let path = find_text(&queue.annotations, HIERARCHY).unwrap_or_default();
    path.split('/').skip(1).map(Arc::from).collect()
}

fn check_depth(queue: &QueueRecord, names: &[Arc<str>]) -> Result<(), Problem> {
    if names.len() <= MAX_DEPTH {
        return Ok(());
    }
    let message = format!(
        "the path of queue `{}` has {} levels; the limit is {MAX_DEPTH}",
        queue.name,
        names.len()
    );
    refuse(queue, HIERARCHY, ErrorCode::HierarchyTooDeep, message)
}

/// Refuses a queue's annotation.
pub(super) fn refuse<T>(queue: &QueueRecord, annotation: &str, code: ErrorCode, message: String) -> Result<T, Problem> {
    let field = format!("queues[{}].annotations[{annotation}]", queue.name);
    Err(Problem::new(code, field, message))
}

/// Claim of earlier queues on a node.
struct PathClaim<'a> {
    weight: f64,
    weight_set_by: &'a str,
    /// Queue whose path ends here.
    ends: Option<&'a str>,
    /// Queue whose path continues below.
    continues: Option<&'a str>,
}

/// Paths of queues that do not contradict each other. Queues are taken by creation time, then name; a queue that
/// contradicts an earlier one has a problem instead of a path.
pub(super) fn consistent_paths<'a>(
    queues: impl Iterator<Item = &'a QueueRecord>,
) -> BTreeMap<Arc<str>, Result<HierarchyPath, Problem>> {
    let mut queues: Vec<&QueueRecord> = queues.collect();
    queues.sort_by(|a, b| (a.creation_time, &a.name).cmp(&(b.creation_time, &b.name)));
    let mut claims: BTreeMap<String, PathClaim<'a>> = BTreeMap::new();
    let claimed = |queue: &'a QueueRecord| {
        let path = strict_path(queue).and_then(|path| claim_path(&mut claims, queue, path));
        (Arc::clone(&queue.name), path)
    };
    queues.into_iter().map(claimed).collect()
}

fn claim_path<'a>(
    claims: &mut BTreeMap<String, PathClaim<'a>>,
    queue: &'a QueueRecord,
    path: HierarchyPath,
) -> Result<HierarchyPath, Problem> {
    let mut at = String::new();
    let mut steps = Vec::with_capacity(path.names.len());
    for (depth, (name, weight)) in path.names.iter().zip(&path.weights).enumerate() {
        at.push('/');
        at.push_str(name);
        let is_last = depth + 1 == path.names.len();
        if let Some(claim) = claims.get(&at) {
            check_claim(claim, queue, &at, *weight, is_last)?;
        }
        steps.push((at.clone(), *weight, is_last));
    }
    for (at, weight, is_last) in steps {
        let claim = claims.entry(at).or_insert(PathClaim {
            weight,
            weight_set_by: &queue.name,
            ends: None,
            continues: None,
        });
        let side = if is_last { &mut claim.ends } else { &mut claim.continues };
        side.get_or_insert(&queue.name);
    }
    Ok(path)
}

fn check_claim(
    claim: &PathClaim<'_>,
    queue: &QueueRecord,
    at: &str,
    weight: f64,
    is_last: bool,
) -> Result<(), Problem> {
    if claim.weight.to_bits() != weight.to_bits() {
        let message = format!(
            "queue `{}` gives `root{at}` the weight {weight}, queue `{}` gave it {}",
            queue.name, claim.weight_set_by, claim.weight
        );
        return refuse(queue, WEIGHTS, ErrorCode::HierarchyWeightsConflict, message);
    }
    let (other, message) = if is_last {
        let Some(other) = claim.continues else { return Ok(()) };
        (other, "ends at")
    } else {
        let Some(other) = claim.ends else { return Ok(()) };
        (other, "goes on below")
    };
    let message = format!(
        "the path of queue `{}` {message} `root{at}`, but that of queue `{other}` does not: a node holds either queues \
         or jobs",
        queue.name
    );
    refuse(queue, HIERARCHY, ErrorCode::HierarchyInnerAndLeaf, message)
}
