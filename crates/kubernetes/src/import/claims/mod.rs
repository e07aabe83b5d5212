//! Devices by Dynamic Resource Allocation: those of nodes from `ResourceSlices`, and the requests of pods from `ResourceClaims` and
//! their templates, as far as a number of GPUs and a share of their memory say it (Kubernetes v1.36, `resource.k8s.io`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::fields::{FieldError, get, list, required_text, text};
use crate::object::namespaced;
use pumice_engine::devices::MAX_DEVICES;
use pumice_engine::model::quantity::Quantity;
use pumice_protocol::v1 as pb;

/// API group of slices and claims.
pub(super) const CLAIM_GROUP: &str = "resource.k8s.io";
/// Start of the names of drivers and device classes whose devices are GPUs, such as `gpu.nvidia.com`.
const GPU_DRIVERS: &str = "gpu.";
/// Name of the field that a task lists while its claims are not read whole.
const CLAIM_FIELD: &str = "resourceClaims";

const NOT_READ: &str =
    "pods with resource claims that are not read, or not whole: only numbers of GPUs and shares of their memory are";
const MIXED: &str =
    "nodes with ResourceSlices whose GPUs differ in their model or are more than 64: their devices are not read";

type ClaimReadResult<T> = Result<T, FieldError>;

/// Slices, claims and the pods that name them: each may stand behind the others.
#[derive(Debug, Default)]
pub(super) struct ClaimedDevices {
    /// Slices of single nodes, by name.
    slices: BTreeMap<String, NodeSlice>,
    /// Claims by kind and `namespace/name`.
    claims: BTreeMap<ClaimName, DeviceClaim>,
    /// Claims of pods, by task.
    pods: BTreeMap<String, Vec<Option<ClaimName>>>,
}

/// Name of a claim or of a template of claims.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimName {
    Claim(String),
    Template(String),
}

/// Slice with the devices of one node.
#[derive(Debug)]
struct NodeSlice {
    node: String,
    driver: String,
    pool: String,
    generation: i64,
    devices: Vec<SliceDevice>,
}

#[derive(Debug)]
struct SliceDevice {
    name: String,
    model: String,
    memory_mib: u32,
}

/// Device of a node with its driver and pool; devices of a node are numbered in this order.
type DeviceKey<'a> = (&'a str, &'a str, (&'a str, u64));

/// Request of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DeviceClaim {
    requests: Vec<pb::DeviceRequest>,
    /// True if nothing of the claim was left out.
    is_whole: bool,
    /// Driver, pool and name of each allocated device.
    allocated: Vec<(String, String, String)>,
}

/// True for kinds that [`ClaimedDevices::add_object`] reads.
pub(super) fn is_claim(group: &str, kind: &str) -> bool {
    group == CLAIM_GROUP && matches!(kind, "ResourceSlice" | "ResourceClaim" | "ResourceClaimTemplate")
}

impl ClaimedDevices {
    /// Notes a slice, a claim or a template.
    pub(super) fn add_object(&mut self, kind: &str, object: &Value) -> ClaimReadResult<()> {
        match kind {
            "ResourceSlice" => {
                let name = required_text(object, "metadata.name")?;
                match slice(object)? {
                    Some(slice) => drop(self.slices.insert(name, slice)),
                    None => drop(self.slices.remove(&name)),
                }
            }
            "ResourceClaim" => {
                let claim = claim(object, "spec")?;
                self.claims.insert(ClaimName::Claim(namespaced(object)?), claim);
            }
            _ => {
                let claim = claim(object, "spec.spec")?;
                self.claims.insert(ClaimName::Template(namespaced(object)?), claim);
            }
        }
        Ok(())
    }

    /// Notes the claims that a pod names.
    pub(super) fn add_pod(&mut self, object: &Value, task: &pb::Task) -> ClaimReadResult<()> {
        self.pods.remove(&task.name);
        if !task.unevaluated_fields.iter().any(|field| field == CLAIM_FIELD) {
            return Ok(());
        }
        let namespace = task.name.split_once('/').map_or("", |(namespace, _)| namespace);
        let mut generated = BTreeMap::new();
        for status in list(object, "status.resourceClaimStatuses")? {
            generated.insert(text(status, "name")?, text(status, "resourceClaimName")?);
        }
        let mut names = Vec::new();
        for own in list(object, "spec.resourceClaims")? {
            let claim = text(own, "resourceClaimName")?;
            let made = generated.get(&text(own, "name")?).cloned().unwrap_or_default();
            let template = text(own, "resourceClaimTemplateName")?;
            let name = |name: String| format!("{namespace}/{name}");
            names.push(match (claim, made, template) {
                (claim, ..) if !claim.is_empty() => Some(ClaimName::Claim(name(claim))),
                (_, made, _) if !made.is_empty() => Some(ClaimName::Claim(name(made))),
                (.., template) if !template.is_empty() => Some(ClaimName::Template(name(template))),
                _ => None,
            });
        }
        self.pods.insert(task.name.clone(), names);
        Ok(())
    }

