//! Queries of a load: made once from the server's own nodes, then sent in turn.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use tonic::{Request, Status};
use tonic_types::StatusExt as _;

use pumice_console::{CommandError, listings, output};
use pumice_engine::model::quantity::Quantity;
use pumice_engine::model::resource_name::amount;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Number of nodes from which task sizes are taken.
const SAMPLED_NODES: u32 = 1000;
/// Number of nodes that a Score query names.
const BEST_NODES: u32 = 10;

/// Kind of query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum BenchQuery {
    /// Filter without tasks: the cost of an empty call
    Empty,
    /// Filter of all nodes
    Filter,
    /// Score with Filter: the ten best nodes
    Score,
    /// Order of all queues and jobs
    Order,
    /// Alternating Filter and Score; every tenth query is Order
    #[default]
    Mixed,
}

/// Cause of a failed call: its gRPC code, and a reason if there is one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ErrorCause {
    pub(super) code: String,
    pub(super) reason: String,
}

impl BenchQuery {
    /// True if the query is about tasks.
    pub(super) fn has_tasks(self) -> bool {
        !matches!(self, BenchQuery::Empty | BenchQuery::Order)
    }

    /// Query of a call, by its number.
    fn at_call(self, number: u64) -> BenchQuery {
        match (self, number % 10, number % 2) {
            (BenchQuery::Mixed, 9, _) => BenchQuery::Order,
            (BenchQuery::Mixed, _, 0) => BenchQuery::Filter,
            (BenchQuery::Mixed, _, _) => BenchQuery::Score,
            (kind, _, _) => kind,
        }
    }
}

/// Queries, made once and sent in turn.
#[derive(Debug)]
pub(super) struct BenchQueries {
    kind: BenchQuery,
    filters: Vec<pb::FilterRequest>,
    scores: Vec<pb::ScoreRequest>,
    order: pb::OrderRequest,
}

impl BenchQueries {
    /// Queries with `tasks_per_query` tasks each, starting at each task in turn.
    pub(super) fn new(
        kind: BenchQuery,
        evaluation_ref: &pb::EvaluationRef,
        tasks: &[pb::Task],
        tasks_per_query: usize,
    ) -> Self {
        let window = |at: usize| tasks.iter().cycle().skip(at).take(tasks_per_query).cloned().collect();
        let filter = |tasks: Vec<pb::Task>| pb::FilterRequest {
            against: Some(evaluation_ref.clone()),
            tasks,
            node_encoding: pb::NodeEncoding::Slots.into(),
            samples: Some(0),
            ..pb::FilterRequest::default()
        };
        let score = |tasks: Vec<pb::Task>| pb::ScoreRequest {
            against: Some(evaluation_ref.clone()),
            tasks,
            node_encoding: pb::NodeEncoding::Slots.into(),
            with_filter: true,
            limit: Some(BEST_NODES),
            samples: Some(0),
            filter_detail: pb::FilterDetail::Counts.into(),
            ..pb::ScoreRequest::default()
        };
        let windows = || (0..tasks.len()).map(window);
        let filters = if kind == BenchQuery::Empty {
            vec![filter(Vec::new())]
        } else {
            windows().map(filter).collect()
        };
        BenchQueries {
            kind,
            filters,
            scores: windows().map(score).collect(),
            order: pb::OrderRequest {
                against: Some(evaluation_ref.clone()),
                queues: Some(pb::NameSet::default()),
                jobs: Some(pb::NameSet::default()),
                ..pb::OrderRequest::default()
            },
        }
    }

    /// Query of a number.
    pub(super) fn query_at(&self, number: u64) -> BenchQuery {
        self.kind.at_call(number)
    }

    /// Sends the query of a number and reads its result to the end. Returns the kind of query and its outcome.
    pub(super) async fn call(
        &self,
        connection: &mut ClientConnection,
        number: u64,
        timeout: Duration,
    ) -> (BenchQuery, Result<(), ErrorCause>) {
        let kind = self.kind.at_call(number);
        let result = tokio::time::timeout(timeout, self.send(connection, kind, number, timeout));
        let outcome = match result.await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(problem))) => Err(ErrorCause {
                code: "problem of an item".to_owned(),
                reason: problem.reason,
            }),
            Ok(Err(status)) => Err(ErrorCause {
                code: format!("{:?}", status.code()),
                reason: status
                    .get_details_error_info()
                    .map(|info| info.reason)
                    .unwrap_or_default(),
            }),
            Err(_) => Err(ErrorCause {
                code: "DeadlineExceeded".to_owned(),
                reason: String::new(),
            }),
        };
        (kind, outcome)
    }

    async fn send(
        &self,
        connection: &mut ClientConnection,
        kind: BenchQuery,
        number: u64,
        timeout: Duration,
    ) -> Result<Option<pb::Problem>, Status> {
        let decisions = &mut connection.decisions;
        match kind {
            BenchQuery::Score => {
                let request = with_timeout(request_at(&self.scores, number), timeout);
                let result = decisions.score(request).await?.into_inner().result.unwrap_or_default();
                Ok(result.items.into_iter().find_map(|item| item.problem))
            }
            BenchQuery::Order => {
                let result = decisions
                    .order(with_timeout(self.order.clone(), timeout))
                    .await?
                    .into_inner();
                let result = result.result.unwrap_or_default();
                let mut ranks = result.queues.into_iter().chain(result.jobs);
                Ok(ranks.find_map(|rank| rank.problem))
            }
            BenchQuery::Empty | BenchQuery::Filter | BenchQuery::Mixed => {
                let request = with_timeout(request_at(&self.filters, number), timeout);
                let result = decisions.filter(request).await?.into_inner().result.unwrap_or_default();
                Ok(result.items.into_iter().find_map(|item| item.problem))
            }
        }
    }
}

