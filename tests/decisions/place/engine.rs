//! Place of the engine on random clusters, under every plugin and both compatibilities.

use std::sync::Arc;

use proptest::prelude::*;
use pumice::server::pb;
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle, SessionChange, TaskPlacement};
use pumice_engine::decide::{
    self, AdmitQuery, AdmitSubject, FilterDetail, NodeQuery, Parallelism, PlaceGroup, PlaceQuery, PlaceResult,
    PluginStateOrigin, QueryTask, ResourceFit, ScoreQuery, VerdictCache, VerdictReuse,
};
use pumice_engine::model::{ClusterState, JobPhase, JobRecord, NodeSlot, TaskRecord};
use pumice_engine::policy::{CompileOptions, Policy, compile};

use super::batched_changes::same;
use super::case::{PlaceCase, case, document};
use super::task_by_task::{GroupPlacements, TaskByTaskScheduler, place};
use crate::support::{engine, records};

pub(super) fn policy(case: &PlaceCase) -> Arc<Policy> {
    let options = CompileOptions {
        compatibility: case.compatibility,
        ..CompileOptions::default()
    };
    let document = document(case.policy);
    let compiled = compile(&document, &options);
    compiled
        .unwrap_or_else(|report| panic!("{document}\n{:?}", report.diagnostics))
        .policy
}

/// Engine, asked task by task.
struct EngineScheduler {
    policy: Arc<Policy>,
    cycle: SchedulingCycle,
    begun: SchedulingCycle,
    /// Outcome of the changes since then.
    outcome: ChangeOutcome,
}

impl EngineScheduler {
    fn record(&self, task: &pb::Task) -> Arc<TaskRecord> {
        Arc::new(
            self.cycle
                .cluster_state()
                .tasks()
                .get(&task.name)
                .unwrap()
                .record
                .clone(),
        )
    }

    fn node_query(&self, task: &pb::Task, fit: ResourceFit, candidates: Option<Vec<NodeSlot>>) -> NodeQuery {
        NodeQuery {
            now: None,
            tasks: vec![Ok(QueryTask {
                task: self.record(task),
                warnings: Vec::new(),
            })],
            resources: Arc::clone(self.cycle.cluster_state().resources()),
            candidates,
            plugins: Vec::new(),
            resource_fit: fit,
            samples: 0,
            detail: FilterDetail::Counts,
        }
    }

    fn name(&self, slot: NodeSlot) -> String {
        self.cycle.cluster_state().name_of(slot).unwrap().to_string()
    }
}

impl TaskByTaskScheduler for EngineScheduler {
    fn admit(&mut self, task: &pb::Task) -> Option<Vec<String>> {
        if self.policy.hooks().allocators.iter().all(Vec::is_empty) {
            return Some(Vec::new());
        }
        let query = AdmitQuery {
            now: None,
            items: vec![Ok(AdmitSubject::Task(self.record(task)))],
            plugins: Vec::new(),
        };
        let mut derived = self.cycle.plugin_states().clone();
        let mut items = decide::admit(self.cycle.cluster_state(), &self.policy, &mut derived, &query).unwrap();
        let admission = items.remove(0).unwrap();
        let cards = admission.cards.iter().map(|(card, _)| card.to_string());
        admission.permitted.then(|| cards.collect())
    }

    fn filter(&mut self, task: &pb::Task, fit: pb::ResourceFit) -> Vec<String> {
        let fit = if fit == pb::ResourceFit::Idle {
            ResourceFit::Idle
        } else {
            ResourceFit::FutureIdle
        };
        let query = self.node_query(task, fit, None);
        let answered = decide::filter(self.cycle.cluster_state(), &self.policy, &query)
            .unwrap()
            .remove(0);
        answered
            .unwrap()
            .result
            .fit
            .iter()
            .map(|slot| self.name(*slot))
            .collect()
    }

