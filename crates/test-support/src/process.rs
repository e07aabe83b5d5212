//! Real program as a process of its own.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use serde_json::Value;

use super::EmbeddedServer;

/// The program under test: the one of this build, or the file that `PUMICE_BIN` names, so that measurements can take an
/// optimised one.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line of a test run is its environment"
)]
pub fn program_file() -> String {
    std::env::var("PUMICE_BIN").unwrap_or_else(|_| built_program())
}

/// Command `pumice serve` on free ports, to be given more arguments.
pub fn serve() -> Command {
    let mut command = Command::new(program_file());
    command.env_remove("PUMICE_BIN").args([
        "serve",
        "--grpc-address",
        "127.0.0.1:0",
        "--http-address",
        "127.0.0.1:0",
    ]);
    command
}

/// Runs `pumice` against a server; `None`: one that does not exist.
pub fn pumice(server: Option<&EmbeddedServer>, arguments: &[&str]) -> Output {
    let address = server.map_or_else(|| "127.0.0.1:1".to_owned(), |server| server.grpc.to_string());
    Command::new(program_file())
        .args(arguments)
        .env("PUMICE_SERVER", address)
        .output()
        .unwrap()
}

pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Running `pumice serve` on free ports. It is killed when it is dropped.
pub struct ServeProcess {
    child: Child,
    /// Address of gRPC.
    pub grpc: SocketAddr,
    /// Address of probes and metrics.
    pub http: SocketAddr,
    /// Log lines before it served.
    pub start_log: Vec<Value>,
    log: Option<std::thread::JoinHandle<()>>,
}

impl ServeProcess {
    /// Starts the process, and waits until it reports its addresses.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_in(arguments, &[])
    }

    /// Starts the process with variables of the environment.
    pub fn start_in(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::try_start_in(arguments, environment).unwrap_or_else(|said| panic!("it ended before it served: {said:?}"))
    }

    /// Starts the process; one that ends before it serves is an error, which has its log lines.
    pub fn try_start_in(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self, Vec<Value>> {
        let mut command = serve();
        command.args(["--log", "info", "--log-format", "json"]).args(arguments);
        command.envs(environment.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let serving = loop {
            let Some(line) = lines.next() else {
                child.wait().unwrap();
                return Err(said);
            };
            let line = line.unwrap();
            let value = serde_json::from_str(&line).unwrap_or_else(|_| Value::from(&*line));
            if value["message"] == "serving" {
                break value;
            }
            assert!(!line.contains("serving"), "a log line of another shape: {line}");
            said.push(value);
        };
        let address = |name: &str| serving[name].as_str().unwrap().parse().unwrap();
        let (grpc, http) = (address("grpc"), address("http"));
        // The rest of the log is read, so that a full pipe does not block the process.
        let log = std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            child,
            grpc,
            http,
            start_log: said,
            log: Some(log),
        })
    }

    /// Kills the process, as a failing machine would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.wait();
    }

    /// Asks the process to stop.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Signals that the process has handlers for: a bit each.
    #[cfg(target_os = "linux")]
    pub fn caught_signals(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    }

    /// Suspends the process, as an overloaded machine would.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Resumes the process.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits until the process has ended.
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        if let Some(log) = self.log.take() {
            log.join().unwrap();
        }
        status
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _: Result<(), _> = self.child.kill();
        let _: Result<ExitStatus, _> = self.child.wait();
    }
}

/// The program of this build: it lies beside the folder of the running test.
fn built_program() -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(std::path::Path::parent).unwrap();
    let program = folder.join("pumice");
    assert!(
        program.exists(),
        "{} is missing: cargo build --bin pumice",
        program.display()
    );
    program.display().to_string()
}

/// Runs `pumice`, which must end with this code. Returns its output.
pub fn ends(server: Option<&EmbeddedServer>, arguments: &[&str], code: i32) -> String {
    let output = pumice(server, arguments);
    let said = format!("{}{}", out(&output), err(&output));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}
