//! Limits that all callers share, with a part that is kept for callers who hold little.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connection::{CallerConnection, HeldAmounts};
use super::retries::RetryTurns;
use super::status::{CallError, RpcResult};
use pumice_engine::model::ErrorCode;
use pumice_engine::short_lock::ShortLock;

/// Time after which one more rejected caller may retry: amounts are held for some milliseconds.
const TURN_TIME: Duration = Duration::from_millis(2);
/// Number of holders that give back for the sake of one caller.
const SHED_ATTEMPTS: usize = 20;
/// Delay after which a holder has given back.
const SHED_DELAY: Duration = Duration::from_millis(10);
/// Part of a limit that is kept for connections that hold little: one eighth.
const RESERVE: usize = 8;

/// Limit that all connections share.
pub(super) struct SharedLimit {
    /// Setting, such as `sessions`.
    pub(super) name: &'static str,
    /// Value of the limit.
    pub(super) limit: usize,
    /// Name and value of the limit of one connection.
    pub(super) share: (&'static str, usize),
    /// Why a connection, or all callers, hold too much.
    messages: [&'static str; 2],
    /// Amount that a connection may hold of the kept part.
    little: usize,
    held: fn(&HeldAmounts) -> &AtomicUsize,
    used: AtomicUsize,
    /// Largest amount held since the last call of `fallen`.
    peak: AtomicUsize,
    turns: ShortLock<RetryTurns>,
}

impl fmt::Debug for SharedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} of {}", self.name, self.used, self.limit)
    }
}

/// Error: an amount is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShareError {
    /// All callers together hold too much.
    Full,
    /// The connection holds too much.
    Greedy,
}

impl SharedLimit {
    /// Limit without holders. `little`: amount that a connection may hold from the reserved part.
    pub(super) fn new(
        (name, limit): (&'static str, usize),
        share: (&'static str, usize),
        messages: [&'static str; 2],
        little: usize,
        held: fn(&HeldAmounts) -> &AtomicUsize,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            limit,
            share,
            messages,
            little,
            held,
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            turns: ShortLock::default(),
        })
    }

    /// Amount that all connections hold.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Amount by which the present one is below the largest since the last call.
    pub(super) fn fallen(&self) -> usize {
        let used = self.used();
        self.peak.swap(used, Ordering::Relaxed).saturating_sub(used)
    }

    /// Rejection for an error. The retry delay grows with the number of rejected callers: of all callers, or of the
    /// connection that holds too much.
    fn rejection(&self, error: ShareError, connection: &CallerConnection) -> CallError {
        let [greedy, full] = self.messages;
        let ((name, limit), message, turns) = match error {
            ShareError::Full => ((self.name, self.limit), full, &self.turns),
            ShareError::Greedy => (self.share, greedy, &connection.turns),
        };
        let retry = turns.with(|turns| turns.next_delay(TURN_TIME, Instant::now()));
        CallError::limit_as(ErrorCode::Overloaded, name, limit, message).retry_after(retry)
    }

    fn take(&self, connection: &CallerConnection, amount: usize) -> Result<(), ShareError> {
        let held = (self.held)(&connection.held);
        let before = held.fetch_add(amount, Ordering::Relaxed);
        if before.saturating_add(amount) > self.share.1 {
            held.fetch_sub(amount, Ordering::Relaxed);
            return Err(ShareError::Greedy);
        }
        let reserve = if before < self.little { 0 } else { self.limit / RESERVE };
        let most = self.limit - reserve;
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(amount).filter(|used| *used <= most)
        });
        let Ok(used) = taken else {
            held.fetch_sub(amount, Ordering::Relaxed);
            return Err(ShareError::Full);
        };
        self.peak.fetch_max(used + amount, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, connection: &CallerConnection, amount: usize) {
        (self.held)(&connection.held).fetch_sub(amount, Ordering::Relaxed);
        self.used.fetch_sub(amount, Ordering::Relaxed);
    }
}

/// Amount of a shared limit that is held for a connection; given back when dropped.
#[derive(Debug)]
pub(super) struct HeldShare {
    limit: Arc<SharedLimit>,
    connection: Arc<CallerConnection>,
    amount: usize,
}

