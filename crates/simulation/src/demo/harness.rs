//! Tools of every scene: the connection, small records, and the count of passed and failed checks.

use pumice_console::{CommandError, full_sync, output};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Source of the demo's records. Each scene replaces the records of the previous scene.
const SOURCE: &str = "demo";

/// A server, and the count of checks.
pub(super) struct DemoHarness {
    pub(super) connection: ClientConnection,
    passed: u32,
    failed: u32,
}

impl DemoHarness {
    pub(super) fn new(connection: ClientConnection) -> Self {
        DemoHarness {
            connection,
            passed: 0,
            failed: 0,
        }
    }

    /// Prints a check and adds it to the totals.
    pub(super) fn check(&mut self, what: &str, as_expected: bool) -> Result<(), CommandError> {
        if as_expected {
            self.passed = self.passed.saturating_add(1);
            output::line(&format!("  ok     {what}"))
        } else {
            self.failed = self.failed.saturating_add(1);
            output::line(&format!("  WRONG  {what}"))
        }
    }

    /// Prints the count of checks; fails if one failed.
    pub(super) fn finish(self) -> Result<(), CommandError> {
        output::line(&format!("\n{} checks passed, {} failed", self.passed, self.failed))?;
        if self.failed == 0 {
            Ok(())
        } else {
            Err(CommandError::message("error: the demo did not show what it promises"))
        }
    }

    /// Puts a policy in force under a name; returns its version.
    pub(super) async fn push(&mut self, name: &str, document: &str) -> Result<u64, CommandError> {
        let request = pb::ReloadPolicyRequest {
            name: name.to_owned(),
            document: document.to_owned(),
            ..pb::ReloadPolicyRequest::default()
        };
        let reply = self.connection.policies.reload_policy(request).await?.into_inner();
        Ok(reply.policy.map_or(0, |policy| policy.version))
    }

    /// Replaces the cluster.
    pub(super) async fn load(&mut self, cluster: pb::Cluster) -> Result<(), CommandError> {
        let loaded = full_sync::send_full_sync(&mut self.connection, SOURCE, cluster).await?;
        match loaded.rejected.first() {
            Some(refused) => Err(CommandError::message(format!("error: {refused}"))),
            None => Ok(()),
        }
    }

    /// Replaces the cluster by one with these nodes.
    pub(super) async fn load_nodes(&mut self, nodes: Vec<pb::Node>) -> Result<(), CommandError> {
        self.load(pb::Cluster {
            nodes,
            ..pb::Cluster::default()
        })
        .await
    }

    /// Scores tasks on all nodes, with parts and with Filter's verdict, in the order of the nodes' names.
    pub(super) async fn score(
        &mut self,
        policy: &str,
        tasks: Vec<pb::Task>,
    ) -> Result<Vec<pb::ScoreItem>, CommandError> {
        let request = pb::ScoreRequest {
            against: Some(latest_ref(policy)),
            tasks,
            with_parts: true,
            ..pb::ScoreRequest::default()
        };
        let reply = self.connection.decisions.score(request).await?.into_inner();
        let items = reply.result.unwrap_or_default().items;
        match items.iter().find_map(|item| item.problem.as_ref()) {
            Some(problem) => Err(CommandError::message(format!("error: {}", output::problem(problem)))),
            None => Ok(items),
        }
    }
}

/// Shared state under a policy.
pub(super) fn latest_ref(policy: &str) -> pb::EvaluationRef {
    let snapshot = pb::LatestRef {
        policy: policy.to_owned(),
        ..pb::LatestRef::default()
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Latest(snapshot)),
        ..pb::EvaluationRef::default()
    }
}

/// The best node on which a task fits.
pub(super) async fn best_node(
    connection: &mut ClientConnection,
    evaluation_ref: pb::EvaluationRef,
    task: pb::Task,
) -> Result<Option<String>, CommandError> {
    let name = task.name.clone();
    let request = best_node_request(evaluation_ref, task);
    let result = connection.decisions.score(request).await?.into_inner().result;
    let item = result.unwrap_or_default().items.into_iter().next().unwrap_or_default();
    match &item.problem {
        Some(problem) => Err(CommandError::message(format!(
            "error: {name}: {}",
            output::problem(problem)
        ))),
        None => Ok(item.nodes.unwrap_or_default().names.into_iter().next()),
    }
}

/// Request for the best node on which a task fits.
pub(super) fn best_node_request(evaluation_ref: pb::EvaluationRef, task: pb::Task) -> pb::ScoreRequest {
    pb::ScoreRequest {
        against: Some(evaluation_ref),
        tasks: vec![task],
        with_filter: true,
        limit: Some(1),
        filter_detail: pb::FilterDetail::Counts.into(),
        ..pb::ScoreRequest::default()
    }
}

/// Amounts, written `cpu: 2, memory: 4Gi`.
fn amounts(text: &str) -> pb::ResourceList {
    let items = text.split(", ").filter_map(|item| item.split_once(": "));
    pb::ResourceList {
        items: items
            .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
            .collect(),
    }
}

/// A node that also takes 110 pods.
pub(super) fn node(name: &str, allocatable: &str, used: &str) -> pb::Node {
    pb::Node {
        name: name.to_owned(),
        allocatable: Some(amounts(&format!("{allocatable}, pods: 110"))),
        unattributed_used: (!used.is_empty()).then(|| amounts(used)),
        ..pb::Node::default()
    }
}

/// A pending task.
pub(super) fn task(name: &str, requests: &str) -> pb::Task {
    pb::Task {
        name: name.to_owned(),
        requests: Some(amounts(requests)),
        ..pb::Task::default()
    }
}
