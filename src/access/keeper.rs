//! The active identities, reloaded when their files change.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use super::caller::{AccessRejection, CallerAccess};
use super::identities::{FILE_BYTES, IdentityFile, IdentityTable, TOKEN_FILE_BYTES, read_tokens};
use super::token_reviews::TokenReviews;
use crate::audit::{AuditAction, AuditLog, AuditOutcome};
use crate::file_looks::{FileError, FileLook, FileLooks};
use crate::server::wait_until_true;
use crate::telemetry::{LogText, Metrics, WarningGate};
use crate::tls::read_bounded;
use pumice_live::ClusterAccess;

/// Content of the file of identities and of the token files that it names.
#[derive(Clone, PartialEq, Eq)]
struct AccessContent(Vec<(PathBuf, String)>);

impl fmt::Debug for AccessContent {
    /// Shows nothing: tokens are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessContent").finish_non_exhaustive()
    }
}

/// Keeper of the active identities.
pub struct AccessKeeper {
    path: Option<PathBuf>,
    poll: Duration,
    metrics: Arc<Metrics>,
    audit: Arc<AuditLog>,
    /// `None`: the server has no identities, and every client that can connect has all roles.
    table: ArcSwapOption<IdentityTable>,
    problem: ArcSwapOption<FileError>,
    rejections: WarningGate,
    reviews: TokenReviews,
}

impl fmt::Debug for AccessKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKeeper")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Identities that were loaded, and are not watched yet.
#[derive(Debug)]
pub struct AccessStart {
    /// Keeper of the active identities.
    pub keeper: Arc<AccessKeeper>,
    content: Option<AccessContent>,
}

fn read_text(path: &Path, most: usize) -> Result<String, FileError> {
    let read = read_bounded(path, most).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
    });
    read.map_err(|error| FileError::new(path, format!("it cannot be read: {error}")))
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new(""))
}

/// Reads the file of identities and the token files that it names. A file that cannot be understood is read alone.
fn read_content(path: &Path) -> Result<AccessContent, FileError> {
    let text = read_text(path, FILE_BYTES)?;
    let mut files = vec![(path.to_owned(), text.clone())];
    if let Ok(file) = IdentityFile::parse(&text, folder(path)) {
        for token_file in file.entries.into_iter().filter_map(|entry| entry.token_file) {
            let text = read_text(&token_file, TOKEN_FILE_BYTES)?;
            files.push((token_file, text));
        }
    }
    Ok(AccessContent(files))
}

/// Parses the content into a table.
fn build(content: &AccessContent) -> Result<IdentityTable, FileError> {
    let Some(((path, text), tokens)) = content.0.split_first() else {
        return Ok(IdentityTable::default());
    };
    let file = IdentityFile::parse(text, folder(path)).map_err(|error| FileError::new(path, error.to_string()))?;
    let mut table = IdentityTable {
        local: file.local,
        anonymous: file.anonymous,
        probes_open: file.probes_open,
        metrics_open: file.metrics_open,
        audiences: file.audiences,
        count: file.entries.len(),
        ..IdentityTable::default()
    };
    let texts: BTreeMap<&PathBuf, &String> = tokens.iter().map(|(path, text)| (path, text)).collect();
    for entry in file.entries {
        for certificate in entry.certificates {
            table.by_certificate.insert(certificate, Arc::clone(&entry.identity));
        }
        for account in entry.service_accounts {
            table.by_account.insert(account, Arc::clone(&entry.identity));
        }
        let Some(token_file) = entry.token_file else { continue };
        let text = texts.get(&token_file).copied().map_or("", String::as_str);
        for token in read_tokens(text).map_err(|error| FileError::new(&token_file, error.to_string()))? {
            if let Some(other) = table.by_token.insert(token, Arc::clone(&entry.identity))
                && other.name != entry.identity.name
            {
                let message = format!("a token of it is one of `{}`, too", other.name);
                return Err(FileError::new(&token_file, message));
            }
        }
    }
    Ok(table)
}

impl AccessKeeper {
    /// Loads the identities for the first time; without a path there are none. Tokens of service accounts are verified by the API
    /// server of the cluster. Blocks.
    ///
    /// # Errors
    /// A file cannot be read or understood.
    pub fn load(
        path: Option<PathBuf>,
        poll: Duration,
        cluster: ClusterAccess,
        (metrics, audit): (Arc<Metrics>, Arc<AuditLog>),
    ) -> Result<AccessStart, FileError> {
        let content = path.as_deref().map(read_content).transpose()?;
        let table = content.as_ref().map(build).transpose()?;
        let keeper = Arc::new(Self {
            path,
            poll,
            reviews: TokenReviews::new(cluster, Arc::clone(&metrics)),
            metrics,
            audit,
            table: ArcSwapOption::from_pointee(table),
            problem: ArcSwapOption::empty(),
            rejections: WarningGate::new(),
        });
        keeper.report("identities are in force");
        Ok(AccessStart { keeper, content })
    }

