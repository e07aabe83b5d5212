//! Owners of pods: the Services that select a pod, and the workload that controls it. Default topology spread
//! constraints apply to the pods that these owners select (Kubernetes v1.36,
//! `pkg/scheduler/framework/plugins/helper/spread.go`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::constraints::label_selector;
use super::fields::{FieldError, boolean, get, list, namespaced, text, texts};
use super::kind::ObjectKind;
use pumice_engine::model::namespace_of;
use pumice_protocol::v1 as pb;

type OwnerLabels = BTreeMap<String, String>;

/// Name of the field that a task lists if its controller is missing.
const OWNER_SELECTOR: &str = "ownerSelector";

/// Kinds of workloads whose selectors are used, with the API version in owner references of pods.
const WORKLOADS: [(&str, &str); 3] = [
    ("ReplicationController", "v1"),
    ("ReplicaSet", "apps/v1"),
    ("StatefulSet", "apps/v1"),
];

/// Owner of pods, as an object gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct PodOwner {
    /// `namespace/name` of the object.
    name: String,
    selector: OwnerSelector,
}

impl PodOwner {
    /// `namespace/name` of the object.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// How an owner selects its pods.
#[derive(Debug, Clone, PartialEq)]
enum OwnerSelector {
    /// Labels of a Service; none: it selects nothing.
    Service(OwnerLabels),
    /// Kind of a workload, and its selector.
    Workload(&'static str, WorkloadSelector),
}

#[derive(Debug, Clone, PartialEq)]
enum WorkloadSelector {
    /// Labels of a `ReplicationController`.
    Labels(OwnerLabels),
    /// Selector of a `ReplicaSet` or `StatefulSet`; `None`: it selects nothing.
    Selector(Option<pb::LabelSelector>),
}

/// Workload that controls a pod: a `ReplicaSet`, a `ReplicationController` or a `StatefulSet`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodController {
    kind: &'static str,
    /// `namespace/name` of the workload.
    name: String,
}

/// Reads the owner of pods that an object of a kind is.
pub(super) fn owner(kind: ObjectKind, object: &Value) -> Result<PodOwner, FieldError> {
    let name = namespaced(object)?;
    let selector = match kind {
        ObjectKind::Service => OwnerSelector::Service(texts(object, "spec.selector")?),
        ObjectKind::ReplicationController => {
            OwnerSelector::Workload(kind.name(), WorkloadSelector::Labels(texts(object, "spec.selector")?))
        }
        ObjectKind::ReplicaSet
        | ObjectKind::StatefulSet
        | ObjectKind::Node
        | ObjectKind::Pod
        | ObjectKind::Queue
        | ObjectKind::PodGroup
        | ObjectKind::WorkloadPodGroup
        | ObjectKind::PriorityClass
        | ObjectKind::Namespace
        | ObjectKind::ResourceSlice
        | ObjectKind::ResourceClaim
        | ObjectKind::ResourceClaimTemplate
        | ObjectKind::ResourceQuota
        | ObjectKind::PodDisruptionBudget => {
            let selector = get(object, "spec.selector").map(label_selector).transpose();
            let selector =
                selector.map_err(|error| FieldError::new(format!("spec.selector.{}", error.field), error.reason))?;
            OwnerSelector::Workload(kind.name(), WorkloadSelector::Selector(selector))
        }
    };
    Ok(PodOwner { name, selector })
}

/// Owner reference of the controller of a pod. `None`: the pod has none.
pub(crate) fn controller_reference(pod: &Value) -> Result<Option<&Value>, FieldError> {
    for owner in list(pod, "metadata.ownerReferences")? {
        if boolean(owner, "controller")?.unwrap_or_default() {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

/// Reads the workload that controls a pod. `None`: the pod has no controller whose selector is used.
pub(super) fn controller(object: &Value) -> Result<Option<PodController>, FieldError> {
    let Some(owner) = controller_reference(object)? else {
        return Ok(None);
    };
    let (kind, version) = (text(owner, "kind")?, text(owner, "apiVersion")?);
    let known = WORKLOADS.into_iter().find(|known| *known == (&*kind, &*version));
    let Some((kind, _)) = known else { return Ok(None) };
    let namespace = text(object, "metadata.namespace")?;
    let namespace = if namespace.is_empty() { "default" } else { &namespace };
    let name = format!("{namespace}/{}", text(owner, "name")?);
    Ok(Some(PodController { kind, name }))
}

/// Owners of pods by name. An owner may come after its pods, which are completed when all have come.
#[derive(Debug, Default)]
pub struct PodOwners {
    /// Selectors of Services by namespace and name; those without a selector are left out.
    services: BTreeMap<String, BTreeMap<String, OwnerLabels>>,
    /// Selectors of workloads.
    workloads: BTreeMap<PodController, WorkloadSelector>,
    /// True if some owner came.
    has_owners: bool,
}

impl PodOwners {
    /// Notes the selector of an owner, in the place of an earlier one of its name. Returns the namespace whose pods may have
    /// another selector now.
    pub fn add(&mut self, owner: PodOwner) -> Option<String> {
        self.has_owners = true;
        let namespace = namespace_of(&owner.name).to_owned();
        let PodOwner { name, selector } = owner;
        let is_new = match selector {
            OwnerSelector::Service(selector) => {
                let services = self.services.entry(namespace.clone()).or_default();
                if selector.is_empty() {
                    services.remove(&name).is_some()
                } else {
                    services.insert(name, selector.clone()).as_ref() != Some(&selector)
                }
            }
            OwnerSelector::Workload(kind, selector) => {
                let former = self.workloads.insert(PodController { kind, name }, selector.clone());
                former.as_ref() != Some(&selector)
            }
        };
        is_new.then_some(namespace)
    }

    /// Forgets an owner of a kind that was deleted, by its name (`namespace/name`). Returns the namespace whose pods may have
    /// another selector now.
    pub fn remove(&mut self, kind: ObjectKind, name: &str) -> Option<String> {
        let namespace = namespace_of(name);
        let was_known = if kind == ObjectKind::Service {
            let services = self.services.get_mut(namespace);
            services.is_some_and(|services| services.remove(name).is_some())
        } else {
            let key = PodController {
                kind: kind.name(),
                name: name.to_owned(),
            };
            self.workloads.remove(&key).is_some()
        };
        was_known.then(|| namespace.to_owned())
    }

    /// Puts the selector of its owners into the record of a pod, and names it as not evaluated where the controller is
    /// missing.
    pub fn complete(&self, task: &mut pb::Task, controller: Option<&PodController>) {
        let constraints = task.constraints.as_ref();
        if constraints.is_some_and(|own| !own.topology_spread_constraints.is_empty()) {
            return;
        }
        let of_namespace = self.services.get(namespace_of(&task.name));
        let selecting = of_namespace.into_iter().flatten().filter(|(_, selector)| {
            let mut pairs = selector.iter();
            pairs.all(|(key, value)| task.labels.get(key) == Some(value))
        });
        let labels: OwnerLabels = selecting.flat_map(|(_, own)| own.clone()).collect();
        let workload = controller.map(|key| self.workloads.get(key));
        if matches!(workload, Some(None)) {
            list_unknown(task);
        }
        let selector = merged_selector(labels, workload.flatten());
        if selector != pb::LabelSelector::default() {
            task.constraints.get_or_insert_default().owner_selector = Some(selector);
        }
    }

    /// Does the same as [`PodOwners::complete`] for pods that may come without their owners: if no owner came at all, pods that may have
    /// some name the selector as not evaluated.
    pub fn complete_if_known(&self, task: &mut pb::Task, controller: Option<&PodController>) {
        if self.has_owners {
            self.complete(task, controller);
        } else {
            self.complete_partly(task, controller);
        }
    }

    /// Does the same as [`PodOwners::complete`] where owners are missing: pods that may have some name the selector as not evaluated.
    pub fn complete_partly(&self, task: &mut pb::Task, controller: Option<&PodController>) {
        self.complete(task, controller);
        let constraints = task.constraints.as_ref();
        let has_own = constraints.is_some_and(|own| !own.topology_spread_constraints.is_empty());
        if !has_own && !task.labels.is_empty() {
            list_unknown(task);
        }
    }
}

/// Names the selector of the owners as not evaluated.
fn list_unknown(task: &mut pb::Task) {
    if !task.unevaluated_fields.iter().any(|name| name == OWNER_SELECTOR) {
        task.unevaluated_fields.push(OWNER_SELECTOR.to_owned());
    }
}

/// Selector of the pods that Services and a workload select.
fn merged_selector(mut labels: OwnerLabels, workload: Option<&WorkloadSelector>) -> pb::LabelSelector {
    let mut match_expressions = Vec::new();
    match workload {
        None | Some(WorkloadSelector::Selector(None)) => {}
        Some(WorkloadSelector::Labels(own)) => labels.extend(own.clone()),
        Some(WorkloadSelector::Selector(Some(own))) => {
            match_expressions.clone_from(&own.match_expressions);
            for (key, value) in &own.match_labels {
                match labels.get(key) {
                    None => drop(labels.insert(key.clone(), value.clone())),
                    Some(known) if known == value => {}
                    // Both have to hold, so that the selector matches nothing.
                    Some(_) => match_expressions.push(pb::SelectorRequirement {
                        key: key.clone(),
                        operator: "In".to_owned(),
                        values: vec![value.clone()],
                    }),
                }
            }
        }
    }
    pb::LabelSelector {
        match_labels: labels,
        match_expressions,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::import::{AmountRules, ClusterImport};
    use pumice_protocol::v1 as pb;

    fn tasks_of(objects: &serde_json::Value) -> Vec<pb::Task> {
        let mut import = ClusterImport::new(AmountRules::default());
        import.read("dump", &objects.to_string()).unwrap();
        let imported = import.finish();
        assert_eq!(imported.rejected, []);
        imported.cluster.tasks
    }

    fn pod(name: &str, controller: Option<(&str, &str, &str)>) -> serde_json::Value {
        let owners = controller.map(|(version, kind, name)| {
            json!([{"apiVersion": "v1", "kind": "Node", "name": "n"},
                   {"apiVersion": version, "kind": kind, "name": name, "controller": true}])
        });
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": name, "namespace": "web", "labels": {"app": "front", "tier": "a"},
                            "ownerReferences": owners},
               "spec": {"containers": [{"name": "c"}]}})
    }

    fn selector(task: &pb::Task) -> Option<pb::LabelSelector> {
        task.constraints.as_ref()?.owner_selector.clone()
    }

    fn pairs(pairs: &[(&str, &str)]) -> pb::LabelSelector {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pb::LabelSelector {
            match_labels: pairs.collect(),
            match_expressions: Vec::new(),
        }
    }

    #[test]
    fn a_pod_has_the_selectors_of_its_services_and_of_its_workload() {
        let service = |namespace: &str, name: &str, selector: serde_json::Value| {
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
                   "spec": {"selector": selector}})
        };
        let dump = json!([
            pod("alone", None),
            pod("controlled", Some(("apps/v1", "ReplicaSet", "front-1"))),
            pod("controlled-old", Some(("v1", "ReplicationController", "front-rc"))),
            pod("of-a-job", Some(("batch/v1", "Job", "front-1"))),
            pod("orphan", Some(("apps/v1", "StatefulSet", "gone"))),
            service("web", "front", json!({"app": "front"})),
            service("web", "other", json!({"app": "back"})),
            service("web", "headless", json!(null)),
            service("elsewhere", "front", json!({"tier": "a"})),
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "front-1", "namespace": "web"},
             "spec": {"selector": {"matchLabels": {"tier": "a"},
                                   "matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}},
            {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "front-rc", "namespace": "web"},
             "spec": {"selector": {"tier": "a"}}},
        ]);
        let tasks = tasks_of(&dump);
        let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "web/alone",
                "web/controlled",
                "web/controlled-old",
                "web/of-a-job",
                "web/orphan"
            ]
        );
        let both = pairs(&[("app", "front"), ("tier", "a")]);
        let expression = pb::SelectorRequirement {
            key: "x".to_owned(),
            operator: "DoesNotExist".to_owned(),
            values: Vec::new(),
        };
        assert_eq!(selector(&tasks[0]), Some(pairs(&[("app", "front")])));
        assert_eq!(
            selector(&tasks[1]),
            Some(pb::LabelSelector {
                match_expressions: vec![expression],
                ..both.clone()
            })
        );
        assert_eq!(selector(&tasks[2]), Some(both));
        assert_eq!(selector(&tasks[3]), Some(pairs(&[("app", "front")])));
        assert_eq!(selector(&tasks[4]), Some(pairs(&[("app", "front")])));
        let unevaluated = tasks.iter().map(|task| task.unevaluated_fields.len());
        assert_eq!(unevaluated.collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
        assert_eq!(tasks[4].unevaluated_fields, ["ownerSelector"]);
    }

    #[test]
    fn a_pod_with_constraints_of_its_own_has_no_default() {
        let mut object = pod("own", Some(("apps/v1", "ReplicaSet", "gone")));
        object["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]);
        let tasks = tasks_of(&json!([object]));
        assert_eq!(selector(&tasks[0]), None);
        assert_eq!(tasks[0].unevaluated_fields, [""; 0]);
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_named() {
        let mut import = ClusterImport::new(AmountRules::default());
        let object = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a", "namespace": "b"},
                            "spec": {"selector": {"matchLabels": {"app": 1}}}});
        import.read("dump", &object.to_string()).unwrap();
        let errors: Vec<String> = import
            .finish()
            .rejected
            .iter()
            .map(|own| format!("{}: {}", own.object, own.error))
            .collect();
        assert_eq!(
            errors,
            ["ReplicaSet b/a: spec.selector.matchLabels[app]: is a number, not a text"]
        );
    }
}
