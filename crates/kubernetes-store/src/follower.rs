//! Follower of the log: it renews the Lease of this server, watches the slots, and reports when the API server is
//! unreachable.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::WatchParams;
use kube_client::core::WatchEvent;
use pumice_live::SILENCE;
use pumice_state::store::{FollowAttempts, LogNews, LogPlace as _, StoreError};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;

use crate::lease::{ListedServers, ServerLease};
use crate::link::ApiError;
use crate::make::SlotNumbers;
use crate::names::{LogObjectKind, bytes_of};
use crate::read::SlotLog;
use crate::slots::{SlotRead, expected_sequence};

/// Longest pause between two attempts to reach the API server.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Pause before the slots are listed again because a watch cannot go on.
const LIST_PAUSE: Duration = Duration::from_millis(100);
/// Number of renewals in the time of a Lease.
const RENEWALS_PER_LEASE: u32 = 4;
/// Time after which the API server ends a watch, in seconds. The next watch continues.
const WATCH_SECONDS: u32 = 240;

/// Follower of the log for one server.
#[derive(Debug)]
pub(crate) struct SlotFollower {
    news: Arc<LogNews>,
    /// Number of the newest entry that a list or the watch has shown.
    shown: AtomicU64,
}

/// Way in which a watch ended.
enum WatchEnd {
    /// The API server ended the watch. The next watch continues at this version.
    Resume(String),
    /// The slots have to be listed again.
    ListAgain,
}

impl SlotFollower {
    pub(crate) fn new(news: Arc<LogNews>) -> Self {
        let shown = AtomicU64::new(0);
        Self { news, shown }
    }

    /// Follows the log until the store is dropped.
    pub(crate) async fn follow(&self, access: &SlotLog, mut lease: ServerLease) {
        let mut attempts = FollowAttempts::new(LONGEST_PAUSE);
        loop {
            let mut was_connected = false;
            let error = match self.follow_once(access, &mut lease, &mut was_connected).await {
                Ok(()) => {
                    tokio::time::sleep(LIST_PAUSE).await;
                    continue;
                }
                Err(error) => error,
            };
            access.link.forget();
            // A connection that broke is made again before anybody is told.
            let pause = attempts.note_end(was_connected, 1, &self.news, (&error, problem_of(&error)));
            tokio::time::sleep(pause).await;
        }
    }

    /// Lists the slots, and watches them until they have to be listed again.
    async fn follow_once(
        &self,
        access: &SlotLog,
        lease: &mut ServerLease,
        was_connected: &mut bool,
    ) -> Result<(), StoreError> {
        let is_made = access.root().await?.is_some();
        let mut version = if is_made {
            self.list(access).await?
        } else {
            String::new()
        };
        self.renew(access, lease).await?;
        *was_connected = true;
        self.news.note_followed();
        if !is_made {
            return self.await_making(access, lease).await;
        }
        loop {
            match self.watch(access, lease, &version).await? {
                WatchEnd::Resume(at) => version = at,
                WatchEnd::ListAgain => return Ok(()),
            }
        }
    }

    /// Lists the slots. Returns the version of the list.
    async fn list(&self, access: &SlotLog) -> Result<String, StoreError> {
        let applied = self.news.applied();
        let SlotNumbers {
            version,
            newest,
            numbers,
        } = access.list_slots().await?;
        let damaged = access.slots.damaged();
        if newest < applied && !damaged.contains(&access.slot_of(newest + 1)) {
            return Err(access.link.replaced());
        }
        let newest = newest.max(applied);
        self.shown.store(newest, Ordering::Relaxed);
        if let Some(slot) = damaged.first() {
            let name = access.link.names.slot(*slot);
            let (found, expected) = (
                numbers.get(slot),
                expected_sequence(*slot, newest, access.slots.slots()),
            );
            self.note_damage(match found {
                Some(found) if *found < u64::MAX && *found != expected => other_number(&name, *found, expected),
                _ => format!("{name} does not have the entry that belongs there"),
            });
        }
        Ok(version)
    }

    fn note_damage(&self, what: String) {
        if !self.news.is_damaged() {
            self.news.set_damage(Some(what));
        }
    }

    /// Renews the Lease until somebody makes the log.
    async fn await_making(&self, access: &SlotLog, lease: &mut ServerLease) -> Result<(), StoreError> {
        let mut tick = Self::ticks(access);
        loop {
            tick.tick().await;
            self.renew(access, lease).await?;
            self.news.confirm(Ok(()));
            if access.root().await?.is_some() {
                return Ok(());
            }
        }
    }

    fn ticks(access: &SlotLog) -> tokio::time::Interval {
        let mut tick = tokio::time::interval(access.options.lease / RENEWALS_PER_LEASE);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tick
    }

