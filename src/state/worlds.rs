//! The one published World, and waiting for a newer one.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::error::StateError;
use super::index::NodeTable;
use super::seam::Publish;
use crate::engine::derived::DerivedSet;
use crate::engine::model::View;
use crate::engine::{Derivations, PolicyInForce, Position, Revision, World};

/// How often the reclaiming thread looks whether readers have let go.
const RECLAIM_EVERY: Duration = Duration::from_millis(20);

/// Old Worlds that are held back from being dropped by a reader.
const HELD_BACK: usize = 1_024;

/// Old Worlds that wait for the reclaiming thread. If it does not keep up, the writer waits for it: a storm of changes
/// must not pile Worlds up.
const RETIRED: usize = 64;

/// The published World.
#[derive(Debug)]
pub(super) struct Worlds {
    newest: ArcSwap<World>,
    published: watch::Sender<u64>,
    retired: mpsc::SyncSender<Arc<World>>,
}

impl Publish for Worlds {
    fn newest(&self) -> Arc<World> {
        Self::newest(self)
    }

    fn publish(&self, world: World) {
        Self::publish(self, world);
    }
}

impl Worlds {
    /// Publishes an empty World as number 0.
    pub(super) fn new(epoch: u64) -> Self {
        let view = View::new(Arc::new(NodeTable::default()), 1);
        let revision = Revision { epoch, number: 0 };
        let world = World {
            revision,
            view,
            policies: Arc::new(BTreeMap::new()),
            positions: Arc::default(),
            derived: Derivations::default(),
        };
        let (retired, queue) = mpsc::sync_channel(RETIRED);
        // Without the thread, Worlds are dropped by whoever holds them last: slower, not wrong.
        drop(
            std::thread::Builder::new()
                .name("pumice-reclaim".to_owned())
                .spawn(move || reclaim(&queue)),
        );
        Self {
            newest: ArcSwap::from_pointee(world),
            published: watch::Sender::new(0),
            retired,
        }
    }

    /// The newest World.
    pub(super) fn newest(&self) -> Arc<World> {
        self.newest.load_full()
    }

    /// Makes a World the newest. To be called by the writer only.
    pub(super) fn publish(&self, mut world: World) {
        let number = world.revision.number;
        world.derived.build_on(&self.newest.load());
        let old = self.newest.swap(Arc::new(world));
        self.published.send_replace(number);
        // A closed channel gives the World back, and it is dropped here.
        drop(self.retired.send(old));
    }

    /// The newest World as soon as it is new enough.
    pub(super) async fn reach(
        &self,
        at_least: Option<Revision>,
        positions: &[Position],
        max_wait: Duration,
    ) -> Result<Arc<World>, StateError> {
        let mut published = self.published.subscribe();
        let reached = |world: &World| {
            at_least.is_none_or(|wanted| world.revision.number >= wanted.number)
                && positions.iter().all(|wanted| {
                    world
                        .positions
                        .get(&wanted.source)
                        .is_some_and(|position| position.reaches(wanted))
                })
        };
        let wait = async {
            loop {
                let world = self.newest();
                if at_least.is_some_and(|wanted| wanted.epoch != world.revision.epoch) {
                    return Err(StateError::EpochChanged {
                        epoch: world.revision.epoch,
                    });
                }
                if reached(&world) {
                    return Ok(world);
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

/// Drops old Worlds once no reader holds them.
fn reclaim(queue: &mpsc::Receiver<Arc<World>>) {
    let mut held: VecDeque<Arc<World>> = VecDeque::new();
    loop {
        match queue.recv_timeout(RECLAIM_EVERY) {
            Ok(world) => held.push_back(world),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        held.retain(|world| Arc::strong_count(world) > 1);
        while held.len() > HELD_BACK {
            held.pop_front();
        }
        if held.is_empty() {
            match queue.recv() {
                Ok(world) => held.push_back(world),
                Err(mpsc::RecvError) => return,
            }
        }
    }
}

/// Derives on a blocking thread, if there is anything to derive.
pub(super) async fn derive(
    policy: &PolicyInForce,
    work: impl FnOnce() -> DerivedSet + Send + 'static,
) -> Result<DerivedSet, StateError> {
    if !policy.policy.derives() {
        return Ok(DerivedSet::default());
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| StateError::ShuttingDown)
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

    /// Publishes so many Worlds, and looks after each how many there are.
    fn storm(worlds: &Worlds, publications: u64, most: usize) {
        let mut alive: Vec<Weak<World>> = Vec::new();
        for _ in 0..publications {
            let mut world = World::clone(&worlds.newest());
            world.revision.number += 1;
            worlds.publish(world);
            alive.push(Arc::downgrade(&worlds.newest()));
            alive.retain(|world| world.strong_count() > 0);
            assert!(alive.len() <= most, "{} Worlds", alive.len());
        }
    }

    #[test]
    fn a_storm_leaves_few_worlds_behind() {
        let worlds = Worlds::new(1);
        // Those that wait, the newest, and the few that the thread looks at.
        storm(&worlds, 20_000, RETIRED + 4);
        let held = worlds.newest();
        storm(&worlds, 20_000, RETIRED + 4);
        assert_eq!(held.revision.number, 20_000);
    }

    #[test]
    fn readers_that_let_go_of_nothing_hold_what_they_hold() {
        let worlds = Worlds::new(1);
        let mut held = Vec::new();
        for _ in 0..HELD_BACK * 2 {
            storm(&worlds, 1, 1);
            held.push(worlds.newest());
        }
        let kept: Vec<Weak<World>> = held.iter().map(Arc::downgrade).collect();
        drop(held);
        // What was held back is dropped by the thread when it looks again, and it does after every publication.
        while kept.iter().filter(|world| world.strong_count() > 0).count() > 1 {
            storm(&worlds, 1, 2);
        }
    }
}
