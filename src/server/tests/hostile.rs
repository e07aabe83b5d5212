//! Faulty and hostile callers: the service rejects them with a reason, limits its memory, and keeps serving.

use prost::Message;
use tonic::Code;

use super::{TestServer, amounts, detail, full_sync, node, reason, score, task};
use crate::server::pb::{self, BatchKind};

fn nodes(count: usize) -> pb::Cluster {
    pb::Cluster {
        nodes: (0..count).map(|i| node(&format!("node-{i:04}"), "8")).collect(),
        tasks: (0..count)
            .map(|i| task(&format!("ns/task-{i:04}"), &[("cpu", "1")]))
            .collect(),
        ..pb::Cluster::default()
    }
}

fn session_ref(session: &str, after: u64, changes: Vec<pb::SessionChange>) -> pb::EvaluationRef {
    let step = pb::SessionRef {
        id: session.to_owned(),
        after,
        changes,
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Session(step)),
        ..pb::EvaluationRef::default()
    }
}

fn allocate(i: usize) -> pb::SessionChange {
    let at = pb::TaskPlacement {
        task: format!("ns/task-{i:04}"),
        node: format!("node-{i:04}"),
        card: String::new(),
        devices: Vec::new(),
    };
    pb::SessionChange {
        change: Some(pb::session_change::Change::Allocate(at)),
    }
}

#[tokio::test]
async fn the_largest_sequence_number_ends_an_epoch_and_nothing_else() {
    let mut server = TestServer::start().await;
    let last = pb::Batch {
        sequence: u64::MAX,
        ..full_sync(nodes(1))
    };
    assert_eq!(server.apply(last.clone()).await.resync, None);
    let delta = pb::Batch {
        sequence: 7,
        kind: BatchKind::Delta.into(),
        part: 0,
        ..last.clone()
    };
    assert_eq!(server.apply(delta).await.resync, None, "long applied");
    let part = pb::Batch {
        part: 2,
        ..last.clone()
    };
    server.apply(part).await;
    let next = pb::Batch {
        source_epoch: 2,
        ..full_sync(nodes(2))
    };
    assert_eq!(server.apply(next).await.resync, None);
    let listed = server.state.list_nodes(pb::ListNodesRequest::default()).await;
    assert_eq!(listed.unwrap().into_inner().nodes.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn an_error_about_many_changes_fits_in_trailers() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(nodes(300))).await;
    let opened = server.decisions.open_session(pb::OpenSessionRequest::default()).await;
    let session = opened.unwrap().into_inner().session;
    let changes: Vec<_> = (0..300).map(allocate).collect();
    let mut query = score(vec![task("", &[("cpu", "1")])]);
    query.against = Some(session_ref(&session, 0, changes));
    query.plugins = vec!["nobody".to_owned()];
    let error = server.decisions.score(query.clone()).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::NotFound, "PLUGIN_UNKNOWN")
    );
    assert!(error.details().len() < 4_000, "{}", error.details().len());
    let metadata: pb::ResponseMetadata = detail(&error, "ResponseMetadata");
    let effects = metadata.effects.unwrap();
    assert_eq!(effects.applied_through, 300, "the changes are applied all the same");
    assert_eq!(effects.invalidation.unwrap().scope(), pb::InvalidationScope::All);

    // The reply that reported the invalidated nodes may have been lost.
    query.plugins.clear();
    let again = server.decisions.score(query.clone()).await.unwrap().into_inner();
    let invalidation = again.metadata.unwrap().effects.unwrap().invalidation.unwrap();
    assert_eq!(
        (invalidation.scope(), invalidation.nodes),
        (pb::InvalidationScope::All, None)
    );
    query.against = Some(session_ref(&session, 300, Vec::new()));
    let quiet = server.decisions.score(query).await.unwrap().into_inner();
    let invalidation = quiet.metadata.unwrap().effects.unwrap().invalidation.unwrap();
    assert_eq!(invalidation.scope(), pb::InvalidationScope::None);
    server.stop().await;
}

#[tokio::test]
async fn long_resource_names_are_rejected_and_not_stored() {
    let mut server = TestServer::start().await;
    let long = format!("kubernetes.io/{}", "x".repeat(100_000));
    let mut cluster = nodes(2);
    cluster.nodes[1].allocatable = Some(amounts(&[(&long, "1")]));
    let outcome = server.apply(full_sync(cluster)).await;
    assert_eq!(outcome.refused.len(), 1);
    assert_eq!(
        (outcome.refused[0].reason.as_str(), outcome.refused[0].field.as_str()),
        ("NAME_TOO_LONG", "batch.put.nodes[1].allocatable.items")
    );
    let result = server.decisions.score(score(vec![task("", &[(&long, "1")])])).await;
    let item = result.unwrap().into_inner().result.unwrap().items[0].clone();
    assert_eq!(item.problem.unwrap().reason, "NAME_TOO_LONG");
    let error = server
        .policies
        .get_policy(pb::GetPolicyRequest { name: long, version: 0 })
        .await
        .unwrap_err();
    assert!(error.code() == Code::NotFound && error.details().len() < 4_000);
    server.stop().await;
}

