//! Inference takes from training, and nobody else from anybody; the cases are computed by hand.

use std::sync::Arc;

use super::CapacityState;
use crate::cycle::SchedulingCycle;
use crate::decide::tests::fixtures::{amounts, cluster_state, policy};
use crate::decide::{self, LastRounds, VictimGroup, VictimsQuery};
use crate::model::{
    ClusterState, GangMember, JobPhase, JobRecord, NodeRecord, QueueRecord, ResourceId, ResourceTable, TaskFields,
    TaskRecord, TaskStatus, TextMap,
};
use crate::plugin::{EvictionOrder, RecordRules as _, RecordWarningKind, Shortfall, VictimKind, VictimQuery};
use crate::plugins::capacity_card::record_rules::CardRecordRules;
use crate::plugins::capacity_card::{CapacityConfig, CardVotes as _};
use crate::policy::{Compatibility, CompileOptions, CompiledPolicy, ErrorCode, compile};

const GPU: &str = "nvidia.com/gpu";
/// Resource and card of slices of `A`, which another resource counts.
const SLICE: [&str; 2] = ["nvidia.com/mig-1g.10gb", "A/mig-1g.10gb-mixed"];
/// Annotations alone say the service types.
const ANNOTATED: &str = "{name: capacity-card, arguments: {cardUnlimitedCpuMemory: true, \
                         allowServiceTypeByPodOwnerReferences: false}}";

fn texts(pairs: &[(&str, &str)]) -> TextMap {
    let given = pairs.iter().filter(|(_, text)| !text.is_empty());
    given.map(|(name, text)| (Arc::from(*name), Arc::from(*text))).collect()
}

/// A job of one task on node `a`, or waiting.
#[derive(Clone, Copy)]
struct OneTask<'a> {
    name: &'a str,
    queue: &'a str,
    /// Service type of the job.
    service: &'a str,
    owner: &'a str,
    /// Numbers of cards `A` and of slices.
    cards: [u32; 2],
    /// Cards that would do; empty: as it has.
    choice: &'a str,
    /// Service type of the task itself.
    own_service: &'a str,
    priority: i32,
    waits: bool,
}

impl<'a> OneTask<'a> {
    fn new(name: &'a str, queue: &'a str, service: &'a str, cards: u32) -> Self {
        Self {
            name,
            queue,
            service,
            owner: "",
            cards: [cards, 0],
            choice: "",
            own_service: "",
            priority: 0,
            waits: false,
        }
    }

    fn waits(self) -> Self {
        Self { waits: true, ..self }
    }

    fn owned_by(self, owner: &'a str) -> Self {
        Self { owner, ..self }
    }

    fn record(&self, resources: &mut ResourceTable) -> TaskRecord {
        let [a, b] = self.cards;
        let (gpu, slices) = (a.to_string(), b.to_string());
        let card = match self.cards {
            [0, 0] => "",
            [0, _] => SLICE[1],
            _ => "A",
        };
        let card = if self.choice.is_empty() { card } else { self.choice };
        let mut requests = amounts(resources, [("cpu", "1"), (GPU, &*gpu), (SLICE[0], &*slices)]);
        requests.set(ResourceId::PODS, 1);
        let gang = GangMember {
            owner_kind: self.owner.into(),
            ..GangMember::default()
        };
        TaskRecord::from(TaskFields {
            name: format!("{}-0", self.name).into(),
            job: self.name.into(),
            status: if self.waits {
                TaskStatus::Pending
            } else {
                TaskStatus::Running
            },
            node: if self.waits { "" } else { "a" }.into(),
            annotations: texts(&[
                ("volcano.sh/card.name", card),
                ("volcano.sh/service.type", self.own_service),
            ]),
            priority: self.priority,
            gang: gang.into_field(),
            requests,
            ..TaskFields::default()
        })
    }
}

