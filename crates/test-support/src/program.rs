//! Real program as a process of its own, with its log.

#![expect(clippy::disallowed_types, reason = "lines of a process, read by a test")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::limited_server::serve_command;
use crate::process::program_file;
use crate::until;
use crate::wire::BlockingClients;

/// Serving process. It is killed when it is dropped.
pub struct LoggedProcess {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
}

/// Command of the program, without settings of this process.
pub fn command() -> Command {
    let mut command = Command::new(program_file());
    let settings = |name: &str| name.starts_with("PUMICE_") || name.starts_with("OTEL_");
    for (name, _) in std::env::vars().filter(|(name, _)| settings(name)) {
        command.env_remove(name);
    }
    command
}

impl LoggedProcess {
    /// Serves on free ports with these flags.
    pub fn serve(flags: &[&str]) -> Self {
        Self::start(command(), flags)
    }

    /// Serves as `serve` does, with these variables in its environment.
    pub fn serve_with(environment: &[(&str, PathBuf)], flags: &[&str]) -> Self {
        let mut command = command();
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Self::start(command, flags)
    }

    /// Serves as `serve` does, with no more open files than this.
    pub fn serve_with_files(files: u32, flags: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        shell.args(["-c", &script]).arg(program_file());
        Self::start(shell, flags)
    }

    fn start(mut command: Command, flags: &[&str]) -> Self {
        if !flags.contains(&"--http-address") {
            command.env("PUMICE_HTTP_ADDRESS", "127.0.0.1:0");
        }
        let mut command = serve_command(command, flags);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (errors, logged) = (child.stderr.take().unwrap(), Arc::clone(&lines));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(errors).lines() {
                logged.lock().unwrap().push(line.unwrap());
            }
        });
        let mut program = Self {
            child,
            lines,
            reader: Some(reader),
            grpc: SocketAddr::from(([127, 0, 0, 1], 0)),
            http: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        until("it says where it serves", || program.find_addresses());
        program
    }

    /// Line of the kernel about the process, such as `VmRSS` or `Threads`: its number.
    pub fn kernel_number(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap()
    }

    /// Number of files that the process has open.
    pub fn open_files(&self) -> u64 {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        files.count() as u64
    }

    /// Lets `VmHWM`, the most memory of the process, begin again with what it has now.
    pub fn forget_peak_memory(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    fn find_addresses(&mut self) -> bool {
        let line = self.log().into_iter().find(|line| line["message"] == "serving");
        if let Some(line) = &line {
            self.grpc = line["grpc"].as_str().unwrap().parse().unwrap();
            self.http = line["http"].as_str().unwrap().parse().unwrap();
        }
        line.is_some()
    }

    /// Waits for a line: what a caller sees may come before the line about it is read.
    pub fn logged(&self, what: &str, is_line: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        until(what, || {
            found = self.log().into_iter().find(&is_line);
            found.is_some()
        });
        found.unwrap()
    }

    /// Lines logged up to now; each must be one object.
    pub fn log(&self) -> Vec<Value> {
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect()
    }

    pub fn connect(&self) -> BlockingClients {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        BlockingClients::connect(Arc::new(runtime.unwrap()), self.grpc)
    }

    /// Sends the process a signal, such as `HUP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// True if the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end of the process, and for the last line of its log.
    pub fn end(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
