//! Amounts held and reserved in a queue, and in those above it, as jobs and tasks ask one after the other.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::account::QueueAccount;
use super::amounts::QuotaAmounts;
use super::limits::QueueLimits;
use super::pieces::Pieces;
use super::rejection::{self, QuotaComparison, QuotaDimension, QuotaRejection, insufficient};
use super::reservations::Own;
use super::state::CapacityState;
use super::task_need::CardDemand;
use crate::model::Problem;

/// Most queues between a queue and the root.
const MAX_DEPTH: usize = 64;
/// The queue above all; it need not be there.
const ROOT: &str = "root";

/// A queue on a path.
#[derive(Clone, Debug)]
pub(super) struct QueueLevel<'a> {
    pub(super) queue: &'a Arc<str>,
    pub(super) account: Cow<'a, Arc<QueueAccount>>,
}

/// A queue and, with `cardHierarchy`, those above it.
#[derive(Clone, Debug)]
pub(super) struct QueuePath<'a> {
    state: &'a CapacityState,
    pub(super) levels: SmallVec<[QueueLevel<'a>; 1]>,
    /// Why the path does not reach the root.
    broken_reason: Option<String>,
}

impl CapacityState {
    /// Names of a queue and, with `cardHierarchy`, of those above it; and why they do not reach the root.
    pub(super) fn queue_chain<'a>(&'a self, queue: &'a Arc<str>) -> (SmallVec<[&'a Arc<str>; 1]>, Option<String>) {
        let mut line: SmallVec<[&Arc<str>; 1]> = SmallVec::from_iter([queue]);
        if !self.config.hierarchy {
            return (line, None);
        }
        while let Some(below) = line.last().and_then(|below| self.opening_state.queues().get(below)) {
            let parent = &below.record.parent;
            if parent.is_empty() || **parent == *below.record.name && **parent == *ROOT {
                break;
            }
            if line.contains(&parent) || line.len() > MAX_DEPTH {
                return (
                    line,
                    Some(format!("the path above it does not end: it comes to `{parent}` again")),
                );
            }
            if !self.opening_state.queues().contains(parent) {
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
    pub(super) fn queue_path<'a>(&'a self, queue: &'a Arc<str>) -> Result<QueuePath<'a>, Problem> {
        self.queue_path_with(queue, self.accounts.get(queue))
    }

    /// The accounts that count for a queue that has this account; `None`: it has none.
    ///
    /// # Errors
    /// The queue is not there.
    pub(super) fn queue_path_with<'a>(
        &'a self,
        queue: &'a Arc<str>,
        account: Option<&'a Arc<QueueAccount>>,
    ) -> Result<QueuePath<'a>, Problem> {
        let account = self.account_or_default_from(queue, account)?;
        if !self.config.hierarchy {
            let levels = SmallVec::from_iter([QueueLevel { queue, account }]);
            return Ok(QueuePath {
                state: self,
                levels,
                broken_reason: None,
            });
        }
        let (line, broken) = self.queue_chain(queue);
        let level = |queue: &'a Arc<str>| {
            let account = self.account_or_default(queue)?;
            Ok(QueueLevel { queue, account })
        };
        let levels: Result<_, Problem> = line.into_iter().map(level).collect();
        Ok(QueuePath {
            state: self,
            levels: levels?,
            broken_reason: broken,
        })
    }
}

