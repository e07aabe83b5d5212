//! Who may have to go for a task that needs cards, with `cardVictims`: nobody whose going would be in vain.
//!
//! A candidate goes only if its node has a card that would do. Where the quota of the task's queue, or of one above it, is
//! short, only those go that hold some of what is short there; and if all of them together do not free enough, nobody
//! goes. A candidate of another queue goes only while its queue holds more than it deserves of something that the
//! candidate holds, earlier ones gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::books::Path;
use super::counts::Counts;
use super::entry::need_of;
use super::need::Need;
use super::state::CapacityState;
use crate::engine::model::TaskRecord;
use crate::engine::plugin::{Lack, VictimKind, VictimQuestion};

/// A task that may have to go.
struct Candidate<'a> {
    /// Its queue, and those above it that count.
    line: SmallVec<[&'a Arc<str>; 1]>,
    /// What it holds.
    held: Arc<Counts>,
    /// What the preemptor would hold on its node; `None`: no card there would do.
    wanted: Option<Counts>,
}

impl Candidate<'_> {
    fn counts_at(&self, queue: &str) -> bool {
        self.line.iter().any(|own| ***own == *queue)
    }
}

impl CapacityState {
    /// For each candidate whether it may go; `None`: the preemptor needs no cards, or belongs to no queue.
    pub(super) fn victims(&self, question: &VictimQuestion<'_>) -> Option<Vec<bool>> {
        let queue = Arc::clone(&self.jobs.get(&question.preemptor.job)?.queue);
        let mut need = Need::of(self.context(&self.opened), question.preemptor);
        if need.fault.is_none() && need.demands.is_empty() {
            return None;
        }
        let nobody = vec![false; question.candidates.len()];
        let path = self.path(&queue).ok()?;
        self.keep_preemptor_to_one_card(question, &path, &mut need);
        if need.fault.is_some() || !path.closed().is_empty() {
            return Some(nobody);
        }
        let candidates: Vec<Option<Candidate<'_>>> = self.candidates(question, &need);
        let mut may: Vec<bool> = candidates
            .iter()
            .map(|candidate| candidate.as_ref().is_some_and(|candidate| candidate.wanted.is_some()))
            .collect();
        if question.kind == VictimKind::Reclaim {
            self.spare_deserving(&candidates, &mut may);
        }
        let mut kinds: Vec<&Counts> = Vec::new();
        for wanted in candidates
            .iter()
            .flatten()
            .filter_map(|candidate| candidate.wanted.as_ref())
        {
            if !kinds.contains(&wanted) {
                kinds.push(wanted);
            }
        }
        for wanted in kinds {
            spare_useless(&path, wanted, &candidates, &mut may);
        }
        Some(may)
    }

