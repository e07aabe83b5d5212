//! Completeness of the pages: every code, metric, call, command and policy key of the program is documented.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::{files, page, root};
use crate::support::EmbeddedServer;
use crate::support::records::{full_sync, hypothetical_task};
use pumice::server::pb;
use pumice_engine::model::{ErrorCode, RejectionCode};

/// Shipped text of a source file: without comments and without the tests at its end.
fn shipped(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Source files below a folder, without tests.
fn sources(folder: &str) -> Vec<std::path::PathBuf> {
    let is_test = |path: &std::path::PathBuf| {
        let path = path.strip_prefix(root()).unwrap().to_str().unwrap();
        path.contains("tests") || path.contains("/testing/")
    };
    files(folder, "rs").into_iter().filter(|path| !is_test(path)).collect()
}

/// Texts in quotes, one line at a time.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('"').skip(1).step_by(2))
}

fn is_reason(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric())
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().filter(char::is_ascii_uppercase).count() > 1
        && word.chars().any(|c| c.is_ascii_lowercase())
}

/// Page with the tables of codes as the program has them: each stands behind a comment that names its section.
fn with_code_tables(page: &str) -> String {
    let mut written = String::new();
    let mut is_old_table = false;
    for line in page.lines() {
        is_old_table = is_old_table && line.starts_with('|');
        if is_old_table {
            continue;
        }
        writeln!(written, "{line}").unwrap();
        if line == "<!-- rejections -->" {
            written.push_str("| Code | By | Meaning | Remedy |\n|---|---|---|---|\n");
            for code in RejectionCode::ALL {
                let (by, meaning, remedy) = (code.by(), code.meaning(), code.remedy());
                writeln!(written, "| `{}` | {by} | {meaning} | {remedy} |", code.name()).unwrap();
            }
            is_old_table = true;
            continue;
        }
        let section = line
            .strip_prefix("<!-- codes: ")
            .and_then(|rest| rest.strip_suffix(" -->"));
        let Some(section) = section else { continue };
        let mut sections = ErrorCode::SECTIONS.iter();
        let (_, codes) = sections.find(|(title, _)| *title == section).expect(section);
        written.push_str("| Code | Cause | Remedy |\n|---|---|---|\n");
        for code in *codes {
            writeln!(written, "| `{code}` | {} | {} |", code.cause(), code.remedy()).unwrap();
        }
        is_old_table = true;
    }
    written
}

#[test]
fn the_tables_of_codes_are_current() {
    let path = root().join("docs/troubleshooting.md");
    let page = page("docs/troubleshooting.md");
    let current = with_code_tables(&page);
    if std::env::var_os("PUMICE_BLESS").is_some() {
        std::fs::write(path, current).unwrap();
        return;
    }
    assert!(
        page == current,
        "PUMICE_BLESS=1 rewrites the tables of docs/troubleshooting.md"
    );
    for (section, codes) in ErrorCode::SECTIONS {
        assert!(page.contains(&format!("<!-- codes: {section} -->")), "{section}");
        for code in *codes {
            let mut words = String::new();
            for letter in format!("{code:?}").chars() {
                if letter.is_uppercase() && !words.is_empty() {
                    words.push('_');
                }
                words.extend(letter.to_uppercase());
            }
            assert_eq!(words, code.name());
        }
    }
}

#[test]
fn the_tables_of_objects_are_current() {
    const PATH: &str = "docs/reference/objects.md";
    let page = page(PATH);
    let (head, _) = page.split_once("## ").unwrap();
    let current = format!("{head}{}", pumice_kubernetes::import::field_tables());
    if std::env::var_os("PUMICE_BLESS").is_some() {
        std::fs::write(root().join(PATH), current).unwrap();
        return;
    }
    assert!(page == current, "PUMICE_BLESS=1 rewrites {PATH}");
}

#[test]
fn every_code_is_written_once_and_used() {
    let names: BTreeSet<&str> = codes().map(ErrorCode::name).collect();
    assert_eq!(names.len(), codes().count());
    let mut used = String::new();
    for folder in ["crates", "src"] {
        for path in sources(folder) {
            let text = shipped(&path);
            let is_list = path.ends_with("engine/src/model/codes.rs");
            // The names of gRPC's own codes are some of these words.
            let is_grpc = path.ends_with("telemetry/call_metrics.rs");
            // Programs of users read codes from the wire.
            let is_of_user = path.components().any(|part| part.as_os_str() == "examples");
            let written: Vec<&str> = quoted(&text).filter(|word| names.contains(word)).collect();
            assert!(
                is_list || is_grpc || is_of_user || written.is_empty(),
                "{}: {written:?} as text",
                path.display()
            );
            if !is_list {
                used.push_str(&text);
            }
        }
    }
    let unused: Vec<ErrorCode> = codes()
        .filter(|code| !used.contains(&format!("ErrorCode::{code:?}")))
        .collect();
    assert!(unused.is_empty(), "codes that nothing uses: {unused:?}");
}

