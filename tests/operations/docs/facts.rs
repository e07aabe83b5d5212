//! Facts on pages: plugins, calls, names, limits, origins, versions and figures are those of the code.

use std::collections::{BTreeMap, BTreeSet};

use super::{every_page, files, page, root};
use pumice_engine::plugins::REGISTRY;
use pumice_engine::policy::unserved_effect;

/// Words in backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Plugins of Volcano and kube-scheduler, served or known, that a text has in backticks.
fn plugins(text: &str) -> BTreeSet<&str> {
    let is_plugin = |word: &&str| {
        REGISTRY.iter().any(|def| def.name == *word) || unserved_effect(word) != unserved_effect("no plugin at all")
    };
    quoted(text).into_iter().filter(is_plugin).collect()
}

/// Text between two marks.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no `{from}`"));
    rest.split(to).next().unwrap()
}

#[test]
fn pages_name_the_plugins_that_the_adapter_serves() {
    let source = page("clients/go/volcano/settings.go");
    let served: BTreeSet<&str> = between(&source, "return []string{", "}")
        .split('"')
        .skip(1)
        .step_by(2)
        .collect();
    assert!(served.len() >= 4, "{served:?}");
    let readme = page("README.md");
    let moved = between(&readme, "\n| Volcano | ", "run in Pumice");
    assert_eq!(plugins(moved), served, "README.md");
    let guide = page(VOLCANO);
    let rows = guide.lines().filter(|line| line.contains("| decided by Pumice"));
    assert_eq!(
        rows.flat_map(|row| plugins(row.split(" | ").next().unwrap()))
            .collect::<BTreeSet<_>>(),
        served,
        "{VOLCANO}"
    );
    let adapter = page("clients/go/volcano/README.md");
    assert_eq!(
        plugins(between(&adapter, "They are ", ". Each replaces")),
        served,
        "the adapter's page"
    );
    let built: BTreeSet<&str> = between(&adapter, "for name in ", ";").split(' ').collect();
    assert_eq!(built, served, "the adapter's shared objects");
    let support = page(SUPPORT);
    assert_eq!(
        plugins(between(&support, "that Pumice serves there:", "\n\n")),
        served,
        "{SUPPORT}"
    );
}

/// Guide for Volcano.
const VOLCANO: &str = "docs/guides/volcano.md";
/// Page of supported versions.
const SUPPORT: &str = "docs/reference/support.md";
/// Reference of policies.
const POLICY: &str = "docs/policy.md";
/// Page of admission.
const ADMISSION: &str = "docs/concepts/admission.md";
/// The protocol by example.
const WIRE: &str = "docs/reference/wire.md";
/// Page of the command line.
const COMMANDS: &str = "docs/reference/cli.md";
/// Page of upgrades.
const UPGRADE: &str = "docs/tasks/upgrade.md";
/// Page of measured figures.
const PERFORMANCE: &str = "docs/internals/performance.md";

#[test]
fn pages_name_the_plugins_that_reserve_for_jobs() {
    let votes = |def: &&pumice_engine::plugin::PluginDef| def.families.contains(&"admit") && def.time_effect.is_none();
    let reserving: BTreeSet<&str> = REGISTRY.iter().filter(votes).map(|def| def.name).collect();
    assert!(reserving.len() >= 4, "{reserving:?}");
    let admission = page(ADMISSION);
    let table = between(&admission, "| Plugin | Reserves for a job |", "\n\n");
    assert_eq!(plugins(table), reserving, "{ADMISSION}");
    let wire = page(WIRE);
    let section = between(&wire, "\n## Admission\n", "\n## ");
    assert_eq!(plugins(section), reserving, "{WIRE}");
}

#[test]
fn the_reference_has_the_families_of_each_plugin() {
    let text = page(POLICY);
    let names = BTreeMap::from([
        ("admit", "Admit"),
        ("filter", "Filter"),
        ("order", "Order"),
        ("score", "Score"),
        ("victims", "SelectVictims"),
    ]);
    let own = REGISTRY.iter().filter(|def| def.default_weight.is_none());
    let mut compared = 0;
    for def in own {
        let section = between(&text, &format!("\n## `{}`\n", def.name), "\n## ");
        let line = section.lines().find(|line| line.starts_with("Famil"));
        let line = line.unwrap_or_else(|| panic!("{} has no families", def.name));
        let said: BTreeSet<&str> = line
            .split(|c: char| !c.is_ascii_alphabetic())
            .take_while(|word| *word != "The" && *word != "It")
            .filter(|word| names.values().any(|name| name == word))
            .collect();
        let expected: BTreeSet<&str> = def.families.iter().map(|family| names[family]).collect();
        assert_eq!(said, expected, "{}: {line}", def.name);
        compared += 1;
    }
    assert!(compared > 15, "{compared}");
}

