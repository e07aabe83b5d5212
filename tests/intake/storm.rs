//! A thousand reloads, good and bad, while eight clients decide and the cluster changes.
//!
//! The engine in this process computes every result again, from the revision and the policy version that the result
//! names and the test's own record of batches and documents.
#![expect(clippy::print_stdout, reason = "says how many answers were computed again")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pumice::server::pb;
use pumice_engine::decide;
use pumice_engine::model::ClusterState;
use pumice_engine::policy::{CompileOptions, Policy, compile};
use tonic::Code;

use crate::support::records::{amounts, delta, full_sync, hypothetical_task, node};
use crate::support::wire::BlockingClients;
use crate::support::{EmbeddedServer, engine};

const RELOADS: u64 = 1_000;
const CLIENTS: usize = 8;
const RESPONSES_PER_CLIENT: usize = 2_500;
const NODES: u64 = 32;

/// Document that differs for every number: a mixture of two would give the scores of neither.
fn good(number: u64) -> String {
    let weight = number + 1;
    let (cpu, gpu) = if number.is_multiple_of(2) {
        ("LeastAllocated", "MostAllocated")
    } else {
        ("MostAllocated", "LeastAllocated")
    };
    let sra = number.is_multiple_of(3);
    let proportion = number % 5;
    format!(
        "actions: allocate\ntiers:\n- plugins:\n  - name: resource-strategy-fit\n    arguments:\n      \
         resourceStrategyFitWeight: {weight}\n      resources:\n        cpu: {{type: {cpu}, weight: 1}}\n        \
         nvidia.com/gpu: {{type: {gpu}, weight: 2}}\n      \
         sra: {{enable: {sra}, weight: {weight}, resources: nvidia.com/gpu}}\n      \
         proportional: {{enable: true, resources: nvidia.com/gpu, \
         resourceProportion: {{nvidia.com/gpu.cpu: {proportion}, nvidia.com/gpu.memory: 1}}}}\n\
         - plugins:\n  - name: binpack\n    arguments: {{binpack.weight: {weight}}}\n"
    )
}

fn bad(number: u64) -> String {
    match number % 4 {
        0 => format!("actions: [allocate, {number}"),
        1 => "actions: allocate\ntiers: nothing\n".to_owned(),
        2 => "actions: allocate, dance\ntiers: []\n".to_owned(),
        _ => good(number).replace("weight: 2}", "weight: much}"),
    }
}

/// Node that changes with this number, after the change.
fn changed(number: u64) -> pb::Node {
    let gpu = (number % 5).to_string();
    let mut node = node(
        &format!("node-{:02}", number % NODES),
        &[
            ("cpu", "64"),
            ("memory", "256Gi"),
            ("nvidia.com/gpu", if number.is_multiple_of(2) { "8" } else { "4" }),
        ],
    );
    let (cpu, memory) = ((number * 7 % 60).to_string(), format!("{}Gi", number * 11 % 200));
    node.unattributed_used = Some(amounts(&[("cpu", &cpu), ("memory", &memory), ("nvidia.com/gpu", &gpu)]));
    node
}

fn query_tasks() -> Vec<pb::Task> {
    vec![
        hypothetical_task(&[("cpu", "2"), ("memory", "4Gi")]),
        hypothetical_task(&[("cpu", "8"), ("memory", "32Gi"), ("nvidia.com/gpu", "1")]),
        hypothetical_task(&[("cpu", "500m")]),
        hypothetical_task(&[("memory", "100Gi"), ("nvidia.com/gpu", "4")]),
        hypothetical_task(&[("cpu", "30"), ("memory", "1Gi"), ("example.com/unknown", "1")]),
    ]
}

/// Scores that a client received, with the revision and the version that they name.
struct ObservedScore {
    revision: u64,
    version: u64,
    task_index: usize,
    item: pb::ScoreItem,
}

/// Batches and documents that the test sent.
#[derive(Default)]
struct PublishedInputs {
    /// Revision, and nodes put there.
    batches: Vec<(u64, Vec<pb::Node>)>,
    documents: BTreeMap<u64, String>,
}

