//! Reader of changed objects: their records, with the selectors of the owners of pods and the devices of slices and claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message as _;
use pumice_kubernetes::claims::{AffectedRecords, ClaimedDevices, PodClaims};
use pumice_kubernetes::object::{
    self, AmountRules, ObjectKind, ObjectLimits, ObjectRecord, OwnerChange, PodController, PodOwners, RecordIdentity,
    UnreadableObject,
};
use pumice_protocol::v1 as pb;

use crate::read_again::StaleRecords;
use crate::records::{ChangedRecord, RecordChanges};
use crate::requests::RequestError;

/// Reader of objects, which knows the owners of pods, and slices and claims of devices.
#[derive(Debug, Default)]
pub(crate) struct ObjectReader {
    owners: PodOwners,
    /// True if all kinds of owners are watched.
    pub(crate) has_owners: bool,
    /// True if queues are watched.
    pub(crate) has_queues: bool,
    devices: ClaimedDevices,
    /// True if all slices and claims were listed.
    has_all_devices: bool,
    /// Slices and claims as they were before the lists: those that cannot be read count on.
    former_devices: Arc<ClaimedDevices>,
    /// Encoded records of pods that claim devices, without the devices.
    claiming: BTreeMap<String, Vec<u8>>,
    /// Records that the API server has to tell again.
    stale: StaleRecords,
    /// Objects that could not be read since the last look.
    unreadable: Vec<String>,
    unreadable_count: usize,
}

/// Messages about unreadable objects that are kept.
const UNREADABLE_REPORTED: usize = 20;

impl ObjectReader {
    /// Reader of lists, which expects all kinds of owners.
    pub(crate) fn new(former_devices: Arc<ClaimedDevices>) -> Self {
        ObjectReader {
            has_owners: true,
            has_queues: true,
            former_devices,
            ..ObjectReader::default()
        }
    }

    /// Ends the lists: what was read is whole.
    pub(crate) fn end_lists(&mut self) {
        // The pods came after their owners, and the nodes after their slices.
        self.stale = StaleRecords::default();
        self.has_all_devices = true;
        self.former_devices = Arc::default();
    }

    /// Slices and claims of a reader whose lists have ended.
    pub(crate) fn into_devices(self) -> Option<ClaimedDevices> {
        self.has_all_devices.then_some(self.devices)
    }

    /// Adds the record of an object to changes.
    pub(crate) fn read(&mut self, kind: ObjectKind, is_deleted: bool, bytes: &[u8], changes: &mut RecordChanges) {
        let read = object::read_json_of(kind, bytes, AmountRules::Auto, ObjectLimits::default());
        if is_deleted {
            self.remove(kind, read, changes);
        } else {
            self.put(kind, read, changes);
        }
    }

    /// Notes the records that a change of devices changes, and adds those of pods to changes.
    fn follow(&mut self, affected: AffectedRecords, changes: &mut RecordChanges) {
        let AffectedRecords { mut nodes, tasks } = affected;
        self.stale.nodes.append(&mut nodes);
        for name in tasks {
            let encoded = self.claiming.get(&name).map(Vec::as_slice);
            if let Some(Ok(mut task)) = encoded.map(pb::Task::decode) {
                self.devices.complete_task(&mut task);
                let record = ObjectRecord::Task(task, None, PodClaims::default());
                changes.put(pb::RecordKind::Task, record);
            }
        }
    }

    /// Adds the records of a page of a list to changes.
    pub(crate) fn read_page(
        &mut self,
        kind: ObjectKind,
        page: &[u8],
        changes: &mut RecordChanges,
    ) -> Result<(), RequestError> {
        let mut put = |read| self.put(kind, read, changes);
        let read = object::read_json_list(kind, page, AmountRules::Auto, ObjectLimits::default(), &mut put);
        read.map_err(|error| RequestError::Unreadable(error.to_string()))
    }

