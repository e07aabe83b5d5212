//! History of committed placements from the callers' view, and a check that is independent of scheduling code: it sums
//! the load of each node after each revision.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Amounts by resource, in the smallest unit of each.
pub type PlainAmounts = BTreeMap<String, u64>;

/// Placement of the tasks of one call, as its caller saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenCommit {
    /// Key of the call.
    pub key: String,
    /// First revision that shows the placement.
    pub revision: u64,
    /// Tasks, each with its node.
    pub tasks: Vec<(String, String)>,
}

/// Release of tasks, as its caller saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRelease {
    /// First revision without the tasks.
    pub revision: u64,
    /// Names of the tasks.
    pub tasks: Vec<String>,
}

/// Rule that a history breaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryViolation {
    /// A node holds more than it has.
    Overcommitted {
        /// Name of the node.
        node: String,
        /// Name of the resource.
        resource: String,
        /// First revision at which it does.
        revision: u64,
        /// Amount that its tasks take.
        taken: u64,
        /// Amount that it has.
        allocatable: u64,
    },
    /// A task was placed while it had a node.
    PlacedTwice {
        /// Name of the task.
        task: String,
        /// Revision of the second placement.
        revision: u64,
    },
    /// A placement names a task or a node that the cluster does not have.
    UnknownName {
        /// Name of the task or the node.
        name: String,
    },
    /// A task without a placement was released.
    ReleasedUnplaced {
        /// Name of the task.
        task: String,
    },
    /// The server shows a task on another node than the history does.
    ShownElsewhere {
        /// Name of the task.
        task: String,
        /// Node by the history; empty: none.
        seen: String,
        /// Node that the server shows; empty: none.
        shown: String,
    },
}

impl fmt::Display for HistoryViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |node: &String| {
            if node.is_empty() {
                "no node".to_owned()
            } else {
                format!("node `{node}`")
            }
        };
        match self {
            Self::Overcommitted {
                node,
                resource,
                revision,
                taken,
                allocatable,
            } => write!(
                f,
                "node `{node}` holds {taken} of {resource} at revision {revision}, and has {allocatable}"
            ),
            Self::PlacedTwice { task, revision } => {
                write!(f, "task `{task}` was placed at revision {revision} while it had a node")
            }
            Self::UnknownName { name } => write!(f, "a placement names `{name}`, which the cluster does not have"),
            Self::ReleasedUnplaced { task } => write!(f, "task `{task}` was released, and nobody had placed it"),
            Self::ShownElsewhere { task, seen, shown } => write!(
                f,
                "task `{task}` is on {} by its caller, and on {} by the server",
                or_none(seen),
                or_none(shown)
            ),
        }
    }
}

/// Cluster and what callers saw happen in it.
#[derive(Debug, Clone, Default)]
pub struct PlacementHistory {
    /// Amounts that each node has.
    pub nodes: BTreeMap<String, PlainAmounts>,
    /// Amounts that each task takes.
    pub tasks: BTreeMap<String, PlainAmounts>,
    /// Committed placements, in any order.
    pub commits: Vec<SeenCommit>,
    /// Releases, in any order.
    pub releases: Vec<SeenRelease>,
}

/// State of the check after some revisions.
#[derive(Debug, Default)]
struct CheckedState<'h> {
    /// Node of each task that has one.
    placed: BTreeMap<&'h str, &'h str>,
    /// Amounts taken, by node and resource.
    taken: BTreeMap<(&'h str, &'h str), u64>,
    /// Nodes on which something was placed at this revision.
    touched: BTreeSet<&'h str>,
    violations: Vec<HistoryViolation>,
}

#[derive(Debug, Default)]
struct RevisionEvents<'h> {
    commits: Vec<&'h SeenCommit>,
    releases: Vec<&'h SeenRelease>,
}

impl PlacementHistory {
    /// Everything that the history breaks. The events of one revision take effect together.
    pub fn violations(&self) -> Vec<HistoryViolation> {
        self.replay().violations
    }

    /// Node of each task that has one at the end of the history.
    pub fn final_nodes(&self) -> BTreeMap<&str, &str> {
        self.replay().placed
    }

