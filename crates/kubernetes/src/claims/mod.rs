//! Devices of Dynamic Resource Allocation (Kubernetes v1.36, `resource.k8s.io`). Devices of nodes come from
//! `ResourceSlices`. Requests of pods come from `ResourceClaims` and their templates. Only a number of GPUs and a share
//! of their memory are read, for example two GPUs with 40 GiB each.
//!
//! [`ClaimedDevices`] takes objects in any order and completes the records of nodes and tasks: all at once for files,
//! and one by one for a cluster that is watched. Each change lists the other records that it affects.

mod read;
mod slices;

use std::collections::{BTreeMap, BTreeSet};

use crate::object::kind::ObjectKind;
use pumice_engine::devices::MAX_DEVICES;
use pumice_protocol::v1 as pb;

pub use read::{DeviceObject, PodClaims};
pub(crate) use read::{device_object, pod_claims};

use read::{ClaimName, DeviceClaim, DeviceContent};
use slices::{NodeSlices, NumberedDevices, node_devices, numbered, remove_member};

/// Name of the field that a task lists while its claims are not read whole.
const CLAIM_FIELD: &str = "resourceClaims";

const NOT_READ: &str =
    "pods with resource claims that are not read, or not whole: only numbers of GPUs and shares of their memory are";
const MIXED: &str =
    "nodes with ResourceSlices whose GPUs differ in their model or are more than 64: their devices are not read";

/// Slices, claims and the pods that name them, in any order of arrival.
#[derive(Debug, Default)]
pub struct ClaimedDevices {
    slices: NodeSlices,
    claims: BTreeMap<ClaimName, DeviceClaim>,
    /// Pods that name claims, by task.
    pods: BTreeMap<String, ClaimingPod>,
    /// Pods that name each claim.
    users: BTreeMap<ClaimName, BTreeSet<String>>,
    /// Names of pods with claims, by the name of their node.
    pods_by_node: BTreeMap<String, BTreeSet<String>>,
}

/// Pod that names claims.
#[derive(Debug, PartialEq, Eq, Clone)]
struct ClaimingPod {
    /// Node of the pod; empty: none.
    node: String,
    claims: PodClaims,
}

/// Records that a change of slices or claims changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AffectedRecords {
    /// Names of nodes.
    pub nodes: BTreeSet<String>,
    /// Names of tasks.
    pub tasks: BTreeSet<String>,
}

impl ClaimedDevices {
    /// Takes a slice, a claim or a template in the place of an earlier one of its name.
    pub fn put(&mut self, object: DeviceObject) -> AffectedRecords {
        match object.0 {
            DeviceContent::Slice(name, slice) => self.set_slice(&name, slice),
            DeviceContent::Claim(name, claim) => self.set_claim(name, Some(claim)),
        }
    }

    /// Forgets a slice, a claim or a template.
    pub fn remove(&mut self, kind: ObjectKind, name: &str) -> AffectedRecords {
        match claim_name(kind, name) {
            None => self.set_slice(name, None),
            Some(name) => self.set_claim(name, None),
        }
    }

    /// Takes a slice, a claim, a template or the claims of a pod over as others knew them.
    pub fn put_former(&mut self, former: &ClaimedDevices, kind: ObjectKind, name: &str) -> AffectedRecords {
        if kind == ObjectKind::Pod {
            let pod = former.pods.get(name).cloned();
            return pod.map(|pod| self.set_pod(name, Some(pod))).unwrap_or_default();
        }
        let taken = match claim_name(kind, name) {
            None => {
                let slice = former.slices.get(name).cloned();
                slice.map(|slice| self.set_slice(name, Some(slice)))
            }
            Some(name) => {
                let claim = former.claims.get(&name).cloned();
                claim.map(|claim| self.set_claim(name, Some(claim)))
            }
        };
        taken.unwrap_or_default()
    }

    fn set_slice(&mut self, name: &str, slice: Option<slices::NodeSlice>) -> AffectedRecords {
        let mut affected = AffectedRecords::default();
        for changed in self.slices.set(name, slice) {
            // Tasks have the numbers of their node's devices.
            let tasks = self.pods_by_node.get(&changed.name).into_iter().flatten();
            affected.tasks.extend(tasks.cloned());
            if changed.has_other_record {
                affected.nodes.insert(changed.name);
            }
        }
        affected
    }

    fn set_claim(&mut self, name: ClaimName, claim: Option<DeviceClaim>) -> AffectedRecords {
        let mut affected = AffectedRecords::default();
        if self.claims.get(&name) != claim.as_ref() {
            affected.tasks = self.users.get(&name).cloned().unwrap_or_default();
        }
        match claim {
            Some(claim) => drop(self.claims.insert(name, claim)),
            None => drop(self.claims.remove(&name)),
        }
        affected
    }

    /// Notes the claims that a pod names; the pod itself is not among the affected records.
    pub fn put_pod(&mut self, task: &pb::Task, claims: PodClaims) -> AffectedRecords {
        let pod = ClaimingPod {
            node: task.node.clone(),
            claims,
        };
        self.set_pod(&task.name, Some(pod).filter(|pod| !pod.claims.is_empty()))
    }

    /// Forgets a pod.
    pub fn remove_pod(&mut self, name: &str) -> AffectedRecords {
        self.set_pod(name, None)
    }

