//! Settings of the cluster that the state comes from.

use std::sync::Arc;
use std::time::Duration;

use super::ServerConfig;
use super::StoreKind;
use super::setting::{Setting, SettingKind};
use super::values::{assign, parse_value, path, path_text, positive};
use pumice_kubernetes::object::has_name_characters;
use pumice_live::{ClusterAccess, ListMode};

/// Value of `state` that makes the server watch a cluster; the source has this name, too.
pub const KUBERNETES: &str = "kubernetes";

/// Most namespaces that are watched one by one.
const NAMESPACES: usize = 64;

/// Cluster that the server watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// True if the server watches a cluster.
    pub is_watched: bool,
    /// Credentials of the cluster.
    pub access: ClusterAccess,
    /// Namespaces whose objects are watched; none: all.
    pub namespaces: Vec<Arc<str>>,
    /// Way in which lists are asked for.
    pub lists: ListMode,
    /// Longest silence of a watch that counts as current.
    pub silence: Duration,
    /// Schedulers whose waiting pods get their reasons as conditions and events.
    pub explained_schedulers: Vec<String>,
    /// True if the server binds pods for schedulers whose extender has the verb bind.
    pub binds: bool,
}

impl Default for ClusterSettings {
    /// No cluster.
    fn default() -> Self {
        Self {
            is_watched: false,
            access: ClusterAccess::default(),
            namespaces: Vec::new(),
            lists: ListMode::default(),
            silence: pumice_live::SILENCE,
            explained_schedulers: Vec::new(),
            binds: false,
        }
    }
}

/// Settings of `state: kubernetes`.
pub(super) static CLUSTER_SETTINGS: &[Setting] = &[
    Setting {
        name: "state",
        value_name: "NAME",
        help: "Where the state comes from beside the batches of clients: `kubernetes` watches a cluster, as the source `kubernetes`; empty: nowhere",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.cluster.is_watched, state(value)),
            |config| if config.cluster.is_watched { KUBERNETES } else { "" }.to_owned(),
        ),
    },
    Setting {
        name: "kubeconfig",
        value_name: "FILE",
        help: "Kubeconfig of the watched cluster, which also verifies tokens of service accounts, and of a store in the Kubernetes API; empty: the files of the variable KUBECONFIG, or ~/.kube/config, or the service account of the pod",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.cluster.access.kubeconfig, Ok(path(value))),
            |config| path_text(config.cluster.access.kubeconfig.as_ref()),
        ),
    },
    Setting {
        name: "kubernetes_context",
        value_name: "NAME",
        help: "Context of the kubeconfig; empty: its current one",
        kind: SettingKind::Single(
            |config, value| {
                let name = (!value.is_empty()).then(|| value.to_owned());
                assign(&mut config.cluster.access.context, Ok(name))
            },
            |config| config.cluster.access.context.clone().unwrap_or_default(),
        ),
    },
    Setting {
        name: "kubernetes_namespace",
        value_name: "NAME",
        help: "Namespace whose pods, pod groups, claims and owners of pods are watched; may be given several times; none: all namespaces",
        kind: SettingKind::List(
            |config, values| assign(&mut config.cluster.namespaces, namespaces(values)),
            |config| config.cluster.namespaces.iter().map(ToString::to_string).collect(),
        ),
    },
    Setting {
        name: "kubernetes_lists",
        value_name: "HOW",
        help: "How lists are asked for: `paged`, or `streamed`, as the beginning of a watch where the API server offers that",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.cluster.lists, list_mode(value)),
            |config| {
                match config.cluster.lists {
                    ListMode::Paged => "paged",
                    ListMode::Streamed => "streamed",
                }
                .to_owned()
            },
        ),
    },
    Setting {
        name: "kubernetes_silence_ms",
        value_name: "MS",
        help: "Silence of a watch after which its resource is reported as behind and listed again; an API server sends a bookmark every minute",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.cluster.silence, positive(value)),
            |config| config.cluster.silence.as_millis().to_string(),
        ),
    },
    Setting {
        name: "explain_pods_of",
        value_name: "SCHEDULER",
        help: "Scheduler whose waiting pods get the reason from `pumice explain`, as a condition and an event; may be given several times; needs the right to write them",
        kind: SettingKind::List(
            |config, values| assign(&mut config.cluster.explained_schedulers, schedulers(values)),
            |config| config.cluster.explained_schedulers.clone(),
        ),
    },
    Setting {
        name: "extender_bind",
        value_name: "BOOL",
        help: "`true`: the server binds pods, by the verb bind of kube-scheduler's extender protocol; needs the right to create pods/binding",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.cluster.binds, parse_value(value, "`true` or `false`")),
            |config| config.cluster.binds.to_string(),
        ),
    },
];

