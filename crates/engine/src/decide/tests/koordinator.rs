//! Tests of Koordinator's plugins: weights of profiles, scores out of range, and columns against a plain computation.

use std::sync::Arc;

use proptest::prelude::*;

use super::fixtures::{cluster_state, node_query, policy, score_query, task};
use crate::decide::{self, ScoreSheet};
use crate::model::{
    ClusterState, ErrorCode, NodeRecord, Problem, ResourceAmounts, ResourceId, ResourceTable, TaskRecord, TaskStatus,
};
use crate::policy::{Compatibility, CompileOptions, Policy, Severity, compile};

const GPU: &str = "nvidia.com/gpu";
const DISK: &str = "ephemeral-storage";
const FIT_PLUS: &str = "NodeResourcesFitPlus";

fn table() -> (ResourceTable, ResourceId, ResourceId) {
    let mut table = ResourceTable::default();
    let (gpu, disk) = (table.intern(GPU, 9).unwrap(), table.intern(DISK, 9).unwrap());
    (table, gpu, disk)
}

fn node(name: &str, allocatable: ResourceAmounts) -> NodeRecord {
    NodeRecord {
        name: name.into(),
        allocatable,
        ..NodeRecord::default()
    }
}

fn ask(cluster_state: &ClusterState, policy: &Policy, task: TaskRecord) -> Result<Arc<ScoreSheet>, Problem> {
    let query = score_query(node_query(cluster_state.resources(), vec![task]));
    let item = decide::score(cluster_state, policy, &query).unwrap().remove(0);
    item.map(|answered| answered.result)
}

fn tier(arguments: &str, compatibility: Compatibility) -> Arc<Policy> {
    let plugin = format!("{{name: {FIT_PLUS}, arguments: {arguments}}}");
    policy(&plugin, compatibility).policy
}

#[test]
fn parts_come_before_the_weights_of_a_profile_and_totals_after() {
    let document = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
                    - plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFitPlus, weight: 3}, {name: ScarceResourceAvoidance, weight: 2}]}}\n  \
                    pluginConfig:\n  - {name: NodeResourcesFitPlus, args: {resources: {cpu: {type: MostAllocated, weight: 1}}}}\n  \
                    - {name: ScarceResourceAvoidance, args: {resources: [nvidia.com/gpu]}}\n";
    let compiled = compile(document, &CompileOptions::default()).unwrap();
    let (resources, gpu, _) = table();
    let allocatable =
        ResourceAmounts::from_iter([(ResourceId::CPU, 4_000), (ResourceId::MEMORY, 1 << 30), (gpu, 8_000)]);
    let cluster_state = cluster_state(resources, vec![node("n", allocatable)]);
    let sheet = ask(
        &cluster_state,
        &compiled.policy,
        task(ResourceAmounts::from_iter([(ResourceId::CPU, 1_000)]), &[]),
    )
    .unwrap();
    let parts: Vec<(&str, f64)> = sheet.parts.iter().map(|part| (&*part.plugin, part.scores[0])).collect();
    assert_eq!(parts, [(FIT_PLUS, 25.0), ("ScarceResourceAvoidance", 50.0)]);
    assert_eq!(sheet.totals, [3.0 * 25.0 + 2.0 * 50.0]);
}

#[test]
fn a_score_out_of_range_rejects_the_task() {
    let (resources, ..) = table();
    let half = ResourceAmounts::from_iter([(ResourceId::CPU, 10_000), (ResourceId::MEMORY, 1 << 30)]);
    let cluster_state = cluster_state(resources, vec![node("a", half.clone()), node("b", half)]);
    let arguments = "{resources: {cpu: {type: LeastAllocated, weight: 3}, memory: {type: MostAllocated, weight: -2}}}";
    let request = ResourceAmounts::from_iter([(ResourceId::CPU, 1_000), (ResourceId::MEMORY, 1 << 20)]);
    for compatibility in Compatibility::KINDS {
        let problem = ask(
            &cluster_state,
            &tier(arguments, compatibility),
            task(request.clone(), &[]),
        )
        .unwrap_err();
        assert_eq!(problem.code.name(), "SCORE_OUT_OF_RANGE");
        assert!(
            problem.message.contains("270 on `a`, 270 on `b`"),
            "{}",
            problem.message
        );
    }
}

