//! Policies in the store: versions with their origin, and the last accepted policy file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::draft::{PolicyDraft, PolicyText};
use super::origin::PolicyOrigin;
use crate::error::StateError;
use crate::policies::{PolicyHistories, PolicyVersion};
use crate::store::{LedgerLog, StoreWrite, StoredPolicy};
use pumice_engine::PolicyInForce;
use pumice_engine::policy::{Compatibility, DiagnosticReport, DocumentLocation, ErrorCode, YamlLimits};

/// Error of a stored policy that was in force and that this program rejects.
#[derive(Debug, thiserror::Error)]
#[error(
    "version {version} of policy `{name}`, which was in force, is rejected by this program: {}",
    first_error(report)
)]
pub struct StoredPolicyError {
    /// Name of the unusable policy.
    pub name: Arc<str>,
    /// Number of the version.
    pub version: u64,
    /// Diagnostics of the document.
    pub report: DiagnosticReport,
}

fn first_error(report: &DiagnosticReport) -> String {
    report.errors().next().map(ToString::to_string).unwrap_or_default()
}

impl PolicyOrigin {
    /// Detail of the origin beside its kind.
    fn detail(&self) -> Arc<str> {
        match self {
            Self::BuiltIn => Arc::default(),
            Self::File(text) | Self::Hangup(text) | Self::Rpc(text) => text.as_str().into(),
            Self::Rollback(version, caller) if caller.is_empty() => version.to_string().into(),
            Self::Rollback(version, caller) => format!("{version} by {caller}").into(),
        }
    }

    /// Origin from its stored kind and detail.
    pub(super) fn from_stored(kind: &str, detail: &str) -> Self {
        match kind {
            "built-in" => Self::BuiltIn,
            "file" => Self::File(detail.to_owned()),
            "sighup" => Self::Hangup(detail.to_owned()),
            "rollback" => {
                let (version, caller) = detail.split_once(" by ").unwrap_or((detail, ""));
                Self::Rollback(version.parse().unwrap_or(0), caller.to_owned())
            }
            _ => Self::Rpc(detail.to_owned()),
        }
    }

    fn is_file(&self) -> bool {
        matches!(self, Self::File(_) | Self::Hangup(_))
    }
}

impl PolicyVersion {
    fn to_stored(&self) -> StoredPolicy {
        StoredPolicy {
            name: Arc::clone(&self.in_force.name),
            version: self.in_force.version,
            document: Arc::clone(&self.document),
            compatibility: self.in_force.policy.compatibility().name().into(),
            origin: self.origin.kind().into(),
            origin_detail: self.origin.detail(),
            accepted: self.accepted_at,
        }
    }
}

/// Writes for a version that was accepted, or that was in force already (`unchanged`).
pub(crate) fn version_writes(
    version: &PolicyVersion,
    unchanged: bool,
    dropped: &[Arc<PolicyVersion>],
    origin: &PolicyOrigin,
    content: &Arc<str>,
) -> Vec<StoreWrite> {
    let name = &version.in_force.name;
    let mut writes = Vec::new();
    if !unchanged {
        writes.push(StoreWrite::Policy(version.to_stored()));
    }
    writes.extend(dropped.iter().map(|old| StoreWrite::RemovePolicy {
        name: Arc::clone(name),
        version: old.in_force.version,
    }));
    if origin.is_file() {
        writes.push(StoreWrite::PolicyFile {
            name: Arc::clone(name),
            content: Some(Arc::clone(content)),
        });
    }
    writes
}

/// Subject of a write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RepairSubject {
    Version(Arc<str>, u64),
    File(Arc<str>),
}

impl RepairSubject {
    fn of(write: &StoreWrite) -> Option<Self> {
        match write {
            StoreWrite::Policy(stored) => Some(Self::Version(Arc::clone(&stored.name), stored.version)),
            StoreWrite::RemovePolicy { name, version } => Some(Self::Version(Arc::clone(name), *version)),
            StoreWrite::PolicyFile { name, .. } => Some(Self::File(Arc::clone(name))),
            StoreWrite::Job { .. } | StoreWrite::Task { .. } | StoreWrite::Source { .. } => None,
        }
    }

