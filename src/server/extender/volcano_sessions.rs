//! Sessions of schedulers that use Volcano's extender protocol, by path. The number of names is bounded, and a new name never
//! replaces a known one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pumice_engine::short_lock::ShortLock;
use tokio::time::Instant;

/// Schedulers whose names are known at once.
pub(super) const MAX_SCHEDULERS: usize = 64;
/// Schedulers of one address whose names are known at once: a caller who invents names takes its own address's part.
pub(super) const ADDRESS_SCHEDULERS: usize = 8;
/// Time without a request after which the name of a scheduler is forgotten.
const SILENT_SCHEDULER: Duration = Duration::from_mins(10);

/// Path of a request: the scheduler's own name, and its policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SchedulerPath {
    pub(super) scheduler: String,
    pub(super) policy: String,
}

/// Session of a scheduler.
#[derive(Clone, Debug)]
pub(super) enum VolcanoSession {
    Open(Arc<str>),
    /// Why there is none.
    Poisoned(Arc<str>),
    /// The scheduler closed it, and will open the next one.
    Closed,
}

/// Scheduler that has asked.
#[derive(Debug)]
struct KnownScheduler {
    session: VolcanoSession,
    /// Address that it came from first; `None`: unknown.
    address: Option<IpAddr>,
    asked_at: Instant,
}

/// Schedulers by path.
#[derive(Debug, Default)]
pub(super) struct VolcanoSessions(ShortLock<BTreeMap<SchedulerPath, KnownScheduler>>);

impl VolcanoSessions {
    /// Session of a path.
    pub(super) fn get(&self, path: &SchedulerPath) -> Option<VolcanoSession> {
        self.0.with(|known| {
            let own = known.get_mut(path)?;
            own.asked_at = Instant::now();
            Some(own.session.clone())
        })
    }

    /// Puts the session of a path in the place of the one before. Returns the sessions that are over, or the limit that
    /// leaves no place for a new name: known schedulers keep theirs.
    pub(super) fn put(
        &self,
        path: &SchedulerPath,
        session: VolcanoSession,
        address: Option<IpAddr>,
        now: Instant,
    ) -> Result<Vec<VolcanoSession>, usize> {
        self.0.with(|known| {
            if let Some(own) = known.get_mut(path) {
                own.asked_at = now;
                return Ok(vec![std::mem::replace(&mut own.session, session)]);
            }
            let is_silent = |own: &KnownScheduler| now.saturating_duration_since(own.asked_at) >= SILENT_SCHEDULER;
            let over: Vec<SchedulerPath> = known
                .iter()
                .filter(|(_, own)| is_silent(own))
                .map(|(path, _)| path.clone())
                .collect();
            let over = over.iter().filter_map(|path| known.remove(path));
            let over: Vec<VolcanoSession> = over.map(|own| own.session).collect();
            if known.len() >= MAX_SCHEDULERS {
                return Err(MAX_SCHEDULERS);
            }
            if known.values().filter(|own| own.address == address).count() >= ADDRESS_SCHEDULERS {
                return Err(ADDRESS_SCHEDULERS);
            }
            let own = KnownScheduler {
                session,
                address,
                asked_at: now,
            };
            known.insert(path.clone(), own);
            Ok(over)
        })
    }

    /// Marks the session of a path as closed. Returns the one before.
    pub(super) fn close(&self, path: &SchedulerPath) -> Option<VolcanoSession> {
        self.0.with(|known| {
            let own = known.get_mut(path)?;
            own.asked_at = Instant::now();
            Some(std::mem::replace(&mut own.session, VolcanoSession::Closed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(scheduler: &str) -> SchedulerPath {
        SchedulerPath {
            scheduler: scheduler.to_owned(),
            policy: "default".to_owned(),
        }
    }

    fn open(name: &str) -> VolcanoSession {
        VolcanoSession::Open(name.into())
    }

    fn is_open(sessions: &VolcanoSessions, scheduler: &str) -> bool {
        matches!(sessions.get(&path(scheduler)), Some(VolcanoSession::Open(_)))
    }

    #[test]
    fn invented_names_take_no_session_of_another_scheduler() {
        let sessions = VolcanoSessions::default();
        let now = Instant::now();
        let address = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        sessions.put(&path("a"), open("1"), address(1), now).unwrap();
        for number in 0..200 {
            let put = sessions.put(&path(&format!("invented-{number}")), open("x"), address(1), now);
            assert_eq!(put.is_ok(), number < ADDRESS_SCHEDULERS - 1, "{number}");
        }
        assert!(is_open(&sessions, "a"));
        // A scheduler that closes its session and opens the next one has kept its place.
        assert!(sessions.close(&path("a")).is_some());
        assert!(sessions.put(&path("another"), open("x"), address(1), now).is_err());
        sessions.put(&path("a"), open("2"), address(1), now).unwrap();
        // Other addresses have places of their own.
        sessions.put(&path("b"), open("3"), address(2), now).unwrap();
        for host in 3..100 {
            for number in 0..ADDRESS_SCHEDULERS {
                let _ = sessions.put(&path(&format!("far-{host}-{number}")), open("x"), address(host), now);
            }
        }
        assert!(is_open(&sessions, "a") && is_open(&sessions, "b"));
        assert_eq!(
            sessions.put(&path("late"), open("4"), address(200), now).unwrap_err(),
            MAX_SCHEDULERS
        );
        let later = Instant::now() + SILENT_SCHEDULER;
        sessions.put(&path("late"), open("4"), address(200), later).unwrap();
        assert!(
            is_open(&sessions, "late") && !is_open(&sessions, "b"),
            "silent names are forgotten"
        );
    }
}
