//! The reference as it is: names, queues that it makes, conditions that it ignores, and fields that it reads.

use pumice::server::pb;
use serde_json::json;

use super::{hold, pumice, reload, simulated, texts};
use crate::support::EmbeddedServer;
use crate::support::records::{amounts, full_sync, job, node, queue, task, task_on_node};

#[test]
fn plugins_have_the_names_by_which_volcano_registers_them() {
    let checked = texts(&pumice("numa-aware", &["policy", "check", "policy.yaml"]));
    let lines = |part: &str| checked.lines().filter(|line| line.contains(part)).count();
    assert_eq!(lines("does not serve `numa-aware`"), 1, "{checked}");
    assert_eq!(lines("unknown plugin `numaaware`"), 1, "{checked}");
    assert!(checked.contains("did you mean `numa-aware`"), "{checked}");
}

#[test]
fn nodes_that_are_not_ready_count_under_upstream() {
    hold("unready-nodes", &["cases.yaml"]);
}

#[test]
fn a_tree_hangs_below_a_root_that_nobody_wrote() {
    for policy in ["policy.yaml", "upstream.yaml"] {
        let outcome = simulated("tree-without-root", "cluster.yaml", policy);
        assert_eq!(outcome["tasks"]["placed"], json!(1), "{policy}");
    }
}

#[test]
fn a_server_makes_root_and_default_of_loaded_files_and_keeps_those_of_another_source() {
    let server = EmbeddedServer::start();
    reload(&server, "[{name: capacity, enableHierarchy: true}]", "upstream");
    let address = format!("http://{}", server.grpc);
    let run = |command: &[&str]| {
        let output = pumice("tree-without-root", &[command, &["--server", &address]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", texts(&output));
        texts(&output)
    };
    let first = run(&["state", "load", "cluster.yaml", "default.yaml", "--source", "files"]);
    assert!(!first.contains("warning"), "{first}");
    let admitted = server.wire.admit(pb::AdmitRequest {
        mode: pb::AdmitMode::Check.into(),
        items: ["x/j", "x/plain"]
            .map(|name| pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Job(pb::Job {
                    name: name.to_owned(),
                    ..pb::Job::default()
                })),
                attempt: 0,
            })
            .into(),
        ..Default::default()
    });
    let items = admitted.unwrap().result.unwrap().items;
    assert!(items.iter().all(|item| item.permitted), "{items:?}");
    let explained = run(&["explain", "job", "x/j"]);
    assert!(!explained.contains("not ready"), "{explained}");
    // A second source with a tree of its own leaves both queues alone.
    let tree = ["state", "load", "other.yaml", "--source", "others"];
    let second = run(&tree);
    assert!(!second.contains("refused"), "{second}");
}

/// Places of queues in the order, and by their keys alone; `None`: some queue has no key.
fn ordered(server: &EmbeddedServer, plugins: &[&str]) -> (Vec<String>, Option<Vec<String>>) {
    let order = server.wire.order(pb::OrderRequest {
        queues: Some(pb::NameSet {
            names: ["a", "b", "c"].map(str::to_owned).into(),
        }),
        plugins: plugins.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    });
    let ranks = order.unwrap().result.unwrap().queues;
    let names = ranks.iter().map(|rank| rank.name.clone()).collect();
    let keyed = ranks
        .iter()
        .map(|rank| Some((rank.keys.first()?.values.clone(), rank.name.clone())));
    let mut keyed: Option<Vec<(Vec<f64>, String)>> = keyed.collect();
    if let Some(keyed) = &mut keyed {
        keyed.sort_by(|one, other| one.partial_cmp(other).unwrap());
    }
    (
        names,
        keyed.map(|keyed| keyed.into_iter().map(|(_, name)| name).collect()),
    )
}

#[test]
fn keys_of_a_tree_tell_its_order_or_are_absent() {
    let server = EmbeddedServer::start();
    reload(&server, "[{name: capacity, enableHierarchy: true}]", "upstream");
    let below = |parent: &str, name: &str, deserved: &str| pb::Queue {
        parent: parent.to_owned(),
        deserved: Some(amounts(&[("cpu", deserved)])),
        ..queue(name)
    };
    // eng holds 9 of 10, ops 1 of 10; a holds 1 of 10, b 1 of 1, c 8 of 10.
    let held = [("a", "1"), ("b", "1"), ("c", "8")];
    let cluster = |ops: &str| pb::Cluster {
        nodes: vec![node("n", &[("cpu", "20"), ("memory", "9Gi"), ("pods", "9")])],
        queues: vec![
            queue("root"),
            below("root", "eng", "10"),
            below("root", "ops", ops),
            below("eng", "a", "10"),
            below("eng", "c", "10"),
            below("ops", "b", "1"),
        ],
        jobs: held.iter().map(|(name, _)| job(&format!("ns/{name}"), name)).collect(),
        tasks: held
            .iter()
            .map(|(name, cores)| {
                let own = task(&format!("ns/{name}-0"), &format!("ns/{name}"), &[("cpu", cores)]);
                task_on_node(own, pb::TaskStatus::Running, "n")
            })
            .collect(),
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("s", 1, cluster("10"))).unwrap();
    let by_fork = ["b", "a", "c"].map(str::to_owned).to_vec();
    assert_eq!(ordered(&server, &[]), (by_fork.clone(), Some(by_fork.clone())));
    assert_eq!(ordered(&server, &["capacity"]).1, Some(by_fork));
    // Both departments have the share 0.9: the reference compares what no key tells.
    let equal = pb::Cluster {
        tasks: cluster("10").tasks,
        ..cluster("1.1111")
    };
    let mut equal = equal;
    equal.queues[2].deserved = Some(amounts(&[("cpu", "10")]));
    equal.tasks[1].requests = Some(amounts(&[("cpu", "9")]));
    server.wire.apply_batch(full_sync("s", 2, equal)).unwrap();
    for plugins in [&[][..], &["capacity"][..]] {
        assert_eq!(ordered(&server, plugins).1, None);
    }
}

