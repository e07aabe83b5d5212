//! Memory of the chart's pod: the limits in bytes of the server's defaults are reached before it.

use super::repository;

/// Limits that all callers share; the others bound one connection or one thing.
const SHARED: [&str; 6] = [
    "full_sync_bytes",
    "message_bytes",
    "policy_history_bytes",
    "records_bytes",
    "session_bytes",
    "verdict_cache_bytes",
];

/// Default of a setting or a fixed limit, as the page of settings says.
fn default_of(page: &str, name: &str) -> u64 {
    let start = format!("| `{name}` |");
    let row = page.lines().find(|line| line.starts_with(&start)).unwrap();
    row.rsplit('|')
        .nth(2)
        .unwrap()
        .trim()
        .trim_matches('`')
        .parse()
        .unwrap()
}

#[test]
fn the_server_refuses_before_the_pod_runs_out_of_memory() {
    let page = std::fs::read_to_string(repository().join("docs/settings.md")).unwrap();
    let sum: u64 = SHARED.iter().map(|name| default_of(&page, name)).sum();
    for file in [
        "helm/pumice/values.yaml",
        "kustomize/standalone/objects.yaml",
        "kustomize/sidecar/sidecar.yaml",
    ] {
        let text = std::fs::read_to_string(repository().join("deploy").join(file)).unwrap();
        let amounts = text.lines().filter_map(|line| line.trim().strip_prefix("memory: "));
        let most = amounts
            .filter_map(|amount| amount.strip_suffix("Gi")?.parse::<u64>().ok())
            .max();
        assert!(
            most.unwrap() << 30 >= sum,
            "{file}: {most:?} GiB where the limits add up to {sum}"
        );
    }
}
