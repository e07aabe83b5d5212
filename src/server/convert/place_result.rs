//! Result of Place as the wire has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::server::pb;
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::decide::{FilterDetail, PlaceBlocker, PlaceQuery, PlaceResult, PlacedGroup};
use pumice_engine::devices::{DeviceMask, device_indices};
use pumice_engine::model::{NodeSlot, Problem};

use super::batch::{problem, problems, within_item};
use super::nodes::{NodeEncoding, NodeSetWriter};
use super::not_evaluated::EvaluatedState;
use super::result;

/// Converts the placements of Place to the wire.
pub(crate) fn place_result(
    query: &PlaceQuery,
    placing: &PlaceResult,
    state: EvaluatedState<'_>,
    encoding: NodeEncoding,
) -> pb::PlaceResult {
    let PlaceResult {
        placed,
        groups,
        placed_count: found,
        min_count: needed,
        blockers,
    } = placing;
    let writer = NodeSetWriter::new(state.cluster_state, encoding);
    let groups = groups.iter().enumerate();
    pb::PlaceResult {
        placed: *placed,
        groups: groups
            .map(|(number, group)| {
                let mut written = placed_group(number, group, writer);
                if let Some(Ok(asked)) = query.groups.get(number) {
                    written.not_evaluated = state.of_group(asked, group.as_ref().ok());
                }
                written
            })
            .collect(),
        blockers: self::blockers(blockers, writer),
        placed_count: to_u32(*found),
        min_count: to_u32(*needed),
    }
}

fn device_set(devices: DeviceMask) -> pb::DeviceSet {
    pb::DeviceSet {
        numbers: device_indices(devices).collect(),
    }
}

fn placed_group(number: usize, group: &Result<PlacedGroup, Problem>, writer: NodeSetWriter<'_>) -> pb::PlacedGroup {
    let place = format!("groups[{number}]");
    let PlacedGroup {
        allocated,
        pipelined,
        cards,
        devices,
        blockers,
        warnings,
    } = match group {
        Ok(group) => group,
        Err(found) => {
            return pb::PlacedGroup {
                problem: Some(problem(&within_item(found, &place))),
                ..pb::PlacedGroup::default()
            };
        }
    };
    pb::PlacedGroup {
        problem: None,
        allocated: Some(writer.list(allocated)),
        pipelined: Some(writer.list(pipelined)),
        cards: cards.iter().map(ToString::to_string).collect(),
        devices: devices.iter().copied().map(device_set).collect(),
        blockers: self::blockers(blockers, writer),
        warnings: problems(warnings.iter().map(|found| within_item(found, &place))),
        not_evaluated: Vec::new(),
    }
}

fn blockers(blockers: &[PlaceBlocker], writer: NodeSetWriter<'_>) -> Vec<pb::Rejection> {
    let one = |PlaceBlocker {
                   rejection,
                   measurements,
               }: &PlaceBlocker| {
        let mut written = result::rejection(rejection, writer, FilterDetail::Samples);
        if let Some(reason) = &mut written.reason {
            reason.measurements = measurements.iter().map(result::measurement).collect();
        }
        written
    };
    blockers.iter().map(one).collect()
}

pub(super) fn to_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Result of a placement that is held: the nodes, cards and devices of its tasks, by the groups of the request. `min_count`: of
/// this many tasks of the job. `None`: the held tasks are not the first ones of their groups, or there is none.
pub(crate) fn held_result(
    groups: &[pb::TaskGroup],
    held: &[TaskPlacement],
    min_count: usize,
    writer: NodeSetWriter<'_>,
) -> Option<pb::PlaceResult> {
    let by_task: BTreeMap<&str, &TaskPlacement> = held.iter().map(|own| (&*own.task, own)).collect();
    let mut placed_count = 0;
    let mut written = Vec::with_capacity(groups.len());
    for group in groups {
        let own: Vec<Option<&&TaskPlacement>> = group.names.iter().map(|name| by_task.get(&**name)).collect();
        let first: Vec<&TaskPlacement> = own.iter().map_while(|one| one.copied()).collect();
        if first.len() < own.iter().flatten().count() {
            return None;
        }
        let slot = |one: &&TaskPlacement| writer.state.slot_of(&one.node);
        let slots: Vec<NodeSlot> = first.iter().filter_map(slot).collect();
        if slots.len() < first.len() {
            return None;
        }
        placed_count += first.len();
        let has_cards = first.iter().any(|one| !one.card.is_empty());
        let has_devices = first.iter().any(|one| one.devices != 0);
        let cards: Vec<Arc<str>> = first.iter().map(|one| Arc::clone(&one.card)).collect();
        let devices: Vec<DeviceMask> = first.iter().map(|one| one.devices).collect();
        let group = PlacedGroup {
            allocated: slots,
            cards: if has_cards { cards } else { Vec::new() },
            devices: if has_devices { devices } else { Vec::new() },
            ..PlacedGroup::default()
        };
        written.push(placed_group(written.len(), &Ok(group), writer));
    }
    (placed_count > 0).then(|| pb::PlaceResult {
        placed: true,
        groups: written,
        blockers: Vec::new(),
        placed_count: to_u32(placed_count),
        min_count: to_u32(min_count),
    })
}
