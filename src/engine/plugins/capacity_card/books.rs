//! What is held and kept back in a queue, and in those above it, as jobs and tasks ask one after the other.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::account::Account;
use super::annotations::OR;
use super::counts::Counts;
use super::flow::Flow;
use super::limits::Limits;
use super::need::Demand;
use super::refusal::{self, Compared, Dimension, Refusal, insufficient};
use super::state::CapacityState;
use crate::engine::model::Problem;

/// Most queues between a queue and the root.
const DEEPEST: usize = 64;
/// The queue above all; it need not be there.
const ROOT: &str = "root";

/// A queue on a path.
#[derive(Clone, Debug)]
pub(super) struct Level<'a> {
    pub(super) queue: &'a Arc<str>,
    pub(super) account: Cow<'a, Arc<Account>>,
}

/// A queue and, with `cardHierarchy`, those above it.
#[derive(Clone, Debug, Default)]
pub(super) struct Path<'a> {
    pub(super) levels: SmallVec<[Level<'a>; 1]>,
    /// Why the path does not reach the root.
    broken: Option<String>,
}

impl CapacityState {
    /// Names of a queue and, with `cardHierarchy`, of those above it; and why they do not reach the root.
    pub(super) fn line<'a>(&'a self, queue: &'a Arc<str>) -> (SmallVec<[&'a Arc<str>; 1]>, Option<String>) {
        let mut line: SmallVec<[&Arc<str>; 1]> = SmallVec::from_iter([queue]);
        if !self.config.hierarchy {
            return (line, None);
        }
        while let Some(below) = line.last().and_then(|below| self.opened.queues().get(below)) {
            let parent = &below.record.parent;
            if parent.is_empty() || **parent == *below.record.name && **parent == *ROOT {
                break;
            }
            if line.contains(&parent) || line.len() > DEEPEST {
                return (
                    line,
                    Some(format!("the path above it does not end: it comes to `{parent}` again")),
                );
            }
            if !self.opened.queues().contains(parent) {
                let why = (**parent != *ROOT).then(|| format!("there is no queue `{parent}`, which is above it"));
                return (line, why);
            }
            line.push(parent);
        }
        (line, None)
    }

    /// The accounts that count for a queue.
    ///
    /// # Errors
    /// The queue is not there.
    pub(super) fn path<'a>(&'a self, queue: &'a Arc<str>) -> Result<Path<'a>, Problem> {
        self.path_from(queue, self.accounts.get(queue))
    }

    /// The same, of a queue that has this account; `None`: it has none.
    ///
    /// # Errors
    /// The queue is not there.
    pub(super) fn path_from<'a>(
        &'a self,
        queue: &'a Arc<str>,
        account: Option<&'a Arc<Account>>,
    ) -> Result<Path<'a>, Problem> {
        let account = self.account_or_empty(queue, account)?;
        if !self.config.hierarchy {
            let levels = SmallVec::from_iter([Level { queue, account }]);
            return Ok(Path { levels, broken: None });
        }
        let (line, broken) = self.line(queue);
        let level = |queue: &'a Arc<str>| {
            let account = self.account_of(queue)?;
            Ok(Level { queue, account })
        };
        let levels: Result<_, Problem> = line.into_iter().map(level).collect();
        Ok(Path {
            levels: levels?,
            broken,
        })
    }
}

