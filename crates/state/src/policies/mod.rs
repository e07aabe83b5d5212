//! Policies: their versions, their history, and the one operation that changes a policy.

pub(crate) mod draft;
pub(crate) mod fingerprint;
pub(crate) mod origin;
pub(crate) mod rejected_document;
pub(crate) mod reload;
pub(crate) mod removal;
mod replay;
pub(crate) mod stored;
pub(crate) mod writer;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::error::{PolicyError, StateError};
use crate::policies::origin::PolicyOrigin;
use crate::policies::rejected_document::RejectedDocument;
use pumice_engine::model::Problem;
use pumice_engine::policy::{Compatibility, DiagnosticReport};
use pumice_engine::{PolicyInForce, Snapshot};

/// Stored version of a policy: compiled policy, documents, diagnostics and origin.
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
    /// Origin: a file, a call, a rollback or the built-in policy.
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

/// Request to activate a document.
#[derive(Clone, Debug)]
pub struct PolicyReload {
    /// Name of the policy to change, such as `default`.
    pub name: Arc<str>,
    /// Document as YAML or JSON text.
    pub document: Arc<str>,
    /// Version that must be active, such as 3. 0: none may be active. `None`: no check.
    pub expected_version: Option<u64>,
    /// True to check only, and change nothing.
    pub dry_run: bool,
    /// True if warnings are treated as errors.
    pub strict: bool,
    /// Compatibility of a document that does not set it.
    pub compatibility: Compatibility,
    /// Origin of the document.
    pub origin: PolicyOrigin,
}

/// Request to activate an earlier version again.
#[derive(Clone, Debug)]
pub struct PolicyRollback {
    /// Name of the policy to roll back.
    pub name: Arc<str>,
    /// Version to activate again, such as 3. 0: the version before the active version.
    pub version: u64,
    /// Version that must be active. `None`: no check.
    pub expected_version: Option<u64>,
    /// True to check only, and change nothing.
    pub dry_run: bool,
    /// Caller of the request, such as `alice@10.0.0.5:41234`. Empty: unknown.
    pub caller: String,
}

/// Result of a reload or a rollback that was accepted.
#[derive(Clone, Debug)]
pub struct ReloadedPolicy {
    /// Active version after the call. In a dry run: the version that would be activated, with number 0.
    pub version: Arc<PolicyVersion>,
    /// True if this policy was already active: nothing changed.
    pub unchanged: bool,
    /// Unified diff of the effective documents before and after.
    pub difference: String,
    /// Queues, as they are now, that the policy cannot place in its hierarchy.
    pub queue_problems: Vec<Problem>,
    /// Sources whose records lack labels that the policy reads.
    pub awaited_sources: Vec<Arc<str>>,
    pub(crate) dry_run: bool,
}

impl ReloadedPolicy {
    /// True if the reload made a new snapshot.
    pub(crate) fn publishes(&self) -> bool {
        !self.unchanged && !self.dry_run
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyHistory {
    pub(crate) last: u64,
    pub(crate) versions: VecDeque<Arc<PolicyVersion>>,
    /// Fingerprint of the last accepted policy file.
    pub(crate) file_fingerprint: Option<Arc<str>>,
}

impl PolicyHistory {
    /// Adds a version. Returns the oldest versions, which are dropped to stay within `max_versions` and `max_bytes`.
    pub(crate) fn accept(
        &mut self,
        version: &Arc<PolicyVersion>,
        max_versions: usize,
        max_bytes: usize,
    ) -> Vec<Arc<PolicyVersion>> {
        self.last = version.in_force.version;
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

/// Policies with their histories, by name.
pub(crate) type PolicyHistories = BTreeMap<Arc<str>, Arc<PolicyHistory>>;

/// All policies with their histories, for readers. A reader loads one pointer and never waits for a lock. The writer
/// ([`crate::policies::writer::PolicyWriter`]) replaces the whole value after the store has it.
#[derive(Debug, Default)]
pub(crate) struct PolicyRegistry {
    histories: ArcSwap<PolicyHistories>,
    /// Last rejected document of each policy that has not accepted one since.
    rejected: ArcSwap<BTreeMap<Arc<str>, RejectedDocument>>,
}

impl PolicyRegistry {
    /// Histories as they are now.
    pub(crate) fn histories(&self) -> Arc<PolicyHistories> {
        self.histories.load_full()
    }

    /// Replaces the histories. Only the writer calls this.
    pub(crate) fn publish(&self, histories: PolicyHistories) {
        self.histories.store(Arc::new(histories));
    }

    /// Forgets the rejected document of a policy, because a later one was accepted or the policy is gone.
    pub(crate) fn clear_rejection(&self, name: &str) {
        self.rejected.rcu(|rejected| {
            let mut others = BTreeMap::clone(rejected);
            others.remove(name);
            others
        });
    }

    /// Last rejected document of each policy that has not accepted one since, by policy name.
    pub(crate) fn rejected_documents(&self) -> Vec<RejectedDocument> {
        self.rejected.load().values().cloned().collect()
    }

    /// Version of a policy; 0: the one in force.
    pub(crate) fn version(&self, name: &Arc<str>, version: u64) -> Result<Arc<PolicyVersion>, PolicyError> {
        let histories = self.histories.load();
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

    /// Error of a rejected document. The document is remembered, unless this is a dry run.
    pub(crate) fn reject(&self, mut rejection: RejectedDocument, dry_run: bool) -> PolicyError {
        let histories = self.histories.load();
        rejection.serving = histories
            .get(&rejection.name)
            .and_then(|history| history.versions.back())
            .map_or(0, |active| active.in_force.version);
        // A name without any version is not remembered: callers could invent names without end.
        if !dry_run && histories.contains_key(&rejection.name) {
            self.rejected.rcu(|rejected| {
                let mut rejected = BTreeMap::clone(rejected);
                rejected.insert(Arc::clone(&rejection.name), rejection.clone());
                // The policy may have been deleted meanwhile.
                let histories = self.histories.load();
                rejected.retain(|name, _| histories.contains_key(name));
                rejected
            });
        }
        PolicyError::Rejected(Box::new(rejection))
    }
}

/// Policy with this name and profile. Empty profile: the only profile of the policy.
///
/// # Errors
/// The policy or the profile does not exist.
pub fn policy_in_snapshot(snapshot: &Snapshot, name: &str, profile: &str) -> Result<Arc<PolicyInForce>, StateError> {
    let policy = snapshot.policies.get(name);
    let policy = policy.ok_or_else(|| StateError::PolicyUnknown { name: name.into() })?;
    policy.of_profile(profile).map_err(StateError::ProfileUnknown)
}
