//! Store in the Kubernetes API, as the writer has it: it waits for the API server on the writer's own thread.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pumice_state::store::{
    Durability, EntryAuthor, LogEntry, LogHead, LogNews, LogRead, Store, StoreError, StoreRuntime, StoreWrite,
    StoredContent, StoredState, report_checked,
};

use crate::KubernetesStoreOptions;
use crate::append::{SlotOutcome, SlotUpdate};
use crate::follower::SlotFollower;
use crate::lease::{ServerLease, leave};
use crate::link::ApiLink;
use crate::read::{NextEntry, SlotAccess};
use crate::slots::SlotTable;

/// Bytes of entries after a snapshot that make the next one due.
const SNAPSHOT_BYTES: usize = 16 << 20;

/// Store in the Kubernetes API. Its calls wait on the thread that makes them; a runtime of its own makes them progress.
#[derive(Debug)]
pub struct KubernetesStore {
    access: SlotAccess,
    options: KubernetesStoreOptions,
    /// Content that the log adds up to, as far as this process has read it.
    content: StoredContent,
    author: EntryAuthor,
    follower: Option<Arc<SlotFollower>>,
    /// Bytes that this server has appended since it made a snapshot.
    appended_bytes: usize,
    is_snapshot_under_way: Arc<AtomicBool>,
    /// Runtime of the requests.
    runtime: StoreRuntime,
}

impl Drop for KubernetesStore {
    fn drop(&mut self) {
        if self
            .follower
            .take()
            .is_some_and(|follower| follower.problem().is_none())
        {
            // The others need not wait for the Lease to end.
            let (link, server) = (Arc::clone(&self.access.link), self.author.server);
            drop(self.run(async move { leave(&link, server).await.map_err(|error| link.error(&error)) }));
        }
    }
}

impl KubernetesStore {
    /// Prepares the store. Nothing is sent yet.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(options: KubernetesStoreOptions) -> Result<Self, StoreError> {
        let started = StoreRuntime::start("pumice-kube");
        let runtime = started.map_err(|error| ApiLink::new(&options).failed(&error.to_string()))?;
        Ok(Self::on(options, runtime))
    }

    /// Store whose requests run on this runtime.
    #[doc(hidden)]
    pub fn on(options: KubernetesStoreOptions, runtime: StoreRuntime) -> Self {
        let link = ApiLink::new(&options);
        let server = RandomState::new().hash_one(std::process::id());
        Self {
            access: SlotAccess {
                link,
                slots: Arc::new(SlotTable::default()),
                rules: options.rules,
            },
            options,
            content: StoredContent::default(),
            author: EntryAuthor { server, attempt: 0 },
            follower: None,
            appended_bytes: 0,
            is_snapshot_under_way: Arc::default(),
            runtime,
        }
    }

    /// Waits on this thread for work on the store's runtime.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let result = self.runtime.wait(work);
        result.unwrap_or_else(|| Err(self.access.link.failed("the store is closed")))
    }

    /// Fails at once while the API server is unreachable, without a delay for the writer.
    fn check_reachable(&self) -> Result<(), StoreError> {
        let problem = self.follower.as_ref().and_then(|follower| follower.problem());
        problem.map_or(Ok(()), |problem| Err(self.access.link.failed(&problem)))
    }

    /// Fails at once while nothing can be written, whether the log can be read or not.
    fn check_writable(&self) -> Result<(), StoreError> {
        let problem = self.follower.as_ref().and_then(|follower| follower.write_problem());
        problem.map_or(Ok(()), |problem| Err(self.access.link.failed(&problem)))
    }

    /// Reads the whole content again.
    fn reload(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        let access = self.access.clone();
        let content = self.run(async move { access.load().await })?;
        let known = self.content.head();
        if content.head().sequence < known.sequence {
            return Err(self.access.link.replaced());
        }
        self.content = content;
        self.note_applied();
        Ok((self.content.to_state(), self.content.head()))
    }

    /// Passes the progress of this server to the follower.
    fn note_applied(&self) {
        let sequence = self.content.head().sequence;
        self.access.slots.drop_applied(sequence);
        if let Some(follower) = &self.follower {
            follower.note_applied(sequence);
        }
    }

    /// Makes the log with the first entry, and the snapshot that the next entry needs: the entry before it in the slot goes.
    fn prepare(&self) -> Result<(), StoreError> {
        let (access, slots) = (self.access.clone(), self.options.slots);
        if access.slots.slots() == 0 {
            return self.run(async move { access.ensure_made(slots).await });
        }
        let next = self.content.head().sequence + 1;
        if access.lap_before(next) <= access.slots.snapshot() {
            return Ok(());
        }
        let content = self.content.clone();
        self.run(async move { access.cover_slot_of(next, content).await })
    }

    fn send_entry(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<SlotOutcome, StoreError> {
        self.author.attempt += 1;
        let after = self.content.head();
        let entry = LogEntry {
            before: *expected,
            after,
            writes: writes.to_vec(),
        };
        let attempt = SlotUpdate {
            after,
            author: self.author,
            bytes: entry.encode(),
        };
        self.appended_bytes = self.appended_bytes.saturating_add(attempt.bytes.len());
        let access = self.access.clone();
        self.run(async move { access.append(attempt).await })
    }

    /// Makes a snapshot beside the writer, if it is time for one.
    fn make_snapshot_if_due(&mut self) {
        let sequence = self.content.head().sequence;
        let every = self
            .options
            .snapshot_every
            .clamp(1, (self.access.slots.slots() / 2).max(1));
        if !sequence.is_multiple_of(every) && self.appended_bytes < SNAPSHOT_BYTES {
            return;
        }
        self.appended_bytes = 0;
        if self.is_snapshot_under_way.swap(true, Ordering::SeqCst) {
            return;
        }
        let (access, content) = (self.access.clone(), self.content.clone());
        let is_under_way = Arc::clone(&self.is_snapshot_under_way);
        self.runtime.spawn(async move {
            if let Err(error) = access.write_snapshot(content).await {
                // The next one makes up for it.
                tracing::warn!(%error, "a snapshot of the log was not made");
            }
            is_under_way.store(false, Ordering::SeqCst);
        });
    }
}

