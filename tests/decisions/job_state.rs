//! State of jobs, order of tasks, and the time of a decision, over gRPC.

use pumice::server::pb;
use serde_json::json;

use crate::support::EmbeddedServer;
use crate::support::records::{job, node, queue, task, task_on_node};

const STOCK: &str = "[{\"plugins\": [{\"name\": \"priority\"}, {\"name\": \"gang\"}, {\"name\": \"conformance\"}]}, {\"plugins\": \
                     [{\"name\": \"overcommit\"}, {\"name\": \"sla\", \"arguments\": {\"sla-waiting-time\": \"1h\"}}]}]";

fn against(cluster: &pb::Cluster, tiers: &str, compatibility: &str, now: Option<i64>) -> pb::EvaluationRef {
    let inline = pb::InlineSnapshot {
        cluster: Some(cluster.clone()),
        policy_document: format!("actions: \"enqueue, allocate\"\ntiers: {tiers}\n"),
        compatibility: compatibility.to_owned(),
        ..pb::InlineSnapshot::default()
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
        now: now.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }),
        ..pb::EvaluationRef::default()
    }
}

/// A gang of two with one task that runs and one that fails, or needs nothing.
fn gang(second: pb::Task) -> pb::Cluster {
    let running = task_on_node(task("a/j-w-9", "a/j", &[("cpu", "1")]), pb::TaskStatus::Running, "n");
    pb::Cluster {
        namespaces: Vec::new(),
        nodes: vec![node("n", &[("cpu", "8")])],
        queues: vec![queue("q")],
        jobs: vec![pb::Job {
            min_member: 2,
            creation_time: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            ..job("a/j", "q")
        }],
        tasks: vec![running, second],
        ..pb::Cluster::default()
    }
}

fn order(server: &EmbeddedServer, against: pb::EvaluationRef, plugins: &[&str]) -> pb::OrderResponse {
    let reply = server.wire.order(pb::OrderRequest {
        against: Some(against),
        jobs: Some(pb::NameSet::default()),
        tasks: Some(pb::NameSet::default()),
        plugins: plugins.iter().map(|name| (*name).to_owned()).collect(),
        ..pb::OrderRequest::default()
    });
    reply.unwrap()
}

fn state(reply: pb::OrderResponse) -> pb::JobState {
    reply.result.unwrap().jobs.remove(0).state.unwrap()
}

#[test]
fn a_job_that_needs_nothing_more_is_not_starving() {
    let server = EmbeddedServer::start();
    let failed = task_on_node(task("a/j-w-10", "a/j", &[("cpu", "1")]), pb::TaskStatus::Failed, "");
    let needless = task("a/j-w-10", "a/j", &[]);
    let starving = |second: &pb::Task, compatibility: &str, plugin: &str| {
        let reply = order(
            &server,
            against(&gang(second.clone()), STOCK, compatibility, None),
            &[plugin],
        );
        state(reply).opinions[0].starving.unwrap()
    };
    // A task without requests still needs a place, and its node may be full by the number of pods.
    assert!(starving(&needless, "upstream", "gang") && starving(&needless, "corrected", "gang"));
    assert!(starving(&needless, "corrected", "priority"));
    assert!(starving(&failed, "upstream", "priority") && !starving(&failed, "corrected", "priority"));
    let pending = task("a/j-w-10", "a/j", &[("cpu", "1")]);
    for plugin in ["gang", "priority"] {
        assert!(starving(&pending, "corrected", plugin), "{plugin}");
    }
}

