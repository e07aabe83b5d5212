//! Random clusters as real ones are, against a plain model of what admission reserves: finished tasks, gated tasks, cards that
//! no node has, choices.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::case::{MIXED, ONE, cluster_state};
use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::decide::{self, Parallelism, PlaceGroup, PlaceQuery};
use pumice_engine::model::{ClusterState, Reservation};
use pumice_engine::plugins::capacity_card::{CapacityConfig, CapacityState, CardVotes as _};
use pumice_engine::policy::{CompileOptions, Policy, compile};

/// Names that tasks may use; `G` is on no node.
pub(super) const NAMES: [&str; 7] = ["A", "B", "A|B", "B|C", "A|B|C", "G", "G|B"];
const PHASES: [&str; 3] = ["Pending", "Inqueue", "Running"];
const STATUSES: [&str; 5] = ["Pending", "Pending", "Running", "Succeeded", "Gated"];

pub(super) fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap()
}

/// A job: its phase, what its tasks name, of how many cards each, how many must run, and how they stand.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) phase: usize,
    pub(super) name: usize,
    pub(super) size: i64,
    pub(super) members: usize,
    pub(super) tasks: Vec<usize>,
    pub(super) request: Option<i64>,
    pub(super) given: bool,
}

impl Job {
    pub(super) fn cards(&self) -> Vec<&'static str> {
        NAMES[self.name].split('|').filter(|card| *card != "G").collect()
    }

    pub(super) fn count(&self, status: &str) -> usize {
        self.tasks.iter().filter(|own| STATUSES[**own] == status).count()
    }

    /// The job as a vote asks about it: with open gates, if nothing else of it is unfinished.
    pub(super) fn asked(&self) -> Self {
        let mut asked = self.clone();
        if self.count("Pending") + self.count("Running") == 0 {
            let gated = |own: &&mut usize| STATUSES[**own] == "Gated";
            asked.tasks.iter_mut().filter(gated).for_each(|own| *own = 0);
        }
        asked
    }

    /// Where its running tasks are: the first card that it may use.
    pub(super) fn runs_on(&self) -> &'static str {
        self.cards().first().copied().unwrap_or("A")
    }

    /// Tasks that must still come to hold what they need.
    pub(super) fn missing(&self) -> usize {
        let unfinished = self.members.saturating_sub(self.count("Succeeded"));
        let free = self.count("Pending") + self.count("Running");
        let wanted = if self.members == 0 { free } else { unfinished.min(free) };
        wanted.saturating_sub(self.count("Running"))
    }

    /// Cards that it still needs beyond what runs: of its tasks, or as its annotation says.
    pub(super) fn wanted(&self) -> i64 {
        let complete = !self.tasks.is_empty() && self.tasks.len() >= self.members;
        let unfinished = self.members.saturating_sub(self.count("Succeeded"));
        let enough = self.count("Pending") + self.count("Running") >= unfinished;
        let done = self.count("Succeeded") + if enough { 0 } else { self.count("Gated") };
        let reported = self.request.map_or(0, |cards| cards - whole(done) * self.size);
        let reported = reported - whole(self.count("Running")) * self.size;
        let of_tasks = if complete { whole(self.missing()) * self.size } else { 0 };
        of_tasks.max(reported).max(0)
    }

    pub(super) fn json(&self, number: usize) -> Json {
        let task = |(at, status): (usize, &usize)| {
            let status = STATUSES[*status];
            let node = if status == "Running" {
                format!("n{}", self.runs_on())
            } else {
                String::new()
            };
            json!({"name": format!("t{at}"), "annotations": {"volcano.sh/card.name": NAMES[self.name]},
                "status": if status == "Gated" { "Pending" } else { status }, "node": node,
                "scheduling_gated": status == "Gated", "requests": {"cpu": "1", "nvidia.com/gpu": self.size.to_string()}})
        };
        let tasks: Vec<Json> = self.tasks.iter().enumerate().map(task).collect();
        let annotations = match self.request {
            Some(cards) => json!({"volcano.sh/card.request": json!({NAMES[self.name]: cards}).to_string()}),
            None => json!({}),
        };
        let mut job = json!({"uid": format!("ns/j{number}"), "queue": "q", "phase": PHASES[self.phase],
            "min_member": self.members, "annotations": annotations, "tasks": tasks});
        if self.given {
            job["min_resources"] = json!({"cpu": self.members.to_string()});
        }
        job
    }
}

