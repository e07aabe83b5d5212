//! Kubernetes pod as far as its amounts go, read from JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::error::PodError;
use pumice_engine::model::quantity::{Quantity, QuantityError, QuantityFormat};

/// Quantities by resource name.
pub type ResourceQuantities = BTreeMap<String, Quantity>;

/// Pod. No field has a default: absent, empty and zero differ.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// True if `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.schedulerName`.
    pub scheduler_name: Option<String>,
    /// `spec.nodeName`; empty if none.
    pub node: String,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// True if `spec.schedulingGates` has an entry.
    pub gated: bool,
    /// Names in `spec.schedulingGates`.
    pub scheduling_gates: Vec<String>,
    /// `spec.priorityClassName`; empty if none.
    pub priority_class: String,
    /// `spec.containers`.
    pub containers: Vec<PodContainer>,
    /// `spec.initContainers`.
    pub init_containers: Vec<PodContainer>,
    /// `spec.overhead`.
    pub overhead: Option<ResourceQuantities>,
    /// `spec.resources`.
    pub resources: Option<ResourceRequirements>,
    /// `status` of the pod. Default: empty.
    pub status: PodStatus,
}

impl Pod {
    /// Replaces amounts whose sums may leave 64 bits of thousandths. A pod without a node gets the largest ones and fits on none. One
    /// with a node gets 0: no node has such amounts, and the kubelet that admitted it misread them, mostly as 0.
    pub fn bound_amounts(&mut self) {
        let Self {
            node,
            containers,
            init_containers,
            overhead,
            resources,
            status,
            ..
        } = self;
        // Each container counts at most once with its request, and everything with the overhead.
        let parts = i64::try_from(containers.len() + init_containers.len() + 2).unwrap_or(i64::MAX);
        let most = Quantity::from_whole(i64::MAX / 1_000 / parts, QuantityFormat::DecimalSi);
        let counted = if node.is_empty() {
            most.clone()
        } else {
            Quantity::zero(QuantityFormat::DecimalSi)
        };
        let of_containers = containers
            .iter_mut()
            .chain(init_containers)
            .map(|own| &mut own.resources);
        let of_statuses = status.containers.iter_mut().chain(&mut status.init_containers);
        let mut allocated: Vec<_> = status.allocated.iter_mut().collect();
        let mut all: Vec<_> = of_containers.chain(resources).chain(&mut status.resources).collect();
        for own in of_statuses {
            all.extend(&mut own.resources);
            allocated.extend(&mut own.allocated);
        }
        let lists = all
            .into_iter()
            .flat_map(|own| own.requests.iter_mut().chain(&mut own.limits));
        for list in lists.chain(allocated).chain(overhead) {
            for quantity in list.values_mut().filter(|own| own.cmp_value(&most).is_gt()) {
                *quantity = counted.clone();
            }
        }
    }
}

/// A container or init container.
#[derive(Clone, Debug, Default)]
pub struct PodContainer {
    /// `name` of the container. It links the container to its status.
    pub name: String,
    /// True if `restartPolicy` is `Always`: as an init container, it keeps running beside the containers.
    pub always_restarted: bool,
    /// Requests and limits of the container. Default: none.
    pub resources: ResourceRequirements,
}

/// Requests and limits.
#[derive(Clone, Debug, Default)]
pub struct ResourceRequirements {
    /// `requests`, for example `cpu: 500m`. `None`: absent.
    pub requests: Option<ResourceQuantities>,
    /// `limits`, for example `memory: 1Gi`. `None`: absent.
    pub limits: Option<ResourceQuantities>,
}

/// Fields of a pod's status that requests depend on.
#[derive(Clone, Debug, Default)]
pub struct PodStatus {
    /// `phase`; empty if none.
    pub phase: String,
    /// `nominatedNodeName`; empty if none.
    pub nominated_node: String,
    /// True if the first condition `PodResizePending` has the reason `Infeasible`.
    pub resize_infeasible: bool,
    /// `containerStatuses`.
    pub containers: Vec<ContainerStatus>,
    /// `initContainerStatuses`.
    pub init_containers: Vec<ContainerStatus>,
    /// `resources`: the resources that the pod as a whole runs with.
    pub resources: Option<ResourceRequirements>,
    /// `allocatedResources`: the resources that the node has set aside for the pod as a whole.
    pub allocated: Option<ResourceQuantities>,
}

