//! Fields of pods that limit placement and that no field of a record carries.

use serde_json::Value;

/// Names of such fields of a pod, sorted. A malformed field is treated as absent.
pub fn unevaluated_pod_fields(pod: &Value) -> Vec<&'static str> {
    let Some(spec) = pod.get("spec") else { return Vec::new() };
    let has_list = |name: &str| !items(spec.get(name)).is_empty();
    let fields = [
        ("resourceClaims", has_list("resourceClaims")),
        ("volumes", items(spec.get("volumes")).iter().any(is_bound_volume)),
    ];
    let present = fields.into_iter().filter(|(_, is_present)| *is_present);
    present.map(|(name, _)| name).collect()
}

/// Kinds of volumes that may be bound to some nodes only, or attached to a few.
const LIMITING_VOLUMES: [&str; 12] = [
    "persistentVolumeClaim",
    "ephemeral",
    "csi",
    "awsElasticBlockStore",
    "gcePersistentDisk",
    "azureDisk",
    "cinder",
    "iscsi",
    "rbd",
    "vsphereVolume",
    "portworxVolume",
    "fc",
];

/// True of a volume that may limit the nodes of its pod.
fn is_bound_volume(volume: &Value) -> bool {
    LIMITING_VOLUMES
        .iter()
        .any(|kind| volume.get(kind).is_some_and(Value::is_object))
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
        let pod = json!({"spec": {
            "nodeSelector": {"zone": "a"},
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}],
            "resourceClaims": [{"name": "gpu"}],
        }});
        assert_eq!(unevaluated_pod_fields(&pod), ["resourceClaims", "volumes"]);
    }

    #[test]
    fn volumes_of_every_kind_that_limits_nodes_are_named() {
        let volumes = |kind: &str| unevaluated_pod_fields(&json!({"spec": {"volumes": [{"name": "v", kind: {}}]}}));
        for kind in LIMITING_VOLUMES {
            assert_eq!(volumes(kind), ["volumes"], "{kind}");
        }
        for kind in [
            "emptyDir",
            "configMap",
            "secret",
            "hostPath",
            "nfs",
            "projected",
            "image",
        ] {
            assert_eq!(volumes(kind), [""; 0], "{kind}");
        }
    }

    #[test]
    fn empty_and_malformed_fields_count_as_absent() {
        for spec in [
            json!({"volumes": [{"emptyDir": {}}, {"configMap": {}}], "resourceClaims": []}),
            json!({"resourceClaims": {}, "volumes": [7]}),
            json!({"tolerations": [{"operator": "Exists"}], "schedulingGates": [{"name": "g"}]}),
            Value::Null,
        ] {
            assert!(unevaluated_pod_fields(&json!({"spec": spec})).is_empty(), "{spec}");
        }
    }
}
