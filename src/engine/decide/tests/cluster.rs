//! Small clusters for tests.

use std::sync::Arc;

use crate::engine::decide::{self, Detail, Question, QuestionTask, ResourceFit, ScoreQuestion};
use crate::engine::model::quantity::Quantity;
use crate::engine::model::resource_name::{ResourceKind, amount};
use crate::engine::model::{
    Amounts, NodeRecord, ResourceId, ResourceTable, Slot, Table, TaskFields, TaskRecord, Texts, View,
};
use crate::engine::policy::{Compatibility, CompileOptions, Compiled, Policy, compile};

/// Names and quantities, read as a client's would be: what nobody counts is left out.
pub(crate) fn amounts<'a>(
    resources: &mut ResourceTable,
    quantities: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Amounts {
    let counted = quantities
        .into_iter()
        .filter(|(name, _)| ResourceKind::of(name).counted_by_volcano());
    counted
        .map(|(name, quantity)| {
            let amount = amount(name, &Quantity::parse(quantity).unwrap()).unwrap();
            (resources.intern(name, 1000).unwrap(), amount)
        })
        .collect()
}

/// A cluster of these nodes.
pub(crate) fn view(resources: ResourceTable, nodes: Vec<NodeRecord>) -> View {
    let mut index: Table<Slot> = Table::default();
    for (slot, node) in (0..).zip(&nodes) {
        index.insert(Arc::clone(&node.name), slot);
    }
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(Arc::new(resources));
    for node in nodes {
        assert!(view.put_node(Arc::new(node), &Arc::from("test")));
    }
    view.refresh_ranks();
    view
}

/// A task, its pod counted.
pub(crate) fn task(mut requests: Amounts, annotations: &[(&str, &str)]) -> TaskRecord {
    requests.set(ResourceId::PODS, 1);
    let mut texts: Vec<_> = annotations
        .iter()
        .map(|(name, text)| (Arc::from(*name), Arc::from(*text)))
        .collect();
    texts.sort();
    TaskRecord::from(TaskFields {
        name: "default/task".into(),
        requests,
        annotations: Texts::from(texts),
        ..TaskFields::default()
    })
}

/// Asks about these tasks on all nodes, without room.
pub(crate) fn question(resources: &Arc<ResourceTable>, tasks: Vec<TaskRecord>) -> Question {
    let item = |task| {
        Ok(QuestionTask {
            task: Arc::new(task),
            warnings: Vec::new(),
        })
    };
    Question {
        tasks: tasks.into_iter().map(item).collect(),
        resources: Arc::clone(resources),
        candidates: None,
        plugins: Vec::new(),
        resource_fit: ResourceFit::None,
        samples: 3,
        detail: Detail::Nodes,
    }
}

/// The same as a question of Score, with parts.
pub(crate) fn score_question(question: Question) -> ScoreQuestion {
    ScoreQuestion {
        question,
        with_filter: false,
        limit: None,
        with_parts: true,
    }
}

/// A policy of one tier, its plugins written in YAML flow style.
pub(crate) fn policy(plugins: &str, compatibility: Compatibility) -> Compiled {
    let document = format!("actions: allocate\ntiers:\n- plugins: [{plugins}]\n");
    let options = CompileOptions {
        compatibility,
        ..CompileOptions::default()
    };
    compile(&document, &options).unwrap_or_else(|report| panic!("{document}\n{:?}", report.findings))
}

/// The parts of the first task's scores, by name.
pub(crate) fn parts(view: &View, policy: &Policy, question: &ScoreQuestion) -> Vec<(&'static str, Vec<f64>)> {
    let sheet = decide::score(view, policy, question).unwrap().remove(0).unwrap();
    let parts = sheet.answer.parts.iter();
    parts.map(|part| (part.part, part.scores.clone())).collect()
}
