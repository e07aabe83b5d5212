//! The single writer: applies queued commands in groups, publishes one snapshot per group, then replies.

pub(crate) mod apply_durable;
pub(crate) mod interner;
pub(crate) mod node_table;
pub(crate) mod ports;
pub(crate) mod published;
mod records;
pub(crate) mod relations;
mod replay;
pub(crate) mod resource_forgetting;
pub(crate) mod resource_names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::{PolicyError, StateError};
use crate::intake::batch::{Batch, BatchKind, BatchRecord, RejectedRecord};
use crate::intake::batch_outcome::BatchOutcome;
use crate::intake::outcome_problems::truncate_problems;
use crate::intake::record_bytes::SourceBytes;
use crate::intake::record_rules;
use crate::intake::source_removal::{ForgetSource, ForgottenSource};
use crate::intake::sources::{IntakeResult, SourceIntake};
use crate::intake::unreadable::{UnreadableTasks, uncounted_warning};
use crate::ledger::AdmissionLedger;
use crate::policies::ReloadedPolicy;
use crate::policies::draft::PolicyInstall;
use crate::policies::removal::{DeletedPolicy, PolicyRemoval};
use crate::policies::stored::ActivePolicies;
use crate::policies::writer::PolicyWriter;
use crate::sessions::commit::CommitArbiter;
use crate::store::StoredState;
use crate::writer::apply_durable::DurableCommand;
use crate::writer::interner::RecordInterner;
use crate::writer::node_table::NodeTable;
use crate::writer::ports::{CommandInbox, CommandReply, SnapshotPublisher};
use crate::writer::relations::RelationChanges;
use crate::writer::resource_forgetting::ResourceForgetter;
use crate::writer::resource_names::ResourceNames;
use pumice_engine::model::{ClusterState, Problem, RecordKind};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::{Revision, Snapshot, SourcePosition};

/// Maximum number of commands that share a publication.
const MAX_GROUP: usize = 64;

/// Number of slots from which the node table is rebuilt, if fewer than half of them hold a node.
const COMPACT_FROM: usize = 4_096;

/// Command to the writer.
#[derive(Debug)]
pub(crate) enum WriterCommand {
    /// Apply a batch.
    Apply(Box<Batch>, CommandReply<Result<BatchOutcome, StateError>>),
    /// Put a compiled policy in force.
    Install(Box<PolicyInstall>, CommandReply<Result<ReloadedPolicy, PolicyError>>),
    /// Delete a policy.
    Remove(Box<PolicyRemoval>, CommandReply<Result<DeletedPolicy, PolicyError>>),
    /// Forget a source.
    Forget(Box<ForgetSource>, CommandReply<Result<ForgottenSource, StateError>>),
    /// Forget a resource name.
    ForgetResource(Arc<str>, CommandReply<Result<Revision, StateError>>),
    /// Change the admission ledger or assumptions. The writer handles these after the other commands of the group, on
    /// the state that those make.
    Durable(DurableCommand),
    /// Run a short function on the writer's thread, between two groups.
    Run(fn()),
    /// Read what others have appended to the log.
    ReadLog,
}

/// Reply that waits for the publication.
enum PendingReply {
    Applied(Box<BatchOutcome>, CommandReply<Result<BatchOutcome, StateError>>),
    Installed(Box<ReloadedPolicy>, CommandReply<Result<ReloadedPolicy, PolicyError>>),
    Removed(Box<DeletedPolicy>, CommandReply<Result<DeletedPolicy, PolicyError>>),
    Forgotten(ForgottenSource, CommandReply<Result<ForgottenSource, StateError>>),
    ResourceForgotten(Result<Revision, StateError>, CommandReply<Result<Revision, StateError>>),
}

