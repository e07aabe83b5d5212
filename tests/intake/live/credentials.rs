//! Credentials that change, take long, or are refused.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use pumice::config::ServerConfig;
use pumice_live::{BindError, ClusterAccess, PodBinder, PodBinding};
use serde_json::json;

use super::WatchingServer;
use super::api::ClusterApi;
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
    let binder = PodBinder::new(ClusterAccess {
        kubeconfig: Some(folder.file("kubeconfig", &api.kubeconfig())),
        context: None,
    });
    let binding = PodBinding {
        namespace: "web".to_owned(),
        name: "p".to_owned(),
        uid: String::new(),
        node: "n1".to_owned(),
    };
    api.refuse("/api/v1/pods/p/binding", 503);
    let error = binder.bind(&binding).await.unwrap_err();
    assert!(matches!(error, BindError::Unknown(_)), "{error}");
    assert_eq!(api.take_rejections().len(), 1);
}
