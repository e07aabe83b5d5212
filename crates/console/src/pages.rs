//! Listings in pages, read to their end.

use crate::CommandError;
use pumice_protocol::v1 as pb;

/// Reads all records of a listing. `page` gets the token of a page, empty for the first, and returns its records and
/// the token of the next page, empty after the last.
pub async fn all<T>(
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

/// Page of a token, of the default size of the server.
pub fn at(token: String) -> pb::Page {
    pb::Page {
        token,
        ..pb::Page::default()
    }
}

/// Large page of a token, for a listing that is read whole; a server may return fewer records.
pub fn large(token: String) -> pb::Page {
    pb::Page { size: 5_000, token }
}
