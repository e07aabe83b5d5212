//! Caller that speaks HTTP/2 and HTTP/1 as it likes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Request};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use prost::Message;
use pumice::server::pb;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::Code;

use crate::support::metric_value;
pub(super) use crate::support::probe;
use crate::support::records::hypothetical_task;

pub(super) const SCORE: &str = "/pumice.v1.DecisionService/Score";
pub(super) const APPLY: &str = "/pumice.v1.StateService/Apply";

/// Time in which every answer of these tests must come, however slow the machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Scale of the attacks that `make hostile` measures, in percent.
pub(super) fn scale() -> usize {
    let percent = std::env::var_os("PUMICE_HOSTILE").and_then(|text| text.to_str()?.parse().ok());
    percent.unwrap_or(5)
}

pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Connection whose caller decides what to send and what to take.
pub(super) struct HostileConnection {
    requests: SendRequest<Bytes>,
    /// Ends with the connection.
    pub(super) driver: JoinHandle<Result<(), h2::Error>>,
}

/// Call that the caller can leave as it is.
pub(super) struct OpenCall {
    pub(super) response: ResponseFuture,
    pub(super) body: SendStream<Bytes>,
}

impl HostileConnection {
    /// Connection that takes this many bytes of each response.
    pub(super) async fn open(address: SocketAddr, window: u32) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = h2::client::Builder::new();
        client
            .initial_window_size(window)
            .initial_connection_window_size(1 << 30);
        let (requests, connection) = client.handshake(stream).await.unwrap();
        let driver = tokio::spawn(connection);
        // The server's settings bound the streams that may be opened.
        tokio::time::sleep(Duration::from_millis(50)).await;
        Self { requests, driver }
    }

    /// Sends the headers of a call.
    pub(super) async fn call(&self, path: &str) -> Result<OpenCall, h2::Error> {
        self.call_with(path, &[]).await
    }

    /// Sends the headers of a call, with more of them.
    pub(super) async fn call_with(&self, path: &str, more: &[(&str, &str)]) -> Result<OpenCall, h2::Error> {
        let mut request = Request::post(format!("http://pumice{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        let mut requests = self.requests.clone().ready().await?;
        let (response, body) = requests.send_request(request.body(()).unwrap(), false)?;
        Ok(OpenCall { response, body })
    }

    /// Sends a whole call.
    pub(super) async fn ask(&self, path: &str, body: Vec<u8>) -> Result<ResponseFuture, h2::Error> {
        let mut call = self.call(path).await?;
        call.body.send_data(body.into(), true)?;
        Ok(call.response)
    }
}

impl OpenCall {
    /// Sends a part of the body, as far as the server takes it, and no more.
    pub(super) fn send(&mut self, part: Vec<u8>) {
        self.body.send_data(part.into(), false).unwrap();
    }
}

/// gRPC code of a response.
pub(super) async fn code(response: ResponseFuture) -> Code {
    let answered = tokio::time::timeout(PATIENCE, code_in_time(response)).await;
    answered.expect("a response in time")
}

async fn code_in_time(response: ResponseFuture) -> Code {
    let response = match response.await {
        Ok(response) => response,
        // The transport's own reset of a stream.
        Err(error) => return error.reason().map_or(Code::Unavailable, |_| Code::Cancelled),
    };
    let of_headers = response.headers().get("grpc-status").cloned();
    let of_trailers = read_trailers(response.into_body()).await;
    let status = of_headers.or_else(|| of_trailers?.get("grpc-status").cloned());
    let status = status.expect("a status");
    Code::from_bytes(status.as_bytes())
}

async fn read_trailers(mut body: RecvStream) -> Option<HeaderMap> {
    while let Some(data) = body.data().await {
        let Ok(data) = data else { return None };
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    body.trailers().await.ok().flatten()
}

/// Message with its prefix.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    let mut frame = vec![0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

/// Question that any server answers at once.
pub(super) fn small_query() -> Vec<u8> {
    framed(
        &pb::ScoreRequest {
            tasks: vec![hypothetical_task(&[("cpu", "1")])],
            ..pb::ScoreRequest::default()
        }
        .encode_to_vec(),
    )
}

/// Code of the small question of another caller.
pub(super) async fn other_caller(address: SocketAddr) -> Code {
    let connection = HostileConnection::open(address, 1 << 20).await;
    code(connection.ask(SCORE, small_query()).await.unwrap()).await
}

/// Number of said by a limit.
pub(super) fn rejections(http: SocketAddr, limit: &str) -> f64 {
    metric_value(http, &format!("pumice_limit_rejections_total{{limit=\"{limit}\"}}"))
}
