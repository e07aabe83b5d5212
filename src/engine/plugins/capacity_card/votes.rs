//! May this job be enqueued, may this task be allocated: under `compatibility: upstream`.

use std::sync::Arc;

use super::account::Account;
use super::check::check_card;
use super::counts::Counts;
use super::entry::JobEntry;
use super::refusal::{self, Asker, Compared, Dimension, Refusal, insufficient_upstream};
use super::state::CapacityState;
use crate::engine::model::{JobRecord, Problem, ProblemKind, TaskRecord, View};
use crate::engine::policy::Compatibility;

/// A verdict on a job or a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Why not; empty: permitted.
    pub refusals: Vec<Refusal>,
    /// What a permitted job keeps back in its queue.
    pub reserve: Arc<Counts>,
    /// Of a job: the least that it needs, whether it holds some of that already or not.
    pub least: Arc<Counts>,
    /// Of a job, under `corrected`: its figures, if they are not those that are kept of it.
    pub(super) entry: Option<JobEntry>,
    /// Of a permitted task: the cards that would do, best first, and how many tasks of its kind on each.
    pub cards: Vec<(Arc<str>, u64)>,
    /// The same by demand: a node must have one card of each.
    pub choices: Vec<Vec<Arc<str>>>,
    /// Of a task: how many of its kind its queue still admits; `None`: without limit.
    pub headroom: Option<u64>,
}

impl Verdict {
    /// True if nothing stands against it.
    pub fn permitted(&self) -> bool {
        self.refusals.is_empty()
    }

    pub(super) fn refused(refusal: Refusal) -> Self {
        Self {
            refusals: vec![refusal],
            ..Self::default()
        }
    }
}

impl CapacityState {
    /// The reference's vote on a job.
    pub(super) fn upstream_job(&self, view: &View, job: &JobRecord) -> Result<Verdict, Problem> {
        let account = self.account_of(&job.queue)?;
        if !account.limits.is_open() {
            return Ok(Verdict::refused(refusal::not_open(&job.queue)));
        }
        let figures = self.job_view_now(view, job);
        let min = &figures.min_resources;
        let mut total = min.clone();
        total.add(&account.allocated);
        total.add(&account.inqueue);
        if !account.elastic.fits_in(&total) {
            let message = format!(
                "more is elastic in queue `{}` than it holds with job `{}`; the reference panics here",
                job.queue, job.name
            );
            return Err(Problem::new(ProblemKind::Refused, "REFERENCE_PANICS", "", message));
        }
        total.subtract(&account.elastic);
        if let Some(refusal) = first_refusal(&job.queue, min, &total, &account, Asker::Job) {
            return Ok(Verdict::refused(refusal));
        }
        let reserve = Arc::new(figures.without_gated(min.clone()));
        Ok(Verdict {
            least: Arc::clone(&reserve),
            reserve,
            ..Verdict::default()
        })
    }

    /// Keeps back in its queue what a permitted job needs. Once more for the same job: once more.
    pub(super) fn reserve_upstream(&mut self, queue: &Arc<str>, reserve: &Counts) -> Result<(), Problem> {
        let mut account = Account::clone(&**self.account_of(queue)?);
        account.inqueue.add(reserve);
        self.accounts.insert(Arc::clone(queue), Arc::new(account));
        Ok(())
    }

    /// The reference's check of a task of a queue.
    pub(super) fn upstream_task(&self, queue: &str, task: &TaskRecord) -> Result<Verdict, Problem> {
        let account = self.account_of(queue)?;
        if !account.limits.is_open() {
            return Ok(Verdict::refused(refusal::not_open(queue)));
        }
        let request = match self.request(task) {
            Ok(request) => request,
            Err(error) => return Ok(Verdict::refused(refusal::request_failed(queue, &error))),
        };
        let mut total = account.allocated.clone();
        total.add(&request);
        if let Some(refusal) = first_refusal(queue, &request, &total, &account, Asker::Task) {
            return Ok(Verdict::refused(refusal));
        }
        Ok(Verdict::default())
    }
}

/// The first thing that is short. Cards are looked at by name.
fn first_refusal(queue: &str, wanted: &Counts, total: &Counts, account: &Account, asker: Asker) -> Option<Refusal> {
    let capability = &account.limits.capability;
    for (dimension, compared) in refusal::plain(wanted, total, capability) {
        if compared.requested > 0 && compared.total > compared.capability {
            return Some(insufficient_upstream(queue, asker, dimension, compared));
        }
    }
    let ignored = |card: &str| asker == Asker::Job && card == "pods";
    wanted
        .cards()
        .filter(|(card, _)| !ignored(card))
        .find_map(|(card, requested)| {
            let checked = check_card(card, requested, total, capability, asker);
            let compared = Compared {
                requested,
                total: checked.total,
                capability: checked.capability,
            };
            (!checked.fits).then(|| insufficient_upstream(queue, asker, Dimension::Card(card), compared))
        })
}

impl CapacityState {
    /// The vote on a job. Nothing is kept back by asking; see [`Self::reserve`].
    ///
    /// # Errors
    /// The job's queue is not there, or, under `upstream`, the reference panics.
    pub fn vote_job(&self, view: &View, job: &JobRecord) -> Result<Verdict, Problem> {
        match self.compatibility {
            Compatibility::Upstream => self.upstream_job(view, job),
            Compatibility::Corrected => self.corrected_job(view, job),
        }
    }

    /// The check of a task of a queue.
    ///
    /// # Errors
    /// The queue is not there.
    pub fn vote_task(&self, view: &View, queue: &str, task: &TaskRecord) -> Result<Verdict, Problem> {
        match self.compatibility {
            Compatibility::Upstream => self.upstream_task(queue, task),
            Compatibility::Corrected => self.corrected_task(view, queue, task),
        }
    }

    /// The vote on a job; what a permitted one needs is kept back, as by [`Self::reserve`].
    ///
    /// # Errors
    /// As [`Self::vote_job`].
    pub fn permit(&mut self, view: &View, job: &JobRecord) -> Result<Verdict, Problem> {
        if self.compatibility == Compatibility::Corrected {
            return self.corrected_permit(view, job);
        }
        let verdict = self.upstream_job(view, job)?;
        if verdict.permitted() {
            self.reserve_upstream(&job.queue, &verdict.reserve)?;
        }
        Ok(verdict)
    }

    /// Keeps back in its queue what a permitted job needs. For the same job once more: under `upstream` once more,
    /// under `corrected` instead of the former.
    ///
    /// # Errors
    /// The queue is not there.
    pub fn reserve(&mut self, view: &View, job: &JobRecord, verdict: &Verdict) -> Result<(), Problem> {
        match self.compatibility {
            Compatibility::Upstream => self.reserve_upstream(&job.queue, &verdict.reserve),
            Compatibility::Corrected => {
                self.reserve_corrected(view, job, verdict);
                Ok(())
            }
        }
    }
}
