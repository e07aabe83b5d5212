//! Commands about assumptions: requests to the writer and their results.

use std::sync::Arc;

use super::commit_outcome::CommitOutcome;
use super::placed_calls::PlacementCommit;
use crate::error::StateError;
use crate::writer::request::WriterRequest;
use pumice_engine::Revision;
use pumice_engine::cycle::TaskPlacement;

/// Tasks whose assumption ended, and the first revision without these assumptions.
type ReleasedTasks = (Revision, Vec<Arc<str>>);

/// Command about assumptions.
#[derive(Debug)]
pub(crate) enum AssumptionCommand {
    /// Evaluate placements and assume the valid ones.
    Commit(WriterRequest<Box<PlacementCommit>, CommitOutcome>),
    /// List what is held under a name. Changes nothing.
    Recall(WriterRequest<Arc<str>, Vec<TaskPlacement>>),
    /// Release assumptions of a session (empty: any session) and of these tasks (empty: all tasks).
    Release(WriterRequest<(Arc<str>, Vec<Arc<str>>), ReleasedTasks>),
}

impl AssumptionCommand {
    /// True if it was decided, and waits for its group to be written.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Commit(commit) => commit.waits(),
            Self::Recall(recall) => recall.waits(),
            Self::Release(release) => release.waits(),
        }
    }

    /// Sends the reply: the change is durable, and visible from this revision on.
    pub(crate) fn reply(self, revision: Revision) {
        match self {
            Self::Commit(commit) => commit.reply(|outcome| CommitOutcome { revision, ..outcome }),
            Self::Recall(recall) => recall.reply(|held| held),
            Self::Release(release) => release.reply(|(_, released)| (revision, released)),
        }
    }

    /// Session, placement or task by which the command is found again.
    pub(crate) fn key(&self) -> String {
        let tasks = |tasks: &[Arc<str>]| tasks.first().map_or(String::new(), |task| format!(", task `{task}`"));
        match self {
            Self::Commit(commit) => commit.asked.key(),
            Self::Recall(recall) => format!("placement `{}`", recall.asked),
            Self::Release(release) => format!("session `{}`{}", release.asked.0, tasks(&release.asked.1)),
        }
    }

    /// Reports an error.
    pub(crate) fn reply_error(self, error: StateError) {
        match self {
            Self::Commit(commit) => commit.reply_error(error),
            Self::Recall(recall) => recall.reply_error(error),
            Self::Release(release) => release.reply_error(error),
        }
    }
}
