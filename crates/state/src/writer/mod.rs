//! The single writer: applies queued commands in groups, publishes one snapshot per group, then replies.

mod apply_batch;
mod apply_durable;
pub(crate) mod command;
pub(crate) mod interner;
pub(crate) mod node_table;
pub(crate) mod ports;
pub(crate) mod published;
mod records;
mod relations;
mod replay;
pub(crate) mod request;
mod resource_forgetting;
pub(crate) mod resource_names;
mod source_removal;
mod unused_names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::PolicyError;
use crate::intake::outcome_problems::truncate_problems;
use crate::intake::record_bytes::SourceBytes;
use crate::intake::record_rules;
use crate::intake::sources::{IntakeResult, SourceIntake};
use crate::intake::unreadable::UnreadableTasks;
use crate::ledger::AdmissionLedger;
use crate::policies::stored::ActivePolicies;
use crate::policies::writer::PolicyWriter;
use crate::sessions::commit_arbiter::CommitArbiter;
use crate::store::StoredState;
use crate::writer::command::{DurableCommand, WriterCommand};
use crate::writer::interner::RecordInterner;
use crate::writer::node_table::NodeTable;
use crate::writer::ports::{CommandInbox, SnapshotPublisher};
use crate::writer::request::{CommandReply, PendingReply};
use crate::writer::resource_names::ResourceNames;
use crate::writer::unused_names::UnusedNames;
use pumice_engine::model::ClusterState;
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::{Revision, Snapshot};

/// Maximum number of commands that share a publication.
const MAX_GROUP: usize = 64;

/// Number of slots from which the node table is rebuilt, if fewer than half of them hold a node.
const COMPACT_FROM: usize = 4_096;

/// The writer's own state: the snapshot that it publishes next.
#[derive(Debug)]
pub(crate) struct Writer {
    names: Arc<ResourceNames>,
    unused_names: UnusedNames,
    publisher: Arc<dyn SnapshotPublisher>,
    sources: SourceIntake,
    policies: PolicyWriter,
    clock: Arc<dyn Clock>,
    ledger: AdmissionLedger,
    node_table: Arc<NodeTable>,
    arbiter: CommitArbiter,
    interner: RecordInterner,
    source_bytes: SourceBytes,
    unreadable: UnreadableTasks,
    next: Snapshot,
    /// Plugin states of the next snapshot that are known already, by policy.
    plugin_states: BTreeMap<Arc<str>, PluginStates>,
    /// True if the next snapshot differs from the newest one.
    changed: bool,
    /// True if the last write to the store failed.
    store_fails: bool,
    /// Set if the writer is to end after this group.
    stop: Option<CommandReply<()>>,
}

