//! One caller who takes all that the callers share of the state, on one connection: places of sessions, their memory, and
//! room for full syncs.

use pumice::server::pb;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::broken_calls::assert_no_server_error;
use super::transport::rejections;
use crate::support::records::full_sync;
use crate::support::wire::BlockingClients;
use crate::support::{cluster, limit_of, program::LoggedProcess, reported_limits, until};

fn open(clients: &BlockingClients) -> Result<String, Status> {
    let opened = clients.open_session(pb::OpenSessionRequest::default());
    opened.map(|opened| opened.session)
}

/// Session on a cluster that the request brings.
fn open_inline(clients: &BlockingClients, nodes: usize) -> Result<String, Status> {
    let inline = pb::InlineSnapshot {
        cluster: Some(cluster(nodes)),
        ..pb::InlineSnapshot::default()
    };
    let against = pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
        ..pb::EvaluationRef::default()
    };
    let request = pb::OpenSessionRequest {
        against: Some(against),
        ..pb::OpenSessionRequest::default()
    };
    clients.open_session(request).map(|opened| opened.session)
}

/// First part of a full sync that goes on.
fn part(source: &str, nodes: usize) -> pb::Batch {
    pb::Batch {
        kind: pb::BatchKind::FullSyncPart.into(),
        part: 1,
        ..full_sync(source, 1, cluster(nodes))
    }
}

#[test]
fn thousands_of_sessions_of_one_connection_leave_places_for_others() {
    let program = LoggedProcess::serve(&["--connection-session-bytes", "20000000"]);
    let (greedy, other) = (program.connect(), program.connect());
    let info = greedy.get_server_info(pb::GetServerInfoRequest {}).unwrap();
    let limits = reported_limits(&info);
    let most = usize::try_from(limits["connection_sessions"]).unwrap();
    assert!(limits["connection_sessions"] < limits["sessions"], "{limits:?}");
    let mut opened = Vec::new();
    for number in 0..2_000 {
        match open(&greedy) {
            Ok(session) => opened.push(session),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{number}: {status:?}");
                assert_eq!(limit_of(&status), "connection_sessions");
                assert!(status.message().contains("close those that are over"), "{status:?}");
                assert!(status.get_details_retry_info().is_some(), "{status:?}");
                // A caller that hammers is answered later each time.
                if number > most + 40 {
                    break;
                }
            }
        }
    }
    assert_eq!(opened.len(), most);
    // An eighth is left for callers who have none.
    let all = usize::try_from(limits["sessions"]).unwrap();
    let places = all - all / 8 - most;
    for _ in 0..places {
        open(&other).unwrap();
    }
    assert_eq!(limit_of(&open(&other).unwrap_err()), "sessions");
    assert!(rejections(program.http, "connection_sessions") >= 1.0);
    for session in opened {
        greedy.close_session(pb::CloseSessionRequest { session }).unwrap();
    }
    open(&other).unwrap();
    // Few sessions, with clusters of their own.
    let refused = (0..200).find_map(|_| open_inline(&greedy, 5_000).err()).unwrap();
    assert_eq!(limit_of(&refused), "connection_session_bytes");
    open_inline(&other, 5_000).unwrap();
    assert!(rejections(program.http, "connection_session_bytes") >= 1.0);
    assert_no_server_error(&program);
}

#[test]
fn sessions_that_a_connection_left_behind_give_way() {
    // Of fewer than eight none is kept for callers without any.
    let program = LoggedProcess::serve(&["--sessions", "7", "--connection-sessions", "7"]);
    let gone = program.connect();
    let left: Vec<String> = (0..7).map(|_| open(&gone).unwrap()).collect();
    let other = program.connect();
    assert_eq!(
        limit_of(&open(&other).unwrap_err()),
        "sessions",
        "its caller is still there"
    );
    drop(gone);
    let mut opened = 0;
    until("the server sees that the connection has ended", || {
        opened += usize::from(open(&other).is_ok());
        opened > 0
    });
    let is_open = |session: &String| {
        let node_table = pb::GetNodeTableRequest {
            session: session.clone(),
            ..pb::GetNodeTableRequest::default()
        };
        other.get_node_table(node_table).is_ok()
    };
    let open_now: Vec<bool> = left.iter().map(is_open).collect();
    assert_eq!(
        open_now,
        [false, true, true, true, true, true, true],
        "the oldest alone"
    );
    for _ in 0..6 {
        open(&other).unwrap();
    }
    assert!(!left.iter().any(is_open));
    let refused = open(&other).unwrap_err();
    assert!(
        ["sessions", "connection_sessions"].contains(&&*limit_of(&refused)),
        "{refused:?}"
    );
    assert_no_server_error(&program);
}

#[test]
fn a_connection_has_its_share_of_full_syncs_on_their_way() {
    let flags = ["--full-sync-records", "4000", "--connection-full-sync-records", "3000"];
    let more = [
        "--full-sync-bytes",
        "100000000",
        "--connection-full-sync-bytes",
        "90000000",
    ];
    let program = LoggedProcess::serve(&[flags, more].concat());
    let (greedy, other) = (program.connect(), program.connect());
    for source in ["a", "b", "c"] {
        greedy.apply_batch(part(source, 1_000)).unwrap();
    }
    let refused = greedy.apply_batch(part("d", 1_000)).unwrap_err();
    assert_eq!(limit_of(&refused), "connection_full_sync_records");
    assert!(
        refused.message().contains("send one full sync after the other"),
        "{refused:?}"
    );
    assert!(rejections(program.http, "connection_full_sync_records") >= 1.0);
    other.apply_batch(part("e", 1_000)).unwrap();
    assert_eq!(
        limit_of(&other.apply_batch(part("f", 1_000)).unwrap_err()),
        "full_sync_records"
    );
    drop(greedy);
    until("the server sees that the connection has ended", || {
        other.apply_batch(part("f", 1_000)).is_ok()
    });
    // The source of the one that made room begins again.
    let last = pb::Batch {
        sequence: 2,
        part: 2,
        ..full_sync("a", 1, cluster(1))
    };
    let outcome = other.apply_batch(last).unwrap();
    assert_eq!(outcome.resync.map(|resync| resync.reason).unwrap_or_default(), "GAP");
    assert_no_server_error(&program);
}
