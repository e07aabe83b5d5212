//! Commands about assumptions: requests to the writer and their results.

use std::sync::Arc;

use super::commit_outcome::{CommitOutcome, ProposedJob};
use super::hold::{HeldTask, TaskHold};
use super::placed_calls::PlacedCalls;
use crate::error::StateError;
use crate::writer::request::WriterRequest;
use pumice_engine::Revision;
use pumice_engine::cycle::TaskPlacement;

/// Commit that a session asks for.
#[derive(Debug)]
pub(crate) struct SessionCommit {
    pub(crate) session: Arc<str>,
    /// Name and profile of the policy.
    pub(crate) policy: (Arc<str>, Arc<str>),
    pub(crate) jobs: Vec<ProposedJob>,
    /// Tasks that the session took off these nodes.
    pub(crate) withdrawn: Vec<(Arc<str>, Arc<str>)>,
}

/// Tasks whose assumption ended, and the first revision without these assumptions.
type ReleasedTasks = (Revision, Vec<Arc<str>>);

/// Command about assumptions.
#[derive(Debug)]
pub(crate) enum AssumptionCommand {
    /// Evaluate a session's placements and assume the valid ones.
    Commit(WriterRequest<Box<SessionCommit>, CommitOutcome>),
    /// Evaluate the placements of calls and assume the valid ones.
    Place(WriterRequest<Box<PlacedCalls>, CommitOutcome>),
    /// List what is held under a name. Changes nothing.
    Recall(WriterRequest<Arc<str>, Vec<TaskPlacement>>),
    /// Assume one task on the first of several nodes that holds.
    Hold(WriterRequest<Box<TaskHold>, HeldTask>),
    /// Release assumptions of a session (empty: any session) and of these tasks (empty: all tasks).
    Release(WriterRequest<(Arc<str>, Vec<Arc<str>>), ReleasedTasks>),
}

impl AssumptionCommand {
    /// True if it was decided, and waits for its group to be written.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Commit(commit) => commit.waits(),
            Self::Place(placed) => placed.waits(),
            Self::Recall(recall) => recall.waits(),
            Self::Hold(hold) => hold.waits(),
            Self::Release(release) => release.waits(),
        }
    }

    /// Sends the reply: the change is durable, and visible from this revision on.
    pub(crate) fn reply(self, revision: Revision) {
        match self {
            Self::Commit(commit) => commit.reply(|outcome| CommitOutcome { revision, ..outcome }),
            Self::Place(placed) => placed.reply(|outcome| CommitOutcome { revision, ..outcome }),
            Self::Recall(recall) => recall.reply(|held| held),
            Self::Hold(hold) => hold.reply(|held| HeldTask { revision, ..held }),
            Self::Release(release) => release.reply(|(_, released)| (revision, released)),
        }
    }

    /// Session, placement or task by which the command is found again.
    pub(crate) fn key(&self) -> String {
        let tasks = |tasks: &[Arc<str>]| tasks.first().map_or(String::new(), |task| format!(", task `{task}`"));
        match self {
            Self::Commit(commit) => format!("session `{}`", commit.asked.session),
            Self::Place(placed) => match &**placed.asked.calls {
                [call] => format!("placement `{}`", call.hold),
                _ => String::new(),
            },
            Self::Recall(recall) => format!("placement `{}`", recall.asked),
            Self::Hold(hold) => format!("task `{}`", hold.asked.task),
            Self::Release(release) => format!("session `{}`{}", release.asked.0, tasks(&release.asked.1)),
        }
    }

    /// Reports an error.
    pub(crate) fn reply_error(self, error: StateError) {
        match self {
            Self::Commit(commit) => commit.reply_error(error),
            Self::Place(placed) => placed.reply_error(error),
            Self::Recall(recall) => recall.reply_error(error),
            Self::Hold(hold) => hold.reply_error(error),
            Self::Release(release) => release.reply_error(error),
        }
    }
}
