//! Policies: their versions, their history, and the one operation that changes a policy.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::{PolicyError, StateError};
use super::limits::StateLimits;
use super::origin::PolicyOrigin;
use super::policy_store::{self, ActivePolicies, PendingRepair};
use super::sources::limit_error;
use crate::engine::PolicyInForce;
use crate::engine::model::Problem;
use crate::engine::policy::diagnostics::truncate_text;
use crate::engine::policy::{Compatibility, DiagnosticReport, Policy, emit};
use crate::store::{Store, StoreWrite};

/// Errors of a refused document that its message names.
const MAX_NAMED_ERRORS: usize = 3;
/// Most characters of one error in that message.
const MAX_ERROR_CHARS: usize = 240;

/// Version of a policy.
#[derive(Clone, Debug)]
pub struct PolicyVersion {
    /// Compiled policy with its name, version and hash.
    pub in_force: Arc<PolicyInForce>,
    /// Document as it was sent.
    pub document: Arc<str>,
    /// Document as loaded: typed values, before defaults and repairs.
    pub loaded_document: Arc<str>,
    /// Effective document: every default filled in and every repair made.
    pub effective_document: Arc<str>,
    /// Diagnostics from loading.
    pub report: Arc<DiagnosticReport>,
    /// Origin of the version.
    pub origin: PolicyOrigin,
    /// Time since 1970 at which the version was accepted.
    pub accepted_at: Duration,
}

impl PolicyVersion {
    /// Bytes of all its documents.
    fn bytes(&self) -> usize {
        self.document.len() + self.loaded_document.len() + self.effective_document.len()
    }
}

/// Document that was rejected.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedDocument {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Origin of the document.
    pub origin: PolicyOrigin,
    /// Diagnostics, errors among them.
    pub report: DiagnosticReport,
    /// Version that stays in force; 0: none.
    pub serving: u64,
}

impl std::fmt::Display for RejectedDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (problems, warnings) = (self.report.errors().count(), self.report.warnings().count());
        let plural = |count: usize, word| {
            if count == 1 {
                format!("1 {word}")
            } else {
                format!("{count} {word}s")
            }
        };
        write!(f, "policy `{}` refused: {}", self.name, plural(problems, "error"))?;
        self.write_first_errors(f, problems)?;
        if warnings > 0 {
            write!(f, ", {}", plural(warnings, "warning"))?;
        }
        match self.serving {
            0 => f.write_str("; no policy of that name is in force"),
            version => write!(f, "; version {version} stays in force"),
        }
    }
}

impl RejectedDocument {
    /// Writes the first errors in parentheses, on one line, whatever characters the document has.
    fn write_first_errors(&self, f: &mut std::fmt::Formatter<'_>, count: usize) -> std::fmt::Result {
        for (number, error) in self.report.errors().take(MAX_NAMED_ERRORS).enumerate() {
            f.write_str(if number == 0 { " (" } else { "; " })?;
            write!(f, "{}:{}: {}: ", error.line, error.column, error.code)?;
            let text = match error.path.as_str() {
                "" => error.message.clone(),
                path => format!("{path}: {}", error.message),
            };
            for c in truncate_text(&text, MAX_ERROR_CHARS).chars() {
                match c {
                    c if c.is_control() => write!(f, "{}", c.escape_default())?,
                    c => write!(f, "{c}")?,
                }
            }
        }
        match count.saturating_sub(MAX_NAMED_ERRORS) {
            0 if count == 0 => Ok(()),
            0 => f.write_str(")"),
            more => write!(f, "; and {more} more)"),
        }
    }
}

/// Request to put a document in force.
#[derive(Clone, Debug)]
pub struct PolicyReload {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Policy document.
    pub document: Arc<str>,
    /// Version that must be in force now; 0: none; `None`: any.
    pub expected_version: Option<u64>,
    /// True to check only, and change nothing.
    pub dry_run: bool,
    /// True if warnings count as errors.
    pub strict: bool,
    /// Compatibility of a document that does not set it.
    pub compatibility: Compatibility,
    /// Origin of the document.
    pub origin: PolicyOrigin,
}

/// Request to put an earlier version in force again.
#[derive(Clone, Debug)]
pub struct PolicyRollback {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Version to put in force; 0: the one before the version in force.
    pub version: u64,
    /// Version that must be in force now; `None`: any.
    pub expected_version: Option<u64>,
    /// True to check only, and change nothing.
    pub dry_run: bool,
}