    /// Puts devices into the records of nodes, and requests into those of tasks.
    pub(super) fn apply(&self, nodes: &mut BTreeMap<String, pb::Node>, tasks: &mut BTreeMap<String, pb::Task>) {
        let by_node = self.devices_by_node();
        for (name, devices) in &by_node {
            if let Some(node) = nodes.get_mut(*name).filter(|node| node.devices.is_none()) {
                node.devices = node_devices(devices);
            }
        }
        let users = self.users();
        for (name, claims) in &self.pods {
            let Some(task) = tasks.get_mut(name) else { continue };
            let (request, is_whole) = self.request_of(claims, &users, by_node.get(task.node.as_str()));
            if let Some(request) = request {
                let constraints = task.constraints.get_or_insert_default();
                constraints.devices.get_or_insert(request);
            }
            if is_whole {
                task.unevaluated_fields.retain(|field| field != CLAIM_FIELD);
            }
        }
    }

    /// Notes about what is left out, one for each node and task.
    pub(super) fn notes<'n>(
        &'n self,
        nodes: &'n BTreeMap<String, pb::Node>,
    ) -> impl Iterator<Item = &'static str> + 'n {
        let by_node = self.devices_by_node();
        let is_left_out = move |(name, devices): &(&str, _)| {
            let node = nodes.get(*name).filter(|node| node.devices.is_none());
            node.is_some() && node_devices(devices).is_none()
        };
        let mixed = by_node.into_iter().filter(is_left_out).map(|_| MIXED);
        let users = self.users();
        let unread = self
            .pods
            .values()
            .filter(move |claims| !self.request_of(claims, &users, None).1);
        mixed.chain(unread.map(|_| NOT_READ))
    }

    /// Devices of each node in the order of their numbers, of the latest generation of each pool.
    fn devices_by_node(&self) -> BTreeMap<&str, BTreeMap<DeviceKey<'_>, &SliceDevice>> {
        let mut latest: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for slice in self.slices.values() {
            let generation = latest.entry((&slice.driver, &slice.pool)).or_insert(slice.generation);
            *generation = slice.generation.max(*generation);
        }
        let mut nodes: BTreeMap<&str, BTreeMap<DeviceKey<'_>, &SliceDevice>> = BTreeMap::new();
        for slice in self.slices.values() {
            if latest.get(&(&*slice.driver, &*slice.pool)) != Some(&slice.generation) {
                continue;
            }
            let devices = nodes.entry(&slice.node).or_default();
            for device in &slice.devices {
                devices.insert((&slice.driver, &slice.pool, numbered(&device.name)), device);
            }
        }
        nodes
    }

    /// Request of a pod's claims together, and whether nothing was left out.
    fn request_of(
        &self,
        names: &[Option<ClaimName>],
        users: &BTreeMap<&ClaimName, u32>,
        devices: Option<&BTreeMap<DeviceKey<'_>, &SliceDevice>>,
    ) -> (Option<pb::DeviceRequest>, bool) {
        let mut is_whole = true;
        let mut all: Option<pb::DeviceRequest> = None;
        for name in names {
            let claim = name.as_ref().and_then(|name| self.claims.get(name));
            // Pods that name one claim have its devices together.
            let is_own = |name: &ClaimName| matches!(name, ClaimName::Template(_)) || users.get(name) == Some(&1);
            let Some(claim) = claim.filter(|_| name.as_ref().is_some_and(is_own)) else {
                is_whole = false;
                continue;
            };
            is_whole &= claim.is_whole;
            for request in &claim.requests {
                match &mut all {
                    None => all = Some(request.clone()),
                    // Devices with unlike shares are no request of a task.
                    Some(all) if all.memory_mib == request.memory_mib => {
                        all.count = all.count.saturating_add(request.count);
                    }
                    Some(_) => is_whole = false,
                }
            }
            if let (Some(all), Some(devices)) = (&mut all, devices) {
                let keys = claim
                    .allocated
                    .iter()
                    .map(|(driver, pool, device)| (&**driver, &**pool, numbered(device)));
                let places = keys.filter_map(|key| devices.keys().position(|own| *own == key));
                all.assigned
                    .extend(places.filter_map(|place| u32::try_from(place).ok()));
            }
        }
        let too_many = all.as_ref().is_some_and(|all| all.count as usize > MAX_DEVICES);
        let all = all.filter(|_| !too_many).map(|mut all| {
            if all.assigned.len() != all.count as usize {
                all.assigned.clear();
            }
            all
        });
        (all, is_whole && !too_many)
    }

    /// Number of pods that name each claim.
    fn users(&self) -> BTreeMap<&ClaimName, u32> {
        let mut users = BTreeMap::new();
        for name in self.pods.values().flatten().flatten() {
            let count: &mut u32 = users.entry(name).or_default();
            *count = count.saturating_add(1);
        }
        users
    }
}

/// Name of a device, apart from the number at its end, by which names are ordered.
fn numbered(name: &str) -> (&str, u64) {
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(start.len()..).and_then(|digits| digits.parse().ok());
    number.map_or((name, 0), |number| (start, number))
}

