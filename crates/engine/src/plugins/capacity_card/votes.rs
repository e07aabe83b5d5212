//! May this job be enqueued, may this task be allocated: under `compatibility: upstream`.

use std::sync::Arc;

use super::account::QueueAccount;
use super::amounts::QuotaAmounts;
use super::check::check_card;
use super::job_entry::JobEntry;
use super::pieces::Pieces;
use super::rejection::{self, QuotaComparison, QuotaDimension, QuotaRejection, QuotaRequester, insufficient_upstream};
use super::state::CapacityState;
use crate::model::{ClusterState, ErrorCode, JobRecord, Problem, TaskRecord};
use crate::policy::Compatibility;

/// A verdict on a job or a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaVerdict {
    /// Why not; empty: permitted.
    pub rejections: Vec<QuotaRejection>,
    /// Amounts that a permitted job reserves in its queue.
    pub reserve: Arc<QuotaAmounts>,
    /// Of a job: the least that it needs, whether it holds some of that already or not.
    pub min_amounts: Arc<QuotaAmounts>,
    /// Pieces of choices that are reserved of that.
    pub(super) pieces: Pieces,
    /// Of a job, under `corrected`: its figures, if they are not those that are kept of it.
    pub(super) entry: Option<JobEntry>,
    /// Of a permitted task: the cards that would do, best first, and how many tasks of its kind on each.
    pub cards: Vec<(Arc<str>, u64)>,
    /// Cards that would do, by demand: a node must have one card of each.
    pub cards_by_demand: Vec<Vec<Arc<str>>>,
    /// Of a task: how many of its kind its queue still admits; `None`: without limit.
    pub headroom: Option<u64>,
}

impl QuotaVerdict {
    /// True if nothing stands against it.
    pub fn is_permitted(&self) -> bool {
        self.rejections.is_empty()
    }

    pub(super) fn rejected(rejection: QuotaRejection) -> Self {
        Self {
            rejections: vec![rejection],
            ..Self::default()
        }
    }
}

impl CapacityState {
    /// The reference's vote on a job.
    pub(super) fn vote_job_upstream(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
    ) -> Result<QuotaVerdict, Problem> {
        let account = self.account_or_default(&job.queue)?;
        if !account.limits.is_open() {
            return Ok(QuotaVerdict::rejected(rejection::queue_not_open(&job.queue)));
        }
        let measurements = self.current_job_amounts(cluster_state, job);
        let min = &measurements.min_resources;
        let mut total = min.clone();
        total.add(&account.allocated);
        total.add(&account.inqueue);
        if !account.elastic.fits_in(&total) {
            let message = format!(
                "more is elastic in queue `{}` than it holds with job `{}`; the reference panics here",
                job.queue, job.name
            );
            return Err(Problem::new(ErrorCode::ReferencePanics, "", message));
        }
        total.subtract(&account.elastic);
        if let Some(rejection) = first_rejection(&job.queue, min, &total, &account, QuotaRequester::Job) {
            return Ok(QuotaVerdict::rejected(rejection));
        }
        let reserve = Arc::new(measurements.without_gated(min.clone()));
        Ok(QuotaVerdict {
            min_amounts: Arc::clone(&reserve),
            reserve,
            ..QuotaVerdict::default()
        })
    }

    /// Keeps back in its queue what a permitted job needs. Once more for the same job: once more.
    pub(super) fn reserve_upstream(&mut self, queue: &Arc<str>, reserve: &QuotaAmounts) -> Result<(), Problem> {
        let mut account = QueueAccount::clone(&**self.account_or_default(queue)?);
        account.inqueue.add(reserve);
        self.accounts.insert(Arc::clone(queue), Arc::new(account));
        Ok(())
    }

