//! `pumice policy test`: the examples' own cases, messages of failures, and files that it rejects.

use std::path::PathBuf;

use serde_json::Value;

use super::{ends, err, out, pumice, written};
use crate::support::TestDirectory;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tests");

#[test]
fn every_example_policy_has_cases_and_they_hold() {
    let output = pumice(None, &["policy", "test", EXAMPLES]);
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output), err(&output));
    let examples = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap();
    for example in examples {
        let path = example.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            let cases = PathBuf::from(EXAMPLES).join(path.file_name().unwrap());
            assert!(cases.exists(), "{} is missing", cases.display());
        }
    }
}

#[test]
fn cases_of_upgrades_hold_under_both_releases() {
    let output = pumice(
        None,
        &[
            "policy",
            "test",
            concat!(env!("CARGO_MANIFEST_DIR"), "/docs/upgrades/cases"),
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output), err(&output));
}

const CASES: &str = "\
document: |
  actions: allocate
  tiers:
  - plugins:
    - name: binpack
cluster:
  nodes:
  - {name: a, allocatable: {cpu: 4, pods: 10}}
  - {name: b, allocatable: {cpu: 8, pods: 10}}
cases:
- name: holds
  score: {task: {requests: {cpu: 2}}}
  expect: {best: a}
- name: does not hold
  score: {task: {requests: {cpu: 6}}}
  expect:
    best: a
    fitCount: 1
    reasons:
    - {resource: memory}
";

#[test]
fn a_failed_case_reports_line_expected_and_got() {
    let folder = TestDirectory::named("cases");
    let file = written(&folder, "cases.yaml", CASES);
    let report = folder.path().join("report.xml");
    let said = ends(None, &["policy", "test", &file, "--junit", report.to_str().unwrap()], 1);
    assert!(said.contains(&format!("ok    {file}: holds")), "{said}");
    assert!(said.contains(&format!("FAIL  {file}:14: does not hold")), "{said}");
    assert!(said.contains("line 17, best"), "{said}");
    assert!(said.contains("expected  a (not among the nodes)"), "{said}");
    assert!(said.contains("got       b ("), "{said}");
    assert!(said.contains("line 19, reasons"), "{said}");
    assert!(said.contains("expected  [any any memory]"), "{said}");
    assert!(
        said.contains("got       [resource-fit InsufficientResource cpu ×1]"),
        "{said}"
    );
    assert!(!said.contains("fitCount"), "{said}");
    assert!(said.contains("1 passed, 1 failed"), "{said}");
    let junit = std::fs::read_to_string(report).unwrap();
    assert!(junit.contains("tests=\"2\" skipped=\"0\" failures=\"1\""), "{junit}");
    assert!(
        junit.contains("<failure message=\"line 17, best: expected a (not among the nodes), got b"),
        "{junit}"
    );
    // Only the requested cases run.
    let said = ends(None, &["policy", "test", &file, "--run", ": holds$"], 0);
    assert!(said.contains("1 passed, 0 failed"), "{said}");
    ends(None, &["policy", "test", &file, "--run", "nothing"], 1);
    ends(None, &["policy", "test", &file, "--run", "("], 2);
    let output = pumice(None, &["policy", "test", &file, "-o", "json"]);
    let json: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &1.into()));
    assert_eq!(json["cases"][1]["mismatches"][0]["line"], 17);
}

#[test]
fn a_file_with_unknown_content_is_rejected_with_its_line() {
    let folder = TestDirectory::named("faults");
    for (from, to, line, message) in [
        (
            "cases:\n",
            "case:\n",
            10,
            "the file has no `case`; did you mean `cases`?",
        ),
        ("expect: {best: a}", "expect: {bets: a}", 13, "did you mean `best`?"),
        (
            "expect: {best: a}",
            "expect: {permitted: true}",
            13,
            "`expect` has no `permitted`",
        ),
        (
            "{cpu: 4, pods: 10}}",
            "{cpu: 4, pods: 10}, lables: {}}",
            8,
            "did you mean `labels`?",
        ),
        (
            "{requests: {cpu: 2}}",
            "{requests: {cpu: [2]}}",
            12,
            "`requests` is a list, not a quantity",
        ),
        (
            "{requests: {cpu: 2}}",
            "{status: runing}",
            12,
            "`status` is `runing`, not one of unspecified, pending",
        ),
        (
            "score: {task: {requests: {cpu: 2}}}",
            "scores: 1",
            11,
            "asks not exactly one of filter",
        ),
        ("name: holds", "nam: holds", 11, "the case has no `name`"),
        ("document: |", "policy: nowhere.yaml\nx: |", 1, "nowhere.yaml"),
    ] {
        assert!(CASES.contains(from), "{from}");
        let file = written(&folder, "faults.yaml", &CASES.replacen(from, to, 1));
        let said = ends(None, &["policy", "test", &file], 1);
        assert!(said.contains(&format!("FAIL  {file}:{line}: the file")), "{to}: {said}");
        assert!(said.contains(message), "{to}: {said}");
    }
    // A policy that would be rejected fails its cases, with the diagnostic.
    let refused = CASES.replacen("actions: allocate", "actions: 7", 1);
    let file = written(&folder, "refused.yaml", &refused);
    let said = ends(None, &["policy", "test", &file], 1);
    assert!(said.contains("POLICY_REJECTED"), "{said}");
    // In a folder, files without cases are skipped and reported.
    folder.file("policy.yaml", "actions: allocate\n");
    folder.file("refused.yaml", CASES);
    std::fs::remove_file(folder.path().join("faults.yaml")).unwrap();
    let said = ends(None, &["policy", "test", folder.path().to_str().unwrap()], 1);
    assert!(said.contains("1 file without `cases` passed over"), "{said}");
    assert!(said.contains("1 passed, 1 failed"), "{said}");
}

#[test]
fn a_case_may_expect_that_its_policy_is_rejected() {
    let folder = TestDirectory::named("rejected");
    let cases = CASES.replacen("expect: {best: a}", "expect: {problem: POLICY_REJECTED}", 1);
    let file = written(
        &folder,
        "rejected.yaml",
        &cases.replacen("actions: allocate", "actions: 7", 1),
    );
    let said = ends(None, &["policy", "test", &file, "--run", ": holds$"], 0);
    assert!(said.contains("1 passed, 0 failed"), "{said}");
    let file = written(&folder, "accepted.yaml", &cases);
    let said = ends(None, &["policy", "test", &file, "--run", ": holds$"], 1);
    assert!(
        said.contains("expected  POLICY_REJECTED") && said.contains("got       none"),
        "{said}"
    );
}

#[test]
fn an_action_that_a_cycle_passes_over_is_named() {
    let folder = TestDirectory::named("passed-over");
    let document = "actions: \"allocate, gangpreempt\"\n  tiers: [{plugins: [{name: gang}]}]\n";
    let file = format!(
        "document: |\n  {document}cluster: {{}}\ncases:\n- {{name: holds, cycle: {{}}, expect: {{evicted: [], phases: {{}}}}}}\n"
    );
    let file = written(&folder, "cases.yaml", &file);
    let output = pumice(None, &["policy", "test", &file]);
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output), err(&output));
    assert!(
        err(&output).contains("holds: the action gangpreempt is not simulated"),
        "{}",
        err(&output)
    );
}
