//! Verdict of Filter and Admit on a preemptor: the number of victims after which it fits is taken from these two.

use std::sync::Arc;

use super::{PreemptorShortfall, VictimCandidate, VictimSelection};
use crate::cycle::{SchedulingCycle, SessionChange};
use crate::decide::admit;
use crate::decide::candidates::NodeCandidates;
use crate::decide::classes::ClassLookup;
use crate::decide::plugin_selection::PluginSelection;
use crate::decide::query::{NodeQuery, ResourceFit};
use crate::model::Problem;
use crate::model::constraints::ConstraintKind;
use crate::plugin::{ChunkRejections, PluginContext, Resolution};
use crate::policy::Compatibility;

impl VictimSelection<'_> {
    /// True if a filter, or Admit, rejects the preemptor on its node for a reason that no eviction removes.
    ///
    /// # Errors
    /// A plugin cannot read the preemptor.
    pub(super) fn is_unresolvable(&self, cycle: &SchedulingCycle) -> Result<bool, Problem> {
        let context = cycle.plugin_context(self.now);
        Ok(
            self.filter_resolution(context, ResourceFit::FutureIdle)? == Some(Resolution::Unresolvable)
                || self.admission_resolution(context)? == Some(Resolution::Unresolvable),
        )
    }

    /// Number of these victims, from the first, whose eviction is enough: nothing is missing, and neither filters nor
    /// admission reject the preemptor. `None`: all victims together are not enough.
    ///
    /// # Errors
    /// A plugin cannot read the preemptor.
    pub(super) fn fits_after(
        &self,
        cycle: &SchedulingCycle,
        mut shortfall: PreemptorShortfall<'_>,
        victims: &[VictimCandidate<'_>],
    ) -> Result<Option<usize>, Problem> {
        let Some(covered) = shortfall.covered_after(victims) else {
            return Ok(None);
        };
        if self.passes_after(cycle, victims, covered)? {
            return Ok(Some(covered));
        }
        let (mut failing, mut passing) = (covered, victims.len());
        if !self.passes_after(cycle, victims, passing)? {
            return Ok(None);
        }
        while passing - failing > 1 {
            let middle = usize::midpoint(failing, passing);
            if self.passes_after(cycle, victims, middle)? {
                passing = middle;
            } else {
                failing = middle;
            }
        }
        Ok(Some(passing))
    }

    /// True if filters and Admit pass the preemptor after the eviction of the first `count` victims.
    /// [`PreemptorShortfall`] checks the node's resources, including victims that the state does not have.
    ///
    /// # Errors
    /// A plugin cannot read the preemptor.
    pub(super) fn passes_after(
        &self,
        cycle: &SchedulingCycle,
        victims: &[VictimCandidate<'_>],
        count: usize,
    ) -> Result<bool, Problem> {
        let mut evicted = None;
        if self.evictions_change_verdicts() {
            let stored = |victim: &&VictimCandidate<'_>| cycle.cluster_state().tasks().contains(&victim.task.name);
            let victims = victims.iter().take(count).filter(stored);
            let evictions: Vec<SessionChange> = victims
                .map(|victim| SessionChange::Evict(Arc::clone(&victim.task.name)))
                .collect();
            evicted.insert(cycle.clone()).apply(&evictions)?;
        }
        let cycle = evicted.as_ref().unwrap_or(cycle);
        let context = cycle.plugin_context(self.now);
        Ok(self.filter_resolution(context, ResourceFit::None)?.is_none()
            && self.admission_resolution(context)?.is_none())
    }

    /// True if a filter or Admit reads accounts, places, ports or pods that evictions change.
    fn evictions_change_verdicts(&self) -> bool {
        let evaluated = self.policy.evaluated_constraints(&[]);
        let reads_pods = evaluated.contains(ConstraintKind::HostPorts) || evaluated.selects_pods();
        let mut filters = self.policy.hooks().filters.iter();
        let reads_accounts = filters.any(|hook| hook.plugin.hooks().accounts);
        let admits = self.policy.has_allocators();
        reads_pods || reads_accounts || (self.asks_admit() && admits)
    }

    /// True if Admit has a say: under `upstream` preemption never asks it. Without a plugin that admits it still rejects
    /// tasks of a queue that is closed or invalid.
    fn asks_admit(&self) -> bool {
        self.policy.compatibility() == Compatibility::Corrected
    }

    /// Resolution of the hardest rejection of the preemptor by any filter on its node once releasing tasks are gone;
    /// `None`: every filter passes.
    fn filter_resolution(
        &self,
        context: PluginContext<'_>,
        resource_fit: ResourceFit,
    ) -> Result<Option<Resolution>, Problem> {
        let cluster_state = context.cluster_state;
        let context = PluginContext {
            after_release: true,
            ..context
        };
        let query = NodeQuery::about_nodes(context.now, Arc::clone(cluster_state.resources()), resource_fit);
        let lookup = ClassLookup::of(cluster_state, self.policy, &[]);
        let class = lookup.class_of(&self.group.preemptor, cluster_state.resources());
        let candidates = NodeCandidates::at_slots(cluster_state, cluster_state.slot_of(&self.group.node));
        let mut hardest = None;
        for filter in PluginSelection::Tiers(self.policy).filterers(context, &query, &class)? {
            for slice in &candidates.slices {
                let mut rejections = ChunkRejections::default();
                filter.filter(slice.chunk, &slice.candidates, &mut rejections);
                let resolutions = rejections.drain().map(|(number, _)| filter.reason(number).resolution);
                hardest = hardest.max(resolutions.max());
            }
        }
        Ok(hardest)
    }

    /// Resolution of the hardest rejection of the preemptor by Admit; `None`: Admit permits it, or has no say.
    fn admission_resolution(&self, context: PluginContext<'_>) -> Result<Option<Resolution>, Problem> {
        let cluster_state = context.cluster_state;
        let preemptor = &self.group.preemptor;
        let queue = cluster_state.jobs().get(&preemptor.job).map(|job| &job.record.queue);
        let has_queue = queue.is_some_and(|queue| cluster_state.queues().contains(queue));
        if !has_queue || !self.asks_admit() {
            return Ok(None);
        }
        let verdict = admit::admit_task(context, self.policy, preemptor)?;
        if verdict.permitted {
            return Ok(None);
        }
        let hardest = verdict.reasons.iter().map(|(reason, _)| reason.resolution).max();
        Ok(Some(hardest.unwrap_or(Resolution::Unschedulable)))
    }
}
