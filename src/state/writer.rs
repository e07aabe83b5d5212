//! The single writer: applies what is queued, publishes one World for all of it, then answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::batch::{Batch, BatchKind, BatchOutcome, Place, Put};
use super::clock::Clock;
use super::committing::Arbiter;
use super::error::{PolicyError, StateError};
use super::index::NodeTable;
use super::ledger::Ledger;
use super::names::ResourceNames;
use super::places;
use super::policies::{Install, Policies, Reloaded};
use super::policy_store::InForce;
use super::pool::Pool;
use super::seam::{Inbox, Publish, Reply};
use super::settle::LedgerCommand;
use super::sources::{Intake, Sources};
use crate::engine::derived::DerivedSet;
use crate::engine::model::{JobRecord, Kind, Problem, ProblemKind, View};
use crate::engine::{Position, Revision, World};
use crate::store::Kept;

/// Most commands that share a publication.
const GROUP: usize = 64;

/// Most problems, and most warnings, that an outcome lists.
const LISTED: usize = 1_000;

/// A node table is renewed when fewer than half of so many slots hold a node.
const COMPACT_FROM: usize = 4_096;

/// What the writer is asked to do.
#[derive(Debug)]
pub(super) enum Command {
    /// Take a batch in.
    Apply(Box<Batch>, Reply<Result<BatchOutcome, StateError>>),
    /// Put a compiled policy in force.
    Install(Box<Install>, Reply<Result<Reloaded, PolicyError>>),
    /// Something of the admission ledger, or of assumptions: after the others of its group, at the state that they make.
    Ledger(LedgerCommand),
}

/// An answer that waits for the publication.
enum Pending {
    Applied(Box<BatchOutcome>, Reply<Result<BatchOutcome, StateError>>),
    Installed(Box<Reloaded>, Reply<Result<Reloaded, PolicyError>>),
}

/// The writer's own state: the World that it will publish next.
#[derive(Debug)]
pub(super) struct Writer {
    names: Arc<ResourceNames>,
    pub(super) worlds: Arc<dyn Publish>,
    pub(super) sources: Arc<Sources>,
    pub(super) policies: Arc<Policies>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ledger: Ledger,
    nodes: Arc<NodeTable>,
    pub(super) arbiter: Arbiter,
    pool: Pool,
    pub(super) next: World,
    /// By policy: what is known to be derived from the next World.
    pub(super) derived: BTreeMap<Arc<str>, DerivedSet>,
    /// The next World is not the newest.
    pub(super) changed: bool,
    /// The last write failed.
    pub(super) store_fails: bool,
    /// It is to end after this group.
    pub(super) stop: Option<Reply<()>>,
}

