//! Report of a load, for people and for programs.

use serde_json::{Map, Value, json};

use super::load::{LoadResult, LoadSpec};
use super::queries::ErrorCause;
use super::stats::{LatencyHistogram, PERCENTILES};
use pumice_console::args::value_name;
use pumice_console::output::{self, TextTable, duration};
use pumice_console::{CommandError, OutputFormat};

/// Report of a load.
#[derive(Debug)]
pub(super) struct BenchReport<'l> {
    /// Settings of the load and of the server, for JSON.
    pub(super) head: Vec<(&'static str, Value)>,
    /// Settings of the load in a sentence.
    pub(super) summary: String,
    pub(super) load: &'l LoadSpec,
    pub(super) result: &'l LoadResult,
}

impl BenchReport<'_> {
    /// Prints the report. Fails if calls failed.
    pub(super) fn show(&self, format: OutputFormat) -> Result<(), CommandError> {
        match format {
            OutputFormat::Json => self.json()?,
            OutputFormat::Table => self.table()?,
        }
        let (tally, failed) = (&self.result.stats, self.result.stats.failed_count());
        if failed > 0 {
            let calls = failed.saturating_add(tally.total_latency()?.count());
            return Err(CommandError::message(format!(
                "error: {failed} of {calls} calls failed"
            )));
        }
        Ok(())
    }

    /// Completed calls per second.
    fn throughput(&self, completed: u64) -> f64 {
        let seconds = self.result.elapsed.as_secs_f64();
        if seconds > 0.0 { completed as f64 / seconds } else { 0.0 }
    }

    fn table(&self) -> Result<(), CommandError> {
        let measured = self.result;
        let all = measured.stats.total_latency()?;
        output::line(&self.summary)?;
        output::line(&format!(
            "{}{:.1} s after {:.1} s of warm-up: {} completed, {} failed, {:.1} results per second",
            if measured.interrupted { "interrupted; " } else { "" },
            measured.elapsed.as_secs_f64(),
            self.load.warm_up.as_secs_f64(),
            all.count(),
            measured.stats.failed_count(),
            self.throughput(all.count()),
        ))?;
        let mut table = TextTable::new(["", "p50", "p90", "p99", "p99.9", "max", "calls"]);
        latency_row(&mut table, "latency", &all);
        if self.load.rate.is_none() {
            latency_row(&mut table, "corrected", &all.corrected());
        }
        if measured.stats.completed.len() > 1 {
            for (kind, latencies) in &measured.stats.completed {
                latency_row(&mut table, &format!("  {}", value_name(kind)), latencies);
            }
        }
        if self.load.rate.is_some() {
            latency_row(&mut table, "start delay", &measured.stats.start_delay);
        }
        output::table(&table)?;
        self.print_remarks()?;
        for (cause, count) in &measured.stats.failed {
            output::line(&format!("failed: {count} × {}", cause_text(cause)))?;
        }
        Ok(())
    }

    fn print_remarks(&self) -> Result<(), CommandError> {
        output::line(if self.load.rate.is_some() {
            "open loop: latency counts from the moment a call was due, so that waiting for a slow server shows;\n\
             start delay: how much of it passed before the call was sent, because no caller or no processor was free here"
        } else {
            "closed loop: each caller waits for its result before it asks again, so that a stall is one slow call, however \
             long;\ncorrected: as if callers had gone on asking once per median meanwhile. --rate measures it instead"
        })?;
        match &self.result.server_cost {
            Ok(cost) => {
                let task = cost
                    .per_task
                    .map(|task| format!(", {} per task judged", duration(task)));
                output::line(&format!(
                    "server: {} of processor time per call{}",
                    duration(cost.per_call),
                    task.unwrap_or_default()
                ))
            }
            Err(why) => output::line(&format!("server: processor time not known ({why})")),
        }
    }

    fn json(&self) -> Result<(), CommandError> {
        let (load, measured) = (self.load, self.result);
        let all = measured.stats.total_latency()?;
        let mut report: Map<String, Value> = self
            .head
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        let kinds = measured.stats.completed.iter();
        let failed = measured.stats.failed.iter();
        let fields = [
            ("loop", json!(if load.rate.is_some() { "open" } else { "closed" })),
            ("rate", json!(load.rate)),
            ("callers", json!(load.callers)),
            ("warmUpSeconds", json!(load.warm_up.as_secs_f64())),
            ("seconds", json!(measured.elapsed.as_secs_f64())),
            ("interrupted", json!(measured.interrupted)),
            ("completed", json!(all.count())),
            ("failed", json!(measured.stats.failed_count())),
            ("resultsPerSecond", json!(self.throughput(all.count()))),
            ("latencySeconds", latency_json(&all)),
            (
                "queries",
                kinds
                    .map(|(kind, latencies)| (value_name(kind), latency_json(latencies)))
                    .collect(),
            ),
            (
                "errors",
                failed
                    .map(|(cause, count)| json!({ "code": cause.code, "reason": cause.reason, "calls": count }))
                    .collect(),
            ),
            (
                "serverCpuSecondsPerCall",
                json!(measured.server_cost.as_ref().ok().map(|cost| cost.per_call)),
            ),
            (
                "serverCpuSecondsPerTask",
                json!(measured.server_cost.as_ref().ok().and_then(|cost| cost.per_task)),
            ),
        ];
        report.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        if load.rate.is_some() {
            report.insert(
                "startDelaySeconds".to_owned(),
                latency_json(&measured.stats.start_delay),
            );
        } else {
            report.insert("correctedLatencySeconds".to_owned(), latency_json(&all.corrected()));
        }
        output::report(&report)
    }
}

fn cause_text(cause: &ErrorCause) -> String {
    if cause.reason.is_empty() {
        cause.code.clone()
    } else {
        format!("{} ({})", cause.code, cause.reason)
    }
}

pub(super) fn latency_row(table: &mut TextTable, name: &str, latencies: &LatencyHistogram) {
    let mut row = vec![name.to_owned()];
    row.extend(PERCENTILES.map(|(_, quantile)| duration(latencies.quantile(quantile))));
    row.extend([duration(latencies.max()), latencies.count().to_string()]);
    table.row(row);
}

fn latency_json(latencies: &LatencyHistogram) -> Value {
    let mut measurements: Map<String, Value> = PERCENTILES
        .map(|(name, quantile)| (name.to_owned(), json!(latencies.quantile(quantile))))
        .into_iter()
        .collect();
    measurements.insert("max".to_owned(), json!(latencies.max()));
    measurements.insert("calls".to_owned(), json!(latencies.count()));
    Value::Object(measurements)
}
