//! Drafts of versions: documents that are compiled, and have no number yet.

use std::sync::Arc;
use std::time::Duration;

use super::PolicyVersion;
use super::fingerprint::{document_fingerprint, document_hash};
use super::origin::PolicyOrigin;
use pumice_engine::PolicyInForce;
use pumice_engine::policy::{self, Compatibility, CompileOptions, CompiledPolicy, DiagnosticReport, YamlLimits};

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
    /// Version that the draft becomes. Its number does not count: [`Self::to_version`] sets it.
    pub(super) version: PolicyVersion,
    /// Hash of the document and its compatibility.
    pub(super) fingerprint: Arc<str>,
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
            fingerprint: document_fingerprint(&document, compatibility),
            version: PolicyVersion {
                in_force: Arc::new(PolicyInForce {
                    name,
                    version: 0,
                    hash: document_hash(&document),
                    profile: Arc::default(),
                    policy,
                }),
                document,
                loaded_document: loaded_document.into(),
                effective_document: effective_document.into(),
                report: Arc::new(report),
                origin,
                accepted_at,
            },
        })
    }

    /// An earlier version once more.
    pub(crate) fn again(earlier: &PolicyVersion, caller: String, accepted_at: Duration) -> Self {
        let PolicyInForce { version, policy, .. } = &*earlier.in_force;
        Self {
            fingerprint: document_fingerprint(&earlier.document, policy.compatibility()),
            version: PolicyVersion {
                origin: PolicyOrigin::Rollback(*version, caller),
                accepted_at,
                ..earlier.clone()
            },
        }
    }

    /// Key of the policy, such as `default`.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.version.in_force.name
    }

    /// True if the document is the one in force.
    pub(crate) fn is_in_force(&self, active: &PolicyVersion) -> bool {
        let (own, other) = (&self.version.in_force, &active.in_force);
        own.hash == other.hash && own.policy.compatibility() == other.policy.compatibility()
    }

    /// The version of this number.
    pub(crate) fn to_version(&self, number: u64) -> Arc<PolicyVersion> {
        Arc::new(PolicyVersion {
            in_force: Arc::new(PolicyInForce {
                version: number,
                ..PolicyInForce::clone(&self.version.in_force)
            }),
            ..self.version.clone()
        })
    }
}
