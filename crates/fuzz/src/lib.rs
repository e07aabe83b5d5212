//! Targets of the fuzzer: functions of bytes that must not panic.
//!
//! Some feed a decoder or a parser, and check what has to hold of whatever it reads. The others are *differential*: they make a
//! value of the bytes ([`choices`]) and compare fast code with a plain, separately written version of it.
//!
//! The programs in `src/programs` run a target under libFuzzer. `tests/replay.rs` replays the inputs in `corpus`.
pub mod choices;
pub mod differential;
pub mod documents;
pub mod go_program;
pub mod messages;
pub mod objects;
pub mod quantities;
pub mod secrets;
pub mod seeds;
pub mod stores;

// The plain versions are modules of tests, some of them inside the engine: they see its modules at the root of their crate.
use pumice_test_support as support;

pub(crate) use pumice_engine::{cycle, decide, model, plugin, plugin_state, policy};

/// Target of the fuzzer.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name, and folder in `corpus`.
    pub name: &'static str,
    /// Largest input that the fuzzer makes, in bytes.
    pub most_bytes: usize,
    /// True if the target compares two versions.
    pub differential: bool,
    /// True if the target compares with a program of Go.
    pub needs_go: bool,
    /// Runs an input. Panics over a finding.
    pub run: fn(&[u8]),
}

/// A target that reads bytes.
const fn reader(name: &'static str, most_bytes: usize, run: fn(&[u8])) -> FuzzTarget {
    FuzzTarget {
        name,
        most_bytes,
        differential: false,
        needs_go: false,
        run,
    }
}

/// A target that compares two versions.
const fn comparison(name: &'static str, most_bytes: usize, run: fn(&[u8])) -> FuzzTarget {
    FuzzTarget {
        differential: true,
        ..reader(name, most_bytes, run)
    }
}

/// A target that compares with a program of Go.
const fn go_comparison(name: &'static str, most_bytes: usize, run: fn(&[u8])) -> FuzzTarget {
    FuzzTarget {
        needs_go: true,
        ..comparison(name, most_bytes, run)
    }
}

/// Targets of little code. They have a program of their own: libFuzzer looks at every counter of a program after each input, and the
/// services have half a million.
pub const QUICK_TARGETS: &[FuzzTarget] = &[
    reader("quantity", 64, quantities::read),
    reader("tokens", 256, secrets::read_tokens),
    reader("certificate", 1_024, secrets::read_certificate),
    reader("cards", 512, objects::read_cards),
    reader("store-rows", 512, stores::read_rows),
    comparison("quantity-plain", 64, quantities::compare_plain),
    comparison("divisions", 32, differential::compare_divisions),
    comparison("table", 256, differential::compare_table),
    go_comparison("quantity-go", 64, quantities::compare_go),
];

/// Targets of documents.
pub const DOCUMENT_TARGETS: &[FuzzTarget] = &[
    reader("yaml", 512, documents::read_yaml),
    reader("identities", 512, secrets::read_identities),
    reader("object", 2_048, objects::read_object),
    reader("dump", 2_048, objects::read_dump),
    reader("store-file", 1_024, stores::read_file),
    reader("store-export", 1_024, stores::read_export),
    go_comparison("yaml-go", 512, documents::compare_yaml),
];

/// Targets of the engine.
pub const ENGINE_TARGETS: &[FuzzTarget] = &[
    reader("policy", 1_536, documents::read_policy),
    reader("annotations", 512, objects::read_annotations),
    comparison("kernels", 2_048, differential::compare_kernels),
    comparison("share-tree", 32, differential::compare_share_tree),
    comparison("card-tree", 1_024, differential::compare_card_tree),
    comparison("place", 4_096, differential::compare_place),
    comparison("changes", 4_096, differential::compare_changes),
    comparison("order", 2_048, differential::compare_order),
];

/// Targets of the services.
pub const SERVICE_TARGETS: &[FuzzTarget] = &[
    reader("tls-files", 2_048, secrets::read_tls_files),
    reader("settings", 256, documents::read_settings),
    reader("decisions", 1_024, messages::decide),
    reader("state-calls", 1_024, messages::change_state),
    reader("frames", 1_024, messages::receive_frames),
    reader("kube-extender", 2_048, messages::ask_kube_extender),
    reader("volcano-extender", 2_048, messages::ask_volcano_extender),
];

/// Targets by the name of the program that libFuzzer drives for them.
pub const PROGRAMS: [(&str, &[FuzzTarget]); 4] = [
    ("fuzz-quick", QUICK_TARGETS),
    ("fuzz-documents", DOCUMENT_TARGETS),
    ("fuzz-engine", ENGINE_TARGETS),
    ("fuzz-services", SERVICE_TARGETS),
];

/// All targets.
pub fn targets() -> impl Iterator<Item = &'static FuzzTarget> {
    PROGRAMS.iter().flat_map(|(_, targets)| *targets)
}

/// Target that the arguments of a program name: `--target=NAME`. libFuzzer leaves arguments with two dashes to the program.
pub fn chosen_target(targets: &'static [FuzzTarget]) -> &'static FuzzTarget {
    let wanted = std::env::args().find_map(|argument| argument.strip_prefix("--target=").map(str::to_owned));
    let chosen = targets.iter().find(|target| Some(target.name) == wanted.as_deref());
    chosen.unwrap_or_else(|| {
        let names: Vec<&str> = targets.iter().map(|target| target.name).collect();
        panic!("--target=NAME chooses one of {}", names.join(", "))
    })
}
