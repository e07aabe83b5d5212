//! Nodes and tasks from the CSV files of openb, a GPU cluster's public trace (cluster-trace-gpu-v2023).
//!
//! A share of one GPU (`gpu_milli` below 1000) is a scalar of its own, [`GPU_MILLI_RESOURCE`], in thousandths: every
//! node offers 1000 per GPU, every GPU task takes the part that it uses, and only tasks with whole GPUs also ask for
//! [`GPU_RESOURCE`]. The same GPUs are devices, which only plugins about
//! devices read. The import leaves out which GPU of a node a share is on, and the phase of tasks. Tasks are
//! pending, without a node and in the namespace `openb`; their run times are separate from the records. Nodes offer
//! [`PODS_PER_NODE`] pods, which the trace does not give.

use std::collections::BTreeMap;

use prost_types::Timestamp;

use crate::object::RecordIdentity;
use crate::object::fields::FieldError;
use pumice_engine::cards::CARD_NAME_ANNOTATION;
use pumice_engine::devices::MAX_DEVICES;
use pumice_protocol::v1 as pb;

/// Resource of whole GPUs.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// Resource of thousandths of GPUs.
pub const GPU_MILLI_RESOURCE: &str = "openb/gpu-milli";
/// Number of pods that each node may hold: the default of a kubelet.
pub const PODS_PER_NODE: &str = "110";

const NODE_HEADER: &str = "sn,cpu_milli,memory_mib,";
const TASK_HEADER: &str = "name,cpu_milli,memory_mib,";
const MODEL_LABEL: &str = "nvidia.com/gpu.product";
const MILLI_PER_GPU: u64 = 1000;

/// Kind of an openb file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenbTable {
    Nodes,
    Tasks,
}

/// Recognises a file by its first line.
pub(super) fn recognise(text: &str) -> Option<OpenbTable> {
    let text = text.trim_start_matches('\u{feff}');
    if text.starts_with(NODE_HEADER) {
        Some(OpenbTable::Nodes)
    } else if text.starts_with(TASK_HEADER) {
        Some(OpenbTable::Tasks)
    } else {
        None
    }
}

/// Values of a line by column name.
pub(super) struct OpenbLine<'l> {
    columns: &'l BTreeMap<String, usize>,
    record: &'l csv::StringRecord,
}

impl OpenbLine<'_> {
    pub(super) fn text(&self, column: &str) -> Result<&str, FieldError> {
        self.columns
            .get(column)
            .and_then(|&at| self.record.get(at))
            .map(str::trim)
            .ok_or_else(|| FieldError::new(column, "is missing"))
    }

    fn number(&self, column: &str) -> Result<u64, FieldError> {
        let text = self.text(column)?;
        text.parse()
            .map_err(|_| FieldError::new(column, format!("`{text}` is not a whole number")))
    }
}