/// Result of a reload or a rollback that was accepted.
#[derive(Clone, Debug)]
pub struct ReloadedPolicy {
    /// Version that is now in force; in a dry run the version that would be, numbered 0.
    pub version: Arc<PolicyVersion>,
    /// True if this policy was in force already: nothing changed.
    pub unchanged: bool,
    /// Unified diff of the effective documents before and after.
    pub difference: String,
    /// Queues, as they are now, that the policy cannot place in its hierarchy.
    pub queue_problems: Vec<Problem>,
    dry_run: bool,
}

impl ReloadedPolicy {
    /// True if the reload made a new snapshot.
    pub(super) fn publishes(&self) -> bool {
        !self.unchanged && !self.dry_run
    }
}

/// Compiled document on its way to the writer.
#[derive(Debug)]
pub(super) struct PolicyInstall {
    pub(super) name: Arc<str>,
    pub(super) expected_version: Option<u64>,
    pub(super) dry_run: bool,
    pub(super) hash: Arc<str>,
    /// Hash of the document and its compatibility.
    pub(super) fingerprint: Arc<str>,
    pub(super) policy: Arc<Policy>,
    pub(super) version: PolicyVersion,
}

impl PolicyInstall {
    /// True if the document is the one in force.
    fn is_in_force(&self, active: &PolicyVersion) -> bool {
        let other = &active.in_force;
        self.hash == other.hash && self.policy.compatibility() == other.policy.compatibility()
    }

