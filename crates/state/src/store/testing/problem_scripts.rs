//! Random scripts of problems for logs that several servers share, in the tests of whichever crate has one. Time is virtual, and a seed
//! always gives the same script.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "checks, which panic when they fail"
)]

use std::collections::BTreeMap;
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::steps::write;
use crate::clock::Clock;
use crate::store::{AppendRules, LogHead, LogNews, LogRead, Store, StoreError};

/// Number of servers.
const SERVERS: usize = 3;
/// Number of steps.
const STEPS: u64 = 24;

/// Numbers that look random and are the same for one seed.
#[derive(Debug)]
pub struct ScriptDice(AtomicU64);

impl ScriptDice {
    /// Dice whose numbers follow from this seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)))
    }

    /// A number below `sides`.
    pub fn roll(&self, sides: u64) -> u64 {
        let mut number = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % sides
    }
}

/// Log with a service whose responses can be wrong, late, cut, repeated and missing.
pub trait TroubledLog {
    /// Opens the log for a server, with its problems.
    fn open(&mut self, server: usize) -> Box<dyn Store>;
    /// Opens the log without problems.
    fn open_whole(&mut self) -> Box<dyn Store>;
    /// Sets how many of 64 requests of a server have a problem.
    fn set_problems(&mut self, server: usize, share: u64);
    /// Makes the watches of the service show nothing, or all that comes.
    fn silence_watches(&mut self, is_silent: bool);
    /// Does harmless things beside the log, as another program would.
    fn disturb(&mut self, number: u64);
    /// Lets time pass for a server.
    fn pass(&mut self, server: usize, time: Duration);
    /// Time after which a server counts as stopped.
    fn lease(&self) -> Duration;
}

/// Time that passes as the script says.
#[derive(Debug, Default)]
struct ScriptClock(AtomicU64);

impl Clock for ScriptClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Duration {
        self.monotonic()
    }
}

/// Server as its writer runs it: it reads when there is news, and before it appends after an error.
struct ScriptServer {
    store: Box<dyn Store>,
    news: Arc<LogNews>,
    head: LogHead,
    is_current: bool,
}

impl ScriptServer {
    /// Reads on if there is a reason.
    fn read_on(&mut self) -> Result<(), StoreError> {
        let is_news = self.news.take();
        if self.is_current && !is_news {
            return Ok(());
        }
        self.is_current = false;
        let read = self.store.read_after(&self.head)?;
        self.is_current = true;
        let (LogRead::Entries(_, head) | LogRead::Content(_, head) | LogRead::Unacknowledged(head)) = read;
        self.head = head;
        Ok(())
    }
}

/// Outcome of an entry as it was reported to its caller.
enum SaidOutcome {
    Appended(u64),
    Nothing,
    Unknown,
}

struct Script<'l, L> {
    log: &'l mut L,
    seed: u64,
    dice: ScriptDice,
    clock: Arc<ScriptClock>,
    servers: BTreeMap<usize, ScriptServer>,
    said: BTreeMap<String, SaidOutcome>,
}

