//! Damage to servers, their clocks and ways to the store, and to the members of the store, one after the other.

#![expect(clippy::disallowed_methods, reason = "damage lasts for a while")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::replica::{Replica, connect, feed, until};
use super::shared_store::SharedService;
use super::torture::{Arena, CALL_TIMEOUT};

/// Numbers that look random and are the same for one seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    /// One of this number of places.
    fn place(&mut self, count: usize) -> usize {
        usize::try_from(self.roll(count as u64)).unwrap()
    }
}

/// Damage of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Damage {
    /// A server is killed, and started again.
    Kill,
    /// A server is suspended.
    Pause,
    /// Nothing passes between a server and the store.
    Partition,
    /// Requests of a server reach the store, and no reply comes back.
    OneWay,
    /// The clock of a server jumps, by up to two days.
    ClockJump,
    /// A member of the etcd flushes slowly.
    SlowDisk,
    /// A member of the etcd ends because its disk is full, and comes back when there is room.
    FullDisk,
    /// A member of the etcd is killed, and started again.
    MemberKill,
}

use Damage::{ClockJump, FullDisk, Kill, MemberKill, OneWay, Partition, Pause, SlowDisk};

/// Faces of the die; kills come most often.
const CHOICES: [Damage; 10] = [
    Kill, Kill, Kill, Pause, Partition, OneWay, ClockJump, SlowDisk, FullDisk, MemberKill,
];

/// Store, servers and clients that damage is done to.
pub(super) struct Scene<'s> {
    pub(super) store: &'s mut SharedService,
    pub(super) replicas: &'s mut [Replica],
    pub(super) arena: &'s Arc<Arena>,
    pub(super) runtime: &'s Arc<Runtime>,
}

/// Does damage until the time is over, and mends it. Returns how often each kind was done.
pub(super) fn do_damage(mut scene: Scene<'_>, seed: u64, time: Duration) -> BTreeMap<Damage, u64> {
    let (mut dice, mut counts, end) = (Dice::new(seed), BTreeMap::new(), Instant::now() + time);
    while Instant::now() < end {
        let kind = CHOICES[dice.place(CHOICES.len())];
        let pause = Duration::from_millis(50 + dice.roll(400));
        // Now and then longer than the lease of a second.
        let long = Duration::from_millis(if dice.roll(3) == 0 { 1_800 } else { 100 + dice.roll(700) });
        scene.damage(kind, &mut dice, pause, long);
        *counts.entry(kind).or_default() += 1;
        std::thread::sleep(pause);
    }
    counts
}

impl Scene<'_> {
    fn damage(&mut self, kind: Damage, dice: &mut Dice, pause: Duration, long: Duration) {
        let (number, member) = (dice.place(self.replicas.len()), dice.place(self.store.members()));
        let (victim, etcd) = (&mut self.replicas[number], self.store.etcd());
        match kind {
            Kill => {
                self.arena.set_address(number, None);
                victim.process.take().unwrap().kill();
                std::thread::sleep(pause);
                self.restart(number);
            }
            Pause => {
                victim.process.as_ref().unwrap().pause();
                std::thread::sleep(long);
                victim.process.as_ref().unwrap().resume();
            }
            Partition => {
                victim.cut();
                std::thread::sleep(long);
                victim.mend();
            }
            OneWay => {
                victim.cut_replies();
                std::thread::sleep(long);
                victim.mend();
            }
            // It stays: clocks of servers differ from now on.
            ClockJump => {
                let ahead = i64::try_from(dice.roll(4 * 86_400)).unwrap() - 2 * 86_400;
                victim.clock.set_ahead(ahead);
            }
            SlowDisk => {
                etcd.slow_disk(member, Duration::from_millis(10 + dice.roll(300)));
                std::thread::sleep(long);
                etcd.mend_disk(member);
            }
            FullDisk => {
                etcd.fill_disk(member);
                until("the member writes, and ends", 20, || {
                    etcd.has_ended(member).then_some(())
                });
                std::thread::sleep(pause);
                etcd.mend_disk(member);
                etcd.restart(member);
            }
            MemberKill => {
                etcd.kill(member);
                std::thread::sleep(pause);
                etcd.restart(member);
            }
        }
        if matches!(kind, SlowDisk | FullDisk | MemberKill) {
            let etcd = self.store.etcd();
            until("the member is back", 30, || etcd.is_healthy(member).then_some(()));
        }
    }

    /// Starts a server again, and shows it to clients once it has its cluster, as readiness would.
    fn restart(&mut self, number: usize) {
        let replica = &mut self.replicas[number];
        replica.restart();
        let address = replica.grpc();
        let wire = connect(self.runtime, address, CALL_TIMEOUT).unwrap();
        feed(&wire, 1);
        self.arena.set_address(number, Some(address));
    }
}
