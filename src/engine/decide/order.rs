//! Order: who is next?

use std::cmp::Ordering;
use std::sync::Arc;

use super::reduce_order::{Age, compare_keys, compare_keys_totally, select};
use super::stages::named;
use crate::engine::derived::DerivedSet;
use crate::engine::model::{Problem, ProblemKind, View};
use crate::engine::plugin::{OrderKey, Plugin};
use crate::engine::plugins::drf::{self, Drf, TreeNode};
use crate::engine::policy::{Compatibility, Hook, Policy, Registered};

/// Question of Order.
#[derive(Clone, Debug, Default)]
pub struct OrderQuestion {
    /// Queues to order; empty: all of them; `None`: none.
    pub queues: Option<Vec<Arc<str>>>,
    /// Jobs to order, likewise.
    pub jobs: Option<Vec<Arc<str>>>,
    /// Keys of these plugins only, and no order; empty: the policy's tiers.
    pub plugins: Vec<Arc<str>>,
    /// Also the hierarchy.
    pub with_tree: bool,
}

/// Keys with the plugins that they are of.
pub type PluginKeys = Vec<(Arc<str>, Vec<f64>)>;

/// A queue's or job's place.
#[derive(Clone, Debug, PartialEq)]
pub struct Rank {
    /// Name.
    pub name: Arc<str>,
    /// Its keys with the plugins that they are of, in tier order; or why it has no place.
    pub keys: Result<PluginKeys, Problem>,
}

/// Answer of Order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrderAnswer {
    /// First served first, those with a problem last, by name; with `plugins` all by name.
    pub queues: Vec<Rank>,
    /// Likewise.
    pub jobs: Vec<Rank>,
    /// With `with_tree`: depth first, children by name.
    pub tree: Vec<TreeNode>,
}

/// A record that is asked about: name, and creation time or why it is not known.
type Subject = (Arc<str>, Result<Option<i64>, Problem>);

/// Asks one plugin.
type Ask = fn(&dyn Plugin, &DerivedSet, &[Arc<str>]) -> Option<Vec<OrderKey>>;

/// Orders queues and jobs by the policy's plugins, or shows their keys.
///
/// The first plugin in tier order whose keys differ decides, then creation time, then name. Under `corrected` a key
/// comes before its own extensions, which makes the order total. Under `upstream` the two are equal as far as the plugin
/// goes; where that, or a share that is no number, leaves no total order, the first is chosen again and again.
///
/// # Errors
/// `plugins` names one that the policy does not have or that is not served here.
pub fn order(
    view: &View,
    policy: &Policy,
    derived: &DerivedSet,
    question: &OrderQuestion,
) -> Result<OrderAnswer, Problem> {
    let each: Vec<Hook> = named(policy, &question.plugins)?
        .into_iter()
        .filter_map(order_hook)
        .collect();
    let is_each = !question.plugins.is_empty();
    let hooks = |tiers: &'_ [Hook]| if is_each { each.clone() } else { tiers.to_vec() };
    let arrange = |subjects: Option<Vec<Subject>>, hooks: Vec<Hook>, ask: Ask| {
        let ranks = keys(subjects.unwrap_or_default(), &hooks, derived, ask);
        arrange(ranks, is_each, policy.compatibility())
    };
    let queues = question.queues.as_ref().map(|names| {
        let known = |name: &str| view.queues().get(name).map(|queue| queue.record.creation_time);
        subjects(
            names,
            view.queues().iter().map(|(name, _)| name),
            known,
            "queue",
            "UNKNOWN_QUEUE",
        )
    });
    let jobs = question.jobs.as_ref().map(|names| {
        let known = |name: &str| view.jobs().get(name).map(|job| job.record.creation_time);
        subjects(
            names,
            view.jobs().iter().map(|(name, _)| name),
            known,
            "job",
            "UNKNOWN_JOB",
        )
    });
    let tree = derived
        .get::<Drf>(drf::NAME)
        .filter(|_| question.with_tree)
        .map(Drf::tree);
    Ok(OrderAnswer {
        queues: arrange(queues, hooks(policy.queue_orders()), |plugin, derived, names| {
            plugin.queue_keys(derived, names)
        }),
        jobs: arrange(jobs, hooks(policy.job_orders()), |plugin, derived, names| {
            plugin.job_keys(derived, names)
        }),
        tree: tree.unwrap_or_default(),
    })
}

