//! Servers, clients and records for the tests of this workspace.

pub mod authority;
pub mod constraints;
pub mod engine;
pub mod ledger;
pub mod limited_server;
pub mod process;
pub mod program;
pub mod records;
pub mod server;
pub mod wire;
pub mod yaml;

pub use server::EmbeddedServer;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pumice::server::pb;
use tonic::Status;
use tonic_types::StatusExt as _;

/// Reason code of an error; empty if it has none.
pub fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

use records::{hypothetical_task, node, nodes};

/// Directory that is removed with the test.
pub struct TestDirectory(pub PathBuf);

impl TestDirectory {
    pub fn new() -> Self {
        Self::named("test")
    }

    /// Directory with this in its name.
    pub fn named(what: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pumice-{what}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until a condition holds. If it never does, the server is wrong, however slow the machine.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Head and body of a page.
pub fn fetch(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

/// Value of one series of the metrics page; 0 if it is absent.
pub fn metric_value(address: SocketAddr, series: &str) -> f64 {
    let (_, page) = fetch(address, "/metrics");
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

/// Limit that an error names.
pub fn limit_of(status: &Status) -> String {
    let info = status.get_details_error_info();
    info.and_then(|info| info.metadata.get("limit").cloned())
        .unwrap_or_default()
}

/// Policy document that packs, made unique by a comment.
pub fn document(comment: &str) -> String {
    format!("# {comment}\nactions: allocate\ntiers:\n- plugins:\n  - name: binpack\n")
}

/// Cluster of `count` nodes.
pub fn cluster(count: usize) -> pb::Cluster {
    let one = |number| node(&format!("n{number:05}"), &[("cpu", "64"), ("memory", "256Gi")]);
    nodes((0..count).map(one).collect())
}

/// Request with `tasks` tasks, no two alike.
pub fn score_request(tasks: usize) -> pb::ScoreRequest {
    let one = |number: usize| hypothetical_task(&[("cpu", &format!("{}m", number + 1)), ("memory", "1Gi")]);
    pb::ScoreRequest {
        tasks: (0..tasks).map(one).collect(),
        limit: Some(1),
        ..pb::ScoreRequest::default()
    }
}

/// Limits that the server reports.
pub fn reported_limits(info: &pb::GetServerInfoResponse) -> BTreeMap<String, u64> {
    let limits = info.limits.iter();
    limits.map(|limit| (limit.name.clone(), limit.value)).collect()
}

/// Time in which a page must come, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Status of a page, if it comes in time.
pub fn probe(http: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect_timeout(&http, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    reply.split(' ').nth(1)?.parse().ok()
}
