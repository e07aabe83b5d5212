//! Admission to a queue with limits: the reasons against it with their amounts, and how many equal tasks fit.

use std::sync::Arc;

use super::account::QueueTotals;
use super::all_accounts::{QueueAccounts, reference_panics};
use super::integer_amounts::IntegerAmounts;
use super::job_sums::JobSums;
use crate::model::resource_name::format_amount;
use crate::model::{ErrorCode, JobRecord, Problem, ResourceId, ResourceTable, ResourceVector};
use crate::plugin::{AdmitOpinion, Measurement, Reason, Resolution};

/// Code of a queue that is not open.
pub(crate) const QUEUE_NOT_OPEN: &str = "QueueNotOpen";
/// Code of a queue that would hold, or hold and reserve, more than it may.
const OVER_CAPABILITY: &str = "QueueOverCapability";

/// Limit of a queue that a sum is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaLimit<'a> {
    /// Name of the plugin.
    pub(crate) plugin: &'static str,
    /// Code of the reason.
    pub(crate) code: &'static str,
    /// Name of the limit in messages.
    pub(crate) name: &'static str,
    /// Name of the limit in measurements.
    pub(crate) measured_as: &'static str,
    /// Queue that has the limit.
    pub(crate) queue: &'a str,
    /// Ceiling of each resource.
    pub(crate) amounts: &'a ResourceVector,
    /// Limit that the amounts can never pass, measured as `capability`; `None`: the limit itself.
    pub(crate) bound: Option<&'a ResourceVector>,
}

/// Demand of one resource on a queue.
#[derive(Clone, Copy, Debug)]
struct LimitedDemand {
    /// Amount that is asked for.
    requested: i128,
    /// Amount that the queue's tasks hold.
    held: i128,
    /// Amount that is reserved for admitted jobs, without what others hold beyond their minimums; `None`: it does not
    /// count here.
    inqueue: Option<i128>,
}

impl LimitedDemand {
    /// Amount that the queue would hold and keep.
    fn total(self) -> i128 {
        self.requested + self.held + self.inqueue.unwrap_or(0)
    }
}

/// Reason with its measurements.
pub(crate) type QuotaReason = (Reason, Vec<Measurement>);

/// Reason that stays whoever leaves the queue, without measurements.
pub(crate) fn lasting_reason(plugin: &str, code: &'static str, message: String) -> QuotaReason {
    (Reason::new(plugin, code, message, Resolution::Unresolvable), Vec::new())
}

/// Reason against everything in a queue that is not open.
pub(crate) fn not_open(plugin: &str, queue: &str) -> QuotaReason {
    lasting_reason(plugin, QUEUE_NOT_OPEN, format!("Queue <{queue}> is not open"))
}

impl<'a> QuotaLimit<'a> {
    /// Limit of a queue by its real capability.
    pub(crate) fn real_capability(plugin: &'static str, queue: &'a str, account: &'a QueueTotals) -> Self {
        Self {
            plugin,
            code: OVER_CAPABILITY,
            name: "real capability",
            measured_as: "capability",
            queue,
            amounts: &account.limits.real_capability,
            bound: None,
        }
    }

    /// Reasons against more requests beside what is held, one per requested resource of which the sum is above the limit.
    pub(crate) fn reasons(
        &self,
        names: &ResourceTable,
        held: &IntegerAmounts,
        requests: &IntegerAmounts,
    ) -> Vec<QuotaReason> {
        let mut sum = held.clone();
        sum.add(requests);
        let (sum, requested) = (ResourceVector::from(&sum), ResourceVector::from(requests));
        let misfits = sum.misfits(self.amounts, &requested);
        let demand = |id: ResourceId| LimitedDemand {
            requested: requests.get(id),
            held: held.get(id),
            inqueue: None,
        };
        misfits.map(|id| self.reason(names, id, demand(id))).collect()
    }

    fn reason(&self, names: &ResourceTable, id: ResourceId, demand: LimitedDemand) -> QuotaReason {
        let resource = names.name(id);
        let limit = self.amounts.amount(id);
        let shown = |amount: i128| format_amount(resource, amount);
        let inqueue = demand
            .inqueue
            .map(|inqueue| format!(", reserved for admitted jobs <{}>", shown(inqueue)));
        let message = format!(
            "Queue <{}> has not enough {resource}: requested <{}>, held <{}>{}, {} <{}>",
            self.queue,
            shown(demand.requested),
            shown(demand.held),
            inqueue.unwrap_or_default(),
            self.name,
            shown(whole(limit)),
        );
        let reason = Reason {
            plugin: Arc::from(self.plugin),
            code: self.code,
            message,
            resolution: Resolution::Unschedulable,
            resource: names.shared_name(id).cloned().unwrap_or_default(),
        };
        let measured = [
            ("requested", demand.requested as f64),
            ("allocated", demand.held as f64),
            ("inqueue", demand.inqueue.unwrap_or(0) as f64),
            ("total", demand.total() as f64),
            (self.measured_as, limit),
        ];
        let bound = self.bound.map(|bound| ("capability", bound.amount(id)));
        let measured = measured.into_iter().chain(bound);
        let measurements = measured.map(|(name, amount)| Measurement::of_resource(name, resource, amount));
        (reason, measurements.collect())
    }