    async fn watch(&self, access: &SlotLog, lease: &mut ServerLease, from: &str) -> Result<WatchEnd, StoreError> {
        let unreachable = |error| access.link.error(&error);
        let api = access.link.api::<ConfigMap>().await.map_err(unreachable)?;
        let selector = access.link.names.selector(LogObjectKind::Slot);
        let asked = WatchParams::default().labels(&selector).timeout(WATCH_SECONDS);
        let begun = access.link.call(api.watch(&asked, from)).await;
        let events = match begun {
            Ok(events) => events,
            Err(ApiError::Expired(_)) => return Ok(WatchEnd::ListAgain),
            Err(error) => return Err(access.link.error(&error)),
        };
        let (mut events, mut tick, mut at) = (pin!(events), Self::ticks(access), from.to_owned());
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                event = events.next() => match event.inspect(|_| heard = Instant::now()) {
                    None => return Ok(WatchEnd::Resume(at)),
                    Some(Ok(WatchEvent::Added(slot) | WatchEvent::Modified(slot))) => {
                        if let Some(version) = &slot.metadata.resource_version {
                            at.clone_from(version);
                        }
                        if !self.take_news(access, &slot)? {
                            return Ok(WatchEnd::ListAgain);
                        }
                    }
                    Some(Ok(WatchEvent::Deleted(slot))) => {
                        let name = slot.metadata.name.as_deref().unwrap_or_default();
                        access.root().await?;
                        if access.link.names.slot_number(name).is_some() {
                            return Err(access.link.damaged(&format!("{name} was deleted")));
                        }
                    }
                    Some(Ok(WatchEvent::Bookmark(mark))) => at = mark.metadata.resource_version,
                    // Whatever it was, a list says how things are; it fails if that cannot be said.
                    Some(Ok(WatchEvent::Error(_)) | Err(_)) => return Ok(WatchEnd::ListAgain),
                },
                _ = tick.tick() => {
                    let listed = self.renew(access, lease).await?;
                    access.root().await?;
                    access.check_applied(self.news.applied()).await?;
                    self.check_newest(access, listed).await?;
                    if heard.elapsed() > SILENCE {
                        return Ok(WatchEnd::ListAgain);
                    }
                }
            }
        }
    }

    /// Takes an object that the watch shows: a new entry, or damage by a hand that is not a server's. An object that only has the labels of a
    /// slot is not of the log. False: the watch left entries out, so a list has to say what is there.
    fn take_news(&self, access: &SlotLog, slot: &ConfigMap) -> Result<bool, StoreError> {
        let name = slot.metadata.name.as_deref().unwrap_or_default();
        let (slots, shown) = (access.slots.slots(), self.shown.load(Ordering::Relaxed));
        let Some(number) = access.link.names.slot_number(name).filter(|number| *number < slots) else {
            return Ok(true);
        };
        let harmed = |what: String| {
            access.slots.note_damaged(number);
            self.note_damage(what);
            Ok(true)
        };
        let SlotRead { version, value } = match SlotRead::of(slot) {
            Ok(read) => read,
            Err(what) => return harmed(format!("{name}: {what}")),
        };
        let (sequence, expected) = (version.sequence, expected_sequence(number, shown, slots));
        let is_later = sequence > shown && access.slot_of(sequence) == number;
        let is_new = is_later && sequence == shown + 1;
        if is_later && !is_new {
            return Ok(false);
        }
        if !is_new && sequence != expected {
            return harmed(other_number(name, sequence, expected));
        }
        let is_own = value.as_ref().is_some_and(|value| value.author.server == access.server);
        let is_news = !is_own && sequence > self.news.applied();
        access.note(number, &version, value.filter(|_| is_news))?;
        let is_same = access.slots.note_bytes(number, sequence, bytes_of(slot));
        if is_new {
            self.shown.store(sequence, Ordering::Relaxed);
        } else if !is_same && sequence > access.slots.snapshot() {
            return harmed(format!("{name}: entry {sequence} was written again by another hand"));
        }
        if is_news {
            self.news.post();
        }
        Ok(true)
    }

    /// Confirms that this server has the newest entry: by the slot of the next one, and by the Leases of the others. What it has not is
    /// news.
    async fn check_newest(&self, access: &SlotLog, listed: Option<ListedServers>) -> Result<(), StoreError> {
        let applied = self.news.applied();
        let next = access.read_version(applied + 1).await?.sequence;
        let newest = listed.as_ref().map_or(0, |listed| listed.newest).max(next);
        let is_old = listed.is_none_or(|listed| !listed.has_own);
        let doubt = is_old.then(|| "the Leases do not show that this server has renewed its own".to_owned());
        self.news.confirm_newest(newest, applied, doubt);
        Ok(())
    }

    /// Renews the Lease and reads the Leases of other servers. If the API server responds but rejects writes, the
    /// server follows the log without a Lease.
    async fn renew(&self, access: &SlotLog, lease: &mut ServerLease) -> Result<Option<ListedServers>, StoreError> {
        match lease.renew(&access.link, self.news.applied()).await {
            Ok(()) => self.news.set_write_problem(None),
            Err(error @ ApiError::Unknown { is_answered: false, .. }) => return Err(access.link.error(&error)),
            Err(error) => self.news.set_write_problem(Some(error.message())),
        }
        match lease.servers(&access.link).await {
            Ok(listed) => {
                self.news.set_servers(listed.servers.clone());
                Ok(Some(listed))
            }
            Err(ApiError::Throttled(..)) => Ok(None),
            Err(error) => Err(access.link.error(&error)),
        }
    }
}

/// Message about a slot with another number than the one that belongs there.
fn other_number(name: &str, found: u64, expected: u64) -> String {
    format!("{name}: it says entry {found}, and had entry {expected}")
}

/// Problem of the follower in words, without the place: the message that it becomes part of has it.
pub(crate) fn problem_of(error: &StoreError) -> String {
    if let StoreError::Failed { message, .. } | StoreError::Unknown { message, .. } = error {
        return message.clone();
    }
    error.to_string()
}
