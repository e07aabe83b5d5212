//! Cluster that the console shows after the scenes: queues that borrow, and a gang that waits for quota.

use super::harness::DemoHarness;
use pumice_console::CommandError;
use pumice_kubernetes::import::{AmountRules, ClusterImport};

const POLICY: &str = include_str!("../../examples/queues/policy.yaml");
const CLUSTER: &str = include_str!("../../examples/queues/cluster.yaml");
const NAME: &str = "default";

/// Activates the policy of the example, and replaces the cluster.
pub(super) async fn load(harness: &mut DemoHarness) -> Result<(), CommandError> {
    harness.push(NAME, POLICY).await?;
    let mut import = ClusterImport::new(AmountRules::default());
    import.read("cluster.yaml", CLUSTER)?;
    harness.load(import.finish().cluster).await
}
