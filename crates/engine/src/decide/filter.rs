//! Filter: the nodes on which a task may run.

use std::sync::Arc;

use super::candidates::{ChunkSlice, NodeCandidates};
use super::class_scorers::ScoreScratch;
use super::classes::{self, ChunkVisitor, ClassLookup, ClassResult};
use super::hook_inputs::HookInputs;
use super::parallelism::Parallelism;
use super::plugin_selection::PluginSelection;
use super::query::{FilterVerdict, NodeQuery, ResourceFit, TaskResults};
use super::reduce;
use super::rejections::RejectionTally;
use super::verdict_cache::{ClassReuse, JudgedTasks};
use crate::model::{ClusterState, NodeMask, NodeSlot, Problem, TaskClass};
use crate::plugin::PluginContext;
use crate::plugin_state::PluginStates;
use crate::policy::Policy;

/// Evaluates the tasks of a query, each class once.
///
/// Without `plugins` the stages are the node's state, the check of its resources, and the plugins' predicates in the
/// order of the tiers. The first stage that rejects a node gives the reason. Under `corrected` a lasting reason of a
/// later stage has precedence over a reason that evictions can remove. With `plugins` the stages are the check of
/// resources and these plugins, and each stage evaluates every node. The switches in the tiers are then ignored,
/// because the caller has its own tiers. If a name has several entries, the last entry with the hook is used. A plugin
/// without the hook passes every node.
///
/// # Errors
/// `plugins` names a plugin that the policy does not have or that this server does not implement. Nothing was
/// evaluated.
pub fn filter(
    cluster_state: &ClusterState,
    policy: &Policy,
    query: &NodeQuery,
) -> Result<TaskResults<FilterVerdict>, Problem> {
    let derived = plugin_states_for(cluster_state, policy, &query.plugins);
    let context = PluginContext::new(cluster_state, &derived, query.now);
    Ok(filter_with(context, policy, query, Parallelism::SEQUENTIAL)?.unwrap_or_default())
}

/// Plugin states that a query of Filter or Score needs. A caller with many queries stores them instead.
pub(super) fn plugin_states_for(cluster_state: &ClusterState, policy: &Policy, plugins: &[Arc<str>]) -> PluginStates {
    if policy.reads_plugin_state(plugins) {
        policy.compute_plugin_states(cluster_state)
    } else {
        PluginStates::default()
    }
}

/// Filters like [`filter()`], with given plugin states; `None` if the execution is cancelled.
///
/// # Errors
/// The errors of [`filter()`].
pub fn filter_with(
    context: PluginContext<'_>,
    policy: &Policy,
    query: &NodeQuery,
    parallelism: Parallelism<'_>,
) -> Result<Option<TaskResults<FilterVerdict>>, Problem> {
    let context = PluginContext {
        now: query.now,
        ..context
    };
    let selection = PluginSelection::of(policy, query)?;
    if query.tasks.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let candidates = NodeCandidates::of(context.cluster_state, query.candidates.as_deref());
    let lookup = ClassLookup::of(context.cluster_state, policy, &query.plugins);
    Ok(classes::evaluate_classes(query, lookup, parallelism, |classes| {
        let visits = classes.iter().map(|class| {
            let filter_pass = FilterPass::new(context, &selection, query, &candidates, class)?;
            let reuse = parallelism.verdicts.and_then(|verdicts| {
                let inputs = filter_pass.outside_inputs();
                verdicts.open(
                    context.cluster_state,
                    policy,
                    query,
                    JudgedTasks::Filtered,
                    class,
                    inputs,
                )
            });
            Ok(FilterVisit {
                filter_pass: filter_pass.with_fit_slots(candidates.len()),
                reuse,
            })
        });
        classes::visit_chunks(visits.collect(), &candidates.slices, parallelism.is_cancelled)
    }))
}

/// Filters of one class, with their rejections so far.
pub(super) struct FilterPass<'a> {
    context: PluginContext<'a>,
    query: &'a NodeQuery,
    absent: &'a [NodeSlot],
    tally: RejectionTally<'a>,
    is_named: bool,
    fit_count: u32,
    /// Slots of passing nodes, if the caller wants them.
    fit: Option<Vec<NodeSlot>>,
}

