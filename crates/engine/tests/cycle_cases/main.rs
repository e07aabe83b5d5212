//! Random cases of queues, jobs and orders of actions, cycle by cycle: evictions serve somebody.
#![cfg(test)]

mod case;
mod judge;

use std::sync::atomic::{AtomicU64, Ordering};

use case::CycleCase;
use judge::CaseTally;

/// Worlds that a plain run tries.
const FEW_CASES: u64 = 150;
/// Variable with another number of cases, or with the first case and the end, such as `540..541`.
const CASES: &str = "PUMICE_CYCLE_CASES";

#[test]
fn no_eviction_is_repeated_and_no_claimant_waits_for_what_is_idle() {
    let given = std::env::var_os(CASES).map(|given| given.into_string().unwrap());
    let given = given.unwrap_or_else(|| FEW_CASES.to_string());
    let (first, end) = given.split_once("..").unwrap_or(("0", &given));
    let (first, end): (u64, u64) = (first.parse().unwrap(), end.parse().unwrap());
    let next = AtomicU64::new(first);
    let run = || {
        let mut tally = CaseTally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return tally;
            }
            CycleCase::new(seed).run(&mut tally);
        }
    };
    let tallies = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(run)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    let mut tally = CaseTally::default();
    for own in tallies {
        tally.add(own);
    }
    assert_eq!(tally.violations, Vec::<String>::new());
    // The cases are of the kind that the rule is about.
    if first == 0 {
        assert!(tally.evictions > end, "{end} cases: {tally}");
        assert!(tally.served_claimants > 0, "{tally}");
    }
}
