//! Callers of the HTTP port who keep connections, or give scrapes up.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use pumice::server::pb;

use super::broken_calls::assert_no_server_error;
use super::transport::{PATIENCE, probe};
use crate::support::program::LoggedProcess;

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
    crate::support::until("a scrape is answered", || probe(program.http, "/metrics") == Some(200));
}

/// First bytes of a client that speaks TLS to a plain port: a record that announces a hello of 512 bytes, then zeros.
fn tls_hello() -> Vec<u8> {
    let mut hello = vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
    hello.resize(517, 0);
    hello
}

#[test]
fn callers_of_another_protocol_end_with_their_connection() {
    let program = LoggedProcess::serve(&[]);
    let odd: [(&str, Vec<u8>); 4] = [
        ("TLS", tls_hello()),
        ("HTTP/1.1", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("a line of text", b"hello\r\n\r\nhello, is there anybody?\r\n".to_vec()),
        ("zeros", vec![0; 4_096]),
    ];
    for (what, bytes) in odd {
        let mut stream = TcpStream::connect(program.grpc).unwrap();
        let _ = stream.write_all(&bytes);
        assert!(is_closed(&stream), "{what}");
        assert_eq!(probe(program.http, "/livez"), Some(200), "after {what}");
    }
    let info = program.connect().get_server_info(pb::GetServerInfoRequest {});
    assert!(info.is_ok(), "{info:?}");
    assert_no_server_error(&program);
}

#[test]
fn odd_requests_of_the_http_port_end_with_their_connection() {
    let program = LoggedProcess::serve(&["--http-header-ms", "500"]);
    let begin = b"GET /livez HTTP/1.1\r\nHost: x\r\n".to_vec();
    let many_headers = "x: y\r\n".repeat(5_000);
    let odd: Vec<(&str, Vec<u8>)> = vec![
        ("pipelined", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1_000)),
        ("a long header", [&*begin, b"x: ", &[b'y'; 1 << 20]].concat()),
        ("many headers", [&*begin, many_headers.as_bytes(), b"\r\n"].concat()),
        (
            "a long path",
            [b"GET /".as_slice(), &[b'a'; 1 << 20], b" HTTP/1.1\r\n\r\n"].concat(),
        ),
        ("half a request line", b"GET /metri".to_vec()),
        (
            "a body without an end",
            b"POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nff\r\na".to_vec(),
        ),
        (
            "a body of the wrong length",
            b"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\na".to_vec(),
        ),
        (
            "a length that is no number",
            b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_vec(),
        ),
        (
            "an upgrade",
            b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n".to_vec(),
        ),
        (
            "a body that waits for leave",
            b"POST /livez HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n".to_vec(),
        ),
        ("TLS", tls_hello()),
        ("no HTTP", vec![0; 4_096]),
        ("nothing", Vec::new()),
    ];
    for (what, bytes) in odd {
        let mut stream = TcpStream::connect(program.http).unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(&bytes);
        assert!(is_closed(&stream), "{what}");
        assert_eq!(probe(program.http, "/livez"), Some(200), "after {what}");
    }
    assert_no_server_error(&program);
}
