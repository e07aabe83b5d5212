//! Request and result of Admit.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult, check_limit};
use pumice_engine::decide::{AdmitQuery, AdmitSubject, AdmitVerdict};
use pumice_engine::model::{ClusterState, ErrorCode, JobRecord, NamedAmounts, Problem};
use pumice_engine::plugin::{Measurement, Reason};
use pumice_engine::policy::Compatibility;
use pumice_state::{ConfirmItem, JobConfirmOutcome};

use super::amounts::QueryResourceNames;
use super::batch::{problem, within_item};
use super::evaluation_ref::read_duration;
use super::not_evaluated::EvaluatedState;
use super::query::{QueryBasis, read_plugins, read_task};
use super::reader::{ReadOptions, WireReader};
use super::result;

/// Longest message of a Kubernetes event.
const EVENT_BYTES: usize = 1_024;
const ELLIPSIS: &str = "…";

/// Request of Admit before its items are read, since that takes the state that they refer to.
#[derive(Debug)]
pub(crate) struct AdmitCall {
    /// Meaning of a permit; never unspecified.
    pub(crate) mode: pb::AdmitMode,
    /// Items as they were sent.
    pub(crate) items: Vec<pb::AdmitSubject>,
    /// Plugins to evaluate. Empty: the plugins of the policy's tiers.
    pub(crate) plugins: Vec<Arc<str>>,
    /// Lease of unused reservations, with CONFIRM.
    pub(crate) lease: Option<Duration>,
}

impl AdmitCall {
    /// Reads the request, whose `against` was taken out before.
    ///
    /// # Errors
    /// A field that belongs to no item has a problem, or is not supported.
    pub(crate) fn read(request: pb::AdmitRequest, limits: &EdgeLimits) -> RpcResult<Self> {
        let pb::AdmitRequest {
            against: _,
            mode,
            items,
            plugins: names,
            lease,
        } = request;
        let mode = match pb::AdmitMode::try_from(mode) {
            Ok(pb::AdmitMode::Unspecified) => pb::AdmitMode::Check,
            Ok(mode) => mode,
            Err(_) => return Err(CallError::unknown_value("mode", mode)),
        };
        let count = items.len();
        check_limit(count, "tasks", limits.tasks, || {
            format!("items: {count} jobs and tasks")
        })?;
        Ok(Self {
            mode,
            items,
            plugins: read_plugins(names, limits.plugins)?,
            lease: read_duration("lease", lease)?,
        })
    }

    /// Reads the items of a confirmation, for a policy with this compatibility. Fields of problems are relative to the request.
    pub(crate) fn read_confirm_items(
        items: Vec<pb::AdmitSubject>,
        cluster_state: &ClusterState,
        compatibility: Compatibility,
        declared: &ReadOptions,
    ) -> Vec<Result<ConfirmItem, Problem>> {
        let mut names = QueryResourceNames::new(cluster_state.resources(), declared.limits.query_resources);
        let mut reader = WireReader::new(&mut names, declared, compatibility);
        let items = items.into_iter().enumerate();
        let read = |(number, item): (usize, pb::AdmitSubject)| {
            let attempt = item.attempt;
            let read = read_subject(item, pb::AdmitMode::Confirm, cluster_state, &mut reader);
            match read.map_err(|problem| problem.within(&format!("items[{number}]")))? {
                AdmitSubject::Job(job) => Ok((job, attempt)),
                AdmitSubject::Task(_) => Err(check_only_problem().within(&format!("items[{number}]"))),
            }
        };
        let read: Vec<Result<(Arc<JobRecord>, u64), Problem>> = items.map(read).collect();
        let names = names.into_table();
        let item = |(job, attempt)| ConfirmItem {
            job,
            attempt,
            names: Arc::clone(&names),
        };
        read.into_iter().map(|read| read.map(item)).collect()
    }

    /// Reads the items. Fields of problems are relative to the request.
    pub(crate) fn into_query(self, basis: QueryBasis<'_>) -> AdmitQuery {
        let (cluster_state, options) = (basis.nodes.state, basis.options);
        let mut names = QueryResourceNames::new(cluster_state.resources(), options.limits.query_resources);
        let mut reader = WireReader::new(&mut names, options, basis.compatibility);
        let mode = self.mode;
        let items = self.items.into_iter().enumerate();
        let items = items
            .map(|(number, item)| {
                let place = format!("items[{number}]");
                read_subject(item, mode, cluster_state, &mut reader).map_err(|problem| problem.within(&place))
            })
            .collect();
        AdmitQuery {
            now: basis.now,
            items,
            plugins: self.plugins,
        }
    }
}

fn read_subject(
    item: pb::AdmitSubject,
    mode: pb::AdmitMode,
    cluster_state: &ClusterState,
    reader: &mut WireReader<'_>,
) -> Result<AdmitSubject, Problem> {
    let invalid = |reason, field: &str, message: &str| Problem::new(reason, field, message);
    match item.subject {
        None => Err(invalid(
            ErrorCode::SubjectMissing,
            "",
            "neither a job nor a task is given",
        )),
        Some(pb::admit_subject::Subject::Job(asked)) => {
            let asked = read_job(asked, cluster_state, reader).map_err(|found| found.within("job"))?;
            Ok(AdmitSubject::Job(asked))
        }
        Some(pb::admit_subject::Subject::Task(_)) if mode != pb::AdmitMode::Check => Err(check_only_problem()),
        Some(pb::admit_subject::Subject::Task(asked)) => {
            let asked = read_task(asked, cluster_state, reader).map_err(|found| found.within("task"))?;
            Ok(AdmitSubject::Task(asked.task))
        }
    }
}

