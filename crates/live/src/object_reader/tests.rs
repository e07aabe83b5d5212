//! Tests of the reader of changed objects.

use std::collections::BTreeSet;

use super::*;
use crate::records::RecordChanges;
use crate::resources::scopes;

const POD: &str =
    r#"{"metadata":{"name":"a","namespace":"web","labels":{"app":"front"}},"spec":{"containers":[{"name":"c"}]}}"#;

#[test]
fn the_last_change_of_a_name_counts() {
    let mut reader = ObjectReader::default();
    let mut changes = ChangeBatches::default();
    reader.read(ObjectKind::Pod, false, POD.as_bytes(), &mut changes);
    reader.read(ObjectKind::Pod, true, POD.as_bytes(), &mut changes);
    reader.read(
        ObjectKind::Node,
        false,
        r#"{"metadata":{"name":"n"}}"#.as_bytes(),
        &mut changes,
    );
    let (put, removals, unreadable) = changes.decoded();
    assert_eq!((put.tasks.len(), put.nodes.len()), (0, 1));
    assert_eq!(removals.tasks, ["web/a"]);
    assert_eq!(unreadable, []);
}

#[test]
fn lists_of_queues_get_those_that_volcano_makes_when_it_starts() {
    let listed = |queues: &[&str]| {
        let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
        let mut changes = ChangeBatches::default();
        for queue in queues {
            reader.read(ObjectKind::Queue, false, queue.as_bytes(), &mut changes);
        }
        reader.end_lists(&mut changes);
        let (put, _, unreadable) = changes.decoded();
        let names = put.queues.iter().map(|queue| queue.name.clone());
        (names.collect::<Vec<_>>(), unreadable.len())
    };
    let child = r#"{"metadata":{"name":"child"},"spec":{"parent":"root"}}"#;
    let root = r#"{"metadata":{"name":"root"},"spec":{"capability":{"cpu":"9"}}}"#;
    let unreadable = r#"{"metadata":{"name":"root"},"spec":{"capability":9}}"#;
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(listed(&[]), (Vec::new(), 0));
    assert_eq!(listed(&[child]), (names(&["child", "default", "root"]), 0));
    assert_eq!(listed(&[child, root]), (names(&["child", "default", "root"]), 0));
    assert_eq!(listed(&[unreadable, child]), (names(&["child", "default"]), 1));
}

