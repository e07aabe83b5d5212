//! Questions, grounds and answers.

use tonic::{Code, Status};

use super::{Running, amounts, detail, node, reason, reload, score, snapshot, task, three_nodes};
use crate::server::pb::{self, NodeEncoding, ResourceFit};

#[tokio::test]
async fn rejections_are_grouped_by_reason_and_stamped() {
    let mut server = Running::start().await;
    let outcome = server.apply(snapshot(three_nodes())).await;
    assert_eq!((&outcome.refused, &outcome.resync), (&Vec::new(), &None));

    let question = score(vec![task("", &[("cpu", "8")])]);
    let answer = server.decisions.score(question.clone()).await.unwrap().into_inner();
    let (stamp, named) = (answer.stamp.unwrap(), answer.answer.unwrap());
    assert_eq!((stamp.policy.as_str(), stamp.policy_version), ("default", 1));
    assert_eq!(stamp.revision, outcome.revision);
    let item = &named.items[0];
    assert_eq!(item.nodes.as_ref().unwrap().names, ["b"]);
    let filter = item.filter.as_ref().unwrap();
    let refused: Vec<_> = filter
        .rejections
        .iter()
        .map(|rejection| {
            let reason = rejection.reason.as_ref().unwrap();
            (reason.resolution(), rejection.nodes.as_ref().unwrap().names.clone())
        })
        .collect();
    assert_eq!(
        refused,
        [
            (pb::Resolution::Unschedulable, vec!["a".to_owned()]),
            (pb::Resolution::Unresolvable, vec!["c".to_owned()]),
        ]
    );
    server.stop().await;
}

#[tokio::test]
async fn names_come_sorted_and_slots_as_bitmaps() {
    let mut server = Running::start().await;
    server.apply(snapshot(three_nodes())).await;
    let mut by_slot = score(vec![task("", &[("cpu", "1")])]);
    by_slot.node_encoding = NodeEncoding::Slots.into();
    let answer = server.decisions.score(by_slot.clone()).await.unwrap().into_inner();
    let table = answer.stamp.unwrap().node_table.unwrap();
    let slots = answer.answer.unwrap().items[0].clone();
    assert_eq!(&slots.nodes.unwrap().bitmap[..], [0b111]);

    by_slot.node_encoding = NodeEncoding::Names.into();
    let named = server.decisions.score(by_slot.clone()).await.unwrap().into_inner();
    let named = named.answer.unwrap().items[0].clone();
    assert_eq!(named.nodes.unwrap().names, ["a", "b", "c"]);
    assert_eq!(named.totals, [slots.totals[1], slots.totals[2], slots.totals[0]]);

    by_slot.candidates = Some(pb::NodeSet {
        slots: vec![2, 1],
        ..pb::NodeSet::default()
    });
    let refused = server.decisions.score(by_slot.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), "NODE_TABLE_MISSING");
    by_slot.ground = Some(pb::Ground {
        ground: None,
        node_table: Some(table),
    });
    let ordered = server.decisions.score(by_slot.clone()).await.unwrap().into_inner();
    assert_eq!(
        ordered.answer.unwrap().items[0].nodes.as_ref().unwrap().names,
        ["b", "a"]
    );
    by_slot.ground = Some(pb::Ground {
        ground: None,
        node_table: Some(pb::NodeTableVersion {
            generation: table.generation + 1,
            ..table
        }),
    });
    let stale = server.decisions.score(by_slot).await.unwrap_err();
    assert_eq!(
        (stale.code(), reason(&stale).as_str()),
        (Code::FailedPrecondition, "NODE_TABLE_CHANGED")
    );
    server.stop().await;
}

