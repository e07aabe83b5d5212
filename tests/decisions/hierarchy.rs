//! Queues in the hierarchy of drf: problems of their places are reported when they arrive, when a policy arrives, and
//! in every listing and response.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync, job, node, queue, task, task_on_node};
use crate::support::wire::BlockingClients;

const FLAT: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: drf\n";
const TREE: &str = "actions: allocate\ntiers:\n- plugins:\n  - {name: drf, enableHierarchy: true}\n";
const PATH: &str = "volcano.sh/hierarchy";
const WEIGHTS: &str = "volcano.sh/hierarchy-weights";

fn placed(name: &str, path: &str, weights: &str) -> pb::Queue {
    pb::Queue {
        annotations: [(PATH, path), (WEIGHTS, weights)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..queue(name)
    }
}

fn queues(queues: &[(&str, &str, &str)]) -> pb::Cluster {
    pb::Cluster {
        queues: queues
            .iter()
            .map(|(name, path, weights)| placed(name, path, weights))
            .collect(),
        ..pb::Cluster::default()
    }
}

fn reload(wire: &BlockingClients, document: &str, compatibility: &str) -> Vec<(String, String)> {
    let request = pb::ReloadPolicyRequest {
        document: document.to_owned(),
        compatibility: compatibility.to_owned(),
        ..Default::default()
    };
    let report = wire.reload_policy(request).unwrap().report.unwrap_or_default();
    let diagnostics = report.diagnostics.into_iter();
    diagnostics
        .map(|diagnostic| (diagnostic.code, diagnostic.path))
        .collect()
}

fn problem_pairs(problems: &[pb::Problem]) -> Vec<(&str, &str)> {
    problems
        .iter()
        .map(|problem| (problem.reason.as_str(), problem.field.as_str()))
        .collect()
}

fn invalid(wire: &BlockingClients) -> Vec<(String, Vec<String>)> {
    let listed = wire.list_queues(pb::ListQueuesRequest::default()).unwrap().queues;
    let faulty = listed.into_iter().filter(|status| !status.invalid.is_empty());
    let reasons = |status: pb::QueueStatus| {
        let name = status.queue.unwrap_or_default().name;
        (name, status.invalid.into_iter().map(|problem| problem.reason).collect())
    };
    faulty.map(reasons).collect()
}

fn order(wire: &BlockingClients) -> pb::OrderResult {
    let query = pb::OrderRequest {
        queues: Some(pb::NameSet::default()),
        with_tree: true,
        ..Default::default()
    };
    wire.order(query).unwrap().result.unwrap_or_default()
}

/// Problems that a queue can have by itself.
const INVALID_QUEUES: [(&str, &str, &str, &str, &str); 7] = [
    ("fewer", "root/eng/dev", "1/2", "HIERARCHY_WEIGHTS_COUNT", WEIGHTS),
    ("more", "root/eng", "1/2/3", "HIERARCHY_WEIGHTS_COUNT", WEIGHTS),
    ("nan", "root/a", "1/NaN", "HIERARCHY_WEIGHT_INVALID", WEIGHTS),
    ("zero", "root/b", "1/0", "HIERARCHY_WEIGHT_INVALID", WEIGHTS),
    ("negative", "root/c", "1/-3", "HIERARCHY_WEIGHT_INVALID", WEIGHTS),
    ("infinite", "root/d", "1/inf", "HIERARCHY_WEIGHT_INVALID", WEIGHTS),
    ("word", "root/e", "1/many", "HIERARCHY_WEIGHT_INVALID", WEIGHTS),
];

#[test]
fn an_invalid_queue_is_rejected_where_its_path_counts() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    assert_eq!(reload(wire, TREE, ""), []);
    let mut cluster = queues(&INVALID_QUEUES.map(|(name, path, weights, ..)| (name, path, weights)));
    cluster.queues.push(placed("half", "root/f", "1/0.5"));
    let outcome = wire.apply_batch(full_sync("s", 1, cluster)).unwrap();
    let fields: Vec<String> = (0..)
        .zip(INVALID_QUEUES)
        .map(|(at, (.., annotation))| format!("batch.put.queues[{at}].annotations[{annotation}]"))
        .collect();
    let expected: Vec<(&str, &str)> = INVALID_QUEUES
        .iter()
        .zip(&fields)
        .map(|(problem, field)| (problem.3, field.as_str()))
        .collect();
    assert_eq!(problem_pairs(&outcome.refused), expected);
    let not_counted = outcome
        .warnings
        .iter()
        .filter(|warning| warning.reason == "RECORD_NOT_COUNTED");
    assert_eq!(not_counted.count(), INVALID_QUEUES.len(), "{:?}", outcome.warnings);
    let names: Vec<String> = order(wire).queues.into_iter().map(|rank| rank.name).collect();
    assert_eq!(names, ["half"], "0.5 is legal");
}