#[test]
fn a_plugin_that_is_not_evaluated_is_not_served_or_needs_the_time() {
    let wire = page(WIRE);
    let bullet = between(&wire, "\n- `metadata.notEvaluated`", "\n- `notEvaluated`");
    let named = plugins(bullet);
    assert!(named.len() > 1, "{named:?}");
    for name in named {
        let served = REGISTRY.iter().find(|def| def.name == name);
        assert!(
            served.is_none_or(|def| def.time_effect.is_some()),
            "{WIRE}: `{name}` is served"
        );
    }
}

/// Comment above a line of the protocol.
fn comment_above(proto: &str, line: &str) -> String {
    let text = page(proto);
    let (before, _) = text
        .split_once(line)
        .unwrap_or_else(|| panic!("no `{line}` in {proto}"));
    let comment = before
        .lines()
        .rev()
        .skip(1)
        .take_while(|line| line.trim_start().starts_with("//"));
    let mut comment: Vec<&str> = comment.map(|line| line.trim_start().trim_start_matches("//")).collect();
    comment.reverse();
    comment.concat()
}

#[test]
fn the_protocol_names_each_plugin_with_order_keys() {
    let comment = comment_above("proto/pumice/v1/decision.proto", "repeated double values = 2;");
    for def in REGISTRY.iter().filter(|def| def.families.contains(&"order")) {
        let is_named = comment
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .any(|word| word == def.name);
        assert!(is_named, "order keys of {} are not described: {comment}", def.name);
    }
}

#[test]
fn every_origin_of_a_policy_is_described() {
    let operations = page("docs/operations.md");
    let table = between(&operations, "\n## Changing the policy\n", "\n\nEvery change");
    let comment = comment_above("proto/pumice/v1/policy.proto", "string origin = 6;");
    for kind in pumice_state::PolicyOrigin::KINDS {
        assert!(
            table.contains(&format!("`{kind}")),
            "`{kind}` is not in docs/operations.md"
        );
        assert!(
            comment.contains(&format!("\"{kind}")),
            "\"{kind}\" is not in policy.proto: {comment}"
        );
    }
}

/// Names of settings and limits.
fn settings() -> BTreeSet<String> {
    let text = page("docs/settings.md");
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(str::to_owned).collect()
}

#[test]
fn limits_in_comments_of_the_protocol_exist() {
    let settings = settings();
    let mut problems = Vec::new();
    for path in files("proto", "proto") {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| line.trim_start().starts_with("//")) {
            let words = line.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
            let limits = words.filter(|word| word.ends_with("_bytes") || word.ends_with("_ms"));
            problems.extend(
                limits
                    .filter(|word| !settings.contains(*word))
                    .map(|word| format!("{word}: {line}")),
            );
        }
    }
    assert_eq!(problems, [""; 0]);
}

/// Names on pages that others gave: fields of Volcano's metrics, a folder of tests in Go.
const FOREIGN_NAMES: [&str; 3] = ["milli_cpu", "scalar_resources", "objects_test"];

#[test]
fn every_name_with_underscores_exists() {
    let mut known = settings();
    for folder in [
        "src", "crates", "clients", "deploy", "proto", "benches", "tests", "examples", "schemas",
    ] {
        for ending in [
            "rs", "go", "py", "proto", "yaml", "json", "sh", "toml", "tpl", "service",
        ] {
            for path in files(folder, ending) {
                let text = std::fs::read(&path).unwrap();
                let text = String::from_utf8_lossy(&text);
                let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                known.extend(words.filter(|word| word.contains('_')).map(str::to_owned));
            }
        }
    }
    let mut problems = Vec::new();
    for name in every_page() {
        let text = page(&name);
        for line in text.lines() {
            for word in quoted(line)
                .into_iter()
                .flat_map(|code| code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')))
            {
                let is_name =
                    word.trim_matches('_').contains('_') && word.chars().all(|c| c == '_' || c.is_ascii_lowercase());
                // Metrics have a test of their own, or consist of parts in the sources.
                let is_metric = word.contains("pumice_") || word.starts_with("process_");
                if is_name
                    && !is_metric
                    && !word.starts_with('_')
                    && !FOREIGN_NAMES.contains(&word)
                    && !known.contains(word)
                {
                    problems.push(format!("{name}: `{word}`"));
                }
            }
        }
    }
    assert_eq!(problems, [""; 0]);
}

/// Calls of the protocol, as `Service` and `Method`.
fn calls() -> BTreeSet<(String, String)> {
    let mut calls = BTreeSet::new();
    for path in files("proto", "proto") {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut service = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("service ") {
                service = rest.split(' ').next().unwrap().to_owned();
            } else if let Some(rest) = line.strip_prefix("  rpc ") {
                calls.insert((service.clone(), rest.split('(').next().unwrap().to_owned()));
            }
        }
    }
    calls
}

