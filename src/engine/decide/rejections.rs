//! Verdicts of filters, gathered by reason.

use super::candidates::Part;
use super::question::{Detail, Question, Rejection};
use super::room::node_state_reason;
use crate::engine::model::{CHUNK, Mask, Slot, View};
use crate::engine::plugin::{Figure, Filterer, Reason, Verdicts};

/// One filter, and whom it has refused so far.
struct Stage<'a> {
    filterer: Box<dyn Filterer + 'a>,
    /// By number of the reason.
    refused: Vec<Refused>,
}

/// Nodes refused for one reason.
#[derive(Clone, Default)]
struct Refused {
    count: u32,
    /// By slot, if anybody wants to know.
    slots: Vec<Slot>,
}

impl Refused {
    fn of(slots: &[Slot]) -> Self {
        Self {
            count: u32::try_from(slots.len()).unwrap_or(u32::MAX),
            slots: slots.to_vec(),
        }
    }
}

/// Filters at work on one task class.
pub(super) struct Tally<'a> {
    stages: Vec<Stage<'a>>,
    verdicts: Verdicts,
    by_name: bool,
}

impl<'a> Tally<'a> {
    /// Nobody is refused yet.
    pub(super) fn new(filterers: Vec<Box<dyn Filterer + 'a>>, question: &Question) -> Self {
        let stage = |filterer| Stage {
            filterer,
            refused: Vec::new(),
        };
        Self {
            stages: filterers.into_iter().map(stage).collect(),
            verdicts: Verdicts::default(),
            by_name: question.detail > Detail::Counts,
        }
    }

    /// All filters, in order, for a reduction.
    pub(super) fn stages(&self) -> std::ops::Range<usize> {
        0..self.stages.len()
    }

    /// Asks one filter about nodes, and notes whom it refuses.
    pub(super) fn ask(&mut self, stage: usize, part: &Part<'_>, among: &Mask) -> Mask {
        let Some(stage) = self.stages.get_mut(stage) else {
            return Mask::NONE;
        };
        let refused = stage.filterer.filter(part.chunk, among, &mut self.verdicts).and(among);
        for (number, nodes) in self.verdicts.drain() {
            let (number, nodes) = (usize::from(number), nodes.and(among));
            if stage.refused.len() <= number {
                stage.refused.resize(number + 1, Refused::default());
            }
            if let Some(refused) = stage.refused.get_mut(number) {
                refused.count += nodes.count();
                if self.by_name {
                    part.push_slots(&nodes, &mut refused.slots);
                }
            }
        }
        refused
    }

    /// One rejection per distinct reason, sorted; `absent` are slots without a node.
    pub(super) fn rejections(self, view: &View, absent: &[Slot], question: &Question) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        if !absent.is_empty() {
            let reason = node_state_reason("NodeNotFound", "there is no such node");
            rejections.push(rejection(view, reason, Refused::of(absent), question, &|_| Vec::new()));
        }
        for stage in self.stages {
            for (number, refused) in (0_u16..).zip(stage.refused) {
                if refused.count == 0 {
                    continue;
                }
                let figures = |slot: Slot| {
                    let chunk = view.chunks().get(slot as usize / CHUNK);
                    chunk.map_or_else(Vec::new, |chunk| {
                        stage.filterer.figures(chunk, slot as usize % CHUNK, number)
                    })
                };
                let reason = stage.filterer.reason(number);
                rejections.push(rejection(view, reason, refused, question, &figures));
            }
        }
        rejections.sort_by(|a, b| key(&a.reason).cmp(&key(&b.reason)));
        rejections
    }
}

fn key(reason: &Reason) -> (&str, &str, &str, &str, u8) {
    let Reason {
        plugin,
        code,
        message,
        resolution,
        resource,
    } = reason;
    (plugin, code, resource, message, *resolution as u8)
}

fn rejection(
    view: &View,
    reason: Reason,
    Refused { count, slots: nodes }: Refused,
    question: &Question,
    figures: &dyn Fn(Slot) -> Vec<Figure>,
) -> Rejection {
    let mut samples = Vec::new();
    if question.detail != Detail::Counts && question.samples > 0 {
        let rank = |slot: &Slot| (view.ranks().get(*slot as usize).copied().unwrap_or(u32::MAX), *slot);
        let mut first = nodes.clone();
        if question.samples < first.len() {
            first.select_nth_unstable_by_key(question.samples, rank);
            first.truncate(question.samples);
        }
        first.sort_unstable_by_key(rank);
        samples = first.into_iter().map(|slot| (slot, figures(slot))).collect();
    }
    Rejection {
        reason,
        count,
        nodes: if question.detail == Detail::Nodes {
            nodes
        } else {
            Vec::new()
        },
        samples,
    }
}
