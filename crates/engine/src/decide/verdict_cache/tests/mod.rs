//! Results with a cache equal those without one, to the last bit.

pub(in crate::decide) mod fixtures;

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;

use self::fixtures::{AskedQuery, ClusterChange, DOCUMENTS, NAMES, all_classes, cluster, form, place, policy, results};
use crate::decide::{ScoreQuery, VerdictCache, VerdictCacheUse};
use crate::model::ClusterState;
use crate::policy::{Compatibility, Policy, Release};

const ROOMY: usize = 64 << 20;

fn change() -> impl Strategy<Value = ClusterChange> {
    (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(kind, number, variant)| ClusterChange {
        kind,
        number,
        variant,
    })
}

fn some_policy() -> impl Strategy<Value = Arc<Policy>> {
    (0..DOCUMENTS.len(), 0..3_u8).prop_map(|(number, kind)| {
        let document = DOCUMENTS[number];
        let compatibility = match kind {
            0 => Compatibility::Corrected,
            // Reasons of this release name taints.
            1 if !document.contains("KubeSchedulerConfiguration") => Compatibility::Upstream(Release::Volcano1144),
            _ => Compatibility::UPSTREAM,
        };
        policy(document, compatibility)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn stored_verdicts_equal_new_ones(
        policies in prop::collection::vec(some_policy(), 2),
        forms in prop::collection::vec(any::<u32>(), 2),
        max_bytes in prop_oneof![Just(ROOMY), Just(600_000)],
        steps in prop::collection::vec((prop::collection::vec(change(), 0..3), any::<(u8, bool, bool)>()), 14),
    ) {
        let cache = VerdictCache::new(max_bytes);
        // A session begins with the state of the snapshot and has changes of its own.
        let mut states = [cluster(), cluster()];
        states[1] = states[0].clone();
        for (changes, (at, in_session, shares_lineage)) in steps {
            let state = &mut states[usize::from(in_session)];
            for change in changes {
                change.apply(state);
            }
            let lineage = if in_session && !shares_lineage { "session" } else { "" };
            let policy = &policies[usize::from(at) % 2];
            let query = form(state, forms[usize::from(at) / 2 % 2]);
            let new = results(state, policy, &query, None);
            let stored = results(state, policy, &query, Some((&cache, lineage)));
            prop_assert_eq!(stored, new);
            prop_assert!(cache.usage().bytes <= max_bytes);
        }
    }

    #[test]
    fn stored_surveys_heed_pods_that_come_and_go(
        document in prop::sample::select(vec![DOCUMENTS[0], DOCUMENTS[3]]),
        limit in prop::option::of(1_usize..40),
        steps in prop::collection::vec((0..NAMES, 0..4_u32, any::<bool>()), 8),
    ) {
        let policy = policy(document, Compatibility::Corrected);
        let (mut state, cache) = (cluster(), VerdictCache::new(ROOMY));
        for (number, variant, comes) in steps {
            // Every other of these pods prefers nodes beside others.
            let change = ClusterChange { kind: if comes { 7 } else { 4 }, number, variant: variant * 11 / 2 };
            change.apply(&mut state);
            let query = AskedQuery::Score(ScoreQuery { limit, ..all_classes(&state) });
            let new = results(&state, &policy, &query, None);
            prop_assert_eq!(results(&state, &policy, &query, Some((&cache, ""))), new);
        }
    }

    #[test]
    fn concurrent_readers_get_the_results_of_their_states(
        policy in some_policy(),
        changes in prop::collection::vec(change(), 6),
        forms in prop::collection::vec(any::<u32>(), 2),
        order in prop::collection::vec((0..7_usize, 0..2_usize), 24),
        max_bytes in prop_oneof![Just(ROOMY), Just(600_000)],
    ) {
        let mut states = vec![cluster()];
        for change in changes {
            let mut next = states.last().unwrap().clone();
            change.apply(&mut next);
            states.push(next);
        }
        let expected: Vec<Vec<String>> = states
            .iter()
            .map(|state| forms.iter().map(|number| results(state, &policy, &form(state, *number), None)).collect())
            .collect();
        let cache = VerdictCache::new(max_bytes);
        let read = |turn: usize| {
            for (at, number) in order.iter().cycle().skip(turn * 5).take(order.len()) {
                let state = &states[*at];
                let query = form(state, forms[*number]);
                assert_eq!(results(state, &policy, &query, Some((&cache, ""))), expected[*at][*number]);
            }
        };
        thread::scope(|scope| {
            let readers: Vec<_> = (0..4).map(|turn| scope.spawn(move || read(turn))).collect();
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}

/// Cache and a policy, about which queries are made step by step.
struct CacheTrial {
    cache: VerdictCache,
    policy: Arc<Policy>,
    state: ClusterState,
}

impl CacheTrial {
    fn new(document: &str) -> Self {
        Self {
            cache: VerdictCache::new(ROOMY),
            policy: policy(document, Compatibility::Corrected),
            state: cluster(),
        }
    }

    /// Runs a query about one class and checks that the results equal the results without a cache. Returns the numbers
    /// of reused and evaluated chunks.
    fn ask(&self, class: usize, of: impl Fn(&mut ScoreQuery)) -> (u64, u64) {
        let mut query = all_classes(&self.state);
        query.node_query.tasks = vec![query.node_query.tasks[class].clone()];
        of(&mut query);
        self.expect_same(&AskedQuery::Score(query))
    }

    fn expect_same(&self, query: &AskedQuery) -> (u64, u64) {
        let before = self.cache.usage();
        let stored = results(&self.state, &self.policy, query, Some((&self.cache, "")));
        assert_eq!(stored, results(&self.state, &self.policy, query, None));
        let VerdictCacheUse {
            reused_chunks,
            judged_chunks,
            ..
        } = self.cache.usage();
        (
            reused_chunks - before.reused_chunks,
            judged_chunks - before.judged_chunks,
        )
    }

    /// Places tasks of a class; returns the numbers of [`Self::ask`].
    fn place(&self, class: usize, count: usize) -> (u64, u64) {
        let mut query = all_classes(&self.state).node_query;
        query.tasks = vec![query.tasks[class].clone()];
        let mut query = place(query, 7);
        for group in query.groups.iter_mut().flatten() {
            group.count = count;
        }
        self.expect_same(&AskedQuery::Place(query))
    }

    fn change(&mut self, kind: u32, number: u32, variant: u32) {
        ClusterChange { kind, number, variant }.apply(&mut self.state);
    }
}

#[test]
fn a_new_taint_elsewhere_renames_no_stored_reason() {
    let mut trial = CacheTrial::new(DOCUMENTS[0]);
    trial.policy = policy(DOCUMENTS[0], Compatibility::Upstream(Release::Volcano1144));
    // A node of the first chunk with the taint `team`.
    trial.change(0, 3, 2);
    for _ in 0..3 {
        trial.ask(0, |_| {});
    }
    // A node of the second chunk with the taint `disk`, which is sorted before the other.
    trial.change(0, 300, 7);
    trial.ask(0, |_| {});
    trial.change(0, 300, 0);
    trial.ask(0, |_| {});
}

/// Filters and scores of three chunks.
const ALL: u64 = 6;

#[test]
fn the_second_query_stores_and_the_third_reuses() {
    let mut trial = CacheTrial::new(DOCUMENTS[0]);
    assert_eq!(trial.ask(0, |_| {}), (0, 0));
    assert_eq!(
        trial.cache.usage(),
        VerdictCacheUse::default(),
        "a class that is asked once leaves nothing"
    );
    assert_eq!(trial.ask(0, |_| {}), (0, ALL));
    assert_eq!(
        trial.ask(0, |query| query.limit = Some(7)),
        (ALL, 0),
        "another limit is the same class"
    );
    assert_eq!(trial.ask(0, |query| query.limit = None), (ALL, 0));
    assert_eq!(trial.ask(0, |query| query.with_parts = true), (ALL, 0));
    trial.change(0, 300, 7);
    assert_eq!(trial.ask(0, |_| {}), (4, 2), "one chunk changed");
    assert_eq!(trial.ask(0, |_| {}), (ALL, 0));
    trial.change(7, 10, 1);
    trial.change(7, 515, 2);
    assert_eq!(trial.ask(0, |_| {}), (2, 4), "two chunks changed");
}

#[test]
fn placements_judge_changed_chunks_only() {
    let mut trial = CacheTrial::new(DOCUMENTS[1]);
    assert_eq!(trial.place(0, 5), (0, 0), "the first query leaves a fingerprint");
    assert_eq!(trial.place(0, 5), (0, ALL));
    assert_eq!(
        trial.place(0, 40),
        (ALL, 0),
        "another number of tasks is the same class"
    );
    trial.change(7, 300, 7);
    assert_eq!(trial.place(0, 5), (4, 2), "one chunk changed");
    assert_eq!(
        trial.ask(0, |_| {}),
        (0, 0),
        "tasks that ask for nodes have verdicts of their own"
    );
}

#[test]
fn scores_that_are_relative_to_candidates_change_everywhere() {
    let mut trial = CacheTrial::new(DOCUMENTS[0]);
    for _ in 0..3 {
        trial.ask(0, |query| query.limit = None);
    }
    // The first node with a taint that pods rather avoid.
    trial.change(0, 3, 3);
    assert_eq!(
        trial.ask(0, |query| query.limit = None),
        (2, 4),
        "filters of two chunks are the same"
    );
    assert_eq!(trial.ask(0, |query| query.limit = None), (ALL, 0));
    // An image: the class that has it, and another one.
    for _ in 0..3 {
        trial.ask(4, |query| query.limit = None);
    }
    trial.change(0, 400, 4);
    assert_eq!(trial.ask(4, |query| query.limit = None), (2, 4));
    assert_eq!(trial.ask(0, |query| query.limit = None), (4, 2));
}

#[test]
fn classes_that_read_other_nodes_are_judged_each_time() {
    let mut trial = CacheTrial::new(DOCUMENTS[0]);
    // A running pod that the terms are about.
    trial.change(7, 10, 6);
    for _ in 0..3 {
        assert_eq!(trial.ask(5, |_| {}), (0, 0), "terms about pods");
    }
    trial.ask(6, |_| {});
    trial.ask(6, |_| {});
    assert_eq!(trial.ask(6, |_| {}), (3, 0), "the filters alone");
}

#[test]
fn a_preferred_term_elsewhere_ends_stored_surveys() {
    // The plugin takes more from the candidates, or one more plugin takes something.
    for document in [DOCUMENTS[0], DOCUMENTS[3]] {
        let mut trial = CacheTrial::new(document);
        for _ in 0..3 {
            trial.ask(0, |query| query.limit = None);
            trial.place(0, 5);
        }
        // A running pod of the second chunk that is rather near pods of the class.
        trial.change(7, 300, 33);
        for judged in [1, 0] {
            let counts = trial.ask(0, |query| query.limit = None);
            assert_eq!(counts.1, judged, "the changed filter alone");
            trial.place(0, 5);
        }
        trial.change(4, 0, 33);
        trial.ask(0, |query| query.limit = None);
    }
}

#[test]
fn a_choice_of_cards_has_stored_scores_under_upstream() {
    let document =
        "{actions: allocate, tiers: [{plugins: [{name: predicates}, {name: capacity-card}, {name: binpack}]}]}";
    let mut trial = CacheTrial::new(document);
    trial.policy = policy(document, Compatibility::UPSTREAM);
    let chooses = |query: &mut ScoreQuery| {
        query.limit = None;
        for item in query.node_query.tasks.iter_mut().flatten() {
            let mut task = (*item.task).clone();
            task.annotations = [("volcano.sh/card.name".into(), "H|A".into())].into();
            item.task = Arc::new(task);
        }
    };
    for expected in [(0, 0), (0, ALL), (ALL, 0)] {
        assert_eq!(trial.ask(0, chooses), expected);
    }
    // A node of the second chunk gets cards.
    let mut node = trial.state.node(300).unwrap().record.as_ref().clone();
    node.labels = [("count", "4"), ("memory", "81920"), ("product", "A")]
        .map(|(name, text)| (format!("nvidia.com/gpu.{name}").into(), text.into()))
        .into();
    trial.state.put_node(Arc::new(node), &"test".into());
    assert_eq!(trial.ask(0, chooses), (4, 2));
}

#[test]
fn new_names_of_resources_are_new_inputs() {
    let mut trial = CacheTrial::new(DOCUMENTS[1]);
    for _ in 0..3 {
        trial.ask(1, |_| {});
    }
    trial.change(3, 0, 1);
    assert_eq!(trial.ask(1, |_| {}).0, 0);
}

#[test]
fn the_room_is_bounded() {
    let mut trial = CacheTrial::new(DOCUMENTS[0]);
    trial.cache = VerdictCache::new(100_000);
    for round in 0..3 {
        for cpu in 0..40 {
            let with_cpu = |query: &mut ScoreQuery| {
                for item in query.node_query.tasks.iter_mut().flatten() {
                    let mut task = (*item.task).clone();
                    let mut requests = task.requests.clone();
                    requests.set(crate::model::ResourceId::CPU, 1_000 + cpu);
                    task.requests = requests;
                    item.task = Arc::new(task);
                }
            };
            trial.ask(0, with_cpu);
            let usage = trial.cache.usage();
            // Two of the classes may have one place among the fingerprints: the first of a round may be new again.
            assert!(usage.bytes <= 100_000 && (round < 2 || usage.classes > 0), "{usage:?}");
        }
    }
    assert!(trial.cache.usage().bytes > 50_000);
    trial.cache = VerdictCache::new(0);
    for _ in 0..3 {
        assert_eq!(trial.ask(0, |_| {}).0, 0);
    }
    assert_eq!(trial.cache.usage().bytes, 0);
}
