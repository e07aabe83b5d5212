//! Settings of the cluster that the state comes from.

use std::path::PathBuf;
use std::sync::Arc;

use super::ServerConfig;
use super::format::{Format, ListFormat, optional_text, path, word};
use super::setting::{Setting, SettingKind, settings};
use super::settings::{CLUSTER, COMMON, CREDENTIALS};
use super::store_settings::{is_namespace, not_a_namespace};
use pumice_kubernetes::object::has_name_characters;
use pumice_live::ClusterAccess;

/// Value of `state` that makes the server watch a cluster; the source has this name, too.
pub const KUBERNETES: &str = "kubernetes";

/// Most namespaces that are watched one by one.
const NAMESPACES: usize = 64;

/// Whether a cluster is watched.
const STATE: Format<bool> = Format {
    value_name: "NAME",
    rule: super::ValueRule::Words(|| vec!["", KUBERNETES]),
    read: |value| match value {
        "" => Ok(false),
        KUBERNETES => Ok(true),
        _ => Err(format!("`{value}` is not `kubernetes`")),
    },
    show: |is_watched| if *is_watched { KUBERNETES } else { "" }.to_owned(),
};

settings! {
    /// Cluster that the server watches.
    struct ClusterSettings at [cluster];
    static CLUSTER_SETTINGS;

    in COMMON {
        "state" is_watched: bool = false, STATE,
            "Where the state comes from beside the batches of clients: `kubernetes` watches a cluster, as the source `kubernetes`; empty: nowhere";
    }
    in CREDENTIALS {
        "kubeconfig" kubeconfig: Option<PathBuf> = None, path("FILE"),
            "Kubeconfig of the watched cluster, which also verifies tokens of service accounts, and of a store in the Kubernetes API; empty: the files of the variable KUBECONFIG, or ~/.kube/config, or the service account of the pod";
        "kubernetes_context" context: Option<String> = None, optional_text("NAME"),
            "Context of the kubeconfig; empty: its current one";
    }
    in CLUSTER {
        "kubernetes_namespace" namespaces: Vec<Arc<str>> = Vec::new(), ListFormat::new("NAME", namespaces),
            "Namespace whose pods, pod groups, claims and owners of pods are watched; may be given several times; none: all namespaces";
        "explain_pods_of" explained_schedulers: Vec<String> = Vec::new(), ListFormat::new("SCHEDULER", schedulers),
            "Scheduler whose waiting pods get the reason from `pumice explain`, as a condition and an event; may be given several times; needs the right to write them";
        "extender_bind" binds: bool = false, word::<bool>("BOOL"),
            "`true`: the server binds pods, by the verb bind of kube-scheduler's extender protocol; needs the right to create pods/binding";
    }
}

impl ClusterSettings {
    /// Credentials of the cluster.
    pub(crate) fn access(&self) -> ClusterAccess {
        ClusterAccess {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        }
    }
}

fn schedulers(values: &[String]) -> Result<Vec<String>, String> {
    match values.iter().find(|value| !has_name_characters(value)) {
        Some(value) => Err(format!(
            "`{value}` is not the name of a scheduler: lower-case letters, digits, dashes and dots"
        )),
        None => Ok(values.to_vec()),
    }
}

/// Namespaces by their names, each once.
///
/// # Errors
/// A value is not the name of a namespace.
pub fn namespaces(values: &[String]) -> Result<Vec<Arc<str>>, String> {
    if values.len() > NAMESPACES {
        return Err(format!(
            "{} namespaces, each with watches of its own, and {NAMESPACES} at most: watch the whole cluster",
            values.len()
        ));
    }
    let mut names: Vec<Arc<str>> = Vec::new();
    for value in values {
        if !is_namespace(value) {
            return Err(not_a_namespace(value));
        }
        if !names.iter().any(|known| **known == **value) {
            names.push(value.as_str().into());
        }
    }
    Ok(names)
}

impl ServerConfig {
    /// Sources that must be synced before the server is ready: sources from the settings, and the watched cluster.
    pub fn awaited_sources(&self) -> Vec<Arc<str>> {
        let mut sources = self.expected_sources.clone();
        if self.cluster.is_watched && !sources.iter().any(|source| **source == *KUBERNETES) {
            sources.push(KUBERNETES.into());
        }
        sources
    }
}
