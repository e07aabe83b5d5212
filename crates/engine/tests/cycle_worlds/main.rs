//! Random worlds of queues, jobs and orders of actions, cycle by cycle: evictions serve somebody.
#![cfg(test)]

mod judge;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use judge::WorldTally;
use world::World;

/// Worlds that a plain run tries.
const FEW_WORLDS: u64 = 150;
/// Variable with another number of worlds.
const WORLDS: &str = "PUMICE_CYCLE_WORLDS";

#[test]
fn no_eviction_is_repeated_and_no_claimant_waits_for_what_is_idle() {
    let given = std::env::var_os(WORLDS).map(|given| given.into_string().unwrap().parse().unwrap());
    let worlds: u64 = given.unwrap_or(FEW_WORLDS);
    let next = AtomicU64::new(0);
    let run = || {
        let mut tally = WorldTally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= worlds {
                return tally;
            }
            World::new(seed).run(&mut tally);
        }
    };
    let tallies = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(run)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    let mut tally = WorldTally::default();
    tallies.into_iter().for_each(|own| tally.add(own));
    println!("{worlds} worlds: {tally}");
    assert_eq!(tally.violations, Vec::<String>::new());
    // The worlds are of the kind that the rule is about.
    assert!(tally.evictions > worlds, "{tally}");
    assert!(tally.served_claimants > 0, "{tally}");
}
