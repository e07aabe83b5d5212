//! The watch of a whole cluster: a full sync of all lists, then the changes, until everything has to be listed again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::backoff::Backoff;
use crate::condition::{ClusterCondition, ResourceCondition};
use crate::credentials::{ClusterAccess, SharedClient};
use crate::failure::{caught, reporting};
use crate::feed::{FeedError, SourceFeed};
use crate::list_reading::{read_list, read_page};
use crate::object_reader::ObjectReader;
use crate::pages;
use crate::probe::{probe, remedy};
use crate::read_again::StaleRecords;
use crate::records::{ChangeBatches, ChangedObject, RecordChanges};
use crate::requests::RequestError;
use crate::resource_watch::{ListStep, ResourceWatch, WatchMessage};
use crate::resources::{ResourceScope, scopes};
use crate::times::paced;
use pumice_engine::policy::Release;
use pumice_kubernetes::claims::ClaimedDevices;
use pumice_kubernetes::object::{AmountRules, ObjectKind};
use pumice_protocol::ClientConnection;

/// Pages of a list that are read ahead.
const PAGES_AHEAD: usize = 2;
/// Changes that wait for the feed.
const CHANGES_WAITING: usize = 1024;
/// Maximum number of changes in one batch.
const BATCH_CHANGES: usize = 512;
/// Changes that are read on the spot; more are read on a thread of their own.
const FEW_CHANGES: usize = 8;
/// Time between the change of an owner or a slice and the look at the records that it changes.
const LOOK_DELAY: Duration = paced(1_000);
/// Time between a look that failed and the next one.
const LOOK_AGAIN: Duration = paced(5_000);

/// Settings of a watch.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Name of the source.
    pub source: String,
    /// Epoch of the source. It must be higher than the epoch of any earlier process of this source.
    pub source_epoch: u64,
    /// Namespaces whose objects are watched; none: all.
    pub namespaces: Vec<Arc<str>>,
    /// Time between batches that say that nothing changed.
    pub heartbeat: Duration,
    /// Longest silence of a watch that counts as current. An API server sends a bookmark every minute.
    pub silence: Duration,
    /// Release by whose rules the amounts of pods are derived, until the server asks for another.
    pub pod_release: Release,
    /// True if the watch ends once another process feeds the source; false: it waits until the server forgets the source.
    pub ends_if_fenced: bool,
}

/// Default of [`WatchOptions::silence`]: two bookmarks did not come.
pub const SILENCE: Duration = paced(130_000);

/// Watch of a cluster, which feeds one source of a server.
#[derive(Debug)]
pub struct ClusterWatch {
    client: Arc<SharedClient>,
    options: WatchOptions,
    condition: Arc<ClusterCondition>,
    feed: SourceFeed,
    reader: ObjectReader,
    /// Scopes of which records of a list are held, by their names.
    listed: BTreeSet<String>,
    /// Resources of which the source may have records: pages of a list that broke off count, too.
    shown: BTreeSet<String>,
    /// First problems of new lists that are being read, by the names of their scopes.
    problems: BTreeMap<String, RequestError>,
    /// Slices, claims and their pods of the last reader with complete lists. They are used until the lists of the next
    /// reader are complete.
    former_devices: Arc<ClaimedDevices>,
}

