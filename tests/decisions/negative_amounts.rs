//! Negative amounts of queues and jobs: refused under `corrected`, counted under `upstream`, and a problem of the record where a
//! policy under `corrected` meets them later.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{amounts, full_sync, job, node, queue, task};
use crate::support::wire::BlockingClients;

fn document(plugin: &str, compatibility: &str) -> String {
    format!(
        "actions: allocate\ntiers: [{{plugins: [{{name: {plugin}}}]}}]\npumice: {{compatibility: {compatibility}}}\n"
    )
}

/// Two nodes of four cores; the queue a with these amounts, the queue b; a job in each, of which that in a needs so much cpu.
fn cluster(limits: impl Fn(pb::Queue) -> pb::Queue, cpu: &str) -> pb::Cluster {
    let asking = |name: &str, queue: &str, cpu: &str| pb::Job {
        min_resources: Some(amounts(&[("cpu", cpu)])),
        ..job(name, queue)
    };
    pb::Cluster {
        nodes: ["n1", "n2"]
            .map(|name| node(name, &[("cpu", "4"), ("memory", "8Gi")]))
            .into(),
        queues: vec![limits(queue("a")), queue("b")],
        jobs: vec![asking("x/a", "a", cpu), asking("x/b", "b", "8")],
        tasks: vec![
            task("x/a-0", "x/a", &[("cpu", "1")]),
            task("x/b-0", "x/b", &[("cpu", "8")]),
        ],
        ..pb::Cluster::default()
    }
}

fn capability(queue: pb::Queue) -> pb::Queue {
    pb::Queue {
        capability: Some(amounts(&[("cpu", "-1"), ("memory", "1Gi")])),
        ..queue
    }
}

fn guarantee(queue: pb::Queue) -> pb::Queue {
    pb::Queue {
        guarantee: Some(amounts(&[("cpu", "-1")])),
        ..queue
    }
}

fn reload(wire: &BlockingClients, document: String) -> Vec<(String, String)> {
    let request = pb::ReloadPolicyRequest {
        document,
        ..pb::ReloadPolicyRequest::default()
    };
    let report = wire.reload_policy(request).unwrap().report.unwrap_or_default();
    let diagnostics = report.diagnostics.into_iter();
    diagnostics.map(|found| (found.code, found.path)).collect()
}

/// Verdict on a stored job: permitted or not, else the reason and the field of the problem.
fn admit(wire: &BlockingClients, name: &str) -> Result<bool, (String, String)> {
    let subject = pb::admit_subject::Subject::Job(pb::Job {
        name: name.to_owned(),
        ..pb::Job::default()
    });
    let reply = wire.admit(pb::AdmitRequest {
        items: vec![pb::AdmitSubject {
            subject: Some(subject),
            attempt: 0,
        }],
        ..pb::AdmitRequest::default()
    });
    let item = reply.unwrap().result.unwrap_or_default().items.remove(0);
    match item.problem {
        Some(problem) => Err((problem.reason, problem.field.trim_start_matches("items[0].").to_owned())),
        None => Ok(item.permitted),
    }
}

#[test]
fn negative_amounts_are_refused_with_a_remedy() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    reload(wire, document("proportion", "corrected"));
    let outcome = wire.apply_batch(full_sync("s", 1, cluster(capability, "-2"))).unwrap();
    let refused: Vec<(&str, &str)> = outcome
        .refused
        .iter()
        .map(|problem| (&*problem.reason, &*problem.field))
        .collect();
    assert_eq!(
        refused,
        [
            ("QUANTITY_NEGATIVE", "batch.put.queues[0].capability.items[cpu]"),
            ("QUANTITY_NEGATIVE", "batch.put.jobs[0].min_resources.items[cpu]")
        ]
    );
    let message = &outcome.refused[0].message;
    assert!(
        message.starts_with("`-1` of `cpu` is negative; set it to 0 or more"),
        "{message}"
    );
    // An inline cluster is refused as a whole: no answer could be trusted.
    let inline = |compatibility: &str| {
        wire.list_queues(pb::ListQueuesRequest {
            against: Some(pb::EvaluationRef {
                target: Some(pb::evaluation_ref::Target::Inline(Box::new(pb::InlineSnapshot {
                    cluster: Some(cluster(capability, "1")),
                    policy_document: document("proportion", compatibility),
                    ..pb::InlineSnapshot::default()
                }))),
                ..pb::EvaluationRef::default()
            }),
            ..pb::ListQueuesRequest::default()
        })
    };
    let rejection = inline("corrected").unwrap_err();
    assert!(
        rejection.message().contains("queues[0].capability.items[cpu]"),
        "{rejection}"
    );
    let listed = inline("upstream").unwrap().queues;
    let own = listed[0].accounts[0].real_capability.iter();
    let own: Vec<(&str, f64)> = own.map(|amount| (&*amount.resource, amount.value)).collect();
    assert_eq!(
        own,
        [("cpu", 8000.0), ("memory", 1_073_741_824.0), ("pods", 220.0)],
        "-1 of cpu is no limit"
    );
}

#[test]
fn records_taken_under_upstream_are_problems_under_corrected() {
    for plugin in ["proportion", "capacity"] {
        let server = EmbeddedServer::start();
        let wire = &server.wire;
        assert_eq!(reload(wire, document(plugin, "upstream")), []);
        let outcome = wire.apply_batch(full_sync("s", 1, cluster(guarantee, "-2"))).unwrap();
        assert_eq!(outcome.refused, []);
        // The guarantees are -1 core: the rest of the cluster is 9 cores, and a may have 8 of them.
        let real_of = |queue: usize| {
            let listed = wire.list_queues(pb::ListQueuesRequest::default()).unwrap().queues;
            listed[queue].accounts.first().map(|own| own.real_capability[0].value)
        };
        assert_eq!((real_of(0), real_of(1)), (Some(8000.0), Some(9000.0)), "{plugin}");
        assert_eq!(admit(wire, "x/b"), Ok(true), "{plugin}");
        assert_eq!(
            reload(wire, document(plugin, "corrected")),
            [("guarantee", "a"), ("min_resources", "x/a")].map(|(field, name)| {
                let kind = if field == "guarantee" { "queues" } else { "jobs" };
                let path = format!("{kind}[{name}].{field}.items[cpu]");
                ("QUANTITY_NEGATIVE".to_owned(), path)
            }),
            "{plugin}"
        );
        assert_eq!(
            (real_of(0), real_of(1)),
            (None, Some(8000.0)),
            "{plugin}: it counts as nothing"
        );
        let refused = |field: &str| Err(("QUANTITY_NEGATIVE".to_owned(), field.to_owned()));
        assert_eq!(admit(wire, "x/a"), refused("jobs[x/a].min_resources.items[cpu]"));
        assert_eq!(admit(wire, "x/b"), Ok(true));
        // From now on such records are refused.
        let again = wire.apply_batch(full_sync("s", 2, cluster(guarantee, "1"))).unwrap();
        assert_eq!(again.refused.len(), 1, "{:?}", again.refused);
        assert_eq!(
            admit(wire, "x/a"),
            refused("queues[a].guarantee.items[cpu]"),
            "{plugin}"
        );
    }
}
