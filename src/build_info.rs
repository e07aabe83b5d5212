//! Version and commit of the program.

/// Version of the program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit that the program was built from, shortened; `unknown` for builds for tests, and for sources without history.
pub const fn commit() -> &'static str {
    match option_env!("PUMICE_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    }
}

/// Version and commit, as `--version` prints them.
pub fn version_line() -> String {
    format!("{VERSION} (commit {})", commit())
}
