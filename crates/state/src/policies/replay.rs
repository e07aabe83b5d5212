//! Applies versions of policies that other servers activated or deleted.

use std::sync::Arc;

use super::origin::PolicyOrigin;
use super::stored::{ActivePolicies, compile_stored};
use super::writer::PolicyWriter;
use crate::policies::rejected_document::RejectedDocument;
use crate::policies::{PolicyHistories, PolicyHistory};
use crate::store::{StoreWrite, StoredPolicy};

impl PolicyWriter {
    /// Applies writes about policies that are in the log already, and shows readers the outcome.
    pub(crate) fn replay<'w>(
        &mut self,
        writes: impl Iterator<Item = &'w StoreWrite>,
        in_force: &mut Arc<ActivePolicies>,
    ) {
        // Whatever waits to be written again was written by another server, or is in the log.
        self.repaired();
        let is_about_policies = |write: &&StoreWrite| {
            let is_other = matches!(
                write,
                StoreWrite::Job { .. } | StoreWrite::Task { .. } | StoreWrite::Source { .. }
            );
            !is_other
        };
        let mut writes = writes.filter(is_about_policies).peekable();
        if writes.peek().is_none() {
            return;
        }
        let mut histories = PolicyHistories::clone(&self.registry.histories());
        for write in writes {
            match write {
                StoreWrite::Policy(stored) => self.replay_version(stored, &mut histories),
                StoreWrite::RemovePolicy { name, version } => remove_version(&mut histories, name, *version),
                StoreWrite::PolicyFile { name, content } => {
                    if let Some(history) = histories.get_mut(name) {
                        Arc::make_mut(history).file_fingerprint.clone_from(content);
                    }
                }
                StoreWrite::Job { .. } | StoreWrite::Task { .. } | StoreWrite::Source { .. } => {}
            }
        }
        let active = histories.iter().filter_map(|(name, history)| {
            let newest = history.versions.back()?;
            Some((Arc::clone(name), Arc::clone(&newest.in_force)))
        });
        *in_force = Arc::new(active.collect());
        self.registry.publish(histories);
    }

    fn replay_version(&self, stored: &StoredPolicy, histories: &mut PolicyHistories) {
        let version = match compile_stored(stored, self.document_limits) {
            Ok(version) => version,
            Err(report) => {
                let rejection = RejectedDocument {
                    name: Arc::clone(&stored.name),
                    origin: PolicyOrigin::from_stored(&stored.origin, &stored.origin_detail),
                    report,
                    serving: 0,
                };
                let error = self.registry.reject(rejection, false);
                tracing::error!(version = stored.version, %error, "another server put a policy in force that this program rejects: is its version another one?");
                return;
            }
        };
        let history = histories.entry(Arc::clone(&stored.name)).or_default();
        if history
            .versions
            .iter()
            .any(|known| known.in_force.version == stored.version)
        {
            return;
        }
        self.restore_version(Arc::make_mut(history), &version);
        self.registry.clear_rejection(&stored.name);
    }

    /// Writes that make the policies of memory go.
    pub(crate) fn clearing_writes(&self) -> Vec<StoreWrite> {
        let histories = self.registry.histories();
        let versions = histories.iter().flat_map(|(name, history)| {
            history.versions.iter().map(move |version| StoreWrite::RemovePolicy {
                name: Arc::clone(name),
                version: version.in_force.version,
            })
        });
        versions.collect()
    }
}

/// Removes a version from the history of its policy, and the policy with its last version.
fn remove_version(histories: &mut PolicyHistories, name: &Arc<str>, version: u64) {
    let Some(history) = histories.get_mut(name) else { return };
    let history: &mut PolicyHistory = Arc::make_mut(history);
    history.versions.retain(|known| known.in_force.version != version);
    if history.versions.is_empty() {
        histories.remove(name);
    }
}
