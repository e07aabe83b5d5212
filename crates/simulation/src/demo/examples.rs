//! Scenes on small clusters, with the results that they must give.

use super::harness::{DemoHarness, best_node, latest_ref, node, task};
use super::session::DemoSession;
use pumice_console::output::{self, TextTable};
use pumice_console::{CommandError, node_query};
use pumice_protocol::v1 as pb;

const SRA: &str = include_str!("../../examples/sra.yaml");
const SRA_LEGACY: &str = include_str!("../../examples/sra-legacy-flat.yaml");
const PROPORTIONAL: &str = include_str!("../../examples/proportional.yaml");

/// Largest difference between a fractional score and its decimal text here.
const TOLERANCE: f64 = 1e-6;

/// Tasks that need no T4 and no A10 stay off the nodes that have them; in today's keys and in the old flat ones.
pub(super) async fn scarce_resources(harness: &mut DemoHarness) -> Result<(), CommandError> {
    output::line("\n1. Scarce resource avoidance: three tasks, three nodes, the part `sra` of the score")?;
    let nodes = vec![
        node("node1", "cpu: 32, memory: 64Gi", ""),
        node("node2", "cpu: 16, memory: 32Gi, nvidia.com/t4: 10", ""),
        node(
            "node3",
            "cpu: 16, memory: 32Gi, nvidia.com/t4: 5, nvidia.com/a10: 10",
            "",
        ),
    ];
    harness.load_nodes(nodes).await?;
    let tasks = [
        ("default/cpu-task-0", "cpu: 2, memory: 4Gi", [200.0, 100.0, 0.0]),
        (
            "default/gpu-task-0",
            "cpu: 2, memory: 4Gi, nvidia.com/t4: 2",
            [0.0, 100.0, 0.0],
        ),
        (
            "default/gpu-task-1",
            "cpu: 2, memory: 4Gi, nvidia.com/t4: 1, nvidia.com/a10: 2",
            [0.0, 0.0, 0.0],
        ),
    ];
    for (policy, document, keys) in [
        ("sra", SRA, "today's keys"),
        ("sra-legacy", SRA_LEGACY, "the old flat keys"),
    ] {
        harness.push(policy, document).await?;
        let asked = tasks.iter().map(|(name, requests, _)| task(name, requests)).collect();
        let items = harness.score(policy, asked).await?;
        let mut table = TextTable::new(["TASK", "node1", "node2", "node3"]);
        let mut right = true;
        for ((name, _, expected), item) in tasks.iter().zip(&items) {
            let scores = part_scores(item, "sra");
            right &= approx_equal(&scores, expected);
            table.row(std::iter::once((*name).to_owned()).chain(scores.iter().copied().map(output::number)));
        }
        output::table(&table)?;
        harness.check(
            &format!("the table of the design document, from {keys}"),
            right && items.len() == tasks.len(),
        )?;
    }
    Ok(())
}