#[test]
fn large_amounts_wrap_under_upstream_only() {
    let (resources, _, disk) = table();
    let peta = 1_000_000_000_000_000;
    let whole = |amount: i64| {
        let mut amounts = ResourceAmounts::default();
        amounts.set_whole_units(disk, amount);
        amounts
    };
    let cluster_state = cluster_state(resources, vec![node("n", whole(1_000 * peta))]);
    let arguments = "{resources: {ephemeral-storage: {type: MostAllocated, weight: 1}}}";
    for (compatibility, score) in [(Compatibility::UPSTREAM, 1.0), (Compatibility::Corrected, 20.0)] {
        let sheet = ask(
            &cluster_state,
            &tier(arguments, compatibility),
            task(whole(200 * peta), &[]),
        )
        .unwrap();
        assert_eq!(sheet.totals, [score]);
    }
    // Weights as large as they come.
    let cluster_state = self::cluster_state(
        table().0,
        vec![node("n", ResourceAmounts::from_iter([(ResourceId::CPU, 4)]))],
    );
    let heavy = format!("{{resources: {{cpu: {{type: MostAllocated, weight: {}}}}}}}", i64::MAX);
    let one = || task(ResourceAmounts::from_iter([(ResourceId::CPU, 1)]), &[]);
    assert_eq!(
        ask(&cluster_state, &tier(&heavy, Compatibility::Corrected), one())
            .unwrap()
            .totals,
        [25.0]
    );
    assert!(
        ask(&cluster_state, &tier(&heavy, Compatibility::UPSTREAM), one()).is_ok_and(|sheet| sheet.totals != [25.0])
    );
}

#[test]
fn tasks_that_differ_in_what_is_counted_are_two_classes() {
    let (resources, ..) = table();
    let cluster_state = cluster_state(
        resources,
        vec![node("n", ResourceAmounts::from_iter([(ResourceId::CPU, 1_000)]))],
    );
    let arguments = "{resources: {cpu: {type: MostAllocated, weight: 1}}}";
    let policy = tier(arguments, Compatibility::Corrected);
    let plain = task(ResourceAmounts::from_iter([(ResourceId::CPU, 100)]), &[]);
    let mut counted = plain.clone();
    counted.counted_requests = Some(Box::new(ResourceAmounts::from_iter([(ResourceId::CPU, 300)])));
    let query = score_query(node_query(cluster_state.resources(), vec![plain, counted]));
    let items = decide::score(&cluster_state, &policy, &query).unwrap();
    let totals: Vec<f64> = items
        .iter()
        .map(|item| item.as_ref().unwrap().result.totals[0])
        .collect();
    assert_eq!(totals, [10.0, 30.0]);
}

#[test]
fn likely_mistakes_warn_and_fail_under_strict() {
    let fit = |arguments: &str| (FIT_PLUS, arguments.to_owned());
    let scarce = |arguments: &str| ("ScarceResourceAvoidance", arguments.to_owned());
    for ((plugin, arguments), wanted) in [
        (fit("{}"), ErrorCode::ArgumentMute),
        (fit("{resources: {}}"), ErrorCode::ArgumentMute),
        (
            fit("{resources: {cpu: {type: MostAllocated}}}"),
            ErrorCode::ArgumentWeight,
        ),
        (
            fit("{resources: {cpu: {type: MostAllocated, weight: -1}}}"),
            ErrorCode::ArgumentWeight,
        ),
        (
            fit("{resources: {cpu: {type: MostAllocated, weight: 9223372036854775807}}}"),
            ErrorCode::ArgumentWeight,
        ),
        (
            fit("{resources: {cpu: {type: mostAllocated, weight: 1}}}"),
            ErrorCode::ArgumentStrategy,
        ),
        (fit("{resources: {cpu: {weight: 1}}}"), ErrorCode::ArgumentStrategy),
        (
            fit("{resources: {nvidia.com/*: {type: MostAllocated, weight: 1}}}"),
            ErrorCode::ArgumentResource,
        ),
        (
            fit("{resources: {pods: {type: MostAllocated, weight: 1}}}"),
            ErrorCode::ArgumentResource,
        ),
        (
            fit("{resources: {gpu: {type: MostAllocated, weight: 1}}}"),
            ErrorCode::ArgumentResource,
        ),
        (scarce("{resources: []}"), ErrorCode::ArgumentMute),
        (
            scarce("{resources: [nvidia.com/gpu, nvidia.com/gpu]}"),
            ErrorCode::ArgumentIgnored,
        ),
        (scarce("{resources: [gpu]}"), ErrorCode::ArgumentResource),
        (scarce("{resources: ['nvidia.com/*']}"), ErrorCode::ArgumentResource),
    ] {
        let document = format!("actions: allocate\ntiers:\n- plugins: [{{name: {plugin}, arguments: {arguments}}}]\n");
        for compatibility in Compatibility::KINDS {
            let mut options = CompileOptions {
                compatibility,
                ..CompileOptions::default()
            };
            let report = compile(&document, &options).unwrap().report;
            let found = report.diagnostics.iter().find(|diagnostic| diagnostic.code == wanted);
            assert_eq!(
                found.map(|diagnostic| diagnostic.severity),
                Some(Severity::Warning),
                "{document}"
            );
            options.strict = true;
            assert!(compile(&document, &options).is_err(), "{document}");
        }
    }
}

