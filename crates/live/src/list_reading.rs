//! Lists as they arrive, read on threads of their own.

use pumice_kubernetes::object::ObjectKind;
use tokio::sync::mpsc;

use crate::cluster_watch::WatchError;
use crate::object_reader::ObjectReader;
use crate::pages::ListedObjects;
use crate::records::{ChangeBatches, RecordChanges};
use crate::requests::RequestError;

/// Reader with the changes that it has found, and the problem of a page that cannot be read.
pub(crate) type ReadObjects = (ObjectReader, ChangeBatches, Option<RequestError>);

/// Reads a list, and hands parts of it over when they are full. Returns what is left.
pub(crate) async fn read_list(
    mut reader: ObjectReader,
    kind: ObjectKind,
    mut objects: mpsc::Receiver<ListedObjects>,
    (mut changes, full): (ChangeBatches, mpsc::Sender<RecordChanges>),
) -> Result<ReadObjects, WatchError> {
    while let Some(listed) = objects.recv().await {
        let problem;
        (reader, changes, problem) = read_listed(reader, kind, listed, changes).await?;
        if problem.is_some() {
            return Ok((reader, changes, problem));
        }
        for part in changes.take_full() {
            if full.send(part).await.is_err() {
                return Ok((reader, changes, None));
            }
        }
    }
    Ok((reader, changes, None))
}

/// Reads listed objects on a thread of their own.
pub(crate) async fn read_listed(
    mut reader: ObjectReader,
    kind: ObjectKind,
    listed: ListedObjects,
    mut changes: ChangeBatches,
) -> Result<ReadObjects, WatchError> {
    let work = move || {
        let problem = match &listed {
            ListedObjects::Page(page) => reader.read_page(kind, page, &mut changes).err(),
            ListedObjects::Objects(objects) => {
                for object in objects {
                    reader.read(kind, false, object, &mut changes);
                }
                None
            }
        };
        (reader, changes, problem)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| WatchError::Failed(error.to_string()))
}