    /// What the preemptor's queue, and those above it, lack of quota for what it would hold on a node.
    pub(super) fn lacks(&self, question: &VictimQuestion<'_>, node: &str) -> Vec<Lack> {
        let Some(path) = self
            .jobs
            .get(&question.preemptor.job)
            .and_then(|job| self.path(&job.queue).ok())
        else {
            return Vec::new();
        };
        let mut need = Need::of(self.context(&self.opened), question.preemptor);
        if need.fault.is_none() && need.demands.is_empty() {
            return Vec::new();
        }
        self.keep_preemptor_to_one_card(question, &path, &mut need);
        let lasting = need.fault.is_some() || !path.closed().is_empty();
        let Some(wanted) = self.wanted_on(node, &need).filter(|_| !lasting) else {
            // Nobody's going helps.
            return vec![Lack {
                missing: 1,
                gains: vec![0; question.candidates.len()],
            }];
        };
        let tasks = question.candidates.iter();
        let candidates: Vec<Option<Candidate<'_>>> = tasks.map(|task| self.candidate(task, &need)).collect();
        let mut lacks = Vec::new();
        for (queue, short) in path.for_task().shortages(&wanted) {
            let mut lack = |missing: i128, held: &dyn Fn(&Counts) -> i128| {
                let gain = |candidate: &Option<Candidate<'_>>| {
                    let counted = candidate.as_ref().filter(|own| own.counts_at(queue));
                    counted.map_or(0, |own| held(&own.held))
                };
                if missing > 0 {
                    let gains = candidates.iter().map(gain).collect();
                    lacks.push(Lack { missing, gains });
                }
            };
            lack(short.cpu, &|held| held.cpu);
            lack(short.memory, &|held| held.memory);
            for (card, missing) in short.cards() {
                lack(missing, &|held| held.card_or_zero(card));
            }
        }
        lacks
    }

    /// As filters and admission do: on nodes without that card, whoever goes, they refuse it still.
    fn keep_preemptor_to_one_card(&self, question: &VictimQuestion<'_>, path: &Path<'_>, need: &mut Need) {
        let task = question.preemptor;
        let ledger = path.is_configured().then(|| path.for_task());
        self.keep_to_one_card(&task.job, &task.annotations, &task.card, need, ledger.as_ref());
    }

    /// A candidate that stands there twice counts once, the first time.
    fn candidates(&self, question: &VictimQuestion<'_>, need: &Need) -> Vec<Option<Candidate<'_>>> {
        let mut known: BTreeSet<&Arc<str>> = BTreeSet::new();
        let candidates = question.candidates.iter();
        candidates
            .map(|task| {
                let again = !task.name.is_empty() && !known.insert(&task.name);
                (!again).then(|| self.candidate(task, need)).flatten()
            })
            .collect()
    }

    fn candidate(&self, task: &TaskRecord, need: &Need) -> Option<Candidate<'_>> {
        let queue = &self.jobs.get(&task.job)?.queue;
        let held = match self.held(&task.name) {
            Some(held) => held,
            None => Arc::new(need_of(self.context(&self.opened), task).counts()),
        };
        Some(Candidate {
            line: self.line(queue).0,
            held,
            wanted: self.wanted_on(&task.node, need),
        })
    }

    fn wanted_on(&self, node: &str, need: &Need) -> Option<Counts> {
        let on_node = self.cards.on_node(node)?;
        let mut wanted = Counts::new(need.cpu, need.memory);
        for demand in &need.demands {
            let mut alternatives = demand.alternatives.iter();
            let (card, amount) = alternatives.find(|(card, _)| on_node.cards.contains_key(card))?;
            wanted.add_card(card, *amount);
        }
        Some(wanted)
    }

    /// Queues keep what they deserve.
    fn spare_deserving(&self, candidates: &[Option<Candidate<'_>>], may: &mut [bool]) {
        let mut left: BTreeMap<&Arc<str>, Counts> = BTreeMap::new();
        for (candidate, may) in candidates.iter().zip(may) {
            let Some((candidate, queue)) = candidate.as_ref().and_then(|own| Some((own, own.line.first()?))) else {
                continue;
            };
            let (Some(account), Some(record)) = (self.account(queue), self.opened.queues().get(queue)) else {
                *may = false;
                continue;
            };
            let own = left.entry(queue).or_insert_with(|| account.allocated.clone());
            let deserved = &account.limits.deserved;
            let beyond = |held: i128, has: i128, deserved: i128| held > 0 && has > deserved;
            let over = beyond(candidate.held.cpu, own.cpu, deserved.cpu)
                || beyond(candidate.held.memory, own.memory, deserved.memory)
                || candidate
                    .held
                    .cards()
                    .any(|(card, held)| beyond(held, own.card_or_zero(card), deserved.card_or_zero(card)));
            *may &= over && record.record.reclaimable != Some(false);
            if *may {
                own.subtract(&candidate.held);
            }
        }
    }
}

/// Of those on whose nodes the preemptor would hold the same: only who frees what is short, and nobody if that is not
/// enough.
fn spare_useless(path: &Path<'_>, wanted: &Counts, candidates: &[Option<Candidate<'_>>], may: &mut [bool]) {
    let ledger = path.for_task();
    let short = ledger.shortages(wanted);
    let of_kind = |candidate: &&Candidate<'_>| candidate.wanted.as_ref() == Some(wanted);
    let helps = |candidate: &Candidate<'_>| {
        short
            .iter()
            .any(|(queue, short)| candidate.counts_at(queue) && short.shares_any(&candidate.held))
    };
    if short.is_empty() {
        return;
    }
    let mut freed: Vec<Counts> = vec![Counts::default(); short.len()];
    for (candidate, may) in candidates.iter().zip(may.iter_mut()) {
        let Some(candidate) = candidate.as_ref().filter(of_kind) else {
            continue;
        };
        *may &= helps(candidate);
        for ((queue, _), freed) in short.iter().zip(&mut freed) {
            if *may && candidate.counts_at(queue) {
                freed.add(&candidate.held);
            }
        }
    }
    let enough = short.iter().zip(&freed).all(|((_, short), freed)| short.fits_in(freed));
    if !enough {
        for (candidate, may) in candidates.iter().zip(may) {
            if candidate.as_ref().is_some_and(|candidate| of_kind(&candidate)) {
                *may = false;
            }
        }
    }
}