    fn put(
        &mut self,
        kind: ObjectKind,
        read: Result<ObjectRecord, Box<UnreadableObject>>,
        changes: &mut RecordChanges,
    ) {
        match read {
            Ok(ObjectRecord::Owner(owner)) => {
                if let OwnerChange::Changed(namespace) = self.owners.add(owner) {
                    self.stale.namespaces.insert(namespace);
                }
            }
            Ok(ObjectRecord::Device(object)) => {
                let affected = self.devices.put(object);
                self.follow(affected, changes);
            }
            Ok(mut record) => {
                if let ObjectRecord::Task(task, controller, claims) = &mut record {
                    let claims = std::mem::take(claims);
                    self.complete_task(task, controller.as_ref(), claims, changes);
                }
                if let ObjectRecord::Node(node) = &mut record {
                    self.devices.complete_node(node);
                    self.stale.nodes.remove(&node.name);
                }
                if let ObjectRecord::Job(job) = &record
                    && kind == ObjectKind::WorkloadPodGroup
                    && !self.has_queues
                {
                    Self::put_own_queue(&job.queue, changes);
                }
                changes.put(kind.record_kind(), record);
            }
            Err(unreadable) => self.note_unreadable(kind, *unreadable, changes),
        }
    }

    /// Puts what owners and claims tell into the record of a pod.
    fn complete_task(
        &mut self,
        task: &mut pb::Task,
        controller: Option<&PodController>,
        claims: PodClaims,
        changes: &mut RecordChanges,
    ) {
        if self.has_owners {
            self.owners.complete(task, controller);
        } else {
            self.owners.complete_partly(task, controller);
        }
        if claims.is_empty() {
            self.claiming.remove(&task.name);
        } else {
            self.claiming.insert(task.name.clone(), task.encode_to_vec());
        }
        let affected = self.devices.put_pod(task, claims);
        self.devices.complete_task(task);
        self.follow(affected, changes);
    }

    /// Adds the queue of a pod group, where the cluster has no queues and the group names none.
    fn put_own_queue(queue: &str, changes: &mut RecordChanges) {
        if queue == object::DEFAULT_QUEUE {
            let record = pb::Queue {
                name: queue.to_owned(),
                ..pb::Queue::default()
            };
            changes.put(pb::RecordKind::Queue, ObjectRecord::Queue(record));
        }
    }

    fn remove(
        &mut self,
        kind: ObjectKind,
        read: Result<ObjectRecord, Box<UnreadableObject>>,
        changes: &mut RecordChanges,
    ) {
        match read {
            Ok(ObjectRecord::Owner(owner)) => {
                if let OwnerChange::Changed(namespace) = self.owners.remove(&owner) {
                    self.stale.namespaces.insert(namespace);
                }
            }
            Ok(ObjectRecord::Device(object)) => self.remove_named(kind, object.name(), changes),
            Ok(record) => self.remove_named(kind, record.name_and_uid().0, changes),
            // An object that cannot be read goes by its name.
            Err(unreadable) if !unreadable.name.is_empty() => self.remove_named(kind, &unreadable.name, changes),
            Err(_) => {}
        }
    }

    fn remove_named(&mut self, kind: ObjectKind, name: &str, changes: &mut RecordChanges) {
        if kind.tells_devices() {
            let affected = self.devices.remove(kind, name);
            self.follow(affected, changes);
            return;
        }
        if kind == ObjectKind::Pod {
            self.claiming.remove(name);
            let affected = self.devices.remove_pod(name);
            self.follow(affected, changes);
        }
        if kind.record_kind() != pb::RecordKind::Unspecified {
            changes.set(kind.record_kind(), name.to_owned(), ChangedRecord::Remove);
        }
    }

    fn note_unreadable(&mut self, kind: ObjectKind, unreadable: UnreadableObject, changes: &mut RecordChanges) {
        let UnreadableObject {
            title,
            name,
            error,
            record,
        } = unreadable;
        if kind.tells_devices() && !self.has_all_devices {
            let former = Arc::clone(&self.former_devices);
            let affected = self.devices.put_former(&former, kind, &name);
            self.follow(affected, changes);
        }
        if kind == ObjectKind::Pod {
            // The last good record counts, as it is.
            self.claiming.remove(&name);
        }
        self.unreadable_count = self.unreadable_count.saturating_add(1);
        if self.unreadable.len() < UNREADABLE_REPORTED {
            self.unreadable.push(format!("{title}: {error}"));
        }
        if let Some(RecordIdentity { kind, name, node }) = record {
            let record = pb::UnreadableRecord {
                kind: kind.into(),
                name: name.clone(),
                field: error.field,
                message: error.reason,
                node,
            };
            changes.set(kind, name, ChangedRecord::Unreadable(record));
        }
    }

    /// Records that have to be read again, since the last call.
    pub(crate) fn take_stale(&mut self) -> StaleRecords {
        std::mem::take(&mut self.stale)
    }

