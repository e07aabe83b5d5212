//! `pumice state show`: the state of a server.

use clap::{Args, ValueEnum};

use super::state_cards;
use pumice_console::cluster_record::ClusterRecord as _;
use pumice_console::listings::RecordListing;
use pumice_console::output::{self, TextTable};
use pumice_console::{ClientArgs, CommandError, OutputFormat, listings};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Kind of records to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ShownRecords {
    /// Nodes with their usage
    Nodes,
    /// Queues
    Queues,
    /// Jobs
    Jobs,
    /// Tasks
    Tasks,
    /// Namespaces with their labels
    Namespaces,
    /// Cards: number of nodes with the card, number of cards, number in use
    Cards,
}

/// Arguments of `pumice state show`.
#[derive(Debug, Args)]
pub(super) struct ShowStateArgs {
    /// Kind of records, such as queues; without it: the server, its sources and policies
    #[arg(value_enum)]
    kind: Option<ShownRecords>,
    /// Names of the records to show [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Shows the records.
pub(super) async fn run(args: ShowStateArgs) -> Result<(), CommandError> {
    let mut connection = args.client.connect().await?;
    let (names, format) = (args.names, args.client.output);
    match args.kind {
        None => server(&mut connection, format).await,
        Some(ShownRecords::Nodes) => {
            let head = ["NODE", "SOURCE", "STATE", "USED / ALLOCATABLE"];
            show::<pb::ListNodesRequest, _>(&mut connection, names, format, &head, node_cells).await
        }
        Some(ShownRecords::Queues) => {
            show::<pb::ListQueuesRequest, _>(&mut connection, names, format, &QUEUE_HEAD, queue_cells).await
        }
        Some(ShownRecords::Jobs) => {
            let head = ["JOB", "SOURCE", "QUEUE", "PHASE", "MIN MEMBER", "ALLOCATED"];
            show::<pb::ListJobsRequest, _>(&mut connection, names, format, &head, job_cells).await
        }
        Some(ShownRecords::Tasks) => {
            let head = ["TASK", "SOURCE", "JOB", "STATUS", "NODE", "REQUESTS"];
            show::<pb::ListTasksRequest, _>(&mut connection, names, format, &head, task_cells).await
        }
        Some(ShownRecords::Namespaces) => {
            let head = ["NAMESPACE", "SOURCE", "LABELS"];
            show::<pb::ListNamespacesRequest, _>(&mut connection, names, format, &head, namespace_cells).await
        }
        Some(ShownRecords::Cards) => state_cards::show(&mut connection, &names, format).await,
    }
}

/// Prints records and their number.
async fn show<L: RecordListing, const COLUMNS: usize>(
    connection: &mut ClientConnection,
    names: Vec<String>,
    format: OutputFormat,
    head: &[&str],
    cells: fn(L::Row) -> [String; COLUMNS],
) -> Result<(), CommandError> {
    let request = L::new(None, names);
    listings::show(connection, request, format, head, cells, Some(L::Record::KIND)).await
}

/// Kind of a store, and the reason why it cannot be written, if it cannot.
fn store_words(store: &pb::StoreStatus) -> String {
    let kind = match store.durability() {
        pb::Durability::Unspecified => "unknown",
        pb::Durability::Memory => "memory, which ends with the server",
        pb::Durability::Disk => "disk",
        pb::Durability::Etcd => "etcd",
        pb::Durability::Kubernetes => "Kubernetes API",
    };
    if store.problem.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}; it cannot be written: {}", store.problem)
    }
}

async fn server(connection: &mut ClientConnection, format: OutputFormat) -> Result<(), CommandError> {
    let info = listings::server_info(connection).await?;
    if format == OutputFormat::Json {
        return output::json(&info);
    }
    let revision = info.revision.map_or(0, |revision| revision.number);
    let slots = info.node_table.map_or(0, |table| table.length);
    output::line(&format!(
        "pumice {}, revision {revision}, node table of {slots}",
        info.version
    ))?;
    if let Some(store) = &info.store {
        output::line(&format!("store: {}", store_words(store)))?;
    }
    output::line(&format!("policies: {}", info.policies.join(", ")))?;
    let plugins = info
        .plugins
        .iter()
        .map(|plugin| format!("{} ({})", plugin.name, plugin.extension_points.join(", ")));
    output::line(&format!("plugins: {}", plugins.collect::<Vec<_>>().join("; ")))?;
    let mut table = TextTable::new(["SOURCE", "SYNCED", "KIND", "EPOCH", "SEQUENCE", "LAST HEARD"]);
    for source in &info.sources {
        let position = source.position.clone().unwrap_or_default();
        let silence = source.silence.map(|silence| format!("{} s ago", silence.seconds));
        table.row([
            position.source,
            synced_word(source).to_owned(),
            if source.kind() == pb::SourceKind::File {
                "file"
            } else {
                "live"
            }
            .to_owned(),
            position.source_epoch.to_string(),
            position.sequence.to_string(),
            silence.unwrap_or_else(|| "never".to_owned()),
        ]);
    }
    output::table(&table)
}

