//! Place against a loop that asks task by task.

mod case;
mod command_line;
mod engine;
mod plain;
mod refusals;
mod together;
mod wire;
