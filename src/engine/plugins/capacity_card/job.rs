//! What a job asks for, holds and needs at least under `compatibility: upstream`.

use std::sync::Arc;

use super::annotations::{self, REQUEST};
use super::cards::Cards;
use super::counts::Counts;
use super::request::{Pod, task_request};
use crate::engine::model::{JobPhase, JobRecord, ResourceId, ResourceTable, TaskStatus};
use crate::engine::policy::Compatibility;

/// A job in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobView {
    /// Cards that it asks for: those of its tasks, whatever their status, else those of its annotation.
    pub card_request: Counts,
    /// What its tasks in Allocated, Binding, Bound and Running hold.
    pub allocated: Counts,
    /// The same and what pending tasks ask for.
    pub request: Counts,
    /// Least that it needs.
    pub min_resources: Counts,
    /// Held above that.
    pub elastic: Counts,
    /// Number of its tasks in Allocated, Binding, Bound and Running.
    pub running: usize,
    /// Names, and amounts in the resource's unit, of what tasks with a scheduling gate request.
    pub gated: Vec<(Arc<str>, i64)>,
}

impl JobView {
    /// The figures of a job. A task that cannot be counted is left out.
    pub fn of<'a>(
        cards: &Cards,
        resources: &ResourceTable,
        unlimited: bool,
        job: &JobRecord,
        pods: impl Iterator<Item = Pod<'a>>,
    ) -> Self {
        let mut view = Self::default();
        let mut of_tasks = Counts::default();
        for pod in pods {
            if pod.task.gated {
                let requests = pod.task.requests.iter();
                let named = requests.filter_map(|(id, amount)| Some((Arc::clone(resources.shared_name(id)?), amount)));
                view.gated.extend(named);
            }
            let status = pod.task.status;
            view.running += usize::from(status.is_allocated());
            let Ok(request) = task_request(cards, unlimited, pod) else {
                continue;
            };
            for (card, amount) in request.cards() {
                of_tasks.add_card(card, amount);
            }
            if status.is_allocated() {
                view.allocated.add(&request);
            }
            if status.is_allocated() || status == TaskStatus::Pending {
                view.request.add(&request);
            }
        }
        view.card_request = if of_tasks.has_cards() {
            of_tasks
        } else {
            let asked = annotations::cards(&job.annotations, REQUEST, Compatibility::Upstream);
            // What cannot be read counts as nothing, as in the reference.
            asked.ok().flatten().unwrap_or_default()
        };
        view.min_resources = min_resources(cards, unlimited, job, &view.card_request);
        view.elastic = view.allocated.left_after(&view.min_resources);
        view
    }

    /// What the job keeps back in its queue when a session opens.
    pub fn inqueue(&self, job: &JobRecord) -> Counts {
        match job.phase {
            JobPhase::Inqueue => self.without_gated(self.min_resources.clone()),
            JobPhase::Running if job.min_resources.is_some() && self.enough_run(job) => {
                self.without_gated(self.min_resources.left_after(&self.allocated))
            }
            JobPhase::Running | JobPhase::Unspecified | JobPhase::Pending | JobPhase::Unknown | JobPhase::Completed => {
                Counts::default()
            }
        }
    }

    fn enough_run(&self, job: &JobRecord) -> bool {
        i64::try_from(self.running).unwrap_or(i64::MAX) >= i64::from(job.min_member)
    }

    /// Takes off what tasks with a scheduling gate request. Only a card whose name is that of a resource is met.
    pub fn without_gated(&self, mut counts: Counts) -> Counts {
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

fn min_resources(cards: &Cards, unlimited: bool, job: &JobRecord, card_request: &Counts) -> Counts {
    let mut min = card_request.clone();
    let Some(given) = &job.min_resources else {
        return min;
    };
    if !(unlimited && (card_request.has_cards() || cards.any_in(given))) {
        min.cpu = given.get(ResourceId::CPU).unwrap_or(0).into();
        min.memory = given.get(ResourceId::MEMORY).unwrap_or(0).into();
    }
    min
}
