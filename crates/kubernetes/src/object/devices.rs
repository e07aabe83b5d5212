//! Devices that pods share, in the ways of Volcano, `HAMi` and Koordinator: the resources that say how much of how many devices.

use serde_json::{Map, Value};

use super::fields::{FieldError, get, list};
use pumice_engine::devices::MAX_DEVICES;
use pumice_engine::model::quantity::Quantity;
use pumice_protocol::v1 as pb;

/// Resources by which one scheduler shares devices: the number of devices, the memory of each, and the percent of each.
struct SharingResources {
    /// Number of devices; without it, one.
    number: &'static str,
    /// Memory of each device, and its unit in bytes.
    memory: (&'static str, u64),
    /// Percent of each device; 100 and more are whole devices.
    percent: &'static [&'static str],
    /// True if memory and percent apply to all devices together.
    counts_together: bool,
}

const MIB: u64 = 1 << 20;

const SHARING: [SharingResources; 4] = [
    SharingResources {
        number: "volcano.sh/vgpu-number",
        memory: ("volcano.sh/vgpu-memory", MIB),
        percent: &["volcano.sh/vgpu-cores"],
        counts_together: false,
    },
    SharingResources {
        number: "volcano.sh/gpu-number",
        memory: ("volcano.sh/gpu-memory", MIB),
        percent: &[],
        counts_together: false,
    },
    SharingResources {
        number: "nvidia.com/gpu",
        memory: ("nvidia.com/gpumem", MIB),
        percent: &["nvidia.com/gpucores", "nvidia.com/gpumem-percentage"],
        counts_together: false,
    },
    SharingResources {
        number: "koordinator.sh/gpu.shared",
        memory: ("koordinator.sh/gpu-memory", 1),
        percent: &[
            "koordinator.sh/gpu-core",
            "koordinator.sh/gpu-memory-ratio",
            "koordinator.sh/gpu",
        ],
        counts_together: true,
    },
];

/// Node label with the number of devices, as NVIDIA's feature discovery writes it.
const COUNT_LABEL: &str = "nvidia.com/gpu.count";
/// Node label with the model.
const MODEL_LABEL: &str = "nvidia.com/gpu.product";
/// Node label with the memory of a device in MiB.
const MEMORY_LABEL: &str = "nvidia.com/gpu.memory";

/// Amounts of these resources of a pod or a node.
struct SharedAmounts<'a> {
    path: &'static str,
    items: Vec<&'a Map<String, Value>>,
}

impl SharedAmounts<'_> {
    /// Largest amount over the containers, in units rounded up; `None`: no container has the resource.
    fn largest(&self, name: &str) -> Result<Option<u64>, FieldError> {
        let mut largest = None;
        for value in self.items.iter().filter_map(|items| items.get(name)) {
            let text = match value {
                Value::String(text) => text.clone(),
                // The API server reads a null as 0.
                Value::Null => "0".to_owned(),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
            };
            let wrong = |reason: String| FieldError::new(format!("{}[{name}]", self.path), reason);
            let quantity = Quantity::parse_in_object(&text).map_err(|error| wrong(error.to_string()))?;
            let whole = quantity.value().ok().and_then(|value| u64::try_from(value).ok());
            let whole = whole.ok_or_else(|| wrong(format!("`{text}` is negative, or too large")))?;
            largest = largest.max(Some(whole));
        }
        Ok(largest)
    }
}

