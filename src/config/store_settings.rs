//! Settings of the store of durable state.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::ServerConfig;
use super::kubernetes_store_settings::KubernetesStoreSettings;
use super::setting::{Setting, SettingKind};
use super::values::{assign, lease, path, path_text, positive};

/// Most members of etcd that are named.
const MEMBERS: usize = 16;
/// Kind of store that holds durable state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreKind {
    /// The directory `data_dir` if one is named, otherwise memory.
    #[default]
    ByDirectory,
    /// Memory of the process.
    Memory,
    /// The directory `data_dir`.
    Disk,
    /// An etcd, which other servers share.
    Etcd,
    /// The Kubernetes API, which other servers share.
    Kubernetes,
}

impl StoreKind {
    /// Parses a value of `store`, such as `etcd`.
    fn from_name(name: &str) -> Result<Self, String> {
        match name {
            "" => Ok(Self::ByDirectory),
            "memory" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            "etcd" => Ok(Self::Etcd),
            "kubernetes" => Ok(Self::Kubernetes),
            _ => Err(format!("`{name}` is none of `memory`, `disk`, `etcd` and `kubernetes`")),
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByDirectory => "",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Etcd => "etcd",
            Self::Kubernetes => "kubernetes",
        })
    }
}

/// Where durable state is shared, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Memory, `data_dir`, etcd or the Kubernetes API.
    pub kind: StoreKind,
    /// Addresses of the members of etcd.
    pub etcd_members: Vec<String>,
    /// Prefix of the keys of etcd.
    pub etcd_prefix: String,
    /// Authority that vouches for the members.
    pub etcd_ca: Option<PathBuf>,
    /// Certificate that the members are shown.
    pub etcd_certificate: Option<PathBuf>,
    /// Private key of that certificate.
    pub etcd_key: Option<PathBuf>,
    /// User of etcd; empty: none.
    pub etcd_user: String,
    /// File with the password of that user.
    pub etcd_password_file: Option<PathBuf>,
    /// Time after which etcd takes this server for gone.
    pub etcd_lease: Duration,
    /// Longest time of a call to etcd.
    pub etcd_timeout: Duration,
    /// Settings of a store in the Kubernetes API.
    pub kubernetes: KubernetesStoreSettings,
    /// Address at which clients find this server; empty: none is known.
    pub advertised_address: String,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            kind: StoreKind::default(),
            etcd_members: Vec::new(),
            etcd_prefix: "/pumice/".to_owned(),
            etcd_ca: None,
            etcd_certificate: None,
            etcd_key: None,
            etcd_user: String::new(),
            etcd_password_file: None,
            etcd_lease: Duration::from_secs(5),
            etcd_timeout: Duration::from_secs(1),
            kubernetes: KubernetesStoreSettings::default(),
            advertised_address: String::new(),
        }
    }
}

/// Settings of `store` and of etcd.
pub(super) static STORE_SETTINGS: &[Setting] = &[
    Setting {
        name: "store",
        value_name: "NAME",
        help: "Where durable state is held: `disk`, in `data_dir`; `etcd` and `kubernetes`, the Kubernetes API, which several servers share; `memory`, lost with the process; empty: `disk` if there is a `data_dir`, otherwise `memory`",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.kind, StoreKind::from_name(value)),
            |config| config.store.kind.to_string(),
        ),
    },
    Setting {
        name: "etcd_member",
        value_name: "URL",
        help: "Address of a member of etcd, as https://host:2379; may be given several times",
        kind: SettingKind::List(
            |config, values| assign(&mut config.store.etcd_members, members(values)),
            |config| config.store.etcd_members.clone(),
        ),
    },
    Setting {
        name: "etcd_prefix",
        value_name: "KEY",
        help: "Prefix of all keys in etcd; servers with the same prefix are replicas of each other",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.etcd_prefix, prefix(value)),
            |config| config.store.etcd_prefix.clone(),
        ),
    },
    Setting {
        name: "etcd_ca",
        value_name: "FILE",
        help: "Authority that vouches for members of etcd with https:// (PEM)",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.etcd_ca, Ok(path(value))),
            |config| path_text(config.store.etcd_ca.as_ref()),
        ),
    },
    Setting {
        name: "etcd_certificate",
        value_name: "FILE",
        help: "Certificate that members of etcd are shown (PEM)",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.etcd_certificate, Ok(path(value))),
            |config| path_text(config.store.etcd_certificate.as_ref()),
        ),
    },
    Setting {
        name: "etcd_key",
        value_name: "FILE",
        help: "Private key of that certificate (PEM)",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.etcd_key, Ok(path(value))),
            |config| path_text(config.store.etcd_key.as_ref()),
        ),
    },
    Setting {
        name: "etcd_user",
        value_name: "NAME",
        help: "User of etcd; empty: etcd asks for none",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.etcd_user, Ok(value.to_owned())),
            |config| config.store.etcd_user.clone(),
        ),
    },
    Setting {
        name: "etcd_password_file",
        value_name: "FILE",
        help: "File with the password of that user",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.etcd_password_file, Ok(path(value))),
            |config| path_text(config.store.etcd_password_file.as_ref()),
        ),
    },
    Setting {
        name: "etcd_lease_ms",
        value_name: "MS",
        help: "Time without a renewal after which etcd takes the server for gone: it then reads what others wrote before it writes again; whole seconds",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.etcd_lease, lease(value)),
            |config| config.store.etcd_lease.as_millis().to_string(),
        ),
    },
    Setting {
        name: "etcd_timeout_ms",
        value_name: "MS",
        help: "Time without a reply after which the next member of etcd is asked",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.etcd_timeout, positive(value)),
            |config| config.store.etcd_timeout.as_millis().to_string(),
        ),
    },
    Setting {
        name: "advertised_address",
        value_name: "ADDRESS",
        help: "Address at which clients find this server: another replica names it when a session of this one is asked for there",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.store.advertised_address, Ok(value.to_owned())),
            |config| config.store.advertised_address.clone(),
        ),
    },
];

