//! What the plugin works out from a View and keeps beside it: cards, queue accounts, and what a cycle changes of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::account::Account;
use super::cards::Cards;
use super::config::Config;
use super::counts::Counts;
use super::entry::{Contribution, JobEntry};
use super::job::JobView;
use super::limits::{Limits, Quota};
use super::request::{Pod, RequestError, task_request};
use crate::engine::model::{JobRecord, Problem, ProblemKind, QueueRecord, Stored, Table, TaskRecord, TaskStatus, View};
use crate::engine::policy::Compatibility;

/// The state of the plugin. A clone costs a few pointers.
#[derive(Clone, Debug)]
pub struct CapacityState {
    pub(super) config: Config,
    pub(super) compatibility: Compatibility,
    /// The View that it was worked out from.
    pub(super) opened: View,
    pub(super) cards: Arc<Cards>,
    /// What all queues together are guaranteed.
    pub(super) guaranteed: Arc<Counts>,
    /// Tasks by job.
    pub(super) tasks_of: Table<Arc<Vec<Arc<str>>>>,
    /// By queue.
    pub(super) accounts: Table<Arc<Account>>,
    /// Under `upstream`: the node that the pod of a task names since it was first allocated in this cycle.
    pods: Table<Arc<str>>,
    /// Under `corrected`: by job.
    pub(super) jobs: Table<JobEntry>,
    /// Under `corrected`: what tasks that moved in this cycle hold; `None`: nothing.
    pub(super) held: Table<Option<Arc<Counts>>>,
    /// Reservations of jobs that are not there, or whose records say another queue or incarnation; and, under
    /// `upstream`, of jobs that the reference does not count yet.
    pub(super) rows: Table<JobEntry>,
    /// Under `corrected`: jobs whose permits end with the next vote, unless they were kept since.
    pub(super) tentative: Arc<Vec<Arc<str>>>,
}

/// A job in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFigures {
    /// Cards that it asks for.
    pub card_request: Counts,
    /// What its tasks hold.
    pub allocated: Counts,
    /// The least that it needs.
    pub min_resources: Counts,
    /// What its queue keeps back for it.
    pub inqueue: Counts,
    /// What it holds beyond the least.
    pub elastic: Counts,
}

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move<'a> {
    /// It was given room on a node.
    Allocate {
        /// The node.
        node: &'a str,
        /// The card that it uses there; empty: the first acceptable one that the node has.
        card: &'a str,
    },
    /// It was promised room that is being released.
    Pipeline {
        /// The node.
        node: &'a str,
        /// As above.
        card: &'a str,
    },
    /// It no longer counts.
    Deallocate,
}

impl CapacityState {
    /// The state of a View.
    pub fn of(view: &View, config: Config, compatibility: Compatibility) -> Self {
        let mut state = Self {
            config,
            compatibility,
            opened: view.clone(),
            cards: Arc::new(Cards::of(view, compatibility)),
            guaranteed: Arc::default(),
            tasks_of: tasks_by_job(view),
            accounts: Table::default(),
            pods: Table::default(),
            jobs: Table::default(),
            held: Table::default(),
            rows: Table::default(),
            tentative: Arc::default(),
        };
        state.guarantee(view);
        match compatibility {
            Compatibility::Upstream => state.open_upstream(view),
            Compatibility::Corrected => state.open_corrected(view),
        }
        state.open_rows(view);
        state
    }

    pub(super) fn guarantee(&mut self, view: &View) {
        let mut guaranteed = Counts::default();
        for (_, queue) in view.queues().iter() {
            let queue = &queue.record;
            guaranteed.add(&Quota::of(queue, self.compatibility).with(queue.guarantee.as_ref()));
        }
        self.guaranteed = Arc::new(guaranteed);
    }

    pub(super) fn open_corrected(&mut self, view: &View) {
        for (name, job) in view.jobs().iter() {
            let entry = self.entry_of(view, job);
            self.jobs.insert(Arc::clone(name), entry);
        }
        self.sum();
    }

    /// A job of the View in figures.
    pub(super) fn entry_of(&self, view: &View, stored: &Arc<Stored<JobRecord>>) -> JobEntry {
        let job = &stored.record;
        let mut entry = JobEntry::of(self.context(view), job, self.tasks(view, &job.name));
        entry.stored = Some(Arc::clone(stored));
        entry.of_stored = true;
        entry.promise(view.reservations().get(&job.name));
        entry
    }