    /// Keeper without identities: every client that can connect has all roles.
    pub fn unrestricted(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            path: None,
            poll: Duration::ZERO,
            audit: AuditLog::none(Arc::clone(&metrics)),
            reviews: TokenReviews::new(ClusterAccess::default(), Arc::clone(&metrics)),
            metrics,
            table: ArcSwapOption::empty(),
            problem: ArcSwapOption::empty(),
            rejections: WarningGate::new(),
        })
    }

    /// Active identities. `None`: the server has no identities, and every client that can connect has all roles.
    pub(super) fn table(&self) -> Option<Arc<IdentityTable>> {
        self.table.load_full()
    }

    /// Verdicts on tokens of service accounts.
    pub(super) fn reviews(&self) -> &TokenReviews {
        &self.reviews
    }

    /// True if there are identities.
    pub fn is_restricted(&self) -> bool {
        self.table.load().is_some()
    }

    /// Description of the active identities, for people. `None`: the server has no identities.
    pub fn status(&self) -> Option<String> {
        let count = self.table.load().as_ref()?.count;
        Some(match self.problem.load_full() {
            None => format!("{count} in force"),
            Some(error) => format!("the files on disk were refused, {count} former ones are in force: {error}"),
        })
    }

    fn report(&self, message: &'static str) {
        if let (Some(path), Some(table)) = (&self.path, self.table()) {
            let (certificates, tokens) = (table.by_certificate.len(), table.by_token.len());
            let (identities, accounts) = (table.count, table.by_account.len());
            tracing::info!(path = %path.display(), identities, certificates, tokens, accounts, "{message}");
        }
    }

    /// The audit log.
    pub(crate) fn audit(&self) -> &Arc<AuditLog> {
        &self.audit
    }

    /// Records a rejection in metrics and log. Texts of the caller are escaped and truncated.
    pub(crate) fn record_rejection(&self, caller: &CallerAccess, rejection: &AccessRejection, method: &str) {
        self.metrics.security.record_rejection(rejection.kind);
        let details = vec![("reason", rejection.message.as_str().into())];
        caller.audit((AuditAction::Call, AuditOutcome::Refused), method, details);
        if let Some(suppressed) = self.rejections.pass() {
            let caller = caller.signature();
            let (caller, refused, method) = (LogText(&caller), LogText(&rejection.message), LogText(method));
            tracing::warn!(%caller, %method, %refused, suppressed, "call refused");
        }
    }

    async fn look(&self, path: &Path, looks: &mut FileLooks<AccessContent>) {
        let path = path.to_owned();
        let read = pumice_state::tasks::run_blocking(move || read_content(&path)).await;
        let Ok(read) = read else { return };
        match looks.observe(read) {
            FileLook::Nothing => {}
            FileLook::Unreadable(error) => self.refuse(error),
            FileLook::InForce => {
                if self.problem.swap(None).is_some() {
                    self.metrics.security.identities.set_refused(false);
                    tracing::info!("the files of identities are again those that are in force");
                }
            }
            FileLook::Changed(content) => match build(&content) {
                Ok(table) => {
                    self.table.store(Some(Arc::new(table)));
                    self.problem.store(None);
                    self.metrics.security.identities.record_reload(true);
                    self.report("changed identities are in force");
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
        tracing::error!(%error, "the files of identities are refused; the former ones stay in force");
        self.metrics.security.identities.record_reload(false);
        self.problem.store(Some(Arc::new(error)));
    }
}

impl AccessStart {
    /// Follows the files until the server drains.
    pub async fn watch_files(self, draining: watch::Receiver<bool>) {
        let Self { keeper, content } = self;
        let (Some(path), Some(content)) = (keeper.path.clone(), content) else {
            return;
        };
        if keeper.poll.is_zero() {
            return;
        }
        let mut looks = FileLooks::new(content);
        let work = async {
            loop {
                tokio::time::sleep(keeper.poll).await;
                keeper.look(&path, &mut looks).await;
            }
        };
        tokio::select! {
            () = work => {}
            () = wait_until_true(draining) => {}
        }
    }
}