#[test]
fn the_last_valid_path_stays_when_an_invalid_one_is_rejected() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    reload(wire, TREE, "");
    wire.apply_batch(full_sync("s", 1, queues(&[("dev", "root/eng/dev", "1/2/3")])))
        .unwrap();
    let outcome = wire
        .apply_batch(delta("s", 2, queues(&[("dev", "root/eng/dev", "1/2")])))
        .unwrap();
    assert_eq!(outcome.refused.len(), 1);
    let rank = order(wire).queues.remove(0);
    assert_eq!(
        (rank.problem, rank.keys[0].values.len()),
        (None, 4),
        "two levels, as before"
    );
    assert_eq!(
        invalid(wire),
        [("dev".to_owned(), vec!["HIERARCHY_WEIGHTS_COUNT".to_owned()])]
    );
    let mended = wire
        .apply_batch(delta("s", 3, queues(&[("dev", "root/eng/dev", "1/2/4")])))
        .unwrap();
    assert!(mended.refused.is_empty());
    assert_eq!(invalid(wire), []);
}

#[test]
fn an_invalid_path_is_a_warning_until_a_policy_needs_paths() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    assert_eq!(reload(wire, FLAT, ""), []);
    let cluster = queues(&[("good", "root/good", "1/1"), ("zero", "root/b", "1/0")]);
    let outcome = wire.apply_batch(full_sync("s", 1, cluster)).unwrap();
    assert_eq!(problem_pairs(&outcome.refused), []);
    let field = format!("batch.put.queues[1].annotations[{WEIGHTS}]");
    assert_eq!(
        problem_pairs(&outcome.warnings),
        [("HIERARCHY_WEIGHT_INVALID", field.as_str())]
    );
    assert_eq!(invalid(wire), [], "this policy does not look at it");
    assert_eq!(reload(wire, TREE, "upstream"), [], "the reference makes 1 of it");
    let place = format!("queues[zero].annotations[{WEIGHTS}]");
    assert_eq!(
        reload(wire, TREE, "corrected"),
        [("HIERARCHY_WEIGHT_INVALID".to_owned(), place)]
    );
    assert_eq!(
        invalid(wire),
        [("zero".to_owned(), vec!["HIERARCHY_WEIGHT_INVALID".to_owned()])]
    );
    let last = order(wire).queues.pop().unwrap();
    assert_eq!((last.name.as_str(), last.problem.is_some()), ("zero", true));
}

