//! The active TLS configuration, reloaded when its files change.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::files::{TlsContent, TlsMaterial, TlsPaths, age};
use crate::file_looks::{FileError, FileLook, FileLooks};
use crate::server::wait_until_true;
use crate::telemetry::Metrics;
use pumice_state::{Clock as _, SystemClock};

/// Time before the end of the certificate at which the server begins to warn, in seconds.
const EXPIRY_WARNING: u64 = 7 * 86_400;
/// Seconds between two warnings of a certificate that expires.
const EXPIRY_PERIOD: u64 = 86_400;

/// Keeper of the active TLS configuration: it provides the configuration for new connections and loads changed files.
pub struct TlsKeeper {
    paths: TlsPaths,
    poll: Duration,
    clock: SystemClock,
    metrics: Arc<Metrics>,
    material: ArcSwap<TlsMaterial>,
    problem: ArcSwapOption<FileError>,
}

impl fmt::Debug for TlsKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKeeper")
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

impl TlsKeeper {
    /// Loads the files for the first time. Blocks.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub fn load(paths: TlsPaths, poll: Duration, metrics: Arc<Metrics>) -> Result<TlsStart, FileError> {
        let clock = SystemClock::default();
        let content = paths.read()?;
        let material = paths.build(&content, clock.wall().as_secs())?;
        let keeper = Self {
            material: ArcSwap::from_pointee(material),
            problem: ArcSwapOption::empty(),
            paths,
            poll,
            clock,
            metrics,
        };
        keeper.report("TLS is in force");
        Ok(TlsStart {
            keeper: Arc::new(keeper),
            content,
        })
    }

    /// Acceptor of the next connection of the gRPC services.
    pub fn grpc(&self) -> TlsAcceptor {
        self.material.load().grpc.clone()
    }

    /// Acceptor of the next connection for probes and metrics.
    pub fn http(&self) -> TlsAcceptor {
        self.material.load().http.clone()
    }

    /// Description of the active files, and the reason if the present files were rejected, for people.
    pub fn status(&self) -> String {
        let now = self.clock.wall().as_secs();
        let end = self.material.load().not_after;
        let valid = match end.checked_sub(now) {
            Some(left) => format!("the certificate is valid for another {}", age(left)),
            None => format!("the certificate expired {} ago", age(now - end)),
        };
        match self.problem.load_full() {
            None => valid,
            Some(error) => format!("the files on disk were refused, the former ones are in force: {error}; {valid}"),
        }
    }

    fn report(&self, message: &'static str) {
        let material = self.material.load();
        let now = self.clock.wall().as_secs();
        let valid = age(material.not_after.saturating_sub(now));
        let (path, authorities) = (self.paths.certificate.display(), material.authorities);
        tracing::info!(certificate = %path, valid, authorities, client_auth = ?self.paths.client_auth, "{message}");
        self.metrics.security.record_certificate(material.not_after);
    }

    /// Polls the files once. Content that two consecutive polls have read is tried once.
    async fn look(&self, looks: &mut FileLooks<TlsContent>) {
        let paths = self.paths.clone();
        let read = pumice_state::tasks::run_blocking(move || paths.read()).await;
        let Ok(read) = read else { return };
        match looks.observe(read) {
            FileLook::Nothing => {}
            FileLook::Unreadable(error) => self.refuse(error),
            FileLook::InForce => {
                if self.problem.swap(None).is_some() {
                    self.metrics.security.tls.set_refused(false);
                    tracing::info!("the files of TLS are again those that are in force");
                }
            }
            FileLook::Changed(content) => match self.paths.build(&content, self.clock.wall().as_secs()) {
                Ok(material) => {
                    self.material.store(Arc::new(material));
                    self.problem.store(None);
                    self.metrics.security.tls.record_reload(true);
                    self.report("changed files of TLS are in force for new connections");
                    looks.put_in_force(content);
                }
                Err(error) => self.refuse(error),
            },
        }
    }

    fn refuse(&self, error: FileError) {
        if self.problem.load().as_deref() == Some(&error) {
            return;
        }
        tracing::error!(%error, "the files of TLS are refused; the former ones stay in force");
        self.metrics.security.tls.record_reload(false);
        self.problem.store(Some(Arc::new(error)));
    }

    fn warn_of_expiry(&self, warned: &mut Option<u64>) {
        let now = self.clock.wall().as_secs();
        let left = self.material.load().not_after.saturating_sub(now);
        let due = warned.is_none_or(|last| now.saturating_sub(last) >= EXPIRY_PERIOD);
        if left < EXPIRY_WARNING && due {
            *warned = Some(now);
            tracing::warn!(certificate = %self.paths.certificate.display(), left = age(left), "the certificate of the server expires");
        }
    }
}

/// TLS that was loaded, and is not watched yet.
#[derive(Debug)]
pub struct TlsStart {
    /// Keeper of the active TLS configuration.
    pub keeper: Arc<TlsKeeper>,
    content: TlsContent,
}

impl TlsStart {
    /// Follows the files until the server drains.
    pub async fn watch_files(self, draining: watch::Receiver<bool>) {
        let Self { keeper, content } = self;
        let mut looks = FileLooks::new(content);
        let mut warned = None;
        let work = async {
            loop {
                keeper.warn_of_expiry(&mut warned);
                if keeper.poll.is_zero() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(keeper.poll).await;
                keeper.look(&mut looks).await;
            }
        };
        tokio::select! {
            () = work => {}
            () = wait_until_true(draining) => {}
        }
    }
}
