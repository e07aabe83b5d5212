//! Filter: where may a task run?

use std::sync::Arc;

use super::candidates::{ChunkSlice, NodeCandidates};
use super::classes::{self, AccountLookup, ChunkVisitor, ClassResult};
use super::plugin_selection::PluginSelection;
use super::query::{FilterVerdict, NodeQuery, Parallelism, TaskResults};
use super::reduce;
use super::rejections::RejectionTally;
use super::score::ScoreScratch;
use crate::engine::model::{ClusterState, NodeMask, NodeSlot, Problem, TaskClass};
use crate::engine::plugin::PrepareContext;
use crate::engine::plugin_state::PluginStates;
use crate::engine::policy::Policy;

/// Judges the tasks of a question, each class once.
///
/// Without `plugins`: the node's state, then room as asked for, then the plugins' predicates in the order of the tiers; a
/// node is refused under the first that refuses. With `plugins`: room as asked for and these plugins, each judging every
/// node whatever the others say; their switches in the tiers are not looked at (the caller has tiers of its own), and of
/// a name that stands there twice the last entry with the hook answers. A plugin without the hook passes every node.
///
/// # Errors
/// `plugins` names one that the policy does not have or that is not served here; nothing was judged.
pub fn filter(
    cluster_state: &ClusterState,
    policy: &Policy,
    query: &NodeQuery,
) -> Result<TaskResults<FilterVerdict>, Problem> {
    let derived = plugin_states_for(cluster_state, policy, &query.plugins);
    let facts = PrepareContext {
        state: cluster_state,
        plugin_states: &derived,
    };
    Ok(filter_with(facts, policy, query, Parallelism::SEQUENTIAL)?.unwrap_or_default())
}

/// What plugins keep beside a state, if a question of Filter or Score needs it. Who asks often keeps it instead.
pub(super) fn plugin_states_for(cluster_state: &ClusterState, policy: &Policy, plugins: &[Arc<str>]) -> PluginStates {
    if policy.reads_plugin_state(plugins) {
        policy.compute_plugin_states(cluster_state)
    } else {
        PluginStates::default()
    }
}

/// As [`filter()`], with what plugins keep beside the state; `None` as soon as the effort is to stop.
///
/// # Errors
/// As [`filter()`].
pub fn filter_with(
    facts: PrepareContext<'_>,
    policy: &Policy,
    query: &NodeQuery,
    parallelism: Parallelism<'_>,
) -> Result<Option<TaskResults<FilterVerdict>>, Problem> {
    let asked = PluginSelection::of(policy, query)?;
    let candidates = NodeCandidates::of(facts.state, query.candidates.as_deref());
    let accounts = AccountLookup::of(facts.state, policy, &query.plugins);
    Ok(classes::evaluate_classes(query, accounts, parallelism, |classes| {
        let sieves = classes.iter().map(|class| {
            let sieve = FilterPass::new(facts, &asked, query, &candidates, class);
            sieve.map(|sieve| sieve.with_fit_slots(candidates.len()))
        });
        classes::visit_chunks(sieves.collect(), &candidates.slices, parallelism.is_cancelled)
    }))
}

/// The filters of one class, and what has come of them so far.
pub(super) struct FilterPass<'a> {
    context: PrepareContext<'a>,
    query: &'a NodeQuery,
    absent: &'a [NodeSlot],
    tally: RejectionTally<'a>,
    is_named: bool,
    fit_count: u32,
    /// Slots, if they are wanted.
    fit: Option<Vec<NodeSlot>>,
}

impl<'a> FilterPass<'a> {
    /// No node has been judged yet.
    ///
    /// # Errors
    /// A plugin cannot read something in the class.
    pub(super) fn new<'p: 'a>(
        facts: PrepareContext<'a>,
        asked: &PluginSelection<'p>,
        query: &'a NodeQuery,
        candidates: &'a NodeCandidates<'_>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        Ok(Self {
            context: facts,
            query,
            absent: &candidates.absent,
            tally: RejectionTally::new(asked.filterers(facts, query, class)?, query),
            is_named: asked.is_named(),
            fit_count: 0,
            fit: None,
        })
    }

    /// The slots of nodes that pass, at most so many, are wanted, too.
    pub(super) fn with_fit_slots(self, nodes: usize) -> Self {
        Self {
            fit: Some(Vec::with_capacity(nodes)),
            ..self
        }
    }

    /// Judges nodes of one chunk; those that pass.
    pub(super) fn filter_slice(&mut self, part: &ChunkSlice<'_>) -> NodeMask {
        let stages = self.tally.stages();
        let tally = &mut self.tally;
        let left = if self.is_named {
            stages.fold(part.candidates, |left, stage| {
                left.and_not(&tally.run_stage(stage, part, &part.candidates))
            })
        } else {
            reduce::conjunction(stages, &part.candidates, |stage, left| {
                tally.run_stage(stage, part, left)
            })
        };
        self.fit_count += left.count();
        if let Some(fit) = &mut self.fit {
            part.push_slots(&left, fit);
        }
        left
    }

    /// Judges nodes of all these chunks.
    pub(super) fn filter_all(mut self, parts: &[ChunkSlice<'_>]) -> FilterVerdict {
        for part in parts {
            self.filter_slice(part);
        }
        self.verdict()
    }

    /// The verdict on the nodes that were judged.
    pub(super) fn verdict(self) -> FilterVerdict {
        FilterVerdict {
            fit: self.fit.unwrap_or_default(),
            fit_count: self.fit_count,
            rejections: self.tally.rejections(self.context.state, self.absent, self.query),
        }
    }
}

impl ChunkVisitor for FilterPass<'_> {
    type Output = FilterVerdict;

    fn visit(&mut self, part: &ChunkSlice<'_>, _: &mut ScoreScratch) {
        self.filter_slice(part);
    }

    fn finish(self) -> ClassResult<FilterVerdict> {
        Ok((self.verdict(), Vec::new()))
    }
}
