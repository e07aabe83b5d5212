//! Objects by their bytes, compared with the reading of the whole JSON value.

use serde_json::{Value, json};

use super::*;

fn read_all(bytes: &[u8]) -> Vec<(Option<usize>, ObjectOutcome)> {
    let mut all = Vec::new();
    read_json(
        bytes,
        AmountRules::default(),
        ObjectLimits::default(),
        &mut |item, outcome| {
            all.push((item, outcome));
            true
        },
    );
    all
}

/// Reads an object by its whole JSON value, as files are read.
fn by_value(object: &Value) -> Option<Result<ObjectRecord, FieldError>> {
    let kind = object_kind(object["apiVersion"].as_str()?, object["kind"].as_str()?)?;
    Some(read_value(kind, object, AmountRules::default()))
}

#[test]
fn the_read_fields_are_all_that_records_are_derived_from() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/");
    let mut compared = 0;
    for dump in ["dump.json", "constraints.json"] {
        let text = std::fs::read_to_string(format!("{root}{dump}")).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        let items = list["items"].as_array().unwrap();
        let all = read_all(text.as_bytes());
        assert_eq!(all.len(), items.len(), "{dump}");
        for ((number, outcome), object) in all.into_iter().zip(items) {
            let expected = match by_value(object) {
                Some(Ok(record)) => ObjectOutcome::Record(record),
                other => panic!("{dump} item {number:?}: {other:?}"),
            };
            assert_eq!(outcome, expected, "{dump} item {number:?}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared} objects");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one object of each kind, with all of its fields")]
fn every_field_of_every_kind_is_read() {
    let quantities = json!({"cpu": 1, "memory": "1.5Gi", "nvidia.com/gpu": 2});
    let resources = json!({"requests": quantities, "limits": quantities});
    let limits = json!({"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 500}, "requests": quantities});
    let sharing = json!({"name": "s", "resources": limits});
    let limiting = [
        "awsElasticBlockStore",
        "azureDisk",
        "cinder",
        "csi",
        "ephemeral",
        "fc",
        "gcePersistentDisk",
        "iscsi",
        "persistentVolumeClaim",
        "portworxVolume",
        "rbd",
        "vsphereVolume",
    ];
    let container = json!({
        "name": "c", "image": "i", "restartPolicy": "Always", "resources": resources,
        "ports": [{"hostPort": 80, "protocol": "TCP", "hostIP": "1.2.3.4"}],
    });
    let statuses = json!([{"name": "c", "resources": resources, "allocatedResources": quantities}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
    ]}}});
    let metadata = json!({
        "name": "x", "namespace": "y", "uid": "z", "labels": {"a": "b", "volcano.sh/task-spec": "r"},
        "annotations": {"scheduling.k8s.io/group-name": "g", "volcano.sh/oversubscription-cpu": "5"},
        "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:01Z", "managedFields": [{}],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}],
    });
    let objects = [
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
            "affinity": affinity, "containers": [container], "initContainers": [container], "hostNetwork": true,
            "nodeName": "n", "nodeSelector": {"s": "t"}, "overhead": quantities, "priority": 4, "priorityClassName": "high",
            "resourceClaims": [{"name": "c"}], "resources": resources, "schedulerName": "volcano",
            "schedulingGates": [{"name": "g"}], "tolerations": [{"key": "k"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "labelSelector": {"matchLabels": {"a": "b"}}}],
            "volumes": [{"ephemeral": {"volumeClaimTemplate": {}}}, {"persistentVolumeClaim": {"claimName": "c"}}, {"image": {"reference": "r"}}],
        }, "status": {
            "phase": "Running", "nominatedNodeName": "m", "resources": resources, "allocatedResources": quantities,
            "conditions": [{"type": "PodResizePending", "reason": "Infeasible", "status": "True"}],
            "containerStatuses": statuses, "initContainerStatuses": statuses,
        }}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": true, "taints": [{"key": "t"}]},
            "status": {"allocatable": quantities, "images": [{"names": ["i"], "sizeBytes": 5}], "conditions": [{"type": "Ready", "status": "False"}]}}),
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": metadata, "spec": {
            "weight": 3, "priority": 2, "parent": "p", "reclaimable": false, "capability": quantities, "deserved": quantities,
            "guarantee": {"resource": quantities},
            "affinity": {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["a"]}},
        }, "status": {"state": "Open"}}),
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": {
            "queue": "q", "minMember": 3, "minResources": quantities, "minTaskMember": {"r": 1}, "priorityClassName": "high",
            "subGroupPolicy": [{"name": "s", "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["a"]}],
        }, "status": {"phase": "Running"}}),
        json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": {
            "priority": 9, "priorityClassName": "high", "schedulingPolicy": {"gang": {"minCount": 3}}}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [container], "schedulingGroup": {"podGroupName": "g"}}}),
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 7, "globalDefault": true}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": {"a": "b"}}}),
        json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": metadata, "spec": {"selector": {"a": "b"}}}),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": {"selector": {"matchLabels": {"a": "b"}}}}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [sharing]}}),
        json!({"apiVersion": "v1", "kind": "Node", "status": {"allocatable": {"volcano.sh/vgpu-number": 20, "volcano.sh/vgpu-memory": 4000}},
            "metadata": {"name": "n", "labels": {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "T4", "nvidia.com/gpu.memory": "2000"}}}),
    ];
    let limited = limiting.map(|volume| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], "volumes": [{volume: {"x": 1}}]}})
    });
    let objects: Vec<Value> = objects.into_iter().chain(limited).collect();
    for object in &objects {
        let expected = by_value(object).unwrap().unwrap();
        let [(None, ObjectOutcome::Record(read))] = &read_all(object.to_string().as_bytes())[..] else {
            panic!("{object}")
        };
        assert_eq!(*read, expected, "{object}");
    }
    // Each kept field matters: without it, the record is another one. Only the list of kept fields is asked for here.
    let pod = objects[0].to_string();
    let whole = read_all(pod.as_bytes());
    for field in [
        "affinity",
        "hostNetwork",
        "overhead",
        "resourceClaims",
        "topologySpreadConstraints",
        "volumes",
    ] {
        let without = pod.replace(&format!("\"{field}\""), "\"other\"");
        if field != "hostNetwork" {
            assert_ne!(read_all(without.as_bytes()), whole, "{field}");
        }
    }
}

