//! Verdicts that agree with Place and with cycles: roles, groups, gates, phases, and tasks without a job.

use super::report::VerdictCode;
use super::target::ExplainTarget;
use super::test_server::{CPU, ExplainedServer, amounts, hints, job, node, of_role, on_node, policy, queue, run, task};
use pumice_protocol::v1 as pb;

#[test]
fn a_role_without_tasks_is_named() {
    run(async {
        let member = |at: u32| of_role(task(&format!("x/c-worker-{at}"), "x/c", CPU), "worker");
        let asked = ExplainedServer::start(
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
        let asked = ExplainedServer::start(
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
        let said = "it starts with 2 tasks of role worker, and none of them finds a place in the order of its tasks";
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
        let asked = ExplainedServer::start(
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
        let asked = ExplainedServer::start(
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
        let asked = ExplainedServer::start(
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
        let asked = ExplainedServer::start(volcano.clone(), cluster(vec![queue("default")], "4")).await;
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
        let asked = ExplainedServer::start(volcano.clone(), cluster(vec![full], "4")).await;
        for target in targets() {
            let report = asked.explain(target).await;
            assert_eq!(report.verdict.code, VerdictCode::Quota, "{:?}", report.verdict);
            assert!(!hints(&report).contains("min_member"), "{}", hints(&report));
        }
        let asked = ExplainedServer::start(volcano, cluster(Vec::new(), "4")).await;
        for target in targets() {
            let report = asked.explain(target).await;
            assert_eq!(report.verdict.code, VerdictCode::QueueUnknown, "{:?}", report.verdict);
        }
    });
}
