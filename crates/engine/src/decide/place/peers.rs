//! Peers: nodes with equal verdicts from all hooks about other nodes. A placement changes the verdicts of a few groups
//! of peers, independent of their number of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::ranking::rank_score;
use crate::decide::peer_scorers::WeightedPeerScorer;
use crate::model::{NodeSlot, Problem};
use crate::plugin::{PeerFilter, PeerHook, PeerKey};

/// Hooks about other nodes, split off from the filters and scorers of a pass.
pub(super) struct PeerHooks {
    filters: Vec<Box<dyn PeerFilter>>,
    scorers: Vec<WeightedPeerScorer>,
    /// End of the numbers of each hook in a key: filters, then scorers.
    ends: Vec<usize>,
}

impl PeerHooks {
    pub(super) fn new(filters: Vec<Box<dyn PeerFilter>>, scorers: Vec<WeightedPeerScorer>) -> Self {
        let mut hooks = Self {
            filters,
            scorers,
            ends: Vec::new(),
        };
        let mut key = PeerKey::new();
        let mut ends = Vec::new();
        for hook in hooks.all() {
            hook.append_key(0, &mut key);
            ends.push(key.len());
        }
        hooks.ends = ends;
        hooks
    }

    fn all(&self) -> impl Iterator<Item = &dyn PeerHook> {
        let filters = self.filters.iter().map(|filter| -> &dyn PeerHook { &**filter });
        filters.chain(self.scorers.iter().map(|own| -> &dyn PeerHook { &*own.scorer }))
    }

    /// Key of a node.
    pub(super) fn key_of(&self, slot: NodeSlot, key: &mut PeerKey) {
        key.clear();
        self.all().for_each(|hook| hook.append_key(slot, key));
    }

    /// Adds a task of the class to a node. Appends the other nodes whose keys changed.
    pub(super) fn place(&mut self, slot: NodeSlot, changed: &mut Vec<NodeSlot>) {
        self.filters.iter_mut().for_each(|filter| filter.place(slot, changed));
        self.scorers.iter_mut().for_each(|own| own.scorer.place(slot, changed));
    }

    /// Numbers of a hook in a key.
    fn numbers<'k>(ends: &[usize], key: &'k [i64], hook: usize) -> &'k [i64] {
        let end = |hook: usize| ends.get(hook).copied().unwrap_or(0);
        let start = hook.checked_sub(1).map_or(0, end);
        key.get(start..end(hook)).unwrap_or_default()
    }

    fn passes(&self, key: &[i64]) -> bool {
        let mut filters = self.filters.iter().enumerate();
        filters.all(|(number, filter)| filter.passes(Self::numbers(&self.ends, key, number)))
    }

    /// Number of hooks.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if no placement changes a key.
    pub(super) fn are_static(&self) -> bool {
        self.all().all(PeerHook::is_static)
    }

    /// Shows the candidates to the scorers: keys of peers with their numbers of candidates.
    ///
    /// # Errors
    /// The candidates cannot be scored.
    pub(super) fn survey<'k>(
        &mut self,
        peers: &(impl Iterator<Item = (&'k [i64], usize)> + Clone),
    ) -> Result<(), Problem> {
        let ends = &self.ends;
        for (number, own) in (self.filters.len()..).zip(&mut self.scorers) {
            let mut among = peers
                .clone()
                .map(|(key, count)| (Self::numbers(ends, key, number), count));
            own.scorer.survey(&mut among)?;
        }
        Ok(())
    }

    /// Sum of what the scorers add to the totals of peers; `None`: the order of sums may matter.
    pub(super) fn points(&self, key: &[i64]) -> Option<f64> {
        let mut scorers = (self.filters.len()..).zip(&self.scorers);
        scorers.try_fold(0.0, |sum, (number, own)| {
            let points = own.points(Self::numbers(&self.ends, key, number))?;
            Some(sum + points)
        })
    }
}

/// Score of a node from its own state: the sum of the parts that are summed node by node, and the sum of the other
/// parts, an integer.
pub(super) type OwnScore = (f64, f64);

/// Total of a node whose peers get these points.
fn total((by_node, batch): OwnScore, points: f64) -> f64 {
    by_node + (batch + points)
}

/// Candidate among its peers. The better one sorts first: by the exact sum of its own score, a float and the rest, then by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PeerMember {
    sum: u64,
    rest: u64,
    rank: u32,
    slot: NodeSlot,
}

impl PeerMember {
    /// Member with a score; `None`: the sum is not finite.
    fn of((by_node, batch): OwnScore, rank: u32, slot: NodeSlot) -> Option<Self> {
        let sum = by_node + batch;
        let taken = sum - by_node;
        let rest = (by_node - (sum - taken)) + (batch - taken);
        (sum.is_finite() && rest.is_finite()).then(|| Self {
            sum: rank_score(sum),
            rest: rank_score(rest),
            rank,
            slot,
        })
    }

    /// Bound after all members with the same sum.
    fn last_alike(self) -> Self {
        Self {
            rank: u32::MAX,
            slot: NodeSlot::MAX,
            ..self
        }
    }
}

/// Nodes with one key.
#[derive(Debug)]
struct NodePeers {
    key: PeerKey,
    /// Nodes that pass by their own state.
    members: BTreeSet<PeerMember>,
    /// True if the peers pass, and there are some.
    pass: bool,
}

/// Sentinel: the node is not a candidate and has no peers.
const NO_PEERS: u32 = u32::MAX;

/// Candidates by their peers.
pub(super) struct PeerRanking<'v> {
    ranks: &'v [u32],
    numbers: BTreeMap<PeerKey, u32>,
    peers: Vec<NodePeers>,
    /// Number of the peers of each slot.
    homes: Vec<u32>,
    /// Score of each slot by its own state.
    scores: Vec<OwnScore>,
    key: PeerKey,
}