    fn set_pod(&mut self, name: &str, pod: Option<ClaimingPod>) -> AffectedRecords {
        let mut affected = AffectedRecords::default();
        let former = self.pods.get(name);
        if former == pod.as_ref() {
            return affected;
        }
        let named = |pod: Option<&ClaimingPod>| -> BTreeSet<ClaimName> {
            pod.into_iter()
                .flat_map(|pod| &pod.claims.0)
                .flatten()
                .cloned()
                .collect()
        };
        let (before, after) = (named(former), named(pod.as_ref()));
        if let Some(former) = self.pods.remove(name) {
            remove_member(&mut self.pods_by_node, &former.node, name);
        }
        for claim in before.difference(&after) {
            remove_member(&mut self.users, claim, name);
            affected.tasks.extend(self.only_user(claim).cloned());
        }
        for claim in after.difference(&before) {
            affected.tasks.extend(self.only_user(claim).cloned());
            self.users.entry(claim.clone()).or_default().insert(name.to_owned());
        }
        if let Some(pod) = pod {
            if !pod.node.is_empty() {
                let of_node = self.pods_by_node.entry(pod.node.clone()).or_default();
                of_node.insert(name.to_owned());
            }
            self.pods.insert(name.to_owned(), pod);
        }
        affected
    }

    /// Pod that alone names a claim, which another pod is about to share, or has shared. Templates are not shared.
    fn only_user(&self, claim: &ClaimName) -> Option<&String> {
        let users = self.users.get(claim).filter(|users| users.len() == 1);
        users?.first().filter(|_| matches!(claim, ClaimName::Claim(_)))
    }

    /// Adds devices to the records of nodes, and device requests to the records of tasks.
    pub(crate) fn complete(&self, nodes: &mut BTreeMap<String, pb::Node>, tasks: &mut BTreeMap<String, pb::Task>) {
        for name in self.slices.nodes() {
            nodes
                .get_mut(name)
                .into_iter()
                .for_each(|node| self.complete_node(node));
        }
        for name in self.pods.keys() {
            tasks
                .get_mut(name)
                .into_iter()
                .for_each(|task| self.complete_task(task));
        }
    }

    /// Puts the devices of its slices into the record of a node that has none of its own.
    pub fn complete_node(&self, node: &mut pb::Node) {
        if node.devices.is_none() {
            node.devices = node_devices(&self.slices.devices(&node.name));
        }
    }

    /// Puts the request of its claims into the record of a task that has none of its own.
    pub fn complete_task(&self, task: &mut pb::Task) {
        let Some(pod) = self.pods.get(&task.name) else { return };
        let (request, is_whole) = self.request_of(&pod.claims, &self.slices.devices(&task.node));
        if let Some(request) = request {
            let constraints = task.constraints.get_or_insert_default();
            constraints.devices.get_or_insert(request);
        }
        if is_whole {
            task.unevaluated_fields.retain(|field| field != CLAIM_FIELD);
        }
    }

    /// Notes about what is left out, one for each node and task.
    pub(crate) fn notes<'n>(
        &'n self,
        nodes: &'n BTreeMap<String, pb::Node>,
    ) -> impl Iterator<Item = &'static str> + 'n {
        let is_left_out = |name: &&str| {
            let node = nodes.get(*name).filter(|node| node.devices.is_none());
            let devices = self.slices.devices(name);
            node.is_some() && !devices.is_empty() && node_devices(&devices).is_none()
        };
        let mixed = self.slices.nodes().filter(is_left_out).map(|_| MIXED);
        let none = NumberedDevices::new();
        let unread = self
            .pods
            .values()
            .filter(move |pod| !self.request_of(&pod.claims, &none).1);
        mixed.chain(unread.map(|_| NOT_READ))
    }

    /// Request of a pod's claims together, and whether nothing was left out.
    fn request_of(&self, names: &PodClaims, devices: &NumberedDevices<'_>) -> (Option<pb::DeviceRequest>, bool) {
        let mut is_whole = true;
        let mut all: Option<pb::DeviceRequest> = None;
        for name in &names.0 {
            let claim = name
                .as_ref()
                .filter(|name| self.is_own(name, names))
                .and_then(|name| self.claims.get(name));
            let Some(claim) = claim else {
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
            if let Some(all) = &mut all
                && node_devices(devices).is_some()
            {
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

    /// True if exactly one pod names the claim, and names it once. Pods that name the same claim share its devices.
    fn is_own(&self, name: &ClaimName, names: &PodClaims) -> bool {
        let is_named_once = || names.0.iter().flatten().filter(|own| *own == name).count() == 1;
        match name {
            ClaimName::Template(_) => true,
            ClaimName::Claim(_) => self.users.get(name).is_some_and(|users| users.len() == 1) && is_named_once(),
        }
    }
}

/// Name of a claim or a template. `None`: the object is a slice.
fn claim_name(kind: ObjectKind, name: &str) -> Option<ClaimName> {
    if kind == ObjectKind::ResourceSlice {
        None
    } else if kind == ObjectKind::ResourceClaimTemplate {
        Some(ClaimName::Template(name.to_owned()))
    } else {
        Some(ClaimName::Claim(name.to_owned()))
    }
}

#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod tests;
