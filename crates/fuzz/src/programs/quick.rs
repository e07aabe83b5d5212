//! Program that libFuzzer drives, for the targets with little code: `fuzz-quick --target=NAME`, and the flags of libFuzzer.
#![no_main]

use std::sync::LazyLock;

use pumice_fuzz::{FuzzTarget, QUICK_TARGETS, chosen_target};

/// Target of this process.
static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| chosen_target(QUICK_TARGETS));

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