#[tokio::test]
async fn items_fail_alone_and_unknown_candidates_fail_the_call() {
    let mut server = Running::start().await;
    server.apply(snapshot(three_nodes())).await;
    let tasks = vec![
        task("", &[("cpu", "8 cores")]),
        task("", &[("cpu", "-1")]),
        task("", &[("cpu", "1"), ("unheard-of", "1")]),
        pb::Task {
            name: "ns/old".to_owned(),
            ..pb::Task::default()
        },
        pb::Task {
            name: "ns/none".to_owned(),
            ..pb::Task::default()
        },
        pb::Task::default(),
    ];
    let request = pb::FilterRequest {
        tasks,
        resource_fit: ResourceFit::Idle.into(),
        ..pb::FilterRequest::default()
    };
    let answer = server.decisions.filter(request.clone()).await.unwrap().into_inner();
    let items = answer.answer.unwrap().items;
    let problem = |i: usize| {
        let problem = items[i].problem.as_ref().unwrap();
        (problem.reason.as_str(), problem.field.as_str())
    };
    assert_eq!(problem(0), ("INVALID_QUANTITY", "tasks[0].requests.items[cpu]"));
    assert_eq!(problem(1), ("NEGATIVE_QUANTITY", "tasks[1].requests.items[cpu]"));
    assert_eq!(problem(4), ("TASK_NOT_FOUND", "tasks[4].name"));
    assert_eq!(problem(5), ("REQUESTS_MISSING", "tasks[5].requests"));
    assert_eq!(items[2].warnings[0].field, "tasks[2].requests.items[unheard-of]");
    assert_eq!((items[2].fit_count, items[3].fit_count), (3, 3));

    let unknown = pb::FilterRequest {
        candidates: Some(pb::NodeSet {
            names: vec!["a".to_owned(), "nowhere".to_owned()],
            ..pb::NodeSet::default()
        }),
        ..request
    };
    let status = server.decisions.filter(unknown).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::NotFound, "NODE_NOT_FOUND")
    );
    assert!(status.message().contains("`nowhere`"), "{status}");
    server.stop().await;
}

/// How far the session came, as the error says.
fn applied(status: &Status) -> u64 {
    detail::<pb::Stamp>(status, "Stamp").effects.unwrap().applied_through
}

#[tokio::test]
async fn a_session_says_how_far_it_came_in_answers_and_errors() {
    let mut server = Running::start().await;
    server.apply(snapshot(three_nodes())).await;
    let opened = server.decisions.open_session(pb::OpenSessionRequest::default()).await;
    let session = opened.unwrap().into_inner().session;
    let step = |after: u64, changes: Vec<pb::change::Change>| {
        let changes = changes.into_iter().map(|change| pb::Change { change: Some(change) });
        Some(pb::Ground {
            ground: Some(pb::ground::Ground::Session(pb::SessionStep {
                session: session.clone(),
                after,
                changes: changes.collect(),
            })),
            node_table: None,
        })
    };
    let mut question = score(vec![task("", &[("cpu", "7")])]);
    question.ground = step(0, vec![pb::change::Change::Evict("ns/old".to_owned())]);
    let answer = server.decisions.score(question.clone()).await.unwrap().into_inner();
    let effects = answer.stamp.unwrap().effects.unwrap();
    assert_eq!(effects.applied_through, 1);
    assert_eq!(effects.invalidation.unwrap().nodes.unwrap().names, ["a"]);
    let fit = answer.answer.unwrap().items[0].nodes.clone().unwrap();
    assert_eq!(fit.names, ["a", "b"], "what is being released counts as future idle");

    question.ground = step(5, vec![pb::change::Change::Unevict("ns/old".to_owned())]);
    let gap = server.decisions.score(question.clone()).await.unwrap_err();
    assert_eq!(reason(&gap), "SEQUENCE_GAP");
    assert_eq!(applied(&gap), 1);

    question.ground = step(1, vec![pb::change::Change::Unevict("ns/old".to_owned())]);
    question.candidates = Some(pb::NodeSet {
        names: vec!["nowhere".to_owned()],
        ..pb::NodeSet::default()
    });
    let unknown = server.decisions.score(question.clone()).await.unwrap_err();
    assert_eq!(reason(&unknown), "NODE_NOT_FOUND");
    assert_eq!(applied(&unknown), 2);

    question.ground = step(2, vec![pb::change::Change::Evict("x".repeat(1_000))]);
    let long = server.decisions.score(question.clone()).await.unwrap_err();
    assert_eq!(reason(&long), "NAME_TOO_LONG");
    assert_eq!(applied(&long), 2);

    let close = pb::CloseSessionRequest {
        session: session.clone(),
    };
    for _ in 0..2 {
        let closed = server
            .decisions
            .close_session(close.clone())
            .await
            .unwrap()
            .into_inner();
        assert_eq!(closed.applied_through, 2);
    }
    question.ground = step(2, Vec::new());
    let ended = server.decisions.score(question).await.unwrap_err();
    assert_eq!((reason(&ended).as_str(), applied(&ended)), ("SESSION_EXPIRED", 2));
    server.stop().await;
}

