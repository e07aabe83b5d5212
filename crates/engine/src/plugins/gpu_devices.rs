//! `gpu-devices`: filters nodes by their free devices, and picks the devices that a task gets.

use std::sync::Arc;

use super::effective_values::{map_entry, value_map};
use crate::devices::{DeviceNode, DevicePick, DeviceTask};
use crate::model::constraints::{ConstraintKind, ConstraintSet};
use crate::model::{ChunkDevices, DeviceQuery, NodeChunk, NodeMask, TaskClass};
use crate::plugin::{
    ChunkRejections, HookNumbers, Measurement, NodeFilter, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook,
    Reason, Resolution,
};
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["filter"],
    ..PluginDef::new("gpu-devices", compile)
};

const PICK: &str = "pick";
const PICKS: [(&str, DevicePick); 4] = [
    ("score", DevicePick::Score),
    ("tightest", DevicePick::Tightest),
    ("widest", DevicePick::Widest),
    ("first", DevicePick::First),
];

/// Compiled plugin.
#[derive(Debug)]
struct DeviceFit {
    pick: DevicePick,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &[PICK], |_| false);
    let pick = arguments.get(PICK).filter(|argument| !argument.is_null());
    let pick = pick.and_then(|argument| {
        let text = argument.decode_string(report)?;
        let found = PICKS.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let names = PICKS.map(|(name, _)| name).join(", ");
            report.error(
                ErrorCode::ArgumentInvalid,
                &argument.at(),
                format!("expected one of {names}; found `{text}`"),
            );
        }
        found.map(|(_, pick)| *pick)
    });
    Arc::new(DeviceFit {
        pick: pick.unwrap_or_default(),
    })
}

impl Plugin for DeviceFit {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter: true,
            devices: true,
            filter_evaluates: ConstraintSet::NONE.with(ConstraintKind::Devices),
            device_pick: Some(self.pick),
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        let name = PICKS
            .iter()
            .find(|(_, pick)| *pick == self.pick)
            .map_or("score", |(name, _)| name);
        value_map([map_entry(PICK, YamlValue::String(name.to_owned()))])
    }

    fn prepare_filter<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        let request = DeviceQuery::of(class);
        if !request.asks() {
            return Ok(None);
        }
        let after_release = context.after_release;
        Ok(Some(Box::new(DeviceFilter { request, after_release })))
    }
}

struct DeviceFilter {
    request: DeviceQuery,
    after_release: bool,
}

/// Reasons of the filter, in the order in which a node is compared with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misfit {
    NoDevices,
    OtherModel,
    TooFewFree,
    DeviceTaken,
}

impl Misfit {
    const ALL: [Self; 4] = [Self::NoDevices, Self::OtherModel, Self::TooFewFree, Self::DeviceTaken];
}

impl DeviceFilter {
    fn misfit(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> Option<Misfit> {
        let named = self.request.named_devices();
        let is_free = |device: u32| node.free.get(device as usize).is_some_and(|free| *free >= task.milli);
        if node.free.is_empty() {
            Some(Misfit::NoDevices)
        } else if !task.accepts(node.model) {
            Some(Misfit::OtherModel)
        } else if !task.fits(node) {
            Some(Misfit::TooFewFree)
        } else if !crate::devices::device_indices(named).all(is_free) {
            Some(Misfit::DeviceTaken)
        } else {
            None
        }
    }
}

impl NodeFilter for DeviceFilter {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        let devices = ChunkDevices::of(chunk, self.after_release, false);
        let mut groups = [NodeMask::NONE; Misfit::ALL.len()];
        for offset in among.iter() {
            let misfit = devices.with_node(offset, &self.request, |task, node| self.misfit(task, node));
            // A node without an entry has no devices.
            if let Some(misfit) = misfit.unwrap_or(Some(Misfit::NoDevices))
                && let Some(group) = groups.get_mut(misfit as usize)
            {
                group.set(offset, true);
            }
        }
        let mut rejected = NodeMask::NONE;
        for (number, group) in (0_u16..).zip(&groups) {
            verdicts.reject(number, group);
            rejected = rejected.or(group);
        }
        rejected
    }

    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
    }

    fn reason(&self, number: u16) -> Reason {
        let wanted = self.request.on_node(None, |task| match (task.count, task.milli) {
            (1, 1000) => "one free device".to_owned(),
            (count, 1000) => format!("{count} free devices"),
            (1, milli) => format!("a device with {milli} thousandths free"),
            (count, milli) => format!("{count} devices with {milli} thousandths free"),
        });
        let (code, message, resolution) = match Misfit::ALL.get(usize::from(number)) {
            Some(Misfit::NoDevices) | None => (
                "NoDevices",
                "the node reports no devices".to_owned(),
                Resolution::Unresolvable,
            ),
            Some(Misfit::OtherModel) => (
                "DeviceModel",
                "the node's devices are of a model that the task does not name".to_owned(),
                Resolution::Unresolvable,
            ),
            Some(Misfit::TooFewFree) => (
                "DevicesInUse",
                format!("the task needs {wanted}, and the node has too few"),
                Resolution::Unschedulable,
            ),
            Some(Misfit::DeviceTaken) => (
                "DeviceTaken",
                "a device that the placement names has too little left".to_owned(),
                Resolution::Unschedulable,
            ),
        };
        Reason::new(DEF.name, code, message, resolution)
    }

    fn measurements(&self, chunk: &NodeChunk, offset: usize, _: u16) -> Vec<Measurement> {
        let devices = ChunkDevices::of(chunk, self.after_release, false);
        let measured = devices.with_node(offset, &self.request, |task, node| {
            let most = node.free.iter().copied().max().unwrap_or(0);
            [
                ("free devices", node.whole_devices() as f64),
                ("most free of one", f64::from(most)),
                ("asked of each", f64::from(task.milli)),
            ]
        });
        let measured = measured.into_iter().flatten();
        measured.map(|(name, value)| Measurement::number(name, value)).collect()
    }
}
