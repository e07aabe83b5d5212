//! The log in etcd: entries are appended, found out about, and read.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::EtcdOptions;
use crate::api::response_op::Response as Done;
use crate::api::{KeyValue, TxnRequest};
use crate::follower::Follower;
use crate::keys::{KeyRange, LogKeys, SnapshotRecord};
use crate::link::{EtcdError, EtcdLink, has_value, is_absent, put, read, read_range, was_made_at};
use pumice_state::store::{
    AppendOutcome, EntryAttempt, EntryValue, LogEntry, LogHead, LogPage, LogPlace as _, StoreError, StoredContent,
};

/// Most entries that are read at once.
const PAGE_ENTRIES: u64 = 64;
/// Most bytes that are written under one key: etcd takes 1.5 MiB at once, unless it is set otherwise.
pub(crate) const PART_BYTES: usize = 1 << 20;
/// Number of times that the timeout of a call passes before the outcome of an entry is given up as unknown.
const RESOLVE_TIMEOUTS: u32 = 3;
/// Pause between two attempts to learn the outcome of an entry.
const RESOLVE_PAUSE: Duration = Duration::from_millis(20);
/// Number of times that a content is read again because etcd compacted it meanwhile.
const MAX_LOADS: usize = 3;

/// Place of this server in etcd, as long as its lease runs.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// Key of this server.
    pub(crate) key: Vec<u8>,
    /// Revision at which the key was made: another one is another registration.
    pub(crate) revision: i64,
    pub(crate) lease: i64,
}

/// The log in etcd, and what this server knows of it. Copies share that.
#[derive(Clone, Debug)]
pub struct EtcdLog {
    pub(crate) link: Arc<EtcdLink>,
    pub(crate) keys: LogKeys,
    pub(crate) options: Arc<EtcdOptions>,
    /// Number that this server drew at its start.
    pub(crate) server: u64,
    /// Follower, once the log is followed.
    pub(crate) follower: Arc<OnceLock<Follower>>,
}

impl EtcdLog {
    pub(crate) fn error(&self, error: &EtcdError) -> StoreError {
        self.failed(&error.to_string())
    }

    /// Key as text, for messages.
    pub(crate) fn shown(key: &[u8]) -> String {
        String::from_utf8_lossy(key).into_owned()
    }

    /// Head of a value. No value: the log is empty.
    pub(crate) fn decode_head(&self, value: Option<&[u8]>) -> Result<LogHead, String> {
        let head = value.map(LogHead::decode).transpose();
        let key = Self::shown(&self.keys.head());
        Ok(head
            .map_err(|what| format!("its key {key}: {what}"))?
            .unwrap_or_default())
    }

    fn read_head(&self, value: Option<&[u8]>) -> Result<LogHead, StoreError> {
        self.decode_head(value).map_err(|what| self.damaged(&what))
    }

    /// Newest head, as its key has it.
    pub(crate) async fn newest_head(&self) -> Result<LogHead, StoreError> {
        let range = (self.keys.head(), Vec::new());
        let reply = self.link.range(range, 1, 0).await.map_err(|error| self.error(&error))?;
        self.read_head(reply.kvs.first().map(|found| &*found.value))
    }

    /// Appends an entry, and finds out what became of it if a reply is lost. `None`: the lease of this server has ended.
    pub(crate) async fn append_as(
        &self,
        registration: Option<Registration>,
        attempt: &EntryAttempt,
    ) -> Result<Option<AppendOutcome>, StoreError> {
        let sequence = attempt.after.sequence;
        let value = self.write_parts(attempt).await?;
        let (head, entry) = (self.keys.head(), self.keys.entry(sequence));
        let mut compare = vec![match attempt.before.sequence {
            0 => is_absent(head.clone()),
            _ => has_value(head.clone(), attempt.before.encode()),
        }];
        let mut failure = vec![read(entry.clone())];
        if let Some(Registration { key, revision, .. }) = &registration {
            compare.push(was_made_at(key.clone(), *revision));
            failure.push(read(key.clone()));
        }
        if !self.options.rules.compares() {
            compare.clear();
        }
        let transaction = TxnRequest {
            compare,
            success: vec![
                put(head, attempt.after.encode(), 0),
                put(entry.clone(), value.clone(), 0),
            ],
            failure,
        };
        let until = Instant::now() + self.link.timeout() * RESOLVE_TIMEOUTS;
        let mut is_unknown = false;
        loop {
            let reply = match self.link.transact(transaction.clone()).await {
                Ok(reply) => reply,
                Err(error) if error.is_unknown() && !self.options.rules.waits() => {
                    return Ok(Some(AppendOutcome::Appended));
                }
                // The transaction is sent again: it changes nothing if it was carried out before.
                Err(error) if error.is_unknown() && Instant::now() < until => {
                    is_unknown = true;
                    tokio::time::sleep(RESOLVE_PAUSE).await;
                    continue;
                }
                Err(error) if is_unknown || error.is_unknown() => {
                    return self.find_appended(&entry, &value, &error).await.map(Some);
                }
                Err(error) => return Err(self.error(&error)),
            };
            if reply.succeeded {
                return Ok(Some(AppendOutcome::Appended));
            }
            let mut found = reply.responses.iter().map(|done| match &done.response {
                Some(Done::Range(range)) => range.kvs.first(),
                _ => None,
            });
            if found.next().flatten().is_some_and(|found| found.value == value) {
                return Ok(Some(AppendOutcome::Appended));
            }
            let own = found.next().flatten();
            let is_fenced = registration
                .is_some_and(|Registration { revision, .. }| own.is_none_or(|own| own.create_revision != revision));
            return Ok((!is_fenced).then_some(AppendOutcome::Stale));
        }
    }