#[test]
fn pods_join_the_pod_groups_of_kubernetes_by_name() {
    let read = |object: Value| by_value(&object).unwrap().unwrap();
    let group = |labels: Value, spec: Value| {
        let metadata = json!({"name": "g", "namespace": "team", "uid": "u", "labels": labels});
        let object =
            json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec});
        let ObjectRecord::Job(job) = read(object) else {
            panic!("no job")
        };
        assert_eq!(job.phase(), pb::JobPhase::Inqueue);
        (job.name, job.queue, job.min_member, job.priority)
    };
    let gang = json!({"schedulingPolicy": {"gang": {"minCount": 3}}, "priority": 7});
    assert_eq!(group(json!({}), gang), ("team/g".into(), "default".into(), 3, 7));
    let labels = json!({"scheduling.volcano.sh/queue-name": "research"});
    let basic = json!({"schedulingPolicy": {"basic": {}}});
    assert_eq!(group(labels, basic), ("team/g".into(), "research".into(), 1, 0));
    let job = |annotations: Value, spec: Value| {
        let metadata = json!({"name": "p", "namespace": "team", "annotations": annotations});
        let ObjectRecord::Task(task, ..) =
            read(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
        else {
            panic!("no task")
        };
        task.job
    };
    let spec = json!({"containers": [{"name": "c"}], "schedulingGroup": {"podGroupName": "g"}});
    assert_eq!(job(json!({}), spec.clone()), "team/g");
    assert_eq!(
        job(json!({"scheduling.k8s.io/group-name": "volcano"}), spec),
        "team/volcano"
    );
    assert_eq!(
        job(json!({}), json!({"containers": [{"name": "c"}], "schedulingGroup": {}})),
        ""
    );
}

#[test]
fn a_task_has_the_kind_of_its_first_owner() {
    let kind = |owners: Value| {
        let metadata = json!({"name": "p", "namespace": "team", "ownerReferences": owners});
        let spec = json!({"containers": [{"name": "c"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        by_value(&pod).unwrap().map(|record| {
            let ObjectRecord::Task(task, ..) = record else {
                panic!("no task")
            };
            task.owner_kind
        })
    };
    assert_eq!(kind(json!([])).unwrap(), "");
    assert_eq!(
        kind(json!([{"kind": "Job"}, {"kind": "ReplicaSet", "controller": true}])).unwrap(),
        "Job"
    );
    assert!(kind(json!([{"kind": 3}])).is_err());
}

#[test]
fn a_running_pod_with_a_cooldown_time_tells_when_it_was_scheduled() {
    let seconds = |metadata: Value, phase: &str| {
        let mut metadata = metadata;
        metadata["name"] = "p".into();
        let condition = |kind: &str, status: &str, second: u8| {
            let at = format!("2026-11-22T12:00:0{second}Z");
            json!({"type": kind, "status": status, "lastTransitionTime": at})
        };
        let conditions = [
            condition("Ready", "True", 1),
            condition("PodScheduled", "False", 2),
            condition("PodScheduled", "True", 3),
            condition("PodScheduled", "True", 4),
        ];
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": phase, "conditions": conditions},
        });
        let [(None, ObjectOutcome::Record(ObjectRecord::Task(task, ..)))] = &read_all(pod.to_string().as_bytes())[..]
        else {
            panic!("no task")
        };
        task.scheduled_time.as_ref().map(|time| time.seconds)
    };
    let (label, annotation) = (
        json!({"labels": {"volcano.sh/cooldown-time": "10m"}}),
        json!({"annotations": {"volcano.sh/cooldown-time": "x"}}),
    );
    let third = Some(1_795_348_803);
    assert_eq!(
        (seconds(label.clone(), "Running"), seconds(annotation, "Running")),
        (third, third)
    );
    assert_eq!((seconds(label, "Pending"), seconds(json!({}), "Running")), (None, None));
}

#[test]
fn the_label_about_preemption_of_a_pod_group_stands_for_its_annotation() {
    const KEY: &str = "volcano.sh/preemptable";
    let annotation = |metadata: Value| {
        let mut metadata = metadata;
        metadata["name"] = "g".into();
        let group = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata});
        let Some(Ok(ObjectRecord::Job(job))) = by_value(&group) else {
            panic!("no job")
        };
        job.annotations.get(KEY).cloned()
    };
    assert_eq!(annotation(json!({"labels": {KEY: "true"}})).as_deref(), Some("true"));
    let both = json!({"labels": {KEY: "true"}, "annotations": {KEY: "x"}});
    assert_eq!(annotation(both).as_deref(), Some("x"));
    assert_eq!(annotation(json!({"labels": {"other": "true"}})), None);
}

