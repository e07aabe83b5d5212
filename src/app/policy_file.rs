//! The policy file: read at the start, whenever its content changes, and on SIGHUP.
//!
//! It is looked at by content, at a steady pace: that serves a plain write, a rename over it and the swapped links of a
//! Kubernetes `ConfigMap` alike, on every file system. A new content is brought once two looks in a row saw the same, so
//! that a file half written, or a burst of writes, is waited out.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::turned;
use crate::engine::policy::Compatibility;
use crate::server::convert::ground::DEFAULT_POLICY;
use crate::state::{Origin, PolicyError, Reload, State};
use crate::telemetry::{Metrics, ReloadOutcome};

/// Most faults of one document in the log.
const LOGGED: usize = 20;

/// The policy file and how it stands.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    path: PathBuf,
    poll: Duration,
    compatibility: Compatibility,
    most: usize,
    trouble: Arc<Mutex<Option<String>>>,
}

impl PolicyFile {
    pub(super) fn new(path: PathBuf, poll: Duration, compatibility: Compatibility, most: usize) -> Self {
        Self {
            path,
            poll,
            compatibility,
            most,
            trouble: Arc::default(),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the file cannot be read, if it cannot.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its content; of a file beyond the limit a little more than the limit, which is then refused by name.
    pub(super) fn read(&self) -> io::Result<Arc<str>> {
        let mut content = Vec::new();
        let most = u64::try_from(self.most).unwrap_or(u64::MAX).saturating_add(1);
        File::open(&self.path)?.take(most).read_to_end(&mut content)?;
        if content.len() > self.most {
            return Ok(String::from_utf8_lossy(&content).into());
        }
        let text = String::from_utf8(content).map_err(|_| io::Error::other("it is not UTF-8 text"))?;
        Ok(text.into())
    }

    async fn look(&self) -> Option<Arc<str>> {
        let file = self.clone();
        let read = tokio::task::spawn_blocking(move || file.read()).await;
        let read = read.unwrap_or_else(|_| Err(io::Error::other("a worker stopped")));
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(content) => {
                *trouble = None;
                Some(content)
            }
            Err(error) => {
                let error = error.to_string();
                if trouble.as_ref() != Some(&error) {
                    tracing::warn!(path = %self.path.display(), error, "the policy file cannot be read");
                }
                *trouble = Some(error);
                None
            }
        }
    }

    /// Brings a content.
    pub(super) async fn bring(
        &self,
        content: Arc<str>,
        by_hangup: bool,
        state: &State,
        metrics: &Metrics,
    ) -> Result<(), PolicyError> {
        let path = self.path.display().to_string();
        let origin = if by_hangup {
            Origin::Hangup(path)
        } else {
            Origin::File(path)
        };
        bring(content, self.compatibility, origin, state, metrics).await
    }

    /// Follows the file until the server drains. `taken`: the content that was brought last.
    async fn follow(&self, taken: Arc<str>, hangup: &mut Hangup, state: &State, metrics: &Metrics) {
        let mut looks = Looks { taken, seen: None };
        loop {
            let by_hangup = tokio::select! {
                () = hangup.heard() => true,
                () = pause(self.poll) => false,
            };
            if let Some(content) = looks.see(self.look().await, by_hangup) {
                // What became of it has been told.
                drop(self.bring(content, by_hangup, state, metrics).await);
            }
        }
    }
}

/// What the last looks at a file showed.
#[derive(Debug)]
struct Looks {
    /// Brought last.
    taken: Arc<str>,
    /// Seen last; `None`: the file could not be read.
    seen: Option<Arc<str>>,
}

impl Looks {
    /// What to bring after this look. An operator who asks gets what stands there; nobody else is brought a file that may
    /// not be whole yet.
    fn see(&mut self, content: Option<Arc<str>>, asked: bool) -> Option<Arc<str>> {
        let settled = content.is_some() && content == self.seen;
        self.seen.clone_from(&content);
        let content = content.filter(|content| asked || (settled && *content != self.taken))?;
        self.taken = Arc::clone(&content);
        Some(content)
    }
}

async fn pause(poll: Duration) {
    if poll.is_zero() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(poll).await;
}

/// Puts a document in force, and tells in log and instruments what became of it.
pub(super) async fn bring(
    document: Arc<str>,
    compatibility: Compatibility,
    origin: Origin,
    state: &State,
    metrics: &Metrics,
) -> Result<(), PolicyError> {
    let (kind, from) = (origin.kind(), origin.to_string());
    let reload = Reload {
        name: Arc::from(DEFAULT_POLICY),
        document,
        expected_version: None,
        dry_run: false,
        strict: false,
        compatibility,
        origin,
    };
    let reloaded = state.reload_policy(reload).await;
    metrics.reloaded(kind, ReloadOutcome::of(&reloaded));
    match reloaded {
        Ok(reloaded) => {
            for warning in reloaded.version.report.warnings().take(LOGGED) {
                tracing::warn!(%warning, "policy");
            }
            for problem in reloaded.queues.iter().take(LOGGED) {
                tracing::warn!(problem = problem.message, "policy");
            }
            let (version, hash) = (reloaded.version.in_force.version, &reloaded.version.in_force.hash);
            tracing::info!(policy = DEFAULT_POLICY, version, %hash, origin = from, unchanged = reloaded.unchanged, "policy in force");
            Ok(())
        }
        Err(error) => {
            tracing::error!(policy = DEFAULT_POLICY, %error, origin = from, "policy refused");
            if let PolicyError::Refused(refusal) = &error {
                for fault in refusal.report.faults().take(LOGGED) {
                    tracing::error!(%fault, "policy");
                }
            }
            Err(error)
        }
    }
}

/// SIGHUP, where there is such a thing.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    fn new() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Self {
                signal: signal(SignalKind::hangup()).ok(),
            }
        }
        #[cfg(not(unix))]
        Self {}
    }

    async fn heard(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            tracing::info!("SIGHUP");
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// Follows the file, if there is one, and SIGHUP until the server drains.
pub(super) async fn follow(
    file: Option<(PolicyFile, Arc<str>)>,
    state: Arc<State>,
    metrics: Arc<Metrics>,
    draining: watch::Receiver<bool>,
) {
    let mut hangup = Hangup::new();
    let work = async {
        if let Some((file, taken)) = file {
            file.follow(taken, &mut hangup, &state, &metrics).await;
        }
        loop {
            hangup.heard().await;
            tracing::warn!("there is no policy file to read again");
        }
    };
    tokio::select! {
        () = work => {}
        () = turned(draining) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_still_changes_is_waited_out() {
        let mut looks = Looks {
            taken: "old".into(),
            seen: None,
        };
        let shown =
            |looks: &mut Looks, text: Option<&str>| looks.see(text.map(Arc::from), false).as_deref().map(str::to_owned);
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
        assert_eq!(shown(&mut looks, Some("new")), None, "brought once");
        assert_eq!(looks.see(Some("new".into()), true).as_deref(), Some("new"), "asked for");
    }
}
