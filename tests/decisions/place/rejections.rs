//! Requests and groups that Place rejects, and the reasons that it gives.

use pumice::server::pb;
use tonic::Code;

use crate::support::records::{
    amounts, full_sync, hypothetical_task, job, node, nodes, queue, session_ref, task, task_on_node,
};
use crate::support::{EmbeddedServer, reason};

fn started() -> EmbeddedServer {
    let server = EmbeddedServer::start();
    let cluster = pb::Cluster {
        queues: vec![queue("q")],
        jobs: vec![
            pb::Job {
                min_member: 3,
                ..job("ns/a", "q")
            },
            job("ns/b", "q"),
        ],
        tasks: vec![
            task("ns/a-0", "ns/a", &[("cpu", "1")]),
            task("ns/a-1", "ns/a", &[("cpu", "1")]),
            task("ns/a-2", "ns/a", &[("cpu", "2")]),
            task("ns/b-0", "ns/b", &[("cpu", "1")]),
            pb::Task {
                gated: true,
                ..task("ns/a-gated", "ns/a", &[("cpu", "1")])
            },
            task_on_node(
                task("ns/a-there", "ns/a", &[("cpu", "1")]),
                pb::TaskStatus::Running,
                "n0",
            ),
        ],
        ..nodes(vec![node("n0", &[("cpu", "4")]), node("n1", &[("cpu", "4")])])
    };
    server.wire.apply_batch(full_sync("test", 1, cluster)).unwrap();
    server
}

fn named(names: &[&str]) -> pb::TaskGroup {
    pb::TaskGroup {
        names: names.iter().map(ToString::to_string).collect(),
        ..pb::TaskGroup::default()
    }
}

