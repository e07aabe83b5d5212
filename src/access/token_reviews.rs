//! Verdicts on tokens of service accounts: requested from the API server, and cached for a short time.
//!
//! A verdict on a valid token is cached for [`HELD_TIME`], a verdict on an invalid token for [`REJECTED_TIME`], and at
//! most [`MAX_VERDICTS`] verdicts are cached. All calls with the same token share one request. The number of concurrent
//! requests is limited, and each peer has a share of it. Waiting calls do not block threads.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pumice_engine::short_lock::ShortLock;
use pumice_live::{ClusterAccess, TokenReviewer, TokenVerdict};
use pumice_state::peer_of;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::identities::TokenDigest;
use crate::telemetry::{LogText, Metrics, WarningGate};

/// Time for which a token that holds is not asked about again: as long a revoked token may go on.
const HELD_TIME: Duration = Duration::from_mins(1);
/// Time for which a token that does not hold is not asked about again.
const REJECTED_TIME: Duration = Duration::from_secs(5);
/// Maximum number of verdicts.
const MAX_VERDICTS: usize = 4_096;
/// Maximum number of requests to the API server at a time.
const MAX_REQUESTS: usize = 8;
/// Maximum number of requests for callers of one address at a time: others find the API server free.
const MAX_REQUESTS_OF_PEER: usize = MAX_REQUESTS / 2;
/// Maximum number of calls that wait for a verdict.
const MAX_WAITING: usize = 512;
/// Maximum number of calls from one address that wait for a verdict.
const MAX_WAITING_OF_PEER: usize = MAX_WAITING / 4;
/// Time that a call waits for a verdict, with the requests before its own.
const WAIT_TIME: Duration = Duration::from_secs(10);
/// Longest token that is asked about, in bytes.
const TOKEN_BYTES: usize = 16 << 10;

/// Verdict on a token, and the time until which it is cached.
#[derive(Clone, Debug)]
pub(super) struct CachedVerdict {
    pub(super) verdict: Arc<TokenVerdict>,
    until: Instant,
}

impl CachedVerdict {
    /// True if the verdict has not expired.
    pub(super) fn counts(&self) -> bool {
        Instant::now() < self.until
    }

    /// Rank by which verdicts make room for others: rejections first, then the oldest.
    fn rank(&self) -> (bool, Instant) {
        (matches!(*self.verdict, TokenVerdict::Account(_)), self.until)
    }
}

#[derive(Debug)]
enum ReviewEntry {
    Cached(CachedVerdict),
    /// Another call asks; it ends its side when it is done.
    Asking(watch::Receiver<()>),
}

/// State of a token at a look.
enum ReviewLook {
    Cached(CachedVerdict),
    Wait(watch::Receiver<()>),
    Ask(watch::Sender<()>),
}

/// Verdicts on tokens.
#[derive(Debug)]
pub(super) struct TokenReviews {
    reviewer: TokenReviewer,
    entries: ShortLock<BTreeMap<TokenDigest, ReviewEntry>>,
    requests: Semaphore,
    peers: ShortLock<Peers>,
    metrics: Arc<Metrics>,
    failures: WarningGate,
}

/// Address or network of a caller; `None`: the Unix socket.
type Peer = Option<IpAddr>;

/// Shares of peers whose calls wait.
#[derive(Debug, Default)]
struct Peers {
    waiting: usize,
    shares: BTreeMap<Peer, PeerShare>,
}

/// Calls of one peer that wait, and its requests.
#[derive(Debug)]
struct PeerShare {
    waiting: usize,
    requests: Arc<Semaphore>,
}

/// Review that is under way; without a verdict at its end others ask again.
struct OpenReview<'r> {
    reviews: &'r TokenReviews,
    key: TokenDigest,
    verdict: Option<CachedVerdict>,
    /// Ends the waiting of others when it is dropped.
    _done: watch::Sender<()>,
}

impl Drop for OpenReview<'_> {
    fn drop(&mut self) {
        let verdict = self.verdict.take();
        let gone = self.reviews.entries.with(|entries| match verdict {
            Some(cached) => entries.insert(self.key, ReviewEntry::Cached(cached)),
            None => entries.remove(&self.key),
        });
        drop(gone);
    }
}

/// Place of a call that waits.
struct ReviewPlace<'r> {
    peers: &'r ShortLock<Peers>,
    peer: Peer,
    /// Requests of the peer.
    requests: Arc<Semaphore>,
}