impl Store for KubernetesStore {
    fn durability(&self) -> Durability {
        Durability::Kubernetes
    }

    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        // Whatever log is there now.
        self.access.slots.clear();
        self.content = StoredContent::default();
        let access = self.access.clone();
        self.run(async move {
            access.await_service().await;
            Ok(())
        })?;
        let (state, head) = self.reload()?;
        report_checked(&self.access.link.place(), &state, &head);
        Ok((state, head))
    }

    fn head(&mut self) -> Result<LogHead, StoreError> {
        self.check_reachable()?;
        let (access, known) = (self.access.clone(), self.content.head());
        self.run(async move { access.head(known).await })
    }

    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        self.check_writable()?;
        if self.content.head() != *expected {
            return Err(self.access.link.stale());
        }
        self.prepare()?;
        let inverse = self.content.try_apply(writes);
        let outcome = self.send_entry(expected, writes);
        if !matches!(outcome, Ok(SlotOutcome::Appended)) {
            self.content.undo(&inverse);
        }
        match outcome? {
            SlotOutcome::Appended => {
                self.note_applied();
                self.make_snapshot_if_due();
                Ok(self.content.head())
            }
            SlotOutcome::Stale => Err(self.access.link.stale()),
        }
    }

    fn read_after(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        self.check_reachable()?;
        let read = self.read_on(known)?;
        self.mend()?;
        Ok(read)
    }

    fn repair(&mut self, accept_loss: bool) -> Result<Vec<String>, StoreError> {
        let access = self.access.clone();
        self.run(async move { access.repair(accept_loss).await })
    }

    fn follow(&mut self, news: &Arc<LogNews>) -> bool {
        let follower = SlotFollower::new(&self.options, self.author.server, Arc::clone(news));
        follower.note_applied(self.content.head().sequence);
        let lease = ServerLease::new(&self.options, self.author.server);
        self.runtime
            .spawn(Arc::clone(&follower).follow(self.access.clone(), lease));
        self.follower = Some(follower);
        true
    }
}

impl KubernetesStore {
    /// Covers damaged slots with a snapshot of the content, if there are any.
    fn mend(&self) -> Result<(), StoreError> {
        let Some(follower) = self.follower.clone().filter(|follower| follower.is_damaged()) else {
            return Ok(());
        };
        let (access, content) = (self.access.clone(), self.content.clone());
        self.run(async move { access.mend(content, false).await })?;
        follower.note_mended();
        Ok(())
    }

    fn read_on(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        if self.content.head() != *known {
            let (state, head) = self.reload()?;
            return Ok(LogRead::Content(Box::new(state), head));
        }
        let mut entries = Vec::new();
        loop {
            let (access, from) = (self.access.clone(), self.content.head());
            let next = match self.run(async move { access.entry_after(from).await }) {
                Ok(next) => next,
                // The entries that were read are applied already.
                Err(_) if !entries.is_empty() => break,
                Err(error) => return Err(error),
            };
            match next {
                NextEntry::Entry(entry) => {
                    let access = self.access.clone();
                    access.apply_checked(&mut self.content, &entry)?;
                    entries.push(entry.writes);
                }
                NextEntry::None => break,
                NextEntry::Gone => {
                    let (state, head) = self.reload()?;
                    return Ok(LogRead::Content(Box::new(state), head));
                }
            }
        }
        self.note_applied();
        Ok(LogRead::Entries(entries, self.content.head()))
    }
}