/// Shared parts that the writer works with.
#[derive(Debug)]
pub(crate) struct WriterParts {
    pub(crate) names: Arc<ResourceNames>,
    pub(crate) publisher: Arc<dyn SnapshotPublisher>,
    pub(crate) sources: SourceIntake,
    pub(crate) policies: PolicyWriter,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Writer {
    /// Writer over a state without records, with the store's content. `ledger` puts its reservations into the cluster
    /// state.
    pub(crate) fn new(
        parts: WriterParts,
        stored_state: &StoredState,
        ledger: impl FnOnce(&mut ClusterState) -> AdmissionLedger,
    ) -> Self {
        let WriterParts {
            names,
            publisher,
            sources,
            policies,
            clock,
        } = parts;
        let node_table = Arc::new(NodeTable::default());
        let mut next = Snapshot::clone(&publisher.newest());
        next.state = ClusterState::new(Arc::clone(&node_table) as _, 1);
        let ledger = ledger(&mut next.state);
        let arbiter = CommitArbiter::open(sources.limits(), stored_state);
        Self {
            names,
            unused_names: UnusedNames::default(),
            publisher,
            sources,
            policies,
            clock,
            ledger,
            node_table,
            arbiter,
            interner: RecordInterner::copying(),
            source_bytes: SourceBytes::default(),
            unreadable: UnreadableTasks::default(),
            next,
            plugin_states: BTreeMap::new(),
            changed: false,
            store_fails: false,
            stop: None,
        }
    }

    /// Makes commits accept placements that break the rules. Tests use this to prove that they notice a broken promise.
    #[cfg(any(test, feature = "test-doors"))]
    pub(crate) fn without_checks(mut self, without: bool) -> Self {
        self.arbiter.without_checks(without);
        self
    }

    /// Publishes what the store held: policies and reservations.
    pub(crate) fn publish_initial(&mut self, policies: ActivePolicies) {
        self.next.policies = Arc::new(policies);
        self.next.revision.number += 1;
        self.publish();
    }

    /// Runs until every sender is gone, or a command stops it.
    pub(crate) fn run(mut self, mut queue: impl CommandInbox) {
        while let Some(first) = queue.wait() {
            let (mut pending, mut ledger, mut taken) = (Vec::new(), Vec::new(), 1);
            self.next.revision.number += 1;
            self.handle(first, &mut pending, &mut ledger);
            while taken < MAX_GROUP {
                let Some(more) = queue.take() else { break };
                self.handle(more, &mut pending, &mut ledger);
                taken += 1;
            }
            self.forget_by_age(&mut ledger);
            if self.ledger.is_overdue(self.clock.monotonic()) {
                ledger.push(DurableCommand::ExpireLeases(None));
            }
            let outcomes = self.apply_durable(ledger);
            if std::mem::take(&mut self.changed) {
                self.publish();
            } else {
                self.next.revision.number -= 1;
                self.plugin_states.clear();
            }
            self.reply_durable(outcomes);
            for pending in pending {
                pending();
            }
            if self.stop.is_some() {
                break;
            }
        }
        let stop = self.stop.take();
        // The store is closed before the reply.
        drop((self, queue));
        if let Some(stop) = stop {
            stop.send(());
        }
    }

    fn visible_revision(&self) -> Revision {
        Revision {
            number: self.next.revision.number - 1,
            ..self.next.revision
        }
    }

    fn handle(&mut self, command: WriterCommand, pending: &mut Vec<PendingReply>, ledger: &mut Vec<DurableCommand>) {
        let is_durable = matches!(command, WriterCommand::Durable(_));
        self.handle_command(command, pending, ledger);
        if !is_durable {
            // The plugin states may be those of another state, since entries of others were applied.
            self.plugin_states.clear();
        }
    }

    fn handle_command(
        &mut self,
        command: WriterCommand,
        pending: &mut Vec<PendingReply>,
        ledger: &mut Vec<DurableCommand>,
    ) {
        match command {
            WriterCommand::Apply(batch, reply) => match self.intake(*batch) {
                Ok(IntakeResult::Apply(batch)) => {
                    let outcome = self.apply_to_source(*batch);
                    pending.push(reply.later(Ok(outcome)));
                }
                // The stored outcome of a batch of this group waits for the publication, too.
                Ok(IntakeResult::Reply(outcome)) if outcome.revision == self.next.revision => {
                    pending.push(reply.later(Ok(outcome)));
                }
                Ok(IntakeResult::Reply(outcome)) => reply.send(Ok(outcome)),
                Err(error) => reply.send(Err(error)),
            },
            WriterCommand::Install(install, reply) => {
                let mut installed = self.install_policy(&install);
                // The next look at the clock repairs the store; batches do not try it each time.
                self.store_fails |= matches!(&installed, Err(PolicyError::State(error)) if error.is_of_store());
                if let Ok(reloaded) = &mut installed {
                    let policy = &reloaded.version.in_force.policy;
                    reloaded.queue_problems =
                        truncate_problems(record_rules::policy_problems(policy, &self.next.state));
                    let awaited = self.sources.outdated(policy.all_labels(), self.next.pod_release());
                    reloaded.awaited_sources = awaited.cloned().collect();
                }
                match installed {
                    // A repeated reload of a policy that this group put in force waits for the publication, too.
                    Ok(reloaded) if reloaded.publishes() || !pending.is_empty() => {
                        self.changed |= reloaded.publishes();
                        pending.push(reply.later(Ok(reloaded)));
                    }
                    other => reply.send(other),
                }
            }
            WriterCommand::Remove(removal, reply) => {
                let removed = self.remove_policy(&removal);
                self.store_fails |= matches!(&removed, Err(PolicyError::State(error)) if error.is_of_store());
                match removed {
                    Ok(removed) => {
                        self.changed = true;
                        pending.push(reply.later(Ok(removed)));
                    }
                    Err(error) => reply.send(Err(error)),
                }
            }
            WriterCommand::Forget(forget, reply) => match self.forget_source(&forget) {
                Ok(forgotten) => {
                    // What was durable of it leaves the store with this group.
                    ledger.push(DurableCommand::ExpireLeases(None));
                    pending.push(reply.later(Ok(forgotten)));
                }
                Err(error) => reply.send(Err(error)),
            },
            WriterCommand::ForgetResource(name, reply) => {
                pending.push(reply.later(self.forget_resource(&name)));
            }
            WriterCommand::Durable(command) => ledger.push(command),
            WriterCommand::Run(work) => work(),
            // Each group begins with it.
            WriterCommand::ReadLog => {}
        }
    }

    fn publish(&mut self) {
        let nodes = self.next.state.node_count() as usize;
        let mut derived = std::mem::take(&mut self.plugin_states);
        if self.node_table.len() > COMPACT_FROM.max(nodes * 2) {
            self.compact();
            // Plugin states name nodes by their slots.
            derived.clear();
        }
        self.next.state.refresh_ranks();
        let next = self.next.clone();
        for (policy, derived) in derived {
            next.plugin_state_cache.seed(&policy, derived);
        }
        self.publisher.publish(next);
    }

    /// Assigns the slots again, without removed nodes.
    fn compact(&mut self) {
        let nodes = Arc::new(NodeTable::default());
        let names: BTreeSet<&Arc<str>> = self.next.state.nodes().map(|(_, entry)| &entry.record.name).collect();
        for name in names {
            nodes.assign_slot(name);
        }
        self.next.state = self.next.state.with_index(Arc::clone(&nodes) as _);
        self.node_table = nodes;
    }
}
