//! Command line against a server in this process: output for people, and output for scripts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use pumice::server::pb;
use serde_json::Value;

use crate::support::EmbeddedServer;
use crate::support::process::{err, out, pumice};

const DUMP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dump.yaml");
const PROPORTIONAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/proportional.yaml");

/// Runs `pumice`, which must succeed.
fn run_ok(server: &EmbeddedServer, arguments: &[&str]) -> String {
    let output = pumice(Some(server), arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
    out(&output)
}

#[test]
fn a_dump_and_a_policy_give_a_result() {
    let server = EmbeddedServer::start();
    let loaded = run_ok(&server, &["state", "load", DUMP]);
    assert!(loaded.contains("sent 4 nodes, 1 queue, 1 job, 4 tasks"), "{loaded}");
    run_ok(&server, &["policy", "push", PROPORTIONAL]);
    let filtered = run_ok(&server, &["filter", "--cpu", "8", "--memory", "8G"]);
    assert!(filtered.contains("2 of 4 nodes passed"), "{filtered}");
    assert!(filtered.contains("passed: cpu-1, cpu-2\n"), "{filtered}");
    // 64 − 8 used leave 56 idle cores; 7 idle GPUs keep 56.
    assert!(
        filtered.contains("gpu-1: requested cpu 8 cores, idle cpu 56 cores"),
        "{filtered}"
    );
    assert!(filtered.contains("the node is not ready"), "{filtered}");
}

#[test]
fn results_are_printed_as_protobuf_json() {
    let server = EmbeddedServer::start();
    run_ok(&server, &["state", "load", DUMP, "--output", "json"]);
    let task = "score --cpu 8 --memory 32Gi --request gpu=1 --toleration nvidia.com/gpu --parts -o json";
    let text = run_ok(&server, &task.split(' ').collect::<Vec<_>>());
    let reply: Value = serde_json::from_str(&text).unwrap();
    let item = &reply["result"]["items"][0];
    assert_eq!(item["nodes"]["names"], serde_json::json!(["gpu-1"]));
    assert_eq!(item["filter"]["fitCount"], 1);
    // cpu: (64 − 16) / 64 · 1; GPUs: (1 + 1) · 2 / 8; over 3, times 100 · 10.
    assert!(
        (item["totals"][0].as_f64().unwrap() - 1250.0 / 3.0).abs() < 1e-9,
        "{item}"
    );
    let nodes: Value = serde_json::from_str(&run_ok(&server, &["state", "show", "nodes", "-o", "json"])).unwrap();
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 4);
}

#[test]
fn constraints_of_flags_choose_nodes() {
    let server = EmbeddedServer::start();
    run_ok(&server, &["state", "load", DUMP]);
    let passed = |flags: &str| {
        let words: Vec<&str> = flags.split(' ').collect();
        let text = run_ok(&server, &[&["filter"], words.as_slice()].concat());
        let line = text
            .lines()
            .find(|line| line.starts_with("passed: "))
            .unwrap_or_default();
        line.replace("passed: ", "")
    };
    assert_eq!(passed("--cpu 1"), "cpu-1, cpu-2");
    assert_eq!(
        passed("--cpu 1 --toleration nvidia.com/gpu=present:NoSchedule"),
        "cpu-1, cpu-2, gpu-1"
    );
    assert_eq!(passed("--selector kubernetes.io/hostname=cpu-2"), "cpu-2");
    assert_eq!(passed("--affinity kubernetes.io/hostname!=cpu-2"), "cpu-1");
    let code_of = |words: &[&str]| pumice(Some(&server), words).status.code();
    let refused = [
        ("filter --cpu 1 --toleration nvidia.com/gpu=absent --request gpu=1", 1),
        ("filter --selector kubernetes.io/hostname=cpu-9", 1),
        ("place --shape 1x1cpu --selector", 2),
        ("capacity --file job.yaml --selector a=b", 2),
        ("filter --task a/b --host-port 80", 2),
        ("filter --cpu 1 --host-port 0", 2),
    ];
    for (line, code) in refused {
        assert_eq!(code_of(&line.split(' ').collect::<Vec<_>>()), Some(code), "{line}");
    }
    let shape = ["--shape", "2 x 1 gpu", "--toleration", "*"];
    assert!(run_ok(&server, &[&["place"], &shape[..]].concat()).contains("gpu-1"));
    assert!(run_ok(&server, &[&["capacity"], &shape[..]].concat()).contains("gpu-1"));
    assert_eq!(code_of(&[&["place"], &shape[..2]].concat()), Some(1));
    assert_eq!(code_of(&[&["capacity"], &shape[..2]].concat()), Some(1));
}

