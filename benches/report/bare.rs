//! Calls beside a bare tonic server, the floor of a call: the same messages, runtime and allocator, and nothing of the program.
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use pumice::server::pb;
use serde_json::json;
use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;

use super::calls::{BenchCall, BenchClient};
use super::fixtures::bare_service::BareService;
use super::fixtures::clock;
use super::grpc::{self, LoadCost};
use super::measurements::MeasurementReport;
use super::server::BenchServer;
use super::shapes;

/// Command of this program that runs the bare server, followed by its response.
pub(crate) const COMMAND: &str = "bare-server";

/// Runs the bare server with a response in hexadecimal digits, on the runtime that the program has. Reports its address as
/// the program does.
pub(crate) fn serve(response: &str) -> Result<(), Box<dyn std::error::Error>> {
    let bytes: Result<Vec<u8>, _> = (0..response.len() / 2)
        .map(|at| u8::from_str_radix(response.get(2 * at..2 * at + 2).unwrap_or_default(), 16))
        .collect();
    let service = BareService(Arc::new(pb::FilterResponse::decode(bytes?.as_slice())?));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())?.with_nodelay(Some(true));
        let address = incoming.local_addr()?.to_string();
        writeln!(
            std::io::stderr(),
            "{}",
            json!({ "message": "serving", "grpc": address })
        )?;
        let server = tonic::transport::Server::builder().add_service(service);
        Ok(server.serve_with_incoming(incoming).await?)
    })
}

/// Measures calls with 64 under way: of the bare server, of the server without a question and with one about all nodes, in
/// rounds one after the other.
pub(crate) async fn measure(
    report: &mut MeasurementReport,
    server: &BenchServer,
    connections: &[Channel],
    (rounds, lasting): (usize, Duration),
) {
    let asked = BenchClient::empty_response(server.tcp().await).await;
    let mut response = String::new();
    for byte in asked.encode_to_vec() {
        write!(response, "{byte:02x}").expect("a text takes digits");
    }
    let bare = BenchServer::start_bare(&response);
    let mut to_bare = Vec::new();
    for _ in connections {
        to_bare.push(bare.tcp().await);
    }
    let (empty, best) = (BenchCall::Empty, BenchCall::Score(Box::new(shapes::best())));
    let mut measured: Vec<[LoadCost; 3]> = Vec::new();
    for round in 0..=rounds {
        let costs = [
            grpc::load(&bare, &to_bare, &empty, lasting).await,
            grpc::load(server, connections, &empty, lasting).await,
            grpc::load(server, connections, &best, lasting).await,
        ];
        // The first round warms up.
        if round > 0 {
            measured.push(costs);
        }
    }
    let mut put = |key: &str, of: &dyn Fn(&[LoadCost; 3]) -> f64| {
        let mut values: Vec<f64> = measured.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        report.put(key, clock::median(&values));
    };
    put("grpc_bare_64_cpu_us_per_call", &|[bare, ..]| bare.cpu_us_per_call);
    put("grpc_bare_64_per_s", &|[bare, ..]| bare.per_second);
    put("grpc_empty_64_over_bare_cpu", &|[bare, empty, _]| {
        empty.cpu_us_per_call / bare.cpu_us_per_call
    });
    put("grpc_best_64_minus_empty_cpu_us", &|[_, empty, best]| {
        best.cpu_us_per_call - empty.cpu_us_per_call
    });
    put("grpc_calls_64_over_bare", &|[bare, empty, _]| {
        empty.per_second / bare.per_second
    });
}
