//! Lists as they arrive, read on threads of their own.

use pumice_kubernetes::object::ObjectKind;
use tokio::sync::mpsc;

use crate::cluster_watch::WatchError;
use crate::object_reader::ObjectReader;
use crate::records::{ChangeBatches, RecordChanges};
use crate::requests::RequestError;

/// Reader with the changes that it has found, and the problem of a page that cannot be read.
pub(crate) type ReadObjects = (ObjectReader, ChangeBatches, Option<RequestError>);

/// Reads a list, and hands parts of it over when they are full. Returns true if there was a page, and what is left.
pub(crate) async fn read_list(
    mut reader: ObjectReader,
    kind: ObjectKind,
    mut pages: mpsc::Receiver<Vec<u8>>,
    (mut changes, full): (ChangeBatches, mpsc::Sender<RecordChanges>),
) -> Result<(bool, ReadObjects), WatchError> {
    let mut is_shown = false;
    while let Some(page) = pages.recv().await {
        is_shown = true;
        let problem;
        (reader, changes, problem) = read_page(reader, kind, page, changes).await?;
        if problem.is_some() {
            return Ok((is_shown, (reader, changes, problem)));
        }
        for part in changes.take_full() {
            if full.send(part).await.is_err() {
                return Ok((is_shown, (reader, changes, None)));
            }
        }
    }
    Ok((is_shown, (reader, changes, None)))
}

/// Reads a page of a list on a thread of its own.
pub(crate) async fn read_page(
    mut reader: ObjectReader,
    kind: ObjectKind,
    page: Vec<u8>,
    mut changes: ChangeBatches,
) -> Result<ReadObjects, WatchError> {
    let work = move || {
        let problem = reader.read_page(kind, &page, &mut changes).err();
        (reader, changes, problem)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| WatchError::Failed(error.to_string()))
}
