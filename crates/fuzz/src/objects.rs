//! Objects of Kubernetes, dumps of `kubectl`, and texts on records: annotations and labels.

use std::sync::{Arc, LazyLock};

use pumice_engine::cards::NodeCards;
use pumice_engine::decide::{self, OrderQuery};
use pumice_engine::model::{
    ClusterState, JobRecord, NodeRecord, NodeSlot, QueueRecord, ResourceAmounts, ResourceTable, SortedTable,
    TaskFields, TaskRecord, TextMap,
};
use pumice_engine::policy::{Compatibility, CompileOptions, Policy, compile};
use pumice_kubernetes::import::ClusterImport;
use pumice_kubernetes::object::{AmountRules, ObjectKind, ObjectLimits, read_json, read_json_list, read_json_of};

use crate::choices::{split_choice, text};

/// Reads bytes as one object of a kind, as any object, and as a list.
pub fn read_object(data: &[u8]) {
    let (choice, bytes) = split_choice(data);
    let kind = ObjectKind::ALL[usize::from(choice) % ObjectKind::ALL.len()];
    let (rules, limits) = (AmountRules::default(), ObjectLimits::default());
    if let Err(unreadable) = read_json_of(kind, bytes, rules, limits) {
        assert!(!unreadable.error.to_string().is_empty());
    }
    let mut count = 0;
    read_json(bytes, rules, limits, &mut |_, _| {
        count += 1;
        true
    });
    assert!(count <= bytes.len() + 1);
    let _ = read_json_list(kind, bytes, rules, limits, &mut |_| {});
}

/// Imports a file.
pub fn read_dump(data: &[u8]) {
    let mut import = ClusterImport::new(AmountRules::default());
    let _ = import.read("dump", &text(data));
    let imported = import.finish();
    let (rejected, unreadable) = (imported.rejected.len(), imported.unreadable.len());
    assert!(unreadable <= rejected, "{unreadable} of {rejected}");
}

/// Names of annotations that plugins read, each with the record that has it.
const ANNOTATIONS: [&str; 14] = [
    "volcano.sh/card.quota",
    "volcano.sh/card.name",
    "volcano.sh/card.request",
    "volcano.sh/hierarchy",
    "volcano.sh/hierarchy-weights",
    "volcano.sh/sla-waiting-time",
    "sla-waiting-time",
    "volcano.sh/preemptable",
    "volcano.sh/task-priority",
    "volcano.sh/resource-strategy-fit-type",
    "volcano.sh/resource-strategy-scoring-weight",
    "volcano.sh/revocable-zone",
    "nvidia.com/use-gputype",
    "scheduling.k8s.io/group-name",
];

/// Policies that read annotations, each under both compatibilities.
static POLICIES: LazyLock<Vec<Arc<Policy>>> = LazyLock::new(|| {
    let plugins = [
        "- {name: capacity-card, arguments: {cardUnlimitedCpuMemory: true}}\n  - {name: drf, enableHierarchy: true}\n  - name: sla\n  - \
         name: gang\n  - name: priority",
        "- name: resource-strategy-fit\n  - name: predicates\n  - name: nodeorder\n  - name: proportion\n  - name: overcommit",
    ];
    let documents = plugins.map(|plugins| format!("actions: enqueue, allocate\ntiers:\n- plugins:\n  {plugins}\n"));
    let both = documents
        .iter()
        .flat_map(|document| Compatibility::KINDS.map(|compatibility| (document, compatibility)));
    let compiled = both.map(|(document, compatibility)| {
        let options = CompileOptions {
            compatibility,
            ..CompileOptions::default()
        };
        compile(document, &options)
            .unwrap_or_else(|report| panic!("{:?}", report.diagnostics))
            .policy
    });
    compiled.collect()
});

/// Texts of an input: lines, each an annotation's number and its value.
fn annotations(lines: &[u8]) -> TextMap {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut texts: Vec<(Arc<str>, Arc<str>)> = lines
        .map(|line| {
            let (name, value) = split_choice(line);
            (
                ANNOTATIONS[usize::from(name) % ANNOTATIONS.len()].into(),
                Arc::from(&*text(value)),
            )
        })
        .collect();
    texts.sort();
    texts.dedup_by(|a, b| a.0 == b.0);
    TextMap::from(texts)
}

