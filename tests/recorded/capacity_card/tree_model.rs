//! Random trees of queues as real clusters have them, against the plain model: closed queues, cordoned nodes, reservations that
//! lapse, cpu that does not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::case::cluster_state;
use super::model::{Job, NAMES, Wanted, claims, config, in_order, job, minimum, place, policy, whole};
use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::model::{ClusterState, Reservation};
use pumice_engine::plugins::capacity_card::{CapacityConfig, CapacityState, CardVotes as _};

/// Queues of the tree; the first is above the others.
const QUEUES: [&str; 3] = ["dept", "x", "y"];
const CARDS: [&str; 3] = ["A", "B", "C"];

/// A tree of queues and the jobs in its leaves.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    quotas: [[i64; 3]; 3],
    closed: Option<usize>,
    hierarchy: bool,
    mixed: bool,
    /// Cpu and memory of jobs that use cards do not count; if they did, nothing would fit.
    unlimited: bool,
    /// Each job, its queue, and whether the ledger holds a reservation for it.
    jobs: Vec<(Job, usize, bool)>,
}

/// Random trees.
pub(super) fn tree() -> impl Strategy<Value = Tree> {
    (
        prop::array::uniform3(prop::array::uniform3(0_i64..8)),
        prop::option::weighted(0.2, 0_usize..3),
        any::<[bool; 3]>(),
        prop::collection::vec((job(), 1_usize..3, prop::bool::weighted(0.3)), 1..5),
    )
        .prop_map(|(quotas, closed, [hierarchy, mixed, unlimited], jobs)| Tree {
            quotas,
            closed,
            hierarchy,
            mixed,
            unlimited,
            jobs,
        })
}

