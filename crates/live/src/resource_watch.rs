//! One resource: its list, then its changes, resumed after each break.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api_client::Body;
use crate::backoff::Backoff;
use crate::condition::{ClusterCondition, ResourceCondition};
use crate::credentials::SharedClient;
use crate::events::{EventLines, WatchEvent, read_event};
use crate::pages;
use crate::pages::ListedObjects;
use crate::records::ChangedObject;
use crate::requests::{RequestError, get, get_page, judged};
use crate::resources::ResourceScope;

/// Time after which the API server ends a watch, in seconds.
const WATCH_SECONDS: u64 = 290;
/// Longest silence of a watch: the API server sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(150);
/// Time between looks for a resource that is absent or forbidden.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest life of a watch that is begun again at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// Objects of a streamed list that are handed over together.
const STREAMED_OBJECTS: usize = 500;

/// How to list objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListMode {
    /// Lists with `limit` and `continue`, page by page.
    #[default]
    Paged,
    /// List as the beginning of a watch, where the API server offers that; else page by page.
    Streamed,
}

/// Position after a list.
#[derive(Debug)]
pub(crate) struct WatchStart {
    version: String,
    /// Watch that the list was the beginning of.
    lines: Option<EventLines>,
    /// Events that arrived before the end of the list and are not part of the list. An event may delete an object of
    /// the list, or change an object later.
    later: Vec<ChangedObject>,
}

/// Message of a resource that is followed.
#[derive(Debug)]
pub(crate) enum WatchMessage {
    /// An object changed.
    Changed(ChangedObject),
    /// Everything must be listed again. The text has the reason.
    ListAgain(String),
    /// A task has panicked, with this message.
    Failed(String),
}

/// One resource of the API server, and the receiver of its changes.
#[derive(Clone)]
pub(crate) struct ResourceWatch {
    pub(crate) client: Arc<SharedClient>,
    pub(crate) scope: ResourceScope,
    pub(crate) condition: Arc<ClusterCondition>,
}

impl ResourceWatch {
    /// Lists the resource; `None`: it is absent or forbidden, and not required.
    pub(crate) async fn list(
        &self,
        mode: ListMode,
        objects: mpsc::Sender<ListedObjects>,
    ) -> Result<Option<WatchStart>, RequestError> {
        self.set(ResourceCondition::Listing);
        let listed = match mode {
            ListMode::Paged => self.list_pages(&objects).await,
            ListMode::Streamed => match self.stream(&objects).await {
                // Older API servers know no streamed lists.
                Err(RequestError::Refused {
                    code: 400 | 415 | 422, ..
                }) => self.list_pages(&objects).await,
                streamed => streamed,
            },
        };
        match listed {
            Ok(start) => Ok(Some(start)),
            Err(error) if !self.scope.resource.is_required && error.is_absent() => {
                self.set(ResourceCondition::Absent);
                Ok(None)
            }
            Err(error) if !self.scope.resource.is_required && error.is_forbidden() => {
                self.set(ResourceCondition::Forbidden(error.to_string()));
                Ok(None)
            }
            Err(error) => {
                self.set(ResourceCondition::Interrupted(error.to_string()));
                Err(error)
            }
        }
    }

    async fn list_pages(&self, objects: &mpsc::Sender<ListedObjects>) -> Result<WatchStart, RequestError> {
        let client = self.client.get().await?.client;
        let version = pages::list(&client, &self.scope.path(), "", objects).await?;
        Ok(WatchStart {
            version,
            lines: None,
            later: Vec::new(),
        })
    }

    async fn stream(&self, objects: &mpsc::Sender<ListedObjects>) -> Result<WatchStart, RequestError> {
        let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let mut lines = self.open(query).await?;
        let (mut part, mut later) = (Vec::new(), Vec::new());
        loop {
            let line = self.next_line(&mut lines).await?;
            let line = line.ok_or_else(|| RequestError::Unreachable("the streamed list broke off".to_owned()))?;
            match read_event(&line)? {
                (WatchEvent::Put(object), _) if later.is_empty() => part.push(object.to_vec()),
                // The API server shows its cache, and then what changed until the request came.
                (WatchEvent::Put(object), _) => later.push(self.changed(object, false)),
                (WatchEvent::Delete(object), _) => later.push(self.changed(object, true)),
                (WatchEvent::Bookmark { ends_list: true }, version) => {
                    pages::hand_over(objects, ListedObjects::Objects(part)).await?;
                    let lines = Some(lines);
                    return Ok(WatchStart { version, lines, later });
                }
                (WatchEvent::Error(error), _) => return Err(error),
                (WatchEvent::Bookmark { ends_list: false }, _) => {}
            }
            if part.len() >= STREAMED_OBJECTS {
                pages::hand_over(objects, ListedObjects::Objects(std::mem::take(&mut part))).await?;
            }
        }
    }