    pub(super) fn into_version(self, version: u64) -> Arc<PolicyVersion> {
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
pub(super) struct PolicyHistory {
    pub(super) last: u64,
    pub(super) versions: VecDeque<Arc<PolicyVersion>>,
    pub(super) rejected_document: Option<RejectedDocument>,
    /// Fingerprint of the last accepted policy file.
    pub(super) file_fingerprint: Option<Arc<str>>,
}

impl PolicyHistory {
    /// Adds a version. Returns the oldest versions, which are dropped to stay within `max_versions` and `max_bytes`.
    fn accept(
        &mut self,
        version: &Arc<PolicyVersion>,
        max_versions: usize,
        max_bytes: usize,
    ) -> Vec<Arc<PolicyVersion>> {
        (self.last, self.rejected_document) = (version.in_force.version, None);
        self.versions.push_back(Arc::clone(version));
        let beyond = |versions: &VecDeque<Arc<PolicyVersion>>| {
            let size: usize = versions.iter().map(|version| version.bytes()).sum();
            versions.len() > max_versions.max(1) || (size > max_bytes && versions.len() > 2)
        };
        let mut dropped = Vec::new();
        while beyond(&self.versions) {
            dropped.extend(self.versions.pop_front());
        }
        dropped
    }
}

/// All policies with their history. Only the writer changes them; the exception is the record of a rejected document.
#[derive(Debug)]
pub(super) struct PolicyRegistry {
    max_names: usize,
    max_versions: usize,
    max_bytes: usize,
    histories: Mutex<BTreeMap<Arc<str>, PolicyHistory>>,
    /// Pending repairs of the store. Lock order: histories first.
    pending_repair: Mutex<PendingRepair>,
}

impl PolicyRegistry {
    pub(super) fn new(limits: &StateLimits) -> Self {
        Self {
            max_names: limits.policy_names,
            max_versions: limits.policy_versions,
            max_bytes: limits.policy_history_bytes,
            histories: Mutex::default(),
            pending_repair: Mutex::default(),
        }
    }

    /// Puts a version in force by compare-and-swap with the expected version. No other code changes a policy.
    pub(super) fn install(
        &self,
        install: PolicyInstall,
        in_force: &mut Arc<ActivePolicies>,
        store: &mut dyn Store,
    ) -> Result<ReloadedPolicy, PolicyError> {
        let mut histories = self.lock();
        let name = Arc::clone(&install.name);
        if !histories.contains_key(&name) && histories.len() >= self.max_names {
            return Err(limit_error(
                "policy_names",
                self.max_names,
                format!("`{name}` would be one more policy"),
            )
            .into());
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
        let difference = emit::unified_diff(before, &install.version.effective_document);
        if let Some(active) = active.filter(|active| install.is_in_force(active)) {
            if !dry_run {
                self.confirm_unchanged(&mut histories, &install, &active, store)?;
            }
            return Ok(ReloadedPolicy {
                version: active,
                unchanged: true,
                difference,
                queue_problems: Vec::new(),
                dry_run,
            });
        }
        let next = histories.get(&name).map_or(0, |history| history.last) + 1;
        let content = Arc::clone(&install.fingerprint);
        let version = install.into_version(if dry_run { 0 } else { next });
        if !dry_run {
            let mut history = histories.get(&name).cloned().unwrap_or_default();
            let dropped = history.accept(&version, self.max_versions, self.max_bytes);
            let writes = policy_store::version_writes(&version, false, &dropped, &version.origin, &content);
            let file = writes
                .iter()
                .any(|write| matches!(write, StoreWrite::PolicyFile { .. }));
            self.lock_pending_repair()
                .write_with_repairs(&histories, store, writes)?;
            if file {
                history.file_fingerprint = Some(content);
            }
            histories.insert(Arc::clone(&name), history);
            Arc::make_mut(in_force).insert(name, Arc::clone(&version.in_force));
        }
        Ok(ReloadedPolicy {
            version,
            unchanged: false,
            difference,
            queue_problems: Vec::new(),
            dry_run,
        })
    }

    /// Records that a policy file, or a caller, sent the policy that is in force already.
    fn confirm_unchanged(
        &self,
        histories: &mut BTreeMap<Arc<str>, PolicyHistory>,
        install: &PolicyInstall,
        active: &PolicyVersion,
        store: &mut dyn Store,
    ) -> Result<(), StateError> {
        let (origin, content) = (&install.version.origin, &install.fingerprint);
        let file = histories
            .get(&install.name)
            .and_then(|history| history.file_fingerprint.as_ref());
        let writes = if file == Some(content) {
            Vec::new()
        } else {
            policy_store::version_writes(active, true, &[], origin, content)
        };
        let file = !writes.is_empty();
        let mut pending_repair = self.lock_pending_repair();
        // A pending repair may contradict what this call confirms.
        if file || pending_repair.is_needed() {
            pending_repair.write_with_repairs(histories, store, writes)?;
        }
        drop(pending_repair);
        if let Some(history) = histories.get_mut(&install.name) {
            if file {
                history.file_fingerprint = Some(Arc::clone(content));
            }
            history.rejected_document = None;
        }
        Ok(())
    }

    /// True if the store may differ from memory.
    pub(super) fn needs_repair(&self) -> bool {
        self.lock_pending_repair().is_needed()
    }

    /// Writes that repair the store; call [`Self::repaired`] once they are written.
    pub(super) fn repair_writes(&self) -> Vec<StoreWrite> {
        let histories = self.lock();
        self.lock_pending_repair().writes(&histories)
    }

    /// Marks the pending repairs as written.
    pub(super) fn repaired(&self) {
        self.lock_pending_repair().clear();
    }

    pub(super) fn lock_pending_repair(&self) -> MutexGuard<'_, PendingRepair> {
        self.pending_repair.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restores a stored version.
    pub(super) fn restore_version(&self, history: &mut PolicyHistory, version: &Arc<PolicyVersion>) {
        history.accept(version, self.max_versions, self.max_bytes);
    }

    pub(super) fn version(&self, name: &Arc<str>, version: u64) -> Result<Arc<PolicyVersion>, PolicyError> {
        let histories = self.lock();
        let unknown = || PolicyError::UnknownPolicy { name: Arc::clone(name) };
        let versions = &histories.get(name).ok_or_else(unknown)?.versions;
        let found = match version {
            0 => versions.back(),
            wanted => versions.iter().find(|stored| stored.in_force.version == wanted),
        };
        found.cloned().ok_or_else(|| match version {
            0 => unknown(),
            version => PolicyError::UnknownVersion {
                name: Arc::clone(name),
                version,
            },
        })
    }

    pub(super) fn reject(&self, mut rejection: RejectedDocument, dry_run: bool) -> PolicyError {
        let mut histories = self.lock();
        let history = histories.get_mut(&rejection.name);
        rejection.serving = history
            .as_ref()
            .and_then(|h| h.versions.back())
            .map_or(0, |active| active.in_force.version);
        // A name without any version is not remembered: callers could invent names without end.
        if let Some(history) = history.filter(|_| !dry_run) {
            history.rejected_document = Some(rejection.clone());
        }
        PolicyError::Rejected(Box::new(rejection))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, PolicyHistory>> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