    fn score(&mut self, task: &pb::Task, nodes: &[String]) -> Vec<(String, f64)> {
        let slots = nodes
            .iter()
            .map(|node| self.cycle.cluster_state().slot_of(node).unwrap())
            .collect();
        let query = ScoreQuery {
            node_query: self.node_query(task, ResourceFit::None, Some(slots)),
            with_filter: false,
            limit: None,
            with_parts: false,
            ahead: 0,
        };
        let answered = decide::score(self.cycle.cluster_state(), &self.policy, &query)
            .unwrap()
            .remove(0);
        let sheet = answered.unwrap().result;
        let nodes = sheet.nodes.iter().map(|slot| self.name(*slot));
        nodes.zip(sheet.totals.iter().copied()).collect()
    }

    fn assume(&mut self, task: &pb::Task, node: &str, pipelined: bool, card: &str) {
        let to = TaskPlacement {
            task: Arc::from(&*task.name),
            node: Arc::from(node),
            card: Arc::from(card),
            devices: 0,
        };
        let change = if pipelined {
            SessionChange::Pipeline(to)
        } else {
            SessionChange::Allocate(to)
        };
        let outcome = self.cycle.apply(&[change]).unwrap();
        assert_eq!(outcome.warnings, []);
        self.outcome.merge(outcome);
    }

    fn undo(&mut self) {
        self.cycle = self.begun.clone();
        self.outcome = ChangeOutcome::default();
    }
}

fn place_query(case: &PlaceCase, cluster_state: &ClusterState, stored: bool) -> PlaceQuery {
    let slots = |names: Vec<String>| names.iter().map(|name| cluster_state.slot_of(name).unwrap()).collect();
    let groups = (0..case.groups.len()).map(|number| {
        let names: Vec<Arc<str>> = case.names(number).iter().map(|name| Arc::from(&**name)).collect();
        let mut table = (**cluster_state.resources()).clone();
        Ok(PlaceGroup {
            task: Arc::new(engine::task(&mut table, &case.groups[number].task())),
            count: names.len(),
            names: if stored { names } else { Vec::new() },
            warnings: Vec::new(),
            unevaluated: Vec::new(),
        })
    });
    PlaceQuery {
        now: None,
        job: None,
        groups: groups.collect(),
        resources: Arc::clone(cluster_state.resources()),
        min_available: case.min_available.map(|count| count as usize),
        candidates: case.candidates().map(slots),
        exclusions: slots(case.exclusions()),
        idle_only: case.idle_only,
        samples: 3,
        max_pairs: u64::MAX,
    }
}

fn group_placements(cluster_state: &ClusterState, placing: &PlaceResult) -> Vec<GroupPlacements> {
    let groups = placing.groups.iter().map(|group| {
        let group = group.as_ref().unwrap();
        let allocated = group.allocated.iter().map(|slot| (slot, false));
        let nodes = allocated.chain(group.pipelined.iter().map(|slot| (slot, true)));
        let card = |at: usize| group.cards.get(at).map(ToString::to_string).unwrap_or_default();
        nodes
            .enumerate()
            .map(|(at, (slot, pipelined))| (cluster_state.name_of(*slot).unwrap().to_string(), pipelined, card(at)))
            .collect()
    });
    groups.collect()
}

/// Number of tasks that must be placed, from the case alone.
pub(super) fn min_count(case: &PlaceCase) -> usize {
    let all = case.groups.iter().map(|group| group.count).sum();
    let members = usize::try_from(case.cluster().jobs[0].min_member).unwrap();
    match case.min_available {
        Some(given) => given as usize,
        None if members > 0 => members,
        None => all,
    }
}

/// True if a node's labels name a card.
pub(super) fn has(cluster: &pb::Cluster, node: &str, card: &str) -> bool {
    let node = cluster.nodes.iter().find(|own| own.name == node).unwrap();
    node.labels.values().any(|text| text == card)
}

