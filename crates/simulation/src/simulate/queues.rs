//! Queues of a simulation by whole cycles: how long their tasks waited, what they held, and what was theirs by weight.

use std::collections::BTreeMap;

use serde::Serialize;

use super::queue_amounts::QueueAmounts;
use super::usage::count;
use pumice_kubernetes::object::ROOT_QUEUE as ROOT;
use pumice_protocol::v1 as pb;

/// Outcome of one queue. Waiting times are those from the arrival of a task to its first place, of the tasks that got one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueOutcome {
    pub(super) queue: String,
    /// Number of tasks that arrived.
    pub(super) arrived: u64,
    /// Number of tasks that got a place, once or again.
    pub(super) placed: u64,
    /// Number of tasks without a place at the end.
    pub(super) waiting: u64,
    pub(super) wait_mean_seconds: f64,
    pub(super) wait_p95_seconds: f64,
    pub(super) wait_max_seconds: f64,
    /// Number of evictions of its tasks.
    pub(super) evicted: u64,
    /// Number of evictions for tasks of other queues.
    pub(super) evicted_for_others: u64,
    /// Part of the cluster that its tasks and those of the queues below it held, on average: the largest of its parts of
    /// the resources.
    pub(super) held_percent: f64,
    /// Part that was its due, on average: by weight or deserved amounts among the queues that asked for more, and never
    /// more than it asked for.
    pub(super) due_percent: f64,
    /// Part of its due that it did not hold.
    pub(super) short_percent: f64,
    pub(super) samples: Vec<QueueSample>,
}

/// One point of the chart lines of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueSample {
    /// Seconds after the first arrival.
    pub(super) seconds: f64,
    pub(super) held_percent: f64,
    pub(super) waiting: u64,
}

/// Queue in the course of a simulation.
#[derive(Debug, Default)]
struct QueueTally {
    weight: f64,
    parent: Option<String>,
    capability: Option<QueueAmounts>,
    /// Requests of placed tasks.
    held: QueueAmounts,
    /// Requests of waiting tasks.
    waiting: QueueAmounts,
    waiting_tasks: u64,
    arrived: u64,
    waits: Vec<f64>,
    evicted: u64,
    evicted_for_others: u64,
    /// Sums over time of parts of the cluster.
    held_time: f64,
    due_time: f64,
    short_time: f64,
    samples: Vec<QueueSample>,
}

impl QueueTally {
    /// Part that the queue could use, within its capability.
    fn asked_part(&self, total: &QueueAmounts) -> f64 {
        let mut asked = self.held.clone();
        asked.add(&self.waiting);
        match &self.capability {
            Some(most) => asked.at_most(most).dominant_part(total),
            None => asked.dominant_part(total),
        }
    }
}

/// Queues in the course of a simulation.
#[derive(Debug)]
pub(super) struct QueueTallies {
    queues: BTreeMap<String, QueueTally>,
    /// Queues by parent; `None`: at the top.
    children: BTreeMap<Option<String>, Vec<String>>,
    total: QueueAmounts,
    seconds: f64,
}

impl QueueTallies {
    /// Tallies of these queues on a cluster with these amounts.
    pub(super) fn new(queues: &[pb::Queue], total: QueueAmounts) -> Self {
        let deserving = queues.iter().any(|queue| queue.deserved.is_some());
        let rooted = queues.iter().any(|queue| queue.name == ROOT);
        let tally = |queue: &pb::Queue| {
            let parent = match queue.parent.as_str() {
                "" if rooted && queue.name != ROOT => Some(ROOT),
                "" => None,
                ROOT if !rooted => None,
                parent => Some(parent),
            };
            let deserved = QueueAmounts::parse(queue.deserved.as_ref()).dominant_part(&total);
            QueueTally {
                weight: if deserving {
                    deserved
                } else {
                    f64::from(queue.weight.unwrap_or(1).max(0))
                },
                parent: parent.map(str::to_owned),
                capability: queue.capability.as_ref().map(|most| QueueAmounts::parse(Some(most))),
                ..QueueTally::default()
            }
        };
        let by_name = queues.iter().map(|queue| (queue.name.clone(), tally(queue))).collect();
        let mut tallies = Self {
            queues: by_name,
            children: BTreeMap::new(),
            total,
            seconds: 0.0,
        };
        for (name, queue) in &tallies.queues {
            let beside = tallies.children.entry(queue.parent.clone()).or_default();
            beside.push(name.clone());
        }
        tallies
    }