impl HeldShare {
    /// Share of nothing yet.
    pub(super) fn none(limit: &Arc<SharedLimit>, connection: &Arc<CallerConnection>) -> Self {
        Self {
            limit: Arc::clone(limit),
            connection: Arc::clone(connection),
            amount: 0,
        }
    }

    /// Connection that holds the share.
    pub(super) fn connection(&self) -> &CallerConnection {
        &self.connection
    }

    /// Rejection of the share's holder for an error.
    pub(super) fn rejection(&self, error: ShareError) -> CallError {
        self.limit.rejection(error, &self.connection)
    }

    /// Takes more.
    pub(super) fn grow(&mut self, amount: usize) -> Result<(), ShareError> {
        self.limit.take(&self.connection, amount)?;
        self.amount += amount;
        Ok(())
    }

    /// Takes more. Where all callers together hold too much, `shed` makes others give back: it returns false if there is nobody
    /// to do so.
    ///
    /// # Errors
    /// The amount is not available.
    pub(super) async fn grow_shedding(&mut self, amount: usize, mut shed: impl FnMut() -> bool) -> RpcResult<()> {
        for _ in 0..SHED_ATTEMPTS {
            match self.grow(amount) {
                Ok(()) => return Ok(()),
                Err(error @ ShareError::Greedy) => return Err(self.rejection(error)),
                Err(ShareError::Full) => {}
            }
            if !shed() {
                break;
            }
            sleep(SHED_DELAY).await;
        }
        Err(self.rejection(ShareError::Full))
    }

    /// Takes more, or gives back, until it is this amount.
    pub(super) fn resize(&mut self, amount: usize) -> Result<(), ShareError> {
        if amount <= self.amount {
            self.shrink_to(amount);
            return Ok(());
        }
        self.grow(amount - self.amount)
    }

    /// Gives back what is beyond this amount.
    pub(super) fn shrink_to(&mut self, amount: usize) {
        let excess = self.amount.saturating_sub(amount);
        if excess == 0 {
            return;
        }
        self.amount -= excess;
        self.limit.give_back(&self.connection, excess);
    }

    /// Bytes or places that are in use.
    pub(super) fn amount(&self) -> usize {
        self.amount
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use tonic::transport::server::TcpConnectInfo;

    use super::*;

    fn connection(number: u64) -> Arc<CallerConnection> {
        let peer = TcpConnectInfo {
            local_addr: None,
            remote_addr: None,
        };
        CallerConnection::new(number, peer)
    }

    #[test]
    fn an_eighth_is_for_connections_that_hold_little() {
        let limit = SharedLimit::new(("calls", 16), ("connection_calls", 10), ["", ""], 1, |held| &held.calls);
        let (first, second, third) = (connection(0), connection(1), connection(2));
        let take = |connection| {
            let mut share = HeldShare::none(&limit, connection);
            share.grow(1).map(|()| share)
        };
        let mut held: Vec<_> = (0..10).map(|_| take(&first).unwrap()).collect();
        assert_eq!(take(&first).unwrap_err(), ShareError::Greedy);
        held.extend((0..4).map(|_| take(&second).unwrap()));
        assert_eq!(take(&second).unwrap_err(), ShareError::Full);
        held.push(take(&third).unwrap());
        assert_eq!(take(&third).unwrap_err(), ShareError::Full);
        drop(held);
        assert_eq!(limit.used(), 0);
    }

    #[test]
    fn the_delay_before_a_retry_grows_with_the_rejections() {
        let limit = SharedLimit::new(("calls", 16), ("connection_calls", 10), ["", ""], 1, |held| &held.calls);
        let (first, second) = (connection(0), connection(1));
        let delay = |error, connection| limit.rejection(error, connection).retry_delay().unwrap();
        for error in [ShareError::Full, ShareError::Greedy] {
            let delays: Vec<_> = (0..1_000).map(|_| delay(error, &first)).collect();
            assert!(delays[999] > delays[0] + Duration::from_secs(1), "{error:?}");
        }
        assert!(
            delay(ShareError::Full, &second) > Duration::from_secs(1),
            "all callers of the limit"
        );
        assert!(
            delay(ShareError::Greedy, &second) < Duration::from_secs(1),
            "a connection that held little"
        );
    }
}