    /// Number of tasks with this request that fit beside what is held; `None`: the limit leaves room for any number.
    pub(crate) fn headroom(&self, held: &IntegerAmounts, request: &IntegerAmounts) -> Option<u64> {
        let requested = request
            .iter()
            .filter(|(id, amount)| *id != ResourceId::PODS && *amount > 0);
        let times = requested.map(|(id, amount)| {
            let room = whole(self.amounts.amount(id)) - held.get(id);
            u64::try_from(room.max(0) / amount).unwrap_or(u64::MAX)
        });
        times.min()
    }
}

/// Largest whole amount within a limit.
#[expect(clippy::cast_possible_truncation, reason = "a limit beyond all amounts saturates")]
fn whole(limit: f64) -> i128 {
    (limit.floor() as i128).clamp(i128::MIN / 4, i128::MAX / 4)
}

/// Opinion of a plugin with these reasons against.
pub(crate) fn opinion(reasons: Vec<QuotaReason>, headroom: Option<u64>) -> AdmitOpinion {
    AdmitOpinion {
        headroom: if reasons.is_empty() {
            headroom
        } else {
            headroom.map(|_| 0)
        },
        reasons,
        ..AdmitOpinion::default()
    }
}

/// Demand of a job on the accounts of its queue.
#[derive(Clone, Debug)]
pub(crate) struct QuotaDemand {
    /// Amounts that the job asks for.
    pub(crate) asked: IntegerAmounts,
    /// Amounts that the queue keeps for the job already.
    own: IntegerAmounts,
    /// Amounts that its queue keeps for it once it is admitted.
    pub(crate) reserve: IntegerAmounts,
}

impl QueueAccounts {
    /// Demand of a job; `None`: it does not say how much it needs, and is permitted.
    pub(crate) fn job_demand(&self, job: &JobRecord) -> Option<QuotaDemand> {
        let known = self.job(&job.name).filter(|known| known.queue == job.queue);
        let mut sums = known.map(|known| JobSums::clone(known)).unwrap_or_default();
        sums.set_record(self.rules, job);
        let asked = sums.asked(self.rules)?;
        let reserve = sums.min.clone().unwrap_or_default().ungated(&sums.gated);
        let own = known.map(|known| known.own_inqueue(self.rules)).unwrap_or_default();
        Some(QuotaDemand { asked, own, reserve })
    }

    /// Reasons against a job: the amounts that its queue would hold and reserve with it are above the limit.
    ///
    /// # Errors
    /// Under `upstream`: more is elastic than is held, where the reference panics.
    pub(crate) fn reasons_against_job(
        &self,
        limit: QuotaLimit<'_>,
        account: &QueueTotals,
        demand: &QuotaDemand,
    ) -> Result<Vec<QuotaReason>, Problem> {
        let plus = |id: ResourceId| {
            demand.asked.get(id) + account.allocated.get(id) + account.inqueue.get(id) - demand.own.get(id)
        };
        if self.rules.compatibility.is_upstream() && account.elastic.iter().any(|(id, elastic)| elastic > plus(id)) {
            let message = format!("more is elastic in queue `{}` than it holds with the job", limit.queue);
            return Err(reference_panics(&message));
        }
        let asked = demand
            .asked
            .iter()
            .filter(|(id, amount)| *id != ResourceId::PODS && *amount > 0);
        let demands = asked.map(|(id, requested)| {
            let held = account.allocated.get(id);
            let inqueue = Some(plus(id) - account.elastic.get(id) - requested - held);
            (
                id,
                LimitedDemand {
                    requested,
                    held,
                    inqueue,
                },
            )
        });
        let over = demands.filter(|(id, demand)| demand.total() as f64 > limit.amounts.amount(*id));
        let reasons = over.map(|(id, demand)| limit.reason(&self.resources, id, demand));
        Ok(reasons.collect())
    }
}

/// Amounts that a queue would hold with more requests.
pub(crate) fn sum_with(account: &QueueTotals, request: &IntegerAmounts) -> ResourceVector {
    let mut sum = account.allocated.clone();
    sum.add(request);
    ResourceVector::from(&sum)
}

/// Problem of a question about a queue that is not there.
pub(crate) fn unknown_queue(queue: &str) -> Problem {
    let message = format!("there is no queue `{queue}`");
    Problem::new(ErrorCode::QueueUnknown, "", message)
}

/// Least whole amount by which something held is above a limit.
#[expect(clippy::cast_possible_truncation, reason = "a limit beyond all amounts saturates")]
pub(crate) fn missing_amount(held: i128, limit: f64) -> i128 {
    held.saturating_sub(limit.floor() as i128).max(1)
}
