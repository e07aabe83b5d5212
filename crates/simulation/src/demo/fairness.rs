//! Two examples of hierarchical DRF: complementary children, and a blocked one.

use std::collections::BTreeMap;

use super::harness::{DemoHarness, allocate, latest_ref, node, session_ref, task};
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
    harness: &mut DemoHarness,
    mut waiting: BTreeMap<String, Vec<String>>,
) -> Result<BTreeMap<String, usize>, CommandError> {
    let open = pb::OpenSessionRequest {
        against: Some(latest_ref("hdrf")),
        ..pb::OpenSessionRequest::default()
    };
    let session = harness
        .connection
        .decisions
        .open_session(open)
        .await?
        .into_inner()
        .session;
    let (mut after, mut served) = (0, BTreeMap::new());
    let mut changes = Vec::new();
    while !waiting.is_empty() {
        let count = changes.len() as u64;
        let request = pb::OrderRequest {
            against: Some(session_ref(&session, after, std::mem::take(&mut changes))),
            queues: Some(pb::NameSet {
                names: waiting.keys().cloned().collect(),
            }),
            ..pb::OrderRequest::default()
        };
        let result = harness.connection.decisions.order(request).await?.into_inner().result;
        after += count;
        let Some(first) = result.unwrap_or_default().queues.into_iter().next() else {
            break;
        };
        let next = waiting.get_mut(&first.name).and_then(Vec::pop);
        match next {
            Some(task) if fits(harness, &session, after, &task).await? => {
                changes.push(allocate(&task, "n"));
                *served.entry(first.name).or_insert(0) += 1;
            }
            _ => {
                waiting.remove(&first.name);
            }
        }
    }
    harness
        .connection
        .decisions
        .close_session(pb::CloseSessionRequest { session })
        .await?;
    Ok(served)
}

async fn fits(harness: &mut DemoHarness, session: &str, after: u64, task: &str) -> Result<bool, CommandError> {
    let request = pb::FilterRequest {
        against: Some(session_ref(session, after, Vec::new())),
        tasks: vec![pb::Task {
            name: task.to_owned(),
            ..pb::Task::default()
        }],
        ..pb::FilterRequest::default()
    };
    let result = harness.connection.decisions.filter(request).await?.into_inner().result;
    Ok(result.unwrap_or_default().items.iter().any(|item| item.fit_count > 0))
}
