//! Promise of permits under `corrected`: no quota is broken, whatever is requested in whatever order.

use proptest::prelude::*;
use serde_json::json;

use super::case::cluster_state;
use pumice_engine::plugins::capacity_card::{CapacityConfig, CapacityState};
use pumice_engine::policy::Compatibility;

const CARDS: [&str; 3] = ["A", "B", "C"];

fn choice(set: usize) -> String {
    let cards: Vec<&str> = (0..3)
        .filter(|card| set >> card & 1 == 1)
        .map(|card| CARDS[card])
        .collect();
    cards.join("|")
}

proptest! {
    /// For any set of cards, jobs that must use one of them reserve at most the queue's quota of the set.
    #[test]
    fn all_permits_fit_the_quotas_together(
        quota in prop::array::uniform3(0_i64..6),
        jobs in prop::collection::vec((1_usize..8, 1_i64..4), 1..12),
    ) {
        let records: Vec<_> = jobs
            .iter()
            .enumerate()
            .map(|(number, (set, cards))| {
                let request = json!({choice(*set): cards}).to_string();
                json!({"uid": format!("ns/j{number}"), "queue": "q", "phase": "Pending", "min_member": 1,
                    "annotations": {"volcano.sh/card.request": request}, "min_resources": {}})
            })
            .collect();
        let quotas = json!({"A": quota[0], "B": quota[1], "C": quota[2]}).to_string();
        let queue = json!({"name": "q", "annotations": {"volcano.sh/card.quota": quotas}});
        let cluster_state = cluster_state(&json!({"queues": [queue], "jobs": records}));
        let mut state = CapacityState::of(&cluster_state, CapacityConfig::default(), Compatibility::Corrected);
        let mut permitted = Vec::new();
        for (number, job) in jobs.iter().enumerate() {
            let record = &cluster_state.jobs().get(&format!("ns/j{number}")).unwrap().record;
            let verdict = state.vote_job(&cluster_state, record).unwrap();
            if verdict.is_permitted() {
                state.reserve(&cluster_state, record, &verdict).unwrap();
                permitted.push(*job);
            } else {
                // No rejection without need: no card alone has headroom besides the reservations that must stay on it.
                let room = |card: usize| {
                    let others: i64 = permitted.iter().filter(|(set, _)| *set == 1 << card).map(|(_, cards)| cards).sum();
                    quota[card] - others
                };
                let alone = permitted.iter().all(|(set, _)| set.is_power_of_two());
                let fits = (0..3).any(|card| job.0 >> card & 1 == 1 && job.1 <= room(card));
                prop_assert!(!(alone && fits));
            }
        }
        for set in 1_usize..8 {
            let room: i64 = (0..3).filter(|card| set >> card & 1 == 1).map(|card| quota[card]).sum();
            let inside: i64 = permitted.iter().filter(|(cards, _)| cards & !set == 0).map(|(_, cards)| cards).sum();
            prop_assert!(inside <= room, "{permitted:?} in {quota:?}");
        }
        // Releasing these permits leaves nothing behind.
        state.end_tentative();
        prop_assert!(state.account("q").unwrap().inqueue.is_zero());
    }
}