/// Node `a` with sixteen `A` and eight slices, queues `(name, parent, quota)`, and these jobs.
fn cluster(queues: &[(&str, &str, &str)], jobs: &[OneTask<'_>]) -> ClusterState {
    let mut resources = ResourceTable::default();
    let allocatable = [("cpu", "64"), ("pods", "110"), (GPU, "16"), (SLICE[0], "8")];
    let node = NodeRecord {
        name: "a".into(),
        labels: texts(&[("nvidia.com/gpu.product", "A")]),
        allocatable: amounts(&mut resources, allocatable),
        ..NodeRecord::default()
    };
    let (mut cluster, source) = (cluster_state(resources.clone(), vec![node]), Arc::from("test"));
    for (name, parent, quota) in queues {
        let record = QueueRecord {
            name: (*name).into(),
            parent: (*parent).into(),
            annotations: texts(&[("volcano.sh/card.quota", quota)]),
            reclaimable: (*name == "fixed").then_some(false),
            ..QueueRecord::default()
        };
        cluster.put_queue(record, &source);
    }
    for job in jobs {
        let record = JobRecord {
            name: job.name.into(),
            queue: job.queue.into(),
            annotations: texts(&[("volcano.sh/service.type", job.service)]),
            phase: JobPhase::Inqueue,
            min_member: 1,
            ..JobRecord::default()
        };
        cluster.put_job(record, &source);
        cluster.put_task(job.record(&mut resources), &source);
    }
    cluster.set_resources(Arc::new(resources));
    cluster
}

fn compiled(plugin: &str) -> CompiledPolicy {
    policy(plugin, Compatibility::Corrected)
}

/// Names of the jobs whose tasks may go for the task of `preemptor` on node `a`.
fn victims(cluster: &ClusterState, plugin: &str, kind: VictimKind, preemptor: &str) -> Vec<String> {
    let policy = compiled(plugin).policy;
    let states = policy.compute_plugin_states(cluster);
    let cycle = SchedulingCycle::new(cluster.clone(), policy.node_change_rules(), states);
    let running = cluster.tasks().iter().map(|(_, stored)| stored.record.clone());
    let candidates: Vec<TaskRecord> = running.filter(|task| task.status == TaskStatus::Running).collect();
    let group = VictimGroup {
        preemptor: cluster.tasks().get(&format!("{preemptor}-0")).unwrap().record.clone(),
        node: "a".into(),
        candidates: candidates.clone(),
        assumptions: Vec::new(),
    };
    let query = VictimsQuery {
        now: None,
        kind,
        groups: vec![Ok(group)],
        plugins: Vec::new(),
        irreducible: false,
        last_rounds: LastRounds::new(),
    };
    let verdict = decide::victims(&cycle, &policy, &query).unwrap().remove(0).unwrap();
    let victims = verdict.victims.iter();
    let mut jobs: Vec<String> = victims.map(|at| candidates[*at].job.to_string()).collect();
    jobs.sort();
    jobs
}

const FLAT: [(&str, &str, &str); 3] = [
    ("online", "", r#"{"A": 8, "A/mig-1g.10gb-mixed": 8}"#),
    ("offline", "", r#"{"A": 16, "A/mig-1g.10gb-mixed": 8}"#),
    ("fixed", "", r#"{"A": 8}"#),
];

#[test]
fn inference_takes_from_training_and_nobody_else_from_anybody() {
    let jobs = [
        OneTask::new("n/serving", "offline", "inference", 2),
        OneTask::new("n/training", "offline", "training", 2),
        OneTask::new("n/untyped", "offline", "", 2),
        OneTask::new("n/other", "offline", "batch", 2),
        OneTask::new("n/fixed", "fixed", "training", 2),
        OneTask::new("n/own", "online", "training", 1),
        OneTask::new("n/i", "online", "inference", 2).waits(),
        OneTask::new("n/t", "online", "training", 2).waits(),
        OneTask::new("n/u", "online", "", 2).waits(),
    ];
    let cluster = cluster(&FLAT, &jobs);
    let ask = |kind, preemptor| victims(&cluster, ANNOTATED, kind, preemptor);
    // The queue `offline` holds less than its quota, which is what it deserves: without service types nobody would go.
    assert_eq!(ask(VictimKind::Reclaim, "n/i"), ["n/training"]);
    assert_eq!(ask(VictimKind::Preempt, "n/i"), ["n/fixed", "n/own", "n/training"]);
    assert_eq!(ask(VictimKind::GangReclaim, "n/i"), ["n/fixed", "n/own", "n/training"]);
    for kind in [VictimKind::Reclaim, VictimKind::Preempt, VictimKind::GangReclaim] {
        for preemptor in ["n/t", "n/u"] {
            assert!(ask(kind, preemptor).is_empty(), "{kind:?} for {preemptor}");
        }
    }
    let by_quota = "{name: capacity-card, arguments: {cardUnlimitedCpuMemory: true, cardVictims: true}}";
    assert!(victims(&cluster, by_quota, VictimKind::Reclaim, "n/i").is_empty());
}

#[test]
fn owners_say_the_service_type_where_no_annotation_does() {
    let jobs = [
        OneTask::new("n/job", "offline", "", 1).owned_by("Job"),
        OneTask::new("n/sets", "offline", "", 1).owned_by("ReplicaSet"),
        OneTask::new("n/named", "offline", "inference", 1).owned_by("Job"),
        OneTask::new("n/set", "offline", "", 1).owned_by("StatefulSet"),
        OneTask::new("n/p", "online", "", 1).owned_by("ReplicaSet").waits(),
        OneTask::new("n/s", "online", "", 1).owned_by("StatefulSet").waits(),
    ];
    let cluster = cluster(&FLAT, &jobs);
    let ask = |arguments: &str, preemptor| {
        let plugin = format!("{{name: capacity-card, arguments: {{{arguments}}}}}");
        victims(&cluster, &plugin, VictimKind::Reclaim, preemptor)
    };
    let usual = "allowServiceTypeByPodOwnerReferences: true";
    let map = "podOwnerReferenceToServiceType: {ReplicaSet: inference, Deployment: inference, Job: training}";
    for arguments in [usual, map] {
        assert_eq!(ask(arguments, "n/p"), ["n/job"], "{arguments}");
        assert!(ask(arguments, "n/s").is_empty(), "{arguments}");
    }
    let turned = "podOwnerReferenceToServiceType: {StatefulSet: inference, ReplicaSet: training}";
    assert_eq!(ask(turned, "n/s"), ["n/sets"]);
    // The map wins over the usual kinds that it names.
    assert_eq!(ask(&format!("{usual}, {turned}"), "n/s"), ["n/job", "n/sets"]);
    assert!(ask("allowServiceTypeByPodOwnerReferences: false", "n/p").is_empty());
}

#[test]
fn a_victim_gives_back_what_the_preemptor_wants() {
    let b = |job: OneTask<'static>| OneTask { cards: [0, 2], ..job };
    let jobs = [
        OneTask::new("n/a", "offline", "training", 2),
        b(OneTask::new("n/b", "offline", "training", 0)),
        OneTask::new("n/plain", "offline", "training", 0),
        OneTask::new("n/i", "online", "inference", 2).waits(),
        b(OneTask::new("n/j", "online", "inference", 0)).waits(),
        OneTask::new("n/k", "online", "inference", 0).waits(),
    ];
    let cluster = cluster(&FLAT, &jobs);
    let ask = |preemptor| victims(&cluster, ANNOTATED, VictimKind::Reclaim, preemptor);
    assert_eq!(ask("n/i"), ["n/a"]);
    assert_eq!(ask("n/j"), ["n/b"]);
    assert_eq!(ask("n/k"), ["n/plain"]);
}

#[test]
fn a_task_without_cards_lacks_quota_only_where_service_types_count() {
    let jobs = [
        OneTask::new("n/plain", "offline", "training", 0),
        OneTask::new("n/k", "offline", "inference", 0).waits(),
    ];
    let mut cluster = cluster(&FLAT, &jobs);
    let mut queue = cluster.queues().get("offline").unwrap().record.clone();
    queue.capability = Some([(ResourceId::CPU, 1_000)].into_iter().collect());
    cluster.put_queue(queue, &Arc::from("test"));
    let state = CapacityState::of(&cluster, CapacityConfig::default());
    let record = |name: &str| cluster.tasks().get(name).unwrap().record.clone();
    let (preemptor, running) = (record("n/k-0"), record("n/plain-0"));
    let query = VictimQuery {
        kind: VictimKind::Preempt,
        preemptor: &preemptor,
        candidates: &[&running],
        eviction_order: EvictionOrder::default(),
    };
    let lack = Shortfall {
        missing: 1_000,
        gains: vec![1_000],
    };
    assert_eq!(state.card_shortfalls(&cluster, &query, "a", false), [lack]);
    assert_eq!(state.card_shortfalls(&cluster, &query, "a", true), []);
}

#[test]
fn training_of_any_priority_gives_back() {
    let training = OneTask {
        priority: 9,
        ..OneTask::new("n/t", "offline", "training", 2)
    };
    let cluster = cluster(
        &FLAT,
        &[training, OneTask::new("n/i", "online", "inference", 2).waits()],
    );
    assert_eq!(victims(&cluster, ANNOTATED, VictimKind::Reclaim, "n/i"), ["n/t"]);
}

#[test]
fn a_task_without_a_job_of_a_service_type_has_its_own() {
    let own = |own_service: &'static str, job: OneTask<'static>| OneTask { own_service, ..job };
    let jobs = [
        own("training", OneTask::new("n/t", "offline", "", 2)),
        own("training", OneTask::new("n/job", "offline", "inference", 2)),
        own("inference", OneTask::new("n/i", "online", "", 2)).waits(),
    ];
    let cluster = cluster(&FLAT, &jobs);
    assert_eq!(victims(&cluster, ANNOTATED, VictimKind::Reclaim, "n/i"), ["n/t"]);
}

#[test]
fn a_choice_takes_what_the_node_has() {
    let choice = |choice: &'static str, job: OneTask<'static>| OneTask { choice, ..job };
    let jobs = [
        OneTask::new("n/t", "offline", "training", 2),
        choice("C|A", OneTask::new("n/i", "online", "inference", 2)).waits(),
        choice("C|D", OneTask::new("n/j", "online", "inference", 2)).waits(),
    ];
    let cluster = cluster(&FLAT, &jobs);
    assert_eq!(victims(&cluster, ANNOTATED, VictimKind::Reclaim, "n/i"), ["n/t"]);
    assert!(victims(&cluster, ANNOTATED, VictimKind::Reclaim, "n/j").is_empty());
}

#[test]
fn an_unknown_service_type_is_warned_of() {
    let jobs = [
        OneTask::new("n/t", "offline", "training", 1),
        OneTask::new("n/x", "offline", "trainings", 1),
    ];
    let cluster = cluster(&FLAT, &jobs);
    let warnings = CardRecordRules.warnings(&cluster);
    let found = warnings.iter().filter_map(|own| match &own.kind {
        RecordWarningKind::AnnotationInvalid(message) => Some((&*own.record.1, &**message)),
        RecordWarningKind::CardLabelIgnored(_) | RecordWarningKind::UnknownCard(_) => None,
    });
    let message = "annotation `volcano.sh/service.type`: `trainings` is neither `inference` nor `training`";
    assert_eq!(found.collect::<Vec<_>>(), [("n/x", message)]);
}

#[test]
fn no_service_type_takes_more_than_its_queues_may_hold() {
    // `team` may hold eight cards, its two queues eight each: what others give back does not help.
    let queues = [
        ("root", "", ""),
        ("team", "root", r#"{"A": 8}"#),
        ("online", "team", r#"{"A": 8}"#),
        ("offline", "team", r#"{"A": 8}"#),
        ("others", "root", r#"{"A": 8}"#),
    ];
    let jobs = [
        OneTask::new("n/held", "online", "inference", 2),
        OneTask::new("n/low", "offline", "training", 4),
        OneTask::new("n/lower", "offline", "training", 2),
        OneTask::new("n/others", "others", "training", 8),
        OneTask::new("n/i", "online", "inference", 4).waits(),
        OneTask::new("n/large", "online", "inference", 7).waits(),
    ];
    let cluster = cluster(&queues, &jobs);
    let tree = "{name: capacity-card, arguments: {cardHierarchy: true, podOwnerReferenceToServiceType: {}}}";
    let ask = |plugin, preemptor| victims(&cluster, plugin, VictimKind::Reclaim, preemptor);
    assert_eq!(ask(tree, "n/i"), ["n/low", "n/lower"]);
    // Two are held and seven asked for: nine are more than its own queue may ever hold.
    assert!(ask(tree, "n/large").is_empty());
    assert!(ask(ANNOTATED, "n/large").is_empty());
    // Without the tree the own queue has room, and all training goes.
    assert_eq!(ask(ANNOTATED, "n/i"), ["n/low", "n/lower", "n/others"]);
}

#[test]
fn jobs_are_admitted_up_to_the_factor_and_tasks_up_to_the_quota() {
    let queues = [("online", "", r#"{"A": 4}"#)];
    let jobs = [
        OneTask::new("n/held", "online", "", 4),
        OneTask::new("n/one", "online", "", 2).waits(),
        OneTask::new("n/two", "online", "", 1).waits(),
    ];
    let mut cluster = cluster(&queues, &jobs);
    let source = Arc::from("test");
    for job in ["n/one", "n/two"] {
        let mut record = cluster.jobs().get(job).unwrap().record.clone();
        record.phase = JobPhase::Pending;
        cluster.put_job(record, &source);
    }
    let config = CapacityConfig {
        over_commit_milli: 1500,
        ..CapacityConfig::default()
    };
    let mut state = CapacityState::of(&cluster, config);
    let job = |name: &str| cluster.jobs().get(name).unwrap().record.clone();
    // Four are held; six may be admitted.
    assert!(state.permit(&cluster, &job("n/one")).unwrap().is_permitted());
    let rejected = state.permit(&cluster, &job("n/two")).unwrap().rejections;
    let message = &rejected[0].reason.message;
    assert!(
        message.contains("total would be <7 cards>, but capability is <6 cards>"),
        "{message}"
    );
    assert!(
        message.ends_with(", 1.5 times what it may hold (overCommitFactor)"),
        "{message}"
    );
    let task = cluster.tasks().get("n/one-0").unwrap().record.clone();
    let rejected = state.vote_task(&cluster, "online", &task).unwrap().rejections;
    let message = &rejected[0].reason.message;
    assert!(
        message.ends_with("total would be <6 cards>, but capability is <4 cards>"),
        "{message}"
    );
    let plain = CapacityState::of(&cluster, CapacityConfig::default());
    assert!(!plain.vote_job(&cluster, &job("n/one")).unwrap().is_permitted());
}

#[test]
fn a_choice_gets_a_card_with_quota_before_one_that_is_admitted_beyond_it() {
    let queues = [("online", "", r#"{"A": 2, "A/mig-1g.10gb-mixed": 2}"#)];
    let mut cluster = cluster(&queues, &[OneTask::new("n/held", "online", "", 2)]);
    for name in ["n/one", "n/two"] {
        let record = JobRecord {
            name: name.into(),
            queue: "online".into(),
            annotations: texts(&[("volcano.sh/card.request", r#"{"A|A/mig-1g.10gb-mixed": 2}"#)]),
            phase: JobPhase::Pending,
            min_member: 1,
            ..JobRecord::default()
        };
        cluster.put_job(record, &Arc::from("test"));
    }
    let config = CapacityConfig {
        over_commit_milli: 2000,
        ..CapacityConfig::default()
    };
    let mut state = CapacityState::of(&cluster, config);
    let mut given = |job: &str| {
        let record = cluster.jobs().get(job).unwrap().record.clone();
        let verdict = state.permit(&cluster, &record).unwrap();
        assert!(verdict.is_permitted(), "{:?}", verdict.rejections);
        ["A", SLICE[1]].map(|card| verdict.min_amounts.card_or_zero(card))
    };
    // `A` is full and would be admitted up to four: the first job gets slices, the second what is beyond.
    assert_eq!(given("n/one"), [0, 2000]);
    assert_eq!(given("n/two"), [2000, 0]);
}

#[test]
fn arguments_that_cannot_be_used_are_warned_of() {
    let codes = |arguments: &str, compatibility| {
        let plugin = format!("{{name: capacity-card, arguments: {{{arguments}}}}}");
        let compiled = policy(&plugin, compatibility);
        let found = compiled.report.diagnostics.iter();
        found.map(|own| (own.code, own.message.clone())).collect::<Vec<_>>()
    };
    let each = [
        ("overCommitFactor: 0.5", "from 1 to 1000, found 0.5"),
        ("overCommitFactor: two", "from 1 to 1000"),
        ("podOwnerReferenceToServiceType: Job", "expected a map"),
        (
            "podOwnerReferenceToServiceType: {Job: trainings}",
            "`Job`: expected `inference` or `training`",
        ),
        ("allowServiceTypeByPodOwnerReferences: 1", "expected a bool"),
    ];
    for (arguments, message) in each {
        let found = codes(arguments, Compatibility::Corrected);
        assert!(
            found
                .iter()
                .any(|(code, text)| *code == ErrorCode::ArgumentIgnored && text.contains(message)),
            "{found:?}"
        );
    }
    let all = "overCommitFactor: 2, podOwnerReferenceToServiceType: {Job: training}, allowServiceTypeByPodOwnerReferences: true";
    assert!(codes(all, Compatibility::Corrected).is_empty());
    let upstream = codes(all, Compatibility::UPSTREAM);
    assert_eq!(
        upstream
            .iter()
            .filter(|(_, text)| text.contains("no effect under"))
            .count(),
        3,
        "{upstream:?}"
    );
    // The effective document says the same, and is read without a warning.
    let plugin = format!("{{name: capacity-card, arguments: {{{all}}}}}");
    let effective = compiled(&plugin).effective_document;
    for entry in ["Job: training", "ReplicaSet: inference", "overCommitFactor: 2"] {
        assert!(effective.contains(entry), "{effective}");
    }
    let again = compile(&effective, &CompileOptions::default()).unwrap();
    assert_eq!(again.effective_document, effective);
}