/// Sends reloads and batches, one after the other; half of the batches fall between two reloads.
fn drive(wire: &BlockingClients, record: &mut PublishedInputs, under_way: &dyn Fn() -> bool) {
    let mut sequence = 1;
    for number in 0..RELOADS {
        let is_good = number % 4 != 3;
        let document = if is_good { good(number) } else { bad(number) };
        let reply = wire.reload_policy(pb::ReloadPolicyRequest {
            document: document.clone(),
            ..Default::default()
        });
        match reply {
            Ok(reply) if is_good => {
                let policy = reply.policy.unwrap_or_default();
                assert!(!reply.unchanged && policy.active, "document {number} is a new one");
                record.documents.insert(policy.version, document);
            }
            Err(status) if !is_good => assert_eq!(status.code(), Code::InvalidArgument, "{status:?}"),
            other => panic!("reload {number}: {other:?}"),
        }
        if number.is_multiple_of(2) {
            sequence += 1;
            let nodes = vec![changed(number), changed(number + 13)];
            let put = pb::Cluster {
                nodes: nodes.clone(),
                ..Default::default()
            };
            let outcome = wire.apply_batch(delta("s", sequence, put)).unwrap();
            record
                .batches
                .push((outcome.revision.unwrap_or_default().number, nodes));
        }
        // The first reload comes before the first request; from then on the clients decide all the time.
        while number > 0 && !under_way() {
            std::thread::yield_now();
        }
    }
}

/// One client: asks until the driver is done.
fn ask(wire: &BlockingClients, done: &AtomicBool, asked: &AtomicUsize, client: usize) -> Vec<ObservedScore> {
    let queries = query_tasks();
    let mut results = Vec::new();
    let mut number = client;
    while !done.load(Ordering::Relaxed) {
        number += 1;
        let query = number % queries.len();
        let reply = wire.score(pb::ScoreRequest {
            tasks: vec![queries[query].clone()],
            with_filter: true,
            with_parts: true,
            ..Default::default()
        });
        let mut reply = reply.unwrap_or_else(|status| panic!("a question failed during a reload: {status:?}"));
        asked.fetch_add(1, Ordering::Relaxed);
        let metadata = reply.metadata.take().unwrap_or_default();
        let item = reply.result.unwrap_or_default().items.remove(0);
        assert_eq!(item.problem, None);
        if results.len() < RESPONSES_PER_CLIENT {
            let revision = metadata.revision.unwrap_or_default().number;
            results.push(ObservedScore {
                revision,
                version: metadata.policy_version,
                task_index: query,
                item,
            });
        }
    }
    results
}

/// Bits of scores by node.
fn bits(names: &[String], scores: &[f64]) -> BTreeMap<String, u64> {
    assert_eq!(names.len(), scores.len());
    names
        .iter()
        .cloned()
        .zip(scores.iter().map(|score| score.to_bits()))
        .collect()
}

/// Computes a result again and compares all of it.
fn compare(cluster_state: &ClusterState, policy: &Policy, task: &pb::Task, result: &ObservedScore) {
    let sheet = decide::score(cluster_state, policy, &engine::score_query(cluster_state, task))
        .unwrap()
        .remove(0)
        .unwrap()
        .result;
    let name = |slot: &u32| cluster_state.node(*slot).unwrap().record.name.to_string();
    let names: Vec<String> = sheet.nodes.iter().map(name).collect();
    let (item, at) = (
        &result.item,
        format!("revision {}, version {}", result.revision, result.version),
    );
    let shown = item.nodes.clone().unwrap_or_default().names;
    assert_eq!(
        bits(&shown, &item.totals),
        bits(&names, &sheet.totals),
        "totals at {at}"
    );
    assert_eq!(item.parts.len(), sheet.parts.len());
    for (part, expected) in item.parts.iter().zip(&sheet.parts) {
        assert_eq!((&*part.plugin, &*part.part), (&*expected.plugin, expected.part));
        assert_eq!(
            bits(&shown, &part.scores),
            bits(&names, &expected.scores),
            "{} at {at}",
            part.part
        );
    }
    let mut fit: Vec<String> = sheet.filter.as_ref().unwrap().fit.iter().map(name).collect();
    fit.sort();
    let verdict = item.filter.clone().unwrap_or_default();
    assert_eq!(verdict.fit.unwrap_or_default().names, fit, "fit at {at}");
    let counts = |count: u32, message: &str| (message.to_owned(), count);
    let shown: Vec<_> = verdict
        .rejections
        .iter()
        .map(|rejection| counts(rejection.count, &rejection.reason.clone().unwrap_or_default().message))
        .collect();
    let expected = sheet.filter.as_ref().unwrap().rejections.iter();
    let expected: Vec<_> = expected
        .map(|rejection| counts(rejection.count, &rejection.reason.message))
        .collect();
    assert_eq!(shown, expected, "rejections at {at}");
}

