//! Resources of the API that are watched.

use std::fmt;
use std::sync::Arc;

use pumice_kubernetes::object::ObjectKind;

/// Resource of the API whose objects are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedResource {
    /// Kind of its objects.
    pub kind: ObjectKind,
    /// Name in paths and in RBAC, such as `pods`.
    pub plural: &'static str,
    /// API group; empty: the core group.
    pub group: &'static str,
    /// Version of the group.
    pub version: &'static str,
    /// True if nothing can be decided without its objects. Others may be absent or forbidden.
    pub is_required: bool,
}

const fn resource(
    kind: ObjectKind,
    plural: &'static str,
    (group, version): (&'static str, &'static str),
    is_required: bool,
) -> WatchedResource {
    WatchedResource {
        kind,
        plural,
        group,
        version,
        is_required,
    }
}

/// API group of slices and claims of devices, and its version.
const DEVICES: (&str, &str) = ("resource.k8s.io", "v1");

/// Resources in the order in which they are listed: owners before their pods, quotas and budgets before their namespaces, and
/// slices and claims of devices before nodes and pods.
pub const RESOURCES: [WatchedResource; 16] = [
    resource(ObjectKind::Service, "services", ("", "v1"), false),
    resource(
        ObjectKind::ReplicationController,
        "replicationcontrollers",
        ("", "v1"),
        false,
    ),
    resource(ObjectKind::ReplicaSet, "replicasets", ("apps", "v1"), false),
    resource(ObjectKind::StatefulSet, "statefulsets", ("apps", "v1"), false),
    resource(ObjectKind::ResourceQuota, "resourcequotas", ("", "v1"), false),
    resource(
        ObjectKind::PodDisruptionBudget,
        "poddisruptionbudgets",
        ("policy", "v1"),
        false,
    ),
    resource(ObjectKind::Namespace, "namespaces", ("", "v1"), false),
    resource(
        ObjectKind::PriorityClass,
        "priorityclasses",
        ("scheduling.k8s.io", "v1"),
        false,
    ),
    resource(ObjectKind::ResourceSlice, "resourceslices", DEVICES, false),
    resource(ObjectKind::ResourceClaim, "resourceclaims", DEVICES, false),
    resource(
        ObjectKind::ResourceClaimTemplate,
        "resourceclaimtemplates",
        DEVICES,
        false,
    ),
    resource(ObjectKind::Node, "nodes", ("", "v1"), true),
    resource(ObjectKind::Queue, "queues", ("scheduling.volcano.sh", "v1beta1"), false),
    resource(
        ObjectKind::PodGroup,
        "podgroups",
        ("scheduling.volcano.sh", "v1beta1"),
        false,
    ),
    resource(
        ObjectKind::WorkloadPodGroup,
        "podgroups",
        ("scheduling.k8s.io", "v1beta1"),
        false,
    ),
    resource(ObjectKind::Pod, "pods", ("", "v1"), true),
];

impl WatchedResource {
    /// Name with the group, as `kubectl api-resources` and RBAC spell it: `podgroups.scheduling.volcano.sh`.
    pub fn name(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }
}

/// Resource in the whole cluster or in one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceScope {
    pub(crate) resource: WatchedResource,
    /// Namespace; `None`: all.
    pub(crate) namespace: Option<Arc<str>>,
}

impl ResourceScope {
    /// Path of the list of resources that this version of the group serves.
    pub(crate) fn discovery_path(&self) -> String {
        let WatchedResource { group, version, .. } = self.resource;
        if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        }
    }

    /// Path of the collection.
    pub(crate) fn path(&self) -> String {
        let (root, plural) = (self.discovery_path(), self.resource.plural);
        match &self.namespace {
            None => format!("{root}/{plural}"),
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        }
    }
}

impl fmt::Display for ResourceScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource.name())?;
        match &self.namespace {
            None => Ok(()),
            Some(namespace) => write!(f, " in namespace {namespace}"),
        }
    }
}

/// Scopes of all resources. A namespaced resource has one scope for each of `namespaces`, or the whole cluster if
/// `namespaces` is empty.
pub(crate) fn scopes(namespaces: &[Arc<str>]) -> Vec<ResourceScope> {
    let mut scopes = Vec::new();
    for resource in RESOURCES {
        if namespaces.is_empty() || !resource.kind.is_namespaced() {
            scopes.push(ResourceScope {
                resource,
                namespace: None,
            });
        } else {
            scopes.extend(namespaces.iter().map(|namespace| ResourceScope {
                resource,
                namespace: Some(Arc::clone(namespace)),
            }));
        }
    }
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_the_path_of_its_collection() {
        let path = |plural: &str, namespaces: &[Arc<str>]| {
            let all = scopes(namespaces);
            let found = all.iter().find(|scope| scope.resource.plural == plural).unwrap();
            (found.path(), found.to_string())
        };
        let own = |path: &str, name: &str| (path.to_owned(), name.to_owned());
        assert_eq!(path("pods", &[]), own("/api/v1/pods", "pods"));
        let in_web: [Arc<str>; 1] = ["web".into()];
        assert_eq!(
            path("podgroups", &in_web),
            own(
                "/apis/scheduling.volcano.sh/v1beta1/namespaces/web/podgroups",
                "podgroups.scheduling.volcano.sh in namespace web"
            )
        );
        assert_eq!(path("nodes", &in_web), own("/api/v1/nodes", "nodes"));
        let root = "/apis/resource.k8s.io/v1";
        assert_eq!(path("resourceslices", &in_web).0, format!("{root}/resourceslices"));
        let claims = format!("{root}/namespaces/web/resourceclaims");
        assert_eq!(path("resourceclaims", &in_web).0, claims);
    }

    #[test]
    fn the_owners_of_pods_come_before_the_pods_and_slices_before_the_nodes() {
        assert_eq!(RESOURCES.last().unwrap().kind, ObjectKind::Pod);
        let place = |kind| RESOURCES.iter().position(|resource| resource.kind == kind);
        let last_of_devices = RESOURCES.iter().rposition(|resource| resource.kind.tells_devices());
        assert!(last_of_devices < place(ObjectKind::Node));
        let all = RESOURCES.map(|resource| resource.kind.name());
        let mut sorted = all;
        sorted.sort_unstable();
        let mut known = ObjectKind::ALL.map(ObjectKind::name);
        known.sort_unstable();
        assert_eq!(sorted, known, "every kind that is read is watched");
    }
}
