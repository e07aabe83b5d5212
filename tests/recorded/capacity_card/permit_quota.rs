//! Promise of permits under `corrected`: no quota is broken, whatever is requested in whatever order.

use proptest::prelude::*;
use serde_json::json;

use super::case::cluster_state;
use pumice_engine::plugins::capacity_card::{CapacityConfig, CapacityState, CardVotes as _};

const CARDS: [&str; 3] = ["A", "B", "C"];

fn choice(set: usize) -> String {
    let cards: Vec<&str> = (0..3)
        .filter(|card| set >> card & 1 == 1)
        .map(|card| CARDS[card])
        .collect();
    cards.join("|")
}

proptest! {
    /// Permits reserve at most the quota of each card, and are refused only where no card of the job has as many left.
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
        let mut state = CapacityState::of(&cluster_state, CapacityConfig::default());
        let mut left = quota;
        for (number, (set, cards)) in jobs.iter().enumerate() {
            let record = &cluster_state.jobs().get(&format!("ns/j{number}")).unwrap().record;
            let verdict = state.permit(&cluster_state, record).unwrap();
            // Each in turn takes the first of its cards that has as many left.
            let first = (0..3).find(|card| set >> card & 1 == 1 && left[*card] >= *cards);
            prop_assert_eq!(verdict.is_permitted(), first.is_some(), "{:?}", verdict.rejections);
            if let Some(first) = first {
                left[first] -= cards;
            }
            let inqueue = &state.account("q").unwrap().inqueue;
            let reserved = ["A", "B", "C"].map(|card| i64::try_from(inqueue.card_or_zero(card) / 1000).unwrap());
            prop_assert_eq!(reserved, [0, 1, 2].map(|card| quota[card] - left[card]));
        }
        // Releasing these permits leaves nothing behind.
        state.end_tentative();
        prop_assert!(state.account("q").unwrap().inqueue.is_zero());
    }
}
