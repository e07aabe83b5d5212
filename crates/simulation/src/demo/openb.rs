//! A real GPU cluster: all tasks of the openb trace placed one by one, under two policies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::harness::DemoHarness;
use super::session::DemoSession;
use pumice_console::output::{self, TextTable};
use pumice_console::{CommandError, files};
use pumice_kubernetes::import::{AmountRules, ClusterImport, GPU_MILLI_RESOURCE, GPU_RESOURCE};
use pumice_protocol::v1 as pb;

const NODES: &str = "openb_node_list_all_node.csv";
const TASKS: &str = "openb_pod_list_default.csv";
const SPREAD: &str = include_str!("../../examples/spread.yaml");

/// Row of `openb_pod_list_default.csv`.
struct TraceTask {
    name: String,
    /// True if the task needs no GPU, whole or shared.
    cpu_only: bool,
}

/// Counts of placements.
#[derive(Default)]
struct TraceCounts {
    cpu: u32,
    cpu_on_gpu_nodes: u32,
    gpu: u32,
    unplaced: u32,
}

impl TraceCounts {
    /// Percentage of the placed CPU tasks that are on GPU nodes.
    fn gpu_node_percent(&self) -> f64 {
        100.0 * f64::from(self.cpu_on_gpu_nodes) / f64::from(self.cpu.max(1))
    }
}

/// Places the trace under both policies.
pub(super) async fn run(harness: &mut DemoHarness, folder: &Path) -> Result<(), CommandError> {
    output::line("\n8. openb, a real GPU cluster: tasks in order of creation, none leaving, each to its best node")?;
    let mut import = ClusterImport::new(AmountRules::default());
    for file in [NODES, TASKS] {
        import.read(file, &files::read_text(&folder.join(file))?)?;
    }
    let imported = import.finish();
    for note in imported.notes.keys() {
        output::line(&format!("  ({note})"))?;
    }
    let cluster = imported.cluster;
    let gpu_nodes: BTreeSet<String> = cluster
        .nodes
        .iter()
        .filter(|node| has_gpu(node))
        .map(|node| node.name.clone())
        .collect();
    let waiting = in_order(&cluster.tasks);
    let cpu_only = waiting.iter().filter(|task| task.cpu_only).count();
    output::line(&format!(
        "  {} nodes, {} with GPUs; {} tasks, {cpu_only} without a GPU",
        cluster.nodes.len(),
        gpu_nodes.len(),
        waiting.len()
    ))?;
    harness.load(cluster).await?;
    harness.push("spread", SPREAD).await?;
    let mut table = TextTable::new([
        "POLICY",
        "CPU TASKS PLACED",
        "OF THESE ON GPU NODES",
        "GPU TASKS PLACED",
        "NOWHERE",
    ]);
    let mut shares = BTreeMap::new();
    for (policy, title) in [
        ("spread", "LeastAllocated cpu + memory"),
        ("default", "the built-in policy"),
    ] {
        let placed = place(harness, policy, &waiting, &gpu_nodes).await?;
        table.row([
            title.to_owned(),
            placed.cpu.to_string(),
            format!("{} ({:.1} %)", placed.cpu_on_gpu_nodes, placed.gpu_node_percent()),
            placed.gpu.to_string(),
            placed.unplaced.to_string(),
        ]);
        shares.insert(policy, placed.gpu_node_percent());
    }
    output::table(&table)?;
    let better = shares
        .get("default")
        .zip(shares.get("spread"))
        .is_some_and(|(built_in, spread)| built_in < spread);
    harness.check("the built-in policy keeps more CPU tasks off GPU nodes", better)
}

fn has_gpu(node: &pb::Node) -> bool {
    node.allocatable
        .as_ref()
        .is_some_and(|list| list.items.contains_key(GPU_RESOURCE))
}

fn in_order(tasks: &[pb::Task]) -> Vec<TraceTask> {
    let mut tasks: Vec<&pb::Task> = tasks.iter().collect();
    tasks.sort_by_key(|task| (task.creation_time.map_or(0, |time| time.seconds), &task.name));
    let waiting = tasks.into_iter().map(|task| TraceTask {
        name: task.name.clone(),
        cpu_only: !task
            .requests
            .as_ref()
            .is_some_and(|list| list.items.contains_key(GPU_MILLI_RESOURCE)),
    });
    waiting.collect()
}

/// Places tasks in one session: each query carries the placement before it.
async fn place(
    harness: &DemoHarness,
    policy: &str,
    waiting: &[TraceTask],
    gpu_nodes: &BTreeSet<String>,
) -> Result<TraceCounts, CommandError> {
    let mut session = DemoSession::open(harness, policy).await?;
    let mut placed = TraceCounts::default();
    for task in waiting {
        let Some(node) = session.place(&task.name).await? else {
            placed.unplaced = placed.unplaced.saturating_add(1);
            continue;
        };
        if task.cpu_only {
            placed.cpu = placed.cpu.saturating_add(1);
            placed.cpu_on_gpu_nodes = placed
                .cpu_on_gpu_nodes
                .saturating_add(u32::from(gpu_nodes.contains(&node)));
        } else {
            placed.gpu = placed.gpu.saturating_add(1);
        }
    }
    session.close().await?;
    Ok(placed)
}
