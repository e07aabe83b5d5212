//! Fields of pods and nodes that limit placement and that no field of a record carries.

use serde_json::{Map, Value};

/// Taint of a cordoned node, which `Node.unschedulable` carries.
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
/// Taints of a node that is not ready, which `Node.ready` carries.
const NOT_READY_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Names of such fields of a pod, sorted. A malformed field counts as absent.
pub fn unevaluated_pod_fields(pod: &Value) -> Vec<&'static str> {
    let Some(spec) = pod.get("spec") else { return Vec::new() };
    let has_list = |name: &str| !items(spec.get(name)).is_empty();
    let has_affinity = |kind: &str| {
        let affinity = spec.get("affinity").and_then(|affinity| affinity.get(kind));
        let terms = affinity.map(|affinity| [affinity.get(REQUIRED), affinity.get(PREFERRED)]);
        terms.into_iter().flatten().flatten().any(is_not_empty)
    };
    let fields = [
        ("hostPorts", has_host_ports(spec)),
        ("nodeAffinity", has_affinity("nodeAffinity")),
        (
            "nodeSelector",
            spec.get("nodeSelector").is_some_and(is_object_with_keys),
        ),
        ("podAffinity", has_affinity("podAffinity")),
        ("podAntiAffinity", has_affinity("podAntiAffinity")),
        ("resourceClaims", has_list("resourceClaims")),
        ("topologySpreadConstraints", has_list("topologySpreadConstraints")),
        ("volumes", items(spec.get("volumes")).iter().any(is_bound_volume)),
    ];
    let present = fields.into_iter().filter(|(_, is_present)| *is_present);
    present.map(|(name, _)| name).collect()
}

/// Names of such fields of a node, sorted. A malformed field counts as absent.
pub fn unevaluated_node_fields(node: &Value) -> Vec<&'static str> {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let spec = node.get("spec");
    let cordoned = spec.and_then(|spec| spec.get("unschedulable")).and_then(Value::as_bool) == Some(true);
    let conditions = items(node.get("status").and_then(|status| status.get("conditions")));
    let ready = conditions.iter().find(|condition| text(condition, "type") == "Ready");
    let not_ready = ready.is_some_and(|ready| text(ready, "status") != "True");
    let rejects = |taint: &Value| {
        let key = text(taint, "key");
        let is_carried =
            cordoned && key == UNSCHEDULABLE_TAINT || not_ready && NOT_READY_TAINTS.contains(&key.as_str());
        taint.is_object() && text(taint, "effect") != "PreferNoSchedule" && !is_carried
    };
    let tainted = items(spec.and_then(|spec| spec.get("taints"))).iter().any(rejects);
    if tainted { vec!["taints"] } else { Vec::new() }
}

fn has_host_ports(spec: &Value) -> bool {
    let on_host = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    let containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| items(spec.get(list)));
    let mut ports = containers.flat_map(|container| items(container.get("ports")));
    ports.any(|port| {
        on_host
            || port
                .get("hostPort")
                .and_then(Value::as_i64)
                .is_some_and(|port| port > 0)
    })
}

/// True of a volume that may be bound to some nodes only.
fn is_bound_volume(volume: &Value) -> bool {
    ["persistentVolumeClaim", "ephemeral"]
        .iter()
        .any(|kind| volume.get(kind).is_some_and(Value::is_object))
}

fn is_object_with_keys(value: &Value) -> bool {
    value.as_object().is_some_and(|object| !object.is_empty())
}

fn is_not_empty(value: &Value) -> bool {
    value.as_array().is_some_and(|list| !list.is_empty())
        || value.as_object().is_some_and(|map: &Map<_, _>| !map.is_empty())
}

fn items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_names_each_field_that_limits_it() {
        let term = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]});
        let pod = json!({"spec": {
            "nodeSelector": {"zone": "a"},
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
                "podAffinity": term, "podAntiAffinity": term,
            },
            "topologySpreadConstraints": [{"maxSkew": 1}],
            "containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}],
            "resourceClaims": [{"name": "gpu"}],
        }});
        assert_eq!(
            unevaluated_pod_fields(&pod),
            [
                "hostPorts",
                "nodeAffinity",
                "nodeSelector",
                "podAffinity",
                "podAntiAffinity",
                "resourceClaims",
                "topologySpreadConstraints",
                "volumes"
            ]
        );
    }

    #[test]
    fn empty_and_malformed_fields_count_as_absent() {
        for spec in [
            json!({"nodeSelector": {}, "affinity": {"nodeAffinity": {}, "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": []}}, "topologySpreadConstraints": [],
                "volumes": [{"emptyDir": {}}, {"configMap": {}}], "resourceClaims": [],
                "containers": [{"ports": [{"containerPort": 80, "hostPort": 0}]}]}),
            json!({"nodeSelector": 3, "affinity": "x", "topologySpreadConstraints": {}, "volumes": [7]}),
            json!({"tolerations": [{"operator": "Exists"}], "schedulingGates": [{"name": "g"}]}),
            Value::Null,
        ] {
            assert!(unevaluated_pod_fields(&json!({"spec": spec})).is_empty(), "{spec}");
        }
    }

    #[test]
    fn a_pod_on_the_host_network_uses_host_ports() {
        let pod = json!({"spec": {"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}]}]}});
        assert_eq!(unevaluated_pod_fields(&pod), ["hostPorts"]);
    }

    #[test]
    fn a_node_names_taints_that_no_other_field_carries() {
        let node = |taints: Value, cordoned: bool, ready: &str| {
            json!({"spec": {"taints": taints, "unschedulable": cordoned},
                   "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        for (node, names) in [
            (node(taint("gpu", "NoSchedule"), false, "True"), &["taints"][..]),
            (node(taint("gpu", "NoExecute"), true, "False"), &["taints"]),
            (node(taint("gpu", "PreferNoSchedule"), false, "True"), &[]),
            (node(json!([]), false, "True"), &[]),
            (node(taint(UNSCHEDULABLE_TAINT, "NoSchedule"), true, "True"), &[]),
            (
                node(taint(UNSCHEDULABLE_TAINT, "NoSchedule"), false, "True"),
                &["taints"],
            ),
            (
                node(taint("node.kubernetes.io/not-ready", "NoExecute"), false, "False"),
                &[],
            ),
            (
                node(taint("node.kubernetes.io/unreachable", "NoExecute"), false, "Unknown"),
                &[],
            ),
            (
                node(taint("node.kubernetes.io/not-ready", "NoExecute"), false, "True"),
                &["taints"],
            ),
        ] {
            assert_eq!(unevaluated_node_fields(&node), names, "{node}");
        }
    }
}
