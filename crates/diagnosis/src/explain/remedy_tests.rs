//! Remedies that help: evictions, other quotas, and what ends a wait.

use super::report::{ExplainReport, VerdictCode};
use super::test_server::{CPU, ExplainedServer, amounts, hints, job, node, on_node, policy, queue, run, task};
use pumice_protocol::v1 as pb;

/// Job of high priority that asks for a core of a node that a job of low priority fills; the pod has this policy.
async fn preemptor(actions: &str, own: pb::PreemptionPolicy) -> ExplainReport {
    let running = (0..2).map(|at| on_node(task(&format!("x/low-{at}"), "x/low", CPU), "n1"));
    let waiting = pb::Task {
        priority: 100,
        preemption_policy: own.into(),
        ..task("x/high-0", "x/high", CPU)
    };
    let cluster = pb::Cluster {
        nodes: vec![node("n1", &[("cpu", "2")])],
        queues: vec![queue("q")],
        jobs: vec![
            pb::Job {
                phase: pb::JobPhase::Running.into(),
                ..job("x/low", 1)
            },
            pb::Job {
                priority: 100,
                ..job("x/high", 1)
            },
        ],
        tasks: running.chain([waiting]).collect(),
        ..pb::Cluster::default()
    };
    let document = format!(
        "actions: \"{actions}\"\ntiers:\n- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]\n- plugins: [{{name: predicates}}, {{name: nodeorder}}]\n"
    );
    ExplainedServer::start(document, cluster).await.job("x/high").await
}

#[test]
fn preemption_helps_where_select_victims_finds_victims_and_the_policy_evicts_them() {
    run(async {
        let may_help = |report: &ExplainReport| report.task_classes[0].rejections[0].reason.preemption_may_help;
        let lower = pb::PreemptionPolicy::LowerPriority;
        let report = preemptor("enqueue, allocate, preempt", lower).await;
        assert_eq!(report.verdict.code, VerdictCode::NoNode, "{:?}", report.verdict);
        assert!(may_help(&report));
        let said = "preemption may help on 1 node: `preempt` evicts 1 task on n1 (x/low-";
        assert!(hints(&report).contains(said), "{}", hints(&report));
        let without = preemptor("enqueue, allocate", lower).await;
        let never = preemptor("enqueue, allocate, preempt", pb::PreemptionPolicy::Never).await;
        for report in [without, never] {
            assert_eq!(report.verdict.code, VerdictCode::NoNode, "{:?}", report.verdict);
            assert!(!may_help(&report));
            assert!(!hints(&report).contains("preempt"), "{}", hints(&report));
        }
    });
}

#[test]
fn a_pod_that_requests_nothing_preempts_where_the_node_has_too_many_pods() {
    run(async {
        let low = |at: u32| on_node(task(&format!("x/low-{at}"), "x/low", &[]), "n1");
        let high = |at: u32| pb::Task {
            priority: 100,
            ..task(&format!("x/high-{at}"), "x/high", &[])
        };
        let cluster = pb::Cluster {
            nodes: vec![node("n1", &[("cpu", "8"), ("pods", "2")])],
            queues: vec![queue("q")],
            jobs: vec![
                pb::Job {
                    phase: pb::JobPhase::Running.into(),
                    ..job("x/low", 1)
                },
                pb::Job {
                    priority: 100,
                    ..job("x/high", 1)
                },
            ],
            tasks: vec![low(0), low(1), high(0), high(1)],
            ..pb::Cluster::default()
        };
        let asked = ExplainedServer::start(policy("enqueue, allocate, preempt", "proportion"), cluster).await;
        let report = asked.job("x/high").await;
        assert_eq!(report.verdict.code, VerdictCode::NoNode, "{:?}", report.verdict);
        assert!(
            hints(&report).contains("`preempt` evicts 1 task on n1"),
            "{}",
            hints(&report)
        );
    });
}

