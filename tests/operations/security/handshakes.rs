//! Handshakes that stall, end badly or are none: bounded in time and number, and nobody else notices.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::authority::{TestAuthority, ask, runtime};

/// True if the other side closes the connection in time.
fn is_closed(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Connections that say nothing, or the begin of a handshake.
fn stalled(address: std::net::SocketAddr, count: usize) -> Vec<TcpStream> {
    let begin_of_handshake = [0x16, 3, 1, 2, 0, 1];
    let one = |number| {
        let mut stream = TcpStream::connect(address).unwrap();
        if number % 2 == 0 {
            stream.write_all(&begin_of_handshake).unwrap();
        }
        stream
    };
    (0..count).map(one).collect()
}

#[test]
fn handshakes_that_stall_give_way_and_end() {
    let authority = TestAuthority::new(&["admin"]);
    let runtime = runtime();
    // In number: the first ones make room, long before their time is over.
    let program = authority.serve(&["--handshakes", "4", "--handshake-ms", "600000"]);
    let options = authority.options(program.grpc, Some("admin"));
    let mut held = stalled(program.grpc, 40);
    for _ in 0..5 {
        runtime.block_on(ask(&options)).unwrap();
    }
    let last = held.split_off(35);
    for stream in held {
        assert!(is_closed(stream));
    }
    drop(last);
    // In time.
    let program = authority.serve(&["--handshake-ms", "300"]);
    let options = authority.options(program.grpc, Some("admin"));
    for stream in stalled(program.grpc, 10) {
        assert!(is_closed(stream));
    }
    runtime.block_on(ask(&options)).unwrap();
}

#[test]
fn what_is_no_handshake_ends_with_its_connection() {
    let authority = TestAuthority::new(&["admin"]);
    let program = authority.serve(&[]);
    let mut halves: Vec<Vec<u8>> = vec![
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        vec![0; 4_096],
        vec![0x16, 3, 3, 0xff, 0xff],
        // An alert, and a record of application data.
        vec![0x15, 3, 3, 0, 2, 2, 40],
        vec![0x17, 3, 3, 0, 3, 1, 2, 3],
    ];
    halves.extend((0..20_u8).map(|seed| (0..200_u8).map(|at| at.wrapping_mul(seed) ^ seed).collect()));
    for bytes in halves {
        for address in [program.grpc, program.http] {
            let mut stream = TcpStream::connect(address).unwrap();
            // The server may have closed it before everything is written.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            assert!(is_closed(stream), "{bytes:?}");
        }
    }
    let runtime = runtime();
    runtime
        .block_on(ask(&authority.options(program.grpc, Some("admin"))))
        .unwrap();
    let alarms = program.log();
    assert!(alarms.iter().all(|line| line["level"] != "ERROR"), "{alarms:?}");
}
