//! Demand of the storm's jobs: cores, and cards by one name, by several, or as slices of cards.

use std::collections::BTreeMap;

use pumice::server::pb;

use super::SeededRandom;
use crate::support::ledger::wants;
use crate::support::records::{node, task, task_on_node};

/// Number of cores that each queue may hold.
pub(super) const CAPABILITY: u32 = 20;
/// Name of a slice of a card.
const SLICE: &str = "A100/mig-1g.10gb-mixed";
/// Name of either of two cards.
const EITHER: &str = "A100|H100";
/// Cards that each queue may hold.
const QUOTA: [(&str, u32); 3] = [("A100", 7), ("H100", 5), (SLICE, 6)];
/// Cards as nodes offer them: card, node, product, resource.
const NODES: [(&str, &str, &str, &str); 3] = [
    ("A100", "node-a", "A100", "nvidia.com/gpu"),
    ("H100", "node-h", "H100", "nvidia.com/gpu"),
    (SLICE, "node-m", "A100", "nvidia.com/mig-1g.10gb"),
];

/// Demand of a job: cores, and a number of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobDemand {
    cores: u32,
    card: Option<&'static str>,
    cards: u32,
}

fn some(dice: &mut SeededRandom, below: u64) -> u32 {
    u32::try_from(1 + dice.roll(below)).unwrap()
}

impl JobDemand {
    /// Demand of one core.
    pub(super) fn small() -> Self {
        Self {
            cores: 1,
            card: None,
            cards: 0,
        }
    }

    pub(super) fn rolled(dice: &mut SeededRandom) -> Self {
        let kinds = [None, Some("A100"), Some("H100"), Some(EITHER), Some(SLICE)];
        let card = kinds[usize::try_from(dice.roll(5)).unwrap()];
        // Where cards are requested, they are the scarce resource.
        let cores = if card.is_some() { 1 } else { some(dice, 8) };
        Self { cores, card, cards: 0 }.resized(dice)
    }

    /// Demand of the same card with other numbers.
    pub(super) fn resized(self, dice: &mut SeededRandom) -> Self {
        match self.card {
            Some(_) => Self {
                cards: some(dice, 4),
                ..self
            },
            None => Self {
                cores: some(dice, 8),
                ..self
            },
        }
    }

    /// Smaller of two demands: reserved whichever of the two counts.
    pub(super) fn least(self, other: Self) -> Self {
        Self {
            cores: self.cores.min(other.cores),
            cards: self.cards.min(other.cards),
            ..self
        }
    }

    /// True if a task could use the named cards. For a choice of several, a scheduler would have to ask.
    pub(super) fn may_run(self) -> bool {
        self.card != Some(EITHER)
    }

    pub(super) fn job(self, name: &str, queue: &str) -> pb::Job {
        let mut job = wants(name, queue, self.cores);
        if let Some(card) = self.card {
            let request = format!(r#"{{"{card}": {}}}"#, self.cards);
            job.annotations.insert("volcano.sh/card.request".to_owned(), request);
        }
        job
    }

    /// Only task of the job.
    pub(super) fn runs(self, name: &str) -> pb::Task {
        let (cores, cards) = (self.cores.to_string(), self.cards.to_string());
        let mut requests = vec![("cpu", &*cores)];
        let place = NODES.iter().find(|(card, ..)| Some(*card) == self.card);
        requests.extend(place.map(|(.., resource)| (*resource, &*cards)));
        let mut one = task(&format!("{name}-0"), name, &requests);
        if let Some((card, ..)) = place {
            one.annotations
                .insert("volcano.sh/card.name".to_owned(), (*card).to_owned());
        }
        task_on_node(
            one,
            pb::TaskStatus::Running,
            place.map_or("somewhere", |(_, node, ..)| node),
        )
    }

    /// True if a row reserves the whole demand, a choice of cards on one of them.
    pub(super) fn is_covered_by(self, reserved: &[pb::Amount]) -> bool {
        let has = |resource: &str, wanted: u32| {
            let held = reserved.iter().find(|amount| amount.resource == resource);
            held.is_some_and(|amount| amount.value >= f64::from(wanted) * 1_000.0)
        };
        has("cpu", self.cores)
            && self
                .card
                .is_none_or(|card| card.split('|').any(|one| has(one, self.cards)))
    }
}

/// Queue with a quota of cards.
pub(super) fn with_quota(mut queue: pb::Queue) -> pb::Queue {
    let quota: Vec<String> = QUOTA
        .iter()
        .map(|(card, cards)| format!(r#""{card}": {cards}"#))
        .collect();
    queue
        .annotations
        .insert("volcano.sh/card.quota".to_owned(), format!("{{{}}}", quota.join(", ")));
    queue
}

/// Nodes that have cards.
pub(super) fn cards_there() -> Vec<pb::Node> {
    let labelled = |(_, name, product, resource): &(&str, &str, &str, &str)| {
        let mut node = node(name, &[(*resource, "1000"), ("cpu", "1000")]);
        let labels = [("product", *product), ("count", "8"), ("memory", "81920")];
        node.labels = labels
            .map(|(key, value)| (format!("nvidia.com/gpu.{key}"), value.to_owned()))
            .into();
        node
    };
    NODES.iter().map(labelled).collect()
}

/// Core or card of a queue that is promised beyond its capacity, if there is one. A job that may use either of two
/// cards needs capacity on both together.
pub(super) fn overdrawn(held: impl Iterator<Item = JobDemand>) -> Option<String> {
    let (mut cores, mut cards) = (0, BTreeMap::new());
    for wish in held {
        cores += wish.cores;
        *cards.entry(wish.card.unwrap_or_default()).or_insert(0) += wish.cards;
    }
    let of = |card: &str| cards.get(card).copied().unwrap_or(0);
    let both = ["A100", "H100"].map(of).iter().sum::<u32>() + of(EITHER);
    let room = QUOTA
        .iter()
        .filter(|(card, _)| EITHER.contains(*card))
        .map(|(_, most)| most)
        .sum();
    let mut all = vec![("cores", cores, CAPABILITY), (EITHER, both, room)];
    all.extend(QUOTA.iter().map(|(card, most)| (*card, of(card), *most)));
    let over = all.into_iter().find(|(_, held, most)| held > most);
    over.map(|(what, held, most)| format!("{held} of {most} `{what}` are promised"))
}
