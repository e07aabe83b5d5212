//! Amounts in use in a queue and in those above it, as jobs and tasks ask one after the other.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::card_claims::{CARD, CardClaim, CardClaims};
use super::queue_path::QueueLevel;
use super::state::CapacityState;
use super::task_need::CardDemand;
use crate::plugins::capacity_card::{
    CARD_SEPARATOR, QuotaAmounts, QuotaComparison, QuotaDimension, QuotaRejection, fit_count, insufficient,
};

/// Part of the accounts that is of the job that asks.
#[derive(Debug, Default)]
pub(super) struct OwnPart {
    /// Amounts of the accounts that are the job's own.
    pub(super) excluded: QuotaAmounts,
    /// Claims on choices that are excluded in the same way.
    pub(super) claims: CardClaims,
    /// The job's own figures say what it holds in the queue.
    pub(super) held_here: bool,
}

/// Amounts in use along a line of queues.
pub(super) struct PathUsage<'a> {
    state: &'a CapacityState,
    levels: &'a [QueueLevel<'a>],
    /// Part of the job that asks; `None`: a task asks, and only what is held counts.
    own: Option<&'a OwnPart>,
    /// How many thousandths of what they may hold queues admit; `None`: 1000.
    over_commit_milli: Option<i128>,
    /// Amounts that were given to claims on choices, by queue and card.
    given: Vec<(Arc<str>, Arc<str>, i128)>,
}

/// Reader of one of several amounts.
type AmountOf = fn(&QuotaAmounts) -> i128;
/// A card of a choice and what is compared of it.
type ComparedCard<'c> = (&'c str, QuotaComparison);

impl QueueLevel<'_> {
    fn card_quota(&self, card: &str) -> i128 {
        self.account.limits.capability.card_or_zero(card)
    }

    fn quota_error_note(&self) -> String {
        match &self.account.limits.quota_error {
            Some(problem) => format!("; the quota counts as empty: {problem}"),
            None => String::new(),
        }
    }

    /// Rejection of an amount of any of these cards. The figures are those of the best one: a card whose whole quota
    /// holds the request goes before one whose quota never does, then the least short one.
    fn reject_card(&self, choice: &str, compared: &[ComparedCard<'_>], mut note: String) -> Option<QuotaRejection> {
        let never = |compared: &QuotaComparison| compared.requested > compared.capability;
        let short = |compared: &QuotaComparison| compared.total - compared.capability;
        let best = compared
            .iter()
            .min_by_key(|(_, compared)| (never(compared), short(compared)));
        if compared.len() > 1 {
            let cards = |milli: i128| milli as f64 / 1000.0;
            let each = compared.iter().map(|(card, compared)| {
                format!("<{card}> {} of {}", cards(compared.total), cards(compared.capability))
            });
            note = format!("; with this task or job {}{note}", each.collect::<Vec<_>>().join(", "));
        }
        let (_, best) = best?;
        Some(insufficient(self.queue, QuotaDimension::Card(choice), *best, &note))
    }
}

