//! Requests, their `against`, and their results.

use tonic::{Code, Status};

use super::{TestServer, amounts, detail, full_sync, node, reason, reload, score, task, three_nodes};
use crate::server::pb::{self, NodeEncoding, ResourceFit};

#[tokio::test]
async fn rejections_are_grouped_by_reason_with_metadata() {
    let mut server = TestServer::start().await;
    let outcome = server.apply(full_sync(three_nodes())).await;
    assert_eq!((&outcome.refused, &outcome.resync), (&Vec::new(), &None));

    let query = score(vec![task("", &[("cpu", "8")])]);
    let result = server.decisions.score(query.clone()).await.unwrap().into_inner();
    let (metadata, named) = (result.metadata.unwrap(), result.result.unwrap());
    assert_eq!((metadata.policy.as_str(), metadata.policy_version), ("default", 1));
    assert_eq!(metadata.revision, outcome.revision);
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
async fn a_limit_also_holds_for_the_names_of_the_filter_result() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(three_nodes())).await;
    let mut query = score(vec![task("", &[("cpu", "5")])]);
    for (limit, detail, sets) in [
        (None, pb::FilterDetail::Unspecified, true),
        (Some(1), pb::FilterDetail::Unspecified, false),
        (Some(1), pb::FilterDetail::Nodes, true),
        (None, pb::FilterDetail::Samples, false),
    ] {
        (query.limit, query.filter_detail) = (limit, detail.into());
        let result = server.decisions.score(query.clone()).await.unwrap().into_inner();
        let item = result.result.unwrap().items.remove(0);
        let filter = item.filter.unwrap();
        assert_eq!(filter.fit.is_some(), sets, "{limit:?} {detail:?}");
        assert!(filter.rejections.iter().all(|group| group.nodes.is_some() == sets));
        assert_eq!((filter.fit_count, filter.rejections[0].samples.len()), (2, 1));
        assert_eq!(item.nodes.unwrap().names.len(), limit.map_or(2, |limit| limit as usize));
    }
    server.stop().await;
}

#[tokio::test]
async fn names_come_sorted_and_slots_as_bitmaps() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(three_nodes())).await;
    let mut by_slot = score(vec![task("", &[("cpu", "1")])]);
    by_slot.node_encoding = NodeEncoding::Slots.into();
    let result = server.decisions.score(by_slot.clone()).await.unwrap().into_inner();
    let table = result.metadata.unwrap().node_table.unwrap();
    let slots = result.result.unwrap().items[0].clone();
    assert_eq!(&slots.nodes.unwrap().bitmap[..], [0b111]);

    by_slot.node_encoding = NodeEncoding::Names.into();
    let named = server.decisions.score(by_slot.clone()).await.unwrap().into_inner();
    let named = named.result.unwrap().items[0].clone();
    assert_eq!(named.nodes.unwrap().names, ["a", "b", "c"]);
    assert_eq!(named.totals, [slots.totals[1], slots.totals[2], slots.totals[0]]);

    by_slot.candidates = Some(pb::NodeSet {
        slots: vec![2, 1],
        ..pb::NodeSet::default()
    });
    let refused = server.decisions.score(by_slot.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), "NODE_TABLE_MISSING");
    by_slot.against = Some(pb::EvaluationRef {
        node_table: Some(table),
        ..pb::EvaluationRef::default()
    });
    let ordered = server.decisions.score(by_slot.clone()).await.unwrap().into_inner();
    assert_eq!(
        ordered.result.unwrap().items[0].nodes.as_ref().unwrap().names,
        ["b", "a"]
    );
    by_slot.against = Some(pb::EvaluationRef {
        node_table: Some(pb::NodeTableVersion {
            generation: table.generation + 1,
            ..table
        }),
        ..pb::EvaluationRef::default()
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
    let mut server = TestServer::start().await;
    server.apply(full_sync(three_nodes())).await;
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
    let result = server.decisions.filter(request.clone()).await.unwrap().into_inner();
    let items = result.result.unwrap().items;
    let problem = |i: usize| {
        let problem = items[i].problem.as_ref().unwrap();
        (problem.reason.as_str(), problem.field.as_str())
    };
    assert_eq!(problem(0), ("QUANTITY_INVALID", "tasks[0].requests.items[cpu]"));
    assert_eq!(problem(1), ("QUANTITY_NEGATIVE", "tasks[1].requests.items[cpu]"));
    assert_eq!(problem(4), ("TASK_UNKNOWN", "tasks[4].name"));
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
        (Code::NotFound, "NODE_UNKNOWN")
    );
    assert!(status.message().contains("`nowhere`"), "{status}");
    server.stop().await;
}

