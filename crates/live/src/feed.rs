//! Batches of the source: numbered, retried while the server is unavailable, and restarted with a full sync on request.

use std::sync::Arc;
use std::time::Duration;

use pumice_engine::model::ErrorCode;
use pumice_engine::policy::{Compatibility, Release};
use pumice_protocol::v1 as pb;
use pumice_protocol::{ClientConnection, EncodedApply};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::backoff::Backoff;
use crate::condition::ClusterCondition;
use crate::records::RecordChanges;

/// Time for which a batch is repeated.
const RETRY_TIME: Duration = Duration::from_mins(1);
/// Problems of one batch that are logged.
const PROBLEMS_REPORTED: usize = 10;

/// Error of a batch.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// Another process feeds the source.
    #[error("another process feeds the source `{0}`: {1}; stop one of the two, or give this one another source")]
    Fenced(String, String),
    /// The server needs a full sync.
    #[error("the server asks for a full sync: {0}")]
    Resync(String),
    /// The server does not take the batch.
    #[error("the server does not take a batch: {} ({:?})", .0.message(), .0.code())]
    Refused(Box<Status>),
}

/// Source of a server, as its feeder sees it.
#[derive(Debug)]
pub(crate) struct SourceFeed {
    server: ClientConnection,
    source: String,
    source_epoch: u64,
    sequence: u64,
    /// Number of the last part of the full sync that is being sent.
    part: u32,
    condition: Arc<ClusterCondition>,
    /// Release by whose rules the amounts of pods are derived, as the server asked.
    pod_release: Release,
}

impl SourceFeed {
    /// Feed of a source with its epoch, whose batches say whether changes may be missing by this condition.
    pub(crate) fn new(
        server: ClientConnection,
        (source, source_epoch): (String, u64),
        pod_release: Release,
        condition: Arc<ClusterCondition>,
    ) -> Self {
        SourceFeed {
            server,
            source,
            source_epoch,
            sequence: 0,
            part: 0,
            condition,
            pod_release,
        }
    }

    /// Release by whose rules the amounts of pods have to be derived.
    pub(crate) fn pod_release(&self) -> Release {
        self.pod_release
    }

    /// The next part is the first one of a full sync.
    pub(crate) fn begin_full_sync(&mut self) {
        self.part = 0;
    }

    /// Sends a part of a full sync.
    pub(crate) async fn send_part(&mut self, changes: RecordChanges, is_last: bool) -> Result<(), FeedError> {
        self.part = self.part.saturating_add(1);
        let kind = if is_last {
            pb::BatchKind::FullSyncLast
        } else {
            pb::BatchKind::FullSyncPart
        };
        let part = self.part;
        debug_assert!(!changes.has_removals(), "a list has no deletions");
        let batch = pb::Batch {
            kind: kind.into(),
            part,
            ..pb::Batch::default()
        };
        self.send(changes, batch).await
    }

    /// Sends changes. An empty delta only ends the silence of the source.
    pub(crate) async fn send_delta(&mut self, changes: RecordChanges) -> Result<(), FeedError> {
        let batch = pb::Batch {
            kind: pb::BatchKind::Delta.into(),
            ..pb::Batch::default()
        };
        self.send(changes, batch).await
    }

    async fn send(&mut self, changes: RecordChanges, batch: pb::Batch) -> Result<(), FeedError> {
        self.sequence = self.sequence.saturating_add(1);
        let is_whole = batch.kind() == pb::BatchKind::FullSyncLast;
        let batch = pb::Batch {
            changes_missing: !is_whole && !self.condition.is_current(),
            source: self.source.clone(),
            source_epoch: self.source_epoch,
            sequence: self.sequence,
            source_kind: pb::SourceKind::Live.into(),
            pod_release: self.pod_release.name().to_owned(),
            ..batch
        };
        let outcome = self.apply(changes.into_apply(batch)).await?;
        self.report(&outcome);
        match outcome.resync {
            None => Ok(()),
            Some(resync) if resync.reason == ErrorCode::Fenced.name() => {
                Err(FeedError::Fenced(self.source.clone(), resync.message))
            }
            Some(resync) => {
                if let Some(asked) = Compatibility::from_name(&resync.pod_release) {
                    self.pod_release = asked.release();
                }
                Err(FeedError::Resync(format!("{} ({})", resync.message, resync.reason)))
            }
        }
    }

    /// Applies a batch. A server that is busy or away gets it again: it repeats the outcome of a batch that it has.
    async fn apply(&self, batch: EncodedApply) -> Result<pb::BatchOutcome, FeedError> {
        let mut backoff = Backoff::default();
        let begin = Instant::now();
        loop {
            let status = match self.server.apply_encoded(&batch).await {
                Ok(response) => return Ok(response.outcome.unwrap_or_default()),
                Err(status) => status,
            };
            let may_pass = matches!(
                status.code(),
                Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded | Code::Aborted | Code::Cancelled
            );
            if !may_pass || begin.elapsed() > RETRY_TIME {
                return Err(FeedError::Refused(Box::new(status)));
            }
            tracing::debug!(source = self.source, %status, "the batch is sent again");
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Logs the problems of records that the server reports.
    fn report(&self, outcome: &pb::BatchOutcome) {
        for problem in outcome.refused.iter().take(PROBLEMS_REPORTED) {
            let pb::Problem {
                reason, message, field, ..
            } = problem;
            tracing::warn!(
                source = self.source,
                reason,
                field,
                message,
                "the server refused a record"
            );
        }
        for warning in outcome.warnings.iter().take(PROBLEMS_REPORTED) {
            let pb::Problem {
                reason, message, field, ..
            } = warning;
            tracing::debug!(
                source = self.source,
                reason,
                field,
                message,
                "the server ignored a part of a record"
            );
        }
    }
}
