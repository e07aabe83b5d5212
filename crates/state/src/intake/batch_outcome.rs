//! Outcome of a batch.

use pumice_engine::model::{ErrorCode, Problem};
use pumice_engine::policy::Release;
use pumice_engine::{Revision, SourcePosition};

/// Reason why a source has to send a full sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResyncReason {
    /// A batch is missing.
    Gap,
    /// A newer incarnation of the source has taken over.
    Fenced,
    /// The source has not sent a full sync yet.
    UnknownSource,
    /// The source's epoch is newer than the last known one.
    EpochChanged,
    /// A policy reads labels that were left out of the source's records.
    LabelsNeeded,
    /// A node offers a resource that records may ask for under a shared name.
    ResourcesNeeded,
    /// Amounts of pods were derived by the rules of another release than policies follow.
    ReleaseChanged,
}

impl ResyncReason {
    /// True if the batch is fenced or belongs to an epoch that has not started. Such a batch does not describe the
    /// stored records.
    pub(crate) fn is_of_another_epoch(self) -> bool {
        matches!(self, Self::Fenced | Self::EpochChanged)
    }

    /// Code for programs.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Gap => ErrorCode::Gap,
            Self::Fenced => ErrorCode::Fenced,
            Self::UnknownSource => ErrorCode::SourceUnknown,
            Self::EpochChanged => ErrorCode::EpochChanged,
            Self::LabelsNeeded => ErrorCode::LabelsNeeded,
            Self::ResourcesNeeded => ErrorCode::ResourcesNeeded,
            Self::ReleaseChanged => ErrorCode::ReleaseChanged,
        }
    }
}

/// Request to a source for a full sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResyncRequest {
    /// Reason why a full sync is needed, such as a gap in the batches.
    pub reason: ResyncReason,
    /// Explanation for people.
    pub message: String,
    /// Release by whose rules amounts of pods have to be derived.
    pub pod_release: Release,
}

/// Outcome of a batch: the new position, rejected records, or a request for a full sync.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchOutcome {
    /// Position of the source now.
    pub position: SourcePosition,
    /// First revision that shows the batch.
    pub revision: Revision,
    /// Problems of records that were rejected, by field.
    pub rejected: Vec<Problem>,
    /// Warnings about records that were accepted, by field.
    pub warnings: Vec<Problem>,
    /// Set if the batch was not taken: the source has to send a full sync.
    pub resync: Option<ResyncRequest>,
}
