//! Callers who want to write the operator's log.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use pumice::server::pb;

use crate::operate::program::LoggedProcess;
use crate::support::process::serve;
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