/// Places the tasks of a case by one query and by a loop.
#[expect(clippy::too_many_lines, reason = "one history from its start to its end")]
pub(super) fn check(case: &PlaceCase) {
    let (cluster, policy) = (case.cluster(), policy(case));
    let cluster_state = engine::cluster_state(&cluster);
    let begun = SchedulingCycle::new(
        cluster_state.clone(),
        policy.node_change_rules(),
        policy.compute_plugin_states(&cluster_state),
    );
    let mut engine = EngineScheduler {
        policy: Arc::clone(&policy),
        cycle: begun.clone(),
        begun: begun.clone(),
        outcome: ChangeOutcome::default(),
    };
    let groups: Vec<Vec<pb::Task>> = (0..case.groups.len())
        .map(|number| {
            let named = |name| pb::Task {
                name,
                ..pb::Task::default()
            };
            case.names(number).into_iter().map(named).collect()
        })
        .collect();
    let has = |node: &str, card: &str| has(&cluster, node, card);
    let (placed, expected) = place(
        &mut engine,
        &groups,
        &case.nodes(),
        case.idle_only,
        min_count(case),
        &has,
    );

    let mut cycle = begun.clone();
    let query = place_query(case, &cluster_state, true);
    let (placing, outcome) = decide::place_in_cycle(&mut cycle, &policy, &query, Parallelism::SEQUENTIAL)
        .unwrap()
        .unwrap();
    let corrected = case.compatibility == pumice_engine::policy::Compatibility::Corrected;
    let plain = |all: Vec<GroupPlacements>| -> Vec<GroupPlacements> {
        // Results do not show the card that the reference counts.
        let card = |card: String| if corrected { card } else { String::new() };
        let each = |went: GroupPlacements| {
            went.into_iter()
                .map(|(node, late, own)| (node, late, card(own)))
                .collect()
        };
        all.into_iter().map(each).collect()
    };
    // A task may be allocated beside one that was pipelined, which its terms ask for. The result lists the allocated
    // ones first, so equal tasks change their names.
    let is_in_order = |went: &GroupPlacements| went.is_sorted_by_key(|(_, late, _)| *late);
    if !expected.iter().all(is_in_order) {
        assert!(document(case.policy).contains("predicates"), "{placing:#?}");
        let sorted = |all: Vec<GroupPlacements>| -> Vec<GroupPlacements> {
            let mut all = plain(all);
            for went in &mut all {
                went.sort();
            }
            all
        };
        let got = sorted(group_placements(&cluster_state, &placing));
        assert_eq!(got, sorted(expected), "{placing:#?}");
        return;
    }
    assert_eq!(
        plain(group_placements(&cluster_state, &placing)),
        plain(expected.clone()),
        "{placing:#?}"
    );
    assert_eq!((placing.placed, placing.min_count), (placed, min_count(case)));
    assert_eq!(placing.placed_count, expected.iter().map(Vec::len).sum::<usize>());
    same(&cycle, &engine.cycle, corrected);
    assert_eq!(outcome, engine.outcome);
    for (group, (asked, went)) in placing.groups.iter().zip(case.groups.iter().zip(&expected)) {
        let blockers = &group.as_ref().unwrap().blockers;
        assert_eq!(blockers.is_empty(), asked.count == went.len(), "{blockers:?}");
        let refused: u32 = blockers.iter().map(|blocker| blocker.rejection.count).sum();
        // All nodes are rejected, or the queue before any node. Under `upstream` predicates gives several reasons.
        let several = !corrected && document(case.policy).contains("predicates");
        let nodes = case.nodes().len();
        let every_node = refused as usize == nodes || several && refused as usize > nodes;
        assert!(refused == 0 || every_node, "{blockers:?}");
    }

    // Tasks that are not stored give the same result, and nothing changes.
    let query = place_query(case, &cluster_state, false);
    let preview = decide::place(&cluster_state, &policy, begun.plugin_states(), &query).unwrap();
    assert_eq!(
        group_placements(&cluster_state, &preview),
        group_placements(&cluster_state, &placing)
    );
    expect_same_with_verdicts((&cluster_state, &begun), &policy, &query, &preview);

    // A job that does not exist counts the same, whether plugin states are advanced to it or computed again.
    let query = with_missing_job(query);
    let place_missing =
        |origin| decide::place_cancellable(&cluster_state, &policy, origin, &query, Parallelism::SEQUENTIAL).unwrap();
    let recomputed = place_missing(PluginStateOrigin::Modified(begun.plugin_states()));
    assert_eq!(
        place_missing(PluginStateOrigin::Computed(begun.plugin_states())),
        recomputed
    );
}

