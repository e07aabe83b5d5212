//! Report of a simulation: tables for people, one JSON object for programs, charts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::cycle_tasks::TaskOutcome;
use super::queues::{QueueOutcome, QueueSample};
use super::standstill::TaskStandstill;
use super::usage::CardUsage;
use pumice_console::CommandError;
use pumice_console::not_evaluated::{self, UnevaluatedRow};
use pumice_console::output::{self, TextTable};
use pumice_plot::{PlotAxis, PlotLine, PlotPanel, render_svg};

/// Queues that a chart shows, the first by name.
const QUEUES_DRAWN: usize = 6;
/// Reasons per policy that a table shows.
const REASONS_SHOWN: usize = 3;

/// The whole report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SimulationReport {
    /// Nodes of the cluster.
    pub(super) nodes: usize,
    /// GPUs of the cluster.
    pub(super) gpus: f64,
    /// Cores of the cluster.
    pub(super) cores: f64,
    /// True if tasks leave when their run time is over.
    pub(super) departures: bool,
    /// Seconds from one scheduling cycle to the next. Absent: jobs were placed one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cycles: Option<f64>,
    /// Outcomes by policy, in the order of the command line.
    pub(super) policies: Vec<PolicyOutcome>,
    /// Fields of nodes and tasks that no policy takes into account here.
    pub(super) not_evaluated: Vec<UnevaluatedRow>,
}

/// Everything that a simulation reports about one policy.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyOutcome {
    pub(super) policy: String,
    pub(super) tasks: TaskCounts,
    /// Levels after the last arrival.
    pub(super) after_last_arrival: AllocationLevels,
    /// Mean levels: over the time between the first and the last arrival if tasks leave, else over the tasks that arrived.
    pub(super) mean: AllocationLevels,
    pub(super) cpu_only: CpuTaskCounts,
    /// GPUs after the last arrival, by kind.
    pub(super) cards: BTreeMap<String, CardUsage>,
    /// Tasks that found no node when they arrived, by the reason that rejected most nodes.
    pub(super) rejected: Vec<RejectionCount>,
    /// Plugins of the policy that took no part.
    pub(super) not_evaluated: Vec<UnevaluatedRow>,
    /// Outcome of whole cycles, where they were simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cycles: Option<CycleOutcome>,
    /// Speed of decisions: the only part that differs from run to run.
    pub(super) decision_speed: DecisionSpeed,
    pub(super) samples: Vec<TimelineSample>,
    /// Lines of the file of `--tasks`.
    #[serde(skip)]
    pub(super) task_outcomes: Vec<TaskOutcome>,
}

/// Outcome of whole cycles.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CycleOutcome {
    /// Seconds from the first arrival to the end of the simulation.
    pub(super) seconds: f64,
    /// True if nothing would change any more; false if `--after` ended the simulation.
    pub(super) came_to_rest: bool,
    /// Levels at the end of the simulation.
    pub(super) at_end: AllocationLevels,
    /// Tasks that wait for ever although nothing of their nodes is being released.
    pub(super) standstills: Vec<TaskStandstill>,
    /// Jobs that are not enqueued at the end, by name.
    pub(super) pending_jobs: Vec<String>,
    /// Waiting times, evictions and shares, in the order of names.
    pub(super) queues: Vec<QueueOutcome>,
}

/// Tasks that found no node when they arrived, with one reason.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RejectionCount {
    pub(super) reason: String,
    pub(super) tasks: u64,
}

/// Numbers of tasks.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskCounts {
    pub(super) arrived: u64,
    /// Number of arrived tasks that got a place, once or again.
    pub(super) placed: u64,
    pub(super) finished: u64,
    /// Number of evictions. Two evictions of one task are included twice.
    pub(super) evicted: u64,
    /// Number of tasks not placed at once.
    pub(super) delayed: u64,
    /// Number of tasks not placed by the end.
    pub(super) waiting: u64,
}

/// Tasks that ask for no GPU.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CpuTaskCounts {
    pub(super) placed: u64,
    pub(super) on_gpu_nodes: u64,
}

/// Allocated shares of the cluster.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AllocationLevels {
    pub(super) gpu_allocated_percent: f64,
    pub(super) cpu_allocated_percent: f64,
    pub(super) memory_allocated_percent: f64,
    /// Free GPUs with too little cpu or memory beside them for the usual GPU task.
    pub(super) gpus_stranded: f64,
}

/// One point of the chart lines.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TimelineSample {
    /// Seconds after the first arrival.
    pub(super) seconds: f64,
    pub(super) arrived: u64,
    pub(super) waiting: u64,
    pub(super) evicted: u64,
    pub(super) cpu_only_on_gpu_nodes: u64,
    #[serde(flatten)]
    pub(super) state: AllocationLevels,
}

