//! Calls as JSON on the HTTP port, as a caller with nothing but an HTTP client makes them.

mod console;
mod equal_calls;
mod refused_calls;
mod rights;
mod streams;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

/// Response of the HTTP port.
pub(super) struct HttpReply {
    pub(super) status: u16,
    /// Headers in lower case.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl HttpReply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Code of an error.
    pub(super) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Detail of an error in its readable form.
    pub(super) fn detail(&self, kind: &str) -> Value {
        let error = self.json();
        let details = error["details"].as_array().cloned().unwrap_or_default();
        let found = details.into_iter().find(|detail| detail["type"] == kind);
        found.map_or(Value::Null, |mut detail| detail["debug"].take())
    }
}

/// Sends a request: its first line, its headers and its body. The body of the response is without its chunks.
pub(super) fn exchange(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpReply {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut head = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    // A server that rejects a request need not read its body.
    let _ = stream.write_all(body);
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let at = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&reply[..at]).to_lowercase();
    let body = reply.split_off(at + 4);
    let is_chunked = head.contains("transfer-encoding: chunked");
    HttpReply {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        body: if is_chunked { whole(&body) } else { body },
        head,
    }
}

/// Content of chunks.
fn whole(mut chunks: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = chunks.windows(2).position(|bytes| bytes == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).unwrap(), 16).unwrap();
        content.extend_from_slice(&chunks[end + 2..end + 2 + length]);
        chunks = &chunks[end + 4 + length..];
    }
    content
}

/// Calls a method with headers of its own. A header `Host` or `Content-Type` is in the place of the usual one.
pub(super) fn call_with(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpReply {
    let length = body.len().to_string();
    let mut all = vec![("Content-Length", length.as_str())];
    for usual in [("Host", "localhost"), ("Content-Type", "application/json")] {
        if !headers.iter().any(|(name, _)| *name == usual.0) {
            all.push(usual);
        }
    }
    all.extend(headers.iter().filter(|(_, value)| !value.is_empty()));
    exchange(address, &format!("POST /pumice.v1.{path}"), &all, body)
}

/// Calls a method such as `DecisionService/Score`.
pub(super) fn call(address: SocketAddr, path: &str, body: &str) -> HttpReply {
    call_with(address, path, &[], body.as_bytes())
}
