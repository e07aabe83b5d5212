//! A real API server on a real etcd, with an account that may do what a store needs and nothing else.

#![expect(clippy::disallowed_methods, reason = "processes take time, and the clock bounds it")]

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pumice_kubernetes_store::{ApiAccess, KubernetesStoreOptions, WriteRates};
use pumice_live::ClusterAccess;
use pumice_state::store::testing::steps::until;

use super::etcd::EtcdCluster;

/// Namespace of the logs.
pub(crate) const NAMESPACE: &str = "default";
/// Tokens of the operator and of the servers' account.
const OPERATOR: &str = "operator-token";
const ACCOUNT: &str = "account-token";

/// Rights of a server, in the namespace of its log: those of the chart.
const ROLE: &str = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "pumice-log"}, "rules": [
  {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "update", "delete"]},
  {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "create", "update", "delete"]}]}"#;
const BINDING: &str = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "pumice-log"},
  "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pumice-log"},
  "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "pumice"}]}"#;

/// API server and its etcd, which end with it.
pub(crate) struct ControlPlane {
    etcd: EtcdCluster,
    folder: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

impl ControlPlane {
    /// Starts an etcd with this number of members, and an API server on it.
    pub(crate) fn start(members: usize) -> Self {
        Self::start_on(EtcdCluster::start(members))
    }

    /// Starts an API server on this etcd.
    pub(crate) fn start_on(etcd: EtcdCluster) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = std::env::temp_dir().join(format!(
            "pumice-api-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::SeqCst)
        ));
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        let tokens = format!("{OPERATOR},operator,1,\"system:masters\"\n{ACCOUNT},pumice,2\n");
        std::fs::write(folder.join("tokens.csv"), tokens).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(folder.join("accounts.key"), key.serialize_pem()).unwrap();
        std::fs::write(folder.join("accounts.pub"), key.public_key_pem()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut own = Self {
            etcd,
            folder,
            port,
            process: None,
        };
        own.restart();
        own.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", ROLE);
        own.post(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            BINDING,
        );
        own
    }

    /// Starts the API server, and waits until it is ready.
    pub(crate) fn restart(&mut self) {
        let program =
            std::env::var_os("PUMICE_KUBE_APISERVER").expect("PUMICE_KUBE_APISERVER names the program kube-apiserver");
        let members: Vec<String> = (0..self.etcd.size())
            .map(|member| format!("http://127.0.0.1:{}", self.etcd.port(member)))
            .collect();
        let folder = self.folder.clone();
        let file = |name: &str| folder.join(name);
        let log = std::fs::File::create(file("kube-apiserver.log")).unwrap();
        let mut command = Command::new(program);
        command
            .args(["--etcd-servers", &members.join(",")])
            .args(["--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"])
            .args(["--secure-port", &self.port.to_string(), "--authorization-mode", "RBAC"])
            .args(["--service-account-issuer", "https://kubernetes.default.svc"])
            .args([
                "--service-cluster-ip-range",
                "10.0.0.0/24",
                "--endpoint-reconciler-type",
                "none",
            ])
            .args(["--disable-admission-plugins", "ServiceAccount", "--profiling=false"]);
        command.arg("--cert-dir").arg(file("generated"));
        command.arg("--token-auth-file").arg(file("tokens.csv"));
        command.arg("--service-account-key-file").arg(file("accounts.pub"));
        command
            .arg("--service-account-signing-key-file")
            .arg(file("accounts.key"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().unwrap());
        let end = Instant::now() + Duration::from_mins(2);
        while !self.is_ready() {
            let ended = self.process.as_mut().and_then(|process| process.try_wait().unwrap());
            assert!(
                ended.is_none(),
                "{}",
                std::fs::read_to_string(file("kube-apiserver.log")).unwrap()
            );
            assert!(Instant::now() < end, "the API server does not come up");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Kills the API server.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }

    fn is_ready(&self) -> bool {
        let page = |path| self.ask(path, &[]);
        page("/readyz").is_some_and(|text| text == "ok") && page("/api/v1/namespaces/default").is_some()
    }

    /// Asks the API server as its operator.
    pub(crate) fn ask(&self, path: &str, more: &[&str]) -> Option<String> {
        let url = format!("https://127.0.0.1:{}{path}", self.port);
        let authority = format!("Authorization: Bearer {OPERATOR}");
        let mut command = Command::new("curl");
        command.args([
            "--insecure",
            "--silent",
            "--fail",
            "--max-time",
            "10",
            "--header",
            &authority,
        ]);
        let done = command.args(more).arg(&url).output().unwrap();
        done.status.success().then(|| String::from_utf8(done.stdout).unwrap())
    }

    /// Posts an object. An API server that is ready may still say that it has no time.
    fn post(&self, path: &str, body: &str) {
        until(path, || {
            self.ask(path, &["--header", "Content-Type: application/json", "--data", body])
        });
    }

    /// Number of ConfigMaps of a log.
    pub(crate) fn count(&self, name: &str) -> usize {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=app.kubernetes.io/instance={name}");
        self.ask(&path, &[]).unwrap().matches("\"uid\"").count()
    }

    /// Members of the etcd.
    pub(crate) fn etcd(&mut self) -> &mut EtcdCluster {
        &mut self.etcd
    }

    /// Number of members of the etcd.
    pub(crate) fn size(&self) -> usize {
        self.etcd.size()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Kubeconfig of the servers' account, for the API server behind a port.
    pub(crate) fn kubeconfig(&self, port: u16) -> PathBuf {
        let path = self.folder.join(format!("kubeconfig-{port}"));
        let config = format!(
            r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "test",
              "clusters": [{{"name": "test", "cluster": {{"server": "https://127.0.0.1:{port}", "insecure-skip-tls-verify": true}}}}],
              "users": [{{"name": "test", "user": {{"token": "{ACCOUNT}"}}}}],
              "contexts": [{{"name": "test", "context": {{"cluster": "test", "user": "test", "namespace": "{NAMESPACE}"}}}}]}}"#
        );
        std::fs::write(&path, config).unwrap();
        path
    }

    /// Options of a store behind a port, with a rate that bounds nothing.
    pub(crate) fn options_at(&self, port: u16) -> KubernetesStoreOptions {
        let access = ClusterAccess {
            kubeconfig: Some(self.kubeconfig(port)),
            context: None,
        };
        KubernetesStoreOptions {
            rates: WriteRates {
                writes_per_second: 1e5,
                bytes_per_second: 1e9,
            },
            ..KubernetesStoreOptions::new(ApiAccess::Credentials(access))
        }
    }

    pub(crate) fn options(&self) -> KubernetesStoreOptions {
        self.options_at(self.port)
    }
}