#[test]
fn a_starving_queue_is_served_by_reclaim_and_not_by_another_quota() {
    run(async {
        let amount = |number: &str| Some(amounts(&[("nvidia.com/gpu", number)]));
        let child = |name: &str| pb::Queue {
            parent: "dept".to_owned(),
            deserved: amount("2"),
            ..queue(name)
        };
        let gpu = &[("nvidia.com/gpu", "1")];
        let running = (0..4).map(|at| on_node(task(&format!("x/runs-{at}"), "x/runs", gpu), "n1"));
        let of = |queue: &str, job: pb::Job| pb::Job {
            queue: queue.to_owned(),
            ..job
        };
        let cluster = pb::Cluster {
            nodes: vec![node("n1", &[("cpu", "64"), ("nvidia.com/gpu", "4")])],
            queues: vec![
                queue("root"),
                pb::Queue {
                    parent: "root".to_owned(),
                    capability: amount("4"),
                    ..queue("dept")
                },
                child("t1"),
                child("t2"),
            ],
            jobs: vec![of("t1", job("x/runs", 1)), of("t2", job("x/starved", 1))],
            tasks: running.chain([task("x/starved-0", "x/starved", gpu)]).collect(),
            ..pb::Cluster::default()
        };
        let document = |actions: &str| {
            format!(
                "actions: \"{actions}\"\ntiers:\n- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]\n- plugins: [{{name: capacity, enableHierarchy: true}}, {{name: predicates}}, {{name: nodeorder}}]\n"
            )
        };
        for (actions, said) in [
            ("enqueue, allocate, reclaim", "the action `reclaim` takes that back"),
            ("enqueue, allocate", "add `reclaim` to the actions of the policy"),
        ] {
            let asked = ExplainedServer::start(document(actions), cluster.clone()).await;
            let report = asked.job("x/starved").await;
            assert_eq!(report.verdict.code, VerdictCode::Quota, "{:?}", report.verdict);
            let hints = hints(&report);
            let held = "queue t2 holds 0 cards of the 2 cards of nvidia.com/gpu that it deserves; other queues hold more than they deserve: t1 2 cards";
            assert!(hints.contains(held) && hints.contains(said), "{hints}");
            assert!(!hints.contains("spec.capability"), "{hints}");
            assert_eq!(
                hints.contains("`reclaim` evicts 1 task on n1"),
                actions.ends_with("reclaim"),
                "{hints}"
            );
        }
    });
}

#[test]
fn a_resource_that_no_node_has_is_named() {
    run(async {
        let asking = |name: &str, resource: &str, amount: &str| pb::Job {
            phase: pb::JobPhase::Pending.into(),
            min_resources: Some(amounts(&[("cpu", "1"), (resource, amount)])),
            ..job(name, 1)
        };
        let waiting = |name: &str, resource: &str| task(&format!("{name}-0"), name, &[(resource, "1")]);
        let cluster = pb::Cluster {
            nodes: vec![node("n1", &[("cpu", "4"), ("nvidia.com/gpu", "1")])],
            queues: vec![queue("q")],
            jobs: vec![
                asking("x/disk", "ephemeral-storage", "1Gi"),
                asking("x/typo", "nvidia.com/gpus", "1"),
                job("x/enqueued", 1),
            ],
            tasks: vec![waiting("x/enqueued", "nvidia.com/gpus")],
            ..pb::Cluster::default()
        };
        let asked = ExplainedServer::start(policy("enqueue, allocate", "proportion"), cluster).await;
        for (job, resource) in [
            ("x/disk", "ephemeral-storage"),
            ("x/typo", "nvidia.com/gpus"),
            ("x/enqueued", "nvidia.com/gpus"),
        ] {
            let verdict = asked.job(job).await.verdict;
            assert_eq!(
                (verdict.code, verdict.impossible),
                (VerdictCode::NoNode, true),
                "{verdict:?}"
            );
            assert!(
                verdict.summary.contains(&format!("no node has {resource}, and")),
                "{verdict:?}"
            );
            if job == "x/disk" {
                assert!(verdict.summary.ends_with("asks for 1Gi"), "{verdict:?}");
            }
            let hints = verdict.hints.join("\n");
            assert!(hints.contains("it never fits: add a node"), "{hints}");
            assert!(!hints.contains("spec.capability"), "{hints}");
            assert_eq!(
                hints.contains("did you mean `nvidia.com/gpu`?"),
                resource.ends_with("gpus"),
                "{hints}"
            );
        }
    });
}