    /// Reads whether an entry is there whose outcome is unknown. It may still come if it is not.
    async fn find_appended(&self, key: &[u8], value: &[u8], error: &EtcdError) -> Result<AppendOutcome, StoreError> {
        let found = self.link.range((key.to_vec(), Vec::new()), 1, 0).await;
        if found.is_ok_and(|found| found.kvs.first().is_some_and(|found| found.value == value)) {
            return Ok(AppendOutcome::Appended);
        }
        Err(self.unknown(&error.to_string()))
    }

    /// Value of an entry's key. The parts of a long entry are written first.
    async fn write_parts(&self, attempt: &EntryAttempt) -> Result<Vec<u8>, StoreError> {
        let (value, parts) = attempt
            .split(PART_BYTES, PART_BYTES)
            .map_err(|what| self.failed(&what))?;
        for (number, part) in (0..).zip(parts) {
            let key = self.keys.entry_part(attempt.after.sequence, &attempt.author, number);
            self.write_one(key, part.to_vec()).await?;
        }
        Ok(value.encode())
    }

    /// Writes one key that only this server writes.
    pub(crate) async fn write_one(&self, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        let transaction = TxnRequest {
            success: vec![put(key, value, 0)],
            ..TxnRequest::default()
        };
        let written = self.link.transact(transaction).await;
        written.map(drop).map_err(|error| self.error(&error))
    }

    /// Entry of a value, with its parts as they were at a revision; or what is wrong with it.
    async fn read_entry(
        &self,
        sequence: u64,
        value: &[u8],
        revision: i64,
    ) -> Result<Result<LogEntry, String>, EtcdError> {
        let key = Self::shown(&self.keys.entry(sequence));
        let damaged = |what: &str| Ok(Err(format!("entry {sequence} (key {key}): {what}")));
        let Some(EntryValue {
            author,
            parts,
            mut bytes,
        }) = EntryValue::decode(value)
        else {
            return damaged("it is cut short");
        };
        for part in 0..parts.min(EntryAttempt::MAX_PARTS as u64) {
            let range = (self.keys.entry_part(sequence, &author, part), Vec::new());
            let reply = self.link.range(range, 1, revision).await?;
            match reply.kvs.into_iter().next() {
                Some(found) => bytes.extend(found.value),
                None => return damaged("a part is missing"),
            }
        }
        match LogEntry::decode(&bytes) {
            Ok(entry) => Ok(Ok(entry)),
            Err(what) => damaged(&what),
        }
    }

    /// The keys of one page of entries that begins with this number.
    fn page_of(&self, next: u64) -> KeyRange {
        self.keys.entries(next, Some(next.saturating_add(PAGE_ENTRIES)))
    }

    /// Entries of a page, by the numbers in their keys, up to the first that is missing or cannot be read, and what is wrong with that one.
    /// Keys that are not those of entries are not of this log.
    async fn read_page(
        &self,
        mut next: u64,
        found: &[KeyValue],
        revision: i64,
    ) -> Result<(Vec<LogEntry>, Option<String>), EtcdError> {
        let mut entries = Vec::new();
        for found in found {
            match self.keys.entry_number(&found.key) {
                None => {}
                Some(number) if number == next => {
                    match self.read_entry(next, &found.value, revision).await? {
                        Ok(entry) => entries.push(entry),
                        Err(what) => return Ok((entries, Some(what))),
                    }
                    next += 1;
                }
                Some(_) => break,
            }
        }
        let key = Self::shown(&self.keys.entry(next));
        let is_whole = entries.len() as u64 == PAGE_ENTRIES;
        let missing = format!("entry {next} is missing: there is no key {key}");
        Ok((entries, (!is_whole).then_some(missing)))
    }

