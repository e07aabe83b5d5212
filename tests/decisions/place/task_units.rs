//! Groups of a job (`subGroupPolicy`): the tasks of one are placed together, or none of them is.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{hypothetical_task, job, node, queue};

/// Policies with and without a plugin that judges groups.
const GANG: &str = "[{\"plugins\": [{\"name\": \"gang\"}]}]";
const NO_GANG: &str = "[{\"plugins\": [{\"name\": \"gang\", \"enabledSubJobPipelined\": false}]}]";

/// Job of groups of two tasks, one of which has to start.
fn with_groups() -> pb::Job {
    pb::Job {
        min_member: 2,
        sub_group_policies: vec![pb::SubGroupPolicy {
            name: "part".to_owned(),
            size: Some(2),
            min_groups: Some(1),
            ..pb::SubGroupPolicy::default()
        }],
        ..job("ns/a", "q")
    }
}

fn group(name: &str, cpu: &str, count: u32) -> pb::TaskGroup {
    let task = pb::Task {
        job: "ns/a".to_owned(),
        sub_group: name.to_owned(),
        ..hypothetical_task(&[("cpu", cpu)])
    };
    pb::TaskGroup {
        task: Some(task),
        count: Some(count),
        ..pb::TaskGroup::default()
    }
}

/// Result of Place on one node of three cores.
fn place(tiers: &str, groups: Vec<pb::TaskGroup>) -> pb::PlaceResult {
    let server = EmbeddedServer::start();
    let cluster = pb::Cluster {
        nodes: vec![node("n", &[("cpu", "3"), ("memory", "8Gi"), ("pods", "110")])],
        queues: vec![queue("q")],
        ..pb::Cluster::default()
    };
    let inline = pb::InlineSnapshot {
        cluster: Some(cluster),
        policy_document: format!("actions: allocate\ntiers: {tiers}\n"),
        ..pb::InlineSnapshot::default()
    };
    let request = pb::PlaceRequest {
        against: Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
            ..pb::EvaluationRef::default()
        }),
        job: Some(with_groups()),
        groups,
        ..pb::PlaceRequest::default()
    };
    server.wire.place(request).unwrap().result.unwrap()
}

fn placed(result: &pb::PlaceResult) -> Vec<usize> {
    let names = |group: &pb::PlacedGroup| group.allocated.as_ref().map_or(0, |nodes| nodes.names.len());
    result.groups.iter().map(names).collect()
}

#[test]
fn a_group_that_does_not_fit_leaves_its_places_to_another() {
    let groups = || vec![group("part/0", "2", 2), group("part/1", "1", 2)];
    let result = place(GANG, groups());
    assert_eq!((result.placed, placed(&result)), (true, vec![0, 2]));
    let why = result.groups[0].blockers[0].reason.clone().unwrap();
    assert_eq!((&*why.code, &*why.resource), ("InsufficientResource", "cpu"));
    // Without a plugin that judges groups the first task stays.
    assert_eq!(placed(&place(NO_GANG, groups())), [1, 1]);
}

#[test]
fn tasks_of_a_group_count_together_wherever_they_stand() {
    let small_last = vec![group("part/0", "1", 1), group("", "1", 1), group("part/0", "2", 1)];
    let result = place(GANG, small_last);
    assert_eq!(
        placed(&result),
        [1, 0, 1],
        "the group comes before the task behind its first one"
    );
    let too_few = place(GANG, vec![group("part/0", "1", 1), group("", "1", 2)]);
    assert_eq!(
        (too_few.placed, placed(&too_few)),
        (false, vec![0, 2]),
        "no group starts"
    );
    let why = too_few.blockers[0].reason.clone().unwrap();
    assert_eq!((&*why.plugin, &*why.code), ("gang", "TooFewOfGroup"));
    assert_eq!(
        why.message,
        "group `part/0` needs 2 more tasks, and 1 were to be placed"
    );
}
