//! The hot paths, each ready to be run any number of times.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::hint::black_box;

use pumice::engine::cycle::Cycle;
use pumice::engine::decide::{self, AdmitQuestion, OrderQuestion, ScoreQuestion, Subject};

use super::{alone, class, fair, gang, jobs, records};

/// One run of a path.
pub(crate) type Run = Box<dyn FnMut()>;

/// Queues of the hierarchy.
pub(crate) const QUEUES: u32 = 1_000;

/// A path over so many nodes, and into how many parts a run divides: nodes, jobs, events, or 1. Paths that do not look at
/// nodes have as many as they have.
pub(crate) fn prepare(path: &str, nodes: u32) -> Option<(Run, u32)> {
    Some(match path {
        "score" | "score_best16" | "filter" | "filter_score_best16" => (one_class(path, nodes), nodes),
        "place" => (place("LeastAllocated", nodes), 1),
        "place_pack" => (place("MostAllocated", nodes), 1),
        "place_session" => (place_session(nodes), 1),
        "admit" => (admit(0), jobs::ASKED),
        "admit_beside_100k" => (admit(100_000), jobs::ASKED),
        "hdrf_event" => (hdrf_event(), 2),
        "order" => (order(), 1),
        "publish" => (publish(nodes, 0), 1),
        "publish_with_tasks" => (publish(nodes, records::TASKS_PER_NODE), 1),
        _ => (alone::prepare(path, nodes)?, nodes),
    })
}

/// One task class over all nodes.
fn one_class(path: &str, nodes: u32) -> Run {
    let (view, policy) = (class::cluster(nodes), class::policy());
    let all = class::question(&view);
    if path == "filter" {
        return Box::new(move || drop(black_box(decide::filter(&view, &policy, black_box(&all.question)))));
    }
    let question = ScoreQuestion {
        with_filter: path == "filter_score_best16",
        limit: (path != "score").then_some(16),
        ..all
    };
    Box::new(move || drop(black_box(decide::score(&view, &policy, black_box(&question)))))
}

/// A gang of 1,000 tasks, as a preview.
fn place(kind: &str, nodes: u32) -> Run {
    let (view, policy) = (gang::cluster(nodes), gang::policy(kind, true));
    let (derived, question) = (policy.derive(&view), gang::question(&view, false));
    let first = decide::place(&view, &policy, &derived, &question).expect("an answer");
    assert!(first.placed, "{:?}", first.blockers);
    Box::new(move || drop(black_box(decide::place(&view, &policy, &derived, black_box(&question)))))
}

/// The same as the next change of a cycle: it is placed, counted, and forgotten again.
fn place_session(nodes: u32) -> Run {
    let (mut view, policy) = (gang::cluster(nodes), gang::policy("LeastAllocated", true));
    gang::store(&mut view);
    let question = gang::question(&view, true);
    let derived = policy.derive(&view);
    let cycle = Cycle::new(view, policy.compatibility(), derived);
    let place = move || {
        let mut cycle = cycle.clone();
        let placed = decide::place_in(&mut cycle, &policy, black_box(&question), &|| false);
        (placed.expect("an answer"), cycle)
    };
    let (first, _) = place();
    assert!(first.is_some_and(|(placing, _)| placing.placed));
    Box::new(move || drop(black_box(place())))
}

/// 10,000 jobs in 100 queues, each seeing the permits before it, beside so many that are admitted already.
fn admit(admitted: usize) -> Run {
    let (view, jobs, _) = jobs::cluster(admitted);
    let policy = jobs::policy();
    let derived = policy.derive(&view);
    let question = AdmitQuestion {
        items: jobs.into_iter().map(|job| Ok(Subject::Job(job))).collect(),
        plugins: Vec::new(),
    };
    Box::new(move || {
        let answers = decide::admit(&view, &policy, &mut derived.clone(), black_box(&question));
        let answers = answers.expect("an answer");
        assert!(answers.iter().flatten().all(|answer| answer.permitted));
    })
}

/// A task that comes and goes in a tree of 1,000 queues of ten jobs: two events.
fn hdrf_event() -> Run {
    let view = fair::cluster(QUEUES, fair::FLAT);
    let mut derived = fair::policy(fair::HIERARCHY).derive(&view);
    let task = view.tasks().get(fair::WAITING).expect("a waiting task").record.clone();
    Box::new(move || {
        for comes in [true, false] {
            fair::event(&view, &mut derived, black_box(&task), comes);
        }
    })
}

/// All queues of the tree in order.
fn order() -> Run {
    let view = fair::cluster(QUEUES, fair::FLAT);
    let policy = fair::policy(fair::HIERARCHY);
    let derived = policy.derive(&view);
    let question = OrderQuestion {
        queues: Some(Vec::new()),
        ..OrderQuestion::default()
    };
    Box::new(move || drop(black_box(decide::order(&view, &policy, &derived, black_box(&question)))))
}

/// One changed node.
fn publish(nodes: u32, tasks_per_node: u32) -> Run {
    let mut published = records::Published::new(nodes, tasks_per_node);
    Box::new(move || published.change_one())
}