/// Word for whether a source is synced.
fn synced_word(source: &pb::SourceStatus) -> &'static str {
    match (source.synced, source.stale) {
        (true, _) => "yes",
        (false, true) => "stale",
        (false, false) => "no",
    }
}

fn node_cells(status: pb::NodeStatus) -> [String; 4] {
    let node = status.node.clone().unwrap_or_default();
    let (state, usage) = (node_state(&node, &status), node_usage(&node, &status));
    [node.name, status.source, state, usage]
}

fn node_state(node: &pb::Node, status: &pb::NodeStatus) -> String {
    let ready = if node.ready.unwrap_or(true) {
        "ready"
    } else {
        "not ready"
    };
    let mut words = vec![ready.to_owned()];
    if node.unschedulable {
        words.push("unschedulable".to_owned());
    }
    let problems = status.invalid.iter();
    words.extend(problems.map(|problem| format!("invalid: {}", output::problem(problem))));
    words.join("\n")
}

fn node_usage(node: &pb::Node, status: &pb::NodeStatus) -> String {
    let of = |list: &[pb::Amount], name: &str| list.iter().find(|amount| amount.resource == name).map(output::amount);
    let items = node
        .allocatable
        .iter()
        .flat_map(|list| &list.items)
        .filter(|(_, amount)| *amount != "0");
    let lines = items.map(|(name, amount)| {
        let used = of(&status.used, name).unwrap_or_else(|| "0".to_owned());
        let more = node.oversubscription.as_ref().and_then(|list| list.items.get(name));
        let more = more.map(|more| format!(" + {more} oversubscribed")).unwrap_or_default();
        let releasing = of(&status.releasing, name).filter(|releasing| releasing != "0");
        let releasing = releasing
            .map(|releasing| format!(", {releasing} releasing"))
            .unwrap_or_default();
        format!("{name}: {used} / {amount}{more}{releasing}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

const QUEUE_HEAD: [&str; 8] = [
    "QUEUE",
    "SOURCE",
    "STATE",
    "PARENT",
    "WEIGHT",
    "CAPABILITY",
    "DESERVED",
    "GUARANTEE",
];

fn queue_cells(status: pb::QueueStatus) -> [String; 8] {
    let queue = status.queue.unwrap_or_default();
    let state = lower_case(queue.state().as_str_name(), "QUEUE_STATE_");
    [
        queue.name,
        status.source,
        state,
        queue.parent,
        queue.weight.unwrap_or(1).to_string(),
        amounts(queue.capability.as_ref()),
        amounts(queue.deserved.as_ref()),
        amounts(queue.guarantee.as_ref()),
    ]
}

fn job_cells(status: pb::JobStatus) -> [String; 6] {
    let job = status.job.unwrap_or_default();
    let phase = lower_case(job.phase().as_str_name(), "JOB_PHASE_");
    let held = status.allocated.iter();
    let held: Vec<String> = held
        .map(|one| format!("{}: {}", one.resource, output::amount(one)))
        .collect();
    let least = job.min_member.to_string();
    [job.name, status.source, job.queue, phase, least, held.join("\n")]
}

fn task_cells(stored: pb::StoredTask) -> [String; 6] {
    let task = stored.task.unwrap_or_default();
    let assumed = if stored.assumed { " (assumed)" } else { "" };
    let status = lower_case(task.status().as_str_name(), "TASK_STATUS_");
    let requests = amounts(task.requests.as_ref());
    let status = format!("{status}{assumed}");
    [task.name, stored.source, task.job, status, task.node, requests]
}

fn namespace_cells(status: pb::NamespaceStatus) -> [String; 3] {
    let pb::Namespace { name, labels, .. } = status.namespace.unwrap_or_default();
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    [name, status.source, labels.join("\n")]
}

/// Word of a value, such as `running` of `TASK_STATUS_RUNNING`.
fn lower_case(name: &str, prefix: &str) -> String {
    name.trim_start_matches(prefix).to_lowercase()
}

fn amounts(list: Option<&pb::ResourceList>) -> String {
    let items = list.into_iter().flat_map(|list| &list.items);
    items
        .map(|(name, amount)| format!("{name}: {amount}"))
        .collect::<Vec<_>>()
        .join("\n")
}
