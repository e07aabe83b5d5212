//! Nodes that failed for a role of a job: the reference skips them for other tasks of the role, even if these tasks
//! request less.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::session::ActionSession;
use crate::decide::PassingNodes;
use crate::model::{ClusterState, NodeMask, NodeSlot};

/// Nodes that failed, by job and role. Tasks without a role share nothing, and under `corrected` no tasks do.
#[derive(Debug)]
pub(super) struct RoleErrorCache {
    failed: BTreeMap<(usize, Arc<str>), BTreeMap<NodeSlot, NodeMask>>,
    is_used: bool,
}

impl RoleErrorCache {
    /// Cache without nodes.
    fn new(is_used: bool) -> Self {
        Self {
            failed: BTreeMap::new(),
            is_used,
        }
    }

    /// True if nodes that failed for a task of a role are skipped for other tasks of the role.
    pub(super) fn is_used_for(&self, role: &str) -> bool {
        self.is_used && !role.is_empty()
    }

    /// Nodes that have not failed for a role; `None`: all.
    pub(super) fn untried(&self, cluster_state: &ClusterState, job: usize, role: &str) -> Option<PassingNodes> {
        if !self.is_used_for(role) {
            return None;
        }
        let failed = self.failed.get(&(job, Arc::from(role)))?;
        let left = chunks(cluster_state).map(|(first, live)| {
            let failed = failed.get(&first).copied().unwrap_or(NodeMask::NONE);
            (first, live.and_not(&failed))
        });
        Some(left.collect())
    }

    /// Records the nodes that were evaluated and did not pass.
    pub(super) fn record(
        &mut self,
        cluster_state: &ClusterState,
        (job, role): (usize, &str),
        judged: Option<&PassingNodes>,
        passing: &PassingNodes,
    ) {
        if !self.is_used_for(role) {
            return;
        }
        let at = |nodes: &PassingNodes, first: NodeSlot| {
            let own = nodes.iter().find(|(slot, _)| *slot == first);
            own.map_or(NodeMask::NONE, |(_, nodes)| *nodes)
        };
        for (first, live) in chunks(cluster_state) {
            let judged = judged.map_or(live, |judged| at(judged, first));
            let failed = judged.and_not(&at(passing, first));
            if !failed.is_empty() {
                let of_role = self.failed.entry((job, Arc::from(role))).or_default();
                let known = of_role.entry(first).or_insert(NodeMask::NONE);
                *known = known.or(&failed);
            }
        }
    }
}

impl ActionSession<'_> {
    /// Cache without nodes for the action that runs. An argument of the action can switch it off.
    pub(super) fn new_error_cache(&self) -> RoleErrorCache {
        let is_used = self.is_upstream() && self.policy.spec().uses_error_cache(self.action.name());
        RoleErrorCache::new(is_used)
    }
}

/// Live nodes, chunk by chunk, with the slot of the first place.
fn chunks(cluster_state: &ClusterState) -> impl Iterator<Item = (NodeSlot, NodeMask)> + '_ {
    let firsts = (0..).step_by(crate::model::CHUNK_SIZE);
    firsts
        .zip(cluster_state.chunks())
        .map(|(first, chunk)| (first, *chunk.live()))
}
