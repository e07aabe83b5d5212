//! Decisions of two policies about one cluster: tasks whose best nodes differ, and jobs whose quotas or turns do.

use std::collections::BTreeMap;

use serde::Serialize;

use super::local_services::ProgramServices;
use super::policy_jobs::{self, JobImpactRow};
use pumice_console::output::{self, TextTable};
use pumice_console::{CommandError, full_sync, policy_args};
use pumice_console::{LocalServer, LocalServices as _};
use pumice_diagnosis::explain::task_classes::group_equal_tasks;
use pumice_protocol::v1 as pb;

/// Number of best nodes that a report names.
const BEST_NODES: u32 = 3;
/// Names of the two policies.
const POLICY_NAMES: [&str; 2] = ["before", "after"];

/// Tasks that two policies decide differently.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyImpact {
    /// Number of evaluated tasks.
    tasks: usize,
    /// Number of tasks with another best node, or with other nodes that fit.
    tasks_changed: usize,
    /// Classes of equal tasks that are decided differently.
    changed_classes: Vec<ImpactRow>,
    /// Number of evaluated waiting jobs.
    jobs: usize,
    /// Jobs with another permit, another number of tasks that their queues admit, or another turn.
    changed_jobs: Vec<JobImpactRow>,
}

/// A class of equal tasks, decided under both policies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImpactRow {
    /// First task of the class.
    task: String,
    count: usize,
    before: PolicyDecision,
    after: PolicyDecision,
}

/// A node with its score.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct BestNode {
    node: String,
    score: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyDecision {
    fit_count: u32,
    /// Best nodes, the best first.
    best_nodes: Vec<BestNode>,
    /// Problem that prevents a decision.
    problem: Option<String>,
}

/// The tasks of a cluster that wait for a node.
pub(super) fn pending_tasks(cluster: &pb::Cluster) -> Vec<pb::Task> {
    let waits = |task: &&pb::Task| matches!(task.status(), pb::TaskStatus::Pending | pb::TaskStatus::Unspecified);
    cluster.tasks.iter().filter(waits).cloned().collect()
}

/// Decides about these tasks under both documents, each with the cluster as it reads it.
pub(super) async fn compute_impact(
    documents: [&str; 2],
    profile: &str,
    clusters: [pb::Cluster; 2],
    tasks: &[pb::Task],
) -> Result<PolicyImpact, CommandError> {
    let mut local = ProgramServices.start().await?;
    let [_, cluster] = &clusters;
    let jobs = policy_jobs::waiting_jobs(cluster, tasks);
    let kinds = group_equal_tasks(tasks, false);
    let firsts: Vec<&pb::Task> = kinds.iter().filter_map(|kind| kind.tasks.first()).collect();
    let mut decided = Vec::new();
    for ((name, document), cluster) in POLICY_NAMES.into_iter().zip(documents).zip(clusters) {
        let known: BTreeMap<&str, &pb::Task> = cluster.tasks.iter().map(|task| (task.name.as_str(), task)).collect();
        let own = |task: &&pb::Task| {
            known
                .get(task.name.as_str())
                .map_or_else(|| (*task).clone(), |own| (*own).clone())
        };
        let asked: Vec<pb::Task> = firsts.iter().map(own).collect();
        let loaded = full_sync::send_full_sync(&mut local.connection, "file", cluster).await?;
        for refused in loaded.rejected.iter().filter(|_| decided.is_empty()) {
            output::note(&format!("refused, and so left out: {refused}"));
        }
        let request = pb::ReloadPolicyRequest {
            name: name.to_owned(),
            document: document.to_owned(),
            ..pb::ReloadPolicyRequest::default()
        };
        local.connection.policies.reload_policy(request).await?;
        let against = latest_ref(name, profile);
        let of_jobs = policy_jobs::decide_jobs(&mut local, against.clone(), &jobs).await?;
        decided.push((decide_tasks(&mut local, against, asked).await?, of_jobs));
    }
    let mut decided = decided.into_iter();
    let (before, jobs_before) = decided.next().unwrap_or_default();
    let (after, jobs_after) = decided.next().unwrap_or_default();
    let mut effect = PolicyImpact {
        tasks: tasks.len(),
        tasks_changed: 0,
        changed_classes: Vec::new(),
        jobs: jobs.len(),
        changed_jobs: policy_jobs::changed_jobs(&jobs, jobs_before, jobs_after),
    };
    for ((kind, before), after) in kinds.iter().zip(before).zip(after) {
        let best = |decision: &PolicyDecision| decision.best_nodes.first().map(|best| best.node.clone());
        if best(&before) == best(&after) && before.fit_count == after.fit_count && before.problem == after.problem {
            continue;
        }
        effect.tasks_changed += kind.tasks.len();
        effect.changed_classes.push(ImpactRow {
            task: kind.tasks.first().map(|task| task.name.clone()).unwrap_or_default(),
            count: kind.tasks.len(),
            before,
            after,
        });
    }
    Ok(effect)
}