pub(super) fn job() -> impl Strategy<Value = Job> {
    (
        0_usize..3,
        0_usize..7,
        1_i64..4,
        0_usize..4,
        prop::collection::vec(0_usize..5, 1..4),
        prop::option::weighted(0.2, 1_i64..5),
        any::<bool>(),
    )
        .prop_map(|(phase, name, size, members, mut tasks, request, given)| {
            // What names a card that no node has never ran.
            if NAMES[name] == "G" {
                tasks
                    .iter_mut()
                    .filter(|status| **status == 2)
                    .for_each(|status| *status = 0);
            }
            Job {
                phase,
                name,
                size,
                members,
                tasks,
                request,
                given,
            }
        })
}

/// A cluster with plenty of room on nodes: what is short is quota.
fn cluster(quota: [i64; 3], jobs: &[Job]) -> ClusterState {
    let node = |card: &&str| {
        json!({"name": format!("n{card}"), "labels": {"nvidia.com/gpu.product": card},
            "allocatable": {"cpu": "640", "memory": "256Gi", "pods": "1100", "nvidia.com/gpu": "64"}})
    };
    let nodes: Vec<Json> = ["A", "B", "C"].iter().map(node).collect();
    let [a, b, c] = quota;
    let quotas = json!({"A": a, "B": b, "C": c, "G": 9}).to_string();
    let jobs: Vec<Json> = jobs.iter().enumerate().map(|(number, job)| job.json(number)).collect();
    cluster_state(
        &json!({"nodes": nodes, "queues": [{"name": "q", "annotations": {"volcano.sh/card.quota": quotas}}], "jobs": jobs}),
    )
}

