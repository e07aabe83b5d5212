//! Service types of tasks: inference may take from training, and nobody else from anybody (Volcano's fork
//! infra-matrix/volcano, 186db81b7, `ReclaimableFn` of capacity-card).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::effective_values::{map_entry, value_map};
use super::config::{NOT_UPSTREAM, read_switch};
use crate::model::{ClusterState, TaskRecord, TextMap, find_text};
use crate::plugin::VictimQuery;
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArgument, PluginArguments, Severity, YamlValue};

/// Of jobs, and of tasks whose job has none: `inference` or `training`.
pub(super) const SERVICE_TYPE: &str = "volcano.sh/service.type";
/// Argument: service type by the kind of a pod's first owner.
pub(super) const BY_OWNER: &str = "podOwnerReferenceToServiceType";
/// Argument of earlier versions of the fork: [`USUAL_OWNERS`] have these service types.
pub(super) const ALLOW_BY_OWNER: &str = "allowServiceTypeByPodOwnerReferences";

/// Kinds of owners whose service types are known without a map.
const USUAL_OWNERS: [(&str, ServiceType); 2] = [("Job", ServiceType::Training), ("ReplicaSet", ServiceType::Inference)];

/// Service type of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceType {
    /// Answers requests, and may take from training.
    Inference,
    /// Takes from nobody.
    Training,
}

impl ServiceType {
    const NAMES: [&str; 2] = ["inference", "training"];

    /// Service type by its name, such as `training`.
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "inference" => Some(Self::Inference),
            "training" => Some(Self::Training),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        let [inference, training] = Self::NAMES;
        match self {
            Self::Inference => inference,
            Self::Training => training,
        }
    }
}

/// Why an annotation does not name a service type; `None`: it is absent, empty, or names one.
pub(super) fn annotation_error(annotations: &TextMap) -> Option<String> {
    let name = find_text(annotations, SERVICE_TYPE).filter(|name| !name.is_empty())?;
    let is_unknown = ServiceType::from_name(name).is_none();
    is_unknown.then(|| format!("annotation `{SERVICE_TYPE}`: `{name}` is neither `inference` nor `training`"))
}

/// Rule about the service types of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceTypes {
    /// Service types of tasks whose annotations name none, by the kind of their first owner.
    by_owner: BTreeMap<Arc<str>, ServiceType>,
}

impl ServiceTypes {
    /// Reads the arguments. `None`: neither is there, and service types do not count. What cannot be used is warned of.
    pub(super) fn read(
        arguments: &PluginArguments,
        compatibility: Compatibility,
        report: &mut DiagnosticReport,
    ) -> Option<Self> {
        let given = |key| arguments.get(key).filter(|argument| !argument.is_null());
        let (map, usual) = (given(BY_OWNER), given(ALLOW_BY_OWNER));
        if compatibility.is_upstream() {
            for argument in map.iter().chain(&usual) {
                report.warning(ErrorCode::ArgumentIgnored, &argument.at(), NOT_UPSTREAM);
            }
            return None;
        }
        if map.is_none() && usual.is_none() {
            return None;
        }
        let mut types = Self::default();
        if read_switch(arguments, ALLOW_BY_OWNER, report) {
            let usual = USUAL_OWNERS.map(|(kind, service)| (Arc::<str>::from(kind), service));
            types.by_owner.extend(usual);
        }
        if let Some(map) = map {
            types.read_owners(&map, report);
        }
        Some(types)
    }

    fn read_owners(&mut self, argument: &PluginArgument<'_>, report: &mut DiagnosticReport) {
        let YamlValue::Map(entries) = argument.value() else {
            let found = argument.value().kind();
            let message =
                format!("expected a map of kinds to `inference` or `training`, found {found}; it has no effect");
            return report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        };
        for (kind, service) in entries {
            let (kind, name) = (
                kind.value.as_text().unwrap_or_default(),
                service.value.as_text().unwrap_or_default(),
            );
            match ServiceType::from_name(name) {
                Some(service) if !kind.is_empty() => {
                    self.by_owner.insert(Arc::from(kind), service);
                }
                _ => {
                    let hint = report.suggestion(Severity::Warning, name, &ServiceType::NAMES);
                    let message =
                        format!("`{kind}`: expected `inference` or `training`; the entry has no effect{hint}");
                    report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
                }
            }
        }
    }

    /// The argument in force, in the spelling of the policy document.
    pub(super) fn entry(&self) -> (String, YamlValue) {
        let owner =
            |(kind, service): (&Arc<str>, &ServiceType)| map_entry(kind, YamlValue::String(service.name().to_owned()));
        map_entry(BY_OWNER, value_map(self.by_owner.iter().map(owner)))
    }

    /// Service type of a task: by the annotation of its job, then its own, then its first owner. `None`: it has none, or
    /// one that is not known.
    fn service_type(&self, cluster_state: &ClusterState, task: &TaskRecord) -> Option<ServiceType> {
        let job = cluster_state.jobs().get(&task.job);
        let of_job = job.and_then(|stored| find_text(&stored.record.annotations, SERVICE_TYPE));
        let named = of_job.filter(|name| !name.is_empty());
        let named = named.or_else(|| find_text(&task.annotations, SERVICE_TYPE).filter(|name| !name.is_empty()));
        match named {
            Some(name) => ServiceType::from_name(name),
            None => self.by_owner.get(task.owner_kind()).copied(),
        }
    }

    /// For each candidate whether it may go, as far as service types say: training for inference, nobody else for anybody.
    pub(super) fn permitted(&self, cluster_state: &ClusterState, query: &VictimQuery<'_>) -> Vec<bool> {
        let is = |task: &TaskRecord, service| self.service_type(cluster_state, task) == Some(service);
        let may_take = is(query.preemptor, ServiceType::Inference);
        let candidates = query.candidates.iter();
        candidates
            .map(|task| may_take && is(task, ServiceType::Training))
            .collect()
    }
}
