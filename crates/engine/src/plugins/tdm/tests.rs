//! Verdicts, scores and victims, with values of the reference's recorded decisions.

use super::super::queue_accounts::testing::cluster::{amounts, job, put_job, put_task, task};
use super::*;
use crate::model::{JobPhase, NodeRecord, NodeSlot, SortedTable};
use crate::plugin::{ChunkRejections, EvictionOrder};
use crate::policy::{CompileOptions, Policy, compile as compile_policy};

/// Noon of the day on which the reference was recorded.
const NOON: i64 = 1_795_348_800;

/// State with a node of zone rz1, one of zone rz9, an ordinary one and one whose zone is empty.
fn state() -> ClusterState {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    let nodes = [("n1", Some("rz1")), ("n2", Some("rz9")), ("n3", None), ("n4", Some(""))];
    for (slot, (name, _)) in (0..).zip(nodes) {
        index.insert(name.into(), slot);
    }
    let mut state = ClusterState::new(Arc::new(index), 1);
    for (name, zone) in nodes {
        let node = NodeRecord {
            name: name.into(),
            labels: zone.map(|zone| (ZONE.into(), zone.into())).into_iter().collect(),
            ..NodeRecord::default()
        };
        state.put_node(Arc::new(node), &Arc::from("test"));
    }
    state
}

fn plugin(arguments: &str, compatibility: Compatibility) -> Arc<Policy> {
    let name = compatibility.name();
    let document = format!(
        "actions: allocate\ntiers:\n- plugins: [{{name: tdm, arguments: {arguments}}}]\npumice: {{compatibility: {name}}}\n"
    );
    compile_policy(&document, &CompileOptions::default()).unwrap().policy
}

fn class(annotations: &[(&str, &str)]) -> TaskClass {
    let mut own = task("ns/p", "ns/j", &amounts(1000, 0, -1), TaskStatus::Pending);
    own.annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    TaskClass::of(&own, state().resources())
}

/// Message for each node that a class is kept from; empty: the node passes.
fn verdicts(policy: &Policy, annotations: &[(&str, &str)], now: i64) -> Vec<String> {
    let (state, class) = (state(), class(annotations));
    let states = policy.compute_plugin_states(&state);
    let context = PluginContext::new(&state, &states, Some(now.into()));
    let plugin = policy.registered(NAME).unwrap().filter.clone().unwrap();
    let filter = plugin.prepare_filter(context, &class).unwrap().unwrap();
    let mut rejections = ChunkRejections::default();
    let chunk = state.chunks().get(0).unwrap();
    let rejected = filter.filter(chunk, chunk.live(), &mut rejections);
    let groups: Vec<_> = rejections.drain().collect();
    let message = |offset: usize| {
        let mut own = groups.iter().filter(|(_, nodes)| nodes.get(offset));
        let message = own
            .next()
            .map_or(String::new(), |(number, _)| filter.reason(*number).message);
        assert_eq!(rejected.get(offset), !message.is_empty());
        message
    };
    (0..4).map(message).collect()
}

fn scores(policy: &Policy, annotations: &[(&str, &str)]) -> (Vec<f64>, Option<(f64, f64)>) {
    let (state, class) = (state(), class(annotations));
    let states = policy.compute_plugin_states(&state);
    let context = PluginContext::new(&state, &states, Some(NOON.into()));
    let plugin = policy.registered(NAME).unwrap().score.clone().unwrap();
    let scorer = plugin.prepare_scorer(context, &class).unwrap().unwrap();
    let mut parts = [[0.0; crate::model::CHUNK_SIZE]];
    scorer.score(state.chunks().get(0).unwrap(), &mut parts);
    (parts[0][..4].to_vec(), scorer.range())
}

const WINDOW: &str = "{tdm.revocable-zone.rz1: \"10:00-14:00\"}";
const MAY_USE: [(&str, &str); 1] = [(ZONE, "*")];

#[test]
fn revocable_nodes_are_open_in_their_window_for_those_that_may_use_them() {
    let policy = plugin(WINDOW, Compatibility::UPSTREAM);
    let unknown = "revocable zone rz9 not support";
    assert_eq!(verdicts(&policy, &MAY_USE, NOON), ["", unknown, "", ""]);
    let refused = "not allow to dispatch to revocable node";
    let of_others: [&[(&str, &str)]; 4] = [
        &[],
        &[(ZONE, "rz1")],
        &[(PREEMPTABLE, "true"), (ZONE, "")],
        &[(PREEMPTABLE, "false")],
    ];
    for annotations in of_others {
        assert_eq!(verdicts(&policy, annotations, NOON), [refused, unknown, "", ""]);
    }
    assert_eq!(verdicts(&policy, &[(PREEMPTABLE, "true")], NOON), ["", unknown, "", ""]);
    let closed = "current time beyond revocable zone rz1:10:00-14:00";
    assert_eq!(verdicts(&policy, &MAY_USE, NOON + 7201), [closed, unknown, "", ""]);
}