/// Number of the session's last change, as the error reports it.
fn applied_through(status: &Status) -> u64 {
    detail::<pb::ResponseMetadata>(status, "ResponseMetadata")
        .effects
        .unwrap()
        .applied_through
}

#[tokio::test]
async fn responses_and_errors_carry_applied_through() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(three_nodes())).await;
    let opened = server.decisions.open_session(pb::OpenSessionRequest::default()).await;
    let session = opened.unwrap().into_inner().session;
    let step = |after: u64, changes: Vec<pb::session_change::Change>| {
        let changes = changes
            .into_iter()
            .map(|change| pb::SessionChange { change: Some(change) });
        Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Session(pb::SessionRef {
                id: session.clone(),
                after,
                changes: changes.collect(),
            })),
            ..pb::EvaluationRef::default()
        })
    };
    let mut query = score(vec![task("", &[("cpu", "7")])]);
    query.against = step(0, vec![pb::session_change::Change::Evict("ns/old".to_owned())]);
    let result = server.decisions.score(query.clone()).await.unwrap().into_inner();
    let effects = result.metadata.unwrap().effects.unwrap();
    assert_eq!(effects.applied_through, 1);
    assert_eq!(effects.invalidation.unwrap().nodes.unwrap().names, ["a"]);
    let fit = result.result.unwrap().items[0].nodes.clone().unwrap();
    assert_eq!(fit.names, ["a", "b"], "what is being released counts as future idle");

    query.against = step(5, vec![pb::session_change::Change::Unevict("ns/old".to_owned())]);
    let gap = server.decisions.score(query.clone()).await.unwrap_err();
    assert_eq!(reason(&gap), "SEQUENCE_GAP");
    assert_eq!(applied_through(&gap), 1);

    query.against = step(1, vec![pb::session_change::Change::Unevict("ns/old".to_owned())]);
    query.candidates = Some(pb::NodeSet {
        names: vec!["nowhere".to_owned()],
        ..pb::NodeSet::default()
    });
    let unknown = server.decisions.score(query.clone()).await.unwrap_err();
    assert_eq!(reason(&unknown), "NODE_UNKNOWN");
    assert_eq!(applied_through(&unknown), 2);

    query.against = step(2, vec![pb::session_change::Change::Evict("x".repeat(1_000))]);
    let long = server.decisions.score(query.clone()).await.unwrap_err();
    assert_eq!(reason(&long), "NAME_TOO_LONG");
    assert_eq!(applied_through(&long), 2);

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
    query.against = step(2, Vec::new());
    let ended = server.decisions.score(query).await.unwrap_err();
    assert_eq!(
        (reason(&ended).as_str(), applied_through(&ended)),
        ("SESSION_EXPIRED", 2)
    );
    server.stop().await;
}