fn codes() -> impl Iterator<Item = ErrorCode> {
    ErrorCode::SECTIONS.iter().flat_map(|(_, codes)| *codes).copied()
}

#[test]
fn every_reason_of_a_rejection_is_declared() {
    let mut reasons = BTreeSet::new();
    for path in sources("crates/engine/src/decide") {
        reasons.extend(
            quoted(&shipped(&path))
                .filter(|word| is_reason(word))
                .map(str::to_owned),
        );
    }
    for file in [
        "capacity/plugin.rs",
        "capacity_card/rejection.rs",
        "gpu_devices.rs",
        "nodegroup/group_rules.rs",
        "overcommit/mod.rs",
        "predicates/rejection_kind.rs",
        "proportion/plugin.rs",
        "queue_accounts/admission.rs",
        "resource_strategy_fit/proportional.rs",
        "resourcequota/mod.rs",
        "tdm/revocable_nodes.rs",
        "usage/mod.rs",
    ] {
        let text = shipped(&root().join("crates/engine/src/plugins").join(file));
        reasons.extend(quoted(&text).filter(|word| is_reason(word)).map(str::to_owned));
    }
    let mut used = String::new();
    for path in sources("crates/state/src") {
        used.push_str(&shipped(&path));
    }
    let is_used = |code: &RejectionCode| used.contains(&format!("RejectionCode::{code:?}"));
    reasons.extend(
        RejectionCode::ALL
            .iter()
            .filter(|code| is_used(code))
            .map(|code| code.name().to_owned()),
    );
    let declared: BTreeSet<String> = RejectionCode::ALL.iter().map(|code| code.name().to_owned()).collect();
    assert_eq!(reasons, declared);
}

#[test]
fn every_metric_is_in_operations_and_alerts_use_none_that_is_not_there() {
    let server = EmbeddedServer::start();
    // The page omits series that were never counted.
    server
        .wire
        .apply_batch(full_sync("docs", 1, pb::Cluster::default()))
        .unwrap();
    let ask = |tasks| pb::FilterRequest {
        tasks: vec![hypothetical_task(&[("cpu", "1")]); tasks],
        ..Default::default()
    };
    let score = pb::ScoreRequest {
        tasks: vec![hypothetical_task(&[("cpu", "1")])],
        ..Default::default()
    };
    server.wire.score(score).unwrap();
    server.wire.filter(ask(20_000)).unwrap_err();
    let (status, text) = server.page("/metrics");
    assert_eq!(status, 200);
    let page = page("docs/operations.md");
    let described: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .filter(|name| name.starts_with("pumice_") || name.starts_with("process_"))
        .collect();
    assert!(described.len() > 25, "{described:?}");
    let missing: Vec<_> = described.difference(&metrics_named(&page)).copied().collect();
    assert!(missing.is_empty(), "not in docs/operations.md: {missing:?}");
    // A server that watches a cluster has these, too.
    let of_the_watch = super::page("src/telemetry/cluster_gauges.rs");
    let described: BTreeSet<&str> = described.union(&metrics_named(&of_the_watch)).copied().collect();
    for file in ["docs/operations.md", "docs/alerts.md", "alerts.yaml", "dashboard.json"] {
        let is_page = file.starts_with("docs/");
        let path = if is_page {
            file.to_owned()
        } else {
            format!("deploy/helm/pumice/monitoring/{file}")
        };
        let text = super::page(&path);
        let named = metrics_named(&text);
        let gone: Vec<_> = named.difference(&described).collect();
        assert!(gone.is_empty(), "in {file} and not served: {gone:?}");
        assert!(named.len() > 5, "{file} names metrics");
    }
}

/// Names of metrics in a text, without the endings of their series.
fn metrics_named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let named = words.filter(|word| word.starts_with("pumice_") || word.starts_with("process_"));
    let endings = ["_bucket", "_count", "_sum", "_total"];
    named
        .map(|word| {
            let mut shorter = endings.iter().filter_map(|ending| word.strip_suffix(ending));
            shorter.next().unwrap_or(word)
        })
        .collect()
}