fn schedulers(values: Vec<String>) -> Result<Vec<String>, String> {
    match values.iter().find(|value| !has_name_characters(value)) {
        Some(value) => Err(format!(
            "`{value}` is not the name of a scheduler: lower-case letters, digits, dashes and dots"
        )),
        None => Ok(values),
    }
}

fn state(value: &str) -> Result<bool, String> {
    match value {
        "" => Ok(false),
        KUBERNETES => Ok(true),
        _ => Err(format!("`{value}` is not `kubernetes`")),
    }
}

/// Way in which lists are asked for, by its name.
///
/// # Errors
/// The value names no way.
pub fn list_mode(value: &str) -> Result<ListMode, String> {
    match value {
        "paged" => Ok(ListMode::Paged),
        "streamed" => Ok(ListMode::Streamed),
        _ => Err(format!("`{value}` is neither `paged` nor `streamed`")),
    }
}

/// Namespaces by their names, each once.
///
/// # Errors
/// A value is not the name of a namespace.
pub fn namespaces(values: Vec<String>) -> Result<Vec<Arc<str>>, String> {
    if values.len() > NAMESPACES {
        return Err(format!(
            "{} namespaces, each with watches of its own, and {NAMESPACES} at most: watch the whole cluster",
            values.len()
        ));
    }
    let mut names: Vec<Arc<str>> = Vec::new();
    for value in values {
        if value.len() > 63 || value.contains('.') || !has_name_characters(&value) {
            return Err(format!(
                "`{value}` is not the name of a namespace: lower-case letters, digits and dashes, at most 63"
            ));
        }
        if !names.iter().any(|known| **known == *value) {
            names.push(value.into());
        }
    }
    Ok(names)
}

impl ServerConfig {
    /// Settings of a cluster that nobody watches.
    pub(super) fn unused_cluster_settings(&self) -> Vec<(&'static str, String)> {
        let ClusterSettings {
            is_watched,
            access,
            namespaces,
            lists: _,
            silence: _,
            explained_schedulers,
            binds,
        } = &self.cluster;
        // Identities may be those of service accounts, whose tokens the cluster verifies; the store may be in its API.
        let has_other_use = self.identities_file.is_some() || self.store_kind() == StoreKind::Kubernetes;
        let unused = [
            ("kubeconfig", access.kubeconfig.is_some() && !has_other_use),
            ("kubernetes_context", access.context.is_some() && !has_other_use),
            ("kubernetes_namespace", !namespaces.is_empty()),
            ("explain_pods_of", !explained_schedulers.is_empty()),
            ("extender_bind", *binds),
        ];
        let unused = unused.into_iter().filter(|(_, is_set)| *is_set && !is_watched);
        unused
            .map(|(name, _)| (name, "has an effect with `state: kubernetes` only".to_owned()))
            .collect()
    }

    /// Sources that must be synced before the server is ready: sources from the settings, and the watched cluster.
    pub fn awaited_sources(&self) -> Vec<Arc<str>> {
        let mut sources = self.expected_sources.clone();
        if self.cluster.is_watched && !sources.iter().any(|source| **source == *KUBERNETES) {
            sources.push(KUBERNETES.into());
        }
        sources
    }
}