/// Reason to begin again with lists.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    #[error("{0}")]
    Access(#[from] crate::credentials::CredentialError),
    #[error("{0}")]
    Feed(#[from] FeedError),
    #[error("{scope}: {error}{remedy}")]
    List {
        scope: String,
        error: RequestError,
        remedy: &'static str,
    },
    #[error("{0}")]
    ListAgain(String),
    #[error("the watch has failed, which is a fault of Pumice: {0}")]
    Failed(String),
}

impl WatchError {
    /// True for causes that also occur in a healthy cluster: the lists are then requested at once.
    fn is_usual(&self) -> bool {
        match self {
            WatchError::ListAgain(_) | WatchError::Feed(FeedError::Resync(_)) => true,
            WatchError::List { error, .. } => error.is_expired(),
            WatchError::Access(_) | WatchError::Feed(_) | WatchError::Failed(_) => false,
        }
    }
}

impl ClusterWatch {
    /// Watch that feeds a source of this server.
    pub fn new(
        access: ClusterAccess,
        options: WatchOptions,
        server: ClientConnection,
        condition: Arc<ClusterCondition>,
    ) -> Self {
        let feed = SourceFeed::new(
            server,
            (options.source.clone(), options.source_epoch),
            options.pod_release,
            Arc::clone(&condition),
        );
        ClusterWatch {
            client: Arc::new(SharedClient::new(access)),
            options,
            condition,
            feed,
            reader: ObjectReader::default(),
            listed: BTreeSet::new(),
            shown: BTreeSet::new(),
            problems: BTreeMap::new(),
            former_devices: Arc::default(),
        }
    }

    /// Watch by a client of a test.
    #[cfg(all(test, feature = "client"))]
    pub(crate) fn with_client(self, client: crate::Client) -> Self {
        Self {
            client: Arc::new(SharedClient::ready(client)),
            ..self
        }
    }

    /// Watches until another process feeds the source, if the options say so.
    ///
    /// # Errors
    /// Another process feeds the source.
    pub async fn run(mut self) -> FeedError {
        let mut backoff = Backoff::default();
        loop {
            let begin = Instant::now();
            let ended = caught(self.list_and_follow()).await;
            let error = match ended.unwrap_or_else(WatchError::Failed) {
                WatchError::Feed(error @ FeedError::Fenced(..)) => {
                    self.condition.set_problem(Some(error.to_string()));
                    if self.options.ends_if_fenced {
                        return error;
                    }
                    tracing::error!(%error, "the cluster is not watched while another process feeds its source");
                    self.wait_for_source().await;
                    continue;
                }
                error @ (WatchError::Access(_)
                | WatchError::Feed(_)
                | WatchError::List { .. }
                | WatchError::ListAgain(_)
                | WatchError::Failed(_)) => error,
            };
            if begin.elapsed() > Duration::from_mins(1) {
                backoff.reset();
            }
            if error.is_usual() {
                tracing::info!(source = self.options.source, reason = %error, "everything is listed again");
            } else {
                tracing::warn!(source = self.options.source, %error, "the cluster cannot be watched; it is tried again");
            }
            self.condition.set_problem(Some(error.to_string()));
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Waits until no other process feeds the source: the server has forgotten the source.
    async fn wait_for_source(&mut self) {
        loop {
            tokio::time::sleep(self.options.heartbeat).await;
            if !matches!(
                self.feed.send_delta(RecordChanges::default()).await,
                Err(FeedError::Fenced(..))
            ) {
                return;
            }
        }
    }

    /// Lists everything, and follows the changes until everything has to be listed again.
    async fn list_and_follow(&mut self) -> WatchError {
        match self.try_list_and_follow().await {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    async fn try_list_and_follow(&mut self) -> Result<std::convert::Infallible, WatchError> {
        // Credentials may have changed since the last time.
        self.client.renew();
        self.client.get().await?;
        let begin = Instant::now();
        self.condition.begin_full_sync();
        let starts = self.full_sync().await?;
        self.condition.end_full_sync();
        tracing::info!(
            source = self.options.source,
            seconds = begin.elapsed().as_secs_f64(),
            not_watched = self.condition.status().not_watched().join(", "),
            "the cluster is visible"
        );
        let (sender, messages) = mpsc::channel(CHANGES_WAITING);
        // Dropped with this call, and with it what it holds ends.
        let mut tasks = JoinSet::new();
        for (watch, start) in starts {
            tasks.spawn(reporting(watch.follow(start, sender.clone()), sender.clone()));
        }
        let probe = probe(
            Arc::clone(&self.client),
            Arc::clone(&self.condition),
            self.options.heartbeat,
        );
        tasks.spawn(reporting(probe, sender));
        self.follow(messages).await
    }

    /// Sends all lists as one full sync.
    async fn full_sync(&mut self) -> Result<Vec<(ResourceWatch, Option<String>)>, WatchError> {
        self.feed.begin_full_sync();
        if let Some(devices) = std::mem::take(&mut self.reader).into_devices() {
            self.former_devices = Arc::new(devices);
        }
        let rules = AmountRules::default().of_release(self.feed.pod_release());
        self.reader = ObjectReader::new(rules, Arc::clone(&self.former_devices));
        let mut changes = ChangeBatches::default();
        let (mut starts, mut shown) = (Vec::new(), BTreeSet::new());
        for scope in scopes(&self.options.namespaces) {
            let watch = ResourceWatch {
                client: Arc::clone(&self.client),
                scope,
                condition: Arc::clone(&self.condition),
                silence: self.options.silence,
            };
            let start = self.list_for_full_sync(&watch, &mut changes, &mut shown).await?;
            let kind = watch.scope.resource.kind;
            self.reader.has_owners &= !kind.owns_pods() || start.is_some();
            self.reader.has_queues &= kind != ObjectKind::Queue || start.is_some();
            starts.push((watch, start));
        }
        self.reader.end_lists(&mut changes);
        self.former_devices = Arc::default();
        let (parts, last) = changes.into_batches();
        for part in parts {
            self.feed.send_part(part, false).await?;
        }
        self.feed.send_part(last, true).await?;
        self.shown = shown;
        self.report_unreadable();
        Ok(starts)
    }

    /// Lists one resource for the full sync; `None`: it cannot be listed, and decisions can do without it. A resource whose records
    /// are held is not left out: the full sync would end them.
    async fn list_for_full_sync(
        &mut self,
        watch: &ResourceWatch,
        changes: &mut ChangeBatches,
        shown: &mut BTreeSet<String>,
    ) -> Result<Option<String>, WatchError> {
        let scope = watch.scope.to_string();
        self.condition.set(&watch.scope, ResourceCondition::Listing);
        let (is_shown, listed) = self.list(watch, changes).await?;
        if is_shown {
            shown.insert(scope.clone());
        }
        let error = match listed {
            Ok(start) => {
                self.listed.insert(scope);
                return Ok(Some(start));
            }
            Err(error) => error,
        };
        let left_out = if self.shown.contains(&scope) {
            None
        } else {
            watch.condition_without_records(&error).await
        };
        if let Some(condition) = left_out {
            tracing::warn!(resource = scope, %condition, "the resource is left out for now");
            self.condition.set(&watch.scope, condition);
            // Records that came before the error are not all: the next list puts them again with the others.
            return Ok(None);
        }
        self.condition
            .set(&watch.scope, ResourceCondition::Interrupted(error.to_string()));
        Err(WatchError::List {
            scope,
            remedy: remedy(&error),
            error,
        })
    }

    /// Lists one resource into parts of the full sync. Returns true if a page was read, and the end of the list. A page is read from the API server, one is derived and one is sent at a
    /// time.
    async fn list(
        &mut self,
        watch: &ResourceWatch,
        changes: &mut ChangeBatches,
    ) -> Result<(bool, Result<String, RequestError>), WatchError> {
        let (sender, pages) = mpsc::channel(PAGES_AHEAD);
        let (full, mut parts) = mpsc::channel(1);
        let own = watch.clone();
        // Dropped with this call, and with them what they do ends.
        let (mut listing, mut reading) = (JoinSet::new(), JoinSet::new());
        listing.spawn(async move { own.list(&sender).await });
        let kind = watch.scope.resource.kind;
        reading.spawn(read_list(
            std::mem::take(&mut self.reader),
            kind,
            pages,
            (std::mem::take(changes), full),
        ));
        while let Some(part) = parts.recv().await {
            self.feed.send_part(part, false).await?;
        }
        let given_up = || WatchError::ListAgain(format!("the list of {} was given up", watch.scope));
        let read = reading.join_next().await.and_then(Result::ok).ok_or_else(given_up)?;
        let listed = listing.join_next().await.and_then(Result::ok).ok_or_else(given_up)?;
        let (is_shown, problem);
        (is_shown, (self.reader, *changes, problem)) = read?;
        Ok((is_shown, problem.map_or(listed, Err)))
    }

    /// Sends changes as they arrive, and an empty delta from time to time to keep the source from becoming stale.
    async fn follow(
        &mut self,
        mut messages: mpsc::Receiver<WatchMessage>,
    ) -> Result<std::convert::Infallible, WatchError> {
        let mut heartbeat = tokio::time::interval(self.options.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stale = StaleRecords::default();
        let mut look_at = None;
        let mut received = Vec::new();
        loop {
            tokio::select! {
                count = messages.recv_many(&mut received, BATCH_CHANGES) => {
                    if count == 0 {
                        return Err(WatchError::ListAgain("all watches have ended".to_owned()));
                    }
                    self.send_changes(&mut received).await?;
                    stale.append(self.reader.take_stale());
                    if look_at.is_none() && !stale.is_empty() {
                        look_at = Some(Instant::now() + LOOK_DELAY);
                    }
                }
                () = sleep_until(look_at) => {
                    stale = self.read_again(std::mem::take(&mut stale)).await?;
                    look_at = (!stale.is_empty()).then(|| Instant::now() + LOOK_AGAIN);
                }
                _ = heartbeat.tick() => {
                    // A source that may miss changes is not heard, so that it becomes stale.
                    if self.condition.is_current() {
                        self.feed.send_delta(RecordChanges::default()).await?;
                    }
                }
            }
        }
    }

    async fn send_changes(&mut self, received: &mut Vec<WatchMessage>) -> Result<(), WatchError> {
        let mut objects = Vec::with_capacity(received.len());
        for message in received.drain(..) {
            match message {
                WatchMessage::Changed(object) => objects.push(object),
                WatchMessage::Listed(scope, step) => {
                    self.send_changed(std::mem::take(&mut objects)).await?;
                    self.take_list_step(&scope, step).await?;
                }
                WatchMessage::Failed(reason) => return Err(WatchError::Failed(reason)),
            }
        }
        self.send_changed(objects).await
    }

    async fn send_changed(&mut self, objects: Vec<ChangedObject>) -> Result<(), WatchError> {
        if objects.is_empty() {
            return Ok(());
        }
        let changes = self.read_changed(objects).await?;
        self.report_unreadable();
        self.send_deltas(changes).await
    }

    /// Applies a step of a new list of one resource. The others go on meanwhile.
    async fn take_list_step(&mut self, scope: &ResourceScope, step: ListStep) -> Result<(), WatchError> {
        let name = scope.to_string();
        match step {
            ListStep::Begin(reply) => {
                self.problems.remove(&name);
                self.reader.begin_list(scope);
                // A task that has ended needs no reply.
                let _: Result<(), ()> = reply.send(());
            }
            ListStep::Page(page, _permit) => {
                self.shown.insert(name.clone());
                if let Some(error) = self.read_and_send(scope.resource.kind, page).await? {
                    self.problems.entry(name).or_insert(error);
                }
            }
            ListStep::End(reply) => {
                let read = if let Some(error) = self.problems.remove(&name) {
                    self.reader.give_list_up(scope);
                    Err(error)
                } else {
                    self.listed.insert(name);
                    self.end_list(scope).await?;
                    Ok(())
                };
                // A task that has ended needs no reply.
                drop(reply.send(read));
            }
            ListStep::GivenUp => self.reader.give_list_up(scope),
            ListStep::Absent => {
                self.listed.remove(&name);
                self.shown.remove(&name);
                self.reader.begin_list(scope);
                self.end_list(scope).await?;
            }
        }
        Ok(())
    }

    /// Removes what a new list did not show, and tells the reader which kinds are known as a whole.
    async fn end_list(&mut self, scope: &ResourceScope) -> Result<(), WatchError> {
        let scopes = scopes(&self.options.namespaces);
        let has_all = |wanted: fn(ObjectKind) -> bool| {
            let mut wanted = scopes.iter().filter(|scope| wanted(scope.resource.kind));
            wanted.all(|scope| self.listed.contains(&scope.to_string()))
        };
        let (has_owners, has_queues) = (
            has_all(ObjectKind::owns_pods),
            has_all(|kind| kind == ObjectKind::Queue),
        );
        self.reader.set_has_owners(has_owners);
        self.reader.has_queues = has_queues;
        let mut changes = ChangeBatches::default();
        self.reader.end_list(scope, &mut changes);
        self.send_deltas(changes).await
    }

    /// Reads a page of a list and sends its records. Returns the problem of a page that cannot be read.
    async fn read_and_send(&mut self, kind: ObjectKind, page: Vec<u8>) -> Result<Option<RequestError>, WatchError> {
        let reader = std::mem::take(&mut self.reader);
        let (reader, changes, problem) = read_page(reader, kind, page, ChangeBatches::default()).await?;
        self.reader = reader;
        self.report_unreadable();
        self.send_deltas(changes).await?;
        Ok(problem)
    }

    async fn send_deltas(&mut self, changes: ChangeBatches) -> Result<(), WatchError> {
        let (deltas, last) = changes.into_batches();
        for delta in deltas.into_iter().chain([last]).filter(|delta| !delta.is_empty()) {
            self.feed.send_delta(delta).await?;
        }
        Ok(())
    }

    async fn read_changed(&mut self, objects: Vec<ChangedObject>) -> Result<ChangeBatches, WatchError> {
        let mut reader = std::mem::take(&mut self.reader);
        let few = objects.len() <= FEW_CHANGES;
        let work = move || {
            let mut changes = ChangeBatches::default();
            for object in objects {
                reader.read(object.kind, object.is_deleted, &object.bytes, &mut changes);
            }
            (reader, changes)
        };
        let (reader, changes) = if few {
            work()
        } else {
            let done = tokio::task::spawn_blocking(work).await;
            done.map_err(|error| WatchError::ListAgain(error.to_string()))?
        };
        self.reader = reader;
        Ok(changes)
    }

    /// Reads records again that changed with an owner or a slice. A list is newer than all changes that were sent, and later ones
    /// correct it. Returns what could not be read.
    async fn read_again(&mut self, stale: StaleRecords) -> Result<StaleRecords, WatchError> {
        let mut still_stale = StaleRecords::default();
        let client = self.client.get().await?.client;
        let (namespaces, nodes) = (stale.namespaces.clone(), stale.nodes.clone());
        for (scope, query) in stale.into_lists(&self.options.namespaces) {
            let kind = scope.resource.kind;
            let (sender, mut pages) = mpsc::channel(PAGES_AHEAD);
            let (client, own) = (client.clone(), scope.clone());
            let mut listing = JoinSet::new();
            listing.spawn(async move { pages::list(&client, &own, &query, &sender).await });
            let mut problem = None;
            while let Some(page) = pages.recv().await {
                problem = problem.or(self.read_and_send(kind, page).await?);
            }
            let listed = listing.join_next().await;
            let error = problem.or(match listed {
                Some(Ok(Err(error))) => Some(error),
                Some(Ok(Ok(_)) | Err(_)) | None => None,
            });
            let Some(error) = error else { continue };
            tracing::warn!(%scope, %error, "records stay for now as they were before an owner or a slice changed");
            if error.is_forbidden() || error.is_absent() {
                continue;
            }
            if kind == ObjectKind::Node {
                still_stale.nodes.extend(nodes.iter().cloned());
            } else {
                let failed = scope.namespace;
                still_stale
                    .namespaces
                    .extend(failed.map_or_else(|| namespaces.clone(), |own| [own.to_string()].into()));
            }
        }
        Ok(still_stale)
    }

    fn report_unreadable(&mut self) {
        let (count, messages) = self.reader.take_unreadable();
        self.condition.count_unreadable(count);
        for message in messages {
            tracing::warn!(
                source = self.options.source,
                message,
                "an object cannot be read; its last good record counts"
            );
        }
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
