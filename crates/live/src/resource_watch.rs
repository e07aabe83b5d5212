//! One resource: its list, then its changes, resumed after each break.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::api_client::Body;
use crate::backoff::Backoff;
use crate::condition::{ClusterCondition, ResourceCondition};
use crate::credentials::SharedClient;
use crate::events::{EventLines, WatchEvent, read_event};
use crate::pages;
use crate::records::ChangedObject;
use crate::requests::{RequestError, get, get_page, judged};
use crate::resources::ResourceScope;
use crate::times::paced;

/// Longest time after which the API server ends a watch, in seconds.
const WATCH_SECONDS: u64 = 290;
/// Time between looks for a resource that is absent or forbidden.
const LOOK_INTERVAL: Duration = paced(5_000);
/// Time between lists of a resource whose changes cannot be watched.
const POLL_INTERVAL: Duration = paced(30_000);
/// Time for which the API server has to say that it does not serve a resource, before the records of the resource are removed.
const ABSENCE: Duration = paced(60_000);
/// Shortest life of a watch that is begun again at once.
const SHORT_LIFE: Duration = paced(1_000);
/// Pages of a new list that wait for the reader.
const PAGES_AHEAD: usize = 2;
/// Message of a resource that is followed.
#[derive(Debug)]
pub(crate) enum WatchMessage {
    /// An object changed.
    Changed(ChangedObject),
    /// A new list of a resource, step by step.
    Listed(ResourceScope, ListStep),
    /// A task has panicked, with this message.
    Failed(String),
}

/// Step of a new list of one resource.
#[derive(Debug)]
pub(crate) enum ListStep {
    /// A list is about to be asked for. The reply says that what is read from now on is compared with it.
    Begin(oneshot::Sender<()>),
    /// Page of the list. The permit is given back when it has been read.
    Page(Vec<u8>, OwnedSemaphorePermit),
    /// The list has come to its end: what it did not show is gone. The reply says that this has been applied, or why the list could
    /// not be read.
    End(oneshot::Sender<Result<(), RequestError>>),
    /// The list broke off: what it did not show stays.
    GivenUp,
    /// The API server no longer serves the resource: all of it is gone.
    Absent,
}

/// One resource of the API server, and the receiver of its changes.
#[derive(Clone)]
pub(crate) struct ResourceWatch {
    pub(crate) client: Arc<SharedClient>,
    pub(crate) scope: ResourceScope,
    pub(crate) condition: Arc<ClusterCondition>,
    /// Longest silence of a watch that counts as current: the API server sends a bookmark every minute.
    pub(crate) silence: Duration,
}

/// How following a resource from a position ended.
enum Followed {
    /// The receiver is closed.
    Closed,
    /// The resource must be listed again.
    ListAgain(String),
    /// The resource must be listed again after a time: its changes do not arrive.
    Poll(String),
}

/// Records of a resource that are held, and for how long it has been absent.
#[derive(Debug, Default)]
struct Holding {
    /// True if records of a list are held.
    has_records: bool,
    /// Moment since which the API server says that it does not serve the resource.
    absent_since: Option<Instant>,
}

impl ResourceWatch {
    /// Lists the resource page by page. Returns the version that the list shows.
    pub(crate) async fn list(&self, pages: &mpsc::Sender<Vec<u8>>) -> Result<String, RequestError> {
        let lent = self.client.get().await?;
        let listed = pages::list(&lent.client, &self.scope, "", pages).await;
        judged(&self.client, &lent, listed)
    }

    /// Condition of a resource of which nothing is held, after an error of its list; `None`: nothing can be decided without it.
    pub(crate) async fn condition_without_records(&self, error: &RequestError) -> Option<ResourceCondition> {
        if self.scope.resource.is_required {
            return None;
        }
        Some(self.judge(error, &mut Holding::default()).await)
    }

