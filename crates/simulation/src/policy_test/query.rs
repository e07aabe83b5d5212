//! Query of a case.

use pumice_protocol::v1 as pb;

/// Call that a case makes.
#[derive(Debug, Clone)]
pub(super) enum CaseQuery {
    Filter(pb::FilterRequest),
    Score(pb::ScoreRequest),
    Place(Box<pb::PlaceRequest>),
    Admit(pb::AdmitRequest),
    Order(pb::OrderRequest),
    Victims(pb::SelectVictimsRequest),
    /// One whole cycle with the actions of the policy.
    Cycle,
}
