//! Tests of the queue in simulated time: one worker, and callers that arrive, wait and leave in each test.

use std::collections::BTreeMap;

use super::*;

const MS: Duration = Duration::from_millis(1);
/// Time that a piece of work takes.
const PIECE: Duration = Duration::from_millis(40);
/// Longest wait in a burst.
const BURST: Duration = Duration::from_secs(1);

/// Result of one simulated question.
#[derive(Clone, Copy, Debug)]
struct SimulatedResult {
    asker: usize,
    at: Duration,
    took: Duration,
    /// Delay before a retry of a rejected question.
    retry: Option<Duration>,
}

struct SimulatedCaller {
    place: WaitingPlace,
    asker: usize,
    connection: u64,
    since: Instant,
}

/// One worker in simulated time.
struct QueueSimulation {
    queue: Arc<WorkQueue>,
    start: Instant,
    now: Instant,
    /// End of the piece under way, its asker, and the time since when that one has waited.
    working: Option<(Instant, u64, usize, Instant)>,
    waiting: Vec<SimulatedCaller>,
    /// Times at which all rejected callers of a connection may have come back.
    turns: BTreeMap<u64, Instant>,
    results: Vec<SimulatedResult>,
}

impl QueueSimulation {
    fn new() -> Self {
        let queue = Arc::new(WorkQueue::new(1, 64, BURST));
        queue.state.with(|state| state.mean = PIECE);
        let now = Instant::now();
        Self {
            queue,
            start: now,
            now,
            working: None,
            waiting: Vec::new(),
            turns: BTreeMap::new(),
            results: Vec::new(),
        }
    }

    fn result(&mut self, asker: usize, since: Instant, retry: Option<Duration>) {
        self.results.push(SimulatedResult {
            asker,
            at: self.now - self.start,
            took: self.now - since,
            retry,
        });
    }

    fn reject(&mut self, asker: usize, connection: u64, since: Instant, rejection: QueueRejection) {
        let turn = self.turns.entry(connection).or_insert(self.now);
        *turn = (*turn).max(self.now + rejection.retry);
        self.result(asker, since, Some(rejection.retry));
    }

    fn ask(&mut self, asker: usize, connection: u64) {
        let caller = WorkCaller {
            connection,
            is_early: self.turns.get(&connection).is_some_and(|turn| self.now < *turn),
        };
        match self.queue.enter(caller, self.now) {
            Ok(Admission::Begun(worker)) => {
                std::mem::forget(worker);
                self.working = Some((self.now + PIECE, connection, asker, self.now));
            }
            Ok(Admission::Waiting(place)) => self.waiting.push(SimulatedCaller {
                place,
                asker,
                connection,
                since: self.now,
            }),
            Err(rejection) => self.reject(asker, connection, self.now, rejection),
        }
        self.look_for_displaced();
    }

    fn look_for_displaced(&mut self) {
        for at in (0..self.waiting.len()).rev() {
            if let Ok(Err(rejection)) = self.waiting[at].place.granted.try_recv() {
                let gone = self.waiting.remove(at);
                self.reject(gone.asker, gone.connection, gone.since, rejection);
            }
        }
    }

    /// Moves on by a millisecond.
    fn step(&mut self) {
        self.now += MS;
        self.end_piece();
        let late = |at: &usize| {
            let waiting = &self.waiting[*at];
            self.now - waiting.since >= waiting.place.patience
        };
        let late: Vec<_> = (0..self.waiting.len()).rev().filter(late).collect();
        for at in late {
            let gone = self.waiting.remove(at);
            let rejection = self.queue.reject_late(gone.place.is_early, self.now);
            self.reject(gone.asker, gone.connection, gone.since, rejection);
        }
    }

    fn end_piece(&mut self) {
        let Some((end, connection, asker, since)) = self.working.filter(|working| working.0 <= self.now) else {
            return;
        };
        assert_eq!(end, self.now);
        self.working = None;
        self.result(asker, since, None);
        if let Some((granted, connection)) = self.queue.release(connection, Some(PIECE), self.now) {
            drop(granted);
            let mut places = self.waiting.iter_mut();
            let is_next = |waiting: &mut SimulatedCaller| {
                matches!(
                    waiting.place.granted.try_recv(),
                    Err(oneshot::error::TryRecvError::Closed)
                )
            };
            let at = places.position(is_next).expect("a piece that waits");
            let next = self.waiting.remove(at);
            self.working = Some((self.now + PIECE, connection, next.asker, next.since));
        }
    }

