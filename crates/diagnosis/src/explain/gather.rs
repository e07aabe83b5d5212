//! Queries of an explanation, and the report of their results.

use std::collections::BTreeMap;

use super::entitlement;
use super::free_capacity::{self, ClusterIdleCapacity};
use super::phrases;
use super::report::{
    AdmissionReport, ExplainMetadata, ExplainReport, GangReport, OrderKeyRow, OrderReport, QueueAccountRow,
    QueueOrderKeyRow, QueueReport, ResourceHolder, TaskClassReport,
};
use super::target::{self, ExplainTarget, ResolvedTarget};
use super::task_classes::{self, EqualTasks};
use super::trial::{self, WaitingJob};
use super::units::{account_unit, to_measurement};
use super::verdict;
use pumice_console::CommandError;
use pumice_console::pinned_client::{KnownRecords, PinnedClient};
use pumice_engine::decide::order_key_meanings;
use pumice_protocol::v1 as pb;

/// Number of evaluated task classes of one job.
const CLASSES_JUDGED: usize = 8;
/// Number of names that are listed.
const NAMED: usize = 10;

/// Report on a job or task. `top`: number of best nodes that are shown.
pub(super) async fn explain(
    client: &mut PinnedClient,
    wanted: ExplainTarget,
    top: u32,
) -> Result<ExplainReport, CommandError> {
    let known = client.fetch_records().await?;
    explain_known(client, &known, wanted, top).await
}

/// Report on a job or task among these records.
pub(super) async fn explain_known(
    client: &mut PinnedClient,
    known: &KnownRecords,
    wanted: ExplainTarget,
    top: u32,
) -> Result<ExplainReport, CommandError> {
    let focus = target::resolve_target(known, wanted)?;
    let mut report = ExplainReport {
        subject: focus.subject.clone(),
        metadata: report_metadata(client, known),
        invalid_records: focus.invalid.clone(),
        ..ExplainReport::default()
    };
    report
        .invalid_records
        .extend(target::invalid_nodes(&known.nodes).into_iter().take(NAMED));
    // Of the server's own state these are sources that may miss changes.
    let warnings = client.metadata.iter().flat_map(|metadata| &metadata.warnings);
    report.notes.extend(warnings.map(|warning| warning.message.clone()));
    report.queue = known.queues.get(&focus.subject.queue).map(queue_report);
    let waits = !focus.waiting.is_empty() || (focus.subject.tasks == 0 && focus.subject.phase == "pending");
    if waits {
        if let Some(queue) = report.queue.as_mut() {
            queue.lent = entitlement::lent_amounts(known, &queue.name);
            if !queue.lent.is_empty() {
                report.actions = client.policy_actions().await;
            }
        }
        add_decisions(client, known, &focus, top, &mut report).await?;
    }
    report.not_evaluated = client.unevaluated.rows();
    report.verdict = verdict::build_verdict(&report, &focus);
    Ok(report)
}

async fn add_decisions(
    client: &mut PinnedClient,
    known: &KnownRecords,
    focus: &ResolvedTarget,
    top: u32,
    report: &mut ExplainReport,
) -> Result<(), CommandError> {
    let has_queue = report.queue.is_some();
    if let Some(job) = focus.job.as_ref().filter(|_| has_queue) {
        let whom = if focus.job_stored {
            pb::Job {
                name: job.name.clone(),
                ..pb::Job::default()
            }
        } else {
            job.clone()
        };
        if focus.subject.phase == "pending" {
            let subject = pb::admit_subject::Subject::Job(whom);
            report.admission = Some(task_classes::admission_report(client, subject).await?);
        }
    }
    let kinds = task_classes::group_equal_tasks(&focus.waiting, focus.tasks_stored);
    if kinds.len() > CLASSES_JUDGED {
        report.notes.push(format!(
            "only the first {CLASSES_JUDGED} of {} classes of its tasks are judged",
            kinds.len()
        ));
    }
    let in_queue = has_queue && focus.job_stored;
    for kind in kinds.iter().take(CLASSES_JUDGED) {
        let class = task_classes::class_report(client, kind, &known.nodes, top, in_queue).await?;
        report.task_classes.push(class);
    }
    let waiting = target::waiting_jobs(known);
    let ahead = if in_queue {
        let (order, ahead) = order_report(client, known, focus, &waiting).await?;
        report.order = Some(order);
        ahead
    } else {
        Vec::new()
    };
    if let Some(queue) = report.queue.as_mut() {
        queue.holders = top_holders(known, &queue.name, report.admission.as_ref(), &report.task_classes);
    }
    report.gang = gang_report(client, known, focus, &kinds, &ahead, report).await;
    if let Some(gang) = report.gang.as_mut() {
        gang.placeable_later = placeable_upper_bound(known, &kinds, &report.task_classes, true);
    }
    if in_queue {
        report.gang_admission = gang_admission(client, focus, report).await?;
    }
    Ok(())
}

