//! Need of one task: nothing asked for goes uncounted.
//!
//! - Several acceptable cards are each resolved for themselves; unknown ones are passed over.
//! - A card's resource that the annotation does not cover counts, too: as any card of that resource.
//! - On a node, what the node has counts, whatever the annotation says.
//! - Cpu and memory count even if the cards cannot be found out.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cards::{CARD_NAME_ANNOTATION, NodeCards};
use crate::model::{ResourceId, ResourceTable, TaskRecord, TaskStatus, find_text};
use crate::plugins::capacity_card::{
    CARD_SEPARATOR, CardRequestError, ClusterCards, QuotaAmounts, TaskRequest, normalize_choice, requested_milli,
};

/// Acceptable cards, one of which must do, each with its number in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CardDemand {
    /// Best first; not empty.
    pub alternatives: SmallVec<[(Arc<str>, i128); 1]>,
}

impl CardDemand {
    fn single(card: &Arc<str>, amount: i128) -> Self {
        Self {
            alternatives: SmallVec::from_iter([(Arc::clone(card), amount)]),
        }
    }

    /// Leaves only these alternatives, unless there are none.
    pub(super) fn retain_any(&mut self, which: impl Fn(&str) -> bool) -> bool {
        let any = self.alternatives.iter().any(|(card, _)| which(card));
        if any {
            self.alternatives.retain(|(card, _)| which(card));
        }
        any
    }

    /// True if any of several cards would do.
    pub(super) fn is_choice(&self) -> bool {
        self.alternatives.len() > 1
    }

    /// The names, joined.
    pub(super) fn name(&self) -> Arc<str> {
        if let [(only, _)] = self.alternatives.as_slice() {
            return Arc::clone(only);
        }
        let names: Vec<&str> = self.alternatives.iter().map(|(name, _)| &**name).collect();
        Arc::from(names.join("|"))
    }

    /// The largest number.
    pub(super) fn max_amount(&self) -> i128 {
        self.alternatives.iter().map(|(_, amount)| *amount).max().unwrap_or(0)
    }
}

/// Cpu, memory and cards that one task is charged with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TaskNeed {
    /// Milli-cores; 0 if they are not charged.
    pub cpu: i128,
    /// Bytes; 0 if they are not charged.
    pub memory: i128,
    /// Cards that the task needs, all of them.
    pub demands: SmallVec<[CardDemand; 1]>,
    /// Why the annotated card could not be found out; nothing new is given to such a task.
    pub request_error: Option<CardRequestError>,
}

/// Context that the needs of tasks depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeedContext<'a> {
    /// The cards of the cluster.
    pub cards: &'a ClusterCards,
    /// Names of resources.
    pub resources: &'a ResourceTable,
    /// Cpu and memory of tasks with cards are not charged.
    pub unlimited_cpu_memory: bool,
    /// Tasks of one job may use different cards of a choice.
    pub mixed: bool,
}

impl TaskNeed {
    /// Need of a task, wherever it will run.
    pub(super) fn of<'t>(context: NeedContext<'_>, task: impl Into<TaskRequest<'t>>) -> Self {
        Self::build(context, task.into(), None, "")
    }

    /// Need of a task on a node. `card`: the one that it was given there; empty: the one that its record names, or the
    /// first that the node has.
    pub(super) fn on_node(context: NeedContext<'_>, task: &TaskRecord, node: &str, card: &str) -> Self {
        let card = if card.is_empty() { &*task.card } else { card };
        Self::build(context, task.into(), context.cards.node_cards(node), card)
    }

    fn build(context: NeedContext<'_>, task: TaskRequest<'_>, node: Option<&NodeCards>, card: &str) -> Self {
        let mut need = Self::default();
        let named = find_text(task.annotations, CARD_NAME_ANNOTATION)
            .map(normalize_choice)
            .filter(|name| !name.is_empty());
        let mut covered: SmallVec<[ResourceId; 2]> = SmallVec::new();
        if let Some(named) = &named {
            let alternatives = resolve_alternatives(context.cards, task, named, &mut covered);
            match alternatives {
                Ok(alternatives) => need
                    .demands
                    .push(resolve_on_node(alternatives, task, node, card, &mut covered)),
                Err(problem) => {
                    if matches!(problem, CardRequestError::UnknownCard { .. }) {
                        need.demands
                            .extend(by_own_name(context, task, named, node, &mut covered));
                    }
                    need.request_error = Some(problem);
                }
            }
        }
        need.add_unnamed(context.cards, task, node, &covered);
        if let (Some(named), true) = (&named, need.demands.is_empty() && need.request_error.is_some()) {
            need.demands
                .extend(only_extended_resource(context.resources, task, named));
        }
        need.demands.retain(|demand| demand.max_amount() > 0);
        if !context.unlimited_cpu_memory || need.demands.is_empty() {
            need.cpu = task.requests.get(ResourceId::CPU).unwrap_or(0).into();
            need.memory = task.requests.get(ResourceId::MEMORY).unwrap_or(0).into();
        }
        need
    }

    /// Cards' resources that are asked for and that no annotation covers.
    fn add_unnamed(
        &mut self,
        cards: &ClusterCards,
        task: TaskRequest<'_>,
        node: Option<&NodeCards>,
        covered: &[ResourceId],
    ) {
        let mut ids: SmallVec<[ResourceId; 8]> = task.requested_resources().collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let kinds = cards.cards_of_resource(id);
            let on_node = node.and_then(|node| node.cards.iter().find(|(_, card)| card.resource == id));
            if covered.contains(&id) || (kinds.is_empty() && on_node.is_none()) {
                continue;
            }
            let amount = requested_milli(task, id).unwrap_or(0);
            self.demands.push(match on_node {
                Some((card, _)) => CardDemand::single(card, amount),
                None => CardDemand {
                    alternatives: kinds.iter().map(|card| (Arc::clone(card), amount)).collect(),
                },
            });
        }
    }

    /// True if it asks for no cards, and for none that cannot be found out.
    pub(super) fn is_plain(&self) -> bool {
        self.request_error.is_none() && self.demands.is_empty()
    }

    /// Amounts of the need, cards by their joined names.
    pub(super) fn amounts(&self) -> QuotaAmounts {
        let mut counts = QuotaAmounts::new(self.cpu, self.memory);
        for demand in &self.demands {
            counts.add_card(&demand.name(), demand.max_amount());
        }
        counts
    }
}