impl<'r> ReviewPlace<'r> {
    /// Takes a place for a call of a peer.
    ///
    /// # Errors
    /// Too many calls wait.
    fn take(peers: &'r ShortLock<Peers>, peer: Peer) -> Result<Self, String> {
        let requests = peers.with(|own| {
            let of_peer = own.shares.get(&peer).map_or(0, |share| share.waiting);
            if own.waiting >= MAX_WAITING || of_peer >= MAX_WAITING_OF_PEER {
                let waiting = if own.waiting >= MAX_WAITING {
                    own.waiting
                } else {
                    of_peer
                };
                return Err(format!("{waiting} calls wait for verdicts on tokens already"));
            }
            own.waiting += 1;
            let share = own.shares.entry(peer).or_insert_with(|| PeerShare {
                waiting: 0,
                requests: Arc::new(Semaphore::new(MAX_REQUESTS_OF_PEER)),
            });
            share.waiting += 1;
            Ok(Arc::clone(&share.requests))
        })?;
        Ok(Self { peers, peer, requests })
    }
}

impl Drop for ReviewPlace<'_> {
    fn drop(&mut self) {
        self.peers.with(|own| {
            own.waiting = own.waiting.saturating_sub(1);
            if let Some(share) = own.shares.get_mut(&self.peer) {
                share.waiting = share.waiting.saturating_sub(1);
                if share.waiting == 0 {
                    own.shares.remove(&self.peer);
                }
            }
        });
    }
}

/// True if a token has the form of one of a service account: a signed JWT.
pub(super) fn is_reviewable(token: &str) -> bool {
    let is_part = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !part.is_empty() && part.bytes().all(plain)
    };
    token.len() <= TOKEN_BYTES && token.split('.').count() == 3 && token.split('.').all(is_part)
}

/// Key of a verdict: for another audience another one.
fn key(token: &TokenDigest, audiences: &[Arc<str>]) -> TokenDigest {
    let mut hash = Sha256::new();
    hash.update(token);
    for audience in audiences {
        hash.update([0]);
        hash.update(audience.as_bytes());
    }
    hash.finalize().into()
}

impl TokenReviews {
    pub(super) fn new(access: ClusterAccess, metrics: Arc<Metrics>) -> Self {
        Self {
            reviewer: TokenReviewer::new(access),
            entries: ShortLock::default(),
            requests: Semaphore::new(MAX_REQUESTS),
            peers: ShortLock::default(),
            metrics,
            failures: WarningGate::new(),
        }
    }

    /// Verdict on a token that is cached.
    pub(super) fn cached(&self, digest: &TokenDigest, audiences: &[Arc<str>]) -> Option<CachedVerdict> {
        let key = key(digest, audiences);
        self.entries.with(|entries| match entries.get(&key) {
            Some(ReviewEntry::Cached(cached)) if cached.counts() => Some(cached.clone()),
            Some(_) | None => None,
        })
    }

    /// Verdict on a token of a caller at an address, cached or asked.
    ///
    /// # Errors
    /// The API server gives none in time, or too many calls wait for one. The text has nothing of what the API server says: the caller
    /// may be anybody.
    pub(super) async fn verdict(
        &self,
        address: Option<IpAddr>,
        (digest, token): (&TokenDigest, &str),
        audiences: &[Arc<str>],
    ) -> Result<CachedVerdict, String> {
        let place = ReviewPlace::take(&self.peers, address.map(peer_of))?;
        let found = self.find(key(digest, audiences), token, audiences, &place.requests);
        let found = tokio::time::timeout(WAIT_TIME, found).await;
        drop(place);
        found.unwrap_or_else(|_| {
            Err(format!(
                "it gave no verdict within {} s, in which it was asked about other tokens",
                WAIT_TIME.as_secs()
            ))
        })
    }

    async fn find(
        &self,
        key: TokenDigest,
        token: &str,
        audiences: &[Arc<str>],
        of_peer: &Semaphore,
    ) -> Result<CachedVerdict, String> {
        loop {
            match self.look(key) {
                ReviewLook::Cached(cached) => return Ok(cached),
                // An error says that the other call is done, or has gone.
                ReviewLook::Wait(mut asking) => {
                    let _ = asking.changed().await;
                }
                ReviewLook::Ask(done) => {
                    let review = OpenReview {
                        reviews: self,
                        key,
                        verdict: None,
                        _done: done,
                    };
                    return self.ask(review, token, audiences, of_peer).await;
                }
            }
        }
    }

    fn look(&self, key: TokenDigest) -> ReviewLook {
        self.entries.with(|entries| {
            match entries.get(&key) {
                Some(ReviewEntry::Cached(cached)) if cached.counts() => return ReviewLook::Cached(cached.clone()),
                Some(ReviewEntry::Asking(asking)) => return ReviewLook::Wait(asking.clone()),
                Some(ReviewEntry::Cached(_)) | None => {}
            }
            make_room(entries);
            let (done, asking) = watch::channel(());
            entries.insert(key, ReviewEntry::Asking(asking));
            ReviewLook::Ask(done)
        })
    }