fn report_metadata(client: &PinnedClient, known: &KnownRecords) -> ExplainMetadata {
    let metadata = client.metadata.clone().unwrap_or_default();
    ExplainMetadata {
        revision: metadata.revision.map_or(0, |revision| revision.number),
        policy: metadata.policy,
        policy_version: metadata.policy_version,
        policy_hash: metadata.policy_hash,
        nodes: known.nodes.len() as u64,
        with: client.with.clone(),
    }
}

fn queue_report(status: &pb::QueueStatus) -> QueueReport {
    let record = status.queue.clone().unwrap_or_default();
    let state = record.state().as_str_name();
    let state = match state.trim_start_matches("QUEUE_STATE_") {
        "UNSPECIFIED" => "open".to_owned(),
        state => state.to_lowercase(),
    };
    let limiting = status.accounts.iter().find(|account| !account.capability.is_empty());
    let account = limiting.or(status.accounts.first());
    QueueReport {
        name: record.name,
        state,
        account: account.map(account_rows).unwrap_or_default(),
        share: account.map(|account| account.share),
        holders: Vec::new(),
        lent: Vec::new(),
    }
}

fn account_rows(account: &pb::Account) -> Vec<QueueAccountRow> {
    let mut rows: BTreeMap<&str, QueueAccountRow> = BTreeMap::new();
    let mut put = |amounts: &'_ [pb::Amount], set: fn(&mut QueueAccountRow, f64)| {
        for amount in amounts {
            let Some(own) = [
                &account.allocated,
                &account.request,
                &account.inqueue,
                &account.capability,
            ]
            .into_iter()
            .chain([&account.elastic, &account.deserved])
            .flatten()
            .find(|own| own.resource == amount.resource) else {
                continue;
            };
            let row = rows.entry(&own.resource).or_insert_with(|| QueueAccountRow {
                resource: own.resource.clone(),
                unit: account_unit(&own.resource),
                ..QueueAccountRow::default()
            });
            set(row, to_measurement(amount).value);
        }
    };
    put(&account.allocated, |row, value| row.allocated = value);
    put(&account.inqueue, |row, value| row.inqueue = value);
    put(&account.elastic, |row, value| row.elastic = value);
    put(&account.deserved, |row, value| row.deserved = Some(value));
    put(&account.guarantee, |row, value| row.guarantee = Some(value));
    put(&account.capability, |row, value| row.capability = Some(value));
    put(&account.real_capability, |row, value| row.real_capability = Some(value));
    rows.into_values().collect()
}

/// Jobs of a queue that hold most of the resource that is short.
fn top_holders(
    known: &KnownRecords,
    queue: &str,
    admission: Option<&AdmissionReport>,
    classes: &[TaskClassReport],
) -> Vec<ResourceHolder> {
    let of_job = admission.into_iter().flat_map(|admission| &admission.reasons);
    let of_tasks = classes.iter().filter_map(|class| class.admission.as_ref());
    let of_tasks = of_tasks.flat_map(|admission| &admission.reasons);
    // A reservation that is not allocated yet keeps other jobs from being enqueued, not other tasks from being allocated.
    let mut refused = of_job
        .map(|reason| (reason, true))
        .chain(of_tasks.map(|reason| (reason, false)));
    let Some((short, with_reserved)) = refused.find(|(reason, _)| !reason.resource.is_empty()) else {
        return Vec::new();
    };
    let held = |status: &pb::JobStatus| {
        let job = status.job.as_ref().filter(|job| job.queue == queue)?;
        let account = status.accounts.iter().find(|account| account.plugin == short.plugin)?;
        let amount = |amounts: &[pb::Amount]| {
            // A choice such as `A|B` is held as either card, or kept back as the choice.
            let of_choice = |name: &str| name == short.resource || short.resource.split('|').any(|card| card == name);
            let held = amounts.iter().filter(|amount| of_choice(&amount.resource));
            held.map(|amount| to_measurement(amount).value).sum::<f64>()
        };
        let reserved = if with_reserved { amount(&account.inqueue) } else { 0.0 };
        let held = amount(&account.allocated) + reserved;
        (held > 0.0).then(|| ResourceHolder {
            job: job.name.clone(),
            resource: short.resource.clone(),
            amount: held,
            reserved,
            unit: account_unit(&short.resource),
        })
    };
    let mut holders: Vec<ResourceHolder> = known.jobs.values().filter_map(held).collect();
    holders.sort_by(|a, b| b.amount.total_cmp(&a.amount));
    holders.truncate(3);
    holders
}

