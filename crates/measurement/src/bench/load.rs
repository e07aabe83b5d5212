//! A load on a server: callers, the open and the closed loop, and the measurements that the server reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::queries::BenchQueries;
use super::queries::ErrorCause;
use super::schedule::CallSchedule;
use super::stats::CallStats;
use pumice_console::CommandError;
use pumice_console::scrape::{MetricsAddress, MetricsPage};
use pumice_protocol::ClientConnection;

/// Size and kind of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadSpec {
    /// Calls per second. Absent: a closed loop.
    pub(super) rate: Option<f64>,
    pub(super) callers: usize,
    pub(super) warm_up: Duration,
    /// Duration of the measurement, unless a number of calls is given.
    pub(super) duration: Duration,
    /// Number of calls to measure.
    pub(super) count: Option<u64>,
    /// Time limit of each call.
    pub(super) timeout: Duration,
}

/// Measurements of a run, and its length.
#[derive(Debug)]
pub(super) struct LoadResult {
    pub(super) stats: CallStats,
    pub(super) elapsed: Duration,
    pub(super) server_cost: Result<ServerCost, String>,
    /// True if a signal ended the run.
    pub(super) interrupted: bool,
}

/// Cost of the calls, as the server reports it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerCost {
    /// Processor time per call, in seconds.
    pub(super) per_call: f64,
    /// Processor time per evaluated task, in seconds. Absent: tasks were not evaluated.
    pub(super) per_task: Option<f64>,
}

/// State that all callers share.
#[derive(Debug)]
struct LoadRun {
    queries: BenchQueries,
    load: LoadSpec,
    /// Start of the measurement.
    measure_from: Instant,
    schedule: Option<CallSchedule>,
    /// Calls of a closed loop that were begun after the warm-up.
    calls_begun: AtomicU64,
    stopped: AtomicBool,
    progress: ProgressBar,
}

impl LoadSpec {
    /// Number of calls for the progress bar. `None`: the bar shows milliseconds.
    fn planned_calls(&self) -> Option<u64> {
        match (self.rate, self.count) {
            (_, Some(count)) => Some(count),
            (Some(rate), None) => Some(call_count(rate, self.duration)),
            (None, None) => None,
        }
    }

    /// Metrics before a load without a warm-up: a short one would end before their answer.
    async fn early_metrics(self, metrics: &MetricsAddress) -> Option<Result<MetricsPage, String>> {
        if self.warm_up.is_zero() {
            Some(MetricsPage::fetch(metrics).await)
        } else {
            None
        }
    }

    /// Runs the load against a server.
    pub(super) async fn run(
        self,
        queries: BenchQueries,
        connections: &[ClientConnection],
        metrics: &MetricsAddress,
    ) -> Result<LoadResult, CommandError> {
        let early = self.early_metrics(metrics).await;
        let start = Instant::now();
        let begin = start + self.warm_up;
        let warm = self.rate.map_or(0, |rate| call_count(rate, self.warm_up));
        let pace = self.rate.map(|rate| {
            CallSchedule::new(
                start,
                rate,
                warm.saturating_add(self.planned_calls().unwrap_or_default()),
            )
        });
        let shared = Arc::new(LoadRun {
            queries,
            load: self,
            measure_from: begin,
            schedule: pace,
            calls_begun: 0.into(),
            stopped: false.into(),
            progress: pumice_console::output::progress(
                self.planned_calls().unwrap_or_else(|| whole_seconds(self.duration)),
                "asking",
            ),
        });
        let mut callers = JoinSet::new();
        for connection in connections.iter().cycle().take(self.callers).cloned() {
            let shared = Arc::clone(&shared);
            callers.spawn(async move {
                match &shared.schedule {
                    Some(pace) => shared.run_open_loop(pace, warm, connection).await,
                    None => shared.run_closed_loop(connection).await,
                }
            });
        }
        let pacing = Arc::clone(&shared);
        let pacing = tokio::task::spawn_blocking(move || {
            if let Some(pace) = &pacing.schedule {
                pace.release_due_calls(self.callers);
            }
        });
        let before = tokio::spawn(metrics_at_start(early, begin, metrics.clone()));
        let mut tally = CallStats::new()?;
        let interrupted = shared.join_callers(callers, &mut tally).await?;
        shared.progress.finish_and_clear();
        // The thread is done when the callers are.
        let _ = pacing.await;
        let answered = tally.total_latency()?.count();
        let server = match before.await {
            Ok(before) => server_cost(before, MetricsPage::fetch(metrics).await, answered),
            Err(error) => Err(error.to_string()),
        };
        let ended = tally.last_ended.unwrap_or(begin);
        Ok(LoadResult {
            elapsed: ended.saturating_duration_since(begin),
            stats: tally,
            server_cost: server,
            interrupted,
        })
    }
}

/// Number of calls that a rate makes in a time, at least one.
fn call_count(rate: f64, time: Duration) -> u64 {
    let calls = (rate * time.as_secs_f64()).ceil();
    Duration::try_from_secs_f64(calls).map_or(u64::MAX, |calls| calls.as_secs())
}

/// Whole seconds, for a bar.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().max(1)
}

/// Metrics of the server at the start of the measurement, unless they are there already.
async fn metrics_at_start(
    early: Option<Result<MetricsPage, String>>,
    begin: Instant,
    metrics: MetricsAddress,
) -> Result<MetricsPage, String> {
    if let Some(page) = early {
        return page;
    }
    tokio::time::sleep_until(begin).await;
    MetricsPage::fetch(&metrics).await
}

