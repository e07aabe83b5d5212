//! Policy file: read at the start, after a change of its content, and on SIGHUP.
//!
//! The file is polled. This works for plain writes, for a rename over the file and for the swapped links of a
//! Kubernetes `ConfigMap`, on every file system. New content is loaded after two consecutive polls have read the same
//! content. For example, with the default `policy_poll_ms` a change takes effect within about one second. A
//! half-written file is never loaded.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::convert::evaluation_ref::DEFAULT_POLICY;
use super::policy::warn_of_awaited_sources;
use super::policy_audit::reload_details;
use super::wait_until_true;
use crate::audit::{AuditAction, AuditEntry, AuditLog, AuditOutcome};
use crate::telemetry::Metrics;
use pumice_engine::policy::Compatibility;
use pumice_state::{PolicyError, PolicyOrigin, PolicyReload, ReloadedPolicy, SharedState};

/// Maximum number of errors of one document in the log.
const MAX_LOGGED: usize = 20;

/// Policy file and its status.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    path: PathBuf,
    poll: Duration,
    compatibility: Compatibility,
    max_bytes: usize,
    read_failure: Arc<ArcSwapOption<String>>,
    audit: Arc<AuditLog>,
}

impl PolicyFile {
    pub(crate) fn new(
        (path, max_bytes): (PathBuf, usize),
        poll: Duration,
        compatibility: Compatibility,
        audit: Arc<AuditLog>,
    ) -> Self {
        Self {
            path,
            poll,
            compatibility,
            max_bytes,
            read_failure: Arc::default(),
            audit,
        }
    }

    /// Path from the setting `policy_file`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Error of reading the file, if it cannot be read.
    pub fn read_failure(&self) -> Option<String> {
        self.read_failure.load_full().map(|failure| String::clone(&failure))
    }

    /// Content of the file. Content beyond the limit is cut a little above it, and then rejected with the limit's name.
    pub(crate) fn read(&self) -> io::Result<Arc<str>> {
        let mut content = Vec::new();
        let most = u64::try_from(self.max_bytes).unwrap_or(u64::MAX).saturating_add(1);
        File::open(&self.path)?.take(most).read_to_end(&mut content)?;
        if content.len() > self.max_bytes {
            return Ok(String::from_utf8_lossy(&content).into());
        }
        let text = String::from_utf8(content).map_err(|_| io::Error::other("it is not UTF-8 text"))?;
        Ok(text.into())
    }

    async fn poll_content(&self) -> Option<Arc<str>> {
        let file = self.clone();
        let read = pumice_state::tasks::run_blocking(move || file.read()).await;
        let read = read.unwrap_or_else(|_| Err(io::Error::other("a worker stopped")));
        match read {
            Ok(content) => {
                self.read_failure.store(None);
                Some(content)
            }
            Err(error) => {
                let error = error.to_string();
                if self.read_failure() != Some(error.clone()) {
                    tracing::warn!(path = %self.path.display(), error, "the policy file cannot be read");
                }
                self.read_failure.store(Some(Arc::new(error)));
                None
            }
        }
    }

    /// Reloads the policy with this content.
    pub(crate) async fn reload(
        &self,
        content: Arc<str>,
        by_hangup: bool,
        state: &Arc<SharedState>,
        metrics: &Metrics,
    ) -> Result<(), PolicyError> {
        let path = self.path.display().to_string();
        let origin = if by_hangup {
            PolicyOrigin::Hangup(path)
        } else {
            PolicyOrigin::File(path)
        };
        let target = origin.to_string();
        let reloaded = reload_policy(content, self.compatibility, origin, state, metrics).await;
        self.audit.record(AuditEntry {
            action: AuditAction::ReloadPolicy,
            outcome: AuditOutcome::of_reload(&reloaded),
            identity: "file".to_owned(),
            known_by: if by_hangup { "sighup" } else { "file" },
            address: String::new(),
            target: DEFAULT_POLICY.to_owned(),
            details: reload_details(&reloaded, target),
        });
        reloaded.map(drop)
    }

    /// Watches the file until the server drains. `taken`: the content that was loaded last.
    async fn watch_changes(
        &self,
        taken: Arc<str>,
        hangup: &mut HangupSignal,
        state: &Arc<SharedState>,
        metrics: &Metrics,
    ) {
        let mut looks = ContentDebounce {
            last_loaded: taken,
            last_seen: None,
        };
        loop {
            let by_hangup = tokio::select! {
                () = hangup.received() => true,
                () = poll_delay(self.poll) => false,
            };
            if let Some(content) = looks.observe(self.poll_content().await, by_hangup) {
                // The outcome is logged and counted there.
                drop(self.reload(content, by_hangup, state, metrics).await);
            }
        }
    }
}

