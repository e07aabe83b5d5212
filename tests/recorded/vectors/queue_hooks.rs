//! Engine's side of the recorded answers about queues that no call of the protocol asks for: which tasks a queue may preempt
//! for, a task in a queue that is not its own, and comparisons of two queues.

use std::sync::Arc;

use pumice_engine::cycle::{SchedulingCycle, SessionChange, TaskPlacement};
use pumice_engine::decide::{AdmitQuery, AdmitSubject, admit, eviction_order};
use pumice_engine::model::{ClusterState, Problem, TaskRecord};
use pumice_engine::plugin::Plugin;
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::plugins::capacity::{self, QueueCapacityState};
use pumice_engine::policy::{self, CompileOptions, Policy};
use serde_json::Value;

use super::VectorDifferences;
use super::cluster::{self, members, text};
use super::statements::task_key;
use crate::support::engine;

/// Cycle of a case, and the plugin that is asked.
pub(crate) struct EngineQueues {
    cycle: SchedulingCycle,
    policy: Arc<Policy>,
    plugin: Arc<dyn Plugin>,
    name: Arc<str>,
}

/// Compares the order in which all plugins of a policy evict candidates, in the state of a cycle.
pub(crate) fn compare_eviction_order(
    differences: &mut VectorDifferences,
    (cycle, policy): (&SchedulingCycle, &Policy),
    (what, query): (&str, &Value),
    expected: &Value,
) {
    let stored = |reference: &Value| {
        let stored = cycle.cluster_state().tasks().get(&task_key(&text(reference)));
        stored.map(|stored| stored.record.clone()).unwrap()
    };
    let names = members(&query["candidates"]);
    let records: Vec<TaskRecord> = names.iter().map(stored).collect();
    let candidates: Vec<&TaskRecord> = records.iter().collect();
    let preemptor = stored(&query["preemptor"]);
    let order = eviction_order(cycle.plugin_context(None), policy, &preemptor, &candidates);
    let got: Vec<String> = order.into_iter().map(|position| text(&names[position])).collect();
    let recorded: Vec<String> = members(expected).iter().map(text).collect();
    differences.same(what, &recorded, &got);
}

/// Answer that differs: its name, the recorded value, and that of the engine.
type Difference = (String, String, String);

impl EngineQueues {
    /// Cycle at the beginning of a case.
    pub(crate) fn new(case: &Value, document: &str) -> Self {
        let cluster_state = engine::cluster_state(&cluster::queue_cluster(&case["cluster"]));
        let compiled = policy::compile(document, &CompileOptions::default()).unwrap();
        let name: Arc<str> = Arc::from(text(&case["policy"]["plugin"]));
        let plugin = compiled
            .policy
            .registered(&name)
            .and_then(|own| own.admit.clone())
            .unwrap();
        let states = compiled.policy.compute_plugin_states(&cluster_state);
        Self {
            cycle: SchedulingCycle::new(cluster_state, compiled.policy.node_change_rules(), states),
            policy: compiled.policy,
            plugin,
            name,
        }
    }

    /// Compares the order in which candidates are evicted.
    pub(crate) fn evicted_in_order(
        &self,
        differences: &mut VectorDifferences,
        (what, query): (&str, &Value),
        expected: &Value,
    ) {
        let cycle = &self.cycle;
        compare_eviction_order(differences, (cycle, &self.policy), (what, query), expected);
    }

    fn task(&self, reference: &str) -> TaskRecord {
        let stored = self.cycle.cluster_state().tasks().get(&task_key(reference));
        stored.map(|stored| stored.record.clone()).unwrap()
    }

    /// True if a task may be allocated in a queue; `None`: a problem.
    pub(crate) fn allocatable(&self, queue: &str, task: &str) -> Option<bool> {
        let task = self.cycle.cluster_state().tasks().get(task).unwrap().record.clone();
        let opinion = self.plugin.admit_task(self.cycle.plugin_context(None), queue, &task);
        opinion.ok().flatten().map(|opinion| opinion.reasons.is_empty())
    }

    /// Answers that differ from the recorded ones.
    pub(crate) fn compare(&self, expected: &Value) -> Vec<Difference> {
        let mut differences = Vec::new();
        for entry in members(&expected["preemptive"])
            .iter()
            .filter(|entry| entry[2] != "panic")
        {
            let (queue, references) = (text(&entry[0]), members(&entry[1]));
            let tasks: Vec<TaskRecord> = references.iter().map(|task| self.task(&text(task))).collect();
            let tasks: Vec<&TaskRecord> = tasks.iter().collect();
            let got = self.plugin.may_preempt(self.cycle.plugin_context(None), &queue, &tasks);
            if got != Ok(entry[2].as_bool()) {
                differences.push((format!("preemptive {entry}"), entry[2].to_string(), format!("{got:?}")));
            }
        }
        let overused = expected["overused"].as_object().into_iter().flatten();
        for (queue, expected) in overused.filter(|(_, expected)| expected.is_boolean()) {
            let got = self.plugin.overused(self.cycle.plugin_context(None), queue);
            if got != Ok(expected.as_bool()) {
                differences.push((format!("overused {queue}"), expected.to_string(), format!("{got:?}")));
            }
        }
        for entry in members(&expected["queue_compare"])
            .iter()
            .filter(|entry| entry[2] != "panic")
        {
            let names = [&entry[0], &entry[1]].map(|name| Arc::from(text(name)));
            let got = self.compare_queues(&names);
            if got != Some(entry[2].as_f64().unwrap()) {
                differences.push((
                    format!("queue_compare {entry}"),
                    entry[2].to_string(),
                    format!("{got:?}"),
                ));
            }
        }
        if let Some(ready) = expected["ready_to_schedule"].as_bool() {
            let state = self.cycle.plugin_states().get::<QueueCapacityState>(capacity::PLUGIN);
            let got = state.map(|state| state.unready_reason().is_none());
            if got != Some(ready) {
                differences.push(("ready_to_schedule".to_owned(), ready.to_string(), format!("{got:?}")));
            }
        }
        differences.extend(self.compare_victim_queues(expected));
        differences
    }