    async fn ask(
        &self,
        mut review: OpenReview<'_>,
        token: &str,
        audiences: &[Arc<str>],
        of_peer: &Semaphore,
    ) -> Result<CachedVerdict, String> {
        // The peer's own places first: a call that waits for one of them is in nobody's way.
        let own = of_peer.acquire().await.map_err(|error| error.to_string())?;
        let place = self.requests.acquire().await.map_err(|error| error.to_string())?;
        let reviewed = self.reviewer.review(token, audiences).await;
        drop((own, place));
        self.metrics.security.record_token_review(reviewed.as_ref().ok());
        let verdict = reviewed.map_err(|error| {
            if let Some(suppressed) = self.failures.pass() {
                let error = error.to_string();
                tracing::warn!(error = %LogText(&error), suppressed, "a token cannot be verified");
            }
            "the API server of the cluster verifies no tokens now; the log of this server says why".to_owned()
        })?;
        let time = match verdict {
            TokenVerdict::Account(_) => HELD_TIME,
            TokenVerdict::Rejected(_) => REJECTED_TIME,
        };
        let cached = CachedVerdict {
            verdict: Arc::new(verdict),
            until: Instant::now() + time,
        };
        review.verdict = Some(cached.clone());
        Ok(cached)
    }
}

/// Makes room for one more entry.
fn make_room(entries: &mut BTreeMap<TokenDigest, ReviewEntry>) {
    if entries.len() < MAX_VERDICTS {
        return;
    }
    entries.retain(|_, entry| match entry {
        ReviewEntry::Cached(cached) => cached.counts(),
        ReviewEntry::Asking(_) => true,
    });
    while entries.len() >= MAX_VERDICTS {
        let cached = entries.iter().filter_map(|(key, entry)| match entry {
            ReviewEntry::Cached(cached) => Some((cached.rank(), *key)),
            ReviewEntry::Asking(_) => None,
        });
        // Calls that ask are fewer than verdicts, since few may wait.
        let Some((_, oldest)) = cached.min() else { return };
        entries.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signed_tokens_are_asked_about() {
        assert!(is_reviewable("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln-_"));
        for other in ["", "a.b", "a.b.c.d", "a..c", "a.b.c ", "a.b.\u{e9}", "0123456789abcdef"] {
            assert!(!is_reviewable(other), "{other}");
        }
        assert!(!is_reviewable(&format!("a.b.{}", "c".repeat(TOKEN_BYTES))));
    }

    fn digest(number: usize) -> TokenDigest {
        Sha256::digest(number.to_le_bytes()).into()
    }

    fn cached(verdict: TokenVerdict, until: Instant) -> ReviewEntry {
        ReviewEntry::Cached(CachedVerdict {
            verdict: Arc::new(verdict),
            until,
        })
    }

    /// Full table, half of it accounts until a time and half of it rejections for longer.
    fn full(accounts_until: Instant) -> BTreeMap<TokenDigest, ReviewEntry> {
        let later = Instant::now() + Duration::from_mins(5);
        let entry = |number: usize| {
            let verdict = if number.is_multiple_of(2) {
                cached(TokenVerdict::Account("ns/a".to_owned()), accounts_until)
            } else {
                cached(TokenVerdict::Rejected(String::new()), later)
            };
            (digest(number), verdict)
        };
        (0..MAX_VERDICTS).map(entry).collect()
    }

    fn accounts(entries: &BTreeMap<TokenDigest, ReviewEntry>) -> usize {
        let is_account = |entry: &&ReviewEntry| match entry {
            ReviewEntry::Cached(cached) => cached.rank().0,
            ReviewEntry::Asking(_) => false,
        };
        entries.values().filter(is_account).count()
    }

    #[test]
    fn verdicts_are_few_and_rejections_make_room_first() {
        let mut entries = full(Instant::now() + Duration::from_mins(1));
        make_room(&mut entries);
        assert_eq!(
            (entries.len(), accounts(&entries)),
            (MAX_VERDICTS - 1, MAX_VERDICTS / 2)
        );
        // Verdicts whose time is over go together.
        let mut entries = full(Instant::now());
        make_room(&mut entries);
        assert_eq!((entries.len(), accounts(&entries)), (MAX_VERDICTS / 2, 0));
    }
    #[test]
    fn a_peer_takes_its_share_of_places_and_no_more() {
        let peers = ShortLock::default();
        let peer = |text: &str| Some(peer_of(text.parse().unwrap()));
        let one: Vec<_> = (0..MAX_WAITING_OF_PEER)
            .map(|number| ReviewPlace::take(&peers, peer(&format!("2001:db8::{number:x}"))).unwrap())
            .collect();
        let refused = ReviewPlace::take(&peers, peer("2001:db8::ffff")).map(drop).unwrap_err();
        assert!(refused.contains("128 calls wait"), "{refused}");
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        let other = ReviewPlace::take(&peers, peer("2001:db8:0:1::1")).unwrap();
        assert_eq!(other.requests.available_permits(), MAX_REQUESTS_OF_PEER);
        drop((one, other));
        peers.with(|own| assert_eq!((own.waiting, own.shares.len()), (0, 0)));
    }
}