/// Speed of decisions: one call of Place each, without a socket.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DecisionSpeed {
    pub(super) decisions: usize,
    pub(super) per_second: f64,
    pub(super) p50_micros: f64,
    pub(super) p99_micros: f64,
}

impl DecisionSpeed {
    pub(super) fn from_durations(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |share: usize| {
            let place = took.len().saturating_sub(1).saturating_mul(share) / 100;
            took.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        let total: Duration = took.iter().sum();
        DecisionSpeed {
            decisions: took.len(),
            per_second: if total.is_zero() {
                0.0
            } else {
                took.len() as f64 / total.as_secs_f64()
            },
            p50_micros: at(50),
            p99_micros: at(99),
        }
    }
}

/// Mean of states, weighted by their durations.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WeightedAllocation {
    sum: AllocationLevels,
    total_weight: f64,
}

impl WeightedAllocation {
    /// Adds a state with its duration.
    pub(super) fn add(&mut self, state: AllocationLevels, lasted: f64) {
        self.total_weight += lasted;
        self.sum.gpu_allocated_percent += lasted * state.gpu_allocated_percent;
        self.sum.cpu_allocated_percent += lasted * state.cpu_allocated_percent;
        self.sum.memory_allocated_percent += lasted * state.memory_allocated_percent;
        self.sum.gpus_stranded += lasted * state.gpus_stranded;
    }

    /// The mean; if nothing lasted, the `last` state.
    pub(super) fn mean_or(self, last: AllocationLevels) -> AllocationLevels {
        if self.total_weight <= 0.0 {
            return last;
        }
        AllocationLevels {
            gpu_allocated_percent: self.sum.gpu_allocated_percent / self.total_weight,
            cpu_allocated_percent: self.sum.cpu_allocated_percent / self.total_weight,
            memory_allocated_percent: self.sum.memory_allocated_percent / self.total_weight,
            gpus_stranded: self.sum.gpus_stranded / self.total_weight,
        }
    }
}

impl PolicyOutcome {
    /// Levels at the end: without whole cycles the simulation ends with the last arrival.
    fn levels_at_end(&self) -> AllocationLevels {
        let cycles = self.cycles.as_ref();
        cycles.map_or(self.after_last_arrival, |cycles| cycles.at_end)
    }
}

impl SimulationReport {
    /// Prints the report as JSON.
    pub(super) fn json(&self) -> Result<(), CommandError> {
        let text = serde_json::to_string_pretty(self);
        output::line(&text.map_err(|error| CommandError::message(format!("error: the report as JSON: {error}")))?)
    }

    /// Outcomes of all tasks under all policies, as JSON lines.
    pub(super) fn task_lines(&self) -> Result<String, CommandError> {
        let mut lines = String::new();
        for outcome in self.policies.iter().flat_map(|outcome| &outcome.task_outcomes) {
            let line = serde_json::to_string(outcome);
            lines.push_str(&line.map_err(|error| CommandError::message(format!("error: a task as JSON: {error}")))?);
            lines.push('\n');
        }
        Ok(lines)
    }

    /// Prints the report as tables.
    pub(super) fn show(&self) -> Result<(), CommandError> {
        output::line(&format!(
            "{}, {} GPUs, {} cores; {}",
            output::count(self.nodes, "node"),
            output::number(self.gpus),
            output::number(self.cores),
            if self.departures {
                "tasks leave when their time is over"
            } else {
                "no task leaves"
            }
        ))?;
        output::line("")?;
        output::table(&self.policies_table())?;
        if self.policies.iter().any(|outcome| !outcome.cards.is_empty()) {
            output::line("")?;
            output::table(&self.cards_table())?;
        }
        if self.cycles.is_some() {
            output::line("")?;
            output::table(&self.queues_table())?;
        }
        self.print_rejections()?;
        output::line("")?;
        if self.cycles.is_some() {
            output::line(
                "TASKS, PLACED: tasks that arrived, and those of them that got a place; WAIT STILL: all tasks without a place, \
                 evicted ones as well",
            )?;
            output::line(
                "HELD, DUE: part of the cluster that the queue held, and that was its due by weight of what it asked for, on \
                 average; SHORT: part of its due that it did not hold",
            )?;
            self.print_unrest()?;
        }
        output::line("STRANDED: free GPUs with too little cpu or memory left beside them for the median GPU task")?;
        not_evaluated::print(&self.unevaluated_rows())
    }

