//! Shares of single connections: of sessions, their bytes, and full syncs that are being sent.

use std::sync::Arc;

use super::session_tests::{DOCUMENT, inline_policy, open_request};
use super::{batch, bounded, node, task};
use crate::*;

fn inline(state: &SharedState, connection: &ConnectionShare) -> OpenSession {
    OpenSession {
        base: SessionBase::Inline {
            cluster_state: Box::new(state.snapshot().state.clone()),
            policy: inline_policy(),
        },
        connection: Some(connection.clone()),
        ..open_request(None)
    }
}

/// Name of the session that was opened, or of the limit that refused it.
async fn open(state: &SharedState, connection: &ConnectionShare) -> Result<Arc<str>, &'static str> {
    match state.open_session(inline(state, connection)).await {
        Ok(opened) => Ok(opened.session),
        Err(StateError::Limit { limit, .. }) => Err(limit),
        Err(other) => panic!("{other}"),
    }
}

fn two_connections() -> (ConnectionShare, ConnectionShare) {
    (ConnectionShare::default(), ConnectionShare::default())
}

#[tokio::test]
async fn the_sessions_of_a_connection_leave_places_for_others() {
    let (state, clock) = bounded(StateLimits {
        sessions: 4,
        connection_sessions: 3,
        ..StateLimits::default()
    });
    let (first, second) = two_connections();
    let opened = open(&state, &first).await.unwrap();
    for _ in 0..2 {
        open(&state, &first).await.unwrap();
    }
    assert_eq!(open(&state, &first).await, Err("connection_sessions"));
    open(&state, &second).await.unwrap();
    assert_eq!(open(&state, &second).await, Err("sessions"));
    state.close_session(&opened).unwrap();
    open(&state, &first).await.unwrap();
    clock.advance(31_000);
    open(&state, &first).await.expect("expired ones make room");
}

#[tokio::test]
async fn connections_together_leave_places_for_those_without_a_session() {
    let (state, _) = bounded(StateLimits {
        sessions: 16,
        connection_sessions: 12,
        ..StateLimits::default()
    });
    let greedy: Vec<ConnectionShare> = (0..7).map(|_| ConnectionShare::default()).collect();
    let mut opened = 0;
    for _ in 0..16 {
        for connection in &greedy {
            opened += usize::from(open(&state, connection).await.is_ok());
        }
    }
    assert_eq!(opened, 14, "an eighth is left");
    assert_eq!(open(&state, &greedy[0]).await, Err("sessions"));
    let (first, second) = two_connections();
    open(&state, &first).await.unwrap();
    assert_eq!(open(&state, &first).await, Err("sessions"));
    open(&state, &second).await.unwrap();
    assert_eq!(state.session_count(), 16);
}

#[tokio::test]
async fn many_connections_of_one_caller_leave_places_for_others() {
    let (state, _) = bounded(StateLimits {
        sessions: 16,
        connection_sessions: 12,
        ..StateLimits::default()
    });
    let from = |address: &str| ConnectionShare::of_peer(address.parse().unwrap());
    for callers in [["10.0.0.1", "::ffff:10.0.0.1"], ["2001:db8::1", "2001:db8::ffff:2"]] {
        let mut held = Vec::new();
        for number in 0..40 {
            let connection = from(callers[number % 2]);
            if open(&state, &connection).await.is_ok() {
                held.push(connection);
            }
        }
        assert_eq!(held.len(), 14, "{callers:?}: an eighth is left");
        for other in ["10.0.0.2", "2001:db8:0:1::1"] {
            let other = from(other);
            open(&state, &other).await.unwrap();
            assert_eq!(open(&state, &other).await, Err("sessions"), "it has one");
            other.end();
        }
        held.iter().for_each(ConnectionShare::end);
    }
}

#[tokio::test]
async fn expired_sessions_of_a_connection_make_room_for_its_own() {
    let (state, clock) = bounded(StateLimits {
        connection_sessions: 1,
        ..StateLimits::default()
    });
    let connection = ConnectionShare::default();
    open(&state, &connection).await.unwrap();
    assert_eq!(open(&state, &connection).await, Err("connection_sessions"));
    clock.advance(31_000);
    open(&state, &connection).await.unwrap();
}

#[tokio::test]
async fn sessions_of_an_ended_connection_give_way_the_longest_silent_first() {
    let (state, clock) = bounded(StateLimits {
        sessions: 3,
        connection_sessions: 2,
        ..StateLimits::default()
    });
    let (first, second) = two_connections();
    let (renewed, silent) = (open(&state, &first).await.unwrap(), open(&state, &first).await.unwrap());
    clock.advance(1_000);
    state.peek_session(&renewed).unwrap();
    open(&state, &second).await.unwrap();
    assert_eq!(
        open(&state, &second).await,
        Err("sessions"),
        "both connections are there"
    );
    first.end();
    assert!(
        state.peek_session(&silent).is_ok() && state.peek_session(&renewed).is_ok(),
        "nobody needs their places"
    );
    clock.advance(1_000);
    state.peek_session(&renewed).unwrap();
    let held = state.step_session(&silent, 0, &[]).unwrap();
    open(&state, &second).await.unwrap();
    let error = state.peek_session(&renewed).unwrap_err();
    assert!(
        matches!(&error, StateError::SessionExpired { why, .. } if why.contains("its connection had ended")),
        "{error}: the other one has a call under way"
    );
    let third = ConnectionShare::default();
    assert_eq!(open(&state, &third).await, Err("sessions"));
    drop(held);
    open(&state, &third).await.unwrap();
    assert!(state.peek_session(&silent).is_err());
    assert_eq!(open(&state, &third).await, Err("sessions"), "nobody left more behind");
}

