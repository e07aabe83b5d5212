//! Table of the releases that were compared: from the stamps of the adapter for Volcano, and the modules of kube-scheduler.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{page, root};
use pumice_engine::policy::{Release, ReleasedScheduler};

/// Page with the table.
const PAGE: &str = "docs/compatibility.md";

/// Releases of Volcano, each with a stamp.
const VOLCANO: [Release; 3] = [Release::Volcano1144, Release::Volcano1151, Release::VolcanoEd72c7c81];

/// Releases of kube-scheduler, each with the list of modules that has its plugins.
const KUBE_SCHEDULER: [(Release, &str); 2] = [
    (Release::KubeScheduler136, "go.kubernetes-1.36.mod"),
    (Release::KubeScheduler137, "go.mod"),
];

/// Number with commas, as on pages: 1,963,200.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn table() -> String {
    let mut text = "| Name | Source | Compared | Differences | Date |\n|---|---|---|---|---|\n".to_owned();
    for release in VOLCANO {
        assert_eq!(release.scheduler(), Some(ReleasedScheduler::Volcano));
        let name = release.name();
        let result = page(&format!("clients/go/volcano/verify/stamps/{name}.txt"));
        let fields: BTreeMap<&str, &str> = result.lines().filter_map(|line| line.split_once(": ")).collect();
        writeln!(
            text,
            "| `{name}` | commit {} | {} calls of plugins; {} whole cycles with the adapter; {} simulated cycles | {} | {} |",
            fields["commit"].get(..9).unwrap(),
            grouped(fields["calls"]),
            grouped(fields["cycles"]),
            grouped(fields["simulated"]),
            fields["differences"],
            fields["date"],
        )
        .unwrap();
    }
    for (release, modules) in KUBE_SCHEDULER {
        let modules = page(&format!("clients/go/kubescheduler/{modules}"));
        let (_, version) = modules.split_once("k8s.io/kubernetes ").unwrap();
        let source = version.lines().next().unwrap();
        let name = release.name();
        let minor = name.trim_start_matches("kube-scheduler-");
        assert!(
            source.starts_with(&format!("v{minor}.")),
            "{name} is compared with {source}"
        );
        let compared = "filters and scores of random clusters, and lists of plugins, by `make compare-kubescheduler`";
        writeln!(text, "| `{name}` | Kubernetes {source} | {compared} | 0 | each night |").unwrap();
    }
    text
}

#[test]
fn the_page_has_the_compared_releases() {
    let text = page(PAGE);
    let (begin, end) = ("<!-- compared releases -->\n", "<!-- end of the compared releases -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (shown, tail) = rest.split_once(end).unwrap();
    let table = table();
    if std::env::var_os("PUMICE_BLESS").is_some() {
        std::fs::write(root().join(PAGE), format!("{head}{begin}{table}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(shown, table, "PUMICE_BLESS=1 rewrites it");
}