fn server_cost(
    before: Result<MetricsPage, String>,
    after: Result<MetricsPage, String>,
    answered: u64,
) -> Result<ServerCost, String> {
    let (before, after) = (before?, after?);
    let grown = |name: &str| Some(after.sum(name)? - before.sum(name).unwrap_or_default());
    let cpu = grown("process_cpu_seconds_total").ok_or("the server does not tell its processor time")?;
    let calls = grown("pumice_calls_total").unwrap_or_default();
    // The page was asked for a moment after the first calls.
    if answered == 0 {
        return Err("nothing was answered".to_owned());
    }
    if calls < answered as f64 * 0.9 {
        return Err("the figures are of another server; name the right one with --metrics".to_owned());
    }
    let tasks = grown("pumice_decided_tasks_total").filter(|tasks| *tasks > 0.0);
    Ok(ServerCost {
        per_call: cpu / calls,
        per_task: tasks.map(|tasks| cpu / tasks),
    })
}

impl LoadRun {
    /// Waits for all callers. Returns whether a signal ended the run early.
    async fn join_callers(
        &self,
        mut callers: JoinSet<Result<CallStats, CommandError>>,
        tally: &mut CallStats,
    ) -> Result<bool, CommandError> {
        let mut interrupted = false;
        let mut tick = tokio::time::interval(Duration::from_millis(250));
        let signal = tokio::signal::ctrl_c();
        tokio::pin!(signal);
        loop {
            tokio::select! {
                ended = callers.join_next() => match ended {
                    Some(Ok(own)) => tally.merge(own?),
                    Some(Err(error)) => return Err(CommandError::message(format!("error: a caller ended badly: {error}"))),
                    None => return Ok(interrupted),
                },
                _ = &mut signal, if !interrupted => {
                    interrupted = true;
                    self.stopped.store(true, Ordering::Relaxed);
                    if let Some(pace) = &self.schedule {
                        pace.stop();
                    }
                }
                _ = tick.tick() => if self.load.planned_calls().is_none() {
                    self.progress.set_position(Instant::now().saturating_duration_since(self.measure_from).as_secs());
                },
            }
        }
    }

    /// Runs a caller of an open loop, which takes calls as they become due. A latency starts at the due time. It
    /// therefore includes the wait for a free caller if the server is slow.
    async fn run_open_loop(
        &self,
        pace: &CallSchedule,
        warm: u64,
        mut connection: ClientConnection,
    ) -> Result<CallStats, CommandError> {
        let mut tally = CallStats::new()?;
        while let Some(turn) = pace.next_call().await {
            let begun = Instant::now();
            if begun > pace.last_due_time() + self.load.timeout {
                // A call that no caller was free to make for so long is dropped.
                let cause = ErrorCause {
                    code: "not begun in time".to_owned(),
                    reason: String::new(),
                };
                tally.record_call(self.queries.query_at(turn.number), [turn.due, begun, begun], Err(cause))?;
                continue;
            }
            let (kind, outcome) = self.queries.call(&mut connection, turn.number, self.load.timeout).await;
            if turn.number >= warm {
                tally.record_call(kind, [turn.due, begun, Instant::now()], outcome)?;
                self.progress.inc(1);
            }
        }
        Ok(tally)
    }

    /// Runs a caller of a closed loop, which asks again as soon as it has its result.
    async fn run_closed_loop(&self, mut connection: ClientConnection) -> Result<CallStats, CommandError> {
        let mut tally = CallStats::new()?;
        let mut warming: u64 = 0;
        while !self.stopped.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let measured = begun >= self.measure_from;
            // All callers count together, so that queries are mixed in the stated proportion.
            let number = if measured {
                let before = self.calls_begun.fetch_add(1, Ordering::Relaxed);
                let over = begun >= self.measure_from + self.load.duration;
                if self.load.count.map_or(over, |count| before >= count) {
                    break;
                }
                before
            } else {
                warming = warming.wrapping_add(1);
                warming
            };
            let (kind, outcome) = self.queries.call(&mut connection, number, self.load.timeout).await;
            if measured {
                tally.record_call(kind, [begun, begun, Instant::now()], outcome)?;
                if self.load.count.is_some() {
                    self.progress.inc(1);
                }
            }
        }
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_cost_is_the_difference_of_two_metrics_pages() {
        let page = |cpu: f64, calls: f64, tasks: f64| {
            Ok(MetricsPage::parse(&format!(
                "process_cpu_seconds_total {cpu}\npumice_calls_total{{rpc=\"Filter\",code=\"OK\"}} {calls}\n\
                 pumice_decided_tasks_total{{rpc=\"Filter\"}} {tasks}\n"
            )))
        };
        let between = |answered| server_cost(page(1.0, 100.0, 400.0), page(1.5, 200.0, 800.0), answered);
        let own = between(100).unwrap();
        assert!((own.per_call - 0.005).abs() < 1e-12);
        assert!((own.per_task.unwrap() - 0.001_25).abs() < 1e-12);
        assert!(between(1000).unwrap_err().contains("another server"));
        assert_eq!(between(0).unwrap_err(), "nothing was answered");
    }

    #[test]
    fn a_rate_and_a_time_are_a_number_of_calls() {
        assert_eq!(call_count(100.0, Duration::from_millis(2500)), 250);
        assert_eq!(call_count(0.5, Duration::from_secs(1)), 1);
        assert_eq!(call_count(f64::MAX, Duration::from_secs(10)), u64::MAX);
    }
}
