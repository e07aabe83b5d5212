//! Disk that does not answer: a flush of the real program that lasts as long as a test wants.

use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

use prost::Message as _;
use pumice::server::pb;
use tonic::{Code, Status};

use super::transport::{APPLY, HostileConnection, code, framed, other_caller, probe, runtime};
use crate::support::records::full_sync;
use crate::support::{TestDirectory, cluster, document, metric_value, program::LoggedProcess, score_request, until};

const SYNC: &str = "/pumice.v1.StateService/Sync";

/// Server whose flushes wait while they are held.
pub(super) struct HeldDisk {
    pub(super) program: LoggedProcess,
    directory: TestDirectory,
}

/// Change of a policy that is on its way.
type PendingReload = JoinHandle<Result<pb::ReloadPolicyResponse, Status>>;

impl HeldDisk {
    /// Server with a store on disk, this many nodes and these flags.
    pub(super) fn serve(nodes: usize, flags: &[&str]) -> Self {
        let directory = TestDirectory::new();
        let source = directory.file("held_disk.c", include_str!("held_disk.c"));
        let library = directory.0.join("held_disk.so");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(source);
        assert!(compiler.status().unwrap().success());
        let data = directory.0.join("data");
        let environment = [
            ("LD_PRELOAD", library),
            ("HELD_FLUSH", directory.0.join("held")),
            ("FLUSH_WAITS", directory.0.join("waits")),
        ];
        let flags = [&["--data-dir", data.to_str().unwrap()], flags].concat();
        let program = LoggedProcess::serve_with(&environment, &flags);
        let applied = program.connect().apply_batch(full_sync("a", 1, cluster(nodes)));
        assert!(applied.is_ok());
        Self { program, directory }
    }

    /// Holds the flush of a change of a policy. Returns the change when its flush is under way.
    pub(super) fn hold(&self, comment: &str) -> PendingReload {
        self.directory.file("held", "");
        let wire = self.program.connect();
        let document = document(comment);
        let reload = std::thread::spawn(move || {
            wire.reload_policy(pb::ReloadPolicyRequest {
                name: "held".to_owned(),
                document,
                ..pb::ReloadPolicyRequest::default()
            })
        });
        let waits: PathBuf = self.directory.0.join("waits");
        until("the flush is under way", || waits.exists());
        reload
    }

    /// Lets the flushes go on.
    pub(super) fn release(&self) {
        std::fs::remove_file(self.directory.0.join("held")).unwrap();
    }
}

#[test]
fn a_flush_that_does_not_end_delays_only_its_own_callers() {
    let disk = HeldDisk::serve(100, &[]);
    let (wire, http) = (disk.program.connect(), disk.program.http);
    let reload = disk.hold("held");
    for path in ["/livez", "/readyz", "/readyz?verbose", "/metrics"] {
        assert_eq!(probe(http, path), Some(200), "{path}");
    }
    let filter = pb::FilterRequest {
        tasks: score_request(1).tasks,
        ..pb::FilterRequest::default()
    };
    assert!(wire.filter(filter).is_ok());
    assert!(wire.get_policy(pb::GetPolicyRequest::default()).is_ok());
    assert!(wire.list_policies(pb::ListPoliciesRequest::default()).is_ok());
    assert!(wire.list_nodes(pb::ListNodesRequest::default()).is_ok());
    assert!(wire.get_server_info(pb::GetServerInfoRequest {}).is_ok());
    assert!(wire.list_sessions(pb::ListSessionsRequest::default()).is_ok());
    assert_eq!(runtime().block_on(other_caller(disk.program.grpc)), Code::Ok);
    let unknown = wire.get_policy(pb::GetPolicyRequest {
        name: "held".to_owned(),
        ..pb::GetPolicyRequest::default()
    });
    assert!(unknown.is_err(), "it is not in force before it is on disk");
    assert!(!reload.is_finished(), "the flush ended while it was held");
    disk.release();
    let reloaded = reload.join().unwrap().unwrap();
    assert_eq!(reloaded.durability(), pb::Durability::Disk);
}

#[test]
fn requests_that_wait_for_the_disk_count_until_they_are_decided() {
    let disk = HeldDisk::serve(1, &["--request-bytes", "1Mi", "--connection-message-bytes", "2Mi"]);
    let reload = disk.hold("held");
    let batch = |source: &str| {
        framed(
            &pb::ApplyRequest {
                batch: Some(full_sync(source, 1, cluster(15_000))),
            }
            .encode_to_vec(),
        )
    };
    let http = disk.program.http;
    let waiting_writes = || metric_value(http, "pumice_writes_waiting");
    until("the server wants to look at leases, too", || waiting_writes() == 1.0);
    let large = batch("b");
    assert!((700_000..1 << 20).contains(&large.len()), "{}", large.len());
    runtime().block_on(async {
        let connection = HostileConnection::open(disk.program.grpc, 1 << 20).await;
        let mut waiting = Vec::new();
        for source in ["b", "c"] {
            waiting.push(connection.ask(APPLY, batch(source)).await.unwrap());
        }
        until("both are read, and cannot be decided yet", || waiting_writes() == 3.0);
        let third = connection.ask(APPLY, batch("d")).await.unwrap();
        assert_eq!(code(third).await, Code::ResourceExhausted);
        let streams = HostileConnection::open(disk.program.grpc, 1 << 20).await;
        let mut open = Vec::new();
        for source in ["e", "f"] {
            let mut call = streams.call(SYNC).await.unwrap();
            call.send(batch(source));
            open.push(call);
        }
        until("both streams are read", || waiting_writes() == 5.0);
        let mut third = streams.call(SYNC).await.unwrap();
        third.send(batch("g"));
        assert_eq!(code(third.response).await, Code::ResourceExhausted);
        tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        assert_eq!(
            waiting_writes(),
            5.0,
            "the server itself takes one place, however long it waits"
        );
        disk.release();
        for response in waiting {
            assert_eq!(code(response).await, Code::Ok);
        }
        for mut call in open {
            call.body.send_data(Vec::new().into(), true).unwrap();
            assert_eq!(code(call.response).await, Code::Ok);
        }
    });
    assert!(reload.join().unwrap().is_ok());
}
