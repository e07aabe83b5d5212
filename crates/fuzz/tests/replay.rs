//! Inputs of `corpus`, replayed: each is a first input, or one by which the fuzzer found new code or a mistake.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pumice_fuzz::go_program::GoProgram;
use pumice_fuzz::{FuzzTarget, messages, seeds, targets};

/// Largest number of bytes of all inputs: a clone carries them.
const CORPUS_BYTES: u64 = 4 << 20;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Inputs of a target by name.
fn inputs(target: &FuzzTarget) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = corpus().join(target.name);
    let read = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = read.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no input", folder.display());
    paths
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// Runs all inputs of targets; the number of inputs.
fn replay(chosen: impl Fn(&FuzzTarget) -> bool) -> usize {
    let mut count = 0;
    for target in targets().filter(|target| chosen(target)) {
        for (path, bytes) in inputs(target) {
            let replayed = std::panic::catch_unwind(|| (target.run)(&bytes));
            assert!(replayed.is_ok(), "{}: the message is above", path.display());
            count += 1;
        }
    }
    count
}

#[test]
fn no_input_fails() {
    assert!(replay(|target| !target.needs_go) > 100);
}

#[test]
#[ignore = "needs programs of Go: make fuzz-replay"]
fn no_input_fails_beside_go() {
    let count = replay(|target| target.needs_go);
    let compared = GoProgram::finish();
    assert!(
        count > 20 && compared > 20,
        "{compared} of {count} inputs were compared"
    );
}

#[test]
fn the_corpus_is_that_of_the_targets_and_small() {
    let names: BTreeSet<String> = targets().map(|target| target.name.to_owned()).collect();
    assert_eq!(names.len(), targets().count(), "no name stands for two targets");
    let folders = std::fs::read_dir(corpus()).unwrap();
    let folders: BTreeSet<String> = folders
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(folders, names);
    let bytes: u64 = targets().flat_map(inputs).map(|(_, bytes)| bytes.len() as u64).sum();
    assert!(bytes <= CORPUS_BYTES, "{bytes} bytes");
}

/// The first inputs get past the outer checks, so that the fuzzer begins inside.
#[test]
fn first_inputs_are_valid() {
    let mut answered = 0;
    for seed in seeds::all() {
        let (code, bytes) = match seed.target {
            "decisions" => messages::answered_decision(&seed.bytes),
            "kube-extender" => {
                let (status, bytes) = messages::answered_kube(&seed.bytes);
                (i32::from(status) - 200, bytes)
            }
            "volcano-extender" => {
                let (status, bytes) = messages::answered_volcano(&seed.bytes);
                (i32::from(status) - 200, bytes)
            }
            _ => continue,
        };
        // No session is open, which this verb has no other way to say.
        let unavailable = seed.name == "jobEnqueued";
        assert_eq!(code, if unavailable { 303 } else { 0 }, "{} {}", seed.target, seed.name);
        assert!(!bytes.is_empty());
        answered += 1;
    }
    assert!(answered > 20);
}
