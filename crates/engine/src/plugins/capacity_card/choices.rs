//! Cards for a job, beside what is kept back for others: single cards, and choices of which each piece goes to one card.
//!
//! What is kept back for a choice need not be on a certain card, but all of it must find room. Mostly there is room for
//! all that might go to a card; only where there is not, the pieces are weighed against each other ([`super::packing`]).

use std::sync::Arc;

use smallvec::SmallVec;

use super::amounts::{CARD_SEPARATOR, QuotaAmounts};
use super::card_flow::CardFlow;
use super::matching::key_of;
use super::packing::{Load, Packing};
use super::pieces::{Piece, Pieces};
use super::quota_accounts::{QuotaAccount, QuotaAccounts};
use super::rejection::{QuotaComparison, QuotaRejection};

/// Thousandths in one whole card.
const CARD: i128 = 1000;

impl QuotaAccount<'_> {
    /// Amounts held of choices, less what is elastic of them: by tasks whose nodes are not there.
    fn unsettled(&self) -> QuotaAmounts {
        let mut choices = QuotaAmounts::default();
        for (name, _) in self.account.allocated.choices() {
            choices.set_card(name, self.used_held(name));
        }
        choices
    }

    /// True if nothing is kept back for choices, and no task's card is open.
    fn is_plain(&self) -> bool {
        self.pieces.is_empty() && self.account.allocated.choices().next().is_none()
    }

    fn used_held(&self, name: &str) -> i128 {
        let (held, elastic) = (&self.account.allocated, &self.account.elastic);
        held.card_or_zero(name) - elastic.card_or_zero(name)
    }

    /// Amount reserved for choices that might go to a card.
    fn might_use(&self, card: &str) -> i128 {
        let unsettled = self.unsettled();
        let held = unsettled
            .cards()
            .filter(|(name, _)| name.split(CARD_SEPARATOR).any(|own| own == card));
        let held: i128 = held.map(|(_, amount)| amount).sum();
        held + self.pieces.might_use(card)
    }

    /// Used of a card, and the least of what is kept back for choices that must go there.
    fn held(&self, card: &str) -> i128 {
        let mut choices = self.unsettled();
        for piece in self.pieces.iter() {
            choices.add_card(&piece.choice, piece.size * piece.count);
        }
        self.card_used(card) + CardFlow::new(choices.cards(), |card| self.card_headroom(card)).min_flow_on(card)
    }
}

/// Number of pieces of a choice, each of which may use another card.
fn piece_count(pieces: &Pieces, choice: &str) -> i128 {
    let key = key_of(&Arc::from(choice));
    let own = pieces.iter().filter(|piece| piece.choice == key);
    own.map(|piece| piece.count).sum()
}

