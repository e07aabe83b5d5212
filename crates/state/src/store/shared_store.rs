//! Store of a log that several servers share, as the writer has it. A service holds the log: [`SharedLog`] is the way to it.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    AppendRules, Durability, EntryAuthor, EntryValue, LogEntry, LogHead, LogNews, LogRead, Store, StoreError,
    StoreRuntime, StoreWrite, StoredContent, StoredState, report_checked,
};

/// Bytes of entries after a snapshot that make the next one due.
const SNAPSHOT_BYTES: usize = 16 << 20;

/// Attempt to append an entry.
#[derive(Debug)]
pub struct EntryAttempt {
    /// Head that the entry is appended onto.
    pub before: LogHead,
    /// Head after the entry.
    pub after: LogHead,
    /// Server that appends it, and the number of its attempt.
    pub author: EntryAuthor,
    /// The entry as the log has it.
    pub bytes: Vec<u8>,
}

impl EntryAttempt {
    /// Most parts of an entry.
    pub const MAX_PARTS: usize = 64;

    /// Value of the entry's place, and the parts that hold the entry if it is longer than a place.
    ///
    /// # Errors
    /// The entry is longer than [`Self::MAX_PARTS`] parts.
    pub fn split(&self, place_bytes: usize, part_bytes: usize) -> Result<(EntryValue, Vec<&[u8]>), String> {
        let (author, length) = (self.author, self.bytes.len());
        if length <= place_bytes {
            let bytes = self.bytes.clone();
            return Ok((
                EntryValue {
                    author,
                    parts: 0,
                    bytes,
                },
                Vec::new(),
            ));
        }
        let most = part_bytes * Self::MAX_PARTS;
        if length > most {
            return Err(format!("the change has {length} bytes, and at most {most} go at once"));
        }
        let parts: Vec<&[u8]> = self.bytes.chunks(part_bytes).collect();
        let value = EntryValue {
            author,
            parts: parts.len() as u64,
            bytes: Vec::new(),
        };
        Ok((value, parts))
    }
}

/// Outcome of an attempt to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The entry is in the log.
    Appended,
    /// Others have appended first, or may have.
    Stale,
}

/// Entries that follow a head, as far as one reply has them.
#[derive(Debug)]
pub enum LogPage {
    /// Entries, and true if there are no more.
    Entries(Vec<LogEntry>, bool),
    /// The next entry is gone: a snapshot covers it.
    Gone,
}

/// Place of a shared log, as errors of the log name it.
pub trait LogPlace {
    /// Setting that gives the log another name.
    const NAME_SETTING: &'static str;

    /// Place in words: `the log NAME in SERVICE`.
    fn place(&self) -> String;

    /// Error of the service.
    fn failed(&self, message: &str) -> StoreError {
        let (place, message) = (self.place(), message.to_owned());
        StoreError::Failed { place, message }
    }

    /// Error of a write that may have been carried out.
    fn unknown(&self, message: &str) -> StoreError {
        let (place, message) = (self.place(), message.to_owned());
        StoreError::Unknown { place, message }
    }

    /// Error of a write that comes too late.
    fn stale(&self) -> StoreError {
        StoreError::Stale { place: self.place() }
    }

    /// Error of a log that is not what was written.
    fn damaged(&self, what: &str) -> StoreError {
        self.failed(&format!(
            "the log is damaged: {what}. Run `pumice store check --repair`, or import an export under another `{}`",
            Self::NAME_SETTING
        ))
    }

    /// Error of a log that differs from the log that this process has read.
    fn replaced(&self) -> StoreError {
        self.failed(
            "it is not the store that was there: another log, or an older copy, is in its place. Put the right one back, or start \
             the server again to serve this one",
        )
    }
}