#[test]
fn listings_are_tables() {
    let server = EmbeddedServer::start();
    run_ok(&server, &["state", "load", DUMP]);
    for (kind, line) in [
        ("nodes", "nvidia.com/gpu: 1 / 8"),
        ("queues", "research  file    open"),
        ("jobs", "train/bert  file    research  inqueue"),
        ("tasks", "web/old-0            file                releasing  cpu-2"),
    ] {
        let table = run_ok(&server, &["state", "show", kind]);
        assert!(table.contains(line), "{table}");
    }
    let server_info = run_ok(&server, &["state", "show"]);
    assert!(server_info.contains("file    yes"), "{server_info}");
}

#[test]
fn loading_again_replaces_and_another_source_is_rejected_record_by_record() {
    let server = EmbeddedServer::start();
    run_ok(&server, &["state", "load", DUMP]);
    run_ok(&server, &["state", "load", DUMP]);
    let output = pumice(Some(&server), &["state", "load", DUMP, "--source", "other"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("refused: node cpu-1: "), "{}", err(&output));
    assert!(err(&output).contains("10 records refused"), "{}", err(&output));
}

/// Runs `pumice state load -` with this text on standard input.
fn load(server: &EmbeddedServer, text: &str, arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["state", "load", "-"])
        .args(arguments)
        .env("PUMICE_SERVER", server.grpc.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn empty_files_clear_a_source_only_with_the_flag() {
    let server = EmbeddedServer::start();
    run_ok(&server, &["state", "load", DUMP]);
    let unreadable = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {}}"#;
    for text in [
        "",
        "\n---\n",
        r#"{"apiVersion": "v1", "kind": "List", "items": []}"#,
        unreadable,
    ] {
        let output = load(&server, text, &[]);
        assert_eq!(output.status.code(), Some(1), "{text}: {}", err(&output));
        assert!(out(&output).is_empty(), "{text}: {}", out(&output));
        let message = "error: no usable record in the files: nothing was sent, source file keeps its records";
        assert!(err(&output).contains(message), "{text}: {}", err(&output));
    }
    let refused = err(&load(&server, unreadable, &[]));
    assert!(
        refused.contains("refused: Node : metadata.name: is missing"),
        "{refused}"
    );
    run_ok(&server, &["state", "diff", DUMP]);
    let emptied = load(&server, "", &["--allow-empty"]);
    assert_eq!(emptied.status.code(), Some(0), "{}", err(&emptied));
    assert!(
        out(&emptied).contains("sent 0 nodes, 0 queues, 0 jobs, 0 tasks"),
        "{}",
        out(&emptied)
    );
    assert!(run_ok(&server, &["state", "show", "nodes"]).contains("0 nodes"));
}

#[test]
fn a_reload_with_unreadable_records_keeps_the_last_good_ones() {
    let server = EmbeddedServer::start();
    let node = |cpu: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n-1}}, status: {{allocatable: {{cpu: {cpu}}}}}}}\n---\n"
        ) + "{apiVersion: v1, kind: Node, metadata: {name: n-2}, status: {allocatable: {cpu: 1}}}\n"
    };
    assert_eq!(load(&server, &node("1"), &[]).status.code(), Some(0));
    let output = load(&server, &node("[]"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let message = "1 record refused, of which the last good one goes on counting, marked invalid\n\
                   error: 1 record refused; the others were taken";
    assert!(err(&output).contains(message), "{}", err(&output));
    let listed = server.wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
    let invalid: Vec<(&str, Vec<&str>)> = listed
        .iter()
        .map(|one| {
            let reasons = one.invalid.iter().map(|problem| problem.reason.as_str());
            (one.node.as_ref().unwrap().name.as_str(), reasons.collect())
        })
        .collect();
    assert_eq!(invalid, [("n-1", vec!["UNREADABLE_RECORD"]), ("n-2", vec![])]);

    let unnamed = load(
        &server,
        &(node("1") + "---\n{apiVersion: v1, kind: Node, metadata: {}}\n"),
        &[],
    );
    let message = "1 object had no readable name and could not be sent: what the server knew of that from source file, \
                   it no longer knows\nerror: 1 record refused; the others were taken";
    assert!(err(&unnamed).contains(message), "{}", err(&unnamed));
}

/// Objects of every kind with an amount, or a number, that is left to the caller.
fn objects_with(amount: &str, number: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: n-1}}, status: {{allocatable: {{cpu: 16, memory: 64Gi, pods: 110}}}}}}
---
{{apiVersion: v1, kind: Node, metadata: {{name: n-2}}, status: {{allocatable: {{cpu: {amount}}}}}}}
---
{{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {{name: q}}, spec: {{capability: {{cpu: {amount}}}}}}}
---
{{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {{name: g, namespace: a}}, spec: {{queue: q, minMember: {number}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: a, annotations: {{scheduling.k8s.io/group-name: g}}}}
spec:
  nodeName: n-1
  schedulerName: volcano
  containers: [{{name: c, resources: {{requests: {{cpu: 12, memory: {amount}}}}}}}]
status: {{phase: Running}}
"
    )
}

