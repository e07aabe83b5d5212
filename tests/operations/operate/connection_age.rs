//! Connections of a limited age: calls go on over new ones, streams end.

use std::time::Duration;

use pumice::config::ServerConfig;
use pumice::server::pb;
use pumice::server::pb::StateServiceClient;
use tokio::time::Instant;
use tonic::transport::Endpoint;

use crate::support::EmbeddedServer;

#[test]
fn an_old_connection_says_so_before_it_ends() {
    let mut config = ServerConfig::on_free_ports();
    config.max_connection_age = Duration::from_millis(200);
    config.limits.edge.connection_age_grace = Duration::from_millis(300);
    let server = EmbeddedServer::with(config);
    let wire = &server.wire;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
    let stream_age = wire.wait(async {
        let begin = Instant::now();
        let mut state = StateServiceClient::new(endpoint.connect().await.unwrap());
        let mut replies = state
            .sync(tokio_stream::pending::<pb::SyncRequest>())
            .await
            .unwrap()
            .into_inner();
        let ended = tokio::time::timeout(Duration::from_secs(20), replies.message()).await;
        assert!(ended.expect("the stream ends with its connection").is_err());
        begin.elapsed()
    });
    assert!(stream_age >= Duration::from_millis(500), "{stream_age:?}");
    // Single calls go on all the time, over one connection after the other. This client does not repeat a call that it
    // sent at the moment in which the connection said that it takes no more.
    let begin = Instant::now();
    let mut calls = 0;
    while begin.elapsed() < Duration::from_millis(1_500) {
        if let Err(status) = wire.get_server_info(pb::GetServerInfoRequest {}) {
            let text = format!("{status:?}");
            assert!(text.contains("NO_ERROR") || text.contains("Canceled"), "{text}");
            // On a slow machine the next connection may be as old before its first call.
            let again = (0..5).any(|_| wire.get_server_info(pb::GetServerInfoRequest {}).is_ok());
            assert!(again, "{text}");
        }
        calls += 1;
    }
    assert!(calls > 10, "{calls}");
}
