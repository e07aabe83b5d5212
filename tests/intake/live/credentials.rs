//! Credentials that change, take long, or are refused.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use pumice::config::ServerConfig;
use pumice_live::{BindError, ClusterAccess, PodBinder, PodBinding};
use serde_json::{Value, json};

use super::WatchingServer;
use super::api::ClusterApi;
use crate::support::program::command;
use crate::support::{TestDirectory, until};

#[test]
fn a_kubeconfig_with_another_token_or_address_is_read_when_the_former_is_refused() {
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let api = ClusterApi::start();
    api.require_token("one");
    let kubeconfig = |token: &str| api.kubeconfig_of(&json!({"token": token}));
    let watching = WatchingServer::start_with(ServerConfig::on_free_ports(), &kubeconfig("one"));
    api.take_lists();
    api.require_token("two");
    until("the API refuses the token", || !api.take_rejections().is_empty());
    watching.folder.file("kubeconfig", &kubeconfig("two"));
    api.put(&node("n1"));
    until("the watch goes on", || watching.has_node("n1"));
    let lists = api.take_lists();
    assert!(
        !lists.iter().any(|list| list.contains("limit=500")),
        "nothing is listed again: {lists:?}"
    );
}

#[test]
fn an_exec_plugin_that_takes_long_holds_nobody_up() {
    let api = ClusterApi::start();
    let folder = TestDirectory::new();
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "one", "expirationTimestamp": "2100-01-01T00:00:00Z"}});
    let script = folder.file("plugin", &format!("#!/bin/sh\nsleep 0.5\necho '{credential}'\n"));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": script, "interactiveMode": "Never"}});
    let access = ClusterAccess {
        kubeconfig: Some(folder.file("kubeconfig", &api.kubeconfig_of(&exec))),
        context: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let reading = access.client();
        tokio::pin!(reading);
        let mut ticks = 0;
        loop {
            tokio::select! {
                client = &mut reading => {
                    client.unwrap();
                    break;
                }
                () = tokio::time::sleep(Duration::from_millis(10)) => ticks += 1,
            }
        }
        assert!(ticks > 10, "{ticks} ticks while the plugin ran");
    });
}

#[tokio::test]
async fn a_bind_is_sent_once() {
    let api = ClusterApi::start();
    let folder = TestDirectory::new();
    api.refuse("/api/v1/pods/p/binding", 503);
    let error = bind_by(&folder, &api.kubeconfig()).await.unwrap_err();
    assert!(matches!(error, BindError::Unknown(_)), "{error}");
    assert_eq!(api.take_rejections().len(), 1);
}

/// Binds a pod by a kubeconfig.
async fn bind_by(folder: &TestDirectory, kubeconfig: &str) -> Result<(), BindError> {
    let access = ClusterAccess {
        kubeconfig: Some(folder.file("kubeconfig", kubeconfig)),
        context: None,
    };
    let binding = PodBinding {
        namespace: "web".to_owned(),
        name: "p".to_owned(),
        uid: String::new(),
        node: "n1".to_owned(),
    };
    PodBinder::new(access).bind(&binding).await
}

