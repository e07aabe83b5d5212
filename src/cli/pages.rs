//! Listings that come in pages, read to their end.

use super::CommandError;
use crate::server::pb;

/// Calls `page` with the token of each page, the first one's is empty, until a reply names no next one; all records.
/// It gives the records of its page and the next one's token.
pub(super) async fn all<T>(
    mut page: impl AsyncFnMut(String) -> Result<(Vec<T>, String), CommandError>,
) -> Result<Vec<T>, CommandError> {
    let mut all = Vec::new();
    let mut token = String::new();
    loop {
        let (records, next) = page(token).await?;
        all.extend(records);
        if next.is_empty() {
            return Ok(all);
        }
        token = next;
    }
}

/// The page of that token, as large as the server gives them.
pub(super) fn at(token: String) -> pb::Page {
    pb::Page {
        token,
        ..pb::Page::default()
    }
}

/// The page of that token, of as many records as are worth a call when all are wanted; a server may give fewer.
pub(super) fn large(token: String) -> pb::Page {
    pb::Page { size: 5_000, token }
}