impl QuotaAccounts<'_> {
    /// Reasons against giving a job these cards; `pieces` are those of the choices among them.
    pub(super) fn cards(&self, wanted: &QuotaAmounts, pieces: &Pieces) -> Vec<QuotaRejection> {
        let mut rejections = Vec::new();
        if pieces.is_empty() && self.card_accounts().all(QuotaAccount::is_plain) && self.holds_plain(wanted) {
            return rejections;
        }
        let singles = || {
            wanted
                .cards()
                .filter(|(name, amount)| !name.contains(CARD_SEPARATOR) && *amount > 0)
        };
        for (card, amount) in singles() {
            let short = |account: &&QuotaAccount<'_>| account.card_headroom(card) < amount;
            let refuse =
                |account: &QuotaAccount<'_>| account.reject_card(card, &[(&**card, compared(account, card, amount))]);
            rejections.extend(self.card_accounts().filter(short).map(refuse));
        }
        if !rejections.is_empty() {
            rejections.extend(self.short_choices(wanted, &QuotaAmounts::default(), pieces));
            return rejections;
        }
        if self.surely_fits(wanted, pieces) || self.fits(wanted, pieces) {
            return rejections;
        }
        for (card, amount) in singles() {
            let refuse = |account: &QuotaAccount<'_>| {
                let compared = compared(account, card, amount);
                let short = compared.total > compared.capability;
                short.then(|| account.reject_card(card, &[(&**card, compared)]))
            };
            rejections.extend(self.card_accounts().filter_map(refuse));
        }
        rejections.extend(self.short_choices(wanted, wanted, pieces));
        if rejections.is_empty() {
            rejections.extend(self.together(wanted));
        }
        rejections
    }

    /// True if there is room for single cards, where nothing is kept back for choices.
    fn holds_plain(&self, wanted: &QuotaAmounts) -> bool {
        let has_room = |(card, amount): (&Arc<str>, i128)| {
            amount <= 0
                || self
                    .card_accounts()
                    .all(|account| account.card_headroom(card) >= amount)
        };
        wanted.cards().all(has_room)
    }

    /// Rejections of choices that find no room, beside these single cards.
    fn short_choices(&self, wanted: &QuotaAmounts, beside: &QuotaAmounts, pieces: &Pieces) -> Vec<QuotaRejection> {
        let mut rejections = Vec::new();
        for (choice, amount) in wanted.choices().filter(|(_, amount)| *amount > 0) {
            let of_account = |account: &QuotaAccount<'_>| {
                let each = choice.split(CARD_SEPARATOR).map(|card| {
                    let compared = compared(account, card, amount);
                    let total = compared.total + beside.card_or_zero(card);
                    (card, QuotaComparison { total, ..compared })
                });
                each.collect::<Vec<(&str, QuotaComparison)>>()
            };
            let fits = |card: &str| {
                self.card_accounts().all(|account| {
                    let each = of_account(account);
                    let own = each.iter().find(|(own, _)| *own == card);
                    own.is_some_and(|(_, compared)| compared.total <= compared.capability)
                })
            };
            if choice.split(CARD_SEPARATOR).any(fits) {
                continue;
            }
            let refuse = |account: &QuotaAccount<'_>| {
                let each = of_account(account);
                let short = each.iter().any(|(_, compared)| compared.total > compared.capability);
                let holds = |(_, compared): &(&str, QuotaComparison)| amount <= compared.capability;
                let split = piece_count(pieces, choice) > 1 && !each.iter().any(holds);
                short.then(|| {
                    if split {
                        account.reject_split(choice, &each)
                    } else {
                        account.reject_card(choice, &each)
                    }
                })
            };
            rejections.extend(self.card_accounts().filter_map(refuse));
        }
        rejections
    }

    /// Shortages only together with all that is reserved for others: where it might all go to one card.
    fn together(&self, wanted: &QuotaAmounts) -> Vec<QuotaRejection> {
        let worst = |account: &QuotaAccount<'_>, card: &str, amount: i128| QuotaComparison {
            requested: amount,
            total: account.card_used(card) + account.might_use(card) + amount,
            capability: account.card_capability(card),
        };
        let over = |compared: &QuotaComparison| compared.total > compared.capability;
        let mut rejections = Vec::new();
        for account in self.card_accounts() {
            for (name, amount) in wanted.cards().filter(|(_, amount)| *amount > 0) {
                let each = name
                    .split(CARD_SEPARATOR)
                    .map(|card| (card, worst(account, card, amount)));
                let each: Vec<(&str, QuotaComparison)> = each.collect();
                if each.iter().all(|(_, compared)| over(compared)) {
                    rejections.push(account.reject_card(name, &each));
                }
            }
        }
        if let (true, Some(account)) = (rejections.is_empty(), self.card_accounts().next()) {
            let first = wanted.choices().next().or_else(|| wanted.cards().next());
            rejections.extend(first.map(|(name, amount)| {
                let each = name
                    .split(CARD_SEPARATOR)
                    .map(|card| (card, worst(account, card, amount)));
                account.reject_card(name, &each.collect::<Vec<(&str, QuotaComparison)>>())
            }));
        }
        rejections
    }

    /// True if there is room whatever becomes of what is kept back for others.
    fn surely_fits(&self, wanted: &QuotaAmounts, pieces: &Pieces) -> bool {
        // What the job itself is given of each card.
        let mut taken: SmallVec<[(&str, i128); 2]> = SmallVec::new();
        let room = |taken: &[(&str, i128)], card: &str| {
            let own = taken.iter().filter(|(own, _)| *own == card).map(|(_, amount)| *amount);
            let left = self
                .card_accounts()
                .map(|account| account.card_headroom(card) - account.might_use(card));
            left.min().map_or(i128::MAX, |left| left - own.sum::<i128>())
        };
        for (card, amount) in wanted.cards().filter(|(name, _)| !name.contains(CARD_SEPARATOR)) {
            if amount > 0 && room(&taken, card) < amount {
                return false;
            }
            if !pieces.is_empty() {
                taken.push((card, amount));
            }
        }
        for piece in pieces.iter() {
            let mut left = piece.count;
            for card in self.usable(piece, true) {
                let whole = (room(&taken, card).max(0) / piece.size.max(1)).min(left);
                taken.push((card, whole * piece.size));
                left -= whole;
            }
            if left > 0 {
                return false;
            }
        }
        true
    }

    /// Cards that may hold a piece. What is kept back for others counts on cards of which nodes have as many as it needs, if
    /// there are any. The job itself is asked about by the quotas of all cards that nodes have, like one that names one card.
    fn usable<'p>(&self, piece: &'p Piece, is_own: bool) -> Vec<&'p str> {
        let total = self.state.cards().total();
        let least = if is_own { 1 } else { piece.size };
        let enough = |card: &&str| total.card_or_zero(card) >= least;
        let some: Vec<&str> = piece.choice.split(CARD_SEPARATOR).filter(enough).collect();
        if some.is_empty() {
            return piece.choice.split(CARD_SEPARATOR).collect();
        }
        some
    }

    /// True if what is wanted finds room, and nothing that is kept back for others loses the room that it would have.
    fn fits(&self, wanted: &QuotaAmounts, pieces: &Pieces) -> bool {
        let beside = self.packing(wanted, pieces);
        let (Some(left), true) = beside.least_left() else {
            return false;
        };
        if left == 0 {
            return true;
        }
        let (without, sure) = self.packing(&QuotaAmounts::default(), &Pieces::default()).least_left();
        sure && without == Some(left)
    }

    /// All pieces on the path, those of others and those of the job, and the rooms that they need.
    fn packing(&self, wanted: &QuotaAmounts, own: &Pieces) -> Packing {
        let mut build = Build {
            ledger: self,
            rooms: Vec::new(),
            packing: Packing::default(),
        };
        // The uppermost queue has the pieces of all below it.
        let others = self.of_all().last();
        for piece in others.iter().flat_map(|account| account.pieces.iter()) {
            build.load(piece, wanted, false);
        }
        for piece in own.iter() {
            build.load(piece, wanted, true);
        }
        if let Some(account) = &others {
            let unsettled = account.unsettled();
            for (name, amount) in unsettled.cards().filter(|(_, amount)| *amount > 0) {
                let piece = Piece {
                    choice: Arc::clone(name),
                    queue: Arc::clone(account.queue),
                    size: CARD,
                    count: amount / CARD,
                };
                build.load(&piece, wanted, false);
            }
        }
        build.packing
    }
}