/// Computes all results again.
fn verify(record: &PublishedInputs, mut results: Vec<ObservedScore>) {
    results.sort_by_key(|result| result.revision);
    let versions: Vec<u64> = results.iter().map(|result| result.version).collect();
    assert!(versions.is_sorted(), "a newer revision has no older policy");
    let queries = query_tasks();
    let mut batches = record.batches.iter().peekable();
    let mut nodes: BTreeMap<String, pb::Node> = BTreeMap::new();
    let mut cluster_state = engine::cluster_state(&pb::Cluster::default());
    let mut policies: BTreeMap<u64, Arc<Policy>> = BTreeMap::new();
    let mut last = (0, 0);
    for result in &results {
        if result.revision == last.0 {
            assert_eq!(result.version, last.1, "one revision has one policy");
        }
        last = (result.revision, result.version);
        let mut is_stale = false;
        while let Some((_, put)) = batches.next_if(|(revision, _)| *revision <= result.revision) {
            nodes.extend(put.iter().map(|node| (node.name.clone(), node.clone())));
            is_stale = true;
        }
        if is_stale {
            let nodes = nodes.values().cloned().collect();
            cluster_state = engine::cluster_state(&pb::Cluster {
                nodes,
                ..Default::default()
            });
        }
        let policy = policies.entry(result.version).or_insert_with(|| {
            let document = &record.documents[&result.version];
            compile(document, &CompileOptions::default()).unwrap().policy
        });
        compare(&cluster_state, policy, &queries[result.task_index], result);
    }
}

#[test]
fn every_result_in_a_storm_of_reloads_is_of_one_policy_and_one_state() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let nodes: Vec<pb::Node> = (0..NODES).map(changed).collect();
    let put = pb::Cluster {
        nodes: nodes.clone(),
        ..Default::default()
    };
    let outcome = wire.apply_batch(full_sync("s", 1, put)).unwrap();
    let mut record = PublishedInputs::default();
    record
        .batches
        .push((outcome.revision.unwrap_or_default().number, nodes));
    let first = good(RELOADS);
    let reply = wire
        .reload_policy(pb::ReloadPolicyRequest {
            document: first.clone(),
            ..Default::default()
        })
        .unwrap();
    record.documents.insert(reply.policy.unwrap_or_default().version, first);
    let (done, asked) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; CLIENTS]);
    let results: Vec<ObservedScore> = std::thread::scope(|scope| {
        let (done, server) = (&done, &server);
        let clients: Vec<_> = asked
            .iter()
            .enumerate()
            .map(|(client, asked)| scope.spawn(move || ask(&server.connect(), done, asked, client)))
            .collect();
        // A client that fails ends the test, instead of a wait without end.
        let all = |clients: &[std::thread::ScopedJoinHandle<'_, _>]| {
            asked
                .iter()
                .zip(clients)
                .all(|(asked, client)| asked.load(Ordering::Relaxed) > 0 || client.is_finished())
        };
        drive(wire, &mut record, &|| all(&clients));
        done.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let seen: std::collections::BTreeSet<u64> = results.iter().map(|result| result.version).collect();
    assert!(
        seen.len() > 100,
        "the clients decided all along, not under {} policies only",
        seen.len()
    );
    assert!(results.len() >= 1_000, "{} answers are no storm", results.len());
    println!(
        "storm: {} answers under {} policies, each computed again",
        results.len(),
        seen.len()
    );
    verify(&record, results);
    let (_, metrics) = server.page("/metrics");
    let refused = metrics
        .lines()
        .filter(|line| line.contains("reloads_total{") && line.contains("\"rejected\""));
    let refused = refused
        .filter_map(|line| line.rsplit(' ').next())
        .map(|count| count.parse::<u64>().unwrap());
    assert_eq!(refused.sum::<u64>(), RELOADS / 4, "{metrics}");
}
