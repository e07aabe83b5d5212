//! Callers of the extender protocols who take the room of schedulers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::broken_calls::assert_no_server_error;
use super::transport::{PATIENCE, probe};
use crate::support::program::LoggedProcess;

/// Largest body that the server takes, but for its last byte.
const LARGE: usize = 64 << 20;

/// Connection on which a request with a body of this length begins.
fn begin(address: SocketAddr, path: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Status of the response to a request.
fn post(address: SocketAddr, path: &str, body: &str) -> u16 {
    let mut stream = begin(address, path, body.len());
    stream.write_all(body.as_bytes()).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    let head = std::str::from_utf8(&head).unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Status of a request of kube-scheduler about no pod: any but 503 says that its body was read.
fn ask_filter(program: &LoggedProcess) -> u16 {
    post(
        program.http,
        "/kube-scheduler/filter",
        "{\"Pod\": {}, \"NodeNames\": []}",
    )
}

#[test]
fn bodies_that_do_not_come_leave_room_for_the_requests_of_schedulers() {
    let program = LoggedProcess::serve(&[]);
    let usual = ask_filter(&program);
    assert_ne!(usual, 503);
    // Headers only.
    let silent: Vec<TcpStream> = (0..8)
        .map(|_| begin(program.http, "/kube-scheduler/filter", LARGE))
        .collect();
    for _ in 0..20 {
        assert_eq!(ask_filter(&program), usual);
    }
    drop(silent);
    // All but the end: those that came first give way.
    let piece = vec![b' '; 1 << 20];
    let mut stalled: Vec<TcpStream> = Vec::new();
    for _ in 0..4 {
        let mut stream = begin(program.http, "/kube-scheduler/filter", LARGE);
        for _ in 0..LARGE / piece.len() - 1 {
            // One that has given way is closed.
            if stream.write_all(&piece).is_err() {
                break;
            }
        }
        stalled.push(stream);
    }
    let small: Vec<TcpStream> = (0..24)
        .map(|_| {
            let mut stream = begin(program.http, "/kube-scheduler/filter", piece.len());
            let _ = stream.write_all(&piece[1..]);
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(ask_filter(&program), usual);
        assert_eq!(probe(program.http, "/livez"), Some(200));
    }
    drop((stalled, small));
    assert_no_server_error(&program);
}

#[test]
fn invented_names_of_schedulers_take_no_session_of_another_one() {
    let program = LoggedProcess::serve(&[]);
    let ask =
        |scheduler: &str, verb: &str, body: &str| post(program.http, &format!("/volcano/{scheduler}/{verb}"), body);
    assert_eq!(ask("a-scheduler", "onSessionOpen", "{}"), 200);
    let before = sessions(&program);
    for number in 0..200 {
        let name = format!("0-invented-{number}");
        assert_eq!(ask(&name, "onSessionOpen", "{}"), 200);
    }
    assert!(sessions(&program) >= before);
    assert!(
        sessions(&program) <= before + 7.0,
        "sessions that are not kept are closed"
    );
    // Its place is kept from the end of one session to the next.
    assert_eq!(ask("a-scheduler", "onSessionClose", "{}"), 200);
    for number in 200..300 {
        assert_eq!(ask(&format!("0-invented-{number}"), "onSessionOpen", "{}"), 200);
    }
    let before = sessions(&program);
    assert_eq!(ask("a-scheduler", "onSessionOpen", "{}"), 200);
    assert!((sessions(&program) - before - 1.0).abs() < 0.5, "its session is kept");
}

/// Number of open sessions, by the metrics.
fn sessions(program: &LoggedProcess) -> f64 {
    let mut stream = TcpStream::connect(program.http).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let line = page.lines().find(|line| line.starts_with("pumice_sessions ")).unwrap();
    line.split_once(' ').unwrap().1.parse().unwrap()
}
