//! Problems that the outcome of a batch lists.

use pumice_engine::model::{ErrorCode, Problem};

/// Maximum number of problems, and of warnings, that an outcome lists.
const MAX_LISTED: usize = 1_000;

/// First problems of a list, and the number of the others. Outcomes are stored, and a batch can have a million
/// problems.
pub(crate) fn truncate_problems(mut problems: Vec<Problem>) -> Vec<Problem> {
    let more = problems.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        problems.truncate(MAX_LISTED);
        problems.shrink_to_fit();
        let message = format!("{more} more are not listed");
        problems.push(Problem::new(ErrorCode::ProblemsOmitted, "batch", message));
    }
    problems
}

/// Problem of a record that exceeds the limit of records.
pub(crate) fn too_many_records(limit: usize, field: &str) -> Problem {
    let message = format!("limit `records` is {limit}: the state holds no more records");
    Problem::new(ErrorCode::LimitExceeded, field, message)
}

/// Problem of a record that another source owns.
pub(crate) fn foreign_record(name: &str, owner: &str, field: &str) -> Problem {
    let message = format!("`{name}` belongs to source `{owner}`");
    Problem::new(ErrorCode::RecordNotOwned, format!("{field}.name"), message)
}

/// Problem of a record whose bytes are too many.
pub(crate) fn too_many_bytes((limit, value): (&'static str, usize), source: &str, field: &str) -> Problem {
    let message = format!("limit `{limit}` is {value}: the records of `{source}` would take more bytes");
    Problem::new(ErrorCode::LimitExceeded, field, message)
}