    /// Condition after an error of a list. [`ResourceCondition::Absent`]: records of the resource go.
    async fn judge(&self, error: &RequestError, holding: &mut Holding) -> ResourceCondition {
        let is_absent = !self.scope.resource.is_required && error.is_absent() && self.is_confirmed_absent().await;
        if is_absent {
            let since = *holding.absent_since.get_or_insert_with(Instant::now);
            if !holding.has_records || since.elapsed() >= ABSENCE {
                return ResourceCondition::Absent;
            }
            let seconds = ABSENCE.as_secs();
            let reason = format!("{error}; its records stay until that has held for {seconds} s");
            return ResourceCondition::Interrupted(reason);
        }
        holding.absent_since = None;
        if holding.has_records {
            ResourceCondition::Interrupted(format!("{error}; its last records stay"))
        } else if error.is_forbidden() && !self.scope.resource.is_required {
            ResourceCondition::Forbidden(error.to_string())
        } else {
            ResourceCondition::Interrupted(error.to_string())
        }
    }

    /// True if the API server says that it does not serve the resource. A gateway that answers 404 for a moment does not say that.
    async fn is_confirmed_absent(&self) -> bool {
        let Ok(lent) = self.client.get().await else {
            return false;
        };
        match get_page(&lent.client, &self.scope.discovery_path()).await {
            Ok(page) => serves(&page, self.scope.resource.plural) == Some(false),
            Err(error) => error.is_absent(),
        }
    }

    /// Lists the resource until that succeeds, and sends the lists; `None`: the receiver is closed.
    async fn list_again(&self, holding: &mut Holding, messages: &mpsc::Sender<WatchMessage>) -> Option<String> {
        let mut backoff = Backoff::default();
        loop {
            let error = match self.send_list(messages).await? {
                Ok(version) => {
                    *holding = Holding {
                        has_records: true,
                        absent_since: None,
                    };
                    return Some(version);
                }
                Err(error) => error,
            };
            let condition = self.judge(&error, holding).await;
            if condition == ResourceCondition::Absent {
                // Also without a list: pages of one that broke off may have shown objects.
                *holding = Holding::default();
                self.send(messages, ListStep::Absent).await?;
            }
            let is_left_out = matches!(condition, ResourceCondition::Absent | ResourceCondition::Forbidden(_));
            if self.set(condition.clone()) {
                tracing::warn!(resource = %self.scope, %condition, "the resource cannot be listed; it is tried again");
            }
            tokio::time::sleep(if is_left_out { LOOK_INTERVAL } else { backoff.next() }).await;
        }
    }

    /// Sends one list of the resource, and waits until it is applied; `None`: the receiver is closed.
    async fn send_list(&self, messages: &mpsc::Sender<WatchMessage>) -> Option<Result<String, RequestError>> {
        let permits = Arc::new(Semaphore::new(PAGES_AHEAD));
        let (sender, mut pages) = mpsc::channel(1);
        let (reply, begun) = oneshot::channel();
        self.send(messages, ListStep::Begin(reply)).await?;
        // What is read between the response and this moment would look as if the list did not show it.
        begun.await.ok()?;
        let forward = async {
            while let Some(page) = pages.recv().await {
                let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
                self.send(messages, ListStep::Page(page, permit)).await?;
            }
            Some(())
        };
        let list = async {
            let listed = self.list(&sender).await;
            drop(sender);
            listed
        };
        let (listed, forwarded) = tokio::join!(list, forward);
        forwarded?;
        let version = match listed {
            Ok(version) => version,
            Err(error) => {
                self.send(messages, ListStep::GivenUp).await?;
                return Some(Err(error));
            }
        };
        let (reply, applied) = oneshot::channel();
        self.send(messages, ListStep::End(reply)).await?;
        Some(applied.await.ok()?.map(|()| version))
    }

    async fn send(&self, messages: &mpsc::Sender<WatchMessage>, step: ListStep) -> Option<()> {
        messages.send(WatchMessage::Listed(self.scope.clone(), step)).await.ok()
    }

