//! Settings of a store in the Kubernetes API.

use std::time::Duration;

use super::setting::{Setting, SettingKind};
use super::values::{assign, lease, parse_bytes, parse_value, positive};
use pumice_kubernetes::object::has_name_characters;

/// Longest name of a log: the names of its objects are longer, and it is the value of a label.
const NAME_BYTES: usize = 40;
/// Fewest and most writes a second.
const WRITES: std::ops::RangeInclusive<u32> = 1..=1_000;
/// Fewest and most bytes a second.
const BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 30);

/// Settings of a store in the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesStoreSettings {
    /// Namespace of the objects. Empty: namespace of the credentials.
    pub namespace: String,
    /// Name of the log.
    pub name: String,
    /// Time without a renewal after which others take this server for gone.
    pub lease: Duration,
    /// Longest time of a request.
    pub timeout: Duration,
    /// Most objects that are written in a second.
    pub writes_per_second: u32,
    /// Most bytes that are written in a second.
    pub bytes_per_second: u64,
}

impl Default for KubernetesStoreSettings {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            name: "pumice".to_owned(),
            lease: Duration::from_secs(15),
            timeout: Duration::from_secs(2),
            writes_per_second: 50,
            bytes_per_second: 1 << 20,
        }
    }
}

impl KubernetesStoreSettings {
    /// Names of the settings that differ from their defaults.
    pub(super) fn settings_that_are_set(&self) -> impl Iterator<Item = &'static str> {
        let default = Self::default();
        let all = [
            ("kubernetes_store_namespace", self.namespace != default.namespace),
            ("kubernetes_store_name", self.name != default.name),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name)
    }
}

/// Rows of `--help` for `store: kubernetes`.
pub(super) static KUBERNETES_STORE_SETTINGS: &[Setting] = &[
    Setting {
        name: "kubernetes_store_namespace",
        value_name: "NAME",
        help: "Namespace of the objects of a store in the Kubernetes API; empty: namespace of the kubeconfig's context, or of the pod",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.kubernetes.namespace, namespace(value)),
            |config| config.store.kubernetes.namespace.clone(),
        ),
    },
    Setting {
        name: "kubernetes_store_name",
        value_name: "NAME",
        help: "Prefix of the names of these objects; servers with the same prefix in the same namespace are replicas of each other",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.kubernetes.name, log_name(value)),
            |config| config.store.kubernetes.name.clone(),
        ),
    },
    Setting {
        name: "kubernetes_store_lease_ms",
        value_name: "MS",
        help: "Time without a renewal of its Lease after which others take a server for gone; whole seconds",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.kubernetes.lease, lease(value)),
            |config| config.store.kubernetes.lease.as_millis().to_string(),
        ),
    },
    Setting {
        name: "kubernetes_store_timeout_ms",
        value_name: "MS",
        help: "Time without a reply after which a request to the API server is sent again",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.kubernetes.timeout, positive(value)),
            |config| config.store.kubernetes.timeout.as_millis().to_string(),
        ),
    },
    Setting {
        name: "kubernetes_store_writes_per_second",
        value_name: "COUNT",
        help: "Most objects that a server writes to the API server in a second: a group of confirmations is one",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.kubernetes.writes_per_second, writes(value)),
            |config| config.store.kubernetes.writes_per_second.to_string(),
        ),
    },
    Setting {
        name: "kubernetes_store_bytes_per_second",
        value_name: "BYTES",
        help: "Maximum bytes per second that a server writes to the API server, whose etcd holds the writes of some minutes",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.kubernetes.bytes_per_second, bytes(value)),
            |config| config.store.kubernetes.bytes_per_second.to_string(),
        ),
    },
];

/// Namespace of a log. Empty: namespace of the credentials.
///
/// # Errors
/// The value is not the name of a namespace.
pub fn namespace(value: &str) -> Result<String, String> {
    if value.is_empty() || (value.len() <= 63 && !value.contains('.') && has_name_characters(value)) {
        return Ok(value.to_owned());
    }
    Err(format!(
        "`{value}` is not the name of a namespace: lower-case letters, digits and dashes, at most 63"
    ))
}

/// Name of a log.
///
/// # Errors
/// Names of objects cannot begin with the value.
pub fn log_name(value: &str) -> Result<String, String> {
    let is_name =
        has_name_characters(value) && !value.contains('.') && !value.starts_with('-') && !value.ends_with('-');
    if is_name && !value.is_empty() && value.len() <= NAME_BYTES {
        return Ok(value.to_owned());
    }
    Err(format!(
        "`{value}` is not the name of a log: lower-case letters, digits and dashes between them, at most {NAME_BYTES}"
    ))
}

fn writes(value: &str) -> Result<u32, String> {
    let count = parse_value(value, "a whole number")?;
    if WRITES.contains(&count) {
        return Ok(count);
    }
    Err(format!(
        "`{value}` is not within {} and {}",
        WRITES.start(),
        WRITES.end()
    ))
}

fn bytes(value: &str) -> Result<u64, String> {
    let bytes = parse_bytes(value)?;
    if BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("`{value}` is not within 64Ki and 1Gi"))
}