impl Path<'_> {
    /// Reasons that do not depend on amounts.
    pub(super) fn closed(&self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let Some(own) = self.levels.first() else {
            return refusals;
        };
        refusals.extend(self.broken.iter().map(|why| refusal::path_broken(own.queue, why)));
        let closed = self.levels.iter().filter(|level| !level.account.limits.is_open());
        refusals.extend(closed.map(|level| refusal::not_open(level.queue)));
        if !self.is_configured() {
            refusals.push(refusal::empty_capability(own.queue));
        }
        refusals
    }

    /// True if anything says what the queue may hold.
    pub(super) fn is_configured(&self) -> bool {
        self.levels.iter().any(|level| level.account.limits.configured)
    }

    /// The books of each level. `own`: of a job that asks, what is kept back for it already; `None`: a task asks.
    fn books(&self, own: Option<&[Counts]>) -> Ledger<'_> {
        // Cards count where a quota is said; if that is nowhere, the queue itself may hold none.
        let said = self.levels.iter().any(|level| level.account.limits.cards_said);
        let levels = self.levels.iter().enumerate();
        let levels = levels.map(|(number, level)| {
            let limits = &*level.account.limits;
            let mut less = Counts::default();
            for own in own.unwrap_or_default() {
                limits.book(&mut less, own);
            }
            Books {
                queue: level.queue,
                limits,
                cards: limits.cards_said || (!said && number == 0),
                account: &level.account,
                for_job: own.is_some(),
                less,
                more: Counts::default(),
            }
        });
        Ledger(levels.collect())
    }

    /// What is held, kept back, and not elastic; without what is kept back for the job itself.
    pub(super) fn for_job(&self, own: &[Counts]) -> Ledger<'_> {
        self.books(Some(own))
    }

    /// What is held.
    pub(super) fn for_task(&self) -> Ledger<'_> {
        self.books(None)
    }
}

/// The books of one queue.
struct Books<'a> {
    queue: &'a str,
    limits: &'a Limits,
    /// Its quota of cards counts.
    cards: bool,
    account: &'a Account,
    /// What is kept back counts, and what is elastic does not.
    for_job: bool,
    /// Does not count.
    less: Counts,
    /// Booked since.
    more: Counts,
}

/// The books of a queue and of those above it.
pub(super) struct Ledger<'a>(SmallVec<[Books<'a>; 1]>);