#[test]
fn tiers_reduce_opinions_to_one_state() {
    let server = EmbeddedServer::start();
    let cluster = gang(task("a/j-w-10", "a/j", &[("cpu", "1")]));
    let of = |tiers: &str, now: Option<i64>| state(order(&server, against(&cluster, tiers, "corrected", now), &[]));
    let found = of(STOCK, None);
    assert!(found.valid && !found.ready && !found.pipelined && found.starving && found.opinions.is_empty());
    // gang rejects in its tier before sla is asked; without gang the job keeps its place once it has waited for an hour.
    assert!(!of(STOCK, Some(3_600)).pipelined);
    let off = STOCK.replace(
        "{\"name\": \"gang\"}",
        "{\"name\": \"gang\", \"enableJobPipelined\": false, \"enableJobReady\": false}",
    );
    let found = of(&off, Some(3_600));
    assert!(found.pipelined && found.ready && found.starving);
    // No switch turns objections off.
    let lone = pb::Cluster {
        tasks: cluster.tasks[..1].to_vec(),
        ..cluster.clone()
    };
    let found = state(order(&server, against(&lone, &off, "upstream", None), &[]));
    assert_eq!((found.valid, &*found.reason), (false, "NotEnoughTasks"));
    assert_eq!(
        found.message,
        "Not enough valid tasks for gang-scheduling, valid: 1, min: 2"
    );
    let other = order(
        &server,
        against(&cluster, "[{\"plugins\": [{\"name\": \"drf\"}]}]", "corrected", None),
        &[],
    );
    assert_eq!(other.result.unwrap().jobs[0].state, None, "no plugin has an opinion");
}

#[test]
fn tasks_are_ordered_by_priority_then_number() {
    let server = EmbeddedServer::start();
    let mut cluster = gang(task("a/j-w-10", "a/j", &[("cpu", "1")]));
    cluster.tasks.push(pb::Task {
        priority: 5,
        ..task("a/late", "a/j", &[])
    });
    let names = |compatibility: &str| {
        let reply = order(&server, against(&cluster, STOCK, compatibility, None), &[]);
        let ranks = reply.result.unwrap().tasks.into_iter();
        ranks.map(|rank| rank.name).collect::<Vec<_>>()
    };
    for compatibility in ["upstream", "corrected"] {
        assert_eq!(names(compatibility), ["a/late", "a/j-w-9", "a/j-w-10"]);
    }
    let reply = server.wire.order(pb::OrderRequest {
        against: Some(against(&cluster, STOCK, "corrected", None)),
        tasks: Some(pb::NameSet {
            names: vec!["a/none".to_owned(), "a/late".to_owned()],
        }),
        ..pb::OrderRequest::default()
    });
    let tasks = reply.unwrap().result.unwrap().tasks;
    assert_eq!(
        (&*tasks[0].name, tasks[0].keys[0].values.as_slice()),
        ("a/late", &[-5.0][..])
    );
    assert_eq!(tasks[1].problem.as_ref().unwrap().reason, "TASK_UNKNOWN");
}

#[test]
fn the_time_comes_with_the_request_and_is_recorded() {
    let server = EmbeddedServer::start();
    let cluster = gang(task("a/j-w-10", "a/j", &[("cpu", "1")]));
    let vote = |now: Option<i64>| {
        let reply = server.wire.admit(pb::AdmitRequest {
            against: Some(against(&cluster, STOCK, "upstream", now)),
            items: vec![pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Job(pb::Job {
                    name: "a/j".to_owned(),
                    ..pb::Job::default()
                })),
                attempt: 0,
            }],
            plugins: vec!["sla".to_owned()],
            ..pb::AdmitRequest::default()
        });
        let reply = reply.unwrap();
        let (metadata, item) = (reply.metadata.unwrap(), reply.result.unwrap().items.remove(0));
        let missing: Vec<String> = metadata.not_evaluated.into_iter().map(|one| one.name).collect();
        let recorded = metadata.now.map(|now| now.seconds);
        json!([item.votes[0].vote, recorded, missing])
    };
    assert_eq!(vote(None), json!([0, null, ["sla"]]));
    assert_eq!(vote(Some(3_599)), json!([0, 3_599, []]));
    assert_eq!(vote(Some(3_600)), json!([1, 3_600, []]));
    let ordered = order(&server, against(&cluster, STOCK, "upstream", None), &["gang"]);
    assert!(ordered.metadata.unwrap().not_evaluated.is_empty(), "gang reads no time");
}