/// Expects the same result from queries that store verdicts and use them again.
fn expect_same_with_verdicts(
    (cluster_state, begun): (&ClusterState, &SchedulingCycle),
    policy: &Arc<Policy>,
    query: &PlaceQuery,
    expected: &PlaceResult,
) {
    let cache = VerdictCache::new(16 << 20);
    let execution = Parallelism {
        verdicts: Some(VerdictReuse {
            cache: &cache,
            policy,
            lineage: "",
        }),
        ..Parallelism::SEQUENTIAL
    };
    for _ in 0..3 {
        let origin = PluginStateOrigin::Modified(begun.plugin_states());
        let placed = decide::place_cancellable(cluster_state, policy, origin, query, execution).unwrap();
        assert_eq!(placed.as_ref(), Some(expected));
    }
}

fn with_missing_job(mut query: PlaceQuery) -> PlaceQuery {
    let job = JobRecord {
        name: "ns/missing".into(),
        queue: "q".into(),
        min_member: 2,
        phase: JobPhase::Inqueue,
        ..JobRecord::default()
    };
    for group in query.groups.iter_mut().flatten() {
        group.task = Arc::new(TaskRecord {
            job: Arc::clone(&job.name),
            ..TaskRecord::clone(&group.task)
        });
    }
    query.job = Some(Arc::new(job));
    query
}

#[test]
fn a_missing_task_leaves_the_cycle_unchanged() {
    let cluster = pb::Cluster {
        nodes: vec![records::node("n", &[("cpu", "8"), ("pods", "10")])],
        tasks: vec![records::task("ns/a", "", &[("cpu", "1")])],
        ..pb::Cluster::default()
    };
    let cluster_state = engine::cluster_state(&cluster);
    let document = "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n";
    let policy = compile(document, &CompileOptions::default()).unwrap().policy;
    let mut cycle = SchedulingCycle::new(
        cluster_state.clone(),
        policy.node_change_rules(),
        policy.compute_plugin_states(&cluster_state),
    );
    let group = PlaceGroup {
        task: Arc::new(cluster_state.tasks().get("ns/a").unwrap().record.clone()),
        count: 2,
        names: vec!["ns/a".into(), "ns/nobody".into()],
        warnings: Vec::new(),
        unevaluated: Vec::new(),
    };
    let query = PlaceQuery {
        now: None,
        job: None,
        groups: vec![Ok(group)],
        resources: Arc::clone(cluster_state.resources()),
        min_available: None,
        candidates: None,
        exclusions: Vec::new(),
        idle_only: false,
        samples: 3,
        max_pairs: u64::MAX,
    };
    let refused = decide::place_in_cycle(&mut cycle, &policy, &query, Parallelism::SEQUENTIAL).unwrap_err();
    assert_eq!(
        (refused.code.name(), &*refused.field),
        ("TASK_UNKNOWN", "changes[1].allocate")
    );
    assert_eq!(cycle.moved_tasks().count(), 0);
}

/// Number of cases; `PUMICE_CASES=N` multiplies it by N.
pub(super) fn cases(usual: u32) -> u32 {
    let factor = std::env::var_os("PUMICE_CASES").and_then(|factor| factor.into_string().ok());
    usual * factor.and_then(|times| times.parse().ok()).unwrap_or(1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(400)))]

    #[test]
    fn equals_task_by_task_queries(case in case(12)) {
        check(&case);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(12)))]

    #[test]
    fn equals_task_by_task_queries_over_several_chunks(case in case(600)) {
        check(&case);
    }
}
