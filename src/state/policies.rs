//! Policies: versions, history, and the one way in which a policy changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::{PolicyError, StateError};
use super::limits::Limits;
use super::origin::Origin;
use super::policy_store::{self, InForce, Owed};
use super::sources::limit;
use crate::engine::PolicyInForce;
use crate::engine::model::Problem;
use crate::engine::policy::{Compatibility, Policy, Report, emit};
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
    pub(super) name: Arc<str>,
    pub(super) expected_version: Option<u64>,
    pub(super) dry_run: bool,
    pub(super) hash: Arc<str>,
    /// Tells the document, and how it is to be read, from another.
    pub(super) content: Arc<str>,
    pub(super) policy: Arc<Policy>,
    pub(super) version: PolicyVersion,
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
    pub(super) versions: VecDeque<Arc<PolicyVersion>>,
    pub(super) refusal: Option<Refusal>,
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
    /// Locked after the histories, if both are.
    owed: Mutex<Owed>,
}

impl Policies {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            names: limits.policy_names,
            kept: limits.policy_versions,
            bytes: limits.policy_history_bytes,
            histories: Mutex::default(),
            owed: Mutex::default(),
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
            if !dry_run {
                self.confirm(&mut histories, &install, &active, store)?;
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
            let file = writes.iter().any(|write| matches!(write, Write::PolicyFile { .. }));
            self.owed().keep(&histories, store, writes)?;
            if file {
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

    /// Remembers that a policy file said what is in force already.
    fn confirm(
        &self,
        histories: &mut BTreeMap<Arc<str>, History>,
        install: &Install,
        active: &PolicyVersion,
        store: &mut dyn Store,
    ) -> Result<(), StateError> {
        let (origin, content) = (&install.version.origin, &install.content);
        let file = histories.get(&install.name).and_then(|history| history.file.as_ref());
        let writes = if file == Some(content) {
            Vec::new()
        } else {
            policy_store::writes(active, true, &[], origin, content)
        };
        let file = !writes.is_empty();
        let mut owed = self.owed();
        // What is owed may be the opposite of what is confirmed here.
        if file || owed.any() {
            owed.keep(histories, store, writes)?;
        }
        drop(owed);
        if let Some(history) = histories.get_mut(&install.name) {
            if file {
                history.file = Some(Arc::clone(content));
            }
            history.refusal = None;
        }
        Ok(())
    }

    /// True if the store may hold something that is not true.
    pub(super) fn owe(&self) -> bool {
        self.owed().any()
    }

    /// What sets that right; to be followed by [`Self::settled`] once it is written.
    pub(super) fn owed_writes(&self) -> Vec<Write> {
        let histories = self.lock();
        self.owed().writes(&histories)
    }

    /// It is written.
    pub(super) fn settled(&self) {
        self.owed().settled();
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a version that is kept.
    pub(super) fn take(&self, history: &mut History, version: &Arc<PolicyVersion>) {
        history.accept(version, self.kept, self.bytes);
    }

    pub(super) fn version(&self, name: &Arc<str>, version: u64) -> Result<Arc<PolicyVersion>, PolicyError> {
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

    pub(super) fn refuse(&self, mut refusal: Refusal, dry_run: bool) -> PolicyError {
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