#[tokio::test]
async fn problems_and_samples_are_bounded() {
    let mut server = TestServer::start().await;
    let cluster = pb::Cluster {
        nodes: vec![pb::Node::default(); 3_000],
        ..pb::Cluster::default()
    };
    let outcome = server.apply(full_sync(cluster)).await;
    assert_eq!(outcome.refused.len(), 1_001);
    let more = outcome.refused.last().unwrap();
    assert_eq!(
        (more.reason.as_str(), more.message.as_str()),
        ("PROBLEMS_OMITTED", "2000 more are not listed")
    );
    let whole = pb::Batch {
        sequence: 2,
        ..full_sync(nodes(1_000))
    };
    server.apply(whole).await;
    let tasks = (1..=2_500).map(|i| task("", &[("cpu", &format!("{i}k"))])).collect();
    let query = pb::FilterRequest {
        tasks,
        node_encoding: pb::NodeEncoding::Slots.into(),
        samples: Some(u32::MAX),
        ..pb::FilterRequest::default()
    };
    let error = server.decisions.filter(query.clone()).await.unwrap_err();
    assert_eq!(reason(&error), "LIMIT_EXCEEDED");
    // Tasks that are looked ahead for count as often as their nodes are judged.
    let mut fewer = query.tasks;
    fewer.truncate(500);
    let ahead = |ahead: u32| pb::ScoreRequest {
        node_encoding: pb::NodeEncoding::Slots.into(),
        ahead,
        ..score(fewer.clone())
    };
    server.decisions.score(ahead(0)).await.unwrap();
    let error = server.decisions.score(ahead(32)).await.unwrap_err();
    assert_eq!(reason(&error), "LIMIT_EXCEEDED");
    server.stop().await;
}

#[tokio::test]
async fn a_slot_keeps_its_name_while_its_node_is_away() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(nodes(2))).await;
    let away = pb::Batch {
        sequence: 2,
        kind: BatchKind::Delta.into(),
        put: None,
        part: 0,
        remove: Some(pb::Removals {
            nodes: vec!["node-0000".to_owned()],
            ..pb::Removals::default()
        }),
        ..full_sync(nodes(2))
    };
    server.apply(away).await;
    let table = server.state.get_node_table(pb::GetNodeTableRequest::default()).await;
    assert_eq!(table.unwrap().into_inner().names, ["node-0000", "node-0001"]);
    server.stop().await;
}

/// Sends every odd node in a full sync, and the rest and all tasks later, in reverse and with detours.
async fn in_another_order(server: &mut TestServer, cluster: &pb::Cluster) {
    let half = pb::Cluster {
        nodes: cluster.nodes.iter().rev().step_by(2).cloned().collect(),
        ..pb::Cluster::default()
    };
    server.apply(full_sync(half)).await;
    let detour = pb::Cluster {
        nodes: vec![node("node-0007", "1"), node("elsewhere", "100")],
        tasks: cluster
            .tasks
            .iter()
            .rev()
            .map(|task| pb::Task {
                node: "elsewhere".to_owned(),
                ..task.clone()
            })
            .collect(),
        ..pb::Cluster::default()
    };
    let delta = |sequence, put, remove: &[&str]| pb::Batch {
        sequence,
        kind: BatchKind::Delta.into(),
        put: Some(put),
        part: 0,
        remove: Some(pb::Removals {
            nodes: remove.iter().map(ToString::to_string).collect(),
            ..pb::Removals::default()
        }),
        ..full_sync(pb::Cluster::default())
    };
    server.apply(delta(2, detour, &[])).await;
    let rest = pb::Cluster {
        nodes: cluster.nodes.iter().rev().cloned().collect(),
        tasks: cluster.tasks.iter().rev().cloned().collect(),
        ..pb::Cluster::default()
    };
    server.apply(delta(3, rest, &["elsewhere", "node-0003"])).await;
}

#[tokio::test]
async fn equal_states_give_equal_bytes_in_any_arrival_order() {
    let mut cluster = nodes(600);
    for (i, (node, task)) in cluster.nodes.iter_mut().zip(&mut cluster.tasks).enumerate() {
        let gpus = (i % 5).to_string();
        node.allocatable = Some(amounts(&[("cpu", "8"), ("pods", "3"), ("nvidia.com/gpu", &gpus)]));
        node.unschedulable = i % 11 == 0;
        task.node = format!("node-{:04}", i * 7 % 600);
        let all = [
            pb::TaskStatus::Running,
            pb::TaskStatus::Releasing,
            pb::TaskStatus::Pipelined,
        ];
        task.status = all[i % 3].into();
    }
    let (mut one, mut two) = (TestServer::start().await, TestServer::start().await);
    one.apply(full_sync(cluster.clone())).await;
    in_another_order(&mut two, &cluster).await;
    let tasks: Vec<_> = (0..60)
        .map(|i| {
            task(
                "",
                &[
                    ("cpu", &format!("{}m", i * 150)),
                    ("nvidia.com/gpu", &(i % 3).to_string()),
                ],
            )
        })
        .collect();
    for limit in [None, Some(0), Some(7), Some(u32::MAX)] {
        for with_filter in [false, true] {
            let query = pb::ScoreRequest {
                limit,
                with_filter,
                with_parts: true,
                samples: Some(5),
                ..score(tasks.clone())
            };
            let first = one.decisions.score(query.clone()).await.unwrap().into_inner().result;
            let other = two.decisions.score(query.clone()).await.unwrap().into_inner().result;
            let again = two.decisions.score(query).await.unwrap().into_inner().result;
            let first = first.unwrap().encode_to_vec();
            assert!(first == other.unwrap().encode_to_vec(), "{limit:?} {with_filter}");
            assert!(first == again.unwrap().encode_to_vec(), "{limit:?} {with_filter}");
        }
    }
    one.stop().await;
    two.stop().await;
}
