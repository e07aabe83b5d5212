//! Classes that go over the nodes together, on any number of threads, are answered as each alone.

use super::cluster::{amounts, policy, question, task, view};
use crate::engine::decide::{self, Detail, Effort, Question, ResourceFit, ScoreQuestion};
use crate::engine::model::{NodeRecord, ResourceTable, View};
use crate::engine::plugin::Facts;
use crate::engine::policy::Compatibility::Corrected;
use crate::engine::policy::Compiled;

const PLUGINS: &str = "{name: resource-strategy-fit, arguments: {resourceStrategyFitWeight: 1, resources: {cpu: {type: \
                       LeastAllocated, weight: 1}, memory: {type: MostAllocated, weight: 2}}, sra: {enable: true, \
                       resources: nvidia.com/gpu, weight: 3}, proportional: {enable: true, resources: nvidia.com/gpu, \
                       resourceProportion: {nvidia.com/gpu.cpu: 1, nvidia.com/gpu.memory: 1}}}}, {name: \
                       NodeResourcesFitPlus, arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}}}}";

/// 700 nodes of several kinds, and 21 different tasks, one of them twice.
fn cluster() -> (View, Compiled, Question) {
    let mut resources = ResourceTable::default();
    let nodes = (0..700).map(|number: u32| {
        let cpu = (4 + number % 7 * 8).to_string();
        let gpus = (number % 3 * 4).to_string();
        let all = [
            ("cpu", &*cpu),
            ("memory", "64Gi"),
            ("pods", "9"),
            ("nvidia.com/gpu", &*gpus),
        ];
        NodeRecord {
            name: format!("n{}", number * 7 % 1_000).into(),
            allocatable: amounts(&mut resources, all.into_iter().filter(|(_, quantity)| *quantity != "0")),
            ..NodeRecord::default()
        }
    });
    let nodes = nodes.collect();
    let tasks = (0..22).map(|number: u32| {
        let cpu = (1 + number % 21 * 2).to_string();
        let gpus = (number % 2).to_string();
        let all = [("cpu", &*cpu), ("memory", "8Gi"), ("nvidia.com/gpu", &*gpus)];
        let wanted = all.into_iter().filter(|(_, quantity)| *quantity != "0");
        task(amounts(&mut resources, wanted), &[])
    });
    let tasks = tasks.collect();
    let view = view(resources, nodes);
    let question = Question {
        resource_fit: ResourceFit::FutureIdle,
        ..question(view.resources(), tasks)
    };
    (view, policy(PLUGINS, Corrected), question)
}

fn alone(question: &Question, number: usize) -> Question {
    Question {
        tasks: vec![question.tasks[number].clone()],
        ..question.clone()
    }
}

#[test]
fn filters_answer_as_for_each_alone() {
    let (view, compiled, all) = cluster();
    for hands in [1, 2, 3, 40] {
        let effort = Effort { hands, ..Effort::ALONE };
        let derived = compiled.policy.derive(&view);
        let facts = Facts {
            view: &view,
            derived: &derived,
        };
        let items = decide::filter_with(facts, &compiled.policy, &all, effort)
            .unwrap()
            .unwrap();
        for (number, item) in items.iter().enumerate() {
            let one = decide::filter(&view, &compiled.policy, &alone(&all, number)).unwrap();
            assert_eq!(one, std::slice::from_ref(item), "{hands} hands, task {number}");
        }
        let passed = items.iter().filter(|item| item.as_ref().unwrap().answer.fit_count > 0);
        assert!(passed.count() > 10);
    }
}

#[test]
fn scores_answer_as_for_each_alone() {
    let (view, compiled, all) = cluster();
    let derived = compiled.policy.derive(&view);
    let facts = Facts {
        view: &view,
        derived: &derived,
    };
    for (with_filter, limit, with_parts) in [
        (true, Some(1), false),
        (true, Some(16), true),
        (false, None, true),
        (true, None, false),
    ] {
        let ask = |question: Question| ScoreQuestion {
            question: Question {
                detail: Detail::Counts,
                ..question
            },
            with_filter,
            limit,
            with_parts,
        };
        for hands in [1, 2, 5] {
            let effort = Effort { hands, ..Effort::ALONE };
            let items = decide::score_with(facts, &compiled.policy, &ask(all.clone()), effort)
                .unwrap()
                .unwrap();
            for (number, item) in items.iter().enumerate() {
                let one = decide::score(&view, &compiled.policy, &ask(alone(&all, number))).unwrap();
                assert_eq!(one, std::slice::from_ref(item), "{hands} hands, task {number}");
            }
        }
    }
}

#[test]
fn nobody_answers_who_is_told_to_stop() {
    let (view, compiled, all) = cluster();
    let derived = compiled.policy.derive(&view);
    let facts = Facts {
        view: &view,
        derived: &derived,
    };
    let effort = Effort {
        hands: 2,
        stop: &|| true,
    };
    assert_eq!(
        decide::filter_with(facts, &compiled.policy, &all, effort).unwrap(),
        None
    );
}