#[test]
fn the_first_queue_after_the_lists_brings_those_that_volcano_makes() {
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    reader.end_lists(&mut ChangeBatches::default());
    let mut put = |queue: &str| {
        let mut changes = ChangeBatches::default();
        reader.read(ObjectKind::Queue, false, queue.as_bytes(), &mut changes);
        let queues = changes.decoded().0.queues;
        queues.into_iter().map(|queue| queue.name).collect::<Vec<_>>()
    };
    assert_eq!(put(r#"{"metadata":{"name":"team"}}"#), ["default", "root", "team"]);
    assert_eq!(put(r#"{"metadata":{"name":"other"}}"#), ["other"]);
}

#[test]
fn a_queue_that_a_group_got_during_a_list_goes_with_its_end() {
    let queues = scopes(&[])
        .into_iter()
        .find(|scope| scope.resource.kind == ObjectKind::Queue);
    let queues = queues.unwrap();
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    reader.has_queues = false;
    let mut changes = ChangeBatches::default();
    reader.end_lists(&mut changes);
    reader.begin_list(&queues);
    let group = r#"{"metadata":{"name":"g","namespace":"web"},"spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}"#;
    reader.read(ObjectKind::WorkloadPodGroup, false, group.as_bytes(), &mut changes);
    reader.has_queues = true;
    reader.end_list(&queues, &mut changes);
    let (put, removed, ..) = changes.decoded();
    assert_eq!(
        (put.queues.len(), &removed.queues[..]),
        (0, &["default".to_owned()][..])
    );
}

#[test]
fn a_pod_group_without_any_queues_gets_one() {
    let group = |labels: &str| {
        format!(
            r#"{{"metadata":{{"name":"g","namespace":"web","labels":{labels}}},"spec":{{"schedulingPolicy":{{"gang":{{"minCount":3}}}}}}}}"#
        )
    };
    let read = |has_queues: bool, labels: &str| {
        let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
        reader.has_queues = has_queues;
        let mut changes = ChangeBatches::default();
        reader.read(
            ObjectKind::WorkloadPodGroup,
            false,
            group(labels).as_bytes(),
            &mut changes,
        );
        let (put, ..) = changes.decoded();
        let job = &put.jobs[0];
        assert_eq!((&*job.name, job.min_member), ("web/g", 3));
        (
            job.queue.clone(),
            put.queues.iter().map(|queue| queue.name.clone()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(read(false, "{}"), ("default".to_owned(), vec!["default".to_owned()]));
    assert_eq!(read(true, "{}"), ("default".to_owned(), vec![]));
    let named = r#"{"scheduling.volcano.sh/queue-name":"team"}"#;
    assert_eq!(read(false, named), ("team".to_owned(), vec![]));
}

#[test]
fn an_object_that_cannot_be_read_is_named_and_removed_by_name() {
    let mut reader = ObjectReader::default();
    let mut changes = ChangeBatches::default();
    let node = r#"{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":{}}}}"#;
    reader.read(ObjectKind::Node, false, node.as_bytes(), &mut changes);
    let (_, _, unreadable) = std::mem::take(&mut changes).decoded();
    assert_eq!(unreadable[0].name, "n");
    assert_eq!(reader.take_unreadable().0, 1);
    reader.read(ObjectKind::Node, true, node.as_bytes(), &mut changes);
    assert_eq!(changes.decoded().1.nodes, ["n"]);
}

#[test]
fn an_owner_that_selects_otherwise_makes_its_namespace_stale_once() {
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    let mut changes = ChangeBatches::default();
    let service = r#"{"metadata":{"name":"s","namespace":"web"},"spec":{"selector":{"app":"front"}}}"#;
    reader.read(ObjectKind::Service, false, service.as_bytes(), &mut changes);
    assert_eq!(reader.take_stale().namespaces, BTreeSet::from(["web".to_owned()]));
    reader.read(ObjectKind::Service, false, service.as_bytes(), &mut changes);
    assert_eq!(reader.take_stale(), StaleRecords::default());
    reader.read(ObjectKind::Pod, false, POD.as_bytes(), &mut changes);
    let (put, ..) = std::mem::take(&mut changes).decoded();
    let selector = |put: &pb::Cluster| put.tasks[0].constraints.as_ref()?.owner_selector.clone();
    assert!(selector(&put).is_some());
    reader.read(ObjectKind::Service, true, service.as_bytes(), &mut changes);
    assert_eq!(reader.take_stale().namespaces.len(), 1);
    reader.read(ObjectKind::Pod, false, POD.as_bytes(), &mut changes);
    assert_eq!(selector(&changes.decoded().0), None);
}

#[test]
fn after_the_lists_nothing_has_to_be_read_again() {
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    let service = r#"{"metadata":{"name":"s","namespace":"web"},"spec":{"selector":{"app":"front"}}}"#;
    put(&mut reader, ObjectKind::Service, service);
    put(&mut reader, ObjectKind::ResourceSlice, SLICE);
    reader.end_lists(&mut ChangeBatches::default());
    assert_eq!(reader.take_stale(), StaleRecords::default());
}

const SLICE: &str = r#"{"metadata":{"name":"s"},"spec":{"driver":"gpu.x","nodeName":"n","devices":[{"name":"g-0"}]}}"#;
const NODE: &str = r#"{"metadata":{"name":"n"}}"#;

fn claim(count: u32) -> String {
    format!(
        r#"{{"metadata":{{"name":"c","namespace":"web"}},"spec":{{"devices":{{"requests":[{{"exactly":{{"deviceClassName":"gpu.x","count":{count}}}}}]}}}}}}"#
    )
}

fn claiming(name: &str, more: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"web"}},"spec":{{"containers":[{{"name":"c"}}],"resourceClaims":[{{"name":"g","resourceClaimName":"c"}}]{more}}}}}"#
    )
}

/// Changes of objects: the records to put, and what is unreadable.
fn put(reader: &mut ObjectReader, kind: ObjectKind, object: &str) -> (pb::Cluster, Vec<pb::UnreadableRecord>) {
    let mut changes = ChangeBatches::default();
    reader.read(kind, false, object.as_bytes(), &mut changes);
    let (put, _, unreadable) = changes.decoded();
    (put, unreadable)
}

fn counts(put: &pb::Cluster) -> Vec<(&str, u32)> {
    let count = |task: &pb::Task| task.constraints.as_ref()?.devices.as_ref().map(|own| own.count);
    let tasks = put.tasks.iter();
    tasks
        .map(|task| (task.name.as_str(), count(task).unwrap_or_default()))
        .collect()
}

#[test]
fn a_slice_makes_its_node_stale_until_the_node_is_read() {
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    let (records, _) = put(&mut reader, ObjectKind::ResourceSlice, SLICE);
    assert_eq!(records, pb::Cluster::default());
    let (records, _) = put(&mut reader, ObjectKind::Node, NODE);
    assert_eq!(records.nodes[0].devices.as_ref().unwrap().count, 1);
    assert_eq!(reader.take_stale(), StaleRecords::default());
    let mut changes = ChangeBatches::default();
    reader.read(ObjectKind::ResourceSlice, true, SLICE.as_bytes(), &mut changes);
    assert!(changes.decoded() == Default::default());
    assert_eq!(reader.take_stale().nodes, BTreeSet::from(["n".to_owned()]));
}

#[test]
fn a_claim_changes_the_pods_that_name_it_and_others_cost_nothing() {
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    put(&mut reader, ObjectKind::Pod, POD);
    assert_eq!(
        counts(&put(&mut reader, ObjectKind::Pod, &claiming("p", "")).0),
        [("web/p", 0)]
    );
    assert_eq!(reader.claiming.keys().collect::<Vec<_>>(), ["web/p"]);
    assert_eq!(
        counts(&put(&mut reader, ObjectKind::ResourceClaim, &claim(2)).0),
        [("web/p", 2)]
    );
    let both = put(&mut reader, ObjectKind::Pod, &claiming("q", "")).0;
    assert_eq!(counts(&both), [("web/p", 0), ("web/q", 0)]);
    let mut changes = ChangeBatches::default();
    reader.read(ObjectKind::Pod, true, claiming("q", "").as_bytes(), &mut changes);
    let (again, removed, _) = changes.decoded();
    assert_eq!(
        (counts(&again), removed.tasks),
        (vec![("web/p", 2)], vec!["web/q".to_owned()])
    );
    // A pod that claims nothing any more is a pod like others.
    put(
        &mut reader,
        ObjectKind::Pod,
        r#"{"metadata":{"name":"p","namespace":"web"},"spec":{}}"#,
    );
    assert_eq!(reader.claiming.len(), 0);
    assert_eq!(counts(&put(&mut reader, ObjectKind::ResourceClaim, &claim(1)).0), []);
}

#[test]
fn the_record_of_a_pod_that_cannot_be_read_stays_as_it_is() {
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    put(&mut reader, ObjectKind::Pod, &claiming("p", ""));
    let (_, unreadable) = put(&mut reader, ObjectKind::Pod, &claiming("p", r#","priority":"high""#));
    assert_eq!(unreadable[0].name, "web/p");
    assert_eq!(counts(&put(&mut reader, ObjectKind::ResourceClaim, &claim(2)).0), []);
    // It shares its claim all the same.
    assert_eq!(
        counts(&put(&mut reader, ObjectKind::Pod, &claiming("q", "")).0),
        [("web/q", 0)]
    );
    let mut changes = ChangeBatches::default();
    reader.read(
        ObjectKind::Pod,
        true,
        claiming("p", r#","priority":"high""#).as_bytes(),
        &mut changes,
    );
    assert_eq!(counts(&changes.decoded().0), [("web/q", 2)]);
}

#[test]
fn slices_that_cannot_be_read_count_on_over_lists() {
    let broken = SLICE.replace(r#""n""#, "7");
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    put(&mut reader, ObjectKind::ResourceSlice, SLICE);
    reader.end_lists(&mut ChangeBatches::default());
    put(&mut reader, ObjectKind::ResourceSlice, &broken);
    let devices = |reader: &mut ObjectReader| put(reader, ObjectKind::Node, NODE).0.nodes[0].devices.clone();
    assert!(devices(&mut reader).is_some());
    let (count, messages) = reader.take_unreadable();
    assert_eq!(
        (count, &*messages[0]),
        (1, "ResourceSlice s: spec.nodeName: is a number, not a text")
    );
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::new(reader.into_devices().unwrap()));
    put(&mut reader, ObjectKind::ResourceSlice, &broken);
    assert!(devices(&mut reader).is_some());
    let mut changes = ChangeBatches::default();
    reader.read(ObjectKind::ResourceSlice, true, broken.as_bytes(), &mut changes);
    assert!(devices(&mut reader).is_none());
    assert!(
        ObjectReader::new(AmountRules::default(), Arc::default())
            .into_devices()
            .is_none(),
        "its lists have not ended"
    );
}

#[test]
fn a_good_record_before_an_unreadable_one_is_sent_and_a_removal_too() {
    let mut reader = ObjectReader::default();
    let mut changes = ChangeBatches::default();
    let broken = claiming("p", r#","priority":"high""#);
    reader.read(ObjectKind::Pod, false, claiming("p", "").as_bytes(), &mut changes);
    reader.read(ObjectKind::Pod, false, broken.as_bytes(), &mut changes);
    reader.read(ObjectKind::Pod, true, broken.as_bytes(), &mut changes);
    reader.read(ObjectKind::Pod, false, broken.as_bytes(), &mut changes);
    let (batches, last) = changes.into_batches();
    let mut batches: Vec<_> = batches.into_iter().map(RecordChanges::decoded).collect();
    let (_, removed, unreadable) = last.decoded();
    assert_eq!((removed.tasks.len(), unreadable.len()), (0, 1));
    let (_, removed, unreadable) = batches.pop().unwrap();
    assert_eq!((removed.tasks, unreadable.len()), (vec!["web/p".to_owned()], 0));
    let (put, ..) = batches.pop().unwrap();
    assert_eq!((put.tasks.len(), batches.len()), (1, 0));
}

#[test]
fn large_records_come_in_many_batches() {
    let mut reader = ObjectReader::default();
    let mut changes = ChangeBatches::default();
    let text = "x".repeat(200 << 10);
    for number in 0..10 {
        let pod = format!(
            r#"{{"metadata":{{"name":"p{number}","namespace":"web","annotations":{{"a":"{text}"}}}},"spec":{{"containers":[{{"name":"c"}}]}}}}"#
        );
        reader.read(ObjectKind::Pod, false, pod.as_bytes(), &mut changes);
    }
    let (batches, last) = changes.into_batches();
    let tasks: Vec<usize> = batches
        .into_iter()
        .chain([last])
        .map(|batch| batch.decoded().0.tasks.len())
        .collect();
    assert_eq!(tasks, [2, 2, 2, 2, 2, 0]);
}

#[test]
fn claims_of_a_pod_that_cannot_be_read_count_on_over_lists() {
    let broken = claiming("p", r#","priority":"high""#);
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    put(&mut reader, ObjectKind::ResourceClaim, &claim(2));
    put(&mut reader, ObjectKind::Pod, &claiming("p", ""));
    put(&mut reader, ObjectKind::Pod, &claiming("q", ""));
    reader.end_lists(&mut ChangeBatches::default());
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::new(reader.into_devices().unwrap()));
    put(&mut reader, ObjectKind::ResourceClaim, &claim(2));
    put(&mut reader, ObjectKind::Pod, &broken);
    let (records, _) = put(&mut reader, ObjectKind::Pod, &claiming("q", ""));
    assert_eq!(counts(&records), [("web/q", 0)], "the two share their claim");
}

#[test]
fn an_owner_that_cannot_be_read_is_removed_by_name() {
    for (kind, selector) in [
        (ObjectKind::Service, r#"{"app":"front"}"#),
        (ObjectKind::ReplicationController, r#"{"app":"front"}"#),
        (ObjectKind::ReplicaSet, r#"{"matchLabels":{"app":"front"}}"#),
        (ObjectKind::StatefulSet, r#"{"matchLabels":{"app":"front"}}"#),
    ] {
        let mut reader = ObjectReader::default();
        let owner = |selector: &str| {
            format!(r#"{{"metadata":{{"name":"s","namespace":"web"}},"spec":{{"selector":{selector}}}}}"#)
        };
        put(&mut reader, kind, &owner(selector));
        assert_eq!(reader.take_stale().namespaces.len(), 1);
        let broken = owner(&selector.replace(r#""front""#, r#"{"x":1}"#));
        put(&mut reader, kind, &broken);
        assert_eq!(reader.take_unreadable().0, 1);
        let mut changes = ChangeBatches::default();
        reader.read(kind, true, broken.as_bytes(), &mut changes);
        assert_eq!(reader.take_stale().namespaces.len(), 1, "{}", kind.name());
    }
}

#[test]
fn quotas_and_budgets_follow_into_the_record_of_their_namespace() {
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    let quota = |cpu: &str| {
        format!(
            r#"{{"metadata":{{"name":"q","namespace":"web"}},"status":{{"hard":{{"cpu":"{cpu}"}},"used":{{"cpu":"1"}}}}}}"#
        )
    };
    let budget = r#"{"metadata":{"name":"b","namespace":"web"},"spec":{"selector":{"matchLabels":{"app":"x"}}},
      "status":{"disruptionsAllowed":2,"disruptedPods":{"x-0":"2026-11-22T12:00:00Z"}}}"#;
    let namespace = |name: &str| format!(r#"{{"metadata":{{"name":"{name}","labels":{{"team":"a"}}}}}}"#);
    let (quotas, budgets) = (ObjectKind::ResourceQuota, ObjectKind::PodDisruptionBudget);
    // Records of namespaces after a change: name, labels, cpu of the quotas, and evictions that budgets allow.
    let mut change = |kind: ObjectKind, is_deleted: bool, object: &str| {
        let mut changes = ChangeBatches::default();
        reader.read(kind, is_deleted, object.as_bytes(), &mut changes);
        let (put, removed, unreadable) = changes.decoded();
        assert!(unreadable.is_empty());
        let record = |own: pb::Namespace| {
            let hard = |quota: pb::ResourceQuota| quota.hard.unwrap().items["cpu"].clone();
            let cpu: Vec<String> = own.resource_quotas.into_iter().map(hard).collect();
            let allowed: Vec<i32> = own
                .disruption_budgets
                .iter()
                .map(|own| own.disruptions_allowed)
                .collect();
            (own.name, own.labels.len(), cpu, allowed)
        };
        (
            put.namespaces.into_iter().map(record).collect::<Vec<_>>(),
            removed.namespaces,
        )
    };
    let record = |cpu: &[&str], allowed: &[i32]| {
        let cpu = cpu.iter().map(|cpu| (*cpu).to_owned()).collect();
        (vec![("web".to_owned(), 1, cpu, allowed.to_vec())], Vec::<String>::new())
    };
    // Without an object of the namespace there is no record: it would have no labels.
    assert_eq!(change(quotas, false, &quota("4")), (Vec::new(), Vec::new()));
    assert_eq!(
        change(ObjectKind::Namespace, false, &namespace("web")),
        record(&["4"], &[])
    );
    assert_eq!(change(budgets, false, budget), record(&["4"], &[2]));
    assert_eq!(change(quotas, false, &quota("8")), record(&["8"], &[2]));
    let (others, _) = change(ObjectKind::Namespace, false, &namespace("web-2"));
    assert_eq!(
        (others[0].2.len(), others[0].3.len()),
        (0, 0),
        "parts of another namespace"
    );
    assert_eq!(change(quotas, true, &quota("8")), record(&[], &[2]));
    assert_eq!(
        change(ObjectKind::Namespace, true, &namespace("web")),
        (Vec::new(), vec!["web".to_owned()])
    );
    assert_eq!(change(budgets, true, budget), (Vec::new(), Vec::new()));
    assert_eq!(
        change(ObjectKind::Namespace, false, &namespace("web")),
        record(&[], &[])
    );
}

#[test]
fn a_quota_that_a_new_list_does_not_show_limits_no_more_and_an_unreadable_one_still_does() {
    let quotas = scopes(&[])
        .into_iter()
        .find(|scope| scope.resource.kind == ObjectKind::ResourceQuota);
    let quotas = quotas.unwrap();
    let mut reader = ObjectReader::new(AmountRules::default(), Arc::default());
    let mut changes = ChangeBatches::default();
    for name in ["a", "b"] {
        let quota =
            format!(r#"{{"metadata":{{"name":"{name}","namespace":"web"}},"status":{{"hard":{{"cpu":"4"}}}}}}"#);
        reader.read(ObjectKind::ResourceQuota, false, quota.as_bytes(), &mut changes);
    }
    reader.read(
        ObjectKind::Namespace,
        false,
        br#"{"metadata":{"name":"web"}}"#,
        &mut changes,
    );
    reader.begin_list(&quotas);
    let broken = br#"{"items":[{"metadata":{"name":"a","namespace":"web"},"status":{"hard":{"cpu":{}}}}]}"#;
    reader
        .read_page(ObjectKind::ResourceQuota, broken, &mut changes)
        .unwrap();
    reader.end_list(&quotas, &mut changes);
    let (put, ..) = changes.decoded();
    let names: Vec<&str> = put.namespaces[0]
        .resource_quotas
        .iter()
        .map(|own| own.name.as_str())
        .collect();
    assert_eq!((names, reader.take_unreadable().0), (vec!["a"], 1));
}
