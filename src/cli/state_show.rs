//! `pumice state show`: the state of a server.

use clap::{Args, ValueEnum};

use super::state_cards;
use pumice_console::output::{self, TextTable};
use pumice_console::{ClientArgs, CommandError, OutputFormat, pages};
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
        Some(ShownRecords::Nodes) => nodes(&mut connection, names, format).await,
        Some(ShownRecords::Queues) => queues(&mut connection, names, format).await,
        Some(ShownRecords::Jobs) => jobs(&mut connection, names, format).await,
        Some(ShownRecords::Tasks) => tasks(&mut connection, names, format).await,
        Some(ShownRecords::Namespaces) => namespaces(&mut connection, names, format).await,
        Some(ShownRecords::Cards) => state_cards::show(&mut connection, &names, format).await,
    }
}

/// Reads all pages of a list into one response. The other fields of the response come from the first page.
macro_rules! all_pages {
    ($connection:expr, $call:ident, $request:ident, $records:ident, $names:expr) => {{
        let mut first = None;
        let records = pages::all(async |token| {
            let request = pb::$request {
                names: $names.clone(),
                page: Some(pages::at(token)),
                ..pb::$request::default()
            };
            let mut page = $connection.state.$call(request).await?.into_inner();
            let next = std::mem::take(&mut page.next_page_token);
            let records = std::mem::take(&mut page.$records);
            first.get_or_insert(page);
            Ok((records, next))
        });
        let records = records.await?;
        let mut all = first.unwrap_or_default();
        all.$records = records;
        all
    }};
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
    let info = connection
        .state
        .get_server_info(pb::GetServerInfoRequest {})
        .await?
        .into_inner();
    if format == OutputFormat::Json {
        return output::json("GetServerInfoResponse", &info);
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

async fn nodes(
    connection: &mut ClientConnection,
    names: Vec<String>,
    format: OutputFormat,
) -> Result<(), CommandError> {
    let reply = all_pages!(connection, list_nodes, ListNodesRequest, nodes, names);
    if format == OutputFormat::Json {
        return output::json("ListNodesResponse", &reply);
    }
    let mut table = TextTable::new(["NODE", "SOURCE", "STATE", "USED / ALLOCATABLE"]);
    for status in &reply.nodes {
        let node = status.node.clone().unwrap_or_default();
        table.row([
            node.name.clone(),
            status.source.clone(),
            node_state(status),
            node_usage(&node, status),
        ]);
    }
    output::table(&table)?;
    output::line(&output::count(reply.nodes.len(), "node"))
}

fn node_state(status: &pb::NodeStatus) -> String {
    let mut words = Vec::new();
    let node = status.node.clone().unwrap_or_default();
    words.push(
        if node.ready.unwrap_or(true) {
            "ready"
        } else {
            "not ready"
        }
        .to_owned(),
    );
    if node.unschedulable {
        words.push("unschedulable".to_owned());
    }
    words.extend(
        status
            .invalid
            .iter()
            .map(|problem| format!("invalid: {}", output::problem(problem))),
    );
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

async fn queues(
    connection: &mut ClientConnection,
    names: Vec<String>,
    format: OutputFormat,
) -> Result<(), CommandError> {
    let reply = all_pages!(connection, list_queues, ListQueuesRequest, queues, names);
    if format == OutputFormat::Json {
        return output::json("ListQueuesResponse", &reply);
    }
    let mut table = TextTable::new([
        "QUEUE",
        "SOURCE",
        "STATE",
        "PARENT",
        "WEIGHT",
        "CAPABILITY",
        "DESERVED",
        "GUARANTEE",
    ]);
    for status in &reply.queues {
        let queue = status.queue.clone().unwrap_or_default();
        let state = queue
            .state()
            .as_str_name()
            .trim_start_matches("QUEUE_STATE_")
            .to_lowercase();
        table.row([
            queue.name,
            status.source.clone(),
            state,
            queue.parent,
            queue.weight.unwrap_or(1).to_string(),
            amounts(queue.capability.as_ref()),
            amounts(queue.deserved.as_ref()),
            amounts(queue.guarantee.as_ref()),
        ]);
    }
    output::table(&table)?;
    output::line(&output::count(reply.queues.len(), "queue"))
}

async fn jobs(connection: &mut ClientConnection, names: Vec<String>, format: OutputFormat) -> Result<(), CommandError> {
    let reply = all_pages!(connection, list_jobs, ListJobsRequest, jobs, names);
    if format == OutputFormat::Json {
        return output::json("ListJobsResponse", &reply);
    }
    let mut table = TextTable::new(["JOB", "SOURCE", "QUEUE", "PHASE", "MIN MEMBER", "ALLOCATED"]);
    for status in &reply.jobs {
        let job = status.job.clone().unwrap_or_default();
        let phase = job
            .phase()
            .as_str_name()
            .trim_start_matches("JOB_PHASE_")
            .to_lowercase();
        let held = status
            .allocated
            .iter()
            .map(|one| format!("{}: {}", one.resource, output::amount(one)));
        table.row([
            job.name,
            status.source.clone(),
            job.queue,
            phase,
            job.min_member.to_string(),
            held.collect::<Vec<_>>().join("\n"),
        ]);
    }
    output::table(&table)?;
    output::line(&output::count(reply.jobs.len(), "job"))
}

async fn tasks(
    connection: &mut ClientConnection,
    names: Vec<String>,
    format: OutputFormat,
) -> Result<(), CommandError> {
    let reply = all_pages!(connection, list_tasks, ListTasksRequest, tasks, names);
    if format == OutputFormat::Json {
        return output::json("ListTasksResponse", &reply);
    }
    let mut table = TextTable::new(["TASK", "SOURCE", "JOB", "STATUS", "NODE", "REQUESTS"]);
    for stored in &reply.tasks {
        let task = stored.task.clone().unwrap_or_default();
        let status = task
            .status()
            .as_str_name()
            .trim_start_matches("TASK_STATUS_")
            .to_lowercase();
        let assumed = if stored.assumed { " (assumed)" } else { "" };
        let status = format!("{status}{assumed}");
        let requests = amounts(task.requests.as_ref());
        table.row([task.name, stored.source.clone(), task.job, status, task.node, requests]);
    }
    output::table(&table)?;
    output::line(&output::count(reply.tasks.len(), "task"))
}

async fn namespaces(
    connection: &mut ClientConnection,
    names: Vec<String>,
    format: OutputFormat,
) -> Result<(), CommandError> {
    let reply = all_pages!(connection, list_namespaces, ListNamespacesRequest, namespaces, names);
    if format == OutputFormat::Json {
        return output::json("ListNamespacesResponse", &reply);
    }
    let mut table = TextTable::new(["NAMESPACE", "SOURCE", "LABELS"]);
    for status in &reply.namespaces {
        let pb::Namespace { name, labels } = status.namespace.clone().unwrap_or_default();
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        table.row([name, status.source.clone(), labels.join("\n")]);
    }
    output::table(&table)?;
    output::line(&output::count(reply.namespaces.len(), "namespace"))
}

fn amounts(list: Option<&pb::ResourceList>) -> String {
    let items = list.into_iter().flat_map(|list| &list.items);
    items
        .map(|(name, amount)| format!("{name}: {amount}"))
        .collect::<Vec<_>>()
        .join("\n")
}
