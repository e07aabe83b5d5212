//! Verdicts that agree with Place, `SelectVictims` and cycles: roles, groups, gates, phases, tasks without a job, evictions, and
//! waits without an end.

use std::time::Duration;

use super::gather;
use super::report::{ExplainReport, VerdictCode};
use super::target::ExplainTarget;
use pumice::app::InProcessServer;
use pumice_console::full_sync;
use pumice_console::pinned_client::PinnedClient;
use pumice_protocol::v1 as pb;

/// Policy of Volcano's chart, with these actions and this plugin of quotas.
fn policy(actions: &str, quota: &str) -> String {
    format!(
        "actions: \"{actions}\"\ntiers:\n- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]\n- plugins: [{{name: overcommit}}, {{name: {quota}}}, {{name: predicates}}, {{name: nodeorder}}]\n"
    )
}

fn amounts(items: &[(&str, &str)]) -> pb::ResourceList {
    let items = items
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()));
    pb::ResourceList { items: items.collect() }
}

fn node(name: &str, items: &[(&str, &str)]) -> pb::Node {
    pb::Node {
        name: name.to_owned(),
        allocatable: Some(amounts(&[&[("memory", "64Gi"), ("pods", "110")], items].concat())),
        ..pb::Node::default()
    }
}

fn queue(name: &str) -> pb::Queue {
    pb::Queue {
        name: name.to_owned(),
        weight: Some(1),
        state: pb::QueueState::Open.into(),
        ..pb::Queue::default()
    }
}

/// Enqueued job of the queue `q`.
fn job(name: &str, min_member: i32) -> pb::Job {
    pb::Job {
        name: name.to_owned(),
        queue: "q".to_owned(),
        min_member,
        phase: pb::JobPhase::Inqueue.into(),
        ..pb::Job::default()
    }
}

fn task(name: &str, job: &str, items: &[(&str, &str)]) -> pb::Task {
    pb::Task {
        name: name.to_owned(),
        job: job.to_owned(),
        requests: Some(amounts(items)),
        ..pb::Task::default()
    }
}

fn on_node(task: pb::Task, node: &str) -> pb::Task {
    pb::Task {
        node: node.to_owned(),
        status: pb::TaskStatus::Running.into(),
        ..task
    }
}

fn of_role(task: pb::Task, role: &str) -> pb::Task {
    pb::Task {
        role: role.to_owned(),
        ..task
    }
}

/// Server with a cluster under a policy.
struct Asked {
    server: InProcessServer,
}

impl Asked {
    async fn start(document: String, cluster: pb::Cluster) -> Self {
        let server = InProcessServer::start().await.unwrap();
        let request = pb::ReloadPolicyRequest {
            document,
            ..pb::ReloadPolicyRequest::default()
        };
        server.connection.clone().policies.reload_policy(request).await.unwrap();
        let mut connection = server.connection.clone();
        let loaded = full_sync::send_full_sync(&mut connection, "test", cluster)
            .await
            .unwrap();
        assert_eq!(loaded.rejected, Vec::<String>::new());
        Self { server }
    }

    async fn explain(&self, target: ExplainTarget) -> ExplainReport {
        let connection = self.server.connection.clone();
        let mut client = PinnedClient::open(connection, pb::LatestRef::default()).await.unwrap();
        client.set_time(Duration::from_secs(2_000_000_000));
        let report = gather::explain(&mut client, target, 1).await;
        client.close().await;
        report.unwrap()
    }

    async fn job(&self, name: &str) -> ExplainReport {
        self.explain(ExplainTarget::Job(name.to_owned())).await
    }

    /// Result of Place for stored tasks, by the minimums of their job.
    async fn place(&self, names: &[String]) -> pb::PlaceResult {
        let request = pb::PlaceRequest {
            groups: vec![pb::TaskGroup {
                names: names.to_vec(),
                ..pb::TaskGroup::default()
            }],
            idle_only: true,
            ..pb::PlaceRequest::default()
        };
        let reply = self.server.connection.clone().decisions.place(request).await.unwrap();
        reply.into_inner().result.unwrap()
    }
}

fn hints(report: &ExplainReport) -> String {
    report.verdict.hints.join("\n")
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test)
}

const CPU: &[(&str, &str)] = &[("cpu", "1")];

#[test]
fn a_role_without_tasks_is_named() {
    run(async {
        let member = |at: u32| of_role(task(&format!("x/c-worker-{at}"), "x/c", CPU), "worker");
        let asked = Asked::start(
            policy("enqueue, allocate", "proportion"),
            pb::Cluster {
                nodes: vec![node("n1", &[("cpu", "8")])],
                queues: vec![queue("q")],
                jobs: vec![pb::Job {
                    min_task_member: [("ps".to_owned(), 1), ("worker".to_owned(), 2)].into(),
                    ..job("x/c", 3)
                }],
                tasks: (0..3).map(member).collect(),
                ..pb::Cluster::default()
            },
        )
        .await;
        let report = asked.job("x/c").await;
        assert_eq!(report.verdict.code, VerdictCode::TooFewTasks, "{:?}", report.verdict);
        assert_eq!(
            report.verdict.summary,
            "job x/c waits: it starts with 1 task of role ps, and none is known"
        );
        let names: Vec<String> = (0..3).map(|at| format!("x/c-worker-{at}")).collect();
        assert!(!asked.place(&names).await.placed);
    });
}

