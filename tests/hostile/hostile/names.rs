//! Names at and beyond their limits, with characters that terminals, logs and metrics read in their own way.

use pumice::server::pb;
use tonic::Status;

use super::broken_calls::assert_no_server_error;
use crate::support::records::{delta, full_sync, hypothetical_task, job, latest_ref, node, queue, session_ref, task};
use crate::support::wire::BlockingClients;
use crate::support::{cluster, fetch, program::LoggedProcess};

/// Longest message of an error, in bytes, with the sign that it is cut.
const MESSAGE_BYTES: usize = 1_000 + '…'.len_utf8();

fn odd_names() -> Vec<String> {
    vec![
        "a\nb".to_owned(),
        "a\r\nlevel=ERROR injected".to_owned(),
        "a\0b".to_owned(),
        "\u{1b}[2J\u{1b}[31mred".to_owned(),
        "abc\u{202e}cba\u{2066}".to_owned(),
        "\"} 1\npumice_injected_total{x=\"".to_owned(),
        "{}%s%n$(reboot)`x`".to_owned(),
        " ".to_owned(),
        "\u{85}\u{2028}\u{feff}".to_owned(),
        "\u{1f4a9}".repeat(126),
        "n".repeat(507),
        "n".repeat(508),
        "n".repeat(1 << 20),
    ]
}

/// Batches with the name in each place of each kind of record.
fn batches(name: &str) -> Vec<pb::Batch> {
    let (amount, other) = ([("cpu", "1")], [(name, "1")]);
    let mut labelled = node("labelled", &amount);
    labelled.labels.insert(name.to_owned(), "value".to_owned());
    labelled
        .labels
        .insert("nvidia.com/gpu.product".to_owned(), name.to_owned());
    let mut below = queue("below");
    below.parent = name.to_owned();
    let mut annotated = job("annotated", "q");
    annotated
        .annotations
        .insert("volcano.sh/card.name".to_owned(), name.to_owned());
    annotated.annotations.insert(name.to_owned(), name.to_owned());
    let cluster = |nodes, queues, jobs, tasks| pb::Cluster {
        namespaces: Vec::new(),
        nodes,
        queues,
        jobs,
        tasks,
        ..pb::Cluster::default()
    };
    let nodes = vec![
        node(name, &amount),
        node("amounts", &other),
        node("quantity", &[("cpu", name)]),
        labelled,
    ];
    let queues = vec![queue(name), below];
    let jobs = vec![job(name, "q"), job("elsewhere", name), annotated];
    let tasks = vec![
        task(name, "a", &amount),
        task("b", name, &amount),
        task("c", "a", &other),
    ];
    let all = cluster(nodes, queues, jobs, tasks);
    let source = format!("s{}", name.len());
    vec![
        full_sync(&source, 1, all.clone()),
        full_sync(name, 1, all),
        delta(name, 7, pb::Cluster::default()),
    ]
}

/// Errors of requests that name something that is not there.
fn refused(wire: &BlockingClients, name: &str) -> Vec<Status> {
    let text = name.to_owned();
    let mut odd_task = hypothetical_task(&[(name, "1")]);
    odd_task.job.clone_from(&text);
    let score = |against, plugins| {
        wire.score(pb::ScoreRequest {
            against,
            tasks: vec![odd_task.clone(), hypothetical_task(&[("cpu", name)])],
            plugins,
            ..pb::ScoreRequest::default()
        })
        .err()
    };
    let mut other_policy = latest_ref(pb::Revision::default(), 0);
    if let Some(pb::evaluation_ref::Target::Latest(latest)) = &mut other_policy.target {
        latest.at_least = None;
        latest.policy.clone_from(&text);
    }
    let candidates = pb::NodeSet {
        names: vec![text.clone()],
        ..pb::NodeSet::default()
    };
    let errors = [
        score(Some(session_ref(name, 0, Vec::new())), Vec::new()),
        score(Some(other_policy), Vec::new()),
        score(None, vec![text.clone()]),
        score(None, Vec::new()),
        wire.filter(pb::FilterRequest {
            tasks: vec![hypothetical_task(&[("cpu", "1")])],
            candidates: Some(candidates),
            ..pb::FilterRequest::default()
        })
        .err(),
        wire.get_policy(pb::GetPolicyRequest {
            name: text.clone(),
            ..pb::GetPolicyRequest::default()
        })
        .err(),
        wire.reload_policy(pb::ReloadPolicyRequest {
            name: text.clone(),
            document: format!("actions: {text}\n"),
            dry_run: true,
            ..pb::ReloadPolicyRequest::default()
        })
        .err(),
        wire.close_session(pb::CloseSessionRequest { session: text.clone() })
            .err(),
    ];
    errors.into_iter().flatten().collect()
}

