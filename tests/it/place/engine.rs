//! The engine's Place on random clusters, under every plugin and both compatibilities.

use std::sync::Arc;

use proptest::prelude::*;
use pumice::engine::cycle::{Change, Cycle, Outcome, Placement};
use pumice::engine::decide::{
    self, AdmitQuestion, Detail, Kept, PlaceGroup, PlaceQuestion, Placing, Question, QuestionTask, ResourceFit,
    ScoreQuestion, Subject,
};
use pumice::engine::model::{JobPhase, JobRecord, Slot, TaskRecord, View};
use pumice::engine::policy::{CompileOptions, Policy, compile};
use pumice::server::pb;

use super::case::{Case, case, document};
use super::plain::{Scheduler, Went, place};
use super::together::same;
use crate::support::{engine, records};

pub(super) fn policy(case: &Case) -> Arc<Policy> {
    let options = CompileOptions {
        compatibility: case.compatibility,
        ..CompileOptions::default()
    };
    let document = document(case.policy);
    let compiled = compile(&document, &options);
    compiled
        .unwrap_or_else(|report| panic!("{document}\n{:?}", report.findings))
        .policy
}

/// The engine, asked task by task.
struct Engine {
    policy: Arc<Policy>,
    cycle: Cycle,
    begun: Cycle,
    /// What the changes since then did.
    outcome: Outcome,
}

impl Engine {
    fn record(&self, task: &pb::Task) -> Arc<TaskRecord> {
        Arc::new(self.cycle.view().tasks().get(&task.name).unwrap().record.clone())
    }

    fn question(&self, task: &pb::Task, fit: ResourceFit, candidates: Option<Vec<Slot>>) -> Question {
        Question {
            tasks: vec![Ok(QuestionTask {
                task: self.record(task),
                warnings: Vec::new(),
            })],
            resources: Arc::clone(self.cycle.view().resources()),
            candidates,
            plugins: Vec::new(),
            resource_fit: fit,
            samples: 0,
            detail: Detail::Counts,
        }
    }

    fn name(&self, slot: Slot) -> String {
        self.cycle.view().name_of(slot).unwrap().to_string()
    }
}

impl Scheduler for Engine {
    fn admit(&mut self, task: &pb::Task) -> Option<Vec<String>> {
        if self.policy.allocators().iter().all(Vec::is_empty) {
            return Some(Vec::new());
        }
        let question = AdmitQuestion {
            items: vec![Ok(Subject::Task(self.record(task)))],
            plugins: Vec::new(),
        };
        let mut derived = self.cycle.derived().clone();
        let mut items = decide::admit(self.cycle.view(), &self.policy, &mut derived, &question).unwrap();
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
        let question = self.question(task, fit, None);
        let answered = decide::filter(self.cycle.view(), &self.policy, &question)
            .unwrap()
            .remove(0);
        answered
            .unwrap()
            .answer
            .fit
            .iter()
            .map(|slot| self.name(*slot))
            .collect()
    }

    fn score(&mut self, task: &pb::Task, nodes: &[String]) -> Vec<(String, f64)> {
        let slots = nodes
            .iter()
            .map(|node| self.cycle.view().slot_of(node).unwrap())
            .collect();
        let question = ScoreQuestion {
            question: self.question(task, ResourceFit::None, Some(slots)),
            with_filter: false,
            limit: None,
            with_parts: false,
        };
        let answered = decide::score(self.cycle.view(), &self.policy, &question)
            .unwrap()
            .remove(0);
        let sheet = answered.unwrap().answer;
        let nodes = sheet.nodes.iter().map(|slot| self.name(*slot));
        nodes.zip(sheet.totals.iter().copied()).collect()
    }

    fn assume(&mut self, task: &pb::Task, node: &str, pipelined: bool, card: &str) {
        let to = Placement {
            task: Arc::from(&*task.name),
            node: Arc::from(node),
            card: Arc::from(card),
        };
        let change = if pipelined {
            Change::Pipeline(to)
        } else {
            Change::Allocate(to)
        };
        let outcome = self.cycle.apply(&[change]).unwrap();
        assert_eq!(outcome.warnings, []);
        self.outcome.also(outcome);
    }

    fn undo(&mut self) {
        self.cycle = self.begun.clone();
        self.outcome = Outcome::default();
    }
}

fn question(case: &Case, view: &View, stored: bool) -> PlaceQuestion {
    let slots = |names: Vec<String>| names.iter().map(|name| view.slot_of(name).unwrap()).collect();
    let groups = (0..case.groups.len()).map(|number| {
        let names: Vec<Arc<str>> = case.names(number).iter().map(|name| Arc::from(&**name)).collect();
        let mut table = (**view.resources()).clone();
        Ok(PlaceGroup {
            task: Arc::new(engine::task(&mut table, &case.groups[number].task())),
            count: names.len(),
            names: if stored { names } else { Vec::new() },
            warnings: Vec::new(),
        })
    });
    PlaceQuestion {
        job: None,
        groups: groups.collect(),
        resources: Arc::clone(view.resources()),
        min_available: case.min_available.map(|count| count as usize),
        candidates: case.candidates().map(slots),
        exclusions: slots(case.exclusions()),
        idle_only: case.idle_only,
        samples: 3,
        pairs: u64::MAX,
    }
}

fn went(view: &View, placing: &Placing) -> Vec<Went> {
    let groups = placing.groups.iter().map(|group| {
        let group = group.as_ref().unwrap();
        let allocated = group.allocated.iter().map(|slot| (slot, false));
        let nodes = allocated.chain(group.pipelined.iter().map(|slot| (slot, true)));
        let card = |at: usize| group.cards.get(at).map(ToString::to_string).unwrap_or_default();
        nodes
            .enumerate()
            .map(|(at, (slot, pipelined))| (view.name_of(*slot).unwrap().to_string(), pipelined, card(at)))
            .collect()
    });
    groups.collect()
}

