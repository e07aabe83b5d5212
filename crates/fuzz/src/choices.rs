//! Values of bytes: the strategies of the property tests, whose random numbers are the bytes of an input.

use std::sync::LazyLock;

use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Bytes behind the end of an input. Strategies draw again when a number does not suit them, so that zeros could go on for ever.
const TAIL_BYTES: usize = 64 << 10;

/// The same bytes behind every input.
static TAIL: LazyLock<Vec<u8>> = LazyLock::new(|| noise(7, TAIL_BYTES * 16));

/// Bytes that look random and are the same for a seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let byte = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56).to_le_bytes()[0]
    };
    (0..length).map(byte).collect()
}

/// Value that a strategy makes of these bytes. `None`: the strategy rejects them.
pub fn draw<S: Strategy>(strategy: &S, data: &[u8]) -> Option<S::Value> {
    draw_with_tail(strategy, data, TAIL_BYTES)
}

/// Large value that a strategy makes of these bytes.
pub fn draw_large<S: Strategy>(strategy: &S, data: &[u8]) -> Option<S::Value> {
    draw_with_tail(strategy, data, TAIL.len())
}

fn draw_with_tail<S: Strategy>(strategy: &S, data: &[u8], tail: usize) -> Option<S::Value> {
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::from_seed(RngAlgorithm::PassThrough, &[data, &TAIL[..tail]].concat());
    let mut runner = TestRunner::new_with_rng(config, random);
    Some(strategy.new_tree(&mut runner).ok()?.current())
}

/// First byte of an input, as a choice, and the rest.
pub fn split_choice(data: &[u8]) -> (u8, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| (*first, rest))
}

/// Text of an input; bytes that are no UTF-8 become replacement characters.
pub fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}
