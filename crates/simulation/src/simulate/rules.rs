//! Candidate policies of a simulation, and the rules that its tasks come and go by.

use pumice_engine::policy::Release;

/// A policy to judge.
#[derive(Debug, Clone)]
pub(super) struct CandidatePolicy {
    pub(super) name: String,
    pub(super) document: String,
    /// Profile of the document.
    pub(super) profile: String,
    /// Release that the policy follows: amounts of pods are those of the release.
    pub(super) release: Release,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SimulationRules {
    /// True if tasks leave when their run time is over.
    pub(super) departures: bool,
    /// Seconds between two attempts to place waiting tasks.
    pub(super) retry_seconds: f64,
}
