//! Place against a loop that asks task by task, and changes applied together against changes one by one.

use crate::choices::{draw, most_nodes, split_choice};

#[path = "../../../../tests/decisions/place/batched_changes.rs"]
mod batched_changes;
#[path = "../../../../tests/decisions/place/case.rs"]
mod case;
#[path = "../../../../tests/decisions/place/constraints.rs"]
mod constraints;
#[path = "../../../../tests/decisions/place/engine.rs"]
mod engine;
#[path = "../../../../tests/decisions/place/task_by_task.rs"]
mod task_by_task;

/// Places tasks by one query and by a loop.
pub fn compare_place(data: &[u8]) {
    let (choice, rest) = split_choice(data);
    let strategy = case::case(most_nodes(choice == u8::MAX));
    if let Some(case) = draw(&strategy, rest) {
        engine::check(&case);
    }
}

/// Applies changes together and one by one.
pub fn compare_changes(data: &[u8]) {
    let (choice, rest) = split_choice(data);
    let strategy = (case::case(most_nodes(choice == u8::MAX)), batched_changes::steps());
    if let Some((case, steps)) = draw(&strategy, rest) {
        batched_changes::check(&case, &steps, choice % 2 == 0);
    }
}
