//! Proportional reserve: the filter that reserves cpu and memory for idle devices, in a fixed ratio.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_kernels::shortage::{ReserveRatios, memory_reserve, reserve_shortage};

use super::NAME;
use super::arguments::ArgumentReader;
use crate::model::{CHUNK_SIZE, ChunkColumn, NodeChunk, NodeMask, NodeVector, ResourceId, ResourceTable, TaskClass};
use crate::plugin::{ChunkRejections, HookNumbers, Measurement, NodeFilter, Reason, Resolution};
use crate::plugins::argument_names::{check_name_list, comma_list};
use crate::plugins::effective_values::{map_entry, value_map};
use crate::policy::{ArgumentMap, DocumentLocation, ErrorCode, Severity, YamlValue};

const FIELDS: [&str; 3] = ["enable", "resources", "resourceProportion"];

/// Ratios by primary resource, sorted; the enabled block `proportional`.
#[derive(Clone, Debug)]
pub(super) struct ProportionalReserve(BTreeMap<Arc<str>, ReserveRatios>);

impl ProportionalReserve {
    /// Reads the block `proportional`; `None`: not enabled.
    pub(super) fn read(block: &ArgumentMap<'_>, reading: &mut ArgumentReader<'_>) -> Option<Self> {
        let enabled = reading.bool_field(block, "enable");
        let resources = reading.string_field(block, "resources");
        let given = reading.typed_map_field(block, "resourceProportion", ArgumentReader::float);
        block.warn_unknown(reading.report, &FIELDS);
        if !resources.is_empty() && block.field("enable").is_none() {
            let message = "`enable` is missing: without it proportional has no effect";
            reading.report.warning(ErrorCode::ArgumentIgnored, block.at(), message);
        }
        enabled.then(|| Self::new(resources, &given, block.at(), reading))
    }

    /// Enabled reserve over a comma list; `given` has ratios by `<resource>.cpu` and `<resource>.memory`. A missing or
    /// negative ratio is 1.
    pub(super) fn new(
        resources: &str,
        given: &BTreeMap<String, f64>,
        at: &DocumentLocation,
        reading: &mut ArgumentReader<'_>,
    ) -> Self {
        let listed: Vec<String> = comma_list(resources).map(str::to_owned).collect();
        check_name_list(&listed, at, reading.report);
        let keys: Vec<String> = listed
            .iter()
            .flat_map(|name| [format!("{name}.cpu"), format!("{name}.memory")])
            .collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut warn = |message: String| reading.report.warning(ErrorCode::ArgumentIgnored, at, message);
        if listed.iter().any(|name| name == "pods") {
            warn("every task requests `pods`: listed here it switches the whole check off".to_owned());
        }
        for name in listed.iter().filter(|name| ["cpu", "memory"].contains(&name.as_str())) {
            warn(format!("`{name}` has no effect here: only devices can be primary"));
        }
        for (key, ratio) in given {
            let hint = reading.report.suggestion(Severity::Warning, key, &keys);
            let mut warn = |message: String| reading.report.warning(ErrorCode::ArgumentIgnored, at, message);
            let primary = key.strip_suffix(".cpu").or_else(|| key.strip_suffix(".memory"));
            if !primary.is_some_and(|primary| listed.iter().any(|name| name == primary)) {
                warn(format!("`{key}` belongs to no listed resource; it has no effect{hint}"));
            } else if *ratio < 0.0 {
                warn(format!("the negative ratio of `{key}` counts as 1"));
            } else if ratio.is_nan() {
                warn(format!("the ratio of `{key}` is no number: nothing is kept free"));
            }
        }
        let ratio = |name: &str, second: &str| {
            let ratio = given.get(&format!("{name}.{second}")).copied();
            // NaN stays NaN, as upstream.
            ratio.filter(|ratio| *ratio >= 0.0 || ratio.is_nan()).unwrap_or(1.0)
        };
        let ratios = |name: &str| ReserveRatios {
            cpu: ratio(name, "cpu"),
            memory: ratio(name, "memory"),
        };
        Self(
            listed
                .iter()
                .map(|name| (Arc::from(name.as_str()), ratios(name)))
                .collect(),
        )
    }

    /// Block with the same meaning.
    pub(super) fn effective_block(&self) -> YamlValue {
        let names: Vec<&str> = self.0.keys().map(|name| &**name).collect();
        let ratios = self.0.iter().flat_map(|(name, ratios)| {
            [
                (format!("{name}.cpu"), YamlValue::Float(ratios.cpu)),
                (format!("{name}.memory"), YamlValue::Float(ratios.memory)),
            ]
        });
        value_map([
            map_entry("enable", YamlValue::Bool(true)),
            map_entry("resources", YamlValue::String(names.join(", "))),
            map_entry("resourceProportion", value_map(ratios)),
        ])
    }