/// Log of several servers in a service. Copies share what they know of it.
pub trait SharedLog: LogPlace + Clone + Debug + Send + Sync + 'static {
    /// Where the log is, and how to get there.
    type Options;
    /// Durability of what is appended.
    const DURABILITY: Durability;
    /// Name of the thread on which its requests progress.
    const THREAD: &'static str;

    /// Prepares the log for the server of this number. Nothing is sent yet.
    ///
    /// # Errors
    /// The options cannot be used.
    fn new(options: Self::Options, server: u64) -> Result<Self, StoreError>;

    /// Rules of safety.
    fn rules(&self) -> AppendRules;

    /// Number of entries between two snapshots.
    fn snapshot_every(&self) -> u64;

    /// Forgets what is known of the log: whatever log is there is the one.
    fn forget(&self) {}

    /// Waits for the service, as long as a start does.
    fn await_service(&self) -> impl Future<Output = ()> + Send;

    /// The whole content: the newest snapshot, and the entries after it.
    ///
    /// # Errors
    /// The log cannot be read, or is damaged.
    fn load(&self) -> impl Future<Output = Result<StoredContent, StoreError>> + Send;

    /// Newest head; `known`: the head that this process has read.
    ///
    /// # Errors
    /// The log cannot be read.
    fn head(&self, known: LogHead) -> impl Future<Output = Result<LogHead, StoreError>> + Send;

    /// True if the entry of this number can be appended without [`Self::make_ready`].
    fn is_ready(&self, _sequence: u64) -> bool {
        true
    }

    /// Makes the place of the entry after a content.
    ///
    /// # Errors
    /// The service failed.
    fn make_ready(&self, _content: StoredContent) -> impl Future<Output = Result<(), StoreError>> + Send {
        async { Ok(()) }
    }

    /// Appends an entry, and finds out what became of it if a reply is lost.
    ///
    /// # Errors
    /// The service failed, or the outcome is unknown.
    fn append(&self, attempt: EntryAttempt) -> impl Future<Output = Result<AppendOutcome, StoreError>> + Send;

    /// The next entries after a head.
    ///
    /// # Errors
    /// The log cannot be read, or does not lead on from this head.
    fn entries_after(&self, head: LogHead) -> impl Future<Output = Result<LogPage, StoreError>> + Send;

    /// Makes a snapshot of a content, and removes what no server needs any more.
    ///
    /// # Errors
    /// The service failed.
    fn write_snapshot(&self, content: StoredContent) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Puts a snapshot of a content in the place of damaged entries, if the log proves that no entry follows the content.
    ///
    /// # Errors
    /// The service failed, or the log does not prove it.
    fn mend(&self, content: StoredContent) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Repairs the log of stopped servers: see [`Store::repair`].
    ///
    /// # Errors
    /// The errors of [`Store::repair`].
    fn repair(&self, accept_loss: bool) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Notes the last entry that the writer has applied.
    fn note_applied(&self, _sequence: u64) {}

    /// Begins to follow the log, before [`Self::follow`] does.
    ///
    /// # Errors
    /// The service failed. The log is followed once it is there.
    fn register(&self, news: &Arc<LogNews>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Follows the log until the store is dropped.
    fn follow(&self) -> impl Future<Output = ()> + Send;

    /// Tells the others that this server ends.
    fn leave(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Store of a shared log. Its calls wait on the thread that makes them; a runtime of its own makes them progress.
#[derive(Debug)]
pub struct SharedStore<L: SharedLog> {
    log: L,
    /// Content that the log adds up to, as far as this process has read it.
    content: StoredContent,
    author: EntryAuthor,
    /// News of the log, once it is followed.
    news: Option<Arc<LogNews>>,
    /// Bytes that this server has appended since it made a snapshot.
    appended_bytes: usize,
    is_snapshot_under_way: Arc<AtomicBool>,
    runtime: StoreRuntime,
}

impl<L: SharedLog> Drop for SharedStore<L> {
    fn drop(&mut self) {
        if self.news.take().is_some_and(|news| news.problem().is_none()) {
            // The others need not wait until they miss this server.
            drop(self.run(|log| async move { log.leave().await }));
        }
    }
}

impl<L: SharedLog> SharedStore<L> {
    /// Prepares the store. Nothing is sent yet.
    ///
    /// # Errors
    /// The options cannot be used, or a thread cannot be started.
    pub fn new(options: L::Options) -> Result<Self, StoreError> {
        let runtime = StoreRuntime::start(L::THREAD).map_err(|error| StoreError::Failed {
            place: L::THREAD.to_owned(),
            message: error.to_string(),
        })?;
        Self::on(options, runtime)
    }

    /// Store whose requests run on this runtime.
    ///
    /// # Errors
    /// The options cannot be used.
    #[doc(hidden)]
    pub fn on(options: L::Options, runtime: StoreRuntime) -> Result<Self, StoreError> {
        let server = RandomState::new().hash_one(std::process::id());
        let entered = runtime.enter();
        let log = L::new(options, server)?;
        drop(entered);
        Ok(Self {
            log,
            content: StoredContent::default(),
            author: EntryAuthor { server, attempt: 0 },
            news: None,
            appended_bytes: 0,
            is_snapshot_under_way: Arc::default(),
            runtime,
        })
    }

    /// Waits on this thread for work on the store's runtime.
    fn run<T: Send + 'static, F>(&self, work: impl FnOnce(L) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let result = self.runtime.wait(work(self.log.clone()));
        result.unwrap_or_else(|| Err(self.log.failed("the store is closed")))
    }

    /// Fails at once if there is a problem, without a delay for the writer.
    fn check(&self, problem: impl FnOnce(&LogNews) -> Option<String>) -> Result<(), StoreError> {
        let problem = self.news.as_deref().and_then(problem);
        problem.map_or(Ok(()), |problem| Err(self.log.failed(&problem)))
    }

    /// Reads the whole content again.
    fn reload(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        let content = self.run(|log| async move { log.load().await })?;
        if content.head().sequence < self.content.head().sequence {
            return Err(self.log.replaced());
        }
        self.content = content;
        self.note_applied();
        Ok((self.content.to_state(), self.content.head()))
    }

    /// Passes on the progress of this server.
    fn note_applied(&self) {
        let sequence = self.content.head().sequence;
        self.log.note_applied(sequence);
        if let Some(news) = &self.news {
            news.note_applied(sequence);
        }
    }

    fn send_entry(&mut self, before: LogHead, writes: &[StoreWrite]) -> Result<AppendOutcome, StoreError> {
        self.author.attempt += 1;
        let after = self.content.head();
        let entry = LogEntry {
            before,
            after,
            writes: writes.to_vec(),
        };
        let attempt = EntryAttempt {
            before,
            after,
            author: self.author,
            bytes: entry.encode(),
        };
        self.appended_bytes = self.appended_bytes.saturating_add(attempt.bytes.len());
        self.run(|log| async move { log.append(attempt).await })
    }

    /// Makes a snapshot beside the writer, if it is time for one.
    fn make_snapshot_if_due(&mut self) {
        let (sequence, every) = (self.content.head().sequence, self.log.snapshot_every().max(1));
        if !sequence.is_multiple_of(every) && self.appended_bytes < SNAPSHOT_BYTES {
            return;
        }
        self.appended_bytes = 0;
        if self.is_snapshot_under_way.swap(true, Ordering::SeqCst) {
            return;
        }
        let (log, content) = (self.log.clone(), self.content.clone());
        let is_under_way = Arc::clone(&self.is_snapshot_under_way);
        self.runtime.spawn(async move {
            if let Err(error) = log.write_snapshot(content).await {
                // The next one makes up for it.
                tracing::warn!(%error, "a snapshot of the log was not made");
            }
            is_under_way.store(false, Ordering::SeqCst);
        });
    }

    /// Puts a snapshot of the content in the place of damaged entries, if there are any.
    fn mend(&self) -> Result<(), StoreError> {
        let work = || {
            let content = self.content.clone();
            self.run(|log| async move { log.mend(content).await })
        };
        self.news.as_deref().map_or(Ok(()), |news| news.mend(work))
    }

    fn read_on(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        if self.content.head() == *known
            && let Some(entries) = self.read_entries()?
        {
            self.note_applied();
            return Ok(LogRead::Entries(entries, self.content.head()));
        }
        let (state, head) = self.reload()?;
        Ok(LogRead::Content(Box::new(state), head))
    }

    /// Reads and applies the entries after the content. Returns their writes; `None`: the next entry is gone.
    fn read_entries(&mut self) -> Result<Option<Vec<Vec<StoreWrite>>>, StoreError> {
        let mut entries = Vec::new();
        loop {
            let from = self.content.head();
            let (page, is_last) = match self.run(|log| async move { log.entries_after(from).await }) {
                Ok(LogPage::Entries(page, is_last)) => (page, is_last),
                Ok(LogPage::Gone) => return Ok(None),
                // The entries that were read are applied already.
                Err(_) if !entries.is_empty() => return Ok(Some(entries)),
                Err(error) => return Err(error),
            };
            for entry in page {
                let applied = self.content.apply_checked(&entry, &self.log.rules());
                applied.map_err(|what| self.log.damaged(&what))?;
                entries.push(entry.writes);
            }
            if is_last {
                return Ok(Some(entries));
            }
        }
    }
}

impl<L: SharedLog> Store for SharedStore<L> {
    fn durability(&self) -> Durability {
        L::DURABILITY
    }

    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        self.log.forget();
        self.content = StoredContent::default();
        self.run(|log| async move {
            log.await_service().await;
            Ok(())
        })?;
        let (state, head) = self.reload()?;
        report_checked(&self.log.place(), &state, &head);
        Ok((state, head))
    }

    fn head(&mut self) -> Result<LogHead, StoreError> {
        self.check(LogNews::problem)?;
        let known = self.content.head();
        self.run(|log| async move { log.head(known).await })
    }

    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        self.check(LogNews::write_problem)?;
        if self.content.head() != *expected {
            return Err(self.log.stale());
        }
        if !self.log.is_ready(expected.sequence + 1) {
            let content = self.content.clone();
            self.run(|log| async move { log.make_ready(content).await })?;
        }
        let inverse = self.content.try_apply(writes);
        let outcome = self.send_entry(*expected, writes);
        if !matches!(outcome, Ok(AppendOutcome::Appended)) {
            self.content.undo(&inverse);
        }
        match outcome? {
            AppendOutcome::Appended => {
                self.note_applied();
                self.make_snapshot_if_due();
                Ok(self.content.head())
            }
            AppendOutcome::Stale => Err(self.log.stale()),
        }
    }

    fn read_after(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        self.check(LogNews::problem)?;
        // What keeps the log from being read may be mended, and what is read may be what keeps it from being mended.
        let before = self.mend();
        let read = self.read_on(known);
        if read.is_ok() && before.is_err() {
            self.mend()?;
        }
        read
    }

    fn follow(&mut self, news: &Arc<LogNews>) -> bool {
        news.note_applied(self.content.head().sequence);
        let registered = Arc::clone(news);
        if let Err(error) = self.run(|log| async move { log.register(&registered).await }) {
            tracing::warn!(%error, "the log cannot be followed yet");
        }
        let log = self.log.clone();
        self.runtime.spawn(async move { log.follow().await });
        self.news = Some(Arc::clone(news));
        true
    }

    fn repair(&mut self, accept_loss: bool) -> Result<Vec<String>, StoreError> {
        self.run(|log| async move { log.repair(accept_loss).await })
    }
}
