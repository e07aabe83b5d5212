//! Reload and rollback: the way of a policy to the writer, and look-ups of versions.

use std::sync::Arc;

use super::draft::{PolicyDraft, PolicyText};
use super::fingerprint::document_fingerprint;
use super::origin::PolicyOrigin;
use super::removal::{DeletedPolicy, PolicyDeletion, PolicyRemoval};
use crate::SharedState;
use crate::error::{PolicyError, StateError};
use crate::policies::rejected_document::RejectedDocument;
use crate::policies::{PolicyReload, PolicyRollback, PolicyVersion, ReloadedPolicy};
use crate::writer::command::WriterCommand;
use pumice_engine::policy::Compatibility;

/// Reload whose document is compiled.
#[derive(Debug)]
pub struct CompiledReload {
    pub(super) draft: PolicyDraft,
    /// Version that must be in force now; 0: none; `None`: any.
    pub(super) expected_version: Option<u64>,
    /// True to check only, and change nothing.
    pub(super) dry_run: bool,
}

impl SharedState {
    /// True if the active policy has precedence over a policy file with this content: the file was accepted before, so
    /// the active policy is newer.
    pub fn file_was_accepted(&self, name: &str, document: &str, compatibility: Compatibility) -> bool {
        let histories = self.policies.histories();
        let file = histories
            .get(name)
            .and_then(|history| history.file_fingerprint.as_ref());
        file.is_some_and(|file| *file == document_fingerprint(document, compatibility))
    }

    /// Compiles a document and, except in a dry run, activates it. A blocking thread compiles it.
    ///
    /// # Errors
    /// The errors of [`Self::compile_reload`] and [`Self::install_policy`].
    pub async fn reload_policy(self: &Arc<Self>, reload: PolicyReload) -> Result<ReloadedPolicy, PolicyError> {
        let state = Arc::clone(self);
        let compiled = crate::tasks::run_blocking(move || state.compile_reload(reload)).await;
        self.install_policy(compiled.map_err(|_| StateError::ShuttingDown)??)
            .await
    }

    /// Compiles a document. This may take long: never call it on an async thread.
    ///
    /// # Errors
    /// The document has errors, or the name is not a policy name.
    pub fn compile_reload(&self, reload: PolicyReload) -> Result<CompiledReload, PolicyError> {
        check_policy_name(&reload.name)?;
        let PolicyReload {
            name,
            document,
            expected_version,
            dry_run,
            strict,
            compatibility,
            origin,
        } = reload;
        let text = PolicyText {
            name,
            document,
            compatibility,
            strict,
            origin,
        };
        let draft = self
            .compile_draft(text)
            .map_err(|rejected| self.policies.reject(*rejected, dry_run))?;
        Ok(CompiledReload {
            draft,
            expected_version,
            dry_run,
        })
    }

    /// Compiles a document; the error is what becomes of it.
    fn compile_draft(&self, text: PolicyText) -> Result<PolicyDraft, Box<RejectedDocument>> {
        let (name, origin) = (Arc::clone(&text.name), text.origin.clone());
        let compiled = PolicyDraft::compile(text, self.limits.document_limits(), self.clock.wall());
        compiled.map_err(|report| {
            Box::new(RejectedDocument {
                name,
                origin,
                report,
                serving: 0,
            })
        })
    }

    /// Activates a compiled document, unless it was compiled for a dry run.
    ///
    /// # Errors
    /// The active version is not the expected version, a limit is exceeded, or the store failed.
    pub async fn install_policy(&self, reload: CompiledReload) -> Result<ReloadedPolicy, PolicyError> {
        self.ask(|reply| WriterCommand::Install(Box::new(reload), reply))
            .await?
    }

    /// Activates an earlier version again, with a new version number.
    ///
    /// # Errors
    /// The version does not exist, or the active version is not the expected version.
    pub async fn rollback_policy(&self, rollback: PolicyRollback) -> Result<ReloadedPolicy, PolicyError> {
        let PolicyRollback {
            name,
            version,
            expected_version,
            dry_run,
            caller,
        } = rollback;
        let active = self.policies.version(&name, 0)?.in_force.version;
        let earlier = match version {
            0 if active <= 1 => return Err(PolicyError::UnknownVersion { name, version }),
            0 => self.policies.version(&name, active - 1)?,
            version => self.policies.version(&name, version)?,
        };
        let reload = CompiledReload {
            draft: PolicyDraft::again(&earlier, caller, self.clock.wall()),
            // The version that was in force when the target was chosen must still be in force when the writer gets to
            // it.
            expected_version: expected_version.or(Some(active)),
            dry_run,
        };
        self.install_policy(reload).await
    }

    /// Version of a policy. 0: the active version.
    ///
    /// # Errors
    /// The policy or the version does not exist.
    pub fn policy_version(&self, name: &Arc<str>, version: u64) -> Result<Arc<PolicyVersion>, PolicyError> {
        self.policies.version(name, version)
    }

    /// Stored versions of a policy, newest first.
    ///
    /// # Errors
    /// The policy does not exist.
    pub fn policy_versions(&self, name: &Arc<str>) -> Result<Vec<Arc<PolicyVersion>>, PolicyError> {
        let histories = self.policies.histories();
        let history = histories
            .get(name)
            .ok_or_else(|| PolicyError::UnknownPolicy { name: Arc::clone(name) })?;
        Ok(history.versions.iter().rev().cloned().collect())
    }

    /// Active versions, by policy name.
    pub fn active_policies(&self) -> Vec<Arc<PolicyVersion>> {
        let histories = self.policies.histories();
        let active = histories.values().filter_map(|history| history.versions.back());
        active.cloned().collect()
    }

    /// Last rejected document of each policy that has not accepted one since, by policy name.
    pub fn rejected_documents(&self) -> Vec<RejectedDocument> {
        self.policies.rejected_documents()
    }

    /// Deletes a policy with all its versions and activates the replacement, if there is one.
    ///
    /// # Errors
    /// The policy does not exist, the active version is not the expected version, or the store failed. Nothing was
    /// deleted.
    pub async fn delete_policy(self: &Arc<Self>, deletion: PolicyDeletion) -> Result<DeletedPolicy, PolicyError> {
        let PolicyDeletion {
            name,
            expected_version,
            replacement,
        } = deletion;
        check_policy_name(&name)?;
        let replacement = match replacement {
            None => None,
            Some(document) => {
                let text = PolicyText {
                    name: Arc::clone(&name),
                    document,
                    compatibility: Compatibility::default(),
                    strict: false,
                    origin: PolicyOrigin::BuiltIn,
                };
                let state = Arc::clone(self);
                let compiled = crate::tasks::run_blocking(move || state.compile_draft(text)).await;
                let compiled = compiled.map_err(|_| StateError::ShuttingDown)?;
                Some(compiled.map_err(PolicyError::Rejected)?)
            }
        };
        let remove = PolicyRemoval {
            name,
            expected_version,
            replacement,
        };
        self.ask(|reply| WriterCommand::Remove(Box::new(remove), reply)).await?
    }
}

fn check_policy_name(name: &Arc<str>) -> Result<(), PolicyError> {
    if is_policy_name(name) {
        return Ok(());
    }
    Err(PolicyError::InvalidName { name: Arc::clone(name) })
}

/// True if a policy can have this name.
pub fn is_policy_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let outer = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    bytes.len() <= 63 && bytes.iter().all(inner) && outer(bytes.first()) && outer(bytes.last())
}
