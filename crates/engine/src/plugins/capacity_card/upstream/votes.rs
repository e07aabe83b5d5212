//! Votes of the reference: may this job be enqueued, may this task be allocated.

use std::sync::Arc;

use super::check::{QuotaRequester, check_card};
use super::go_format::{go_float, go_format};
use super::state::UpstreamCapacityState;
use crate::model::{ClusterState, ErrorCode, JobRecord, Problem, TaskRecord};
use crate::plugin::Resolution;
use crate::plugins::capacity_card::{
    CardVotes, QueueAccount, QuotaAmounts, QuotaComparison, QuotaDimension, QuotaRejection, QuotaVerdict, rejection,
};

impl CardVotes for UpstreamCapacityState {
    fn vote_job(&self, cluster_state: &ClusterState, job: &JobRecord) -> Result<QuotaVerdict, Problem> {
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
        Ok(QuotaVerdict {
            min_amounts: Arc::new(measurements.without_gated(min.clone())),
            ..QuotaVerdict::default()
        })
    }

    fn permit(&mut self, cluster_state: &ClusterState, job: &JobRecord) -> Result<QuotaVerdict, Problem> {
        let verdict = self.vote_job(cluster_state, job)?;
        if verdict.is_permitted() {
            self.reserve(&job.queue, &verdict.min_amounts)?;
        }
        Ok(verdict)
    }

    fn vote_task(&self, _: &ClusterState, queue: &str, task: &TaskRecord) -> Result<QuotaVerdict, Problem> {
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
    let compared = |of: fn(&QuotaAmounts) -> i128| QuotaComparison {
        requested: of(wanted),
        total: of(total),
        capability: of(capability),
    };
    let plain = [
        (QuotaDimension::Cpu, compared(|amounts| amounts.cpu)),
        (QuotaDimension::Memory, compared(|amounts| amounts.memory)),
    ];
    let ignored = |card: &str| asker == QuotaRequester::Job && card == "pods";
    let cards = wanted.cards().filter(|(card, _)| !ignored(card));
    let cards = cards.map(|(card, requested)| {
        let compared = check_card(card, requested, total, capability, asker);
        (QuotaDimension::Card(card), compared)
    });
    let mut all = plain.into_iter().chain(cards);
    let (dimension, compared) = all.find(|(_, compared)| compared.rejects())?;
    Some(insufficient_upstream(queue, asker, dimension, compared))
}

/// Too little, in the words of the reference.
fn insufficient_upstream(
    queue: &str,
    asker: QuotaRequester,
    dimension: QuotaDimension<'_>,
    compared: QuotaComparison,
) -> QuotaRejection {
    let what = dimension.label();
    let (unit, scale) = match dimension {
        QuotaDimension::Memory => (" Mi", 1024.0),
        QuotaDimension::Cpu | QuotaDimension::Card(_) => ("", 1.0),
    };
    let shown = |amount: i128| go_float(amount as f64 / scale / scale);
    let queue = match (dimension, asker) {
        (QuotaDimension::Memory, QuotaRequester::Job) => queue.to_owned(),
        _ => format!("<{queue}>"),
    };
    let message = format!(
        "Queue {queue} has insufficient {what} quota: requested <{}{unit}>, total would be <{}{unit}>, but capability is <{}{unit}>",
        shown(compared.requested),
        shown(compared.total),
        shown(compared.capability),
    );
    let message = match asker {
        QuotaRequester::Job => go_format(&message),
        QuotaRequester::Task => message,
    };
    rejection::by_quota(dimension, compared, message, Resolution::Unschedulable)
}
