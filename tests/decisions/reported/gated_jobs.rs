//! Jobs of which every task has a scheduling gate.

use pumice::server::pb;

use super::reload;
use crate::support::EmbeddedServer;
use crate::support::records::{amounts, full_sync, job, node, queue, task};

#[test]
fn a_job_behind_gates_is_asked_about_like_any_other() {
    let server = EmbeddedServer::start();
    reload(&server, "[{name: capacity-card}]", "corrected");
    let quota = |cards: u32| pb::Queue {
        annotations: [("volcano.sh/card.quota".to_owned(), format!("{{\"A100\": {cards}}}"))].into(),
        ..queue("q")
    };
    let gpu = |card: &str, product: &str| {
        let mut own = node(
            card,
            &[("cpu", "8"), ("memory", "9Gi"), ("pods", "9"), ("nvidia.com/gpu", "4")],
        );
        for (key, value) in [("product", product), ("count", "4"), ("memory", "81559")] {
            own.labels.insert(format!("nvidia.com/gpu.{key}"), value.to_owned());
        }
        own
    };
    let gated = |number: u32, card: &str| {
        let mut own = task(
            &format!("ns/j-{number}"),
            "ns/j",
            &[("cpu", "1"), ("nvidia.com/gpu", "1")],
        );
        own.limits = Some(amounts(&[("nvidia.com/gpu", "1")]));
        own.annotations
            .insert("volcano.sh/card.name".to_owned(), card.to_owned());
        own.gated = true;
        own
    };
    let mut sequence = 0;
    for (cards, card, permitted) in [
        (2, "A100", true),
        (1, "A100", false),
        (0, "A100", false),
        (2, "H100", false),
    ] {
        sequence += 1;
        let asks = pb::Job {
            min_member: 2,
            ..job("ns/j", "q")
        };
        let cluster = pb::Cluster {
            nodes: vec![gpu("n", "A100")],
            queues: vec![quota(cards)],
            jobs: vec![asks.clone()],
            tasks: vec![gated(0, card), gated(1, card)],
            ..pb::Cluster::default()
        };
        server.wire.apply_batch(full_sync("s", sequence, cluster)).unwrap();
        let admit = server.wire.admit(pb::AdmitRequest {
            items: vec![pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Job(asks)),
                ..Default::default()
            }],
            ..Default::default()
        });
        let item = admit.unwrap().result.unwrap().items.remove(0);
        assert_eq!(item.permitted, permitted, "{cards} of A100, {card}: {item:?}");
    }
}
