//! Results of Filter and Score, with nodes in the requested encoding.

use std::sync::Arc;

use crate::server::pb;
use pumice_engine::decide::{
    FilterDetail, FilterVerdict, NodeQuery, RejectionGroup, ScorePart, ScoreQuery, ScoreSheet, TaskResult, TaskResults,
};
use pumice_engine::model::NodeSlot;
use pumice_engine::plugin::{Measurement, Reason, Resolution};

use super::batch::{problem, problems};
use super::nodes::{NodeEncoding, NodeSetWriter, name_of};
use super::not_evaluated::EvaluatedState;

/// Converts the verdicts of Filter to the wire.
pub(crate) fn filter_result(
    query: &NodeQuery,
    items: TaskResults<FilterVerdict>,
    state: EvaluatedState<'_>,
    encoding: NodeEncoding,
) -> pb::FilterResult {
    let writer = NodeSetWriter::new(state.cluster_state, encoding);
    let items = encode_items(
        items,
        |verdict| {
            let mut item = filter_item(&verdict, writer, query.detail, true);
            item.not_evaluated = state.of_nodes(&verdict.fit);
            item
        },
        |problem| pb::FilterItem {
            problem: Some(problem),
            ..pb::FilterItem::default()
        },
        |item, number, warnings| {
            item.warnings = warnings;
            state.put_task(&mut item.not_evaluated, query, number);
        },
    );
    pb::FilterResult { items }
}

/// Converts the scores of Score to the wire.
pub(crate) fn score_result(
    query: &ScoreQuery,
    items: TaskResults<ScoreSheet>,
    state: EvaluatedState<'_>,
    encoding: NodeEncoding,
) -> pb::ScoreResult {
    let writer = NodeSetWriter::new(state.cluster_state, encoding);
    let items = encode_items(
        items,
        |sheet| {
            let not_evaluated = state.of_nodes(&sheet.nodes);
            pb::ScoreItem {
                not_evaluated,
                ..score_item(Arc::unwrap_or_clone(sheet), writer, query)
            }
        },
        |problem| pb::ScoreItem {
            problem: Some(problem),
            ..pb::ScoreItem::default()
        },
        |item, number, warnings| {
            item.warnings = warnings;
            state.put_task(&mut item.not_evaluated, &query.node_query, number);
        },
    );
    pb::ScoreResult { items }
}

/// Encodes each item once per class: neighbours that share a result share its encoding. A result is dropped after its
/// encoding, which avoids a second copy of a large response in memory.
fn encode_items<T, Item: Clone>(
    items: TaskResults<T>,
    write: impl Fn(Arc<T>) -> Item,
    refuse: impl Fn(pb::Problem) -> Item,
    finish: impl Fn(&mut Item, usize, Vec<pb::Problem>),
) -> Vec<Item> {
    let mut last: Option<(Arc<T>, usize)> = None;
    let mut written: Vec<Item> = Vec::with_capacity(items.len());
    for (i, item) in items.into_iter().enumerate() {
        let place = format!("tasks[{i}]");
        let item = match item {
            Err(found) => refuse(problem(&found.within(&place))),
            Ok(TaskResult { result, warnings }) => {
                let same = last.as_ref().filter(|(other, _)| Arc::ptr_eq(other, &result));
                let same = same.and_then(|(_, at)| written.get(*at).cloned());
                last = (Arc::strong_count(&result) > 1).then(|| (Arc::clone(&result), i));
                let mut item = same.unwrap_or_else(|| write(result));
                let warnings = warnings.into_iter().map(|found| found.within(&place));
                finish(&mut item, i, problems(warnings));
                item
            }
        };
        written.push(item);
    }
    written
}

fn filter_item(
    verdict: &FilterVerdict,
    writer: NodeSetWriter<'_>,
    detail: FilterDetail,
    with_fit: bool,
) -> pb::FilterItem {
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
        not_evaluated: Vec::new(),
    }
}

/// Nodes rejected for one reason.
pub(super) fn rejection(rejection: &RejectionGroup, writer: NodeSetWriter<'_>, detail: FilterDetail) -> pb::Rejection {
    let RejectionGroup {
        reason,
        nodes,
        count,
        samples,
    } = rejection;
    let sample = |(slot, measurements): &(NodeSlot, Vec<Measurement>)| pb::RejectedNode {
        node: name_of(writer.state, *slot).to_owned(),
        measurements: measurements.iter().map(measurement).collect(),
    };
    pb::Rejection {
        reason: Some(self::reason(reason)),
        count: *count,
        nodes: (detail >= FilterDetail::Nodes).then(|| writer.set(nodes)),
        samples: samples.iter().map(sample).collect(),
    }
}

/// Reason without its measurements.
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
        measurements: Vec::new(),
    }
}

/// Measurement as the wire has it.
pub(super) fn measurement(measurement: &Measurement) -> pb::Measurement {
    let Measurement { name, value, unit } = measurement;
    pb::Measurement {
        name: name.clone(),
        value: *value,
        unit: (*unit).to_owned(),
    }
}

fn score_item(sheet: ScoreSheet, writer: NodeSetWriter<'_>, query: &ScoreQuery) -> pb::ScoreItem {
    let ScoreSheet {
        nodes,
        totals,
        parts,
        filter,
        independent,
        ahead,
    } = sheet;
    let (nodes, totals, parts) = score_columns((nodes, totals, parts), writer, query);
    let ahead = ahead.into_iter().map(|sheet| {
        let (nodes, totals, parts) = score_columns((sheet.nodes, sheet.totals, sheet.parts), writer, query);
        pb::ScoresAhead {
            nodes: Some(nodes),
            totals,
            parts,
        }
    });
    let detail = query.node_query.detail;
    let with_fit = detail >= FilterDetail::Nodes;
    pb::ScoreItem {
        problem: None,
        nodes: Some(nodes),
        totals,
        parts,
        filter: filter
            .as_ref()
            .map(|verdict| filter_item(verdict, writer, detail, with_fit)),
        warnings: Vec::new(),
        not_evaluated: Vec::new(),
        independent,
        ahead: ahead.collect(),
    }
}

/// Scored nodes, totals and parts in the order that the response states.
fn score_columns(
    (nodes, totals, parts): (Vec<NodeSlot>, Vec<f64>, Vec<ScorePart>),
    writer: NodeSetWriter<'_>,
    query: &ScoreQuery,
) -> (pb::NodeSet, Vec<f64>, Vec<pb::ScorePart>) {
    // With a limit the best come first. A bitmap has no order of its own, and without candidates names are sorted.
    let by_slot = writer.encoding == NodeEncoding::Slots;
    let sorted = query.limit.is_none() && (by_slot || query.node_query.candidates.is_none());
    let in_order = by_slot && nodes.is_sorted();
    let order = (sorted && !in_order).then(|| writer.order(&nodes));
    let column = |scores: Vec<f64>| match &order {
        Some(order) => order.iter().filter_map(|i| scores.get(*i).copied()).collect(),
        // Room for nodes that were rejected is not kept for as long as the message.
        None if scores.len() < scores.capacity() / 2 => scores.as_slice().to_vec(),
        None => scores,
    };
    let part = |part: ScorePart| pb::ScorePart {
        plugin: part.plugin.to_string(),
        part: part.part.to_owned(),
        scores: column(part.scores),
    };
    let nodes = if sorted {
        writer.set(&nodes)
    } else {
        writer.list(&nodes)
    };
    (nodes, column(totals), parts.into_iter().map(part).collect())
}