#[test]
fn labels_and_annotations_are_bounded_in_number_and_length() {
    let program = LoggedProcess::serve(&["--labels", "4", "--label-bytes", "100"]);
    let mut many = node("many", &[("cpu", "1")]);
    many.labels = (0..5).map(|number| (format!("l{number}"), String::new())).collect();
    let mut long = node("long", &[("cpu", "1")]);
    long.labels.insert("nvidia.com/gpu.product".to_owned(), "x".repeat(101));
    let mut sound = node("sound", &[("cpu", "1")]);
    sound
        .labels
        .insert("nvidia.com/gpu.product".to_owned(), "x".repeat(100));
    let sent = crate::support::records::nodes(vec![many, long, sound]);
    let outcome = program.connect().apply_batch(full_sync("a", 1, sent)).unwrap();
    let mut limits: Vec<_> = outcome.refused.iter().map(|problem| &*problem.message).collect();
    limits.sort_unstable();
    assert_eq!(
        limits,
        [
            "101 bytes; limit `label_bytes` is 100",
            "5 entries; limit `labels` is 4"
        ]
    );
    let nodes = program
        .connect()
        .list_nodes(pb::ListNodesRequest::default())
        .unwrap()
        .nodes;
    assert_eq!(nodes.len(), 1, "{nodes:?}");
}

#[test]
fn odd_names_are_stored_or_refused_and_break_no_line() {
    let program = LoggedProcess::serve(&["--log", "debug"]);
    let wire = program.connect();
    assert!(wire.apply_batch(full_sync("sound", 1, cluster(10))).is_ok());
    for name in odd_names() {
        let rejections = batches(&name)
            .into_iter()
            .filter_map(|batch| wire.apply_batch(batch).err());
        let what: String = name.chars().take(20).collect();
        let errors: Vec<_> = rejections.chain(refused(&wire, &name)).collect();
        assert!(errors.len() >= 4, "{what:?}: {errors:?}");
        for error in errors {
            assert!(
                error.message().len() <= MESSAGE_BYTES,
                "{what:?}: {} bytes",
                error.message().len()
            );
        }
        // Whatever of it is stored now, lists and pages can be read.
        assert!(wire.list_nodes(pb::ListNodesRequest::default()).is_ok(), "{what:?}");
        assert!(wire.list_jobs(pb::ListJobsRequest::default()).is_ok(), "{what:?}");
        assert!(wire.get_server_info(pb::GetServerInfoRequest {}).is_ok(), "{what:?}");
    }
    let (_, page) = fetch(program.http, "/metrics");
    for line in page.lines() {
        let is_sound = line.starts_with("# ") || line.starts_with("pumice_") || line.starts_with("process_");
        assert!(is_sound && !line.starts_with("pumice_injected"), "{line:?}");
        assert!(line.len() < 4_000, "{} bytes", line.len());
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    let (_, page) = fetch(program.http, "/readyz?verbose");
    assert!(!page.contains('\u{1b}') && page.len() < 1 << 16, "{} bytes", page.len());
    // Each line of the log is one object, which `log` reads; none is long.
    let longest = program.log().iter().map(|line| line.to_string().len()).max();
    assert!(longest.is_some_and(|longest| longest < 5_000), "{longest:?}");
    assert_no_server_error(&program);
}
