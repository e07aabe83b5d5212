//! Verdicts that a server uses again: results equal those of a server that stores none, and the page of metrics tells.

use pumice::config::ServerConfig;
use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{
    delta, full_sync, hypothetical_task, job, node, nodes, queue, session_ref, task, task_on_node,
};

const POLICY: &str = "
actions: allocate
tiers:
- plugins: [{name: predicates}, {name: nodeorder}, {name: binpack}]
";
const OTHER_POLICY: &str = "
actions: allocate
tiers:
- plugins: [{name: predicates}, {name: nodeorder, arguments: {leastrequested.weight: 0, mostrequested.weight: 1}}]
";

/// Number of nodes: three chunks.
const NODES: u32 = 600;

/// Two servers with the same records, the second without a cache.
struct TwoServers([EmbeddedServer; 2]);

impl TwoServers {
    fn start() -> Self {
        let with = |bytes: usize| {
            let mut config = ServerConfig::on_free_ports();
            config.limits.edge.verdict_cache_bytes = bytes;
            EmbeddedServer::with(config)
        };
        let servers = Self([with(64 << 20), with(0)]);
        let names = (0..NODES).map(|number| {
            node(
                &format!("n{number:03}"),
                &[("cpu", "8"), ("memory", "16Gi"), ("pods", "9")],
            )
        });
        let pod = task_on_node(
            task("ns/pod", "ns/job", &[("cpu", "1")]),
            pb::TaskStatus::Running,
            "n000",
        );
        let put = pb::Cluster {
            queues: vec![queue("q")],
            jobs: vec![job("ns/job", "q")],
            tasks: vec![pod, task("ns/waiting", "ns/job", &[("cpu", "2")])],
            ..nodes(names.collect())
        };
        servers.apply(&full_sync("s", 1, put));
        servers.reload(POLICY);
        servers
    }

    fn apply(&self, batch: &pb::Batch) {
        for server in &self.0 {
            let outcome = server.wire.apply_batch(batch.clone()).unwrap();
            assert!(outcome.refused.is_empty(), "{outcome:?}");
        }
    }

    fn reload(&self, document: &str) {
        for server in &self.0 {
            let reload = pb::ReloadPolicyRequest {
                document: document.to_owned(),
                ..pb::ReloadPolicyRequest::default()
            };
            server.wire.reload_policy(reload).unwrap();
        }
    }

    /// Asks both servers for the best nodes and for all that pass; their results are equal. Returns the chunks of the first
    /// one that were used again, and those that were judged and stored.
    fn ask(&self, against: [Option<pb::EvaluationRef>; 2]) -> [u64; 2] {
        let before = self.chunks();
        let results = self.0.iter().zip(against).map(|(server, against)| {
            let tasks = vec![hypothetical_task(&[("cpu", "2"), ("memory", "1Gi")])];
            let filter = pb::FilterRequest {
                against: against.clone(),
                tasks: tasks.clone(),
                ..pb::FilterRequest::default()
            };
            let score = pb::ScoreRequest {
                against,
                tasks,
                with_filter: true,
                limit: Some(3),
                ..pb::ScoreRequest::default()
            };
            let verdict = server.wire.filter(filter).unwrap().result.unwrap();
            (verdict, server.wire.score(score).unwrap().result.unwrap())
        });
        let results: Vec<_> = results.collect();
        assert_eq!(results[0], results[1]);
        let after = self.chunks();
        [after[0] - before[0], after[1] - before[1]]
    }

    fn ask_latest(&self) -> [u64; 2] {
        self.ask([None, None])
    }

    fn chunks(&self) -> [u64; 2] {
        let [first, second] = self.0.each_ref().map(|server| server.page("/metrics").1);
        let read = |page: &str, series: &str| -> u64 {
            let line = page.lines().find_map(|line| line.strip_prefix(series));
            line.unwrap_or_else(|| panic!("{series} is on the page"))
                .trim()
                .parse()
                .unwrap()
        };
        assert_eq!(read(&second, "pumice_verdict_cache_bytes "), 0);
        assert!(read(&first, "pumice_verdict_cache_bytes ") <= 64 << 20);
        ["reused", "judged"].map(|result| {
            read(
                &first,
                &format!("pumice_verdict_cache_chunks_total{{result=\"{result}\"}}"),
            )
        })
    }
}

#[test]
fn verdicts_of_unchanged_chunks_are_used_again() {
    let servers = TwoServers::start();
    // The filters are asked for twice, and the scores once: filters and scores of three chunks.
    assert_eq!(servers.ask_latest(), [0, 6]);
    assert_eq!(servers.ask_latest(), [9, 0]);
    servers.apply(&delta(
        "s",
        2,
        nodes(vec![node("n300", &[("cpu", "9"), ("memory", "16Gi"), ("pods", "9")])]),
    ));
    assert_eq!(servers.ask_latest(), [7, 2], "one chunk changed");
    assert_eq!(servers.ask_latest(), [9, 0]);
    let moved = task_on_node(
        task("ns/pod", "ns/job", &[("cpu", "1")]),
        pb::TaskStatus::Running,
        "n599",
    );
    let put = pb::Cluster {
        tasks: vec![moved],
        ..pb::Cluster::default()
    };
    servers.apply(&delta("s", 3, put));
    assert_eq!(servers.ask_latest(), [5, 4], "a pod moved from one chunk to another");
    servers.reload(OTHER_POLICY);
    assert_eq!(servers.ask_latest(), [0, 6], "another policy is another class");
    assert_eq!(servers.ask_latest(), [9, 0]);
}

#[test]
fn a_session_has_verdicts_of_its_own() {
    let servers = TwoServers::start();
    servers.ask_latest();
    let sessions = servers.0.each_ref().map(|server| {
        let opened = server.wire.open_session(pb::OpenSessionRequest::default()).unwrap();
        opened.session
    });
    let step = |after: u64, node: Option<&str>| {
        sessions.each_ref().map(|session| {
            let place = |node: &str| {
                let placement = pb::TaskPlacement {
                    task: "ns/waiting".to_owned(),
                    node: node.to_owned(),
                    ..pb::TaskPlacement::default()
                };
                pb::session_change::Change::Allocate(placement)
            };
            Some(session_ref(session, after, node.map(place).into_iter().collect()))
        })
    };
    assert_eq!(servers.ask(step(0, None)), [0, 6]);
    assert_eq!(servers.ask(step(0, Some("n400"))), [7, 2], "the change is of one chunk");
    assert_eq!(servers.ask_latest(), [9, 0], "verdicts on the snapshot are still there");
    assert_eq!(servers.ask(step(1, None)), [9, 0]);
}
