//! Two examples of hierarchical DRF: complementary children, and a blocked one.

use std::collections::BTreeMap;

use super::harness::{DemoHarness, node, task};
use super::session::DemoSession;
use pumice_console::CommandError;
use pumice_console::output::{self, TextTable};
use pumice_protocol::v1 as pb;

const HDRF: &str = include_str!("../../examples/hdrf.yaml");

/// A queue of the example: its path, and the requests of a task of its job.
type QueueSpec = (&'static str, &'static str);

const GPU: &str = "cpu: 0, example.com/gpu: 1";
const CPU: &str = "cpu: 1";

/// Serves both examples to the end, always the queue that Order puts first.
pub(super) async fn run_examples(harness: &mut DemoHarness) -> Result<(), CommandError> {
    output::line("\n5. Hierarchical fairness: Order says who is next until nothing is left")?;
    harness.push("hdrf", HDRF).await?;
    let complementary: [QueueSpec; 3] = [("root/n1", GPU), ("root/n2/n21", CPU), ("root/n2/n22", GPU)];
    let got = serve_queues(harness, "cpu: 10, example.com/gpu: 10", &complementary).await?;
    harness.check(
        "children with different dominant resources do not starve each other",
        got == [5, 10, 5],
    )?;
    let blocked: [QueueSpec; 5] = [
        ("root/n1", CPU),
        ("root/n2", CPU),
        ("root/n3/n31", CPU),
        ("root/n3/n32", GPU),
        ("root/n4", GPU),
    ];
    let got = serve_queues(harness, "cpu: 12, example.com/gpu: 12", &blocked).await?;
    harness.check("a blocked child does not hold its parent up", got == [4, 4, 4, 6, 6])
}

/// Number of tasks that each group got.
async fn serve_queues(
    harness: &mut DemoHarness,
    allocatable: &str,
    groups: &[QueueSpec],
) -> Result<Vec<usize>, CommandError> {
    const TASKS: usize = 20;
    let mut cluster = pb::Cluster {
        nodes: vec![node("n", allocatable, "")],
        ..pb::Cluster::default()
    };
    let mut waiting: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, requests) in groups {
        let name = queue(path);
        let job = format!("default/{name}");
        let weights = path.split('/').map(|_| "1").collect::<Vec<_>>().join("/");
        cluster.queues.push(pb::Queue {
            name: name.clone(),
            annotations: [
                ("volcano.sh/hierarchy".to_owned(), (*path).to_owned()),
                ("volcano.sh/hierarchy-weights".to_owned(), weights),
            ]
            .into(),
            ..pb::Queue::default()
        });
        cluster.jobs.push(pb::Job {
            name: job.clone(),
            queue: name.clone(),
            ..pb::Job::default()
        });
        let names: Vec<String> = (0..TASKS).map(|number| format!("{job}-{number:02}")).collect();
        cluster.tasks.extend(names.iter().map(|name| pb::Task {
            job: job.clone(),
            ..task(name, requests)
        }));
        waiting.insert(name, names);
    }
    harness.load(cluster).await?;
    let served = allocate_all(harness, waiting).await?;
    let mut table = TextTable::new(["QUEUE", "TASK ASKS FOR", "TASKS SERVED"]);
    let counts: Vec<usize> = groups
        .iter()
        .map(|(path, _)| served.get(&queue(path)).copied().unwrap_or(0))
        .collect();
    for ((path, requests), count) in groups.iter().zip(&counts) {
        table.row([(*path).to_owned(), requests.replace("cpu: 0, ", ""), count.to_string()]);
    }
    output::table(&table)?;
    Ok(counts)
}

fn queue(path: &str) -> String {
    path.replace('/', "-")
}

/// Allocates in a session, one task per query. A queue whose task does not fit drops out.
async fn allocate_all(
    harness: &DemoHarness,
    mut waiting: BTreeMap<String, Vec<String>>,
) -> Result<BTreeMap<String, usize>, CommandError> {
    let mut session = DemoSession::open(harness, "hdrf").await?;
    let mut served = BTreeMap::new();
    while !waiting.is_empty() {
        let request = pb::OrderRequest {
            against: Some(session.evaluation_ref()),
            queues: Some(pb::NameSet {
                names: waiting.keys().cloned().collect(),
            }),
            ..pb::OrderRequest::default()
        };
        let result = session.connection.decisions.order(request).await?.into_inner().result;
        let Some(first) = result.unwrap_or_default().queues.into_iter().next() else {
            break;
        };
        let next = waiting.get_mut(&first.name).and_then(Vec::pop);
        match next {
            Some(task) if session.filter(&task).await?.fit_count > 0 => {
                session.allocate(&task, "n");
                *served.entry(first.name).or_insert(0) += 1;
            }
            _ => {
                waiting.remove(&first.name);
            }
        }
    }
    session.close().await?;
    Ok(served)
}