impl<'a> PathUsage<'a> {
    pub(super) fn new(state: &'a CapacityState, levels: &'a [QueueLevel<'a>], own: Option<&'a OwnPart>) -> Self {
        Self {
            state,
            levels,
            own,
            over_commit_milli: None,
            given: Vec::new(),
        }
    }

    /// Lets jobs be admitted beyond what their queues may hold, by the factor of the policy.
    pub(super) fn over_committed(self) -> Self {
        let milli = self.state.config.over_commit_milli;
        Self {
            over_commit_milli: (milli != 1000).then_some(milli),
            ..self
        }
    }

    /// True if jobs are admitted beyond what their queues may hold.
    pub(super) fn over_commits(&self) -> bool {
        self.over_commit_milli.is_some()
    }

    /// Limit of what is asked for where a queue may hold `most`.
    fn ceiling(&self, most: i128) -> i128 {
        self.over_commit_milli.map_or(most, |milli| most * milli / 1000)
    }

    fn card_capability(&self, level: &QueueLevel<'_>, card: &str) -> i128 {
        self.ceiling(level.card_quota(card))
    }

    /// Note for messages about the cards of a queue.
    fn quota_note(&self, level: &QueueLevel<'_>) -> String {
        format!("{}{}", self.factor_note(), level.quota_error_note())
    }

    fn factor_note(&self) -> String {
        let note = |milli: i128| format!(", {} times what it may hold (overCommitFactor)", milli as f64 / 1000.0);
        self.over_commit_milli.map(note).unwrap_or_default()
    }

    /// Amount of something that is used.
    fn used(&self, level: &QueueLevel<'_>, of: impl Fn(&QuotaAmounts) -> i128) -> i128 {
        let (account, held) = (&level.account, of(&level.account.allocated));
        let reserved = |own: &OwnPart| of(&account.inqueue) - of(&account.elastic) - of(&own.excluded);
        held + self.own.map_or(0, reserved)
    }

    fn given_to_claims(&self, queue: &str, card: &str) -> i128 {
        let own = self
            .given
            .iter()
            .filter(|(own, name, _)| **own == *queue && **name == *card);
        own.map(|(_, _, amount)| amount).sum()
    }

    fn card_used(&self, level: &QueueLevel<'_>, card: &str) -> i128 {
        self.used(level, |amounts| amounts.card_or_zero(card)) + self.given_to_claims(level.queue, card)
    }

    fn compare(&self, level: &QueueLevel<'_>, card: &str, requested: i128) -> QuotaComparison {
        QuotaComparison {
            requested,
            total: self.card_used(level, card) + requested,
            capability: self.card_capability(level, card),
        }
    }

    /// Levels with a quota of cards.
    fn card_levels(&self) -> impl Iterator<Item = &'a QueueLevel<'a>> + use<'a> {
        self.levels.iter().filter(|level| level.limits_cards)
    }

    /// Amount that is left of a card by the quota of a queue.
    fn card_left(&self, level: &QueueLevel<'_>, card: &str) -> i128 {
        self.card_capability(level, card) - self.card_used(level, card)
    }

    /// Amount that is left of a card by the tightest quota.
    pub(super) fn card_headroom(&self, card: &str) -> i128 {
        let left = self.card_levels().map(|level| self.card_left(level, card));
        left.min().unwrap_or(0)
    }

    /// Amount that is left of a card by the tightest quota, and if not `by_quota` of what is admitted beyond it.
    pub(super) fn headroom(&self, card: &str, by_quota: bool) -> i128 {
        if !by_quota {
            return self.card_headroom(card);
        }
        let left = |level: &QueueLevel<'_>| level.card_quota(card) - self.card_used(level, card);
        self.card_levels().map(left).min().unwrap_or(0)
    }

    /// Comparison of what is asked for of one card with the tightest quota.
    pub(super) fn tightest_quota(&self, card: &str, requested: i128) -> Option<(&str, QuotaComparison, String)> {
        let tightest = self.card_levels().min_by_key(|level| self.card_left(level, card))?;
        let compared = self.compare(tightest, card, requested);
        Some((tightest.queue, compared, self.quota_note(tightest)))
    }

    /// Gives an amount of a card, in every queue of the path with a quota of cards.
    pub(super) fn give(&mut self, card: &str, amount: i128) {
        let queues: SmallVec<[&Arc<str>; 1]> = self.card_levels().map(|level| level.queue).collect();
        self.give_in(&queues, card, amount);
    }

    fn give_in(&mut self, queues: &[&Arc<str>], card: &str, amount: i128) {
        let card: Arc<str> = Arc::from(card);
        let given = queues
            .iter()
            .map(|queue| (Arc::clone(queue), Arc::clone(&card), amount));
        self.given.extend(given);
    }

    /// Gives cards to the claims of all others, in their order: to each the first of its list for which there is quota, in
    /// its queue and in those above. Returns the cards that claims like `like` get.
    ///
    /// A claim without quota is charged to the first card.
    pub(super) fn give_claims(&mut self, like: Option<&CardClaim>) -> Vec<Arc<str>> {
        let mut cards = Vec::new();
        // The uppermost queue has the claims of all below it.
        let Some(top) = self.levels.last() else { return cards };
        let mut claims = Cow::Borrowed(&top.account.claims);
        if let Some(own) = self.own.filter(|own| !own.claims.is_empty()) {
            claims.to_mut().leave(&own.claims);
        }
        // Tasks whose nodes are not there may hold any of their cards.
        let unsettled = top.account.allocated.choices().map(|(choice, held)| CardClaim {
            choice: Arc::clone(choice),
            queue: Arc::clone(top.queue),
            size: CARD,
            count: (held - top.account.elastic.card_or_zero(choice)) / CARD,
        });
        for claim in unsettled.collect::<Vec<_>>().iter().chain(claims.iter()) {
            let given = self.give_claim(claim);
            if like.is_some_and(|like| like.is_like(claim)) {
                cards.extend(given);
            }
        }
        cards
    }

