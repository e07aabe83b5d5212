//! The first start of a server with `data_dir`: killed at any moment, or out of disk. Every later start succeeds.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::TestDirectory;
use crate::support::process::{ServeProcess, serve};

/// Starts a server on this directory, and waits until it serves.
fn start(directory: &Path) -> ServeProcess {
    ServeProcess::start(&["--data-dir", directory.to_str().unwrap()])
}

/// Time that a first start takes.
#[expect(
    clippy::disallowed_methods,
    reason = "kills are spread over the time that a start takes"
)]
fn first_start_time() -> Duration {
    let directory = TestDirectory::named("first-start");
    let began = Instant::now();
    start(&directory.0.join("data")).kill();
    began.elapsed()
}

/// Kills a server this long after its first start. True if it was making its store.
fn kill_after(wait: Duration, directory: &Path) -> bool {
    let mut command = serve();
    command.arg("--data-dir").arg(directory).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(wait);
    child.kill().unwrap();
    child.wait().unwrap();
    directory.join("pumice.id").exists() && !directory.join("pumice.redb").exists()
}

#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the command line of a test run is its environment, and the count is its result"
)]
fn a_server_that_was_killed_while_it_made_its_store_starts_again() {
    let kills = std::env::var("PUMICE_FIRST_STARTS")
        .ok()
        .and_then(|count| count.parse().ok());
    let kills: u32 = kills.unwrap_or(12);
    let whole = first_start_time();
    let mut while_making = 0;
    for kill in 0..kills {
        let directory = TestDirectory::named("first-start");
        let data = directory.0.join("data");
        while_making += u32::from(kill_after(whole * kill / kills, &data));
        start(&data).kill();
        start(&data).kill();
    }
    println!("{kills} kills, {while_making} of them while the store was made; every start succeeded");
}

#[test]
fn a_server_that_ran_out_of_disk_while_it_made_its_store_starts_again() {
    for kibibytes in [0, 4, 8, 64, 512, 1_024] {
        let directory = TestDirectory::named("first-start");
        let data = directory.0.join("data");
        let program = serve();
        let limited = format!("trap '' XFSZ; ulimit -f {kibibytes}; exec \"$@\"");
        let output = Command::new("bash")
            .args(["-c", &limited, "bash"])
            .arg(program.get_program())
            .args(program.get_args())
            .arg("--data-dir")
            .arg(&data)
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{kibibytes} KiB: {log}");
        assert!(log.contains("File too large"), "{kibibytes} KiB: {log}");
        assert!(!log.contains("panicked"), "{kibibytes} KiB: {log}");
        start(&data).kill();
    }
}

/// Fields of the line of the log that says what the store is like.
fn report(process: &ServeProcess) -> Vec<String> {
    let mut lines = process.start_log.iter();
    let line = lines.find(|line| line["message"] == "the store was checked").unwrap();
    ["made", "repaired", "reservations", "commits", "policies"]
        .map(|field| format!("{field} {}", line[field]))
        .to_vec()
}

#[test]
fn the_log_says_what_the_start_found() {
    let directory = TestDirectory::named("start-log");
    let data = directory.0.join("data");
    let empty = ["reservations 0", "commits 0"];
    let expect = |process: &ServeProcess, made: bool, repaired: bool, policies: u32| {
        let mut expected = vec![format!("made {made}"), format!("repaired {repaired}")];
        expected.extend(empty.map(str::to_owned));
        expected.push(format!("policies {policies}"));
        assert_eq!(report(process), expected);
    };
    let process = start(&data);
    expect(&process, true, false, 0);
    process.kill();
    let mut process = start(&data);
    expect(&process, false, true, 1);
    process.terminate();
    assert!(process.wait().success());
    expect(&start(&data), false, false, 1);
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_that_says_that_it_serves_takes_signals() {
    let directory = TestDirectory::named("signals");
    let process = start(&directory.0.join("data"));
    // SIGHUP, SIGINT and SIGTERM have handlers.
    let caught = process.caught_signals();
    for signal in [1, 2, 15] {
        assert!(caught & (1 << (signal - 1)) != 0, "{signal} in {caught:x}");
    }
    let mut process = process;
    process.terminate();
    assert!(process.wait().success());
}

#[test]
fn a_store_that_was_emptied_keeps_the_server_from_starting() {
    let directory = TestDirectory::named("emptied");
    let data = directory.0.join("data");
    start(&data).kill();
    std::fs::write(data.join("pumice.redb"), "").unwrap();
    let output = serve().arg("--data-dir").arg(&data).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("is damaged: the file is empty. Put back a copy of its directory"),
        "{said}"
    );
}
