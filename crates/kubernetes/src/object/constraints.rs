//! Constraints of pods on nodes and on other pods, and the properties of nodes that they use.

use serde_json::Value;

use super::fields::{FieldError, boolean, get, integer, list, text, texts};
use pumice_protocol::v1 as pb;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

type ImportConstraintResult<T> = Result<T, FieldError>;

/// Reads a list, item by item. Errors name the item.
fn items<T>(
    object: &Value,
    path: &str,
    read: impl Fn(&Value) -> ImportConstraintResult<T>,
) -> ImportConstraintResult<Vec<T>> {
    let numbered = list(object, path)?.iter().enumerate();
    numbered
        .map(|(number, item)| read(item).map_err(|error| within(&format!("{path}[{number}]"), error)))
        .collect()
}

/// Reads an object that there may be. Errors name it.
fn optional<T>(
    object: &Value,
    path: &str,
    read: impl Fn(&Value) -> ImportConstraintResult<T>,
) -> ImportConstraintResult<Option<T>> {
    get(object, path)
        .map(|inner| read(inner).map_err(|error| within(path, error)))
        .transpose()
}

fn within(path: &str, FieldError { field, reason }: FieldError) -> FieldError {
    let separator = if field.is_empty() || field.starts_with('[') {
        ""
    } else {
        "."
    };
    FieldError::new(format!("{path}{separator}{field}"), reason)
}

fn text_list(object: &Value, path: &str) -> ImportConstraintResult<Vec<String>> {
    items(object, path, |item| match item {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(FieldError::new("", "is not a text"))
        }
    })
}

/// Reads the constraints of a pod that asks for such devices; `None`: it has none.
pub(super) fn of_pod(
    object: &Value,
    devices: Option<pb::DeviceRequest>,
) -> ImportConstraintResult<Option<Box<pb::PodConstraints>>> {
    let mut images = Vec::new();
    for path in ["spec.containers", "spec.initContainers"] {
        images.extend(items(object, path, |container| text(container, "image"))?);
    }
    let mut image_volumes = items(object, "spec.volumes", |volume| text(volume, "image.reference"))?;
    image_volumes.retain(|image| !image.is_empty());
    if image_volumes.is_empty() && images.iter().all(String::is_empty) {
        // The number of containers matters only where there are images.
        images.clear();
    }
    let affinity = optional(object, "spec.affinity", affinity)?;
    let constraints = pb::PodConstraints {
        node_selector: texts(object, "spec.nodeSelector")?,
        affinity: affinity.filter(|own| *own != pb::Affinity::default()),
        tolerations: items(object, "spec.tolerations", toleration)?,
        host_ports: host_ports(object)?,
        topology_spread_constraints: items(object, "spec.topologySpreadConstraints", spread_constraint)?,
        images,
        image_volumes,
        // Known when the owners are.
        owner_selector: None,
        devices,
    };
    Ok((constraints != pb::PodConstraints::default()).then(|| Box::new(constraints)))
}

/// Reads spec.affinity of a queue; `None`: it has none, which is not an empty one.
pub(super) fn queue_affinity(object: &Value) -> ImportConstraintResult<Option<pb::QueueAffinity>> {
    let lists = |side: &Value| {
        Ok(pb::NodeGroupLists {
            required: text_list(side, REQUIRED)?,
            preferred: text_list(side, PREFERRED)?,
        })
    };
    optional(object, "spec.affinity", |affinity| {
        Ok(pb::QueueAffinity {
            node_group_affinity: optional(affinity, "nodeGroupAffinity", lists)?,
            node_group_anti_affinity: optional(affinity, "nodeGroupAntiAffinity", lists)?,
        })
    })
}

/// Reads spec.subGroupPolicy of a pod group.
pub(super) fn sub_group_policies(object: &Value) -> ImportConstraintResult<Vec<pb::SubGroupPolicy>> {
    items(object, "spec.subGroupPolicy", |policy| {
        Ok(pb::SubGroupPolicy {
            name: text(policy, "name")?,
            size: integer(policy, "subGroupSize")?,
            min_groups: integer(policy, "minSubGroups")?,
            label_selector: optional(policy, "labelSelector", label_selector)?,
            match_label_keys: text_list(policy, "matchLabelKeys")?,
        })
    })
}

/// Reads spec.taints of a node.
pub(super) fn taints(object: &Value) -> ImportConstraintResult<Vec<pb::Taint>> {
    items(object, "spec.taints", |taint| {
        Ok(pb::Taint {
            key: text(taint, "key")?,
            value: text(taint, "value")?,
            effect: text(taint, "effect")?,
        })
    })
}

