//! Programs of Go that live as long as the process: inputs go to them in batches, and their results are compared.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Folder of the programs, as `make fuzz` builds them.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/fuzz");
/// Largest number of inputs of a batch.
const BATCH_INPUTS: usize = 128;
/// Largest number of bytes of a batch: a pipe holds them, so that no side waits for the other one.
const BATCH_BYTES: usize = 16 << 10;

thread_local! {
    static PROGRAMS: RefCell<BTreeMap<&'static str, GoProgram>> = const { RefCell::new(BTreeMap::new()) };
}

/// Rule by which two results agree: the own one, theirs, and the input.
pub type Agreement = fn(&str, &str, &str) -> bool;

/// Running program, and the inputs that it has not got yet.
#[derive(Debug)]
pub struct GoProgram {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pending: Vec<(String, String, Agreement)>,
    pending_bytes: usize,
    compared: u64,
}

impl GoProgram {
    fn start(name: &str) -> Self {
        let path = Path::new(FOLDER).join(name);
        let child = Command::new(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            child.unwrap_or_else(|error| panic!("{}: {error}; `make fuzz` builds it with Go", path.display()));
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            pending: Vec::new(),
            pending_bytes: 0,
            compared: 0,
        }
    }

    /// Compares the own result of an input with that of a program, in a while.
    pub fn compare(name: &'static str, input: &str, own: String, agree: Agreement) {
        PROGRAMS.with_borrow_mut(|programs| {
            let program = programs.entry(name).or_insert_with(|| Self::start(name));
            program.pending_bytes += input.len() * 2 + 1;
            program.pending.push((input.to_owned(), own, agree));
            if program.pending.len() >= BATCH_INPUTS || program.pending_bytes >= BATCH_BYTES {
                program.exchange();
            }
        });
    }

    /// Compares what is left of all programs, and ends them; the number of inputs that were compared.
    pub fn finish() -> u64 {
        let programs = PROGRAMS.with_borrow_mut(std::mem::take);
        let mut compared = 0;
        for (_, mut program) in programs {
            program.exchange();
            drop(program.input);
            assert!(program.child.wait().unwrap().success());
            compared += program.compared;
        }
        compared
    }

    fn exchange(&mut self) {
        let mut lines = String::with_capacity(self.pending_bytes);
        for (input, ..) in &self.pending {
            for byte in input.bytes() {
                write!(lines, "{byte:02x}").unwrap();
            }
            lines.push('\n');
        }
        self.input.write_all(lines.as_bytes()).unwrap();
        self.pending_bytes = 0;
        for (input, own, agree) in std::mem::take(&mut self.pending) {
            let mut theirs = String::new();
            assert!(self.output.read_line(&mut theirs).unwrap() > 0, "the program ended");
            let theirs = theirs.trim_end_matches('\n');
            assert!(
                agree(&own, theirs, &input),
                "{input:?}\n  here  {own}\n  there {theirs}"
            );
            self.compared += 1;
        }
    }
}