/// Query whose turn it is.
fn request_at<Q: Clone + Default>(queries: &[Q], number: u64) -> Q {
    let count = u64::try_from(queries.len()).unwrap_or(u64::MAX).max(1);
    let at = usize::try_from(number % count).unwrap_or_default();
    queries.get(at).cloned().unwrap_or_default()
}

fn with_timeout<Q>(query: Q, timeout: Duration) -> Request<Q> {
    let mut request = Request::new(query);
    // The server abandons work whose caller has gone.
    request.set_timeout(timeout);
    request
}

/// Number of nodes on the server. The length of the node table is larger, because removed nodes keep their slots.
pub(super) async fn count_nodes(connection: &mut ClientConnection) -> Result<u32, CommandError> {
    let nodes = listings::rows(connection, pb::ListNodesRequest::default()).await?;
    Ok(u32::try_from(nodes.len()).unwrap_or(u32::MAX))
}

/// Tasks of different sizes, as fractions of the server's nodes; equal nodes give equal tasks.
pub(super) async fn sample_tasks(
    connection: &mut ClientConnection,
    classes: usize,
) -> Result<Vec<pb::Task>, CommandError> {
    let request = pb::ListNodesRequest {
        page: Some(pb::Page {
            size: SAMPLED_NODES,
            ..pb::Page::default()
        }),
        ..pb::ListNodesRequest::default()
    };
    let nodes = connection.state.list_nodes(request).await?.into_inner().nodes;
    let nodes: Vec<pb::Node> = nodes.into_iter().filter_map(|status| status.node).collect();
    if nodes.is_empty() {
        return Err(CommandError::message(
            "error: the server knows no node to ask about\nhint: load a cluster with `pumice state load`, or ask \
             --query empty",
        ));
    }
    // A step without a common divisor with most numbers visits the nodes in a mixed order.
    let picks = (0..classes).filter_map(|at| Some((at, nodes.get(at.wrapping_mul(7919) % nodes.len())?)));
    Ok(picks.map(|(at, node)| task_from_node(at, node)).collect())
}

/// Task of a fraction of a node: 1/64 to 1/8 of its cpu and memory; every fourth task requests a device.
fn task_from_node(at: usize, node: &pb::Node) -> pb::Task {
    let allocatable = node.allocatable.clone().unwrap_or_default().items;
    let of = |name: &str| {
        let quantity = Quantity::parse(allocatable.get(name)?).ok()?;
        amount(name, &quantity).ok()
    };
    let part = [64, 32, 16, 8].get(at % 4).copied().unwrap_or(64);
    let mut items = BTreeMap::new();
    if let Some(cpu) = of("cpu") {
        items.insert("cpu".to_owned(), format!("{}m", (cpu / part).max(1)));
    }
    if let Some(memory) = of("memory") {
        items.insert("memory".to_owned(), (memory / part).max(1).to_string());
    }
    let device = allocatable
        .keys()
        .find(|name| name.contains('/') && of(name).is_some_and(|amount| amount > 0));
    if let Some(device) = device.filter(|_| at % 4 == 3) {
        items.insert(device.clone(), "1".to_owned());
    }
    pb::Task {
        requests: Some(pb::ResourceList { items }),
        ..pb::Task::default()
    }
}

/// Size of the queries, in a few words.
pub(super) fn describe_size(kind: BenchQuery, tasks_per_query: usize, nodes: u32) -> String {
    let nodes = output::count(usize::try_from(nodes).unwrap_or(usize::MAX), "node");
    if kind.has_tasks() {
        format!("{} each, {nodes}", output::count(tasks_per_query, "task"))
    } else {
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_console::args;

    #[test]
    fn mixed_queries_alternate() {
        let kinds: Vec<String> = (0..10)
            .map(|number| args::value_name(&BenchQuery::Mixed.at_call(number)))
            .collect();
        let turns = [
            "filter", "score", "filter", "score", "filter", "score", "filter", "score", "filter", "order",
        ];
        assert_eq!(kinds, turns);
        assert_eq!(BenchQuery::Score.at_call(9), BenchQuery::Score);
    }

    #[test]
    fn tasks_are_parts_of_nodes() {
        let amounts = [
            ("cpu", "64"),
            ("memory", "64Gi"),
            ("nvidia.com/gpu", "8"),
            ("pods", "110"),
        ];
        let items = amounts.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        let node = pb::Node {
            allocatable: Some(pb::ResourceList { items: items.into() }),
            ..pb::Node::default()
        };
        let items = |at| task_from_node(at, &node).requests.unwrap().items;
        assert_eq!(items(0).get("cpu").map(String::as_str), Some("1000m"));
        assert_eq!(items(0).get("memory").map(String::as_str), Some("1073741824"));
        assert!(!items(0).contains_key("nvidia.com/gpu"));
        assert_eq!(items(3).get("nvidia.com/gpu").map(String::as_str), Some("1"));
    }

    #[test]
    fn queries_take_tasks_in_turn() {
        let task = |name: &str| pb::Task {
            name: name.to_owned(),
            ..pb::Task::default()
        };
        let tasks = [task("a"), task("b"), task("c")];
        let queries = BenchQueries::new(BenchQuery::Filter, &pb::EvaluationRef::default(), &tasks, 2);
        let names = |number| {
            let tasks = request_at(&queries.filters, number).tasks;
            tasks.into_iter().map(|task| task.name).collect::<String>()
        };
        assert_eq!([names(0), names(2), names(4)], ["ab", "ca", "bc"]);
    }
}