    /// Follows the resource from a position until everything must be listed again or the receiver is closed.
    pub(crate) async fn follow(self, start: Option<WatchStart>, messages: mpsc::Sender<WatchMessage>) {
        let Some(start) = start else {
            let reason = self.wait_for_resource().await;
            drop(messages.send(WatchMessage::ListAgain(reason)).await);
            return;
        };
        let (mut version, mut lines) = (start.version, start.lines);
        for changed in start.later {
            if messages.send(WatchMessage::Changed(changed)).await.is_err() {
                return;
            }
        }
        let mut backoff = Backoff::default();
        loop {
            let begin = Instant::now();
            let ended = self.watch(&mut version, lines.take(), &messages).await;
            let has_lasted = begin.elapsed() > SHORT_LIFE;
            if has_lasted {
                backoff.reset();
            }
            match ended {
                Ok(()) if messages.is_closed() => return,
                // The API server ends each watch from time to time.
                Ok(()) if has_lasted => continue,
                Ok(()) => {}
                Err(error) if self.needs_list(&error) => {
                    let reason = format!("{}: {error}", self.scope);
                    drop(messages.send(WatchMessage::ListAgain(reason)).await);
                    return;
                }
                Err(error) => {
                    let condition = ResourceCondition::Interrupted(error.to_string());
                    if self.set(condition) {
                        tracing::warn!(resource = %self.scope, %error, "the watch is interrupted; it is resumed");
                    }
                }
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// True if the watch cannot go on where it was: what was seen last is forgotten, or an event is lost.
    fn needs_list(&self, error: &RequestError) -> bool {
        match error {
            RequestError::Refused { code: 404 | 410, .. }
            | RequestError::WatchEnded(_)
            | RequestError::TooLarge(_)
            | RequestError::Unreadable(_) => true,
            // The list goes on without it.
            RequestError::Refused { code: 403, .. } => !self.scope.resource.is_required,
            RequestError::Refused { .. } | RequestError::Unreachable(_) | RequestError::TimedOut(_) => false,
        }
    }

    fn changed(&self, object: &[u8], is_deleted: bool) -> ChangedObject {
        ChangedObject {
            kind: self.scope.resource.kind,
            is_deleted,
            bytes: object.to_vec(),
        }
    }

    /// Watches until the API server ends the watch or the receiver is closed.
    async fn watch(
        &self,
        version: &mut String,
        lines: Option<EventLines>,
        messages: &mpsc::Sender<WatchMessage>,
    ) -> Result<(), RequestError> {
        let mut lines = match lines {
            Some(lines) => lines,
            None => {
                self.open(&format!("resourceVersion={}", pages::encoded(version)))
                    .await?
            }
        };
        if self.set(ResourceCondition::Watching) {
            tracing::debug!(resource = %self.scope, version, "watching");
        }
        loop {
            let line = match self.next_line(&mut lines).await {
                Ok(Some(line)) => line,
                // A silent connection may be dead. Old API servers send no bookmarks.
                Ok(None) | Err(RequestError::TimedOut(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
            let (event, new_version) = read_event(&line)?;
            let changed = match event {
                WatchEvent::Error(error) => return Err(RequestError::WatchEnded(error.to_string())),
                WatchEvent::Bookmark { .. } => {
                    *version = new_version;
                    continue;
                }
                WatchEvent::Put(object) => self.changed(object, false),
                WatchEvent::Delete(object) => self.changed(object, true),
            };
            self.condition.count_event(&self.scope.to_string());
            if messages.send(WatchMessage::Changed(changed)).await.is_err() {
                return Ok(());
            }
            *version = new_version;
        }
    }

    async fn open(&self, query: &str) -> Result<EventLines, RequestError> {
        let path = self.scope.path();
        let uri = format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&{query}");
        Ok(EventLines::new(self.get(&uri).await?))
    }

    /// Body of a response. A client that cannot get it is replaced for the next request.
    async fn get(&self, uri: &str) -> Result<Body, RequestError> {
        let lent = self.client.get().await?;
        judged(&self.client, &lent, get(&lent.client, uri).await)
    }

    async fn next_line(&self, lines: &mut EventLines) -> Result<Option<Vec<u8>>, RequestError> {
        let line = tokio::time::timeout(SILENCE, lines.next()).await;
        line.map_err(|_| RequestError::TimedOut(SILENCE.as_secs()))?
    }

    /// Waits until an absent or forbidden resource can be listed. Returns a description of the change.
    async fn wait_for_resource(&self) -> String {
        let path = format!("{}?limit=1", self.scope.path());
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let Ok(lent) = self.client.get().await else { continue };
            if get_page(&lent.client, &path).await.is_ok() {
                return format!("{} can be listed now", self.scope);
            }
        }
    }

    fn set(&self, condition: ResourceCondition) -> bool {
        self.condition.set(&self.scope.to_string(), condition)
    }
}
