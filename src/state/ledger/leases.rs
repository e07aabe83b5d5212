//! Leases of reservations: they run on the clocks of sources, which stand still while a source is not heard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// When leases end, each on the clock of its job's source.
#[derive(Debug, Default)]
pub(in crate::state) struct LeaseTable {
    /// How long each source has been heard while the ledger looked.
    clocks: BTreeMap<Arc<str>, Duration>,
    /// Sources that were heard when it looked last.
    heard: BTreeSet<Arc<str>>,
    /// (source, end, job)
    ends: BTreeSet<(Arc<str>, Duration, Arc<str>)>,
    /// (source, end) by job.
    by_holder: BTreeMap<Arc<str>, (Arc<str>, Duration)>,
    /// When it looked last; `None`: never.
    last_check: Option<Duration>,
}

impl LeaseTable {
    /// A lease begins anew.
    pub(in crate::state) fn start(&mut self, job: &Arc<str>, source: &Arc<str>, lease: Duration) {
        self.stop(job);
        let now = self.clocks.entry(Arc::clone(source)).or_default();
        let end = now.saturating_add(lease);
        self.ends.insert((Arc::clone(source), end, Arc::clone(job)));
        self.by_holder.insert(Arc::clone(job), (Arc::clone(source), end));
    }

    /// There is nothing to end any more.
    pub(in crate::state) fn stop(&mut self, job: &Arc<str>) {
        if let Some((source, end)) = self.by_holder.remove(job) {
            self.ends.remove(&(source, end, Arc::clone(job)));
        }
    }

    /// Lets the time since the last look pass for the sources that are heard.
    pub(in crate::state) fn advance_clock(&mut self, now: Duration, heard: BTreeSet<Arc<str>>) {
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

    /// Jobs whose leases are over.
    pub(in crate::state) fn expired(&self) -> Vec<Arc<str>> {
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

    /// What is left of a job's lease; `None`: it stands still.
    pub(in crate::state) fn remaining(&self, job: &str) -> Option<Duration> {
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
        leases.advance_clock(seconds(106), heard());
        assert_eq!((leases.remaining("ns/a"), leases.expired()), (Some(seconds(4)), vec![]));
        // Nobody hears the source for a while: its lease stands still, the other runs.
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
