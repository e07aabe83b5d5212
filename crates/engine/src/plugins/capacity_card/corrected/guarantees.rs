//! Guarantees of the queues of a tree, each amount once: a queue's guarantee holds the guarantees of the queues below it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::CapacityState;
use crate::model::ClusterState;
use crate::plugins::capacity_card::{CardQuota, QuotaAmounts};

impl CapacityState {
    /// With `cardHierarchy`, sums the guarantees that count for each queue: its own, and those of its siblings and of the
    /// siblings of queues above it.
    pub(super) fn sum_guarantees_along_paths(&mut self, cluster_state: &ClusterState) {
        if !self.config.hierarchy {
            return;
        }
        let queues = cluster_state.queues();
        // Names from the queue up to the last one above it that is there.
        let mut lines: Vec<Vec<Arc<str>>> = queues
            .iter()
            .map(|(name, _)| self.queue_chain(name).0.into_iter().map(Arc::clone).collect())
            .collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.len()));
        let above = |line: &[Arc<str>]| line.get(1).map_or_else(Arc::default, Arc::clone);
        // By queue: all that those directly below it keep for themselves; the queues at the top are below no name.
        let mut below: BTreeMap<Arc<str>, QuotaAmounts> = BTreeMap::new();
        let mut whole: BTreeMap<Arc<str>, QuotaAmounts> = BTreeMap::new();
        for line in &lines {
            let Some(stored) = line.first().and_then(|name| queues.get(name)) else {
                continue;
            };
            let queue = &stored.record;
            let mut own = CardQuota::of(queue, self.compatibility).with_cpu_memory(queue.guarantee.as_ref());
            if let Some(below) = below.get(&queue.name) {
                own.raise_to(below);
            }
            below.entry(above(line)).or_default().add(&own);
            whole.insert(Arc::clone(&queue.name), own);
        }
        let beside = |line: &Vec<Arc<str>>| {
            let name = line.first()?;
            let mut all = QuotaAmounts::default();
            for at in 0..line.len() {
                let (Some(own), rest) = (line.get(at), line.get(at..).unwrap_or_default()) else {
                    continue;
                };
                if let Some(level) = below.get(&above(rest)) {
                    all.add(level);
                }
                if let Some(own) = whole.get(own) {
                    all.subtract(own);
                }
            }
            let stored = queues.get(name)?;
            let quota = CardQuota::of(&stored.record, self.compatibility);
            all.add(&quota.with_cpu_memory(stored.record.guarantee.as_ref()));
            all.clamp_negatives();
            Some((Arc::clone(name), all))
        };
        self.guaranteed_by = Arc::new(lines.iter().filter_map(beside).collect());
    }
}