    fn give_claim(&mut self, claim: &CardClaim) -> Vec<Arc<str>> {
        let state = self.state;
        let queues = state.card_queues(&claim.queue);
        let (mut left, mut given) = (claim.count, Vec::new());
        let cards = state.cards_on_nodes(claim, claim.size);
        for card in &cards {
            let room = queues.iter().map(|queue| self.headroom_in(queue, card)).min();
            let whole = (room.unwrap_or(0).max(0) / claim.size.max(1)).min(left);
            if whole > 0 {
                self.give_in(&queues, card, whole * claim.size);
                given.push(Arc::from(*card));
                left -= whole;
            }
        }
        if let Some(first) = cards.first().filter(|_| left > 0) {
            self.give_in(&queues, first, left * claim.size);
        }
        given
    }

    /// Amount that is left of a card in a queue, on the line or beside it.
    fn headroom_in(&self, queue: &Arc<str>, card: &str) -> i128 {
        let of = |amounts: &QuotaAmounts| amounts.card_or_zero(card);
        if let Some(level) = self.levels.iter().find(|level| level.queue == queue) {
            return self.card_left(level, card);
        }
        let left = self.state.account(queue).map_or(0, |account| {
            self.ceiling(of(&account.limits.capability)) - of(&account.allocated) - of(&account.inqueue)
                + of(&account.elastic)
        });
        left - self.given_to_claims(queue, card)
    }

    /// Rejections of an amount of any of these cards, by the queues where it is short.
    pub(super) fn reject_choice(&self, choice: &str, requested: i128) -> Vec<QuotaRejection> {
        let each = choice
            .split(CARD_SEPARATOR)
            .map(|card| (card, requested))
            .collect::<Vec<_>>();
        self.reject_alternatives(choice, &each)
    }

