//! Metrics of placements that are committed in the call that places them.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Outcome of a call that places and commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum PlacementOutcome {
    /// The placement was committed.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    committed,
    /// An earlier call with the same key had committed it.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    repeated,
    /// Too few tasks had a node.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    unplaced,
    /// The call failed.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: PlacementOutcome,
}

/// Counters of placements that are committed at once.
#[derive(Debug, Default)]
pub(crate) struct PlacementMetrics {
    calls: Family<OutcomeLabel, Counter>,
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
            drop(self.calls.get_or_create(&OutcomeLabel { outcome }));
        }
    }

    /// Records a call and its placed tasks.
    pub(crate) fn record(&self, outcome: PlacementOutcome, tasks: u32) {
        self.calls.get_or_create(&OutcomeLabel { outcome }).inc();
        if outcome == PlacementOutcome::committed {
            self.tasks.inc_by(tasks.into());
        }
    }

    /// Records a choice that became invalid before its commit.
    pub(crate) fn record_conflict(&self) {
        self.conflicts.inc();
    }
}