/// The alternatives of an annotation that some node has and the task asks for.
fn resolve_alternatives(
    cards: &ClusterCards,
    task: TaskRequest<'_>,
    named: &str,
    covered: &mut SmallVec<[ResourceId; 2]>,
) -> Result<CardDemand, CardRequestError> {
    let (mut demand, mut problem) = (CardDemand::default(), None);
    for name in named.split(CARD_SEPARATOR) {
        let Some((id, resource)) = cards.resource(name) else {
            problem.get_or_insert(CardRequestError::UnknownCard { card: name.to_owned() });
            continue;
        };
        covered.push(id);
        if let Some(amount) = requested_milli(task, id) {
            demand.alternatives.push((Arc::from(name), amount));
            continue;
        }
        // Said before a card that is unknown: here the annotation and the requests contradict each other.
        problem = Some(CardRequestError::NotRequested {
            card: name.to_owned(),
            resource: Arc::clone(resource),
        });
    }
    match problem {
        Some(problem) if demand.alternatives.is_empty() => Err(problem),
        _ => Ok(demand),
    }
}

/// On a node: the card given, else the first that the node has, else what the node has for the resource asked for.
fn resolve_on_node(
    demand: CardDemand,
    task: TaskRequest<'_>,
    node: Option<&NodeCards>,
    given: &str,
    covered: &mut SmallVec<[ResourceId; 2]>,
) -> CardDemand {
    let Some(node) = node else { return demand };
    let names = || demand.alternatives.iter().map(|(name, _)| name);
    let given = names().find(|name| ***name == *given && node.cards.contains_key(&***name));
    let offered = given.or_else(|| names().find(|name| node.cards.contains_key(&***name)));
    if let Some((name, on_node)) = offered.and_then(|name| node.cards.get_key_value(name)) {
        covered.push(on_node.resource);
        let amount = requested_milli(task, on_node.resource).unwrap_or_else(|| demand.max_amount());
        return CardDemand::single(name, amount);
    }
    let same = node
        .cards
        .iter()
        .find(|(_, on_node)| covered.contains(&on_node.resource));
    let same =
        same.and_then(|(name, on_node)| Some(CardDemand::single(name, requested_milli(task, on_node.resource)?)));
    same.unwrap_or_else(|| CardDemand {
        alternatives: demand.alternatives.into_iter().take(1).collect(),
    })
}

/// A card that no node has (any more): counted by the only extended resource that the task asks for, if it is the only.
fn only_extended_resource(resources: &ResourceTable, task: TaskRequest<'_>, named: &str) -> Option<CardDemand> {
    let only = only_extended(resources, task)?;
    let card = Arc::from(named.split(CARD_SEPARATOR).next()?);
    Some(CardDemand::single(&card, requested_milli(task, only)?))
}

/// The only extended resource that a task names.
fn only_extended(resources: &ResourceTable, task: TaskRequest<'_>) -> Option<ResourceId> {
    let mut ids = task
        .requested_resources()
        .filter(|id| resources.name(*id).contains('/'));
    let first = ids.next()?;
    ids.all(|other| other == first).then_some(first)
}

/// A card that no node has, under its own name: what the task asks for it is never counted as cards of another name. On
/// a node that has cards of that resource, what the node has counts.
fn by_own_name(
    context: NeedContext<'_>,
    task: TaskRequest<'_>,
    named: &str,
    node: Option<&NodeCards>,
    covered: &mut SmallVec<[ResourceId; 2]>,
) -> Option<CardDemand> {
    let of_cards = |id: &ResourceId| !context.cards.cards_of_resource(*id).is_empty();
    let on_node = |id: ResourceId| node.is_some_and(|node| node.cards.values().any(|card| card.resource == id));
    let mut ids: SmallVec<[ResourceId; 2]> = match only_extended(context.resources, task) {
        Some(only) => SmallVec::from_iter([only]),
        None => task.requested_resources().filter(of_cards).collect(),
    };
    ids.retain(|id| !on_node(*id));
    covered.extend(ids.iter().copied());
    let most = ids.iter().filter_map(|id| requested_milli(task, *id)).max()?;
    Some(CardDemand::single(
        &Arc::from(named.split(CARD_SEPARATOR).next()?),
        most,
    ))
}

/// True if a task in this status counts as holding what it needs.
pub(super) fn holds_resources(status: TaskStatus) -> bool {
    status.is_allocated() || status == TaskStatus::Pipelined
}
