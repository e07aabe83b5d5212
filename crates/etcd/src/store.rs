//! Store in etcd, as the writer has it: it waits for etcd on the writer's own thread.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use pumice_state::store::{
    Durability, EntryAuthor, LogEntry, LogHead, LogNews, LogRead, Store, StoreError, StoreRuntime, StoreWrite,
    StoredContent, StoredState, report_checked,
};

use crate::access::{AppendOutcome, EntryAttempt, LogAccess, LogPage};
use crate::follower::Follower;
use crate::keys::LogKeys;
use crate::link::{EtcdError, EtcdLink};
use crate::{EtcdOptions, trim};

/// Store in etcd. Its calls wait on the thread that makes them; a runtime of its own makes them progress.
#[derive(Debug)]
pub struct EtcdStore {
    access: LogAccess,
    options: EtcdOptions,
    /// Content that the log adds up to, as far as this process has read it.
    content: StoredContent,
    author: EntryAuthor,
    follower: Option<Arc<Follower>>,
    /// Runtime of the calls.
    runtime: StoreRuntime,
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        if let Some(follower) = self.follower.take() {
            // The others need not wait for the lease to end.
            let access = self.access.clone();
            drop(self.run(async move { follower.leave(&access).await }));
        }
    }
}

impl EtcdStore {
    /// Prepares the store. Nothing is sent yet.
    ///
    /// # Errors
    /// An address is not one, or a thread cannot be started.
    pub fn new(options: EtcdOptions) -> Result<Self, EtcdError> {
        let runtime = StoreRuntime::start("pumice-etcd").map_err(|error| EtcdError::Address(error.to_string()))?;
        Self::on(options, runtime)
    }

    /// Store whose calls run on this runtime.
    ///
    /// # Errors
    /// An address is not one.
    #[doc(hidden)]
    pub fn on(options: EtcdOptions, runtime: StoreRuntime) -> Result<Self, EtcdError> {
        let entered = runtime.enter();
        let link = EtcdLink::new(&options)?;
        drop(entered);
        let server = RandomState::new().hash_one(std::process::id());
        Ok(Self {
            access: LogAccess {
                link,
                keys: LogKeys::new(&options.prefix),
                rules: options.rules,
            },
            options,
            content: StoredContent::default(),
            author: EntryAuthor { server, attempt: 0 },
            follower: None,
            runtime,
        })
    }

    /// Waits on this thread for work on the store's runtime.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let result = self.runtime.wait(work);
        result.unwrap_or_else(|| Err(self.failed("the store is closed")))
    }

    fn failed(&self, message: &str) -> StoreError {
        self.access.failed(message)
    }

    /// Fails at once while etcd is unreachable, without a delay for the writer.
    fn check_reachable(&self) -> Result<(), StoreError> {
        let problem = self.follower.as_ref().and_then(|follower| follower.problem());
        problem.map_or(Ok(()), |problem| Err(self.failed(&problem)))
    }

    /// Fails at once while nothing can be written, whether the log can be read or not.
    fn check_writable(&self) -> Result<(), StoreError> {
        let problem = self.follower.as_ref().and_then(|follower| follower.write_problem());
        problem.map_or(Ok(()), |problem| Err(self.failed(&problem)))
    }

    /// Reads the whole content again.
    fn reload(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        let access = self.access.clone();
        self.content = self.run(async move { access.load().await })?;
        self.note_applied();
        Ok((self.content.to_state(), self.content.head()))
    }

    /// Passes the progress of this server to the follower.
    fn note_applied(&self) {
        if let Some(follower) = &self.follower {
            follower.note_applied(self.content.head().sequence);
        }
    }

    fn send_entry(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<AppendOutcome, StoreError> {
        self.author.attempt += 1;
        let after = self.content.head();
        let entry = LogEntry {
            before: *expected,
            after,
            writes: writes.to_vec(),
        };
        let attempt = EntryAttempt {
            before: *expected,
            after,
            author: self.author,
            bytes: entry.encode(),
        };
        let registration = match &self.follower {
            None => None,
            Some(follower) => match follower.registration() {
                Some(registration) => Some(registration),
                None => return Ok(AppendOutcome::Fenced),
            },
        };
        if let Some(follower) = &self.follower {
            follower.note_sent(after);
        }
        let access = self.access.clone();
        self.run(async move { access.append(attempt, registration).await })
    }

    /// Makes a snapshot beside the writer, if it is time for one.
    fn make_snapshot_if_due(&self) {
        let head = self.content.head();
        if !head.sequence.is_multiple_of(self.options.snapshot_every.max(1)) {
            return;
        }
        let every = self.options.snapshot_every;
        self.runtime
            .spawn(trim::make_snapshot(self.access.clone(), self.content.clone(), every));
    }
}

