//! Writes the commit of the sources into the program.

use std::process::Command;

/// Digits of a commit that are kept.
const COMMIT_DIGITS: usize = 12;

fn main() {
    if let Some(commit) = commit() {
        println!(
            "cargo::rustc-env=PUMICE_COMMIT={}",
            commit.chars().take(COMMIT_DIGITS).collect::<String>()
        );
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
    if !std::path::Path::new(".git").exists() {
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
