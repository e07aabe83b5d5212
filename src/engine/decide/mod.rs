//! Decisions: each is a total function of a View, a policy and a question.

mod candidates;
mod classes;
mod filter;
mod question;
pub mod reduce;
mod rejections;
mod room;
mod score;
mod stages;
#[cfg(test)]
mod tests;
mod top;

pub use filter::{filter, filter_until};
pub use question::{
    Answered, Detail, FilterVerdict, Items, Question, QuestionTask, Rejection, ResourceFit, ScorePart, ScoreQuestion,
    ScoreSheet,
};
pub use room::{NODE_STATE, RESOURCE_FIT};
pub use score::{score, score_until};
