//! `KubeSchedulerConfiguration` with several profiles, over gRPC: a request or a session names one.

use std::collections::BTreeMap;

use pumice::server::pb;
use pumice::server::pb::evaluation_ref::Target;
use tonic::Code;

use crate::support::{EmbeddedServer, reason};

const DOCUMENT: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: packs
  plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFitPlus, weight: 2}]}}
  pluginConfig: [{name: NodeResourcesFitPlus, args: {resources: {cpu: {type: MostAllocated, weight: 1}}}}]
- schedulerName: spreads
  plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFitPlus}]}}
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

fn score_request(evaluation_ref: Target) -> pb::ScoreRequest {
    let items = BTreeMap::from([("cpu".to_owned(), "1".to_owned())]);
    pb::ScoreRequest {
        against: Some(pb::EvaluationRef {
            target: Some(evaluation_ref),
            ..pb::EvaluationRef::default()
        }),
        tasks: vec![pb::Task {
            requests: Some(pb::ResourceList { items }),
            ..pb::Task::default()
        }],
        ..pb::ScoreRequest::default()
    }
}

fn latest_ref(profile: &str) -> pb::LatestRef {
    pb::LatestRef {
        policy: "kube".to_owned(),
        profile: profile.to_owned(),
        ..pb::LatestRef::default()
    }
}

#[test]
fn a_query_or_session_names_its_profile() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let totals = |evaluation_ref: Target| {
        let reply = wire.score(score_request(evaluation_ref))?;
        let items = reply.result.unwrap_or_default().items;
        Ok::<_, tonic::Status>(items.into_iter().flat_map(|item| item.totals).collect::<Vec<f64>>())
    };
    let batch = pb::Batch {
        source: "test".to_owned(),
        source_epoch: 1,
        sequence: 1,
        kind: pb::BatchKind::FullSyncLast.into(),
        part: 1,
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
        assert_eq!(
            totals(Target::Latest(latest_ref(profile))).unwrap(),
            [total],
            "shared state"
        );
        let inline = pb::InlineSnapshot {
            cluster: Some(cluster()),
            policy_document: DOCUMENT.to_owned(),
            profile: profile.to_owned(),
            ..pb::InlineSnapshot::default()
        };
        assert_eq!(totals(Target::Inline(Box::new(inline))).unwrap(), [total], "inline");
        let opened = wire
            .open_session(pb::OpenSessionRequest {
                against: score_request(Target::Latest(latest_ref(profile))).against,
                ..pb::OpenSessionRequest::default()
            })
            .unwrap();
        let step = pb::SessionRef {
            id: opened.session,
            ..pb::SessionRef::default()
        };
        assert_eq!(totals(Target::Session(step)).unwrap(), [total], "session");
    }
    for profile in ["", "default-scheduler"] {
        let refused = totals(Target::Latest(latest_ref(profile))).unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::NotFound, "PROFILE_UNKNOWN")
        );
        assert!(refused.message().contains("packs, spreads"), "{}", refused.message());
    }
}
