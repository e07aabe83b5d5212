//! Every difference between `compatibility: corrected` and `upstream`; each test fails without it.

use std::sync::Arc;

use super::fixtures::{amounts, cluster_state, node_query, parts, policy, score_query, task};
use crate::cycle::{SchedulingCycle, SessionChange, TaskPlacement};
use crate::decide::{self, ResourceFit};
use crate::model::{ClusterState, JobRecord, NodeRecord, Problem, ResourceId, ResourceTable};
use crate::plugin_state::PluginStates;
use crate::policy::Compatibility::{self, Corrected};
use crate::policy::{CompileOptions, compile};

const UPSTREAM: Compatibility = Compatibility::UPSTREAM;

/// One node of 8 devices, half of them used, and a task that asks for one.
fn device(name: &str) -> (ClusterState, decide::ScoreQuery) {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n1".into(),
        allocatable: amounts(
            &mut resources,
            [("cpu", "8"), ("memory", "8Gi"), ("pods", "110"), (name, "8")],
        ),
        unattributed_used: Some(amounts(&mut resources, [(name, "3")])),
        ..NodeRecord::default()
    };
    let asked = task(amounts(&mut resources, [(name, "1")]), &[]);
    let cluster_state = cluster_state(resources, vec![node]);
    let query = score_query(node_query(cluster_state.resources(), vec![asked]));
    (cluster_state, query)
}

#[test]
fn a_slash_star_pattern_covers_a_family() {
    let (cluster_state, query) = device("nvidia.com/gpu-v100");
    let plugin = "{name: resource-strategy-fit, arguments: {resourceStrategyFitWeight: 1, resources: \
                  {nvidia.com/gpu/*: {type: MostAllocated, weight: 2}}}}";
    let total = |compatibility| {
        let compiled = policy(plugin, compatibility);
        let sheet = decide::score(&cluster_state, &compiled.policy, &query)
            .unwrap()
            .remove(0)
            .unwrap();
        sheet.result.totals[0].to_bits()
    };
    assert_eq!(total(Corrected), 50.0_f64.to_bits());
    assert_eq!(total(UPSTREAM), 0);
}

const FLAT: &str = "{name: resource-strategy-fit, arguments: {sra.policy: retention, \
                    sra.resources: 'nvidia.com/t4, nvidia.com/a10', sra.retention.weight: 2, \
                    sra.retention.nvidia.com/t4: 1, sra.retention.nvidia.com/a10: 1}}";

#[test]
fn flat_sra_keys_count() {
    let names = |compatibility| {
        let (cluster_state, query) = device("nvidia.com/t4");
        let compiled = policy(FLAT, compatibility);
        parts(&cluster_state, &compiled.policy, &query)
    };
    let with_sra = names(Corrected);
    assert_eq!(
        with_sra.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["rsf", "sra"]
    );
    assert_eq!(with_sra[1].1, [100.0]);
    assert_eq!(names(UPSTREAM).len(), 1, "sra stays off");
}

#[test]
fn nested_sra_policies_count() {
    let plugin = "{name: resource-strategy-fit, arguments: {sra: {policy: retention, resources: nvidia.com/t4, \
                  retention: {weight: 3, nvidia.com/t4: 1}}}}";
    let names = |compatibility| {
        let (cluster_state, query) = device("nvidia.com/t4");
        let compiled = policy(plugin, compatibility);
        parts(&cluster_state, &compiled.policy, &query).len()
    };
    assert_eq!((names(Corrected), names(UPSTREAM)), (2, 1));
}

/// 8 idle devices keep 8 cores each; 60 cores are idle.
fn is_rejected(plugin: &str, compatibility: Compatibility) -> bool {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n1".into(),
        allocatable: amounts(
            &mut resources,
            [
                ("cpu", "60"),
                ("memory", "128G"),
                ("pods", "110"),
                ("nvidia.com/gpu", "8"),
            ],
        ),
        ..NodeRecord::default()
    };
    let asked = task(amounts(&mut resources, [("cpu", "1")]), &[]);
    let cluster_state = cluster_state(resources, vec![node]);
    let query = node_query(cluster_state.resources(), vec![asked]);
    let compiled = policy(plugin, compatibility);
    let verdict = decide::filter(&cluster_state, &compiled.policy, &query)
        .unwrap()
        .remove(0)
        .unwrap();
    verdict.result.fit.is_empty()
}

#[test]
fn old_proportional_keys_count() {
    for arguments in [
        "{sra.policy: proportional, sra.resources: nvidia.com/gpu, sra.proportional.nvidia.com/gpu.cpu: 8}",
        "{sra.policy: proportional, sra.resources: nvidia.com/gpu, predicate.resources.nvidia.com/gpu.cpu: 8}",
        "{predicate.ProportionalEnable: true, predicate.resources: nvidia.com/gpu, \
         predicate.resources.nvidia.com/gpu.cpu: 8, predicate.resources.nvidia.com/gpu.memory: 8}",
        "{sra: {policy: proportional, resources: nvidia.com/gpu, proportional: {nvidia.com/gpu.cpu: 8}}}",
    ] {
        let plugin = format!("{{name: resource-strategy-fit, arguments: {arguments}}}");
        assert!(is_rejected(&plugin, Corrected), "{arguments}");
        assert!(!is_rejected(&plugin, UPSTREAM), "{arguments}");
    }
}