#[tokio::test]
async fn an_inline_cluster_is_evaluated_and_not_stored() {
    let mut server = TestServer::start().await;
    let mut cluster = three_nodes();
    cluster.nodes[0].allocatable = Some(amounts(&[("cpu", "4"), ("odd", "1"), ("pods", "110")]));
    let inline = |cluster| {
        Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Inline(Box::new(pb::InlineSnapshot {
                cluster: Some(cluster),
                ..pb::InlineSnapshot::default()
            }))),
            ..pb::EvaluationRef::default()
        })
    };
    let mut query = score(vec![task("", &[("cpu", "1")])]);
    query.against = inline(cluster.clone());
    let result = server.decisions.score(query.clone()).await.unwrap().into_inner();
    let metadata = result.metadata.unwrap();
    assert_eq!((metadata.policy.as_str(), metadata.policy_version), ("inline", 0));
    assert_eq!(
        metadata.warnings[0].field,
        "against.inline.cluster.nodes[0].allocatable.items[odd]"
    );
    assert_eq!(result.result.unwrap().items[0].totals.len(), 3);
    cluster.nodes.push(node("a", "1"));
    query.against = inline(cluster);
    let twice = server.decisions.score(query).await.unwrap_err();
    assert_eq!(reason(&twice), "RECORD_DUPLICATE");
    let nodes = server.state.list_nodes(pb::ListNodesRequest::default()).await;
    assert_eq!(nodes.unwrap().into_inner().nodes, []);
    server.stop().await;
}

#[tokio::test]
async fn queue_usage_changes_invalidate_every_node() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(three_nodes())).await;
    let quotas = reload("actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n", None);
    server.policies.reload_policy(quotas).await.unwrap();
    let opened = server.decisions.open_session(pb::OpenSessionRequest::default()).await;
    let session = opened.unwrap().into_inner().session;
    for (after, changes, scope) in [
        (0, Vec::new(), pb::InvalidationScope::None),
        (
            0,
            vec![pb::session_change::Change::Evict("ns/old".to_owned())],
            pb::InvalidationScope::All,
        ),
        (1, Vec::new(), pb::InvalidationScope::None),
    ] {
        let changes = changes
            .into_iter()
            .map(|change| pb::SessionChange { change: Some(change) });
        let step = pb::SessionRef {
            id: session.clone(),
            after,
            changes: changes.collect(),
        };
        let query = pb::ScoreRequest {
            against: Some(pb::EvaluationRef {
                target: Some(pb::evaluation_ref::Target::Session(step)),
                ..pb::EvaluationRef::default()
            }),
            ..score(vec![task("", &[("cpu", "1")])])
        };
        let result = server.decisions.score(query).await.unwrap().into_inner();
        let effects = result.metadata.unwrap().effects.unwrap();
        assert_eq!(effects.invalidation.unwrap().scope(), scope);
    }
    server.stop().await;
}

#[tokio::test]
async fn scores_ahead_name_the_nodes_that_such_tasks_leave() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(three_nodes())).await;
    let document = "{actions: allocate, tiers: [{plugins: [{name: binpack}]}]}";
    server.policies.reload_policy(reload(document, None)).await.unwrap();
    let asked = pb::ScoreRequest {
        ahead: 3,
        ..score(vec![task("", &[("cpu", "4"), ("memory", "1Gi")])])
    };
    for encoding in [NodeEncoding::Names, NodeEncoding::Slots] {
        let request = pb::ScoreRequest {
            node_encoding: encoding.into(),
            ..asked.clone()
        };
        let item = server
            .decisions
            .score(request)
            .await
            .unwrap()
            .into_inner()
            .result
            .unwrap()
            .items
            .remove(0);
        let count = |set: Option<&pb::NodeSet>| {
            let set = set.unwrap();
            let ones: u32 = set.bitmap.iter().map(|byte| byte.count_ones()).sum();
            (set.names.len() + ones as usize, set.names.clone())
        };
        assert_eq!(count(item.nodes.as_ref()).0, 3);
        let ahead: Vec<_> = item.ahead.iter().map(|own| count(own.nodes.as_ref())).collect();
        // c has 4 cpu, a 6 of 8, b 16.
        assert_eq!(ahead.iter().map(|own| own.0).collect::<Vec<_>>(), [1, 1, 1]);
        if encoding == NodeEncoding::Names {
            assert!(ahead.iter().all(|own| own.1 == ["b"]), "{ahead:?}");
        }
        assert!(item.ahead.iter().all(|own| own.totals.len() == 1));
        // A fuller node has a higher score.
        let totals: Vec<f64> = item.ahead.iter().map(|own| own.totals[0]).collect();
        assert!(totals.is_sorted() && totals[0] < totals[2], "{totals:?}");
    }
    for (request, expected) in [
        (
            pb::ScoreRequest {
                ahead: 33,
                ..asked.clone()
            },
            "LIMIT_EXCEEDED",
        ),
        (
            pb::ScoreRequest {
                limit: Some(1),
                ..asked.clone()
            },
            "AHEAD_WITH_LIMIT",
        ),
    ] {
        let error = server.decisions.score(request).await.unwrap_err();
        assert_eq!(reason(&error), expected);
        assert!(error.message().starts_with("ahead:"), "{error}");
    }
    server.stop().await;
}

