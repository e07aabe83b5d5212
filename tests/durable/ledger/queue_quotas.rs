//! Promises under `proportion` and `capacity`: whoever confirms, no queue is promised more than it may hold.

use pumice::config::ServerConfig;
use pumice::server::pb;

use super::TestDirectory;
use super::{ask, confirm, limited, wants};
use crate::support::EmbeddedServer;
use crate::support::records::{amounts, full_sync, job, node, queue, task, task_on_node};

/// Plugin with its switches, and the parent of the queue.
const QUOTAS: [(&str, &str); 3] = [
    ("{name: proportion}", ""),
    ("{name: capacity}", ""),
    ("{name: capacity, enableHierarchy: true}", "dept"),
];

/// Policy of Volcano's chart with this plugin of quotas.
fn put_stock_policy(server: &EmbeddedServer, quota: &str, compatibility: &str) {
    let document = format!(
        "actions: \"enqueue, allocate, backfill\"\ntiers:\n- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]\n\
         - plugins: [{{name: overcommit}}, {{name: predicates}}, {quota}, {{name: nodeorder}}, {{name: binpack}}]\n\
         pumice: {{compatibility: {compatibility}}}\n"
    );
    let reload = pb::ReloadPolicyRequest {
        document,
        ..Default::default()
    };
    server.wire.reload_policy(reload).unwrap();
}

/// Cluster of 64 cores, with a queue that may hold ten of them; in a tree its parent limits it.
fn cluster(parent: &str, mut jobs: Vec<pb::Job>, tasks: Vec<pb::Task>) -> pb::Cluster {
    let mut queues = vec![limited("q", 10), queue("other")];
    jobs.push(job("ns/other", "other"));
    if !parent.is_empty() {
        queues = vec![
            pb::Queue {
                parent: parent.to_owned(),
                ..queue("q")
            },
            pb::Queue {
                parent: "root".to_owned(),
                ..limited(parent, 10)
            },
            queue("root"),
            queue("other"),
        ];
    }
    pb::Cluster {
        nodes: vec![node("n", &[("cpu", "64"), ("memory", "256Gi"), ("pods", "110")])],
        queues,
        jobs,
        tasks,
        ..pb::Cluster::default()
    }
}

fn asked(cores: u32, name: &str) -> pb::Job {
    pb::Job {
        min_resources: Some(amounts(&[("cpu", &cores.to_string())])),
        ..wants(name, "q", cores)
    }
}

fn is_confirmed(server: &EmbeddedServer, job: pb::Job) -> bool {
    let reply = server.wire.admit(confirm(vec![ask(job, 1)])).unwrap();
    let item = reply.result.unwrap().items.remove(0);
    assert_eq!(item.problem, None);
    item.permitted
}

/// Cpu that a queue holds, and that it keeps for admitted jobs.
fn account(server: &EmbeddedServer, queue: &str) -> (f64, f64) {
    let request = pb::ListQueuesRequest::default();
    let reply = server.wire.list_queues(request).unwrap();
    let listed = reply.queues.into_iter();
    let found = listed.filter(|listed| listed.queue.as_ref().is_some_and(|own| own.name == queue));
    let account = found.flat_map(|listed| listed.accounts).next().unwrap();
    let cpu = |amounts: &[pb::Amount]| {
        let own = amounts.iter().find(|amount| amount.resource == "cpu");
        own.map_or(0.0, |amount| amount.value)
    };
    (cpu(&account.allocated), cpu(&account.inqueue))
}

#[test]
fn schedulers_that_confirm_at_once_share_what_a_queue_may_hold() {
    for compatibility in ["corrected", "upstream"] {
        for (quota, parent) in QUOTAS {
            let server = EmbeddedServer::start();
            put_stock_policy(&server, quota, compatibility);
            let known = vec![asked(3, "ns/known")];
            server
                .wire
                .apply_batch(full_sync("kube", 1, cluster(parent, known, Vec::new())))
                .unwrap();
            let said: Vec<bool> = std::thread::scope(|scope| {
                let server = &server;
                let asks = (0..8).map(|number| {
                    let name = if number == 0 {
                        "ns/known".to_owned()
                    } else {
                        format!("ns/j{number}")
                    };
                    scope.spawn(move || is_confirmed(server, asked(3, &name)))
                });
                let asks: Vec<_> = asks.collect();
                asks.into_iter().map(|ask| ask.join().unwrap()).collect()
            });
            let permitted = said.iter().filter(|permitted| **permitted).count();
            assert_eq!(permitted, 3, "{quota} {compatibility}: 3 × 3 of 10 cores");
            assert_eq!(account(&server, "q"), (0.0, 9_000.0), "{quota} {compatibility}");
            if !parent.is_empty() {
                assert_eq!(account(&server, parent), (0.0, 9_000.0), "{quota} {compatibility}");
            }
            assert!(!is_confirmed(&server, asked(2, "ns/late")) && is_confirmed(&server, asked(1, "ns/small")));
        }
    }
}

#[test]
fn promises_of_quotas_outlive_the_process_and_turn_into_what_is_held() {
    for (quota, parent) in QUOTAS {
        let directory = TestDirectory::named("quotas");
        let config = || ServerConfig {
            data_dir: Some(directory.0.join("data")),
            ..ServerConfig::on_free_ports()
        };
        let server = EmbeddedServer::with(config());
        put_stock_policy(&server, quota, "corrected");
        let waiting = vec![asked(6, "ns/a"), asked(5, "ns/b"), asked(4, "ns/c")];
        let waits = cluster(parent, waiting.clone(), Vec::new());
        server.wire.apply_batch(full_sync("kube", 1, waits.clone())).unwrap();
        assert!(is_confirmed(&server, asked(6, "ns/a")));
        drop(server);

        let server = EmbeddedServer::with(config());
        server.wire.apply_batch(full_sync("kube", 1, waits)).unwrap();
        assert_eq!(account(&server, "q"), (0.0, 6_000.0), "{quota}");
        assert!(!is_confirmed(&server, asked(5, "ns/b")), "{quota}: 6 + 5 of 10 cores");
        // The job starts: what it holds is not kept for it again, and five more cores still do not fit.
        let running = (0..3).map(|number| {
            let own = task(&format!("ns/a-{number}"), "ns/a", &[("cpu", "2"), ("pods", "1")]);
            task_on_node(own, pb::TaskStatus::Running, "n")
        });
        let started = cluster(parent, waiting, running.collect());
        server.wire.apply_batch(full_sync("kube", 2, started)).unwrap();
        assert_eq!(account(&server, "q"), (6_000.0, 0.0), "{quota}");
        assert!(
            !is_confirmed(&server, asked(5, "ns/b")) && is_confirmed(&server, asked(4, "ns/c")),
            "{quota}"
        );
        assert_eq!(account(&server, "q"), (6_000.0, 4_000.0), "{quota}");
    }
}