    /// Times of the accepted requests of these callers, in order.
    fn accepted(&self, of: impl Fn(usize) -> bool) -> Vec<Duration> {
        let accepted = self
            .results
            .iter()
            .filter(|result| result.retry.is_none() && of(result.asker));
        let mut times: Vec<_> = accepted.map(|result| result.took).collect();
        times.sort_unstable();
        times
    }

    fn rejected(&self) -> usize {
        self.results.iter().filter(|result| result.retry.is_some()).count()
    }

    /// Callers that send the next request after each response or retry delay: caller `n` on connection
    /// `n % connections`. `waits` defines whether a caller observes its retry delay.
    fn ask_in_turn(&mut self, askers: usize, connections: u64, time: Duration, waits: impl Fn(usize) -> bool) {
        let mut due: Vec<Option<Instant>> = vec![Some(self.now); askers];
        let (end, mut seen) = (self.now + time, self.results.len());
        while self.now < end {
            for asker in 0..askers {
                if due[asker].is_some_and(|due| due <= self.now) {
                    due[asker] = None;
                    self.ask(asker, asker as u64 % connections);
                }
            }
            self.step();
            for result in self.results.split_off(seen) {
                let retry = result.retry.filter(|_| waits(result.asker)).unwrap_or(MS);
                due[result.asker] = Some(self.now + retry);
                self.results.push(result);
            }
            seen = self.results.len();
        }
    }
}

fn p99(times: &[Duration]) -> Duration {
    times[times.len() * 99 / 100]
}

#[test]
fn accepted_work_stays_fast_from_the_first_moment_of_a_storm() {
    let mut storm = QueueSimulation::new();
    // Ten times of what can be done, from eight connections.
    for ms in 0..3_000_usize {
        if ms % 4 == 0 {
            storm.ask(ms, ms as u64 / 4 % 8);
        }
        storm.step();
    }
    let accepted = storm.accepted(|_| true);
    assert!(accepted.len() > 70, "the worker works: {}", accepted.len());
    assert!(p99(&accepted) <= 2 * PIECE, "{accepted:?}");
    let rejected: Vec<_> = storm.results.iter().filter(|result| result.retry.is_some()).collect();
    assert!(rejected.len() > 600);
    let late = rejected
        .iter()
        .filter(|result| result.took > PIECE && result.at > BURST / 2);
    assert_eq!(late.count(), 0, "the rest is rejected at once");
}

#[test]
fn callers_who_ask_again_and_again_do_not_make_each_other_slow() {
    for waits in [true, false] {
        let mut storm = QueueSimulation::new();
        storm.ask_in_turn(10, 8, Duration::from_secs(10), |_| waits);
        let accepted = storm.accepted(|_| true);
        assert!(p99(&accepted) <= 2 * PIECE + MS, "{waits}: {accepted:?}");
        assert!(accepted.len() > 150, "{waits}: {}", accepted.len());
    }
}

#[test]
fn one_connection_does_not_take_the_workers_from_the_others() {
    for (askers, hammers) in [(2, true), (40, true), (200, true), (200, false)] {
        let mut storm = QueueSimulation::new();
        // Asker 0 has a connection of its own; the others share the other one.
        storm.start = storm.now;
        let mut due: Vec<Option<Instant>> = vec![Some(storm.now); askers];
        let mut seen = 0;
        while storm.now < storm.start + Duration::from_secs(6) {
            for asker in (0..askers).rev() {
                if due[asker].is_some_and(|due| due <= storm.now) {
                    due[asker] = None;
                    storm.ask(asker, u64::from(asker > 0));
                }
            }
            storm.step();
            for at in seen..storm.results.len() {
                let result = storm.results[at];
                let retry = result.retry.filter(|_| result.asker == 0 || !hammers);
                // The honest one asks five times a second.
                let pause = if result.asker == 0 { 200 * MS } else { 5 * MS };
                due[result.asker] = Some(storm.now + retry.unwrap_or(pause));
            }
            seen = storm.results.len();
        }
        let accepted = storm.accepted(|asker| asker == 0);
        assert!(accepted.len() > 15, "{askers} {hammers}: {}", accepted.len());
        assert!(p99(&accepted) <= 3 * PIECE, "{askers} {hammers}: {accepted:?}");
    }
}