/// Pieces that must each go to one of some cards.
pub(super) type Wanted = Vec<(Vec<&'static str>, i64)>;

/// Pieces that a job reserves.
pub(super) fn claims(job: &Job, mixed: bool) -> Wanted {
    let wanted = job.wanted();
    let mut cards = job.cards();
    if cards.is_empty() {
        cards = vec!["G"];
    }
    if !mixed || cards.len() == 1 {
        // Once it runs the choice is made.
        if job.count("Running") > 0 && job.cards().len() > 1 {
            cards = vec![job.runs_on()];
        }
        return if wanted > 0 { vec![(cards, wanted)] } else { Vec::new() };
    }
    let mut left = wanted;
    let mut claims = Vec::new();
    for _ in 0..job.missing() {
        if left >= job.size {
            claims.push((cards.clone(), job.size));
            left -= job.size;
        }
    }
    claims.extend((0..left).map(|_| (cards.clone(), 1)));
    claims
}

/// Pieces in the order in which they get cards: those that name one card, then the larger ones, then by name.
pub(super) fn in_order<T>(mut wanted: Vec<T>, piece: impl Fn(&T) -> &(Vec<&'static str>, i64)) -> Vec<T> {
    wanted.sort_by_key(|own| {
        let (cards, size) = piece(own);
        (cards.len() > 1, -size, cards.join("|"))
    });
    wanted
}

/// Gives each piece the first of its cards that has as many left; false: some piece found none, and is counted on its first.
fn give(room: &mut BTreeMap<&'static str, i64>, wanted: Wanted) -> bool {
    let mut all = true;
    for (cards, size) in in_order(wanted, |piece| piece) {
        let first = cards.iter().find(|card| room[*card] >= size);
        all &= first.is_some();
        *room.get_mut(first.unwrap_or(&cards[0])).unwrap() -= size;
    }
    all
}

/// Cards that the queue may still give, all that runs less what is elastic counted.
fn room(quota: [i64; 3], jobs: &[Job]) -> BTreeMap<&'static str, i64> {
    let mut room = BTreeMap::from([("A", quota[0]), ("B", quota[1]), ("C", quota[2]), ("G", 9)]);
    for job in jobs {
        let held = whole(job.count("Running")) * job.size;
        let minimum = minimum(job);
        *room.get_mut(job.runs_on()).unwrap() -= held.min(minimum);
    }
    room
}

/// The least that a job needs, what it holds of it included.
pub(super) fn minimum(job: &Job) -> i64 {
    let complete = job.tasks.len() >= job.members;
    let unfinished = job.members.saturating_sub(job.count("Succeeded"));
    let free = job.count("Pending") + job.count("Running");
    let first = if job.members == 0 { free } else { unfinished.min(free) };
    let enough = free >= unfinished;
    let done = job.count("Succeeded") + if enough { 0 } else { job.count("Gated") };
    let reported = job.request.map_or(0, |cards| (cards - whole(done) * job.size).max(0));
    let of_tasks = if complete { whole(first) * job.size } else { 0 };
    of_tasks.max(reported)
}

pub(super) fn config(mixed: bool) -> CapacityConfig {
    if mixed { MIXED } else { ONE }
}

pub(super) fn policy(mixed: bool) -> Arc<Policy> {
    let document = format!(
        "actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments: {{mixedCards: {mixed}}}\n"
    );
    compile(&document, &CompileOptions::default()).unwrap().policy
}

/// Places all tasks of a job that wait, in the cycle; false: not enough found a place.
pub(super) fn place(cycle: &mut SchedulingCycle, policy: &Policy, job: &str) -> bool {
    let cluster_state = cycle.cluster_state().clone();
    let waits = |name: &&Arc<str>| {
        let task = &cluster_state.tasks().get(name).unwrap().record;
        *task.job == *job
            && task.node.is_empty()
            && !task.gated
            && task.status == pumice_engine::model::TaskStatus::Pending
    };
    let names: Vec<Arc<str>> = cluster_state
        .tasks()
        .iter()
        .map(|(name, _)| name)
        .filter(waits)
        .cloned()
        .collect();
    let Some(first) = names.first() else { return true };
    let group = PlaceGroup {
        task: Arc::new(cluster_state.tasks().get(first).unwrap().record.clone()),
        count: names.len(),
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
        idle_only: true,
        samples: 1,
        max_pairs: u64::MAX,
    };
    let (placing, _) = decide::place_in_cycle(cycle, policy, &query, Parallelism::SEQUENTIAL)
        .unwrap()
        .unwrap();
    placing.placed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A job is permitted if and only if there is room for it beside all that is reserved, where each in turn takes the first
    /// of its cards.
    #[test]
    fn a_vote_says_what_the_first_card_of_each_leaves(
        quota in prop::array::uniform3(0_i64..8),
        jobs in prop::collection::vec(job(), 1..5),
        mixed in any::<bool>(),
    ) {
        let cluster_state = cluster(quota, &jobs);
        let state = CapacityState::of(&cluster_state, config(mixed));
        let admitted = |own: &Job| own.phase > 0;
        for (number, asks) in jobs.iter().enumerate() {
            let others: Wanted = jobs.iter().enumerate()
                .filter(|(other, own)| *other != number && admitted(own))
                .flat_map(|(_, own)| claims(own, mixed)).collect();
            let mut room = room(quota, &jobs);
            give(&mut room, others);
            let asks = &asks.asked();
            let unknown = asks.cards().is_empty() && (asks.missing() > 0 || asks.wanted() > 0);
            let expected = !unknown && give(&mut room, claims(asks, mixed));
            let record = &cluster_state.jobs().get(&format!("ns/j{number}")).unwrap().record;
            let verdict = state.vote_job(&cluster_state, record).unwrap();
            prop_assert_eq!(verdict.is_permitted(), expected, "j{}: {:?}", number, verdict.rejections);
        }
    }

    /// A need of a choice is reserved once: an account is what its jobs reserve, and no card of another name.
    #[test]
    fn nothing_is_reserved_twice(
        quota in prop::array::uniform3(0_i64..8),
        jobs in prop::collection::vec(job(), 1..5),
        mixed in any::<bool>(),
    ) {
        let cluster_state = cluster(quota, &jobs);
        let state = CapacityState::of(&cluster_state, config(mixed));
        let account = state.account("q").unwrap();
        let reserved: i128 = account.inqueue.cards().map(|(_, milli)| milli / 1000).sum();
        let expected: i64 = jobs.iter().filter(|job| job.phase > 0).map(Job::wanted).sum();
        prop_assert_eq!(reserved, i128::from(expected));
        let cpu: i128 = jobs.iter().filter(|job| job.phase > 0 && job.given).map(|job| {
            let enough = job.count("Pending") + job.count("Running") >= job.members.saturating_sub(job.count("Succeeded"));
            let done = job.count("Succeeded") + job.count("Running") + if enough { 0 } else { job.count("Gated") };
            job.members.saturating_sub(done) as i128
        }).sum();
        let given = jobs.iter().filter(|job| job.phase > 0).all(|job| job.given);
        prop_assert!(!given || account.inqueue.cpu == cpu * 1000, "{} of {}", account.inqueue.cpu, cpu);
    }

    /// All jobs that are admitted find their places, in whatever order they come, on the cards that they were given; also
    /// where nobody remembers these, if each can be given one in turn.
    #[test]
    fn what_is_admitted_is_placed_where_there_is_room(
        quota in prop::array::uniform3(0_i64..8),
        jobs in prop::collection::vec(job(), 1..5),
        mixed in any::<bool>(),
        backwards in any::<bool>(),
        forgotten in any::<bool>(),
    ) {
        let mut jobs = new_jobs(jobs);
        let cluster_state = cluster(quota, &jobs);
        let policy = policy(mixed);
        let start = |cluster_state: &ClusterState| SchedulingCycle::new(cluster_state.clone(), policy.node_change_rules(), policy.compute_plugin_states(cluster_state));
        let mut cycle = start(&cluster_state);
        let mut admitted: Vec<usize> = Vec::new();
        for number in 0..jobs.len() {
            let name = format!("ns/j{number}");
            let record = cluster_state.jobs().get(&name).unwrap().record.clone();
            let state: &CapacityState = cycle.plugin_states().get("capacity-card").unwrap();
            if state.vote_job(&cluster_state, &record).unwrap().is_permitted() {
                cycle.apply(&[pumice_engine::cycle::SessionChange::JobEnqueued(name.as_str().into())]).unwrap();
                admitted.push(number);
            }
        }
        if forgotten {
            for number in &admitted {
                jobs[*number].phase = 1;
            }
            cycle = start(&cluster(quota, &jobs));
            let all = admitted.iter().flat_map(|number| claims(&jobs[*number], mixed)).collect();
            prop_assume!(give(&mut room(quota, &[]), all));
        }
        if backwards {
            admitted.reverse();
        }
        for number in &admitted {
            prop_assert!(place(&mut cycle, &policy, &format!("ns/j{number}")), "{} of {:?}", number, admitted);
        }
        let state: &CapacityState = cycle.plugin_states().get("capacity-card").unwrap();
        let account = state.account("q").unwrap();
        prop_assert!(account.allocated.cards().all(|(card, held)| held <= account.limits.capability.card_or_zero(card)));
    }

    /// A permit and its reservation name the same cards, and so does a state that knows the reservation only; the amounts are
    /// single cards, together at most the quota.
    #[test]
    fn a_reservation_stores_the_cards_that_were_given(
        quota in prop::array::uniform3(0_i64..8),
        jobs in prop::collection::vec(job(), 1..5),
        mixed in any::<bool>(),
    ) {
        let jobs = new_jobs(jobs);
        let mut cluster_state = cluster(quota, &jobs);
        let mut state = CapacityState::of(&cluster_state, config(mixed));
        let mut left = room(quota, &[]);
        let mut rows = Vec::new();
        for (number, job) in jobs.iter().enumerate() {
            let record = cluster_state.jobs().get(&format!("ns/j{number}")).unwrap().record.clone();
            let verdict = state.permit(&cluster_state, &record).unwrap();
            let before = left.clone();
            let expected = !job.cards().is_empty() && give(&mut left, claims(job, mixed));
            prop_assert_eq!(verdict.is_permitted(), expected, "j{}: {:?}", number, verdict.rejections);
            if !expected {
                left = before;
                continue;
            }
            let given: BTreeMap<&str, i64> = before.iter().map(|(card, room)| (*card, room - left[card])).filter(|(_, given)| *given > 0).collect();
            let amounts: BTreeMap<&str, i64> = verdict.min_amounts.cards().map(|(card, milli)| (&**card, i64::try_from(milli / 1000).unwrap())).collect();
            prop_assert_eq!(given, amounts);
            let plain = [("cpu", verdict.min_amounts.cpu), ("memory", verdict.min_amounts.memory)];
            let all = plain.into_iter().chain(verdict.min_amounts.cards().map(|(card, milli)| (&**card, milli)));
            rows.push(Reservation {
                job: Arc::clone(&record.name),
                queue: "q".into(),
                amounts: all.map(|(name, amount)| (Arc::from(name), amount)).collect(),
                ..Reservation::default()
            });
        }
        for row in rows {
            cluster_state.put_reservation(Arc::new(row));
        }
        let rebuilt = CapacityState::of(&cluster_state, config(mixed));
        prop_assert_eq!(&rebuilt.account("q").unwrap().inqueue, &state.account("q").unwrap().inqueue);
    }
}

/// Jobs none of whose tasks has run, all of which are needed.
fn new_jobs(jobs: Vec<Job>) -> Vec<Job> {
    let new = |own: Job| {
        let tasks = vec![0; own.tasks.len()];
        Job {
            phase: 0,
            members: tasks.len(),
            tasks,
            request: None,
            ..own
        }
    };
    jobs.into_iter().map(new).collect()
}