/// Devices of a node; `None`: there are none, too many, or of several models.
fn node_devices(devices: &BTreeMap<DeviceKey<'_>, &SliceDevice>) -> Option<pb::NodeDevices> {
    let first = devices.values().next()?;
    let same = devices.values().all(|device| device.model == first.model);
    let memory = devices.values().map(|device| device.memory_mib).min();
    (same && devices.len() <= MAX_DEVICES).then(|| pb::NodeDevices {
        model: first.model.clone(),
        count: u32::try_from(devices.len()).unwrap_or(0),
        memory_mib: memory.unwrap_or(0),
    })
}

/// Reads a slice; `None`: its devices are no GPUs of one node.
fn slice(object: &Value) -> ClaimReadResult<Option<NodeSlice>> {
    let (driver, node) = (text(object, "spec.driver")?, text(object, "spec.nodeName")?);
    if !driver.starts_with(GPU_DRIVERS) || node.is_empty() {
        return Ok(None);
    }
    let mut devices = Vec::new();
    for device in list(object, "spec.devices")? {
        // v1beta1 has one level more.
        let own = get(device, "basic").unwrap_or(device);
        if let Some(device) = slice_device(required_text(device, "name")?, own)? {
            devices.push(device);
        }
    }
    let pool = get(object, "spec.pool");
    Ok(Some(NodeSlice {
        node,
        driver,
        pool: pool.map_or(Ok(String::new()), |pool| text(pool, "name"))?,
        generation: pool.and_then(|pool| get(pool, "generation")?.as_i64()).unwrap_or(0),
        devices,
    }))
}

/// Reads a device of a slice; `None`: a part of a GPU.
fn slice_device(name: String, device: &Value) -> ClaimReadResult<Option<SliceDevice>> {
    let attribute = |name: &str| {
        let attributes = get(device, "attributes")?.as_object()?;
        let of = |(key, _): &(&String, &Value)| key.rsplit('/').next() == Some(name);
        attributes.iter().find(of)?.1.get("string")?.as_str()
    };
    if attribute("type").is_some_and(|kind| kind != "gpu") {
        return Ok(None);
    }
    let memory = capacity(device, "capacity", "memory")?;
    Ok(Some(SliceDevice {
        name,
        model: attribute("productName").or(attribute("model")).unwrap_or("").to_owned(),
        memory_mib: memory.unwrap_or(0),
    }))
}

/// Amount of a map of capacities in MiB, rounded up; `None`: there is none.
fn capacity(object: &Value, path: &str, name: &str) -> ClaimReadResult<Option<u32>> {
    let Some(items) = get(object, path).and_then(Value::as_object) else {
        return Ok(None);
    };
    let found = items.iter().find(|(key, _)| key.rsplit('/').next() == Some(name));
    let Some((key, value)) = found else { return Ok(None) };
    let value = value.get("value").unwrap_or(value);
    let wrong = |reason: String| FieldError::new(format!("{path}[{key}]"), reason);
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let quantity = Quantity::parse_in_object(&text).map_err(|error| wrong(error.to_string()))?;
    let bytes = quantity.value().ok().and_then(|value| u64::try_from(value).ok());
    let mib = bytes.and_then(|bytes| u32::try_from(bytes.div_ceil(1 << 20)).ok());
    mib.map(Some)
        .ok_or_else(|| wrong(format!("`{text}` is negative, or too large")))
}

/// Reads a claim, or the claim of a template.
fn claim(object: &Value, path: &str) -> ClaimReadResult<DeviceClaim> {
    let mut claim = DeviceClaim {
        is_whole: list(object, &format!("{path}.devices.constraints"))?.is_empty(),
        ..DeviceClaim::default()
    };
    for request in list(object, &format!("{path}.devices.requests"))? {
        // v1beta1 has one level less.
        let exactly = get(request, "exactly").unwrap_or(request);
        let class = text(exactly, "deviceClassName")?;
        let mode = text(exactly, "allocationMode")?;
        let is_admin = get(exactly, "adminAccess").and_then(Value::as_bool).unwrap_or(false);
        let is_read = class.starts_with(GPU_DRIVERS) && matches!(mode.as_str(), "" | "ExactCount") && !is_admin;
        if !is_read {
            claim.is_whole = false;
            continue;
        }
        let count = get(exactly, "count").map_or(Some(1), Value::as_u64);
        let count = count
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| *count > 0);
        let wrong = || FieldError::new(format!("{path}.devices.requests[].count"), "is no number of devices");
        let memory = capacity(exactly, "capacity.requests", "memory")?;
        claim.requests.push(pb::DeviceRequest {
            count: count.ok_or_else(wrong)?,
            memory_mib: memory.unwrap_or(0),
            ..pb::DeviceRequest::default()
        });
        let has_more = get(exactly, "capacity.requests").and_then(Value::as_object);
        let has_more = has_more.is_some_and(|asked| asked.len() > usize::from(memory.is_some()));
        claim.is_whole &= list(exactly, "selectors")?.is_empty() && !has_more;
    }
    for result in list(object, "status.allocation.devices.results")? {
        claim
            .allocated
            .push((text(result, "driver")?, text(result, "pool")?, text(result, "device")?));
    }
    Ok(claim)
}

#[cfg(test)]
mod tests;