#[test]
fn storage_is_counted_in_bytes() {
    run(async {
        let cluster = pb::Cluster {
            nodes: vec![node(
                "n1",
                &[("cpu", "4"), ("ephemeral-storage", "70Gi"), ("hugepages-1Gi", "0")],
            )],
            queues: vec![queue("q")],
            jobs: vec![job("x/j", 1)],
            tasks: vec![task("x/j-0", "x/j", CPU)],
            ..pb::Cluster::default()
        };
        let asked = ExplainedServer::start(policy("enqueue, allocate", "proportion"), cluster).await;
        let queue = asked.job("x/j").await.queue.unwrap();
        let mut rows = queue.account.iter();
        let storage = rows.find(|row| row.resource == "ephemeral-storage").unwrap();
        assert_eq!(
            (storage.unit, storage.real_capability),
            ("bytes", Some(70.0 * 1024.0 * 1024.0 * 1024.0))
        );
    });
}

/// Job of queue `q` that asks for a core, beside a queue `big` with this guarantee of the ten cores of the cluster.
async fn beside_a_guarantee(quota: &str, phase: pb::JobPhase) -> ExplainReport {
    let cluster = pb::Cluster {
        nodes: vec![node("n1", &[("cpu", "10")])],
        queues: vec![
            queue("q"),
            pb::Queue {
                guarantee: Some(amounts(&[("cpu", "12")])),
                ..queue("big")
            },
        ],
        jobs: vec![pb::Job {
            phase: phase.into(),
            min_resources: Some(amounts(CPU)),
            ..job("x/k", 1)
        }],
        tasks: vec![task("x/k-0", "x/k", CPU)],
        ..pb::Cluster::default()
    };
    ExplainedServer::start(policy("enqueue, allocate", quota), cluster)
        .await
        .job("x/k")
        .await
}

#[test]
fn a_guarantee_of_another_queue_that_binds_is_named() {
    run(async {
        for quota in ["proportion", "capacity"] {
            for phase in [pb::JobPhase::Pending, pb::JobPhase::Inqueue] {
                let report = beside_a_guarantee(quota, phase).await;
                assert_eq!(report.verdict.code, VerdictCode::Quota, "{quota}: {:?}", report.verdict);
                let hints = hints(&report);
                let fact = "queue big is guaranteed 12 cores of the 10 cores of cpu that the nodes have: queue q may hold 0 cores";
                assert!(hints.contains(fact), "{quota}: {hints}");
                let remedy = "a `spec.guarantee` of at most 9 cores of cpu for queue big would leave it enough";
                assert!(hints.contains(remedy), "{quota}: {hints}");
                assert!(!hints.contains("spec.capability"), "{quota}: {hints}");
            }
        }
    });
}

#[test]
fn a_queue_that_holds_all_that_it_may_hold_needs_a_larger_capability() {
    run(async {
        for quota in ["proportion", "capacity"] {
            let cluster = pb::Cluster {
                nodes: vec![node("n1", &[("cpu", "20")])],
                queues: vec![pb::Queue {
                    capability: Some(amounts(&[("cpu", "5")])),
                    deserved: Some(amounts(&[("cpu", "5")])),
                    ..queue("q")
                }],
                jobs: vec![job("x/k", 1), job("x/held", 1)],
                tasks: vec![
                    task("x/k-0", "x/k", CPU),
                    pb::Task {
                        status: pb::TaskStatus::Running.into(),
                        node: "n1".to_owned(),
                        ..task("x/held-0", "x/held", &[("cpu", "5")])
                    },
                ],
                ..pb::Cluster::default()
            };
            let asked = ExplainedServer::start(policy("enqueue, allocate", quota), cluster).await;
            let report = asked.job("x/k").await;
            assert_eq!(report.verdict.code, VerdictCode::Quota, "{quota}: {:?}", report.verdict);
            let hints = hints(&report);
            let remedy = "raise `spec.capability` of queue q to at least 6 cores of cpu";
            assert!(hints.contains(remedy), "{quota}: {hints}");
            assert!(!hints.contains("by its weight"), "{quota}: {hints}");
            assert!(!hints.contains("spec.guarantee"), "{quota}: {hints}");
        }
    });
}