    /// Tally of a queue; a queue without a record gets one at the top, with weight 1.
    fn tally(&mut self, queue: &str) -> &mut QueueTally {
        if !self.queues.contains_key(queue) {
            self.children.entry(None).or_default().push(queue.to_owned());
            let tally = QueueTally {
                weight: 1.0,
                ..QueueTally::default()
            };
            self.queues.insert(queue.to_owned(), tally);
        }
        self.queues.entry(queue.to_owned()).or_default()
    }

    /// Counts a task that holds a place from the start.
    pub(super) fn hold(&mut self, queue: &str, amounts: &QueueAmounts) {
        let tally = self.tally(queue);
        tally.held.add(amounts);
    }

    /// Counts a task that waits from now on; `arrives`: for the first time.
    pub(super) fn wait(&mut self, queue: &str, amounts: &QueueAmounts, arrives: bool) {
        let tally = self.tally(queue);
        tally.arrived = tally.arrived.saturating_add(u64::from(arrives));
        tally.waiting.add(amounts);
        tally.waiting_tasks = tally.waiting_tasks.saturating_add(1);
    }

    /// Counts a waiting task that got a place; `waited`: the seconds since it arrived, if this is its first.
    pub(super) fn place(&mut self, queue: &str, amounts: &QueueAmounts, waited: Option<f64>) {
        let tally = self.tally(queue);
        tally.waiting.subtract(amounts);
        tally.waiting_tasks = tally.waiting_tasks.saturating_sub(1);
        tally.held.add(amounts);
        tally.waits.extend(waited);
    }

    /// Counts a task that leaves its place.
    pub(super) fn leave(&mut self, queue: &str, amounts: &QueueAmounts) {
        let tally = self.tally(queue);
        tally.held.subtract(amounts);
    }

    /// Records an eviction for a task of a queue.
    pub(super) fn evict(&mut self, queue: &str, preemptor: &str) {
        let tally = self.tally(queue);
        tally.evicted = tally.evicted.saturating_add(1);
        tally.evicted_for_others = tally.evicted_for_others.saturating_add(u64::from(queue != preemptor));
    }

    /// Takes a point of the chart lines.
    pub(super) fn record_sample(&mut self, seconds: f64) {
        let held = self.held_parts();
        for (name, queue) in &mut self.queues {
            queue.samples.push(QueueSample {
                seconds,
                held_percent: 100.0 * held.get(name).copied().unwrap_or(0.0),
                waiting: queue.waiting_tasks,
            });
        }
    }