impl<'a> FilterPass<'a> {
    /// Pass before the first evaluated node.
    ///
    /// # Errors
    /// A plugin cannot read something in the class.
    pub(super) fn new<'p: 'a>(
        context: PluginContext<'a>,
        selection: &PluginSelection<'p>,
        query: &'a NodeQuery,
        candidates: &'a NodeCandidates<'_>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        let context = PluginContext {
            after_release: query.resource_fit == ResourceFit::FutureIdle,
            ..context
        };
        Ok(Self {
            context,
            query,
            absent: &candidates.absent,
            tally: RejectionTally::new(
                selection.filterers(context, query, class)?,
                query,
                selection.prefers_lasting_reasons(),
            ),
            is_named: selection.is_named(),
            fit_count: 0,
            fit: None,
        })
    }

    /// Pass that also collects the slots of passing nodes, at most this many.
    pub(super) fn with_fit_slots(self, nodes: usize) -> Self {
        Self {
            fit: Some(Vec::with_capacity(nodes)),
            ..self
        }
    }

    /// Inputs of the filters from outside of chunks; `None`: some filter reads more.
    pub(super) fn outside_inputs(&self) -> Option<HookInputs> {
        self.tally.outside_inputs()
    }

    /// Evaluates nodes of one chunk, or reuses a stored verdict, and returns the nodes that pass.
    pub(super) fn filter_slice(&mut self, slice: &ChunkSlice<'_>, reuse: Option<&mut ClassReuse<'_>>) -> NodeMask {
        let stored = reuse.as_deref().and_then(|reuse| reuse.filtered(slice));
        let left = if let Some(stored) = stored {
            self.tally.count_rejections(&stored.rejections, slice);
            let passed = stored.passed;
            if let Some(reuse) = reuse {
                reuse.count_reused();
            }
            passed
        } else {
            let left = self.run_stages(slice);
            let rejections = self.tally.end_slice(slice);
            if let Some(reuse) = reuse {
                reuse.put_filtered(slice, left, rejections);
            }
            self.tally.count_slice(slice);
            left
        };
        self.fit_count += left.count();
        if let Some(fit) = &mut self.fit {
            slice.push_slots(&left, fit);
        }
        left
    }

    /// Runs the filters on nodes of one chunk and returns the nodes that pass.
    fn run_stages(&mut self, slice: &ChunkSlice<'_>) -> NodeMask {
        let stages = self.tally.stages();
        let tally = &mut self.tally;
        if self.is_named {
            stages.fold(slice.candidates, |left, stage| {
                left.and_not(&tally.run_stage(stage, slice, &slice.candidates))
            })
        } else {
            reduce::conjunction(stages, &slice.candidates, |stage, left| {
                tally.run_stage(stage, slice, left)
            })
        }
    }

    /// Evaluates the nodes of all these chunks.
    pub(super) fn filter_all(mut self, slices: &[ChunkSlice<'_>]) -> FilterVerdict {
        for slice in slices {
            self.filter_slice(slice, None);
        }
        self.verdict()
    }

    /// Verdict on the evaluated nodes.
    pub(super) fn verdict(self) -> FilterVerdict {
        FilterVerdict {
            fit: self.fit.unwrap_or_default(),
            fit_count: self.fit_count,
            rejections: self
                .tally
                .rejections(self.context.cluster_state, self.absent, self.query),
        }
    }
}

/// Filtering of one class, which visits the nodes.
struct FilterVisit<'a> {
    filter_pass: FilterPass<'a>,
    /// Stored verdicts. `None`: the class is evaluated without them.
    reuse: Option<ClassReuse<'a>>,
}

impl ChunkVisitor for FilterVisit<'_> {
    type Output = FilterVerdict;

    fn visit(&mut self, slice: &ChunkSlice<'_>, _: &mut ScoreScratch) {
        self.filter_pass.filter_slice(slice, self.reuse.as_mut());
    }

    fn finish(self) -> ClassResult<FilterVerdict> {
        if let Some(reuse) = self.reuse {
            reuse.finish();
        }
        Ok((self.filter_pass.verdict(), Vec::new()))
    }
}