    /// Name of its policy.
    fn policy(&self) -> &Arc<str> {
        match self {
            Self::Version(name, _) | Self::File(name) => name,
        }
    }

    /// Write that makes the store equal to memory for this subject.
    fn true_write(&self, histories: &PolicyHistories) -> StoreWrite {
        match self {
            Self::Version(name, number) => {
                let mut versions = histories.get(name).into_iter().flat_map(|history| &history.versions);
                match versions.find(|version| version.in_force.version == *number) {
                    Some(version) => StoreWrite::Policy(version.to_stored()),
                    None => StoreWrite::RemovePolicy {
                        name: Arc::clone(name),
                        version: *number,
                    },
                }
            }
            Self::File(name) => StoreWrite::PolicyFile {
                name: Arc::clone(name),
                content: histories.get(name).and_then(|history| history.file_fingerprint.clone()),
            },
        }
    }
}

/// Subjects for which the store may differ from memory: a failed write may have reached the store, and would be in
/// force after a crash. The next successful write repairs it.
#[derive(Debug, Default)]
pub(crate) struct PendingRepair(BTreeSet<RepairSubject>);

impl PendingRepair {
    /// Appends an entry to the log, together with all pending repairs.
    ///
    /// # Errors
    /// Another server has appended first, or the store failed. The subjects of these writes then also wait for a
    /// repair.
    pub(crate) fn write_with_repairs(
        &mut self,
        histories: &PolicyHistories,
        log: &mut LedgerLog,
        writes: Vec<StoreWrite>,
    ) -> Result<(), StateError> {
        let about: Vec<RepairSubject> = writes.iter().filter_map(RepairSubject::of).collect();
        let mut all = self.writes(histories);
        all.extend(writes);
        if let Err(error) = log.append(&all) {
            let name = about.first().map(|subject| Arc::clone(subject.policy()));
            if log.needs_repairs() {
                self.0.extend(about);
            }
            return Err(StateError::of_write(error, || {
                format!("policy `{}`", name.unwrap_or_default())
            }));
        }
        self.clear();
        Ok(())
    }

    pub(crate) fn is_needed(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn writes(&self, histories: &PolicyHistories) -> Vec<StoreWrite> {
        self.0.iter().map(|subject| subject.true_write(histories)).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

pub(super) fn compile_stored(
    stored: &StoredPolicy,
    limits: YamlLimits,
) -> Result<Arc<PolicyVersion>, DiagnosticReport> {
    let compatibility = Compatibility::from_name(&stored.compatibility).ok_or_else(|| {
        let mut report = DiagnosticReport::default();
        let message = format!(
            "it follows `{}`, which this program does not know; run the version that stored it",
            stored.compatibility
        );
        report.error(ErrorCode::CompatibilityUnknown, &DocumentLocation::default(), message);
        report
    })?;
    let text = PolicyText {
        name: Arc::clone(&stored.name),
        document: Arc::clone(&stored.document),
        compatibility,
        strict: false,
        origin: PolicyOrigin::from_stored(&stored.origin, &stored.origin_detail),
    };
    let draft = PolicyDraft::compile(text, limits, stored.accepted)?;
    Ok(draft.to_version(stored.version))
}

/// Versions of all stored policies, compiled. An earlier version that this program rejects is left out. A rejected
/// active version is an error.
pub(super) fn compile_versions(
    stored: &[StoredPolicy],
    limits: YamlLimits,
) -> impl Iterator<Item = Result<Arc<PolicyVersion>, StoredPolicyError>> {
    let mut stored = stored.iter().peekable();
    std::iter::from_fn(move || {
        while let Some(one) = stored.next() {
            let is_last = stored.peek().is_none_or(|next| next.name != one.name);
            match compile_stored(one, limits) {
                Ok(version) => return Some(Ok(version)),
                Err(report) if is_last => {
                    return Some(Err(StoredPolicyError {
                        name: Arc::clone(&one.name),
                        version: one.version,
                        report,
                    }));
                }
                Err(_) => {
                    tracing::warn!(policy = %one.name, version = one.version, "this program rejects a stored version: it is left out");
                }
            }
        }
        None
    })
}

/// Policies in force, by name.
pub(crate) type ActivePolicies = BTreeMap<Arc<str>, Arc<PolicyInForce>>;
