//! List of settings, by purpose. The limits are appended from their own tables.

use super::cluster_settings::CLUSTER_SETTINGS;
use super::server_config::SERVER_SETTINGS;
use super::setting::{Setting, SettingGroup};
use super::store_settings::{ETCD_SETTINGS, KUBERNETES_STORE_SETTINGS, STORE_SETTINGS};
use super::{ServerConfig, StoreKind};
use crate::limits::limits;

const fn group(title: &'static str) -> SettingGroup {
    SettingGroup { title, condition: None }
}

const fn group_if(title: &'static str, names: &'static str, holds: fn(&ServerConfig) -> bool) -> SettingGroup {
    SettingGroup {
        title,
        condition: Some((names, holds)),
    }
}

pub(super) static COMMON: SettingGroup = group("Set these first");
pub(super) static ACCESS: SettingGroup = group("Listeners, certificates and the audit log");
pub(super) static POLICY: SettingGroup = group("Policies");
pub(super) static STOPPING: SettingGroup = group("Connections and stopping");
pub(super) static TRACES: SettingGroup = group("Traces");
pub(super) static SHARED_STORE: SettingGroup = group_if(
    "A store that several servers share",
    "`store: etcd` and `store: kubernetes`",
    |config| matches!(config.store_kind(), StoreKind::Etcd | StoreKind::Kubernetes),
);
pub(super) static ETCD: SettingGroup = group_if("The store in etcd", "`store: etcd`", |config| {
    config.store_kind() == StoreKind::Etcd
});
pub(super) static KUBERNETES_STORE: SettingGroup =
    group_if("The store in the Kubernetes API", "`store: kubernetes`", |config| {
        config.store_kind() == StoreKind::Kubernetes
    });
// Identities may be those of service accounts, whose tokens the cluster verifies.
pub(super) static CREDENTIALS: SettingGroup = group_if("Credentials of a cluster", "`state: kubernetes`", |config| {
    config.cluster.is_watched || config.identities_file.is_some() || config.store_kind() == StoreKind::Kubernetes
});
pub(super) static CLUSTER: SettingGroup = group_if("The watched cluster", "`state: kubernetes`", |config| {
    config.cluster.is_watched
});
static TIMES: SettingGroup = group("Leases and times");
static AMOUNTS: SettingGroup = group("Load and memory");

/// Purposes, in the order of the page.
static GROUPS: [&SettingGroup; 12] = [
    &COMMON,
    &ACCESS,
    &POLICY,
    &STOPPING,
    &TRACES,
    &CREDENTIALS,
    &CLUSTER,
    &SHARED_STORE,
    &ETCD,
    &KUBERNETES_STORE,
    &TIMES,
    &AMOUNTS,
];

/// All settings, by purpose.
pub fn settings() -> impl Iterator<Item = Setting> {
    GROUPS.into_iter().flat_map(|group| {
        let tables = [
            SERVER_SETTINGS,
            STORE_SETTINGS,
            ETCD_SETTINGS,
            KUBERNETES_STORE_SETTINGS,
            CLUSTER_SETTINGS,
        ];
        let own = tables.into_iter().flatten().copied();
        let bounds = limits().filter_map(|limit| Setting::of_limit(limit, &TIMES, &AMOUNTS));
        own.chain(bounds)
            .filter(move |setting| std::ptr::eq(setting.group, group))
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::config::ServerConfig;

    /// Page of settings, which people read and `PUMICE_BLESS=1` rewrites.
    fn page() -> String {
        let mut page = String::from(
            "# Settings\n\nA setting is a flag `--name-with-dashes`, a variable `PUMICE_NAME`, or a key `name` of the settings file. \
             Their precedence: [operations.md](operations.md#settings). Settings take effect at the start of the server.\n",
        );
        let default = ServerConfig::default();
        for group in GROUPS {
            writeln!(page, "\n## {}\n", group.title).unwrap();
            if let Some((condition, _)) = group.condition {
                writeln!(page, "These settings have an effect with {condition} only.\n").unwrap();
            }
            page.push_str("| Name | Value | Default | Meaning |\n|---|---|---|---|\n");
            for setting in settings().filter(|setting| std::ptr::eq(setting.group, group)) {
                let default = match setting.name {
                    "workers" => "cores − 1".to_owned(),
                    _ => format!("`{}`", setting.show(&default)),
                };
                let (name, value, help) = (setting.name, setting.value_name, setting.help);
                writeln!(page, "| `{name}` | {value} | {default} | {help} |").unwrap();
            }
        }
        page.push_str(
            "\nThe flags `--listen`, `--http` and `--policy` are other names of `--grpc-address`, `--http-address` and `--policy-file`.\n\n\
             ## Fixed limits\n\nErrors name these limits as well. You cannot change them.\n\n| Name | Value | Meaning |\n|---|---|---|\n",
        );
        let mut fixed: Vec<_> = limits().filter(|limit| limit.range().is_none()).collect();
        fixed.sort_unstable_by_key(|limit| limit.name());
        for limit in fixed {
            let (name, value, help) = (limit.name(), limit.get(&default.limits), limit.help());
            writeln!(page, "| `{name}` | `{value}` | {help} |").unwrap();
        }
        page
    }

    #[test]
    fn there_are_few_settings_and_fifteen_come_first() {
        let first = settings().take_while(|setting| std::ptr::eq(setting.group, &raw const COMMON));
        assert_eq!(first.count(), 15);
        let mut names: Vec<_> = settings().map(|setting| setting.name).collect();
        assert!(names.len() <= 65, "{}", names.len());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), settings().count(), "each setting is declared once");
    }

    #[test]
    fn the_settings_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
        if std::env::var_os("PUMICE_BLESS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), page());
    }

    #[test]
    fn times_may_have_units_in_every_setting_of_a_time() {
        for setting in settings().filter(|setting| setting.name.ends_with("_ms")) {
            let set = |value: &str| {
                let mut config = ServerConfig::default();
                setting.set(&mut config, &[value.to_owned()]).map(|()| config)
            };
            assert_eq!(set("30s").unwrap(), set("30000").unwrap(), "{}", setting.name);
            assert_eq!(set("5m").unwrap(), set("300000ms").unwrap(), "{}", setting.name);
            assert_ne!(set("5m").unwrap(), set("5s").unwrap(), "{}", setting.name);
            for wrong in [
                "s",
                "-1s",
                "1.5s",
                "3w",
                "30 s",
                "99999999999999999d",
                "99999999999999999999",
            ] {
                let error = set(wrong).unwrap_err();
                assert!(error.contains(wrong), "{}: {error}", setting.name);
            }
        }
    }

    #[test]
    fn every_default_round_trips() {
        let default = ServerConfig::default();
        for setting in settings() {
            let mut config = ServerConfig::default();
            let shown = setting.show(&default);
            let values: Vec<String> = match shown.as_str() {
                "[]" => Vec::new(),
                shown => vec![shown.trim_matches('"').to_owned()],
            };
            setting.set(&mut config, &values).unwrap();
            assert_eq!(config, default, "{}", setting.name);
        }
    }
}