#[test]
fn roles_are_served_in_the_order_of_tasks_and_each_remedy_helps() {
    run(async {
        let master = (0..3).map(|at| of_role(task(&format!("x/m-master-{at}"), "x/m", CPU), "master"));
        let worker = (3..6).map(|at| of_role(task(&format!("x/m-worker-{at}"), "x/m", CPU), "worker"));
        let tasks: Vec<pb::Task> = master.chain(worker).collect();
        let names: Vec<String> = tasks.iter().map(|task| task.name.clone()).collect();
        let asked = Asked::start(
            policy("enqueue, allocate", "proportion"),
            pb::Cluster {
                nodes: vec![node("n1", &[("cpu", "3")])],
                queues: vec![queue("q")],
                jobs: vec![pb::Job {
                    min_task_member: [("master".to_owned(), 1), ("worker".to_owned(), 2)].into(),
                    ..job("x/m", 3)
                }],
                tasks,
                ..pb::Cluster::default()
            },
        )
        .await;
        let report = asked.job("x/m").await;
        assert!(!asked.place(&names).await.placed);
        assert_eq!(report.verdict.code, VerdictCode::Gang, "{:?}", report.verdict);
        let said = "it starts with 2 tasks of role worker, and only 0 of them find a place in the order of its tasks";
        assert!(report.verdict.summary.contains(said), "{}", report.verdict.summary);
        let hints = hints(&report);
        assert!(
            hints.contains("with a higher priority of 2 tasks of role worker"),
            "{hints}"
        );
        assert!(hints.contains("a minTaskMember of 0 for role worker"), "{hints}");
        assert!(!hints.contains("min_member"), "{hints}");
    });
}

#[test]
fn whole_groups_are_counted_as_place_counts_them() {
    run(async {
        let member = |at: u32| pb::Task {
            sub_group: format!("w/{}", at / 3),
            ..task(&format!("x/v-worker-{at}"), "x/v", CPU)
        };
        let asked = Asked::start(
            policy("enqueue, allocate", "capacity"),
            pb::Cluster {
                nodes: vec![node("n1", &[("cpu", "16")])],
                queues: vec![pb::Queue {
                    capability: Some(amounts(&[("cpu", "8")])),
                    ..queue("q")
                }],
                jobs: vec![pb::Job {
                    sub_group_policies: vec![pb::SubGroupPolicy {
                        name: "w".to_owned(),
                        size: Some(3),
                        min_groups: Some(1),
                        ..pb::SubGroupPolicy::default()
                    }],
                    ..job("x/v", 3)
                }],
                tasks: (0..9).map(member).collect(),
                ..pb::Cluster::default()
            },
        )
        .await;
        let report = asked.job("x/v").await;
        assert_eq!(report.verdict.code, VerdictCode::Placeable, "{:?}", report.verdict);
        assert!(
            report.verdict.summary.contains("nodes take 6 of 9 waiting tasks"),
            "{}",
            report.verdict.summary
        );
    });
}

#[test]
fn only_gates_of_others_keep_a_task() {
    run(async {
        let gated = |name: &str, gate: &str| pb::Task {
            gated: true,
            scheduling_gates: vec![gate.to_owned()],
            ..task(&format!("{name}-0"), name, CPU)
        };
        let gate = "scheduling.volcano.sh/queue-allocation-gate";
        let asked = Asked::start(
            policy("enqueue, allocate", "proportion"),
            pb::Cluster {
                nodes: vec![node("n1", &[("cpu", "2")])],
                queues: vec![queue("q")],
                jobs: vec![job("x/own", 1), job("x/theirs", 1)],
                tasks: vec![gated("x/own", gate), gated("x/theirs", "example.com/quota")],
                ..pb::Cluster::default()
            },
        )
        .await;
        let own = asked.job("x/own").await;
        assert_eq!(own.verdict.code, VerdictCode::Placeable, "{:?}", own.verdict);
        assert!(
            hints(&own).contains(&format!("takes the gate `{gate}` off itself")),
            "{}",
            hints(&own)
        );
        assert!(!hints(&own).contains("whoever"), "{}", hints(&own));
        assert_eq!((own.subject.gated, own.subject.queue_gated), (0, 1));
        let theirs = asked.job("x/theirs").await;
        assert_eq!(theirs.verdict.code, VerdictCode::Gated);
        assert!(hints(&theirs).contains("whoever set spec.schedulingGates"));
    });
}

