//! `pumice store`: what a stopped server holds is checked, exported as text and restored; what was altered is refused.

use std::path::Path;
use std::process::Output;

use pumice::server::pb;

use crate::support::process::{err, out};
use crate::support::program::{LoggedProcess, command};
use crate::support::{TestDirectory, document};

fn store(arguments: &[&str]) -> Output {
    command().arg("store").args(arguments).output().unwrap()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Server over a directory with three versions of a policy, which stops; returns the history.
fn fill(folder: &str) -> Vec<pb::Policy> {
    let mut program = LoggedProcess::serve(&["--data-dir", folder]);
    let wire = program.connect();
    for comment in ["one", "two", "naïve \"three\"\\"] {
        let request = pb::ReloadPolicyRequest {
            document: document(comment),
            ..pb::ReloadPolicyRequest::default()
        };
        wire.reload_policy(request).unwrap();
    }
    let listed = history(&program);
    program.signal("TERM");
    program.end();
    listed
}

fn history(program: &LoggedProcess) -> Vec<pb::Policy> {
    let request = pb::ListPoliciesRequest {
        name: "default".to_owned(),
        ..pb::ListPoliciesRequest::default()
    };
    program.connect().list_policies(request).unwrap().policies
}

/// Fields of versions that a restart keeps. Times have milliseconds only.
fn shown(history: &[pb::Policy]) -> Vec<(u64, &str, &str, Option<i64>)> {
    let one = |version: &pb::Policy| version.accept_time.map(|time| time.seconds);
    history
        .iter()
        .map(|version| (version.version, &*version.hash, &*version.origin, one(version)))
        .collect()
}

#[test]
fn durable_state_is_exported_and_restored() {
    let folder = TestDirectory::new();
    let [data, other, export] = ["data", "other", "export.jsonl"].map(|name| text(&folder.0.join(name)));
    let before = fill(&data);
    let checked = store(&["check", &data]);
    assert!(
        checked.status.success() && out(&checked).contains("4 versions of policies"),
        "{}",
        err(&checked)
    );
    let exported = store(&["export", &data, "--out", &export]);
    assert!(exported.status.success(), "{}", err(&exported));
    let written = std::fs::read_to_string(&export).unwrap();
    assert!(written.starts_with("{\"pumice-store\":{\"format\":2,"), "{written}");
    assert!(
        written.contains("\"origin\":\"rpc\",\"origin_detail\":\"127.0.0.1\""),
        "{written}"
    );
    assert!(
        !store(&["export", &data, "--out", &export]).status.success(),
        "no file is overwritten"
    );
    let same = store(&["export", &data]);
    assert_eq!(out(&same), written);

    let imported = store(&["import", &other, &export]);
    assert!(imported.status.success(), "{}", err(&imported));
    let program = LoggedProcess::serve(&["--data-dir", &other]);
    assert_eq!(shown(&history(&program)), shown(&before));
    let busy = store(&["check", &other]);
    assert!(
        !busy.status.success() && err(&busy).contains("in use by another server"),
        "{}",
        err(&busy)
    );
    drop(program);
    let full = store(&["import", &other, &export]);
    assert!(err(&full).contains("has a store already"), "{}", err(&full));
    let absent = store(&["check", &text(&folder.0.join("absent"))]);
    assert!(err(&absent).contains("there is no store"), "{}", err(&absent));
    assert!(!folder.0.join("absent").exists());
}

#[test]
fn an_export_that_was_cut_or_altered_or_is_newer_is_refused() {
    let folder = TestDirectory::new();
    let data = text(&folder.0.join("data"));
    fill(&data);
    let whole = out(&store(&["export", &data]));
    let import = |name: &str, content: &str, more: &[&str]| {
        let file = text(&folder.file("changed.jsonl", content));
        let into = text(&folder.0.join(name));
        let output = store(&[&["import", &into, &file], more].concat());
        assert!(
            output.status.success() || !folder.0.join(name).exists(),
            "nothing is made"
        );
        (output.status.success(), err(&output))
    };
    let (cut, _) = whole.split_at(whole.floor_char_boundary(whole.len() / 2));
    let (good, said) = import("cut", cut, &[]);
    assert!(!good, "{said}");
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let without_end = lines[..lines.len() - 1].concat();
    assert!(import("end", &without_end, &[]).1.contains("was cut"));
    let without_one = [&lines[..1], &lines[2..]].concat().concat();
    let (good, said) = import("one", &without_one, &[]);
    assert!(!good && said.contains("records were written, and"), "{said}");
    let altered = whole.replace("# two", "# 2wo");
    let (good, said) = import("altered", &altered, &[]);
    assert!(!good && said.contains("not those that were written"), "{said}");
    let (good, said) = import("accepted", &altered, &["--changed"]);
    assert!(good, "{said}");
    let newer = whole.replacen("\"format\":2", "\"format\":3", 1);
    let (good, said) = import("newer", &newer, &[]);
    assert!(
        !good && said.contains("has format 3") && said.contains("reads format 2"),
        "{said}"
    );
    let unknown = whole.replacen("{\"policy\":", "{\"plan\":", 1);
    let (good, said) = import("unknown", &unknown, &["--changed"]);
    assert!(
        !good && said.contains("changed.jsonl:2:") && said.contains("plan"),
        "{said}"
    );
    assert!(import("other", "{}\n", &[]).1.contains("no export of a store"));
}
