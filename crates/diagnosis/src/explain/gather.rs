//! Queries of an explanation, and the report of their results.

use std::collections::BTreeMap;

use super::free_capacity::{self, ClusterIdleCapacity};
use super::report::{
    AdmissionReport, ExplainMetadata, ExplainReport, ExplainVerdict, GangReport, QueueAccountRow, QueueReport,
    ResourceHolder, TaskClassReport,
};
use super::target::{self, ExplainTarget, ResolvedTarget};
use super::trial::{self, WaitingJob};
use super::units::{account_unit, to_measurement};
use super::verdict_parts::VerdictInput;
use super::{endless, entitlement, evictions, hint, quota, task_classes, turn, verdict};
use pumice_console::CommandError;
use pumice_console::pinned_client::{KnownRecords, PinnedClient};
use pumice_engine::plugin::Measurement;
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
    explain_known(client, &known, wanted, top, usize::MAX).await
}

/// Report on a job or task among these records, with at most this many hints.
pub(super) async fn explain_known(
    client: &mut PinnedClient,
    known: &KnownRecords,
    wanted: ExplainTarget,
    top: u32,
    most_hints: usize,
) -> Result<ExplainReport, CommandError> {
    let actions = client.policy_actions().await;
    let focus = target::resolve_target(known, wanted, actions.is_some())?;
    let mut report = ExplainReport {
        subject: focus.subject.clone(),
        metadata: report_metadata(client, known),
        invalid_records: focus.invalid.clone(),
        actions,
        ..ExplainReport::default()
    };
    report
        .invalid_records
        .extend(target::invalid_nodes(&known.nodes).into_iter().take(NAMED));
    // Of the server's own state these are sources that may miss changes.
    let warnings = client.metadata.iter().flat_map(|metadata| &metadata.warnings);
    report.notes.extend(warnings.map(|warning| warning.message.clone()));
    report.queue = known.queues.get(&focus.subject.queue).map(queue_report);
    let rooms = ClusterIdleCapacity::of(&known.nodes, true);
    let waits = !focus.waiting.is_empty() || (focus.subject.tasks == 0 && focus.subject.phase == "pending");
    let attempted = if waits {
        if let Some(queue) = report.queue.as_mut() {
            queue.lent = entitlement::lent_amounts(known, &queue.name);
        }
        add_decisions(client, known, &rooms, &focus, top, &mut report).await?
    } else {
        None
    };
    report.not_evaluated = client.unevaluated.rows();
    let (verdict, hints) = verdict::build_verdict(VerdictInput {
        report: &report,
        focus: &focus,
        known,
        rooms: &rooms,
        attempted: attempted.as_ref(),
    });
    report.verdict = ExplainVerdict {
        hints: hint::helping_hints(client, known, hints, most_hints).await,
        ..verdict
    };
    Ok(report)
}

