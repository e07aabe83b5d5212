//! Decisions of two policies about the jobs that wait in one cluster: whether they may be enqueued, how many of their tasks their
//! queues admit, and when it is their turn.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use pumice_console::output::{self, TextTable};
use pumice_console::{CommandError, LocalServer};
use pumice_protocol::v1 as pb;

/// Job that two policies decide differently.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobImpactRow {
    job: String,
    queue: String,
    /// True if the job is already enqueued: its admission is not evaluated again.
    is_enqueued: bool,
    before: JobDecision,
    after: JobDecision,
}

/// Decision of one policy about a job that waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobDecision {
    /// True if the job may be enqueued, or is.
    enqueued: bool,
    /// Codes of the reasons against that, each once.
    reasons: Vec<String>,
    /// Number of tasks like its first that its queue admits; absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    admitted_tasks: Option<u64>,
    /// Turn among the jobs that wait, from 1: by queues, then by jobs.
    turn: usize,
    /// Problem that prevents a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Jobs of a cluster that wait for at least one of `tasks`, each with its first waiting task.
pub(super) fn waiting_jobs(cluster: &pb::Cluster, tasks: &[pb::Task]) -> Vec<(pb::Job, pb::Task)> {
    let mut first: BTreeMap<&str, &pb::Task> = BTreeMap::new();
    for task in tasks {
        first.entry(&task.job).or_insert(task);
    }
    let jobs = cluster.jobs.iter();
    let waiting = jobs.filter_map(|job| Some((job.clone(), pb::Task::clone(first.get(job.name.as_str())?))));
    waiting.collect()
}

/// Decides about jobs under a policy, in their order.
pub(super) async fn decide_jobs(
    local: &mut LocalServer,
    against: pb::EvaluationRef,
    jobs: &[(pb::Job, pb::Task)],
) -> Result<Vec<JobDecision>, CommandError> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let stored = |job: &pb::Job| {
        pb::admit_subject::Subject::Job(pb::Job {
            name: job.name.clone(),
            ..pb::Job::default()
        })
    };
    let subjects = jobs
        .iter()
        .flat_map(|(job, task)| [stored(job), pb::admit_subject::Subject::Task(task.clone())]);
    let request = pb::AdmitRequest {
        against: Some(against.clone()),
        mode: pb::AdmitMode::Check.into(),
        items: subjects
            .map(|subject| pb::AdmitSubject {
                subject: Some(subject),
                attempt: 0,
            })
            .collect(),
        ..pb::AdmitRequest::default()
    };
    let reply = local.connection.decisions.admit(request).await?.into_inner();
    let items = reply.result.unwrap_or_default().items;
    let turns = turns(local, against, jobs).await?;
    let decided = jobs.iter().zip(items.chunks(2)).map(|((job, _), items)| {
        let turn = turns.get(&job.name).copied().unwrap_or_default();
        decision(is_enqueued(job), items, turn)
    });
    Ok(decided.collect())
}

fn is_enqueued(job: &pb::Job) -> bool {
    !matches!(job.phase(), pb::JobPhase::Pending | pb::JobPhase::Unspecified)
}

/// Decision by the items of Admit about a job and about its first task.
fn decision(is_enqueued: bool, items: &[pb::AdmitItem], turn: usize) -> JobDecision {
    let problem = items.iter().find_map(|item| item.problem.as_ref());
    let [of_job, of_task] = items else {
        return JobDecision::default();
    };
    let reasons = of_job.reasons.iter().filter(|_| !is_enqueued);
    let codes: BTreeSet<String> = reasons.map(|reason| reason.code.clone()).collect();
    JobDecision {
        enqueued: is_enqueued || of_job.permitted,
        reasons: codes.into_iter().collect(),
        admitted_tasks: if of_task.permitted { of_task.headroom } else { Some(0) },
        turn,
        problem: problem.map(output::problem),
    }
}

/// Ranks of jobs, from 1: by the order of queues, then by the order of jobs.
async fn turns(
    local: &mut LocalServer,
    against: pb::EvaluationRef,
    jobs: &[(pb::Job, pb::Task)],
) -> Result<BTreeMap<String, usize>, CommandError> {
    let queues: BTreeSet<String> = jobs.iter().map(|(job, _)| job.queue.clone()).collect();
    let names = jobs.iter().map(|(job, _)| job.name.clone());
    let request = pb::OrderRequest {
        against: Some(against),
        queues: Some(pb::NameSet {
            names: queues.into_iter().collect(),
        }),
        jobs: Some(pb::NameSet { names: names.collect() }),
        ..pb::OrderRequest::default()
    };
    let reply = local.connection.decisions.order(request).await?.into_inner();
    let result = reply.result.unwrap_or_default();
    let places = |ranks: Vec<pb::Rank>| -> BTreeMap<String, usize> {
        let ranked = ranks.into_iter().map(|rank| rank.name);
        ranked.enumerate().map(|(at, name)| (name, at)).collect()
    };
    let (queues, ranks) = (places(result.queues), places(result.jobs));
    let mut order: Vec<&pb::Job> = jobs.iter().map(|(job, _)| job).collect();
    order.sort_by_key(|job| (queues.get(&job.queue), ranks.get(&job.name)));
    let turns = order.into_iter().zip(1..);
    Ok(turns.map(|(job, turn)| (job.name.clone(), turn)).collect())
}

/// Jobs that are decided differently.
pub(super) fn changed_jobs(
    jobs: &[(pb::Job, pb::Task)],
    before: Vec<JobDecision>,
    after: Vec<JobDecision>,
) -> Vec<JobImpactRow> {
    let rows = jobs.iter().zip(before.into_iter().zip(after));
    let rows = rows.filter(|(_, (before, after))| before != after);
    rows.map(|((job, _), (before, after))| JobImpactRow {
        job: job.name.clone(),
        queue: job.queue.clone(),
        is_enqueued: is_enqueued(job),
        before,
        after,
    })
    .collect()
}

/// Prints the jobs that are decided differently, of all that were asked about.
pub(super) fn show(rows: &[JobImpactRow], judged: usize) -> Result<(), CommandError> {
    let waiting = output::count(judged, "waiting job");
    if rows.is_empty() {
        return output::line(&format!("jobs: {waiting} evaluated, none decided differently"));
    }
    let changed = rows.len();
    output::line(&format!("jobs: {waiting} evaluated, {changed} decided differently"))?;
    let mut table = TextTable::new(["JOB", "QUEUE", "MAY BE ENQUEUED", "TASKS ADMITTED", "TURN"]);
    for row in rows {
        let both = |cell: fn(&JobDecision) -> String| {
            let (before, after) = (cell(&row.before), cell(&row.after));
            if before == after {
                before
            } else {
                format!("{before} → {after}")
            }
        };
        table.row([
            row.job.clone(),
            row.queue.clone(),
            if row.is_enqueued {
                "already enqueued".to_owned()
            } else {
                both(JobDecision::enqueueing)
            },
            both(JobDecision::admits),
            both(|decision| decision.turn.to_string()),
        ]);
    }
    output::table(&table)
}

impl JobDecision {
    fn enqueueing(&self) -> String {
        match &self.problem {
            Some(problem) => problem.clone(),
            None if self.enqueued => "yes".to_owned(),
            None => format!("no ({})", self.reasons.join(", ")),
        }
    }

    fn admits(&self) -> String {
        self.admitted_tasks
            .map_or_else(|| "no limit".to_owned(), |tasks| tasks.to_string())
    }
}