/// Requests of a server about what it counts: CPU used on node n-1, and the marked records by kind.
fn stored(server: &EmbeddedServer) -> (f64, Vec<&'static str>) {
    let wire = &server.wire;
    let nodes = wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
    let queues = wire.list_queues(pb::ListQueuesRequest::default()).unwrap().queues;
    let jobs = wire.list_jobs(pb::ListJobsRequest::default()).unwrap().jobs;
    let tasks = wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks;
    let cpu = nodes[0].used.iter().find(|amount| amount.resource == "cpu");
    let cpu = cpu.map_or(0.0, |amount| amount.value);
    let kinds = [
        ("node", nodes.iter().any(|one| !one.invalid.is_empty())),
        ("queue", queues.iter().any(|one| !one.invalid.is_empty())),
        ("job", jobs.iter().any(|one| !one.invalid.is_empty())),
        ("task", tasks.iter().any(|one| !one.invalid.is_empty())),
    ];
    (
        cpu,
        kinds
            .iter()
            .filter(|(_, marked)| *marked)
            .map(|(kind, _)| *kind)
            .collect(),
    )
}

#[test]
fn a_running_pod_that_cannot_be_read_goes_on_counting() {
    let server = EmbeddedServer::start();
    let good = objects_with("64Gi", "1");
    assert_eq!(load(&server, &good, &[]).status.code(), Some(0));
    let (used, marked) = stored(&server);
    assert_eq!((used, marked), (12_000.0, vec![]));
    for amount in ["64gi", "[]"] {
        let output = load(&server, &objects_with(amount, "many"), &[]);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            err(&output).contains("error: 4 records refused; the others were taken"),
            "{}",
            err(&output)
        );
        assert_eq!(
            stored(&server),
            (used, vec!["node", "queue", "job", "task"]),
            "{amount}"
        );
    }
    assert_eq!(load(&server, &good, &[]).status.code(), Some(0));
    assert_eq!(stored(&server), (used, vec![]));
}

