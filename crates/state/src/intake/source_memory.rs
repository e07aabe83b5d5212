//! Live sources in the store: a restarted server waits for them.

use std::sync::Arc;
use std::time::Duration;

use super::batch::SourceKind;
use super::source_progress::SourceProgress;
use super::sources::SourceIntake;
use crate::store::StoreWrite;

impl SourceProgress {
    /// True if the next start must wait for the source. `is_stored`: the store already contains the source. A source
    /// stays stored during a repeated full sync.
    fn is_remembered(&self, is_stored: bool) -> bool {
        let has_synced = self.complete || (is_stored && self.heard.is_some());
        self.awaited_until.is_some() || (has_synced && self.kind == SourceKind::Live)
    }
}

impl SourceIntake {
    /// Stops waiting for sources that had synced before the start and did not come back in time; their names.
    pub(crate) fn give_up(&mut self, now: Duration) -> Vec<Arc<str>> {
        let mut given_up = Vec::new();
        for (name, source) in &mut self.by_name {
            if source.awaited_until.is_some_and(|until| until <= now) {
                source.awaited_until = None;
                given_up.push(Arc::clone(name));
            }
        }
        if !given_up.is_empty() {
            // One that was not even heard takes no place.
            let expected = &self.expected;
            let gone = |name: &Arc<str>| given_up.contains(name) && !expected.contains(name);
            self.by_name
                .retain(|name, source| source.heard.is_some() || !gone(name));
            self.publish();
        }
        given_up
    }

    /// Writes that store the sources that the next start waits for. With a shared log another server may have heard a
    /// source that this server has not, so only sources that were explicitly forgotten are removed.
    pub(crate) fn store_writes(&self, is_shared: bool) -> Vec<StoreWrite> {
        let is_remembered = |name: &Arc<str>| self.by_name.get(name).is_some_and(|source| source.is_remembered(true));
        let write = |name: &Arc<str>, is_awaited| StoreWrite::Source {
            name: Arc::clone(name),
            is_awaited,
        };
        let may_go = |name: &Arc<str>| !is_shared || self.forgotten.contains(name);
        let gone = self.stored.iter().filter(|name| !is_remembered(name) && may_go(name));
        let is_fresh =
            |(name, source): &(&Arc<str>, &SourceProgress)| !self.stored.contains(*name) && source.is_remembered(false);
        let fresh = self.by_name.iter().filter(is_fresh);
        gone.map(|name| write(name, false))
            .chain(fresh.map(|(name, _)| write(name, true)))
            .collect()
    }

    /// Records that these writes are durable.
    pub(crate) fn written(&mut self, writes: &[StoreWrite]) {
        for write in writes {
            if let StoreWrite::Source { name, is_awaited } = write {
                if *is_awaited {
                    self.stored.insert(Arc::clone(name));
                } else {
                    self.forgotten.remove(name);
                    self.stored.remove(name);
                }
            }
        }
    }
}
