//! Question and answer of Admit.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::decide::{Admission, AdmitQuestion, Subject};
use crate::engine::model::{JobRecord, NamedAmounts, Problem, ProblemKind, View};
use crate::engine::plugin::{Figure, Reason};
use crate::server::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::Failure;
use crate::state::{ConfirmItem, Confirmed};

use super::amounts::QuestionNames;
use super::answer;
use super::batch::problem;
use super::ground::duration;
use super::question::{plugins, task};
use super::reader::{Declared, Reader};

/// Longest message of a Kubernetes event.
const EVENT_BYTES: usize = 1_024;
const ELLIPSIS: &str = "…";

/// What a permit is to mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is written.
    Check,
    /// It counts in the session.
    Tentative,
    /// It is reserved for everybody.
    Confirm,
}

/// A question of Admit, before its items are read: that takes the state that they stand on.
#[derive(Debug)]
pub struct AdmitCall {
    /// What a permit is to mean.
    pub mode: Mode,
    items: Vec<pb::AdmitSubject>,
    /// Ask these plugins only.
    pub plugins: Vec<Arc<str>>,
    /// With [`Mode::Confirm`]: how long unused reservations live.
    pub lease: Option<Duration>,
}

impl AdmitCall {
    /// Reads the question; its ground has been taken out before.
    ///
    /// # Errors
    /// Something that belongs to no item is wrong, or is not served.
    pub fn read(request: pb::AdmitRequest, limits: &EdgeLimits) -> Result<Self, Failure> {
        let pb::AdmitRequest {
            ground: _,
            mode,
            items,
            plugins: names,
            lease,
        } = request;
        let mode = match pb::AdmitMode::try_from(mode) {
            Ok(pb::AdmitMode::Unspecified | pb::AdmitMode::Check) => Mode::Check,
            Ok(pb::AdmitMode::Tentative) => Mode::Tentative,
            Ok(pb::AdmitMode::Confirm) => Mode::Confirm,
            Err(_) => {
                let message = format!("mode: {mode} is no value of this field");
                return Err(Failure::invalid("INVALID_ENUM", message));
            }
        };
        if items.len() > limits.tasks {
            let message = format!("items: {} jobs and tasks", items.len());
            return Err(Failure::limit("TOO_MANY_ITEMS", "tasks", limits.tasks, &message));
        }
        Ok(Self {
            mode,
            items,
            plugins: plugins(names, limits.plugins)?,
            lease: duration("lease", lease)?,
        })
    }

    /// Number of items.
    pub fn size(&self) -> usize {
        self.items.len()
    }