    /// Sums all accounts from the figures of the jobs.
    pub(super) fn sum(&mut self) {
        let mut accounts: BTreeMap<Arc<str>, Account> = BTreeMap::new();
        for (name, queue) in self.opened.queues().iter() {
            accounts.insert(Arc::clone(name), self.empty_account(&queue.record));
        }
        for (_, entry) in self.jobs.iter() {
            for (level, queue) in self.line(&entry.queue).0.into_iter().enumerate() {
                if let Some(account) = accounts.get_mut(queue) {
                    account.add_job(level, entry);
                    account.add_request(entry);
                }
            }
        }
        self.accounts = Table::default();
        for (queue, account) in accounts {
            self.accounts.insert(queue, Arc::new(account));
        }
    }

    fn close_books(&mut self, accounts: BTreeMap<Arc<str>, (Account, Counts)>) {
        for (queue, (mut account, request)) in accounts {
            account.request = Arc::new(request);
            self.accounts.insert(queue, Arc::new(account));
        }
    }

    pub(super) fn open_upstream(&mut self, view: &View) {
        let mut accounts: BTreeMap<Arc<str>, (Account, Counts)> = BTreeMap::new();
        for (_, job) in view.jobs().iter() {
            let job = &job.record;
            let Some(queue) = view.queues().get(&job.queue) else {
                continue;
            };
            let (account, request) = accounts
                .entry(Arc::clone(&job.queue))
                .or_insert_with(|| (self.empty_account(&queue.record), Counts::default()));
            account.jobs += 1;
            // The reference reads the option only after this: here cpu and memory always count.
            let figures = self.job_view(view, job, false);
            account.allocated.add(&figures.allocated);
            account.inqueue.add(&figures.inqueue(job));
            account.elastic.add(&figures.elastic);
            request.add(&figures.request);
        }
        self.close_books(accounts);
    }

    /// The limits of a queue.
    pub fn limits(&self, queue: &QueueRecord) -> Limits {
        let quota = Quota::of(queue, self.compatibility);
        Limits::of(queue, &quota, self.cards.total(), &self.guaranteed, self.compatibility)
    }

    pub(super) fn empty_account(&self, queue: &QueueRecord) -> Account {
        Account {
            limits: Arc::new(self.limits(queue)),
            ..Account::default()
        }
    }

    /// The cards of the cluster.
    pub fn cards(&self) -> &Cards {
        &self.cards
    }

    /// What all queues together are guaranteed.
    pub fn guaranteed(&self) -> &Counts {
        &self.guaranteed
    }

    /// The account of a queue that has one.
    pub fn account(&self, queue: &str) -> Option<&Arc<Account>> {
        self.accounts.get(queue)
    }

    /// All accounts, by queue.
    pub fn accounts(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Account>)> {
        self.accounts.iter()
    }