/// Fields of a container's status that requests depend on.
#[derive(Clone, Debug, Default)]
pub struct ContainerStatus {
    /// `name` of the container that the status describes.
    pub name: String,
    /// `resources`: the resources that the container runs with.
    pub resources: Option<ResourceRequirements>,
    /// `allocatedResources`: the resources that the node has set aside for the container.
    pub allocated: Option<ResourceQuantities>,
}

impl Pod {
    /// Reads a pod from the JSON of the Kubernetes API. Bare numbers are read by their text.
    ///
    /// # Errors
    /// A field has the wrong type, or a quantity is malformed or negative; the error names its path. Fields that do not
    /// matter for amounts are ignored. A number with more digits or a longer exponent than are read is larger than any amount.
    pub fn read(pod: &Value) -> Result<Self, PodError> {
        let root = JsonCursor {
            value: Some(pod),
            parent: None,
            step: JsonStep::Root,
        };
        root.object()?;
        let (metadata, spec) = (root.field("metadata"), root.field("spec"));
        metadata.object()?;
        spec.object()?;
        Ok(Self {
            namespace: metadata.field("namespace").string()?,
            name: metadata.field("name").string()?,
            annotations: metadata.field("annotations").strings()?,
            labels: metadata.field("labels").strings()?,
            deleting: metadata.field("deletionTimestamp").value.is_some(),
            scheduler_name: Some(spec.field("schedulerName").string()?).filter(|name| !name.is_empty()),
            node: spec.field("nodeName").string()?,
            priority: spec.field("priority").int32()?,
            gated: !spec.field("schedulingGates").array()?.is_empty(),
            scheduling_gates: spec
                .field("schedulingGates")
                .map_items(|gate| gate.field("name").string())?,
            priority_class: spec.field("priorityClassName").string()?,
            containers: spec.field("containers").map_items(container)?,
            init_containers: spec.field("initContainers").map_items(container)?,
            overhead: spec.field("overhead").quantities()?,
            resources: resources(&spec.field("resources"))?,
            status: status(&root.field("status"))?,
        })
    }
}

fn container(at: &JsonCursor<'_, '_>) -> Result<PodContainer, PodError> {
    Ok(PodContainer {
        name: at.field("name").string()?,
        always_restarted: at.field("restartPolicy").string()? == "Always",
        resources: resources(&at.field("resources"))?.unwrap_or_default(),
    })
}

fn resources(at: &JsonCursor<'_, '_>) -> Result<Option<ResourceRequirements>, PodError> {
    if at.object()?.is_none() {
        return Ok(None);
    }
    Ok(Some(ResourceRequirements {
        requests: at.field("requests").quantities()?,
        limits: at.field("limits").quantities()?,
    }))
}

fn status(at: &JsonCursor<'_, '_>) -> Result<PodStatus, PodError> {
    at.object()?;
    let conditions = at
        .field("conditions")
        .map_items(|condition| Ok((condition.field("type").string()?, condition.field("reason").string()?)))?;
    let resize = conditions.iter().find(|(kind, _)| kind == "PodResizePending");
    Ok(PodStatus {
        phase: at.field("phase").string()?,
        nominated_node: at.field("nominatedNodeName").string()?,
        resize_infeasible: resize.is_some_and(|(_, reason)| reason == "Infeasible"),
        containers: at.field("containerStatuses").map_items(container_status)?,
        init_containers: at.field("initContainerStatuses").map_items(container_status)?,
        resources: resources(&at.field("resources"))?,
        allocated: at.field("allocatedResources").quantities()?,
    })
}

fn container_status(at: &JsonCursor<'_, '_>) -> Result<ContainerStatus, PodError> {
    Ok(ContainerStatus {
        name: at.field("name").string()?,
        resources: resources(&at.field("resources"))?,
        allocated: at.field("allocatedResources").quantities()?,
    })
}

/// Place in a JSON document. Its path is built only for errors.
struct JsonCursor<'v, 'p> {
    /// Value at the place; `None` for an absent field and for `null`.
    value: Option<&'v Value>,
    parent: Option<&'p JsonCursor<'v, 'p>>,
    step: JsonStep<'v>,
}

