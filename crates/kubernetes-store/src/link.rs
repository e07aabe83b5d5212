//! Requests to the API server: their client, their bounds in time and pace, and what their errors mean.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{DeleteParams, ListParams, ObjectList, PostParams, Preconditions};
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client, Error, ResourceExt};
use pumice_engine::short_lock::ShortLock;
use pumice_live::{FreshClient, causes, is_version};
use pumice_state::store::{LogPlace, StoreError};

use crate::names::{LogNames, LogObjectKind, MANAGER};
use crate::pace::WritePace;
use crate::{ApiAccess, KubernetesStoreOptions};

/// Wait after a request that the API server has no time for and that does not say how long.
const THROTTLED_WAIT: Duration = Duration::from_millis(500);
/// Longest wait that the API server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Most objects of one page of a list.
const PAGE: u32 = 250;
/// Most objects of one page of a list with their content.
pub(crate) const CONTENT_PAGE: u32 = 64;

/// Kind of a list of metadata.
const METADATA_LIST: &str = "PartialObjectMetadataList";

/// Error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// The request was not carried out: the object has another version, or is there already.
    Conflict(String),
    /// The request failed: the object does not exist.
    Absent(String),
    /// The request was not carried out: the API server has no time for it, and asks to wait.
    Throttled(String, Duration),
    /// The version to begin at is gone.
    Expired(String),
    /// The request was not carried out, and will not be the next time.
    Refused(String),
    /// Whether the request was carried out is not known.
    Unknown {
        message: String,
        /// True if the API server reports a failure of its own, such as an etcd without room; false: no reply came.
        is_answered: bool,
    },
}

impl ApiError {
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Conflict(message) | Self::Absent(message) | Self::Expired(message) | Self::Refused(message) => {
                format!("the API server refuses: {message}")
            }
            Self::Throttled(message, _) => format!("the API server has no time: {message}"),
            Self::Unknown {
                message,
                is_answered: true,
            } => format!("the API server fails: {message}"),
            Self::Unknown { message, .. } => format!("the API server cannot be reached: {message}"),
        }
    }

    fn unproved(message: String) -> Self {
        Self::Unknown {
            message,
            is_answered: true,
        }
    }

    fn unreachable(message: String) -> Self {
        Self::Unknown {
            message,
            is_answered: false,
        }
    }

    fn of(error: &Error) -> Self {
        let Error::Api(status) = error else {
            let was_never_sent = matches!(error, Error::BuildRequest(_) | Error::HttpError(_));
            let problem = if was_never_sent {
                Self::Refused
            } else {
                Self::unreachable
            };
            return problem(causes(error));
        };
        let message = if status.message.is_empty() {
            format!("status {}", status.code)
        } else {
            status.message.clone()
        };
        match status.code {
            404 => Self::Absent(message),
            409 => Self::Conflict(message),
            410 => Self::Expired(message),
            429 => {
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                let asked = Duration::from_secs(seconds.into());
                let wait = if asked.is_zero() { THROTTLED_WAIT } else { asked };
                Self::Throttled(message, wait.min(LONGEST_WAIT))
            }
            403 => Self::Refused(format!(
                "{message}: let the account get, list, watch, create, update and delete ConfigMaps, and get, list, create, \
                 update and delete Leases, in the namespace of the log"
            )),
            400..=499 => Self::Refused(message),
            _ => Self::Unknown {
                message,
                is_answered: true,
            },
        }
    }
}

/// Requests about one log.
#[derive(Debug)]
pub(crate) struct ApiLink {
    access: ApiAccess,
    namespace: Option<String>,
    pub(crate) names: LogNames,
    timeout: Duration,
    pace: WritePace,
    client: ShortLock<Option<FreshClient>>,
}

/// Kind of objects of the log: the resource is namespaced, and its objects are read and written as JSON.
pub(crate) trait LogResource:
    kube_client::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + Send
    + Sync
    + serde::Serialize
    + serde::de::DeserializeOwned
    + 'static
{
    /// True if this object has what was sent.
    fn has_content_of(&self, sent: &Self) -> bool;
}

/// The object of a response, if it proves that it is the newest version of the object of this name.
fn proved<K: LogResource>(name: &str, object: K) -> Result<K, ApiError> {
    let has_text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let metadata = object.meta();
    let has_version = metadata.resource_version.as_deref().is_some_and(is_version);
    if metadata.name.as_deref() == Some(name) && has_text(&metadata.uid) && has_version {
        return Ok(object);
    }
    Err(ApiError::unproved(format!(
        "the response is not {name} with its uid and version"
    )))
}

