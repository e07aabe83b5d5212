//! Sums of a job: the amounts that its tasks hold and wait for, and what follows from them for its queue.

use std::sync::Arc;

use super::account::{QueueSums, shown_amounts};
use super::integer_amounts::IntegerAmounts;
use crate::held_bytes::held_bytes;
use crate::model::{
    JobPhase, JobRecord, Reservation, ResourceId, ResourceTable, ResourceVector, TaskRecord, TaskStatus,
};
use crate::plugin::PluginAccount;
use crate::policy::{Compatibility, ReleaseRules};

/// Amounts that a job holds, requests and reserves.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JobSums {
    /// True if there is a record of the job; else only its tasks are known.
    pub(super) has_record: bool,
    /// Number of its tasks.
    tasks: u32,
    /// Name of the queue that is charged.
    pub(crate) queue: Arc<str>,
    /// Incarnation of the job.
    pub(super) uid: Arc<str>,
    phase: JobPhase,
    min_member: i32,
    /// Least that the job needs; `None`: the record does not say.
    pub(super) min: Option<IntegerAmounts>,
    /// Amounts that its tasks hold.
    pub(super) held: IntegerAmounts,
    /// Number of tasks that hold something.
    holding_tasks: i64,
    /// Amounts that its pending tasks wait for.
    pub(super) pending: IntegerAmounts,
    /// Amounts that its tasks with a scheduling gate request.
    pub(super) gated: IntegerAmounts,
    /// Amounts that the ledger promises the job.
    pub(super) promised: Option<IntegerAmounts>,
    /// True if the job was enqueued by a cycle whose record does not say so.
    pub(super) enqueued: bool,
}

held_bytes! {
    JobSums {
        min, held, pending, gated, promised; has_record, tasks, queue, uid, phase, min_member, holding_tasks, enqueued
    }
}

/// Rules by which jobs count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JobRules {
    /// Compatibility of the policy.
    pub(crate) compatibility: Compatibility,
    /// Resource that the reference leaves out of what a job still needs; `None`: nobody has it.
    pub(crate) left_out: Option<ResourceId>,
}

impl JobRules {
    /// Rules over the names in a table of resources.
    pub(crate) fn of(compatibility: Compatibility, resources: &ResourceTable) -> Self {
        Self {
            compatibility,
            left_out: resources.get("ephemeral-storage"),
        }
    }

    /// Rules of the release that is followed.
    pub(crate) fn release(self) -> ReleaseRules {
        self.compatibility.release().rules()
    }

    /// Least that a job needs; `None`: the record does not say. Negative amounts count under `upstream` only.
    pub(crate) fn minimum(self, job: &JobRecord) -> Option<IntegerAmounts> {
        job.min_resources.as_ref().map(|min| match self.compatibility {
            Compatibility::Upstream(_) => IntegerAmounts::from(min),
            Compatibility::Corrected => IntegerAmounts::from(&min.without_negatives()),
        })
    }

    /// Amounts of the least that a job does not hold yet.
    pub(crate) fn rest(self, min: &IntegerAmounts, held: &IntegerAmounts) -> IntegerAmounts {
        let mut rest = min.above(held);
        // A scalar that the job does not hold counts as it is written.
        rest.add(&min.negative_beside(held, ResourceId::PODS));
        match (self.compatibility, self.left_out) {
            (Compatibility::Upstream(_), Some(id)) => rest.without(id),
            _ => rest,
        }
    }

    /// True if a task in this status holds its requests. Under `corrected` a pipelined task does, as its event counts it.
    pub(crate) fn holds(self, status: TaskStatus) -> bool {
        status.is_allocated() || self.compatibility == Compatibility::Corrected && status == TaskStatus::Pipelined
    }
}

impl JobSums {
    /// Takes over what the record says.
    pub(crate) fn set_record(&mut self, rules: JobRules, job: &JobRecord) {
        self.has_record = true;
        self.queue = Arc::clone(&job.queue);
        self.uid = Arc::clone(&job.uid);
        self.phase = job.phase;
        self.min_member = job.min_member;
        self.min = rules.minimum(job);
    }

    /// Forgets what the record said. False: nothing is left to know of the job.
    pub(super) fn clear_record(&mut self) -> bool {
        *self = Self {
            tasks: self.tasks,
            held: std::mem::take(&mut self.held),
            holding_tasks: self.holding_tasks,
            pending: std::mem::take(&mut self.pending),
            gated: std::mem::take(&mut self.gated),
            ..Self::default()
        };
        self.tasks > 0
    }