/// Reads status.images of a node.
pub(super) fn images(object: &Value) -> ImportConstraintResult<Vec<pb::NodeImage>> {
    items(object, "status.images", |image| {
        let size = get(image, "sizeBytes").map_or(Some(0), Value::as_i64);
        Ok(pb::NodeImage {
            names: text_list(image, "names")?,
            size_bytes: size.ok_or_else(|| FieldError::new("sizeBytes", "is not a whole number"))?,
        })
    })
}

/// Reads the host ports of a pod. For pods on the host's network the API server sets `hostPort` to `containerPort`; a pod
/// without a phase is a manifest that has not passed the API server. Only restartable init containers are included.
fn host_ports(object: &Value) -> ImportConstraintResult<Vec<pb::HostPort>> {
    let is_manifest = get(object, "status.phase").is_none();
    let on_host = is_manifest && boolean(object, "spec.hostNetwork")?.unwrap_or_default();
    let ports = |container: &Value| {
        items(container, "ports", |port| {
            let host = integer(port, "hostPort")?.unwrap_or_default();
            let inner = integer(port, "containerPort")?.unwrap_or_default();
            Ok(pb::HostPort {
                protocol: text(port, "protocol")?,
                host_ip: text(port, "hostIP")?,
                port: if on_host && host == 0 { inner } else { host },
            })
        })
    };
    let restarted = |container: &Value| {
        let is_restarted = text(container, "restartPolicy")? == "Always";
        if is_restarted { ports(container) } else { Ok(Vec::new()) }
    };
    let mut found = items(object, "spec.containers", ports)?;
    found.extend(items(object, "spec.initContainers", restarted)?);
    Ok(found.into_iter().flatten().filter(|port| port.port > 0).collect())
}

fn toleration(toleration: &Value) -> ImportConstraintResult<pb::Toleration> {
    Ok(pb::Toleration {
        key: text(toleration, "key")?,
        operator: text(toleration, "operator")?,
        value: text(toleration, "value")?,
        effect: text(toleration, "effect")?,
    })
}

fn affinity(affinity: &Value) -> ImportConstraintResult<pb::Affinity> {
    Ok(pb::Affinity {
        node_affinity: optional(affinity, "nodeAffinity", node_affinity)?
            .filter(|own| *own != pb::NodeAffinity::default()),
        pod_affinity: optional(affinity, "podAffinity", pod_affinity)?.filter(|own| *own != pb::PodAffinity::default()),
        pod_anti_affinity: optional(affinity, "podAntiAffinity", pod_affinity)?
            .filter(|own| *own != pb::PodAffinity::default()),
    })
}

fn node_affinity(affinity: &Value) -> ImportConstraintResult<pb::NodeAffinity> {
    let required = optional(affinity, REQUIRED, |required| {
        Ok(pb::NodeSelector {
            terms: items(required, "nodeSelectorTerms", node_term)?,
        })
    })?;
    let preferred = items(affinity, PREFERRED, |preferred| {
        Ok(pb::PreferredNodeTerm {
            weight: integer(preferred, "weight")?.unwrap_or_default(),
            preference: optional(preferred, "preference", node_term)?,
        })
    })?;
    Ok(pb::NodeAffinity { required, preferred })
}

fn node_term(term: &Value) -> ImportConstraintResult<pb::NodeSelectorTerm> {
    Ok(pb::NodeSelectorTerm {
        match_expressions: items(term, "matchExpressions", requirement)?,
        match_fields: items(term, "matchFields", requirement)?,
    })
}

fn requirement(requirement: &Value) -> ImportConstraintResult<pb::SelectorRequirement> {
    Ok(pb::SelectorRequirement {
        key: text(requirement, "key")?,
        operator: text(requirement, "operator")?,
        values: text_list(requirement, "values")?,
    })
}

fn pod_affinity(affinity: &Value) -> ImportConstraintResult<pb::PodAffinity> {
    let weighted = |preferred: &Value| {
        Ok(pb::WeightedPodAffinityTerm {
            weight: integer(preferred, "weight")?.unwrap_or_default(),
            term: optional(preferred, "podAffinityTerm", pod_term)?,
        })
    };
    Ok(pb::PodAffinity {
        required: items(affinity, REQUIRED, pod_term)?,
        preferred: items(affinity, PREFERRED, weighted)?,
    })
}

fn pod_term(term: &Value) -> ImportConstraintResult<pb::PodAffinityTerm> {
    Ok(pb::PodAffinityTerm {
        label_selector: optional(term, "labelSelector", label_selector)?,
        namespaces: text_list(term, "namespaces")?,
        namespace_selector: optional(term, "namespaceSelector", label_selector)?,
        topology_key: text(term, "topologyKey")?,
    })
}

pub(super) fn label_selector(selector: &Value) -> ImportConstraintResult<pb::LabelSelector> {
    Ok(pb::LabelSelector {
        match_labels: texts(selector, "matchLabels")?,
        match_expressions: items(selector, "matchExpressions", requirement)?,
    })
}