#[test]
fn a_request_above_both_limits_of_a_queue_gets_what_each_needs() {
    run(async {
        let running = |name: &str, cores: &str| pb::Task {
            status: pb::TaskStatus::Running.into(),
            node: "n1".to_owned(),
            ..task(&format!("{name}-0"), name, &[("cpu", cores)])
        };
        let cluster = pb::Cluster {
            nodes: vec![node("n1", &[("cpu", "10")])],
            queues: vec![
                pb::Queue {
                    capability: Some(amounts(&[("cpu", "5")])),
                    ..queue("q")
                },
                pb::Queue {
                    weight: Some(4),
                    ..queue("big")
                },
            ],
            jobs: vec![
                job("x/k", 1),
                job("x/held", 1),
                pb::Job {
                    queue: "big".to_owned(),
                    ..job("x/big", 1)
                },
            ],
            tasks: vec![
                task("x/k-0", "x/k", &[("cpu", "3")]),
                running("x/held", "4"),
                running("x/big", "6"),
                task("x/big-1", "x/big", &[("cpu", "20")]),
            ],
            ..pb::Cluster::default()
        };
        let asked = ExplainedServer::start(policy("enqueue, allocate", "proportion"), cluster).await;
        let report = asked.job("x/k").await;
        assert_eq!(report.verdict.code, VerdictCode::Quota, "{:?}", report.verdict);
        let remedy = "it fits when jobs of queue q end and the queue deserves at least 1 core of cpu more";
        assert!(hints(&report).contains(remedy), "{}", hints(&report));
    });
}

#[test]
fn a_capability_that_binds_is_raised_as_far_as_it_helps() {
    run(async {
        let cluster = |guarantee: &str| pb::Cluster {
            nodes: vec![node("n1", &[("cpu", "10")])],
            queues: vec![
                pb::Queue {
                    capability: Some(amounts(&[("cpu", "1")])),
                    ..queue("q")
                },
                pb::Queue {
                    guarantee: Some(amounts(&[("cpu", guarantee)])),
                    ..queue("big")
                },
            ],
            jobs: vec![pb::Job {
                phase: pb::JobPhase::Pending.into(),
                min_resources: Some(amounts(&[("cpu", "4")])),
                ..job("x/k", 1)
            }],
            ..pb::Cluster::default()
        };
        let document = policy("enqueue, allocate", "proportion");
        let remedy = "raise `spec.capability` of queue q to at least 4 cores of cpu";
        let asked = ExplainedServer::start(document.clone(), cluster("2")).await;
        let report = asked.job("x/k").await;
        assert_eq!(report.verdict.code, VerdictCode::Quota, "{:?}", report.verdict);
        assert!(hints(&report).contains(remedy), "{}", hints(&report));
        assert!(
            hints(&report).contains("this quota would admit a request of at most 1 core of cpu"),
            "{}",
            hints(&report)
        );
        // Beyond its capability the guarantee of the other queue keeps it.
        let asked = ExplainedServer::start(document, cluster("8")).await;
        let report = asked.job("x/k").await;
        assert!(!hints(&report).contains(remedy), "{}", hints(&report));
    });
}

#[test]
fn the_time_of_the_query_admits_a_job_that_waited_long_enough() {
    run(async {
        let cluster = pb::Cluster {
            nodes: vec![node("n1", &[("cpu", "8")])],
            queues: vec![queue("q")],
            jobs: vec![pb::Job {
                phase: pb::JobPhase::Pending.into(),
                min_resources: Some(amounts(&[("cpu", "100")])),
                creation_time: Some(prost_types::Timestamp {
                    seconds: 1_900_000_000,
                    nanos: 0,
                }),
                annotations: [("sla-waiting-time".to_owned(), "1h".to_owned())].into(),
                ..job("x/old", 1)
            }],
            ..pb::Cluster::default()
        };
        let document = "actions: \"enqueue, allocate\"\ntiers:\n- plugins: [{name: sla}, {name: gang}]\n- plugins: [{name: overcommit}, {name: proportion}]\n";
        let report = ExplainedServer::start(document.to_owned(), cluster)
            .await
            .job("x/old")
            .await;
        assert_eq!(report.verdict.code, VerdictCode::Placeable, "{:?}", report.verdict);
        assert!(
            report.not_evaluated.iter().all(|row| row.name != "sla"),
            "{:?}",
            report.not_evaluated
        );
    });
}

