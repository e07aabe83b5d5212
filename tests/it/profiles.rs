//! A `KubeSchedulerConfiguration` with several profiles, over gRPC: a question or session names one.

use std::collections::BTreeMap;

use pumice::server::pb;
use pumice::server::pb::ground::Ground;
use tonic::Code;

use crate::support::{Server, reason};

const DOCUMENT: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: packs
  plugins: {multiPoint: {enabled: [{name: NodeResourcesFitPlus, weight: 2}]}}
  pluginConfig: [{name: NodeResourcesFitPlus, args: {resources: {cpu: {type: MostAllocated, weight: 1}}}}]
- schedulerName: spreads
  plugins: {multiPoint: {enabled: [{name: NodeResourcesFitPlus}]}}
  pluginConfig: [{name: NodeResourcesFitPlus, args: {resources: {cpu: {type: LeastAllocated, weight: 1}}}}]
";

fn amounts(cpu: &str) -> pb::ResourceList {
    let items = BTreeMap::from([("cpu".to_owned(), cpu.to_owned()), ("pods".to_owned(), "9".to_owned())]);
    pb::ResourceList { items }
}

fn cluster() -> pb::Cluster {
    let node = pb::Node {
        name: "n".to_owned(),
        allocatable: Some(amounts("4")),
        ..pb::Node::default()
    };
    pb::Cluster {
        nodes: vec![node],
        ..pb::Cluster::default()
    }
}

fn question(ground: Ground) -> pb::ScoreRequest {
    let items = BTreeMap::from([("cpu".to_owned(), "1".to_owned())]);
    pb::ScoreRequest {
        ground: Some(pb::Ground {
            ground: Some(ground),
            node_table: None,
        }),
        tasks: vec![pb::Task {
            requests: Some(pb::ResourceList { items }),
            ..pb::Task::default()
        }],
        ..pb::ScoreRequest::default()
    }
}

fn world(profile: &str) -> pb::World {
    pb::World {
        policy: "kube".to_owned(),
        profile: profile.to_owned(),
        ..pb::World::default()
    }
}

#[test]
fn a_question_or_session_names_its_profile() {
    let server = Server::start();
    let wire = &server.wire;
    let totals = |ground: Ground| {
        let reply = wire.score(question(ground))?;
        let items = reply.answer.unwrap_or_default().items;
        Ok::<_, tonic::Status>(items.into_iter().flat_map(|item| item.totals).collect::<Vec<f64>>())
    };
    let batch = pb::Batch {
        source: "test".to_owned(),
        source_epoch: 1,
        sequence: 1,
        kind: pb::BatchKind::SnapshotLast.into(),
        snapshot_part: 1,
        put: Some(cluster()),
        ..pb::Batch::default()
    };
    wire.apply_batch(batch).unwrap();
    let reload = pb::ReloadPolicyRequest {
        name: "kube".to_owned(),
        document: DOCUMENT.to_owned(),
        ..pb::ReloadPolicyRequest::default()
    };
    wire.reload_policy(reload).unwrap();
    for (profile, total) in [("packs", 50.0), ("spreads", 75.0)] {
        assert_eq!(totals(Ground::World(world(profile))).unwrap(), [total], "shared state");
        let inline = pb::Inline {
            cluster: Some(cluster()),
            policy_document: DOCUMENT.to_owned(),
            profile: profile.to_owned(),
            ..pb::Inline::default()
        };
        assert_eq!(totals(Ground::Inline(inline)).unwrap(), [total], "inline");
        let opened = wire
            .open_session(pb::OpenSessionRequest {
                ground: question(Ground::World(world(profile))).ground,
                ..pb::OpenSessionRequest::default()
            })
            .unwrap();
        let step = pb::SessionStep {
            session: opened.session,
            ..pb::SessionStep::default()
        };
        assert_eq!(totals(Ground::Session(step)).unwrap(), [total], "session");
    }
    for profile in ["", "default-scheduler"] {
        let refused = totals(Ground::World(world(profile))).unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::NotFound, "PROFILE_UNKNOWN")
        );
        assert!(refused.message().contains("packs, spreads"), "{}", refused.message());
    }
}