    /// The reference's check of a task of a queue.
    pub(super) fn vote_task_upstream(&self, queue: &str, task: &TaskRecord) -> Result<QuotaVerdict, Problem> {
        let account = self.account_or_default(queue)?;
        if !account.limits.is_open() {
            return Ok(QuotaVerdict::rejected(rejection::queue_not_open(queue)));
        }
        let request = match self.task_request_amounts(task) {
            Ok(request) => request,
            Err(error) => return Ok(QuotaVerdict::rejected(rejection::request_failed(queue, &error))),
        };
        let mut total = account.allocated.clone();
        total.add(&request);
        if let Some(rejection) = first_rejection(queue, &request, &total, &account, QuotaRequester::Task) {
            return Ok(QuotaVerdict::rejected(rejection));
        }
        Ok(QuotaVerdict::default())
    }
}

/// The first thing that is short. Cards are looked at by name.
fn first_rejection(
    queue: &str,
    wanted: &QuotaAmounts,
    total: &QuotaAmounts,
    account: &QueueAccount,
    asker: QuotaRequester,
) -> Option<QuotaRejection> {
    let capability = &account.limits.capability;
    for (dimension, compared) in rejection::compare_cpu_memory(wanted, total, capability) {
        if compared.requested > 0 && compared.total > compared.capability {
            return Some(insufficient_upstream(queue, asker, dimension, compared));
        }
    }
    let ignored = |card: &str| asker == QuotaRequester::Job && card == "pods";
    wanted
        .cards()
        .filter(|(card, _)| !ignored(card))
        .find_map(|(card, requested)| {
            let checked = check_card(card, requested, total, capability, asker);
            let compared = QuotaComparison {
                requested,
                total: checked.total,
                capability: checked.capability,
            };
            (!checked.fits).then(|| insufficient_upstream(queue, asker, QuotaDimension::Card(card), compared))
        })
}

impl CapacityState {
    /// The vote on a job. Nothing is kept back by asking; see [`Self::reserve`].
    ///
    /// # Errors
    /// The job's queue is not there, or, under `upstream`, the reference panics.
    pub fn vote_job(&self, cluster_state: &ClusterState, job: &JobRecord) -> Result<QuotaVerdict, Problem> {
        match self.compatibility {
            Compatibility::Upstream(_) => self.vote_job_upstream(cluster_state, job),
            Compatibility::Corrected => self.vote_job_corrected(cluster_state, job),
        }
    }

    /// The check of a task of a queue.
    ///
    /// # Errors
    /// The queue is not there.
    pub fn vote_task(
        &self,
        cluster_state: &ClusterState,
        queue: &str,
        task: &TaskRecord,
    ) -> Result<QuotaVerdict, Problem> {
        match self.compatibility {
            Compatibility::Upstream(_) => self.vote_task_upstream(queue, task),
            Compatibility::Corrected => self.vote_task_corrected(cluster_state, queue, task),
        }
    }

    /// The vote on a job; what a permitted one needs is kept back, as by [`Self::reserve`].
    ///
    /// # Errors
    /// The errors of [`Self::vote_job`].
    pub fn permit(&mut self, cluster_state: &ClusterState, job: &JobRecord) -> Result<QuotaVerdict, Problem> {
        if self.compatibility == Compatibility::Corrected {
            return self.permit_corrected(cluster_state, job);
        }
        let verdict = self.vote_job_upstream(cluster_state, job)?;
        if verdict.is_permitted() {
            self.reserve_upstream(&job.queue, &verdict.reserve)?;
        }
        Ok(verdict)
    }

    /// Keeps back in its queue what a permitted job needs. For the same job once more: under `upstream` once more,
    /// under `corrected` instead of the former.
    ///
    /// # Errors
    /// The queue is not there.
    pub fn reserve(
        &mut self,
        cluster_state: &ClusterState,
        job: &JobRecord,
        verdict: &QuotaVerdict,
    ) -> Result<(), Problem> {
        match self.compatibility {
            Compatibility::Upstream(_) => self.reserve_upstream(&job.queue, &verdict.reserve),
            Compatibility::Corrected => {
                self.reserve_corrected(cluster_state, job, verdict);
                Ok(())
            }
        }
    }
}