    /// Number of objects that could not be read since the last call, and messages about the first of them.
    pub(crate) fn take_unreadable(&mut self) -> (usize, Vec<String>) {
        (
            std::mem::take(&mut self.unreadable_count),
            std::mem::take(&mut self.unreadable),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const POD: &str =
        r#"{"metadata":{"name":"a","namespace":"web","labels":{"app":"front"}},"spec":{"containers":[{"name":"c"}]}}"#;

    #[test]
    fn the_last_change_of_a_name_counts() {
        let mut reader = ObjectReader::default();
        let mut changes = RecordChanges::default();
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
    fn a_pod_group_without_any_queues_gets_one() {
        let group = |labels: &str| {
            format!(
                r#"{{"metadata":{{"name":"g","namespace":"web","labels":{labels}}},"spec":{{"schedulingPolicy":{{"gang":{{"minCount":3}}}}}}}}"#
            )
        };
        let read = |has_queues: bool, labels: &str| {
            let mut reader = ObjectReader::new(Arc::default());
            reader.has_queues = has_queues;
            let mut changes = RecordChanges::default();
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
        let mut changes = RecordChanges::default();
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
        let mut reader = ObjectReader::new(Arc::default());
        let mut changes = RecordChanges::default();
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
        let mut reader = ObjectReader::new(Arc::default());
        let service = r#"{"metadata":{"name":"s","namespace":"web"},"spec":{"selector":{"app":"front"}}}"#;
        put(&mut reader, ObjectKind::Service, service);
        put(&mut reader, ObjectKind::ResourceSlice, SLICE);
        reader.end_lists();
        assert_eq!(reader.take_stale(), StaleRecords::default());
    }

    const SLICE: &str =
        r#"{"metadata":{"name":"s"},"spec":{"driver":"gpu.x","nodeName":"n","devices":[{"name":"g-0"}]}}"#;
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
        let mut changes = RecordChanges::default();
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
        let mut reader = ObjectReader::new(Arc::default());
        let (records, _) = put(&mut reader, ObjectKind::ResourceSlice, SLICE);
        assert_eq!(records, pb::Cluster::default());
        let (records, _) = put(&mut reader, ObjectKind::Node, NODE);
        assert_eq!(records.nodes[0].devices.as_ref().unwrap().count, 1);
        assert_eq!(reader.take_stale(), StaleRecords::default());
        let mut changes = RecordChanges::default();
        reader.read(ObjectKind::ResourceSlice, true, SLICE.as_bytes(), &mut changes);
        assert!(changes.is_empty());
        assert_eq!(reader.take_stale().nodes, BTreeSet::from(["n".to_owned()]));
    }

    #[test]
    fn a_claim_changes_the_pods_that_name_it_and_others_cost_nothing() {
        let mut reader = ObjectReader::new(Arc::default());
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
        let mut changes = RecordChanges::default();
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
        let mut reader = ObjectReader::new(Arc::default());
        put(&mut reader, ObjectKind::Pod, &claiming("p", ""));
        let (_, unreadable) = put(&mut reader, ObjectKind::Pod, &claiming("p", r#","priority":"high""#));
        assert_eq!(unreadable[0].name, "web/p");
        assert_eq!(counts(&put(&mut reader, ObjectKind::ResourceClaim, &claim(2)).0), []);
        // It shares its claim all the same.
        assert_eq!(
            counts(&put(&mut reader, ObjectKind::Pod, &claiming("q", "")).0),
            [("web/q", 0)]
        );
        let mut changes = RecordChanges::default();
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
        let mut reader = ObjectReader::new(Arc::default());
        put(&mut reader, ObjectKind::ResourceSlice, SLICE);
        reader.end_lists();
        put(&mut reader, ObjectKind::ResourceSlice, &broken);
        let devices = |reader: &mut ObjectReader| put(reader, ObjectKind::Node, NODE).0.nodes[0].devices.clone();
        assert!(devices(&mut reader).is_some());
        let (count, messages) = reader.take_unreadable();
        assert_eq!(
            (count, &*messages[0]),
            (1, "ResourceSlice s: spec.nodeName: is a number, not a text")
        );
        let mut reader = ObjectReader::new(Arc::new(reader.into_devices().unwrap()));
        put(&mut reader, ObjectKind::ResourceSlice, &broken);
        assert!(devices(&mut reader).is_some());
        let mut changes = RecordChanges::default();
        reader.read(ObjectKind::ResourceSlice, true, broken.as_bytes(), &mut changes);
        assert!(devices(&mut reader).is_none());
        assert!(
            ObjectReader::new(Arc::default()).into_devices().is_none(),
            "its lists have not ended"
        );
    }
}
