//! Policies as they are kept: versions with their origin, and which policy file was last accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::error::StateError;
use super::limits::StateLimits;
use super::origin::PolicyOrigin;
use super::policies::{PolicyHistory, PolicyRegistry, PolicyVersion};
use super::policy_reload::document_hash;
use crate::engine::PolicyInForce;
use crate::engine::policy::{self, Compatibility, CompileOptions, DiagnosticReport};
use crate::store::{Store, StoreWrite, StoredPolicy, StoredState};

/// A policy in force that is kept and can no longer be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "version {version} of policy `{name}`, which was in force, is refused by this program: {}",
    first_error(report)
)]
pub struct StoredPolicyError {
    /// The policy.
    pub name: Arc<str>,
    /// Its version.
    pub version: u64,
    /// What is wrong with it.
    pub report: DiagnosticReport,
}

fn first_error(report: &DiagnosticReport) -> String {
    report.errors().next().map(ToString::to_string).unwrap_or_default()
}

/// Tells the content of a policy file, and how it is read, from another.
pub(super) fn document_fingerprint(document: &str, compatibility: Compatibility) -> Arc<str> {
    format!("{}:{}", document_hash(document), compatibility.name()).into()
}

impl PolicyOrigin {
    /// What stands beside its first word.
    fn detail(&self) -> Arc<str> {
        match self {
            Self::BuiltIn => Arc::default(),
            Self::File(text) | Self::Hangup(text) | Self::Rpc(text) => text.as_str().into(),
            Self::Rollback(version) => version.to_string().into(),
        }
    }

    /// The origin of these words.
    fn from_stored(kind: &str, detail: &str) -> Self {
        match kind {
            "built-in" => Self::BuiltIn,
            "file" => Self::File(detail.to_owned()),
            "sighup" => Self::Hangup(detail.to_owned()),
            "rollback" => Self::Rollback(detail.parse().unwrap_or(0)),
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

/// What is to be written when a version is accepted, or is in force already (`unchanged`).
pub(super) fn version_writes(
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

/// What a write is about.
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
            StoreWrite::Job { .. } | StoreWrite::Task { .. } => None,
        }
    }

    /// What is true of it.
    fn true_write(&self, histories: &BTreeMap<Arc<str>, PolicyHistory>) -> StoreWrite {
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

/// What the store may hold of policies that is not true: a write that failed may be there all the same, and would be in
/// force after a crash. The next write, whoever makes it, sets it right.
#[derive(Debug, Default)]
pub(super) struct PendingRepair(BTreeSet<RepairSubject>);

impl PendingRepair {
    /// Writes, and with it what is owed.
    ///
    /// # Errors
    /// The store failed: all of it is owed.
    pub(super) fn write_with_repairs(
        &mut self,
        histories: &BTreeMap<Arc<str>, PolicyHistory>,
        store: &mut dyn Store,
        writes: Vec<StoreWrite>,
    ) -> Result<(), StateError> {
        let about: Vec<RepairSubject> = writes.iter().filter_map(RepairSubject::of).collect();
        let mut all = self.writes(histories);
        all.extend(writes);
        if let Err(error) = store.write(&all) {
            self.0.extend(about);
            return Err(StateError::Store(error));
        }
        self.clear();
        Ok(())
    }

    pub(super) fn is_needed(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn writes(&self, histories: &BTreeMap<Arc<str>, PolicyHistory>) -> Vec<StoreWrite> {
        self.0.iter().map(|subject| subject.true_write(histories)).collect()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn compile_stored(stored: &StoredPolicy, limits: &StateLimits) -> Result<PolicyVersion, DiagnosticReport> {
    let options = CompileOptions {
        limits: limits.document_limits(),
        compatibility: Compatibility::from_name(&stored.compatibility).unwrap_or_default(),
        strict: false,
    };
    let compiled = policy::compile(&stored.document, &options)?;
    let in_force = PolicyInForce {
        name: Arc::clone(&stored.name),
        version: stored.version,
        hash: document_hash(&stored.document),
        profile: Arc::default(),
        policy: compiled.policy,
    };
    Ok(PolicyVersion {
        in_force: Arc::new(in_force),
        document: Arc::clone(&stored.document),
        loaded_document: compiled.loaded_document.into(),
        effective_document: compiled.effective_document.into(),
        report: Arc::new(compiled.report),
        origin: PolicyOrigin::from_stored(&stored.origin, &stored.origin_detail),
        accepted_at: stored.accepted,
    })
}

/// Versions in force, by name.
pub(super) type ActivePolicies = BTreeMap<Arc<str>, Arc<PolicyInForce>>;

impl PolicyRegistry {
    /// Policies as they are kept, and those in force.
    ///
    /// # Errors
    /// One that was in force is refused by this program. An earlier version that is refused is left out.
    pub(super) fn open(limits: &StateLimits, kept: &StoredState) -> Result<(Self, ActivePolicies), StoredPolicyError> {
        let policies = Self::new(limits);
        let mut in_force = ActivePolicies::new();
        {
            let mut histories = policies.lock();
            let mut stored = kept.policies.iter().peekable();
            while let Some(one) = stored.next() {
                let is_last = stored.peek().is_none_or(|next| next.name != one.name);
                let version = match compile_stored(one, limits) {
                    Ok(version) => Arc::new(version),
                    Err(report) if is_last => {
                        return Err(StoredPolicyError {
                            name: Arc::clone(&one.name),
                            version: one.version,
                            report,
                        });
                    }
                    Err(_) => {
                        tracing::warn!(policy = %one.name, version = one.version, "a kept version can no longer be read; it is left out");
                        continue;
                    }
                };
                in_force.insert(Arc::clone(&one.name), Arc::clone(&version.in_force));
                let history: &mut PolicyHistory = histories.entry(Arc::clone(&one.name)).or_default();
                policies.restore_version(history, &version);
            }
            for (name, content) in &kept.policy_files {
                if let Some(history) = histories.get_mut(name) {
                    history.file_fingerprint = Some(Arc::clone(content));
                }
            }
        }
        Ok((policies, in_force))
    }
}
