//! Amounts that a job asks for, holds and needs at least under `compatibility: upstream`.

use std::sync::Arc;

use super::request::{TaskPod, task_request};
use crate::model::{JobPhase, JobRecord, ResourceId, ResourceTable, TaskStatus};
use crate::plugins::capacity_card::{ClusterCards, QuotaAmounts, REQUEST, annotations};
use crate::policy::Compatibility;

/// A job in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamJobAmounts {
    /// Cards that it asks for: those of its tasks, whatever their status, else those of its annotation.
    pub card_request: QuotaAmounts,
    /// Amounts that its tasks in Allocated, Binding, Bound and Running hold.
    pub allocated: QuotaAmounts,
    /// Amounts that those tasks hold and pending tasks ask for.
    pub request: QuotaAmounts,
    /// Least that it needs.
    pub min_resources: QuotaAmounts,
    /// Held above that.
    pub elastic: QuotaAmounts,
    /// Number of its tasks in Allocated, Binding, Bound and Running.
    pub running: usize,
    /// Names, and amounts in the resource's unit, of what tasks with a scheduling gate request.
    pub gated: Vec<(Arc<str>, i64)>,
}

impl UpstreamJobAmounts {
    /// The figures of a job. A task that cannot be evaluated is left out.
    pub fn of<'a>(
        cards: &ClusterCards,
        resources: &ResourceTable,
        unlimited: bool,
        job: &JobRecord,
        pods: impl Iterator<Item = TaskPod<'a>>,
    ) -> Self {
        let mut amounts = Self::default();
        let mut of_tasks = QuotaAmounts::default();
        for pod in pods {
            if pod.task.gated {
                let requests = pod.task.requests.iter();
                let named = requests.filter_map(|(id, amount)| Some((Arc::clone(resources.shared_name(id)?), amount)));
                amounts.gated.extend(named);
            }
            let status = pod.task.status;
            amounts.running += usize::from(status.is_allocated());
            let Ok(request) = task_request(cards, unlimited, pod) else {
                continue;
            };
            for (card, amount) in request.cards() {
                of_tasks.add_card(card, amount);
            }
            if status.is_allocated() {
                amounts.allocated.add(&request);
            }
            if status.is_allocated() || status == TaskStatus::Pending {
                amounts.request.add(&request);
            }
        }
        amounts.card_request = if of_tasks.has_cards() {
            of_tasks
        } else {
            let asked = annotations::read_cards(&job.annotations, REQUEST, Compatibility::UPSTREAM);
            // What cannot be read counts as nothing, as in the reference.
            asked.ok().flatten().unwrap_or_default()
        };
        amounts.min_resources = min_resources(cards, unlimited, job, &amounts.card_request);
        amounts.elastic = amounts.allocated.saturating_sub(&amounts.min_resources);
        amounts
    }

    /// Amounts that the job reserves in its queue when a session opens.
    pub fn inqueue(&self, job: &JobRecord) -> QuotaAmounts {
        match job.phase {
            JobPhase::Inqueue => self.without_gated(self.min_resources.clone()),
            JobPhase::Running if job.min_resources.is_some() && self.has_min_running(job) => {
                self.without_gated(self.min_resources.saturating_sub(&self.allocated))
            }
            JobPhase::Running | JobPhase::Unspecified | JobPhase::Pending | JobPhase::Unknown | JobPhase::Completed => {
                QuotaAmounts::default()
            }
        }
    }

    fn has_min_running(&self, job: &JobRecord) -> bool {
        i64::try_from(self.running).unwrap_or(i64::MAX) >= i64::from(job.min_member)
    }

    /// Takes off what tasks with a scheduling gate request. Only a card whose name is that of a resource is met.
    pub fn without_gated(&self, mut counts: QuotaAmounts) -> QuotaAmounts {
        for (name, amount) in &self.gated {
            let less = |held: i128| (held - i128::from(*amount)).max(0);
            match &**name {
                "cpu" => counts.cpu = less(counts.cpu),
                "memory" => counts.memory = less(counts.memory),
                card => {
                    if let Some(held) = counts.card(card) {
                        counts.set_card(name, less(held));
                    }
                }
            }
        }
        counts
    }
}

fn min_resources(cards: &ClusterCards, unlimited: bool, job: &JobRecord, card_request: &QuotaAmounts) -> QuotaAmounts {
    let mut min = card_request.clone();
    let Some(given) = &job.min_resources else {
        return min;
    };
    if !(unlimited && (card_request.has_cards() || cards.has_card_resource(given))) {
        min.cpu = given.get(ResourceId::CPU).unwrap_or(0).into();
        min.memory = given.get(ResourceId::MEMORY).unwrap_or(0).into();
    }
    min
}