#[test]
fn every_call_on_a_page_exists() {
    let calls = calls();
    let services: BTreeSet<&String> = calls.iter().map(|(service, _)| service).collect();
    let mut problems = Vec::new();
    let mut found = 0;
    for name in every_page() {
        let text = page(&name);
        for service in &services {
            for rest in text.split(service.as_str()).skip(1) {
                let Some(method) = rest.strip_prefix(['/', '.']) else {
                    continue;
                };
                let method: String = method.chars().take_while(char::is_ascii_alphanumeric).collect();
                found += 1;
                if !method.is_empty() && !calls.contains(&((*service).clone(), method.clone())) {
                    problems.push(format!("{name}: {service}/{method}"));
                }
            }
        }
    }
    assert!(found > 50, "{found}");
    assert_eq!(problems, [""; 0]);
}

#[test]
fn the_message_about_a_newer_store_has_the_present_format() {
    let source = page("crates/state/src/store/header.rs");
    let format = between(&source, "const FORMAT: u32 = ", ";");
    let text = page(UPGRADE);
    assert_eq!(between(&text, "this program reads format ", ":"), format, "{UPGRADE}");
}

#[test]
fn the_page_of_alerts_has_each_kind_of_work() {
    let source = page("src/server/worker_pool.rs");
    let kinds = source
        .split("load(\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap());
    let kinds: BTreeSet<&str> = kinds.collect();
    assert!(kinds.len() > 2, "{kinds:?}");
    let alerts = page("docs/alerts.md");
    let section = between(&alerts, "\n## PumiceOverloaded\n", "\n## ");
    let operations = page("docs/operations.md");
    let row = between(&operations, "| `pumice_workers_busy`, `pumice_worker_queue` |", "\n");
    for kind in kinds {
        assert!(
            section.contains(&format!("`{kind}`")),
            "`{kind}` is not in docs/alerts.md"
        );
        assert!(
            row.contains(&format!("`{kind}`")),
            "`{kind}` is not in docs/operations.md"
        );
    }
}

#[test]
fn the_page_of_the_command_line_has_each_group_and_kind_of_document() {
    let text = page(COMMANDS);
    let listed = quoted(between(&text, "The groups are ", ".\n"));
    let command = pumice::cli::command_line();
    for group in command.get_subcommands().filter(|command| command.has_subcommands()) {
        let name = format!("pumice {}", group.get_name());
        assert!(
            group.get_name() == "help" || listed.contains(name.as_str()),
            "`{name}` is not among the groups: {listed:?}"
        );
    }
    let schema = command.find_subcommand("schema").unwrap();
    let kinds = schema.get_positionals().flat_map(clap::Arg::get_possible_values);
    let kinds: BTreeSet<String> = kinds.map(|kind| kind.get_name().to_owned()).collect();
    let listed: BTreeSet<String> = between(&text, "`pumice schema ", "`")
        .split('|')
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, kinds, "{COMMANDS}");
}

/// Versions behind a name, such as `v1.36.3` or the start of a commit.
fn versions<'t>(text: &'t str, of: &str) -> Vec<&'t str> {
    let is_version = |word: &str| {
        let number = word.strip_prefix('v').unwrap_or(word);
        let is_release = number.split('.').count() == 3 && number.split('.').all(|part| part.parse::<u16>().is_ok());
        let is_commit = (8..=9).contains(&word.len()) && word.chars().all(|c| c.is_ascii_hexdigit());
        is_release || is_commit
    };
    let behind = text.split(of).skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix(' ')?;
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
            .unwrap_or(rest.len());
        rest.get(..end).map(|word| word.trim_end_matches('.'))
    });
    behind.filter(|word| is_version(word)).collect()
}

