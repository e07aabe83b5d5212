//! Calls of clients and their outcomes, and what has to be true of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Outcome of a call as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArenaReply {
    Yes,
    No,
    /// No reply came: it may have happened.
    Nothing,
}

/// Call about one job, with the times of its beginning and its end.
#[derive(Clone, Debug)]
pub(super) struct JobCall {
    pub(super) job: String,
    pub(super) is_release: bool,
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) outcome: ArenaReply,
}

/// Calls of all clients. Each job needs one core, and has one attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct History(pub(super) Vec<JobCall>);

impl History {
    /// Adds a call that begins; the place is that of its end.
    pub(super) fn begin(&mut self, call: JobCall) -> usize {
        self.0.push(call);
        self.0.len() - 1
    }

    /// Ends a call that has begun.
    pub(super) fn end(&mut self, place: usize, ended: Duration, outcome: ArenaReply) {
        let call = &mut self.0[place];
        (call.ended, call.outcome) = (ended, outcome);
    }

    /// Times between which a job certainly held its core: from the first permit that its client got to the first call that
    /// might have released it.
    fn holds(&self) -> Vec<(&str, Duration, Option<Duration>)> {
        let mut holds: BTreeMap<&str, (Option<Duration>, Option<Duration>)> = BTreeMap::new();
        for call in &self.0 {
            let (held, released) = holds.entry(&call.job).or_default();
            if call.is_release {
                *released = Some(released.map_or(call.began, |first| first.min(call.began)));
            } else if call.outcome == ArenaReply::Yes {
                *held = Some(held.map_or(call.ended, |first| first.min(call.ended)));
            }
        }
        let certain = holds
            .into_iter()
            .filter_map(|(job, (held, released))| Some((job, held?, released)));
        certain
            .filter(|(_, held, released)| released.is_none_or(|end| end > *held))
            .collect()
    }

    /// Most cores that were certainly held at one time.
    pub(super) fn most_held(&self) -> usize {
        self.most_held_since(Duration::ZERO)
    }

    /// Most cores that were certainly held at one time, at this time or later.
    pub(super) fn most_held_since(&self, since: Duration) -> usize {
        let mut changes: Vec<(Duration, i64)> = Vec::new();
        for (_, held, released) in self.holds() {
            changes.push((held, 1));
            changes.extend(released.map(|end| (end, -1)));
        }
        // At one time, ends come before beginnings.
        changes.sort_unstable();
        let (mut now, mut most) = (0_i64, 0);
        for (time, change) in changes {
            if time > since {
                most = most.max(now);
            }
            now += change;
        }
        most = most.max(now);
        usize::try_from(most).unwrap()
    }

    /// Problems of the history and the jobs that the ledger names at its end; `cores`: what the queue may hold.
    pub(super) fn problems(&self, ledger: &[String], cores: usize) -> Vec<String> {
        let mut problems = Vec::new();
        let most = self.most_held();
        if most > cores {
            problems.push(format!("{most} cores were held at one time, of {cores}"));
        }
        let named: BTreeSet<&str> = ledger.iter().map(|job| &**job).collect();
        if named.len() < ledger.len() {
            problems.push("a job is named twice".to_owned());
        }
        if ledger.len() > cores {
            problems.push(format!("{} jobs are promised a core each, of {cores}", ledger.len()));
        }
        for (job, _, released) in self.holds() {
            if released.is_none() && !named.contains(job) {
                problems.push(format!("{job} was promised a core, and the ledger has lost it"));
            }
        }
        let mut asked = BTreeSet::new();
        for call in &self.0 {
            if call.is_release && call.outcome == ArenaReply::Yes && named.contains(&*call.job) {
                problems.push(format!("{} was released, and has a core again", call.job));
            }
            if !call.is_release && call.outcome != ArenaReply::No {
                asked.insert(&*call.job);
            }
        }
        for job in named.difference(&asked) {
            problems.push(format!("{job} has a core that nobody can have been promised"));
        }
        problems
    }
}

fn call(job: &str, is_release: bool, (began, ended): (u64, u64), outcome: ArenaReply) -> JobCall {
    JobCall {
        job: job.to_owned(),
        is_release,
        began: Duration::from_millis(began),
        ended: Duration::from_millis(ended),
        outcome,
    }
}

#[test]
fn the_model_notices_each_kind_of_broken_promise() {
    let sound = History(vec![
        call("a", false, (0, 10), ArenaReply::Yes),
        call("b", false, (0, 10), ArenaReply::No),
        call("a", true, (20, 40), ArenaReply::Yes),
        call("b", false, (22, 30), ArenaReply::Yes),
        call("c", false, (31, 90), ArenaReply::Nothing),
    ]);
    let ledger = |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
    assert_eq!(sound.problems(&ledger(&["b"]), 1), Vec::<String>::new());
    assert_eq!(
        sound.problems(&ledger(&["b", "c"]), 2),
        Vec::<String>::new(),
        "`c` may have been promised"
    );
    let problem = |history: &History, names: &[&str], cores| history.problems(&ledger(names), cores).join("; ");
    assert!(problem(&sound, &[], 1).contains("b was promised a core, and the ledger has lost it"));
    assert!(problem(&sound, &["a", "b"], 2).contains("a was released, and has a core again"));
    assert!(problem(&sound, &["b", "d"], 2).contains("d has a core that nobody can have been promised"));
    assert!(problem(&sound, &["b", "b"], 2).contains("a job is named twice"));
    assert!(problem(&sound, &["b", "c"], 1).contains("2 jobs are promised a core each, of 1"));
    let mut broken = sound;
    broken.0.push(call("e", false, (32, 35), ArenaReply::Yes));
    assert!(problem(&broken, &["b", "e"], 1).contains("2 cores were held at one time, of 1"));
}

#[test]
fn cores_that_were_released_before_count_no_longer() {
    let history = History(vec![
        call("a", false, (0, 10), ArenaReply::Yes),
        call("b", false, (0, 12), ArenaReply::Yes),
        call("a", true, (20, 40), ArenaReply::Yes),
        call("c", false, (50, 60), ArenaReply::Yes),
        call("c", true, (70, 80), ArenaReply::Nothing),
    ]);
    let since = |millis| history.most_held_since(Duration::from_millis(millis));
    assert_eq!([0, 15, 20, 65, 70].map(since), [2, 2, 2, 2, 1]);
    assert_eq!(history.most_held(), 2);
    // A release that is under way may have happened.
    let mut under_way = History(history.0[..2].to_vec());
    let place = under_way.begin(call("a", true, (40, u64::MAX), ArenaReply::Nothing));
    assert_eq!(under_way.most_held_since(Duration::from_millis(40)), 1);
    under_way.end(place, Duration::from_millis(90), ArenaReply::Yes);
    assert_eq!(under_way.most_held_since(Duration::from_millis(40)), 1);
    let freed = History(history.0[..3].to_vec());
    assert_eq!(
        [19, 20].map(|millis| freed.most_held_since(Duration::from_millis(millis))),
        [2, 1]
    );
}
