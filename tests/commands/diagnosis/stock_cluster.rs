//! An operator's walk over a cluster under the configuration of Volcano's chart: quotas, a gang beyond them, a queue that starves.

use pumice::server::pb;
use serde_json::Value;

use super::{ends, json};
use crate::support::EmbeddedServer;

/// Four nodes of eight cores, of which `batch` holds 26 and `research`, which may hold eight, two. `serving` has the weight 3.
const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/queues/cluster.yaml");
const POLICY: &str = include_str!("../../../examples/queues/policy.yaml");

/// Server with the cluster, under the chart's policy with this plugin of quotas.
fn walk(quota: &str) -> EmbeddedServer {
    let server = EmbeddedServer::start();
    let reload = pb::ReloadPolicyRequest {
        document: POLICY.replace("proportion", quota),
        ..pb::ReloadPolicyRequest::default()
    };
    server.wire.reload_policy(reload).unwrap();
    ends(Some(&server), &["state", "load", CLUSTER], 0);
    server
}

/// Code and sentence of a verdict, and all remedies.
fn verdict(server: &EmbeddedServer, job: &str) -> (String, String, String) {
    let report = json(server, &["explain", "job", job]);
    let verdict = &report["verdict"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let hints = verdict["hints"].as_array().unwrap().iter().map(text);
    (
        text(&verdict["code"]),
        text(&verdict["summary"]),
        hints.collect::<Vec<_>>().join("; "),
    )
}

#[test]
fn a_gang_beyond_its_quota_gets_the_amounts_that_are_allowed_held_and_asked() {
    for (quota, of_deserved, bound) in [
        (
            "proportion",
            " in its deserved share",
            "queue research may hold at most 8 cores of cpu",
        ),
        ("capacity", "", "the whole quota of queue research is 8 cores of cpu"),
    ] {
        let server = walk(quota);
        let (code, summary, hints) = verdict(&server, "x/gang");
        assert_eq!(code, "QUOTA", "{summary}");
        assert_eq!(
            summary,
            format!(
                "job x/gang waits: queue research has 6 of 8 cpu cores left{of_deserved}, and the gang of 10 tasks asks for 10"
            )
        );
        assert!(hints.contains(&format!("it never fits: {bound}")), "{hints}");
        assert!(
            hints.contains("admits 6 of its tasks now")
                && hints.contains("a minMember of at most 4 would let it start"),
            "{hints}"
        );
        let report = json(&server, &["explain", "job", "x/gang"]);
        assert_eq!(report["verdict"]["impossible"], true);
        let cpu = &report["queue"]["account"][0];
        assert_eq!((&cpu["allocated"], &cpu["realCapability"]), (&2.0.into(), &8.0.into()));
    }
}

#[test]
fn a_job_that_is_not_enqueued_gets_the_amounts_of_its_queue() {
    let server = walk("proportion");
    let (code, summary, hints) = verdict(&server, "x/ask");
    assert_eq!(code, "QUOTA");
    assert_eq!(
        summary,
        "job x/ask waits: queue research has 0 of 8 cpu cores left, and it asks for 7"
    );
    assert!(hints.contains("it fits when 11 cores of cpu are given back"), "{hints}");
    let text = ends(Some(&server), &["explain", "job", "x/ask"], 0);
    let reason = "requested <7>, held <2>, reserved for admitted jobs <10>, real capability <8>";
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(reason), "{text}");
}