impl Books<'_> {
    fn capability(&self, card: &str) -> i128 {
        self.limits.capability.card_or_zero(card)
    }

    /// What counts as used.
    fn added(&self) -> impl Iterator<Item = &Counts> {
        let of_jobs = self.for_job.then_some([&self.account.inqueue, &self.more]);
        std::iter::once(&self.account.allocated).chain(of_jobs.into_iter().flatten())
    }

    /// What is taken off it.
    fn taken(&self) -> impl Iterator<Item = &Counts> {
        let of_jobs = self.for_job.then_some([&self.account.elastic, &self.less]);
        of_jobs.into_iter().flatten()
    }

    /// So much of something is used.
    fn used_of(&self, of: impl Fn(&Counts) -> i128) -> i128 {
        let account = self.account;
        let held = of(&account.allocated);
        if !self.for_job {
            return held;
        }
        held + of(&account.inqueue) - of(&account.elastic) - of(&self.less) + of(&self.more)
    }

    /// Used of a card by name; of choices nothing.
    fn used(&self, card: &str) -> i128 {
        self.used_of(|counts| counts.card_or_zero(card))
    }

    /// Cpu and memory that are used.
    fn used_plain(&self) -> Counts {
        Counts::new(self.used_of(|counts| counts.cpu), self.used_of(|counts| counts.memory))
    }

    /// What is booked to choices.
    fn choices(&self) -> Counts {
        let mut choices = Counts::default();
        for counts in self.added() {
            counts
                .choices()
                .for_each(|(name, amount)| choices.add_card(name, amount));
        }
        for counts in self.taken() {
            counts
                .choices()
                .for_each(|(name, amount)| choices.add_card(name, -amount));
        }
        choices
    }

    fn room(&self, card: &str) -> i128 {
        self.capability(card) - self.used(card)
    }

    /// Used of a card, and the least of the choices' bookings that must go there.
    fn held(&self, card: &str) -> i128 {
        let choices = self.choices();
        self.used(card) + Flow::new(choices.cards(), |card| self.room(card)).least_on(card)
    }

    /// True if so much more fits on a card.
    fn fits(&self, card: &str, wanted: i128) -> bool {
        let room = self.room(card) - wanted;
        if room < 0 {
            return false;
        }
        // Mostly there is room for all choices that might go there, and nothing has to be weighed.
        let might_go = |counts: &Counts| -> i128 {
            let choices = counts.choices().filter(|(_, amount)| *amount > 0);
            let of_card = choices.filter(|(name, _)| name.split(OR).any(|own| own == card));
            of_card.map(|(_, amount)| amount).sum()
        };
        let might: i128 = self.added().map(might_go).sum();
        might <= room || self.held(card) + wanted <= self.capability(card)
    }

    fn compared(&self, card: &str, requested: i128) -> Compared {
        Compared {
            requested,
            total: self.held(card) + requested,
            capability: self.capability(card),
        }
    }

    /// True if so much finds room on the cards of a choice together, beside what is booked.
    fn holds_split(&self, choice: &Arc<str>, wanted: i128) -> bool {
        let room = |card: &str| self.room(card);
        let mut choices = self.choices();
        let before = Flow::new(choices.cards(), room).placed();
        choices.add_card(choice, wanted);
        let after = Flow::new(choices.cards(), room).placed();
        after - before == wanted
    }

    fn note(&self) -> String {
        match &self.limits.fault {
            Some(fault) => format!("; the quota counts as empty: {fault}"),
            None => String::new(),
        }
    }

    /// Cpu and memory, where there is a limit.
    fn plain(&self, wanted: &Counts, refusals: &mut Vec<Refusal>) {
        let mut judge = |limited: bool, dimension: Dimension<'_>, of: fn(&Counts) -> i128| {
            let requested = of(wanted);
            if !limited || requested <= 0 {
                return;
            }
            let compared = Compared {
                requested,
                total: self.used_of(of) + requested,
                capability: of(&self.limits.capability),
            };
            if compared.total > compared.capability {
                refusals.push(insufficient(self.queue, dimension, compared, ""));
            }
        };
        judge(self.limits.cpu_limited, Dimension::Cpu, |counts| counts.cpu);
        judge(self.limits.memory_limited, Dimension::Memory, |counts| counts.memory);
    }

    /// The figures are those of the alternative that is the least short.
    fn refuse(&self, choice: &str, compared: &[(&str, Compared)]) -> Refusal {
        let short = |compared: &Compared| compared.total - compared.capability;
        let least = compared.iter().min_by_key(|(_, compared)| short(compared));
        let least = least.map_or(
            Compared {
                requested: 0,
                total: 0,
                capability: 0,
            },
            |(_, compared)| *compared,
        );
        let mut note = self.note();
        if compared.len() > 1 {
            let cards = |milli: i128| milli as f64 / 1000.0;
            let each = compared.iter().map(|(card, compared)| {
                format!("<{card}> {} of {}", cards(compared.total), cards(compared.capability))
            });
            note = format!("; with this task or job {}{note}", each.collect::<Vec<_>>().join(", "));
        }
        insufficient(self.queue, Dimension::Card(choice), least, &note)
    }

    /// How many tasks of this cpu and memory there is room for; `None`: without limit.
    fn headroom(&self, wanted: &Counts) -> Option<u64> {
        let (capability, used) = (&self.limits.capability, self.used_plain());
        let one = |limited: bool, wanted: i128, room: i128| (limited && wanted > 0).then(|| times(room, wanted));
        let cpu = one(self.limits.cpu_limited, wanted.cpu, capability.cpu - used.cpu);
        let memory = one(
            self.limits.memory_limited,
            wanted.memory,
            capability.memory - used.memory,
        );
        cpu.into_iter().chain(memory).min()
    }
}

