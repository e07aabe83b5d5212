//! One whole cycle of a cluster under two policies: jobs that it treats differently, and the rules by which it does.

use std::collections::BTreeSet;

use serde::Serialize;

use super::local_services::ProgramServices;
use super::policy_diff::{ComparedCluster, ComparedPolicy};
use pumice_console::{CommandError, LocalServices as _};
use pumice_engine::policy::{Compatibility, Release, ReleaseChange};
use pumice_protocol::v1 as pb;
use pumice_simulation::cycle_outcome::{self, CycleOutcomes, JobOutcome};

/// Job that two cycles end differently for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobDifference {
    pub(super) job: String,
    pub(super) before: JobOutcome,
    pub(super) after: JobOutcome,
    /// Changes between the releases each of which makes the job end otherwise than before, or without which it would not end
    /// as after. Empty: the documents differ, or it takes several changes.
    #[serde(serialize_with = "lines")]
    pub(super) changes: Vec<&'static ReleaseChange>,
}

impl JobDifference {
    /// Numbers of the changes.
    pub(super) fn cause(&self) -> String {
        let numbers: BTreeSet<&str> = self.changes.iter().map(|change| change.number).collect();
        numbers.into_iter().collect::<Vec<_>>().join(", ")
    }
}

fn lines<S: serde::Serializer>(changes: &[&'static ReleaseChange], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(changes.iter().map(|change| change.line()))
}

/// Jobs for which one cycle of each policy ends differently, by name. `None`: a policy has no actions, as one of
/// kube-scheduler, or the cluster has an invalid record.
///
/// # Errors
/// A document cannot be compiled, or a cycle ends where the reference would crash.
pub(super) fn compare(
    [before, after]: [&ComparedPolicy; 2],
    cluster: &ComparedCluster,
) -> Result<Option<Vec<JobDifference>>, CommandError> {
    let own = |policy: &ComparedPolicy| {
        if let Ok(compiled) = policy.compile(policy.compatibility) {
            cycle_outcome::note_unsimulated_actions(&compiled.policy, &policy.title);
        }
        outcomes(
            policy,
            policy.compatibility,
            cluster.under(policy.compatibility.release())?,
        )
    };
    let (Some(old), Some(new)) = (own(before)?, own(after)?) else {
        return Ok(None);
    };
    let mut differences = differences(&old, &new);
    if differences.is_empty() || !before.compatibility.is_upstream() || !after.compatibility.is_upstream() {
        return Ok(Some(differences));
    }
    let [from, to] = [before, after].map(|policy| policy.compatibility.release());
    // A trial that crashes, or whose release rejects the document, shows nothing.
    let under = |policy: &ComparedPolicy, trial: Release| -> Result<Option<CycleOutcomes>, CommandError> {
        let cluster = cluster.under(trial)?;
        Ok(outcomes(policy, Compatibility::Upstream(trial), cluster).unwrap_or(None))
    };
    for change in from.changes_between(to) {
        if let Some(with) = under(before, from.with_changes([change], to))? {
            let differing = differences
                .iter_mut()
                .filter(|own| with.get(&own.job) != old.get(&own.job));
            differing.for_each(|own| own.changes.push(change));
        }
    }
    let mut unexplained: Vec<&mut JobDifference> =
        differences.iter_mut().filter(|own| own.changes.is_empty()).collect();
    if unexplained.is_empty() {
        return Ok(Some(differences));
    }
    for change in from.changes_between(to) {
        if let Some(without) = under(after, to.with_changes([change], from))? {
            let differing = unexplained
                .iter_mut()
                .filter(|own| without.get(&own.job) != new.get(&own.job));
            differing.for_each(|own| own.changes.push(change));
        }
    }
    Ok(Some(differences))
}

fn differences(old: &CycleOutcomes, new: &CycleOutcomes) -> Vec<JobDifference> {
    let jobs: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let of = |all: &CycleOutcomes, job: &str| all.get(job).cloned().unwrap_or_default();
    let each = jobs.into_iter().map(|job: &String| JobDifference {
        job: job.clone(),
        before: of(old, job),
        after: of(new, job),
        changes: Vec::new(),
    });
    each.filter(|own| own.before != own.after).collect()
}

/// Outcomes of one cycle. `None`: the policy has no actions, or the cluster has an invalid record.
///
/// # Errors
/// The document cannot be compiled, or the reference crashes in the cycle.
pub(super) fn outcomes(
    policy: &ComparedPolicy,
    compatibility: Compatibility,
    cluster: pb::Cluster,
) -> Result<Option<CycleOutcomes>, CommandError> {
    let failed = |message: String| CommandError::message(format!("error: a cycle of the policy: {message}"));
    let compiled = policy.compile(compatibility);
    let policy = compiled
        .map_err(|report| failed(format!("{:?}", report.diagnostics)))?
        .policy;
    let Some(state) = ProgramServices.read_cluster(cluster, compatibility) else {
        return Ok(None);
    };
    cycle_outcome::run(&policy, state).map_err(|problem| failed(problem.message))
}