    /// The account of a queue that is there; an empty one if nothing counts in it.
    pub(super) fn account_of(&self, queue: &str) -> Result<Cow<'_, Arc<Account>>, Problem> {
        self.account_or_empty(queue, self.accounts.get(queue))
    }

    /// The account of a queue, if it has one.
    pub(super) fn account_or_empty<'a>(
        &self,
        queue: &str,
        account: Option<&'a Arc<Account>>,
    ) -> Result<Cow<'a, Arc<Account>>, Problem> {
        if let Some(account) = account {
            return Ok(Cow::Borrowed(account));
        }
        match self.opened.queues().get(queue) {
            Some(stored) => Ok(Cow::Owned(Arc::new(self.empty_account(&stored.record)))),
            None => Err(unknown("UNKNOWN_QUEUE", format!("there is no queue `{queue}`"))),
        }
    }

    /// The figures of a job, `unlimited` or not, as the reference has them.
    pub fn job_view(&self, view: &View, job: &JobRecord, unlimited: bool) -> JobView {
        let pods = self.tasks(view, &job.name).map(|task| self.pod(task));
        JobView::of(&self.cards, view.resources(), unlimited, job, pods)
    }

    /// The figures of a job as they stand.
    pub fn job_view_now(&self, view: &View, job: &JobRecord) -> JobView {
        self.job_view(view, job, self.config.unlimited)
    }

    /// A job as listings show it.
    pub fn job_figures(&self, view: &View, job: &JobRecord) -> JobFigures {
        match self.compatibility {
            Compatibility::Upstream => {
                let figures = self.job_view_now(view, job);
                JobFigures {
                    inqueue: figures.inqueue(job),
                    card_request: figures.card_request,
                    allocated: figures.allocated,
                    min_resources: figures.min_resources,
                    elastic: figures.elastic,
                }
            }
            Compatibility::Corrected => {
                let entry = self.entry(view, job, self.jobs.get(&job.name));
                let Contribution { inqueue, elastic } = entry.contribution();
                let mut card_request = Counts::clone(&entry.min);
                (card_request.cpu, card_request.memory) = (0, 0);
                JobFigures {
                    card_request,
                    allocated: entry.allocated.clone(),
                    min_resources: Counts::clone(&entry.min),
                    inqueue,
                    elastic,
                }
            }
        }
    }

    /// The tasks of a job.
    pub(super) fn tasks<'a>(&'a self, view: &'a View, job: &str) -> impl Iterator<Item = &'a TaskRecord> + use<'a> {
        let names = self.tasks_of.get(job).map_or(&[][..], |names| names.as_slice());
        names.iter().filter_map(|name| Some(&view.tasks().get(name)?.record))
    }

    /// A task with the node that its pod names.
    pub(super) fn pod<'a>(&'a self, task: &'a TaskRecord) -> Pod<'a> {
        let node = match self.pods.get(&task.name) {
            Some(node) => node,
            // A pipelined pod has no nodeName yet.
            None if task.status == TaskStatus::Pipelined => "",
            None => &*task.node,
        };
        Pod { task, node }
    }

    /// What a task counts now under `upstream`.
    ///
    /// # Errors
    /// Its cards cannot be found out.
    pub fn request(&self, task: &TaskRecord) -> Result<Counts, RequestError> {
        task_request(&self.cards, self.config.unlimited, self.pod(task))
    }

    /// The permit of a job stays: it is enqueued. Under `corrected` that counts without a permit, too.
    pub fn keep(&mut self, job: &str) {
        self.settle(job);
        self.admit(&Arc::from(job), true);
    }

    /// Ends permits that were not kept. Under `upstream` they all stay, as in the reference.
    pub fn end_tentative(&mut self) {
        for job in std::mem::take(&mut self.tentative).iter() {
            if self.settle(job) {
                self.leave(job);
            }
        }
    }

    /// Whatever permit a job has no longer ends by itself; true if one would have.
    fn settle(&mut self, job: &str) -> bool {
        let Some(spot) = self.jobs.find(job) else { return false };
        let was = self.jobs.at(spot).is_some_and(|entry| entry.tentative);
        if was && let Some(entry) = self.jobs.at_mut(spot) {
            entry.tentative = false;
        }
        was
    }

    /// A job is no longer admitted. Under `upstream` what was kept back for it stays, as in the reference.
    pub(super) fn leave(&mut self, job: &Arc<str>) {
        self.admit(job, false);
    }

    /// Follows what happened to a task; the queue whose account moved.
    ///
    /// Under `corrected` a task counts once, whatever is told how often.
    ///
    /// # Errors
    /// Only under `upstream`: the reference panics here, because more would be given back than was ever counted.
    pub fn follow(&mut self, view: &View, task: &TaskRecord, step: Move<'_>) -> Result<Option<Arc<str>>, Problem> {
        match (self.compatibility, step) {
            (Compatibility::Upstream, _) => self.follow_upstream(view, task, step),
            (Compatibility::Corrected, Move::Allocate { node, card } | Move::Pipeline { node, card }) => {
                Ok(self.hold(view, task, Some((node, card))))
            }
            (Compatibility::Corrected, Move::Deallocate) => Ok(self.hold(view, task, None)),
        }
    }

    fn follow_upstream(&mut self, view: &View, task: &TaskRecord, step: Move<'_>) -> Result<Option<Arc<str>>, Problem> {
        if let Move::Allocate { node, .. } = step {
            self.pods.insert(Arc::clone(&task.name), Arc::from(node));
        }
        let Some(job) = view.jobs().get(&task.job) else {
            return Ok(None);
        };
        let queue = Arc::clone(&job.record.queue);
        let (Some(account), Ok(request)) = (self.accounts.get(&queue), self.request(task)) else {
            return Ok(None);
        };
        let mut account = Account::clone(account);
        if matches!(step, Move::Deallocate) {
            if !request.fits_in(&account.allocated) {
                let message = format!(
                    "task `{}` would give back more than is counted for queue `{queue}`; the reference panics here",
                    task.name
                );
                return Err(Problem::new(ProblemKind::Refused, "REFERENCE_PANICS", "", message));
            }
            account.allocated.subtract(&request);
        } else {
            account.allocated.add(&request);
        }
        self.accounts.insert(Arc::clone(&queue), Arc::new(account));
        Ok(Some(queue))
    }
}

pub(super) fn unknown(reason: &'static str, message: String) -> Problem {
    Problem::new(ProblemKind::NotFound, reason, "", message)
}

fn tasks_by_job(view: &View) -> Table<Arc<Vec<Arc<str>>>> {
    let mut by_job: BTreeMap<&Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    for (name, task) in view.tasks().iter().filter(|(_, task)| !task.record.job.is_empty()) {
        by_job.entry(&task.record.job).or_default().push(Arc::clone(name));
    }
    let mut table = Table::default();
    for (job, names) in by_job {
        table.insert(Arc::clone(job), Arc::new(names));
    }
    table
}