    /// Value of the comparison of two queues: the difference of their priorities, else -1, 0 or 1.
    fn compare_queues(&self, names: &[Arc<str>; 2]) -> Option<f64> {
        let context = self.cycle.plugin_context(None);
        if let Some(comparison) = self.plugin.queue_comparison(context, names) {
            return Some(comparison.compare(0, 1) as f64);
        }
        let keys = self.plugin.queue_keys(context, names)?;
        let keys: Vec<Vec<f64>> = keys.into_iter().collect::<Result<_, Problem>>().ok()?;
        let [left, right] = keys.as_slice() else { return None };
        let (first, rest) = (left.first()? - right.first()?, left.iter().zip(right).skip(1));
        if first != 0.0 {
            return Some(first);
        }
        let differing = rest
            .map(|(left, right)| left.partial_cmp(right))
            .find(|order| order.is_none_or(std::cmp::Ordering::is_ne));
        Some(differing.flatten().map_or(0.0, |order| f64::from(order as i8)))
    }

    /// True if the left queue gives way before the right one: by the plugin, else by its order of queues.
    fn gives_way(&self, raw: i64, left: &str, right: &str) -> (bool, bool) {
        let created = |name: &str| {
            let stored = self.cycle.cluster_state().queues().get(name);
            stored.and_then(|stored| stored.record.creation_time)
        };
        let less = |left: &str, right: &str| {
            let value = self.compare_queues(&[Arc::from(left), Arc::from(right)]).unwrap_or(0.0);
            if value == 0.0 {
                (created(left), left) < (created(right), right)
            } else {
                value < 0.0
            }
        };
        match raw {
            0 => (!less(left, right), !less(right, left)),
            raw => (raw < 0, raw > 0),
        }
    }

    fn compare_victim_queues(&self, expected: &Value) -> Vec<Difference> {
        let mut differences = Vec::new();
        for entry in members(&expected["victim_queue_compare"])
            .iter()
            .filter(|entry| entry[3] != "panic")
        {
            let names = [&entry[0], &entry[1], &entry[2]].map(text);
            let [preemptor, left, right] = &names;
            let raw = self
                .plugin
                .victim_queue_order(self.cycle.plugin_context(None), preemptor, left, right);
            let got = raw.map(|raw| (raw, self.gives_way(raw, left, right)));
            let flags = (entry[4].as_bool(), entry[5].as_bool());
            let expected = entry[3].as_i64().zip(flags.0.zip(flags.1));
            if got != expected {
                differences.push((
                    format!("victim_queue_compare {entry}"),
                    format!("{expected:?}"),
                    format!("{got:?}"),
                ));
            }
        }
        differences
    }

    /// Makes one recorded step; returns its problem.
    pub(crate) fn step(&mut self, op: &Value) -> Option<Problem> {
        let task: Arc<str> = Arc::from(task_key(op["task"].as_str().unwrap_or_default()));
        let place = || TaskPlacement {
            task: Arc::clone(&task),
            node: Arc::from(op["node"].as_str().unwrap_or_default()),
            card: Arc::default(),
            devices: 0,
        };
        let change = match op["op"].as_str().unwrap_or_default() {
            "allocate" => SessionChange::Allocate(place()),
            "pipeline" => SessionChange::Pipeline(place()),
            "evict" => SessionChange::Evict(task),
            "unallocate" => SessionChange::Unallocate(task),
            "unpipeline" => SessionChange::Unpipeline(task),
            "ask" if self.policy.compatibility().release().rules().reserves_after_votes => {
                let before = self.cycle.clone();
                let problem = self.enqueue(&text(&op["job"]));
                self.cycle = before;
                return problem;
            }
            _ => return self.enqueue(&text(&op["job"])),
        };
        self.cycle.apply(&[change]).err()
    }

    fn enqueue(&mut self, job: &str) -> Option<Problem> {
        let record = self.cycle.cluster_state().jobs().get(job).unwrap().record.clone();
        let query = AdmitQuery {
            now: None,
            items: vec![Ok(AdmitSubject::Job(Arc::new(record)))],
            plugins: vec![Arc::clone(&self.name)],
        };
        let policy = Arc::clone(&self.policy);
        let asked = |cluster_state: &ClusterState, states: &mut PluginStates| {
            let mut verdicts = admit(cluster_state, &policy, states, &query)?;
            verdicts.pop().unwrap()
        };
        self.cycle.query_plugins(asked).err()
    }
}
