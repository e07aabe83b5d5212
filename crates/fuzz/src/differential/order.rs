//! Order against an order that is computed plainly: totals in 128 bits, and repeated selection of the first.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use pumice_engine::decide::{self, OrderQuery};
use pumice_engine::model::{
    ClusterState, JobRecord, NodeRecord, NodeSlot, ResourceId, ResourceTable, SortedTable, TaskFields, TaskRecord,
    TaskStatus,
};
use pumice_engine::policy::{Compatibility, CompileOptions, Policy, compile};

use crate::choices::draw;

const STATUSES: [TaskStatus; 6] = [
    TaskStatus::Pending,
    TaskStatus::Allocated,
    TaskStatus::Running,
    TaskStatus::Bound,
    TaskStatus::Succeeded,
    TaskStatus::Failed,
];

/// Orders of plugins: the first whose keys differ decides.
const PLUGINS: [&[&str]; 6] = [
    &["priority"],
    &["gang", "priority"],
    &["drf"],
    &["priority", "gang", "drf"],
    &["drf", "gang", "priority"],
    &["gang"],
];

static POLICIES: LazyLock<Vec<Arc<Policy>>> = LazyLock::new(|| {
    let policy = |plugins: &&[&str]| {
        let plugins: Vec<String> = plugins.iter().map(|name| format!("{{name: {name}}}")).collect();
        let document = format!("actions: allocate\ntiers:\n- plugins: [{}]\n", plugins.join(", "));
        compile(&document, &CompileOptions::default()).unwrap().policy
    };
    PLUGINS.iter().map(policy).collect()
});

/// Task: status, cpu, memory, priority, creation time, and the end of its name.
type PlainTask = (usize, i64, i64, i32, Option<i64>, String);

/// Job: priority, creation time, least members, tasks.
type PlainJob = (i32, Option<i64>, i32, Vec<PlainTask>);

#[derive(Clone, Debug)]
struct PlainOrderCase {
    plugins: usize,
    total: (i64, i64),
    jobs: Vec<PlainJob>,
}

fn time() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![3 => prop::option::of(0_i64..3), 1 => any::<i64>().prop_map(Some)]
}

fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 1_i64..9, 1 => 1_i64..=i64::MAX]
}

fn cases() -> impl Strategy<Value = PlainOrderCase> {
    let priority = || prop_oneof![3 => 0_i32..3, 1 => any::<i32>()];
    let end = prop::sample::select(vec![
        "a",
        "0",
        "1",
        "07",
        "7",
        "10",
        "-1",
        "+3",
        "w-2",
        "w-11",
        "9223372036854775808",
    ]);
    let end = end.prop_map(str::to_owned);
    let task = (0..STATUSES.len(), amount(), amount(), priority(), time(), end);
    let job = (priority(), time(), -1_i32..4, prop::collection::vec(task, 0..4));
    let total = (amount(), amount());
    (0..PLUGINS.len(), total, prop::collection::vec(job, 0..7)).prop_map(|(plugins, total, jobs)| PlainOrderCase {
        plugins,
        total,
        jobs,
    })
}

fn job_name(number: usize) -> String {
    // Names do not follow the order in which jobs came.
    format!("ns/{}", ["m", "b", "z", "a", "k", "c", "q"][number])
}

fn task_name(job: usize, number: usize, end: &str) -> String {
    format!("ns/t{job}-{number}-{end}")
}

impl PlainOrderCase {
    fn state(&self) -> ClusterState {
        let (mut index, source): (SortedTable<NodeSlot>, Arc<str>) = (SortedTable::default(), "fuzz".into());
        index.insert("n".into(), 0);
        let mut state = ClusterState::new(Arc::new(index), 1);
        state.set_resources(Arc::new(ResourceTable::default()));
        let amounts = |cpu: i64, memory: i64| {
            [(ResourceId::CPU, cpu), (ResourceId::MEMORY, memory)]
                .into_iter()
                .collect()
        };
        let node = NodeRecord {
            name: "n".into(),
            allocatable: amounts(self.total.0, self.total.1),
            ..NodeRecord::default()
        };
        state.put_node(Arc::new(node), &source);
        state.refresh_ranks();
        for (number, (priority, creation_time, min_member, tasks)) in self.jobs.iter().enumerate() {
            let job = JobRecord {
                name: job_name(number).into(),
                priority: *priority,
                creation_time: *creation_time,
                min_member: *min_member,
                ..JobRecord::default()
            };
            state.put_job(job, &source);
            for (at, (status, cpu, memory, priority, creation_time, end)) in tasks.iter().enumerate() {
                let status = STATUSES[*status];
                let task = TaskFields {
                    name: task_name(number, at, end).into(),
                    job: job_name(number).into(),
                    status,
                    node: if status == TaskStatus::Pending { "" } else { "n" }.into(),
                    priority: *priority,
                    creation_time: *creation_time,
                    requests: amounts(*cpu, *memory),
                    ..TaskFields::default()
                };
                state.put_task(TaskRecord::from(task), &source);
            }
        }
        state
    }

