//! Numbers of the published experiments, small ones by hand, and a plain version beside the one with lanes.

use proptest::prelude::*;

use super::fragmentation::{Fragmentation, TypicalTask};
use super::*;

fn task(cpu: i64, count: u32, milli: i32, models: &[&str]) -> DeviceTask {
    DeviceTask {
        cpu,
        count,
        milli,
        models: models.iter().map(|model| Arc::from(*model)).collect(),
    }
}

fn node<'a>(free_cpu: i64, free: &'a [i32], model: &'a str) -> DeviceNode<'a> {
    DeviceNode {
        free_cpu,
        free,
        model,
        kinds: DeviceKinds::NONE,
        identity: 0,
    }
}

/// The sums as the formula writes them, one typical task after the other.
fn plain(typical: &[TypicalTask], node: &DeviceNode<'_>) -> f64 {
    let idle = node.idle() as f64;
    let mut d = [0.0; 7];
    for TypicalTask { task, frequency } in typical {
        let enough: Vec<i32> = node.free.iter().copied().filter(|free| *free >= task.milli).collect();
        let lost = node.free.iter().copied().filter(|free| *free < task.milli).sum::<i32>();
        let fits_cpu = node.free_cpu >= task.cpu;
        let fits = enough.len() >= task.count as usize;
        if task.milli == 0 {
            d[if fits_cpu { 4 } else { 5 }] += frequency * idle;
        } else if !task.accepts(node.model) {
            d[6] += frequency * idle;
        } else if fits && fits_cpu {
            d[1] += frequency * f64::from(lost);
            d[2] += frequency * (idle - f64::from(lost));
        } else {
            let place = if fits { 3 } else { usize::from(fits_cpu) };
            d[place] += frequency * idle;
        }
    }
    ((((d[0] + d[1]) + d[3]) + d[4]) + d[5]) + d[6]
}

/// Integer part of a score.
#[expect(clippy::cast_possible_truncation, reason = "the reference cuts scores to integers")]
fn cut(score: f64) -> i64 {
    score as i64
}

fn plain_score(typical: &[TypicalTask], task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
    let before = plain(typical, node);
    let after = |devices: DeviceMask| {
        let mut free = FreeDevices::from_slice(node.free);
        take_devices(&mut free, devices, task.milli);
        let gain = (before
            - plain(
                typical,
                &DeviceNode {
                    free_cpu: node.free_cpu - task.cpu,
                    free: &free,
                    ..*node
                },
            ))
            / 1000.0;
        cut(1.0 / (1.0 + (-gain).exp()) * 100.0)
    };
    if !task.is_share() {
        return DeviceScore::of_node(after(
            pick_devices(DevicePick::Tightest, task, node.free, None).unwrap(),
        ));
    }
    let scored = (0..node.free.len())
        .filter(|at| node.free[*at] >= task.milli)
        .map(|at| (after(1 << at), at));
    let (value, device) = scored.fold((-1, 0), |best, own| if own.0 > best.0 { own } else { best });
    DeviceScore {
        value,
        device: Some(u8::try_from(device).unwrap()),
    }
}

const MODELS: [&str; 3] = ["A", "B", "C"];

fn request() -> impl Strategy<Value = (u32, i32)> {
    prop_oneof![
        Just((0, 0)),
        (1..=1_u32, prop_oneof![1..1000_i32, Just(190), Just(470)]),
        (1..9_u32, Just(1000))
    ]
}

fn any_task() -> impl Strategy<Value = DeviceTask> {
    (
        0..40_i64,
        request(),
        prop::sample::subsequence(MODELS.to_vec(), 0..=2),
        any::<bool>(),
    )
        .prop_map(|(cpu, (count, milli), models, all)| {
            task(cpu * 500, count, milli, if all || count == 0 { &[] } else { &models })
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn scores_equal_the_plain_formula(
        typical in prop::collection::vec((any_task(), 0.001..1.0_f64), 1..40),
        own in any_task(),
        cpu in 0..60_i64,
        free in prop::collection::vec(prop_oneof![Just(1000), Just(0), 0..=1000_i32], 1..12),
        model in prop::sample::select(MODELS.to_vec()),
    ) {
        let typical: Vec<TypicalTask> = typical.into_iter().map(|(task, frequency)| TypicalTask { task, frequency }).collect();
        let prepared = Fragmentation::new(&typical);
        let state = node(cpu * 500 + own.cpu, &free, model);
        let before = prepared.of(&state);
        prop_assert_eq!(before.to_bits(), plain(&typical, &state).to_bits());
        if own.fits(&node(0, &free, model)) {
            let expected = plain_score(&typical, &own, &state);
            prop_assert_eq!(prepared.score(&own, &state), expected);
            prop_assert_eq!(prepared.published_score(&own, &state), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Frequencies that are sums of powers of two, and many equal devices: gains are often exactly at a step or 0.
    #[test]
    fn scores_equal_the_plain_formula_at_the_edge(
        typical in prop::collection::vec((0..3_i64, prop::sample::select(vec![(0, 0), (1, 250), (1, 500), (1, 1000), (2, 500), (2, 1000)])), 1..9),
        (cpu, request) in (0..3_i64, prop::sample::select(vec![(0, 0), (1, 250), (1, 500), (1, 1000), (2, 500), (2, 1000)])),
        free in prop::collection::vec(prop::sample::select(vec![0, 250, 500, 750, 1000]), 1..11),
        free_cpu in 0..4_i64,
    ) {
        let typical: Vec<TypicalTask> = typical.into_iter().map(|(cpu, (count, milli))| TypicalTask { task: task(cpu, count, milli, &[]), frequency: 0.125 }).collect();
        let prepared = Fragmentation::new(&typical);
        let own = task(cpu, request.0, request.1, &[]);
        let state = node(free_cpu + cpu, &free, "A");
        if own.fits(&node(0, &free, "A")) {
            prop_assert_eq!(prepared.score(&own, &state), plain_score(&typical, &own, &state));
        }
    }
}

#[test]
fn devices_are_picked_by_rule() {
    let free = [1000, 500, 190, 0, 500];
    let share = task(0, 1, 190, &[]);
    let picked = |pick, scored| pick_devices(pick, &share, &free, scored);
    assert_eq!(picked(DevicePick::Tightest, None), Some(0b100));
    assert_eq!(picked(DevicePick::Widest, None), Some(0b1));
    assert_eq!(picked(DevicePick::First, None), Some(0b1));
    assert_eq!(picked(DevicePick::Score, Some(1)), Some(0b10));
    assert_eq!(
        (picked(DevicePick::Score, Some(3)), picked(DevicePick::Score, None)),
        (None, Some(0b100))
    );
    let pick = |count, milli| pick_devices(DevicePick::Tightest, &task(0, count, milli, &[]), &free, None);
    assert_eq!(
        [pick(0, 0), pick(1, 1000), pick(2, 1000), pick(2, 500)],
        [Some(0), Some(1), None, Some(0b10010)]
    );
}

#[test]
fn a_model_that_is_named_twice_counts_once() {
    let typical = [TypicalTask {
        task: task(0, 1, 1000, &["A", "B", "B"]),
        frequency: 1.0,
    }];
    let prepared = Fragmentation::new(&typical);
    let of = |model| prepared.of(&node(0, &[1000], model));
    assert_eq!([of("A"), of("B"), of("C")], [0.0, 0.0, 1000.0]);
}
