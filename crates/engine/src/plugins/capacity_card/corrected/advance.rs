//! The plugin's state beside a newer cluster state, from what changed: equal to one computed again in full, to the last bit.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::state::CapacityState;
use crate::model::{ClusterState, Problem, SortedTable, StateDiff};
use crate::plugin_state::PluginStateChange;

impl CapacityState {
    /// Follows the step to a newer cluster state, if this is the state of the older one, as it was worked out.
    ///
    /// # Errors
    /// Nodes have other slots.
    pub(super) fn advance(&mut self, changes: &StateDiff<'_>) -> Result<(), Problem> {
        if !changes.same_slots() {
            return Err(PluginStateChange::unfollowed());
        }
        self.opening_state = changes.new.clone();
        let cards = self.advance_cards(&changes.nodes());
        let tasks = changes.tasks();
        self.advance_tasks_by_job(&tasks);
        let queues = changes.queues();
        if !queues.is_empty() {
            self.sum_guarantees(changes.new);
            self.sum_guarantees_along_paths(changes.new);
        }
        if cards.needs {
            self.sum_jobs(changes.new);
            return Ok(());
        }
        let jobs = changes.jobs();
        let mut moved: BTreeSet<&Arc<str>> = jobs.iter().map(|job| job.name).collect();
        for task in &tasks {
            moved.extend(task.before.into_iter().chain(task.after).map(|task| &task.job));
        }
        let (rows, new_rows) = (changes.old.reservations(), changes.new.reservations());
        let changed_rows = rows.differences(new_rows, |a, b| Arc::ptr_eq(a, b) || a == b);
        moved.extend(changed_rows.iter().map(|(job, _, _)| *job));
        if !queues.is_empty() {
            // All accounts are summed again below: until then there is none to follow the jobs.
            self.accounts = SortedTable::default();
        }
        self.advance_jobs(changes.new, &moved);
        if !queues.is_empty() {
            self.sum_accounts(changes.new);
        } else if cards.total {
            self.advance_limits(changes.new);
        }
        Ok(())
    }

    /// Limits follow the cluster's total.
    fn advance_limits(&mut self, cluster_state: &ClusterState) {
        let found = Arc::clone(&self.cards);
        for (name, _) in cluster_state.queues().iter() {
            let guaranteed = self.guaranteed_beside(name).clone();
            if let Some(account) = self.accounts.get_mut(name) {
                let limits = &mut Arc::make_mut(account).limits;
                Arc::make_mut(limits).update_cluster(found.total(), &guaranteed);
            }
        }
    }

    /// Computes the figures of these jobs again; their queues' accounts follow.
    fn advance_jobs(&mut self, cluster_state: &ClusterState, jobs: &BTreeSet<&Arc<str>>) {
        for &job in jobs {
            if let Some(row) = self.detached_reservations.remove(job) {
                self.uncharge(&row);
            }
            let stored = cluster_state.jobs().get(job);
            let entry = stored.map(|stored| self.stored_job_entry(cluster_state, stored));
            self.replace_job(job, entry);
            if let Some(row) = cluster_state.reservations().get(job) {
                self.add_detached_reservation(cluster_state, row);
            }
        }
    }
}