/// Calls `each` with every line after the header, and its number.
///
/// # Errors
/// The text is not CSV from some line on.
pub(super) fn lines(text: &str, mut each: impl FnMut(u64, &OpenbLine<'_>)) -> Result<(), csv::Error> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let columns = reader
        .headers()?
        .iter()
        .map(|name| name.trim_start_matches('\u{feff}').trim().to_owned());
    let columns: BTreeMap<String, usize> = columns.zip(0..).collect();
    for record in reader.records() {
        let record = record?;
        let number = record.position().map_or(0, csv::Position::line);
        each(
            number,
            &OpenbLine {
                columns: &columns,
                record: &record,
            },
        );
    }
    Ok(())
}

/// Reads a line of the list of nodes.
pub(super) fn node(line: &OpenbLine<'_>) -> Result<pb::Node, FieldError> {
    let gpus = line.number("gpu")?;
    let mut items = cpu_and_memory(line)?;
    items.insert("pods".to_owned(), PODS_PER_NODE.to_owned());
    let mut labels = BTreeMap::new();
    if gpus > 0 {
        items.insert(GPU_RESOURCE.to_owned(), gpus.to_string());
        items.insert(
            GPU_MILLI_RESOURCE.to_owned(),
            gpus.saturating_mul(MILLI_PER_GPU).to_string(),
        );
        labels.insert(MODEL_LABEL.to_owned(), line.text("model")?.to_owned());
    }
    let count = device_count(gpus);
    Ok(pb::Node {
        devices: count.map(|count| pb::NodeDevices {
            model: line.text("model").unwrap_or_default().to_owned(),
            count,
            memory_mib: 0,
        }),
        name: name(line, "sn")?,
        labels: labels.into_iter().collect(),
        allocatable: Some(pb::ResourceList {
            items: items.into_iter().collect(),
        }),
        ..pb::Node::default()
    })
}

/// Reads a line of a list of tasks.
pub(super) fn task(line: &OpenbLine<'_>) -> Result<pb::Task, FieldError> {
    let (gpus, milli) = (line.number("num_gpu")?, line.number("gpu_milli")?);
    let mut items = cpu_and_memory(line)?;
    if gpus > 0 {
        if milli >= MILLI_PER_GPU {
            items.insert(GPU_RESOURCE.to_owned(), gpus.to_string());
        }
        items.insert(GPU_MILLI_RESOURCE.to_owned(), gpus.saturating_mul(milli).to_string());
    }
    let cards = line.text("gpu_spec").unwrap_or_default();
    let annotations = (!cards.is_empty()).then(|| (CARD_NAME_ANNOTATION.to_owned(), cards.to_owned()));
    let devices = device_request(gpus, milli, cards);
    let constraints = devices.map(|devices| {
        Box::new(pb::PodConstraints {
            devices: Some(devices),
            ..pb::PodConstraints::default()
        })
    });
    let created = line.number("creation_time")?;
    let seconds = i64::try_from(created).map_err(|_| FieldError::new("creation_time", "is too large"))?;
    Ok(pb::Task {
        name: format!("openb/{}", name(line, "name")?),
        status: pb::TaskStatus::Pending.into(),
        annotations: annotations.into_iter().collect(),
        requests: Some(pb::ResourceList {
            items: items.into_iter().collect(),
        }),
        creation_time: Some(Timestamp { seconds, nanos: 0 }),
        constraints,
        ..pb::Task::default()
    })
}

/// Number of devices; `None`: none, or more than a node can have.
fn device_count(gpus: u64) -> Option<u32> {
    let count = usize::try_from(gpus)
        .ok()
        .filter(|count| (1..=MAX_DEVICES).contains(count))?;
    u32::try_from(count).ok()
}

/// Devices of a task; `None`: it asks for none, or for more than a node can have.
fn device_request(gpus: u64, milli: u64, models: &str) -> Option<pb::DeviceRequest> {
    let count = device_count(gpus)?;
    let models = models.split('|').filter(|model| !model.is_empty());
    Some(pb::DeviceRequest {
        count,
        milli: u32::try_from(milli.min(MILLI_PER_GPU)).unwrap_or(0),
        models: models.map(str::to_owned).collect(),
        ..pb::DeviceRequest::default()
    })
}

/// Record of a line of nodes that cannot be read; `None`: not even its name can.
pub(super) fn node_identity(line: &OpenbLine<'_>) -> Option<RecordIdentity> {
    let name = name(line, "sn").ok()?;
    Some(RecordIdentity::new(pb::RecordKind::Node, name))
}

/// Record of a line of tasks that cannot be read; `None`: not even its name can.
pub(super) fn task_identity(line: &OpenbLine<'_>) -> Option<RecordIdentity> {
    let name = name(line, "name").ok()?;
    Some(RecordIdentity::new(pb::RecordKind::Task, format!("openb/{name}")))
}

/// Time that the task of a line ran: from its scheduling, or else its creation, until its deletion.
pub(super) fn run_seconds(line: &OpenbLine<'_>) -> Option<u64> {
    let time = |column: &str| line.number(column).ok();
    let start = time("scheduled_time").or_else(|| time("creation_time"))?;
    time("deletion_time")?.checked_sub(start)
}

fn name(line: &OpenbLine<'_>, column: &str) -> Result<String, FieldError> {
    match line.text(column)? {
        "" => Err(FieldError::new(column, "is empty")),
        name => Ok(name.to_owned()),
    }
}

fn cpu_and_memory(line: &OpenbLine<'_>) -> Result<BTreeMap<String, String>, FieldError> {
    Ok(BTreeMap::from([
        ("cpu".to_owned(), format!("{}m", line.number("cpu_milli")?)),
        ("memory".to_owned(), format!("{}Mi", line.number("memory_mib")?)),
    ]))
}
