//! Compressed requests: accepted with gzip, within the limits of plain ones.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use pumice::server::pb;
use pumice::server::pb::DecisionServiceClient;
use pumice::server::pb::StateServiceClient;
use tonic::Code;
use tonic::codec::CompressionEncoding;

use super::transport::{APPLY, HostileConnection, SCORE, code, framed, other_caller, rejections, runtime, small_query};
use crate::support::program::LoggedProcess;
use crate::support::records::full_sync;
use crate::support::{cluster, score_request, until};

const SYNC: &str = "/pumice.v1.StateService/Sync";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const GZIP: [(&str, &str); 1] = [("grpc-encoding", "gzip")];

/// Message as gzip, with a prefix that says so.
fn zipped(message: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(message).unwrap();
    let mut frame = framed(&encoder.finish().unwrap());
    frame[0] = 1;
    frame
}

async fn ask(connection: &HostileConnection, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Code {
    let mut call = connection.call_with(path, headers).await.unwrap();
    call.body.send_data(body.into(), true).unwrap();
    code(call.response).await
}

#[test]
fn requests_may_be_compressed_with_gzip() {
    let program = LoggedProcess::serve(&[]);
    let wire = program.connect();
    // Larger than what is inflated at once.
    let batch = full_sync("a", 1, cluster(5_000));
    assert!(batch.encoded_len() > 200_000);
    let mut state = StateServiceClient::new(wire.channel()).send_compressed(CompressionEncoding::Gzip);
    let applied = wire.wait(state.apply(pb::ApplyRequest { batch: Some(batch) })).unwrap();
    assert_eq!(applied.into_inner().outcome.unwrap().refused, []);

    let mut decisions = DecisionServiceClient::new(wire.channel()).send_compressed(CompressionEncoding::Gzip);
    let zipped = wire.wait(decisions.score(score_request(3))).unwrap().into_inner();
    assert_eq!(zipped.result, wire.score(score_request(3)).unwrap().result);

    // A stream, with a large message and a small one.
    let batches = [full_sync("a", 2, cluster(3_000)), full_sync("a", 3, cluster(7))];
    let batches = batches.map(|batch| pb::SyncRequest { batch: Some(batch) });
    let last = wire.wait(async {
        let mut replies = state.sync(tokio_stream::iter(batches)).await.unwrap().into_inner();
        let mut last = None;
        while let Some(reply) = replies.message().await.unwrap() {
            last = reply.outcome;
        }
        last.unwrap()
    });
    assert_eq!(last.position.unwrap().sequence, 3);
    assert_eq!(wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes.len(), 7);
}

#[test]
fn a_bomb_is_refused_by_the_limits_of_plain_requests() {
    let limits = [
        "--request-bytes",
        "2Mi",
        "--connection-message-bytes",
        "3Mi",
        "--message-bytes",
        "8Mi",
    ];
    let program = LoggedProcess::serve(&limits);
    let before = program.kernel_number("VmHWM");
    let bomb = zipped(&vec![0; 256 << 20]);
    assert!(bomb.len() < 300_000, "{}", bomb.len());
    let mut liar = bomb.clone();
    // It says that it is one byte.
    let end = liar.len() - 4;
    liar[end..].copy_from_slice(&[1, 0, 0, 0]);
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        for body in [&bomb, &liar] {
            for path in [SCORE, APPLY, SYNC, HEALTH] {
                let answered = ask(&connection, path, &GZIP, body.clone()).await;
                assert_eq!(answered, Code::ResourceExhausted, "{path}");
            }
        }
        assert_eq!(other_caller(program.grpc).await, Code::Ok);
    });
    assert!(rejections(program.http, "request_bytes") >= 4.0);
    let grown = program.kernel_number("VmHWM").saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB");
}

#[test]
fn inflated_bytes_count_as_received() {
    // Two requests of this size are more than one connection may hold.
    let limits = ["--request-bytes", "4Mi", "--connection-message-bytes", "4Mi"];
    let program = LoggedProcess::serve(&limits);
    let info = program.connect().get_server_info(pb::GetServerInfoRequest {}).unwrap();
    let revision = info.revision.unwrap();
    let never = pb::Revision {
        number: revision.number + 1_000,
        ..revision
    };
    let waiting = pb::ScoreRequest {
        against: Some(crate::support::records::latest_ref(never, 2_000)),
        ..score_request(1)
    };
    // A field that the server does not know, and that is short when it is compressed.
    let unknown = [&[0x82, 0x7d, 0x80, 0x80, 0xc0, 0x01][..], &vec![0; 3 << 20]].concat();
    let waiting = zipped(&[waiting.encode_to_vec(), unknown].concat());
    assert!(waiting.len() < 10_000);
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut call = connection.call_with(SCORE, &GZIP).await.unwrap();
            call.body.send_data(waiting.clone().into(), true).unwrap();
            held.push(call.response);
        }
        until("a request finds the bytes taken", || {
            rejections(program.http, "connection_message_bytes") >= 1.0
        });
    });
}

#[test]
fn what_is_no_gzip_is_an_error_of_its_caller() {
    let program = LoggedProcess::serve(&[]);
    let query = small_query();
    let whole = zipped(&query[5..]);
    let mut cut = framed(&whole[5..whole.len() - 9]);
    cut[0] = 1;
    let mut longer = framed(&[&whole[5..], b"more"].concat());
    longer[0] = 1;
    let mut garbage = framed(&[7; 100]);
    garbage[0] = 1;
    let mut unknown = whole.clone();
    unknown[0] = 2;
    let mut nothing = framed(&[]);
    nothing[0] = 1;
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        assert_eq!(ask(&connection, SCORE, &GZIP, whole.clone()).await, Code::Ok);
        // Single messages may be plain.
        assert_eq!(ask(&connection, SCORE, &GZIP, query).await, Code::Ok);
        for (what, body) in [
            ("cut", cut),
            ("longer", longer),
            ("garbage", garbage),
            ("unknown flag", unknown),
            ("nothing", nothing),
        ] {
            for path in [SCORE, SYNC] {
                let answered = ask(&connection, path, &GZIP, body.clone()).await;
                assert_eq!(answered, Code::InvalidArgument, "{what} {path}");
            }
        }
        let mut call = connection.call_with(SCORE, &[("grpc-encoding", "zstd")]).await.unwrap();
        call.body.send_data(whole.into(), true).unwrap();
        let refused = call.response.await.unwrap();
        assert_eq!(refused.headers()["grpc-status"], "12", "unimplemented");
        assert_eq!(refused.headers()["grpc-accept-encoding"], "identity,gzip");
    });
}