/// How many tasks had to find a place, from the case alone.
pub(super) fn needed(case: &Case) -> usize {
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

fn check(case: &Case) {
    let (cluster, policy) = (case.cluster(), policy(case));
    let view = engine::view(&cluster);
    let begun = Cycle::new(view.clone(), policy.compatibility(), policy.derive(&view));
    let mut engine = Engine {
        policy: Arc::clone(&policy),
        cycle: begun.clone(),
        begun: begun.clone(),
        outcome: Outcome::default(),
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
    let (placed, expected) = place(&mut engine, &groups, &case.nodes(), case.idle_only, needed(case), &has);

    let mut cycle = begun.clone();
    let question = question(case, &view, true);
    let (placing, outcome) = decide::place_in(&mut cycle, &policy, &question, &|| false)
        .unwrap()
        .unwrap();
    let corrected = case.compatibility == pumice::engine::policy::Compatibility::Corrected;
    let plain = |all: Vec<Went>| -> Vec<Went> {
        // What card the reference books does not stand in its answers.
        let card = |card: String| if corrected { card } else { String::new() };
        let each = |went: Went| {
            went.into_iter()
                .map(|(node, late, own)| (node, late, card(own)))
                .collect()
        };
        all.into_iter().map(each).collect()
    };
    assert_eq!(plain(went(&view, &placing)), plain(expected.clone()), "{placing:#?}");
    assert_eq!((placing.placed, placing.needed), (placed, needed(case)));
    assert_eq!(placing.found, expected.iter().map(Vec::len).sum::<usize>());
    same(&cycle, &engine.cycle, corrected);
    assert_eq!(outcome, engine.outcome);
    for (group, (asked, went)) in placing.groups.iter().zip(case.groups.iter().zip(&expected)) {
        let blockers = &group.as_ref().unwrap().blockers;
        assert_eq!(blockers.is_empty(), asked.count == went.len(), "{blockers:?}");
        let refused: u32 = blockers.iter().map(|blocker| blocker.rejection.count).sum();
        // All nodes, or the queue before any node was looked at.
        assert!(refused == 0 || refused as usize == case.nodes().len(), "{blockers:?}");
    }

    // The same for tasks that nobody has stored, and nothing changes.
    let question = self::question(case, &view, false);
    let preview = decide::place(&view, &policy, begun.derived(), &question).unwrap();
    assert_eq!(went(&view, &preview), went(&view, &placing));

    // An imagined job is counted alike, whether what plugins keep is carried to it or worked out anew.
    let question = of_a_job_that_is_not_there(question);
    let imagine = |kept| decide::place_until(&view, &policy, kept, &question, &|| false).unwrap();
    let anew = imagine(Kept::Moved(begun.derived()));
    assert_eq!(imagine(Kept::WorkedOut(begun.derived())), anew);
}

fn of_a_job_that_is_not_there(mut question: PlaceQuestion) -> PlaceQuestion {
    let job = JobRecord {
        name: "ns/imagined".into(),
        queue: "q".into(),
        min_member: 2,
        phase: JobPhase::Inqueue,
        ..JobRecord::default()
    };
    for group in question.groups.iter_mut().flatten() {
        group.task = Arc::new(TaskRecord {
            job: Arc::clone(&job.name),
            ..TaskRecord::clone(&group.task)
        });
    }
    question.job = Some(Arc::new(job));
    question
}

#[test]
fn a_cycle_stays_as_it_was_when_a_task_is_not_there() {
    let cluster = pb::Cluster {
        nodes: vec![records::node("n", &[("cpu", "8"), ("pods", "10")])],
        tasks: vec![records::task("ns/a", "", &[("cpu", "1")])],
        ..pb::Cluster::default()
    };
    let view = engine::view(&cluster);
    let document = "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n";
    let policy = compile(document, &CompileOptions::default()).unwrap().policy;
    let mut cycle = Cycle::new(view.clone(), policy.compatibility(), policy.derive(&view));
    let group = PlaceGroup {
        task: Arc::new(view.tasks().get("ns/a").unwrap().record.clone()),
        count: 2,
        names: vec!["ns/a".into(), "ns/nobody".into()],
        warnings: Vec::new(),
    };
    let question = PlaceQuestion {
        job: None,
        groups: vec![Ok(group)],
        resources: Arc::clone(view.resources()),
        min_available: None,
        candidates: None,
        exclusions: Vec::new(),
        idle_only: false,
        samples: 3,
        pairs: u64::MAX,
    };
    let refused = decide::place_in(&mut cycle, &policy, &question, &|| false).unwrap_err();
    assert_eq!(
        (refused.reason, &*refused.field),
        ("UNKNOWN_TASK", "changes[1].allocate")
    );
    assert_eq!(cycle.moved().count(), 0);
}

/// `PUMICE_CASES=N`: so many times as many.
pub(super) fn cases(usual: u32) -> u32 {
    let told = std::env::var_os("PUMICE_CASES").and_then(|told| told.into_string().ok());
    usual * told.and_then(|times| times.parse().ok()).unwrap_or(1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(400)))]

    #[test]
    fn equals_asking_task_by_task(case in case(12)) {
        check(&case);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(12)))]

    #[test]
    fn equals_asking_task_by_task_over_several_chunks(case in case(600)) {
        check(&case);
    }
}