/// GPU tasks gather, CPU tasks spread and stay off GPU nodes.
pub(super) async fn best_practice(harness: &mut DemoHarness) -> Result<(), CommandError> {
    output::line("\n2. The built-in policy: GPU tasks gather, CPU tasks spread and stay off GPU nodes")?;
    let nodes = vec![
        node("cpu-empty", "cpu: 32, memory: 64Gi", ""),
        node("cpu-half", "cpu: 32, memory: 64Gi", "cpu: 16, memory: 24Gi, pods: 5"),
        node("gpu-empty", "cpu: 64, memory: 256Gi, nvidia.com/gpu: 8", ""),
        node(
            "gpu-part",
            "cpu: 64, memory: 256Gi, nvidia.com/gpu: 8",
            "cpu: 20, memory: 100Gi, nvidia.com/gpu: 5, pods: 3",
        ),
    ];
    harness.load_nodes(nodes).await?;
    let cpu = task("default/cpu-task", "cpu: 2, memory: 4Gi");
    let gpu = task("default/gpu-task", "cpu: 4, memory: 16Gi, nvidia.com/gpu: 1");
    let expected = [
        [1937.5, 1437.5, 968.75, 656.25],
        [875.0 / 3.0, 375.0 / 3.0, 1187.5 / 3.0, 2125.0 / 3.0],
    ];
    let best = ["cpu-empty", "gpu-part"];
    let items = harness.score("default", vec![cpu.clone(), gpu.clone()]).await?;
    for ((task, item), (expected, best)) in [cpu, gpu].iter().zip(&items).zip(expected.iter().zip(best)) {
        output::line(&node_query::task_title(task))?;
        output::table(&pumice_console::score_table::score_table(item))?;
        harness.check(
            "the scores are those of the formulas",
            approx_equal(&item.totals, expected),
        )?;
        let found = best_node(&mut harness.connection, latest_ref("default"), task.clone()).await?;
        let found = found.unwrap_or_default();
        harness.check(&format!("best of the nodes with room: {found}"), found == best)?;
    }
    Ok(())
}

/// The first CPU task fits on the GPU node, the second would leave too few cores for its idle GPUs.
pub(super) async fn proportional(harness: &mut DemoHarness) -> Result<(), CommandError> {
    output::line("\n3. Proportional: 8 cores and 8 GB stay free for every idle GPU of nodeC0-0")?;
    let names = ["default/single-1000-0", "default/single-1000-1"];
    let cluster = pb::Cluster {
        nodes: vec![node("nodeC0-0", "cpu: 74, memory: 128G, nvidia.com/gpu: 8", "")],
        tasks: names
            .iter()
            .map(|name| task(name, "cpu: 8, memory: 8G, nvidia.com/gpu: 0"))
            .collect(),
        ..pb::Cluster::default()
    };
    harness.load(cluster).await?;
    harness.push("proportional", PROPORTIONAL).await?;
    let mut session = DemoSession::open(harness, "proportional").await?;
    let [first, second] = names;
    let item = filter(&mut session, first).await?;
    harness.check(
        &format!("{first} fits: 74 − 8 cores leave 66, the GPUs keep 64"),
        item.fit_count == 1,
    )?;
    session.allocate(first, "nodeC0-0");
    let item = filter(&mut session, second).await?;
    harness.check(
        &format!("{second} is refused once {first} is there: 66 − 8 cores leave 58"),
        item.fit_count == 0,
    )?;
    if let Some(table) = node_query::blocker_table(&item.rejections) {
        output::table(&table)?;
    }
    for (name, expected) in [("requested cpu", 8.0), ("idle cpu", 66.0), ("reserved cpu", 64.0)] {
        let found = measurement(&item, name);
        harness.check(
            &format!("{name}: {expected} cores"),
            found.is_some_and(|found| approx_equal(&[found], &[expected])),
        )?;
    }
    session.close().await
}

async fn filter(session: &mut DemoSession, task: &str) -> Result<pb::FilterItem, CommandError> {
    let item = session.filter(task).await?;
    node_query::check_item(task, item.problem.as_ref(), &item.warnings)?;
    Ok(item)
}

fn measurement(item: &pb::FilterItem, name: &str) -> Option<f64> {
    let samples = item.rejections.iter().flat_map(|rejection| &rejection.samples);
    let mut measurements = samples.flat_map(|sample| &sample.measurements);
    measurements
        .find(|measurement| measurement.name == name)
        .map(|measurement| measurement.value)
}

fn part_scores(item: &pb::ScoreItem, name: &str) -> Vec<f64> {
    item.parts
        .iter()
        .find(|part| part.part == name)
        .map(|part| part.scores.clone())
        .unwrap_or_default()
}

fn approx_equal(found: &[f64], expected: &[f64]) -> bool {
    found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|(found, expected)| (found - expected).abs() < TOLERANCE)
}
