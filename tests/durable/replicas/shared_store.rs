//! The store that the servers of a test share: an etcd, or the Kubernetes API, by the variable `PUMICE_REPLICAS_STORE`.

use std::path::PathBuf;
use std::time::Duration;

use pumice::server::pb;
use pumice_etcd::{EtcdOptions, EtcdStore};
use pumice_kubernetes_store::{KubernetesStore, KubernetesStoreOptions};
use pumice_state::store::{AppendRules, Store};

use super::control_plane::{ControlPlane, NAMESPACE};
use super::etcd::{CuttableProxy, EtcdCluster};

/// Store that several servers share.
pub(super) enum SharedService {
    Etcd(EtcdCluster),
    Kubernetes(Box<ControlPlane>),
}

impl SharedService {
    /// Starts the store of this test run; its etcd, or that of its API server, has this number of members.
    pub(super) fn start(members: usize) -> Self {
        Self::start_on(EtcdCluster::start(members))
    }

    /// Starts the store of this test run with members whose disks can be slow and full.
    pub(super) fn start_with_disks(members: usize) -> Self {
        Self::start_on(EtcdCluster::start_with_disks(members))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the command line of a test run is its environment"
    )]
    fn start_on(etcd: EtcdCluster) -> Self {
        match std::env::var("PUMICE_REPLICAS_STORE").as_deref() {
            Ok("kubernetes") => Self::Kubernetes(Box::new(ControlPlane::start_on(etcd))),
            Ok("etcd") | Err(_) => Self::Etcd(etcd),
            Ok(other) => panic!("PUMICE_REPLICAS_STORE: {other}"),
        }
    }

    /// The etcd below.
    pub(super) fn etcd(&mut self) -> &mut EtcdCluster {
        match self {
            Self::Etcd(etcd) => etcd,
            Self::Kubernetes(plane) => plane.etcd(),
        }
    }

    /// Number of members of the etcd.
    pub(super) fn members(&self) -> usize {
        match self {
            Self::Etcd(etcd) => etcd.size(),
            Self::Kubernetes(plane) => plane.size(),
        }
    }

    /// Proxies of one server: in front of each member, or of the API server.
    pub(super) fn proxies(&self) -> Vec<CuttableProxy> {
        match self {
            Self::Etcd(etcd) => (0..etcd.size())
                .map(|member| CuttableProxy::start(etcd.port(member)))
                .collect(),
            Self::Kubernetes(plane) => vec![CuttableProxy::start(plane.port())],
        }
    }

    /// Arguments of a server behind its proxies. Its lease is a second.
    pub(super) fn arguments(&self, proxies: &[CuttableProxy]) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        match self {
            Self::Etcd(_) => {
                add("--store", "etcd".to_owned());
                add("--store-lease-ms", "1000".to_owned());
                add("--store-timeout-ms", "300".to_owned());
                for proxy in proxies {
                    add("--etcd-member", format!("http://127.0.0.1:{}", proxy.port()));
                }
            }
            Self::Kubernetes(plane) => {
                add("--store", "kubernetes".to_owned());
                add("--kubernetes-store-namespace", NAMESPACE.to_owned());
                add("--store-lease-ms", "1000".to_owned());
                add("--store-timeout-ms", "400".to_owned());
                add("--kubernetes-store-writes-per-second", "1000".to_owned());
                for proxy in proxies {
                    add("--kubeconfig", plane.kubeconfig(proxy.port()).display().to_string());
                }
            }
        }
        arguments
    }

    /// Arguments of `pumice store` that name the store.
    pub(super) fn place(&self) -> Vec<String> {
        match self {
            Self::Etcd(etcd) => vec![etcd.options().endpoints.join(",")],
            Self::Kubernetes(plane) => {
                let kubeconfig: PathBuf = plane.kubeconfig(plane.port());
                let name = format!("kubernetes:{NAMESPACE}/pumice");
                vec![name, "--kubeconfig".to_owned(), kubeconfig.display().to_string()]
            }
        }
    }

    /// Store of a server behind its proxies that follows these rules.
    pub(super) fn open(&self, proxies: &[CuttableProxy], rules: AppendRules) -> Box<dyn Store> {
        match self {
            Self::Etcd(etcd) => {
                let members = proxies.iter().map(|proxy| format!("http://127.0.0.1:{}", proxy.port()));
                let options = EtcdOptions {
                    endpoints: members.collect(),
                    timeout: Duration::from_millis(200),
                    rules,
                    ..etcd.options()
                };
                Box::new(EtcdStore::new(options).unwrap())
            }
            Self::Kubernetes(plane) => {
                let port = proxies.first().map_or(plane.port(), CuttableProxy::port);
                let options = KubernetesStoreOptions {
                    timeout: Duration::from_millis(300),
                    lease: Duration::from_secs(1),
                    rules,
                    ..plane.options_at(port)
                };
                Box::new(KubernetesStore::new(options).unwrap())
            }
        }
    }

    /// Durability of what is in the store.
    pub(super) fn durability(&self) -> pb::Durability {
        match self {
            Self::Etcd(_) => pb::Durability::Etcd,
            Self::Kubernetes(_) => pb::Durability::Kubernetes,
        }
    }
}
