//! Certificates are exchanged while calls are under way; what cannot be used changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pumice::server::pb;
use pumice_protocol::{ClientConnection, ConnectOptions};
use tokio::net::TcpStream;

use super::authority::{TestAuthority, ask, runtime};
use crate::support::program::LoggedProcess;
use crate::support::until;

/// Certificate that the server shows to a new connection.
async fn shown_certificate(options: &ConnectOptions) -> Vec<u8> {
    let stream = TcpStream::connect(&options.server).await.unwrap();
    let stream = options.tls.secure(stream, "localhost").await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// Page of the HTTP port.
async fn page(program: &LoggedProcess, options: &ConnectOptions, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let stream = TcpStream::connect(program.http).await.unwrap();
    let mut stream = options.tls.secure(stream, "localhost").await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}

#[test]
fn every_certificate_is_exchanged_under_load_and_no_call_fails() {
    let first = TestAuthority::new(&["admin"]);
    let second = TestAuthority::new(&["admin"]);
    let program = first.serve(&[]);
    let runtime = runtime();
    // Clients trust both authorities from the begin on, as a rotation begins with.
    let both = [first.read("ca.crt"), second.read("ca.crt")].concat();
    let with = |authority: &TestAuthority| {
        let mut options = authority.options(program.grpc, Some("admin"));
        options.tls.authorities = Some(both.clone());
        options
    };
    let (old, new) = (with(&first), with(&second));
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load: Vec<_> = [true, false]
        .into_iter()
        .map(|reused| {
            let (stop, calls, options) = (Arc::clone(&stop), Arc::clone(&calls), old.clone());
            runtime.spawn(async move {
                let mut connection = ClientConnection::open_with(&options).await.unwrap();
                while !stop.load(Ordering::Relaxed) {
                    if !reused {
                        connection = ClientConnection::open_with(&options).await.unwrap();
                    }
                    let request = pb::GetServerInfoRequest {};
                    connection.state.get_server_info(request).await.unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let begun = runtime.block_on(shown_certificate(&old));
    // The server trusts both, then shows the new one.
    first.replace("ca.crt", &both);
    until("the other authority is trusted", || runtime.block_on(ask(&new)).is_ok());
    first.replace("server.key", &second.read("server.key"));
    first.replace("server.crt", &second.read("server.crt"));
    until("the new certificate is shown", || {
        runtime.block_on(shown_certificate(&old)) != begun
    });
    let seen = calls.load(Ordering::Relaxed);
    until("calls go on", || calls.load(Ordering::Relaxed) > seen + 20);
    stop.store(true, Ordering::Relaxed);
    for task in load {
        runtime.block_on(task).unwrap();
    }
    // The former authority goes: its clients are no longer let in.
    first.replace("ca.crt", &second.read("ca.crt"));
    until("the former authority is forgotten", || {
        runtime.block_on(ask(&old)).is_err()
    });
    runtime.block_on(ask(&new)).unwrap();
    let metrics = runtime.block_on(page(&program, &new, "/metrics"));
    assert!(metrics.contains("pumice_tls_rejected 0"), "{metrics}");
    assert!(
        metrics.contains("pumice_tls_handshakes_total{outcome=\"completed\"}"),
        "{metrics}"
    );
}

#[test]
fn files_that_cannot_be_used_change_nothing_and_are_reported() {
    let authority = TestAuthority::new(&["admin"]);
    let program = authority.serve(&[]);
    let runtime = runtime();
    let options = authority.options(program.grpc, Some("admin"));
    let (certificate, key) = (authority.read("server.crt"), authority.read("server.key"));
    let readiness = || runtime.block_on(page(&program, &options, "/readyz?verbose"));
    let other = TestAuthority::new(&["admin"]);
    for (file, content, said) in [
        ("server.crt", b"nonsense".to_vec(), "it has no certificate"),
        ("server.key", other.read("server.key"), "of one pair"),
    ] {
        let good = authority.read(file);
        authority.replace(file, &content);
        until("the rejection is told", || readiness().contains(said));
        let ready = readiness();
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        let metrics = runtime.block_on(page(&program, &options, "/metrics"));
        assert!(metrics.contains("pumice_tls_rejected 1"), "{metrics}");
        runtime.block_on(ask(&options)).unwrap();
        authority.replace(file, &good);
        until("the good file is back", || !readiness().contains("refused"));
    }
    std::fs::remove_file(authority.path("server.crt")).unwrap();
    until("the absence is told", || readiness().contains("it cannot be read"));
    runtime.block_on(ask(&options)).unwrap();
    authority.replace("server.crt", &certificate);
    until("it is back", || !readiness().contains("refused"));
    assert_eq!(authority.read("server.key"), key);
    let refused = || program.log().iter().filter(|line| line["level"] == "ERROR").count();
    until("each file that was refused has a line", || refused() >= 3);
    assert_eq!(refused(), 3, "{:?}", program.log());
}
