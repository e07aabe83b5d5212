//! Choices of cards under `corrected`: kept back whole, on a card that the job can use, and placed there.

use std::sync::Arc;

use serde_json::json;

use super::account::{Asked, TREE, cards, codes, job, node, open, queue};
use super::case::{MIXED, ONE};
use super::nodes::policy;
use pumice_engine::decide::{self, PlaceGroup, PlaceQuery, PlaceResult};
use pumice_engine::model::{ClusterState, Reservation};
use pumice_engine::plugins::capacity_card::rejection::INSUFFICIENT_CARD;
use pumice_engine::plugins::capacity_card::{CapacityConfig, CapacityState};

/// Places tasks `t0`, `t1`, … of `ns/j` on their job's terms.
fn place(cluster_state: &ClusterState, arguments: &str, count: usize) -> PlaceResult {
    let policy = policy(&format!(
        "actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments: {{{arguments}}}\n"
    ));
    let names: Vec<Arc<str>> = (0..count).map(|number| format!("ns/j/t{number}").into()).collect();
    let group = PlaceGroup {
        task: Arc::new(cluster_state.tasks().get(&names[0]).unwrap().record.clone()),
        count,
        names,
        warnings: Vec::new(),
        unevaluated: Vec::new(),
    };
    let query = PlaceQuery {
        now: None,
        job: None,
        groups: vec![Ok(group)],
        resources: Arc::clone(cluster_state.resources()),
        min_available: None,
        candidates: None,
        exclusions: Vec::new(),
        idle_only: false,
        samples: 1,
        max_pairs: u64::MAX,
    };
    decide::place(
        cluster_state,
        &policy,
        &policy.compute_plugin_states(cluster_state),
        &query,
    )
    .unwrap()
}

/// The nodes that took tasks, each once, if enough found a place.
fn placed_on(cluster_state: &ClusterState, arguments: &str, count: usize) -> Vec<Arc<str>> {
    let placing = place(cluster_state, arguments, count);
    let groups = placing.groups.iter().flatten().filter(|_| placing.placed);
    let slots = groups.flat_map(|group| group.allocated.iter().chain(&group.pipelined));
    let mut names: Vec<Arc<str>> = slots
        .map(|slot| Arc::clone(&cluster_state.node(*slot).unwrap().record.name))
        .collect();
    names.dedup();
    names
}

