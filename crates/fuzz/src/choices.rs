//! Values of bytes: those that the strategies of the property tests make of a seed, choices and texts.

use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

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

/// Value that a strategy makes of random numbers whose seed is the beginning of an input. `None`: the strategy rejects them.
///
/// The bytes are not the random numbers themselves: strategies draw as many as a large value needs, again where one does not suit
/// them, and would never end behind the last byte.
pub fn draw<S: Strategy>(strategy: &S, data: &[u8]) -> Option<S::Value> {
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let mut seed = [0; 32];
    for (to, byte) in seed.iter_mut().zip(data) {
        *to = *byte;
    }
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    Some(strategy.new_tree(&mut runner).ok()?.current())
}

/// First byte of an input, as a choice, and the rest.
pub fn split_choice(data: &[u8]) -> (u8, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| (*first, rest))
}

/// Largest number of nodes of a case: few, so that cases are many, or as many as take several chunks.
pub fn most_nodes(takes_chunks: bool) -> usize {
    if takes_chunks { 600 } else { 12 }
}

/// Text of an input; bytes that are no UTF-8 become replacement characters.
pub fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}