impl QueuePath<'_> {
    /// Reasons that do not depend on amounts.
    pub(super) fn closed_rejections(&self) -> Vec<QuotaRejection> {
        let mut rejections = Vec::new();
        let Some(own) = self.levels.first() else {
            return rejections;
        };
        rejections.extend(
            self.broken_reason
                .iter()
                .map(|why| rejection::path_invalid(own.queue, why)),
        );
        let closed = self.levels.iter().filter(|level| !level.account.limits.is_open());
        rejections.extend(closed.map(|level| rejection::queue_not_open(level.queue)));
        if !self.is_configured() {
            rejections.push(rejection::empty_capability(own.queue));
        }
        rejections
    }

    /// True if the card quota of the queue itself counts: it is 0 for every card that it does not name.
    pub(super) fn limits_own_cards(&self) -> bool {
        let configured = |level: &QueueLevel<'_>| level.account.limits.cards_configured;
        self.levels.first().is_some_and(configured) || !self.levels.iter().any(configured)
    }

    /// True if anything says what the queue may hold.
    pub(super) fn is_configured(&self) -> bool {
        self.levels.iter().any(|level| level.account.limits.configured)
    }

    /// The books of each level. `own`: of a job that asks, what is kept back for it already; `None`: a task asks.
    fn quota_accounts(&self, own: Option<&Own>) -> QuotaAccounts<'_> {
        // Cards count where a quota is said; if that is nowhere, the queue itself may hold none.
        let said = self.levels.iter().any(|level| level.account.limits.cards_configured);
        let levels = self.levels.iter().enumerate();
        let levels = levels.map(|(number, level)| {
            let limits = &*level.account.limits;
            let mut less = QuotaAmounts::default();
            for own in own.iter().flat_map(|own| &own.counts) {
                limits.charge(&mut less, own);
            }
            let mut pieces = Cow::Borrowed(&level.account.pieces);
            if let Some(own) = own.filter(|own| !own.pieces.is_empty()) {
                pieces.to_mut().leave(&own.pieces);
            }
            QuotaAccount {
                queue: level.queue,
                limits,
                limits_cards: limits.cards_configured || (!said && number == 0),
                account: &level.account,
                for_job: own.is_some(),
                excluded: less,
                pieces,
            }
        });
        QuotaAccounts {
            state: self.state,
            levels: levels.collect(),
        }
    }

    /// Accounts for a job: held, reserved, and not elastic; without what is reserved for the job itself.
    pub(super) fn job_quota_accounts(&self, own: &Own) -> QuotaAccounts<'_> {
        self.quota_accounts(Some(own))
    }

    /// Accounts for a task: what is held.
    pub(super) fn task_quota_accounts(&self) -> QuotaAccounts<'_> {
        self.quota_accounts(None)
    }
}

/// The account of one queue.
pub(super) struct QuotaAccount<'a> {
    pub(super) queue: &'a Arc<str>,
    limits: &'a QueueLimits,
    /// True if the queue's quota of cards counts.
    limits_cards: bool,
    pub(super) account: &'a QueueAccount,
    /// True if what is reserved counts, and what is elastic does not.
    for_job: bool,
    /// Does not count.
    excluded: QuotaAmounts,
    /// Pieces of choices that are reserved, without what does not count.
    pub(super) pieces: Cow<'a, Pieces>,
}

/// The books of a queue and of those above it.
pub(super) struct QuotaAccounts<'a> {
    pub(super) state: &'a CapacityState,
    levels: SmallVec<[QuotaAccount<'a>; 1]>,
}

