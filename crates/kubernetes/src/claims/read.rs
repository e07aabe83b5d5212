//! Reader of slices, claims and templates, and of the claims that pods name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::slices::{NodeSlice, SliceDevice};
use crate::object::fields::{FieldError, get, list, namespaced, required_text, text};
use crate::object::kind::ObjectKind;
use pumice_engine::model::namespace_of;
use pumice_engine::model::quantity::Quantity;
use pumice_protocol::v1 as pb;

/// Start of the names of drivers and device classes whose devices are GPUs, such as `gpu.nvidia.com`.
const GPU_DRIVERS: &str = "gpu.";

type ClaimReadResult<T> = Result<T, FieldError>;

/// Slice, claim or template, as far as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceObject(pub(super) DeviceContent);

/// Content of a slice, claim or template, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeviceContent {
    /// Slice. `None`: its devices are not GPUs of a single node.
    Slice(String, Option<NodeSlice>),
    /// Claim, or claim of a template.
    Claim(ClaimName, DeviceClaim),
}

impl DeviceObject {
    /// Name of the object, with its namespace if it has one.
    pub fn name(&self) -> &str {
        match &self.0 {
            DeviceContent::Slice(name, _)
            | DeviceContent::Claim(ClaimName::Claim(name) | ClaimName::Template(name), _) => name,
        }
    }
}

/// Name of a claim or of a template of claims.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClaimName {
    Claim(String),
    Template(String),
}

/// Request of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceClaim {
    pub(super) requests: Vec<pb::DeviceRequest>,
    /// True if nothing of the claim was left out.
    pub(super) is_whole: bool,
    /// Driver, pool and name of each allocated device.
    pub(super) allocated: Vec<(String, String, String)>,
}

/// Claims that a pod names; `None`: a claim without a name that can be looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodClaims(pub(super) Vec<Option<ClaimName>>);

impl PodClaims {
    /// True if the pod names no claims.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a slice, a claim or a template.
pub(crate) fn device_object(kind: ObjectKind, object: &Value) -> ClaimReadResult<DeviceObject> {
    let content = if kind == ObjectKind::ResourceSlice {
        DeviceContent::Slice(required_text(object, "metadata.name")?, slice(object)?)
    } else if kind == ObjectKind::ResourceClaimTemplate {
        DeviceContent::Claim(ClaimName::Template(namespaced(object)?), claim(object, "spec.spec")?)
    } else {
        DeviceContent::Claim(ClaimName::Claim(namespaced(object)?), claim(object, "spec")?)
    };
    Ok(DeviceObject(content))
}

/// Reads the claims that a pod names. A malformed list is treated as absent, as in the list of unevaluated fields.
pub(crate) fn pod_claims(object: &Value) -> ClaimReadResult<PodClaims> {
    let Some(own) = get(object, "spec.resourceClaims").and_then(Value::as_array) else {
        return Ok(PodClaims::default());
    };
    if own.is_empty() {
        return Ok(PodClaims::default());
    }
    let pod = namespaced(object)?;
    let namespace = namespace_of(&pod);
    let mut generated = BTreeMap::new();
    for status in list(object, "status.resourceClaimStatuses")? {
        let field = |name| item_text(status, "status.resourceClaimStatuses", name);
        generated.insert(field("name")?, field("resourceClaimName")?);
    }
    let mut names = Vec::new();
    for item in own {
        let field = |name| item_text(item, "spec.resourceClaims", name);
        let claim = field("resourceClaimName")?;
        let made = generated.get(&field("name")?).cloned().unwrap_or_default();
        let template = field("resourceClaimTemplateName")?;
        let name = |name: String| format!("{namespace}/{name}");
        names.push(match (claim, made, template) {
            (claim, ..) if !claim.is_empty() => Some(ClaimName::Claim(name(claim))),
            (_, made, _) if !made.is_empty() => Some(ClaimName::Claim(name(made))),
            (.., template) if !template.is_empty() => Some(ClaimName::Template(name(template))),
            _ => None,
        });
    }
    Ok(PodClaims(names))
}

/// Text of an item of a list.
fn item_text(item: &Value, list: &str, name: &str) -> ClaimReadResult<String> {
    text(item, name).map_err(|error| FieldError::new(format!("{list}[].{}", error.field), error.reason))
}

/// Reads a slice. `None`: its devices are not GPUs of a single node.
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