#[test]
fn a_completed_job_with_a_waiting_task_waits() {
    run(async {
        let ended = pb::Task {
            status: pb::TaskStatus::Succeeded.into(),
            ..on_node(task("x/serial-a", "x/serial", CPU), "n1")
        };
        let done = pb::Task {
            name: "x/done-0".to_owned(),
            job: "x/done".to_owned(),
            ..ended.clone()
        };
        let completed = |name: &str| pb::Job {
            phase: pb::JobPhase::Completed.into(),
            ..job(name, 1)
        };
        let asked = Asked::start(
            policy("enqueue, allocate", "proportion"),
            pb::Cluster {
                nodes: vec![node("n1", &[("cpu", "4")])],
                queues: vec![queue("q")],
                jobs: vec![completed("x/serial"), completed("x/done"), completed("x/empty")],
                tasks: vec![ended, done, task("x/serial-b", "x/serial", CPU)],
                ..pb::Cluster::default()
            },
        )
        .await;
        let of_job = asked.job("x/serial").await;
        let of_task = asked.explain(ExplainTarget::Task("x/serial-b".to_owned())).await;
        for report in [of_job, of_task] {
            assert_eq!(report.verdict.code, VerdictCode::Placeable, "{:?}", report.verdict);
            assert!(
                report.verdict.summary.contains("a node takes it now"),
                "{}",
                report.verdict.summary
            );
        }
        for name in ["x/done", "x/empty"] {
            assert_eq!(asked.job(name).await.verdict.code, VerdictCode::Completed, "{name}");
        }
    });
}

#[test]
fn a_task_without_a_job_is_the_job_of_one_that_volcano_makes() {
    run(async {
        let bare = pb::Task {
            priority: 5,
            ..task("x/bare", "", CPU)
        };
        let cluster = |queues: Vec<pb::Queue>, cpu: &str| pb::Cluster {
            nodes: vec![node("n1", &[("cpu", cpu)])],
            queues,
            tasks: vec![bare.clone()],
            ..pb::Cluster::default()
        };
        let targets = || {
            let file = ExplainTarget::File {
                tasks: vec![bare.clone()],
                jobs: Vec::new(),
            };
            [ExplainTarget::Task("x/bare".to_owned()), file]
        };
        let volcano = policy("enqueue, allocate", "proportion");
        let asked = Asked::start(volcano.clone(), cluster(vec![queue("default")], "4")).await;
        for target in targets() {
            let report = asked.explain(target).await;
            assert_eq!(report.verdict.code, VerdictCode::Placeable, "{:?}", report.verdict);
            assert_eq!(
                (report.subject.queue.as_str(), report.subject.min_member),
                ("default", 1)
            );
        }
        let full = pb::Queue {
            capability: Some(amounts(&[("cpu", "500m")])),
            ..queue("default")
        };
        let asked = Asked::start(volcano.clone(), cluster(vec![full], "4")).await;
        for target in targets() {
            let report = asked.explain(target).await;
            assert_eq!(report.verdict.code, VerdictCode::Quota, "{:?}", report.verdict);
            assert!(!hints(&report).contains("min_member"), "{}", hints(&report));
        }
        let asked = Asked::start(volcano, cluster(Vec::new(), "4")).await;
        for target in targets() {
            let report = asked.explain(target).await;
            assert_eq!(report.verdict.code, VerdictCode::QueueUnknown, "{:?}", report.verdict);
        }
    });
}

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
    Asked::start(document, cluster).await.job("x/high").await
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
        let asked = Asked::start(policy("enqueue, allocate, preempt", "proportion"), cluster).await;
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
            let asked = Asked::start(document(actions), cluster.clone()).await;
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
        let asked = Asked::start(policy("enqueue, allocate", "proportion"), cluster).await;
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
        let asked = Asked::start(policy("enqueue, allocate", "proportion"), cluster).await;
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
    Asked::start(policy("enqueue, allocate", quota), cluster)
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
        let asked = Asked::start(document.clone(), cluster("2")).await;
        let report = asked.job("x/k").await;
        assert_eq!(report.verdict.code, VerdictCode::Quota, "{:?}", report.verdict);
        assert!(hints(&report).contains(remedy), "{}", hints(&report));
        assert!(
            hints(&report).contains("this quota would admit a request of at most 1 core of cpu"),
            "{}",
            hints(&report)
        );
        // Beyond its capability the guarantee of the other queue keeps it.
        let asked = Asked::start(document, cluster("8")).await;
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
        let report = Asked::start(document.to_owned(), cluster).await.job("x/old").await;
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
            let asked = Asked::start(policy("enqueue, allocate", "proportion"), cluster).await;
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
            let report = Asked::start(document, cluster.clone()).await.job("x/second").await;
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
        let asked = Asked::start(policy("enqueue, allocate", "proportion"), cluster.clone()).await;
        let placed = asked.place(&["x/j-3".to_owned()]).await;
        assert_eq!((placed.placed, placed.min_count), (true, 1));
        assert_eq!(asked.job("x/j").await.verdict.code, VerdictCode::Placeable);
        // Without a plugin that counts tasks only those that hold resources count.
        let asked = Asked::start(
            "actions: allocate\ntiers: [{plugins: [{name: drf}]}]\n".to_owned(),
            cluster,
        )
        .await;
        assert_eq!(asked.place(&["x/j-3".to_owned()]).await.min_count, 3);
    });
}