/// Newest state under a policy.
fn latest_ref(policy: &str, profile: &str) -> pb::EvaluationRef {
    let snapshot = pb::LatestRef {
        policy: policy.to_owned(),
        profile: profile.to_owned(),
        ..pb::LatestRef::default()
    };
    policy_args::against(snapshot)
}

async fn decide_tasks(
    local: &mut LocalServer,
    against: pb::EvaluationRef,
    tasks: Vec<pb::Task>,
) -> Result<Vec<PolicyDecision>, CommandError> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let request = pb::ScoreRequest {
        against: Some(against),
        tasks,
        with_filter: true,
        limit: Some(BEST_NODES),
        filter_detail: pb::FilterDetail::Counts.into(),
        ..pb::ScoreRequest::default()
    };
    let reply = local.connection.decisions.score(request).await?.into_inner();
    let decision = |item: pb::ScoreItem| PolicyDecision {
        fit_count: item.filter.map_or(0, |filter| filter.fit_count),
        best_nodes: item
            .nodes
            .unwrap_or_default()
            .names
            .into_iter()
            .zip(item.totals)
            .map(|(node, score)| BestNode { node, score })
            .collect(),
        problem: item.problem.as_ref().map(output::problem),
    };
    Ok(reply
        .result
        .unwrap_or_default()
        .items
        .into_iter()
        .map(decision)
        .collect())
}

impl PolicyImpact {
    /// Prints the report for people.
    pub(super) fn show(&self) -> Result<(), CommandError> {
        self.show_tasks()?;
        if self.jobs > 0 {
            policy_jobs::show(&self.changed_jobs, self.jobs)?;
        }
        Ok(())
    }

    fn show_tasks(&self) -> Result<(), CommandError> {
        let judged = output::count(self.tasks, "task");
        if self.changed_classes.is_empty() {
            return output::line(&format!("decisions: {judged} evaluated, none decided differently"));
        }
        output::line(&format!(
            "decisions: {judged} evaluated, {} decided differently",
            self.tasks_changed
        ))?;
        let mut table = TextTable::new(["TASK", "LIKE IT", "FIT", "BEST BEFORE", "BEST AFTER"]);
        for one in &self.changed_classes {
            table.row([
                one.task.clone(),
                one.count.saturating_sub(1).to_string(),
                format!("{} → {}", one.before.fit_count, one.after.fit_count),
                one.before.summary(),
                one.after.summary(),
            ]);
        }
        output::table(&table)
    }
}

impl PolicyDecision {
    fn summary(&self) -> String {
        if let Some(problem) = &self.problem {
            return problem.clone();
        }
        let best = self
            .best_nodes
            .iter()
            .map(|BestNode { node, score }| format!("{node} ({})", output::number(*score)));
        match best.collect::<Vec<_>>() {
            best if best.is_empty() => "no node".to_owned(),
            best => best.join(", "),
        }
    }
}
