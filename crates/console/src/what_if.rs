//! `--with FILE`: queries against the server's state with hypothetical records, for this query only.
//!
//! The server's records and the active policy are copied into services in this process. A record of the files replaces
//! the server's record of the same name; other records are added. The query then runs in this process. The server is
//! only read.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;

use crate::cluster_record::{ClusterRecord, record_counts};
use crate::pinned_client::{KnownRecords, PinnedClient};
use crate::policy_args::PolicyArgs;
use crate::{ClientArgs, CommandError, LocalServer, LocalServices, full_sync, import_files, listings, output};
use pumice_kubernetes::import::AmountRules;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Owner of all records in the copy.
const SOURCE: &str = "what-if";

/// Files of hypothetical records.
#[derive(Debug, Clone, Default, Args)]
pub struct WhatIfArgs {
    /// File with hypothetical nodes, queues, jobs and pods, for this command only: the server's state does not change.
    /// A record replaces the server's record of the same name, for example a node with more GPUs; other records are
    /// added. Repeatable
    #[arg(long = "with", value_name = "FILE")]
    with: Vec<PathBuf>,
}

/// Services that a question is put to: a server, or a copy of its state with hypothetical records.
#[derive(Debug)]
pub struct QueryTarget {
    /// Connection to the services.
    pub connection: ClientConnection,
    /// Files whose records are laid over the server's.
    pub with: Vec<String>,
    /// The copy lives as long as the question.
    _copy: Option<LocalServer>,
}

impl WhatIfArgs {
    /// Connects to the server, or to a copy of its state that has the files' records.
    pub async fn connect(
        &self,
        client: &ClientArgs,
        policy: &PolicyArgs,
        rules: AmountRules,
        services: &dyn LocalServices,
    ) -> Result<QueryTarget, CommandError> {
        let mut connection = client.connect().await?;
        if self.with.is_empty() {
            return Ok(QueryTarget {
                connection,
                with: Vec::new(),
                _copy: None,
            });
        }
        let rules = rules.of_release(full_sync::pod_release(&mut connection).await?);
        let mut imported = import_files::read_for_query(&self.with, rules, services)?;
        let overlay = std::mem::take(&mut imported.cluster);
        if overlay == pb::Cluster::default() {
            return Err(CommandError::message("error: --with: no record in the files"));
        }
        imported.report_unknown(&mut connection, services).await?;
        let document = active_document(&mut connection, policy).await?;
        let mut cluster = copy_records(connection, policy).await?;
        output::note(&format!(
            "note: what if: {} laid over the server's records, for this question only",
            record_counts(&overlay, false)
        ));
        lay_over(&mut cluster, overlay);
        let copy = start_copy(policy, document, cluster, services).await?;
        Ok(QueryTarget {
            connection: copy.connection.clone(),
            with: self.with.iter().map(|file| file.display().to_string()).collect(),
            _copy: Some(copy),
        })
    }
}

/// Active policy document with all defaults. It therefore always contains its compatibility.
async fn active_document(connection: &mut ClientConnection, policy: &PolicyArgs) -> Result<String, CommandError> {
    let request = pb::GetPolicyRequest {
        name: policy.name().to_owned(),
        ..pb::GetPolicyRequest::default()
    };
    let reply = connection.policies.get_policy(request).await?.into_inner();
    Ok(reply.policy.unwrap_or_default().effective_document)
}

/// Copies the records of one state of the server.
async fn copy_records(connection: ClientConnection, policy: &PolicyArgs) -> Result<pb::Cluster, CommandError> {
    let reserved = reserved_jobs(connection.clone()).await?;
    let mut client = PinnedClient::open(connection, policy.latest_ref()).await?;
    let known = client.fetch_records().await;
    client.close().await;
    Ok(copied_cluster(known?, &reserved))
}

