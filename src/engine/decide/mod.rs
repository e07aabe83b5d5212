//! Decisions: each is a total function of a View, a policy and a question.

mod admit;
mod candidates;
mod classes;
mod filter;
mod order;
mod place;
mod question;
pub mod reduce;
pub mod reduce_order;
pub mod reduce_victims;
mod rejections;
mod room;
mod score;
mod stages;
#[cfg(test)]
mod tests;
mod top;
mod victims;

pub use admit::{Admission, AdmitQuestion, JobJudge, Subject, admit, admit_task};
pub use filter::{filter, filter_with};
pub use order::{OrderAnswer, OrderQuestion, PluginKeys, Rank, order};
pub use place::{Blocker, GANG, Kept, PlaceGroup, PlaceQuestion, PlacedGroup, Placing, place, place_in, place_until};
pub use question::{
    Answered, Detail, Effort, FilterVerdict, Items, Question, QuestionTask, Rejection, ResourceFit, ScorePart,
    ScoreQuestion, ScoreSheet,
};
pub use room::{NODE_STATE, RESOURCE_FIT};
pub use score::{score, score_with};
pub use victims::{VictimGroup, VictimVerdict, VictimVote, VictimsQuestion, victims};