/// Reads the shared devices that a pod requests. With several containers, the largest request applies. `None`: the pod
/// requests no shared device.
pub(super) fn of_pod(object: &Value) -> Result<Option<pb::DeviceRequest>, FieldError> {
    let containers = list(object, "spec.containers")?.iter();
    let amounts = SharedAmounts {
        path: "spec.containers[].resources.limits",
        items: containers
            .filter_map(|container| get(container, "resources.limits")?.as_object())
            .collect(),
    };
    for own in &SHARING {
        let number = amounts.largest(own.number)?;
        let (memory, unit) = (amounts.largest(own.memory.0)?, own.memory.1);
        let mut percent: Option<u64> = None;
        for name in own.percent {
            percent = percent.max(amounts.largest(name)?);
        }
        // A number of NVIDIA's devices alone shares nothing.
        if memory.is_none() && percent.is_none() && (number.is_none() || own.number.starts_with("nvidia.com/")) {
            continue;
        }
        let together = if own.counts_together {
            number
                .filter(|number| *number > 0)
                .or(whole_devices(percent))
                .unwrap_or(1)
        } else {
            1
        };
        let request = request(
            number.or((together > 1).then_some(together)),
            memory.map(|memory| memory.saturating_mul(unit).div_ceil(MIB).div_ceil(together)),
            percent.map(|percent| percent.div_ceil(together)),
        );
        return request
            .map(Some)
            .map_err(|reason| FieldError::new(amounts.path, reason));
    }
    Ok(None)
}

/// Number of devices that a percent above 100 means.
fn whole_devices(percent: Option<u64>) -> Option<u64> {
    percent
        .filter(|percent| *percent > 100 && percent % 100 == 0)
        .map(|percent| percent / 100)
}

fn request(number: Option<u64>, memory: Option<u64>, percent: Option<u64>) -> Result<pb::DeviceRequest, String> {
    let whole = percent.filter(|percent| *percent > 100);
    if let Some(percent) = whole.filter(|percent| percent % 100 != 0) {
        return Err(format!(
            "{percent} percent of devices: above 100 only whole devices can be meant"
        ));
    }
    let count = number.unwrap_or(1).max(1).max(whole.map_or(1, |percent| percent / 100));
    if count > MAX_DEVICES as u64 {
        return Err(format!("{count} devices: a node has at most {MAX_DEVICES}"));
    }
    let milli = percent.map_or(0, |percent| percent.min(100) * 10);
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(pb::DeviceRequest {
        count: narrow(count),
        milli: narrow(milli),
        memory_mib: narrow(memory.unwrap_or(0)),
        ..pb::DeviceRequest::default()
    })
}

