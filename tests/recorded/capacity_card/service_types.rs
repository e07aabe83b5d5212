//! Service types on a real server: the example of a cluster that serves and trains, from manifests and by owners of pods.

use pumice::server::pb;

use super::served::{import, served_by};

const POLICY: &str = include_str!("../../../examples/cards/tidal-policy.yaml");
const CLUSTER: &str = include_str!("../../../examples/cards/tidal-cluster.yaml");

fn named(task: &str) -> pb::Task {
    pb::Task {
        name: task.to_owned(),
        ..Default::default()
    }
}

#[test]
fn serving_takes_from_training_by_owners_and_annotations() {
    let server = served_by(import(&[("cluster.yaml", CLUSTER)]), POLICY);
    let running = ["bert-0", "bert-1", "sweep-0", "sweep-1"].map(|name| named(&format!("default/{name}")));
    let ask = |preemptor: pb::Task| {
        let group = pb::VictimGroup {
            preemptor: Some(preemptor),
            node: "gpu-0".to_owned(),
            candidates: running.to_vec(),
            ..Default::default()
        };
        let request = pb::SelectVictimsRequest {
            kind: pb::VictimKind::Reclaim.into(),
            groups: vec![group],
            ..Default::default()
        };
        let item = server
            .wire
            .select_victims(request)
            .unwrap()
            .result
            .unwrap()
            .items
            .remove(0);
        assert_eq!(item.problem, None);
        let mut victims = item.victims;
        victims.sort_unstable();
        (victims, item.fits_after)
    };
    // Four cards are asked for, and each of the four holds two.
    assert_eq!(ask(named("default/chat-0")), (vec![0, 1, 2, 3], Some(2)));
    // The same task of a Job of Volcano takes nothing; the kind of its owner is all that differs.
    let stored = server.wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks;
    let mut records = stored.into_iter().filter_map(|stored| stored.task);
    let chat = records.find(|task| task.name == "default/chat-0").unwrap();
    assert_eq!(chat.owner_kind, "ReplicaSet");
    let of_kind = |kind: &str| pb::Task {
        owner_kind: kind.to_owned(),
        ..chat.clone()
    };
    assert_eq!(ask(of_kind("ReplicaSet")).0, [0, 1, 2, 3]);
    for kind in ["Job", "StatefulSet", ""] {
        assert!(ask(of_kind(kind)).0.is_empty(), "{kind}");
    }
}