#[test]
fn conflicting_queues_are_named_by_batches_reloads_listings_and_results() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    reload(wire, TREE, "");
    let outcome = wire
        .apply_batch(full_sync("s", 1, queues(&[("a", "root/sci/dev", "1/2/3")])))
        .unwrap();
    assert!(outcome.refused.is_empty() && outcome.warnings.is_empty());
    let more = queues(&[("b", "root/sci", "1/2"), ("c", "root/sci/prod", "1/4/1")]);
    let outcome = wire.apply_batch(delta("s", 2, more)).unwrap();
    assert_eq!(problem_pairs(&outcome.refused), [], "each is good by itself");
    let fields = [
        format!("batch.put.queues[0].annotations[{PATH}]"),
        format!("batch.put.queues[1].annotations[{WEIGHTS}]"),
    ];
    let expected = [
        ("HIERARCHY_INNER_AND_LEAF", fields[0].as_str()),
        ("HIERARCHY_WEIGHTS_CONFLICT", fields[1].as_str()),
    ];
    assert_eq!(problem_pairs(&outcome.warnings), expected);
    let faulty: Vec<String> = invalid(wire).into_iter().map(|(name, _)| name).collect();
    assert_eq!(faulty, ["b", "c"]);
    let found: Vec<String> = reload(wire, TREE, "").into_iter().map(|(_, path)| path).collect();
    assert_eq!(
        found,
        [
            format!("queues[b].annotations[{PATH}]"),
            format!("queues[c].annotations[{WEIGHTS}]")
        ],
        "said again by a reload that changes nothing"
    );
    let result = order(wire);
    let without: Vec<&str> = result
        .queues
        .iter()
        .filter(|rank| rank.problem.is_some())
        .map(|rank| rank.name.as_str())
        .collect();
    assert_eq!(without, ["b", "c"], "last");
    let gone = pb::Batch {
        remove: Some(pb::Removals {
            queues: vec!["a".to_owned()],
            ..pb::Removals::default()
        }),
        ..delta("s", 3, pb::Cluster::default())
    };
    let outcome = wire.apply_batch(gone).unwrap();
    assert_eq!(
        problem_pairs(&outcome.warnings),
        [(
            "HIERARCHY_WEIGHTS_CONFLICT",
            format!("queues[c].annotations[{WEIGHTS}]").as_str()
        )],
        "now c stands against b"
    );
}

#[test]
fn the_full_tree_is_readable() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    reload(wire, TREE, "");
    let mut cluster = queues(&[("sci", "root/sci", "1/2"), ("dev", "root/eng/dev", "1/1/4")]);
    cluster
        .nodes
        .push(node("n", &[("cpu", "10"), ("memory", "40Gi"), ("pods", "100")]));
    for (name, queue_name, cpu, memory) in [("ns/x", "sci", "2", "1Gi"), ("ns/y", "dev", "1", "20Gi")] {
        cluster.jobs.push(job(name, queue_name));
        let requests = [("cpu", cpu), ("memory", memory)];
        let running = task(&format!("{name}-0"), name, &requests);
        cluster.tasks.push(task_on_node(running, pb::TaskStatus::Running, "n"));
        cluster.tasks.push(task(&format!("{name}-1"), name, &requests));
    }
    let outcome = wire.apply_batch(full_sync("s", 1, cluster)).unwrap();
    assert_eq!(problem_pairs(&outcome.refused), []);
    let tree = order(wire).tree;
    let lines: Vec<(&str, &str, f64, f64, &str, bool)> = tree
        .iter()
        .map(|node| {
            let (path, job, dominant) = (node.path.as_str(), node.job.as_str(), node.dominant_resource.as_str());
            (path, job, node.weight, node.share, dominant, node.saturated)
        })
        .collect();
    // Below the root, eng has 0.5 by weight 1 and sci 0.2 by weight 2: eng is scaled down to the measure of sci, 0.1
    // per weight. It shows 1 cpu and 20 Gi times 0.2, besides 2 cpus and 1 Gi unscaled.
    let expected = [
        ("root", "", 1.0, 0.22, "cpu", false),
        ("root/eng", "", 1.0, 0.5, "memory", false),
        ("root/eng/dev", "", 4.0, 0.5, "memory", false),
        ("root/eng/dev", "ns/y", 0.0, 0.5, "memory", false),
        ("root/sci", "", 2.0, 0.2, "cpu", false),
        ("root/sci", "ns/x", 0.0, 0.2, "cpu", false),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, wanted) in lines.iter().zip(&expected) {
        let (path, job, weight, share, dominant, saturated) = *line;
        assert_eq!(
            (path, job, weight, dominant, saturated),
            (wanted.0, wanted.1, wanted.2, wanted.4, wanted.5)
        );
        assert!((share - wanted.3).abs() < 1e-9, "{line:?} {wanted:?}");
    }
    let held = |at: usize| {
        let amounts = tree[at].allocated.iter();
        amounts
            .map(|amount| (amount.resource.as_str(), amount.value))
            .collect::<Vec<_>>()
    };
    let gib = f64::from(1 << 30);
    assert_eq!(held(5), [("cpu", 2_000.0), ("memory", gib), ("pods", 1.0)]);
    assert_eq!(held(3), [("cpu", 1_000.0), ("memory", 20.0 * gib), ("pods", 1.0)]);
}
