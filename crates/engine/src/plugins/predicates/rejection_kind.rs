//! Reasons for which nodes are rejected.

use smallvec::SmallVec;

use crate::model::NodeMask;
use crate::plugin::Resolution;

/// Rejected nodes of a chunk, by reason.
pub(super) type NotedRejections = SmallVec<[(RejectionKind, NodeMask); 8]>;

/// Number of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RejectionKind {
    PodCount,
    Cordon,
    NodeAffinity,
    Taint,
    Cached,
    HostPort,
    TermConflict,
    PodAffinity,
    PodAntiAffinity,
    ExistingPodAntiAffinity,
    MissingTopologyLabel,
    TopologySpread,
    AddedAffinity,
}

pub(super) const KINDS: [RejectionKind; 13] = [
    RejectionKind::PodCount,
    RejectionKind::Cordon,
    RejectionKind::NodeAffinity,
    RejectionKind::Taint,
    RejectionKind::Cached,
    RejectionKind::HostPort,
    RejectionKind::TermConflict,
    RejectionKind::PodAffinity,
    RejectionKind::PodAntiAffinity,
    RejectionKind::ExistingPodAntiAffinity,
    RejectionKind::MissingTopologyLabel,
    RejectionKind::TopologySpread,
    RejectionKind::AddedAffinity,
];

impl RejectionKind {
    pub(super) fn number(self) -> u16 {
        self as u16
    }

    /// Code, and the reference's message.
    pub(super) fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::PodCount => ("TooManyPods", "node(s) pod number exceeded"),
            Self::Cordon => ("NodeUnschedulable", "node(s) were unschedulable"),
            Self::NodeAffinity => (
                "NodeAffinityMismatch",
                "node(s) didn't match Pod's node affinity/selector",
            ),
            Self::Taint => ("UntoleratedTaint", "node(s) had untolerated taint(s)"),
            Self::Cached => ("EquivalenceCache", "plugin equivalence cache predicates failed"),
            Self::HostPort => (
                "HostPortTaken",
                "node(s) didn't have free ports for the requested pod ports",
            ),
            Self::TermConflict => (
                "NodeAffinityConflict",
                "plugin NodeAffinity pre-predicates failed pod affinity terms conflict",
            ),
            Self::PodAffinity => ("PodAffinityMismatch", "node(s) didn't match pod affinity rules"),
            Self::PodAntiAffinity => ("PodAntiAffinity", "node(s) didn't match pod anti-affinity rules"),
            Self::ExistingPodAntiAffinity => (
                "ExistingPodAntiAffinity",
                "node(s) didn't satisfy existing pods anti-affinity rules",
            ),
            Self::MissingTopologyLabel => (
                "MissingTopologyLabel",
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ),
            Self::AddedAffinity => (
                "AddedNodeAffinityMismatch",
                "node(s) didn't match scheduler-enforced node affinity",
            ),
            Self::TopologySpread => ("TopologySpread", "node(s) didn't match pod topology spread constraints"),
        }
    }

    /// Effect of evictions.
    pub(super) fn resolution(self) -> Resolution {
        match self {
            Self::PodCount
            | Self::HostPort
            | Self::PodAntiAffinity
            | Self::ExistingPodAntiAffinity
            | Self::TopologySpread => Resolution::Unschedulable,
            Self::Cordon
            | Self::NodeAffinity
            | Self::Taint
            | Self::Cached
            | Self::TermConflict
            | Self::PodAffinity
            | Self::MissingTopologyLabel
            | Self::AddedAffinity => Resolution::Unresolvable,
        }
    }
}
