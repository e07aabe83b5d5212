//! Place, compared with a loop that asks task by task.

mod batched_changes;
mod case;
mod command_line;
mod constraints;
mod engine;
mod evictions;
mod rejections;
mod task_by_task;
mod task_units;
mod wire;