fn check_only_problem() -> Problem {
    let message = "a task can only be admitted with mode CHECK";
    Problem::new(ErrorCode::TaskCheckOnly, "task", message)
}

/// Job of a request: the one sent, or the stored one. Fields of problems are relative to it.
pub(super) fn read_job(
    job: pb::Job,
    cluster_state: &ClusterState,
    reader: &mut WireReader<'_>,
) -> Result<Arc<JobRecord>, Problem> {
    let only = pb::Job {
        name: job.name.clone(),
        uid: job.uid.clone(),
        ..pb::Job::default()
    };
    if job != only {
        let mut record = reader.job(job);
        cluster_state.relate_job(&mut record);
        return match reader.take_problems().problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(Arc::new(record)),
        };
    }
    let missing = |reason, field: &str, message: String| Err(Problem::new(reason, field, message));
    let Some(stored) = cluster_state.jobs().get(&job.name) else {
        let message = format!(
            "there is no job `{}`: name a stored job, or send the job itself",
            job.name
        );
        return missing(ErrorCode::JobUnknown, "name", message);
    };
    let record: &JobRecord = &stored.record;
    if !job.uid.is_empty() && !record.uid.is_empty() && *job.uid != *record.uid {
        let message = format!(
            "the existing job `{}` is another incarnation, `{}`",
            job.name, record.uid
        );
        return missing(ErrorCode::UidMismatch, "uid", message);
    }
    Ok(Arc::new(record.clone()))
}

/// Converts the verdicts of Admit to the wire.
pub(crate) fn admit_result(
    query: &AdmitQuery,
    items: &[Result<AdmitVerdict, Problem>],
    state: EvaluatedState<'_>,
) -> pb::AdmitResult {
    let mut unevaluated = state.of_subjects(query).into_iter();
    let mut item = |(number, item): (usize, &Result<AdmitVerdict, Problem>)| match (item, unevaluated.next()) {
        (Ok(admission), own) => pb::AdmitItem {
            not_evaluated: own.unwrap_or_default(),
            ..admit_item(admission)
        },
        (Err(found), _) => pb::AdmitItem {
            problem: Some(problem(&within_item(found, &format!("items[{number}]")))),
            ..pb::AdmitItem::default()
        },
    };
    pb::AdmitResult {
        items: items.iter().enumerate().map(&mut item).collect(),
    }
}

/// Result of a confirmation.
pub(crate) fn confirm_result(items: &[Result<JobConfirmOutcome, Problem>]) -> pb::AdmitResult {
    let item = |item: &Result<JobConfirmOutcome, Problem>| match item {
        Ok(JobConfirmOutcome {
            job,
            verdict: admission,
            reserved,
        }) => pb::AdmitItem {
            job: job.to_string(),
            reserved: named_amounts(reserved),
            ..admit_item(admission)
        },
        Err(found) => pb::AdmitItem {
            problem: Some(problem(found)),
            ..pb::AdmitItem::default()
        },
    };
    pb::AdmitResult {
        items: items.iter().map(item).collect(),
    }
}

/// Amounts by resource name.
pub(crate) fn named_amounts(amounts: &NamedAmounts) -> Vec<pb::Amount> {
    let some = amounts.iter().filter(|(_, amount)| *amount != 0);
    some.map(|(name, amount)| pb::Amount {
        resource: name.to_string(),
        value: *amount as f64,
    })
    .collect()
}

/// Event for a job's owner with the reasons why the job waits.
fn job_event(reasons: &[(Reason, Vec<Measurement>)]) -> Option<pb::KubernetesEvent> {
    let (first, _) = reasons.first()?;
    let messages: Vec<&str> = reasons.iter().map(|(reason, _)| reason.message.as_str()).collect();
    let mut message = messages.join("; ");
    if message.len() > EVENT_BYTES {
        message.truncate(message.floor_char_boundary(EVENT_BYTES - ELLIPSIS.len()));
        message.push_str(ELLIPSIS);
    }
    Some(pb::KubernetesEvent {
        r#type: "Warning".to_owned(),
        reason: first.code.to_owned(),
        message,
    })
}

fn admit_item(admission: &AdmitVerdict) -> pb::AdmitItem {
    let AdmitVerdict {
        permitted,
        reasons,
        votes,
        cards,
        headroom,
        reserve: _,
    } = admission;
    let reason = |(reason, measurements): &(Reason, Vec<Measurement>)| pb::Reason {
        measurements: measurements.iter().map(result::measurement).collect(),
        ..result::reason(reason)
    };
    pb::AdmitItem {
        problem: None,
        permitted: *permitted,
        reasons: reasons.iter().map(reason).collect(),
        votes: votes
            .iter()
            .map(|(plugin, vote)| pb::AdmitVote {
                plugin: plugin.to_string(),
                vote: i32::try_from(*vote).unwrap_or(0),
            })
            .collect(),
        cards: cards
            .iter()
            .map(|(card, headroom)| pb::CardChoice {
                card: card.to_string(),
                headroom: *headroom,
            })
            .collect(),
        headroom: *headroom,
        reserved: Vec::new(),
        job: String::new(),
        event: job_event(reasons),
        not_evaluated: Vec::new(),
    }
}
