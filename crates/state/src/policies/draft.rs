//! Drafts of versions: documents that are compiled, and have no number yet.

use std::sync::Arc;
use std::time::Duration;

use super::PolicyVersion;
use super::fingerprint::{document_fingerprint, document_hash};
use super::origin::PolicyOrigin;
use pumice_engine::PolicyInForce;
use pumice_engine::policy::{
    self, Compatibility, CompileOptions, CompiledPolicy, DiagnosticReport, Policy, YamlLimits,
};

/// Text of a policy, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct PolicyText {
    /// Key of the policy, such as `default`.
    pub(crate) name: Arc<str>,
    /// Document as it was sent.
    pub(crate) document: Arc<str>,
    /// Compatibility of a document that does not set it.
    pub(crate) compatibility: Compatibility,
    /// True if warnings are treated as errors.
    pub(crate) strict: bool,
    /// Origin of the document.
    pub(crate) origin: PolicyOrigin,
}

/// Version without a number, on its way to the writer, which gives it one.
#[derive(Debug)]
pub(crate) struct PolicyDraft {
    pub(crate) name: Arc<str>,
    hash: Arc<str>,
    /// Hash of the document and its compatibility.
    pub(crate) fingerprint: Arc<str>,
    policy: Arc<Policy>,
    document: Arc<str>,
    loaded_document: Arc<str>,
    pub(crate) effective_document: Arc<str>,
    report: Arc<DiagnosticReport>,
    pub(crate) origin: PolicyOrigin,
    accepted_at: Duration,
}

impl PolicyDraft {
    /// Compiles a document. This may take long: never call it on an async thread.
    ///
    /// # Errors
    /// The document has errors.
    pub(crate) fn compile(
        text: PolicyText,
        limits: YamlLimits,
        accepted_at: Duration,
    ) -> Result<Self, DiagnosticReport> {
        let PolicyText {
            name,
            document,
            compatibility,
            strict,
            origin,
        } = text;
        let options = CompileOptions {
            limits,
            compatibility,
            strict,
        };
        let CompiledPolicy {
            policy,
            report,
            loaded_document,
            effective_document,
        } = policy::compile(&document, &options)?;
        Ok(Self {
            name,
            hash: document_hash(&document),
            fingerprint: document_fingerprint(&document, compatibility),
            policy,
            document,
            loaded_document: loaded_document.into(),
            effective_document: effective_document.into(),
            report: Arc::new(report),
            origin,
            accepted_at,
        })
    }

    /// An earlier version once more.
    pub(crate) fn again(earlier: &PolicyVersion, caller: String, accepted_at: Duration) -> Self {
        let PolicyVersion {
            in_force,
            document,
            loaded_document,
            effective_document,
            report,
            origin: _,
            accepted_at: _,
        } = earlier.clone();
        Self {
            name: Arc::clone(&in_force.name),
            hash: Arc::clone(&in_force.hash),
            fingerprint: document_fingerprint(&document, in_force.policy.compatibility()),
            policy: Arc::clone(&in_force.policy),
            document,
            loaded_document,
            effective_document,
            report,
            origin: PolicyOrigin::Rollback(in_force.version, caller),
            accepted_at,
        }
    }

    /// True if the document is the one in force.
    pub(crate) fn is_in_force(&self, active: &PolicyVersion) -> bool {
        let other = &active.in_force;
        self.hash == other.hash && self.policy.compatibility() == other.policy.compatibility()
    }

    /// The version of this number.
    pub(crate) fn to_version(&self, version: u64) -> Arc<PolicyVersion> {
        Arc::new(PolicyVersion {
            in_force: Arc::new(PolicyInForce {
                name: Arc::clone(&self.name),
                version,
                hash: Arc::clone(&self.hash),
                profile: Arc::default(),
                policy: Arc::clone(&self.policy),
            }),
            document: Arc::clone(&self.document),
            loaded_document: Arc::clone(&self.loaded_document),
            effective_document: Arc::clone(&self.effective_document),
            report: Arc::clone(&self.report),
            origin: self.origin.clone(),
            accepted_at: self.accepted_at,
        })
    }
}

/// Draft that is to be put in force if the expected version is.
#[derive(Debug)]
pub(crate) struct PolicyInstall {
    pub(crate) draft: PolicyDraft,
    /// Version that must be in force now; 0: none; `None`: any.
    pub(crate) expected_version: Option<u64>,
    /// True to check only, and change nothing.
    pub(crate) dry_run: bool,
}