    /// Follows the resource from a version until the receiver is closed. Without a version it begins with a list.
    pub(crate) async fn follow(self, mut start: Option<String>, messages: mpsc::Sender<WatchMessage>) {
        let mut holding = Holding {
            has_records: start.is_some(),
            absent_since: None,
        };
        // Reason for which changes may not arrive though the list was good.
        let (mut doubt, mut backoff) = (None::<String>, Backoff::default());
        loop {
            let listed = match start.take() {
                Some(start) => start,
                None => match self.list_again(&mut holding, &messages).await {
                    Some(start) => start,
                    None => return,
                },
            };
            let begin = Instant::now();
            match self.follow_from(listed, &mut doubt, &messages).await {
                Followed::Closed => return,
                Followed::ListAgain(reason) => {
                    tracing::info!(resource = %self.scope, reason, "the resource is listed again");
                    self.set(ResourceCondition::Interrupted(reason));
                    // A watch that fails at once would become a list without an end.
                    if begin.elapsed() > POLL_INTERVAL {
                        backoff.reset();
                    } else {
                        tokio::time::sleep(backoff.next()).await;
                    }
                }
                Followed::Poll(reason) => {
                    if self.set(ResourceCondition::Polled(reason.clone())) {
                        tracing::warn!(resource = %self.scope, reason, "changes do not arrive; the resource is listed from time to time");
                    }
                    doubt = Some(reason);
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }

    /// Follows the resource from a position until it must be listed again or the receiver is closed.
    async fn follow_from(
        &self,
        version: String,
        doubt: &mut Option<String>,
        messages: &mpsc::Sender<WatchMessage>,
    ) -> Followed {
        let mut position = WatchPosition {
            version,
            heard: Instant::now(),
        };
        let mut backoff = Backoff::default();
        loop {
            let begin = Instant::now();
            let ended = self.watch(&mut position, doubt, messages).await;
            let has_lasted = begin.elapsed() > SHORT_LIFE;
            if has_lasted {
                backoff.reset();
            }
            if messages.is_closed() {
                return Followed::Closed;
            }
            let patience = self.patience(doubt.as_ref());
            if position.heard.elapsed() >= patience {
                let reason = format!(
                    "the watch has shown neither a change nor a bookmark for {} s",
                    patience.as_secs()
                );
                *doubt = Some(reason.clone());
                return Followed::ListAgain(reason);
            }
            match ended {
                // The API server ends each watch from time to time.
                Ok(()) if has_lasted => continue,
                Ok(()) => {}
                Err(error) if needs_list(&error) => return Followed::ListAgain(error.to_string()),
                Err(error @ RequestError::Refused { code: 403 | 405, .. }) => return Followed::Poll(error.to_string()),
                Err(error) => {
                    if self.set(ResourceCondition::Interrupted(error.to_string())) {
                        tracing::warn!(resource = %self.scope, %error, "the watch is interrupted; it is resumed");
                    }
                }
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    fn changed(&self, object: &[u8], is_deleted: bool) -> ChangedObject {
        ChangedObject {
            kind: self.scope.resource.kind,
            is_deleted,
            bytes: object.to_vec(),
        }
    }

    /// Watches until the API server ends the watch, is silent for too long, or the receiver is closed.
    async fn watch(
        &self,
        position: &mut WatchPosition,
        doubt: &mut Option<String>,
        messages: &mpsc::Sender<WatchMessage>,
    ) -> Result<(), RequestError> {
        let mut lines = self.open(&position.version).await?;
        // A watch that was silent has to show something first.
        let polled = doubt.clone().map(ResourceCondition::Polled);
        self.set(polled.unwrap_or(ResourceCondition::Watching));
        loop {
            let line = match next_line(&mut lines, position.heard + self.patience(doubt.as_ref())).await {
                Ok(Some(line)) => line,
                Ok(None) | Err(RequestError::TimedOut(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
            let (event, version) = read_event(&line)?;
            let changed = match event {
                WatchEvent::Error(error) => return Err(RequestError::WatchEnded(error.to_string())),
                // One of the two versions is not of this collection's history: only a list tells what is so.
                _ if is_older(&version, &position.version) => {
                    let reason = format!("an event has version {version}, after version {}", position.version);
                    return Err(RequestError::Unreadable(reason));
                }
                WatchEvent::Bookmark => None,
                WatchEvent::Put(object) => Some(self.changed(object, false)),
                WatchEvent::Delete(object) => Some(self.changed(object, true)),
            };
            position.heard = Instant::now();
            if doubt.take().is_some() {
                self.set(ResourceCondition::Watching);
            }
            if let Some(changed) = changed {
                self.condition.count_event(&self.scope);
                if messages.send(WatchMessage::Changed(changed)).await.is_err() {
                    return Ok(());
                }
            }
            position.version = version;
        }
    }

    /// Longest silence of a watch. One that was silent before, or that is forbidden, is not waited for as long.
    fn patience(&self, doubt: Option<&String>) -> Duration {
        if doubt.is_some() {
            self.silence.min(POLL_INTERVAL)
        } else {
            self.silence
        }
    }

    async fn open(&self, version: &str) -> Result<EventLines, RequestError> {
        let (path, version) = (self.scope.path(), pages::encoded(version));
        // A watch that ends soon shows a bookmark before its end.
        let seconds = WATCH_SECONDS.min(self.silence.as_secs().saturating_mul(2) / 3).max(1);
        let uri = format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}");
        Ok(EventLines::new(self.get(&uri).await?))
    }

    /// Body of a response. A client that cannot get it is replaced for the next request.
    async fn get(&self, uri: &str) -> Result<Body, RequestError> {
        let lent = self.client.get().await?;
        judged(&self.client, &lent, get(&lent.client, uri).await)
    }

    fn set(&self, condition: ResourceCondition) -> bool {
        self.condition.set(&self.scope, condition)
    }
}

/// Position of a watch, and how fresh it is.
struct WatchPosition {
    /// Version of the last object or bookmark.
    version: String,
    /// Moment at which the API server last said something about the resource.
    heard: Instant,
}

/// True if a version is older than another one: both are numbers.
fn is_older(version: &str, than: &str) -> bool {
    let [own, other] = [version, than].map(|text| text.trim_start_matches('0'));
    (own.len(), own) < (other.len(), other)
}

/// True if the watch cannot go on where it was: what was seen last is forgotten, or an event is lost.
fn needs_list(error: &RequestError) -> bool {
    match error {
        RequestError::Refused {
            code: 400 | 404 | 410, ..
        }
        | RequestError::WatchEnded(_)
        | RequestError::TooLarge(_)
        | RequestError::Unreadable(_) => true,
        // The API server never had this version; it waits for it, and then says so with the code of a time limit.
        RequestError::Refused { message, .. } => message.contains("Too large resource version"),
        RequestError::Unreachable(_) | RequestError::WithoutCredentials(_) | RequestError::TimedOut(_) => false,
    }
}

async fn next_line(lines: &mut EventLines, until: Instant) -> Result<Option<Vec<u8>>, RequestError> {
    let patience = until.saturating_duration_since(Instant::now());
    let line = tokio::time::timeout(patience, lines.next()).await;
    line.map_err(|_| RequestError::TimedOut(patience.as_secs()))?
}

/// Whether a list of the resources of a group names this one; `None`: the text is not such a list.
fn serves(page: &[u8], plural: &str) -> Option<bool> {
    let list: ServedResources = serde_json::from_slice(page).ok()?;
    (list.kind == "APIResourceList").then(|| list.resources.iter().any(|own| own.name == plural))
}

/// List of the resources of a version of an API group.
#[derive(Debug, Deserialize)]
struct ServedResources {
    kind: String,
    resources: Vec<ServedResource>,
}

#[derive(Debug, Deserialize)]
struct ServedResource {
    name: String,
}
