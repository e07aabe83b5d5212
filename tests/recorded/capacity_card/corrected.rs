//! Differences under `compatibility: corrected`, surprise by surprise (`docs/compatibility.md` has their rows).

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::case::{TaskMove, cluster_state, move_task};
use pumice_engine::model::{ClusterState, JobRecord, TaskRecord};
use pumice_engine::plugins::capacity_card::rejection::{
    EMPTY_CAPABILITY, INSUFFICIENT_CARD, INSUFFICIENT_CPU, REQUEST_FAILED,
};
use pumice_engine::plugins::capacity_card::{CapacityConfig, CapacityState, CardVotes as _, QuotaVerdict};

/// Small cluster for requests about cards.
struct CardFixture {
    cluster: Json,
}

impl CardFixture {
    /// Fixture with nodes `na` and `nb` with eight `A` or `B` (resource `nvidia.com/gpu`), and a queue `q`.
    fn new(quota: &str) -> Self {
        let node = |name: &str, product: &str| {
            json!({"name": name, "labels": {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.memory": "81920"},
                "allocatable": {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8"}})
        };
        Self {
            cluster: json!({
                "nodes": [node("na", "A"), node("nb", "B")],
                "queues": [{"name": "q", "annotations": {"volcano.sh/card.quota": quota},
                    "capability": {"cpu": "100", "memory": "100Gi"}}],
                "jobs": [],
            }),
        }
    }

    fn queue(mut self, change: impl FnOnce(&mut Json)) -> Self {
        change(&mut self.cluster["queues"][0]);
        self
    }

    /// Adds a job with a `card.request` and one cpu, without tasks.
    fn job(self, name: &str, phase: &str, request: &str) -> Self {
        self.put(
            json!({"uid": format!("ns/{name}"), "queue": "q", "phase": phase, "min_member": 1,
            "annotations": {"volcano.sh/card.request": request}, "min_resources": {"cpu": "1"}, "tasks": []}),
        )
    }

    /// Adds a job of tasks `(card name, status, node)`, each with one card and one cpu.
    fn pods(self, name: &str, phase: &str, min_member: usize, tasks: &[(&str, &str, &str)]) -> Self {
        let task = |(number, (card, status, node)): (usize, &(&str, &str, &str))| {
            let annotations = match *card {
                "" => json!({}),
                card => json!({"volcano.sh/card.name": card}),
            };
            json!({"name": format!("t{number}"), "annotations": annotations, "status": status, "node": node,
                "requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}})
        };
        let tasks: Vec<Json> = tasks.iter().enumerate().map(task).collect();
        self.put(
            json!({"uid": format!("ns/{name}"), "queue": "q", "phase": phase, "min_member": min_member,
            "annotations": {}, "min_resources": {"cpu": min_member.to_string()}, "tasks": tasks}),
        )
    }

    fn put(mut self, job: Json) -> Self {
        self.cluster["jobs"].as_array_mut().unwrap().push(job);
        self
    }

    fn open(&self) -> CardScenario {
        self.open_with(CapacityConfig::default())
    }

    fn open_with(&self, config: CapacityConfig) -> CardScenario {
        let cluster_state = cluster_state(&self.cluster);
        let state = CapacityState::of(&cluster_state, config);
        CardScenario { cluster_state, state }
    }
}

struct CardScenario {
    cluster_state: ClusterState,
    state: CapacityState,
}

impl CardScenario {
    fn job_record(&self, name: &str) -> JobRecord {
        self.cluster_state
            .jobs()
            .get(&format!("ns/{name}"))
            .unwrap()
            .record
            .clone()
    }

    fn task_record(&self, name: &str) -> TaskRecord {
        self.cluster_state
            .tasks()
            .get(&format!("ns/{name}"))
            .unwrap()
            .record
            .clone()
    }

    fn check_job(&self, job: &str) -> QuotaVerdict {
        self.state.vote_job(&self.cluster_state, &self.job_record(job)).unwrap()
    }

    /// Admits a job, and counts the permit.
    fn admit(&mut self, job: &str) -> Vec<&'static str> {
        let record = self.job_record(job);
        let verdict = self.state.permit(&self.cluster_state, &record).unwrap();
        if verdict.is_permitted() {
            self.state.confirm_permit(&self.cluster_state, &record.name);
        }
        codes(&verdict)
    }

    fn task(&self, name: &str) -> QuotaVerdict {
        self.state
            .vote_task(&self.cluster_state, "q", &self.task_record(name))
            .unwrap()
    }

    fn move_task(&mut self, task: &str, moved: TaskMove<'_>) {
        let task = self.task_record(task);
        move_task(&mut self.state, &self.cluster_state, &task, moved).unwrap();
    }

    fn held(&self, card: &str) -> i128 {
        self.state.account("q").unwrap().allocated.card_or_zero(card)
    }

    fn inqueue(&self, card: &str) -> i128 {
        self.state.account("q").unwrap().inqueue.card_or_zero(card)
    }
}

fn codes(verdict: &QuotaVerdict) -> Vec<&'static str> {
    verdict
        .rejections
        .iter()
        .map(|rejection| rejection.reason.code)
        .collect()
}

fn cards(verdict: &QuotaVerdict) -> Vec<(&str, u64)> {
    verdict.cards.iter().map(|(card, room)| (&**card, *room)).collect()
}

const UNLIMITED: CapacityConfig = CapacityConfig {
    hierarchy: false,
    mixed_cards: false,
    order_by_quota: false,
    victims: false,
    unlimited_cpu_memory: true,
    node_order_weight: 1.0,
    over_commit_milli: 1000,
};

#[test]
fn s1_the_option_counts_from_the_start() {
    let snapshot = CardFixture::new(r#"{"A": 4}"#).pods("j", "Running", 1, &[("A", "Running", "na")]);
    let asked = snapshot.open_with(UNLIMITED);
    let account = asked.state.account("q").unwrap();
    assert_eq!((account.allocated.cpu, account.allocated.card("A")), (0, Some(1000)));
    assert_eq!(snapshot.open().state.account("q").unwrap().allocated.cpu, 1000);
}

#[test]
fn s2_a_choice_cannot_pass_a_quota() {
    let tasks = [("A|B", "Pending", ""); 3];
    let mixed = CapacityConfig {
        mixed_cards: true,
        ..CapacityConfig::default()
    };
    let snapshot = CardFixture::new(r#"{"A": 1, "B": 1}"#).pods("j", "Inqueue", 1, &tasks);
    let mut asked = snapshot.open_with(mixed);
    assert_eq!(cards(&asked.task("j/t0")), [("A", 1), ("B", 1)]);
    asked.move_task("j/t0", TaskMove::Allocate("na"));
    assert_eq!(cards(&asked.task("j/t1")), [("B", 1)]);
    asked.move_task("j/t1", TaskMove::Allocate("nb"));
    let refused = asked.task("j/t2");
    assert_eq!(codes(&refused), [INSUFFICIENT_CARD]);
    assert!(
        refused.rejections[0].reason.message.contains("<A> 2 of 1, <B> 2 of 1"),
        "{refused:?}"
    );
    assert_eq!(
        CardFixture::new(r#"{"B": 1}"#)
            .pods("j", "Inqueue", 1, &tasks)
            .open()
            .task("j/t0")
            .cards,
        [(Arc::from("B"), 1)]
    );
}

#[test]
fn s3_amounts_reserved_for_a_choice_count() {
    let snapshot = CardFixture::new(r#"{"A": 2, "B": 2}"#)
        .job("one", "Pending", r#"{"A|B": 2}"#)
        .job("two", "Pending", r#"{"A|B": 2}"#)
        .job("three", "Pending", r#"{"A|B": 1}"#)
        .job("single", "Pending", r#"{"A": 1}"#);
    let mut asked = snapshot.open();
    assert_eq!(asked.admit("one"), [""; 0]);
    assert_eq!(asked.admit("two"), [""; 0]);
    assert_eq!(asked.admit("three"), [INSUFFICIENT_CARD]);
    assert_eq!(asked.admit("single"), [INSUFFICIENT_CARD]);
    // What a job was given does not move to another card for a single one.
    let mut asked = snapshot.open();
    assert_eq!(asked.admit("one"), [""; 0]);
    assert_eq!((asked.inqueue("A"), asked.inqueue("B")), (2000, 0));
    assert_eq!(asked.admit("single"), [INSUFFICIENT_CARD]);
    assert_eq!(asked.admit("two"), [""; 0]);
    // A pipelined task counts under the card that it will use.
    let mut asked = CardFixture::new(r#"{"A": 1, "B": 1}"#)
        .pods("j", "Inqueue", 1, &[("A|B", "Pending", "")])
        .open();
    asked.move_task("j/t0", TaskMove::Pipeline("nb"));
    assert_eq!((asked.held("A"), asked.held("B")), (0, 1000));
}

#[test]
fn s4_a_card_counts_without_its_name() {
    let asked = CardFixture::new(r#"{"B": 1}"#)
        .pods("j", "Running", 1, &[("", "Running", "nb"), ("", "Pending", "")])
        .open_with(UNLIMITED);
    assert_eq!(
        (asked.held("B"), asked.state.account("q").unwrap().allocated.cpu),
        (1000, 0)
    );
    assert_eq!(codes(&asked.task("j/t1")), [INSUFFICIENT_CARD]);
    let mut job = json!({"uid": "ns/m", "queue": "q", "phase": "Pending", "min_member": 1, "annotations": {},
        "min_resources": {"nvidia.com/gpu": "2"}, "tasks": []});
    assert_eq!(
        codes(&CardFixture::new(r#"{"B": 1}"#).put(job.clone()).open().check_job("m")),
        [INSUFFICIENT_CARD]
    );
    job["min_resources"]["nvidia.com/gpu"] = json!("1");
    assert!(
        CardFixture::new(r#"{"B": 1}"#)
            .put(job)
            .open()
            .check_job("m")
            .is_permitted()
    );
}

#[test]
fn s5_and_s7_an_unreadable_request_is_rejected() {
    for request in [r#"{"A": -3}"#, r#"{"A": "1"}"#, "{"] {
        let asked = CardFixture::new(r#"{"A": 1}"#).job("j", "Pending", request).open();
        assert_eq!(codes(&asked.check_job("j")), [REQUEST_FAILED], "{request}");
    }
}

#[test]
fn s6_and_s7_an_unreadable_quota_is_empty_and_reported() {
    for quota in [r#"{"A": -3}"#, r#"{"A": "1"}"#, "{"] {
        let refused = CardFixture::new(quota)
            .job("j", "Pending", r#"{"A": 1}"#)
            .open()
            .check_job("j");
        assert_eq!(codes(&refused), [INSUFFICIENT_CARD], "{quota}");
        assert!(
            refused.rejections[0].reason.message.contains("volcano.sh/card.quota"),
            "{refused:?}"
        );
    }
    assert!(
        CardFixture::new("{")
            .put(json!({"uid": "ns/j", "queue": "q", "phase": "Pending", "min_resources": {"cpu": "1"}}))
            .open()
            .check_job("j")
            .is_permitted()
    );
}

#[test]
fn s8_without_min_resources_the_tasks_are_asked() {
    let job = |tasks: Json| {
        json!({"uid": "ns/j", "queue": "q", "phase": "Pending", "min_member": 2, "tasks": tasks,
            "annotations": {"volcano.sh/card.request": "{\"A\": 2}"}})
    };
    assert_eq!(
        codes(
            &CardFixture::new(r#"{"A": 1}"#)
                .put(job(json!([])))
                .open()
                .check_job("j")
        ),
        [INSUFFICIENT_CARD]
    );
    let task = |name: &str| json!({"name": name, "status": "Pending", "requests": {"cpu": "60"}});
    let snapshot = CardFixture::new(r#"{"A": 1}"#).put(job(json!([task("a"), task("b")])));
    assert_eq!(
        codes(&snapshot.open().check_job("j")),
        [INSUFFICIENT_CPU, INSUFFICIENT_CARD]
    );
}

#[test]
fn s9_and_s10_labels_are_parsed_uniformly_and_their_problems_reported() {
    let cards = |labels: Json, allocatable: Json| {
        let cluster = json!({"nodes": [{"name": "n", "labels": labels, "allocatable": allocatable}]});
        let cluster_state = cluster_state(&cluster);
        let state = CapacityState::of(&cluster_state, CapacityConfig::default());
        let node = state.cards().node_cards("n").unwrap();
        let cards = node
            .cards
            .iter()
            .map(|(card, on)| format!("{card}={}{}", on.cards, cluster_state.resources().name(on.resource)));
        (cards.collect::<Vec<_>>(), node.diagnostics.len())
    };
    let product = "nvidia.com/gpu.product";
    // The resource named by the labels comes before others of the vendor; resources of other vendors are not cards.
    let given = json!({"nvidia.com/gpu": "8", "nvidia.com/ga": "1", "nvidia.com.cn/npu": "4"});
    assert_eq!(
        cards(json!({product: "A"}), given),
        (vec!["A=8nvidia.com/gpu".to_owned()], 1)
    );
    let ascend = json!({"huawei.com/ascend-910.product": "910"});
    assert_eq!(
        cards(ascend, json!({"huawei.com/ascend-910": "8"})).0,
        ["910=8huawei.com/ascend-910"]
    );
    // Shared cards without a product, or without its memory, are not cards.
    for given in ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"] {
        assert_eq!(
            cards(json!({"nvidia.com/gpu.replicas": "4"}), json!({given: "7"})),
            (vec![], 1)
        );
    }
    let labels = json!({product: "A", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.memory": "80 GB"});
    assert_eq!(
        cards(labels, json!({"nvidia.com/gpu.shared": "7", "nvidia.com/gpu": "1"})),
        (vec!["A=1nvidia.com/gpu".to_owned()], 2)
    );
    assert_eq!(cards(json!({product: ""}), json!({"nvidia.com/gpu": "8"})), (vec![], 1));
}

#[test]
fn s11_the_minimum_is_that_of_unfinished_members() {
    let snapshot = CardFixture::new(r#"{"A": 4}"#);
    let finished = [("A", "Running", "na"), ("A", "Succeeded", "na")];
    assert_eq!(snapshot.pods("j", "Running", 2, &finished).open().inqueue("A"), 0);
    let elastic = [("A", "Running", "na"), ("A", "Running", "na"), ("A", "Pending", "")];
    let asked = CardFixture::new(r#"{"A": 4}"#).pods("j", "Running", 1, &elastic).open();
    assert_eq!(asked.inqueue("A"), 0);
    assert_eq!(asked.state.account("q").unwrap().elastic.card("A"), Some(1000));
    // The job is pending although a task runs: only the rest is requested.
    let asked = CardFixture::new(r#"{"A": 1}"#)
        .pods("j", "Pending", 1, &[("A", "Running", "na")])
        .open();
    assert!(asked.check_job("j").is_permitted());
}

#[test]
fn s12_a_task_whose_card_is_gone_still_counts() {
    let asked = CardFixture::new(r#"{"A": 4}"#)
        .pods("j", "Running", 1, &[("Gone", "Running", "na")])
        .open();
    // The node has the card: its own card is used.
    assert_eq!(asked.held("A"), 1000);
    let mut snapshot =
        CardFixture::new(r#"{"A": 4}"#).pods("j", "Running", 1, &[("Gone", "Running", "nx"), ("Gone", "Pending", "")]);
    snapshot.cluster["nodes"] = json!([]);
    let asked = snapshot.open();
    assert_eq!(
        (asked.held("Gone"), asked.state.account("q").unwrap().allocated.cpu),
        (1000, 1000)
    );
    assert_eq!(codes(&asked.task("j/t1")), [REQUEST_FAILED, INSUFFICIENT_CARD]);
}

#[test]
fn s13_gated_tasks_reserve_nothing() {
    let mut snapshot =
        CardFixture::new(r#"{"A": 4}"#).pods("j", "Inqueue", 2, &[("A", "Pending", ""), ("A", "Pending", "")]);
    snapshot.cluster["jobs"][0]["tasks"][1]["scheduling_gated"] = json!(true);
    let asked = snapshot.open();
    assert_eq!(
        (asked.inqueue("A"), asked.state.account("q").unwrap().inqueue.cpu),
        (1000, 1000)
    );
}

#[test]
fn s14_uncountable_numbers_are_rejected() {
    let asked = CardFixture::new(r#"{"A": 1}"#)
        .job("j", "Pending", r#"{"A": 9223372036854775807}"#)
        .open();
    assert_eq!(codes(&asked.check_job("j")), [REQUEST_FAILED]);
}

#[test]
fn s15_and_s16_nothing_panics() {
    let mut snapshot = CardFixture::new(r#"{"A": 4}"#).pods("j", "Running", 1, &[("A", "Pending", "")]);
    snapshot.cluster["queues"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "empty"}));
    let mut asked = snapshot.open();
    asked.move_task("j/t0", TaskMove::Deallocate);
    assert_eq!(asked.held("A"), 0);
    assert_eq!(asked.state.order_key("empty"), asked.state.order_key("q"));
}

#[test]
fn s17_an_absent_capability_is_no_limit() {
    let snapshot = CardFixture::new("")
        .queue(|queue| queue["capability"] = Json::Null)
        .job("j", "Pending", "");
    assert_eq!(codes(&snapshot.open().check_job("j")), [EMPTY_CAPABILITY]);
    let snapshot = CardFixture::new("")
        .queue(|queue| queue["capability"] = json!({"memory": "1Gi"}))
        .job("j", "Pending", "");
    assert!(snapshot.open().check_job("j").is_permitted());
    let snapshot = CardFixture::new(r#"{"A": 1}"#)
        .queue(|queue| queue["capability"] = Json::Null)
        .job("j", "Pending", r#"{"A": 1}"#);
    assert!(snapshot.open().check_job("j").is_permitted());
}

#[test]
fn s18_every_card_of_a_choice_is_resolved_for_itself() {
    let snapshot = CardFixture::new(r#"{"A": 1, "B": 1}"#);
    let asked = snapshot
        .pods(
            "j",
            "Inqueue",
            1,
            &[("Gone|B", "Pending", ""), (" B | A |", "Pending", "")],
        )
        .open();
    assert_eq!(cards(&asked.task("j/t0")), [("B", 1)]);
    assert_eq!(
        cards(&asked.task("j/t1")),
        [("A", 1)],
        "the first that has quota beside the other task"
    );
    let unknown = CardFixture::new(r#"{"Gone": 1}"#)
        .pods("j", "Inqueue", 1, &[("Gone", "Pending", "")])
        .open();
    assert_eq!(codes(&unknown.task("j/t0"))[0], REQUEST_FAILED);
}

#[test]
fn s19_a_withdrawn_task_may_use_any_of_its_cards_again() {
    let mut asked = CardFixture::new(r#"{"A": 1, "B": 1}"#)
        .pods("j", "Inqueue", 1, &[("A|B", "Pending", "")])
        .pods("other", "Pending", 1, &[("A", "Pending", "")])
        .open();
    asked.move_task("j/t0", TaskMove::Allocate("nb"));
    asked.move_task("j/t0", TaskMove::Deallocate);
    assert_eq!(cards(&asked.task("j/t0")), [("A", 1)]);
    asked.move_task("other/t0", TaskMove::Allocate("na"));
    assert_eq!(cards(&asked.task("j/t0")), [("B", 1)]);
}

#[test]
fn s20_a_permit_ends_unless_it_is_stored_and_counts_once() {
    let mut asked = CardFixture::new(r#"{"A": 2}"#)
        .job("j", "Pending", r#"{"A": 2}"#)
        .open();
    let record = asked.job_record("j");
    for _ in 0..2 {
        let verdict = asked.state.permit(&asked.cluster_state, &record).unwrap();
        assert!(verdict.is_permitted());
        assert_eq!(asked.inqueue("A"), 2000);
    }
    asked.state.end_tentative();
    assert_eq!(asked.inqueue("A"), 0);
}

#[test]
fn s21_amounts_held_by_a_job_are_not_reserved_for_it_again() {
    let tasks = [("A", "Running", "na"), ("A", "Pending", "")];
    let mut asked = CardFixture::new(r#"{"A": 2}"#).pods("j", "Inqueue", 2, &tasks).open();
    assert_eq!((asked.held("A"), asked.inqueue("A")), (1000, 1000));
    asked.move_task("j/t1", TaskMove::Allocate("na"));
    assert_eq!((asked.held("A"), asked.inqueue("A")), (2000, 0));
    asked.move_task("j/t1", TaskMove::Deallocate);
    assert_eq!((asked.held("A"), asked.inqueue("A")), (1000, 1000));
}

#[test]
fn s23_the_limit_is_the_capability_and_the_rest_is_shown_beside_it() {
    let asked = CardFixture::new(r#"{"A": 9}"#)
        .job("j", "Pending", r#"{"A": 9}"#)
        .open();
    assert!(asked.check_job("j").is_permitted());
    let limits = &asked.state.account("q").unwrap().limits;
    assert_eq!(
        (limits.capability.card("A"), limits.real_capability.card("A")),
        (Some(9000), Some(9000))
    );
    let mut snapshot = CardFixture::new(r#"{"A": 1}"#);
    let other = json!({"name": "other", "annotations": {"volcano.sh/card.quota": r#"{"A": 6}"#}});
    snapshot.cluster["queues"].as_array_mut().unwrap().push(other);
    let asked = snapshot.open();
    let limits = &asked.state.account("q").unwrap().limits;
    // Eight, less the seven that are guaranteed to both other queues, and its own one.
    assert_eq!(limits.real_capability.card("A"), Some(2000));
}

#[test]
fn s24_and_s25_messages_are_in_cards_and_cores_and_name_all_that_is_short() {
    let snapshot =
        CardFixture::new(r#"{"A": 1, "B%d": 1}"#).queue(|queue| queue["capability"] = json!({"cpu": "500m"}));
    let refused = snapshot
        .job("j", "Pending", r#"{"A": 2, "B%d": 3}"#)
        .open()
        .check_job("j");
    let messages: Vec<&str> = refused
        .rejections
        .iter()
        .map(|rejection| &*rejection.reason.message)
        .collect();
    assert_eq!(
        messages,
        [
            "Queue <q> has insufficient CPU quota: requested <1 core>, total would be <1 core>, but capability is <0.5 cores>",
            "Queue <q> has insufficient <A> quota: requested <2 cards>, total would be <2 cards>, but capability is <1 card>",
            "Queue <q> has insufficient <B%d> quota: requested <3 cards>, total would be <3 cards>, but capability is <1 card>",
        ]
    );
    let measurements: Vec<(&str, f64)> = refused.rejections[1]
        .measurements
        .iter()
        .map(|measurement| (&*measurement.name, measurement.value))
        .collect();
    assert_eq!(measurements, [("requested", 2.0), ("total", 2.0), ("capability", 1.0)]);
    let pods = CardFixture::new("{}").job("j", "Pending", r#"{"pods": 1}"#).open();
    assert_eq!(codes(&pods.check_job("j")), [INSUFFICIENT_CARD]);
}

#[test]
fn s26_a_task_counts_as_what_its_node_has() {
    let asked = CardFixture::new(r#"{"A": 4, "B": 4}"#)
        .pods("j", "Running", 1, &[("A", "Running", "nb")])
        .open();
    assert_eq!((asked.held("A"), asked.held("B")), (0, 1000));
}
