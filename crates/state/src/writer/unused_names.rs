//! Resource names that no record uses: since when, and from when on their ids are free.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use pumice_engine::model::{NameEra, ResourceId};

/// Minimum time between two scans of all records.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The writer's memory of names that are, or may be, forgotten.
#[derive(Debug, Default)]
pub(crate) struct UnusedNames {
    /// Time of the first look that found a name unused, by id.
    unused_since: BTreeMap<ResourceId, Duration>,
    /// Ids that lost their names, each group with the era that this ended, the oldest first.
    ended: Vec<(Weak<NameEra>, Vec<ResourceId>)>,
    last_look: Option<Duration>,
}

impl UnusedNames {
    /// True if it is time to look at all records again; the next look is then due after a while.
    pub(super) fn begin_look(&mut self, now: Duration) -> bool {
        let due = self.last_look.is_none_or(|last| now >= last + LOOK_INTERVAL);
        if due {
            self.last_look = Some(now);
        }
        due
    }

    /// Forgets since when names are unused, because they may stay.
    pub(super) fn clear(&mut self) {
        self.unused_since.clear();
    }

    /// Takes the names that are unused for long enough. `unused`: all that are unused now.
    pub(super) fn take_old(
        &mut self,
        unused: impl Iterator<Item = ResourceId>,
        now: Duration,
        age: Duration,
    ) -> Vec<ResourceId> {
        let before = std::mem::take(&mut self.unused_since);
        let since = unused.map(|id| (id, before.get(&id).copied().unwrap_or(now)));
        let (old, young): (Vec<_>, Vec<_>) = since.partition(|(_, since)| now.saturating_sub(*since) >= age);
        self.unused_since = young.into_iter().collect();
        old.into_iter().map(|(id, _)| id).collect()
    }

    /// Notes ids that lost their names, and the era that this ended.
    pub(super) fn end_era(&mut self, era: Weak<NameEra>, ids: Vec<ResourceId>) {
        self.ended.push((era, ids));
    }

    /// Takes the ids whose old names are unreachable.
    pub(super) fn take_free(&mut self) -> Vec<ResourceId> {
        // A holder of an era also knows the names that later ones forgot.
        let over = self.ended.iter().take_while(|(era, _)| era.strong_count() == 0).count();
        self.ended.drain(..over).flat_map(|(_, ids)| ids).collect()
    }
}
