//! Disk that does not answer: a flush of the real program that lasts as long as a test wants.

use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

use pumice::server::pb;
use tonic::{Code, Status};

use super::transport::{other_caller, probe, runtime};
use crate::operate::{TestDirectory, cluster, document, program::LoggedProcess, score_request, until};
use crate::support::records::full_sync;

/// Server whose flushes wait while they are held.
pub(super) struct HeldDisk {
    pub(super) program: LoggedProcess,
    directory: TestDirectory,
}

/// Change of a policy that is on its way.
type PendingReload = JoinHandle<Result<pb::ReloadPolicyResponse, Status>>;

impl HeldDisk {
    /// Server with a store on disk and this many nodes.
    pub(super) fn serve(nodes: usize) -> Self {
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
        let program = LoggedProcess::serve_with(&environment, &["--data-dir", data.to_str().unwrap()]);
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
    let disk = HeldDisk::serve(100);
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