/// Choice of the best node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerChoice {
    /// Best node.
    Node(NodeSlot),
    /// No node passes.
    NoneFits,
    /// Scores are so large, or have such fractions, that the order of sums may matter.
    Inexact,
}

impl<'v> PeerRanking<'v> {
    /// Ranking of these candidates. `None`: a score is not finite.
    pub(super) fn new(ranks: &'v [u32], hooks: &PeerHooks, candidates: &[(NodeSlot, OwnScore)]) -> Option<Self> {
        let mut ranking = Self {
            ranks,
            numbers: BTreeMap::new(),
            peers: Vec::new(),
            homes: vec![NO_PEERS; ranks.len()],
            scores: vec![(0.0, 0.0); ranks.len()],
            key: PeerKey::new(),
        };
        let mut members: Vec<Vec<PeerMember>> = Vec::new();
        for (slot, score) in candidates {
            let member = ranking.note(*slot, *score)?;
            let number = ranking.number(hooks, *slot) as usize;
            members.resize_with(ranking.peers.len(), Vec::new);
            members.get_mut(number)?.push(member);
        }
        for (peers, members) in ranking.peers.iter_mut().zip(members) {
            peers.members = BTreeSet::from_iter(members);
        }
        Some(ranking)
    }

    /// Notes the score of a node, and makes its member; `None`: the score is not finite.
    fn note(&mut self, slot: NodeSlot, score: OwnScore) -> Option<PeerMember> {
        *self.scores.get_mut(slot as usize)? = score;
        let rank = self.ranks.get(slot as usize).copied().unwrap_or(u32::MAX);
        PeerMember::of(score, rank, slot)
    }

    /// Number of the present peers of a node, which is noted.
    fn number(&mut self, hooks: &PeerHooks, slot: NodeSlot) -> u32 {
        hooks.key_of(slot, &mut self.key);
        let known = self.numbers.get(&self.key).copied();
        let number = known.unwrap_or_else(|| {
            let next = u32::try_from(self.peers.len()).unwrap_or(NO_PEERS);
            self.numbers.insert(self.key.clone(), next);
            self.peers.push(NodePeers {
                key: self.key.clone(),
                members: BTreeSet::new(),
                pass: false,
            });
            next
        });
        if let Some(home) = self.homes.get_mut(slot as usize) {
            *home = number;
        }
        number
    }

    /// Adds a candidate; false: its score is not finite.
    pub(super) fn insert(&mut self, hooks: &PeerHooks, slot: NodeSlot, score: OwnScore) -> bool {
        let Some(member) = self.note(slot, score) else {
            return false;
        };
        let number = self.number(hooks, slot) as usize;
        if let Some(peers) = self.peers.get_mut(number) {
            peers.members.insert(member);
        }
        true
    }

    /// Removes a candidate, if the node is one; returns its score.
    pub(super) fn remove(&mut self, slot: NodeSlot) -> Option<OwnScore> {
        let home = self.homes.get_mut(slot as usize)?;
        let number = std::mem::replace(home, NO_PEERS) as usize;
        let score = self.scores.get(slot as usize).copied()?;
        let member = self.note(slot, score)?;
        self.peers.get_mut(number)?.members.remove(&member);
        Some(score)
    }

    /// Best node in the present state of the hooks.
    ///
    /// # Errors
    /// The candidates cannot be scored.
    pub(super) fn best(&mut self, hooks: &mut PeerHooks) -> Result<PeerChoice, Problem> {
        for peers in &mut self.peers {
            peers.pass = !peers.members.is_empty() && hooks.passes(&peers.key);
        }
        let passing = self.peers.iter().filter(|peers| peers.pass);
        hooks.survey(&passing.map(|peers| (&*peers.key, peers.members.len())))?;
        let mut best: Option<(u64, u32, NodeSlot)> = None;
        for peers in self.peers.iter().filter(|peers| peers.pass) {
            let Some(points) = hooks.points(&peers.key) else {
                return Ok(PeerChoice::Inexact);
            };
            let Some(first) = peers.members.first() else { continue };
            let score = self.score_of(first, points);
            if best.is_none_or(|(other, ..)| score <= other) {
                let (rank, slot) = self.first_name(peers, points, score);
                best = best.into_iter().chain([(score, rank, slot)]).min();
            }
        }
        Ok(best.map_or(PeerChoice::NoneFits, |(_, _, slot)| PeerChoice::Node(slot)))
    }

    fn score_of(&self, member: &PeerMember, points: f64) -> u64 {
        let own = self.scores.get(member.slot as usize).copied().unwrap_or_default();
        rank_score(total(own, points))
    }

    /// First name among the peers with this score. Different sums may have equal totals, which are rounded.
    fn first_name(&self, peers: &NodePeers, points: f64, score: u64) -> (u32, NodeSlot) {
        let mut found = (u32::MAX, NodeSlot::MAX);
        let mut next = peers.members.first();
        while let Some(member) = next.filter(|member| self.score_of(member, points) == score) {
            found = found.min((member.rank, member.slot));
            let after = (Bound::Excluded(member.last_alike()), Bound::Unbounded);
            next = peers.members.range(after).next();
        }
        found
    }

    /// Appends the slots of the first members of each peers, up to this many in all.
    pub(super) fn append_leaders(&self, count: usize, slots: &mut Vec<NodeSlot>) {
        let passing = || self.peers.iter().filter(|peers| peers.pass);
        let each = count.div_ceil(passing().count().max(1));
        let leaders = passing().flat_map(|peers| peers.members.iter().take(each));
        slots.extend(leaders.map(|member| member.slot).take(count));
    }
}
