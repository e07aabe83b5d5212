//! What the process tells of itself: log lines, traces, and instruments that one layer around all calls measures with.

mod measure;
mod metrics;
mod process;

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

pub use measure::{Measure, MeasureLayer};
pub use metrics::{Metrics, ReloadOutcome};

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging to the standard error. `filter` is a level such as `info`, or directives such as `pumice=debug`.
///
/// # Errors
/// The filter cannot be read, or logging was started before.
pub fn start_logging(filter: &str, format: LogFormat) -> Result<(), LoggingError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| LoggingError::Filter(error.to_string()))?;
    let logger = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => logger.try_init(),
        LogFormat::Json => logger.json().try_init(),
    };
    started.map_err(|error| LoggingError::Started(error.to_string()))
}

/// Why logging could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoggingError {
    /// The filter cannot be read.
    #[error("the log filter cannot be read: {0}")]
    Filter(String),
    /// Logging was started before.
    #[error("logging cannot be started: {0}")]
    Started(String),
}
