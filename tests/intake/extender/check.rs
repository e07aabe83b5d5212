//! `pumice extender check`: what would be answered, and nothing is held for it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{by_names, load, node, pod, reload};
use crate::support::EmbeddedServer;

/// Exit code and output of a check.
fn check(server: &EmbeddedServer, arguments: &[&str], body: &Value) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command
        .args(["extender", "check"])
        .args(arguments)
        .args(["-", "--color", "never"]);
    command.arg(format!("--metrics=http://{}/metrics", server.http));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(body.to_string().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn a_check_says_what_would_be_answered() {
    let server = EmbeddedServer::start();
    reload(
        &server,
        "default",
        "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n  - name: proportion\n  - name: binpack\n",
    );
    let waiting = pod("a", &json!({"cpu": "1"}), "group");
    let queue = |cpu: &str| {
        json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"},
            "spec": {"weight": 1, "capability": {"cpu": cpu}}, "status": {"state": "Open"},
        })
    };
    let group = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "group", "namespace": "team"},
        "spec": {"minMember": 1, "queue": "team"}, "status": {"phase": "Inqueue"},
    });
    load(
        &server,
        &[
            node("n1", &json!({"cpu": "4"})),
            node("n2", &json!({"cpu": "8"})),
            queue("2"),
            group,
            waiting.clone(),
        ],
    );
    let body = by_names(&waiting, &["n1", "n2", "unseen"]);
    let fits = "fits on 2: n1, n2\n1 refuse: pumice: the node is not known yet\n";
    assert_eq!(check(&server, &["filter"], &body), (Some(0), fits.to_owned()));
    assert!(!server.state.snapshot().state.is_assumed("team/a"), "nothing is held");
    let (code, text) = check(&server, &["prioritize"], &body);
    assert!(
        code == Some(0) && text.contains("  n1\n") && text.lines().count() == 3,
        "{text}"
    );
    // A pod that nobody has reported is judged as it is.
    let large = by_names(&pod("new", &json!({"cpu": "3"}), "group"), &["n1", "n2"]);
    let (code, text) = check(&server, &["filter"], &large);
    assert!(
        code == Some(1) && text.contains("fits on 0") && text.contains("2 refuse: proportion: "),
        "{text}"
    );
    let alone = by_names(&pod("alone", &json!({"cpu": "3"}), ""), &["n1", "n2"]);
    assert_eq!(
        check(&server, &["filter"], &alone),
        (Some(0), "fits on 2: n1, n2\n".to_owned())
    );
    let (code, text) = check(&server, &["filter", "--policy", "missing"], &body);
    assert!(code == Some(1) && text.contains("missing"), "{text}");
    let (code, text) = check(
        &server,
        &["preempt"],
        &json!({"Pod": waiting, "NodeNameToMetaVictims": {"n1": {"Pods": []}}}),
    );
    assert_eq!((code, text.as_str()), (Some(0), "n1: 0 victims\n"));
    let (code, text) = check(&server, &["prioritize"], &json!({}));
    assert!(code == Some(1) && text.contains("HTTP status 503"), "{text}");
}
