//! Requests to the API server, with bounds on time and size.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api_client::{Body, Client};
use crate::credentials::{CredentialError, LentClient, SharedClient, causes};
use crate::times::paced;

/// Format of objects.
pub(crate) const JSON: &str = "application/json";
/// Time that the head of a response has.
const HEAD_TIME: Duration = paced(30_000);
/// Time that a whole page of a list has.
const PAGE_TIME: Duration = paced(120_000);
/// Largest page of a list.
const PAGE_BYTES: usize = 64 << 20;
/// Largest response about one thing.
const RESPONSE_BYTES: usize = 1 << 20;
/// Largest body of an error that is read.
const ERROR_BYTES: usize = 64 << 10;

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// The API server refused the request.
    #[error("{message} ({code})")]
    Refused {
        /// Status code of HTTP, or of the event that reported the error.
        code: u16,
        /// Sentence of the API server.
        message: String,
        /// Continuation token for a list whose version has expired (410 Gone). Empty: from the beginning.
        continuation: String,
    },
    /// The API server cannot be reached, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
    /// No request was sent: there are no credentials. The text has the remedy.
    #[error("{0}")]
    WithoutCredentials(String),
    /// No response came in time.
    #[error("no response within {0} s")]
    TimedOut(u64),
    /// The response is larger than anything that is read.
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
    /// The response is not what was asked for.
    #[error("the response cannot be read: {0}")]
    Unreadable(String),
    /// The API server ended a watch, and said why.
    #[error("the API server ended the watch: {0}")]
    WatchEnded(String),
}

impl From<CredentialError> for RequestError {
    fn from(error: CredentialError) -> Self {
        RequestError::WithoutCredentials(error.to_string())
    }
}

impl RequestError {
    /// True if the API server has forgotten the version that was asked for.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self, RequestError::Refused { code: 410, .. })
    }

    /// True if the API server does not serve the resource.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, RequestError::Refused { code: 404, .. })
    }

    /// True if a client with credentials as they are now may have success: they are no longer good, or the address is another one.
    fn may_pass_with_fresh_client(&self) -> bool {
        match self {
            RequestError::Refused { code, .. } => matches!(code, 401 | 500..),
            RequestError::Unreachable(_) | RequestError::TimedOut(_) => true,
            RequestError::WithoutCredentials(_)
            | RequestError::TooLarge(_)
            | RequestError::Unreadable(_)
            | RequestError::WatchEnded(_) => false,
        }
    }

    /// True if the rejection is specific to the object of the request: other objects may be accepted.
    pub(crate) fn is_about_object(&self) -> bool {
        matches!(
            self,
            RequestError::Refused {
                code: 400 | 403 | 404 | 409 | 422,
                ..
            }
        )
    }

    /// True if the account may not do this.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, RequestError::Refused { code: 403, .. })
    }
}

/// `Status` of the API, with the fields that describe errors.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ApiStatus {
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) code: u16,
    #[serde(default)]
    pub(crate) metadata: StatusMetadata,
}

impl ApiStatus {
    /// Error with this code, and with this text where the API server says nothing.
    pub(crate) fn into_error(self, code: u16, text: &str) -> RequestError {
        let said = if self.message.is_empty() { text } else { &self.message };
        RequestError::Refused {
            code,
            message: shortened(said),
            continuation: self.metadata.continuation,
        }
    }
}

/// Longest text of somebody else that is shown, in characters.
const SHOWN: usize = 400;

/// Text of somebody else as it is shown to people: one line without control characters, and not longer than 400 characters.
pub(crate) fn shortened(text: &str) -> String {
    let mut characters = text.chars();
    let shown = characters.by_ref().take(SHOWN);
    let mut line: String = shown.map(|own| if own.is_control() { ' ' } else { own }).collect();
    if characters.next().is_some() {
        line.push('…');
    }
    line
}

/// Metadata of a `Status`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct StatusMetadata {
    #[serde(default, rename = "continue")]
    pub(crate) continuation: String,
}

/// Body of the response to a GET with a success status.
pub(crate) async fn get(client: &Client, path: &str) -> Result<Body, RequestError> {
    let request = Request::get(path)
        .header(http::header::ACCEPT, JSON)
        .body(Body::from(Vec::new()))
        .map_err(|error| RequestError::Unreadable(error.to_string()))?;
    send(client, request).await
}

/// Result of a request with a client, which is dropped if a fresh one may have success.
pub(crate) fn judged<T>(
    shared: &SharedClient,
    lent: &LentClient,
    result: Result<T, RequestError>,
) -> Result<T, RequestError> {
    if result.as_ref().is_err_and(RequestError::may_pass_with_fresh_client) {
        shared.forget(lent);
    }
    result
}

/// Request that sends an object in this format.
pub(crate) fn object_request(
    method: Method,
    path: &str,
    format: &str,
    object: &Value,
) -> Result<Request<Body>, RequestError> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, format)
        .header(http::header::ACCEPT, JSON)
        .body(Body::from(object.to_string().into_bytes()))
        .map_err(|error| RequestError::Unreadable(error.to_string()))
}

/// Body of the response to a request with a success status.
pub(crate) async fn send(client: &Client, request: Request<Body>) -> Result<Body, RequestError> {
    let response = within(HEAD_TIME, client.send(request))
        .await?
        .map_err(|error| RequestError::Unreachable(causes(&error)))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let body = whole(response.into_body(), ERROR_BYTES).await.unwrap_or_default();
    let said: ApiStatus = serde_json::from_slice(&body).unwrap_or_default();
    Err(said.into_error(status.as_u16(), &status.to_string()))
}

/// Whole page that a GET returns.
pub(crate) async fn get_page(client: &Client, path: &str) -> Result<Vec<u8>, RequestError> {
    let body = get(client, path).await?;
    within(PAGE_TIME, whole(body, PAGE_BYTES)).await?
}

/// Value that a GET returns as JSON.
pub(crate) async fn get_json<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, RequestError> {
    let page = get_page(client, path).await?;
    serde_json::from_slice(&page).map_err(|error| RequestError::Unreadable(error.to_string()))
}

/// Sends an object in this format.
pub(crate) async fn send_object(
    client: &Client,
    method: Method,
    path: &str,
    format: &str,
    object: &Value,
) -> Result<(), RequestError> {
    let sent = send(client, object_request(method, path, format, object)?).await;
    sent.map(drop)
}

/// Small whole body of the response to a request.
pub(crate) async fn send_whole(client: &Client, request: Request<Body>) -> Result<Vec<u8>, RequestError> {
    whole(send(client, request).await?, RESPONSE_BYTES).await
}

/// All bytes of a body, up to a bound.
async fn whole(body: Body, most: usize) -> Result<Vec<u8>, RequestError> {
    match Limited::new(body, most).collect().await {
        Ok(collected) => Ok(collected.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(RequestError::TooLarge(most)),
        Err(error) => Err(RequestError::Unreachable(causes(&*error))),
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, RequestError> {
    let done = tokio::time::timeout(limit, work).await;
    done.map_err(|_| RequestError::TimedOut(limit.as_secs()))
}
