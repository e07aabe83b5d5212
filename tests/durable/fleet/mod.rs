//! Place with effect COMMIT: schedulers that place and commit in one call.

mod history;
mod wire;

use pumice::server::pb;

use crate::support::records::{job, node, nodes, queue, task};

/// Cluster of equal nodes, and of gangs whose tasks take a core each.
pub(crate) struct FleetOf {
    pub(crate) nodes: usize,
    /// Cores of a node.
    pub(crate) cores: u64,
    pub(crate) jobs: usize,
    /// Tasks of a job.
    pub(crate) gang: usize,
}

impl FleetOf {
    pub(crate) fn node(number: usize) -> String {
        format!("n{number:03}")
    }

    pub(crate) fn job(number: usize) -> String {
        format!("ns/j{number:03}")
    }

    /// Names of the tasks of a job.
    pub(crate) fn tasks(&self, number: usize) -> Vec<String> {
        let name = Self::job(number);
        (0..self.gang).map(|task| format!("{name}-{task:04}")).collect()
    }

    pub(crate) fn cluster(&self) -> pb::Cluster {
        let cores = self.cores.to_string();
        let amounts = [("cpu", cores.as_str()), ("pods", "5000")];
        let jobs = (0..self.jobs).map(|number| pb::Job {
            min_member: i32::try_from(self.gang).unwrap(),
            ..job(&Self::job(number), "q")
        });
        let tasks = (0..self.jobs).flat_map(|number| {
            let of = Self::job(number);
            let names = self.tasks(number).into_iter();
            names.map(move |name| pb::Task {
                uid: format!("{name}-uid"),
                ..task(&name, &of, &[("cpu", "1")])
            })
        });
        pb::Cluster {
            queues: vec![queue("q")],
            jobs: jobs.collect(),
            tasks: tasks.collect(),
            ..nodes(
                (0..self.nodes)
                    .map(|number| node(&Self::node(number), &amounts))
                    .collect(),
            )
        }
    }
}

/// Request that places these tasks and commits them.
pub(crate) fn place_and_commit(key: &str, names: &[String]) -> pb::PlaceRequest {
    pb::PlaceRequest {
        groups: vec![pb::TaskGroup {
            names: names.to_vec(),
            ..pb::TaskGroup::default()
        }],
        effect: pb::PlaceEffect::Commit.into(),
        commit_key: key.to_owned(),
        ..pb::PlaceRequest::default()
    }
}

/// Nodes of the placed tasks, in their order.
pub(crate) fn placed_nodes(response: &pb::PlaceResponse) -> Vec<String> {
    let groups = response.result.iter().flat_map(|result| &result.groups);
    groups
        .filter_map(|group| group.allocated.as_ref())
        .flat_map(|nodes| nodes.names.iter().cloned())
        .collect()
}
