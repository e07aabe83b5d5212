//! `pumice demo`: a server of its own for the scenes.

use crate::app;
use crate::config::ServerConfig;
use pumice_console::{CommandError, output};
use pumice_protocol::ClientConnection;
use pumice_simulation::demo::{DemoArgs, run_scenes};

/// Runs all scenes against a server of this process, on a free port.
pub(super) async fn run(args: DemoArgs) -> Result<(), CommandError> {
    let bound = app::bind(ServerConfig::on_free_ports())
        .await
        .map_err(CommandError::failed)?;
    let address = format!("http://{}", bound.grpc_address());
    let console = args
        .console
        .then(|| format!("http://{}/console/", bound.http_address()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    // A dropped sender means the same as a sent word: the demo is over.
    let server = pumice_state::tasks::spawn(bound.run(async move { drop(stopped.await) }));
    output::line(&format!(
        "pumice serves on {address}, under its built-in policy; every answer below is a call's."
    ))?;
    let result = run_scenes(ClientConnection::open(&address).await?, args).await;
    if let (Ok(()), Some(console)) = (&result, console) {
        // Ctrl-C is handled from before the line on.
        let (interrupted, printed) = tokio::join!(biased; tokio::signal::ctrl_c(), async {
            output::line(&format!("\nThe console is at {console}; Ctrl-C ends the demo."))
        });
        printed?;
        interrupted.map_err(CommandError::failed)?;
    }
    drop(stop);
    match server.await {
        Ok(Ok(())) => result,
        Ok(Err(error)) => Err(CommandError::failed(error)),
        Err(error) => Err(CommandError::message(format!("error: the server ended badly: {error}"))),
    }
}
