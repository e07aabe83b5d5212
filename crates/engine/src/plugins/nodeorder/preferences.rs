//! Parts that are relative to the best candidate: preferred node affinity and taints.

use std::cell::Cell;

use super::ScoreRules;
use crate::model::constraints::{PodConstraints, PreferredTerm, Taint, TaintEffect, Toleration};
use crate::model::{ClusterState, ErrorCode, NodeChunk, NodeMask, NodeSlot, Problem};
use crate::plugin::{ChunkScores, PeerHook, PeerKey, PeerScorer};
use crate::plugins::integer_arithmetic::MAX_SCORE;
use crate::plugins::record_values::{BoxedRecordValues, RecordValues};

/// Preference by a value that only the record of a node decides, relative to the largest value of the candidates.
pub(super) struct RelativePreference<'a> {
    plugin: &'static str,
    /// Raw value of each node, by its record.
    raw: BoxedRecordValues<'a>,
    extremes: ValueExtremes,
    direction: Direction,
}

/// Direction of a preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// A large value is better. The values are used unchanged if none is above 0.
    Large,
    /// A small value is good. All nodes score 100 if no value is above 0.
    Small,
    /// A large value is better, and is the score itself, whatever the candidates.
    Absolute,
}

/// Number of the numbers of extreme values.
pub(super) const EXTREME_NUMBERS: usize = 3;

/// Extreme values of the candidates.
#[derive(Debug, Default)]
struct ValueExtremes {
    /// Smallest value, and 0.
    least: f64,
    /// Largest value, and 0.
    most: f64,
    /// Number of candidates with the largest value that may still take tasks.
    most_count: Cell<u32>,
}

impl ValueExtremes {
    fn numbers(&self) -> [u64; EXTREME_NUMBERS] {
        [
            self.least.to_bits(),
            self.most.to_bits(),
            u64::from(self.most_count.get()),
        ]
    }

    /// Adds the extremes of other candidates by their numbers.
    fn add_numbers(&mut self, numbers: &[u64]) {
        if let &[least, most, most_count] = numbers {
            self.least = self.least.min(f64::from_bits(least));
            self.add(f64::from_bits(most), u32::try_from(most_count).unwrap_or(u32::MAX));
        }
    }

    /// Adds candidates with a value.
    fn add(&mut self, value: f64, count: u32) {
        if count == 0 {
            return;
        }
        self.least = self.least.min(value);
        if value > self.most {
            self.most = value;
            self.most_count.set(count);
        } else if value == self.most {
            self.most_count.set(self.most_count.get() + count);
        }
    }
}

impl ValueExtremes {
    /// Score of a value, an integer.
    fn relative(&self, value: f64, direction: Direction) -> i64 {
        let value = super::resources::truncate(value);
        if direction == Direction::Absolute {
            return value;
        }
        let most = super::resources::truncate(self.most);
        let scaled = if most > 0 { value * MAX_SCORE / most } else { value };
        match direction {
            Direction::Large | Direction::Absolute => scaled,
            Direction::Small if most > 0 => MAX_SCORE - scaled,
            Direction::Small => MAX_SCORE,
        }
    }

    /// Refuses scores below 0.
    fn expect_no_negative(&self, plugin: &str, direction: Direction) -> Result<(), Problem> {
        let least = self.relative(self.least, direction);
        if least >= 0 || direction == Direction::Absolute {
            return Ok(());
        }
        let message = format!(
            "`{plugin}` cannot score the task: its preferred terms give a node the score {least}, which is below 0; give \
             preferred terms no negative weights"
        );
        let field = "constraints.affinity.node_affinity.preferred";
        Err(Problem::new(ErrorCode::ScoreOutOfRange, field, message))
    }
}

/// Preference of peers: nodes with equal values.
#[derive(Debug)]
pub(super) struct PeerPreference {
    plugin: &'static str,
    /// Values by slot.
    values: Vec<f64>,
    extremes: ValueExtremes,
    direction: Direction,
}

/// Value of nodes with these numbers.
fn value_of(key: &[i64]) -> f64 {
    key.first().map_or(0.0, |number| f64::from_bits(number.cast_unsigned()))
}

impl PeerHook for PeerPreference {
    fn append_key(&self, slot: NodeSlot, key: &mut PeerKey) {
        let value = self.values.get(slot as usize).copied().unwrap_or(0.0);
        key.push(value.to_bits().cast_signed());
    }

    fn is_static(&self) -> bool {
        true
    }

    fn place(&mut self, _: NodeSlot, _: &mut Vec<NodeSlot>) {}
}

impl PeerScorer for PeerPreference {
    fn survey(&mut self, peers: &mut dyn Iterator<Item = (&[i64], usize)>) -> Result<(), Problem> {
        self.extremes = ValueExtremes::default();
        peers.for_each(|(key, _)| self.extremes.add(value_of(key), 1));
        self.extremes.expect_no_negative(self.plugin, self.direction)
    }

    fn score(&self, key: &[i64]) -> i64 {
        self.extremes.relative(value_of(key), self.direction)
    }
}

impl<'a> RelativePreference<'a> {
    fn new(
        plugin: &'static str,
        cluster_state: &'a ClusterState,
        direction: Direction,
        compute: impl Fn(&NodeChunk, &mut ChunkScores) -> Option<f64> + 'a,
    ) -> Self {
        Self {
            plugin,
            raw: RecordValues::new(cluster_state, Box::new(compute)),
            extremes: ValueExtremes::default(),
            direction,
        }
    }

