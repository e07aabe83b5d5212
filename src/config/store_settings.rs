//! Settings of the store of durable state.

use std::path::PathBuf;
use std::time::Duration;

use super::ServerConfig;
use super::format::{Format, ListFormat, TIME, ValueRule, Words, path, text, word};
use super::setting::{Setting, SettingKind, settings};
use super::settings::{COMMON, ETCD, KUBERNETES_STORE, SHARED_STORE};
use super::values::{lease, parse_value};
use pumice_kubernetes::object::has_name_characters;

/// Most members of etcd that are named.
const MEMBERS: usize = 16;
/// Longest name of a log: the names of its objects are longer, and it is the value of a label.
const NAME_BYTES: usize = 40;
/// Most writes a second.
const MAX_WRITES: u32 = 1_000;

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

impl Words for StoreKind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("", Self::ByDirectory),
        ("disk", Self::Disk),
        ("etcd", Self::Etcd),
        ("kubernetes", Self::Kubernetes),
        ("memory", Self::Memory),
    ];
}

const FILE: Format<Option<PathBuf>> = path("FILE");
const WRITES: Format<u32> = Format {
    value_name: "COUNT",
    rule: ValueRule::Count,
    read: writes,
    show: u32::to_string,
};

settings! {
    /// Where durable state is shared.
    struct StoreSettings at [store];
    static STORE_SETTINGS;

    in COMMON {
        "store" kind: StoreKind = StoreKind::ByDirectory, word::<StoreKind>("NAME"),
            "Where durable state is held: `disk`, in `data_dir`; `etcd` and `kubernetes`, the Kubernetes API, which several servers share; `memory`, lost with the process; empty: `disk` if there is a `data_dir`, otherwise `memory`";
    }
    in SHARED_STORE {
        "advertised_address" advertised_address: String = String::new(), text("ADDRESS"),
            "Address at which clients find this server: another replica names it when a session of this one is asked for there";
        "store_lease_ms" lease: Duration = Duration::ZERO, TIME.read_by(lease),
            "Time without a renewal after which a shared store takes the server for gone: it then reads what others wrote before it writes again; whole seconds; 0: 5 s in etcd, 15 s in the Kubernetes API";
        "store_timeout_ms" timeout: Duration = Duration::ZERO, TIME,
            "Time without a reply after which a call to a shared store is sent again, to the next member of etcd; 0: 1 s to etcd, 2 s to the Kubernetes API";
    }
    beside {
        /// Members of etcd, and how to reach them.
        etcd: EtcdSettings = EtcdSettings::default();
        /// Log in the Kubernetes API.
        kubernetes: KubernetesStoreSettings = KubernetesStoreSettings::default();
    }
}

settings! {
    /// How to reach etcd.
    struct EtcdSettings at [store etcd];
    static ETCD_SETTINGS;

    in ETCD {
        "etcd_member" members: Vec<String> = Vec::new(), ListFormat::new("URL", members),
            "Address of a member of etcd, as https://host:2379; may be given several times";
        "etcd_prefix" prefix: String = "/pumice/".to_owned(), text("KEY").read_by(prefix),
            "Prefix of all keys in etcd; servers with the same prefix are replicas of each other";
        "etcd_ca" ca: Option<PathBuf> = None, FILE,
            "Authority that vouches for members of etcd with https:// (PEM)";
        "etcd_certificate" certificate: Option<PathBuf> = None, FILE,
            "Certificate that members of etcd are shown (PEM)";
        "etcd_key" key: Option<PathBuf> = None, FILE,
            "Private key of that certificate (PEM)";
        "etcd_user" user: String = String::new(), text("NAME"),
            "User of etcd; empty: etcd asks for none";
        "etcd_password_file" password_file: Option<PathBuf> = None, FILE,
            "File with the password of that user";
    }
}