fn order_hook(registered: &Registered) -> Option<Hook> {
    Some(Hook {
        name: Arc::clone(&registered.name),
        plugin: Arc::clone(registered.order.as_ref()?),
        weight: registered.weight,
    })
}

fn subjects<'a>(
    names: &[Arc<str>],
    all: impl Iterator<Item = &'a Arc<str>>,
    known: impl Fn(&str) -> Option<Option<i64>>,
    what: &str,
    unknown: &'static str,
) -> Vec<Subject> {
    let mut names: Vec<Arc<str>> = if names.is_empty() {
        all.cloned().collect()
    } else {
        names.to_vec()
    };
    names.sort();
    names.dedup();
    let subject = |name: Arc<str>| {
        let created = known(&name).ok_or_else(|| {
            Problem::new(
                ProblemKind::NotFound,
                unknown,
                "",
                format!("there is no {what} `{name}`"),
            )
        });
        (name, created)
    };
    names.into_iter().map(subject).collect()
}

/// A record with its keys, or its problem; by name.
struct Keyed {
    rank: Rank,
    creation_time: Option<i64>,
}

fn keys(subjects: Vec<Subject>, hooks: &[Hook], derived: &DerivedSet, ask: Ask) -> Vec<Keyed> {
    let known: Vec<Arc<str>> = subjects
        .iter()
        .filter(|(_, known)| known.is_ok())
        .map(|(name, _)| Arc::clone(name))
        .collect();
    let answers = hooks
        .iter()
        .filter_map(|hook| Some((&hook.name, ask(&*hook.plugin, derived, &known)?.into_iter())));
    let mut answers: Vec<_> = answers.collect();
    let keyed = |(name, known): Subject| {
        let (keys, creation_time) = match known {
            Err(problem) => (Err(problem), None),
            Ok(created) => {
                // Every column moves on by one, whatever the others say.
                let own: Vec<_> = answers
                    .iter_mut()
                    .map(|(plugin, column)| (Arc::clone(plugin), column.next()))
                    .collect();
                let own = own
                    .into_iter()
                    .filter_map(|(plugin, key)| Some(key?.map(|key| (plugin, key))));
                (own.collect::<Result<Vec<_>, _>>(), created)
            }
        };
        Keyed {
            rank: Rank { name, keys },
            creation_time,
        }
    };
    subjects.into_iter().map(keyed).collect()
}

fn arrange(ranks: Vec<Keyed>, by_name: bool, compatibility: Compatibility) -> Vec<Rank> {
    if by_name {
        return ranks.into_iter().map(|keyed| keyed.rank).collect();
    }
    let (mut placed, without): (Vec<Keyed>, Vec<Keyed>) = ranks.into_iter().partition(|keyed| keyed.rank.keys.is_ok());
    let placed = if compatibility == Compatibility::Upstream && !is_total(&placed) {
        select(placed, |left, right| {
            compare(left, right, compare_keys) == Ordering::Less
        })
    } else {
        placed.sort_by(|left, right| compare(left, right, compare_keys_totally));
        placed
    };
    placed.into_iter().chain(without).map(|keyed| keyed.rank).collect()
}

/// True if the reference's comparison is a total order on these: keys of one plugin are equally long, and all numbers.
fn is_total(ranks: &[Keyed]) -> bool {
    let shape = |keyed: &Keyed| {
        keyed
            .rank
            .keys
            .as_ref()
            .ok()
            .map(|keys| keys.iter().map(|(_, key)| key.len()).collect())
    };
    let first: Option<Vec<usize>> = ranks.first().and_then(shape);
    let mut values = ranks
        .iter()
        .flat_map(|keyed| keyed.rank.keys.iter().flatten())
        .flat_map(|(_, key)| key);
    ranks.iter().all(|keyed| shape(keyed) == first) && values.all(|value| !value.is_nan())
}

fn compare(left: &Keyed, right: &Keyed, keys: fn(&[f64], &[f64]) -> Ordering) -> Ordering {
    let both = left.rank.keys.iter().flatten().zip(right.rank.keys.iter().flatten());
    let differing = both
        .map(|((_, left), (_, right))| keys(left, right))
        .find(|order| order.is_ne());
    differing.unwrap_or_else(|| age(left).tie(&age(right)))
}

fn age(keyed: &Keyed) -> Age<'_> {
    Age {
        creation_time: keyed.creation_time,
        name: &keyed.rank.name,
    }
}