#[test]
fn fields_of_gangs_are_stored_and_listed() {
    let server = EmbeddedServer::start();
    let sent = pb::Task {
        role: "worker".to_owned(),
        priority_class_name: "system-node-critical".to_owned(),
        scheduling_gates: vec!["wait".to_owned()],
        gated: true,
        sub_group: "ranks/0".to_owned(),
        ..task("a/j-w-10", "a/j", &[("cpu", "1")])
    };
    let mut cluster = gang(sent.clone());
    cluster.jobs[0].min_task_member = [("worker".to_owned(), 2)].into();
    cluster.jobs[0].sub_group_policies = vec![pb::SubGroupPolicy {
        name: "ranks".to_owned(),
        size: Some(2),
        min_groups: None,
        ..pb::SubGroupPolicy::default()
    }];
    let listed = server.wire.list_tasks(pb::ListTasksRequest {
        against: Some(against(&cluster, STOCK, "corrected", None)),
        ..pb::ListTasksRequest::default()
    });
    let stored = listed.unwrap().tasks.remove(0).task.unwrap();
    assert_eq!(
        (stored.role, stored.priority_class_name),
        (sent.role, sent.priority_class_name)
    );
    assert_eq!(
        (stored.scheduling_gates, stored.sub_group),
        (sent.scheduling_gates, sent.sub_group)
    );
    let listed = server.wire.list_jobs(pb::ListJobsRequest {
        against: Some(against(&cluster, STOCK, "corrected", None)),
        ..pb::ListJobsRequest::default()
    });
    let stored = listed.unwrap().jobs.remove(0).job.unwrap();
    assert_eq!(stored.min_task_member, cluster.jobs[0].min_task_member);
    assert_eq!(stored.sub_group_policies, cluster.jobs[0].sub_group_policies);
}

#[test]
fn place_keeps_the_minimums_of_roles_and_groups() {
    let server = EmbeddedServer::start();
    let of_role = |name: &str, role: &str, cpu: &str| pb::Task {
        role: role.to_owned(),
        ..task(name, "a/j", &[("cpu", cpu)])
    };
    let mut cluster = gang(of_role("a/w", "worker", "1"));
    cluster.tasks.push(of_role("a/ps", "ps", "99"));
    cluster.jobs[0].min_task_member = [("ps".to_owned(), 1)].into();
    let place = |cluster: &pb::Cluster, tiers: &str| {
        let group = |name: &str| pb::TaskGroup {
            names: vec![name.to_owned()],
            ..pb::TaskGroup::default()
        };
        let reply = server.wire.place(pb::PlaceRequest {
            against: Some(against(cluster, tiers, "corrected", None)),
            groups: vec![group("a/w"), group("a/ps")],
            ..pb::PlaceRequest::default()
        });
        reply.unwrap().result.unwrap()
    };
    // The worker alone makes two tasks, but the job needs a parameter server, which no node takes.
    let found = place(&cluster, STOCK);
    assert_eq!((found.placed, found.placed_count, found.min_count), (false, 1, 1));
    assert_eq!(found.blockers[0].reason.as_ref().unwrap().code, "InsufficientResource");
    assert!(
        place(&cluster, "[{\"plugins\": [{\"name\": \"binpack\"}]}]").placed,
        "without gang the number is enough"
    );
    cluster.tasks[2] = of_role("a/ps", "ps", "1");
    assert!(place(&cluster, STOCK).placed);
    // Each task finds a node, and yet no two are of one group, so that no group is complete.
    cluster.jobs[0].sub_group_policies = vec![pb::SubGroupPolicy {
        name: "pairs".to_owned(),
        size: Some(2),
        min_groups: Some(1),
        ..pb::SubGroupPolicy::default()
    }];
    cluster.tasks[1].sub_group = "pairs/0".to_owned();
    cluster.tasks[2].sub_group = "pairs/1".to_owned();
    let found = place(&cluster, STOCK);
    assert_eq!(
        (found.placed, found.placed_count),
        (false, 0),
        "a group is placed whole or not at all"
    );
    assert_eq!(found.blockers[0].reason.as_ref().unwrap().code, "TooFewOfGroup");
    cluster.tasks[2].sub_group = "pairs/0".to_owned();
    assert!(place(&cluster, STOCK).placed);
}
