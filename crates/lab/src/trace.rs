//! Traces as files: nodes with devices, and tasks that request them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pumice_engine::devices::{DeviceTask, MAX_DEVICES, WHOLE_DEVICE};

/// Node of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabNode {
    /// Name of the node, such as `openb-node-0001`.
    pub name: Arc<str>,
    /// Cpu in thousandths.
    pub cpu: i64,
    /// Memory in MiB.
    pub memory: i64,
    /// Number of devices.
    pub devices: usize,
    /// Model of the devices.
    pub model: Arc<str>,
}

/// Task of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabTask {
    /// Name of the task, such as `openb-pod-0001`.
    pub name: Arc<str>,
    /// Memory in MiB.
    pub memory: i64,
    /// Cpu and devices.
    pub task: DeviceTask,
    /// Models as the file writes them: tasks that write the same models otherwise are another class.
    pub models_text: Arc<str>,
}

/// Error of a file.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{}: {error}", file.display())]
    Unreadable {
        /// Path of the unreadable file.
        file: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The text is not such a trace.
    #[error("{}: {message}", file.display())]
    Malformed {
        /// Path of the malformed file.
        file: PathBuf,
        /// Line, field and reason.
        message: String,
    },
}

/// Reads a file of nodes (`sn,cpu_milli,memory_mib,gpu,model`); those without devices are left out.
///
/// # Errors
/// The file cannot be read, or a line is malformed.
pub fn read_nodes(file: &Path) -> Result<Vec<LabNode>, TraceError> {
    parse_nodes(&read(file)?).map_err(|message| malformed(file, message))
}

/// Reads a file of tasks (`name,cpu_milli,memory_mib,num_gpu,gpu_milli`, optionally `gpu_spec`), by the names of its columns.
///
/// # Errors
/// The file cannot be read, or a line is malformed.
pub fn read_tasks(file: &Path) -> Result<Vec<LabTask>, TraceError> {
    parse_tasks(&read(file)?).map_err(|message| malformed(file, message))
}

/// Name of a file without its ending.
pub fn file_stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(file: &Path) -> Result<String, TraceError> {
    std::fs::read_to_string(file).map_err(|error| TraceError::Unreadable {
        file: file.to_owned(),
        error,
    })
}

fn malformed(file: &Path, message: String) -> TraceError {
    TraceError::Malformed {
        file: file.to_owned(),
        message,
    }
}

/// Table with a line of column names.
struct CsvTable<'a> {
    columns: Vec<&'a str>,
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
}

/// Line of a table.
struct CsvLine<'a, 'c> {
    number: usize,
    fields: Vec<&'a str>,
    columns: &'c [&'a str],
}

impl<'a> CsvTable<'a> {
    fn new(text: &'a str, needed: &[&str]) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        let columns: Vec<&str> = lines.next().map_or("", |(_, line)| line).trim().split(',').collect();
        match needed.iter().find(|name| !columns.contains(name)) {
            Some(missing) => Err(format!(
                "line 1 has no column `{missing}`; needed are {}",
                needed.join(", ")
            )),
            None => Ok(Self { columns, lines }),
        }
    }

    fn each<T>(self, read: impl Fn(&CsvLine<'_, '_>) -> Result<T, String>) -> Result<Vec<T>, String> {
        let filled = self.lines.filter(|(_, line)| !line.trim().is_empty());
        let columns = &self.columns;
        filled
            .map(|(number, line)| {
                let fields: Vec<&str> = line.trim().split(',').collect();
                let number = number + 1;
                if fields.len() != columns.len() {
                    return Err(format!(
                        "line {number} has {} fields, not {}",
                        fields.len(),
                        columns.len()
                    ));
                }
                read(&CsvLine {
                    number,
                    fields,
                    columns,
                })
            })
            .collect()
    }
}

impl<'a> CsvLine<'a, '_> {
    /// Text of a column. Empty: the column does not exist.
    fn text(&self, column: &str) -> &'a str {
        let at = self.columns.iter().position(|name| *name == column);
        at.and_then(|at| self.fields.get(at)).copied().unwrap_or("")
    }

    fn number(&self, column: &str) -> Result<i64, String> {
        const LARGEST: i64 = 1 << 40;
        let text = self.text(column);
        let number = text.parse::<i64>().ok().filter(|number| (0..=LARGEST).contains(number));
        number.ok_or_else(|| {
            format!(
                "line {}, `{column}`: `{text}` is no integer from 0 to {LARGEST}",
                self.number
            )
        })
    }
}

/// Parses the text of a file of nodes.
///
/// # Errors
/// A line is malformed.
pub fn parse_nodes(text: &str) -> Result<Vec<LabNode>, String> {
    let table = CsvTable::new(text, &["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
    let nodes = table.each(|line| {
        let devices = usize::try_from(line.number("gpu")?).unwrap_or(usize::MAX);
        if devices > MAX_DEVICES {
            return Err(format!(
                "line {}, `gpu`: a node has at most {MAX_DEVICES} devices",
                line.number
            ));
        }
        Ok(LabNode {
            name: line.text("sn").into(),
            cpu: line.number("cpu_milli")?,
            memory: line.number("memory_mib")?,
            devices,
            model: line.text("model").into(),
        })
    })?;
    Ok(nodes.into_iter().filter(|node| node.devices > 0).collect())
}

/// Parses the text of a file of tasks.
///
/// # Errors
/// A line is malformed.
pub fn parse_tasks(text: &str) -> Result<Vec<LabTask>, String> {
    let table = CsvTable::new(text, &["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"])?;
    table.each(|line| {
        let count = u32::try_from(line.number("num_gpu")?).unwrap_or(u32::MAX);
        let asked = if count > 0 { line.number("gpu_milli")? } else { 0 };
        let milli = i32::try_from(asked).unwrap_or(WHOLE_DEVICE).min(WHOLE_DEVICE);
        if count > 0 && milli == 0 {
            return Err(format!(
                "line {}: `num_gpu` is {count} and `gpu_milli` is 0",
                line.number
            ));
        }
        let models_text = if count > 0 { line.text("gpu_spec") } else { "" };
        let models = models_text.split('|').filter(|model| !model.is_empty());
        Ok(LabTask {
            name: line.text("name").into(),
            memory: line.number("memory_mib")?,
            task: DeviceTask {
                cpu: line.number("cpu_milli")?,
                count,
                milli,
                models: models.map(Arc::from).collect(),
            },
            models_text: models_text.into(),
        })
    })
}
