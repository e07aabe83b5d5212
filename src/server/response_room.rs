//! Room for large responses, which is looked for before they are evaluated, and held from before they are encoded.

use std::sync::Arc;

use prost::Message;

use super::connection::CallScope;
use super::shares::HeldShare;
use super::status::RpcResult;

/// Bytes of a response from which its room is held before it is encoded.
const LARGE_BYTES: usize = 1 << 20;
/// Number of task-node pairs below which a response is never large. The length of smaller responses is not computed.
const LARGE_PAIRS: usize = 32 << 10;

/// Room for one response to a connection. A call that came over none has room.
#[derive(Debug, Default)]
pub(super) struct ResponseRoom {
    call: Option<Arc<CallScope>>,
    held: Option<HeldShare>,
}

impl ResponseRoom {
    /// Room for the response of the present task's call.
    pub(super) fn of_call() -> Self {
        Self {
            call: CallScope::current(),
            held: None,
        }
    }

    /// Takes room for a response of this many bytes, if it is a large one, before much is done for it.
    ///
    /// # Errors
    /// Too many bytes of responses wait for their callers.
    pub(super) async fn hold(&mut self, bytes: usize) -> RpcResult<()> {
        let Some(call) = &self.call else {
            return Ok(());
        };
        if bytes < LARGE_BYTES {
            return Ok(());
        }
        let share = self.held.get_or_insert_with(|| call.memory.share(&call.connection));
        let missing = bytes.saturating_sub(share.amount());
        call.memory.take(share, missing, None).await
    }

    /// Keeps room for a response until it is sent. `pairs`: task-node pairs that it may tell of.
    ///
    /// # Errors
    /// Too many bytes of responses wait for their callers.
    pub(super) async fn reserve(mut self, reply: &impl Message, pairs: usize) -> RpcResult<()> {
        if pairs >= LARGE_PAIRS {
            Box::pin(self.hold(reply.encoded_len())).await?;
        }
        if let Some((call, share)) = self.call.zip(self.held) {
            call.room.with(|room| *room = Some(share));
        }
        Ok(())
    }
}