impl QuotaAccount<'_> {
    pub(super) fn card_capability(&self, card: &str) -> i128 {
        self.limits.capability.card_or_zero(card)
    }

    /// Amount of something that is used.
    fn used_by(&self, of: impl Fn(&QuotaAmounts) -> i128) -> i128 {
        let account = self.account;
        let held = of(&account.allocated);
        if !self.for_job {
            return held;
        }
        held + of(&account.inqueue) - of(&account.elastic) - of(&self.excluded)
    }

    /// Used of a card by name; of choices what tasks hold whose nodes are not there.
    pub(super) fn card_used(&self, card: &str) -> i128 {
        self.used_by(|counts| counts.card_or_zero(card))
    }

    fn used_cpu_memory(&self) -> QuotaAmounts {
        QuotaAmounts::new(self.used_by(|counts| counts.cpu), self.used_by(|counts| counts.memory))
    }

    /// Amount that is left of a card.
    pub(super) fn card_headroom(&self, card: &str) -> i128 {
        self.card_capability(card) - self.card_used(card)
    }

    fn quota_error_note(&self) -> String {
        match &self.limits.quota_error {
            Some(problem) => format!("; the quota counts as empty: {problem}"),
            None => String::new(),
        }
    }

    /// Cpu and memory, where there is a limit.
    fn check_cpu_memory(&self, wanted: &QuotaAmounts, rejections: &mut Vec<QuotaRejection>) {
        let mut judge =
            |most: Option<i128>, limited: bool, dimension: QuotaDimension<'_>, of: fn(&QuotaAmounts) -> i128| {
                let requested = of(wanted);
                let Some(most) = most.filter(|_| requested > 0) else {
                    return;
                };
                let compared = QuotaComparison {
                    requested,
                    total: self.used_by(of) + requested,
                    capability: most,
                };
                if compared.total > compared.capability {
                    let said = limited.then(|| of(&self.limits.capability));
                    let note = plain_note(most, said);
                    rejections.push(insufficient(self.queue, dimension, compared, note));
                }
            };
        let limits = self.limits;
        judge(limits.cpu_most, limits.cpu_limited, QuotaDimension::Cpu, |counts| {
            counts.cpu
        });
        judge(
            limits.memory_most,
            limits.memory_limited,
            QuotaDimension::Memory,
            |counts| counts.memory,
        );
    }

    /// Measurements are those of the best alternative: one whose whole quota holds the request goes before one whose
    /// quota never does, then the least short one.
    pub(super) fn reject_card(&self, choice: &str, compared: &[(&str, QuotaComparison)]) -> QuotaRejection {
        let never = |compared: &QuotaComparison| compared.requested > compared.capability;
        let short = |compared: &QuotaComparison| compared.total - compared.capability;
        let least = compared
            .iter()
            .min_by_key(|(_, compared)| (never(compared), short(compared)));
        let least = least.map_or(
            QuotaComparison {
                requested: 0,
                total: 0,
                capability: 0,
            },
            |(_, compared)| *compared,
        );
        let mut note = self.quota_error_note();
        if compared.len() > 1 {
            let cards = |milli: i128| milli as f64 / 1000.0;
            let each = compared.iter().map(|(card, compared)| {
                format!("<{card}> {} of {}", cards(compared.total), cards(compared.capability))
            });
            note = format!("; with this task or job {}{note}", each.collect::<Vec<_>>().join(", "));
        }
        insufficient(self.queue, QuotaDimension::Card(choice), least, &note)
    }

    /// Rejection of a request that no single card of a choice can hold and several together may: the measurements are
    /// those of all of them.
    pub(super) fn reject_split(&self, choice: &str, each: &[(&str, QuotaComparison)]) -> QuotaRejection {
        let requested = each.first().map_or(0, |(_, compared)| compared.requested);
        let sum = |of: fn(&QuotaComparison) -> i128| each.iter().map(|(_, compared)| of(compared)).sum::<i128>();
        let used = sum(|compared| compared.total - compared.requested);
        let together = QuotaComparison {
            requested,
            total: used + requested,
            capability: sum(|compared| compared.capability),
        };
        insufficient(
            self.queue,
            QuotaDimension::Card(choice),
            together,
            &self.quota_error_note(),
        )
    }

    /// How many tasks of this cpu and memory there is room for; `None`: without limit.
    fn task_headroom(&self, wanted: &QuotaAmounts) -> Option<u64> {
        let used = self.used_cpu_memory();
        let one = |most: Option<i128>, wanted: i128, used: i128| {
            most.filter(|_| wanted > 0).map(|most| fit_count(most - used, wanted))
        };
        let cpu = one(self.limits.cpu_most, wanted.cpu, used.cpu);
        let memory = one(self.limits.memory_most, wanted.memory, used.memory);
        cpu.into_iter().chain(memory).min()
    }
}