/// Step from a place to one below it.
#[derive(Clone, Copy)]
enum JsonStep<'v> {
    Root,
    Field(&'static str),
    Key(&'v str),
    Item(usize),
}

impl<'v> JsonCursor<'v, '_> {
    fn child<'c>(&'c self, value: Option<&'v Value>, step: JsonStep<'v>) -> JsonCursor<'v, 'c> {
        JsonCursor {
            value: value.filter(|value| !value.is_null()),
            parent: Some(self),
            step,
        }
    }

    /// Field of an object; absent if this is not an object, which the caller has checked with `object`.
    fn field<'c>(&'c self, name: &'static str) -> JsonCursor<'v, 'c> {
        self.child(self.value.and_then(|value| value.get(name)), JsonStep::Field(name))
    }

    fn error(&self, expected: &'static str) -> PodError {
        let path = if self.parent.is_none() {
            "the pod".to_owned()
        } else {
            self.to_string()
        };
        PodError::Type { path, expected }
    }

    fn object(&self) -> Result<Option<&'v Map<String, Value>>, PodError> {
        let Some(value) = self.value else {
            return Ok(None);
        };
        value.as_object().map(Some).ok_or_else(|| self.error("an object"))
    }

    fn array(&self) -> Result<&'v [Value], PodError> {
        let Some(value) = self.value else {
            return Ok(&[]);
        };
        value.as_array().map(Vec::as_slice).ok_or_else(|| self.error("a list"))
    }

    /// Items of a list, each an object.
    fn map_items<T>(&self, read: impl Fn(&JsonCursor<'_, '_>) -> Result<T, PodError>) -> Result<Vec<T>, PodError> {
        let items = self.array()?.iter().enumerate();
        items
            .map(|(index, value)| {
                let item = self.child(Some(value), JsonStep::Item(index));
                item.object()?;
                read(&item)
            })
            .collect()
    }

    /// String; empty if absent, as in the Kubernetes API.
    fn string(&self) -> Result<String, PodError> {
        let Some(value) = self.value else {
            return Ok(String::new());
        };
        value.as_str().map(str::to_owned).ok_or_else(|| self.error("a string"))
    }

    fn int32(&self) -> Result<Option<i32>, PodError> {
        let Some(value) = self.value else {
            return Ok(None);
        };
        let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
        number.map(Some).ok_or_else(|| self.error("a 32-bit integer"))
    }

    fn strings(&self) -> Result<BTreeMap<String, String>, PodError> {
        let entries = self.object()?.into_iter().flatten();
        entries
            .map(|(key, value)| Ok((key.clone(), self.child(Some(value), JsonStep::Key(key)).string()?)))
            .collect()
    }

    fn quantities(&self) -> Result<Option<ResourceQuantities>, PodError> {
        let Some(entries) = self.object()? else {
            return Ok(None);
        };
        let quantities = entries
            .iter()
            .map(|(name, value)| Ok((name.clone(), self.child(Some(value), JsonStep::Key(name)).quantity()?)));
        quantities.collect::<Result<_, _>>().map(Some)
    }

    fn quantity(&self) -> Result<Quantity, PodError> {
        let number;
        let text = match self.value {
            // The Kubernetes API reads null as a zero without a format.
            None => return Ok(Quantity::zero(QuantityFormat::DecimalExponent)),
            Some(Value::String(text)) => text,
            Some(Value::Number(own)) => {
                number = own.to_string();
                &number
            }
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                return Err(self.error("a quantity"));
            }
        };
        let quantity = match Quantity::parse_in_object(text) {
            // The API server reads any number of digits, and cuts exponents.
            Err(QuantityError::TooLarge(_)) if !text.trim_start().starts_with('-') => Quantity::largest(),
            parsed => parsed.map_err(|error| PodError::Quantity {
                path: self.to_string(),
                error,
            })?,
        };
        if quantity.is_negative() {
            return Err(PodError::Negative {
                path: self.to_string(),
                quantity: quantity.to_string(),
            });
        }
        Ok(quantity)
    }
}

/// Path, such as `spec.containers[0].resources.requests["nvidia.com/gpu"]`.
impl fmt::Display for JsonCursor<'_, '_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(out)?;
        }
        match self.step {
            JsonStep::Root => Ok(()),
            JsonStep::Field(name) if self.parent.is_some_and(|parent| parent.parent.is_none()) => out.write_str(name),
            JsonStep::Field(name) => write!(out, ".{name}"),
            JsonStep::Key(key) => write!(out, "[{key:?}]"),
            JsonStep::Item(index) => write!(out, "[{index}]"),
        }
    }
}
