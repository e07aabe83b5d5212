//! `SelectVictims` and Filter give one account: a preemptor fits after its victims exactly where Filter, and Admit, say so.

use std::sync::Arc;

use proptest::prelude::*;

use super::fixtures::{amounts, cluster_state, policy};
use crate::cycle::{SchedulingCycle, SessionChange};
use crate::decide::{
    self, FilterDetail, LastRounds, NodeQuery, Parallelism, QueryTask, ResourceFit, VictimGroup, VictimVerdict,
    VictimsQuery,
};
use crate::model::{
    ClusterState, JobPhase, JobRecord, NodeRecord, QueueRecord, QueueState, ResourceId, ResourceTable, TaskFields,
    TaskRecord, TaskStatus, TextMap,
};
use crate::plugin::{Resolution, VictimKind};
use crate::policy::{Compatibility, Policy};

const GPU: &str = "nvidia.com/gpu";

/// Policies of the test, one tier each.
const POLICIES: [&str; 5] = [
    "{name: drf}",
    "{name: drf}, {name: resource-strategy-fit, arguments: {proportional: {enable: true, resources: nvidia.com/gpu, \
     resourceProportion: {nvidia.com/gpu.cpu: 2}}}}",
    "{name: drf}, {name: capacity-card, arguments: {mixedCards: true}}",
    "{name: drf}, {name: capacity-card, arguments: {mixedCards: true, cardVictims: true}}",
    "{name: capacity-card, arguments: {cardVictims: true}}",
];

/// Random numbers of one seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one_of<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.below(texts.len())]
    }
}

fn texts(pairs: &[(&str, &str)]) -> TextMap {
    let given = pairs.iter().filter(|(_, text)| !text.is_empty());
    given.map(|(name, text)| (Arc::from(*name), Arc::from(*text))).collect()
}

