//! Ports of the writer: incoming commands and published snapshots. They are traits so that a model checker can take the
//! place of the threads.

use std::fmt::Debug;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::writer::command::WriterCommand;
use pumice_engine::Snapshot;

/// Source of the writer's commands.
pub(crate) trait CommandInbox {
    /// Waits for the next command; `None`: no more will come.
    fn wait(&mut self) -> Option<WriterCommand>;

    /// Next command, if one is waiting.
    fn take(&mut self) -> Option<WriterCommand>;
}

impl CommandInbox for mpsc::Receiver<WriterCommand> {
    fn wait(&mut self) -> Option<WriterCommand> {
        self.blocking_recv()
    }

    fn take(&mut self) -> Option<WriterCommand> {
        self.try_recv().ok()
    }
}

/// Makes snapshots visible to readers.
pub(crate) trait SnapshotPublisher: Debug + Send + Sync {
    /// The snapshot that was published last.
    fn newest(&self) -> Arc<Snapshot>;

    /// Makes a snapshot the newest. Only the writer calls this.
    fn publish(&self, snapshot: Snapshot);
}