    fn reject_alternatives(&self, choice: &str, each: &[(&str, i128)]) -> Vec<QuotaRejection> {
        let refuse = |level: &QueueLevel<'_>| {
            let each = each
                .iter()
                .map(|(card, amount)| (*card, self.compare(level, card, *amount)));
            let each: Vec<ComparedCard<'_>> = each.collect();
            let short = each.iter().any(|(_, compared)| compared.is_short());
            short
                .then(|| level.reject_card(choice, &each, self.quota_note(level)))
                .flatten()
        };
        self.card_levels().filter_map(refuse).collect()
    }

    /// Rejections of an amount of a choice of which each task may use another card: `left` of it found no room. The
    /// figures are those of all cards together, where they are too few together.
    pub(super) fn reject_split(&self, choice: &str, requested: i128, left: i128) -> Vec<QuotaRejection> {
        let refuse = |level: &QueueLevel<'_>| {
            let cards = || choice.split(CARD_SEPARATOR);
            let used: i128 = cards().map(|card| self.card_used(level, card)).sum();
            let together = QuotaComparison {
                requested,
                total: used + left,
                capability: cards().map(|card| self.card_capability(level, card)).sum(),
            };
            let dimension = QuotaDimension::Card(choice);
            together
                .is_short()
                .then(|| insufficient(level.queue, dimension, together, &self.quota_note(level)))
        };
        self.card_levels().filter_map(refuse).collect()
    }

    /// The alternatives that have room for a task, with how many such tasks each has room for.
    pub(super) fn fitting_cards(&self, demand: &CardDemand) -> Result<Vec<(Arc<str>, u64)>, Vec<QuotaRejection>> {
        let fits = |(card, wanted): &(Arc<str>, i128)| {
            let room = self.card_headroom(card);
            (*wanted <= room).then(|| (Arc::clone(card), fit_count(room, *wanted)))
        };
        let fitting: Vec<(Arc<str>, u64)> = demand.alternatives.iter().filter_map(fits).collect();
        if !fitting.is_empty() {
            return Ok(fitting);
        }
        let each = demand.alternatives.iter().map(|(card, wanted)| (&**card, *wanted));
        Err(self.reject_alternatives(&demand.name(), &each.collect::<Vec<_>>()))
    }

    /// Comparisons of cpu and memory in a queue, and whether the limit is the queue's own ceiling. Only where there is a limit and something is wanted.
    fn plain_limits(
        &self,
        level: &QueueLevel<'_>,
        wanted: &QuotaAmounts,
    ) -> impl Iterator<Item = (QuotaDimension<'static>, QuotaComparison, bool)> {
        let limits = &level.account.limits;
        let cpu: AmountOf = |amounts| amounts.cpu;
        let memory: AmountOf = |amounts| amounts.memory;
        let rows = [
            (QuotaDimension::Cpu, cpu, limits.cpu_most, limits.cpu_limited),
            (
                QuotaDimension::Memory,
                memory,
                limits.memory_most,
                limits.memory_limited,
            ),
        ];
        let compared = rows.map(|(dimension, of, most, limited)| {
            let (requested, most) = (of(wanted), most?);
            let compared = QuotaComparison {
                requested,
                total: self.used(level, of) + requested,
                capability: self.ceiling(most),
            };
            let is_own = limited && of(&limits.capability) <= most;
            (requested > 0).then_some((dimension, compared, is_own))
        });
        compared.into_iter().flatten()
    }

    /// Cpu and memory that are short.
    pub(super) fn cpu_memory_rejections(&self, wanted: &QuotaAmounts) -> Vec<QuotaRejection> {
        let mut rejections = Vec::new();
        for level in self.levels {
            for (dimension, compared, is_own) in self.plain_limits(level, wanted) {
                if compared.is_short() {
                    let others = "; the rest of the cluster is guaranteed to other queues";
                    let note = format!("{}{}", self.factor_note(), if is_own { "" } else { others });
                    rejections.push(insufficient(level.queue, dimension, compared, &note));
                }
            }
        }
        rejections
    }

    /// How many tasks of this cpu and memory there is room for; `None`: without limit.
    pub(super) fn task_headroom(&self, wanted: &QuotaAmounts) -> Option<u64> {
        let all = self.levels.iter().flat_map(|level| self.plain_limits(level, wanted));
        let fits = |compared: QuotaComparison| {
            fit_count(
                compared.capability - compared.total + compared.requested,
                compared.requested,
            )
        };
        all.map(|(_, compared, _)| fits(compared)).min()
    }

    /// By how much quotas are short of single cards, cpu and memory; only queues where something is.
    pub(super) fn shortages(&self, wanted: &QuotaAmounts) -> Vec<(&'a str, QuotaAmounts)> {
        let mut shortages = Vec::new();
        for level in self.levels {
            let mut short = QuotaAmounts::default();
            let over = |compared: QuotaComparison| (compared.total - compared.capability).max(0);
            for (dimension, compared, _) in self.plain_limits(level, wanted) {
                match dimension {
                    QuotaDimension::Cpu => short.cpu = over(compared),
                    QuotaDimension::Memory => short.memory = over(compared),
                    QuotaDimension::Card(_) => {}
                }
            }
            for (card, amount) in wanted.cards().filter(|(_, amount)| level.limits_cards && *amount > 0) {
                let missing = over(self.compare(level, card, amount));
                if missing > 0 {
                    short.add_card(card, missing);
                }
            }
            if !short.is_zero() {
                shortages.push((&**level.queue, short));
            }
        }
        shortages
    }
}

impl CapacityState {
    /// Cards of a claim of which all nodes together have at least so much; if there are none, all.
    pub(super) fn cards_on_nodes<'c>(&self, claim: &'c CardClaim, least: i128) -> SmallVec<[&'c str; 4]> {
        let total = self.cards().total();
        let on_nodes = |card: &&str| total.card_or_zero(card) >= least;
        let cards: SmallVec<[&str; 4]> = claim.cards().filter(on_nodes).collect();
        if cards.is_empty() {
            return claim.cards().collect();
        }
        cards
    }

    /// Queues whose quotas of cards apply to the reservations of a queue.
    fn card_queues<'a>(&'a self, queue: &'a Arc<str>) -> SmallVec<[&'a Arc<str>; 1]> {
        let line = self.queue_chain(queue).0;
        let is_said = |queue: &&Arc<str>| {
            self.account(queue)
                .is_some_and(|account| account.limits.cards_configured)
        };
        let said: SmallVec<[&Arc<str>; 1]> = line.iter().copied().filter(is_said).collect();
        if said.is_empty() {
            return line.into_iter().take(1).collect();
        }
        said
    }
}
