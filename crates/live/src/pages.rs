//! Lists of a resource, page by page.

use kube_client::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::requests::{RequestError, get_page};
use crate::resource_watch::ListedObjects;

/// Objects on a page, as `kubectl` and controllers ask for.
const PAGE_OBJECTS: usize = 500;

/// Page of a list: its objects as they were written.
#[derive(Debug, Deserialize)]
struct ListPage<'b> {
    #[serde(default)]
    metadata: PageMetadata,
    /// `null`: nothing, as the API server writes it.
    #[serde(borrow, default)]
    items: Option<Vec<&'b RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    continuation: String,
}

/// Hands each object of a page over, as it was written.
pub(crate) fn each_item(page: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<(), RequestError> {
    let ListPage { items, .. } = read(page)?;
    for item in items.unwrap_or_default() {
        each(item.get().as_bytes());
    }
    Ok(())
}

fn read(page: &[u8]) -> Result<ListPage<'_>, RequestError> {
    serde_json::from_slice(page).map_err(|error| RequestError::Unreadable(error.to_string()))
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
        let metadata = read(&page)?.metadata;
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
            let _ = std::fmt::Write::write_fmt(&mut value, format_args!("%{byte:02X}"));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(page: &str) -> Result<Vec<String>, RequestError> {
        let mut items = Vec::new();
        each_item(page.as_bytes(), &mut |item| {
            items.push(String::from_utf8(item.to_vec()).unwrap());
        })?;
        Ok(items)
    }

    #[test]
    fn a_page_gives_its_objects_as_they_were_written() {
        let page =
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"a": 1.0},{"b":[]}]}"#;
        assert_eq!(items(page).unwrap(), [r#"{"a": 1.0}"#, r#"{"b":[]}"#]);
        assert_eq!(items(r#"{"metadata":{},"items":null}"#).unwrap(), [""; 0]);
        assert_eq!(items(r#"{"metadata":{}}"#).unwrap(), [""; 0]);
        assert!(matches!(items("<html>"), Err(RequestError::Unreadable(_))));
        let metadata = read(page.as_bytes()).unwrap().metadata;
        assert_eq!(
            (metadata.resource_version.as_str(), metadata.continuation.as_str()),
            ("7", "x")
        );
    }

    #[test]
    fn values_of_queries_are_escaped() {
        assert_eq!(encoded("spec.nodeName="), "spec.nodeName%3D");
        assert_eq!(encoded("a-b_c~é"), "a-b_c~%C3%A9");
    }
}