#[tokio::test]
async fn an_inline_cluster_is_answered_and_leaves_nothing_behind() {
    let mut server = Running::start().await;
    let mut cluster = three_nodes();
    cluster.nodes[0].allocatable = Some(amounts(&[("cpu", "4"), ("odd", "1"), ("pods", "110")]));
    let inline = |cluster| {
        Some(pb::Ground {
            ground: Some(pb::ground::Ground::Inline(pb::Inline {
                cluster: Some(cluster),
                ..pb::Inline::default()
            })),
            node_table: None,
        })
    };
    let mut question = score(vec![task("", &[("cpu", "1")])]);
    question.ground = inline(cluster.clone());
    let answer = server.decisions.score(question.clone()).await.unwrap().into_inner();
    let stamp = answer.stamp.unwrap();
    assert_eq!((stamp.policy.as_str(), stamp.policy_version), ("inline", 0));
    assert_eq!(
        stamp.warnings[0].field,
        "ground.inline.cluster.nodes[0].allocatable.items[odd]"
    );
    assert_eq!(answer.answer.unwrap().items[0].totals.len(), 3);
    cluster.nodes.push(node("a", "1"));
    question.ground = inline(cluster);
    let twice = server.decisions.score(question).await.unwrap_err();
    assert_eq!(reason(&twice), "DUPLICATE_RECORD");
    let nodes = server.state.list_nodes(pb::ListNodesRequest::default()).await;
    assert_eq!(nodes.unwrap().into_inner().nodes, []);
    server.stop().await;
}

#[tokio::test]
async fn what_queues_hold_makes_answers_about_every_node_stale() {
    let mut server = Running::start().await;
    server.apply(snapshot(three_nodes())).await;
    let quotas = reload("actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n", None);
    server.policies.reload_policy(quotas).await.unwrap();
    let opened = server.decisions.open_session(pb::OpenSessionRequest::default()).await;
    let session = opened.unwrap().into_inner().session;
    for (after, changes, scope) in [
        (0, Vec::new(), pb::InvalidationScope::None),
        (
            0,
            vec![pb::change::Change::Evict("ns/old".to_owned())],
            pb::InvalidationScope::All,
        ),
        (1, Vec::new(), pb::InvalidationScope::None),
    ] {
        let changes = changes.into_iter().map(|change| pb::Change { change: Some(change) });
        let step = pb::SessionStep {
            session: session.clone(),
            after,
            changes: changes.collect(),
        };
        let question = pb::ScoreRequest {
            ground: Some(pb::Ground {
                ground: Some(pb::ground::Ground::Session(step)),
                node_table: None,
            }),
            ..score(vec![task("", &[("cpu", "1")])])
        };
        let answer = server.decisions.score(question).await.unwrap().into_inner();
        let effects = answer.stamp.unwrap().effects.unwrap();
        assert_eq!(effects.invalidation.unwrap().scope(), scope);
    }
    server.stop().await;
}