#[test]
fn a_wait_behind_a_job_that_no_node_could_take_has_no_end() {
    run(async {
        let waiting = |name: &str, gpus: &str, seconds: i64, phase: pb::JobPhase| {
            let requests = [("cpu", "1"), ("nvidia.com/gpu", gpus)];
            let job = pb::Job {
                phase: phase.into(),
                min_resources: Some(amounts(&requests)),
                creation_time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
                ..job(name, 1)
            };
            (job, task(&format!("{name}-0"), name, &requests))
        };
        for phase in [pb::JobPhase::Pending, pb::JobPhase::Inqueue] {
            let jobs = [
                waiting("x/big", "2", 10, phase),
                waiting("x/small", "1", 20, pb::JobPhase::Pending),
                waiting("x/last", "1", 30, pb::JobPhase::Pending),
            ];
            let (jobs, tasks) = jobs.into_iter().unzip();
            let cluster = pb::Cluster {
                nodes: ["n1", "n2"]
                    .map(|name| node(name, &[("cpu", "8"), ("nvidia.com/gpu", "1")]))
                    .into(),
                queues: vec![queue("q")],
                jobs,
                tasks,
                ..pb::Cluster::default()
            };
            let asked = ExplainedServer::start(policy("enqueue, allocate", "proportion"), cluster).await;
            for name in ["x/small", "x/last"] {
                let report = asked.job(name).await;
                let said = format!(
                    "job x/big never starts: it asks for 2 of nvidia.com/gpu on one node, and the largest node has 1; {name} waits until job x/big is deleted or changed"
                );
                assert!(hints(&report).contains(&said), "{:?}", report.verdict);
            }
        }
    });
}

#[test]
fn a_priority_is_a_remedy_where_the_policy_orders_by_it() {
    run(async {
        let aged = |name: &str, seconds: i64| pb::Job {
            creation_time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
            ..job(name, 1)
        };
        let cluster = pb::Cluster {
            nodes: vec![node("n1", &[("cpu", "1")])],
            queues: vec![queue("q")],
            jobs: vec![aged("x/first", 10), aged("x/second", 20)],
            tasks: vec![task("x/first-0", "x/first", CPU), task("x/second-0", "x/second", CPU)],
            ..pb::Cluster::default()
        };
        for (plugins, helps) in [("{name: priority}, {name: gang}", true), ("{name: gang}", false)] {
            let document = format!("actions: \"allocate\"\ntiers:\n- plugins: [{plugins}]\n");
            let report = ExplainedServer::start(document, cluster.clone())
                .await
                .job("x/second")
                .await;
            assert_eq!(report.verdict.code, VerdictCode::EarlierJobs, "{:?}", report.verdict);
            let said = "a priority above 0, that of job x/first, would move it forward";
            assert_eq!(hints(&report).contains(said), helps, "{}", hints(&report));
        }
    });
}

#[test]
fn tasks_that_succeeded_count_as_the_gang_counts_them() {
    run(async {
        let placed = |name: &str, status: pb::TaskStatus| pb::Task {
            status: status.into(),
            ..on_node(task(name, "x/j", CPU), "n1")
        };
        let cluster = pb::Cluster {
            nodes: vec![node("n1", &[("cpu", "4")])],
            queues: vec![queue("q")],
            jobs: vec![pb::Job {
                phase: pb::JobPhase::Running.into(),
                ..job("x/j", 4)
            }],
            tasks: vec![
                placed("x/j-0", pb::TaskStatus::Succeeded),
                placed("x/j-1", pb::TaskStatus::Running),
                placed("x/j-2", pb::TaskStatus::Pipelined),
                task("x/j-3", "x/j", CPU),
            ],
            ..pb::Cluster::default()
        };
        let asked = ExplainedServer::start(policy("enqueue, allocate", "proportion"), cluster.clone()).await;
        let placed = asked.place(&["x/j-3".to_owned()]).await;
        assert_eq!((placed.placed, placed.min_count), (true, 1));
        assert_eq!(asked.job("x/j").await.verdict.code, VerdictCode::Placeable);
        // Without a plugin that counts tasks only those that hold resources count.
        let asked = ExplainedServer::start(
            "actions: allocate\ntiers: [{plugins: [{name: drf}]}]\n".to_owned(),
            cluster,
        )
        .await;
        assert_eq!(asked.place(&["x/j-3".to_owned()]).await.min_count, 3);
    });
}
