//! The rule of the reference, with all that surprises in it (`docs/compatibility.md` has a row for each).

mod check;
mod go_format;
mod job_amounts;
mod node_scorer;
mod request;
mod state;
mod votes;

pub use check::{QuotaRequester, check_card};
pub use job_amounts::UpstreamJobAmounts;
pub use request::{TaskPod, task_request};
pub use state::UpstreamCapacityState;