#[test]
fn every_version_of_another_scheduler_is_supported() {
    let support = page(SUPPORT);
    let mut named: BTreeSet<String> = BTreeSet::new();
    let mut sources: Vec<String> = every_page();
    sources.extend(
        ["crates/engine/src", "crates/kubernetes/src"]
            .iter()
            .flat_map(|folder| {
                files(folder, "rs")
                    .into_iter()
                    .map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned())
            }),
    );
    for name in sources.iter().filter(|name| *name != "CHANGELOG.md") {
        let text = page(name);
        for of in ["Volcano", "Koordinator", "kube-scheduler", "Kubernetes"] {
            for version in versions(&text, of) {
                let bare = version.trim_start_matches('v');
                assert!(
                    support.contains(bare),
                    "{name} names {of} {version}, which is not in {SUPPORT}"
                );
                named.insert(bare.to_owned());
            }
        }
    }
    assert!(named.len() >= 5, "{named:?}");
}

#[test]
fn the_page_of_versions_has_those_of_the_manifests() {
    let support = page(SUPPORT);
    let row = |start: &str| between(&support, start, "\n").to_owned();
    // The second cell has the versions.
    let cell = |start: &str| row(start).split(" | ").nth(1).unwrap().to_owned();
    let scheduler = cell("\n| kube-scheduler with the [plugin]");
    let watched = cell("\n| API server that Pumice watches");
    for manifest in ["go.mod", "go.kubernetes-1.36.mod"] {
        let text = page(&format!("clients/go/kubescheduler/{manifest}"));
        let version = between(&text, "k8s.io/kubernetes ", "\n");
        assert!(scheduler.contains(version), "{manifest}: {version}: {scheduler}");
        assert!(
            manifest != "go.mod" || watched == version,
            "{manifest}: {version}: {watched}"
        );
    }
    let go = |module: &str| {
        let text = page(&format!("{module}/go.mod"));
        let version = between(&text, "\ngo ", "\n").to_owned();
        version.split('.').take(2).collect::<Vec<_>>().join(".")
    };
    for (start, needs) in [
        (
            "| `clients/go`, `clients/go/volcano` |",
            format!("Go {}", go("clients/go")),
        ),
        (
            "| `clients/go`, `clients/go/volcano` |",
            format!("Go {}", go("clients/go/volcano")),
        ),
        (
            "| `clients/go/kubescheduler` |",
            format!("Go {}", go("clients/go/kubescheduler")),
        ),
        (
            "| `clients/python` |",
            format!(
                "Python {}",
                between(&page("clients/python/pyproject.toml"), "requires-python = \">=", "\"")
            ),
        ),
        (
            "| build |",
            format!("Rust {}", between(&page("Cargo.toml"), "\nrust-version = \"", "\"")),
        ),
    ] {
        assert!(
            row(&format!("\n{start}")).contains(&needs),
            "{SUPPORT}: {start}: {needs}"
        );
    }
}

#[test]
fn costs_are_on_the_page_of_performance_alone() {
    let readme = page("README.md");
    let measured = page(PERFORMANCE);
    let row = between(&measured, "\n| best node of 10,000 | TCP | ", "\n");
    let cost = row.split(" | ").next().unwrap();
    let quoted = format!("[{cost}]({PERFORMANCE}#over-the-wire)");
    assert!(readme.contains(&quoted), "README.md does not quote {quoted}");
    let prose = readme
        .lines()
        .filter(|line| !line.starts_with("!["))
        .collect::<Vec<_>>()
        .join("\n")
        .replace(&quoted, "");
    for unit in [" ms", " µs", " ns", " ×", " times as"] {
        assert!(!prose.contains(unit), "README.md has a figure in `{unit}`");
    }
    for name in every_page()
        .iter()
        .filter(|name| *name != PERFORMANCE && *name != "CHANGELOG.md")
    {
        for line in page(name).lines() {
            let is_cost = |unit: &str| {
                line.split(unit)
                    .next()
                    .is_some_and(|before| before.len() < line.len() && before.ends_with(|c: char| c.is_ascii_digit()))
            };
            assert!(
                !is_cost(" µs") && !is_cost(" ns"),
                "{name} has a cost, which belongs to {PERFORMANCE}: {line}"
            );
        }
    }
}
