//! Report of a fleet, for people and for programs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::scheduler::FleetCall;
use super::{FleetArgs, FleetRun};
use crate::bench::queries::ErrorCause;
use crate::bench::report::latency_row;
use crate::bench::stats::{LatencyHistogram, PERCENTILES};
use pumice_console::output::{self, TextTable};
use pumice_console::{CommandError, OutputFormat};

/// Part of the calls, the last ones, that is reported by itself: the nodes are fullest then.
const LAST_PART: usize = 10;
/// Maximum number of violations that are shown.
const SHOWN_VIOLATIONS: usize = 20;

/// Report of a run.
#[derive(Debug)]
pub(super) struct FleetReport<'r> {
    pub(super) args: &'r FleetArgs,
    pub(super) run: &'r FleetRun,
}

/// Tries of some calls.
#[derive(Debug, Clone, Copy, Default)]
struct TrySummary {
    calls: usize,
    placed: u64,
    /// Calls whose first choice did not hold.
    conflicted: usize,
    /// Times that nodes were chosen, of all calls.
    tries: u64,
}

impl TrySummary {
    fn of(calls: &[FleetCall]) -> Self {
        let mut own = Self::default();
        for call in calls {
            own.calls += 1;
            own.placed = own.placed.saturating_add(call.placed.into());
            own.conflicted += usize::from(call.tries > 1);
            own.tries = own.tries.saturating_add(call.tries.into());
        }
        own
    }

    fn conflict_percent(self) -> f64 {
        if self.calls == 0 {
            return 0.0;
        }
        self.conflicted as f64 * 100.0 / self.calls as f64
    }
}

impl FleetReport<'_> {
    /// Prints the report. Fails if the check found a violation, or a call failed.
    pub(super) fn show(&self) -> Result<(), CommandError> {
        match self.args.output {
            OutputFormat::Json => self.json()?,
            OutputFormat::Table => self.table()?,
        }
        let violations = &self.run.violations;
        if let Some(first) = violations.first() {
            let message = format!(
                "error: the history breaks {} rules, the first: {first}",
                violations.len()
            );
            return Err(CommandError::message(message));
        }
        let failed: u64 = self.failed().values().sum();
        if failed > 0 {
            return Err(CommandError::message(format!("error: {failed} calls failed")));
        }
        Ok(())
    }

    /// Calls of all schedulers, in the order of their ends.
    fn calls(&self) -> Vec<FleetCall> {
        let mut calls: Vec<FleetCall> = self.run.logs.iter().flat_map(|log| log.calls.iter().copied()).collect();
        calls.sort_by_key(|call| call.ended);
        calls
    }

    fn failed(&self) -> BTreeMap<&ErrorCause, u64> {
        let mut all = BTreeMap::new();
        for (cause, count) in self.run.logs.iter().flat_map(|log| &log.failed) {
            let own: &mut u64 = all.entry(cause).or_default();
            *own = own.saturating_add(*count);
        }
        all
    }

    fn latencies(&self) -> Result<LatencyHistogram, CommandError> {
        let mut all = LatencyHistogram::new()?;
        for log in &self.run.logs {
            all.merge(&log.latencies);
        }
        Ok(all)
    }

    fn unplaced(&self) -> usize {
        self.run.logs.iter().map(|log| log.unplaced).sum()
    }

    /// Placements per second of the slowest and of the fastest scheduler, each until its own end.
    fn rates_by_scheduler(&self) -> (f64, f64) {
        let rate = |calls: &[FleetCall]| {
            let ended = calls.iter().map(|call| call.ended).max();
            let seconds = ended.map_or(0.0, |ended| {
                ended.saturating_duration_since(self.run.begun).as_secs_f64()
            });
            per_second(TrySummary::of(calls).placed, seconds)
        };
        let rates = self.run.logs.iter().map(|log| rate(&log.calls));
        rates.fold((f64::INFINITY, 0.0), |(least, most), rate| {
            (least.min(rate), most.max(rate))
        })
    }

    fn table(&self) -> Result<(), CommandError> {
        let (args, calls) = (self.args, self.calls());
        let (all, last) = (TrySummary::of(&calls), TrySummary::of(last_part(&calls)));
        let seconds = self.run.elapsed.as_secs_f64();
        output::line(&format!(
            "{} schedulers with {} each place jobs of {} tasks on {} nodes",
            args.schedulers,
            output::count(args.in_flight.into(), "call"),
            args.gang,
            args.nodes
        ))?;
        output::line(&format!(
            "{} tasks committed in {seconds:.1} s: {:.0} per second; {} jobs without nodes",
            all.placed,
            per_second(all.placed, seconds),
            self.unplaced()
        ))?;
        let latencies = self.latencies()?;
        let mut table = TextTable::new(["", "p50", "p90", "p99", "p99.9", "max", "calls"]);
        latency_row(&mut table, "latency", &latencies);
        output::table(&table)?;
        output::line(&format!(
            "conflicts: {:.2} % of the calls, {:.2} % of the last tenth; {} choices for {} calls",
            all.conflict_percent(),
            last.conflict_percent(),
            all.tries,
            all.calls
        ))?;
        let (slowest, fastest) = self.rates_by_scheduler();
        output::line(&format!(
            "callers: {slowest:.0} to {fastest:.0} placements per second each"
        ))?;
        for (cause, count) in self.failed() {
            output::line(&format!("failed: {count} × {} {}", cause.code, cause.reason))?;
        }
        for violation in self.run.violations.iter().take(SHOWN_VIOLATIONS) {
            output::line(&format!("violation: {violation}"))?;
        }
        if self.run.violations.is_empty() {
            output::line("checked: no node holds too much, no task has two places, and the server shows the same")?;
        }
        Ok(())
    }

    fn json(&self) -> Result<(), CommandError> {
        let (args, calls) = (self.args, self.calls());
        let (all, last) = (TrySummary::of(&calls), TrySummary::of(last_part(&calls)));
        let seconds = self.run.elapsed.as_secs_f64();
        let latencies = self.latencies()?;
        let quantiles = PERCENTILES
            .iter()
            .map(|(name, at)| ((*name).to_owned(), json!(latencies.quantile(*at))));
        let mut latency: Map<String, Value> = quantiles.collect();
        latency.insert("max".to_owned(), json!(latencies.max()));
        let (slowest, fastest) = self.rates_by_scheduler();
        let failed = self
            .failed()
            .into_iter()
            .map(|(cause, count)| json!({"code": cause.code, "reason": cause.reason, "calls": count}));
        let violations = self
            .run
            .violations
            .iter()
            .take(SHOWN_VIOLATIONS)
            .map(|one| json!(one.to_string()));
        let report = json!({
            "schedulers": args.schedulers,
            "inFlight": args.in_flight,
            "nodes": args.nodes,
            "tasks": args.tasks,
            "tasksPerJob": args.gang,
            "fillPercent": args.fill,
            "seconds": seconds,
            "calls": all.calls,
            "committed": all.placed,
            "committedPerSecond": per_second(all.placed, seconds),
            "unplacedJobs": self.unplaced(),
            "latencySeconds": latency,
            "tries": all.tries,
            "conflictPercent": all.conflict_percent(),
            "conflictPercentOfLastTenth": last.conflict_percent(),
            "callerPerSecond": {"least": slowest, "most": fastest},
            "failed": failed.collect::<Vec<Value>>(),
            "violationCount": self.run.violations.len(),
            "violations": violations.collect::<Vec<Value>>(),
        });
        output::document(&format!("{report:#}\n"))
    }
}

