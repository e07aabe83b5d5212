//! A log as all who share it see it: its head, what is beyond a head, and the news about it.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use prost::Message;

use super::{StoreError, StoreWrite, StoredState};
use crate::clock::{Clock, SystemClock};
use pumice_engine::short_lock::ShortLock;

/// Number of leases after which a server that cannot confirm that it has the newest entry says so.
const SILENT_LEASES: u32 = 3;

/// Head of a log: the number of its last entry, and what all entries add up to. Stored entries have it with these field numbers;
/// [`Self::encode`] adds a checksum to them.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LogHead {
    /// Number of the last entry; 0: the log is empty.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Number of rows.
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    /// Sum of the checksums of all rows.
    #[prost(fixed64, tag = "3")]
    pub checksum: u64,
}

impl fmt::Display for LogHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "entry {} ({} rows, checksum {:016x})",
            self.sequence, self.rows, self.checksum
        )
    }
}

impl LogHead {
    /// Rejection of a repair that would end the log at this head. `what`: the problem of the log beyond it.
    pub fn loss(&self, what: &str) -> String {
        format!(
            "{what}: entries that were acknowledged may be lost after {self}. A server that runs has them: let it write once more. \
             Otherwise --accept-loss goes on without them"
        )
    }
}

/// Part of a log beyond a head.
#[derive(Clone, Debug, PartialEq)]
pub enum LogRead {
    /// Writes of the entries, in order, and the head after the last one.
    Entries(Vec<Vec<StoreWrite>>, LogHead),
    /// The entries have been removed. The variant has the whole content and its head.
    Content(Box<StoredState>, LogHead),
    /// Only this process appends: rows beyond the head are its own unacknowledged writes. The next entry must contain
    /// the correct rows again.
    Unacknowledged(LogHead),
}

/// News about a log that others append to. The thread that follows the log posts them, and the writer takes them.
#[derive(Default)]
pub struct LogNews {
    waiting: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    problem: ShortLock<Option<String>>,
    write_problem: ShortLock<Option<String>>,
    damage: ShortLock<Option<String>>,
    currency: ShortLock<Currency>,
    clock: OnceLock<Arc<dyn Clock>>,
    servers: ShortLock<Arc<[LogServer]>>,
    applied: AtomicU64,
}

/// Confirmations that this server has the newest entry.
#[derive(Debug, Default)]
struct Currency {
    /// Time of the last confirmation.
    confirmed: Duration,
    /// Longest time between two confirmations. Zero: none are expected.
    most: Duration,
    /// Reason for which there is no confirmation.
    doubt: String,
}

/// Server that appends to a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogServer {
    /// Beginning of the names of its sessions.
    pub session_prefix: String,
    /// Address at which clients find the server. Empty: unknown.
    pub address: String,
}