#[test]
fn a_gang_with_a_choice_is_tried_on_each_card_by_room_on_nodes_as_well() {
    let nodes = || vec![node("a", "A100", 2), node("h", "H100", 8)];
    let gang = job("j", "Inqueue", 4, &[("A100|H100", "Pending", ""); 4]);
    let both = vec![queue("q", r#"{"A100": 5, "H100": 5}"#)];
    let asked = open(ONE, nodes(), both.clone(), vec![gang.clone()]);
    assert_eq!(placed_on(&asked.cluster_state, "", 4), ["h".into()]);
    // Task by task it is the same card.
    let cards: Vec<Arc<str>> = asked.task("j/t0").cards.into_iter().map(|(card, _)| card).collect();
    assert_eq!(cards, ["H100".into()]);
    // So it is where nodes have the cards, and not the cores.
    let mut busy = vec![node("a", "A100", 8), node("h", "H100", 8)];
    busy[0]["allocatable"]["cpu"] = json!("3");
    let asked = open(ONE, busy, both.clone(), vec![gang.clone()]);
    assert_eq!(placed_on(&asked.cluster_state, "", 4), ["h".into()]);
    // A single H100 job may not take what the gang can use only there.
    let single = job("s", "Pending", 2, &[("H100", "Pending", ""); 2]);
    let mut asked = open(ONE, nodes(), both, vec![gang, single]);
    assert!(!asked.admit("s"));
}

#[test]
fn a_choice_is_permitted_where_one_of_its_cards_is_however_many_nodes_have_it() {
    for (quota, permitted) in [
        (r#"{"A100": 3, "H100": 5}"#, true),
        (r#"{"A100": 3, "H100": 3}"#, false),
    ] {
        for (a100, h100) in [(20, 2), (2, 2), (2, 20), (20, 20)] {
            let nodes = || vec![node("a", "A100", a100), node("h", "H100", h100)];
            for name in ["H100", "A100|H100", "H100|A100"] {
                let gang = job("j", "Pending", 4, &[(name, "Pending", ""); 4]);
                let verdict = open(ONE, nodes(), vec![queue("q", quota)], vec![gang]).ask("j");
                let said = format!("{quota}, {a100} + {h100}, {name}: {:?}", verdict.rejections);
                assert_eq!(verdict.is_permitted(), permitted, "{said}");
            }
        }
    }
}

#[test]
fn tasks_that_name_no_card_use_one_card_as_their_job_is_admitted() {
    let nodes = || vec![node("a", "A100", 2), node("h", "H100", 4)];
    let gang = |count: usize| job("j", "Inqueue", count, &vec![("", "Pending", ""); count]);
    let quota = |quota: &str| vec![queue("q", quota)];
    // Together the cards have room for five, but no one has.
    let asked = open(ONE, nodes(), quota(r#"{"A100": 2, "H100": 4}"#), vec![gang(5)]);
    assert!(!asked.ask("j").is_permitted());
    assert!(!place(&asked.cluster_state, "", 5).placed);
    let asked = open(ONE, nodes(), quota(r#"{"A100": 2, "H100": 4}"#), vec![gang(4)]);
    assert!(asked.ask("j").is_permitted());
    assert_eq!(placed_on(&asked.cluster_state, "", 4), ["h".into()]);
    let asked = open(MIXED, nodes(), quota(r#"{"A100": 2, "H100": 4}"#), vec![gang(5)]);
    assert!(asked.ask("j").is_permitted() && place(&asked.cluster_state, "mixedCards: true", 5).placed);
}

#[test]
fn cards_that_one_task_cannot_use_together_do_not_add_up() {
    let nodes = || vec![node("a", "A", 8), node("b", "B", 8)];
    let three = |name: &str, count: usize| {
        let mut job = job(name, "Pending", count, &vec![("A|B", "Pending", ""); count]);
        for task in job["tasks"].as_array_mut().unwrap() {
            task["requests"]["nvidia.com/gpu"] = json!("3");
        }
        job
    };
    let ask = |quota: &str| {
        let asked = open(MIXED, nodes(), vec![queue("q", quota)], vec![three("j", 2)]);
        asked.ask("j").is_permitted()
    };
    assert!(!ask(r#"{"A": 2, "B": 4}"#));
    assert!(ask(r#"{"A": 3, "B": 3}"#) && ask(r#"{"A": 6}"#));
    // One queue has A for it, the queue above only B: there is no card that both would give.
    let below = |name: &str, parent: &str, quota: &str| json!({"name": name, "parent": parent, "annotations": {"volcano.sh/card.quota": quota}});
    for (quota, permitted) in [(r#"{"B": 3}"#, false), (r#"{"A": 3}"#, true)] {
        for config in [
            TREE,
            CapacityConfig {
                mixed_cards: false,
                ..TREE
            },
        ] {
            let queues = vec![below("top", "root", quota), below("q", "top", r#"{"A": 3}"#)];
            let asked = open(config, nodes(), queues, vec![three("j", 1)]);
            assert_eq!(asked.ask("j").is_permitted(), permitted);
        }
    }
}

#[test]
fn a_choice_is_reserved_on_one_card_whole() {
    let nodes = || vec![node("a", "A100", 8), node("h", "H100", 8)];
    let quota = || vec![queue("q", r#"{"A100": 2, "H100": 4}"#)];
    let gang = || job("gang", "Inqueue", 3, &[("A100|H100", "Pending", ""); 3]);
    let two = |card: &'static str| job("two", "Pending", 2, &[(card, "Pending", ""); 2]);
    let ask = |config, card| open(config, nodes(), quota(), vec![gang(), two(card)]).ask("two");
    assert_eq!(codes(&ask(ONE, "H100")), [INSUFFICIENT_CARD]);
    assert!(ask(ONE, "A100").is_permitted(), "three find room on the other card");
    assert!(ask(MIXED, "H100").is_permitted(), "the gang may be on both");
    // Another choice goes where the first one need not be.
    assert!(ask(ONE, "A100|H100").is_permitted());
    let wide = vec![
        gang(),
        two("A100|H100"),
        job("three", "Pending", 1, &[("A100|H100", "Pending", "")]),
    ];
    let mut asked = open(ONE, nodes(), quota(), wide);
    assert!(
        asked.admit("two") && asked.admit("three"),
        "one is left beside the gang"
    );
}

#[test]
fn a_card_is_chosen_once_and_stored_with_the_reservation() {
    let nodes = || vec![node("a", "A100", 2), node("h", "H100", 8)];
    let quota = || vec![queue("q", r#"{"A100": 5, "H100": 5}"#)];
    let gang = |phase: &str| job("j", phase, 4, &[("A100|H100", "Pending", ""); 4]);
    // Nodes have two A100: the gang is given H100, and a session that keeps the permit counts it there.
    let mut asked = open(ONE, nodes(), quota(), vec![gang("Pending")]);
    let verdict = asked.ask("j");
    assert_eq!(cards(&verdict.min_amounts), [("H100", 4)]);
    assert!(asked.admit("j"));
    assert_eq!(cards(&asked.inqueue()), [("H100", 4)]);
    // So it is for a server that has the reservation, also when more A100 come and H100 are short.
    let row = Reservation {
        job: "ns/j".into(),
        queue: "q".into(),
        amounts: [("cpu", 4000), ("memory", 0), ("H100", 4000)]
            .map(|(name, amount)| (Arc::from(name), amount))
            .into_iter()
            .collect(),
        ..Reservation::default()
    };
    for (a100, h100) in [(2, 8), (8, 8), (8, 2)] {
        let nodes = vec![node("a", "A100", a100), node("h", "H100", h100)];
        let mut later = open(ONE, nodes, quota(), vec![gang("Pending")]).cluster_state;
        later.put_reservation(Arc::new(row.clone()));
        let asked = Asked {
            state: CapacityState::of(&later, ONE),
            cluster_state: later,
        };
        assert_eq!(cards(&asked.inqueue()), [("H100", 4)]);
        let named: Vec<Arc<str>> = asked.task("j/t0").cards.into_iter().map(|(card, _)| card).collect();
        assert_eq!(named, ["H100".into()]);
        let placed: &[Arc<str>] = if h100 < 4 { &[] } else { &["h".into()] };
        assert_eq!(placed_on(&asked.cluster_state, "", 4), placed);
        // Asked once more, it may be given the other card; that replaces the first.
        let again = cards(&asked.ask("j").min_amounts).remove(0).0.to_owned();
        assert_eq!(again, if a100 < 4 { "H100" } else { "A100" });
    }
}

#[test]
fn a_choice_is_made_once_the_job_has_begun() {
    let nodes = vec![node("a", "A100", 8), node("h", "H100", 8)];
    let begun = job(
        "begun",
        "Running",
        2,
        &[("A100|H100", "Running", "h"), ("A100|H100", "Pending", "")],
    );
    let ask = |card: &'static str| {
        let one = job("one", "Pending", 1, &[(card, "Pending", "")]);
        let quota = vec![queue("q", r#"{"A100": 1, "H100": 2}"#)];
        let asked = open(ONE, nodes.clone(), quota, vec![begun.clone(), one]);
        assert_eq!(cards(&asked.inqueue()), [("H100", 1)]);
        asked.ask("one").is_permitted()
    };
    assert!(!ask("H100") && ask("A100"));
}

#[test]
fn headroom_of_a_choice_is_that_of_one_card() {
    let nodes = vec![node("a", "A100", 8), node("h", "H100", 8)];
    let quota = vec![queue("q", r#"{"A100": 3, "H100": 4}"#)];
    let jobs = vec![job("j", "Inqueue", 1, &[("A100|H100", "Pending", "")])];
    let headroom = |config| {
        open(config, nodes.clone(), quota.clone(), jobs.clone())
            .task("j/t0")
            .headroom
    };
    assert_eq!((headroom(ONE), headroom(MIXED)), (Some(3), Some(7)));
}