    /// The next entries after a head.
    pub(crate) async fn page_after(&self, from: LogHead) -> Result<LogPage, StoreError> {
        let next = from.sequence + 1;
        let transaction = TxnRequest {
            success: vec![read(self.keys.head()), read_range(self.page_of(next), 0)],
            ..TxnRequest::default()
        };
        let reply = self
            .link
            .transact(transaction)
            .await
            .map_err(|error| self.error(&error))?;
        let mut replies = reply.responses.into_iter().filter_map(|done| match done.response {
            Some(Done::Range(range)) => Some(range),
            _ => None,
        });
        let (head, found) = (replies.next().unwrap_or_default(), replies.next().unwrap_or_default());
        let head = head.kvs.first().map(|found| &*found.value);
        if head.is_none() && from.sequence > 0 && self.options.rules.compares() {
            let key = Self::shown(&self.keys.head());
            return Err(self.damaged(&format!("its key {key} is missing")));
        }
        let head = self.read_head(head)?;
        let is_other = head.sequence < from.sequence || (head.sequence == from.sequence && head != from);
        if is_other && self.options.rules.compares() {
            return Err(self.replaced());
        }
        let revision = reply.header.map_or(0, |header| header.revision);
        let page = self.read_page(next, &found.kvs, revision).await;
        let (entries, _) = page.map_err(|error| self.error(&error))?;
        if entries.is_empty() && head.sequence > from.sequence {
            return Ok(LogPage::Gone);
        }
        let is_last = from.sequence + entries.len() as u64 >= head.sequence;
        Ok(LogPage::Entries(entries, is_last))
    }

    /// The whole content: the newest snapshot, and the entries after it.
    pub(crate) async fn load_content(&self) -> Result<StoredContent, StoreError> {
        let mut loaded = Err(EtcdError::Compacted);
        for _ in 0..MAX_LOADS {
            loaded = match self.load_once().await {
                Err(LoadError::Etcd(EtcdError::Compacted)) => continue,
                Err(LoadError::Etcd(error)) => Err(error),
                Err(LoadError::Store(error)) => return Err(error),
                Ok(content) => return Ok(content),
            };
            break;
        }
        loaded.map_err(|error| self.error(&error))
    }

    async fn load_once(&self) -> Result<StoredContent, LoadError> {
        let first = self.link.range((self.keys.head(), Vec::new()), 1, 0).await?;
        let revision = first.header.map_or(0, |header| header.revision);
        let head = self.read_head(first.kvs.first().map(|found| &*found.value))?;
        let (content, end) = self.read_content(revision).await?;
        if content.head() == head {
            return Ok(content);
        }
        let key = Self::shown(&self.keys.head());
        let lead = format!(
            "its entries lead to {}, and its head (key {key}) is {head}",
            content.head()
        );
        let what = match end.filter(|_| head.sequence > content.head().sequence) {
            Some(end) => format!("{end}; {lead}"),
            None => lead,
        };
        Err(LoadError::Store(self.damaged(&what)))
    }

    /// Content at a revision, as far as the entries lead, and why they do not lead further.
    async fn read_content(&self, revision: i64) -> Result<(StoredContent, Option<String>), LoadError> {
        let mut content = self.load_snapshot(revision).await?;
        loop {
            let next = content.head().sequence + 1;
            let page = self.link.range(self.page_of(next), 0, revision).await?;
            let (entries, end) = self.read_page(next, &page.kvs, revision).await?;
            for entry in entries {
                let applied = content.apply_checked(&entry, &self.options.rules);
                applied.map_err(|what| self.damaged(&what))?;
            }
            if end.is_some() {
                return Ok((content, end));
            }
        }
    }

    /// Content as far as the entries lead, and what would be lost with it: the head says more.
    pub(crate) async fn load_readable(&self) -> Result<(StoredContent, Option<String>), StoreError> {
        let read = async {
            let first = self.link.range((self.keys.head(), Vec::new()), 1, 0).await?;
            let revision = first.header.map_or(0, |header| header.revision);
            let head = self.decode_head(first.kvs.first().map(|found| &*found.value));
            let (content, end) = self.read_content(revision).await?;
            let is_more = head.is_ok_and(|head| head.sequence > content.head().sequence);
            Ok::<_, LoadError>((content, end.filter(|_| is_more)))
        };
        read.await.map_err(|error| match error {
            LoadError::Etcd(error) => self.error(&error),
            LoadError::Store(error) => error,
        })
    }

    async fn load_snapshot(&self, revision: i64) -> Result<StoredContent, LoadError> {
        let found = self.link.range((self.keys.snapshot(), Vec::new()), 1, revision).await?;
        let Some(found) = found.kvs.first() else {
            return Ok(StoredContent::default());
        };
        let (SnapshotRecord { parts, .. }, head) =
            SnapshotRecord::read(&found.value).map_err(|what| self.damaged(&what))?;
        let mut bytes = Vec::new();
        for part in 0..parts {
            let range = (self.keys.snapshot_part(head.sequence, part), Vec::new());
            let reply = self.link.range(range, 1, revision).await?;
            let found = reply.kvs.into_iter().next();
            let found = found.ok_or_else(|| self.damaged(&format!("part {part} of its snapshot is missing")))?;
            bytes.extend(found.value);
        }
        let content = StoredContent::from_snapshot(&bytes, head);
        Ok(content.map_err(|what| self.damaged(&what))?)
    }
}

/// Error while a content is read.
enum LoadError {
    Etcd(EtcdError),
    Store(StoreError),
}

impl From<EtcdError> for LoadError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}

impl From<StoreError> for LoadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