/// Room of each queue by card.
type Rooms = [BTreeMap<&'static str, i64>; 3];

impl Tree {
    fn config(&self) -> CapacityConfig {
        CapacityConfig {
            hierarchy: self.hierarchy,
            unlimited_cpu_memory: self.unlimited,
            ..config(self.mixed)
        }
    }

    /// The queue and those above it that count.
    fn line(&self, queue: usize) -> Vec<usize> {
        if self.hierarchy { vec![queue, 0] } else { vec![queue] }
    }

    /// Nodes of each card, one to use and a cordoned one, and the queues and jobs.
    fn cluster(&self, reserved: bool) -> ClusterState {
        let node = |(card, cordoned): (&str, bool)| {
            json!({"name": if cordoned { format!("cordoned-{card}") } else { format!("n{card}") }, "unschedulable": cordoned,
                "labels": {"nvidia.com/gpu.product": card},
                "allocatable": {"cpu": "640", "memory": "256Gi", "pods": "1100", "nvidia.com/gpu": "64"}})
        };
        let queue = |(at, name): (usize, &&str)| {
            let [a, b, c] = self.quotas[at];
            let quotas = json!({"A": a, "B": b, "C": c, "G": 9}).to_string();
            let mut queue = json!({"name": name, "parent": if at == 0 { "" } else { "dept" },
                "annotations": {"volcano.sh/card.quota": quotas}, "state": if self.closed == Some(at) { "Closed" } else { "Open" }});
            if self.unlimited {
                queue["capability"] = json!({"cpu": "1m"});
            }
            queue
        };
        let nodes = CARDS.iter().flat_map(|card| [(*card, false), (*card, true)]);
        let job = |(number, (job, queue, _)): (usize, &(Job, usize, bool))| {
            let mut record = job.json(number);
            record["queue"] = json!(QUEUES[*queue]);
            record
        };
        let mut cluster = cluster_state(&json!({
            "nodes": nodes.map(node).collect::<Vec<Json>>(),
            "queues": QUEUES.iter().enumerate().map(queue).collect::<Vec<Json>>(),
            "jobs": self.jobs.iter().enumerate().map(job).collect::<Vec<Json>>(),
        }));
        for (number, (job, queue, promised)) in self.jobs.iter().enumerate() {
            if *promised && reserved {
                cluster.put_reservation(Arc::new(Reservation {
                    job: format!("ns/j{number}").into(),
                    queue: QUEUES[*queue].into(),
                    amounts: [
                        ("cpu", 0),
                        ("memory", 0),
                        (NAMES[job.name], i128::from(minimum(job)) * 1000),
                    ]
                    .map(|(name, amount)| (Arc::from(name), amount))
                    .into_iter()
                    .collect(),
                    ..Reservation::default()
                }));
            }
        }
        cluster
    }

    /// Cards that each queue may still give, all that runs less what is elastic counted.
    fn rooms(&self) -> Rooms {
        let mut rooms = self
            .quotas
            .map(|[a, b, c]| BTreeMap::from([("A", a), ("B", b), ("C", c), ("G", 9)]));
        for (job, queue, _) in &self.jobs {
            let held = whole(job.count("Running")) * job.size;
            for level in self.line(*queue) {
                *rooms[level].get_mut(job.runs_on()).unwrap() -= held.min(minimum(job));
            }
        }
        rooms
    }

    /// Gives each piece the first of its cards that its queue and those above have as many left of; false: some piece found
    /// none, and is counted on its first card.
    fn give(&self, rooms: &mut Rooms, wanted: Vec<(usize, (Vec<&'static str>, i64))>) -> bool {
        let mut all = true;
        // Equal pieces of several queues: by the name of the queue.
        let mut wanted = wanted;
        wanted.sort_by_key(|(queue, _)| QUEUES[*queue]);
        for (queue, (cards, size)) in in_order(wanted, |(_, piece)| piece) {
            let line = self.line(queue);
            let has_room = |card: &&&str| line.iter().all(|level| rooms[*level][**card] >= size);
            let first = cards.iter().find(has_room);
            all &= first.is_some();
            for level in &line {
                *rooms[*level].get_mut(first.unwrap_or(&cards[0])).unwrap() -= size;
            }
        }
        all
    }

    /// The verdict of the model on a job.
    fn expects(&self, number: usize, reserved: bool) -> bool {
        let (asks, queue, _) = &self.jobs[number];
        let of = |queue: usize, wanted: Wanted| wanted.into_iter().map(move |piece| (queue, piece));
        let others: Vec<(usize, (Vec<&'static str>, i64))> = self
            .jobs
            .iter()
            .enumerate()
            .filter(|(other, (job, _, promised))| *other != number && (job.phase > 0 || (*promised && reserved)))
            .flat_map(|(_, (job, queue, _))| of(*queue, claims(job, self.mixed)))
            .collect();
        let mut rooms = self.rooms();
        self.give(&mut rooms, others);
        let closed = self.line(*queue).iter().any(|level| self.closed == Some(*level));
        let asks = &asks.asked();
        let unknown = asks.cards().is_empty() && (asks.missing() > 0 || asks.wanted() > 0);
        let own = of(*queue, claims(asks, self.mixed)).collect();
        !closed && !unknown && self.give(&mut rooms, own)
    }
}

/// Votes on each job, with reservations and without, and compares with the plain model.
pub(super) fn check_votes(tree: &Tree) -> Result<(), TestCaseError> {
    for reserved in [true, false] {
        let cluster_state = tree.cluster(reserved);
        let state = CapacityState::of(&cluster_state, tree.config());
        for number in 0..tree.jobs.len() {
            let expected = tree.expects(number, reserved);
            let record = &cluster_state.jobs().get(&format!("ns/j{number}")).unwrap().record;
            let verdict = state.vote_job(&cluster_state, record).unwrap();
            prop_assert_eq!(
                verdict.is_permitted(),
                expected,
                "j{} {}: {:?}",
                number,
                reserved,
                verdict.rejections
            );
        }
    }
    Ok(())
}

/// The tasks of a job ask for a card that is left of a choice, and its annotation and its reservation for more of the choice.
#[test]
fn a_reservation_of_a_choice_holds_what_tasks_ask_of_its_card() {
    let waiting = |phase, name, members, request| Job {
        phase,
        name,
        size: 2,
        members,
        tasks: vec![0],
        request,
        given: false,
    };
    for mixed in [true, false] {
        let tree = Tree {
            quotas: [[0, 7, 0], [0, 6, 0], [0, 0, 0]],
            closed: None,
            hierarchy: true,
            mixed,
            unlimited: false,
            jobs: vec![(waiting(0, 1, 1, None), 1, false), (waiting(1, 6, 1, Some(3)), 1, true)],
        };
        check_votes(&tree).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A job is permitted if and only if every queue of its line has room for it beside all that is reserved, where each in
    /// turn takes the first of its cards, and none is closed. When the leases of all reservations have ended, they no longer
    /// count.
    #[test]
    fn a_vote_in_a_tree_says_what_the_first_card_of_each_leaves(tree in tree()) {
        check_votes(&tree)?;
    }

    /// A gang that is admitted finds its place where one schedule at least has room for it on nodes that are not cordoned.
    #[test]
    fn an_admitted_gang_is_placed_where_some_schedule_has_room(
        quota in prop::array::uniform3(0_i64..8),
        room in prop::array::uniform3(0_i64..8),
        cordoned in prop::array::uniform3(0_i64..8),
        name in 0_usize..5,
        size in 1_i64..4,
        count in 1_usize..5,
        mixed in any::<bool>(),
    ) {
        let node = |(card, number, unschedulable): (&str, i64, bool)| {
            json!({"name": format!("n{card}{unschedulable}"), "unschedulable": unschedulable, "labels": {"nvidia.com/gpu.product": card},
                "allocatable": {"cpu": "640", "memory": "256Gi", "pods": "1100", "nvidia.com/gpu": number.to_string()}})
        };
        let nodes = (0..3).flat_map(|at| [(CARDS[at], room[at], false), (CARDS[at], cordoned[at], true)]);
        let [a, b, c] = quota;
        let gang = Job { phase: 0, name, size, members: count, tasks: vec![0; count], request: None, given: true };
        let mut job = gang.json(0);
        job["queue"] = json!("x");
        let cluster_state = cluster_state(&json!({
            "nodes": nodes.map(node).collect::<Vec<Json>>(), "jobs": [job],
            "queues": [{"name": "x", "annotations": {"volcano.sh/card.quota": json!({"A": a, "B": b, "C": c}).to_string()}}],
        }));
        let policy = policy(mixed);
        let mut cycle =
            SchedulingCycle::new(cluster_state.clone(), policy.node_change_rules(), policy.compute_plugin_states(&cluster_state));
        let state: &CapacityState = cycle.plugin_states().get("capacity-card").unwrap();
        let record = &cluster_state.jobs().get("ns/j0").unwrap().record;
        let permitted = state.vote_job(&cluster_state, record).unwrap().is_permitted();
        let at = |card: &str| CARDS.iter().position(|own| *own == card).unwrap();
        // Whole tasks that fit on a card by its quota and its node.
        let fit = |card: &&str| quota[at(card)].min(room[at(card)]) / size;
        // A cordoned node shows that a card exists; a card that no node has counts nowhere. How many cards nodes have is no
        // question of a quota, whether the job names one card or several.
        let exists = |card: &&str| room[at(card)] + cordoned[at(card)] > 0;
        let by_quota = |card: &&str| if exists(card) { quota[at(card)] / size } else { 0 };
        let sum = |fit: &dyn Fn(&&str) -> i64| {
            let each = gang.cards();
            let each = each.iter().map(fit);
            (if mixed { each.sum() } else { each.max().unwrap_or(0) }) >= whole(count)
        };
        prop_assert_eq!(permitted, sum(&by_quota), "the vote");
        if permitted {
            prop_assert_eq!(place(&mut cycle, &policy, "ns/j0"), sum(&fit), "the placement");
        }
    }
}