#[test]
fn a_queue_without_jobs_breaks_the_order_of_cards_also_by_name() {
    let server = EmbeddedServer::start();
    reload(&server, "[{name: capacity-card}]", "upstream");
    let cluster = pb::Cluster {
        queues: vec![queue("a"), queue("b")],
        jobs: vec![job("ns/j", "a")],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("s", 1, cluster)).unwrap();
    for plugins in [vec![], vec!["capacity-card".to_owned()]] {
        let order = server.wire.order(pb::OrderRequest {
            queues: Some(pb::NameSet::default()),
            plugins,
            ..Default::default()
        });
        let ranks = order.unwrap().result.unwrap().queues;
        let broken = ranks.iter().find(|rank| rank.name == "b").unwrap();
        let reason = broken.problem.as_ref().map(|problem| problem.reason.as_str());
        assert_eq!((reason, broken.keys.len()), (Some("REFERENCE_PANICS"), 0));
    }
}

#[test]
fn a_request_of_nothing_is_refused_where_a_scalar_is_below_nothing_under_upstream() {
    let server = EmbeddedServer::start();
    let runs = task_on_node(
        task("ns/runs", "", &[("cpu", "1"), ("nvidia.com/gpu", "2")]),
        pb::TaskStatus::Running,
        "n",
    );
    let cluster = pb::Cluster {
        nodes: vec![node(
            "n",
            &[("cpu", "8"), ("memory", "9Gi"), ("pods", "9"), ("nvidia.com/gpu", "1")],
        )],
        tasks: vec![runs],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("s", 1, cluster)).unwrap();
    for (mode, gpus, fits) in [("corrected", "0", 1), ("upstream", "0", 0), ("upstream", "", 1)] {
        reload(&server, "[{name: gang}]", mode);
        let mut items = vec![("cpu", "1")];
        items.extend((!gpus.is_empty()).then_some(("nvidia.com/gpu", gpus)));
        let filter = server.wire.filter(pb::FilterRequest {
            tasks: vec![task("ns/new", "", &items)],
            resource_fit: pb::ResourceFit::Idle.into(),
            ..Default::default()
        });
        let item = filter.unwrap().result.unwrap().items.remove(0);
        assert_eq!(item.fit_count, fits, "{mode} {gpus}");
    }
}

#[test]
fn kube_scheduler_compares_no_request_of_nothing() {
    let server = EmbeddedServer::start();
    let runs = task_on_node(
        task("ns/runs", "", &[("cpu", "9"), ("nvidia.com/gpu", "2")]),
        pb::TaskStatus::Running,
        "n",
    );
    let amount = [("cpu", "8"), ("memory", "9Gi"), ("pods", "9"), ("nvidia.com/gpu", "1")];
    let cluster = pb::Cluster {
        nodes: vec![node("n", &amount)],
        tasks: vec![runs],
        ..pb::Cluster::default()
    };
    for (sequence, release) in (1..).zip(["kube-scheduler-1.36", "kube-scheduler-1.37"]) {
        let reload = pb::ReloadPolicyRequest {
            document: "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n".to_owned(),
            compatibility: release.to_owned(),
            ..Default::default()
        };
        server.wire.reload_policy(reload).unwrap();
        // The records have the labels that the policy reads.
        server
            .wire
            .apply_batch(full_sync("s", sequence, cluster.clone()))
            .unwrap();
        for (cores, fits) in [("0", 1), ("1m", 0)] {
            let filter = server.wire.filter(pb::FilterRequest {
                tasks: vec![task(
                    "ns/new",
                    "",
                    &[("cpu", cores), ("memory", "1Gi"), ("nvidia.com/gpu", "0")],
                )],
                resource_fit: pb::ResourceFit::Idle.into(),
                ..Default::default()
            });
            let item = filter.unwrap().result.unwrap().items.remove(0);
            assert_eq!(item.fit_count, fits, "{release} {cores}");
        }
    }
}

#[test]
fn a_task_that_is_refused_before_tells_nothing_of_its_template() {
    let server = EmbeddedServer::start();
    reload(
        &server,
        "[{name: predicates, arguments: {predicate.CacheEnable: true}}]",
        "upstream",
    );
    let cluster = pb::Cluster {
        nodes: vec![node("n", &[("cpu", "8"), ("memory", "9Gi"), ("pods", "9")])],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("s", 1, cluster)).unwrap();
    let of_template = |name: &str| {
        let mut own = task(name, "", &[("cpu", "1")]);
        own.annotations
            .insert("volcano.sh/template-uid".to_owned(), "t".to_owned());
        own
    };
    let nobody = pb::SelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Vec::new(),
    };
    let mut refused = of_template("ns/a");
    refused.constraints = Some(Box::new(pb::PodConstraints {
        affinity: Some(pb::Affinity {
            node_affinity: Some(pb::NodeAffinity {
                required: Some(pb::NodeSelector {
                    terms: vec![pb::NodeSelectorTerm {
                        match_fields: vec![nobody],
                        ..pb::NodeSelectorTerm::default()
                    }],
                }),
                ..pb::NodeAffinity::default()
            }),
            ..pb::Affinity::default()
        }),
        ..pb::PodConstraints::default()
    }));
    let filter = server.wire.filter(pb::FilterRequest {
        tasks: vec![refused, of_template("ns/b")],
        ..Default::default()
    });
    let fits = filter.unwrap().result.unwrap().items;
    assert_eq!(fits.iter().map(|item| item.fit_count).collect::<Vec<_>>(), [0, 1]);
}
