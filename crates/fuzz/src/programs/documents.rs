//! Program that libFuzzer drives, for the targets of documents: `fuzz-documents --target=NAME`, and the flags of libFuzzer.
#![no_main]

use std::sync::LazyLock;

use pumice_fuzz::{DOCUMENT_TARGETS, FuzzTarget, chosen_target};

/// Target of this process.
static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| chosen_target(DOCUMENT_TARGETS));

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