/// Result of the last polls of the file.
#[derive(Debug)]
struct ContentDebounce {
    /// Content that was loaded last.
    last_loaded: Arc<str>,
    /// Content that was seen last; `None`: the file could not be read.
    last_seen: Option<Arc<str>>,
}

impl ContentDebounce {
    /// Content to load after this look. An operator's request (`asked`) loads the content as it is; otherwise a file
    /// that may be half-written is not loaded yet.
    fn observe(&mut self, content: Option<Arc<str>>, asked: bool) -> Option<Arc<str>> {
        let unchanged = content.is_some() && content == self.last_seen;
        self.last_seen.clone_from(&content);
        let content = content.filter(|content| asked || (unchanged && *content != self.last_loaded))?;
        self.last_loaded = Arc::clone(&content);
        Some(content)
    }
}

async fn poll_delay(poll: Duration) {
    if poll.is_zero() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(poll).await;
}

/// Activates a document, and records the outcome in log and metrics.
pub(crate) async fn reload_policy(
    document: Arc<str>,
    compatibility: Compatibility,
    origin: PolicyOrigin,
    state: &Arc<SharedState>,
    metrics: &Metrics,
) -> Result<ReloadedPolicy, PolicyError> {
    let (kind, from) = (origin.kind(), origin.to_string());
    let reload = PolicyReload {
        name: Arc::from(DEFAULT_POLICY),
        document,
        expected_version: None,
        dry_run: false,
        strict: false,
        compatibility,
        origin,
    };
    let reloaded = state.reload_policy(reload).await;
    metrics.record_reload(kind, &reloaded);
    match reloaded {
        Ok(reloaded) => {
            for warning in reloaded.version.report.warnings().take(MAX_LOGGED) {
                tracing::warn!(%warning, "policy");
            }
            for problem in reloaded.queue_problems.iter().take(MAX_LOGGED) {
                tracing::warn!(problem = problem.message, "policy");
            }
            warn_of_awaited_sources(DEFAULT_POLICY, &reloaded.awaited_sources);
            let (version, hash) = (reloaded.version.in_force.version, &reloaded.version.in_force.hash);
            let (unchanged, durability) = (reloaded.unchanged, state.durability());
            tracing::info!(policy = DEFAULT_POLICY, version, %hash, origin = from, unchanged, %durability, "policy in force");
            Ok(reloaded)
        }
        Err(error) => {
            tracing::error!(policy = DEFAULT_POLICY, %error, origin = from, "policy rejected");
            if let PolicyError::Rejected(rejection) = &error {
                for problem in rejection.report.errors().take(MAX_LOGGED) {
                    tracing::error!(%problem, "policy");
                }
            }
            Err(error)
        }
    }
}

/// Receiver of SIGHUP. From its making on, the signal no longer ends the process.
#[derive(Debug)]
pub(crate) struct HangupSignal(Option<Signal>);

impl HangupSignal {
    pub(crate) fn new() -> Self {
        Self(signal(SignalKind::hangup()).ok())
    }

    async fn received(&mut self) {
        if let Some(signal) = &mut self.0
            && signal.recv().await.is_some()
        {
            tracing::info!("SIGHUP: the policy file is read again");
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// Watches the file, if there is one, and SIGHUP until the server drains.
pub(crate) async fn watch_policy_file(
    file: Option<(PolicyFile, Arc<str>)>,
    mut hangup: HangupSignal,
    state: Arc<SharedState>,
    metrics: Arc<Metrics>,
    draining: watch::Receiver<bool>,
) {
    let work = async {
        if let Some((file, taken)) = file {
            file.watch_changes(taken, &mut hangup, &state, &metrics).await;
        }
        loop {
            hangup.received().await;
            tracing::warn!("there is no policy file to read again");
        }
    };
    tokio::select! {
        () = work => {}
        () = wait_until_true(draining) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_loaded_once_its_content_is_stable() {
        let mut looks = ContentDebounce {
            last_loaded: "old".into(),
            last_seen: None,
        };
        let shown = |looks: &mut ContentDebounce, text: Option<&str>| {
            looks.observe(text.map(Arc::from), false).as_deref().map(str::to_owned)
        };
        for text in [
            Some("old"),
            Some("old"),
            Some("n"),
            Some("ne"),
            None,
            Some("ne"),
            Some("new"),
        ] {
            assert_eq!(shown(&mut looks, text), None, "{text:?}");
        }
        assert_eq!(shown(&mut looks, Some("new")), Some("new".to_owned()));
        assert_eq!(shown(&mut looks, Some("new")), None, "loaded once");
        assert_eq!(
            looks.observe(Some("new".into()), true).as_deref(),
            Some("new"),
            "asked for"
        );
    }
}