/// Adds the decisions on a subject that waits. Returns the tasks that Place was asked about.
async fn add_decisions(
    client: &mut PinnedClient,
    known: &KnownRecords,
    rooms: &ClusterIdleCapacity,
    focus: &ResolvedTarget,
    top: u32,
    report: &mut ExplainReport,
) -> Result<Option<WaitingJob>, CommandError> {
    let in_queue = report.queue.is_some() && focus.job.is_some();
    let is_ordered = in_queue && focus.job_stored;
    if let Some(job) = focus
        .job
        .as_ref()
        .filter(|_| in_queue && focus.subject.phase == "pending")
    {
        let whom = if focus.job_stored {
            pb::Job {
                name: job.name.clone(),
                ..pb::Job::default()
            }
        } else {
            job.clone()
        };
        let subject = pb::admit_subject::Subject::Job(whom);
        report.admission = Some(task_classes::admission_report(client, subject).await?);
    }
    let kinds = task_classes::group_equal_tasks(&focus.waiting, focus.tasks_stored);
    if kinds.len() > CLASSES_JUDGED {
        report.notes.push(format!(
            "only the first {CLASSES_JUDGED} of {} classes of its tasks are judged",
            kinds.len()
        ));
    }
    for kind in kinds.iter().take(CLASSES_JUDGED) {
        let class = task_classes::class_report(client, kind, rooms, top, is_ordered).await?;
        report.task_classes.push(class);
    }
    let mut own = attempted_tasks(focus, in_queue);
    let mut ahead = Vec::new();
    if is_ordered {
        let waiting = target::waiting_jobs(known);
        ahead = turn::add_turn(client, known, focus, &waiting, report).await?;
        if focus.tasks_stored {
            turn::sort_tasks(client, &mut own, &mut ahead).await?;
        }
    }
    if let Some(queue) = report.queue.as_mut() {
        queue.holders = top_holders(known, &queue.name, report.admission.as_ref(), &report.task_classes);
    }
    let is_judged = report.task_classes.iter().all(|class| class.problem.is_none());
    if is_judged && !own.tasks.is_empty() {
        report.gang = Some(gang_report(client, focus, &own, &ahead, report).await?);
    }
    if is_ordered {
        add_gang_admission(client, focus, report).await?;
    }
    evictions::add_evictions(client, known, focus, &kinds, report).await?;
    endless::mark_endless(client, known, rooms, report).await?;
    Ok(Some(own))
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

/// Jobs of a queue, and of those below it if its quota is that of one above, that hold most of the resource that is short.
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
    let limiting = quota::reason_queue(short).unwrap_or(queue);
    let held = |status: &pb::JobStatus| {
        let job = status
            .job
            .as_ref()
            .filter(|job| is_under(known, &job.queue, limiting))?;
        let account = status.accounts.iter().find(|account| account.plugin == short.plugin);
        let amount = |amounts: &[pb::Amount]| {
            // A choice such as `A|B` is held as either card, or kept back as the choice.
            let of_choice = |name: &str| name == short.resource || short.resource.split('|').any(|card| card == name);
            let held = amounts.iter().filter(|amount| of_choice(&amount.resource));
            held.map(|amount| to_measurement(amount).value).sum::<f64>()
        };
        let allocated = amount(account.map_or(&status.allocated, |account| &account.allocated));
        let reserved = if with_reserved {
            let admitted = account.map_or(0.0, |account| amount(&account.inqueue));
            admitted.max(reserved_amount(job, &short.resource, allocated))
        } else {
            0.0
        };
        let held = allocated + reserved;
        (held > 0.0).then(|| ResourceHolder {
            job: job.name.clone(),
            resource: short.resource.clone(),
            amount: held,
            reserved,
            unit: account_unit(&short.resource),
            never_starts: None,
        })
    };
    let mut holders: Vec<ResourceHolder> = known.jobs.values().filter_map(held).collect();
    holders.sort_by(|a, b| b.amount.total_cmp(&a.amount));
    holders.truncate(3);
    holders
}

/// True if a queue is another one, or below it.
fn is_under(known: &KnownRecords, queue: &str, above: &str) -> bool {
    let parent = |name: &&str| {
        let record = known.queues.get(*name)?.queue.as_ref()?;
        (!record.parent.is_empty()).then_some(record.parent.as_str())
    };
    // Parents of invalid trees may form a circle.
    std::iter::successors(Some(queue), parent)
        .take(known.queues.len().max(1))
        .any(|name| name == above)
}

/// Amount that an enqueued job may still allocate of its minimum, in units for people.
fn reserved_amount(job: &pb::Job, resource: &str, allocated: f64) -> f64 {
    let least = free_capacity::parse_amounts(job.min_resources.as_ref());
    let least = least
        .get(resource)
        .copied()
        .filter(|_| job.phase() == pb::JobPhase::Inqueue);
    let least = Measurement::of_resource("", resource, least.unwrap_or(0.0)).value;
    (least - allocated).max(0.0)
}

/// Tasks of the subject that a scheduler would try now, with the job that Place is asked about.
fn attempted_tasks(focus: &ResolvedTarget, in_queue: bool) -> WaitingJob {
    let job = focus.job.as_ref().filter(|_| in_queue);
    WaitingJob {
        job: job.map(|job| job.name.clone()).unwrap_or_default(),
        queue: focus.subject.queue.clone(),
        not_enqueued: focus.subject.phase == "pending" && in_queue,
        tasks: focus
            .waiting
            .iter()
            .filter(|task| target::is_open(task))
            .cloned()
            .collect(),
        tasks_stored: focus.tasks_stored,
        has_minimum: job.is_some_and(|job| job.min_member > 0),
        hypothetical: job.filter(|_| !focus.job_stored).cloned(),
    }
}

