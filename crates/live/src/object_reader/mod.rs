//! Reader of changed objects: their records, with the selectors of the owners of pods, the devices of slices and claims, and the
//! quotas and budgets of namespaces.

mod object_names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message as _;
use pumice_engine::model::namespace_of;
use pumice_kubernetes::claims::{AffectedRecords, ClaimedDevices, PodClaims};
use pumice_kubernetes::object::{
    self, AmountRules, NamespaceParts, ObjectKind, ObjectLimits, ObjectRecord, PodController, PodOwners,
    RecordIdentity, UnreadableObject,
};
use pumice_protocol::v1 as pb;

use self::object_names::ObjectNames;
use crate::read_again::StaleRecords;
use crate::records::{ChangeBatches, ChangedRecord};
use crate::requests::RequestError;
use crate::resources::ResourceScope;

/// Reader of objects. It stores the owners of pods, and slices and claims of devices.
#[derive(Debug, Default)]
pub(crate) struct ObjectReader {
    rules: AmountRules,
    names: ObjectNames,
    owners: PodOwners,
    /// Records of namespaces, without their parts.
    namespaces: BTreeMap<String, pb::Namespace>,
    parts: NamespaceParts,
    /// True if all kinds of owners are watched.
    pub(crate) has_owners: bool,
    /// True if queues are watched.
    pub(crate) has_queues: bool,
    devices: ClaimedDevices,
    /// True if all slices and claims were listed.
    has_all_devices: bool,
    /// Slices, claims and their pods from before the lists. They replace objects of the lists that cannot be read.
    former_devices: Arc<ClaimedDevices>,
    /// Encoded records of pods that claim devices, without the devices.
    claiming: BTreeMap<String, Vec<u8>>,
    /// Records that the API server has to tell again.
    stale: StaleRecords,
    /// Pods whose amounts are larger than any record holds.
    bounded: BTreeSet<String>,
    /// Queues that no object describes.
    own_queues: BTreeSet<String>,
    /// Objects that could not be read since the last look.
    unreadable: Vec<String>,
    unreadable_count: usize,
}

/// Messages about unreadable objects that are kept.
const UNREADABLE_REPORTED: usize = 20;

impl ObjectReader {
    /// Reader of lists, which expects all kinds of owners.
    pub(crate) fn new(rules: AmountRules, former_devices: Arc<ClaimedDevices>) -> Self {
        ObjectReader {
            rules,
            has_owners: true,
            has_queues: true,
            former_devices,
            ..ObjectReader::default()
        }
    }

    /// Ends the lists: what was read is whole. A cluster with queues has those that Volcano makes when it starts.
    pub(crate) fn end_lists(&mut self, changes: &mut ChangeBatches) {
        self.put_built_in_queues(changes);
        // The pods came after their owners, and the nodes after their slices.
        self.stale = StaleRecords::default();
        self.has_all_devices = true;
        self.former_devices = Arc::default();
    }

    /// Slices and claims of a reader whose lists have ended.
    pub(crate) fn into_devices(self) -> Option<ClaimedDevices> {
        self.has_all_devices.then_some(self.devices)
    }

    /// The pages of a new list of this scope follow.
    pub(crate) fn begin_list(&mut self, scope: &ResourceScope) {
        self.names.begin_list(scope);
    }

    /// Ends a new list: objects that it did not show are gone.
    pub(crate) fn end_list(&mut self, scope: &ResourceScope, changes: &mut ChangeBatches) {
        let kind = scope.resource.kind;
        for name in self.names.end_list(scope) {
            // Where no queues can be listed, jobs go on in those that no object describes.
            if kind != ObjectKind::Queue || self.has_queues || !self.own_queues.contains(&name) {
                self.remove_named(kind, &name, changes);
            }
        }
        if kind == ObjectKind::Queue {
            self.put_built_in_queues(changes);
        }
    }

    /// Ends a new list that broke off: objects that it did not show stay.
    pub(crate) fn give_list_up(&mut self, scope: &ResourceScope) {
        self.names.give_list_up(scope);
    }