    /// Plugins of all policies, each with the names of the policies, and the fields of records.
    fn unevaluated_rows(&self) -> Vec<UnevaluatedRow> {
        let named = |outcome: &PolicyOutcome, row: &UnevaluatedRow| UnevaluatedRow {
            subject: format!("policy {}", outcome.policy),
            ..row.clone()
        };
        let of_policies = self.policies.iter();
        let of_policies =
            of_policies.flat_map(|outcome| outcome.not_evaluated.iter().map(move |row| named(outcome, row)));
        of_policies.chain(self.not_evaluated.iter().cloned()).collect()
    }

    /// Names the tasks that stand still, and the policies under which the cluster did not come to rest.
    fn print_unrest(&self) -> Result<(), CommandError> {
        let cut = |outcome: &&PolicyOutcome| outcome.cycles.as_ref().is_some_and(|cycles| !cycles.came_to_rest);
        for outcome in &self.policies {
            for one in outcome.cycles.iter().flat_map(|cycles| &cycles.standstills) {
                output::line(&format!(
                    "{}: task {} waits for ever: from cycle {} ({}) on, the action {} pipelines it on {}, where nothing is \
                     being released, and no action binds it; put `allocate` before `{}`",
                    outcome.policy,
                    one.task,
                    one.cycle,
                    output::duration(one.seconds),
                    one.action,
                    one.node,
                    one.action,
                ))?;
            }
        }
        for outcome in self.policies.iter().filter(cut) {
            output::line(&format!(
                "{}: the simulation ended while tasks still ran or moved; --after lets it go on",
                outcome.policy
            ))?;
        }
        Ok(())
    }

    fn queues_table(&self) -> TextTable {
        let mut table = TextTable::new([
            "POLICY",
            "QUEUE",
            "TASKS",
            "PLACED",
            "WAIT STILL",
            "WAITED MEAN",
            "P95",
            "MAX",
            "EVICTED",
            "FOR OTHERS",
            "HELD",
            "DUE",
            "SHORT",
        ]);
        for outcome in &self.policies {
            for queue in outcome.cycles.iter().flat_map(|cycles| &cycles.queues) {
                // Without a task that was placed there is no waiting time.
                let waited = |seconds: f64| match queue.placed {
                    0 => String::new(),
                    _ => output::duration(seconds),
                };
                table.row([
                    outcome.policy.clone(),
                    queue.queue.clone(),
                    queue.arrived.to_string(),
                    queue.placed.to_string(),
                    queue.waiting.to_string(),
                    waited(queue.wait_mean_seconds),
                    waited(queue.wait_p95_seconds),
                    waited(queue.wait_max_seconds),
                    queue.evicted.to_string(),
                    queue.evicted_for_others.to_string(),
                    format!("{:.1} %", queue.held_percent),
                    format!("{:.1} %", queue.due_percent),
                    format!("{:.1} %", queue.short_percent),
                ]);
            }
        }
        table
    }

    fn policies_table(&self) -> TextTable {
        let mut table = TextTable::new([
            "POLICY",
            "TASKS",
            "PLACED",
            "WAITED",
            "WAIT STILL",
            "GPUS AT END",
            "MEAN",
            "CPU AT END",
            "STRANDED AT END",
            "MEAN",
            "CPU TASKS ON GPU NODES",
            if self.cycles.is_some() {
                "CYCLES/S"
            } else {
                "DECISIONS/S"
            },
        ]);
        for outcome in &self.policies {
            let (tasks, cpu, end, mean) = (outcome.tasks, outcome.cpu_only, outcome.levels_at_end(), outcome.mean);
            let share = 100.0 * cpu.on_gpu_nodes as f64 / (cpu.placed.max(1)) as f64;
            table.row([
                outcome.policy.clone(),
                tasks.arrived.to_string(),
                tasks.placed.to_string(),
                tasks.delayed.to_string(),
                tasks.waiting.to_string(),
                format!("{:.1} %", end.gpu_allocated_percent),
                format!("{:.1} %", mean.gpu_allocated_percent),
                format!("{:.1} %", end.cpu_allocated_percent),
                format!("{:.1}", end.gpus_stranded),
                format!("{:.1}", mean.gpus_stranded),
                format!("{} of {} ({share:.1} %)", cpu.on_gpu_nodes, cpu.placed),
                format!("{:.0}", outcome.decision_speed.per_second),
            ]);
        }
        table
    }

