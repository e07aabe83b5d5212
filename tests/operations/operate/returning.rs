//! A server that comes back after `kill -9`: it remembers its live sources and its named policies, and is not ready before they
//! are there again.

use pumice::server::pb;

use super::{TestDirectory, cluster, document, fetch, until};
use crate::support::process::{ServeProcess, err, out, program_file};
use crate::support::records::full_sync;
use crate::support::wire::BlockingClients;

fn serve(data: &str, more: &[&str]) -> (ServeProcess, BlockingClients) {
    let mut flags = vec!["--data-dir", data];
    flags.extend(more);
    let server = ServeProcess::start(&flags);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let wire = BlockingClients::connect(std::sync::Arc::new(runtime.unwrap()), server.grpc);
    (server, wire)
}

fn readiness(server: &ServeProcess) -> (bool, String) {
    let (status, page) = fetch(server.http, "/readyz?verbose");
    (status.starts_with("http/1.1 200"), page)
}

fn sync(wire: &BlockingClients, source: &str, kind: pb::SourceKind) {
    let mut batch = full_sync(source, 1, cluster(2));
    batch.set_source_kind(kind);
    wire.apply_batch(batch).unwrap();
}

#[test]
fn a_killed_server_waits_for_its_live_sources_and_has_its_policies() {
    let directory = TestDirectory::new();
    let data = directory.0.join("data").display().to_string();
    let (server, wire) = serve(&data, &[]);
    sync(&wire, "kube", pb::SourceKind::Live);
    sync(&wire, "dump", pb::SourceKind::File);
    let night = pb::ReloadPolicyRequest {
        name: "night".to_owned(),
        document: document("night"),
        ..pb::ReloadPolicyRequest::default()
    };
    wire.reload_policy(night).unwrap();
    assert!(readiness(&server).0);
    server.kill();

    let (server, wire) = serve(&data, &[]);
    let (is_ready, page) = readiness(&server);
    assert!(!is_ready, "{page}");
    assert!(
        page.contains("[-] source/kube: had synced before the start, and has not since: awaited for"),
        "{page}"
    );
    assert!(
        page.contains("limit `source_return_ms`), or until `pumice state forget kube`"),
        "{page}"
    );
    assert!(page.contains("[+] policy/night: version 1"), "{page}");
    // A file is loaded again by whoever wants it.
    assert!(!page.contains("source/dump"), "{page}");
    sync(&wire, "kube", pb::SourceKind::Live);
    assert!(readiness(&server).0, "{}", readiness(&server).1);
    server.kill();
    // Two ends in a row change nothing.
    let (server, _wire) = serve(&data, &[]);
    assert!(!readiness(&server).0);
}

#[test]
fn a_source_that_never_comes_back_is_given_up() {
    let directory = TestDirectory::new();
    let data = directory.0.join("data").display().to_string();
    let (server, wire) = serve(&data, &[]);
    sync(&wire, "gone", pb::SourceKind::Live);
    server.kill();
    let (server, _wire) = serve(&data, &["--source-return-ms", "1500"]);
    let (is_ready, page) = readiness(&server);
    assert!(!is_ready, "{page}");
    until("it is given up", || readiness(&server).0);
    let exported = || {
        let args = ["store", "export", &data];
        let output = std::process::Command::new(program_file()).args(args).output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        out(&output)
    };
    // The store forgets it, too: the next start does not wait again. The writer looks twice a second.
    std::thread::sleep(std::time::Duration::from_secs(2));
    server.kill();
    assert!(!exported().contains("\"gone\""), "{}", exported());
    let (server, _wire) = serve(&data, &[]);
    assert!(readiness(&server).0, "{}", readiness(&server).1);
}

#[test]
fn who_forgets_a_source_ends_the_waiting() {
    let directory = TestDirectory::new();
    let data = directory.0.join("data").display().to_string();
    let (server, wire) = serve(&data, &[]);
    sync(&wire, "gone", pb::SourceKind::Live);
    server.kill();
    let (server, wire) = serve(&data, &[]);
    assert!(!readiness(&server).0);
    let forget = pb::ForgetSourceRequest {
        source: "gone".to_owned(),
        ..pb::ForgetSourceRequest::default()
    };
    wire.forget_source(forget).unwrap();
    assert!(readiness(&server).0, "{}", readiness(&server).1);
    server.kill();
    let (server, _wire) = serve(&data, &[]);
    assert!(readiness(&server).0, "{}", readiness(&server).1);
}
