//! Room for large responses, which is looked for before they are evaluated, and held from before they are encoded.

use std::sync::Arc;

use axum::http::Extensions;
use prost::Message;
use pumice_engine::short_lock::ShortLock;
use tonic::Response;

use super::connection::CallerConnection;
use super::response_body::BodySender;
use super::shares::HeldShare;
use super::status::CallError;

/// Bytes of a response from which its room is held before it is encoded.
const LARGE_BYTES: usize = 1 << 20;
/// Number of task-node pairs below which a response is never large. The length of smaller responses is not computed.
const LARGE_PAIRS: usize = 32 << 10;

/// Room for one response to a connection. A call that came over none has room.
#[derive(Debug, Default)]
pub(super) struct ResponseRoom {
    sender: Option<ResponseSender>,
    held: Option<HeldShare>,
}

/// Sender of the responses of one connection, among the extensions of its requests.
#[derive(Clone, Debug)]
pub(super) struct ResponseSender {
    pub(super) sender: Arc<BodySender>,
    pub(super) connection: Arc<CallerConnection>,
}

/// Room that a response holds, among its extensions.
#[derive(Clone, Debug)]
pub(super) struct ReservedRoom(Arc<ShortLock<Option<HeldShare>>>);

impl ReservedRoom {
    /// Room of a response, which its sender takes over.
    pub(super) fn take(extensions: &mut Extensions) -> Option<HeldShare> {
        let Self(share) = extensions.remove()?;
        share.with(Option::take)
    }
}

impl ResponseRoom {
    /// Room for the response of a call.
    pub(super) fn of(extensions: &Extensions) -> Self {
        Self {
            sender: extensions.get().cloned(),
            held: None,
        }
    }

    /// Takes room for a response of this many bytes, if it is a large one, before much is done for it.
    ///
    /// # Errors
    /// Too many bytes of responses wait for their callers.
    pub(super) async fn hold(&mut self, bytes: usize) -> Result<(), CallError> {
        let Some(ResponseSender { sender, connection }) = &self.sender else {
            return Ok(());
        };
        if bytes < LARGE_BYTES {
            return Ok(());
        }
        let share = self
            .held
            .get_or_insert_with(|| HeldShare::none(&sender.bytes, connection));
        let missing = bytes.saturating_sub(share.amount());
        sender.make_room(share, missing, connection).await
    }

    /// Response that holds its room from now on. `pairs`: task-node pairs that it may tell of.
    ///
    /// # Errors
    /// Too many bytes of responses wait for their callers.
    pub(super) async fn reserve<T: Message>(mut self, reply: T, pairs: usize) -> Result<Response<T>, CallError> {
        if pairs >= LARGE_PAIRS {
            self.hold(reply.encoded_len()).await?;
        }
        let mut response = Response::new(reply);
        if let Some(share) = self.held {
            let reserved = ReservedRoom(Arc::new(ShortLock::new(Some(share))));
            response.extensions_mut().insert(reserved);
        }
        Ok(response)
    }
}
