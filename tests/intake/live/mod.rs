//! A server that watches a cluster, by a Kubernetes API that a thread of the test speaks.

mod api;
mod breaks;
mod credentials;
mod devices;
mod lies;
mod names;
mod namespace_parts;
mod releases;
mod restarts;

use std::sync::Arc;

use pumice::config::ServerConfig;
use pumice::server::pb;

use self::api::ClusterApi;
use crate::support::EmbeddedServer;
use crate::support::records::hypothetical_task;
use crate::support::{TestDirectory, until};

/// Server that watches an API.
struct WatchingServer {
    server: EmbeddedServer,
    folder: TestDirectory,
}

impl WatchingServer {
    /// Starts a server over the objects of these namespaces (none: of all), and waits until it shows them.
    fn start(api: &ClusterApi, namespaces: &[&str]) -> Self {
        let mut config = ServerConfig::on_free_ports();
        config.cluster.namespaces = namespaces.iter().copied().map(Arc::from).collect();
        Self::start_with(config, &api.kubeconfig())
    }

    /// Starts a server with these settings and this kubeconfig, and waits until it shows the cluster.
    fn start_with(mut config: ServerConfig, kubeconfig: &str) -> Self {
        let folder = TestDirectory::new();
        config.cluster.is_watched = true;
        config.cluster.kubeconfig = Some(folder.file("kubeconfig", kubeconfig));
        let server = EmbeddedServer::with(config);
        until("the server shows the cluster", || server.page("/readyz").0 == 200);
        Self { server, folder }
    }

    /// Number of tasks that the server has.
    fn tasks(&self) -> usize {
        let tasks = self.server.wire.list_tasks(pb::ListTasksRequest::default());
        tasks.unwrap().tasks.len()
    }

    /// Names of the jobs that the server has.
    fn jobs(&self) -> Vec<String> {
        let jobs = self.server.wire.list_jobs(pb::ListJobsRequest::default()).unwrap().jobs;
        jobs.into_iter().filter_map(|job| job.job).map(|job| job.name).collect()
    }

    /// Names of the queues that the server has.
    fn queues(&self) -> Vec<String> {
        let queues = self
            .server
            .wire
            .list_queues(pb::ListQueuesRequest::default())
            .unwrap()
            .queues;
        queues
            .into_iter()
            .filter_map(|queue| queue.queue)
            .map(|queue| queue.name)
            .collect()
    }

    fn has_node(&self, name: &str) -> bool {
        let nodes = self.server.wire.list_nodes(pb::ListNodesRequest::default());
        let mut nodes = nodes.unwrap().nodes.into_iter().filter_map(|node| node.node);
        nodes.any(|node| node.name == name)
    }

    fn node(&self, name: &str) -> pb::Node {
        let nodes = self
            .server
            .wire
            .list_nodes(pb::ListNodesRequest::default())
            .unwrap()
            .nodes;
        let found = nodes.into_iter().filter_map(|node| node.node);
        found.into_iter().find(|node| node.name == name).unwrap()
    }

    fn task(&self, name: &str) -> pb::Task {
        let tasks = self
            .server
            .wire
            .list_tasks(pb::ListTasksRequest::default())
            .unwrap()
            .tasks;
        let found = tasks.into_iter().filter_map(|task| task.task);
        found.into_iter().find(|task| task.name == name).unwrap()
    }

    /// Condition of the watch, as the probe of the server tells it.
    fn condition(&self) -> String {
        self.server.page("/readyz?verbose").1
    }
}

/// Number of nodes that a task fits with these requests.
fn fit_count(server: &EmbeddedServer, requests: &[(&str, &str)]) -> u32 {
    let query = pb::FilterRequest {
        tasks: vec![hypothetical_task(requests)],
        ..pb::FilterRequest::default()
    };
    let mut result = server.wire.filter(query).unwrap().result.unwrap();
    result.items.remove(0).fit_count
}