#[test]
fn every_call_has_a_line_that_is_run() {
    let page = page("docs/reference/rpc.md");
    let mut calls = 0;
    for proto in files("proto", "proto") {
        let text = std::fs::read_to_string(&proto).unwrap();
        let mut service = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("service ") {
                service = rest.split(' ').next().unwrap();
            }
            let Some(rest) = line.strip_prefix("  rpc ") else {
                continue;
            };
            let call = format!("pumice.v1.{service}/{}", rest.split('(').next().unwrap());
            assert!(
                page.contains(&call),
                "no grpcurl line for {call} in docs/reference/rpc.md"
            );
            calls += 1;
        }
    }
    assert!(calls > 20, "{calls}");
}

#[test]
fn every_command_and_exit_code_is_in_the_page_of_the_command_line() {
    fn commands(command: &clap::Command, path: &str, all: &mut Vec<String>) {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        for below in command.get_subcommands() {
            commands(below, &path, all);
        }
        all.push(path);
    }
    let mut all = Vec::new();
    commands(&pumice::cli::command_line(), "", &mut all);
    assert!(all.len() > 30, "{all:?}");
    let page = page("docs/reference/cli.md");
    for command in all {
        assert!(
            page.contains(&format!("`{command}")),
            "`{command}` is not in docs/reference/cli.md"
        );
    }
}

/// Rows of the table of commands: each command with its summary.
fn command_rows(command: &clap::Command, path: &str, table: &mut String) {
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        let path = format!("{path} {}", below.get_name());
        let summary = below.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(table, "| `{path}` | {} |", summary.replace('|', "\\|")).unwrap();
        command_rows(below, &path, table);
    }
}