/// Number of tasks that Place puts on nodes: of the job alone, and in a session after the jobs before it.
async fn gang_report(
    client: &mut PinnedClient,
    focus: &ResolvedTarget,
    own: &WaitingJob,
    ahead: &[WaitingJob],
    report: &mut ExplainReport,
) -> Result<GangReport, CommandError> {
    let subject = &focus.subject;
    let job = focus.job.as_ref().filter(|_| !own.job.is_empty());
    let (mut gang, alone) = trial::try_alone(client, own, job, &focus.started_members).await?;
    gang.min_count = if subject.job.is_empty() && subject.kind != "job" {
        1
    } else {
        subject.min_member.max(1)
    };
    let held = subject.placed.saturating_add(subject.pipelined);
    gang.placed_count = held.saturating_add(subject.succeeded);
    // The queue of a job that the server does not have was asked by Place alone.
    let by_queue = alone.blockers.iter().filter(|blocker| blocker.count == 0);
    let by_queue: Vec<&pb::Reason> = by_queue.filter_map(|blocker| blocker.reason.as_ref()).collect();
    if let Some(class) = report.task_classes.first_mut()
        && own.hypothetical.is_some()
        && gang.placeable == 0
        && !by_queue.is_empty()
    {
        class.admission = Some(AdmissionReport {
            reasons: by_queue
                .iter()
                .map(|reason| task_classes::rejection_reason(reason, &reason.measurements))
                .collect(),
            ..AdmissionReport::default()
        });
    }
    if !gang.starts || ahead.is_empty() {
        return Ok(gang);
    }
    if let Some(why) = trial::too_many_ahead(ahead) {
        report.notes.push(why);
    } else if client.has_session() {
        match trial::try_after_ahead(client, own, ahead).await {
            Ok(after) => gang.after_earlier_jobs = Some(after),
            Err(failure) => report
                .notes
                .push(format!("the jobs before it could not be placed first: {failure}")),
        }
    } else {
        report
            .notes
            .push("the jobs before it were not placed first: no session was free".to_owned());
    }
    Ok(gang)
}

/// Adds the rejection of the tasks that must start together as if they were one task, where the queue admits each but not all of
/// them.
async fn add_gang_admission(
    client: &mut PinnedClient,
    focus: &ResolvedTarget,
    report: &mut ExplainReport,
) -> Result<(), CommandError> {
    let (Some(gang), Some(job)) = (&report.gang, &focus.job) else {
        return Ok(());
    };
    let needed = gang.min_count.saturating_sub(gang.placed_count);
    let admitted = report.task_classes.iter().map(TaskClassReport::admitted_count);
    let permits = |class: &TaskClassReport| class.admission.as_ref().is_some_and(|admission| admission.permitted);
    let all_judged = report.task_classes.iter().map(|class| class.count).sum::<u64>() >= focus.waiting.len() as u64;
    let enough = admitted.fold(0, u64::saturating_add) >= needed;
    if needed < 2 || enough || !all_judged || !report.task_classes.iter().all(permits) {
        return Ok(());
    }
    let tasks = focus.waiting.iter().filter(|task| target::is_open(task));
    let tasks: Vec<&pb::Task> = tasks.take(usize::try_from(needed).unwrap_or(usize::MAX)).collect();
    let Some(first) = tasks.first() else { return Ok(()) };
    let together = pb::Task {
        job: job.name.clone(),
        requests: Some(free_capacity::sum_of_requests(&tasks)),
        annotations: first.annotations.clone(),
        ..pb::Task::default()
    };
    let subject = pb::admit_subject::Subject::Task(together.clone());
    let admission = task_classes::admission_report(client, subject).await?;
    if !admission.permitted && admission.problem.is_none() {
        report.gang_admission = Some(admission);
        report.gang_subject = Some(together);
    }
    Ok(())
}
