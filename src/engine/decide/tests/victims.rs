//! Tests of `SelectVictims`: fit, irreducible sets, assumptions, and who spared whom.

use std::sync::Arc;

use super::cluster::{amounts, policy, view};
use crate::engine::cycle::{Change, Cycle};
use crate::engine::decide::{self, VictimGroup, VictimVerdict, VictimsQuestion};
use crate::engine::model::{
    JobRecord, NodeRecord, Problem, QueueRecord, ResourceId, ResourceTable, TaskRecord, TaskStatus, View,
};
use crate::engine::plugin::VictimKind;
use crate::engine::policy::{Compatibility, Policy};

fn task(view: &View, job: &str, number: usize, cpu: &str, status: TaskStatus) -> TaskRecord {
    let mut resources = ResourceTable::clone(view.resources());
    let mut requests = amounts(&mut resources, [("cpu", cpu)]);
    requests.set(ResourceId::PODS, 1);
    TaskRecord {
        name: format!("{job}-{number}").into(),
        job: job.into(),
        status,
        node: if status == TaskStatus::Pending { "" } else { "n" }.into(),
        requests,
        ..TaskRecord::default()
    }
}

/// Ten cpus, all held: `ns/big` runs five tasks of one and one of three, `ns/mid` one of two; `ns/new` waits.
fn cluster() -> View {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n".into(),
        allocatable: amounts(&mut resources, [("cpu", "10"), ("pods", "110")]),
        ..NodeRecord::default()
    };
    let (mut view, source) = (view(resources, vec![node]), Arc::from("test"));
    view.put_queue(
        QueueRecord {
            name: "q".into(),
            ..QueueRecord::default()
        },
        &source,
    );
    let running = [
        ("ns/big", 0, "1"),
        ("ns/big", 1, "1"),
        ("ns/big", 2, "1"),
        ("ns/big", 3, "1"),
        ("ns/big", 4, "1"),
    ];
    let running = running.into_iter().chain([("ns/big", 5, "3"), ("ns/mid", 0, "2")]);
    for job in ["ns/big", "ns/mid", "ns/new"] {
        let record = JobRecord {
            name: job.into(),
            queue: "q".into(),
            ..JobRecord::default()
        };
        view.put_job(record, &source);
    }
    for (job, number, cpu) in running {
        let task = task(&view, job, number, cpu, TaskStatus::Running);
        view.put_task(task, &source);
    }
    let waiting = task(&view, "ns/new", 0, "2", TaskStatus::Pending);
    view.put_task(waiting, &source);
    view
}

fn named(view: &View, names: &[&str]) -> Vec<TaskRecord> {
    let stored = |name: &&str| view.tasks().get(name).unwrap().record.clone();
    names.iter().map(stored).collect()
}

fn ask(view: &View, policy: &Policy, group: VictimGroup, irreducible: bool) -> Result<VictimVerdict, Problem> {
    let cycle = Cycle::new(view.clone(), policy.compatibility(), policy.derive(view));
    let question = VictimsQuestion {
        kind: VictimKind::Preempt,
        groups: vec![Ok(group)],
        plugins: Vec::new(),
        irreducible,
    };
    decide::victims(&cycle, policy, &question).unwrap().remove(0)
}

fn group(view: &View, candidates: &[&str]) -> VictimGroup {
    VictimGroup {
        preemptor: named(view, &["ns/new-0"]).remove(0),
        node: "n".into(),
        candidates: named(view, candidates),
        assumptions: Vec::new(),
    }
}

#[test]
fn it_says_after_how_many_the_preemptor_fits_and_who_was_spared() {
    let (view, policy) = (cluster(), policy("{name: drf}", Compatibility::Corrected).policy);
    let verdict = ask(
        &view,
        &policy,
        group(&view, &["ns/mid-0", "ns/big-0", "ns/big-1", "ns/big-2"]),
        false,
    )
    .unwrap();
    assert_eq!(verdict.victims, [1, 2, 3], "mid would hold less than the new one");
    assert_eq!(verdict.fits_after, Some(2));
    assert_eq!(
        (&*verdict.votes[0].plugin, &verdict.votes[0].victims),
        ("drf", &Some(vec![1, 2, 3]))
    );
    let nowhere = VictimGroup {
        node: "elsewhere".into(),
        ..group(&view, &[])
    };
    assert_eq!(ask(&view, &policy, nowhere, false).unwrap_err().field, "node");
}

#[test]
fn no_victim_of_an_irreducible_set_can_be_left_out() {
    let (view, policy) = (cluster(), policy("{name: drf}", Compatibility::Corrected).policy);
    let candidates = ["ns/big-0", "ns/big-5", "ns/big-1"];
    let all = ask(&view, &policy, group(&view, &candidates), false).unwrap();
    assert_eq!((all.victims, all.fits_after), (vec![0, 1, 2], Some(2)));
    let few = ask(&view, &policy, group(&view, &candidates), true).unwrap();
    assert_eq!(
        (few.victims, few.fits_after),
        (vec![1], Some(1)),
        "the large one alone makes room"
    );
    let none = ask(&view, &policy, group(&view, &["ns/big-0"]), true).unwrap();
    assert_eq!((none.victims, none.fits_after), (vec![], None), "one is not enough");
    let anywhere = VictimGroup {
        node: Arc::default(),
        ..group(&view, &candidates)
    };
    assert_eq!(ask(&view, &policy, anywhere, true).unwrap_err().reason, "NODE_MISSING");
}

#[test]
fn assumptions_count_in_their_group_only() {
    let (view, policy) = (cluster(), policy("{name: drf}", Compatibility::Corrected).policy);
    let assumed = VictimGroup {
        assumptions: vec![Change::Evict("ns/big-5".into()), Change::Evict("ns/nobody".into())],
        ..group(&view, &["ns/big-0"])
    };
    let verdict = ask(&view, &policy, assumed, false).unwrap();
    assert_eq!(verdict.fits_after, Some(0), "what is being released already is enough");
    assert_eq!(verdict.warnings[0].field, "assumptions[1].evict");
    let alone = ask(&view, &policy, group(&view, &["ns/big-0"]), false).unwrap();
    assert_eq!(alone.fits_after, None);
}