/// Two nodes (cordoned, not ready, without cards), two queues with capability and quota, three jobs whose tasks wait, run,
/// are on their way out or have finished. The preemptor is `ns/j0-0`.
#[expect(clippy::too_many_lines, reason = "a list of what random clusters have")]
fn random_cluster(numbers: &mut Numbers) -> ClusterState {
    let mut resources = ResourceTable::default();
    let node = |name: &str, numbers: &mut Numbers, resources: &mut ResourceTable| {
        let product = numbers.one_of(&["A", "A", "B", ""]);
        let gpu = if product.is_empty() {
            "0"
        } else {
            numbers.one_of(&["2", "4", "8"])
        };
        NodeRecord {
            name: name.into(),
            labels: texts(&[("nvidia.com/gpu.product", product)]),
            allocatable: amounts(
                resources,
                [("cpu", numbers.one_of(&["4", "8", "16"])), ("pods", "12"), (GPU, gpu)],
            ),
            unschedulable: numbers.below(6) == 0,
            ready: [None, Some(true), Some(false)][numbers.below(8).min(2) / (1 + numbers.below(2))],
            ..NodeRecord::default()
        }
    };
    let nodes = ["n0", "n1"].map(|name| node(name, numbers, &mut resources));
    let (mut cluster, source) = (cluster_state(resources.clone(), nodes.to_vec()), Arc::from("test"));
    for queue in ["q0", "q1"] {
        let capability = numbers.one_of(&["", "2", "6", "12"]);
        let quota = numbers.one_of(&["", r#"{"A": 1}"#, r#"{"A": 3, "B": 2}"#, r#"{"A": 8, "B": 8, "C": 1}"#]);
        let record = QueueRecord {
            name: queue.into(),
            annotations: texts(&[("volcano.sh/card.quota", quota)]),
            capability: (!capability.is_empty()).then(|| amounts(&mut resources, [("cpu", capability)])),
            state: if numbers.below(12) == 0 {
                QueueState::Closed
            } else {
                QueueState::Open
            },
            ..QueueRecord::default()
        };
        cluster.put_queue(record, &source);
    }
    for job in ["ns/j0", "ns/j1", "ns/j2"] {
        let record = JobRecord {
            name: job.into(),
            queue: numbers.one_of(&["q0", "q1"]).into(),
            phase: JobPhase::Running,
            min_member: 1,
            ..JobRecord::default()
        };
        cluster.put_job(record, &source);
        for number in 0..=numbers.below(6) {
            let status = match (job, number) {
                ("ns/j0", 0) => TaskStatus::Pending,
                _ => [
                    TaskStatus::Running,
                    TaskStatus::Running,
                    TaskStatus::Bound,
                    TaskStatus::Succeeded,
                    TaskStatus::Failed,
                    TaskStatus::Releasing,
                ][numbers.below(6)],
            };
            let gpu = numbers.one_of(&["0", "0", "1", "2"]);
            let card = if gpu == "0" {
                ""
            } else {
                numbers.one_of(&["A", "B", "A|B", "C"])
            };
            let mut requests = amounts(&mut resources, [("cpu", numbers.one_of(&["1", "2", "5"])), (GPU, gpu)]);
            requests.set(ResourceId::PODS, 1);
            let task = TaskRecord::from(TaskFields {
                name: format!("{job}-{number}").into(),
                job: job.into(),
                status,
                node: if status == TaskStatus::Pending {
                    ""
                } else {
                    numbers.one_of(&["n0", "n1"])
                }
                .into(),
                annotations: texts(&[("volcano.sh/card.name", card)]),
                requests,
                ..TaskFields::default()
            });
            cluster.put_task(task, &source);
        }
    }
    cluster.set_resources(Arc::new(resources));
    cluster
}

/// The verdict of `SelectVictims` beside the two decisions that it has to agree with.
struct Case {
    policy: Arc<Policy>,
    cycle: SchedulingCycle,
    group: VictimGroup,
}

impl Case {
    fn random(numbers: &mut Numbers) -> Self {
        let cluster = random_cluster(numbers);
        let compatibility = [
            Compatibility::Corrected,
            Compatibility::Corrected,
            Compatibility::UPSTREAM,
        ][numbers.below(3)];
        let policy = policy(POLICIES[numbers.below(POLICIES.len())], compatibility).policy;
        let plugin_states = policy.compute_plugin_states(&cluster);
        let running = cluster.tasks().iter().map(|(_, stored)| stored.record.clone());
        let candidates = running.filter(|task| task.status.is_allocated() && numbers.below(4) > 0);
        let candidates: Vec<TaskRecord> = candidates.collect();
        Self {
            group: VictimGroup {
                preemptor: cluster.tasks().get("ns/j0-0").unwrap().record.clone(),
                node: numbers.one_of(&["n0", "n1"]).into(),
                candidates,
                assumptions: Vec::new(),
            },
            cycle: SchedulingCycle::new(cluster, compatibility.into(), plugin_states),
            policy,
        }
    }

    fn victims(&self, irreducible: bool) -> VictimVerdict {
        let query = VictimsQuery {
            now: None,
            kind: VictimKind::Preempt,
            groups: vec![Ok(self.group.clone())],
            plugins: Vec::new(),
            irreducible,
            last_rounds: LastRounds::new(),
        };
        decide::victims(&self.cycle, &self.policy, &query)
            .unwrap()
            .remove(0)
            .unwrap()
    }

    /// Resolution of the rejection by Filter, or by Admit under `corrected`, once these candidates are evicted.
    fn rejection(&self, evicted: &[usize], plugins: &[&str]) -> Option<Resolution> {
        let mut cycle = self.cycle.clone();
        let name = |at: &usize| SessionChange::Evict(Arc::clone(&self.group.candidates[*at].name));
        cycle.apply(&evicted.iter().map(name).collect::<Vec<_>>()).unwrap();
        let context = cycle.plugin_context(None);
        let query = NodeQuery {
            now: None,
            tasks: vec![Ok(QueryTask {
                task: Arc::new(self.group.preemptor.clone()),
                warnings: Vec::new(),
            })],
            resources: Arc::clone(cycle.cluster_state().resources()),
            candidates: Some(vec![cycle.cluster_state().slot_of(&self.group.node).unwrap()]),
            plugins: plugins.iter().map(|name| Arc::from(*name)).collect(),
            resource_fit: ResourceFit::FutureIdle,
            samples: 0,
            detail: FilterDetail::Nodes,
        };
        let item = decide::filter_with(context, &self.policy, &query, Parallelism::SEQUENTIAL);
        let item = item.unwrap().unwrap().remove(0).unwrap();
        let mut resolutions: Vec<Resolution> = item
            .result
            .rejections
            .iter()
            .map(|group| group.reason.resolution)
            .collect();
        if self.policy.compatibility() == Compatibility::Corrected {
            let verdict = decide::admit_task(context, &self.policy, &self.group.preemptor);
            resolutions.extend(verdict.unwrap().reasons.iter().map(|(reason, _)| reason.resolution));
        }
        resolutions.into_iter().max()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Each prefix of the victims is evicted in a session of its own, and Filter and Admit are asked there.
    #[test]
    fn a_preemptor_fits_after_its_victims_where_filter_and_admit_say_so(seed in 1_u64..u64::MAX) {
        let case = Case::random(&mut Numbers(seed));
        let verdict = case.victims(false);
        prop_assert_eq!(&verdict.warnings, &Vec::new());
        let mut prefixes = 0..=verdict.victims.len();
        let expected = prefixes.find(|count| case.rejection(&verdict.victims[..*count], &[]).is_none());
        prop_assert_eq!(verdict.fits_after, expected, "{:?} on {:?}", &verdict, &case.group);
        for plugin in ["drf", "capacity-card", "resource-strategy-fit"] {
            if case.policy.registered(plugin).is_some()
                && case.rejection(&[], &[plugin]) == Some(Resolution::Unresolvable)
            {
                prop_assert_eq!(verdict.fits_after, None, "{} rejects for good", plugin);
            }
        }
    }

    #[test]
    fn irreducible_victims_are_enough_for_filter_and_admit(seed in 1_u64..u64::MAX) {
        let case = Case::random(&mut Numbers(seed));
        let verdict = case.victims(true);
        let rejection = case.rejection(&verdict.victims, &[]);
        prop_assert_eq!(verdict.fits_after, rejection.is_none().then_some(verdict.victims.len()));
        prop_assert!(verdict.victims.is_empty() || rejection.is_none(), "{:?} for nothing", &verdict);
    }
}

/// A node of 8 cores that two running tasks fill, and a preemptor of 4 cores in a queue of `capability` cores.
fn full_node(unschedulable: bool, capability: &str) -> ClusterState {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n".into(),
        allocatable: amounts(&mut resources, [("cpu", "8"), ("pods", "110"), (GPU, "4")]),
        unschedulable,
        ..NodeRecord::default()
    };
    let (mut cluster, source) = (cluster_state(resources.clone(), vec![node]), Arc::from("test"));
    let queue = QueueRecord {
        name: "q".into(),
        capability: Some(amounts(&mut resources, [("cpu", capability)])),
        ..QueueRecord::default()
    };
    cluster.put_queue(queue, &source);
    for (job, number, status, node) in [
        ("ns/old", 0, TaskStatus::Running, "n"),
        ("ns/old", 1, TaskStatus::Running, "n"),
        ("ns/new", 0, TaskStatus::Pending, ""),
    ] {
        let record = JobRecord {
            name: job.into(),
            queue: "q".into(),
            phase: JobPhase::Running,
            min_member: 1,
            ..JobRecord::default()
        };
        cluster.put_job(record, &source);
        let mut requests = amounts(&mut resources, [("cpu", "4")]);
        requests.set(ResourceId::PODS, 1);
        let task = TaskRecord::from(TaskFields {
            name: format!("{job}-{number}").into(),
            job: job.into(),
            status,
            node: node.into(),
            requests,
            ..TaskFields::default()
        });
        cluster.put_task(task, &source);
    }
    cluster
}

#[test]
fn no_victim_helps_a_preemptor_that_filter_or_admit_rejects_for_good() {
    let ask = |plugins: &str, unschedulable, capability| {
        let (cluster, policy) = (
            full_node(unschedulable, capability),
            policy(plugins, Compatibility::Corrected).policy,
        );
        let stored = |name: &str| cluster.tasks().get(name).unwrap().record.clone();
        let group = VictimGroup {
            preemptor: stored("ns/new-0"),
            node: "n".into(),
            candidates: vec![stored("ns/old-0"), stored("ns/old-1")],
            assumptions: Vec::new(),
        };
        let plugin_states = policy.compute_plugin_states(&cluster);
        let cycle = SchedulingCycle::new(cluster.clone(), policy.node_change_rules(), plugin_states);
        let case = Case { policy, cycle, group };
        let irreducible = case.victims(true);
        (
            case.victims(false).fits_after,
            irreducible.victims,
            irreducible.fits_after,
        )
    };
    let card = "{name: drf}, {name: capacity-card}";
    let proportional = |ratio: &str| {
        format!(
            "{{name: drf}}, {{name: resource-strategy-fit, arguments: {{proportional: {{enable: true, resources: {GPU}, \
             resourceProportion: {{{GPU}.cpu: {ratio}, {GPU}.memory: 0}}}}}}}}"
        )
    };
    assert_eq!(ask("{name: drf}", false, "16"), (Some(1), vec![0], Some(1)));
    assert_eq!(ask("{name: drf}", true, "16"), (None, vec![], None), "a cordoned node");
    assert_eq!(
        ask(&proportional("1"), false, "16"),
        (None, vec![], None),
        "cores of idle devices"
    );
    assert_eq!(
        ask(card, false, "8"),
        (Some(1), vec![0], Some(1)),
        "the victim gives its quota back"
    );
    assert_eq!(
        ask(card, false, "3"),
        (None, vec![], None),
        "more than the queue may ever hold"
    );
}
