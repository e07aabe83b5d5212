//! Cards under the model checker: whole cards, either of two, and slices, against the quotas of a queue.

use std::collections::BTreeMap;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;

use super::ledger_tests::job;
use super::shuttle_fixture::ShuttleFixture;
use super::shuttle_tests::{check, panic_message, schedules};
use crate::BatchRecord;
use pumice_engine::Snapshot;
use pumice_engine::model::JobRecord;

const QUOTA: [(&str, i128); 3] = [("A", 4), ("B", 2), ("A/mig-1g.5gb-mixed", 1)];
const SLICE: &str = "A/mig-1g.5gb-mixed";
const EITHER: &str = "A|B";

/// Queue with quotas of cards.
pub(super) fn with_quota(queue: BatchRecord) -> BatchRecord {
    let BatchRecord::Queue(mut queue) = queue else {
        panic!("a queue")
    };
    let quota: Vec<String> = QUOTA
        .iter()
        .map(|(card, cards)| format!(r#""{card}": {cards}"#))
        .collect();
    let quota = (
        "volcano.sh/card.quota".into(),
        format!("{{{}}}", quota.join(", ")).into(),
    );
    queue.annotations = [quota].into_iter().collect();
    BatchRecord::Queue(queue)
}

/// Checks the promise for each card from the rows alone. A job that may use either of two cards needs capacity on both
/// together.
pub(super) fn cards_keep_the_promise(snapshot: &Snapshot) {
    let mut held: BTreeMap<&str, i128> = BTreeMap::new();
    for (_, row) in snapshot.state.reservations().iter() {
        for (name, amount) in &row.amounts {
            *held.entry(name).or_default() += *amount;
        }
    }
    let of = |card: &str| held.get(card).copied().unwrap_or(0);
    let over = QUOTA.iter().find(|(card, cards)| of(card) > cards * 1_000);
    assert!(over.is_none(), "the promise is broken: {held:?} in {QUOTA:?}");
    let both = of("A") + of("B") + of(EITHER);
    assert!(both <= 6_000, "the promise is broken: {held:?} in {QUOTA:?}");
}

fn wants(name: &str, card: &str, cards: u32) -> JobRecord {
    let request = (
        "volcano.sh/card.request".into(),
        format!(r#"{{"{card}": {cards}}}"#).into(),
    );
    JobRecord {
        annotations: [request].into_iter().collect(),
        ..job(name, "u", 1)
    }
}

/// Jobs that do not fit together: two of one card and either of two, and two slices where there is one. One job is
/// released again, and the machine crashes.
fn crossing(checks: bool) {
    let fixture = ShuttleFixture::new(checks);
    let with = |act: fn(&ShuttleFixture)| {
        let fixture = fixture.clone();
        thread::spawn(move || act(&fixture))
    };
    let actors = [
        with(|fixture| {
            let one = wants("ns/x", "A", 3);
            if fixture.confirm_job(&one, 1) {
                assert!(fixture.confirm_job(&one, 1), "asked again: the recorded outcome");
            }
            fixture.release("ns/x", 1);
        }),
        with(|fixture| {
            if fixture.confirm_job(&wants("ns/y", EITHER, 4), 1) {
                assert!(
                    fixture.rows().contains(&"ns/y".to_owned()),
                    "what is acknowledged is visible"
                );
            }
            fixture.confirm_job(&wants("ns/y", EITHER, 2), 1);
        }),
        with(|fixture| {
            let slices = ["ns/v", "ns/w"].map(|name| fixture.confirm_job(&wants(name, SLICE, 1), 1));
            assert!(
                !fixture.checks || slices == [true, false],
                "one slice is there: {slices:?}"
            );
        }),
        with(|fixture| {
            fixture.confirm_job(&wants("ns/z", "B", 2), 1);
        }),
        with(ShuttleFixture::crash),
    ];
    for actor in actors {
        actor.join().unwrap();
    }
    for name in ["ns/v", "ns/w", "ns/x", "ns/y", "ns/z"] {
        fixture.release(name, 9);
    }
    fixture.end();
}

#[test]
fn cards_are_promised_once_whoever_runs_when() {
    check(RandomScheduler::new(schedules()), || crossing(true));
    check(PctScheduler::new(3, schedules()), || crossing(true));
}

#[test]
fn without_checks_the_model_finds_cards_promised_twice() {
    let said = panic_message(|| crossing(false));
    assert!(said.contains("the promise is broken"), "{said}");
}