impl<L: TroubledLog> Script<'_, L> {
    fn start(&mut self, server: usize) {
        drop(self.servers.remove(&server));
        let mut store = self.log.open(server);
        let Ok((_, head)) = store.load() else { return };
        let news: Arc<LogNews> = Arc::default();
        news.keep_time(Arc::clone(&self.clock) as _);
        store.follow(&news);
        let started = ScriptServer {
            store,
            news,
            head,
            is_current: true,
        };
        self.servers.insert(server, started);
    }

    fn append(&mut self, server: usize) {
        let name = format!("{}-{}", server, self.said.len());
        let Some(own) = self.servers.get_mut(&server) else {
            return;
        };
        if own.read_on().is_err() {
            return;
        }
        let appended = own.store.append(&own.head, &write(&name));
        own.is_current = appended.is_ok();
        let said = match appended {
            Ok(head) => {
                assert_eq!(head.sequence, own.head.sequence + 1, "seed {}", self.seed);
                own.head = head;
                SaidOutcome::Appended(head.sequence)
            }
            Err(StoreError::Unknown { .. }) => SaidOutcome::Unknown,
            Err(_) => SaidOutcome::Nothing,
        };
        self.said.insert(name, said);
    }

    /// Lets time pass for all servers, which read what is news.
    fn pass(&mut self, time: Duration) {
        let step = self.log.lease() / 8;
        let mut passed = Duration::ZERO;
        while passed < time {
            for (server, own) in &mut self.servers {
                self.log.pass(*server, step);
                // What cannot be read is read with the next news, or before the next entry.
                drop(own.read_on());
            }
            passed += step;
            let step = u64::try_from(step.as_millis()).unwrap();
            self.clock.0.fetch_add(step, Ordering::SeqCst);
        }
    }

    fn step(&mut self) {
        let server = usize::try_from(self.dice.roll(SERVERS as u64)).unwrap();
        match self.dice.roll(16) {
            0..=7 => self.append(server),
            8 | 9 => {
                let share = [0, 2, 8, 24, 64][usize::try_from(self.dice.roll(5)).unwrap()];
                self.log.set_problems(server, share);
            }
            10 => self.start(server),
            11 => {
                let is_silent = self.dice.roll(2) == 0;
                self.log.silence_watches(is_silent);
            }
            12 => {
                let number = self.dice.roll(u64::MAX);
                self.log.disturb(number);
            }
            13 => {
                let time = self.log.lease() / 8 * u32::try_from(1 + self.dice.roll(6)).unwrap();
                self.pass(time);
            }
            _ => {
                if let Some(own) = self.servers.get_mut(&server) {
                    drop(own.read_on());
                }
            }
        }
    }

    /// A server that has not the newest entry, or cannot know, says so within five leases.
    fn check_reports(&mut self) {
        self.pass(self.log.lease() * 5);
        let newest = self.log.open_whole().load().unwrap().1;
        for (server, own) in &self.servers {
            let is_said = own.news.write_problem().is_some() || own.news.unconfirmed().is_some() || !own.is_current;
            assert!(
                own.head == newest || is_said,
                "seed {}: server {server} is at {} of {newest} and does not say so",
                self.seed,
                own.head
            );
        }
    }

    /// Once all is well, all servers have all that was acknowledged, nothing that was said not to be there, and no problem.
    fn check_end(&mut self) {
        let seed = self.seed;
        self.log.silence_watches(false);
        for server in 0..SERVERS {
            self.log.set_problems(server, 0);
            if !self.servers.contains_key(&server) {
                self.start(server);
            }
        }
        self.pass(Duration::from_secs(10));
        let mut whole = self.log.open_whole();
        let (state, newest) = whole.load().unwrap();
        for (server, own) in &mut self.servers {
            let problem = own
                .news
                .write_problem()
                .or(own.news.unconfirmed().map(|(_, doubt)| doubt));
            assert_eq!(problem, None, "seed {seed}: server {server}");
            let read = own.read_on();
            assert_eq!((read, own.head), (Ok(()), newest), "seed {seed}: server {server}");
            assert_eq!(own.store.content().unwrap(), state, "seed {seed}: server {server}");
        }
        let mut numbers = BTreeMap::new();
        for (name, said) in &self.said {
            let is_there = state.sources.iter().any(|source| **source == **name);
            match said {
                SaidOutcome::Appended(number) => {
                    assert!(
                        is_there,
                        "seed {seed}: entry {number}, {name}, was acknowledged and is lost"
                    );
                    let other = numbers.insert(number, name);
                    assert_eq!(other, None, "seed {seed}: two entries have number {number}");
                }
                SaidOutcome::Nothing => assert!(!is_there, "seed {seed}: {name} was said not to be there, and is"),
                SaidOutcome::Unknown => {}
            }
        }
        assert_eq!(
            newest.sequence,
            state.sources.len() as u64,
            "seed {seed}: each entry is there once"
        );
    }
}

/// Seed of a script that runs: a script that fails prints it, whatever failed.
struct NamedSeed(u64);

impl Drop for NamedSeed {
    #[expect(clippy::print_stdout, reason = "a failed test shows what it printed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the script of seed {} failed", self.0);
        }
    }
}

/// Runs scripts of problems, each on a log of its own, which `new` makes of a seed and the rules of appending. `PUMICE_SCRIPTS` sets
/// their number, and `PUMICE_SCRIPT_SEED` the first seed.
#[doc(hidden)]
#[expect(clippy::print_stdout, reason = "a long run says what it did")]
pub fn check_problem_scripts<L: TroubledLog>(new: impl Fn(u64, AppendRules) -> L) {
    let (first, count) = (number_of("PUMICE_SCRIPT_SEED", 1), number_of("PUMICE_SCRIPTS", 40));
    let mut sums = [0; 3];
    for seed in first..first + count {
        let _named = NamedSeed(seed);
        let counts = check_problem_script(&mut new(seed, AppendRules::default()), seed);
        sums = [0, 1, 2].map(|kind| sums[kind] + counts[kind]);
    }
    let [appended, nothing, unknown] = sums;
    println!("{count} scripts: {appended} acknowledged, {nothing} rejected, {unknown} unknown");
    assert!(appended > 0);
}

/// Checks that scripts notice each rule of appending that is left out.
#[doc(hidden)]
pub fn check_left_out_rules<L: TroubledLog>(new: impl Fn(u64, AppendRules) -> L + RefUnwindSafe) {
    for (compares, waits) in [(false, true), (true, false)] {
        let noticed = (1..200).find(|seed| {
            let rules = AppendRules::new(compares, waits);
            std::panic::catch_unwind(|| check_problem_script(&mut new(*seed, rules), *seed)).is_err()
        });
        assert!(noticed.is_some(), "compares {compares}, waits {waits}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command line of a test run is its environment"
)]
fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().unwrap())
}

/// Runs a script of problems. Returns the numbers of entries that were acknowledged, said not to be there, and unknown.
fn check_problem_script(log: &mut impl TroubledLog, seed: u64) -> [usize; 3] {
    let mut script = Script {
        log,
        seed,
        dice: ScriptDice::new(seed),
        clock: Arc::default(),
        servers: BTreeMap::new(),
        said: BTreeMap::new(),
    };
    for server in 0..SERVERS {
        script.start(server);
    }
    for _ in 0..STEPS {
        script.step();
    }
    script.check_reports();
    script.check_end();
    let count = |is_counted: fn(&SaidOutcome) -> bool| script.said.values().filter(|said| is_counted(said)).count();
    [
        count(|said| matches!(said, SaidOutcome::Appended(_))),
        count(|said| matches!(said, SaidOutcome::Nothing)),
        count(|said| matches!(said, SaidOutcome::Unknown)),
    ]
}