impl Store for EtcdStore {
    fn durability(&self) -> Durability {
        Durability::Etcd
    }

    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError> {
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
        let access = self.access.clone();
        self.run(async move { access.head().await })
    }

    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        self.check_writable()?;
        if self.content.head() != *expected {
            return Err(self.access.stale());
        }
        let inverse = self.content.try_apply(writes);
        let outcome = self.send_entry(expected, writes);
        if !matches!(outcome, Ok(AppendOutcome::Appended)) {
            self.content.undo(&inverse);
        }
        match outcome? {
            AppendOutcome::Appended => {
                self.note_applied();
                self.make_snapshot_if_due();
                Ok(self.content.head())
            }
            AppendOutcome::Stale => Err(self.access.stale()),
            AppendOutcome::Fenced => {
                let Some(follower) = self.follower.clone() else {
                    return Err(self.access.stale());
                };
                tracing::warn!(
                    "the lease of this server in etcd has ended: it reads the log on before it appends again"
                );
                let access = self.access.clone();
                self.run(async move {
                    let registered = follower.register(&access).await;
                    registered.map_err(|error| access.error(&error))
                })?;
                Err(self.access.stale())
            }
        }
    }

    fn read_after(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        self.check_reachable()?;
        // A head that cannot be read keeps the log from being read, and entries after this one from being mended.
        let before = self.mend();
        let read = self.read_on(known);
        if read.is_ok() && before.is_err() {
            self.mend()?;
        }
        read
    }

    fn repair(&mut self, accept_loss: bool) -> Result<Vec<String>, StoreError> {
        let access = self.access.clone();
        let loaded = self.run({
            let access = access.clone();
            async move { access.load().await }
        });
        let Err(problem) = loaded else {
            return Ok(Vec::new());
        };
        let (content, lost) = self.run({
            let access = access.clone();
            async move { access.load_readable().await }
        })?;
        let head = content.head();
        if let Some(lost) = lost.filter(|_| !accept_loss) {
            return Err(self.failed(&format!(
                "{lost}: entries that were acknowledged may be lost after {head}. A server that runs has them: let it write once more. \
                 Otherwise --accept-loss goes on without them"
            )));
        }
        self.run(async move { access.mend(content, true).await })?;
        Ok(vec![
            format!("found: {problem}"),
            format!("a snapshot of {head} has taken the place of the entries"),
        ])
    }

    fn follow(&mut self, news: &Arc<LogNews>) -> bool {
        self.start_following(news);
        true
    }
}

impl EtcdStore {
    /// Puts a snapshot of the content in the place of damaged entries, if there are any.
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
            let page = self.run(async move { access.page_after(from).await });
            let page = match page {
                Ok(page) => page,
                // The entries that were read are applied already.
                Err(_) if !entries.is_empty() => break,
                Err(error) => return Err(error),
            };
            let LogPage::Entries(page, is_last) = page else {
                let (state, head) = self.reload()?;
                return Ok(LogRead::Content(Box::new(state), head));
            };
            for entry in page {
                let applied = self.content.apply_checked(&entry, &self.access.rules);
                applied.map_err(|what| self.access.damaged(&what))?;
                entries.push(entry.writes);
            }
            if is_last {
                break;
            }
        }
        self.note_applied();
        Ok(LogRead::Entries(entries, self.content.head()))
    }

    fn start_following(&mut self, news: &Arc<LogNews>) {
        let follower = Follower::new(&self.options, self.author.server, Arc::clone(news));
        follower.note_applied(self.content.head().sequence);
        let (access, own) = (self.access.clone(), Arc::clone(&follower));
        // The follower goes on if etcd cannot be reached now.
        let first = self.run(async move {
            let registered = own.register(&access).await;
            registered.map_err(|error| access.error(&error))
        });
        if let Err(error) = first {
            tracing::warn!(%error, "etcd cannot be followed yet");
        }
        self.runtime.spawn(Arc::clone(&follower).follow(self.access.clone()));
        self.follower = Some(follower);
    }
}
