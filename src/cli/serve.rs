//! `pumice serve`: runs the service until a signal stops it.

use std::io::Write as _;

use super::CommandError;
use pumice::app;
use pumice::config::ServeArgs;
use pumice::telemetry;

/// Runs the service.
pub(super) async fn run(args: ServeArgs) -> Result<(), CommandError> {
    let said = |error: &dyn std::fmt::Display| CommandError::message(format!("error: {error}"));
    let print = args.print_config;
    let settings = args.resolve().map_err(|error| said(&error))?;
    if print {
        // A reader that goes away early has seen what it wanted.
        let _ = write!(std::io::stdout(), "{settings}");
        return Ok(());
    }
    let config = settings.config;
    let traces = telemetry::start_logging(&config.log_options()).map_err(|error| said(&error))?;
    telemetry::report_panics();
    let served = app::serve(config, shutdown_signal()).await;
    traces.stop().await;
    served.map_err(|error| said(&error))
}

/// Completes at the first SIGINT or SIGTERM.
async fn shutdown_signal() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = interrupted => {}
                _ = terminated.recv() => {}
            }
            return;
        }
    }
    // Without a handler there is nothing to wait for but the end of the process.
    if interrupted.await.is_err() {
        std::future::pending::<()>().await;
    }
}