fn spread_constraint(constraint: &Value) -> ImportConstraintResult<pb::TopologySpreadConstraint> {
    Ok(pb::TopologySpreadConstraint {
        max_skew: integer(constraint, "maxSkew")?.unwrap_or_default(),
        topology_key: text(constraint, "topologyKey")?,
        when_unsatisfiable: text(constraint, "whenUnsatisfiable")?,
        label_selector: optional(constraint, "labelSelector", label_selector)?,
        min_domains: integer(constraint, "minDomains")?,
        node_affinity_policy: text(constraint, "nodeAffinityPolicy")?,
        node_taints_policy: text(constraint, "nodeTaintsPolicy")?,
        match_label_keys: text_list(constraint, "matchLabelKeys")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(object: &Value) -> ImportConstraintResult<pb::PodConstraints> {
        of_pod(object, None).map(|own| own.map(|own| *own).unwrap_or_default())
    }

    #[test]
    fn ports_on_the_host_network_are_those_of_the_containers() {
        let ports = |spec: Value| -> Vec<i32> {
            let pod = read(&json!({ "spec": spec })).unwrap();
            pod.host_ports.iter().map(|port| port.port).collect()
        };
        let container = json!({"ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]});
        assert_eq!(ports(json!({"containers": [container]})), [8_081]);
        assert_eq!(
            ports(json!({"containers": [container], "hostNetwork": true})),
            [80, 8_081]
        );
        let stored = json!({"spec": {"containers": [container], "hostNetwork": true}, "status": {"phase": "Pending"}});
        assert_eq!(read(&stored).unwrap().host_ports.len(), 1);
        let restarted = json!({"restartPolicy": "Always", "ports": [{"hostPort": 9}]});
        assert_eq!(ports(json!({"initContainers": [container, restarted]})), [9]);
    }

    #[test]
    fn an_empty_required_list_is_not_an_absent_one() {
        let required = |affinity: Value| {
            let pod = read(&json!({"spec": {"affinity": {"nodeAffinity": affinity}}})).unwrap();
            pod.affinity.and_then(|own| own.node_affinity).map(|own| own.required)
        };
        assert_eq!(required(json!({})), None);
        let empty = Some(Some(pb::NodeSelector::default()));
        assert_eq!(required(json!({ REQUIRED: {"nodeSelectorTerms": []} })), empty);
        assert_eq!(required(json!({ REQUIRED: {} })), empty);
    }

    #[test]
    fn errors_name_the_place() {
        let error = |spec: Value| read(&json!({ "spec": spec })).unwrap_err().to_string();
        assert_eq!(
            error(json!({"tolerations": [{}, {"key": 1}]})),
            "spec.tolerations[1].key: is a number, not a text"
        );
        let term = json!({"matchExpressions": [{"key": "a", "values": [7]}]});
        assert_eq!(
            error(json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}})),
            format!(
                "spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values[0]: is not a text"
            )
        );
    }

    #[test]
    fn every_field_is_read() {
        let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]});
        let term =
            json!({"labelSelector": selector, "namespaces": ["x"], "namespaceSelector": {}, "topologyKey": "zone"});
        let pod = read(&json!({
            "spec": {
                "nodeSelector": {"pool": "gpu"},
                "affinity": {
                    "podAffinity": {REQUIRED: [term], PREFERRED: [{"weight": 3, "podAffinityTerm": term}]},
                    "podAntiAffinity": {REQUIRED: [term]},
                },
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": selector, "minDomains": 2, "nodeTaintsPolicy": "Honor", "matchLabelKeys": ["h"]}],
                "containers": [{"image": "a"}, {}],
                "initContainers": [{"image": "a"}],
                "volumes": [{"image": {"reference": "v"}}, {"emptyDir": {}}],
            },
        }))
        .unwrap();
        let affinity = pod.affinity.unwrap();
        let pod_affinity = affinity.pod_affinity.unwrap();
        assert_eq!(pod_affinity.preferred[0].term.as_ref(), pod_affinity.required.first());
        let term = &affinity.pod_anti_affinity.unwrap().required[0];
        assert_eq!(term.namespace_selector, Some(pb::LabelSelector::default()));
        assert_eq!(
            term.label_selector.as_ref().unwrap().match_expressions[0].operator,
            "Exists"
        );
        let spread = &pod.topology_spread_constraints[0];
        assert_eq!(
            (spread.min_domains, spread.max_skew, &*spread.node_taints_policy),
            (Some(2), 1, "Honor")
        );
        assert_eq!(
            (pod.images, pod.image_volumes),
            (
                vec!["a".to_owned(), String::new(), "a".to_owned()],
                vec!["v".to_owned()]
            )
        );
        assert_eq!((pod.node_selector.len(), pod.tolerations.len()), (1, 1));
    }
}