/// What the writer works with.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) names: Arc<ResourceNames>,
    pub(super) worlds: Arc<dyn Publish>,
    pub(super) sources: Arc<Sources>,
    pub(super) policies: Arc<Policies>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Writer {
    /// A writer over a state without records, with what is kept. `ledger` puts what it keeps into the View.
    pub(super) fn new(parts: Parts, kept: &Kept, ledger: impl FnOnce(&mut View) -> Ledger) -> Self {
        let Parts {
            names,
            worlds,
            sources,
            policies,
            clock,
        } = parts;
        let nodes = Arc::new(NodeTable::default());
        let mut next = World::clone(&worlds.newest());
        next.view = View::new(Arc::clone(&nodes) as _, 1);
        let ledger = ledger(&mut next.view);
        let arbiter = Arbiter::open(sources.limits(), kept);
        Self {
            names,
            worlds,
            sources,
            policies,
            clock,
            ledger,
            nodes,
            arbiter,
            pool: Pool::lasting(),
            next,
            derived: BTreeMap::new(),
            changed: false,
            store_fails: false,
            stop: None,
        }
    }

    /// Commits hold whatever they break, so that tests of what they keep can be seen to fail.
    #[cfg(debug_assertions)]
    pub(super) fn without_checks(mut self, without: bool) -> Self {
        self.arbiter.without_checks(without);
        self
    }

    /// Shows what was kept: policies, and promises.
    pub(super) fn begin(&mut self, policies: InForce) {
        self.next.policies = Arc::new(policies);
        self.next.revision.number += 1;
        self.publish();
    }

    /// Works until every sender is gone.
    pub(super) fn run(mut self, mut queue: impl Inbox) {
        while let Some(first) = queue.wait() {
            let (mut pending, mut ledger, mut taken) = (Vec::new(), Vec::new(), 1);
            self.next.revision.number += 1;
            self.command(first, &mut pending, &mut ledger);
            while taken < GROUP {
                let Some(more) = queue.take() else { break };
                self.command(more, &mut pending, &mut ledger);
                taken += 1;
            }
            if self.ledger.is_overdue(self.clock.monotonic()) {
                ledger.push(LedgerCommand::Pass(None));
            }
            let settled = self.settle(ledger);
            if std::mem::take(&mut self.changed) {
                self.publish();
            } else {
                self.next.revision.number -= 1;
                self.derived.clear();
            }
            self.answer_settled(settled);
            for pending in pending {
                answer(pending);
            }
            if self.stop.is_some() {
                break;
            }
        }
        let stop = self.stop.take();
        // The store is closed before anybody is told.
        drop((self, queue));
        if let Some(stop) = stop {
            stop.send(());
        }
    }

    fn visible(&self) -> Revision {
        Revision {
            number: self.next.revision.number - 1,
            ..self.next.revision
        }
    }

    fn command(&mut self, command: Command, pending: &mut Vec<Pending>, ledger: &mut Vec<LedgerCommand>) {
        match command {
            Command::Apply(batch, reply) => match self.sources.intake(*batch, self.visible()) {
                Ok(Intake::Apply(batch)) => {
                    let kind = batch.kind;
                    let outcome = self.apply(*batch);
                    self.changed = true;
                    // Later batches of this group are judged by it.
                    self.sources.applied(kind, &outcome);
                    pending.push(Pending::Applied(Box::new(outcome), reply));
                }
                // The stored outcome of a batch of this very group waits with it.
                Ok(Intake::Answer(outcome)) if outcome.revision == self.next.revision => {
                    pending.push(Pending::Applied(Box::new(outcome), reply));
                }
                Ok(Intake::Answer(outcome)) => reply.send(Ok(outcome)),
                Err(error) => reply.send(Err(error)),
            },
            Command::Install(install, reply) => {
                let mut installed = self
                    .policies
                    .install(*install, &mut self.next.policies, self.ledger.store());
                // What it may have left in the store is set right when time passes, not by every batch until then.
                self.store_fails |= matches!(installed, Err(PolicyError::State(StateError::Store(_))));
                if let Ok(reloaded) = &mut installed {
                    let policy = &reloaded.version.in_force.policy;
                    reloaded.queues = listed(places::under(policy, &self.next.view));
                }
                match installed {
                    // What another command of this group has put in force is not visible yet: its repetition waits, too.
                    Ok(reloaded) if reloaded.published() || !pending.is_empty() => {
                        self.changed |= reloaded.published();
                        pending.push(Pending::Installed(Box::new(reloaded), reply));
                    }
                    other => reply.send(other),
                }
            }
            Command::Ledger(command) => ledger.push(command),
        }
    }

    /// Applies a batch to the next World.
    fn apply(&mut self, mut batch: Batch) -> BatchOutcome {
        let watch = places::judge(&mut batch, &self.next.view, &self.next.policies);
        let Batch {
            source,
            source_epoch,
            sequence,
            kind,
            part: _,
            put,
            refused,
            remove,
            mut warnings,
        } = batch;
        self.next.view.set_resources(self.names.snapshot());
        let mut problems = Vec::new();
        if kind == BatchKind::SnapshotLast {
            self.remove_absent(&source, &put, &refused);
        }
        for (kind, name) in remove {
            if self.owns(&source, kind, &name) {
                self.remove(kind, &name);
            } else if kind == Kind::Task {
                self.arbiter.assumptions.gone_untold(&source, &name);
            }
        }
        for (record, place) in put {
            let (kind, name) = record.key();
            match self.next.view.source_of(kind, name) {
                Some(owner) if *owner != source => problems.push(foreign(name, owner, &place.field(kind))),
                None if self.records() >= self.sources.records() => {
                    problems.push(too_many(self.sources.records(), &place.field(kind)));
                }
                known => {
                    let is_new = known.is_none();
                    self.put(record, &source, is_new);
                }
            }
        }
        for (kind, name, faults) in refused {
            if self.owns(&source, kind, &name) {
                self.next.view.set_invalid(kind, &name, Some(faults.clone().into()));
            }
            problems.extend(faults);
        }
        warnings.extend(places::contradictions(&watch, &self.next.view));
        let position = Position {
            source: Arc::clone(&source),
            source_epoch,
            sequence,
        };
        Arc::make_mut(&mut self.next.positions).insert(source, position.clone());
        BatchOutcome {
            position,
            revision: self.next.revision,
            refused: listed(problems),
            warnings: listed(warnings),
            resync: None,
        }
    }

    fn owns(&self, source: &Arc<str>, kind: Kind, name: &str) -> bool {
        self.next
            .view
            .source_of(kind, name)
            .is_some_and(|owner| owner == source)
    }

    /// Records of all kinds; nodes that are gone count until the node table is renewed.
    fn records(&self) -> usize {
        let view = &self.next.view;
        view.slots() as usize + view.queues().len() + view.jobs().len() + view.tasks().len()
    }

    fn put(&mut self, record: Put, source: &Arc<str>, is_new: bool) {
        match record {
            Put::Node(record) => {
                let record = self.pool.node(record, &self.next.view);
                self.nodes.admit(&record.name);
                self.next.view.put_node(record, source);
            }
            Put::Queue(record) => self.next.view.put_queue(record, source),
            Put::Job(mut record) => {
                self.pool.job(&mut record);
                let (before, name) = (
                    self.next.view.jobs().get(&record.name).cloned(),
                    Arc::clone(&record.name),
                );
                self.next.view.put_job(record, source);
                self.job_moved(&name, before.as_ref().map(|before| &before.record));
            }
            Put::Task(mut record) => {
                self.pool.task(&mut record, is_new);
                self.arbiter.assumptions.put(record, source, &mut self.next.view);
            }
        }
    }

    /// Tells the ledger: a reservation ends with its job.
    fn job_moved(&mut self, name: &str, before: Option<&JobRecord>) {
        let after = self.next.view.jobs().get(name).cloned();
        let after = after.as_ref().map(|after| &after.record);
        self.ledger.job_moved(&mut self.next.view, before, after);
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        let job = match kind {
            Kind::Job => self.next.view.jobs().get(name).cloned(),
            Kind::Node | Kind::Queue | Kind::Task => None,
        };
        match kind {
            Kind::Node => self.next.view.remove_node(name),
            Kind::Queue => self.next.view.remove_queue(name),
            Kind::Job => self.next.view.remove_job(name),
            Kind::Task => {
                self.arbiter.assumptions.gone(name);
                self.next.view.remove_task(name)
            }
        };
        if let Some(job) = job {
            self.job_moved(name, Some(&job.record));
        }
    }

    /// Removes the source's records that its snapshot neither holds nor holds in a form that could not be read.
    #[expect(
        clippy::disallowed_types,
        reason = "asked for names, never walked: no order can show"
    )]
    fn remove_absent(&mut self, source: &Arc<str>, put: &[(Put, Place)], refused: &[(Kind, Arc<str>, Vec<Problem>)]) {
        let view = &self.next.view;
        let nodes = view
            .nodes()
            .map(|(_, entry)| (Kind::Node, &entry.record.name, &entry.source));
        let queues = view
            .queues()
            .iter()
            .map(|(name, stored)| (Kind::Queue, name, &*stored.source));
        let jobs = view
            .jobs()
            .iter()
            .map(|(name, stored)| (Kind::Job, name, &*stored.source));
        let tasks = view
            .tasks()
            .iter()
            .map(|(name, stored)| (Kind::Task, name, &*stored.source));
        let mut own = (nodes.chain(queues).chain(jobs).chain(tasks))
            .filter(|(.., owner)| *owner == source)
            .peekable();
        // Most snapshots are a source's first, and nobody waits for its tasks.
        if own.peek().is_none() && !self.arbiter.assumptions.wait_for(source) {
            return;
        }
        let names = put.iter().map(|(record, _)| record.key());
        let mut kept: std::collections::HashSet<(Kind, &str)> = names.map(|(kind, name)| (kind, &**name)).collect();
        kept.extend(refused.iter().map(|(kind, name, _)| (*kind, &**name)));
        let absent: Vec<(Kind, Arc<str>)> = own
            .filter(|(kind, name, _)| !kept.contains(&(*kind, &***name)))
            .map(|(kind, name, _)| (kind, Arc::clone(name)))
            .collect();
        let told = |task: &str| kept.contains(&(Kind::Task, task));
        self.arbiter.assumptions.gone_but(source, told);
        for (kind, name) in absent {
            self.remove(kind, &name);
        }
    }

    fn publish(&mut self) {
        let nodes = self.next.view.node_count() as usize;
        let mut derived = std::mem::take(&mut self.derived);
        if self.nodes.len() > COMPACT_FROM.max(nodes * 2) {
            self.compact();
            // It names nodes by their slots.
            derived.clear();
        }
        self.next.view.refresh_ranks();
        let next = self.next.clone();
        for (policy, derived) in derived {
            next.derived.seed(&policy, derived);
        }
        self.worlds.publish(next);
    }

    /// Assigns slots anew, without those of nodes that are gone.
    fn compact(&mut self) {
        let nodes = Arc::new(NodeTable::default());
        let names: BTreeSet<&Arc<str>> = self.next.view.nodes().map(|(_, entry)| &entry.record.name).collect();
        for name in names {
            nodes.admit(name);
        }
        self.next.view = self.next.view.moved_to(Arc::clone(&nodes) as _);
        self.nodes = nodes;
    }
}

fn answer(pending: Pending) {
    match pending {
        Pending::Applied(outcome, reply) => reply.send(Ok(*outcome)),
        Pending::Installed(reloaded, reply) => reply.send(Ok(*reloaded)),
    }
}

/// The first problems, and how many more there were: outcomes are kept, and a batch can hold a million faults.
fn listed(mut problems: Vec<Problem>) -> Vec<Problem> {
    let more = problems.len().saturating_sub(LISTED);
    if more > 0 {
        problems.truncate(LISTED);
        problems.shrink_to_fit();
        let message = format!("{more} more are not listed");
        problems.push(Problem::new(ProblemKind::Exhausted, "MORE_PROBLEMS", "batch", message));
    }
    problems
}

fn too_many(limit: usize, field: &str) -> Problem {
    let message = format!("there are as many records as limit `records` allows: {limit}");
    Problem::new(ProblemKind::Exhausted, "TOO_MANY_RECORDS", field, message)
}

fn foreign(name: &str, owner: &str, field: &str) -> Problem {
    let message = format!("`{name}` belongs to source `{owner}`");
    Problem::new(ProblemKind::Refused, "OTHER_SOURCE", format!("{field}.name"), message)
}