/// Figures of a node or a task: cpu, gpu and disk in thousandths, as far as they are there.
type KoordinatorAmounts = (Option<i64>, Option<i64>, Option<i64>);

fn milli_amounts() -> impl Strategy<Value = KoordinatorAmounts> {
    let amount = |most: i64| proptest::option::of(0..most);
    (amount(20_000), amount(9_000), amount(5_000_000))
}

fn amounts((cpu, gpu_amount, disk_amount): KoordinatorAmounts) -> ResourceAmounts {
    let (_, gpu, disk) = table();
    let all = [(ResourceId::CPU, cpu), (gpu, gpu_amount), (disk, disk_amount)];
    all.into_iter().filter_map(|(id, amount)| Some((id, amount?))).collect()
}

fn whole_units(milli: Option<i64>) -> i128 {
    i128::from((milli.unwrap_or(0) + 999) / 1_000)
}

/// Section 2 of the plugin, step by step, for cpu, gpu and disk.
fn naive_fit(allocatable: KoordinatorAmounts, pods: &[KoordinatorAmounts], asked: KoordinatorAmounts) -> i128 {
    let nonzero = |own: KoordinatorAmounts| i128::from(own.0.unwrap_or(100));
    let columns = [
        (
            allocatable.0.map_or(0, i128::from),
            pods.iter().map(|pod| nonzero(*pod)).sum(),
            nonzero(asked),
            asked.0,
            true,
            1,
        ),
        (
            whole_units(allocatable.1),
            pods.iter().map(|pod| whole_units(pod.1)).sum(),
            whole_units(asked.1),
            asked.1,
            true,
            2,
        ),
        (
            whole_units(allocatable.2),
            pods.iter().map(|pod| whole_units(pod.2)).sum::<i128>(),
            whole_units(asked.2),
            asked.2,
            false,
            3,
        ),
    ];
    let (mut sum, mut weights) = (0, 0);
    for (capacity, used, own, requested, most, weight) in columns {
        if requested.unwrap_or(0) == 0 {
            continue;
        }
        let total = used + own;
        let score = match (capacity, most) {
            (0, _) => 0,
            (_, true) => total.min(capacity) * 100 / capacity,
            (_, false) if total > capacity => 0,
            (_, false) => (capacity - total) * 100 / capacity,
        };
        sum += score * weight;
        weights += weight;
    }
    if weights == 0 { 100 } else { sum / weights }
}

fn naive_scarce(allocatable: KoordinatorAmounts, asked: KoordinatorAmounts) -> usize {
    let has = [allocatable.0, allocatable.1, allocatable.2].map(|amount| amount.unwrap_or(0) > 0);
    let wants = [asked.0, asked.1, asked.2].map(|amount| amount.unwrap_or(0) > 0);
    let left: Vec<usize> = (0..3).filter(|&i| has[i] && !wants[i]).collect();
    // gpu and disk are scarce.
    let hit = left.iter().filter(|&&i| i > 0).count();
    if hit == 0 {
        100
    } else {
        (left.len() - hit) * 100 / left.len()
    }
}

proptest! {
    #[test]
    fn columns_score_as_naive_amounts(
        nodes in prop::collection::vec((milli_amounts(), prop::collection::vec(milli_amounts(), 0..4)), 1..6),
        asked in milli_amounts(),
    ) {
        let records = nodes.iter().enumerate();
        let records = records.map(|(i, (allocatable, _))| node(&format!("n{i}"), amounts(*allocatable))).collect();
        let mut cluster_state = cluster_state(table().0, records);
        for (i, (_, pods)) in nodes.iter().enumerate() {
            for (number, pod) in pods.iter().enumerate() {
                let pod = TaskRecord {
                    name: format!("p{i}-{number}").into(),
                    node: format!("n{i}").into(),
                    status: TaskStatus::Running,
                    ..task(amounts(*pod), &[])
                };
                cluster_state.put_task(pod, &"s".into());
            }
        }
        let plugins = "{name: NodeResourcesFitPlus, arguments: {resources: {cpu: {type: MostAllocated, weight: 1}, \
                       nvidia.com/gpu: {type: MostAllocated, weight: 2}, ephemeral-storage: {type: LeastAllocated, weight: 3}}}}, \
                       {name: ScarceResourceAvoidance, arguments: {resources: [nvidia.com/gpu, ephemeral-storage]}}";
        for compatibility in Compatibility::KINDS {
            let policy = policy(plugins, compatibility).policy;
            let sheet = ask(&cluster_state, &policy, task(amounts(asked), &[])).unwrap();
            for (i, (allocatable, pods)) in nodes.iter().enumerate() {
                prop_assert_eq!(sheet.parts[0].scores[i], naive_fit(*allocatable, pods, asked) as f64);
                prop_assert_eq!(sheet.parts[1].scores[i], naive_scarce(*allocatable, asked) as f64);
            }
        }
    }
}