impl Ledger<'_> {
    fn of_cards(&self) -> impl Iterator<Item = &Books<'_>> {
        self.0.iter().filter(|books| books.cards)
    }

    /// Cpu and memory that are short.
    pub(super) fn plain(&self, wanted: &Counts) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        self.0.iter().for_each(|books| books.plain(wanted, &mut refusals));
        refusals
    }

    /// What a job is given of one card, or of one of several, counts for what it asks for besides.
    pub(super) fn book(&mut self, choice: &Arc<str>, amount: i128) {
        for books in &mut self.0 {
            books.more.add_card(&books.limits.booking(choice), amount);
        }
    }

    /// One card, or one of several, for a job. `mixed`: it may use several of them.
    pub(super) fn card(&self, choice: &Arc<str>, wanted: i128, mixed: bool) -> Vec<Refusal> {
        let fits = |card: &str| self.of_cards().all(|books| books.fits(card, wanted));
        let split = || mixed && self.of_cards().all(|books| books.holds_split(choice, wanted));
        if wanted <= 0 || choice.split(OR).any(fits) || (choice.contains(OR) && split()) {
            return Vec::new();
        }
        let refuse = |books: &Books<'_>| {
            let each = choice.split(OR).map(|card| (card, books.compared(card, wanted)));
            let each: Vec<(&str, Compared)> = each.collect();
            let short = each.iter().any(|(_, compared)| compared.total > compared.capability);
            short.then(|| books.refuse(choice, &each))
        };
        self.of_cards().filter_map(refuse).collect()
    }

    /// What is asked for of one card, against the tightest quota.
    pub(super) fn tightest(&self, card: &str, requested: i128) -> Option<(&str, Compared, String)> {
        let compared = |books: &Books<'_>| Compared {
            requested,
            total: books.used(card) + requested,
            capability: books.capability(card),
        };
        let tightest = self.of_cards().min_by_key(|books| books.room(card))?;
        Some((tightest.queue, compared(tightest), tightest.note()))
    }

    /// What is left of a card by the tightest quota.
    pub(super) fn room(&self, card: &str) -> i128 {
        self.of_cards().map(|books| books.room(card)).min().unwrap_or(0)
    }

    /// The alternatives that have room for a task, with how many such tasks each has room for.
    pub(super) fn demand(&self, demand: &Demand) -> Result<Vec<(Arc<str>, u64)>, Vec<Refusal>> {
        let fitting = demand.alternatives.iter();
        let fitting = fitting.map(|(card, wanted)| (card, *wanted, self.room(card)));
        let fitting: Vec<(Arc<str>, u64)> = fitting
            .filter(|(_, wanted, room)| wanted <= room)
            .map(|(card, wanted, room)| (Arc::clone(card), times(room, wanted)))
            .collect();
        if !fitting.is_empty() {
            return Ok(fitting);
        }
        let refuse = |books: &Books<'_>| {
            let each = demand.alternatives.iter().map(|(card, wanted)| {
                let compared = Compared {
                    requested: *wanted,
                    total: books.used(card) + wanted,
                    capability: books.capability(card),
                };
                (&**card, compared)
            });
            let each: Vec<(&str, Compared)> = each.collect();
            let short = each.iter().any(|(_, compared)| compared.total > compared.capability);
            short.then(|| books.refuse(&demand.name(), &each))
        };
        Err(self.of_cards().filter_map(refuse).collect())
    }

    /// By how much quotas are short of single cards, cpu and memory; only queues where something is.
    pub(super) fn shortages(&self, wanted: &Counts) -> Vec<(&str, Counts)> {
        let mut shortages = Vec::new();
        for books in &self.0 {
            let (used, limits) = (books.used_plain(), books.limits);
            let over =
                |used: i128, wanted: i128, limit: i128| if wanted > 0 { (used + wanted - limit).max(0) } else { 0 };
            let mut short = Counts::default();
            if limits.cpu_limited {
                short.cpu = over(used.cpu, wanted.cpu, limits.capability.cpu);
            }
            if limits.memory_limited {
                short.memory = over(used.memory, wanted.memory, limits.capability.memory);
            }
            for (card, amount) in wanted.cards().filter(|_| books.cards) {
                let missing = over(books.used(card), amount, books.capability(card));
                if missing > 0 {
                    short.add_card(card, missing);
                }
            }
            if !short.is_zero() {
                shortages.push((books.queue, short));
            }
        }
        shortages
    }

    /// How many tasks of this cpu and memory there is room for; `None`: without limit.
    pub(super) fn headroom(&self, wanted: &Counts) -> Option<u64> {
        self.0.iter().filter_map(|books| books.headroom(wanted)).min()
    }
}

/// How often an amount above 0 fits.
pub(super) fn times(room: i128, wanted: i128) -> u64 {
    u64::try_from(room.max(0) / wanted.max(1)).unwrap_or(u64::MAX)
}
