//! Typical tasks as arguments: classes with the number of tasks of each, most frequent first.

use std::sync::Arc;

use crate::devices::DeviceTask;
use crate::devices::fragmentation::{MAX_TYPICAL_MODELS, MAX_TYPICAL_TASKS, TypicalTask};
use crate::plugins::device_scores::read_int;
use crate::plugins::effective_values::{map_entry, value_map};
use crate::policy::{ArgumentMap, DiagnosticReport, ErrorCode, PluginArgument, PluginArguments, YamlNode, YamlValue};

/// Argument with the list of classes.
pub(super) const TASKS: &str = "typicalTasks";
/// Argument with the number of all tasks of the workload, including rare classes.
pub(super) const TOTAL: &str = "totalTasks";

const FIELDS: [&str; 5] = ["cpuMilli", "devices", "deviceMilli", "models", "tasks"];
/// Largest number of tasks or amount: floats show such integers exactly.
const MAX_NUMBER: i64 = 1 << 40;

/// Class of tasks with their number.
#[derive(Clone, Debug, PartialEq)]
struct FrequentClass {
    task: DeviceTask,
    tasks: i64,
}

/// Typical classes, and the number of all tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TypicalClasses {
    classes: Vec<FrequentClass>,
    total: i64,
}

/// Reads the classes, and reports what is wrong with them.
pub(super) fn read(arguments: &PluginArguments, report: &mut DiagnosticReport) -> TypicalClasses {
    let Some(list) = arguments.get(TASKS).filter(|argument| !argument.is_null()) else {
        let message = format!("`{TASKS}` is missing: the plugin measures fragmentation by the tasks that it lists");
        report.error(ErrorCode::ArgumentInvalid, &arguments.at(), message);
        return TypicalClasses::default();
    };
    let Some(items) = list.items() else {
        let message = format!("expected a list of classes of tasks, found {}", list.value().kind());
        report.error(ErrorCode::ArgumentType, &list.at(), message);
        return TypicalClasses::default();
    };
    if items.is_empty() || items.len() > MAX_TYPICAL_TASKS {
        let message = format!("expected 1 to {MAX_TYPICAL_TASKS} classes, found {}", items.len());
        report.error(ErrorCode::ArgumentRange, &list.at(), message);
        return TypicalClasses::default();
    }
    let classes: Vec<FrequentClass> = items.iter().filter_map(|item| read_class(item, report)).collect();
    let mut models: Vec<&Arc<str>> = classes.iter().flat_map(|class| class.task.models.iter()).collect();
    models.sort_unstable();
    models.dedup();
    if models.len() > MAX_TYPICAL_MODELS {
        let message = format!(
            "the classes name {} models; at most {MAX_TYPICAL_MODELS} are counted",
            models.len()
        );
        report.error(ErrorCode::ArgumentRange, &list.at(), message);
    }
    let listed = classes.iter().map(|class| class.tasks).sum();
    let total = read_int(arguments, TOTAL, listed, (listed.max(1), MAX_NUMBER), report);
    TypicalClasses { classes, total }
}

fn read_class(item: &PluginArgument<'_>, report: &mut DiagnosticReport) -> Option<FrequentClass> {
    let map = item.decode_map(report)?;
    map.warn_unknown(report, &FIELDS);
    let devices = number(&map, "devices", 0, (0, 64), report)?;
    let whole = i64::from(devices > 0) * 1000;
    let milli = number(&map, "deviceMilli", whole, (i64::from(devices > 0), whole), report)?;
    let task = DeviceTask {
        cpu: number(&map, "cpuMilli", 0, (0, MAX_NUMBER), report)?,
        count: u32::try_from(devices).ok()?,
        milli: i32::try_from(milli).ok()?,
        models: models(&map, report)?,
    };
    let tasks = number(&map, "tasks", 1, (1, MAX_NUMBER), report)?;
    Some(FrequentClass { task, tasks })
}

fn number(
    map: &ArgumentMap<'_>,
    field: &str,
    default: i64,
    (least, greatest): (i64, i64),
    report: &mut DiagnosticReport,
) -> Option<i64> {
    let Some(argument) = map.field(field).filter(|argument| !argument.is_null()) else {
        return Some(default);
    };
    let number = argument
        .lenient_int()
        .filter(|number| (least..=greatest).contains(number));
    if number.is_none() {
        let message = format!("expected an integer from {least} to {greatest}");
        report.error(ErrorCode::ArgumentInvalid, &argument.at(), message);
    }
    number
}

/// Models, separated by `|`.
fn models(map: &ArgumentMap<'_>, report: &mut DiagnosticReport) -> Option<Arc<[Arc<str>]>> {
    let Some(argument) = map.field("models").filter(|argument| !argument.is_null()) else {
        return Some(Arc::default());
    };
    let text = argument.decode_string(report)?;
    Some(
        text.split('|')
            .filter(|model| !model.is_empty())
            .map(Arc::from)
            .collect(),
    )
}

impl TypicalClasses {
    /// Classes with their frequencies, rounded twice as in the reference where rare classes are left out.
    pub(super) fn tasks(&self) -> Vec<TypicalTask> {
        let listed: i64 = self.classes.iter().map(|class| class.tasks).sum();
        let total = self.total as f64;
        let of = |class: &FrequentClass| {
            let mut frequency = class.tasks as f64 / total;
            if listed < self.total {
                frequency /= listed as f64 / total;
            }
            TypicalTask {
                task: class.task.clone(),
                frequency,
            }
        };
        self.classes.iter().map(of).collect()
    }

    /// Effective arguments.
    pub(super) fn arguments(&self) -> [(String, YamlValue); 2] {
        let classes = self.classes.iter().map(|class| YamlNode::new(class.argument()));
        [
            map_entry(TOTAL, YamlValue::Int(self.total)),
            map_entry(TASKS, YamlValue::List(classes.collect())),
        ]
    }
}

impl FrequentClass {
    fn argument(&self) -> YamlValue {
        let int = |key: &str, number: i64| map_entry(key, YamlValue::Int(number));
        let mut entries = vec![int("cpuMilli", self.task.cpu)];
        if self.task.count > 0 {
            entries.push(int("devices", i64::from(self.task.count)));
            entries.push(int("deviceMilli", i64::from(self.task.milli)));
        }
        if !self.task.models.is_empty() {
            entries.push(map_entry("models", YamlValue::String(self.task.models.join("|"))));
        }
        entries.push(int("tasks", self.tasks));
        value_map(entries)
    }
}
