//! Policies: versions, history, and the one way in which a policy changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::State;
use super::error::{PolicyError, StateError};
use super::limits::Limits;
use super::origin::Origin;
use super::policy_store::{self, InForce};
use super::sources::limit;
use super::writer::Command;
use crate::engine::PolicyInForce;
use crate::engine::model::Problem;
use crate::engine::policy::{self, Compatibility, CompileOptions, Compiled, Policy, Report, emit};
use crate::store::{Store, Write};

/// A version of a policy.
#[derive(Clone, Debug)]
pub struct PolicyVersion {
    /// Name, version, hash, and the compiled policy.
    pub in_force: Arc<PolicyInForce>,
    /// As sent.
    pub document: Arc<str>,
    /// As loaded: typed values before defaults and repairs.
    pub loaded_document: Arc<str>,
    /// With every default put in and every repair made.
    pub effective_document: Arc<str>,
    /// What loading found.
    pub report: Arc<Report>,
    /// Who brought it.
    pub origin: Origin,
    /// When it was accepted, since 1970.
    pub accepted: Duration,
}

impl PolicyVersion {
    /// Bytes of its documents.
    fn bytes(&self) -> usize {
        self.document.len() + self.loaded_document.len() + self.effective_document.len()
    }
}

/// A document that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Who brought it.
    pub origin: Origin,
    /// What is wrong with it.
    pub report: Report,
    /// The version that goes on serving; 0: none.
    pub serving: u64,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (faults, warnings) = (self.report.faults().count(), self.report.warnings().count());
        let plural = |count: usize, word| {
            if count == 1 {
                format!("1 {word}")
            } else {
                format!("{count} {word}s")
            }
        };
        write!(f, "policy `{}` refused: {}", self.name, plural(faults, "fault"))?;
        if warnings > 0 {
            write!(f, ", {}", plural(warnings, "warning"))?;
        }
        match self.serving {
            0 => f.write_str("; no policy of that name serves"),
            version => write!(f, "; version {version} goes on serving"),
        }
    }
}

/// Asks for a document to be put in force.
#[derive(Clone, Debug)]
pub struct Reload {
    /// Name of the policy.
    pub name: Arc<str>,
    /// The document.
    pub document: Arc<str>,
    /// Version that must be in force now; 0: none.
    pub expected_version: Option<u64>,
    /// Change nothing.
    pub dry_run: bool,
    /// Warnings are faults.
    pub strict: bool,
    /// Where the document does not say.
    pub compatibility: Compatibility,
    /// Who brings it.
    pub origin: Origin,
}

/// Asks for an earlier version to be put in force again.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// Name of the policy.
    pub name: Arc<str>,
    /// The version; 0: the one before the one in force.
    pub version: u64,
    /// Version that must be in force now.
    pub expected_version: Option<u64>,
    /// Change nothing.
    pub dry_run: bool,
}

/// A document that was accepted.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Now in force; in a dry run what would be, as version 0.
    pub version: Arc<PolicyVersion>,
    /// It already was: nothing changed.
    pub unchanged: bool,
    /// Effective documents, before and after, as a unified diff.
    pub difference: String,
    /// Queues for which the policy has no place, as they stand now.
    pub queues: Vec<Problem>,
    dry_run: bool,
}

impl Reloaded {
    /// True if it made a new World.
    pub(super) fn published(&self) -> bool {
        !self.unchanged && !self.dry_run
    }
}

/// A compiled document on its way to the writer.
#[derive(Debug)]
pub(super) struct Install {
    name: Arc<str>,
    expected_version: Option<u64>,
    dry_run: bool,
    hash: Arc<str>,
    /// Tells the document, and how it is to be read, from another.
    content: Arc<str>,
    policy: Arc<Policy>,
    version: PolicyVersion,
}

impl Install {
    /// True if it says what is in force already.
    fn equals(&self, active: &PolicyVersion) -> bool {
        let other = &active.in_force;
        self.hash == other.hash && self.policy.compatibility() == other.policy.compatibility()
    }