    /// Number of tasks that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.queues.values().map(|queue| queue.waiting_tasks).sum()
    }

    /// Adds the shares of the cluster that the queues hold during these seconds.
    pub(super) fn pass(&mut self, seconds: f64) {
        if seconds <= 0.0 {
            return;
        }
        self.seconds += seconds;
        let mut due = BTreeMap::new();
        self.distribute(None, 1.0, &mut due);
        let held = self.held_parts();
        for (name, tally) in &mut self.queues {
            let of = |parts: &BTreeMap<String, f64>| parts.get(name).copied().unwrap_or(0.0);
            let (held, due) = (of(&held), of(&due));
            tally.held_time += seconds * held;
            tally.due_time += seconds * due;
            tally.short_time += seconds * (due - held).max(0.0);
        }
    }

    /// Parts of the cluster that the queues hold, each with the queues below it.
    fn held_parts(&self) -> BTreeMap<String, f64> {
        let mut held: BTreeMap<&str, QueueAmounts> = BTreeMap::new();
        for (name, queue) in &self.queues {
            let mut at = Some(name.as_str());
            // A circle of parents ends where it began.
            for _ in 0..self.queues.len() {
                let Some(own) = at else { break };
                held.entry(own).or_default().add(&queue.held);
                at = self.queues.get(own).and_then(|own| own.parent.as_deref());
                if at == Some(name.as_str()) {
                    break;
                }
            }
        }
        let parts = held.into_iter();
        parts
            .map(|(name, held)| (name.to_owned(), held.dominant_part(&self.total)))
            .collect()
    }

    /// Distributes a part of the cluster among the queues below a queue, each at most what it asks for; what one leaves
    /// goes to the others by weight (weighted max-min fairness).
    fn distribute(&self, parent: Option<&str>, part: f64, due: &mut BTreeMap<String, f64>) {
        let Some(children) = self.children.get(&parent.map(str::to_owned)) else {
            return;
        };
        let asked: Vec<(f64, f64)> = children.iter().map(|name| self.weight_and_asked(name)).collect();
        for (name, own) in children.iter().zip(max_min_parts(&asked, part)) {
            due.insert(name.clone(), own);
            self.distribute(Some(name), own, due);
        }
    }

    fn weight_and_asked(&self, name: &str) -> (f64, f64) {
        let Some(tally) = self.queues.get(name) else {
            return (0.0, 0.0);
        };
        let below = self.children.get(&Some(name.to_owned())).into_iter().flatten();
        let below: f64 = below.map(|child| self.weight_and_asked(child).1).sum();
        (tally.weight, below + tally.asked_part(&self.total))
    }

    /// Outcomes of all queues, by name.
    pub(super) fn outcomes(&self) -> Vec<QueueOutcome> {
        let queues = self.queues.iter();
        queues.map(|(name, queue)| self.outcome(name, queue)).collect()
    }

    fn outcome(&self, name: &str, queue: &QueueTally) -> QueueOutcome {
        let mut waits = queue.waits.clone();
        waits.sort_by(f64::total_cmp);
        let rank = waits.len().saturating_mul(95).div_ceil(100).saturating_sub(1);
        let percent = |part: f64, of: f64| if of > 0.0 { 100.0 * part / of } else { 0.0 };
        QueueOutcome {
            queue: name.to_owned(),
            arrived: queue.arrived,
            placed: count(&waits),
            waiting: queue.waiting_tasks,
            wait_mean_seconds: waits.iter().fold(0.0, |sum, wait| sum + wait) / waits.len().max(1) as f64,
            wait_p95_seconds: waits.get(rank).copied().unwrap_or(0.0),
            wait_max_seconds: waits.last().copied().unwrap_or(0.0),
            evicted: queue.evicted,
            evicted_for_others: queue.evicted_for_others,
            held_percent: percent(queue.held_time, self.seconds),
            due_percent: percent(queue.due_time, self.seconds),
            short_percent: percent(queue.short_time, queue.due_time),
            samples: queue.samples.clone(),
        }
    }
}