#[test]
fn a_burst_waits_and_what_is_more_comes_back_later() {
    for burst in [25, 30] {
        let mut quiet = QueueSimulation::new();
        for asker in 0..burst {
            quiet.ask(asker, asker as u64);
        }
        let rejected: Vec<_> = quiet.results.iter().filter_map(|result| result.retry).collect();
        // One has begun, and 25 wait for a second.
        assert_eq!(rejected.len(), burst.saturating_sub(26), "{burst}");
        assert!(rejected.iter().all(|retry| *retry < 300 * MS) && rejected.is_sorted());
        for _ in 0..1_200 {
            quiet.step();
        }
        assert_eq!(quiet.accepted(|_| true).len(), burst.min(26), "{burst}");
    }
}

#[test]
fn a_burst_among_other_work_is_not_rejected() {
    let mut busy = QueueSimulation::new();
    for ms in 0..4_000_usize {
        if ms % 80 == 0 {
            busy.ask(0, 0);
        }
        if ms == 1_000 {
            for asker in 1..12 {
                busy.ask(asker, asker as u64);
            }
        }
        busy.step();
    }
    assert_eq!(busy.rejected(), 0, "{:?}", busy.results);
}

#[test]
fn a_queue_that_stands_is_an_overload_unless_it_is_short() {
    for (askers, overloaded) in [(1 + HARMLESS_QUEUE, false), (2 + HARMLESS_QUEUE, true)] {
        let mut crowded = QueueSimulation::new();
        crowded.ask_in_turn(askers, 64, Duration::from_secs(3), |_| true);
        assert_eq!(crowded.rejected() > 0, overloaded, "{askers}");
        let first = crowded.results.iter().find(|result| result.retry.is_some());
        assert!(first.is_none_or(|result| result.at >= BURST), "{first:?}");
    }
}

#[test]
fn places_are_bounded_and_slow_work_may_wait_for_several_pieces() {
    let caller = |connection| WorkCaller {
        connection,
        is_early: false,
    };
    let (full, now) = (Arc::new(WorkQueue::new(1, 2, BURST)), Instant::now());
    let held: Vec<_> = (0..3).map(|number| full.enter(caller(number), now).unwrap()).collect();
    assert_eq!(full.enter(caller(3), now).unwrap_err().limit, QueueLimit::Places);
    assert_eq!((full.running(), full.waiting()), (1, 2));
    drop(held);
    assert_eq!((full.running(), full.waiting()), (0, 0));
    let slow = Arc::new(WorkQueue::new(1, 64, BURST));
    slow.state.with(|state| state.mean = 4 * BURST);
    let _working = slow.enter(caller(0), now).unwrap();
    let Admission::Waiting(place) = slow.enter(caller(1), now).unwrap() else {
        panic!("the worker is held");
    };
    assert_eq!(place.patience, 16 * BURST);
}

#[tokio::test]
async fn a_worker_passes_over_those_who_have_gone() {
    let queue = Arc::new(WorkQueue::new(1, 64, BURST));
    let caller = WorkCaller {
        connection: 1,
        is_early: false,
    };
    let enter = || queue.enter(caller, Instant::now()).unwrap();
    let worker = enter();
    let (gone, Admission::Waiting(stays)) = (enter(), enter()) else {
        panic!("the worker is held");
    };
    drop(gone);
    drop(worker);
    assert_eq!((queue.running(), queue.waiting()), (1, 0));
    drop(stays.worker().await.unwrap());
    assert_eq!(queue.running(), 0, "a worker that nobody holds is free");
    let (worker, Admission::Waiting(granted)) = (enter(), enter()) else {
        panic!("the worker is held");
    };
    drop(worker);
    drop(granted);
    assert_eq!(queue.running(), 0, "neither is one lost that was granted and not taken");
}
