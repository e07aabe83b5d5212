//! Tasks of a trace that name acceptable cards (`V100M16|V100M32`), admitted and placed under quotas of two queues.

use std::collections::BTreeMap;
use std::path::Path;

use super::card_quotas::print_holdings;
use super::harness::DemoHarness;
use super::session::DemoSession;
use pumice_console::{CommandError, files, output};
use pumice_kubernetes::import::{AmountRules, ClusterImport, GPU_MILLI_RESOURCE, GPU_RESOURCE};
use pumice_protocol::v1 as pb;

const POLICY: &str = include_str!("../../examples/cards/policy.yaml");
const NODES: &str = include_str!("../../examples/cards/trace-nodes.csv");
const TASKS: &str = include_str!("../../examples/cards/trace-tasks.csv");
const CARD_NAME: &str = "volcano.sh/card.name";
const GPU_PRODUCT_LABEL: &str = "nvidia.com/gpu.product";
const QUEUES: [&str; 2] = ["red", "blue"];

/// Places a small invented trace.
pub(super) async fn run_small(harness: &mut DemoHarness) -> Result<(), CommandError> {
    output::line("\n7. Choices of cards in a small trace: each of two queues may hold a third of each kind")?;
    let mut import = ClusterImport::new(AmountRules::default());
    import.read("trace-nodes.csv", NODES)?;
    import.read("trace-tasks.csv", TASKS)?;
    place_all(harness, import.finish().cluster).await
}

/// Places the tasks of openb that name cards, if the folder has the list of them.
pub(super) async fn run_openb(harness: &mut DemoHarness, folder: &Path) -> Result<(), CommandError> {
    let tasks = folder.join("openb_pod_list_gpuspec33.csv");
    if !tasks.exists() {
        return output::line("\n  (no openb_pod_list_gpuspec33.csv: tasks that name cards are left out)");
    }
    output::line("\n9. openb, tasks that name cards, under the same kind of quotas")?;
    let mut import = ClusterImport::new(AmountRules::default());
    import.read(
        "nodes",
        &files::read_text(&folder.join("openb_node_list_all_node.csv"))?,
    )?;
    import.read("tasks", &files::read_text(&tasks)?)?;
    place_all(harness, import.finish().cluster).await
}

/// Every task becomes a job of its own; a share of a card takes a whole one of the quota.
fn prepare(mut cluster: pb::Cluster) -> pb::Cluster {
    let named = |task: &pb::Task| task.annotations.contains_key(CARD_NAME);
    cluster.tasks.retain(named);
    cluster
        .tasks
        .sort_by_key(|task| (task.creation_time.map_or(0, |time| time.seconds), task.name.clone()));
    for (task, queue) in cluster.tasks.iter_mut().zip(QUEUES.into_iter().cycle()) {
        task.job.clone_from(&task.name);
        let items = task.requests.as_ref().map(|list| &list.items);
        let asks = |name: &str| items.is_some_and(|items| items.contains_key(name));
        if asks(GPU_MILLI_RESOURCE) && !asks(GPU_RESOURCE) {
            let items = [(GPU_RESOURCE.to_owned(), "1".to_owned())].into();
            task.limits = Some(pb::ResourceList { items });
        }
        cluster.jobs.push(pb::Job {
            name: task.name.clone(),
            queue: queue.to_owned(),
            phase: pb::JobPhase::Pending.into(),
            min_member: 1,
            ..pb::Job::default()
        });
    }
    let mut cards: BTreeMap<&str, i64> = BTreeMap::new();
    for node in &cluster.nodes {
        let count = node.allocatable.as_ref().and_then(|list| list.items.get(GPU_RESOURCE));
        if let (Some(product), Some(count)) = (node.labels.get(GPU_PRODUCT_LABEL), count) {
            *cards.entry(product).or_default() += count.parse::<i64>().unwrap_or(0);
        }
    }
    let quota: Vec<String> = cards
        .iter()
        .map(|(card, count)| format!("\"{card}\": {}", count / 3))
        .collect();
    let annotations = [("volcano.sh/card.quota".to_owned(), format!("{{{}}}", quota.join(", ")))];
    cluster.queues = QUEUES
        .iter()
        .map(|name| pb::Queue {
            name: (*name).to_owned(),
            annotations: annotations.clone().into(),
            ..pb::Queue::default()
        })
        .collect();
    cluster
}

async fn place_all(harness: &mut DemoHarness, cluster: pb::Cluster) -> Result<(), CommandError> {
    let cluster = prepare(cluster);
    let names: Vec<String> = cluster.tasks.iter().map(|task| task.name.clone()).collect();
    harness.load(cluster).await?;
    harness.push("cards", POLICY).await?;
    let mut cycle = DemoSession::open(harness, "cards").await?;
    let (mut placed, mut refused, mut nowhere) = (0_u32, 0_u32, 0_u32);
    for name in &names {
        if !cycle.admit(name).await?.is_empty() {
            refused += 1;
        } else if cycle.place(name).await?.is_some() {
            placed += 1;
        } else {
            nowhere += 1;
        }
    }
    output::line(&format!(
        "  {} tasks: {placed} placed, {refused} over the quota of their queue, {nowhere} admitted without room on a node",
        names.len()
    ))?;
    let held = cycle.holdings().await?;
    print_holdings(&held)?;
    let within = held.values().all(|(held, quota)| held <= quota);
    harness.check("no queue holds more of a card than its quota", within)?;
    let all: f64 = held.values().map(|(held, _)| held).sum();
    let full = held.values().any(|(held, quota)| held >= quota);
    harness.check("cards are held, and some quota is used up", all > 0.0 && full)?;
    cycle.close().await
}
