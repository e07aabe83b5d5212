//! The real writer, ledger and engine under a model checker, which decides the order of threads: clients that confirm,
//! commit, release and retry, tasks that start, leases that expire, failing disks, and a machine that loses power
//! between any two steps.

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::shuttle_fixture::ShuttleFixture;

/// Two jobs that do not fit together, a third that runs, a release with a late request, and a crash.
fn crossing(checks: bool) {
    let fixture = ShuttleFixture::new(checks);
    let with = |act: fn(&ShuttleFixture)| {
        let fixture = fixture.clone();
        thread::spawn(move || act(&fixture))
    };
    let actors = [
        with(|fixture| {
            if fixture.confirm("ns/a", 6, 1) {
                assert!(fixture.confirm("ns/a", 6, 1), "asked again: the recorded outcome");
            }
            fixture.release("ns/a", 1);
            assert!(
                !fixture.confirm("ns/a", 6, 1) || !fixture.checks,
                "a late request revives nothing"
            );
        }),
        with(|fixture| {
            if fixture.confirm("ns/b", 6, 1) {
                assert!(
                    fixture.rows().contains(&"ns/b".to_owned()),
                    "what is acknowledged is visible"
                );
                fixture.report_task("ns/b", 0, 2, true);
            }
        }),
        with(|fixture| {
            let permitted = fixture.confirm("ns/c", 4, 1);
            let replaced = fixture.confirm("ns/c", 8, 1);
            let stored = fixture.rows().contains(&"ns/c".to_owned());
            assert_eq!(stored, permitted || replaced, "what is acknowledged is visible");
        }),
        with(ShuttleFixture::crash),
    ];
    for actor in actors {
        actor.join().unwrap();
    }
    assert!(!fixture.rows().contains(&"ns/a".to_owned()));
    fixture.end();
}

/// Leases expire during other requests, and a crash starts them again.
fn expiry() {
    let fixture = ShuttleFixture::new(true);
    fixture.advance_clock(0);
    assert!(fixture.confirm("ns/a", 6, 1));
    let with = |act: fn(&ShuttleFixture)| {
        let fixture = fixture.clone();
        thread::spawn(move || act(&fixture))
    };
    let actors = [
        with(|fixture| {
            fixture.advance_clock(9_000);
            fixture.advance_clock(9_000);
        }),
        with(|fixture| {
            fixture.confirm("ns/b", 6, 1);
            fixture.confirm("ns/b", 6, 1);
        }),
        with(ShuttleFixture::crash),
    ];
    for actor in actors {
        actor.join().unwrap();
    }
    for _ in 0..2 {
        fixture.advance_clock(9_000);
    }
    assert_eq!(fixture.rows(), Vec::<String>::new(), "every lease has ended");
    fixture.end();
}

/// Commits the tasks of a job. True if all of them have their place.
fn placed(fixture: &ShuttleFixture, job: &'static str, tasks: usize) -> bool {
    let Some(conflicts) = fixture.commit(job, tasks) else {
        return false;
    };
    // A retry after a crash finds the tasks that it has committed itself.
    let placed = conflicts.iter().all(|code| *code == "TaskNotPending");
    let assumed = fixture.assumed(job);
    assert_eq!(
        assumed,
        if placed { tasks } else { 0 },
        "{job}: what is answered is visible"
    );
    placed
}

/// Two gangs that do not fit together, a third job that is released again, a disk that fails for a while, and a crash.
fn committing(checks: bool, late: bool) {
    let fixture = ShuttleFixture::new(checks);
    let jobs = [("ns/a", 2, 3), ("ns/b", 2, 3), ("ns/c", 1, 4)];
    for (job, tasks, cores) in jobs {
        (0..tasks).for_each(|number| fixture.report_task(job, number, cores, false));
    }
    fixture.advance_clock(0);
    let with = |act: fn(&ShuttleFixture, bool) -> bool| {
        let fixture = fixture.clone();
        thread::spawn(move || act(&fixture, late))
    };
    let actors = [
        with(|fixture, _| placed(fixture, "ns/a", 2)),
        with(|fixture, _| placed(fixture, "ns/b", 2)),
        with(|fixture, _| placed(fixture, "ns/c", 1) && !fixture.release_assumptions("ns/c")),
        with(|fixture, _| {
            fixture.crash();
            false
        }),
        with(|fixture, late| {
            fixture.fail(late);
            thread::yield_now();
            fixture.stop_failing();
            false
        }),
    ];
    let held: Vec<bool> = actors.into_iter().map(|actor| actor.join().unwrap()).collect();
    for _ in 0..2 {
        for ((job, tasks, _), held) in jobs.into_iter().zip(&held) {
            let assumed = fixture.assumed(job);
            assert!(!held || assumed == tasks, "{job}: what is acknowledged is lost");
            assert!(assumed == 0 || assumed == tasks, "{job}: half of a commit");
        }
        fixture.crash();
    }
    for _ in 0..3 {
        fixture.advance_clock(9_000);
    }
    for (job, ..) in jobs {
        assert_eq!(fixture.assumed(job), 0, "{job}: every lease has ended");
    }
    fixture.end();
}

/// Number of schedules to try; `PUMICE_MODEL_SCHEDULES` sets another number.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment of a test run is its command line"
)]
pub(super) fn schedules() -> usize {
    let said = std::env::var("PUMICE_MODEL_SCHEDULES");
    let said = said.ok().and_then(|said| said.parse().ok());
    said.unwrap_or(150)
}

/// Stack of each thread of the model, in bytes. Without optimization a change of a chunk takes several columns of it.
const STACK_BYTES: usize = 512 << 10;

/// Runs the model under the schedules of a scheduler.
pub(super) fn check(scheduler: impl Scheduler + 'static, run: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::default();
    config.stack_size = STACK_BYTES;
    Runner::new(scheduler, config).run(run);
}

#[test]
fn random_schedules_keep_the_promise() {
    check(RandomScheduler::new(schedules()), || crossing(true));
    check(RandomScheduler::new(schedules()), expiry);
    check(RandomScheduler::new(schedules()), || committing(true, false));
    check(RandomScheduler::new(schedules()), || committing(true, true));
}

#[test]
fn adversarial_schedules_keep_the_promise() {
    check(PctScheduler::new(3, schedules()), || crossing(true));
    check(PctScheduler::new(3, schedules()), expiry);
    check(PctScheduler::new(3, schedules()), || committing(true, false));
    check(PctScheduler::new(3, schedules()), || committing(true, true));
}

#[test]
fn the_first_schedules_of_all_keep_the_promise() {
    check(DfsScheduler::new(Some(schedules()), false), || crossing(true));
    check(DfsScheduler::new(Some(schedules()), false), || committing(true, true));
}

pub(super) fn panic_message(run: impl Fn() + Send + Sync + 'static) -> String {
    let run = || check(RandomScheduler::new(schedules()), run);
    let found = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let said = found.downcast_ref::<String>().cloned();
    said.or_else(|| found.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_default()
}

#[test]
fn without_checks_the_model_finds_a_broken_promise() {
    let said = panic_message(|| crossing(false));
    assert!(said.contains("the promise is broken"), "{said}");
    let said = panic_message(|| committing(false, false));
    assert!(
        said.contains("the promise is broken") || said.contains("half of"),
        "{said}"
    );
}