fn preview(groups: Vec<pb::TaskGroup>) -> pb::PlaceRequest {
    pb::PlaceRequest {
        groups,
        ..pb::PlaceRequest::default()
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one case after another, each short")]
fn problems_of_a_group_name_the_field() {
    let server = started();
    let of_job = |groups| pb::PlaceRequest {
        job: Some(pb::Job {
            name: "ns/a".to_owned(),
            ..pb::Job::default()
        }),
        ..preview(groups)
    };
    let cases = [
        (named(&["ns/a-0", "ns/none"]), "groups[1].names[1]", "TASK_UNKNOWN"),
        (named(&["ns/a-there"]), "groups[1].names[0]", "TASK_NOT_PENDING"),
        (named(&["ns/a-gated"]), "groups[1].names[0]", "TASK_GATED"),
        (named(&["ns/a-0", "ns/a-2"]), "groups[1].names[1]", "TASKS_DIFFER"),
        (named(&["ns/a-0", "ns/a-0"]), "groups[1].names[1]", "TASK_DUPLICATE"),
        (named(&["ns/b-0"]), "groups[1].names[0]", "JOB_MISMATCH"),
        (pb::TaskGroup::default(), "groups[1].task", "TASK_MISSING"),
        (
            pb::TaskGroup {
                count: Some(3),
                ..named(&["ns/a-0"])
            },
            "groups[1].count",
            "COUNT_MISMATCH",
        ),
        (
            pb::TaskGroup {
                task: Some(hypothetical_task(&[("cpu", "2")])),
                ..named(&["ns/a-0"])
            },
            "groups[1].task",
            "TASK_MISMATCH",
        ),
        (
            pb::TaskGroup {
                task: Some(hypothetical_task(&[("cpu", "much")])),
                ..pb::TaskGroup::default()
            },
            "groups[1].task.requests.items[cpu]",
            "QUANTITY_INVALID",
        ),
        (
            pb::TaskGroup {
                task: Some(task("", "ns/b", &[("cpu", "1")])),
                ..pb::TaskGroup::default()
            },
            "groups[1].task.job",
            "JOB_MISMATCH",
        ),
    ];
    for (group, field, word) in cases {
        let query = of_job(vec![named(&["ns/a-1"]), group]);
        let result = server.wire.place(query).unwrap().result.unwrap();
        let problem = result.groups[1].problem.clone().unwrap_or_default();
        assert_eq!(
            (problem.field.as_str(), problem.reason.as_str()),
            (field, word),
            "{problem:?}"
        );
        assert!(!result.placed, "{field}");
        assert_eq!(result.placed_count, 1, "the other group is tried all the same");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one case after another, each short")]
fn a_contradictory_query_is_rejected_entirely() {
    let server = started();
    let wire = &server.wire;
    let group = || named(&["ns/a-0"]);
    let cases = [
        (preview(Vec::new()), Code::InvalidArgument, "GROUPS_MISSING"),
        (
            pb::PlaceRequest {
                effect: pb::PlaceEffect::Session.into(),
                ..preview(vec![group()])
            },
            Code::InvalidArgument,
            "SESSION_MISSING",
        ),
        (
            preview(vec![pb::TaskGroup {
                count: Some(2_000_000),
                task: Some(hypothetical_task(&[("cpu", "1")])),
                ..pb::TaskGroup::default()
            }]),
            Code::ResourceExhausted,
            "LIMIT_EXCEEDED",
        ),
        (
            pb::PlaceRequest {
                job: Some(job("ns/none", "")),
                ..preview(vec![group()])
            },
            Code::NotFound,
            "JOB_UNKNOWN",
        ),
        (
            pb::PlaceRequest {
                exclusions: Some(pb::NodeSet {
                    names: vec!["n9".to_owned()],
                    ..pb::NodeSet::default()
                }),
                ..preview(vec![group()])
            },
            Code::NotFound,
            "NODE_UNKNOWN",
        ),
    ];
    for (query, code, word) in cases {
        let status = wire.place(query).unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (code, word), "{status}");
    }

    let session = wire.open_session(pb::OpenSessionRequest::default()).unwrap().session;
    let in_session = |after, groups| pb::PlaceRequest {
        against: Some(session_ref(&session, after, Vec::new())),
        effect: pb::PlaceEffect::Session.into(),
        ..preview(groups)
    };
    let other = pb::PlaceRequest {
        job: Some(pb::Job {
            min_member: 7,
            ..job("ns/a", "q")
        }),
        ..in_session(0, vec![group()])
    };
    assert_eq!(reason(&wire.place(other).unwrap_err()), "JOB_NOT_STORED");
    assert_eq!(
        reason(&wire.place(in_session(3, vec![group()])).unwrap_err()),
        "SEQUENCE_GAP"
    );
    let nameless = pb::TaskGroup {
        task: Some(hypothetical_task(&[("cpu", "1")])),
        ..pb::TaskGroup::default()
    };
    // Nothing was placed, and the change has its number.
    let result = wire.place(in_session(0, vec![nameless])).unwrap().result.unwrap();
    assert_eq!(result.groups[0].problem.clone().unwrap().reason, "NAMES_MISSING");
    let reply = wire.place(in_session(1, vec![group()])).unwrap();
    assert_eq!(reply.metadata.unwrap().effects.unwrap().applied_through, 2);
}

#[test]
fn a_gang_that_does_not_fit_reports_its_blockers() {
    let server = started();
    let wire = &server.wire;
    let group = |cpu: &str, count| pb::TaskGroup {
        task: Some(hypothetical_task(&[("cpu", cpu)])),
        count: Some(count),
        ..pb::TaskGroup::default()
    };
    // 7 cores are left, 3 on one node and 4 on the other.
    let result = wire.place(preview(vec![group("2", 5)])).unwrap().result.unwrap();
    assert_eq!((result.placed, result.placed_count, result.min_count), (false, 3, 5));
    let blocker = &result.blockers[0];
    let why = blocker.reason.clone().unwrap();
    assert_eq!(
        (why.plugin.as_str(), why.resource.as_str(), blocker.count),
        ("resource-fit", "cpu", 2)
    );
    let measurements = |at: usize| -> Vec<f64> {
        blocker.samples[at]
            .measurements
            .iter()
            .map(|measurement| measurement.value)
            .collect()
    };
    assert_eq!((measurements(0), measurements(1)), (vec![2.0, 1.0], vec![2.0, 0.0]));
    assert_eq!(result.groups[0].blockers, result.blockers);

    // Three are enough.
    let enough = pb::PlaceRequest {
        min_available: Some(3),
        ..preview(vec![group("2", 5)])
    };
    let result = wire.place(enough).unwrap().result.unwrap();
    assert_eq!((result.placed, result.placed_count, result.min_count), (true, 3, 3));

    // The job needs three tasks, one of which runs.
    let query = preview(vec![named(&["ns/a-0", "ns/a-1"]), named(&["ns/a-2"])]);
    let result = wire.place(query).unwrap().result.unwrap();
    assert_eq!((result.placed, result.placed_count, result.min_count), (true, 3, 2));
    let one = preview(vec![named(&["ns/a-0"])]);
    let result = wire.place(one).unwrap().result.unwrap();
    assert_eq!((result.placed, result.placed_count, result.min_count), (false, 1, 2));
    let why = result.blockers[0].reason.clone().unwrap();
    assert_eq!((why.plugin.as_str(), why.code.as_str()), ("gang", "TooFewTasks"));
}

#[test]
fn a_full_queue_is_named_with_its_measurements() {
    let server = started();
    let wire = &server.wire;
    wire.reload_policy(pb::ReloadPolicyRequest {
        document: "actions: allocate\ntiers:\n- plugins: [{name: capacity-card}]\n".to_owned(),
        ..pb::ReloadPolicyRequest::default()
    })
    .unwrap();
    let small = pb::Cluster {
        queues: vec![pb::Queue {
            capability: Some(amounts(&[("cpu", "3")])),
            ..queue("small")
        }],
        ..pb::Cluster::default()
    };
    wire.apply_batch(full_sync("queues", 1, small)).unwrap();
    let query = pb::PlaceRequest {
        job: Some(pb::Job {
            min_member: 2,
            ..job("ns/new", "small")
        }),
        ..preview(vec![pb::TaskGroup {
            task: Some(hypothetical_task(&[("cpu", "1")])),
            count: Some(4),
            ..pb::TaskGroup::default()
        }])
    };
    let result = wire.place(query).unwrap().result.unwrap();
    assert_eq!((result.placed, result.placed_count, result.min_count), (true, 3, 2));
    let why = result.blockers[0].reason.clone().unwrap();
    assert_eq!(
        (why.plugin.as_str(), why.code.as_str()),
        ("capacity-card", "InsufficientCPUQuota")
    );
    let measurements: Vec<(&str, f64)> = why
        .measurements
        .iter()
        .map(|measurement| (measurement.name.as_str(), measurement.value))
        .collect();
    assert_eq!(measurements, [("requested", 1.0), ("total", 4.0), ("capability", 3.0)]);
    assert_eq!(result.blockers[0].count, 0);
}

#[test]
fn tasks_with_a_missing_job_or_queue_are_reported_by_field() {
    let server = started();
    let wire = &server.wire;
    let of = |job: &str| pb::TaskGroup {
        task: Some(pb::Task {
            job: job.to_owned(),
            ..hypothetical_task(&[("cpu", "1")])
        }),
        ..pb::TaskGroup::default()
    };
    let lost = pb::Cluster {
        jobs: vec![job("ns/lost", "nowhere")],
        tasks: vec![task("ns/lost-0", "ns/lost", &[("cpu", "1")])],
        ..pb::Cluster::default()
    };
    wire.apply_batch(full_sync("jobs", 1, lost)).unwrap();
    wire.reload_policy(pb::ReloadPolicyRequest {
        document: "actions: allocate\ntiers:\n- plugins: [{name: capacity-card}]\n".to_owned(),
        ..pb::ReloadPolicyRequest::default()
    })
    .unwrap();
    for (group, field, reason, word) in [
        (
            of("ns/none"),
            "groups[0].task.job",
            "JOB_UNKNOWN",
            "there is no job `ns/none`",
        ),
        (of(""), "groups[0].task.job", "JOB_UNKNOWN", "name no job"),
        (of("ns/lost"), "groups[0].task.job", "QUEUE_UNKNOWN", "`nowhere`"),
        (named(&["ns/lost-0"]), "groups[0].names", "QUEUE_UNKNOWN", "`nowhere`"),
    ] {
        let result = wire.place(preview(vec![group])).unwrap().result.unwrap();
        let found = result.groups[0].problem.clone().unwrap();
        assert_eq!(
            (found.field.as_str(), found.reason.as_str()),
            (field, reason),
            "{found:?}"
        );
        assert!(found.message.contains(word), "{}", found.message);
    }
}

#[test]
fn out_of_range_scores_are_reported_for_all_nodes() {
    let server = EmbeddedServer::start();
    let all = (0..300).map(|number| node(&format!("n{number:03}"), &[("cpu", "4"), ("memory", "4")]));
    server
        .wire
        .apply_batch(full_sync("test", 1, nodes(all.collect())))
        .unwrap();
    let arguments = "{resources: {cpu: {type: LeastAllocated, weight: 3}, memory: {type: MostAllocated, weight: -2}}}";
    server
        .wire
        .reload_policy(pb::ReloadPolicyRequest {
            document: format!(
                "actions: allocate\ntiers:\n- plugins: [{{name: NodeResourcesFitPlus, arguments: {arguments}}}]\n"
            ),
            ..pb::ReloadPolicyRequest::default()
        })
        .unwrap();
    let group = pb::TaskGroup {
        task: Some(hypothetical_task(&[("cpu", "1"), ("memory", "1")])),
        ..pb::TaskGroup::default()
    };
    let result = server.wire.place(preview(vec![group])).unwrap().result.unwrap();
    let found = result.groups[0].problem.clone().unwrap();
    assert_eq!(found.reason, "SCORE_OUT_OF_RANGE");
    assert!(
        found.message.contains("and more on 290 other nodes"),
        "{}",
        found.message
    );
}

#[test]
fn rescoring_every_node_after_each_task_is_bounded() {
    let server = started();
    let many = (0..101).map(|number| node(&format!("m{number}"), &[("cpu", "64")]));
    server
        .wire
        .apply_batch(full_sync("nodes", 1, nodes(many.collect())))
        .unwrap();
    let group = |count| pb::TaskGroup {
        task: Some(pb::Task {
            job: "ns/a".to_owned(),
            ..hypothetical_task(&[("cpu", "1")])
        }),
        count: Some(count),
        ..pb::TaskGroup::default()
    };
    server
        .wire
        .reload_policy(pb::ReloadPolicyRequest {
            document: "actions: allocate\ntiers:\n- plugins: [{name: capacity-card, enabledAllocatable: false}]\n"
                .to_owned(),
            ..pb::ReloadPolicyRequest::default()
        })
        .unwrap();
    let place = |count| server.wire.place(preview(vec![group(count)])).unwrap().result.unwrap();
    let found = place(1_000_000).groups[0].problem.clone().unwrap();
    assert_eq!(
        (found.reason.as_str(), found.field.as_str()),
        ("LIMIT_EXCEEDED", "groups[0].count")
    );
    assert!(
        found.message.contains("limit `pairs` is 100000000"),
        "{}",
        found.message
    );
    assert_eq!(place(10).placed_count, 10);
}
