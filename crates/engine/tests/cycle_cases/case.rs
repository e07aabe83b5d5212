//! One case: a small cluster under a random policy, and the cycles of its scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::actions::{CycleAction, CycleClaims, CycleEvent, CycleQuery, CycleReport, run_cycle_with};
use pumice_engine::decide::LastRounds;
use pumice_engine::model::{
    ClusterState, JobPhase, JobRecord, NodeRecord, NodeSlot, QueueRecord, QueueState, ResourceAmounts, ResourceId,
    SortedTable, TaskFields, TaskRecord, TaskStatus,
};
use pumice_engine::policy::{CompileOptions, Policy, compile};

use crate::judge::{CaseTally, ClaimJudge, judge_first_eviction, waits_without_place};

/// Cycles of a case.
const CYCLES: u64 = 16;
/// Last cycle before which jobs arrive.
const LAST_ARRIVAL: u64 = 6;

/// Numbers that follow from a seed (`SplitMix64`).
pub(crate) struct CaseNumbers(u64);

impl CaseNumbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: i64) -> i64 {
        i64::try_from(self.next() >> 1).unwrap() % end
    }

    fn one_in(&mut self, times: i64) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(i64::try_from(from.len()).unwrap())).unwrap()]
    }
}

fn source() -> Arc<str> {
    Arc::from("test")
}

fn amounts(cpu: i64, pods: i64) -> ResourceAmounts {
    let all = [
        (ResourceId::CPU, cpu * 1000),
        (ResourceId::MEMORY, cpu << 30),
        (ResourceId::PODS, pods),
    ];
    all.into_iter().filter(|(_, amount)| *amount > 0).collect()
}

pub(crate) struct CycleCase {
    seed: u64,
    numbers: CaseNumbers,
    state: ClusterState,
    policy: Arc<Policy>,
    actions: Vec<CycleAction>,
    claims: CycleClaims,
    queues: i64,
    jobs: i64,
    /// Ends of evicted tasks.
    ends: BTreeMap<Arc<str>, u64>,
}

impl CycleCase {
    pub(crate) fn new(seed: u64) -> Self {
        let mut numbers = CaseNumbers(seed);
        let queues = 1 + numbers.below(4);
        let deserving = numbers.one_in(2);
        let (document, actions) = policy_document(&mut numbers, deserving);
        let policy = compile(&document, &CompileOptions::default()).unwrap().policy;
        let mut case = Self {
            seed,
            state: cluster(&mut numbers),
            policy,
            actions,
            claims: CycleClaims::default(),
            queues,
            jobs: 0,
            ends: BTreeMap::new(),
            numbers,
        };
        for number in 0..queues {
            case.put_queue(number, deserving);
        }
        for _ in 0..2 + case.numbers.below(5) {
            case.put_job(true);
        }
        case
    }

    fn put_queue(&mut self, number: i64, deserving: bool) {
        let numbers = &mut self.numbers;
        let queue = QueueRecord {
            name: Arc::from(format!("q{number}")),
            weight: Some(i32::try_from(1 + numbers.below(4)).unwrap()),
            priority: i32::try_from(numbers.below(2)).unwrap(),
            state: QueueState::Open,
            reclaimable: numbers.one_in(8).then_some(false),
            deserved: deserving.then(|| amounts(1 + numbers.below(6), 0)),
            capability: numbers.one_in(5).then(|| amounts(3 + numbers.below(6), 0)),
            ..QueueRecord::default()
        };
        self.state.put_queue(queue, &source());
    }

    /// Puts a job with tasks that wait, and, at the start, some that run.
    fn put_job(&mut self, at_start: bool) {
        let name: Arc<str> = Arc::from(format!("x/j{:02}", self.jobs));
        self.jobs += 1;
        let count = 1 + self.numbers.below(4);
        let priority = self.numbers.pick(&[1, 1, 5, 9]);
        let cpu = self.numbers.pick(&[0, 1, 1, 2, 2, 3, 4]);
        let mut runs = false;
        for number in 0..count {
            let cpu = if self.numbers.one_in(4) {
                self.numbers.below(4)
            } else {
                cpu
            };
            let task_name: Arc<str> = Arc::from(format!("{name}-{number}"));
            let mut fields = TaskFields {
                name: task_name,
                job: Arc::clone(&name),
                priority,
                status: TaskStatus::Pending,
                requests: amounts(cpu, 1),
                creation_time: Some(self.jobs),
                ..TaskFields::default()
            };
            let node = if at_start && !self.numbers.one_in(3) {
                self.roomy_node(cpu)
            } else {
                None
            };
            if let Some(node) = node {
                fields.node = node;
                fields.status = TaskStatus::Running;
                runs = true;
                if self.numbers.one_in(12) {
                    fields.status = TaskStatus::Releasing;
                    let end = self.grace();
                    self.ends.insert(Arc::clone(&fields.name), end);
                }
            }
            self.state.put_task(TaskRecord::from(fields), &source());
        }
        let waits = self.numbers.pick(&[JobPhase::Pending, JobPhase::Inqueue]);
        let least = self.numbers.pick(&[0, 1, 1, count.min(2), count]);
        let job = JobRecord {
            queue: Arc::from(format!("q{}", self.numbers.below(self.queues))),
            min_member: i32::try_from(least).unwrap(),
            phase: if runs { JobPhase::Running } else { waits },
            creation_time: Some(self.jobs),
            priority,
            name,
            ..JobRecord::default()
        };
        self.state.put_job(job, &source());
    }