/// The last calls, when the nodes are fullest.
fn last_part(calls: &[FleetCall]) -> &[FleetCall] {
    let from = calls.len() - calls.len().div_ceil(LAST_PART);
    calls.get(from..).unwrap_or_default()
}

fn per_second(placed: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { placed as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use tokio::time::Instant;

    use super::*;
    use crate::placement_history::HistoryViolation;

    #[derive(Debug, Parser)]
    struct FleetCommandLine {
        #[command(flatten)]
        args: FleetArgs,
    }

    #[test]
    fn a_violation_fails_the_command() {
        let line = FleetCommandLine::parse_from(["fleet", "-o", "json"]);
        let mut run = FleetRun {
            logs: Vec::new(),
            elapsed: Duration::from_secs(1),
            begun: Instant::now(),
            violations: Vec::new(),
        };
        let shown = |run: &FleetRun| FleetReport { args: &line.args, run }.show();
        shown(&run).unwrap();
        run.violations
            .push(HistoryViolation::UnknownName { name: "n9".to_owned() });
        let error = shown(&run).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(
            error.to_string().contains("the history breaks 1 rules, the first: "),
            "{error}"
        );
    }

    #[test]
    fn the_last_tenth_is_summed_up_by_itself() {
        let call = |tries| FleetCall {
            ended: Instant::now(),
            tries,
            placed: 4,
        };
        let calls: Vec<FleetCall> = (0..20).map(|number| call(if number >= 19 { 3 } else { 1 })).collect();
        let (all, last) = (TrySummary::of(&calls), TrySummary::of(last_part(&calls)));
        assert_eq!((all.calls, all.placed, all.tries), (20, 80, 22));
        assert!((all.conflict_percent() - 5.0).abs() < 1e-9);
        assert_eq!(last.calls, 2);
        assert!((last.conflict_percent() - 50.0).abs() < 1e-9);
        assert!(last_part(&[]).is_empty());
    }
}
