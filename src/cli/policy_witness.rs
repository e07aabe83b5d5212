//! Smallest cases of differences between two releases: policy tests that a reader can run.

use std::collections::BTreeSet;
use std::path::Path;

use super::policy_cycles::{self, JobDifference};
use super::policy_diff::{ComparedCluster, ComparedPolicy};
use pumice_console::cluster_record::ClusterRecord;
use pumice_console::{CommandError, output};
use pumice_engine::policy::{Compatibility, ReleaseChange};
use pumice_protocol::v1 as pb;
use pumice_simulation::cycle_outcome::CycleOutcomes;
use pumice_simulation::policy_test::{WitnessFile, record_fields, without_field};

/// Most trials by which one case is made smaller.
const MAX_TRIALS: usize = 2_000;

/// Kind and name of a record.
type WitnessRecord = (&'static str, String);

/// Case that is made smaller: two policies, and the change that tells them apart.
struct Witness<'w> {
    policies: [&'w ComparedPolicy; 2],
    change: &'static ReleaseChange,
    left: Vec<WitnessRecord>,
    /// Cluster as each policy reads it, and as the former reads it with the change.
    clusters: [pb::Cluster; 3],
    trials: usize,
}

/// Writes a file of cases for each change that alone makes a job end differently.
///
/// # Errors
/// The folder cannot be written.
pub(super) fn write(
    policies: [&ComparedPolicy; 2],
    cluster: &ComparedCluster,
    differences: &[JobDifference],
    folder: &Path,
) -> Result<(), CommandError> {
    std::fs::create_dir_all(folder).map_err(|error| CommandError::file_error(folder, &error))?;
    let mut written = BTreeSet::new();
    for change in differences.iter().flat_map(|own| &own.changes) {
        if !written.insert(change.slug()) {
            continue;
        }
        let [from, to] = policies.map(|policy| policy.compatibility.release());
        let trial = from.with_changes([*change], to);
        let clusters = [cluster.under(from)?, cluster.under(to)?, cluster.under(trial)?];
        let mut witness = Witness {
            policies,
            change,
            left: record_keys(&clusters[1]),
            clusters,
            trials: 0,
        };
        let Some(outcomes) = witness.shrink()? else { continue };
        let path = folder.join(format!("{}.yaml", change.slug()));
        let text = witness.file(outcomes)?;
        std::fs::write(&path, text).map_err(|error| CommandError::file_error(&path, &error))?;
        output::line(&format!("{}: {}", path.display(), change.line()))?;
    }
    Ok(())
}

fn record_keys(cluster: &pb::Cluster) -> Vec<WitnessRecord> {
    fn add<R: ClusterRecord>(cluster: &pb::Cluster, keys: &mut Vec<WitnessRecord>) {
        let records = R::list(cluster).iter();
        keys.extend(records.map(|record| (R::KIND, record.name().to_owned())));
    }
    let mut keys = Vec::new();
    add::<pb::Job>(cluster, &mut keys);
    add::<pb::Task>(cluster, &mut keys);
    add::<pb::Node>(cluster, &mut keys);
    add::<pb::Queue>(cluster, &mut keys);
    add::<pb::Namespace>(cluster, &mut keys);
    add::<pb::PriorityClass>(cluster, &mut keys);
    keys
}

fn keep(cluster: &pb::Cluster, left: &[WitnessRecord]) -> pb::Cluster {
    fn retain<R: ClusterRecord>(cluster: &mut pb::Cluster, left: &BTreeSet<(&str, &str)>) {
        R::list_mut(cluster).retain(|record| left.contains(&(R::KIND, record.name())));
    }
    let left: BTreeSet<(&str, &str)> = left.iter().map(|(kind, name)| (*kind, name.as_str())).collect();
    let mut cluster = cluster.clone();
    retain::<pb::Job>(&mut cluster, &left);
    retain::<pb::Task>(&mut cluster, &left);
    retain::<pb::Node>(&mut cluster, &left);
    retain::<pb::Queue>(&mut cluster, &left);
    retain::<pb::Namespace>(&mut cluster, &left);
    retain::<pb::PriorityClass>(&mut cluster, &left);
    cluster
}

impl Witness<'_> {
    /// Leaves records out, many at first, and then fields, while the policies still end differently by the change. Outcomes of
    /// both in what is left; `None`: they do not differ by it.
    fn shrink(&mut self) -> Result<Option<[CycleOutcomes; 2]>, CommandError> {
        let Some(mut outcomes) = self.differ(&self.clusters.clone()) else {
            return Ok(None);
        };
        let mut size = self.left.len().div_ceil(2);
        while size > 0 && self.trials < MAX_TRIALS {
            let mut start = 0;
            while start < self.left.len() && self.trials < MAX_TRIALS {
                let end = (start + size).min(self.left.len());
                let mut fewer = self.left.clone();
                fewer.drain(start..end);
                let tried = self.clusters.each_ref().map(|cluster| keep(cluster, &fewer));
                match self.differ(&tried) {
                    Some(smaller) => (self.left, self.clusters, outcomes) = (fewer, tried, smaller),
                    None => start = end,
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
        for field in record_fields(&self.clusters[1])? {
            if self.trials >= MAX_TRIALS {
                break;
            }
            let [old, new, with] = &self.clusters;
            let tried = [
                without_field(old, &field)?,
                without_field(new, &field)?,
                without_field(with, &field)?,
            ];
            if let Some(smaller) = self.differ(&tried) {
                (self.clusters, outcomes) = (tried, smaller);
            }
        }
        Ok(Some(outcomes))
    }

    /// Outcomes in these clusters, if the policies end differently, and the change alone makes the former do so.
    fn differ(&mut self, [old, new, changed]: &[pb::Cluster; 3]) -> Option<[CycleOutcomes; 2]> {
        self.trials += 1;
        let [before, after] = self.policies;
        let [from, to] = self.policies.map(|policy| policy.compatibility);
        let trial = from.release().with_changes([self.change], to.release());
        let run = |policy: &ComparedPolicy, compatibility: Compatibility, cluster: &pb::Cluster| {
            policy_cycles::outcomes(policy, compatibility, cluster.clone())
                .ok()
                .flatten()
        };
        let (first, last) = (run(before, from, old)?, run(after, to, new)?);
        let with = run(before, Compatibility::Upstream(trial), changed)?;
        (first != last && first != with).then_some([first, last])
    }

    /// The file of cases.
    fn file(&self, outcomes: [CycleOutcomes; 2]) -> Result<String, CommandError> {
        let [old, new, _] = &self.clusters;
        let [first, last] = outcomes;
        let [from, to] = self.policies.map(|policy| policy.compatibility.name());
        let [document, next] = self.policies.map(|policy| policy.loaded.as_str());
        let mut file = WitnessFile::new(&self.change.line(), document, old)?;
        file.case(from, document, old, &first)?;
        file.case(to, next, new, &last)?;
        file.text()
    }
}