/// Error of a bind by a kubeconfig, or an empty text.
async fn bound_by(folder: &TestDirectory, kubeconfig: &str) -> String {
    let bound = bind_by(folder, kubeconfig).await;
    bound.map_or_else(|error| error.to_string(), |()| String::new())
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table of kubeconfigs")]
async fn a_kubeconfig_that_cannot_be_used_says_why_and_shows_no_secret() {
    let api = ClusterApi::start();
    let folder = TestDirectory::new();
    let (text, empty) = (folder.file("text", "SECRET"), folder.file("empty", " \n"));
    let whole = api.kubeconfig_of(&json!({"token": "SECRET"}));
    let without = |part: &str, other: &str| {
        assert!(whole.contains(part), "{part}");
        whole.replace(part, other)
    };
    let user = |user: Value| api.kubeconfig_of(&user);
    let of_cluster = |field: &str, value: Value| {
        let mut changed: Value = serde_json::from_str(&whole).unwrap();
        changed["clusters"][0]["cluster"][field] = value;
        changed.to_string()
    };
    let cases = [
        (String::new(), "current context"),
        ("SECRET".to_owned(), "no kubeconfig in YAML"),
        (
            "users: [{name: u, user: {token: SECRET}\n".to_owned(),
            "no kubeconfig in YAML: line",
        ),
        (
            "users: [{name: u, user: {token: [SECRET]}}]\n".to_owned(),
            "no kubeconfig in YAML: line",
        ),
        ("[".repeat(10_000), "no kubeconfig in YAML"),
        ("a: &a [x]\nb: *c\n".to_owned(), "no kubeconfig in YAML"),
        (without(r#""current-context":"c","#, ""), "current context"),
        (
            without(r#""current-context":"c""#, r#""current-context":"other""#),
            "failed to load current context: other",
        ),
        (
            without(r#""cluster":"c""#, r#""cluster":"other""#),
            "the cluster of context: other",
        ),
        (of_cluster("server", Value::Null), "cluster url is missing"),
        (of_cluster("server", json!("")), "failed to parse cluster url"),
        (of_cluster("server", json!("/path")), "begins with https://"),
        (of_cluster("server", json!("localhost")), "begins with https://"),
        (of_cluster("server", json!("ftp://localhost")), "begins with https://"),
        (
            of_cluster("server", json!("https://[::1")),
            "failed to parse cluster url",
        ),
        (
            of_cluster("certificate-authority", json!("/nowhere/ca.crt")),
            "/nowhere/ca.crt",
        ),
        (of_cluster("certificate-authority-data", json!("#")), "base64"),
        (of_cluster("proxy-url", json!("socks5://localhost:1")), "proxy"),
        (of_cluster("proxy-url", json!("::")), "proxy url"),
        (
            user(json!({"client-certificate": "/nowhere/a.crt", "client-key": text})),
            "/nowhere/a.crt",
        ),
        (user(json!({"client-certificate": text})), "client key"),
        (
            user(json!({"client-certificate-data": "#", "client-key-data": "#"})),
            "base64",
        ),
        (
            user(json!({"client-certificate": text, "client-key": text})),
            "credentials of the cluster",
        ),
        (
            user(json!({"tokenFile": "/nowhere/token"})),
            "/nowhere/token: No such file",
        ),
        (user(json!({"tokenFile": empty})), "empty: it is empty"),
        (user(json!({"tokenFile": folder.0})), "Is a directory"),
        (
            user(json!({"token": "SEC\nRET"})),
            "characters that a header cannot have",
        ),
        (user(json!({"token": " "})), "the token is empty"),
        (user(json!({"token": "SECRET", "as": "a\nb"})), "header value"),
        (user(json!({"exec": {}})), "has no `command`"),
        (
            user(json!({"exec": {"command": "/nowhere/plugin"}})),
            "cannot be started",
        ),
        (
            user(json!({"exec": {"command": "echo", "args": ["SECRET"]}})),
            "wrote no ExecCredential",
        ),
        (
            user(json!({"auth-provider": {"name": "gcp"}})),
            "give it a plugin of its provider under `exec`",
        ),
        (
            user(
                json!({"auth-provider": {"name": "gcp", "config": {"cmd-path": "echo", "cmd-args": "SECRET", "token-key": "{.a"}}}),
            ),
            "`auth-provider: gcp`",
        ),
        (
            user(json!({"auth-provider": {"name": "oidc", "config": {"id-token": "SECRET"}}})),
            "`auth-provider: oidc`",
        ),
        (
            user(json!({"auth-provider": {"name": "a\u{1b}b"}})),
            "`auth-provider: a b`",
        ),
    ];
    for (kubeconfig, part) in cases {
        let said = bound_by(&folder, &kubeconfig).await;
        assert!(said.contains(part), "{kubeconfig}: {said}");
        assert!(
            !said.contains("SECRET") && !said.contains("panic"),
            "{kubeconfig}: {said}"
        );
        assert!(!said.chars().any(char::is_control), "{said:?}");
    }
    let nowhere = ClusterAccess {
        kubeconfig: Some(folder.0.join("nowhere")),
        context: None,
    };
    assert!(nowhere.client().await.unwrap_err().to_string().contains("No such file"));
    let directory = ClusterAccess {
        kubeconfig: Some(folder.0.clone()),
        context: Some("c".to_owned()),
    };
    assert!(
        directory
            .client()
            .await
            .unwrap_err()
            .to_string()
            .contains("Is a directory")
    );
}

#[tokio::test]
async fn a_token_in_a_file_counts_without_the_white_space_around_it() {
    let api = ClusterApi::start();
    let folder = TestDirectory::new();
    api.require_token("one");
    let answered = |said: &str| !said.contains("401") && !said.contains("invalid");
    let beside = api.kubeconfig_of(&json!({"token": "one\n"}));
    assert!(answered(&bound_by(&folder, &beside).await));
    for text in ["one", "one\n", " one\r\n\n"] {
        let file = folder.file("token", text);
        for user in [json!({"tokenFile": file}), json!({"tokenFile": file, "token": "other"})] {
            let said = bound_by(&folder, &api.kubeconfig_of(&user)).await;
            assert!(answered(&said), "{text:?} {user}: {said}");
        }
    }
    // Without the file the token beside it counts.
    let user = json!({"tokenFile": "/nowhere/token", "token": "one"});
    assert!(answered(&bound_by(&folder, &api.kubeconfig_of(&user)).await));
    let skipping = api
        .kubeconfig_of(&json!({"token": "one"}))
        .replace(r#""server""#, r#""insecure-skip-tls-verify":true,"server""#);
    assert!(answered(&bound_by(&folder, &skipping).await));
    let other = bound_by(&folder, &api.kubeconfig_of(&json!({"token": "other"}))).await;
    assert!(other.contains("the test says 401"), "{other}");
}

#[test]
fn a_plugin_that_hangs_neither_delays_the_end_of_a_server_nor_outlives_it() {
    let api = ClusterApi::start();
    let folder = TestDirectory::new();
    let started = folder.0.join("started");
    let script = folder.file(
        "plugin",
        &format!("#!/bin/sh\nsleep 3601.5 &\ntouch {}\nsleep 3601.5\n", started.display()),
    );
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": script}});
    let kubeconfig = folder.file("kubeconfig", &api.kubeconfig_of(&exec));
    let mut server = command()
        .args([
            "serve",
            "--grpc-address",
            "127.0.0.1:0",
            "--http-address",
            "127.0.0.1:0",
            "--state",
            "kubernetes",
            "--kubeconfig",
        ])
        .arg(kubeconfig)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("the plugin runs", || started.exists());
    let begin = tokio::time::Instant::now();
    let sent = std::process::Command::new("kill").arg(server.id().to_string()).status();
    assert!(sent.unwrap().success());
    assert!(server.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    until("what the plugin started has ended", || {
        let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let mut lines = all.filter_map(|own| std::fs::read_to_string(own.path().join("cmdline")).ok());
        !lines.any(|line| line.contains("3601.5"))
    });
}
