//! Writes the commit of the sources into the program, and lists the files of the console.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the console's files.
const CONSOLE: &str = "clients/console/dist";

/// Digits of a commit that are kept.
const COMMIT_DIGITS: usize = 12;

fn main() {
    if let Some(commit) = commit() {
        println!(
            "cargo::rustc-env=PUMICE_COMMIT={}",
            commit.chars().take(COMMIT_DIGITS).collect::<String>()
        );
    }
    write_console_files();
}

/// Writes `CONSOLE_FILES`: the files of the console, by path.
#[expect(clippy::disallowed_methods, reason = "a build script has no arguments")]
#[expect(clippy::expect_used, reason = "there is nobody to handle the error of a build")]
#[expect(
    clippy::unnecessary_debug_formatting,
    reason = "paths are written as literals of Rust"
)]
fn write_console_files() {
    println!("cargo::rerun-if-changed={CONSOLE}");
    let folder = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("a package")).join(CONSOLE);
    let mut files = Vec::new();
    list_files(&folder, &mut files);
    files.sort_unstable();
    let mut text = String::from("/// Files of the console, by path.\nstatic CONSOLE_FILES: &[ConsoleFile] = &[\n");
    for file in &files {
        let path = file.strip_prefix(&folder).expect("a file of the folder");
        writeln!(
            text,
            "    ConsoleFile {{ path: {path:?}, content: include_bytes!({file:?}) }},"
        )
        .expect("a text");
    }
    text.push_str("];\n");
    let out = std::env::var("OUT_DIR").expect("a folder for output");
    std::fs::write(Path::new(&out).join("console_files.rs"), text).expect("the list is written");
}

#[expect(clippy::expect_used, reason = "there is nobody to handle the error of a build")]
fn list_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder of the console") {
        let path = entry.expect("a file of the console").path();
        if path.is_dir() {
            list_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Commit of the sources: named by the builder, or of a package of crates.io, or of a checkout. Builds for tests have none,
/// so that a commit alone makes nobody compile again.
#[expect(clippy::disallowed_methods, reason = "a build script has no arguments")]
fn commit() -> Option<String> {
    println!("cargo::rerun-if-env-changed=PUMICE_COMMIT");
    if let Some(named) = std::env::var("PUMICE_COMMIT").ok().filter(|named| !named.is_empty()) {
        return Some(named);
    }
    if let Ok(package) = std::fs::read_to_string(".cargo_vcs_info.json") {
        let (_, rest) = package.split_once("\"sha1\": \"")?;
        return Some(rest.split_once('"')?.0.to_owned());
    }
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return None;
    }
    // Sources inside another checkout have the commit of nobody.
    if !Path::new(".git").exists() {
        return None;
    }
    // The head changes its text with the branch, and its log with each commit.
    for file in ["HEAD", "logs/HEAD"] {
        println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", file])?);
    }
    git(&["rev-parse", "HEAD"])
}

/// First line of what git says, if this is a checkout of its own.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
