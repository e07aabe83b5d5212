//! Calls that lose the race with the end of their session: the session ends between the lookup and the lock.

#![expect(clippy::disallowed_types, reason = "a clock of a test")]

use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use super::session_tests::{DOCUMENT, allocate, open_request};
use super::{batch, node, task};
use crate::*;
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle};
use pumice_engine::model::{TaskRecord, TaskStatus};
use pumice_engine::policy::Compatibility;

type ClockHook = Box<dyn FnOnce() + Send>;

/// Clock at a fixed time with a hook that runs during the next reading. A call reads the clock after it has found its
/// session, so the hook runs between the lookup and the lock, on the thread of the call.
#[derive(Default)]
struct HookClock {
    millis: Mutex<u64>,
    hook: Mutex<Option<(ThreadId, ClockHook)>>,
}

impl std::fmt::Debug for HookClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HookClock")
    }
}

impl HookClock {
    fn at_next_look(&self, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((std::thread::current().id(), Box::new(hook)));
    }
}

impl Clock for HookClock {
    fn monotonic(&self) -> Duration {
        let now = *self.millis.lock().unwrap();
        let due = self
            .hook
            .lock()
            .unwrap()
            .take_if(|(thread, _)| *thread == std::thread::current().id());
        if let Some((_, hook)) = due {
            hook();
        }
        Duration::from_millis(now)
    }

    fn wall(&self) -> Duration {
        Duration::ZERO
    }
}

fn open() -> (Arc<SharedState>, Arc<HookClock>, Arc<str>) {
    let clock = Arc::new(HookClock::default());
    let state = SharedState::start(StateOptions::default(), Arc::clone(&clock) as _).unwrap();
    let reload = PolicyReload {
        name: "default".into(),
        document: DOCUMENT.into(),
        expected_version: None,
        dry_run: false,
        strict: false,
        compatibility: Compatibility::Corrected,
        origin: PolicyOrigin::Rpc("test".to_owned()),
    };
    let BatchRecord::Task(record) = task("a/x", "", 100) else {
        panic!("a task")
    };
    let pending = BatchRecord::Task(TaskRecord {
        status: TaskStatus::Pending,
        ..record
    });
    let put = vec![node("n1", 4_000), pending];
    let opened = tokio::runtime::Runtime::new().unwrap().block_on(async {
        state.reload_policy(reload).await.unwrap();
        state.apply_batch(batch(1, BatchKind::FullSyncLast, put)).await.unwrap();
        state.open_session(open_request(None)).await.unwrap()
    });
    (state, clock, opened.session)
}

/// One way for a session to end.
type SessionEnd = fn(&SharedState, &HookClock, &str);

const ENDS: [(&str, SessionEnd); 3] = [
    ("closed", |state, _, session| {
        assert!(state.close_session(session).is_ok());
    }),
    ("committed", |state, _, session| {
        drop(state.commit_session(session, 0, &[], &[], || ()).unwrap());
    }),
    ("too old", |state, clock, _| {
        *clock.millis.lock().unwrap() += 3_600_000;
        state.sessions.sweep();
    }),
];

const WEIGHED: WeighedResult<i32> = WeighedResult { result: 1, bytes: 4 };

/// One call that changes a session, or ends it.
type SessionCall = fn(&SharedState, &str) -> Result<(), StateError>;

const CALLS: [(&str, SessionCall); 4] = [
    ("changes", |state, session| {
        state.step_session(session, 0, &[allocate("a/x", "n1")]).map(drop)
    }),
    ("a query that changes plugins' state", |state, session| {
        let ask = |cycle: &mut SchedulingCycle, _: &_, _: &mut ChangeOutcome| {
            cycle.query_plugins(|_, _| Ok::<_, StateError>(WEIGHED))
        };
        state.query_cycle(session, 0, &[], ask).map(drop)
    }),
    ("a query that changes the cycle, as Place does", |state, session| {
        let place = |_: &mut _, _: &_, _: &mut ChangeOutcome| Ok::<_, StateError>(WEIGHED);
        state.query_cycle(session, 0, &[allocate("a/x", "n1")], place).map(drop)
    }),
    ("a confirmation", |state, session| {
        let confirm = SessionConfirm {
            now: None,
            plugins: Vec::new(),
            lease: None,
            read_items: None,
        };
        state.confirm_session(session, 0, &[], confirm, || ()).map(drop)
    }),
];

/// Makes a session end in the middle of a call.
fn end_amid<T>(end: SessionEnd, call: impl FnOnce(&SharedState, &str) -> T) -> (Arc<SharedState>, T) {
    let (state, clock, session) = open();
    let (ending, by, name) = (Arc::clone(&state), Arc::clone(&clock), Arc::clone(&session));
    clock.at_next_look(move || end(&ending, &by, &name));
    let result = call(&state, &session);
    assert!(clock.hook.lock().unwrap().is_none(), "the session ended amid the call");
    assert_eq!(state.session_count(), 0);
    (state, result)
}

#[test]
fn a_call_that_loses_the_race_with_the_end_of_its_session_fails() {
    for (how, end) in ENDS {
        for (what, call) in CALLS {
            let (state, result) = end_amid(end, call);
            let reason = result.map_err(|error| error.reason());
            assert_eq!(reason, Err("SESSION_EXPIRED"), "{what}, session {how}");
            assert_eq!(
                state.sessions.bytes(),
                0,
                "{what}, session {how}: nothing of it is counted any more"
            );
        }
    }
}

#[test]
fn an_end_that_loses_the_race_with_another_gets_the_recorded_outcome() {
    for (how, end) in ENDS {
        let (_, closed) = end_amid(end, SharedState::close_session);
        let (_, committed) = end_amid(end, |state, session| state.commit_session(session, 0, &[], &[], || ()));
        let closed = closed.map_err(|error| error.reason());
        let committed = committed.map(drop).map_err(|error| error.reason());
        let (of_close, of_commit) = match how {
            "committed" => (Ok(0), Ok(())),
            "closed" => (Ok(0), Err("SESSION_EXPIRED")),
            _ => (Err("SESSION_EXPIRED"), Err("SESSION_EXPIRED")),
        };
        assert_eq!((closed, committed), (of_close, of_commit), "session {how}");
    }
}

#[test]
fn nobody_else_changes_or_ends_a_session_during_a_change() {
    let (state, _, session) = open();
    let place = [allocate("a/x", "n1")];
    let busy = |ended: Result<(), StateError>| assert_eq!(ended.unwrap_err().reason(), "SESSION_BUSY");
    let queried = state.query_cycle(&session, 0, &[], |_, _, _| {
        busy(state.step_session(&session, 0, &place).map(drop));
        busy(state.commit_session(&session, 0, &[], &[], || ()).map(drop));
        busy(state.close_session(&session).map(drop));
        Ok::<_, StateError>(WEIGHED)
    });
    drop(queried.unwrap());
    assert_eq!(state.step_session(&session, 1, &place).unwrap().applied_through, 2);
}