#[test]
fn numbers_keep_their_text() {
    let pod = |number: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"memory":{number}}}}}}}]}}}}"#
        )
    };
    let memory = |number: &str| match &read_all(pod(number).as_bytes())[..] {
        [(None, ObjectOutcome::Record(ObjectRecord::Task(task, ..)))] => {
            Ok(task.requests.clone().unwrap().items["memory"].clone())
        }
        other => Err(format!("{other:?}")),
    };
    assert_eq!(memory("9007199254740993").unwrap(), "9007199254740993");
    assert_eq!(memory("1e3").unwrap(), "1k");
    assert_eq!(
        memory("1e99").unwrap(),
        "3074457345618258",
        "the largest amount of a pod that waits"
    );
    assert!(memory("-1").is_err() && memory("-1e99").is_err());
    // An object that looks like the inside of a number of this reader.
    assert!(memory(r#"{"$serde_json::private::Number":"5"}"#).is_ok_and(|text| text == "5"));
    assert!(memory(r#"{"$serde_json::private::Number":"x"}"#).is_err());
}

#[test]
fn items_of_a_typed_list_have_the_kind_of_the_list_wherever_it_stands() {
    let item = r#"{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"1"}}}"#;
    for text in [
        format!(r#"{{"kind":"NodeList","apiVersion":"v1","items":[{item}]}}"#),
        format!(r#"{{"items":[{item}],"apiVersion":"v1","kind":"NodeList"}}"#),
    ] {
        let all = read_all(text.as_bytes());
        assert!(
            matches!(&all[..], [(Some(0), ObjectOutcome::Record(ObjectRecord::Node(_)))]),
            "{all:?}"
        );
    }
    assert_eq!(read_all(br#"{"kind":"PodList","apiVersion":"v1","items":null}"#), []);
}

#[test]
fn the_identity_is_read_as_far_as_the_text_goes() {
    let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns"},"spec":{"nodeName":"n","containers":[{"#;
    let [(None, ObjectOutcome::Unreadable(unreadable))] = &read_all(text.as_bytes())[..] else {
        panic!("unreadable")
    };
    assert_eq!(unreadable.title, "Pod ns/p");
    let record = unreadable.record.clone().unwrap();
    assert_eq!(
        (record.kind, &*record.name, &*record.node),
        (pb::RecordKind::Task, "ns/p", "n")
    );
    for length in 0..text.len() {
        let all = read_all(&text.as_bytes()[..length]);
        assert!(
            matches!(&all[..], [(None, ObjectOutcome::Unreadable(_))]),
            "{length}: {all:?}"
        );
    }
}

#[test]
fn the_class_of_a_pod_is_that_of_its_status() {
    let class = |status: Value| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]},
            "status": status});
        match &read_all(pod.to_string().as_bytes())[..] {
            [(None, ObjectOutcome::Record(ObjectRecord::Task(task, ..)))] => Some(task.qos_class()),
            _ => None,
        }
    };
    for (text, expected) in [
        ("BestEffort", pb::QosClass::BestEffort),
        ("Burstable", pb::QosClass::Burstable),
        ("Guaranteed", pb::QosClass::Guaranteed),
        ("other", pb::QosClass::Unspecified),
    ] {
        assert_eq!(class(json!({"phase": "Running", "qosClass": text})), Some(expected));
    }
    assert_eq!(class(json!({})), Some(pb::QosClass::Unspecified));
    assert_eq!(class(json!({"qosClass": 3})), None);
}