settings! {
    /// Settings of a store in the Kubernetes API.
    struct KubernetesStoreSettings at [store kubernetes];
    static KUBERNETES_STORE_SETTINGS;

    in KUBERNETES_STORE {
        "kubernetes_store_namespace" namespace: String = String::new(), text("NAME").read_by(log_namespace),
            "Namespace of the objects of a store in the Kubernetes API; empty: namespace of the kubeconfig's context, or of the pod";
        "kubernetes_store_name" name: String = "pumice".to_owned(), text("NAME").read_by(log_name),
            "Prefix of the names of these objects; servers with the same prefix in the same namespace are replicas of each other";
        "kubernetes_store_writes_per_second" writes_per_second: u32 = 50, WRITES,
            "Most objects that a server writes to the API server in a second: a group of confirmations is one";
    }
}

#[cfg(any(feature = "etcd", feature = "kubernetes"))]
impl StoreSettings {
    /// Puts the times that are set in the place of the defaults of a store.
    pub(crate) fn set_times(&self, lease: &mut Duration, timeout: &mut Duration) {
        for (time, setting) in [(lease, self.lease), (timeout, self.timeout)] {
            if !setting.is_zero() {
                *time = setting;
            }
        }
    }
}

/// Addresses of the members of an etcd.
///
/// # Errors
/// A value is not an address with a scheme.
pub fn members(values: &[String]) -> Result<Vec<String>, String> {
    if values.len() > MEMBERS {
        return Err(format!("{} members, and {MEMBERS} at most", values.len()));
    }
    for value in values {
        let host = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://"));
        let is_address = host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '@', ' ']));
        if !is_address {
            return Err(format!("`{value}` is not an address as https://host:2379"));
        }
    }
    Ok(values.to_vec())
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

/// True for the name of a namespace.
pub(super) fn is_namespace(value: &str) -> bool {
    value.len() <= 63 && !value.contains('.') && has_name_characters(value)
}

/// Namespace of a log. Empty: namespace of the credentials.
///
/// # Errors
/// The value is not the name of a namespace.
pub fn log_namespace(value: &str) -> Result<String, String> {
    if value.is_empty() || is_namespace(value) {
        return Ok(value.to_owned());
    }
    Err(not_a_namespace(value))
}

pub(super) fn not_a_namespace(value: &str) -> String {
    format!("`{value}` is not the name of a namespace: lower-case letters, digits and dashes, at most 63")
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
    if (1..=MAX_WRITES).contains(&count) {
        return Ok(count);
    }
    Err(format!("`{value}` is not within 1 and {MAX_WRITES}"))
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
        let etcd = &self.store.etcd;
        let has_tls = etcd.members.iter().any(|member| member.starts_with("https://"));
        let kind = self.store_kind();
        let is_etcd = kind == StoreKind::Etcd;
        let rules = [
            (
                kind == StoreKind::Disk && self.data_dir.is_none(),
                "store",
                "`disk` needs a `data_dir`",
            ),
            (
                kind != StoreKind::Disk && self.data_dir.is_some(),
                "data_dir",
                "has an effect with `store: disk` only",
            ),
            (
                is_etcd && etcd.members.is_empty(),
                "store",
                "`etcd` needs an `etcd_member`",
            ),
            (
                is_etcd && has_tls && etcd.ca.is_none(),
                "etcd_ca",
                "name the authority that vouches for members with https://",
            ),
            (
                is_etcd && !has_tls && etcd.ca.is_some(),
                "etcd_ca",
                "no `etcd_member` has https://",
            ),
            (
                is_etcd && etcd.certificate.is_some() != etcd.key.is_some(),
                "etcd_key",
                "`etcd_certificate` and `etcd_key` belong together",
            ),
            (
                is_etcd && etcd.certificate.is_some() && etcd.ca.is_none(),
                "etcd_certificate",
                "needs an `etcd_ca`",
            ),
            (
                is_etcd && etcd.user.is_empty() == etcd.password_file.is_some(),
                "etcd_password_file",
                "`etcd_user` and `etcd_password_file` belong together",
            ),
        ];
        problems_of(rules)
    }
}

/// Rules that are broken: the setting and the problem.
pub(super) fn problems_of(
    rules: impl IntoIterator<Item = (bool, &'static str, &'static str)>,
) -> Vec<(&'static str, String)> {
    let broken = rules.into_iter().filter(|(is_broken, ..)| *is_broken);
    broken.map(|(_, name, message)| (name, message.to_owned())).collect()
}