/// Parts of a whole, by weight, each at most what is asked for; input: weights with what is asked for.
fn max_min_parts(asked: &[(f64, f64)], whole: f64) -> Vec<f64> {
    let mut parts: Vec<Option<f64>> = vec![None; asked.len()];
    let mut left = whole;
    loop {
        let open = asked.iter().zip(&parts).filter(|(_, part)| part.is_none());
        let weights: f64 = open.map(|((weight, _), _)| weight).sum();
        let offer = |weight: f64| if weights > 0.0 { left * weight / weights } else { 0.0 };
        let content: Vec<usize> = (0..asked.len())
            .filter(|at| parts.get(*at).is_some_and(Option::is_none))
            .filter(|at| asked.get(*at).is_some_and(|(weight, asked)| *asked <= offer(*weight)))
            .collect();
        if content.is_empty() {
            let own = asked.iter().zip(&parts);
            return own
                .map(|((weight, _), part)| part.unwrap_or_else(|| offer(*weight)))
                .collect();
        }
        for at in content {
            if let (Some((_, asked)), Some(part)) = (asked.get(at), parts.get_mut(at)) {
                *part = Some(*asked);
                left -= asked;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, weight: i32, parent: &str) -> pb::Queue {
        pb::Queue {
            name: name.to_owned(),
            weight: Some(weight),
            parent: parent.to_owned(),
            ..pb::Queue::default()
        }
    }

    fn amounts(resource: &str, amount: i64) -> QueueAmounts {
        let items = [
            (resource.to_owned(), amount.to_string()),
            ("pods".to_owned(), "9".to_owned()),
        ];
        QueueAmounts::parse(Some(&pb::ResourceList {
            items: items.into_iter().collect(),
        }))
    }

    fn cpu(cores: i64) -> QueueAmounts {
        amounts("cpu", cores)
    }

    #[test]
    fn what_one_queue_leaves_goes_to_the_others_by_weight() {
        assert_eq!(
            max_min_parts(&[(1.0, 0.1), (1.0, 1.0), (2.0, 1.0)], 1.0),
            [0.1, 0.3, 0.6]
        );
        assert_eq!(max_min_parts(&[(0.0, 0.5), (1.0, 0.25)], 1.0), [0.0, 0.25]);
        assert!(max_min_parts(&[], 1.0).is_empty());
    }

    #[test]
    fn a_queue_that_holds_less_than_its_due_is_short() {
        let queues = [queue("a", 3, ""), queue("b", 1, ""), queue("idle", 9, "")];
        let mut tallies = QueueTallies::new(&queues, cpu(10));
        tallies.wait("a", &cpu(10), true);
        tallies.hold("b", &cpu(10));
        tallies.pass(60.0);
        tallies.leave("b", &cpu(10));
        tallies.place("a", &cpu(10), Some(60.0));
        tallies.pass(20.0);
        let [a, b, idle] = tallies.outcomes().try_into().unwrap();
        assert_eq!((idle.arrived, idle.held_percent, idle.due_percent), (0, 0.0, 0.0));
        assert_eq!((a.held_percent, a.due_percent), (25.0, 0.75 * 75.0 + 25.0));
        assert_eq!(a.short_percent, 100.0 * 45.0 / 65.0);
        assert_eq!((a.placed, a.wait_mean_seconds, a.wait_p95_seconds), (1, 60.0, 60.0));
        assert_eq!((b.held_percent, b.due_percent, b.short_percent), (75.0, 18.75, 0.0));
    }

    #[test]
    fn queues_below_a_queue_share_its_due() {
        let queues = [
            queue("root", 1, ""),
            queue("x", 1, "root"),
            queue("y", 1, ""),
            queue("x/a", 1, "x"),
            queue("x/b", 3, "x"),
        ];
        let mut tallies = QueueTallies::new(&queues, cpu(100));
        for leaf in ["x/a", "x/b", "y"] {
            tallies.wait(leaf, &cpu(100), true);
        }
        tallies.pass(1.0);
        let due: Vec<f64> = tallies.outcomes().iter().map(|queue| queue.due_percent).collect();
        assert_eq!(due, [100.0, 50.0, 12.5, 37.5, 50.0], "root, x, x/a, x/b, y");
        tallies.hold("x/a", &cpu(30));
        tallies.pass(1.0);
        let held: Vec<f64> = tallies.outcomes().iter().map(|queue| queue.held_percent).collect();
        assert_eq!(
            held,
            [15.0, 15.0, 15.0, 0.0, 0.0],
            "a queue holds what those below it hold"
        );
    }

    #[test]
    fn any_resource_of_the_cluster_can_be_what_a_queue_holds() {
        let npus = |amount| amounts("huawei.com/Ascend910", amount);
        let mut tallies = QueueTallies::new(&[queue("a", 1, "")], npus(8));
        tallies.wait("a", &npus(6), true);
        tallies.place("a", &npus(6), Some(0.0));
        tallies.hold("a", &amounts("example.com/not-of-this-cluster", 5));
        tallies.pass(1.0);
        let [a] = tallies.outcomes().try_into().unwrap();
        assert_eq!((a.held_percent, a.due_percent), (75.0, 75.0));
    }
}
