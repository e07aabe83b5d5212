//! Services as a caller sees them, over a real connection.

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Channel;
use tonic_types::StatusExt;

use crate::app;
use crate::config::ServerConfig;

use super::pb::DecisionServiceClient;
use super::pb::PolicyServiceClient;
use super::pb::StateServiceClient;
use super::pb::{self, BatchKind};

mod hostile;
mod limits;
mod operations;
mod overload;
mod queries;
mod race;
mod slow_disk;

struct TestServer {
    decisions: DecisionServiceClient<Channel>,
    state: StateServiceClient<Channel>,
    policies: PolicyServiceClient<Channel>,
    channel: Channel,
    grpc: std::net::SocketAddr,
    http: std::net::SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<(), app::ServeError>>,
}

impl TestServer {
    async fn with_config(config: ServerConfig) -> Self {
        Self::serve(app::bind(config).await.unwrap()).await
    }

    async fn serve(bound: app::BoundServer) -> Self {
        let (grpc, http) = (bound.grpc_address(), bound.http_address());
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(bound.run(async { drop(stopped.await) }));
        let channel = Channel::from_shared(format!("http://{grpc}"))
            .unwrap()
            .connect()
            .await
            .unwrap();
        Self {
            decisions: DecisionServiceClient::new(channel.clone()),
            state: StateServiceClient::new(channel.clone()),
            policies: PolicyServiceClient::new(channel.clone()),
            channel,
            grpc,
            http,
            stop: Some(stop),
            server,
        }
    }

    async fn start() -> Self {
        Self::with_config(ServerConfig::on_free_ports()).await
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.server.await.unwrap().unwrap();
    }

    async fn http_get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut result = String::new();
        stream.read_to_string(&mut result).await.unwrap();
        let status = result.split(' ').nth(1).unwrap().parse().unwrap();
        (status, result)
    }

    async fn apply(&mut self, batch: pb::Batch) -> pb::BatchOutcome {
        let request = pb::ApplyRequest { batch: Some(batch) };
        self.state.apply(request).await.unwrap().into_inner().outcome.unwrap()
    }
}

fn amounts(items: &[(&str, &str)]) -> pb::ResourceList {
    let items = items
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    pb::ResourceList { items: items.collect() }
}

fn node(name: &str, cpu: &str) -> pb::Node {
    pb::Node {
        name: name.to_owned(),
        allocatable: Some(amounts(&[("cpu", cpu), ("memory", "64Gi"), ("pods", "110")])),
        ..pb::Node::default()
    }
}

fn task(name: &str, requests: &[(&str, &str)]) -> pb::Task {
    pb::Task {
        name: name.to_owned(),
        requests: Some(amounts(requests)),
        ..pb::Task::default()
    }
}

fn full_sync(cluster: pb::Cluster) -> pb::Batch {
    pb::Batch {
        source: "test".to_owned(),
        source_epoch: 1,
        sequence: 1,
        kind: BatchKind::FullSyncLast.into(),
        put: Some(cluster),
        part: 1,
        ..pb::Batch::default()
    }
}

fn three_nodes() -> pb::Cluster {
    pb::Cluster {
        nodes: vec![node("c", "4"), node("a", "8"), node("b", "16")],
        tasks: vec![pb::Task {
            status: pb::TaskStatus::Running.into(),
            node: "a".to_owned(),
            ..task("ns/old", &[("cpu", "2"), ("memory", "1Gi")])
        }],
        ..pb::Cluster::default()
    }
}

fn reload(document: &str, expected_version: Option<u64>) -> pb::ReloadPolicyRequest {
    pb::ReloadPolicyRequest {
        document: document.to_owned(),
        expected_version,
        ..pb::ReloadPolicyRequest::default()
    }
}

fn reason(status: &Status) -> String {
    status.get_error_details().error_info().unwrap().reason.clone()
}

/// Detail of this type name.
fn detail<M: Message + Default>(status: &Status, name: &str) -> M {
    let status = tonic_types::Status::decode(status.details()).unwrap();
    let found = status.details.iter().find(|any| any.type_url.ends_with(name));
    M::decode(&*found.unwrap().value).unwrap()
}

fn score(tasks: Vec<pb::Task>) -> pb::ScoreRequest {
    pb::ScoreRequest {
        tasks,
        with_filter: true,
        ..pb::ScoreRequest::default()
    }
}

#[test]
fn decisions_are_numbered_in_hexadecimal_digits() {
    for number in [0, 9, 15, 16, 0xdead_beef, u64::MAX] {
        let digits: String = super::hexadecimal(number).collect();
        assert_eq!(digits, format!("{number:x}"));
    }
}
