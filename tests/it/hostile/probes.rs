//! Callers of the HTTP port who keep connections, or give scrapes up.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::transport::{PATIENCE, probe};
use crate::operate::program::LoggedProcess;

/// Connections with a request that does not end.
fn unfinished(program: &LoggedProcess, count: usize) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(program.http).unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHo").unwrap();
        stream
    };
    (0..count).map(open).collect()
}

/// True if the server closes the connection, with or without an answer.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = stream.read_to_end(&mut Vec::new());
    end.map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |_| true)
}

#[test]
fn connections_that_send_no_request_do_not_keep_probes_out() {
    let program = LoggedProcess::serve(&["--http-header-ms", "3600000"]);
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(program.http).unwrap()).collect();
    let slow = unfinished(&program, 100);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(probe(program.http, path), Some(200), "{path}");
    }
    assert!(is_closed(&silent[0]), "the oldest makes room");
    drop((silent, slow));
}

#[test]
fn a_request_has_to_arrive_in_time_and_a_connection_ends_with_its_response() {
    let program = LoggedProcess::serve(&["--http-header-ms", "200"]);
    assert!(is_closed(&TcpStream::connect(program.http).unwrap()), "silent");
    assert!(is_closed(&unfinished(&program, 1)[0]), "unfinished");
    let mut lasting = TcpStream::connect(program.http).unwrap();
    lasting.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(is_closed(&lasting), "answered");
}

#[test]
fn a_probe_may_repeat_its_parameters() {
    let program = LoggedProcess::serve(&[]);
    for query in ["verbose&verbose", "verbose=1&verbose=2", "a=b&verbose", "%ff=%zz&&="] {
        assert_eq!(probe(program.http, &format!("/readyz?{query}")), Some(200), "{query}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn scrapes_that_are_given_up_leave_nothing_behind() {
    let program = LoggedProcess::serve(&[]);
    let mut threads = 0;
    for _ in 0..400 {
        let mut stream = TcpStream::connect(program.http).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        threads = threads.max(program.kernel_number("Threads"));
    }
    std::thread::sleep(Duration::from_millis(20));
    threads = threads.max(program.kernel_number("Threads"));
    assert!(threads < 30, "{threads} threads");
    assert_eq!(probe(program.http, "/livez"), Some(200));
    crate::operate::until("a scrape is answered", || probe(program.http, "/metrics") == Some(200));
}