    /// Cycles that an evicted task takes to end.
    fn grace(&mut self) -> u64 {
        u64::try_from(self.numbers.pick(&[1, 1, 2, 3, 6])).unwrap()
    }

    /// Node with so much cpu, and a place for one more pod.
    fn roomy_node(&mut self, cpu: i64) -> Option<Arc<str>> {
        let has_room = |slot: &NodeSlot| {
            let entry = self.state.node(*slot).unwrap();
            let free = |id| {
                use pumice_engine::model::NodeVector::{Allocatable, Used};
                entry.exact(id, Allocatable).unwrap_or(0) - entry.exact(id, Used).unwrap_or(0)
            };
            free(ResourceId::CPU) >= i128::from(cpu) * 1000 && free(ResourceId::PODS) >= 1
        };
        let roomy: Vec<NodeSlot> = (0..self.state.node_count()).filter(has_room).collect();
        if roomy.is_empty() {
            return None;
        }
        let slot = self.numbers.pick(&roomy);
        self.state.name_of(slot)
    }

    pub(crate) fn run(mut self, tally: &mut CaseTally) {
        let mut judge = ClaimJudge::default();
        for tick in 0..CYCLES {
            self.pass_time(tick, &mut judge);
            let plugin_states = self.policy.compute_plugin_states(&self.state);
            let query = CycleQuery {
                actions: &self.actions,
                now: Some(i64::try_from(tick).unwrap().into()),
                claims: &self.claims,
                last_rounds: &LastRounds::default(),
            };
            let claimed = judge.claim_to_keep(&self.state, &plugin_states, &self.policy);
            let report = run_cycle_with(self.state.clone(), plugin_states, &self.policy, query).unwrap();
            let mut found = judge.judge(&report, &self.policy, tally);
            let lost = claimed.filter(|claimant| waits_without_place(&report, claimant));
            found.extend(lost.map(|claimant| format!("claimant {claimant} could keep a place, and lost it")));
            found.extend(judge_first_eviction(&report, &self.state, &self.policy));
            let place = |found: String| format!("case {}, cycle {tick}, {:?}: {found}", self.seed, self.actions);
            tally.violations.extend(found.into_iter().map(place));
            self.claims.record(&report.events);
            self.apply(&report, tick);
        }
        tally.unserved_evictions += judge.open_evictions();
        tally.cases += 1;
    }

    /// Makes what the cycle decided true: tasks that were bound run, evicted ones end later.
    fn apply(&mut self, report: &CycleReport, tick: u64) {
        for event in &report.events {
            match event {
                CycleEvent::Bound { task, node } => {
                    let node = Arc::clone(node);
                    self.change(task, |record| {
                        record.status = TaskStatus::Running;
                        record.node = node;
                    });
                }
                CycleEvent::Evicted { task, .. } => {
                    self.change(task, |record| record.status = TaskStatus::Releasing);
                    let end = tick + self.grace();
                    self.ends.insert(Arc::clone(task), end);
                }
                CycleEvent::Enqueued(job) => self.set_phase(job, JobPhase::Inqueue),
                CycleEvent::Pipelined { .. } | CycleEvent::Nominated { .. } | CycleEvent::PassedOver { .. } => {}
            }
        }
        self.update_phases();
    }