/// Order keys of two jobs of a queue, plugin by plugin.
fn order_keys(own: Option<&&pb::Rank>, first: Option<&&pb::Rank>) -> Vec<OrderKeyRow> {
    let keys = |rank: Option<&&pb::Rank>| rank.map(|rank| rank.keys.clone()).unwrap_or_default();
    let key = |(own, first): (pb::OrderKey, pb::OrderKey)| OrderKeyRow {
        own_text: phrases::key_text(order_key_meanings(&own.plugin).jobs, &own.values),
        first_in_queue_text: phrases::key_text(order_key_meanings(&first.plugin).jobs, &first.values),
        plugin: own.plugin,
        own: own.values,
        first_in_queue: first.values,
    };
    keys(own).into_iter().zip(keys(first)).map(key).collect()
}

/// Order keys of a queue and of the first queue before it in which jobs wait, plugin by plugin.
fn queue_keys(ranks: &[pb::Rank], own: &str, first: &str) -> Vec<QueueOrderKeyRow> {
    let keys = |name: &str| {
        let rank = ranks.iter().find(|rank| rank.name == name && rank.problem.is_none());
        rank.map(|rank| rank.keys.clone()).unwrap_or_default()
    };
    let key = |(own, first): (pb::OrderKey, pb::OrderKey)| QueueOrderKeyRow {
        own_text: phrases::key_text(order_key_meanings(&own.plugin).queues, &own.values),
        first_queue_text: phrases::key_text(order_key_meanings(&first.plugin).queues, &first.values),
        plugin: own.plugin,
        own: own.values,
        first_queue: first.values,
    };
    keys(own).into_iter().zip(keys(first)).map(key).collect()
}

/// Place of a name among ranks; `None`: it has no rank.
fn place_of<'r>(ranks: impl IntoIterator<Item = &'r pb::Rank>, name: &str) -> Option<usize> {
    let mut ranks = ranks.into_iter();
    ranks.position(|rank| rank.name == name && rank.problem.is_none())
}

/// Position of the job, and the jobs before it, first served first.
async fn order_report(
    client: &mut PinnedClient,
    known: &KnownRecords,
    focus: &ResolvedTarget,
    waiting: &BTreeMap<String, WaitingJob>,
) -> Result<(OrderReport, Vec<WaitingJob>), CommandError> {
    let job = focus.job.as_ref().map(|job| job.name.clone()).unwrap_or_default();
    let mut names: Vec<String> = waiting.keys().cloned().collect();
    if !names.contains(&job) {
        names.push(job.clone());
    }
    let result = client.order(names).await?;
    let queue_of = |name: &str| {
        let record = known.jobs.get(name).and_then(|status| status.job.as_ref());
        record.map(|record| record.queue.as_str()).unwrap_or_default()
    };
    let own = focus.subject.queue.as_str();
    let queue_place = place_of(&result.queues, own).map_or(0, |place| place as u64 + 1);
    let before = usize::try_from(queue_place.saturating_sub(1)).unwrap_or(0);
    let has_jobs = |queue: &str| waiting.keys().any(|job| queue_of(job) == queue);
    let queues_ahead: Vec<String> = result
        .queues
        .iter()
        .take(before)
        .map(|rank| rank.name.clone())
        .filter(|queue| has_jobs(queue))
        .collect();
    let of_queue = |queue: &str| -> Vec<&pb::Rank> {
        result
            .jobs
            .iter()
            .filter(|rank| queue_of(&rank.name) == queue)
            .collect()
    };
    let in_queue = of_queue(own);
    let job_place = place_of(in_queue.iter().copied(), &job);
    let jobs_ahead: Vec<&pb::Rank> = in_queue.iter().take(job_place.unwrap_or(0)).copied().collect();
    let before_in_queues = queues_ahead.iter().flat_map(|queue| of_queue(queue));
    let ahead = before_in_queues.chain(jobs_ahead.iter().copied());
    let ahead = ahead.filter_map(|rank| waiting.get(&rank.name).cloned()).collect();
    let order = OrderReport {
        queue_keys: queue_keys(&result.queues, own, queues_ahead.first().map_or(own, String::as_str)),
        queue_position: queue_place,
        queues: result.queues.len() as u64,
        queues_ahead,
        job_position: job_place.map_or(0, |place| place as u64 + 1),
        jobs: in_queue.len() as u64,
        jobs_ahead: jobs_ahead.iter().take(NAMED).map(|rank| rank.name.clone()).collect(),
        jobs_ahead_count: jobs_ahead.len() as u64,
        keys: order_keys(in_queue.iter().find(|rank| rank.name == job), in_queue.first()),
    };
    Ok((order, ahead))
}