    /// Says whether all kinds of owners are known. Once they are, waiting pods have to be read again.
    pub(crate) fn set_has_owners(&mut self, has_owners: bool) {
        if has_owners && !self.has_owners {
            let pods = self.names.of(ObjectKind::Pod);
            let namespaces = pods.filter_map(|name| name.split_once('/'));
            self.stale
                .namespaces
                .extend(namespaces.map(|(namespace, _)| namespace.to_owned()));
        }
        self.has_owners = has_owners;
    }

    /// Adds the record of an object to changes.
    pub(crate) fn read(&mut self, kind: ObjectKind, is_deleted: bool, bytes: &[u8], changes: &mut ChangeBatches) {
        let read = object::read_json_of(kind, bytes, self.rules, ObjectLimits::default());
        if is_deleted {
            self.remove(kind, &read, changes);
        } else {
            self.put(kind, read, changes);
        }
    }

    /// Stores the records that a change of devices affects, and adds the records of pods to `changes`.
    fn follow(&mut self, affected: AffectedRecords, changes: &mut ChangeBatches) {
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
        changes: &mut ChangeBatches,
    ) -> Result<(), RequestError> {
        let rules = self.rules;
        let mut put = |read| self.put(kind, read, changes);
        let read = object::read_json_list(kind, page, rules, ObjectLimits::default(), &mut put);
        read.map_err(|error| RequestError::Unreadable(error.to_string()))
    }

