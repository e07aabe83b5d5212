//! `pdb`: no more pods are evicted than `PodDisruptionBudgets` allow (Volcano ed72c7c81, pkg/scheduler/plugins/pdb).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, DisruptionBudget, Problem, SortedTable, TaskRecord, TaskStatus};
use crate::plugin::{
    AbsentInput, EVERY_LABEL, Plugin, PluginContext, PluginDef, PluginHooks, ShufflePart, VictimQuery,
};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange};
use crate::policy::{Compatibility, DecisionKind, DiagnosticReport, PluginArguments, PluginSwitches};

const NAME: &str = "pdb";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["victims"],
    task_labels: &[EVERY_LABEL],
    absent_input: Some(&AbsentInput {
        decisions: &[DecisionKind::Victims, DecisionKind::Shuffle],
        is_absent: |state| state.namespaces().is_empty(),
        effect: "The state has no namespaces: no PodDisruptionBudget protects a pod.",
    }),
    ..PluginDef::new(NAME, compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct BudgetGuard {
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, NAME, &[], |_| false);
    Arc::new(BudgetGuard { compatibility })
}

/// Names of the tasks that a session has evicted, which no budget of its snapshot counts.
#[derive(Clone, Debug, Default, PartialEq)]
struct EvictedTasks(SortedTable<()>);

held_bytes! { EvictedTasks { 0 } }

impl PluginState for EvictedTasks {
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        let events = match change {
            PluginStateChange::Events(_, events) => *events,
            PluginStateChange::Step(_) => {
                *self = Self::default();
                &[]
            }
        };
        for (moved, returns) in events.iter().filter_map(PlacementEvent::moved_task) {
            if returns && moved.before.status == TaskStatus::Releasing {
                self.0.remove(&moved.after.name);
            } else if !returns && moved.after.status == TaskStatus::Releasing {
                self.0.insert(Arc::clone(&moved.after.name), ());
            }
        }
        Ok(Vec::new())
    }
}

/// Budget during one query: each candidate that it selects takes one from `left`, and its evictions end below 0.
struct OpenBudget<'a> {
    budget: &'a DisruptionBudget,
    /// Number of pods that may still be evicted; negative: more candidates were charged than it allows.
    left: i64,
}

impl BudgetGuard {
    /// True if a budget counts a task. A selector that is not valid selects nothing. So does an empty one in the reference;
    /// in Kubernetes it selects every pod.
    fn counts(&self, budget: &DisruptionBudget, task: &TaskRecord) -> bool {
        let Some(selector) = budget.selector.as_ref().filter(|selector| selector.is_valid()) else {
            return false;
        };
        if selector.is_empty() && self.compatibility.is_upstream() {
            return false;
        }
        let name = task.name.split_once('/').map_or(&*task.name, |(_, name)| name);
        selector.matches(&task.labels) && budget.disrupted_pods.iter().all(|disrupted| **disrupted != *name)
    }

    /// Budgets of a namespace, charged with what the session has evicted. The reference forgets that from one query to the
    /// next.
    fn budgets<'a>(&self, context: PluginContext<'a>, namespace: &str) -> Vec<OpenBudget<'a>> {
        let stored = context.cluster_state.namespaces().get(namespace);
        let budgets = stored.into_iter().flat_map(|stored| &stored.record.disruption_budgets);
        let open = budgets.map(|budget| OpenBudget {
            budget,
            left: budget.disruptions_allowed.into(),
        });
        let mut open: Vec<OpenBudget<'a>> = open.collect();
        let evicted = context.plugin_states.get::<EvictedTasks>(NAME);
        for (name, ()) in evicted.iter().flat_map(|evicted| evicted.0.iter()) {
            let stored = context.cluster_state.tasks().get(name);
            for stored in stored.iter().filter(|stored| stored.record.namespace() == namespace) {
                self.charge(&mut open, &stored.record);
            }
        }
        open
    }

    /// Charges each budget that counts a task; true: each allows its eviction. A task that stays is charged all the same.
    fn charge(&self, open: &mut [OpenBudget<'_>], task: &TaskRecord) -> bool {
        let mut allowed = true;
        for own in open.iter_mut().filter(|own| self.counts(own.budget, task)) {
            own.left -= 1;
            allowed &= own.left >= 0;
        }
        allowed
    }
}

