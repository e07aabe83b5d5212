//! What a question can ask for: candidates, room, plugins by name, limits, details.

use super::cluster::{amounts, policy, question, score_question, task, view};
use crate::engine::decide::{self, Detail, FilterVerdict, Question, ResourceFit, ScoreQuestion, ScoreSheet};
use crate::engine::model::{Kind, NodeRecord, Problem, ProblemKind, ResourceTable, TaskStatus, View};
use crate::engine::plugin::Resolution;
use crate::engine::policy::Compatibility::Corrected;
use crate::engine::policy::Compiled;

const PLUGINS: &str = "{name: resource-strategy-fit, arguments: {resourceStrategyFitWeight: 1, resources: {cpu: {type: \
                       LeastAllocated, weight: 1}}, proportional: {enable: true, resources: nvidia.com/gpu, \
                       resourceProportion: {nvidia.com/gpu.cpu: 1, nvidia.com/gpu.memory: 0}}}}, {name: binpack}, \
                       {name: gang}";

fn node(resources: &mut ResourceTable, name: &str, cpu: &str, gpus: &str) -> NodeRecord {
    let all = [
        ("cpu", cpu),
        ("memory", "64Gi"),
        ("pods", "10"),
        ("nvidia.com/gpu", gpus),
    ];
    NodeRecord {
        name: name.into(),
        allocatable: amounts(resources, all.into_iter().filter(|(_, quantity)| *quantity != "0")),
        ..NodeRecord::default()
    }
}

/// Nodes whose names do not sort as their slots do, and a task of 4 cores.
fn cluster() -> (View, Question) {
    let mut resources = ResourceTable::default();
    let mut nodes = vec![
        node(&mut resources, "d-big", "32", "0"),
        node(&mut resources, "c-small", "2", "0"),
        node(&mut resources, "b-busy", "8", "0"),
        node(&mut resources, "a-gpu", "8", "6"),
        node(&mut resources, "e-cordoned", "32", "0"),
        node(&mut resources, "f-broken", "32", "0"),
        node(&mut resources, "aa-big", "32", "0"),
    ];
    nodes[4].unschedulable = true;
    nodes[5].ready = Some(false);
    let asked = task(amounts(&mut resources, [("cpu", "4")]), &[]);
    let mut busy = asked.clone();
    busy.name = "default/busy".into();
    busy.node = "b-busy".into();
    busy.status = TaskStatus::Releasing;
    busy.requests = amounts(&mut resources, [("cpu", "6"), ("pods", "1")]);
    let mut view = view(resources, nodes);
    view.put_task(busy, &"test".into());
    let question = question(view.resources(), vec![asked]);
    (view, question)
}

fn filter(view: &View, compiled: &Compiled, question: &Question) -> FilterVerdict {
    let item = decide::filter(view, &compiled.policy, question).unwrap().remove(0);
    FilterVerdict::clone(&item.unwrap().answer)
}

fn score(view: &View, compiled: &Compiled, question: &ScoreQuestion) -> ScoreSheet {
    let item = decide::score(view, &compiled.policy, question).unwrap().remove(0);
    ScoreSheet::clone(&item.unwrap().answer)
}

fn groups(verdict: &FilterVerdict) -> Vec<(&str, &str, &str, &[u32])> {
    let rejections = verdict.rejections.iter();
    rejections
        .map(|rejection| {
            let reason = &rejection.reason;
            assert_eq!(rejection.count as usize, rejection.nodes.len());
            (
                &*reason.plugin,
                reason.code,
                &*reason.resource,
                rejection.nodes.as_slice(),
            )
        })
        .collect()
}

