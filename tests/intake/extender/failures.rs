//! Problems of a request, a pod or the server are reported where kube-scheduler reads them.

use pumice::config::ServerConfig;
use serde_json::{Value, json};

use super::{Scheduler, by_names, load, node, pod};
use crate::support::EmbeddedServer;

fn server(change: impl FnOnce(&mut ServerConfig)) -> EmbeddedServer {
    let mut config = ServerConfig::on_free_ports();
    config.limits.edge.extender_wait = std::time::Duration::from_millis(20);
    change(&mut config);
    let server = EmbeddedServer::with(config);
    load(
        &server,
        &[node("n", &json!({"cpu": "4"})), pod("a", &json!({"cpu": "1"}), "")],
    );
    server
}

fn error(scheduler: &mut Scheduler, body: &Value) -> String {
    let response = scheduler.ask("filter", body);
    // An empty response without an error would be "no node fits".
    assert_eq!(
        (&response["NodeNames"], &response["Nodes"]),
        (&Value::Null, &Value::Null)
    );
    response["Error"].as_str().unwrap().to_owned()
}

#[test]
fn errors_stand_in_the_response() {
    let server = server(|_| {});
    let mut scheduler = Scheduler::connect(server.http);
    let unseen = error(&mut scheduler, &by_names(&pod("b", &json!({"cpu": "1"}), ""), &["n"]));
    assert!(
        unseen.contains("pod `team/b` is not known") && unseen.contains("extender_wait_ms"),
        "{unseen}"
    );
    let mut other = pod("a", &json!({"cpu": "1"}), "");
    other["metadata"]["uid"] = json!("another incarnation");
    assert!(error(&mut scheduler, &by_names(&other, &["n"])).contains("incarnation"));
    let wrong = pod("a", &json!({"cpu": "one"}), "");
    assert!(error(&mut scheduler, &by_names(&wrong, &["n"])).contains("cpu"));
    let no_nodes = json!({"Pod": pod("a", &json!({"cpu": "1"}), ""), "Nodes": null, "NodeNames": null});
    assert!(error(&mut scheduler, &no_nodes).contains("NodeNames"));
    for broken in [
        "",
        "{",
        "[]",
        "null",
        "{\"Pod\":null}",
        "{\"NodeNames\":[\"n\"]}",
        "\u{0}",
    ] {
        let (status, response) = scheduler.post("/kube-scheduler/filter", broken.as_bytes());
        let response: Value = serde_json::from_str(&response).unwrap();
        assert!(
            status == 200 && response["Error"].as_str().unwrap().starts_with("pumice: "),
            "{broken}: {response}"
        );
        for verb in ["prioritize", "preempt"] {
            // These have no field for an error.
            let (status, text) = scheduler.post(&format!("/kube-scheduler/{verb}"), broken.as_bytes());
            assert!(
                status == 503 && text.starts_with("pumice: "),
                "{verb} {broken}: {status} {text}"
            );
        }
    }
    let response = scheduler.ask("filter", &by_names(&pod("a", &json!({"cpu": "1"}), ""), &["n"]));
    assert_eq!(response["NodeNames"], json!(["n"]), "the connection goes on");
}

#[test]
fn requests_that_are_none_have_a_status() {
    let server = server(|config| config.limits.edge.extender_body_bytes = 1_000);
    let connect = || Scheduler::connect(server.http);
    for (path, status, text) in [
        ("/kube-scheduler/nothing", 404, "filter, prioritize, preempt, bind"),
        ("/kube-scheduler/a/b/c", 404, "policy/NAME/VERB"),
        ("/kube-scheduler/policy//filter", 404, "policy/NAME/VERB"),
    ] {
        let (got, page) = connect().post(path, b"{}");
        assert!(got == status && page.contains(text), "{path}: {got} {page}");
    }
    let (status, page) = connect().post("/kube-scheduler/filter", &[b' '; 1_001]);
    assert!(
        status == 413 && page.contains("extender_body_bytes") && page.contains("nodeCacheCapable"),
        "{page}"
    );
    let (status, page) = connect()
        .send(b"POST /kube-scheduler/filter HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert!(status == 411 && page.contains("Content-Length"), "{page}");
    assert_eq!(
        connect()
            .send(b"GET /kube-scheduler/filter HTTP/1.1\r\nHost: p\r\n\r\n")
            .0,
        405
    );
}

#[test]
fn places_and_bytes_are_bounded_and_leave_probes_alone() {
    let server = server(|config| {
        config.limits.edge.extender_connections = 2;
        config.limits.edge.message_bytes = 4_096;
    });
    let body = by_names(&pod("a", &json!({"cpu": "1"}), ""), &["n"]);
    let mut connected = [Scheduler::connect(server.http), Scheduler::connect(server.http)];
    for scheduler in &mut connected {
        assert_eq!(scheduler.ask("filter", &body)["NodeNames"], json!(["n"]));
    }
    let (status, page) = Scheduler::connect(server.http).post("/kube-scheduler/filter", b"{}");
    assert!(status == 503 && page.contains("extender_connections"), "{page}");
    let [mut first, second] = connected;
    let (status, page) = first.post("/kube-scheduler/filter", &[b' '; 5_000]);
    assert!(status == 503 && page.contains("message_bytes"), "{page}");
    assert_eq!(server.page("/readyz").0, 200);
    drop((first, second));
    // The places of connections that ended are free again.
    let free = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        Scheduler::connect(server.http)
            .post("/kube-scheduler/filter", body.to_string().as_bytes())
            .0
            == 200
    });
    assert!(free);
}