    /// Lets evicted tasks end and come back, tasks finish and jobs arrive.
    fn pass_time(&mut self, tick: u64, judge: &mut ClaimJudge) {
        let ended: Vec<Arc<str>> = self
            .ends
            .iter()
            .filter(|(_, end)| **end <= tick)
            .map(|(task, _)| Arc::clone(task))
            .collect();
        for task in ended {
            self.ends.remove(&task);
            self.change(&task, |record| {
                record.status = TaskStatus::Pending;
                record.node = Arc::default();
            });
        }
        if tick == 0 || tick > LAST_ARRIVAL {
            return;
        }
        if self.numbers.one_in(3) {
            self.put_job(false);
        }
        if self.numbers.one_in(4) {
            let runs = self
                .state
                .tasks()
                .iter()
                .filter(|(_, task)| task.record.status == TaskStatus::Running);
            let runs: Vec<Arc<str>> = runs.map(|(name, _)| Arc::clone(name)).collect();
            if !runs.is_empty() {
                let at = usize::try_from(self.numbers.below(i64::try_from(runs.len()).unwrap())).unwrap();
                self.state.remove_task(&runs[at]);
                self.claims.remove_claimant(&runs[at]);
                judge.remove_claimant(&runs[at]);
            }
        }
    }

    fn change(&mut self, task: &str, change: impl FnOnce(&mut TaskRecord)) {
        let mut record = self.state.tasks().get(task).unwrap().record.clone();
        change(&mut record);
        self.state.put_task(record, &source());
    }

    fn set_phase(&mut self, job: &str, phase: JobPhase) {
        let mut record = self.state.jobs().get(job).unwrap().record.clone();
        if record.phase != phase {
            record.phase = phase;
            self.state.put_job(record, &source());
        }
    }

    /// Phases of jobs as Volcano sets them at the end of a cycle.
    fn update_phases(&mut self) {
        let names: Vec<Arc<str>> = self.state.jobs().iter().map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            let job = self.state.jobs().get(&name).unwrap().record.clone();
            let tasks = self.state.tasks().iter().filter(|(_, task)| task.record.job == name);
            let runs = tasks
                .filter(|(_, task)| task.record.status == TaskStatus::Running)
                .count();
            let phase = match (i32::try_from(runs).unwrap(), job.phase) {
                (runs, _) if runs > 0 && runs >= job.min_member => JobPhase::Running,
                (1.., _) => JobPhase::Unknown,
                (_, JobPhase::Inqueue) => JobPhase::Inqueue,
                _ => JobPhase::Pending,
            };
            self.set_phase(&name, phase);
        }
    }
}

/// Nodes of a case.
fn cluster(numbers: &mut CaseNumbers) -> ClusterState {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for slot in 0..4 {
        index.insert(Arc::from(format!("n{slot}")), slot);
    }
    let mut state = ClusterState::new(Arc::new(index), 1);
    for slot in 0..=numbers.below(3) {
        let pods = numbers.pick(&[2, 4, 110, 110]);
        let node = NodeRecord {
            name: Arc::from(format!("n{slot}")),
            allocatable: amounts(2 + numbers.below(7), pods),
            ..NodeRecord::default()
        };
        assert!(state.put_node(Arc::new(node), &source()));
    }
    state.refresh_ranks();
    state
}

/// Policy of a case, and its actions in any order.
fn policy_document(numbers: &mut CaseNumbers, deserving: bool) -> (String, Vec<CycleAction>) {
    let mut left: Vec<CycleAction> = CycleAction::ALL.to_vec();
    let mut actions = Vec::new();
    while !left.is_empty() {
        let at = usize::try_from(numbers.below(i64::try_from(left.len()).unwrap())).unwrap();
        let action = left.remove(at);
        if !numbers.one_in(9) {
            actions.push(action);
        }
        if numbers.one_in(9) {
            actions.push(action);
        }
    }
    if actions.is_empty() {
        actions.push(CycleAction::Reclaim);
    }
    let queues = if deserving { "capacity" } else { "proportion" };
    let gang = numbers.pick(&["{name: gang}", "{name: gang, enablePreemptable: false}", ""]);
    let drf = numbers.pick(&["{name: drf}", "{name: drf, enablePreemptable: false}", ""]);
    let order = numbers.pick(&["{name: binpack}", "{name: nodeorder}"]);
    let parts = ["{name: priority}", gang, "{name: conformance}"];
    let others = [
        numbers.pick(&["{name: overcommit}", ""]),
        drf,
        "{name: predicates}",
        &format!("{{name: {queues}}}"),
        order,
    ];
    let list = |parts: &[&str]| {
        let named: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        format!("- plugins: [{}]\n", named.join(", "))
    };
    let tiers = if numbers.one_in(4) {
        list(&[&others[..], &parts[..]].concat())
    } else {
        list(&parts) + &list(&others)
    };
    let names: Vec<&str> = actions.iter().map(|action| action.name()).collect();
    (format!("actions: \"{}\"\ntiers:\n{tiers}", names.join(", ")), actions)
}