    /// Counts a task as it is, or no longer.
    pub(crate) fn count_task(&mut self, rules: JobRules, task: &TaskRecord, add: bool) {
        let times = if add { 1 } else { -1 };
        self.tasks = if add {
            self.tasks.saturating_add(1)
        } else {
            self.tasks.saturating_sub(1)
        };
        if task.is_withheld(rules.release().counts_queue_gated) {
            self.gated.add_record(&task.requests, times);
        }
        if rules.holds(task.status) {
            self.held.add_record(&task.requests, times);
            self.holding_tasks += if add { 1 } else { -1 };
        } else if task.status == TaskStatus::Pending {
            self.pending.add_record(&task.requests, times);
        }
    }

    /// Tasks with these requests begin to hold them, or cease to; they were pending before or not, and are afterwards.
    pub(crate) fn move_task(&mut self, task: &TaskRecord, holds: bool, (waited, waits): (bool, bool), times: u64) {
        let signed = |add: bool| if add { i128::from(times) } else { -i128::from(times) };
        self.held.add_record(&task.requests, signed(holds));
        let number = i64::try_from(times).unwrap_or(i64::MAX);
        self.holding_tasks += if holds { number } else { -number };
        if waited != waits {
            self.pending.add_record(&task.requests, signed(waits));
        }
    }

    /// True if a row of the ledger is about this job in its queue.
    pub(super) fn is_promised(&self, row: &Reservation) -> bool {
        self.has_record && row.queue == self.queue && row.matches_uid(&self.uid)
    }

    /// Takes over what the ledger has under the job's name, if it is about this job in its queue.
    pub(super) fn set_promise(&mut self, row: Option<&Reservation>, promised: impl Fn(&Reservation) -> IntegerAmounts) {
        let own = row.filter(|row| self.is_promised(row));
        self.promised = own.map(promised);
    }

    /// Amounts that are admitted by the job's phase, or by its cycle, and not yet held.
    fn admitted(&self, rules: JobRules) -> IntegerAmounts {
        let counts = match self.phase {
            JobPhase::Inqueue => true,
            JobPhase::Running => self.holding_tasks >= i64::from(self.min_member),
            JobPhase::Unspecified | JobPhase::Pending | JobPhase::Unknown | JobPhase::Completed => false,
        };
        if counts || self.enqueued {
            self.min.as_ref().map_or_else(IntegerAmounts::default, |min| {
                let is_whole = self.phase == JobPhase::Inqueue && !rules.release().counts_inqueue_once;
                let counted = if is_whole {
                    min.clone()
                } else {
                    rules.rest(min, &self.held)
                };
                counted.ungated(&self.gated)
            })
        } else {
            IntegerAmounts::default()
        }
    }

    /// Amounts of the ledger's promise that the job does not hold yet.
    pub(super) fn promise_left(&self) -> IntegerAmounts {
        self.promised
            .as_ref()
            .map(|promised| promised.above(&self.held))
            .unwrap_or_default()
    }

    /// Contribution to the account of the job's queue. One promise, told by the phase and by the ledger, counts once.
    pub(crate) fn contribution(&self, rules: JobRules) -> QueueSums {
        if !self.has_record {
            return QueueSums::default();
        }
        let mut inqueue = self.admitted(rules);
        inqueue.raise_to(&self.promise_left());
        let mut request = self.held.clone();
        request.add(&self.pending);
        QueueSums {
            allocated: self.held.clone(),
            request,
            elastic: self.elastic(),
            inqueue,
        }
    }

    /// Amounts held beyond the least that the job needs.
    pub(crate) fn elastic(&self) -> IntegerAmounts {
        match &self.min {
            Some(min) => self.held.excess_over(min),
            None => self.held.clone(),
        }
    }

    /// Amounts that the job's queue keeps for it and that a new vote on it does not count against it: under `upstream` what
    /// only the ledger keeps, under `corrected` everything.
    pub(crate) fn own_inqueue(&self, rules: JobRules) -> IntegerAmounts {
        let mut own = self.contribution(rules).inqueue;
        if rules.compatibility.is_upstream() {
            own.subtract(&self.admitted(rules));
        }
        own
    }

    /// Amounts that a vote on the job asks for: under `upstream` the least that it needs, whether it holds some of it or
    /// not; under `corrected` what it does not hold yet.
    pub(crate) fn asked(&self, rules: JobRules) -> Option<IntegerAmounts> {
        let min = self.min.as_ref()?;
        Some(match rules.compatibility {
            Compatibility::Upstream(_) => min.clone(),
            Compatibility::Corrected => min.above(&self.held),
        })
    }
}

impl JobSums {
    /// Account of the job as listings show it.
    pub(crate) fn shown(&self, rules: JobRules, names: &ResourceTable) -> PluginAccount {
        let min = self.min.as_ref().map(ResourceVector::from);
        PluginAccount {
            min_resources: min.map_or_else(Vec::new, |min| shown_amounts(names, &min)),
            ..self.contribution(rules).shown(names)
        }
    }
}