impl QuotaAccounts<'_> {
    /// The books of every queue, from below.
    pub(super) fn of_all(&self) -> impl DoubleEndedIterator<Item = &QuotaAccount<'_>> {
        self.levels.iter()
    }

    /// Accounts whose quotas of cards count.
    pub(super) fn card_accounts(&self) -> impl Iterator<Item = &QuotaAccount<'_>> {
        self.levels.iter().filter(|account| account.limits_cards)
    }

    /// Cpu and memory that are short.
    pub(super) fn cpu_memory_rejections(&self, wanted: &QuotaAmounts) -> Vec<QuotaRejection> {
        let mut rejections = Vec::new();
        self.levels
            .iter()
            .for_each(|account| account.check_cpu_memory(wanted, &mut rejections));
        rejections
    }

    /// Comparison of what is asked for of one card with the tightest quota.
    pub(super) fn tightest_quota(&self, card: &str, requested: i128) -> Option<(&str, QuotaComparison, String)> {
        let compared = |account: &QuotaAccount<'_>| QuotaComparison {
            requested,
            total: account.card_used(card) + requested,
            capability: account.card_capability(card),
        };
        let tightest = self.card_accounts().min_by_key(|account| account.card_headroom(card))?;
        Some((tightest.queue, compared(tightest), tightest.quota_error_note()))
    }

    /// Amount that is left of a card by the tightest quota.
    pub(super) fn card_headroom(&self, card: &str) -> i128 {
        self.card_accounts()
            .map(|account| account.card_headroom(card))
            .min()
            .unwrap_or(0)
    }

    /// The alternatives that have room for a task, with how many such tasks each has room for.
    pub(super) fn fitting_cards(&self, demand: &CardDemand) -> Result<Vec<(Arc<str>, u64)>, Vec<QuotaRejection>> {
        let fitting = demand.alternatives.iter();
        let fitting = fitting.map(|(card, wanted)| (card, *wanted, self.card_headroom(card)));
        let fitting: Vec<(Arc<str>, u64)> = fitting
            .filter(|(_, wanted, room)| wanted <= room)
            .map(|(card, wanted, room)| (Arc::clone(card), fit_count(room, wanted)))
            .collect();
        if !fitting.is_empty() {
            return Ok(fitting);
        }
        let refuse = |account: &QuotaAccount<'_>| {
            let each = demand.alternatives.iter().map(|(card, wanted)| {
                let compared = QuotaComparison {
                    requested: *wanted,
                    total: account.card_used(card) + wanted,
                    capability: account.card_capability(card),
                };
                (&**card, compared)
            });
            let each: Vec<(&str, QuotaComparison)> = each.collect();
            let short = each.iter().any(|(_, compared)| compared.total > compared.capability);
            short.then(|| account.reject_card(&demand.name(), &each))
        };
        Err(self.card_accounts().filter_map(refuse).collect())
    }

    /// By how much quotas are short of single cards, cpu and memory; only queues where something is.
    pub(super) fn shortages(&self, wanted: &QuotaAmounts) -> Vec<(&str, QuotaAmounts)> {
        let mut shortages = Vec::new();
        for account in &self.levels {
            let (used, limits) = (account.used_cpu_memory(), account.limits);
            let over =
                |used: i128, wanted: i128, limit: i128| if wanted > 0 { (used + wanted - limit).max(0) } else { 0 };
            let mut short = QuotaAmounts::default();
            if let Some(most) = limits.cpu_most {
                short.cpu = over(used.cpu, wanted.cpu, most);
            }
            if let Some(most) = limits.memory_most {
                short.memory = over(used.memory, wanted.memory, most);
            }
            for (card, amount) in wanted.cards().filter(|_| account.limits_cards) {
                let missing = over(account.card_used(card), amount, account.card_capability(card));
                if missing > 0 {
                    short.add_card(card, missing);
                }
            }
            if !short.is_zero() {
                shortages.push((&**account.queue, short));
            }
        }
        shortages
    }

    /// How many tasks of this cpu and memory there is room for; `None`: without limit.
    pub(super) fn task_headroom(&self, wanted: &QuotaAmounts) -> Option<u64> {
        self.levels
            .iter()
            .filter_map(|account| account.task_headroom(wanted))
            .min()
    }
}

/// How often an amount above 0 fits.
pub(super) fn fit_count(room: i128, wanted: i128) -> u64 {
    u64::try_from(room.max(0) / wanted.max(1)).unwrap_or(u64::MAX)
}

/// Note on what bounds cpu and memory besides the queue's own ceiling.
fn plain_note(most: i128, said: Option<i128>) -> &'static str {
    if said.is_some_and(|said| said <= most) {
        return "";
    }
    "; the rest of the cluster is guaranteed to other queues"
}