/// Addresses of the members of an etcd.
///
/// # Errors
/// A value is not an address with a scheme.
pub fn members(values: Vec<String>) -> Result<Vec<String>, String> {
    if values.len() > MEMBERS {
        return Err(format!("{} members, and {MEMBERS} at most", values.len()));
    }
    for value in &values {
        let host = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://"));
        let is_address = host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '@', ' ']));
        if !is_address {
            return Err(format!("`{value}` is not an address as https://host:2379"));
        }
    }
    Ok(values)
}

/// Prefix of keys.
///
/// # Errors
/// The value does not begin with a slash, or is longer than 256 bytes.
pub fn prefix(value: &str) -> Result<String, String> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_graphic());
    if value.starts_with('/') && !value.trim_matches('/').is_empty() && value.len() <= 256 && is_plain {
        return Ok(value.to_owned());
    }
    Err(format!(
        "`{value}` is not a prefix as /pumice/: it begins with `/`, and has 256 letters, digits and signs at most"
    ))
}

impl StoreSettings {
    /// Names of the settings that are set and that only a store in etcd has.
    fn etcd_settings_that_are_set(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("etcd_member", !self.etcd_members.is_empty()),
            ("etcd_ca", self.etcd_ca.is_some()),
            ("etcd_certificate", self.etcd_certificate.is_some()),
            ("etcd_key", self.etcd_key.is_some()),
            ("etcd_user", !self.etcd_user.is_empty()),
            ("etcd_password_file", self.etcd_password_file.is_some()),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name)
    }
}

impl ServerConfig {
    /// Kind of store, with the directory looked at.
    pub fn store_kind(&self) -> StoreKind {
        match (self.store.kind, &self.data_dir) {
            (StoreKind::ByDirectory, Some(_)) => StoreKind::Disk,
            (StoreKind::ByDirectory, None) => StoreKind::Memory,
            (kind, _) => kind,
        }
    }

    /// Settings of the store that contradict each other.
    pub(super) fn store_conflicts(&self) -> Vec<(&'static str, String)> {
        let StoreSettings {
            kind: _,
            etcd_members,
            etcd_prefix: _,
            etcd_ca,
            etcd_certificate,
            etcd_key,
            etcd_user,
            etcd_password_file,
            etcd_lease: _,
            etcd_timeout: _,
            kubernetes,
            advertised_address,
        } = &self.store;
        let kind = self.store_kind();
        let mut problems = Vec::new();
        let mut problem = |name, message: &str| problems.push((name, message.to_owned()));
        match kind {
            StoreKind::Disk if self.data_dir.is_none() => problem("store", "`disk` needs a `data_dir`"),
            StoreKind::Memory | StoreKind::Etcd | StoreKind::Kubernetes if self.data_dir.is_some() => {
                problem("data_dir", "has an effect with `store: disk` only");
            }
            StoreKind::ByDirectory | StoreKind::Memory | StoreKind::Disk | StoreKind::Etcd | StoreKind::Kubernetes => {}
        }
        if !matches!(kind, StoreKind::Etcd | StoreKind::Kubernetes) && !advertised_address.is_empty() {
            let message = "has an effect with `store: etcd` and `store: kubernetes` only";
            problem("advertised_address", message);
        }
        if kind != StoreKind::Kubernetes {
            let unused = kubernetes.settings_that_are_set();
            unused.for_each(|name| problem(name, "has an effect with `store: kubernetes` only"));
        }
        if kind != StoreKind::Etcd {
            let unused = self.store.etcd_settings_that_are_set();
            unused.for_each(|name| problem(name, "has an effect with `store: etcd` only"));
            return problems;
        }
        let has_tls = etcd_members.iter().any(|member| member.starts_with("https://"));
        if etcd_members.is_empty() {
            problem("store", "`etcd` needs an `etcd_member`");
        }
        if has_tls && etcd_ca.is_none() {
            problem("etcd_ca", "name the authority that vouches for members with https://");
        }
        if !has_tls && etcd_ca.is_some() {
            problem("etcd_ca", "no `etcd_member` has https://");
        }
        if etcd_certificate.is_some() != etcd_key.is_some() {
            problem("etcd_key", "`etcd_certificate` and `etcd_key` belong together");
        }
        if etcd_certificate.is_some() && etcd_ca.is_none() {
            problem("etcd_certificate", "needs an `etcd_ca`");
        }
        if etcd_user.is_empty() == etcd_password_file.is_some() {
            problem(
                "etcd_password_file",
                "`etcd_user` and `etcd_password_file` belong together",
            );
        }
        problems
    }
}