#[test]
fn a_closed_node_has_no_score_under_upstream() {
    let policy = plugin(WINDOW, Compatibility::UPSTREAM);
    assert_eq!(
        scores(&policy, &MAY_USE),
        (vec![100.0, -1.0, 0.0, 0.0], Some((0.0, 100.0)))
    );
    assert_eq!(scores(&policy, &[]), (vec![0.0, -1.0, 0.0, 0.0], Some((0.0, 100.0))));
    let policy = plugin(WINDOW, Compatibility::Corrected);
    assert_eq!(scores(&policy, &MAY_USE), (vec![100.0, 0.0, 0.0, 0.0], None));
}

#[test]
fn arguments_of_another_type_reject_the_document() {
    let accepts = |arguments: &str, compatibility: Compatibility| {
        let name = compatibility.name();
        let document = format!(
            "actions: allocate\ntiers:\n- plugins: [{{name: tdm, arguments: {arguments}}}]\npumice: {{compatibility: {name}}}\n"
        );
        compile_policy(&document, &CompileOptions::default()).is_ok()
    };
    for compatibility in Compatibility::KINDS {
        assert!(accepts(WINDOW, compatibility));
        for arguments in [
            "{tdm.revocable-zone.rz1: 10}",
            "{tdm.revocable-zone.rz1: null}",
            "{tdm.evict.period: 60}",
        ] {
            assert!(!accepts(arguments, compatibility), "{arguments}");
        }
        assert!(
            accepts("{tdm.evict.period: \"60\"}", compatibility),
            "the default applies"
        );
    }
    let unreadable = "{tdm.revocable-zone.rz1: \"10:00 - 14:00\"}";
    assert!(accepts(unreadable, Compatibility::UPSTREAM) && !accepts(unreadable, Compatibility::Corrected));
    let policy = plugin(unreadable, Compatibility::UPSTREAM);
    let [message, ..] = &verdicts(&policy, &MAY_USE, NOON)[..] else {
        panic!()
    };
    assert_eq!(message, "revocable zone 10:00 - 14:00 format error");
}

/// State with a job that may lose two tasks, one that may lose one, and a waiting job.
fn running_state() -> ClusterState {
    let mut state = state();
    let budget: TextMap = [(disruption_budget::MAX_UNAVAILABLE.into(), "2".into())].into();
    put_job(
        &mut state,
        JobRecord {
            annotations: budget,
            ..job("ns/j", "q", None, JobPhase::Running)
        },
    );
    put_job(&mut state, job("ns/k", "q", None, JobPhase::Running));
    put_job(&mut state, job("ns/h", "q", None, JobPhase::Pending));
    let (running, cpu) = (TaskStatus::Running, amounts(1000, 0, -1));
    let tasks = [
        ("ns/a", "ns/j", running, "n3", "true"),
        ("ns/b", "ns/j", running, "n3", "true"),
        ("ns/c", "ns/j", running, "n4", "true"),
        ("ns/d", "ns/k", running, "n3", "true"),
        ("ns/e", "ns/k", running, "n1", "true"),
        ("ns/f", "ns/k", running, "n3", "false"),
        ("ns/g", "ns/k", TaskStatus::Bound, "n3", "true"),
        ("ns/absent", "ns/j", running, "n9", "true"),
        ("ns/p", "ns/h", TaskStatus::Pending, "", "false"),
        ("ns/pp", "ns/h", TaskStatus::Pending, "", "true"),
    ];
    for (name, own, status, node, preemptable) in tasks {
        let mut record = task(name, own, &cpu, status);
        record.node = node.into();
        record.annotations = [(PREEMPTABLE.into(), preemptable.into())].into();
        put_task(&mut state, record);
    }
    state
}