    /// Differences between the end of the history and what the server shows: tasks with their nodes.
    pub fn differences<'s>(&self, shown: impl Iterator<Item = (&'s str, &'s str)>) -> Vec<HistoryViolation> {
        let mut seen = self.final_nodes();
        let mut found = Vec::new();
        let differs = |task: &str, seen: &str, shown: &str| HistoryViolation::ShownElsewhere {
            task: task.to_owned(),
            seen: seen.to_owned(),
            shown: shown.to_owned(),
        };
        for (task, node) in shown.filter(|(task, _)| self.tasks.contains_key(*task)) {
            let own = seen.remove(task).unwrap_or_default();
            if own != node {
                found.push(differs(task, own, node));
            }
        }
        found.extend(seen.into_iter().map(|(task, node)| differs(task, node, "")));
        found
    }

    fn replay(&self) -> CheckedState<'_> {
        let mut revisions: BTreeMap<u64, RevisionEvents<'_>> = BTreeMap::new();
        for commit in &self.commits {
            revisions.entry(commit.revision).or_default().commits.push(commit);
        }
        for release in &self.releases {
            revisions.entry(release.revision).or_default().releases.push(release);
        }
        let mut state = CheckedState::default();
        for (revision, events) in revisions {
            self.apply(&mut state, revision, &events);
        }
        state
    }

    fn apply<'h>(&'h self, state: &mut CheckedState<'h>, revision: u64, events: &RevisionEvents<'h>) {
        let placed = events.commits.iter().flat_map(|one| &one.tasks);
        let placed: BTreeSet<&str> = placed.map(|(task, _)| task.as_str()).collect();
        // Placed and released at one revision: no revision shows the placement.
        let mut unseen = BTreeSet::new();
        for task in events.releases.iter().flat_map(|one| &one.tasks) {
            if state.placed.contains_key(task.as_str()) {
                self.take_off(state, task);
            } else if placed.contains(task.as_str()) {
                unseen.insert(task.as_str());
            } else {
                let task = task.clone();
                state.violations.push(HistoryViolation::ReleasedUnplaced { task });
            }
        }
        for (task, node) in events.commits.iter().flat_map(|one| &one.tasks) {
            if !unseen.contains(task.as_str()) {
                self.put(state, revision, task, node);
            }
        }
        self.check_nodes(state, revision);
    }

    fn put<'h>(&'h self, state: &mut CheckedState<'h>, revision: u64, task: &'h str, node: &'h str) {
        let Some(amounts) = self.tasks.get(task) else {
            let name = task.to_owned();
            return state.violations.push(HistoryViolation::UnknownName { name });
        };
        if !self.nodes.contains_key(node) {
            let name = node.to_owned();
            return state.violations.push(HistoryViolation::UnknownName { name });
        }
        if state.placed.insert(task, node).is_some() {
            let task = task.to_owned();
            state.violations.push(HistoryViolation::PlacedTwice { task, revision });
        }
        for (resource, amount) in amounts {
            let taken = state.taken.entry((node, resource)).or_default();
            *taken = taken.saturating_add(*amount);
        }
        state.touched.insert(node);
    }

    fn take_off<'h>(&'h self, state: &mut CheckedState<'h>, task: &str) {
        let Some(node) = state.placed.remove(task) else { return };
        for (resource, amount) in self.tasks.get(task).into_iter().flatten() {
            let taken = state.taken.entry((node, resource)).or_default();
            *taken = taken.saturating_sub(*amount);
        }
    }

    fn check_nodes(&self, state: &mut CheckedState<'_>, revision: u64) {
        for node in std::mem::take(&mut state.touched) {
            for (resource, allocatable) in self.nodes.get(node).into_iter().flatten() {
                let taken = state.taken.get(&(node, resource.as_str())).copied().unwrap_or(0);
                if taken > *allocatable {
                    state.violations.push(HistoryViolation::Overcommitted {
                        node: node.to_owned(),
                        resource: resource.clone(),
                        revision,
                        taken,
                        allocatable: *allocatable,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: u64) -> PlainAmounts {
        BTreeMap::from([("cpu".to_owned(), cpu)])
    }

    fn history(commits: &[(u64, &[(&str, &str)])]) -> PlacementHistory {
        let seen = commits.iter().map(|(revision, tasks)| SeenCommit {
            key: format!("at {revision}"),
            revision: *revision,
            tasks: tasks
                .iter()
                .map(|(task, node)| ((*task).to_owned(), (*node).to_owned()))
                .collect(),
        });
        PlacementHistory {
            nodes: BTreeMap::from([("n1".to_owned(), amounts(4)), ("n2".to_owned(), amounts(4))]),
            tasks: ["a", "b", "c"].map(|name| (name.to_owned(), amounts(2))).into(),
            commits: seen.collect(),
            releases: Vec::new(),
        }
    }

    #[test]
    fn a_full_node_is_no_violation_and_a_task_more_is() {
        let fits = history(&[(2, &[("b", "n1")]), (1, &[("a", "n1")])]);
        assert_eq!(fits.violations(), []);
        let more = history(&[(3, &[("c", "n1")]), (1, &[("a", "n1")]), (2, &[("b", "n1")])]);
        let found = more.violations();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            found[0].to_string(),
            "node `n1` holds 6 of cpu at revision 3, and has 4"
        );
    }

    #[test]
    fn a_release_makes_room_and_lets_the_task_be_placed_again() {
        let mut again = history(&[(1, &[("a", "n1"), ("b", "n1")]), (3, &[("a", "n2"), ("c", "n1")])]);
        assert_eq!(again.violations().len(), 2, "placed twice, and too much");
        again.releases.push(SeenRelease {
            revision: 2,
            tasks: vec!["a".to_owned()],
        });
        assert_eq!(again.violations(), []);
        assert_eq!(
            again.final_nodes(),
            BTreeMap::from([("a", "n2"), ("b", "n1"), ("c", "n1")])
        );
    }

    #[test]
    fn names_and_differences_are_reported() {
        let unknown = history(&[(1, &[("x", "n1"), ("a", "n9")])]);
        assert_eq!(unknown.violations().len(), 2);
        let one = history(&[(1, &[("a", "n1"), ("b", "n2")])]);
        let shown = [("a", "n1"), ("b", "n1"), ("c", ""), ("foreign", "n1")];
        let found = one.differences(shown.into_iter());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            found[0].to_string(),
            "task `b` is on node `n2` by its caller, and on node `n1` by the server"
        );
        let missing = one.differences([("a", "n1")].into_iter());
        assert_eq!(missing.len(), 1, "a task that the server does not show: {missing:?}");
    }
}
