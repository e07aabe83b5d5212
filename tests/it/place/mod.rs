//! Place against a loop that asks task by task.

mod case;
mod engine;
mod plain;
mod refusals;
mod wire;