    /// Preferred node affinity; `None`: no term prefers any node.
    ///
    /// # Errors
    /// A term with a weight is invalid, at which the reference gives no scores at all.
    pub(super) fn node_affinity(
        rules: &'a ScoreRules,
        cluster_state: &'a ClusterState,
        constraints: &'a PodConstraints,
    ) -> Result<Option<Self>, Problem> {
        let plugin = rules.plugin;
        let counts = |own: &&PreferredTerm| own.weight != 0 && !own.term.is_empty();
        let all = rules.added_preferences.iter().chain(&constraints.preferred_node_terms);
        let terms: Vec<&PreferredTerm> = all.filter(counts).collect();
        if let Some(number) = constraints
            .preferred_node_terms
            .iter()
            .position(|own| counts(&own) && !own.term.is_valid())
        {
            let field = format!("constraints.affinity.node_affinity.preferred[{number}]");
            let message = format!(
                "`{plugin}` cannot score the task: the preferred term is invalid; correct its operator, key and values, or \
                 give it weight 0"
            );
            return Err(Problem::new(ErrorCode::PreferredTermInvalid, field, message));
        }
        if terms.is_empty() {
            // Without terms that count, each node has the same score, 0.
            return Ok(None);
        }
        let compute = move |chunk: &NodeChunk, values: &mut ChunkScores| {
            values.fill(0.0);
            for preferred in &terms {
                let matching = chunk.attributes().matching(&preferred.term);
                for offset in matching.iter() {
                    if let Some(value) = values.get_mut(offset) {
                        *value += f64::from(preferred.weight);
                    }
                }
            }
            None
        };
        let direction = if rules.release().scores_candidates_together {
            Direction::Large
        } else {
            Direction::Absolute
        };
        Ok(Some(Self::new(plugin, cluster_state, direction, compute)))
    }

    /// Taints that the class rather avoids.
    pub(super) fn taints(
        plugin: &'static str,
        cluster_state: &'a ClusterState,
        constraints: &'a PodConstraints,
    ) -> Self {
        let about = |own: &&Toleration| own.is_about(TaintEffect::PreferNoSchedule);
        let tolerations: Vec<&Toleration> = constraints.tolerations.iter().filter(about).collect();
        let compute = move |chunk: &NodeChunk, values: &mut ChunkScores| {
            let avoided = |taint: &&Taint| {
                taint.effect == TaintEffect::PreferNoSchedule && !tolerations.iter().any(|own| own.tolerates(taint))
            };
            let count = |taints: &[Taint]| u32::try_from(taints.iter().filter(avoided).count()).unwrap_or(u32::MAX);
            chunk
                .attributes()
                .map_taints(chunk.live(), |taints| f64::from(count(taints)), values)
        };
        Self::new(plugin, cluster_state, Direction::Small, compute)
    }

    /// Sees the candidates of a chunk. Returns their extremes, which [`Self::survey_again`] takes.
    pub(super) fn survey(&mut self, chunk: &NodeChunk, candidates: &NodeMask) -> [u64; EXTREME_NUMBERS] {
        let (mut own, mut values) = (ValueExtremes::default(), [0.0; crate::model::CHUNK_SIZE]);
        if let Some(value) = self.raw.fill_different(chunk, &mut values) {
            own.add(value, candidates.count());
        } else {
            let values = candidates.iter().filter_map(|offset| values.get(offset));
            values.for_each(|value| own.add(*value, 1));
        }
        let numbers = own.numbers();
        self.survey_again(&numbers);
        numbers
    }

    /// Sees the candidates of a chunk by their extremes.
    pub(super) fn survey_again(&mut self, numbers: &[u64]) {
        self.extremes.add_numbers(numbers);
    }

    /// Number by which scores depend on the candidates.
    pub(super) fn outside_input(&self) -> u64 {
        self.extremes.most.to_bits()
    }

    /// Ends the survey.
    ///
    /// # Errors
    /// A score is below 0, because weights of terms are: the reference gives no scores at all then.
    pub(super) fn finish_survey(&self) -> Result<(), Problem> {
        self.extremes.expect_no_negative(self.plugin, self.direction)
    }

    /// Notes that a candidate takes no more tasks. True: the largest value is another one then.
    pub(super) fn leave(&self, slot: NodeSlot) -> bool {
        if self.extremes.most <= 0.0 || self.raw.at(slot) < self.extremes.most {
            return false;
        }
        let left = self.extremes.most_count.get().saturating_sub(1);
        self.extremes.most_count.set(left);
        left == 0
    }

    /// Score of a value, an integer.
    fn relative(&self, value: f64) -> i64 {
        self.extremes.relative(value, self.direction)
    }

    /// Preference of peers, with the values of all nodes.
    pub(super) fn into_peers(self, cluster_state: &ClusterState) -> PeerPreference {
        let mut values = Vec::with_capacity(cluster_state.slots() as usize);
        for chunk in cluster_state.chunks().iter() {
            let mut own = [0.0; crate::model::CHUNK_SIZE];
            self.raw.fill(chunk, &mut own);
            values.extend_from_slice(&own);
        }
        PeerPreference {
            plugin: self.plugin,
            values,
            extremes: ValueExtremes::default(),
            direction: self.direction,
        }
    }

    /// Fills in the score of each node of a chunk.
    pub(super) fn score(&self, chunk: &NodeChunk, scores: &mut ChunkScores) {
        if let Some(value) = self.raw.fill_different(chunk, scores) {
            return scores.fill(self.relative(value) as f64);
        }
        // Neighbours often have equal values.
        let (mut last, mut score) = (0.0, self.relative(0.0) as f64);
        for place in scores.iter_mut() {
            if *place != last {
                (last, score) = (*place, self.relative(*place) as f64);
            }
            *place = score;
        }
    }
}
