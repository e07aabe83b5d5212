//! The page of pending pods: its rows name messages that programs write, and the first that matches is about the message.

use super::{page, root};

/// Sources of the messages that people with `kubectl` see: verdicts, codes, and Volcano's adapter.
const MESSAGES: [&str; 4] = [
    "crates/diagnosis/src/explain",
    "crates/engine/src/model",
    "clients/go",
    "clients/go/kubescheduler",
];

#[test]
fn each_message_of_a_pending_pod_is_one_that_some_program_writes() {
    let mut written = String::new();
    for folder in MESSAGES {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_file() && !name.contains("test") {
                written.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let page = page("docs/tasks/my-pod-is-pending.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let messages: Vec<&str> = rows
        .flat_map(|row| row.split(" | ").next().unwrap().split('`').skip(1).step_by(2))
        .collect();
    assert!(messages.len() > 15, "{messages:?}");
    for message in messages {
        assert!(written.contains(message), "nothing writes `{message}`");
    }
}

/// Messages as `pumice explain` begins them, with the first remedy, and what the first row of the page that matches says.
const ANSWERED: [(&str, &str); 11] = [
    (
        "job t/mine waits: no node has room now; 1 node will, once what is being released there is gone",
        "other tasks are ending",
    ),
    (
        "job t/typo waits: no node has nvidia.com/gpuu, and it asks for 1; it never fits: add a node that has nvidia.com/gpuu",
        "no node has this resource",
    ),
    (
        "job x/gang waits: queue research has 6 of 8 cpu cores left in its deserved share, and the gang of 10 tasks asks for 10; \
         it never fits: queue research may hold at most 8 cores of cpu",
        "the job is larger than the quota",
    ),
    (
        "job x/gang waits: queue research has 6 of 20 cpu cores left, and the gang of 10 tasks asks for 10; it fits when 4 cores \
         of cpu are given back in queue research",
        "the queue admits some of the tasks",
    ),
    (
        "job t/mine waits: alone it would find a place now, but job t/big is before it and will take it: job t/big never starts: it \
         asks for 16 cores of cpu on one node",
        "another job takes the room",
    ),
    (
        "job t/roles waits: it starts with 1 task of role ps, and none of them finds a place in the order of its tasks: 2 of the 3 \
         tried find a place now; the next finds none",
        "too few tasks of one role",
    ),
    ("job t/w waits: no node is known; load nodes", "Pumice has no nodes"),
    (
        "job t/w waits: it starts with 3 tasks, and only 2 are known",
        "fewer pods exist",
    ),
    (
        "task t/huge waits: 0 of 1 node takes it (cpu 100): 1 lacks cpu",
        "nodes reject a task",
    ),
    (
        "Pumice finds no reason that keeps job x/a: nodes take 3 of 3 waiting tasks now, best on n1; its scheduler has not placed it \
         yet",
        "Pumice would place it",
    ),
    (
        "job a/asker waits: queue research has 2 of 8 H100 cards left, and it asks for 4; it fits when 2 cards of H100 are given \
         back in queue research",
        "the quota of your queue",
    ),
];

#[test]
fn the_first_row_that_matches_is_about_the_message() {
    let page = page("docs/tasks/my-pod-is-pending.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    for (message, meaning) in ANSWERED {
        let matches = |row: &&&str| {
            let patterns = row.split(" | ").next().unwrap();
            patterns
                .split('`')
                .skip(1)
                .step_by(2)
                .any(|pattern| message.contains(pattern))
        };
        let row = rows
            .iter()
            .find(matches)
            .unwrap_or_else(|| panic!("no row for: {message}"));
        assert!(row.contains(meaning), "{message}\n{row}");
    }
}
