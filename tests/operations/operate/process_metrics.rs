//! Measurements of the process, under the names that all programs use.

use std::time::UNIX_EPOCH;

use super::program::LoggedProcess;
use super::{TestDirectory, metric_value};

#[test]
fn the_process_shows_the_usual_metrics() {
    let program = LoggedProcess::serve_with_files(2_000, &["--connections", "100"]);
    let value = |name: &str| metric_value(program.http, name);
    assert_eq!(value("process_max_fds"), 2_000.0);
    assert!((5.0..200.0).contains(&value("process_open_fds")));
    // The file system has a clock, too.
    let scratch = TestDirectory::new();
    let written = std::fs::metadata(scratch.file("now", "")).unwrap().modified().unwrap();
    let now = written.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let start = value("process_start_time_seconds");
    assert!((now - 300.0..now + 2.0).contains(&start), "{start} of {now}");
    let resident = value("process_resident_memory_bytes");
    assert!(resident > 1e6 && value("process_virtual_memory_bytes") > resident);
    assert!(value("process_threads") >= 2.0);
}

#[test]
fn the_version_and_the_commit_are_shown() {
    let program = LoggedProcess::serve(&[]);
    let output = super::program::command().arg("--version").output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let (version, commit) = line
        .trim()
        .strip_prefix("pumice ")
        .and_then(|line| line.strip_suffix(')')?.split_once(" (commit "))
        .unwrap_or_else(|| panic!("{line}"));
    let series = format!("pumice_build_info{{version=\"{version}\",commit=\"{commit}\"}}");
    assert_eq!(metric_value(program.http, &series), 1.0, "{series}");
}
