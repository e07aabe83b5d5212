//! Real program as a process of its own: its addresses, its memory and its processor time.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tonic::transport::{Channel, Endpoint};

use super::bare;

/// Program that is measured; unset: the one that was built with this one.
pub(crate) static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Running `pumice serve` on free ports and a Unix socket, or a bare server on a free port. It is ended when it is dropped.
#[derive(Debug)]
pub(crate) struct BenchServer {
    child: Child,
    tcp: String,
    folder: PathBuf,
}

impl BenchServer {
    /// Starts the process, and waits until it reports its addresses.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts the process with more flags.
    pub(crate) fn start_with(flags: &[String]) -> Self {
        let own = || PathBuf::from(env!("CARGO_BIN_EXE_pumice"));
        let free = "127.0.0.1:0";
        Self::spawn(|socket| {
            let mut command = Command::new(PROGRAM.get_or_init(own));
            command
                .args(["serve", "--grpc-address", free, "--http-address", free, "--grpc-socket"])
                .arg(socket)
                .args(["--log", "info", "--log-format", "json"])
                .args(flags);
            command
        })
    }

    /// Starts a bare server with this response, in hexadecimal digits.
    pub(crate) fn start_bare(response: &str) -> Self {
        let program = std::env::current_exe().expect("the path of this program");
        Self::spawn(|_| {
            let mut command = Command::new(program);
            command.args([bare::COMMAND, response]);
            command
        })
    }

    fn spawn(command: impl FnOnce(PathBuf) -> Command) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("pumice-report-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the socket");
        let mut child = command(folder.join("grpc.sock"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let log = child.stderr.take().expect("its log");
        let address = serving(log).expect("the server serves");
        Self {
            child,
            tcp: format!("http://{address}"),
            folder,
        }
    }

    /// Address over loopback.
    pub(crate) fn address(&self) -> String {
        self.tcp.clone()
    }

    /// Connection over loopback.
    pub(crate) async fn tcp(&self) -> Channel {
        connect(self.tcp.clone()).await
    }

    /// Connection over the Unix socket.
    pub(crate) async fn socket(&self) -> Channel {
        connect(format!("unix:{}", self.folder.join("grpc.sock").display())).await
    }

    /// Processor time used so far, in seconds; `None` where the system does not report it this way.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The name of the program may contain spaces: the numbers follow its closing parenthesis.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
        // A tick is a hundredth of a second wherever Linux runs.
        Some((ticks(11)? + ticks(12)?) / 100.0)
    }

    /// Processor time used since another moment, in seconds; 0 where the system does not report it this way.
    pub(crate) fn cpu_seconds_since(&self, before: Option<f64>) -> f64 {
        let both = self.cpu_seconds().zip(before);
        both.map_or(0.0, |(after, before)| after - before)
    }

    /// Memory in use, in bytes; `None` where the system does not report it this way.
    pub(crate) fn memory_bytes(&self) -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes = line.trim().trim_end_matches(" kB").parse::<f64>().ok()?;
        Some(kibibytes * 1024.0)
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        // The process may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Reads the log up to the address of the gRPC services. Goes on reading on a thread, so that a full pipe does not
/// block the process.
fn serving(log: ChildStderr) -> Option<String> {
    let mut lines = BufReader::new(log).lines().map_while(Result::ok);
    let address = lines.find_map(|line| {
        let line: Value = serde_json::from_str(&line).ok()?;
        let serving = line.get("message")? == "serving";
        serving.then(|| line.get("grpc").and_then(Value::as_str).map(str::to_owned))?
    });
    std::thread::spawn(move || lines.for_each(drop));
    address
}

async fn connect(address: String) -> Channel {
    let endpoint = Endpoint::from_shared(address).expect("an address");
    endpoint.connect().await.expect("a connection")
}