#[test]
fn a_node_with_a_pod_that_was_never_read_takes_nothing_new() {
    let server = EmbeddedServer::start();
    let output = load(&server, &objects_with("64gi", "1"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let message = "no good record counts task `a/p` on node `n-1`: the node takes no new tasks until the record can be \
                   read or is removed";
    assert!(err(&output).contains(message), "{}", err(&output));
    let passed = |of: &str| {
        let shown = out(&pumice(Some(&server), &["filter", "--cpu", "1"]));
        assert!(shown.contains(of), "{shown}");
    };
    passed("0 of 1 node");
    assert_eq!(load(&server, &objects_with("1Gi", "1"), &[]).status.code(), Some(0));
    passed("of 2 nodes passed");
    passed("n-1");
}

#[test]
fn policies_are_checked_pushed_read_and_rolled_back() {
    let server = EmbeddedServer::start();
    let broken = std::env::temp_dir().join(format!("pumice-broken-{}.yaml", std::process::id()));
    std::fs::write(
        &broken,
        "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n    enableNodeOrder: 7\n",
    )
    .unwrap();
    let broken = broken.to_str().unwrap();
    let checked = pumice(None, &["policy", "check", broken]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        out(&checked).contains(":5:22: error TYPE_INVALID: tiers[0].plugins[0].enableNodeOrder"),
        "{}",
        out(&checked)
    );
    assert_eq!(pumice(None, &["policy", "check", PROPORTIONAL]).status.code(), Some(0));
    let pushed = pumice(Some(&server), &["policy", "push", broken]);
    assert_eq!(pushed.status.code(), Some(1));
    let said = err(&pushed);
    assert_eq!(
        said.matches("5:22: error TYPE_INVALID").count(),
        1,
        "the diagnostic is listed once: {said}"
    );
    assert!(
        said.contains("error: policy `default` rejected: 1 error; version 1 stays active (POLICY_REJECTED)"),
        "{said}"
    );
    let checked = pumice(None, &["policy", "check", broken, "-o", "json"]);
    assert_eq!(checked.status.code(), Some(1));
    let report: Value = serde_json::from_str(&out(&checked)).unwrap();
    assert_eq!(
        (&report["accepted"], &report["errors"], &report["warnings"]),
        (&false.into(), &1.into(), &0.into())
    );
    let diagnostic = &report["diagnostics"][0];
    assert_eq!(
        [&diagnostic["severity"], &diagnostic["code"], &diagnostic["path"]],
        ["error", "TYPE_INVALID", "tiers[0].plugins[0].enableNodeOrder"]
    );
    assert_eq!((&diagnostic["line"], &diagnostic["column"]), (&5.into(), &22.into()));
    std::fs::remove_file(broken).unwrap();

    assert!(run_ok(&server, &["policy", "push", PROPORTIONAL, "--dry-run"]).contains("nothing was changed"));
    assert!(run_ok(&server, &["policy", "push", PROPORTIONAL]).contains("version 2"));
    let stale = pumice(
        Some(&server),
        &["policy", "push", PROPORTIONAL, "--expected-version", "1"],
    );
    assert_eq!(stale.status.code(), Some(1), "{}", err(&stale));
    assert!(run_ok(&server, &["policy", "get", "--effective"]).contains("proportional:\n        enable: true"));
    assert!(run_ok(&server, &["policy", "rollback"]).contains("version 3"));
    assert_eq!(run_ok(&server, &["policy", "history"]).lines().count(), 4);
}

#[test]
fn policy_check_prints_plugins_that_are_not_served_as_json() {
    let file = std::env::temp_dir().join(format!("pumice-unserved-{}.yaml", std::process::id()));
    std::fs::write(
        &file,
        "actions: allocate\ntiers:\n- plugins:\n  - name: extender\n  - name: binpak\n",
    )
    .unwrap();
    let checked = pumice(None, &["policy", "check", file.to_str().unwrap(), "-o", "json"]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    let report: Value = serde_json::from_str(&out(&checked)).unwrap();
    assert_eq!(
        (&report["accepted"], &report["errors"], &report["warnings"]),
        (&true.into(), &0.into(), &1.into())
    );
    let plugins = &report["unservedPlugins"];
    assert_eq!(
        (&plugins[0]["name"], &plugins[0]["knownUpstream"]),
        (&"extender".into(), &true.into())
    );
    assert_eq!(
        (&plugins[1]["didYouMean"], &plugins[1]["line"]),
        (&"binpack".into(), &5.into())
    );
}

#[test]
fn push_and_rollback_print_what_policy_diff_prints() {
    let server = EmbeddedServer::start();
    let example = |name: &str| format!("{}/examples/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let (pack, spread) = (example("pack"), example("spread"));
    run_ok(&server, &["policy", "push", &pack]);
    let difference = |before: &str, after: &str| {
        let output = pumice(Some(&server), &["policy", "diff", before, after]);
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        out(&output)
    };
    let expected = difference("default@active", &spread);
    assert!(expected.lines().count() < 16, "{expected}");

    let tried = run_ok(&server, &["policy", "push", &spread, "--dry-run"]);
    assert_eq!(
        tried.strip_prefix(&*expected).map(|rest| rest.lines().count()),
        Some(1),
        "{tried}"
    );
    assert!(tried.contains("nothing was changed"), "{tried}");

    let after_durability = |text: String| {
        let (durability, rest) = text.split_once('\n').unwrap();
        assert!(durability.starts_with("durability: MEMORY"), "{durability}");
        rest.to_owned()
    };
    let pushed = after_durability(run_ok(&server, &["policy", "push", &spread]));
    let expected = expected.replacen(&spread, "default@3", 1);
    let rest = pushed.strip_prefix(&*expected);
    assert!(
        rest.is_some_and(|rest| rest.starts_with("policy default: version 3 (")),
        "{pushed}"
    );

    let expected = difference("default@3", "default@2").replacen("default@2", "default@4", 1);
    let back = after_durability(run_ok(&server, &["policy", "rollback"]));
    let rest = back.strip_prefix(&*expected);
    assert!(
        rest.is_some_and(|rest| rest.starts_with("policy default: version 4 (")),
        "{back}"
    );

    // A first version differs from nothing.
    let first = after_durability(run_ok(&server, &["policy", "push", &spread, "--name", "other"]));
    assert_eq!(first.lines().count(), 1, "{first}");
    let same = after_durability(run_ok(&server, &["policy", "push", &spread, "--name", "other"]));
    assert!(same.starts_with("policy other: unchanged"), "{same}");
}

#[test]
fn exit_codes_distinguish_rejection_from_misuse() {
    assert_eq!(pumice(None, &["score"]).status.code(), Some(2));
    assert_eq!(
        pumice(None, &["score", "--cpu", "1", "--no-such-flag"]).status.code(),
        Some(2)
    );
    let unreachable = pumice(None, &["score", "--cpu", "1"]);
    assert_eq!(unreachable.status.code(), Some(3));
    assert!(err(&unreachable).contains("pumice serve"), "{}", err(&unreachable));
    let server = EmbeddedServer::start();
    let output = pumice(Some(&server), &["filter", "--cpu", "4x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("tasks[0].requests.items[cpu]"),
        "{}",
        err(&output)
    );
}

#[test]
fn the_demo_shows_what_it_promises() {
    let output = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .arg("demo")
        .env_remove("PUMICE_OPENB")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}\n{}", out(&output), err(&output));
    assert!(out(&output).contains("checks passed, 0 failed"), "{}", out(&output));
    assert!(!out(&output).contains("WRONG"), "{}", out(&output));
}

#[test]
fn the_demo_stays_for_its_console_until_it_is_interrupted() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["demo", "--console"])
        .env_remove("PUMICE_OPENB")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let address = lines.map(Result::unwrap).find_map(|line| {
        let rest = line.strip_prefix("The console is at http://")?;
        Some(rest.split('/').next().unwrap().to_owned())
    });
    let mut shown = String::new();
    let shown = TcpStream::connect(address.unwrap()).and_then(|mut stream| {
        stream.write_all(b"GET /console/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        stream.read_to_string(&mut shown)?;
        Ok(shown)
    });
    let interrupt = Command::new("kill").args(["-INT", &demo.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    let shown = shown.unwrap();
    assert!(shown.contains("<title>Pumice console"), "{shown}");
}