/// Records that a copy of the state is made of. A node or queue whose newest record was rejected accepts nothing new: its last
/// good record is copied as cordoned or closed. A waiting job with a reservation is copied as admitted, and the copy
/// reserves its resources. `reserved`: names of these jobs.
pub(crate) fn copied_cluster(known: KnownRecords, reserved: &BTreeSet<String>) -> pb::Cluster {
    let node = |status: pb::NodeStatus| {
        let mut node = status.node?;
        node.unschedulable |= !status.invalid.is_empty();
        Some(node)
    };
    let queue = |status: pb::QueueStatus| {
        let mut queue = status.queue?;
        if !status.invalid.is_empty() {
            queue.set_state(pb::QueueState::Closed);
        }
        Some(queue)
    };
    let job = |status: pb::JobStatus| {
        let mut job = status.job?;
        let waits = matches!(job.phase(), pb::JobPhase::Unspecified | pb::JobPhase::Pending);
        if waits && reserved.contains(&job.name) {
            job.set_phase(pb::JobPhase::Inqueue);
        }
        Some(job)
    };
    pb::Cluster {
        nodes: known.nodes.into_iter().filter_map(node).collect(),
        queues: known.queues.into_values().filter_map(queue).collect(),
        jobs: known.jobs.into_values().filter_map(job).collect(),
        tasks: known.tasks.into_values().filter_map(|stored| stored.task).collect(),
        namespaces: known.namespaces,
        ..pb::Cluster::default()
    }
}

/// Names of the jobs with a reservation.
pub(crate) async fn reserved_jobs(mut connection: ClientConnection) -> Result<BTreeSet<String>, CommandError> {
    let rows = listings::rows(&mut connection, pb::ListReservationsRequest::default()).await?;
    Ok(rows.into_iter().map(|row| row.job).collect())
}

/// Replaces each record by the record of the same name in `overlay`, and adds the other records of `overlay`.
pub(crate) fn lay_over(cluster: &mut pb::Cluster, mut overlay: pb::Cluster) {
    fn replace<R: ClusterRecord>(cluster: &mut pb::Cluster, overlay: &mut pb::Cluster) {
        let others = std::mem::take(R::list_mut(overlay));
        let replaced: BTreeSet<&str> = others.iter().map(R::name).collect();
        let records = R::list_mut(cluster);
        records.retain(|record| !replaced.contains(record.name()));
        records.extend(others);
    }
    replace::<pb::Node>(cluster, &mut overlay);
    replace::<pb::Queue>(cluster, &mut overlay);
    replace::<pb::Job>(cluster, &mut overlay);
    replace::<pb::Task>(cluster, &mut overlay);
    replace::<pb::Namespace>(cluster, &mut overlay);
}

async fn start_copy(
    policy: &PolicyArgs,
    document: String,
    cluster: pb::Cluster,
    services: &dyn LocalServices,
) -> Result<LocalServer, CommandError> {
    let mut copy = services.start().await?;
    let request = pb::ReloadPolicyRequest {
        name: policy.name().to_owned(),
        document,
        ..pb::ReloadPolicyRequest::default()
    };
    copy.connection.policies.reload_policy(request).await?;
    let loaded = full_sync::send_full_sync(&mut copy.connection, SOURCE, cluster).await?;
    match loaded.rejected.first() {
        Some(rejected) => Err(CommandError::message(format!("error: --with: {rejected}"))),
        None => Ok(copy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_same_name_are_replaced_and_others_added() {
        let node = |name: &str, unschedulable| pb::Node {
            name: name.to_owned(),
            unschedulable,
            ..pb::Node::default()
        };
        let nodes = |nodes| pb::Cluster {
            nodes,
            ..pb::Cluster::default()
        };
        let mut cluster = nodes(vec![node("a", false), node("b", false)]);
        lay_over(&mut cluster, nodes(vec![node("b", true), node("c", false)]));
        assert_eq!(cluster.nodes, [node("a", false), node("b", true), node("c", false)]);
    }
}
