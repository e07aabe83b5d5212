//! Examples at the end of each command's help and man page, in one table: a test reads every line of it as a command line.

/// Examples of each command, by its path below `pumice`.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    (
        "serve",
        "pumice serve\npumice serve --data-dir /var/lib/pumice --grpc-address 127.0.0.1:7461",
    ),
    (
        "whoami",
        "pumice whoami\npumice whoami --server https://pumice.example:7461 --ca ca.crt --certificate me.crt --key me.key",
    ),
    ("demo", "pumice demo\npumice demo --console"),
    (
        "policy check",
        "pumice policy check volcano-scheduler.conf\npumice policy check --strict -",
    ),
    (
        "policy diff",
        "pumice policy diff volcano-scheduler.conf\npumice policy diff default@3 default@active --state",
    ),
    (
        "policy test",
        "pumice policy test cases/\npumice policy test cases.yaml --run 'gang'",
    ),
    (
        "policy push",
        "pumice policy push volcano-scheduler.conf\npumice policy push volcano-scheduler.conf --expected-version 3 --strict",
    ),
    (
        "policy get",
        "pumice policy get\npumice policy get --version 2 --effective",
    ),
    ("policy history", "pumice policy history"),
    (
        "policy rollback",
        "pumice policy rollback\npumice policy rollback 2 --dry-run",
    ),
    ("policy delete", "pumice policy delete batch"),
    (
        "state load",
        "pumice state load cluster.yaml\nkubectl get nodes,pods,namespaces,services,replicasets,statefulsets,queues,podgroups -A -o json | pumice state load -",
    ),
    (
        "state show",
        "pumice state show\npumice state show nodes n-1 n-2\npumice state show queues -o json",
    ),
    (
        "state watch",
        "pumice state watch\npumice state watch --count 10 -o json",
    ),
    ("state diff", "pumice state diff cluster.yaml"),
    (
        "state forget",
        "pumice state forget old-cluster\npumice state forget --resource example.com/old-device",
    ),
    ("sessions", "pumice sessions"),
    ("sessions close", "pumice sessions close 5f1c-2"),
    (
        "reservations list",
        "pumice reservations list\npumice reservations list --queue research",
    ),
    ("reservations release", "pumice reservations release train/bert"),
    (
        "explain",
        "pumice explain job train/bert\npumice explain task train/bert-worker-1 -o json\npumice explain -f job.yaml\n\
         pumice explain job train/bert --with more-nodes.yaml",
    ),
    (
        "filter",
        "pumice filter --cpu 8 --memory 64Gi\npumice filter --task train/bert-worker-1\n\
         pumice filter --request gpu=1 --toleration nvidia.com/gpu --affinity 'zone in (a, b), !spot'\n\
         pumice filter --request gpu=1 --with more-nodes.yaml",
    ),
    (
        "score",
        "pumice score --cpu 2 --memory 4Gi --request gpu=1 --parts\npumice score -f pod.yaml -o json",
    ),
    (
        "place",
        "pumice place -f job.yaml\npumice place --shape '8 x 1 gpu + 8 cpu' --queue research\n\
         pumice place -f job.yaml --with more-nodes.yaml",
    ),
    (
        "capacity",
        "pumice capacity --shape '8 x 1 gpu + 8 cpu + 64Gi memory'\npumice capacity -f job.yaml --queue research\n\
         pumice capacity --shape '1 gpu' --with more-nodes.yaml",
    ),
    (
        "simulate",
        "pumice simulate cluster.yaml\npumice simulate cluster.yaml more-nodes.yaml --policy pack --policy spread",
    ),
    (
        "state sync",
        "pumice state sync\npumice state sync --kubeconfig FILE --context NAME --server 127.0.0.1:7461",
    ),
    (
        "extender check",
        "pumice extender check filter body.json\npumice extender check prioritize body.json --policy batch",
    ),
    ("store check", "pumice store check /var/lib/pumice"),
    ("store export", "pumice store export /var/lib/pumice --out pumice.jsonl"),
    ("store import", "pumice store import /var/lib/pumice pumice.jsonl"),
    (
        "certs init",
        "pumice certs init certs --name pumice.pumice.svc\n\
         pumice certs init certs --client admin --client spiffe://cluster.local/ns/volcano-system/sa/volcano-scheduler",
    ),
    (
        "certs issue",
        "pumice certs issue certs --name pumice.pumice.svc\npumice certs issue certs --client admin --days 90",
    ),
    ("schema", "pumice schema policy\npumice schema settings"),
    ("completions", "pumice completions bash"),
];

/// Examples of the command at a path such as `policy push`, as help shows them; empty for a group of commands.
pub(super) fn help_text(examples: &[(&str, &str)], path: &str) -> String {
    let found = examples.iter().find(|(own, _)| *own == path);
    found.map_or_else(String::new, |(_, lines)| {
        let lines: Vec<String> = lines.lines().map(|line| format!("  {line}")).collect();
        format!("Examples:\n{}\n\n", lines.join("\n"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_line;

    /// Words of an example's last command, with single quotes as in a shell.
    fn words(line: &str) -> Vec<String> {
        let command = line.rsplit(" | ").next().unwrap();
        let quoted = command.split('\'').enumerate();
        let parts = quoted.flat_map(|(at, part)| {
            if at % 2 == 1 {
                vec![part.to_owned()]
            } else {
                part.split_whitespace().map(str::to_owned).collect()
            }
        });
        parts.collect()
    }

    fn paths(command: &clap::Command, path: &str, all: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name()).trim().to_owned();
            paths(below, &path, all);
            all.push(path);
        }
    }

    #[test]
    fn every_command_has_examples_that_it_accepts() {
        let mut all = Vec::new();
        paths(&command_line(), "", &mut all);
        for group in ["policy", "state", "reservations", "certs", "store", "extender"] {
            all.retain(|path| path != group);
        }
        for path in &all {
            let (_, lines) = EXAMPLES
                .iter()
                .find(|(own, _)| own == path)
                .unwrap_or_else(|| panic!("`pumice {path}` has no example"));
            for line in lines.lines() {
                let begins = format!("pumice {path}");
                assert!(line.rsplit(" | ").next().unwrap().starts_with(&begins), "{line}");
                if let Err(error) = command_line().try_get_matches_from(words(line)) {
                    panic!("{line}: {error}");
                }
            }
        }
    }

    #[test]
    fn help_shows_examples_before_the_exit_codes() {
        let mut line = command_line();
        let score = line.find_subcommand_mut("score").unwrap();
        let help = score.render_help().to_string();
        let (examples, codes) = (help.find("Examples:\n  pumice score "), help.find("Exit codes:"));
        assert!(examples.is_some() && examples < codes, "{help}");
    }
}