#[tokio::test]
async fn long_names_of_requests_are_refused_by_their_fields() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(three_nodes())).await;
    let long = "x".repeat(1_000);
    let order = pb::OrderRequest {
        queues: Some(pb::NameSet {
            names: vec!["q".to_owned(), long.clone()],
        }),
        ..pb::OrderRequest::default()
    };
    let place = pb::PlaceRequest {
        effect: pb::PlaceEffect::Commit.into(),
        commit_key: long.clone(),
        ..pb::PlaceRequest::default()
    };
    let commit = pb::CommitSessionRequest {
        jobs: vec!["j".to_owned(), long.clone()],
        ..pb::CommitSessionRequest::default()
    };
    let release = pb::ReleaseReservationRequest {
        job: "j".to_owned(),
        job_uid: long.clone(),
        ..pb::ReleaseReservationRequest::default()
    };
    for (result, field) in [
        (server.decisions.order(order).await.map(drop), "queues.names[1]: "),
        (server.decisions.place(place).await.map(drop), "commit_key: "),
        (server.decisions.commit_session(commit).await.map(drop), "jobs[1]: "),
        (server.state.release_reservation(release).await.map(drop), "job_uid: "),
    ] {
        let error = result.unwrap_err();
        assert_eq!(
            (error.code(), reason(&error).as_str()),
            (Code::InvalidArgument, "NAME_TOO_LONG")
        );
        assert!(error.message().starts_with(field), "{}", error.message());
    }
    let group = pb::VictimGroup {
        node: long,
        ..pb::VictimGroup::default()
    };
    let victims = pb::SelectVictimsRequest {
        kind: pb::VictimKind::Preempt.into(),
        groups: vec![group],
        ..pb::SelectVictimsRequest::default()
    };
    let result = server
        .decisions
        .select_victims(victims)
        .await
        .unwrap()
        .into_inner()
        .result;
    let problem = result.unwrap().items[0].problem.clone().unwrap();
    assert_eq!(
        (problem.reason.as_str(), problem.field.as_str()),
        ("NAME_TOO_LONG", "groups[0].node")
    );
    server.stop().await;
}

#[tokio::test]
async fn sessions_are_listed_once_page_by_page() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(three_nodes())).await;
    let mut opened = Vec::new();
    for _ in 0..5 {
        let session = server.decisions.open_session(pb::OpenSessionRequest::default()).await;
        opened.push(session.unwrap().into_inner().session);
    }
    opened.sort_unstable();
    let (mut listed, mut token) = (Vec::new(), String::new());
    loop {
        let page = Some(pb::Page { size: 2, token });
        let request = pb::ListSessionsRequest { page };
        let reply = server.decisions.list_sessions(request).await.unwrap().into_inner();
        assert!(reply.sessions.len() <= 2);
        listed.extend(reply.sessions.into_iter().map(|own| own.session));
        token = reply.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, opened);
    server.stop().await;
}
