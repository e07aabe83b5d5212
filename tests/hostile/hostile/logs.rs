//! Callers who want to write the operator's log.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use pumice::server::pb;

use crate::support::process::serve;
use crate::support::program::LoggedProcess;
use crate::support::wire::BlockingClients;

fn rejected_policy(name: &str) -> pb::ReloadPolicyRequest {
    pb::ReloadPolicyRequest {
        name: name.to_owned(),
        document: "actions: allocate\n".to_owned(),
        ..pb::ReloadPolicyRequest::default()
    }
}

#[test]
fn a_name_writes_no_long_line() {
    let program = LoggedProcess::serve(&[]);
    let refused = program.connect().reload_policy(rejected_policy(&"n".repeat(8 << 20)));
    assert!(refused.is_err());
    let longest = program.log().iter().map(|line| line.to_string().len()).max();
    assert!(longest.is_some_and(|longest| longest < 3_000), "{longest:?}");
}

/// Frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

#[test]
fn a_flood_of_resets_writes_few_lines() {
    let program = LoggedProcess::serve(&[]);
    // POST http /, and CANCEL.
    let (post, cancel) = ([0x83, 0x86, 0x84], [0, 0, 0, 8]);
    let streams = (0..100).map(|number| 2 * number + 1);
    let resets = streams.flat_map(|stream| [frame(1, 4, stream, &post), frame(3, 0, stream, &cancel)].concat());
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let flood: Vec<u8> = preface.into_iter().chain(frame(4, 0, 0, &[])).chain(resets).collect();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(program.grpc).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(&flood);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let is_about_resets = |line: &serde_json::Value| line.to_string().contains("h2::");
    program.logged("the flood has a line", is_about_resets);
    let lines = program.log();
    let resets = lines.iter().filter(|line| is_about_resets(line)).count();
    assert!((1..=3).contains(&resets), "{resets} lines");
}

#[test]
fn a_name_writes_no_line_of_its_own() {
    let mut child = serve().args(["--log", "info"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("serving") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0);
    }
    let address = line
        .split("grpc=")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let runtime = super::transport::runtime();
    let wire = BlockingClients::connect(std::sync::Arc::new(runtime), address.unwrap().parse().unwrap());
    let forged = "x\n2026-01-01T00:00:00Z ERROR pumice: the disk is gone\r\u{1b}[2Jy";
    assert!(wire.reload_policy(rejected_policy(forged)).is_err());
    child.kill().unwrap();
    child.wait().unwrap();
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("policy not changed"), "{rest}");
    assert!(!rest.lines().any(|line| line.starts_with("2026-01-01")), "{rest}");
    assert!(!rest.contains('\u{1b}') && !rest.contains('\r'), "{rest:?}");
}
