//! Typical tasks of a workload: the most frequent classes of its tasks, which make up 95 % of them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use pumice_engine::devices::DeviceTask;

use crate::trace::LabTask;

/// Class of tasks with their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypicalClass {
    /// Request of such a task, without memory.
    pub task: DeviceTask,
    /// Models as the trace writes them.
    pub models_text: Arc<str>,
    /// Number of tasks.
    pub tasks: usize,
}

/// Typical classes of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypicalTasks {
    /// The classes, most frequent first.
    pub classes: Vec<TypicalClass>,
    /// Number of all tasks.
    pub total: usize,
}

impl TypicalTasks {
    /// Typical classes of the tasks of a trace.
    pub fn of(tasks: &[LabTask]) -> Self {
        type Key<'t> = (i64, i32, u32, &'t Arc<str>);
        let mut counts: BTreeMap<Key<'_>, (usize, &LabTask)> = BTreeMap::new();
        for task in tasks {
            let own = &task.task;
            let key = (own.cpu, own.milli, own.count, &task.models_text);
            counts.entry(key).or_insert((0, task)).0 += 1;
        }
        let mut classes: Vec<(Key<'_>, (usize, &LabTask))> = counts.into_iter().collect();
        classes.sort_by(|(key, (count, _)), (other, (others, _))| (others, other).cmp(&(count, key)));
        let wanted = 95.0 * tasks.len() as f64 / 100.0;
        let (mut taken, mut typical) = (0, Vec::new());
        for (_, (count, task)) in classes {
            if taken as f64 >= wanted {
                break;
            }
            taken += count;
            typical.push(TypicalClass {
                task: task.task.clone(),
                models_text: Arc::clone(&task.models_text),
                tasks: count,
            });
        }
        Self {
            classes: typical,
            total: tasks.len(),
        }
    }

    /// Classes as arguments of the plugin `fgd`, indented below `arguments`.
    pub fn arguments(&self, indent: &str) -> String {
        let mut text = format!("{indent}totalTasks: {}\n{indent}typicalTasks:\n", self.total);
        for TypicalClass {
            task,
            models_text,
            tasks,
        } in &self.classes
        {
            // Writing to a string cannot fail.
            let _ = write!(text, "{indent}- {{tasks: {tasks}, cpuMilli: {}", task.cpu);
            if task.count > 0 {
                let _ = write!(text, ", devices: {}, deviceMilli: {}", task.count, task.milli);
            }
            if !models_text.is_empty() {
                let _ = write!(text, ", models: \"{models_text}\"");
            }
            text.push_str("}\n");
        }
        text
    }
}