/// The object of a response to a write, if it proves that the write was carried out: it has what was sent, and a version that the
/// object did not have before.
fn proved_written<K: LogResource>(sent: &K, written: K) -> Result<K, ApiError> {
    let name = sent.meta().name.clone().unwrap_or_default();
    let written = proved(&name, written)?;
    let (before, after) = (sent.meta(), written.meta());
    let is_same_object = before.uid.is_none() || before.uid == after.uid;
    let is_new = before.resource_version != after.resource_version;
    let has_annotations = before.annotations.iter().flatten().all(|(key, value)| {
        let found = after.annotations.as_ref().and_then(|annotations| annotations.get(key));
        found == Some(value)
    });
    if is_same_object && is_new && has_annotations && written.has_content_of(sent) {
        return Ok(written);
    }
    Err(ApiError::unproved(format!(
        "the response does not show that {name} was written"
    )))
}

/// The page of a response, if it proves that it is one of a list of this kind, and has only objects with the labels that were asked for.
fn proved_page<T: Clone + ResourceExt>(
    kind: &str,
    labels: [(&str, &str); 3],
    page: ObjectList<T>,
) -> Result<ObjectList<T>, ApiError> {
    let version = page.metadata.resource_version.as_deref().unwrap_or_default();
    let is_asked = |object: &T| {
        labels
            .iter()
            .all(|(key, value)| object.labels().get(*key).is_some_and(|found| found == value))
    };
    if page.types.kind == kind && is_version(version) && page.items.iter().all(is_asked) {
        return Ok(page);
    }
    Err(ApiError::unproved(format!(
        "the response is not a {kind} with a version and the labels that were asked for"
    )))
}

impl LogResource for ConfigMap {
    fn has_content_of(&self, sent: &Self) -> bool {
        (&self.data, &self.binary_data) == (&sent.data, &sent.binary_data)
    }
}

impl LogResource for Lease {
    fn has_content_of(&self, sent: &Self) -> bool {
        let holder = |lease: &Self| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        holder(self) == holder(sent)
    }
}

impl LogPlace for ApiLink {
    const NAME_SETTING: &'static str = "kubernetes_store_name";

    fn place(&self) -> String {
        let root = self.names.root();
        match &self.namespace {
            Some(namespace) => format!("the log {namespace}/{root} in the Kubernetes API"),
            None => format!("the log {root} in the Kubernetes API"),
        }
    }
}

impl ApiLink {
    pub(crate) fn new(options: &KubernetesStoreOptions) -> Arc<Self> {
        Arc::new(Self {
            access: options.access.clone(),
            namespace: options.namespace.clone(),
            names: LogNames::new(&options.name),
            timeout: options.timeout,
            pace: WritePace::new(options.rates),
            client: ShortLock::default(),
        })
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The log, for messages.
    pub(crate) fn error(&self, error: &ApiError) -> StoreError {
        self.failed(&error.message())
    }

    /// Objects of a resource. Credentials are read with the first request, and after a failure.
    pub(crate) async fn api<K: LogResource>(&self) -> Result<Api<K>, ApiError> {
        let held = self.client.with(|client| client.clone());
        let client = match held.filter(|held| !held.is_over()) {
            Some(held) => held.client,
            None => self.connect().await?,
        };
        Ok(match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        })
    }

    async fn connect(&self) -> Result<Client, ApiError> {
        let client = match &self.access {
            ApiAccess::Ready(client) => FreshClient {
                client: client.clone(),
                until: None,
            },
            ApiAccess::Credentials(access) => access
                .client()
                .await
                .map_err(|error| ApiError::unreachable(error.to_string()))?,
        };
        self.client.with(|place| *place = Some(client.clone()));
        Ok(client.client)
    }

    /// Drops the client, whose connections may be dead: the next request begins with fresh ones.
    pub(crate) fn forget(&self) {
        let former = self.client.with(Option::take);
        drop(former);
    }