impl Plugin for BudgetGuard {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            victims: true,
            ..PluginHooks::default()
        }
    }

    fn build_state(&self, _: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        let keeps = self.compatibility == Compatibility::Corrected;
        keeps.then(|| Arc::new(EvictedTasks::default()) as Arc<dyn PluginState>)
    }

    fn shuffle_part(&self) -> Option<ShufflePart> {
        // In the reference a budget that allows evictions causes them.
        Some(if self.compatibility.is_upstream() {
            ShufflePart::Names { interval: 0 }
        } else {
            ShufflePart::Spares
        })
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        let is_upstream = self.compatibility.is_upstream();
        // The reference has no hook for evictions of whole gangs.
        if query.kind.is_of_gangs() && is_upstream {
            return Ok(None);
        }
        let mut by_namespace: BTreeMap<&str, Vec<OpenBudget<'_>>> = BTreeMap::new();
        let mut may_go = |task: &TaskRecord, namespace| {
            // The reference never evicts a pod without labels, which no budget counts.
            if is_upstream && task.labels.is_empty() {
                return false;
            }
            let open = by_namespace
                .entry(namespace)
                .or_insert_with(|| self.budgets(context, namespace));
            self.charge(open, task)
        };
        let goes = query.candidates.iter().map(|task| may_go(task, task.namespace()));
        Ok(Some(goes.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue_accounts::testing::cluster::{amounts, cluster_state, put_task, task};
    use super::*;
    use crate::model::NamespaceRecord;
    use crate::model::constraints::{LabelSelector, SelectorRequirement};
    use crate::plugin::{EvictionOrder, VictimKind};
    use crate::plugin_state::{PluginStates, TaskTransition};

    fn labelled(app: &str) -> LabelSelector {
        LabelSelector {
            match_labels: [("app".into(), app.into())].into(),
            ..LabelSelector::default()
        }
    }

    fn budget(name: &str, selector: Option<LabelSelector>, disruptions_allowed: i32) -> DisruptionBudget {
        DisruptionBudget {
            name: name.into(),
            selector,
            disruptions_allowed,
            disrupted_pods: Vec::new(),
        }
    }

    /// State with running tasks a0, a1 and a2 of app `a`, b of app `b`, and one without labels, in namespace `ns`.
    fn state(budgets: Vec<DisruptionBudget>) -> ClusterState {
        let mut state = cluster_state(&[(8000, 8000, -1)]);
        for (name, app) in [("a0", "a"), ("a1", "a"), ("a2", "a"), ("b", "b"), ("plain", "")] {
            let mut own = task(
                &format!("ns/{name}"),
                "ns/j",
                &amounts(1000, 0, -1),
                TaskStatus::Running,
            );
            let label = (!app.is_empty()).then(|| ("app".into(), app.into()));
            own.labels = label.into_iter().collect();
            put_task(&mut state, own);
        }
        let record = NamespaceRecord {
            name: "ns".into(),
            disruption_budgets: budgets,
            ..NamespaceRecord::default()
        };
        state.put_namespace(record, &Arc::from("test"));
        state
    }

    /// Candidates that may go.
    fn victims<'n>(
        (state, states): (&ClusterState, &PluginStates),
        compatibility: Compatibility,
        names: &[&'n str],
    ) -> Vec<&'n str> {
        let record = |name: &&str| state.tasks().get(&format!("ns/{name}")).unwrap().record.clone();
        let candidates: Vec<TaskRecord> = names.iter().map(record).collect();
        let candidates: Vec<&TaskRecord> = candidates.iter().collect();
        let query = VictimQuery {
            kind: VictimKind::Preempt,
            preemptor: candidates[0],
            candidates: &candidates,
            eviction_order: EvictionOrder::default(),
        };
        let context = PluginContext::new(state, states, None);
        let goes = BudgetGuard { compatibility }.victims(context, &query).unwrap().unwrap();
        let chosen = names.iter().zip(goes).filter(|(_, goes)| *goes);
        chosen.map(|(name, _)| *name).collect()
    }

    fn without_session(budgets: Vec<DisruptionBudget>, compatibility: Compatibility) -> Vec<&'static str> {
        let state = state(budgets);
        victims(
            (&state, &PluginStates::default()),
            compatibility,
            &["a0", "a1", "a2", "b"],
        )
    }

    #[test]
    fn a_budget_lets_the_first_candidates_go() {
        for compatibility in Compatibility::KINDS {
            let allowed = |allowed| without_session(vec![budget("x", Some(labelled("a")), allowed)], compatibility);
            assert_eq!(allowed(1), ["a0", "b"]);
            assert_eq!(allowed(2), ["a0", "a1", "b"]);
            assert_eq!([allowed(0), allowed(-1)], [["b"], ["b"]]);
            let disrupted = DisruptionBudget {
                disrupted_pods: vec!["a0".into()],
                ..budget("x", Some(labelled("a")), 1)
            };
            assert_eq!(without_session(vec![disrupted], compatibility), ["a0", "a1", "b"]);
            let both = vec![budget("x", Some(labelled("a")), 3), budget("y", Some(labelled("a")), 1)];
            assert_eq!(without_session(both, compatibility), ["a0", "b"]);
        }
    }

    #[test]
    fn a_selector_that_is_not_valid_selects_nothing() {
        let expression = |operator: &str, values: &[&str]| {
            let requirement = SelectorRequirement {
                key: "app".into(),
                operator: operator.into(),
                values: values.iter().map(|value| Arc::from(*value)).collect(),
            };
            let selector = LabelSelector {
                match_expressions: vec![requirement],
                ..LabelSelector::default()
            };
            without_session(vec![budget("x", Some(selector), 0)], Compatibility::UPSTREAM).len()
        };
        assert_eq!(expression("In", &["a", "b"]), 0);
        assert_eq!((expression("NotIn", &["a"]), expression("Exists", &[])), (3, 0));
        let (none, one) = (&[] as &[&str], &["a"] as &[&str]);
        let invalid = [("In", none), ("Bogus", one), ("Exists", one), ("Gt", &["1"] as &[&str])];
        assert_eq!(invalid.map(|(operator, values)| expression(operator, values)), [4; 4]);
        let value = vec![budget("x", Some(labelled("a b")), 0)];
        assert_eq!(without_session(value, Compatibility::Corrected).len(), 4);
    }

    #[test]
    fn corrected_counts_what_kubernetes_counts() {
        for (compatibility, of_everything, of_plain) in [
            (Compatibility::UPSTREAM, 4, &[] as &[&str]),
            (Compatibility::Corrected, 0, &["plain"] as &[&str]),
        ] {
            let everything = vec![budget("x", Some(LabelSelector::default()), 0)];
            assert_eq!(without_session(everything, compatibility).len(), of_everything);
            assert_eq!(without_session(vec![budget("x", None, 0)], compatibility).len(), 4);
            let state = state(Vec::new());
            assert_eq!(
                victims((&state, &PluginStates::default()), compatibility, &["plain"]),
                of_plain
            );
        }
    }

    #[test]
    fn corrected_applies_budgets_to_evictions_of_gangs() {
        let state = state(vec![budget("x", Some(labelled("a")), 0)]);
        let (states, own) = (PluginStates::default(), state.tasks().get("ns/a0").unwrap());
        for (compatibility, goes) in [
            (Compatibility::UPSTREAM, None),
            (Compatibility::Corrected, Some(vec![false])),
        ] {
            for kind in [VictimKind::GangPreempt, VictimKind::GangReclaim] {
                let query = VictimQuery {
                    kind,
                    preemptor: &own.record,
                    candidates: &[&own.record],
                    eviction_order: EvictionOrder::default(),
                };
                let context = PluginContext::new(&state, &states, None);
                assert_eq!(BudgetGuard { compatibility }.victims(context, &query), Ok(goes.clone()));
            }
        }
    }

    #[test]
    fn evictions_of_a_session_are_charged_to_the_budgets() {
        let state = state(vec![budget("x", Some(labelled("a")), 1)]);
        let mut states = PluginStates::default();
        let guard = BudgetGuard {
            compatibility: Compatibility::Corrected,
        };
        states.insert(
            NAME.into(),
            guard.build_state(&state, &PluginSwitches::default()).unwrap(),
        );
        let running = state.tasks().get("ns/a2").unwrap().record.clone();
        let evicted = TaskRecord {
            status: TaskStatus::Releasing,
            ..running.clone()
        };
        let goes = |states: &PluginStates| victims((&state, states), Compatibility::Corrected, &["a0", "b"]);
        assert_eq!(goes(&states), ["a0", "b"]);
        let eviction = TaskTransition::new(&running, &evicted, "");
        states.apply(&state, &[PlacementEvent::Deallocate(eviction)]).unwrap();
        assert_eq!(goes(&states), ["b"]);
        let undone = TaskTransition::new(&evicted, &running, "");
        states.apply(&state, &[PlacementEvent::Allocate(undone)]).unwrap();
        assert_eq!(goes(&states), ["a0", "b"]);
        let upstream = BudgetGuard {
            compatibility: Compatibility::UPSTREAM,
        };
        assert!(upstream.build_state(&state, &PluginSwitches::default()).is_none());
    }
}
