//! Bind: the server itself puts pods on nodes, by a Kubernetes API that a thread of the test speaks.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::support::TestDirectory;
use pumice::config::ServerConfig;
use pumice_engine::short_lock::ShortLock;
use serde_json::{Value, json};

use super::{Scheduler, bound, by_names, change, load, node, pod, reload};
use crate::support::EmbeddedServer;

const POLICY: &str =
    "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n  - name: proportion\n  - name: binpack\n";

/// Status that ends a connection without a response.
const HANG_UP: u16 = 0;

/// Kubernetes API that knows binds only.
struct BindApi {
    address: SocketAddr,
    /// Status of the response to the next binds.
    status: Arc<AtomicU16>,
    /// Paths and bodies of binds.
    binds: Arc<ShortLock<Vec<(String, Value)>>>,
}

impl BindApi {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (status, binds) = (Arc::new(AtomicU16::new(201)), Arc::default());
        let api = Self {
            address,
            status: Arc::clone(&status),
            binds: Arc::clone(&binds),
        };
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (status, binds) = (Arc::clone(&status), Arc::clone(&binds));
                std::thread::spawn(move || respond(stream.unwrap(), &status, &binds));
            }
        });
        api
    }

    fn last(&self) -> (String, Value) {
        self.binds.with(|binds| binds.last().cloned()).unwrap()
    }
}

fn respond(stream: TcpStream, status: &AtomicU16, binds: &ShortLock<Vec<(String, Value)>>) {
    let mut stream = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    stream.read_line(&mut request).unwrap();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
            break;
        }
        if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = number.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let path = request.split(' ').nth(1).unwrap_or_default();
    let status = if path.ends_with("/binding") {
        binds.with(|binds| binds.push((path.to_owned(), serde_json::from_slice(&body).unwrap())));
        status.load(Ordering::SeqCst)
    } else {
        404
    };
    if status == HANG_UP {
        return;
    }
    let text = json!({"kind": "Status", "code": status, "message": format!("the test says {status}")}).to_string();
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    let _ = stream.get_mut().write_all((head + &text).as_bytes());
}

/// Server that binds by an API, and two nodes, of which the queue of pod "a" and "b" may use one core.
fn server(api: &BindApi, folder: &TestDirectory) -> EmbeddedServer {
    let kubeconfig = folder.path().join("kubeconfig");
    let cluster = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", api.address)}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&kubeconfig, cluster.to_string()).unwrap();
    let mut config = ServerConfig::on_free_ports();
    config.cluster.is_watched = true;
    config.cluster.kubeconfig = Some(kubeconfig);
    config.cluster.binds = true;
    let server = EmbeddedServer::with(config);
    reload(&server, "default", POLICY);
    let amounts = json!({"cpu": "8", "memory": "32Gi"});
    load(
        &server,
        &[
            node("n1", &amounts),
            node("n2", &amounts),
            json!({
                "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"},
                "spec": {"weight": 1, "capability": {"cpu": "1", "memory": "400Gi"}}, "status": {"state": "Open"},
            }),
            json!({
                "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "group", "namespace": "team"},
                "spec": {"minMember": 1, "queue": "team"}, "status": {"phase": "Inqueue"},
            }),
            waiting("a"),
            waiting("b"),
        ],
    );
    server
}

fn waiting(name: &str) -> Value {
    pod(name, &json!({"cpu": "1"}), "group")
}

fn bind(scheduler: &mut Scheduler, name: &str, node: &str) -> String {
    let body = json!({"PodName": name, "PodNamespace": "team", "PodUID": format!("uid-{name}"), "Node": node});
    scheduler.ask("bind", &body)["Error"].as_str().unwrap().to_owned()
}

fn is_offered(scheduler: &mut Scheduler, name: &str) -> bool {
    scheduler.ask("filter", &by_names(&waiting(name), &["n1", "n2"]))["NodeNames"] != json!([])
}

#[test]
fn the_server_binds_and_the_hold_moves_to_the_node() {
    let (api, folder) = (BindApi::start(), TestDirectory::named("bind-moves"));
    let server = server(&api, &folder);
    let mut scheduler = Scheduler::connect(server.http);
    assert!(is_offered(&mut scheduler, "a"));
    assert_eq!(bind(&mut scheduler, "a", "n2"), "");
    let (path, body) = api.last();
    assert_eq!(path, "/api/v1/namespaces/team/pods/a/binding");
    assert_eq!(
        body["metadata"],
        json!({"name": "a", "namespace": "team", "uid": "uid-a"})
    );
    assert_eq!(body["target"]["name"], "n2");
    let node_of = |name: &str| {
        let snapshot = server.state.snapshot();
        snapshot.state.tasks().get(name).unwrap().record.node.to_string()
    };
    assert_eq!(node_of("team/a"), "n2");
    let error = bind(&mut scheduler, "b", "n1");
    assert!(error.contains("node n1: proportion: "), "{error}");
    assert_eq!(
        api.binds.with(|binds| binds.len()),
        1,
        "what the policy refuses is not asked"
    );
    change(&server, 2, &[bound(&waiting("a"), "n2")]);
    assert_eq!(bind(&mut scheduler, "a", "n2"), "", "a bind that is sent again");
    let error = bind(&mut scheduler, "a", "n1");
    assert!(error.contains("it is on node `n2`"), "{error}");
    assert_eq!(api.binds.with(|binds| binds.len()), 1);
}

#[test]
fn a_refused_bind_ends_the_hold_and_an_unknown_outcome_keeps_it() {
    let (api, folder) = (BindApi::start(), TestDirectory::named("bind-refused"));
    let server = server(&api, &folder);
    let mut scheduler = Scheduler::connect(server.http);
    assert!(is_offered(&mut scheduler, "a"));
    assert!(!is_offered(&mut scheduler, "b"), "the queue has room for one");
    for (status, part) in [
        (503, "is not known"),
        (HANG_UP, "is not known"),
        (409, "refuses the bind: the test says 409"),
    ] {
        api.status.store(status, Ordering::SeqCst);
        let error = bind(&mut scheduler, "a", "n1");
        assert!(error.contains(part), "{status}: {error}");
        assert_eq!(is_offered(&mut scheduler, "b"), status == 409, "{status}");
    }
}

#[test]
fn names_that_are_no_names_reach_no_api() {
    let (api, folder) = (BindApi::start(), TestDirectory::named("bind-names"));
    let server = server(&api, &folder);
    let mut scheduler = Scheduler::connect(server.http);
    for (name, node) in [("../b", "n1"), ("a", "N 1"), ("", "n1"), ("a?x=", "n1"), ("..", "n1")] {
        let error = bind(&mut scheduler, name, node);
        assert!(error.contains("is not the name of an object"), "{name} {node}: {error}");
    }
    let error = bind(&mut scheduler, "a", "unseen");
    assert!(error.contains("unseen"), "{error}");
    assert_eq!(api.binds.with(|binds| binds.len()), 0);
}

#[test]
fn a_server_without_the_setting_binds_nothing() {
    let server = EmbeddedServer::start();
    let mut scheduler = Scheduler::connect(server.http);
    let error = bind(&mut scheduler, "a", "n1");
    assert!(error.contains("extender_bind"), "{error}");
}
