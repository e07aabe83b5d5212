//! Callers who stall, and disks that do not answer, when the server is told to stop.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;

use tonic::Code;

use super::held_disk::HeldDisk;
use super::transport::{APPLY, HostileConnection, SCORE, framed, other_caller, runtime};
use crate::support::TestDirectory;
use crate::support::process::serve;
use crate::support::{program::LoggedProcess, until};

const WATCH: &str = "/grpc.health.v1.Health/Watch";
const SOON: [&str; 4] = ["--drain-delay-ms", "0", "--drain-deadline-ms", "500"];

#[test]
fn stalled_callers_do_not_keep_the_server_from_stopping() {
    let mut program = LoggedProcess::serve(&SOON);
    runtime().block_on(async {
        let mut held = Vec::new();
        for _ in 0..4 {
            let connection = HostileConnection::open(program.grpc, 0).await;
            let mut body = connection.call(APPLY).await.unwrap();
            body.send(vec![0, 0, 1, 0, 0, 7]);
            let mut watch = connection.call(WATCH).await.unwrap();
            watch.body.send_data(framed(&[]).into(), true).unwrap();
            let silent = connection.call(SCORE).await.unwrap();
            held.push((connection, body, watch, silent));
        }
        assert_eq!(other_caller(program.grpc).await, Code::Ok);
        program.signal("TERM");
        until("it has stopped", || program.has_ended());
    });
    assert!(program.end().success());
}

#[test]
fn a_silent_disk_does_not_prevent_the_server_from_stopping() {
    let mut disk = HeldDisk::serve(10, &SOON);
    let reload = disk.hold("held");
    disk.program.signal("TERM");
    until("it has stopped", || disk.program.has_ended());
    assert!(disk.program.end().success());
    assert!(reload.join().unwrap().is_err(), "nobody was told that it is on disk");
    let said = disk.program.log();
    assert!(
        said.iter()
            .any(|line| line["message"].as_str().unwrap().contains("the store does not answer"))
    );
}

#[test]
fn signals_that_come_while_the_server_starts_are_obeyed() {
    let folder = TestDirectory::named("early-signals");
    let pipe = folder.path().join("policy.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut process = serve()
        .args(["--drain-delay-ms", "0", "--policy-poll-ms", "0", "--policy-file"])
        .arg(&pipe)
        .spawn()
        .unwrap();
    // The start waits for the policy: this opens the pipe once the server reads from it.
    let mut policy = File::options().write(true).open(&pipe).unwrap();
    for signal in ["HUP", "TERM"] {
        let sent = Command::new("kill")
            .args(["-s", signal, &process.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
    policy.write_all(b"actions: allocate\ntiers: []\n").unwrap();
    drop(policy);
    let status = process.wait().unwrap();
    assert!(status.success(), "{status}");
}
