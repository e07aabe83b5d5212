//! Lists of a resource, page by page.

use std::fmt;

use serde::Deserialize;
use tokio::sync::mpsc;

use crate::api_client::Client;
use crate::header::metadata;
use crate::requests::{RequestError, get_page};

/// Objects on a page, as `kubectl` and controllers ask for.
const PAGE_OBJECTS: usize = 500;

/// Objects of a list.
#[derive(Debug)]
pub(crate) enum ListedObjects {
    /// Page of the API server.
    Page(Vec<u8>),
    /// Objects of a streamed list.
    Objects(Vec<Vec<u8>>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    continuation: String,
}

/// Lists a collection and hands its pages over, one ahead of the receiver. Returns the version that the list shows.
pub(crate) async fn list(
    client: &Client,
    path: &str,
    query: &str,
    pages: &mpsc::Sender<ListedObjects>,
) -> Result<String, RequestError> {
    let mut continuation = String::new();
    let mut limit = PAGE_OBJECTS;
    loop {
        let and = if query.is_empty() { "" } else { "&" };
        let uri = format!("{path}?{query}{and}limit={limit}&continue={}", encoded(&continuation));
        let page = match get_page(client, &uri).await {
            // Objects may be large: fewer of them fit.
            Err(RequestError::TooLarge(_)) if limit > 1 => {
                limit = (limit / 4).max(1);
                continue;
            }
            page => page?,
        };
        let metadata: PageMetadata = metadata(&page)?;
        hand_over(pages, ListedObjects::Page(page)).await?;
        if metadata.continuation.is_empty() {
            return Ok(metadata.resource_version);
        }
        continuation = metadata.continuation;
    }
}

/// Hands objects of a list over.
pub(crate) async fn hand_over(
    receiver: &mpsc::Sender<ListedObjects>,
    objects: ListedObjects,
) -> Result<(), RequestError> {
    let sent = receiver.send(objects).await;
    sent.map_err(|_| RequestError::Unreachable("the list is no longer wanted".to_owned()))
}

/// Text as a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            value.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = fmt::Write::write_fmt(&mut value, format_args!("%{byte:02X}"));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_queries_are_escaped() {
        assert_eq!(encoded("spec.nodeName="), "spec.nodeName%3D");
        assert_eq!(encoded("a-b_c~é"), "a-b_c~%C3%A9");
    }
}