fn scored(annotations: &[(&str, &str)], compatibility: Compatibility) -> Result<f64, Problem> {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n1".into(),
        allocatable: amounts(&mut resources, [("cpu", "4"), ("pods", "110")]),
        ..NodeRecord::default()
    };
    let asked = task(amounts(&mut resources, [("cpu", "1")]), annotations);
    let cluster_state = cluster_state(resources, vec![node]);
    let query = score_query(node_query(cluster_state.resources(), vec![asked]));
    let compiled = policy(
        "{name: resource-strategy-fit, arguments: {resourceStrategyFitWeight: 1}}",
        compatibility,
    );
    let answered = decide::score(&cluster_state, &compiled.policy, &query)
        .unwrap()
        .remove(0)?;
    let odd = !answered.warnings.is_empty();
    assert_eq!(
        odd,
        compatibility.is_upstream(),
        "{annotations:?}: {:?}",
        answered.warnings
    );
    Ok(answered.result.totals[0])
}

#[test]
fn bad_pod_annotations_are_problems() {
    const TYPE: &str = "volcano.sh/resource-strategy-scoring-type";
    const WEIGHT: &str = "volcano.sh/resource-strategy-weight";
    for (field, annotations) in [
        (WEIGHT, [(TYPE, "MostAllocated"), (WEIGHT, "{\"cpu\":1")].as_slice()),
        (WEIGHT, &[(TYPE, "MostAllocated"), (WEIGHT, "{\"cpu\":1.5}")]),
        (WEIGHT, &[(TYPE, "MostAllocated")]),
        (WEIGHT, &[(TYPE, "MostAllocated"), (WEIGHT, "{\"cpu\":-1}")]),
        (TYPE, &[(TYPE, "mostallocated"), (WEIGHT, "{\"cpu\":1}")]),
    ] {
        let problem = scored(annotations, Corrected).unwrap_err();
        assert_eq!(problem.field, format!("annotations[{field}]"), "{annotations:?}");
        assert_eq!(problem.code.name(), "ANNOTATION_INVALID", "{annotations:?}");
        assert!(scored(annotations, UPSTREAM).unwrap() <= 0.0, "{annotations:?}");
    }
    assert_eq!(
        scored(&[(TYPE, "MostAllocated"), (WEIGHT, "{\"cpu\":1}")], Corrected),
        Ok(25.0)
    );
}

#[test]
fn numbers_beyond_64_bits_are_errors() {
    let document = "actions: allocate\ntiers: [{plugins: [{name: resource-strategy-fit, arguments: \
                    {resourceStrategyFitWeight: 1e300}}]}]";
    let taken = |compatibility| {
        let options = CompileOptions {
            compatibility,
            ..CompileOptions::default()
        };
        compile(document, &options).map(|compiled| compiled.effective_document)
    };
    let report = taken(Corrected).unwrap_err();
    assert_eq!(report.errors().next().unwrap().code.name(), "ARGUMENT_RANGE");
    assert!(taken(UPSTREAM).unwrap().contains("resourceStrategyFitWeight: 10"));
}

#[test]
fn a_node_without_scalars_gains_no_future_scalars_under_upstream() {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n".into(),
        allocatable: amounts(&mut resources, [("cpu", "4")]),
        ..NodeRecord::default()
    };
    let mut waiting = task(amounts(&mut resources, [("cpu", "1"), ("nvidia.com/gpu", "2")]), &[]);
    waiting.job = "ns/j".into();
    let gpu = resources.get("nvidia.com/gpu").unwrap();
    let mut cluster_state = cluster_state(resources, vec![node]);
    let job = JobRecord {
        name: "ns/j".into(),
        ..JobRecord::default()
    };
    cluster_state.put_job(job, &Arc::from("test"));
    cluster_state.put_task(waiting.clone(), &Arc::from("test"));
    let future = |compatibility: Compatibility| {
        let mut cycle = SchedulingCycle::new(cluster_state.clone(), compatibility.into(), PluginStates::default());
        let placement = TaskPlacement {
            task: Arc::clone(&waiting.name),
            node: "n".into(),
            card: Arc::default(),
            devices: 0,
        };
        cycle.apply(&[SessionChange::Pipeline(placement)]).unwrap();
        let chunk = cycle.cluster_state().chunks().first().unwrap();
        let shown = |id| {
            let column = chunk.future_idle(id);
            column.present.get(0).then_some(column.values[0])
        };
        let mut query = node_query(cycle.cluster_state().resources(), vec![waiting.clone()]);
        query.resource_fit = ResourceFit::FutureIdle;
        let policy = policy("{name: drf}", compatibility).policy;
        let verdict = decide::filter(cycle.cluster_state(), &policy, &query)
            .unwrap()
            .remove(0);
        let rejections = verdict.unwrap().result.rejections.clone();
        let gpus = rejections
            .iter()
            .find(|group| &*group.reason.resource == "nvidia.com/gpu")
            .unwrap();
        let measured = gpus.samples[0]
            .1
            .iter()
            .find(|one| one.name == "future idle")
            .unwrap()
            .value;
        (shown(gpu), shown(ResourceId::CPU), measured)
    };
    assert_eq!(future(UPSTREAM), (None, Some(3000.0), 0.0));
    assert_eq!(future(Corrected), (Some(-2000.0), Some(3000.0), -2.0));
}