#[tokio::test]
async fn of_two_sessions_left_behind_the_longer_silent_goes() {
    let (state, clock) = bounded(StateLimits {
        sessions: 2,
        ..StateLimits::default()
    });
    let (first, second) = two_connections();
    let (renewed, silent) = (open(&state, &first).await.unwrap(), open(&state, &first).await.unwrap());
    clock.advance(1_000);
    state.peek_session(&renewed).unwrap();
    first.end();
    open(&state, &second).await.unwrap();
    assert!(state.peek_session(&silent).is_err() && state.peek_session(&renewed).is_ok());
}

#[tokio::test]
async fn the_bytes_of_a_connections_sessions_leave_room_for_others() {
    let (state, _) = bounded(StateLimits::default());
    open(&state, &ConnectionShare::default()).await.unwrap();
    let bytes = state.sessions.bytes();
    let (state, _) = bounded(StateLimits {
        // Four sessions, and less than one in the part for connections without any.
        session_bytes: bytes * 23 / 5,
        connection_session_bytes: bytes * 3,
        ..StateLimits::default()
    });
    let (first, second) = two_connections();
    for _ in 0..3 {
        open(&state, &first).await.unwrap();
    }
    assert_eq!(open(&state, &first).await, Err("connection_session_bytes"));
    let other = open(&state, &second).await.unwrap();
    assert_eq!(open(&state, &second).await, Err("session_bytes"));
    first.end();
    open(&state, &second)
        .await
        .expect("one that was left behind makes room");
    state.close_session(&other).unwrap();
    assert_eq!(state.session_count(), 3, "and no other");
}

#[tokio::test]
async fn former_states_count_for_the_connection_whose_sessions_hold_them() {
    let (state, _) = bounded(StateLimits {
        connection_session_bytes: 100_000,
        ..StateLimits::default()
    });
    let reload = PolicyReload {
        name: "default".into(),
        document: DOCUMENT.into(),
        expected_version: None,
        dry_run: false,
        strict: false,
        compatibility: pumice_engine::policy::Compatibility::Corrected,
        origin: PolicyOrigin::Rpc("test".to_owned()),
    };
    state.reload_policy(reload).await.unwrap();
    let tasks = |from: usize| {
        (from..from + 2_000)
            .map(|number| task(&format!("a/{number}"), "", 1))
            .collect()
    };
    state
        .apply_batch(batch(1, BatchKind::FullSyncLast, tasks(0)))
        .await
        .unwrap();
    let (first, second) = two_connections();
    let shared = |connection: &ConnectionShare| OpenSession {
        connection: Some(connection.clone()),
        ..open_request(None)
    };
    state.open_session(shared(&first)).await.unwrap();
    state
        .apply_batch(batch(2, BatchKind::FullSyncLast, tasks(10_000)))
        .await
        .unwrap();
    state.sessions.recount_retained(&state.snapshot());
    let error = state.open_session(shared(&first)).await.unwrap_err();
    assert!(
        matches!(
            error,
            StateError::Limit {
                limit: "connection_session_bytes",
                ..
            }
        ),
        "{error}"
    );
    state.open_session(shared(&second)).await.unwrap();
}

fn part(source: &str, number: u32, connection: &ConnectionShare) -> Batch {
    let kind = BatchKind::FullSyncPart;
    Batch {
        source: source.into(),
        part: number,
        connection: Some(connection.clone()),
        ..batch(number.into(), kind, vec![node(source, 1), task(source, "", 1)])
    }
}

/// Name of the limit that refuses a batch, or the reason for which it is not taken.
async fn rejection(state: &SharedState, batch: Batch) -> &'static str {
    match state.apply_batch(batch).await {
        Ok(outcome) => outcome.resync.map_or("", |resync| resync.reason.code().name()),
        Err(StateError::Limit { limit, .. }) => limit,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_full_syncs_of_a_connection_leave_room_for_others() {
    let record_bytes = intake::record_bytes::batch_bytes(&part("a", 1, &ConnectionShare::default()));
    let by_records = StateLimits {
        full_sync_records: 6,
        connection_full_sync_records: 4,
        ..StateLimits::default()
    };
    let by_bytes = StateLimits {
        full_sync_bytes: record_bytes * 3,
        connection_full_sync_bytes: record_bytes * 2,
        ..StateLimits::default()
    };
    let names = [
        ("connection_full_sync_records", "full_sync_records"),
        ("connection_full_sync_bytes", "full_sync_bytes"),
    ];
    for (limits, (own, all)) in [by_records, by_bytes].into_iter().zip(names) {
        let (state, clock) = bounded(limits);
        let (first, second) = two_connections();
        assert_eq!(rejection(&state, part("a", 1, &first)).await, "");
        clock.advance(1);
        assert_eq!(rejection(&state, part("b", 1, &first)).await, "");
        assert_eq!(rejection(&state, part("c", 1, &first)).await, own);
        assert_eq!(rejection(&state, part("d", 1, &second)).await, "");
        assert_eq!(rejection(&state, part("e", 1, &second)).await, all);
        first.end();
        clock.advance(1);
        assert_eq!(
            rejection(&state, part("e", 1, &second)).await,
            "",
            "one left behind makes room"
        );
        assert_eq!(
            rejection(&state, part("a", 2, &second)).await,
            "GAP",
            "it is the longest silent"
        );
        // The other one goes on by a connection of its own, and is nobody else's.
        let third = ConnectionShare::default();
        assert_eq!(rejection(&state, part("d", 1, &second)).await, "");
        let last = Batch {
            kind: BatchKind::FullSyncLast,
            put: Vec::new(),
            ..part("b", 2, &third)
        };
        assert_eq!(rejection(&state, last).await, "");
    }
}
