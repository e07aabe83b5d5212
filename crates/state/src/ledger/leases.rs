//! Leases of reservations and assumptions. Each runs on the clock of a source, which pauses while the source is silent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Ends of leases, each on the clock of its holder's source.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    /// Time for which each source was active, as of the last clock reading.
    clocks: BTreeMap<Arc<str>, Duration>,
    /// Sources that were active at the last clock reading, and sources whose leases started since then.
    heard: BTreeSet<Arc<str>>,
    /// Ends of leases in order: source, end, holder.
    ends: BTreeSet<(Arc<str>, Duration, Arc<str>)>,
    /// Source and end of the lease of each holder.
    by_holder: BTreeMap<Arc<str>, (Arc<str>, Duration)>,
    /// Time of the last look at the clock; `None`: never.
    last_check: Option<Duration>,
}

impl LeaseTable {
    /// Starts a lease, or starts it again.
    pub(crate) fn start(&mut self, job: &Arc<str>, source: &Arc<str>, lease: Duration) {
        self.stop(job);
        let now = self.clocks.entry(Arc::clone(source)).or_default();
        let end = now.saturating_add(lease);
        // Who asks for a lease is heard; the next look at the clock knows better.
        self.heard.insert(Arc::clone(source));
        self.ends.insert((Arc::clone(source), end, Arc::clone(job)));
        self.by_holder.insert(Arc::clone(job), (Arc::clone(source), end));
    }

    /// Removes a lease.
    pub(crate) fn stop(&mut self, job: &Arc<str>) {
        if let Some((source, end)) = self.by_holder.remove(job) {
            self.ends.remove(&(source, end, Arc::clone(job)));
        }
    }

    /// Advances the clocks of active sources.
    pub(crate) fn advance_clock(&mut self, now: Duration, heard: BTreeSet<Arc<str>>) {
        let since = now.saturating_sub(self.last_check.unwrap_or(now));
        self.last_check = Some(now);
        for (source, clock) in &mut self.clocks {
            // An unknown source cannot fall silent.
            if source.is_empty() || heard.contains(source) {
                *clock += since;
            }
        }
        self.heard = heard;
    }

    /// Holders of expired leases.
    pub(crate) fn expired(&self) -> Vec<Arc<str>> {
        let mut over = Vec::new();
        for (source, now) in &self.clocks {
            let from = (Arc::clone(source), Duration::ZERO, Arc::default());
            let ended = self
                .ends
                .range(from..)
                .take_while(|(of, end, _)| of == source && end <= now);
            over.extend(ended.map(|(_, _, job)| Arc::clone(job)));
        }
        over
    }

    /// Time left of a lease; `None`: it is paused, or there is none.
    pub(crate) fn remaining(&self, job: &str) -> Option<Duration> {
        let (source, end) = self.by_holder.get(job)?;
        let clock = self.clocks.get(source).copied().unwrap_or_default();
        (source.is_empty() || self.heard.contains(source)).then(|| end.saturating_sub(clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_runs_only_while_its_source_is_heard() {
        let (mut leases, kube): (_, Arc<str>) = (LeaseTable::default(), "kube".into());
        let heard = || BTreeSet::from([Arc::clone(&kube)]);
        leases.advance_clock(seconds(100), heard());
        leases.start(&"ns/a".into(), &kube, seconds(10));
        leases.start(&"ns/b".into(), &Arc::default(), seconds(10));
        let late: Arc<str> = "late".into();
        leases.start(&"ns/c".into(), &late, seconds(10));
        assert_eq!(leases.remaining("ns/c"), Some(seconds(10)), "before the next look");
        leases.stop(&"ns/c".into());
        leases.advance_clock(seconds(106), heard());
        assert_eq!((leases.remaining("ns/a"), leases.expired()), (Some(seconds(4)), vec![]));
        // One source is silent: its lease pauses, and the other runs.
        leases.advance_clock(seconds(130), BTreeSet::new());
        assert_eq!(
            (leases.remaining("ns/a"), leases.expired()),
            (None, vec!["ns/b".into()])
        );
        leases.stop(&"ns/b".into());
        leases.advance_clock(seconds(134), heard());
        assert_eq!(leases.expired(), [Arc::from("ns/a")]);
        leases.start(&"ns/a".into(), &kube, seconds(3));
        assert_eq!((leases.remaining("ns/a"), leases.expired()), (Some(seconds(3)), vec![]));
    }
}