/// With what else is kept back, as far as it must go there.
fn compared(account: &QuotaAccount<'_>, card: &str, requested: i128) -> QuotaComparison {
    QuotaComparison {
        requested,
        total: account.held(card) + requested,
        capability: account.card_capability(card),
    }
}

/// Rooms by queue and card, as pieces come to need them.
struct Build<'b, 'l> {
    ledger: &'b QuotaAccounts<'l>,
    rooms: Vec<(Arc<str>, Arc<str>)>,
    packing: Packing,
}

impl Build<'_, '_> {
    fn load(&mut self, piece: &Piece, wanted: &QuotaAmounts, must: bool) {
        let queues = self.queues_of(piece);
        let mut options = SmallVec::new();
        for card in self.ledger.usable(piece, must) {
            let rooms: SmallVec<[usize; 1]> = queues.iter().map(|queue| self.room(queue, card, wanted)).collect();
            options.push(rooms);
        }
        self.packing.loads.push(Load {
            options,
            size: piece.size,
            count: piece.count,
            must,
        });
    }

    /// The queues whose quotas count for a piece.
    fn queues_of(&self, piece: &Piece) -> SmallVec<[Arc<str>; 1]> {
        let state = self.ledger.state;
        let line = state.queue_chain(&piece.queue).0;
        let said = |queue: &Arc<str>| {
            state
                .account(queue)
                .is_some_and(|account| account.limits.cards_configured)
        };
        let any = line.iter().any(|queue| said(queue));
        let counts = |(number, queue): &(usize, &Arc<str>)| said(queue) || (!any && *number == 0);
        let queues = line.into_iter().enumerate().filter(counts);
        queues.map(|(_, queue)| Arc::clone(queue)).collect()
    }

    /// The number of the room that a queue has of a card.
    fn room(&mut self, queue: &Arc<str>, card: &str, wanted: &QuotaAmounts) -> usize {
        let known = self
            .rooms
            .iter()
            .position(|(own, name)| own == queue && **name == *card);
        if let Some(known) = known {
            return known;
        }
        let on_path = self.ledger.of_all().find(|account| account.queue == queue);
        let room = match on_path {
            Some(account) => account.card_headroom(card) - wanted.card_or_zero(card),
            None => self.ledger.state.account(queue).map_or(0, |account| {
                let of = |counts: &QuotaAmounts| counts.card_or_zero(card);
                of(&account.limits.capability) - of(&account.allocated) - of(&account.inqueue) + of(&account.elastic)
            }),
        };
        self.rooms.push((Arc::clone(queue), Arc::from(card)));
        self.packing.rooms.push(room);
        self.packing.rooms.len() - 1
    }
}
