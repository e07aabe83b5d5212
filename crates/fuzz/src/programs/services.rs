//! Program that libFuzzer drives, for the targets of the services: `fuzz-services --target=NAME`, and the flags of libFuzzer.
#![no_main]

use std::sync::LazyLock;

use pumice_fuzz::{FuzzTarget, SERVICE_TARGETS, chosen_target};

/// Target of this process.
static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| chosen_target(SERVICE_TARGETS));

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
