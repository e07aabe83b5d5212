//! Lists of a resource, page by page.

use std::fmt;

use serde::Deserialize;
use tokio::sync::mpsc;

use crate::api_client::Client;
use crate::header::kind_and_metadata;
use crate::requests::{RequestError, get_page, shortened};
use crate::resources::ResourceScope;

/// Objects on a page, as `kubectl` and controllers ask for.
const PAGE_OBJECTS: usize = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continuation: Option<String>,
}

/// Version that a page of a list shows, and the token of the next page; empty: it is the last one.
///
/// # Errors
/// The response does not prove that it is a page of a list of this resource. A gateway or an error with status 200 is not taken for
/// an empty list.
pub(crate) fn proved_page(scope: &ResourceScope, page: &[u8]) -> Result<(String, String), RequestError> {
    let unproved = |reason: String| RequestError::Unreadable(format!("it is not a list of {scope}: {reason}"));
    let (kind, metadata) = kind_and_metadata::<PageMetadata>(page)?;
    let expected = format!("{}List", scope.resource.kind.name());
    match kind {
        Some(kind) if kind == expected => {}
        Some(kind) => {
            return Err(unproved(format!(
                "its kind is `{}`, not `{expected}`",
                shortened(&kind)
            )));
        }
        None => return Err(unproved("it has no kind".to_owned())),
    }
    let PageMetadata {
        resource_version,
        continuation,
    } = metadata.unwrap_or_default();
    let version = resource_version.unwrap_or_default();
    if !is_version(&version) {
        return Err(unproved(format!("its version is `{}`", shortened(&version))));
    }
    Ok((version, continuation.unwrap_or_default()))
}

/// True for the version of an object or a list: a number above 0.
pub fn is_version(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.bytes().any(|byte| byte != b'0')
}

/// Lists a collection and hands its pages over, one ahead of the receiver. Returns the version that the list shows.
pub(crate) async fn list(
    client: &Client,
    scope: &ResourceScope,
    query: &str,
    pages: &mpsc::Sender<Vec<u8>>,
) -> Result<String, RequestError> {
    let path = scope.path();
    let mut continuation = String::new();
    let mut limit = PAGE_OBJECTS;
    let mut first_version = None;
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
        let (version, next) = proved_page(scope, &page)?;
        if *first_version.get_or_insert_with(|| version.clone()) != version {
            let reason = format!("the pages of the list of {scope} show different versions");
            return Err(RequestError::Unreadable(reason));
        }
        if !next.is_empty() && next == continuation {
            return Err(RequestError::Unreadable(format!("the list of {scope} repeats a page")));
        }
        let sent = pages.send(page).await;
        sent.map_err(|_| RequestError::Unreachable("the list is no longer wanted".to_owned()))?;
        if next.is_empty() {
            return Ok(version);
        }
        continuation = next;
    }
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
    fn a_page_proves_that_it_is_one() {
        let pods = crate::resources::scopes(&[]).pop().unwrap();
        let page = |text: &str| proved_page(&pods, text.as_bytes());
        let whole =
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"x"},"items":[]}"#;
        assert_eq!(page(whole).unwrap(), ("7".to_owned(), "x".to_owned()));
        let last = whole.replace(r#""x""#, "null");
        assert_eq!(page(&last).unwrap().1, "");
        for wrong in [
            "{}",
            r#"{"message":"try later"}"#,
            r#"{"kind":"Status","code":401,"metadata":{}}"#,
            &whole.replace("PodList", "NodeList"),
            &whole.replace(r#""7""#, r#""""#),
            &whole.replace(r#""7""#, r#""0""#),
            &whole.replace(r#""7""#, r#""latest""#),
            &whole.replace("resourceVersion", "version"),
            "<html></html>",
        ] {
            assert!(matches!(page(wrong), Err(RequestError::Unreadable(_))), "{wrong}");
        }
    }

    #[test]
    fn values_of_queries_are_escaped() {
        assert_eq!(encoded("spec.nodeName="), "spec.nodeName%3D");
        assert_eq!(encoded("a-b_c~é"), "a-b_c~%C3%A9");
    }
}
