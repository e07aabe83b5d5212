//! What every scene needs: the connection, small records, and the count of what was as expected.

use crate::cli::connect::Connection;
use crate::cli::{Failure, output, state_load};
use crate::server::pb;

/// The one source of the demo's records; every scene replaces those of the one before.
const SOURCE: &str = "demo";

/// A server to ask, and what was found out about it.
pub(super) struct Stage {
    pub(super) connection: Connection,
    right: u32,
    wrong: u32,
}

impl Stage {
    pub(super) fn new(connection: Connection) -> Self {
        Stage {
            connection,
            right: 0,
            wrong: 0,
        }
    }

    /// The best node with room for a task.
    pub(super) async fn best_node(&mut self, ground: pb::Ground, task: pb::Task) -> Result<Option<String>, Failure> {
        let name = task.name.clone();
        let request = pb::ScoreRequest {
            ground: Some(ground),
            tasks: vec![task],
            with_filter: true,
            limit: Some(1),
            filter_detail: pb::FilterDetail::Counts.into(),
            ..pb::ScoreRequest::default()
        };
        let answer = self.connection.decisions.score(request).await?.into_inner().answer;
        let item = answer.unwrap_or_default().items.into_iter().next().unwrap_or_default();
        match &item.problem {
            Some(problem) => Err(Failure::said(format!("error: {name}: {}", output::problem(problem)))),
            None => Ok(item.nodes.unwrap_or_default().names.into_iter().next()),
        }
    }

    /// Says and counts whether something is as expected.
    pub(super) fn check(&mut self, what: &str, as_expected: bool) -> Result<(), Failure> {
        if as_expected {
            self.right = self.right.saturating_add(1);
            output::line(&format!("  ok     {what}"))
        } else {
            self.wrong = self.wrong.saturating_add(1);
            output::line(&format!("  WRONG  {what}"))
        }
    }

    /// The last word.
    pub(super) fn end(self) -> Result<(), Failure> {
        output::line(&format!("\n{} checks passed, {} failed", self.right, self.wrong))?;
        if self.wrong == 0 {
            Ok(())
        } else {
            Err(Failure::said("error: the demo did not show what it promises"))
        }
    }

    /// Puts a policy in force under a name; returns its version.
    pub(super) async fn push(&mut self, name: &str, document: &str) -> Result<u64, Failure> {
        let request = pb::ReloadPolicyRequest {
            name: name.to_owned(),
            document: document.to_owned(),
            ..pb::ReloadPolicyRequest::default()
        };
        let reply = self.connection.policies.reload_policy(request).await?.into_inner();
        Ok(reply.policy.map_or(0, |policy| policy.version))
    }

    /// Replaces the cluster.
    pub(super) async fn load(&mut self, cluster: pb::Cluster) -> Result<(), Failure> {
        let loaded = state_load::send(&mut self.connection, SOURCE, cluster).await?;
        match loaded.refused.first() {
            Some(refused) => Err(Failure::said(format!("error: {refused}"))),
            None => Ok(()),
        }
    }

    /// Scores tasks on all nodes, with parts and with Filter's verdict, in the order of the nodes' names.
    pub(super) async fn score(&mut self, policy: &str, tasks: Vec<pb::Task>) -> Result<Vec<pb::ScoreItem>, Failure> {
        let request = pb::ScoreRequest {
            ground: Some(world(policy)),
            tasks,
            with_parts: true,
            ..pb::ScoreRequest::default()
        };
        let reply = self.connection.decisions.score(request).await?.into_inner();
        let items = reply.answer.unwrap_or_default().items;
        match items.iter().find_map(|item| item.problem.as_ref()) {
            Some(problem) => Err(Failure::said(format!("error: {}", output::problem(problem)))),
            None => Ok(items),
        }
    }
}

/// Shared state under a policy.
pub(super) fn world(policy: &str) -> pb::Ground {
    let world = pb::World {
        policy: policy.to_owned(),
        ..pb::World::default()
    };
    pb::Ground {
        ground: Some(pb::ground::Ground::World(world)),
        ..pb::Ground::default()
    }
}

/// A point in a session, after so many changes, with more of them.
pub(super) fn step(session: &str, after: u64, changes: Vec<pb::Change>) -> pb::Ground {
    let step = pb::SessionStep {
        session: session.to_owned(),
        after,
        changes,
    };
    pb::Ground {
        ground: Some(pb::ground::Ground::Session(step)),
        ..pb::Ground::default()
    }
}

/// The change by which a task takes room on a node.
pub(super) fn allocate(task: &str, node: &str) -> pb::Change {
    let placed = pb::TaskOnNode {
        task: task.to_owned(),
        node: node.to_owned(),
        card: String::new(),
    };
    pb::Change {
        change: Some(pb::change::Change::Allocate(placed)),
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
