//! Cases of Volcano's own tests, release by release: one cycle of `pumice simulate` under that release ends as Volcano's did.
//!
//! Each file of `tests/vectors/volcano-tests` has the objects, the configuration and the ends of the cases of one release, and the
//! names of the cases that it leaves out, by reason.
#![expect(clippy::print_stdout, reason = "the lines are the report of what was compared")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::TestDirectory;
use crate::vectors::files;

/// Release, its cases that are compared, and those that are left out.
const RELEASES: [(&str, usize, usize); 3] = [
    ("volcano-1.14.4", 77, 102),
    ("volcano-1.15.1", 93, 113),
    ("volcano-ed72c7c81", 93, 121),
];

/// End of a cycle: what became of tasks (`bound`, `pipelined` or `evicted`, and the node), and the jobs that were enqueued.
#[derive(Debug, Default, PartialEq)]
struct CaseEnd {
    tasks: BTreeMap<String, (String, String)>,
    enqueued: Vec<String>,
}

impl CaseEnd {
    fn recorded(end: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let tasks = end["tasks"].as_object().unwrap().iter();
        Self {
            tasks: tasks
                .map(|(task, fate)| (task.clone(), (text(&fate[0]), text(&fate[1]))))
                .collect(),
            enqueued: end["enqueued"].as_array().unwrap().iter().map(text).collect(),
        }
    }

    /// Words for all that happens.
    fn fates(self) -> BTreeSet<String> {
        let enqueued = self.enqueued.first().map(|_| "enqueued".to_owned());
        self.tasks.into_values().map(|(fate, _)| fate).chain(enqueued).collect()
    }

    /// End by the lines of `--tasks`.
    fn of_lines(lines: &str) -> Self {
        let mut end = Self::default();
        for line in lines.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |field: &str| line[field].as_str().unwrap().to_owned();
            let fate = if line["evictions"] != 0 {
                "evicted"
            } else if line["status"] == "PIPELINED" {
                "pipelined"
            } else if line["placedSeconds"].is_null() {
                ""
            } else {
                "bound"
            };
            if !fate.is_empty() {
                end.tasks.insert(text("task"), (fate.to_owned(), text("node")));
            }
        }
        end
    }
}

/// Jobs of a case that wait to be enqueued, by name.
fn waiting_jobs(case: &Value) -> BTreeSet<String> {
    let objects = case["objects"].as_array().unwrap().iter();
    let groups = objects.filter(|object| object["kind"] == "PodGroup");
    let waiting = groups.filter(|group| group["status"]["phase"].as_str().is_none_or(|phase| phase == "Pending"));
    let name = |group: &Value| {
        let part = |field: &str| group["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", part("namespace"), part("name"))
    };
    waiting.map(name).collect()
}

/// Runs one cycle of the case by the program.
fn simulate(case: &Value, release: &str, folder: &Path) -> Result<CaseEnd, String> {
    let cluster = json!({"apiVersion": "v1", "kind": "List", "items": case["objects"]});
    let policy = json!({
        "actions": case["actions"], "tiers": case["tiers"], "configurations": case["configurations"],
        "pumice": {"compatibility": release},
    });
    std::fs::write(folder.join("cluster.json"), cluster.to_string()).unwrap();
    std::fs::write(folder.join("policy.yaml"), policy.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.current_dir(folder).env("XDG_CONFIG_HOME", "/nowhere");
    // All arrive at once, and no second cycle begins.
    let arguments = "simulate cluster.json --policy policy.yaml --cycles --arrival-speedup 1e12 --after 0 --tasks tasks.jsonl -o json";
    command.args(arguments.split(' '));
    let output = command.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let lines = std::fs::read_to_string(folder.join("tasks.jsonl")).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let pending = report["policies"][0]["cycles"]["pendingJobs"].as_array().unwrap();
    let pending: BTreeSet<String> = pending.iter().map(|job| job.as_str().unwrap().to_owned()).collect();
    Ok(CaseEnd {
        enqueued: waiting_jobs(case).difference(&pending).cloned().collect(),
        ..CaseEnd::of_lines(&lines)
    })
}

/// Compares one case. Returns the difference.
fn differs(case: &Value, release: &str, folder: &Path) -> Option<String> {
    let ends: Vec<CaseEnd> = case["ends"].as_array().unwrap().iter().map(CaseEnd::recorded).collect();
    let name = &case["name"];
    match simulate(case, release, folder) {
        Ok(end) if ends.contains(&end) => None,
        Ok(end) => Some(format!("{name}\n  Volcano: {ends:?}\n  here:    {end:?}")),
        Err(problem) => Some(format!("{name}\n  Volcano: {ends:?}\n  here:    {problem}")),
    }
}

/// Compares all cases with as many processes as there are processors.
fn differences(cases: &[Value], release: &str) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = |worker: usize| {
        let folder = TestDirectory::named(&format!("volcano-cases-{release}-{worker}"));
        let mut found = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.extend(differs(case, release, folder.path()));
        }
        found
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        running.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn each_case_ends_as_in_volcano() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/volcano-tests");
    let (mut found, mut fates) = (Vec::new(), BTreeSet::new());
    for (release, compared, left_out) in RELEASES {
        let recording = files::read_value(&folder.join(format!("{release}.json.gz"))).unwrap();
        let cases = recording["cases"].as_array().unwrap();
        let reasons = recording["leftOut"].as_object().unwrap();
        let own: BTreeMap<&str, usize> = reasons
            .iter()
            .map(|(reason, names)| (reason.as_str(), names.as_array().unwrap().len()))
            .collect();
        let ends = cases.iter().flat_map(|case| case["ends"].as_array().unwrap());
        fates.extend(ends.map(CaseEnd::recorded).flat_map(CaseEnd::fates));
        let differing = differences(cases, release);
        let equal = cases.len() - differing.len();
        println!(
            "{release}: {} cases compared, {equal} equal; left out: {own:?}",
            cases.len()
        );
        found.extend(
            differing
                .into_iter()
                .map(|difference| format!("{release}, {difference}")),
        );
        assert_eq!(
            (cases.len(), own.values().sum()),
            (compared, left_out),
            "{release}: cases are missing"
        );
    }
    let all = ["bound", "enqueued", "evicted", "pipelined"];
    assert_eq!(fates, all.map(str::to_owned).into());
    assert!(
        found.is_empty(),
        "{} cases end otherwise:\n{}",
        found.len(),
        found.join("\n")
    );
}