    /// Dominant share of a job: of what it holds, the largest part of a total.
    fn share(&self, job: usize) -> f64 {
        let held = |of: fn(&PlainTask) -> i64| -> i128 {
            let tasks = self.jobs[job].3.iter().filter(|task| (1..4).contains(&task.0));
            tasks.map(|task| i128::from(of(task))).sum()
        };
        let cpu = held(|task| task.1) as f64 / self.total.0 as f64;
        let memory = held(|task| task.2) as f64 / self.total.1 as f64;
        cpu.max(memory)
    }

    /// True if enough tasks of a job run or are done.
    fn is_ready(&self, job: usize) -> bool {
        let (_, _, least, tasks) = &self.jobs[job];
        let count = tasks.iter().filter(|task| (1..5).contains(&task.0)).count();
        i64::try_from(count).unwrap() >= i64::from(*least)
    }

    fn compare_jobs(&self, one: usize, other: usize) -> Ordering {
        for plugin in PLUGINS[self.plugins] {
            let order = match *plugin {
                "priority" => self.jobs[other].0.cmp(&self.jobs[one].0),
                "gang" => self.is_ready(one).cmp(&self.is_ready(other)),
                _ => self.share(one).partial_cmp(&self.share(other)).unwrap(),
            };
            if order.is_ne() {
                return order;
            }
        }
        (self.jobs[one].1, job_name(one)).cmp(&(self.jobs[other].1, job_name(other)))
    }

    fn compare_tasks(&self, one: (usize, usize), other: (usize, usize)) -> Ordering {
        let task = |(job, number): (usize, usize)| &self.jobs[job].3[number];
        let (own, their) = (task(one), task(other));
        if PLUGINS[self.plugins].contains(&"priority") && own.3 != their.3 {
            return their.3.cmp(&own.3);
        }
        // Each name has three parts at least, so that the last one counts where it is a number.
        let number = |task: &PlainTask| task.5.rsplit('-').next().and_then(|last| last.parse::<i64>().ok());
        // Tasks without a number come last.
        match (number(own), number(their)) {
            (Some(own), Some(their)) if own != their => own.cmp(&their),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), Some(_)) | (None, None) => {
                (own.4, task_name(one.0, one.1, &own.5)).cmp(&(their.4, task_name(other.0, other.1, &their.5)))
            }
        }
    }
}

/// Takes the first of the rest again and again, in the order of names where two are equal.
fn select<T: Copy>(mut rest: Vec<T>, compare: impl Fn(T, T) -> Ordering) -> Vec<T> {
    let mut ordered = Vec::new();
    while !rest.is_empty() {
        let mut first = 0;
        for at in 1..rest.len() {
            if compare(rest[at], rest[first]).is_lt() {
                first = at;
            }
        }
        ordered.push(rest.remove(first));
    }
    ordered
}

/// Orders jobs and tasks.
pub fn compare_order(data: &[u8]) {
    let Some(case) = draw(&cases(), data) else { return };
    let (state, policy) = (case.state(), &POLICIES[case.plugins]);
    assert_eq!(policy.compatibility(), Compatibility::Corrected);
    let query = OrderQuery {
        jobs: Some(Vec::new()),
        tasks: Some(Vec::new()),
        ..OrderQuery::default()
    };
    let ordered = decide::order(&state, policy, &policy.compute_plugin_states(&state), &query).unwrap();
    let jobs: Vec<String> = ordered.jobs.iter().map(|rank| rank.name.to_string()).collect();
    let expected = select((0..case.jobs.len()).collect(), |one, other| {
        case.compare_jobs(one, other)
    });
    let expected: Vec<String> = expected.into_iter().map(job_name).collect();
    assert_eq!(jobs, expected, "jobs of {case:?}");

    let mut all: Vec<(String, (usize, usize))> = Vec::new();
    for (job, (.., tasks)) in case.jobs.iter().enumerate() {
        all.extend(
            tasks
                .iter()
                .enumerate()
                .map(|(at, task)| (task_name(job, at, &task.5), (job, at))),
        );
    }
    all.sort();
    let expected = select(all.iter().map(|(_, at)| *at).collect(), |one, other| {
        case.compare_tasks(one, other)
    });
    let expected: Vec<String> = expected
        .into_iter()
        .map(|(job, at)| task_name(job, at, &case.jobs[job].3[at].5))
        .collect();
    let tasks: Vec<String> = ordered.tasks.iter().map(|rank| rank.name.to_string()).collect();
    assert_eq!(tasks, expected, "tasks of {case:?}");
}