#[test]
fn the_table_of_commands_is_current() {
    let name = "docs/reference/cli.md";
    let text = page(name);
    let (begin, end) = ("<!-- commands: generated -->\n", "<!-- commands: end -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (shown, tail) = rest.split_once(end).unwrap();
    let mut table = "| Command | Action |\n|---|---|\n".to_owned();
    command_rows(&pumice::cli::command_line(), "pumice", &mut table);
    if std::env::var_os("PUMICE_BLESS").is_some() {
        std::fs::write(root().join(name), format!("{head}{begin}{table}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(shown, table, "PUMICE_BLESS=1 rewrites it");
}

/// Sources of a plugin's arguments and annotations, by the heading of its section.
const ARGUMENTS: &[(&str, &[&str])] = &[
    (
        "resource-strategy-fit",
        &[
            "resource_strategy_fit/strategies.rs",
            "resource_strategy_fit/annotations.rs",
            "resource_strategy_fit/sra.rs",
            "resource_strategy_fit/proportional.rs",
            "resource_strategy_fit/legacy.rs",
        ],
    ),
    ("capacity", &["capacity/config.rs"]),
    ("predicates", &["predicates/arguments.rs", "predicates/node_filter.rs"]),
    ("nodegroup", &["nodegroup/arguments.rs"]),
    ("nodeorder", &["nodeorder/arguments.rs"]),
    ("binpack", &["binpack.rs"]),
    (
        "NodeResourcesFitPlus",
        &["strict_arguments.rs", "node_resources_fit_plus/arguments.rs"],
    ),
    (
        "ScarceResourceAvoidance",
        &["strict_arguments.rs", "scarce_resource_avoidance.rs"],
    ),
    ("drf", &["drf/hierarchy.rs"]),
    ("overcommit", &["overcommit/mod.rs"]),
    ("sla", &["sla.rs"]),
    ("cdp", &["cdp.rs"]),
    (
        "task-topology",
        &["task_topology/mod.rs", "task_topology/affinities.rs"],
    ),
    ("usage", &["usage/arguments.rs"]),
    ("rescheduling", &["rescheduling/arguments.rs"]),
    ("tdm", &["tdm/mod.rs", "tdm/arguments.rs", "tdm/disruption_budget.rs"]),
    ("fgd", &["fgd/typical.rs", "device_scores.rs"]),
    ("gpu-bestfit", &["gpu_bestfit.rs", "device_formula.rs"]),
    ("gpu-clustering", &["gpu_clustering.rs", "device_formula.rs"]),
    ("gpu-devices", &["gpu_devices.rs"]),
    ("gpu-dotprod", &["gpu_dotprod.rs", "device_formula.rs"]),
    ("gpu-packing", &["gpu_packing.rs", "device_formula.rs"]),
    ("gpu-random", &["gpu_random.rs"]),
    (
        "capacity-card",
        &[
            "capacity_card/config.rs",
            "capacity_card/annotations.rs",
            "capacity_card/service_types.rs",
        ],
    ),
];

/// Plugins without arguments.
const WITHOUT_ARGUMENTS: [&str; 6] = ["conformance", "gang", "pdb", "priority", "proportion", "resourcequota"];

/// Words in those files that are not keys: names of resources and parts, values, and the key of effective documents.
const NO_KEYS: &[&str] = &[
    "a",
    "a/a",
    "null",
    "pods",
    "portable",
    "score",
    "filter",
    "admit",
    "order",
    "ephemeral-storage",
    "pumice.noResources",
    "apiVersion",
    "preFilter",
    "preScore",
];

fn is_key(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '/' | '_'))
        && !NO_KEYS.contains(&word)
}

/// Default plugins of kube-scheduler, which have one table together.
const DEFAULT_PLUGINS: [&str; 9] = [
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
];

#[test]
fn every_default_plugin_and_its_arguments_are_described_in_the_reference() {
    let page = page("docs/policy.md");
    let section = page.split("\n### Default plugins\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    for plugin in DEFAULT_PLUGINS {
        assert!(section.contains(&format!("\n| `{plugin}` | ")), "no row of {plugin}");
    }
    let text = shipped(&root().join("crates/engine/src/plugins/kube_scheduler/arguments.rs"));
    let words = quoted(&text).filter(|word| is_key(word) && word.contains(|c: char| c.is_ascii_uppercase()));
    let keys: Vec<&str> = words.collect();
    assert!(keys.len() > 5, "the keys are looked for where they are");
    let missing: Vec<&&str> = keys.iter().filter(|key| !section.contains(**key)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

#[test]
fn every_key_of_every_plugin_is_fully_described_in_the_reference() {
    let page = page("docs/policy.md");
    let section = |plugin: &str| {
        let start = page
            .find(&format!("\n## `{plugin}`\n"))
            .unwrap_or_else(|| panic!("no section of {plugin}"));
        let rest = page.get(start + 4..).unwrap();
        rest.split("\n## ").next().unwrap().to_owned()
    };
    let served: BTreeSet<&str> = pumice_engine::plugins::REGISTRY.iter().map(|def| def.name).collect();
    let described = ARGUMENTS.iter().map(|(plugin, _)| *plugin).chain(DEFAULT_PLUGINS);
    assert_eq!(served, described.chain(WITHOUT_ARGUMENTS).collect());
    assert!(WITHOUT_ARGUMENTS.iter().all(|plugin| !section(plugin).is_empty()));
    for (plugin, sources) in ARGUMENTS {
        let section = section(plugin);
        let mut keys = 0;
        for source in *sources {
            let text = shipped(&root().join("crates/engine/src/plugins").join(source));
            for key in quoted(&text).filter(|word| is_key(word)) {
                assert!(
                    section.contains(key),
                    "`{key}` of {plugin} ({source}) is not in docs/policy.md"
                );
                keys += 1;
            }
        }
        assert!(keys > 0, "the keys of {plugin} are looked for where they are");
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).collect();
        assert!(rows.len() > 1, "{plugin} has a table");
        for row in rows {
            let row = row.replace("\\|", "/");
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let whole = cells.len() == 5 && cells.iter().all(|cell| !cell.is_empty());
            assert!(
                whole,
                "{plugin}: key, meaning, unit, default and what upstream does: {row}"
            );
        }
    }
}

#[test]
fn the_first_screen_has_the_values_of_the_simulation() {
    let (measured, drawing, readme) = (
        page("docs/internals/openb.md"),
        page("docs/policies.svg"),
        page("README.md"),
    );
    let rows = measured.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(" | ").collect()).collect();
    assert_eq!(rows.len(), 5);
    for row in rows {
        let share = row[5].trim_end_matches(" |");
        let stranded = row[4].split(',').next().unwrap();
        let bar = drawing.lines().find(|line| line.contains(&format!(">{share}<")));
        let bar = bar.unwrap_or_else(|| panic!("no bar of {row:?}"));
        assert!(readme.contains(share), "{row:?}");
        assert!(drawing.contains(&format!(">{stranded}<")), "{bar} {row:?}");
    }
}

#[test]
fn every_page_is_in_the_index() {
    let index = page("docs/README.md");
    for path in super::pages() {
        let name = path.trim_start_matches("docs/");
        if name != "README.md" {
            assert!(index.contains(&format!("({name})")), "{name} is not in docs/README.md");
        }
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    for path in super::pages() {
        let text = page(&path);
        let folder = Path::new(&path).parent().unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() {
                root().join(&path)
            } else {
                root().join(folder).join(file)
            };
            assert!(there.exists(), "{path}: {target}");
            if anchor.is_empty() {
                continue;
            }
            let heads = std::fs::read_to_string(&there).unwrap();
            let found = heads
                .lines()
                .filter(|line| line.starts_with('#'))
                .any(|line| slug(line) == anchor);
            assert!(found, "{path}: no heading for {target}");
        }
    }
}

/// Anchor of a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let letters = text
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    letters.map(|c| if c == ' ' { '-' } else { c }).collect()
}