/// The writer's own state: the snapshot that it publishes next.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) names: Arc<ResourceNames>,
    pub(crate) forgetter: ResourceForgetter,
    pub(crate) publisher: Arc<dyn SnapshotPublisher>,
    pub(crate) sources: SourceIntake,
    pub(crate) policies: PolicyWriter,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ledger: AdmissionLedger,
    node_table: Arc<NodeTable>,
    pub(crate) arbiter: CommitArbiter,
    interner: RecordInterner,
    pub(crate) source_bytes: SourceBytes,
    pub(crate) unreadable: UnreadableTasks,
    pub(crate) next: Snapshot,
    /// Plugin states of the next snapshot that are known already, by policy.
    pub(crate) plugin_states: BTreeMap<Arc<str>, PluginStates>,
    /// True if the next snapshot differs from the newest one.
    pub(crate) changed: bool,
    /// True if the last write to the store failed.
    pub(crate) store_fails: bool,
    /// Set if the writer is to end after this group.
    pub(crate) stop: Option<CommandReply<()>>,
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
            forgetter: ResourceForgetter::default(),
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
    #[cfg(debug_assertions)]
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
                send_reply(pending);
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
                    pending.push(PendingReply::Applied(Box::new(outcome), reply));
                }
                // The stored outcome of a batch of this group waits for the publication, too.
                Ok(IntakeResult::Reply(outcome)) if outcome.revision == self.next.revision => {
                    pending.push(PendingReply::Applied(Box::new(outcome), reply));
                }
                Ok(IntakeResult::Reply(outcome)) => reply.send(Ok(outcome)),
                Err(error) => reply.send(Err(error)),
            },
            WriterCommand::Install(install, reply) => {
                let mut installed = self.install_policy(&install);
                // The next look at the clock repairs the store; batches do not try it each time.
                self.store_fails |= matches!(installed, Err(PolicyError::State(StateError::Store(_))));
                if let Ok(reloaded) = &mut installed {
                    let policy = &reloaded.version.in_force.policy;
                    reloaded.queue_problems =
                        truncate_problems(record_rules::policy_problems(policy, &self.next.state));
                    let awaited = self.next.state.sources_without(policy.all_labels());
                    reloaded.awaited_sources = awaited.cloned().collect();
                }
                match installed {
                    // A repeated reload of a policy that this group put in force waits for the publication, too.
                    Ok(reloaded) if reloaded.publishes() || !pending.is_empty() => {
                        self.changed |= reloaded.publishes();
                        pending.push(PendingReply::Installed(Box::new(reloaded), reply));
                    }
                    other => reply.send(other),
                }
            }
            WriterCommand::Remove(removal, reply) => {
                let removed = self.remove_policy(&removal);
                self.store_fails |= matches!(removed, Err(PolicyError::State(StateError::Store(_))));
                match removed {
                    Ok(removed) => {
                        self.changed = true;
                        pending.push(PendingReply::Removed(Box::new(removed), reply));
                    }
                    Err(error) => reply.send(Err(error)),
                }
            }
            WriterCommand::Forget(forget, reply) => match self.forget_source(&forget) {
                Ok(forgotten) => {
                    // What was durable of it leaves the store with this group.
                    ledger.push(DurableCommand::ExpireLeases(None));
                    pending.push(PendingReply::Forgotten(forgotten, reply));
                }
                Err(error) => reply.send(Err(error)),
            },
            WriterCommand::ForgetResource(name, reply) => {
                pending.push(PendingReply::ResourceForgotten(self.forget_resource(&name), reply));
            }
            WriterCommand::Durable(command) => ledger.push(command),
            WriterCommand::Run(work) => work(),
            // Each group begins with it.
            WriterCommand::ReadLog => {}
        }
    }

    /// Applies a batch, after which the later ones of the group are judged.
    fn apply_to_source(&mut self, batch: Batch) -> BatchOutcome {
        let (kind, dropped) = (batch.kind, batch.dropped_labels);
        let outcome = self.apply_batch(batch);
        self.changed = true;
        let bytes = self.source_bytes.of(&outcome.position.source);
        self.sources.applied(kind, &outcome, bytes, dropped);
        self.show_dropped_labels();
        outcome
    }

    fn intake(&mut self, mut batch: Batch) -> Result<IntakeResult, StateError> {
        self.check_names(&batch)?;
        batch.names = None;
        self.sources
            .intake(batch, self.visible_revision(), self.next.read_labels())
    }

    /// Tells the next snapshot which labels its records lack.
    pub(super) fn show_dropped_labels(&mut self) {
        let dropped = self.sources.dropped_labels();
        if dropped != *self.next.state.dropped_labels() {
            self.next.state.set_dropped_labels(dropped);
        }
    }

    /// Applies a batch to the next snapshot.
    fn apply_batch(&mut self, mut batch: Batch) -> BatchOutcome {
        let watch = record_rules::judge_queues(&mut batch, &self.next.state, &self.next.policies);
        let Batch {
            source,
            source_epoch,
            sequence,
            kind,
            part: _,
            mut put,
            rejected,
            remove,
            removed_uids,
            mut warnings,
            source_kind: _,
            names: _,
            bytes: _,
            dropped_labels: _,
            connection: _,
        } = batch;
        self.next.state.set_resources(self.names.current_table());
        let (mut problems, mut related) = (Vec::new(), RelationChanges::default());
        if kind == BatchKind::FullSyncLast {
            self.remove_absent(&source, &put, &rejected, &mut related);
            self.unreadable.forget_source(&source);
        }
        self.remove_named(&source, remove, &removed_uids, &mut related);
        // Tasks come last: their priorities and groups follow from classes and jobs.
        let is_task = |(record, _): &(BatchRecord, _)| matches!(record, BatchRecord::Task(_));
        if !put.is_sorted_by_key(is_task) {
            put.sort_by_key(is_task);
        }
        for (record, place) in put {
            related.note_put(&record, &self.next.state);
            problems.extend(self.put_if_possible(record, place, &source));
        }
        self.renew_related(&related);
        problems.extend(self.reject_records(&source, rejected, &mut warnings));
        self.sources.registry.add_record_problems(problems.len());
        warnings.extend(record_rules::contradictions(&watch, &self.next.state));
        let position = SourcePosition {
            source: Arc::clone(&source),
            source_epoch,
            sequence,
        };
        Arc::make_mut(&mut self.next.positions).insert(source, position.clone());
        BatchOutcome {
            position,
            revision: self.next.revision,
            rejected: truncate_problems(problems),
            warnings: truncate_problems(warnings),
            resync: None,
        }
    }

    /// Rejects records; their problems.
    fn reject_records(
        &mut self,
        source: &Arc<str>,
        rejected: Vec<RejectedRecord>,
        warnings: &mut Vec<Problem>,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        for record in rejected {
            warnings.extend(self.reject_record(source, &record));
            problems.extend(record.problems);
        }
        self.unreadable.mark_nodes(&mut self.next.state);
        problems
    }

    /// Marks the last good record of a rejected one, if there is one. A warning, if something is not counted.
    fn reject_record(&mut self, source: &Arc<str>, rejected: &RejectedRecord) -> Option<Problem> {
        let (kind, name) = &rejected.key;
        match self.next.state.source_of(*kind, name) {
            Some(owner) if owner != source => return None,
            Some(_) => {
                let problems = rejected.problems.clone().into();
                self.next.state.set_invalid(*kind, name, Some(problems));
            }
            None => {}
        }
        match kind {
            RecordKind::Node => self.unreadable.recheck_node(name),
            RecordKind::Task if self.record_count() < self.sources.max_records() => {
                self.unreadable.insert(source, rejected);
            }
            RecordKind::Task
            | RecordKind::Queue
            | RecordKind::Job
            | RecordKind::Namespace
            | RecordKind::PriorityClass => {}
        }
        uncounted_warning(&self.next.state, rejected)
    }

    pub(crate) fn owns(&self, source: &Arc<str>, kind: RecordKind, name: &str) -> bool {
        self.next
            .state
            .source_of(kind, name)
            .is_some_and(|owner| owner == source)
    }

    /// Number of records of all kinds. Nodes that were removed count until the node table is rebuilt.
    pub(crate) fn record_count(&self) -> usize {
        let cluster_state = &self.next.state;
        cluster_state.slots() as usize
            + cluster_state.queues().len()
            + cluster_state.jobs().len()
            + cluster_state.tasks().len()
            + cluster_state.namespaces().len()
            + cluster_state.priority_classes().len()
            + self.unreadable.len()
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

fn send_reply(pending: PendingReply) {
    match pending {
        PendingReply::Applied(outcome, reply) => reply.send(Ok(*outcome)),
        PendingReply::Installed(reloaded, reply) => reply.send(Ok(*reloaded)),
        PendingReply::Removed(removed, reply) => reply.send(Ok(*removed)),
        PendingReply::Forgotten(forgotten, reply) => reply.send(Ok(forgotten)),
        PendingReply::ResourceForgotten(forgotten, reply) => reply.send(forgotten),
    }
}
