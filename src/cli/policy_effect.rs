//! What two policies decide about one cluster: whose best nodes differ.

use serde::Serialize;

use super::explain::classes::kinds;
use super::local::Local;
use super::output::{self, Table};
use super::{Failure, state_load};
use crate::server::pb;

/// Best nodes that are compared.
const BEST: u32 = 3;
/// Names of the two policies.
const NAMES: [&str; 2] = ["before", "after"];

/// What the two decide.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Effect {
    /// Tasks judged.
    tasks: usize,
    /// Of these, with another best node or other nodes that fit.
    tasks_changed: usize,
    /// The kinds of tasks that are decided differently.
    changed: Vec<Decided>,
}

/// One kind of task, decided twice.
#[derive(Debug, Serialize)]
struct Decided {
    /// The first of its kind.
    task: String,
    count: usize,
    before: Decision,
    after: Decision,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Decision {
    fit: u32,
    /// Best first.
    best: Vec<(String, f64)>,
    /// Why it is not decided.
    problem: Option<String>,
}

/// The tasks of a cluster that wait for a node.
pub(super) fn waiting(cluster: &pb::Cluster) -> Vec<pb::Task> {
    let waits = |task: &&pb::Task| matches!(task.status(), pb::TaskStatus::Pending | pb::TaskStatus::Unspecified);
    cluster.tasks.iter().filter(waits).cloned().collect()
}

/// Decides about these tasks under both documents.
pub(super) async fn effect(
    documents: [&str; 2],
    profile: &str,
    cluster: pb::Cluster,
    tasks: &[pb::Task],
) -> Result<Effect, Failure> {
    let mut local = Local::start().await?;
    let loaded = state_load::send(&mut local.connection, "file", cluster).await?;
    for refused in &loaded.refused {
        output::note(&format!("refused, and so left out: {refused}"));
    }
    let kinds = kinds(tasks, false);
    let asked: Vec<pb::Task> = kinds.iter().filter_map(|kind| kind.tasks.first().cloned()).collect();
    let mut decided = Vec::new();
    for (name, document) in NAMES.into_iter().zip(documents) {
        let request = pb::ReloadPolicyRequest {
            name: name.to_owned(),
            document: document.to_owned(),
            ..pb::ReloadPolicyRequest::default()
        };
        local.connection.policies.reload_policy(request).await?;
        decided.push(decide(&mut local, name, profile, asked.clone()).await?);
    }
    let mut effect = Effect {
        tasks: tasks.len(),
        tasks_changed: 0,
        changed: Vec::new(),
    };
    let mut decided = decided.into_iter();
    let (before, after) = (decided.next().unwrap_or_default(), decided.next().unwrap_or_default());
    for ((kind, before), after) in kinds.iter().zip(before).zip(after) {
        let best = |decision: &Decision| decision.best.first().map(|(node, _)| node.clone());
        if best(&before) == best(&after) && before.fit == after.fit && before.problem == after.problem {
            continue;
        }
        effect.tasks_changed += kind.tasks.len();
        effect.changed.push(Decided {
            task: kind.tasks.first().map(|task| task.name.clone()).unwrap_or_default(),
            count: kind.tasks.len(),
            before,
            after,
        });
    }
    Ok(effect)
}

async fn decide(
    local: &mut Local,
    policy: &str,
    profile: &str,
    tasks: Vec<pb::Task>,
) -> Result<Vec<Decision>, Failure> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let world = pb::World {
        policy: policy.to_owned(),
        profile: profile.to_owned(),
        ..pb::World::default()
    };
    let request = pb::ScoreRequest {
        ground: Some(pb::Ground {
            ground: Some(pb::ground::Ground::World(world)),
            ..pb::Ground::default()
        }),
        tasks,
        with_filter: true,
        limit: Some(BEST),
        filter_detail: pb::FilterDetail::Counts.into(),
        ..pb::ScoreRequest::default()
    };
    let reply = local.connection.decisions.score(request).await?.into_inner();
    let decision = |item: pb::ScoreItem| Decision {
        fit: item.filter.map_or(0, |filter| filter.fit_count),
        best: item
            .nodes
            .unwrap_or_default()
            .names
            .into_iter()
            .zip(item.totals)
            .collect(),
        problem: item.problem.as_ref().map(output::problem),
    };
    Ok(reply
        .answer
        .unwrap_or_default()
        .items
        .into_iter()
        .map(decision)
        .collect())
}

impl Effect {
    /// For people.
    pub(super) fn show(&self) -> Result<(), Failure> {
        let judged = output::count(self.tasks, "task");
        if self.changed.is_empty() {
            return output::line(&format!("decisions: {judged} judged, none decided differently"));
        }
        output::line(&format!(
            "decisions: {judged} judged, {} decided differently",
            self.tasks_changed
        ))?;
        let mut table = Table::new(["TASK", "LIKE IT", "FIT", "BEST BEFORE", "BEST AFTER"]);
        for one in &self.changed {
            table.row([
                one.task.clone(),
                one.count.saturating_sub(1).to_string(),
                format!("{} → {}", one.before.fit, one.after.fit),
                one.before.told(),
                one.after.told(),
            ]);
        }
        output::table(&table)
    }
}

impl Decision {
    fn told(&self) -> String {
        if let Some(problem) = &self.problem {
            return problem.clone();
        }
        let best = self
            .best
            .iter()
            .map(|(node, score)| format!("{node} ({})", output::number(*score)));
        match best.collect::<Vec<_>>() {
            best if best.is_empty() => "no node".to_owned(),
            best => best.join(", "),
        }
    }
}