    fn numbered(self, version: u64) -> Arc<PolicyVersion> {
        let Self {
            name,
            hash,
            policy,
            version: record,
            ..
        } = self;
        let in_force = Arc::new(PolicyInForce {
            name,
            version,
            hash,
            profile: Arc::default(),
            policy,
        });
        Arc::new(PolicyVersion { in_force, ..record })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    last: u64,
    versions: VecDeque<Arc<PolicyVersion>>,
    refusal: Option<Refusal>,
    /// Tells the policy file that was last accepted from another.
    pub(super) file: Option<Arc<str>>,
}

impl History {
    /// Takes a version in, and lets go of the oldest beyond so many versions or bytes.
    fn accept(&mut self, version: &Arc<PolicyVersion>, kept: usize, bytes: usize) -> Vec<Arc<PolicyVersion>> {
        (self.last, self.refusal) = (version.in_force.version, None);
        self.versions.push_back(Arc::clone(version));
        let beyond = |versions: &VecDeque<Arc<PolicyVersion>>| {
            let size: usize = versions.iter().map(|version| version.bytes()).sum();
            versions.len() > kept.max(1) || (size > bytes && versions.len() > 2)
        };
        let mut dropped = Vec::new();
        while beyond(&self.versions) {
            dropped.extend(self.versions.pop_front());
        }
        dropped
    }
}

/// All policies with their history. Changed by the writer only, but for refusals.
#[derive(Debug)]
pub(super) struct Policies {
    names: usize,
    kept: usize,
    bytes: usize,
    histories: Mutex<BTreeMap<Arc<str>, History>>,
}

impl Policies {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            names: limits.policy_names,
            kept: limits.policy_versions,
            bytes: limits.policy_history_bytes,
            histories: Mutex::default(),
        }
    }

    /// Compares the expected version with the one in force, and swaps. The only place where a policy changes.
    pub(super) fn install(
        &self,
        install: Install,
        in_force: &mut Arc<InForce>,
        store: &mut dyn Store,
    ) -> Result<Reloaded, PolicyError> {
        let mut histories = self.lock();
        let name = Arc::clone(&install.name);
        if !histories.contains_key(&name) && histories.len() >= self.names {
            return Err(limit("policy_names", self.names, format!("`{name}` would be one more policy")).into());
        }
        let history = histories.get(&name);
        let active = history.and_then(|history| history.versions.back()).cloned();
        let number = active.as_ref().map_or(0, |active| active.in_force.version);
        if let Some(expected) = install.expected_version.filter(|expected| *expected != number) {
            return Err(PolicyError::VersionMismatch {
                name,
                active: number,
                expected,
            });
        }
        let dry_run = install.dry_run;
        let before = active.as_ref().map_or("", |active| &*active.effective_document);
        let difference = emit::difference(before, &install.version.effective_document);
        if let Some(active) = active.filter(|active| install.equals(active)) {
            if let (Some(history), false) = (histories.get_mut(&name), dry_run) {
                let (origin, content) = (&install.version.origin, &install.content);
                if history.file.as_ref() != Some(content) {
                    let writes = policy_store::writes(&active, true, &[], origin, content);
                    keep(store, &writes)?;
                    if !writes.is_empty() {
                        history.file = Some(Arc::clone(content));
                    }
                }
                history.refusal = None;
            }
            return Ok(Reloaded {
                version: active,
                unchanged: true,
                difference,
                queues: Vec::new(),
                dry_run,
            });
        }
        let next = histories.get(&name).map_or(0, |history| history.last) + 1;
        let content = Arc::clone(&install.content);
        let version = install.numbered(if dry_run { 0 } else { next });
        if !dry_run {
            let mut history = histories.get(&name).cloned().unwrap_or_default();
            let dropped = history.accept(&version, self.kept, self.bytes);
            let writes = policy_store::writes(&version, false, &dropped, &version.origin, &content);
            keep(store, &writes)?;
            if writes.iter().any(|write| matches!(write, Write::PolicyFile { .. })) {
                history.file = Some(content);
            }
            histories.insert(Arc::clone(&name), history);
            Arc::make_mut(in_force).insert(name, Arc::clone(&version.in_force));
        }
        Ok(Reloaded {
            version,
            unchanged: false,
            difference,
            queues: Vec::new(),
            dry_run,
        })
    }

    /// Takes in a version that is kept.
    pub(super) fn take(&self, history: &mut History, version: &Arc<PolicyVersion>) {
        history.accept(version, self.kept, self.bytes);
    }

    fn version(&self, name: &Arc<str>, version: u64) -> Result<Arc<PolicyVersion>, PolicyError> {
        let histories = self.lock();
        let unknown = || PolicyError::UnknownPolicy { name: Arc::clone(name) };
        let versions = &histories.get(name).ok_or_else(unknown)?.versions;
        let found = match version {
            0 => versions.back(),
            wanted => versions.iter().find(|kept| kept.in_force.version == wanted),
        };
        found.cloned().ok_or_else(|| match version {
            0 => unknown(),
            version => PolicyError::UnknownVersion {
                name: Arc::clone(name),
                version,
            },
        })
    }

    fn refuse(&self, mut refusal: Refusal, dry_run: bool) -> PolicyError {
        let mut histories = self.lock();
        let history = histories.get_mut(&refusal.name);
        refusal.serving = history
            .as_ref()
            .and_then(|h| h.versions.back())
            .map_or(0, |active| active.in_force.version);
        // A name without any version is not remembered: a caller could invent them without end.
        if let Some(history) = history.filter(|_| !dry_run) {
            history.refusal = Some(refusal.clone());
        }
        PolicyError::Refused(Box::new(refusal))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, History>> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep(store: &mut dyn Store, writes: &[Write]) -> Result<(), StateError> {
    if writes.is_empty() {
        return Ok(());
    }
    store.write(writes).map_err(StateError::Store)
}

impl State {
    /// True if a policy is in force that need not give way to the policy file of this content: the file was accepted
    /// before, and whatever is in force came later.
    pub fn file_was_accepted(&self, name: &str, document: &str, compatibility: Compatibility) -> bool {
        let histories = self.policies.lock();
        let file = histories.get(name).and_then(|history| history.file.as_ref());
        file.is_some_and(|file| *file == policy_store::content_of(document, compatibility))
    }

    /// Checks a document and, unless it is a dry run, puts it in force. Compiling is done on a blocking thread.
    ///
    /// # Errors
    /// The document has faults, another version is in force than expected, or the name cannot name a policy.
    pub async fn reload_policy(&self, reload: Reload) -> Result<Reloaded, PolicyError> {
        check_name(&reload.name)?;
        let options = CompileOptions {
            limits: self.limits.of_policy_text(),
            compatibility: reload.compatibility,
            strict: reload.strict,
        };
        let document = Arc::clone(&reload.document);
        let content = policy_store::content_of(&document, reload.compatibility);
        let compiled =
            tokio::task::spawn_blocking(move || (policy::compile(&document, &options), hash(&document))).await;
        let (compiled, hash) = compiled.map_err(|_| StateError::ShuttingDown)?;
        let Reload {
            name,
            document,
            expected_version,
            dry_run,
            origin,
            ..
        } = reload;
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(report) => {
                return Err(self.policies.refuse(
                    Refusal {
                        name,
                        origin,
                        report,
                        serving: 0,
                    },
                    dry_run,
                ));
            }
        };
        let install = install(
            name,
            document,
            hash,
            content,
            compiled,
            expected_version,
            dry_run,
            origin,
            self.clock.wall(),
        );
        self.install(install).await
    }

    /// Puts an earlier version in force again, as a new one.
    ///
    /// # Errors
    /// There is no such version, or another one is in force than expected.
    pub async fn rollback_policy(&self, rollback: Rollback) -> Result<Reloaded, PolicyError> {
        let Rollback {
            name,
            version,
            expected_version,
            dry_run,
        } = rollback;
        let active = self.policies.version(&name, 0)?.in_force.version;
        let earlier = match version {
            0 if active <= 1 => return Err(PolicyError::UnknownVersion { name, version }),
            0 => self.policies.version(&name, active - 1)?,
            version => self.policies.version(&name, version)?,
        };
        let mut again = PolicyVersion::clone(&earlier);
        again.origin = Origin::Rollback(earlier.in_force.version);
        again.accepted = self.clock.wall();
        let install = Install {
            name,
            // What was judged to be the version before must still be that when the writer comes to it.
            expected_version: expected_version.or(Some(active)),
            dry_run,
            hash: Arc::clone(&earlier.in_force.hash),
            content: policy_store::content_of(&earlier.document, earlier.in_force.policy.compatibility()),
            policy: Arc::clone(&earlier.in_force.policy),
            version: again,
        };
        self.install(install).await
    }

    /// A version of a policy; 0: the one in force.
    ///
    /// # Errors
    /// There is none.
    pub fn policy(&self, name: &Arc<str>, version: u64) -> Result<Arc<PolicyVersion>, PolicyError> {
        self.policies.version(name, version)
    }

    /// Kept versions of a policy, newest first.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn policy_versions(&self, name: &Arc<str>) -> Result<Vec<Arc<PolicyVersion>>, PolicyError> {
        let histories = self.policies.lock();
        let history = histories
            .get(name)
            .ok_or_else(|| PolicyError::UnknownPolicy { name: Arc::clone(name) })?;
        Ok(history.versions.iter().rev().cloned().collect())
    }

    /// The versions in force, by name.
    pub fn active_policies(&self) -> Vec<Arc<PolicyVersion>> {
        self.policies
            .lock()
            .values()
            .filter_map(|history| history.versions.back().cloned())
            .collect()
    }

    /// The last refused documents of policies that have not accepted one since, by name.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.policies
            .lock()
            .values()
            .filter_map(|history| history.refusal.clone())
            .collect()
    }

    async fn install(&self, install: Install) -> Result<Reloaded, PolicyError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Install(Box::new(install), reply.into())).await?;
        answer.await.map_err(|_| StateError::ShuttingDown)?
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of one record, each used once")]
fn install(
    name: Arc<str>,
    document: Arc<str>,
    hash: Arc<str>,
    content: Arc<str>,
    compiled: Compiled,
    expected_version: Option<u64>,
    dry_run: bool,
    origin: Origin,
    accepted: Duration,
) -> Install {
    let Compiled {
        policy,
        report,
        loaded_document,
        effective_document,
    } = compiled;
    let in_force = PolicyInForce {
        name: Arc::clone(&name),
        version: 0,
        hash: Arc::clone(&hash),
        profile: Arc::default(),
        policy: Arc::clone(&policy),
    };
    let version = PolicyVersion {
        in_force: Arc::new(in_force),
        document,
        loaded_document: loaded_document.into(),
        effective_document: effective_document.into(),
        report: Arc::new(report),
        origin,
        accepted,
    };
    Install {
        name,
        expected_version,
        dry_run,
        hash,
        content,
        policy,
        version,
    }
}

/// SHA-256 of a document, hexadecimal.
pub fn hash(document: &str) -> Arc<str> {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(document.as_bytes()) {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text.into()
}

fn check_name(name: &Arc<str>) -> Result<(), PolicyError> {
    let bytes = name.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let outer = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    if bytes.len() <= 63 && bytes.iter().all(inner) && outer(bytes.first()) && outer(bytes.last()) {
        return Ok(());
    }
    Err(PolicyError::InvalidName { name: Arc::clone(name) })
}
