//! Names under which objects of the kind `ResourceQuota` count: Volcano's controllers write them into the minimum of every
//! job, and no plugin of Volcano's kind counts them, wherever they stand.

use pumice::server::pb;

use super::hold;
use crate::support::EmbeddedServer;
use crate::support::records::{amounts, delta, full_sync, job, node, queue, task, task_on_node};

#[test]
fn a_job_as_the_controllers_write_it_is_permitted() {
    let cases = ["cases-proportion.yaml", "cases-capacity.yaml", "cases-overcommit.yaml"];
    hold("quota-names", &cases);
}

/// Plugins that keep quotas or shares, each as a tier of its own.
const PLUGINS: [&str; 7] = [
    "{name: proportion}",
    "{name: capacity}",
    "{name: capacity, enableHierarchy: true}",
    "{name: overcommit}",
    "{name: capacity-card}",
    "{name: drf}",
    "{name: drf, enableHierarchy: true}",
];

/// Names that count nowhere.
const OBJECT_COUNTS: [&str; 2] = ["count/pods", "count/jobs.batch"];
/// Names that the controllers write beside them.
const WRITTEN: [&str; 8] = [
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.nvidia.com/gpu",
    "requests.hugepages-2Mi",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// Amounts that count, and beside them amounts that do not.
fn with(names: &[&str], amount: &str, counted: &[(&'static str, &str)]) -> pb::ResourceList {
    let mut list = amounts(counted);
    list.items
        .extend(names.iter().map(|name| ((*name).to_owned(), amount.to_owned())));
    list
}

/// Node of eight cores, a queue, a running job and one that asks; with names that do not count in each list, or without.
fn cluster(more: bool) -> pb::Cluster {
    let names = if more { &OBJECT_COUNTS[..] } else { &[] };
    let written = if more { &WRITTEN[..] } else { &[] };
    let quota = |amount: &str, cores: &str| Some(with(names, amount, &[("cpu", cores), ("memory", "16Gi")]));
    let minimum = |amount: &str, cores: &str| {
        let mut list = with(names, amount, &[("cpu", cores), ("memory", "2Gi"), ("pods", amount)]);
        list.items.extend(with(written, amount, &[]).items);
        Some(list)
    };
    let limited = pb::Queue {
        capability: quota("0", "8"),
        deserved: quota("1", "4"),
        guarantee: quota("1", "1"),
        parent: "root".to_owned(),
        ..queue("q")
    };
    let mut held = task("ns/runs-0", "ns/runs", &[("cpu", "2"), ("memory", "1Gi")]);
    let mut waits = task("ns/asks-0", "ns/asks", &[("cpu", "1"), ("memory", "1Gi")]);
    for task in [&mut held, &mut waits] {
        task.requests
            .get_or_insert_default()
            .items
            .extend(with(names, "3", &[]).items);
    }
    pb::Cluster {
        nodes: vec![node("n", &[("cpu", "8"), ("memory", "16Gi"), ("pods", "110")])],
        queues: vec![queue("root"), limited],
        jobs: vec![
            pb::Job {
                min_resources: minimum("1", "1"),
                phase: pb::JobPhase::Running.into(),
                min_member: 1,
                ..job("ns/runs", "q")
            },
            pb::Job {
                min_resources: minimum("2", "2"),
                phase: pb::JobPhase::Pending.into(),
                min_member: 2,
                ..job("ns/asks", "q")
            },
        ],
        tasks: vec![task_on_node(held, pb::TaskStatus::Running, "n"), waits],
        ..pb::Cluster::default()
    }
}

/// All that a server says about the queues, the jobs and the waiting task of a cluster.
fn results(server: &EmbeddedServer, plugin: &str, compatibility: &str, cluster: pb::Cluster) -> String {
    let document = format!(
        "actions: enqueue, allocate\ntiers: [{{plugins: [{plugin}]}}]\npumice: {{compatibility: {compatibility}}}\n"
    );
    let reload = pb::ReloadPolicyRequest {
        document,
        ..Default::default()
    };
    server.wire.reload_policy(reload).unwrap();
    let (asks, waits) = (cluster.jobs[1].clone(), cluster.tasks[1].clone());
    server.wire.apply_batch(full_sync("s", 1, cluster)).unwrap();
    let admitted = server.wire.admit(pb::AdmitRequest {
        items: vec![
            pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Job(asks)),
                ..Default::default()
            },
            pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Task(waits.clone())),
                ..Default::default()
            },
        ],
        ..Default::default()
    });
    let admitted = admitted.unwrap().result.unwrap();
    assert!(
        admitted.items.iter().all(|item| item.permitted),
        "{plugin} {compatibility}: {admitted:#?}"
    );
    let fits = server
        .wire
        .filter(pb::FilterRequest {
            tasks: vec![waits],
            resource_fit: pb::ResourceFit::Idle.into(),
            ..Default::default()
        })
        .unwrap()
        .result
        .unwrap();
    let queues = server
        .wire
        .list_queues(pb::ListQueuesRequest::default())
        .unwrap()
        .queues;
    let accounts: Vec<_> = queues.into_iter().map(|queue| queue.accounts).collect();
    let jobs = server.wire.list_jobs(pb::ListJobsRequest::default()).unwrap().jobs;
    let jobs: Vec<_> = jobs.into_iter().map(|job| job.accounts).collect();
    let order = server.wire.order(pb::OrderRequest {
        queues: Some(pb::NameSet::default()),
        jobs: Some(pb::NameSet::default()),
        ..Default::default()
    });
    let order = order.unwrap().result;
    format!("{admitted:#?}\n{fits:#?}\n{accounts:#?}\n{jobs:#?}\n{order:#?}")
}

#[test]
fn no_plugin_counts_what_volcano_drops() {
    for compatibility in ["upstream", "corrected"] {
        for plugin in PLUGINS {
            let [with, without] =
                [true, false].map(|more| results(&EmbeddedServer::start(), plugin, compatibility, cluster(more)));
            assert_eq!(with, without, "{plugin} {compatibility}");
        }
    }
}

#[test]
fn the_controllers_names_come_without_warnings_and_others_with_one() {
    let server = EmbeddedServer::start();
    server
        .wire
        .apply_batch(full_sync("s", 1, pb::Cluster::default()))
        .unwrap();
    let mut written = cluster(true);
    written.tasks.clear();
    let queues = std::mem::take(&mut written.queues);
    let reply = server.wire.apply_batch(delta("s", 2, written));
    assert_eq!(reply.unwrap().warnings, [], "minimums of jobs");
    let quota = pb::Cluster {
        queues,
        ..pb::Cluster::default()
    };
    let reply = server.wire.apply_batch(delta("s", 3, quota)).unwrap();
    let warned: Vec<_> = reply.warnings.iter().map(|own| own.field.as_str()).collect();
    let wanted = ["capability", "deserved", "guarantee"]
        .map(|field| OBJECT_COUNTS.map(|name| format!("batch.put.queues[1].{field}.items[{name}]")));
    let mut wanted = wanted.concat();
    wanted.sort();
    let mut warned: Vec<String> = warned.into_iter().map(str::to_owned).collect();
    warned.sort();
    assert_eq!(warned, wanted);
}
