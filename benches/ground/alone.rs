//! One plugin alone over all nodes.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::hint::black_box;
use std::sync::Arc;

use pumice::engine::decide::{self, Effort, Question, QuestionTask, ResourceFit, ScoreQuestion};
use pumice::engine::model::{Amounts, NodeRecord, ResourceId, TaskFields, TaskRecord, View};
use pumice::engine::plugin::Facts;
use pumice::engine::policy::{CompileOptions, Policy, compile};

use super::paths::Run;
use super::{class, jobs};

const BINPACK: &str = "{binpack.cpu: 1, binpack.memory: 1, binpack.resources: nvidia.com/gpu, \
                       binpack.resources.nvidia.com/gpu: 5}";
const FIT_PLUS: &str = "{resources: {cpu: {type: LeastAllocated, weight: 1}, memory: {type: LeastAllocated, weight: 1}, \
                        nvidia.com/gpu: {type: MostAllocated, weight: 2}}}";
const SCARCE: &str = "{resources: [nvidia.com/nic]}";

/// A path of one plugin; `None`: there is none of that name. Cards are judged over 10,000 nodes, whatever is asked for.
pub(crate) fn prepare(path: &str, nodes: u32) -> Option<Run> {
    Some(match path {
        "score_binpack" => score(&class::cluster(nodes), "binpack", BINPACK),
        "score_fit_plus" => score(&class::cluster(nodes), "NodeResourcesFitPlus", FIT_PLUS),
        "score_scarce" => score(&some_without(nodes), "ScarceResourceAvoidance", SCARCE),
        "filter_cards" => filter_cards(),
        _ => return None,
    })
}

fn policy(plugin: &str, arguments: &str) -> Arc<Policy> {
    let document = format!("actions: allocate\ntiers:\n- plugins:\n  - name: {plugin}\n    arguments: {arguments}\n");
    compile(&document, &CompileOptions::default())
        .expect("a good policy")
        .policy
}

fn score(view: &View, plugin: &str, arguments: &str) -> Run {
    let (view, policy) = (view.clone(), policy(plugin, arguments));
    let question = class::question(&view);
    let sheets = decide::score(&view, &policy, &question).expect("an answer");
    let totals = sheets.iter().flatten().flat_map(|sheet| &sheet.answer.totals);
    let mut some: Vec<f64> = totals.copied().collect();
    some.sort_unstable_by(f64::total_cmp);
    assert!(some.first() < some.last(), "nodes differ");
    Box::new(move || drop(black_box(decide::score(&view, &policy, black_box(&question)))))
}

/// Every third node has no scarce resource.
fn some_without(nodes: u32) -> View {
    let mut view = class::cluster(nodes);
    let nic = view.resources().get(class::NIC).expect("known");
    let all: Vec<_> = view.nodes().map(|(_, entry)| Arc::clone(&entry.record)).collect();
    for record in all.iter().step_by(3) {
        let allocatable: Amounts = record.allocatable.iter().filter(|(id, _)| *id != nic).collect();
        let record = NodeRecord {
            allocatable,
            ..NodeRecord::clone(record)
        };
        view.put_node(Arc::new(record), &Arc::from("bench"));
    }
    view
}

/// Nodes with cards of eight kinds, of which the task may use one.
fn filter_cards() -> Run {
    let (view, jobs, gpu) = jobs::cluster(0);
    let (policy, job) = (jobs::policy(), jobs.get(1).expect("a job"));
    let derived = policy.derive(&view);
    let task = TaskRecord::from(TaskFields {
        job: Arc::clone(&job.name),
        requests: Amounts::from_iter([(ResourceId::CPU, 1_000), (gpu, 1_000)]),
        annotations: [(Arc::from("volcano.sh/card.name"), Arc::from("GPU-1"))].into(),
        ..TaskFields::default()
    });
    let ScoreQuestion { question, .. } = class::question(&view);
    let question = Question {
        tasks: vec![Ok(QuestionTask {
            task: Arc::new(task),
            warnings: Vec::new(),
        })],
        plugins: vec![Arc::from("capacity-card")],
        resource_fit: ResourceFit::None,
        ..question
    };
    let ask = move |question: &Question| {
        let facts = Facts {
            view: &view,
            derived: &derived,
        };
        decide::filter_with(facts, &policy, question, Effort::ALONE)
    };
    let verdicts = ask(&question).expect("an answer").expect("it is not told to stop");
    let passed: Vec<u32> = verdicts
        .iter()
        .flatten()
        .map(|verdict| verdict.answer.fit_count)
        .collect();
    assert_eq!(passed, [10_000 / 8]);
    Box::new(move || drop(black_box(ask(black_box(&question)))))
}