    /// Filter of a task class; `None`: the class passes everywhere, since it requests a primary itself.
    pub(super) fn filter(&self, class: &TaskClass, resources: &ResourceTable) -> Option<ProportionalFilter> {
        let is_device = |name: &str| !["cpu", "memory"].contains(&name);
        let devices = self.0.iter().filter(|(name, _)| is_device(name));
        let asked = |name: &Arc<str>| class.counted_by_volcano().any(|requested| requested.name == *name);
        if devices.clone().any(|(name, _)| asked(name)) {
            return None;
        }
        let known =
            |(name, ratios): (&Arc<str>, &ReserveRatios)| Some((resources.get(name)?, Arc::clone(name), *ratios));
        Some(ProportionalFilter {
            cpu: class.amount(ResourceId::CPU),
            memory: class.amount(ResourceId::MEMORY),
            primaries: devices.filter_map(known).collect(),
        })
    }
}

/// Filter of one task class. Reason `n` is about primary `n`, from 0 in the order of names.
#[derive(Debug)]
pub(super) struct ProportionalFilter {
    cpu: f64,
    memory: f64,
    primaries: Vec<(ResourceId, Arc<str>, ReserveRatios)>,
}

type ChunkValues = [f64; CHUNK_SIZE];

/// Idle amounts as two columns, allocatable − used; or as one column and zeros, where some node has an idle vector of
/// its own.
struct IdleColumns<'k> {
    columns: [&'k ChunkValues; 2],
    present: NodeMask,
}

/// Column of zeros.
static ZEROS: ChunkValues = [0.0; CHUNK_SIZE];

impl<'k> IdleColumns<'k> {
    /// Idle amounts of a resource; `own` stores a computed idle column.
    fn new(chunk: &'k NodeChunk, id: ResourceId, own: &'k mut Option<Box<ChunkColumn>>) -> Self {
        if chunk.has_own_idle() {
            let own = own.insert(Box::new(chunk.idle(id)));
            let present = own.present;
            return Self {
                columns: [&own.values, &ZEROS],
                present,
            };
        }
        let resource = chunk.resource(id);
        let [allocatable, used] = [NodeVector::Allocatable, NodeVector::Used].map(|vector| resource.column(vector));
        Self {
            columns: [&allocatable.values, &used.values],
            present: allocatable.present.or(&used.present),
        }
    }
}

impl NodeFilter for ProportionalFilter {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        let mut passed = *among;
        let mut own = [const { None }; 3];
        let [own_cpu, own_memory, own_devices] = &mut own;
        let cpu = IdleColumns::new(chunk, ResourceId::CPU, own_cpu);
        let memory = IdleColumns::new(chunk, ResourceId::MEMORY, own_memory);
        for (number, (id, _, ratios)) in (0..).zip(&self.primaries) {
            let devices = IdleColumns::new(chunk, *id, own_devices);
            let with_entry = passed.and(&devices.present);
            if with_entry.is_empty() {
                continue;
            }
            let idle = [cpu.columns, memory.columns, devices.columns];
            let refused = reserve_shortage([self.cpu, self.memory], idle, *ratios).and(&with_entry);
            verdicts.reject(number, &refused);
            passed = passed.and_not(&refused);
        }
        among.and_not(&passed)
    }

    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
    }

    fn reason(&self, number: u16) -> Reason {
        let primary = self.primaries.get(usize::from(number));
        let resource = primary.map_or_else(|| Arc::from(""), |(_, name, _)| Arc::clone(name));
        Reason {
            plugin: Arc::from(NAME),
            code: "ProportionalReserve",
            message: format!("proportional of resource {resource} check failed"),
            resolution: Resolution::Unresolvable,
            resource,
        }
    }

    fn measurements(&self, chunk: &NodeChunk, offset: usize, number: u16) -> Vec<Measurement> {
        let Some((id, name, ratios)) = self.primaries.get(usize::from(number)) else {
            return Vec::new();
        };
        let idle = |id| chunk.idle(id).values.get(offset).copied().unwrap_or(0.0);
        let devices = idle(*id);
        let cpu = |name: &str, amount| Measurement::of_resource(name, "cpu", amount);
        let memory = |name: &str, amount| Measurement::of_resource(name, "memory", amount);
        vec![
            cpu("requested cpu", self.cpu),
            cpu("idle cpu", idle(ResourceId::CPU)),
            cpu("reserved cpu", devices * ratios.cpu),
            memory("requested memory", self.memory),
            memory("idle memory", idle(ResourceId::MEMORY)),
            memory("reserved memory", memory_reserve(devices, ratios.memory)),
            Measurement::of_resource(format!("idle {name}"), name, devices),
        ]
    }
}