impl fmt::Debug for LogNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogNews")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl LogNews {
    /// Signals that other servers may have appended.
    pub fn post(&self) {
        if !self.waiting.swap(true, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// Sets the problem of following the log. `None`: the log can be followed.
    pub fn set_problem(&self, problem: Option<String>) {
        self.problem.with(|last| *last = problem);
    }

    /// Notes the last entry that the writer has applied.
    pub fn note_applied(&self, sequence: u64) {
        self.applied.store(sequence, Ordering::Relaxed);
    }

    /// Number of the last entry that the writer has applied.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// Signals that the log is followed from now on. Entries that other servers appended before are read as news.
    pub fn note_followed(&self) {
        if self.problem().is_some() {
            tracing::info!("the log is followed again");
        }
        self.set_problem(None);
        self.post();
    }

    /// Problem that keeps the log from being followed.
    pub fn problem(&self) -> Option<String> {
        self.problem.with(|problem| problem.clone())
    }

    /// Clock of all times from now on.
    pub fn keep_time(&self, clock: Arc<dyn Clock>) {
        // A second clock is one too many.
        let _: Result<(), _> = self.clock.set(clock);
    }

    fn now(&self) -> Duration {
        let clock = self.clock.get_or_init(|| Arc::new(SystemClock::default()));
        clock.monotonic()
    }

    /// Expects confirmations that this server has the newest entry: after `SILENT_LEASES` leases without one, it says so.
    pub fn expect_confirmations(&self, lease: Duration) {
        let confirmed = self.now();
        self.currency.with(|currency| {
            (currency.confirmed, currency.most) = (confirmed, lease * SILENT_LEASES);
            "the log has not been followed yet".clone_into(&mut currency.doubt);
        });
    }

    /// Confirms that this server has the newest entry, or gives the reason why that is not known.
    pub fn confirm(&self, confirmed: Result<(), String>) {
        let now = self.now();
        self.currency.with(|currency| match confirmed {
            Ok(()) => currency.confirmed = now,
            Err(doubt) => currency.doubt = doubt,
        });
    }

    /// Confirms that this server has the newest entry, unless there is a doubt or an entry that it has not applied. Such an entry is
    /// news, as damage is.
    pub fn confirm_newest(&self, newest: u64, applied: u64, doubt: Option<String>) {
        self.confirm(match doubt {
            Some(doubt) => Err(doubt),
            None if newest > applied => Err(format!(
                "entry {newest} is there, and this server has applied entry {applied}"
            )),
            None => Ok(()),
        });
        if newest > applied || self.is_damaged() {
            self.post();
        }
    }

    /// Time for which it has not been known whether this server has the newest entry, and the reason; `None`: it is known.
    pub fn unconfirmed(&self) -> Option<(Duration, String)> {
        let now = self.now();
        self.currency.with(|currency| {
            let time = now.saturating_sub(currency.confirmed);
            let is_expected = !currency.most.is_zero();
            (is_expected && time > currency.most).then(|| (time, currency.doubt.clone()))
        })
    }

    /// Sets the damage of the log that this server must mend before it appends. `None`: the log is whole.
    pub fn set_damage(&self, damage: Option<String>) {
        let last = self.damage.with(|last| std::mem::replace(last, damage.clone()));
        match (last, damage) {
            (last, Some(damage)) if last.as_ref() != Some(&damage) => {
                tracing::error!(%damage, "the log of the store is damaged: until a snapshot of what this server has takes its place, nothing is written");
                self.post();
            }
            (Some(damage), None) => {
                tracing::warn!(%damage, "the log of the store is whole again: a snapshot has taken the place of its entries");
            }
            (Some(_) | None, _) => {}
        }
    }

    /// Damage of the log that this server must repair.
    pub fn damage(&self) -> Option<String> {
        self.damage.with(|damage| damage.clone())
    }

    /// True if the log is damaged.
    pub fn is_damaged(&self) -> bool {
        self.damage.with(|damage| damage.is_some())
    }

    /// Repairs the log if it is damaged.
    ///
    /// # Errors
    /// The error of the work: the damage stays.
    pub fn mend(&self, work: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        if self.is_damaged() {
            work()?;
            self.set_damage(None);
        }
        Ok(())
    }

    /// Sets the problem of writing to a log that this server can follow. `None`: writes succeed.
    pub fn set_write_problem(&self, problem: Option<String>) {
        let last = self.write_problem.with(|last| std::mem::replace(last, problem.clone()));
        match (last, problem) {
            (None, Some(problem)) => {
                tracing::error!(%problem, "the log is read, and cannot be written: until it can, nothing is confirmed, committed, released or reloaded");
            }
            (Some(_), None) => tracing::info!("the log can be written again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Problem that keeps this server from writing to the log: that it cannot follow it, or that it can read alone.
    pub fn write_problem(&self) -> Option<String> {
        self.problem()
            .or_else(|| self.damage())
            .or_else(|| self.write_problem.with(|problem| problem.clone()))
    }

    /// Sets the servers that currently append to the log.
    pub fn set_servers(&self, servers: Vec<LogServer>) {
        self.servers.with(|last| *last = servers.into());
    }

    /// Address of the server that opened a session, if it is known.
    pub fn server_of_session(&self, session: &str) -> Option<String> {
        let servers = self.servers.with(|servers| Arc::clone(servers));
        let opener = servers.iter().find(|server| {
            let (prefix, address) = (&server.session_prefix, &server.address);
            !prefix.is_empty() && !address.is_empty() && session.starts_with(&**prefix)
        });
        opener.map(|server| server.address.clone())
    }

    /// Calls this from the next post on. News that are waiting are posted again.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        let is_first = self.wake.set(Box::new(wake)).is_ok();
        if is_first && self.waiting.swap(false, Ordering::SeqCst) {
            self.post();
        }
    }

    /// Takes the news, if there are any.
    pub fn take(&self) -> bool {
        self.waiting.swap(false, Ordering::SeqCst)
    }
}