/// Reads the devices of a node whose allocatable amounts say that pods share them; `None`: they are not shared.
pub(super) fn of_node(object: &Value) -> Result<Option<pb::NodeDevices>, FieldError> {
    let amounts = SharedAmounts {
        path: "status.allocatable",
        items: get(object, "status.allocatable")
            .and_then(Value::as_object)
            .into_iter()
            .collect(),
    };
    let shares = |name: &str| {
        !name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/gpu-") || name == "nvidia.com/gpumem"
    };
    let mut names = SHARING.iter().flat_map(|own| {
        [own.number, own.memory.0]
            .into_iter()
            .chain(own.percent.iter().copied())
    });
    let is_shared = names.any(|name| shares(name) && amounts.items.iter().any(|items| items.contains_key(name)));
    if !is_shared {
        return Ok(None);
    }
    let label = |name: &str| {
        let text = get(object, "metadata.labels")?.as_object()?.get(name)?.as_str()?;
        Some(text.to_owned())
    };
    let number = |name: &str| label(name).and_then(|text| text.parse::<u64>().ok());
    let ratio = amounts
        .largest("koordinator.sh/gpu-memory-ratio")?
        .or(amounts.largest("koordinator.sh/gpu-core")?);
    let count = number(COUNT_LABEL)
        .or(ratio.map(|percent| percent / 100))
        .or(amounts.largest("nvidia.com/gpu")?)
        .or(amounts.largest("volcano.sh/gpu-number")?)
        .unwrap_or(0);
    if count == 0 || count > MAX_DEVICES as u64 {
        return Ok(None);
    }
    let all = amounts.largest("koordinator.sh/gpu-memory")?.map(|bytes| bytes / MIB);
    let all = all
        .or(amounts.largest("volcano.sh/gpu-memory")?)
        .or(amounts.largest("volcano.sh/vgpu-memory")?);
    let memory = number(MEMORY_LABEL).or(all.map(|all| all / count)).unwrap_or(0);
    Ok(Some(pb::NodeDevices {
        model: label(MODEL_LABEL).unwrap_or_default(),
        count: u32::try_from(count).unwrap_or(0),
        memory_mib: u32::try_from(memory).unwrap_or(0),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(limits: &Value) -> Result<Option<pb::DeviceRequest>, FieldError> {
        of_pod(
            &json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}, {"resources": {"limits": limits}}]}}),
        )
    }

    fn asks(limits: &Value) -> (u32, u32, u32) {
        let own = pod(limits).unwrap().unwrap();
        (own.count, own.milli, own.memory_mib)
    }

    #[test]
    fn shares_of_three_schedulers_are_read() {
        assert_eq!(asks(&json!({"volcano.sh/gpu-memory": "4096"})), (1, 0, 4096));
        assert_eq!(asks(&json!({"volcano.sh/gpu-number": 2})), (2, 0, 0));
        let vgpu = json!({"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 3000, "volcano.sh/vgpu-cores": "50"});
        assert_eq!(asks(&vgpu), (2, 500, 3000));
        assert_eq!(
            asks(&json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000})),
            (1, 0, 8000)
        );
        assert_eq!(
            asks(&json!({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30})),
            (1, 300, 0)
        );
        assert_eq!(
            asks(&json!({"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 60})),
            (1, 600, 0)
        );
        assert_eq!(
            asks(&json!({"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200})),
            (2, 1000, 0)
        );
        assert_eq!(asks(&json!({"koordinator.sh/gpu-memory": "8Gi"})), (1, 0, 8192));
        // Koordinator counts all devices of a pod together.
        let shared = json!({"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": "16Gi"});
        assert_eq!(asks(&shared), (2, 500, 8192));
        let whole = json!({"koordinator.sh/gpu-memory-ratio": 200, "koordinator.sh/gpu-memory": "160Gi"});
        assert_eq!(asks(&whole), (2, 1000, 81_920));
        assert_eq!(asks(&json!({"koordinator.sh/gpu": 300})), (3, 1000, 0));
        assert_eq!(pod(&json!({"nvidia.com/gpu": 1})).unwrap(), None);
        // The API server reads a null as 0.
        for name in ["volcano.sh/gpu-memory", "koordinator.sh/gpu-core"] {
            assert_eq!(pod(&json!({ name: null })), pod(&json!({ name: 0 })));
        }
    }

    #[test]
    fn parts_of_several_devices_are_refused() {
        let error = pod(&json!({"koordinator.sh/gpu-core": 150})).unwrap_err();
        assert!(error.reason.contains("150 percent"), "{error:?}");
        assert!(
            pod(&json!({"volcano.sh/gpu-number": 65})).is_err() && pod(&json!({"volcano.sh/gpu-number": "x"})).is_err()
        );
    }

    #[test]
    fn nodes_that_share_tell_their_devices() {
        let node = |allocatable: Value| {
            let labels =
                json!({"nvidia.com/gpu.product": "T4", "nvidia.com/gpu.count": "4", "nvidia.com/gpu.memory": "15360"});
            of_node(&json!({"metadata": {"labels": labels}, "status": {"allocatable": allocatable}})).unwrap()
        };
        let devices = node(json!({"volcano.sh/gpu-memory": "61440"})).unwrap();
        assert_eq!((&*devices.model, devices.count, devices.memory_mib), ("T4", 4, 15360));
        assert_eq!(node(json!({"nvidia.com/gpu": 4})), None);
        let plain =
            json!({"status": {"allocatable": {"koordinator.sh/gpu-core": 800, "koordinator.sh/gpu-memory": "640Gi"}}});
        let plain = of_node(&plain).unwrap().unwrap();
        assert_eq!((plain.count, plain.memory_mib), (8, 81920));
    }
}
