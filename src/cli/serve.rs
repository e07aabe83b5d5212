//! `pumice serve`: runs the service until a signal stops it.

use std::io::Write as _;

use crate::app;
use crate::config::ServeArgs;
use crate::telemetry;
use pumice_console::CommandError;

/// Runs the service.
pub(super) async fn run(args: ServeArgs) -> Result<(), CommandError> {
    // Before all else: a signal that comes while the server starts ends it as any other does.
    let shutdown = shutdown_signal();
    let print = args.print_config;
    let settings = args.resolve().map_err(CommandError::failed)?;
    if print {
        // A reader that goes away early has seen what it wanted.
        let _ = write!(std::io::stdout(), "{settings}");
        return Ok(());
    }
    let config = settings.config;
    let traces = telemetry::start_logging(&config.log_options()).map_err(CommandError::failed)?;
    telemetry::report_panics();
    let served = app::serve(config, shutdown).await;
    traces.stop().await;
    served.map_err(CommandError::failed)
}

/// Completes at the first SIGINT or SIGTERM after this call, however late it is awaited.
#[cfg(unix)]
pub(super) fn shutdown_signal() -> impl Future<Output = ()> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    let [mut interrupted, mut terminated] =
        [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok());
    async move {
        tokio::select! {
            () = received(&mut interrupted) => {}
            () = received(&mut terminated) => {}
        }
    }
}

/// Completes when the signal comes; never without a handler, as the signal itself ends the process then.
#[cfg(unix)]
async fn received(signal: &mut Option<tokio::signal::unix::Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Completes at the first Ctrl-C.
#[cfg(not(unix))]
pub(super) async fn shutdown_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