    /// Kinds of GPUs by policies: how much is allocated, and how many are stranded.
    fn cards_table(&self) -> TextTable {
        let head = ["CARD".to_owned(), "GPUS".to_owned()];
        let policies = self.policies.iter().map(|outcome| outcome.policy.clone());
        let mut table = TextTable::new(head.into_iter().chain(policies));
        let kinds: BTreeSet<&String> = self.policies.iter().flat_map(|outcome| outcome.cards.keys()).collect();
        for kind in kinds {
            let of = |outcome: &PolicyOutcome| outcome.cards.get(kind).copied().unwrap_or_default();
            let total = self.policies.first().map_or(0.0, |outcome| of(outcome).total);
            let cells = self.policies.iter().map(|outcome| {
                let cards = of(outcome);
                let share = 100.0 * cards.allocated / cards.total.max(1.0);
                format!("{share:.1} %, {:.1} stranded", cards.stranded)
            });
            table.row([kind.clone(), output::number(total)].into_iter().chain(cells));
        }
        table
    }

    fn print_rejections(&self) -> Result<(), CommandError> {
        for outcome in self.policies.iter().filter(|outcome| !outcome.rejected.is_empty()) {
            let shown = outcome.rejected.iter().take(REASONS_SHOWN);
            let words: Vec<String> = shown.map(|one| format!("{} by {}", one.tasks, one.reason)).collect();
            output::line(&format!(
                "\n{}: not placed at once: {}",
                outcome.policy,
                words.join("; ")
            ))?;
        }
        Ok(())
    }

    /// Draws the report.
    pub(super) fn chart(&self) -> String {
        let timed = self.departures || self.cycles.is_some();
        let axis = if timed {
            "hours after the first arrival"
        } else {
            "tasks that arrived"
        };
        let panel = |title: &str, label: &str, value: fn(&TimelineSample) -> f64| {
            let point = |sample: &TimelineSample| {
                let across = if timed {
                    sample.seconds / 3600.0
                } else {
                    sample.arrived as f64
                };
                (across, value(sample))
            };
            self.panel(title.to_owned(), axis, label, |outcome| {
                outcome.samples.iter().map(point).collect()
            })
        };
        let mut panels = vec![
            panel("GPUs allocated", "percent", |sample| sample.state.gpu_allocated_percent),
            panel("CPU allocated", "percent", |sample| sample.state.cpu_allocated_percent),
            panel("GPUs stranded", "GPUs", |sample| sample.state.gpus_stranded),
            panel("CPU-only tasks put on GPU nodes", "tasks", |sample| {
                sample.cpu_only_on_gpu_nodes as f64
            }),
            panel("Tasks that wait", "tasks", |sample| sample.waiting as f64),
        ];
        if self.cycles.is_some() {
            panels.push(panel("Tasks evicted", "tasks", |sample| sample.evicted as f64));
        }
        panels.extend(self.queue_panels(axis));
        render_svg("One workload under several policies", &panels, 2)
    }

    /// Panel with a line for each policy.
    fn panel(
        &self,
        title: String,
        axis: &str,
        label: &str,
        points: impl Fn(&PolicyOutcome) -> Vec<(f64, f64)>,
    ) -> PlotPanel {
        let lines = self.policies.iter().map(|outcome| PlotLine {
            name: outcome.policy.clone(),
            points: points(outcome),
        });
        PlotPanel {
            title,
            x: PlotAxis::linear(axis),
            y: PlotAxis::linear(label),
            lines: lines.collect(),
        }
    }

    /// Panels of the queues, in order: the part of the cluster that each held, and its tasks that waited.
    fn queue_panels(&self, axis: &str) -> Vec<PlotPanel> {
        let queues = self.policies.iter().filter_map(|outcome| outcome.cycles.as_ref());
        let names: BTreeSet<&String> = queues
            .flat_map(|cycles| cycles.queues.iter().map(|queue| &queue.queue))
            .collect();
        let panel = |title: String, label: &str, name: &String, value: fn(&QueueSample) -> f64| {
            self.panel(title, axis, label, |outcome| {
                let queues = outcome.cycles.iter().flat_map(|cycles| &cycles.queues);
                let samples = queues
                    .filter(|queue| queue.queue == *name)
                    .flat_map(|queue| &queue.samples);
                samples.map(|sample| (sample.seconds / 3600.0, value(sample))).collect()
            })
        };
        let shown = names.into_iter().take(QUEUES_DRAWN);
        shown
            .flat_map(|name| {
                [
                    panel(format!("Queue {name}: held"), "percent", name, |sample| {
                        sample.held_percent
                    }),
                    panel(format!("Queue {name}: tasks that wait"), "tasks", name, |sample| {
                        sample.waiting as f64
                    }),
                ]
            })
            .collect()
    }
}
