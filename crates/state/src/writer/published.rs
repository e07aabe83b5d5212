//! Published snapshot, and waiting for a newer one.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::node_table::NodeTable;
use super::ports::SnapshotPublisher;
use crate::error::StateError;
use pumice_engine::model::ClusterState;
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::{PluginStateCache, PolicyInForce, Revision, Snapshot, SourcePosition};

/// Period at which the reclaiming thread checks whether readers have dropped old snapshots.
const RECLAIM_EVERY: Duration = Duration::from_millis(20);

/// Maximum number of old snapshots that the reclaiming thread holds. It drops them in place of readers.
const MAX_HELD_BACK: usize = 1_024;

/// Maximum number of old snapshots that wait for the reclaiming thread. Beyond that the writer waits: a storm of changes must not
/// pile snapshots up.
const MAX_RETIRED: usize = 64;

/// Newest snapshot and its waiters.
#[derive(Debug)]
pub(crate) struct PublishedSnapshot {
    newest: ArcSwap<Snapshot>,
    published: watch::Sender<u64>,
    retired: mpsc::SyncSender<Arc<Snapshot>>,
}

impl PublishedSnapshot {
    /// Publishes an empty snapshot with revision number 0.
    pub(crate) fn new(epoch: u64) -> Self {
        let cluster_state = ClusterState::new(Arc::new(NodeTable::default()), 1);
        let revision = Revision { epoch, number: 0 };
        let snapshot = Snapshot {
            revision,
            state: cluster_state,
            policies: Arc::new(BTreeMap::new()),
            positions: Arc::default(),
            plugin_state_cache: PluginStateCache::default(),
        };
        let (retired, queue) = mpsc::sync_channel(MAX_RETIRED);
        // Without the thread, the last reader of a snapshot drops it: slower, but correct.
        drop(
            std::thread::Builder::new()
                .name("pumice-reclaim".to_owned())
                .spawn(move || reclaim(&queue)),
        );
        Self {
            newest: ArcSwap::from_pointee(snapshot),
            published: watch::Sender::new(0),
            retired,
        }
    }

    /// Waits for a snapshot that is new enough.
    pub(crate) async fn wait_for(
        &self,
        at_least: Option<Revision>,
        positions: &[SourcePosition],
        max_wait: Duration,
    ) -> Result<Arc<Snapshot>, StateError> {
        let mut published = self.published.subscribe();
        let reached = |snapshot: &Snapshot| {
            at_least.is_none_or(|wanted| snapshot.revision.number >= wanted.number)
                && positions.iter().all(|wanted| {
                    snapshot
                        .positions
                        .get(&wanted.source)
                        .is_some_and(|position| position.reaches(wanted))
                })
        };
        let wait = async {
            loop {
                let snapshot = self.newest();
                if at_least.is_some_and(|wanted| wanted.epoch != snapshot.revision.epoch) {
                    return Err(StateError::EpochChanged {
                        epoch: snapshot.revision.epoch,
                    });
                }
                if reached(&snapshot) {
                    return Ok(snapshot);
                }
                if published.changed().await.is_err() {
                    return Err(StateError::ShuttingDown);
                }
            }
        };
        match tokio::time::timeout(max_wait, wait).await {
            Ok(done) => done,
            Err(_) => Err(StateError::NotReached {
                newest: self.newest().revision,
            }),
        }
    }
}

impl SnapshotPublisher for PublishedSnapshot {
    fn newest(&self) -> Arc<Snapshot> {
        self.newest.load_full()
    }

    fn publish(&self, mut snapshot: Snapshot) {
        let number = snapshot.revision.number;
        snapshot.plugin_state_cache.reuse_from(&self.newest.load());
        let old = self.newest.swap(Arc::new(snapshot));
        self.published.send_replace(number);
        // A closed channel returns the snapshot, which is then dropped here.
        drop(self.retired.send(old));
    }
}

/// Drops old snapshots once no reader holds them.
fn reclaim(queue: &mpsc::Receiver<Arc<Snapshot>>) {
    let mut held: VecDeque<Arc<Snapshot>> = VecDeque::new();
    loop {
        match queue.recv_timeout(RECLAIM_EVERY) {
            Ok(snapshot) => held.push_back(snapshot),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        held.retain(|snapshot| Arc::strong_count(snapshot) > 1);
        while held.len() > MAX_HELD_BACK {
            held.pop_front();
        }
        if held.is_empty() {
            match queue.recv() {
                Ok(snapshot) => held.push_back(snapshot),
                Err(mpsc::RecvError) => return,
            }
        }
    }
}

/// Computes plugin states on a blocking thread, if there is anything to compute.
pub(crate) async fn derive_plugin_states(
    policy: &PolicyInForce,
    work: impl FnOnce() -> PluginStates + Send + 'static,
) -> Result<PluginStates, StateError> {
    if !policy.policy.has_plugin_state() {
        return Ok(PluginStates::default());
    }
    crate::tasks::run_blocking(work)
        .await
        .map_err(|_| StateError::ShuttingDown)
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

    /// Publishes this many snapshots, and checks after each how many are alive.
    fn storm(snapshots: &PublishedSnapshot, publications: u64, most: usize) {
        let mut alive: Vec<Weak<Snapshot>> = Vec::new();
        for _ in 0..publications {
            let mut snapshot = Snapshot::clone(&snapshots.newest());
            snapshot.revision.number += 1;
            snapshots.publish(snapshot);
            alive.push(Arc::downgrade(&snapshots.newest()));
            alive.retain(|snapshot| snapshot.strong_count() > 0);
            assert!(alive.len() <= most, "{} Worlds", alive.len());
        }
    }

    #[test]
    fn a_storm_leaves_few_snapshots_behind() {
        let snapshots = PublishedSnapshot::new(1);
        // At most those that wait, the newest, and the few that the thread holds are alive.
        storm(&snapshots, 20_000, MAX_RETIRED + 4);
        let held = snapshots.newest();
        storm(&snapshots, 20_000, MAX_RETIRED + 4);
        assert_eq!(held.revision.number, 20_000);
    }

    #[test]
    fn readers_that_release_nothing_keep_their_snapshots() {
        let snapshots = PublishedSnapshot::new(1);
        let mut held = Vec::new();
        for _ in 0..MAX_HELD_BACK * 2 {
            storm(&snapshots, 1, 1);
            held.push(snapshots.newest());
        }
        let references: Vec<Weak<Snapshot>> = held.iter().map(Arc::downgrade).collect();
        drop(held);
        // The thread drops held snapshots at its next check, which follows every publication.
        while references.iter().filter(|snapshot| snapshot.strong_count() > 0).count() > 1 {
            storm(&snapshots, 1, 2);
        }
    }
}