/// State of one node, with annotations on queue, job and task.
fn annotated_state(texts: &TextMap) -> ClusterState {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    index.insert("n".into(), 0);
    let mut table = ResourceTable::default();
    let gpu = table.intern("nvidia.com/gpu", 10).unwrap();
    let amounts: ResourceAmounts = [(pumice_engine::model::ResourceId::CPU, 8_000), (gpu, 4_000)]
        .into_iter()
        .collect();
    let mut state = ClusterState::new(Arc::new(index), 1);
    state.set_resources(Arc::new(table));
    let source: Arc<str> = "fuzz".into();
    let labels = [
        ("nvidia.com/gpu.count", "4"),
        ("nvidia.com/gpu.memory", "40960"),
        ("nvidia.com/gpu.product", "A"),
    ];
    let node = NodeRecord {
        name: "n".into(),
        labels: TextMap::from(labels.map(|(key, value)| (Arc::from(key), Arc::from(value))).to_vec()),
        allocatable: amounts.clone(),
        ..NodeRecord::default()
    };
    state.put_node(Arc::new(node), &source);
    state.refresh_ranks();
    let queue = QueueRecord {
        name: "q".into(),
        annotations: texts.clone(),
        ..QueueRecord::default()
    };
    state.put_queue(queue, &source);
    let job = JobRecord {
        name: "ns/j".into(),
        queue: "q".into(),
        annotations: texts.clone(),
        min_member: 1,
        ..JobRecord::default()
    };
    state.put_job(job, &source);
    let task = TaskFields {
        name: "ns/t".into(),
        job: "ns/j".into(),
        requests: amounts,
        annotations: texts.clone(),
        ..TaskFields::default()
    };
    state.put_task(TaskRecord::from(task), &source);
    state
}

/// Evaluates annotations by the plugins that read them.
pub fn read_annotations(data: &[u8]) {
    let (choice, lines) = split_choice(data);
    let policy = &POLICIES[usize::from(choice) % POLICIES.len()];
    let state = annotated_state(&annotations(lines));
    let mut plugin_states = policy.compute_plugin_states(&state);
    let query = OrderQuery {
        now: Some(1_800_000_000.into()),
        queues: Some(Vec::new()),
        jobs: Some(Vec::new()),
        tasks: Some(Vec::new()),
        with_tree: true,
        ..OrderQuery::default()
    };
    let ordered = decide::order(&state, policy, &plugin_states, &query).unwrap();
    assert_eq!(
        (ordered.queues.len(), ordered.jobs.len(), ordered.tasks.len()),
        (1, 1, 1)
    );
    let job = Arc::new(state.jobs().get("ns/j").unwrap().record.clone());
    let task = Arc::new(state.tasks().get("ns/t").unwrap().record.clone());
    let admit = decide::AdmitQuery {
        now: Some(1_800_000_000.into()),
        items: vec![
            Ok(decide::AdmitSubject::Job(job)),
            Ok(decide::AdmitSubject::Task(Arc::clone(&task))),
        ],
        plugins: Vec::new(),
    };
    decide::admit(&state, policy, &mut plugin_states, &admit).unwrap();
    let query = decide::ScoreQuery {
        node_query: decide::NodeQuery {
            now: Some(1_800_000_000.into()),
            tasks: vec![Ok(decide::QueryTask {
                task,
                warnings: Vec::new(),
            })],
            resources: Arc::clone(state.resources()),
            candidates: None,
            plugins: Vec::new(),
            resource_fit: decide::ResourceFit::FutureIdle,
            samples: 1,
            detail: decide::FilterDetail::Nodes,
        },
        with_filter: true,
        limit: None,
        with_parts: true,
        ahead: 0,
    };
    decide::score(&state, policy, &query).unwrap();
}

/// Reads the cards of a node: labels and amounts, each on a line.
pub fn read_cards(data: &[u8]) {
    let text = text(data);
    let mut table = ResourceTable::default();
    let mut labels: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    let mut amounts = Vec::new();
    for line in text.lines() {
        if let Some((key, value)) = line.split_once('=') {
            labels.push((key.into(), value.into()));
        } else if let Some((name, amount)) = line.split_once(' ')
            && let (Ok(amount), Some(id)) = (amount.parse::<i64>(), table.intern(name, 64).ok())
        {
            amounts.push((id, amount));
        }
    }
    labels.sort();
    labels.dedup_by(|a, b| a.0 == b.0);
    amounts.sort_by_key(|(id, _)| *id);
    amounts.dedup_by_key(|(id, _)| *id);
    let node = NodeRecord {
        name: "n".into(),
        labels: TextMap::from(labels),
        allocatable: amounts.into_iter().collect(),
        ..NodeRecord::default()
    };
    for compatibility in Compatibility::KINDS {
        let cards = NodeCards::of(&node, &table, compatibility);
        assert!(cards.cards.values().all(|card| card.cards > 0), "{cards:?}");
    }
}