#[test]
fn each_job_gives_up_what_its_budget_allows() {
    let (state, policy) = (running_state(), plugin("{}", Compatibility::UPSTREAM));
    let states = policy.compute_plugin_states(&state);
    let record = |name: &str| state.tasks().get(name).unwrap().record.clone();
    let names = ["ns/absent", "ns/a", "ns/b", "ns/c", "ns/d", "ns/e", "ns/f", "ns/g"];
    let candidates = names.map(record);
    let candidates: Vec<&TaskRecord> = candidates.iter().collect();
    let context = PluginContext::new(&state, &states, None);
    let plugin = policy.registered(NAME).unwrap().victims.clone().unwrap();
    let victims = |preemptor: &str, kind| {
        let query = VictimQuery {
            kind,
            preemptor: &record(preemptor),
            candidates: &candidates,
            eviction_order: EvictionOrder::default(),
        };
        let goes = plugin.victims(context, &query).unwrap()?;
        let chosen = names.iter().zip(goes).filter(|(_, goes)| *goes).map(|(name, _)| *name);
        Some(chosen.collect::<Vec<_>>())
    };
    assert_eq!(victims("ns/p", VictimKind::Preempt), Some(vec!["ns/a", "ns/b", "ns/d"]));
    assert_eq!(victims("ns/pp", VictimKind::Preempt), Some(Vec::new()));
    assert_eq!(victims("ns/p", VictimKind::Reclaim), None);
}

#[test]
fn expired_nodes_lose_the_least_important_tasks_first() {
    let mut state = running_state();
    let nodes = ["n1", "n1", "n1", "n3", "n1"];
    for (number, node) in (0..).zip(nodes) {
        let mut record = task(
            &format!("ns/x{number}"),
            "ns/j",
            &amounts(1000, 0, -1),
            TaskStatus::Running,
        );
        record.node = node.into();
        (record.priority, record.creation_time) = (if number == 0 { 3 } else { 1 }, Some(NOON + number).into());
        put_task(&mut state, record);
    }
    let records: Vec<TaskRecord> = state.tasks().iter().map(|(_, stored)| stored.record.clone()).collect();
    let candidates: Vec<&TaskRecord> = records.iter().collect();
    let victims = |arguments: &str| {
        let policy = plugin(arguments, Compatibility::UPSTREAM);
        let states = policy.compute_plugin_states(&state);
        let query = VictimQuery {
            kind: VictimKind::Shuffle,
            preemptor: &TaskRecord::default(),
            candidates: &candidates,
            eviction_order: EvictionOrder::default(),
        };
        let context = PluginContext::new(&state, &states, Some(NOON.into()));
        let own = policy.registered(NAME).unwrap().victims.clone().unwrap();
        let goes = own.victims(context, &query).unwrap().unwrap();
        let chosen = records.iter().zip(goes).filter(|(_, goes)| *goes);
        let names: Vec<String> = chosen.map(|(task, _)| task.name.to_string()).collect();
        (names.join(" "), own.shuffle_part())
    };
    let seconds = |seconds: i64| {
        Some(ShufflePart::Names {
            interval: seconds * 1_000_000_000,
        })
    };
    // Of job ns/j two may go, of job ns/k one; n2 is of a zone without a window.
    let expired = "{tdm.revocable-zone.rz1: \"13:00-14:00\", tdm.evict.period: 90s}";
    assert_eq!(victims(expired), ("ns/e ns/x2 ns/x4".to_owned(), seconds(90)));
    assert_eq!(victims(WINDOW), (String::new(), seconds(60)));
}

#[test]
fn jobs_that_may_be_preempted_come_last_and_never_starve() {
    let (mut state, policy) = (running_state(), plugin("{}", Compatibility::UPSTREAM));
    let preemptable = |text: &str| JobRecord {
        annotations: [(PREEMPTABLE.into(), text.into())].into(),
        ..job("ns/h", "q", None, JobPhase::Pending)
    };
    let plugin = policy.registered(NAME).unwrap().job_state.clone().unwrap();
    for (text, comes_last) in [("true", true), ("false", false), ("x", false)] {
        put_job(&mut state, preemptable(text));
        let states = policy.compute_plugin_states(&state);
        let context = PluginContext::new(&state, &states, None);
        let keys = plugin.job_keys(context, &["ns/h".into()]).unwrap();
        assert_eq!(keys, [Ok(vec![f64::from(u8::from(comes_last))])]);
        let opinion = plugin.job_opinion(context, &preemptable(text));
        assert_eq!((opinion.starving, opinion.pipelined), (Some(!comes_last), Some(-1)));
    }
    let states = policy.compute_plugin_states(&state);
    let context = PluginContext::new(&state, &states, None);
    let running = state.jobs().get("ns/j").unwrap().record.clone();
    let opinion = plugin.job_opinion(context, &running);
    assert_eq!((opinion.starving, opinion.pipelined), (Some(false), Some(1)));
}
