//! Unix socket: served in addition to the address, replaced if a killed process left it behind, never taken from
//! another process.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use pumice::app;
use pumice::config::ServerConfig;
use pumice::server::pb;
use pumice::server::pb::StateServiceClient;
use tonic::transport::Endpoint;

use super::TestDirectory;
use crate::support::EmbeddedServer;

fn config(socket: &std::path::Path) -> ServerConfig {
    ServerConfig {
        grpc_socket: Some(socket.to_owned()),
        ..ServerConfig::on_free_ports()
    }
}

#[test]
fn both_sockets_serve_and_the_file_is_removed_with_the_server() {
    let scratch = TestDirectory::new();
    let socket = scratch.0.join("pumice.sock");
    // A killed process leaves its socket behind.
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let server = EmbeddedServer::with(config(&socket));
    // Connecting takes the permission to write, which the umask would leave to one user.
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666, "{mode:o}");
    let by_socket = server.wire.wait(async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
        let mut client = StateServiceClient::new(endpoint.connect().await.unwrap());
        client
            .get_server_info(pb::GetServerInfoRequest {})
            .await
            .unwrap()
            .into_inner()
    });
    let by_address = server.wire.get_server_info(pb::GetServerInfoRequest {}).unwrap();
    assert_eq!(by_socket.revision, by_address.revision);

    let second = server.wire.wait(app::bind(config(&socket))).unwrap_err();
    assert!(second.to_string().contains("another process listens on it"), "{second}");
    drop(server);
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_not_touched() {
    let scratch = TestDirectory::new();
    let file = scratch.file("notes", "mine");
    let refused = app::bind(config(&file)).await.unwrap_err();
    assert!(refused.to_string().contains("not a socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}
