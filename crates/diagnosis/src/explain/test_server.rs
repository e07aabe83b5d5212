//! Server with a small cluster, for tests of explanations.

use std::time::Duration;

use super::gather;
use super::report::ExplainReport;
use super::target::ExplainTarget;
use pumice::app::InProcessServer;
use pumice_console::full_sync;
use pumice_console::pinned_client::PinnedClient;
use pumice_protocol::v1 as pb;

/// Policy of Volcano's chart, with these actions and this plugin of quotas.
pub(super) fn policy(actions: &str, quota: &str) -> String {
    format!(
        "actions: \"{actions}\"\ntiers:\n- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]\n- plugins: [{{name: overcommit}}, {{name: {quota}}}, {{name: predicates}}, {{name: nodeorder}}]\n"
    )
}

pub(super) fn amounts(items: &[(&str, &str)]) -> pb::ResourceList {
    let items = items
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()));
    pb::ResourceList { items: items.collect() }
}

pub(super) fn node(name: &str, items: &[(&str, &str)]) -> pb::Node {
    pb::Node {
        name: name.to_owned(),
        allocatable: Some(amounts(&[&[("memory", "64Gi"), ("pods", "110")], items].concat())),
        ..pb::Node::default()
    }
}

pub(super) fn queue(name: &str) -> pb::Queue {
    pb::Queue {
        name: name.to_owned(),
        weight: Some(1),
        state: pb::QueueState::Open.into(),
        ..pb::Queue::default()
    }
}

/// Enqueued job of the queue `q`.
pub(super) fn job(name: &str, min_member: i32) -> pb::Job {
    pb::Job {
        name: name.to_owned(),
        queue: "q".to_owned(),
        min_member,
        phase: pb::JobPhase::Inqueue.into(),
        ..pb::Job::default()
    }
}

pub(super) fn task(name: &str, job: &str, items: &[(&str, &str)]) -> pb::Task {
    pb::Task {
        name: name.to_owned(),
        job: job.to_owned(),
        requests: Some(amounts(items)),
        ..pb::Task::default()
    }
}

pub(super) fn on_node(task: pb::Task, node: &str) -> pb::Task {
    pb::Task {
        node: node.to_owned(),
        status: pb::TaskStatus::Running.into(),
        ..task
    }
}

pub(super) fn of_role(task: pb::Task, role: &str) -> pb::Task {
    pb::Task {
        role: role.to_owned(),
        ..task
    }
}

/// Server with a cluster under a policy.
pub(super) struct ExplainedServer {
    server: InProcessServer,
}

impl ExplainedServer {
    pub(super) async fn start(document: String, cluster: pb::Cluster) -> Self {
        let server = InProcessServer::start().await.unwrap();
        let request = pb::ReloadPolicyRequest {
            document,
            ..pb::ReloadPolicyRequest::default()
        };
        server.connection.clone().policies.reload_policy(request).await.unwrap();
        let mut connection = server.connection.clone();
        let loaded = full_sync::send_full_sync(&mut connection, "test", cluster)
            .await
            .unwrap();
        assert_eq!(loaded.rejected, Vec::<String>::new());
        Self { server }
    }

    pub(super) async fn explain(&self, target: ExplainTarget) -> ExplainReport {
        let connection = self.server.connection.clone();
        let mut client = PinnedClient::open(connection, pb::LatestRef::default()).await.unwrap();
        client.set_time(Duration::from_secs(2_000_000_000));
        let report = gather::explain(&mut client, target, 1).await;
        client.close().await;
        report.unwrap()
    }

    pub(super) async fn job(&self, name: &str) -> ExplainReport {
        self.explain(ExplainTarget::Job(name.to_owned())).await
    }

    /// Result of Place for stored tasks, by the minimums of their job.
    pub(super) async fn place(&self, names: &[String]) -> pb::PlaceResult {
        let request = pb::PlaceRequest {
            groups: vec![pb::TaskGroup {
                names: names.to_vec(),
                ..pb::TaskGroup::default()
            }],
            idle_only: true,
            ..pb::PlaceRequest::default()
        };
        let reply = self.server.connection.clone().decisions.place(request).await.unwrap();
        reply.into_inner().result.unwrap()
    }
}

pub(super) fn hints(report: &ExplainReport) -> String {
    report.verdict.hints.join("\n")
}

pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test)
}

/// Request of one core.
pub(super) const CPU: &[(&str, &str)] = &[("cpu", "1")];