#[test]
fn the_first_that_refuses_counts() {
    let (view, mut question) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    question.resource_fit = ResourceFit::Idle;
    let verdict = filter(&view, &compiled, &question);
    assert_eq!(verdict.fit, [0, 6]);
    assert_eq!(
        groups(&verdict),
        [
            ("node-state", "NodeNotReady", "", [5].as_slice()),
            ("node-state", "NodeUnschedulable", "", &[4]),
            ("resource-fit", "InsufficientResource", "cpu", &[2]),
            ("resource-fit", "InsufficientResource", "cpu", &[1]),
            ("resource-strategy-fit", "ProportionalReserve", "nvidia.com/gpu", &[3]),
        ]
    );
    let resolutions = verdict.rejections.iter().map(|rejection| rejection.reason.resolution);
    let (yes, no) = (Resolution::Unschedulable, Resolution::Unresolvable);
    assert_eq!(resolutions.collect::<Vec<_>>(), [no, no, yes, no, no]);
    let figures: Vec<_> = verdict.rejections[2..4]
        .iter()
        .map(|rejection| {
            rejection.samples[0]
                .1
                .iter()
                .map(|figure| (&*figure.name, figure.value))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(figures[0], [("requested", 4.0), ("idle", 2.0)]);
    assert_eq!(figures[1], [("requested", 4.0), ("idle", 2.0), ("allocatable", 2.0)]);

    // What is being released is there for those who wait.
    question.resource_fit = ResourceFit::FutureIdle;
    assert_eq!(filter(&view, &compiled, &question).fit, [0, 2, 6]);
    question.resource_fit = ResourceFit::None;
    assert_eq!(filter(&view, &compiled, &question).fit, [0, 1, 2, 6]);
}

#[test]
fn an_outdated_node_takes_nothing_new() {
    let (mut view, question) = cluster();
    let problem = Problem::new(ProblemKind::Invalid, "INVALID_QUANTITY", "allocatable", "no number");
    view.set_invalid(Kind::Node, "d-big", Some(vec![problem].into()));
    let verdict = filter(&view, &policy(PLUGINS, Corrected), &question);
    assert_eq!(groups(&verdict)[0], ("node-state", "NodeInvalid", "", [0].as_slice()));
}

#[test]
fn named_plugins_are_asked_each_for_itself() {
    let (view, mut question) = cluster();
    let off = PLUGINS.replace(
        "{name: resource-strategy-fit",
        "{name: resource-strategy-fit, enablePredicate: false",
    );
    let compiled = policy(&off, Corrected);
    question.resource_fit = ResourceFit::Idle;
    assert!(filter(&view, &compiled, &question).fit.contains(&3), "switched off");
    question.plugins = vec!["resource-strategy-fit".into(), "binpack".into()];
    question.candidates = Some(vec![3, 1, 4]);
    let verdict = filter(&view, &compiled, &question);
    // Neither the state of nodes nor switches are looked at; slot 1 is short of room, 3 refused by the plugin.
    assert_eq!(verdict.fit, [4]);
    assert_eq!(groups(&verdict).len(), 2);

    // A node appears once per plugin that refuses it.
    question.tasks[0].as_mut().unwrap().task = {
        let mut resources = ResourceTable::clone(&question.resources);
        task(amounts(&mut resources, [("cpu", "16")]), &[]).into()
    };
    question.candidates = Some(vec![3]);
    assert_eq!(
        groups(&filter(&view, &compiled, &question)),
        [
            ("resource-fit", "InsufficientResource", "cpu", [3].as_slice()),
            ("resource-strategy-fit", "ProportionalReserve", "nvidia.com/gpu", &[3]),
        ]
    );
}

#[test]
fn plugins_that_cannot_answer_end_the_question() {
    let (view, mut question) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    for (name, kind, reason) in [
        ("gang", ProblemKind::Unserved, "PLUGIN_NOT_SERVED"),
        ("drf", ProblemKind::NotFound, "PLUGIN_NOT_FOUND"),
    ] {
        question.plugins = vec!["binpack".into(), name.into()];
        let problem = decide::filter(&view, &compiled.policy, &question).unwrap_err();
        assert_eq!(
            (problem.kind, problem.reason, &*problem.field),
            (kind, reason, "plugins[1]")
        );
        let score = score_question(question.clone());
        assert_eq!(decide::score(&view, &compiled.policy, &score).unwrap_err(), problem);
    }
}

#[test]
fn samples_come_by_name_and_details_can_be_left_out() {
    let (view, mut question) = cluster();
    let compiled = policy("{name: binpack}", Corrected);
    question.resource_fit = ResourceFit::Idle;
    question.tasks[0].as_mut().unwrap().task = {
        let mut resources = ResourceTable::clone(&question.resources);
        task(amounts(&mut resources, [("cpu", "500")]), &[]).into()
    };
    question.samples = 2;
    let short = |verdict: &FilterVerdict| {
        let last = verdict.rejections.last().unwrap().clone();
        (
            last.count,
            last.nodes,
            last.samples.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        short(&filter(&view, &compiled, &question)),
        (5, vec![0, 1, 2, 3, 6], vec![3, 6])
    );
    question.detail = Detail::Samples;
    assert_eq!(short(&filter(&view, &compiled, &question)), (5, vec![], vec![3, 6]));
    question.detail = Detail::Counts;
    assert_eq!(short(&filter(&view, &compiled, &question)), (5, vec![], vec![]));
}

#[test]
fn the_best_come_first_and_ties_break_by_name() {
    let (view, question) = cluster();
    let compiled = policy(&PLUGINS.replace("{name: binpack}, ", ""), Corrected);
    let mut question = score_question(question);
    let all = score(&view, &compiled, &question);
    assert_eq!(all.nodes, [0, 1, 2, 3, 4, 5, 6]);
    question.limit = Some(4);
    let best = score(&view, &compiled, &question);
    // Slots 0, 4, 5 and 6 tie; their names are d-big, e-cordoned, f-broken and aa-big.
    assert_eq!(best.nodes, [6, 0, 4, 5]);
    for part in &best.parts {
        let whole = all
            .parts
            .iter()
            .find(|other| (&other.plugin, other.part) == (&part.plugin, part.part))
            .unwrap();
        let picked: Vec<f64> = best.nodes.iter().map(|slot| whole.scores[*slot as usize]).collect();
        assert_eq!(part.scores, picked);
    }
    question.limit = Some(0);
    assert_eq!(score(&view, &compiled, &question).nodes, [] as [u32; 0]);
    question.limit = Some(100);
    question.with_filter = true;
    let fitting = score(&view, &compiled, &question);
    let filter = fitting.filter.unwrap();
    assert_eq!((fitting.nodes, filter.fit), (vec![6, 0, 2, 1], vec![0, 1, 2, 6]));
}

#[test]
fn candidates_keep_the_callers_order() {
    let (view, question) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    let mut question = score_question(question);
    let all = score(&view, &compiled, &question);
    question.question.candidates = Some(vec![6, 2, 99, 0, 3]);
    let some = score(&view, &compiled, &question);
    assert_eq!(some.nodes, [6, 2, 0, 3]);
    let expected: Vec<f64> = some.nodes.iter().map(|slot| all.totals[*slot as usize]).collect();
    assert_eq!(some.totals, expected);
    let verdict = filter(&view, &compiled, &question.question);
    let absent = verdict
        .rejections
        .iter()
        .find(|rejection| rejection.reason.code == "NodeNotFound")
        .unwrap();
    assert_eq!(absent.nodes, [99]);
}

#[test]
fn parts_and_plugins_are_told_apart() {
    let (view, question) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    let mut question = score_question(question);
    let names = |sheet: &ScoreSheet| {
        let parts = sheet.parts.iter().map(|part| format!("{}/{}", part.plugin, part.part));
        parts.collect::<Vec<_>>()
    };
    assert_eq!(
        names(&score(&view, &compiled, &question)),
        ["resource-strategy-fit/rsf", "binpack/"]
    );
    question.with_parts = false;
    assert_eq!(names(&score(&view, &compiled, &question)), [] as [&str; 0]);
    question.question.plugins = vec!["binpack".into(), "resource-strategy-fit".into()];
    let asked = score(&view, &compiled, &question);
    assert_eq!(names(&asked), ["binpack/", "resource-strategy-fit/"]);
    let sums = asked.parts[0].scores.iter().zip(&asked.parts[1].scores);
    assert!(sums.map(|(a, b)| a + b).eq(asked.totals.iter().copied()));
    question.with_parts = true;
    assert_eq!(
        names(&score(&view, &compiled, &question)),
        ["binpack/", "resource-strategy-fit/rsf", "resource-strategy-fit/"]
    );
}

#[test]
fn equal_tasks_are_judged_once_and_items_fail_alone() {
    let (view, mut question) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    let problem = Problem::new(ProblemKind::Invalid, "INVALID_QUANTITY", "requests", "no number");
    question.tasks.push(Err(problem.clone()));
    let mut other = question.tasks[0].clone().unwrap();
    let mut record = (*other.task).clone();
    record.name = "default/other".into();
    other.task = record.into();
    other.warnings.push(problem.clone());
    question.tasks.push(Ok(other));
    let items = decide::filter(&view, &compiled.policy, &question).unwrap();
    let [Ok(one), Err(bad), Ok(two)] = &items[..] else {
        panic!("{items:?}")
    };
    assert_eq!(*bad, problem);
    assert!(std::sync::Arc::ptr_eq(&one.answer, &two.answer));
    assert_eq!(
        (&one.warnings[..], &two.warnings[..]),
        ([].as_slice(), [problem].as_slice())
    );
}
