//! Program that libFuzzer drives, for the targets of the engine: `fuzz-engine --target=NAME`, and the flags of libFuzzer.
#![no_main]

use std::sync::LazyLock;

use pumice_fuzz::{ENGINE_TARGETS, FuzzTarget, chosen_target};

/// Target of this process.
static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| chosen_target(ENGINE_TARGETS));

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