    /// Makes a request.
    pub(crate) async fn call<T>(&self, request: impl Future<Output = kube_client::Result<T>>) -> Result<T, ApiError> {
        let reply = match tokio::time::timeout(self.timeout, request).await {
            Ok(reply) => reply.map_err(|error| ApiError::of(&error)),
            Err(_) => Err(ApiError::unreachable(format!(
                "no reply within {} ms",
                self.timeout.as_millis()
            ))),
        };
        // A connection may be dead, and credentials may have ended.
        if matches!(
            reply,
            Err(ApiError::Unknown { is_answered: false, .. } | ApiError::Refused(_))
        ) {
            self.forget();
        }
        reply
    }

    /// Newest version of an object.
    pub(crate) async fn get<K: LogResource>(&self, name: &str) -> Result<K, ApiError> {
        let api = self.api::<K>().await?;
        proved(name, self.call(api.get(name)).await?)
    }

    /// Newest version of an object; `None`: it is not there.
    pub(crate) async fn find<K: LogResource>(&self, name: &str) -> Result<Option<K>, ApiError> {
        match self.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(ApiError::Absent(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes an object that must not be there yet.
    pub(crate) async fn create<K: LogResource>(&self, object: &K, bytes: usize) -> Result<K, ApiError> {
        self.pace.wait(bytes).await;
        let api = self.api::<K>().await?;
        proved_written(object, self.call(api.create(&post(), object)).await?)
    }

    /// Updates an object on condition that its version is the version in `object`.
    pub(crate) async fn replace<K: LogResource>(&self, object: &K, bytes: usize) -> Result<K, ApiError> {
        self.pace.wait(bytes).await;
        let api = self.api::<K>().await?;
        let name = object.meta().name.clone().unwrap_or_default();
        proved_written(object, self.call(api.replace(&name, &post(), object)).await?)
    }

    /// Removes an object; with `version`, only if the object has this version. A missing object is not an error.
    pub(crate) async fn delete<K: LogResource>(&self, name: &str, version: Option<String>) -> Result<(), ApiError> {
        self.pace.wait(0).await;
        let api = self.api::<K>().await?;
        let mut how = DeleteParams::default();
        if version.is_some() {
            how.preconditions = Some(Preconditions {
                resource_version: version,
                uid: None,
            });
        }
        match self.call(api.delete(name, &how)).await {
            Ok(_) | Err(ApiError::Absent(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Request for a page of the objects of a kind.
    fn page_of(&self, kind: LogObjectKind, limit: u32, continuation: Option<&str>) -> ListParams {
        ListParams {
            continue_token: continuation.map(str::to_owned),
            ..ListParams::default().labels(&self.names.selector(kind)).limit(limit)
        }
    }

    /// One page of the newest versions of slots with their content.
    pub(crate) async fn slots_page(&self, continuation: Option<&str>) -> Result<ObjectList<ConfigMap>, ApiError> {
        let (api, kind) = (self.api::<ConfigMap>().await?, LogObjectKind::Slot);
        let asked = self.page_of(kind, CONTENT_PAGE, continuation);
        let page = self.call(api.list(&asked)).await?;
        proved_page("ConfigMapList", self.names.labels(kind), page)
    }

    /// All Leases of servers, as far as one page has them.
    pub(crate) async fn leases(&self, limit: u32) -> Result<Vec<Lease>, ApiError> {
        let (api, kind) = (self.api::<Lease>().await?, LogObjectKind::Server);
        let asked = self.page_of(kind, limit, None);
        let page = self.call(api.list(&asked)).await?;
        Ok(proved_page("LeaseList", self.names.labels(kind), page)?.items)
    }

    /// Metadata of all ConfigMaps of a kind, at one version of the whole list.
    pub(crate) async fn list_metadata(
        &self,
        kind: LogObjectKind,
    ) -> Result<(Vec<PartialObjectMeta<ConfigMap>>, String), ApiError> {
        let (mut all, mut continuation) = (Vec::new(), None::<String>);
        loop {
            let api = self.api::<ConfigMap>().await?;
            let asked = self.page_of(kind, PAGE, continuation.as_deref());
            let page = self.call(api.list_metadata(&asked)).await?;
            let page = proved_page(METADATA_LIST, self.names.labels(kind), page)?;
            all.extend(page.items);
            continuation = page.metadata.continue_.filter(|token| !token.is_empty());
            if continuation.is_none() {
                return Ok((all, page.metadata.resource_version.unwrap_or_default()));
            }
        }
    }
}

fn post() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}
