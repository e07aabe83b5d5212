//! Metrics of placements that are committed in the call that places them.

use prometheus_client::encoding::EncodeLabelValue;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use super::LabelledCounter;

/// Outcome of a call that places and commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
pub(crate) enum PlacementOutcome {
    /// The placement was committed.
    committed,
    /// An earlier call with the same key had committed it.
    repeated,
    /// Too few tasks had a node.
    unplaced,
    /// The call failed.
    failed,
}

/// Counters of placements that are committed at once.
#[derive(Debug, Default)]
pub(crate) struct PlacementMetrics {
    calls: LabelledCounter<PlacementOutcome>,
    tasks: Counter,
    conflicts: Counter,
}

impl PlacementMetrics {
    pub(super) fn register(&self, own: &mut Registry) {
        let help = "Calls that place and commit, by outcome";
        own.register("placement_commits", help, self.calls.clone());
        let help = "Tasks that such calls have placed";
        own.register("placed_tasks", help, self.tasks.clone());
        let help = "Choices of nodes that did not hold any more when they were to be committed";
        own.register("placement_conflicts", help, self.conflicts.clone());
        for outcome in [
            PlacementOutcome::committed,
            PlacementOutcome::repeated,
            PlacementOutcome::unplaced,
            PlacementOutcome::failed,
        ] {
            drop(self.calls.get_or_create(&[("outcome", outcome)]));
        }
    }

    /// Records a call and its placed tasks.
    pub(crate) fn record(&self, outcome: PlacementOutcome, tasks: u32) {
        self.calls.get_or_create(&[("outcome", outcome)]).inc();
        if outcome == PlacementOutcome::committed {
            self.tasks.inc_by(tasks.into());
        }
    }

    /// Records a choice that became invalid before its commit.
    pub(crate) fn record_conflict(&self) {
        self.conflicts.inc();
    }
}