#[test]
fn a_turn_names_priorities_and_shares() {
    let server = walk("proportion");
    let text = ends(Some(&server), &["explain", "job", "x/later"], 0);
    for line in [
        "by proportion: priority 0, share 0",
        "job: 2nd of 2 that wait in its queue; after x/now",
        "by priority: priority 10 (the first has priority 1",
        "by gang: not ready (the first has not ready)",
        "by drf: share 0 (the first has share 0)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = ends(Some(&server), &["explain", "job", "x/gang"], 0);
    assert!(
        text.contains("by proportion: priority 0, share 0.25 (queue serving has priority 0, share 0)"),
        "{text}"
    );
}

#[test]
fn other_commands_tell_the_same_quotas() {
    let server = walk("capacity");
    let text = ends(
        Some(&server),
        &[
            "capacity", "--queue", "research", "--shape", "1 cpu", "--with", BIG_NODE,
        ],
        0,
    );
    assert!(
        text.contains("research") && text.contains("capacity: Queue <research>"),
        "{text}"
    );
    let text = ends(
        Some(&server),
        &[
            "place",
            "--shape",
            "10 x 1 cpu",
            "--queue",
            "research",
            "--with",
            BIG_NODE,
        ],
        1,
    );
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("6 of 10 tasks found a place, 10 needed"), "{text}");
    assert!(joined.contains("QueueOverCapability"), "{text}");
    let queues = ends(Some(&server), &["state", "show", "queues"], 0);
    assert!(queues.contains("serving") && queues.contains("cpu: 8"), "{queues}");
    let jobs = json(&server, &["state", "show", "jobs"]);
    assert!(jobs.to_string().contains("x/now"));
}

/// Node with room for everything.
const BIG_NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/queues/big-node.yaml");

#[test]
fn a_diff_of_policies_names_jobs_whose_quotas_or_turns_change() {
    // By weight serving deserves 16 of the 32 cores: four tasks of four cores. Under capacity it may hold all 32.
    let folder = crate::support::TestDirectory::named("policy-diff-jobs");
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (before, after) = (
        write("before.yaml", POLICY),
        write("after.yaml", &POLICY.replace("proportion", "capacity")),
    );
    let text = ends(None, &["policy", "diff", &before, &after, "--cluster", CLUSTER], 1);
    let row = |job: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(job));
        let words = line
            .unwrap_or_else(|| panic!("no row of {job}: {text}"))
            .split_whitespace();
        words.collect::<Vec<_>>().join(" ")
    };
    assert!(
        text.contains("jobs: 4 waiting jobs evaluated, 2 decided differently"),
        "{text}"
    );
    assert_eq!(row("x/later"), "x/later serving already enqueued 4 → 8 2", "{text}");
    // Without an order of its own the queues go by name, and research is served before serving.
    let heavy = write(
        "heavy.yaml",
        &POLICY.replace("- name: proportion", "- name: capacity\n    enableQueueOrder: false"),
    );
    let text = ends(
        None,
        &["policy", "diff", &before, &heavy, "--cluster", CLUSTER, "-o", "json"],
        1,
    );
    let found: Value = serde_json::from_str(&text).unwrap();
    let changed = found["impact"]["changedJobs"].as_array().unwrap();
    let turn = |job: &str| {
        let row = changed.iter().find(|row| row["job"] == job).unwrap();
        (row["before"]["turn"].clone(), row["after"]["turn"].clone())
    };
    assert_eq!(
        (turn("x/now"), turn("x/gang")),
        ((1.into(), 3.into()), (3.into(), 1.into()))
    );
    let same = ends(None, &["policy", "diff", &before, &before, "--cluster", CLUSTER], 0);
    assert!(
        same.contains("jobs: 4 waiting jobs evaluated, none decided differently"),
        "{same}"
    );
}

#[test]
fn a_starving_queue_names_who_holds_what_it_deserves() {
    // serving holds nothing of the 16 cores that it deserves; batch holds 26 and deserves 8. The chart has no action that evicts.
    let server = walk("proportion");
    let (code, _, hints) = verdict(&server, "x/now");
    assert_eq!(code, "NO_NODE");
    assert!(
        hints.starts_with(
            "queue serving holds 0 cores of the 16 cores of cpu that it deserves; other queues hold more than they deserve: batch 18 \
             cores; add `reclaim` to the actions of the policy"
        ),
        "{hints}"
    );
    let reload = pb::ReloadPolicyRequest {
        document: POLICY.replace("backfill", "backfill, reclaim"),
        ..pb::ReloadPolicyRequest::default()
    };
    server.wire.reload_policy(reload).unwrap();
    let (_, _, hints) = verdict(&server, "x/now");
    assert!(
        hints.contains("batch 18 cores; the action `reclaim` takes that back"),
        "{hints}"
    );
    // research holds less than it deserves, too, but its own quota keeps the gang.
    let (code, _, hints) = verdict(&server, "x/gang");
    assert!(code == "QUOTA" && !hints.contains("reclaim"), "{hints}");
}