    fn put(
        &mut self,
        kind: ObjectKind,
        read: Result<ObjectRecord, Box<UnreadableObject>>,
        changes: &mut ChangeBatches,
    ) {
        match &read {
            Ok(record) => self.names.add(kind, record.name_and_uid().0),
            Err(unreadable) if unreadable.name.is_empty() => {}
            Err(unreadable) => self.names.add(kind, &unreadable.name),
        }
        match read {
            Ok(ObjectRecord::Owner(owner)) => {
                self.stale.namespaces.extend(self.owners.add(owner));
            }
            Ok(ObjectRecord::Device(object)) => {
                let affected = self.devices.put(object);
                self.follow(affected, changes);
            }
            Ok(ObjectRecord::Part(part)) => {
                let namespace = self.parts.put(part);
                self.put_namespace(&namespace, changes);
            }
            Ok(mut record) => {
                if let ObjectRecord::Namespace(namespace) = &mut record {
                    self.namespaces.insert(namespace.name.clone(), namespace.clone());
                    self.parts.complete(namespace);
                }
                if let ObjectRecord::Task(task, controller, claims) = &mut record {
                    self.note_bounded(task);
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
                    && job.queue == object::DEFAULT_QUEUE
                {
                    self.put_own_queue(&job.queue, changes);
                }
                if let ObjectRecord::Queue(queue) = &record {
                    self.own_queues.remove(&queue.name);
                }
                changes.put(kind.record_kind(), record);
                // A list has them at its end.
                if kind == ObjectKind::Queue && self.has_all_devices && !self.names.is_listing(kind) {
                    self.put_built_in_queues(changes);
                }
            }
            Err(unreadable) => self.note_unreadable(kind, *unreadable, changes),
        }
    }

    /// Puts the record of a namespace again, after its parts changed. Without an object of the namespace there is no record.
    fn put_namespace(&self, name: &str, changes: &mut ChangeBatches) {
        if let Some(mut record) = self.namespaces.get(name).cloned() {
            self.parts.complete(&mut record);
            changes.put(pb::RecordKind::Namespace, ObjectRecord::Namespace(record));
        }
    }

    /// Puts the queues that Volcano makes when it starts, where a list of queues does not show them.
    fn put_built_in_queues(&mut self, changes: &mut ChangeBatches) {
        if !self.has_queues || !self.names.has_any(ObjectKind::Queue) {
            return;
        }
        for name in [object::ROOT_QUEUE, object::DEFAULT_QUEUE] {
            if !self.names.has(ObjectKind::Queue, name) {
                self.put_own_queue(name, changes);
            }
        }
    }

    /// Puts what owners and claims tell into the record of a pod.
    fn complete_task(
        &mut self,
        task: &mut pb::Task,
        controller: Option<&PodController>,
        claims: PodClaims,
        changes: &mut ChangeBatches,
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

    /// Puts a queue that no object of the cluster describes.
    fn put_own_queue(&mut self, queue: &str, changes: &mut ChangeBatches) {
        // A list of queues takes it away again, also one that is under way, unless it shows a queue of this name.
        self.names.add_unlisted(ObjectKind::Queue, queue);
        self.own_queues.insert(queue.to_owned());
        let record = object::plain_queue(queue);
        changes.put(pb::RecordKind::Queue, ObjectRecord::Queue(record));
    }

    fn remove(
        &mut self,
        kind: ObjectKind,
        read: &Result<ObjectRecord, Box<UnreadableObject>>,
        changes: &mut ChangeBatches,
    ) {
        let name = match read {
            Ok(record) => record.name_and_uid().0,
            // An object that cannot be read goes by its name.
            Err(unreadable) => &unreadable.name,
        };
        if !name.is_empty() {
            self.remove_named(kind, name, changes);
        }
    }

    fn remove_named(&mut self, kind: ObjectKind, name: &str, changes: &mut ChangeBatches) {
        self.names.remove(kind, name);
        if kind == ObjectKind::Queue {
            self.own_queues.remove(name);
            // Volcano has no queues without a queue of the cluster.
            if self.names.of(kind).all(|queue| self.own_queues.contains(queue)) {
                for own in std::mem::take(&mut self.own_queues) {
                    self.names.remove(kind, &own);
                    changes.set(kind.record_kind(), own, ChangedRecord::Remove);
                }
            }
        }
        if kind.owns_pods() {
            self.stale.namespaces.extend(self.owners.remove(kind, name));
            return;
        }
        if kind.tells_devices() {
            let affected = self.devices.remove(kind, name);
            self.follow(affected, changes);
            return;
        }
        if kind.is_namespace_part() {
            self.parts.remove(kind, name);
            self.put_namespace(namespace_of(name), changes);
            return;
        }
        if kind == ObjectKind::Namespace {
            self.namespaces.remove(name);
        }
        if kind == ObjectKind::Pod {
            self.claiming.remove(name);
            self.bounded.remove(name);
            let affected = self.devices.remove_pod(name);
            self.follow(affected, changes);
        }
        if kind.record_kind() != pb::RecordKind::Unspecified {
            changes.set(kind.record_kind(), name.to_owned(), ChangedRecord::Remove);
        }
    }

    /// Tells once of a pod whose amounts are larger than any record holds.
    fn note_bounded(&mut self, task: &pb::Task) {
        if !task
            .unevaluated_fields
            .iter()
            .any(|field| field == object::UNREAD_AMOUNTS)
        {
            self.bounded.remove(&task.name);
        } else if self.bounded.insert(task.name.clone()) {
            let reason = "it has amounts that cannot be evaluated, and they do not count";
            self.count_unreadable(format!("Pod {}: spec: {reason}", task.name));
        }
    }

    fn count_unreadable(&mut self, message: String) {
        self.unreadable_count = self.unreadable_count.saturating_add(1);
        if self.unreadable.len() < UNREADABLE_REPORTED {
            self.unreadable.push(message);
        }
    }

    fn note_unreadable(&mut self, kind: ObjectKind, unreadable: UnreadableObject, changes: &mut ChangeBatches) {
        let UnreadableObject {
            title,
            name,
            error,
            record,
        } = unreadable;
        let tells_devices = kind.tells_devices() || kind == ObjectKind::Pod;
        if tells_devices && !self.has_all_devices {
            let former = Arc::clone(&self.former_devices);
            let affected = self.devices.put_former(&former, kind, &name);
            self.follow(affected, changes);
        }
        if kind == ObjectKind::Pod {
            // The last good record counts, as it is.
            self.claiming.remove(&name);
        }
        self.count_unreadable(format!("{title}: {error}"));
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
mod tests;