/// Number of tasks that can be placed together. It is simulated in the session; without a free session it is estimated
/// class by class.
async fn gang_report(
    client: &mut PinnedClient,
    known: &KnownRecords,
    focus: &ResolvedTarget,
    kinds: &[EqualTasks],
    ahead: &[WaitingJob],
    report: &mut ExplainReport,
) -> Option<GangReport> {
    let subject = &focus.subject;
    let tasks: Vec<pb::Task> = focus.waiting.iter().filter(|task| !task.gated).cloned().collect();
    if tasks.is_empty() || report.task_classes.iter().any(|class| class.problem.is_some()) {
        return None;
    }
    let needed = if subject.job.is_empty() && subject.kind != "job" {
        1
    } else {
        subject.min_member.max(1)
    };
    let held = subject
        .placed
        .saturating_add(subject.pipelined)
        .saturating_add(subject.succeeded);
    let in_queue = report.queue.is_some() && focus.job_stored;
    let own = WaitingJob {
        job: if in_queue {
            focus.job.as_ref().map(|job| job.name.clone()).unwrap_or_default()
        } else {
            String::new()
        },
        queue: subject.queue.clone(),
        not_enqueued: subject.phase == "pending" && in_queue,
        min_count: usize::try_from(needed.saturating_sub(held).max(1)).unwrap_or(usize::MAX),
        tasks,
    };
    if !client.has_session() {
        report
            .notes
            .push("its placement was counted, not tried: no session was free".to_owned());
    } else if focus.tasks_stored {
        match trial::try_gang(client, &own, ahead, needed, held).await {
            Ok(gang) => {
                let why = trial::too_many_ahead(ahead).filter(|_| gang.placeable >= own.min_count as u64);
                report.notes.extend(why);
                return Some(gang);
            }
            Err(failure) => report
                .notes
                .push(format!("its placement could not be tried: {failure}")),
        }
    }
    Some(GangReport {
        min_count: needed,
        placed_count: held,
        placeable: placeable_upper_bound(known, kinds, &report.task_classes, false),
        attempted: own.tasks.len() as u64,
        method: "counted",
        ..GangReport::default()
    })
}

/// Rejection of the tasks that must start together as if they were one task, where the queue admits each but not all of them.
async fn gang_admission(
    client: &mut PinnedClient,
    focus: &ResolvedTarget,
    report: &ExplainReport,
) -> Result<Option<AdmissionReport>, CommandError> {
    let (Some(gang), Some(job)) = (&report.gang, &focus.job) else {
        return Ok(None);
    };
    let needed = gang.min_count.saturating_sub(gang.placed_count);
    let admitted = report.task_classes.iter().map(TaskClassReport::admitted_count);
    let permits = |class: &TaskClassReport| class.admission.as_ref().is_some_and(|admission| admission.permitted);
    let all_judged = report.task_classes.iter().map(|class| class.count).sum::<u64>() >= focus.waiting.len() as u64;
    let enough = admitted.fold(0, u64::saturating_add) >= needed;
    if needed < 2 || enough || !all_judged || !report.task_classes.iter().all(permits) {
        return Ok(None);
    }
    let tasks = focus.waiting.iter().filter(|task| !task.gated);
    let tasks: Vec<&pb::Task> = tasks.take(usize::try_from(needed).unwrap_or(usize::MAX)).collect();
    let Some(first) = tasks.first() else { return Ok(None) };
    let together = pb::Task {
        job: job.name.clone(),
        requests: Some(free_capacity::sum_of_requests(&tasks)),
        annotations: first.annotations.clone(),
        ..pb::Task::default()
    };
    let admission = task_classes::admission_report(client, pb::admit_subject::Subject::Task(together)).await?;
    Ok(Some(admission).filter(|admission| !admission.permitted && admission.problem.is_none()))
}

/// Upper bound on the waiting tasks that have free capacity, as the sum over task classes. `later`: after all releasing
/// tasks have ended.
fn placeable_upper_bound(known: &KnownRecords, kinds: &[EqualTasks], classes: &[TaskClassReport], later: bool) -> u64 {
    let rooms = ClusterIdleCapacity::of(&known.nodes, later);
    let of_kind = |(kind, class): (&EqualTasks, &TaskClassReport)| {
        let requests = kind.tasks.first().map(free_capacity::requests).unwrap_or_default();
        let names = if later {
            &class.fit_later_names
        } else {
            &class.fit_now_names
        };
        let headroom = class.admission.as_ref().and_then(|admission| admission.headroom);
        // Releasing tasks give their quota back to the queue.
        let headroom = headroom.filter(|_| !later);
        rooms
            .fitting_copies(names, &requests)
            .min(headroom.unwrap_or(u64::MAX))
            .min(class.count.saturating_sub(class.gated))
    };
    kinds.iter().zip(classes).map(of_kind).fold(0, u64::saturating_add)
}
