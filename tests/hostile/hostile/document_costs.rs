//! Costs of documents made to hurt, in the processes that read them: policies, settings, profiles, dumps and cases.

use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pumice::server::pb;

use super::broken_calls::assert_no_server_error;
use super::documents::documents;
use super::transport::other_caller;
use crate::support::program::{LoggedProcess, command};
use crate::support::{TestDirectory, fetch};

/// Most memory that a process of a command may have needed, in KiB.
const MOST_MEMORY: u64 = 384 << 10;
/// Most memory that documents may add to that of a server, in KiB.
const MOST_GROWTH: u64 = 256 << 10;
/// Longest text that a command may write, in bytes.
const MOST_TEXT: usize = 8 << 10;

/// Documents for all readers, and some of each reader's own shape.
fn hostile_texts() -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = documents()
        .into_iter()
        .map(|(what, text)| (what.to_owned(), text))
        .collect();
    let mut add = |what: &str, text: String| texts.push((what.to_owned(), text));
    let key = "k".repeat(1 << 20);
    add("a large key", format!("{key}: 1\n"));
    add("an escape in a key", format!("\"\\e[2J{}\": 1\n", "k".repeat(10_000)));
    add("one key many times", "calls: 1\n".repeat(50_000));
    add("a large number", format!("calls: {}\n", "9".repeat(1 << 20)));
    add(
        "lists of JSON",
        format!("{{\"items\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000)),
    );
    add(
        "maps of JSON",
        format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000)),
    );
    add(
        "JSON without an end",
        format!("{{\"items\": [{}", "{\"kind\":\"Node\"},".repeat(20_000)),
    );
    add(
        "a large text of JSON",
        format!("{{\"kind\": \"{}\"}}", "x".repeat(4 << 20)),
    );
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 1}}}";
    let mut nodes = format!("kind: List\na0: &a0 [{node}]\n");
    for level in 1..30 {
        let _ = writeln!(nodes, "a{level}: &a{level} [*a{0}, *a{0}, *a{0}, *a{0}]", level - 1);
    }
    add("objects that multiply", format!("{nodes}items: *a29\n"));
    let labels = "&l {x: &t \"tttttttttttttttttttttttttttttttttttttttttttttttt\"}";
    let mut label = String::new();
    for number in 0..60_000 {
        let _ = write!(label, "y{number}: *t, ");
    }
    add(
        "a text that is repeated",
        format!("kind: List\nl: {labels}\nitems:\n- {{kind: Node, metadata: {{name: n, labels: {{{label}}}}}}}\n"),
    );
    add(
        "cases that multiply",
        format!(
            "cases: &c\n- &d {{name: x, cluster: {{nodes: [*d]}}}}\n{}",
            "- *d\n".repeat(20_000)
        ),
    );
    texts
}

/// Most memory that a process ever had, in KiB, as of the last look.
fn peak_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Runs a command to its end. Returns its most memory, and what it wrote.
fn run(mut child: Child) -> (std::process::ExitStatus, u64, String) {
    let (mut errors, mut written) = (child.stderr.take().unwrap(), child.stdout.take().unwrap());
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        errors.read_to_end(&mut text).map(|_| text)
    });
    let written = std::thread::spawn(move || {
        let mut text = Vec::new();
        written.read_to_end(&mut text).map(|_| text)
    });
    let mut peak = 0;
    let status = loop {
        peak = peak_memory(child.id()).unwrap_or(0).max(peak);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    let text = [errors, written].map(|reader| reader.join().unwrap().unwrap()).concat();
    (status, peak, String::from_utf8_lossy(&text).into_owned())
}

/// Commands that read the file.
fn commands(file: &Path, server: &str) -> Vec<Command> {
    let file = file.to_str().unwrap();
    let lines: &[&[&str]] = &[
        &["policy", "check", file],
        &["policy", "diff", file, file],
        &["policy", "push", "--dry-run", "--server", server, file],
        &["serve", "--print-config", "--config", file],
        &["--client-config", file, "sessions"],
        &["policy", "test", file],
        &["simulate", file],
        &["state", "load", "--server", server, file],
    ];
    let with = |arguments: &&[&str]| {
        let mut command = command();
        command.args(*arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    lines.iter().map(with).collect()
}

#[test]
fn hostile_documents_cost_a_process_little_and_end_no_command() {
    let program = LoggedProcess::serve(&[]);
    let server = format!("http://{}", program.grpc);
    let directory = TestDirectory::new();
    let at_rest = program.kernel_number("VmHWM");
    for (what, text) in hostile_texts() {
        let file = directory.file("document", &text);
        for mut command in commands(&file, &server) {
            let shown = format!("{what}: {:?}", command.get_args().collect::<Vec<_>>());
            let (status, peak, said) = run(command.spawn().unwrap());
            assert_eq!(status.signal(), None, "{shown}: {said:.2000}");
            assert!(matches!(status.code(), Some(0..=2)), "{shown}: {status}, {said:.2000}");
            assert!(!said.contains("panicked"), "{shown}: {said:.2000}");
            assert!(said.len() <= MOST_TEXT, "{shown}: {} bytes: {said:.2000}", said.len());
            assert!(!said.contains('\u{1b}'), "{shown}: {said:.2000}");
            assert!(peak <= MOST_MEMORY, "{shown}: {peak} KiB");
            assert!(
                status.success() || said.contains("error"),
                "{shown}: says no error: {said:.2000}"
            );
        }
        let reload = pb::ReloadPolicyRequest {
            document: text,
            dry_run: true,
            ..pb::ReloadPolicyRequest::default()
        };
        assert!(program.connect().reload_policy(reload).is_err(), "{what}");
        let grown = program.kernel_number("VmHWM").saturating_sub(at_rest);
        assert!(grown <= MOST_GROWTH, "{what}: the server grew by {grown} KiB");
    }
    assert_eq!(
        super::transport::runtime().block_on(other_caller(program.grpc)),
        tonic::Code::Ok
    );
    let (_, page) = fetch(program.http, "/metrics");
    assert!(page.contains("pumice_panics_total 0"), "{page:.500}");
    assert_no_server_error(&program);
}