    /// Reads the items of a confirmation. Fields of problems are relative to the question.
    pub fn to_confirm(
        items: Vec<pb::AdmitSubject>,
        view: &View,
        declared: &Declared,
    ) -> Vec<Result<ConfirmItem, Problem>> {
        let mut names = QuestionNames::new(view.resources(), declared.limits.question_resources);
        let mut reader = Reader::new(&mut names, declared);
        let items = items.into_iter().enumerate();
        let read = |(number, item): (usize, pb::AdmitSubject)| {
            let attempt = item.attempt;
            let read = subject(item, Mode::Confirm, view, &mut reader);
            match read.map_err(|problem| problem.within(&format!("items[{number}]")))? {
                Subject::Job(job) => Ok((job, attempt)),
                Subject::Task(_) => Err(check_only().within(&format!("items[{number}]"))),
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

    /// The items, as they were sent.
    pub fn take_items(&mut self) -> Vec<pb::AdmitSubject> {
        std::mem::take(&mut self.items)
    }

    /// Reads the items. Fields of problems are relative to the question.
    pub fn question(self, view: &View, declared: &Declared) -> AdmitQuestion {
        let mut names = QuestionNames::new(view.resources(), declared.limits.question_resources);
        let mut reader = Reader::new(&mut names, declared);
        let mode = self.mode;
        let items = self.items.into_iter().enumerate();
        let items = items
            .map(|(number, item)| {
                let place = format!("items[{number}]");
                subject(item, mode, view, &mut reader).map_err(|problem| problem.within(&place))
            })
            .collect();
        AdmitQuestion {
            items,
            plugins: self.plugins,
        }
    }
}

fn subject(item: pb::AdmitSubject, mode: Mode, view: &View, reader: &mut Reader<'_>) -> Result<Subject, Problem> {
    let invalid = |reason, field: &str, message: &str| Problem::new(ProblemKind::Invalid, reason, field, message);
    match item.subject {
        None => Err(invalid("SUBJECT_MISSING", "", "neither a job nor a task is given")),
        Some(pb::admit_subject::Subject::Job(asked)) => {
            let asked = job(asked, view, reader).map_err(|found| found.within("job"))?;
            Ok(Subject::Job(asked))
        }
        Some(pb::admit_subject::Subject::Task(_)) if mode != Mode::Check => Err(check_only()),
        Some(pb::admit_subject::Subject::Task(asked)) => {
            let asked = task(asked, view, reader).map_err(|found| found.within("task"))?;
            Ok(Subject::Task(asked.task))
        }
    }
}

fn check_only() -> Problem {
    let message = "tasks are asked about with mode CHECK only";
    Problem::new(ProblemKind::Invalid, "CHECK_ONLY", "task", message)
}

/// A job of a question: as it is sent, or the stored one. Fields of problems are relative to it.
pub(super) fn job(job: pb::Job, view: &View, reader: &mut Reader<'_>) -> Result<Arc<JobRecord>, Problem> {
    let only = pb::Job {
        name: job.name.clone(),
        uid: job.uid.clone(),
        ..pb::Job::default()
    };
    if job != only {
        let record = reader.job(job);
        return match reader.take().problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(Arc::new(record)),
        };
    }
    let missing =
        |reason, field: &str, message: String| Err(Problem::new(ProblemKind::NotFound, reason, field, message));
    let Some(stored) = view.jobs().get(&job.name) else {
        let message = format!("there is no job `{}`, and nothing else says what it would be", job.name);
        return missing("JOB_NOT_FOUND", "name", message);
    };
    let record: &JobRecord = &stored.record;
    if !job.uid.is_empty() && !record.uid.is_empty() && *job.uid != *record.uid {
        let message = format!(
            "the job `{}` that is there is another incarnation, `{}`",
            job.name, record.uid
        );
        return missing("UID_MISMATCH", "uid", message);
    }
    Ok(Arc::new(record.clone()))
}

/// The answer of Admit.
pub fn answer(items: &[Result<Admission, Problem>]) -> pb::AdmitAnswer {
    let item = |(number, item): (usize, &Result<Admission, Problem>)| match item {
        Ok(admission) => admitted(admission),
        Err(found) => pb::Admission {
            problem: Some(problem(&placed(found, number))),
            ..pb::Admission::default()
        },
    };
    pb::AdmitAnswer {
        items: items.iter().enumerate().map(item).collect(),
    }
}

/// The answer of a confirmation.
pub fn confirmed(items: &[Result<Confirmed, Problem>]) -> pb::AdmitAnswer {
    let item = |item: &Result<Confirmed, Problem>| match item {
        Ok(Confirmed {
            job,
            admission,
            reserved,
        }) => pb::Admission {
            job: job.to_string(),
            reserved: named_amounts(reserved),
            ..admitted(admission)
        },
        Err(found) => pb::Admission {
            problem: Some(problem(found)),
            ..pb::Admission::default()
        },
    };
    pb::AdmitAnswer {
        items: items.iter().map(item).collect(),
    }
}

/// What there is of each.
pub fn named_amounts(amounts: &NamedAmounts) -> Vec<pb::Amount> {
    let some = amounts.iter().filter(|(_, amount)| *amount != 0);
    some.map(|(name, amount)| pb::Amount {
        resource: name.to_string(),
        value: *amount as f64,
    })
    .collect()
}

/// The event that tells a job's owner why it waits.
fn event(reasons: &[(Reason, Vec<Figure>)]) -> Option<pb::Event> {
    let (first, _) = reasons.first()?;
    let messages: Vec<&str> = reasons.iter().map(|(reason, _)| reason.message.as_str()).collect();
    let mut message = messages.join("; ");
    if message.len() > EVENT_BYTES {
        message.truncate(message.floor_char_boundary(EVENT_BYTES - ELLIPSIS.len()));
        message.push_str(ELLIPSIS);
    }
    Some(pb::Event {
        r#type: "Warning".to_owned(),
        reason: first.code.to_owned(),
        message,
    })
}

/// Problems of the engine do not know their item yet.
fn placed(found: &Problem, number: usize) -> Problem {
    let place = format!("items[{number}]");
    if found.field.starts_with(&place) {
        return found.clone();
    }
    found.clone().within(&place)
}

fn admitted(admission: &Admission) -> pb::Admission {
    let Admission {
        permitted,
        reasons,
        votes,
        cards,
        headroom,
        reserve: _,
    } = admission;
    let reason = |(reason, figures): &(Reason, Vec<Figure>)| pb::Reason {
        figures: figures.iter().map(answer::figure).collect(),
        ..answer::reason(reason)
    };
    pb::Admission {
        problem: None,
        permitted: *permitted,
        reasons: reasons.iter().map(reason).collect(),
        votes: votes
            .iter()
            .map(|(plugin, vote)| pb::Vote {
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
        event: event(reasons),
    }
}
