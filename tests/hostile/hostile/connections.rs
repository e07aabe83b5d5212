//! Callers who open connections and keep them.

use std::net::TcpStream;

use pumice::server::pb;
use tonic::Code;

use super::transport::{HostileConnection, other_caller, probe, runtime};
use crate::support::{program::LoggedProcess, score_request, until};

#[test]
fn idle_connections_make_room_and_a_caller_keeps_its_own() {
    let program = LoggedProcess::serve(&["--connections", "8"]);
    let known = program.connect();
    known.score(score_request(1)).unwrap();
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(program.grpc).unwrap()).collect();
    runtime().block_on(async {
        // These answer pings as every client does.
        let mut pinging = Vec::new();
        for _ in 0..20 {
            pinging.push(HostileConnection::open(program.grpc, 1 << 20).await);
        }
        assert_eq!(other_caller(program.grpc).await, Code::Ok);
    });
    known.score(score_request(1)).unwrap();
    drop(silent);
    let said: Vec<_> = program.log();
    let warnings = said.iter().filter(|line| line["level"] == "WARN").count();
    assert!(warnings < 10, "{warnings} lines for 40 connections");
}

#[test]
fn the_memory_of_connections_that_have_ended_is_returned() {
    let program = LoggedProcess::serve(&[]);
    let resident = || program.kernel_number("VmRSS");
    std::thread::sleep(std::time::Duration::from_secs(3));
    let rest = resident();
    for _ in 0..2 {
        let idle: Vec<_> = (0..900).map(|_| TcpStream::connect(program.grpc).unwrap()).collect();
        until("they take memory", || resident() > rest + (8 << 10));
        drop(idle);
        until("it is returned", || resident() < rest * 6 / 5);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_server_takes_no_huge_pages() {
    assert_eq!(LoggedProcess::serve(&[]).kernel_number("THP_enabled"), 0);
}

#[test]
fn busy_connections_stay_and_a_new_one_is_refused() {
    let program = LoggedProcess::serve(&["--connections", "2"]);
    runtime().block_on(async {
        let mut busy = Vec::new();
        for _ in 0..2 {
            let connection = HostileConnection::open(program.grpc, 1 << 20).await;
            let call = connection.call(super::transport::SCORE).await.unwrap();
            busy.push((connection, call));
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let refused = tokio::net::TcpStream::connect(program.grpc).await.unwrap();
        refused.readable().await.unwrap();
        assert_eq!(refused.try_read(&mut [0; 16]).unwrap_or(0), 0, "closed at once");
        assert!(busy.iter().all(|(connection, _)| !connection.driver.is_finished()));
    });
}

#[test]
fn few_files_bound_the_connections_and_keep_the_probes() {
    let program = LoggedProcess::serve_with_files(260, &[]);
    let bounded = |info: pb::GetServerInfoResponse| {
        let limits = info.limits.into_iter();
        limits
            .filter(|limit| limit.name == "connections")
            .map(|limit| limit.value)
            .sum::<u64>()
    };
    let connections = bounded(program.connect().get_server_info(pb::GetServerInfoRequest {}).unwrap());
    assert!((8..200).contains(&connections), "{connections}");
    program.logged("the bound has a line", |line| {
        line["connections"] == connections && line["open_files"] == 260
    });
    let held: Vec<_> = (0..400).filter_map(|_| TcpStream::connect(program.grpc).ok()).collect();
    let scrapes: Vec<_> = (0..200).filter_map(|_| TcpStream::connect(program.http).ok()).collect();
    assert_eq!(probe(program.http, "/livez"), Some(200));
    assert_eq!(runtime().block_on(other_caller(program.grpc)), Code::Ok);
    drop((held, scrapes));
    until("they are gone", || probe(program.http, "/readyz") == Some(200));
}

#[test]
fn an_address_for_everybody_is_warned_of() {
    let program = LoggedProcess::serve(&["--http-address", "0.0.0.0:0", "--insecure=http"]);
    let is_warning = |line: &serde_json::Value| line["level"] == "WARN" && line["setting"] == "http_address";
    program.logged("the address has a line", is_warning);
    let said = program.log();
    assert_eq!(said.iter().filter(|line| is_warning(line)).count(), 1, "{said:?}");
}
