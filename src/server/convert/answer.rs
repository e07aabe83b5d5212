//! Answers of Filter and Score, with nodes named as the question wished.

use std::sync::Arc;

use crate::engine::decide::{Answered, Detail, FilterVerdict, Items, Rejection, ScorePart, ScoreSheet};
use crate::engine::model::{Problem, Slot, View};
use crate::engine::plugin::{Figure, Reason, Resolution};
use crate::server::pb;

use super::batch::{problem, problems};
use super::nodes::{Encoding, Writer, name_of};

/// What the answer of Score depends on besides the scores.
#[derive(Clone, Copy, Debug)]
pub struct ScoreShape {
    /// How nodes are named.
    pub encoding: Encoding,
    /// The nodes are in a stated order: best first, or that of the candidates.
    pub limited: bool,
    /// Candidates were given.
    pub candidates: bool,
    /// How much of the filter's verdict is wanted.
    pub detail: Detail,
}

/// The answer of Filter.
pub fn filter(items: &Items<FilterVerdict>, view: &View, encoding: Encoding, detail: Detail) -> pb::FilterAnswer {
    let writer = Writer { view, encoding };
    let items = each(
        items,
        |verdict| filter_item(verdict, writer, detail, true),
        |problem| pb::FilterItem {
            problem: Some(problem),
            ..pb::FilterItem::default()
        },
        |item, warnings| item.warnings = warnings,
    );
    pb::FilterAnswer { items }
}

/// The answer of Score.
pub fn score(items: &Items<ScoreSheet>, view: &View, shape: ScoreShape) -> pb::ScoreAnswer {
    let writer = Writer {
        view,
        encoding: shape.encoding,
    };
    let items = each(
        items,
        |sheet| score_item(sheet, writer, shape),
        |problem| pb::ScoreItem {
            problem: Some(problem),
            ..pb::ScoreItem::default()
        },
        |item, warnings| item.warnings = warnings,
    );
    pb::ScoreAnswer { items }
}

/// Writes each item once per class: neighbours that share an answer share its encoding, too.
fn each<T, Item: Clone>(
    items: &Items<T>,
    write: impl Fn(&T) -> Item,
    refuse: impl Fn(pb::Problem) -> Item,
    warn: impl Fn(&mut Item, Vec<pb::Problem>),
) -> Vec<Item> {
    let mut last: Option<(&Arc<T>, usize)> = None;
    let mut written: Vec<Item> = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let place = format!("tasks[{i}]");
        let item = match item {
            Err(found) => refuse(problem(&found.clone().within(&place))),
            Ok(Answered { answer, warnings }) => {
                let same = last.filter(|(other, _)| Arc::ptr_eq(other, answer));
                let same = same.and_then(|(_, at)| written.get(at).cloned());
                let mut item = same.unwrap_or_else(|| write(answer));
                last = Some((answer, i));
                let warnings: Vec<Problem> = warnings.iter().map(|found| found.clone().within(&place)).collect();
                warn(&mut item, problems(&warnings));
                item
            }
        };
        written.push(item);
    }
    written
}

fn filter_item(verdict: &FilterVerdict, writer: Writer<'_>, detail: Detail, with_fit: bool) -> pb::FilterItem {
    let FilterVerdict {
        fit,
        fit_count,
        rejections,
    } = verdict;
    pb::FilterItem {
        problem: None,
        fit: with_fit.then(|| writer.set(fit)),
        fit_count: *fit_count,
        rejections: rejections
            .iter()
            .map(|rejection| self::rejection(rejection, writer, detail))
            .collect(),
        warnings: Vec::new(),
    }
}

/// Nodes refused for one reason.
pub(super) fn rejection(rejection: &Rejection, writer: Writer<'_>, detail: Detail) -> pb::Rejection {
    let Rejection {
        reason,
        nodes,
        count,
        samples,
    } = rejection;
    let sample = |(slot, figures): &(Slot, Vec<Figure>)| pb::RejectedNode {
        node: name_of(writer.view, *slot).to_owned(),
        figures: figures.iter().map(figure).collect(),
    };
    pb::Rejection {
        reason: Some(self::reason(reason)),
        count: *count,
        nodes: (detail >= Detail::Nodes).then(|| writer.set(nodes)),
        samples: samples.iter().map(sample).collect(),
    }
}

/// A reason without its figures.
pub(super) fn reason(reason: &Reason) -> pb::Reason {
    let Reason {
        plugin,
        code,
        message,
        resolution,
        resource,
    } = reason;
    let resolution = match resolution {
        Resolution::Unschedulable => pb::Resolution::Unschedulable,
        Resolution::Unresolvable => pb::Resolution::Unresolvable,
    };
    pb::Reason {
        plugin: plugin.to_string(),
        code: (*code).to_owned(),
        message: message.clone(),
        resolution: resolution.into(),
        resource: resource.to_string(),
        figures: Vec::new(),
    }
}

/// A figure.
pub(super) fn figure(figure: &Figure) -> pb::Figure {
    let Figure { name, value, unit } = figure;
    pb::Figure {
        name: name.clone(),
        value: *value,
        unit: (*unit).to_owned(),
    }
}

fn score_item(sheet: &ScoreSheet, writer: Writer<'_>, shape: ScoreShape) -> pb::ScoreItem {
    let ScoreSheet {
        nodes,
        totals,
        parts,
        filter,
    } = sheet;
    // A bitmap has no order of its own, and without candidates names come sorted.
    let sorted = !shape.limited && (shape.encoding == Encoding::Slots || !shape.candidates);
    let in_order = shape.encoding == Encoding::Slots && nodes.is_sorted();
    let order = (sorted && !in_order).then(|| writer.order(nodes));
    let column = |scores: &[f64]| match &order {
        Some(order) => order.iter().filter_map(|i| scores.get(*i).copied()).collect(),
        None => scores.to_vec(),
    };
    let part = |part: &ScorePart| pb::ScorePart {
        plugin: part.plugin.to_string(),
        part: part.part.to_owned(),
        scores: column(&part.scores),
    };
    let with_fit = shape.detail >= Detail::Nodes;
    pb::ScoreItem {
        problem: None,
        nodes: Some(if sorted { writer.set(nodes) } else { writer.list(nodes) }),
        totals: column(totals),
        parts: parts.iter().map(part).collect(),
        filter: filter
            .as_ref()
            .map(|verdict| filter_item(verdict, writer, shape.detail, with_fit)),
        warnings: Vec::new(),
    }
}
