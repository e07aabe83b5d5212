//! What a load showed, for people and for programs.

use serde_json::{Map, Value, json};

use super::load::{Load, Measured};
use super::tally::{Cause, Latencies, PERCENTILES};
use crate::cli::output::{self, Table, time};
use crate::cli::{Failure, Format};

/// A load, in words and figures.
#[derive(Debug)]
pub(super) struct Report<'l> {
    /// What was asked, of whom.
    pub(super) head: Vec<(&'static str, Value)>,
    /// The same in a sentence.
    pub(super) sentence: String,
    pub(super) load: &'l Load,
    pub(super) measured: &'l Measured,
}

impl Report<'_> {
    /// Shows it; fails if calls did.
    pub(super) fn show(&self, format: Format) -> Result<(), Failure> {
        match format {
            Format::Json => self.json()?,
            Format::Table => self.table()?,
        }
        let (tally, failed) = (&self.measured.tally, self.measured.tally.failures());
        if failed > 0 {
            let calls = failed.saturating_add(tally.all()?.count());
            return Err(Failure::said(format!("error: {failed} of {calls} calls failed")));
        }
        Ok(())
    }

    /// Calls answered per second.
    fn throughput(&self, answered: u64) -> f64 {
        let seconds = self.measured.elapsed.as_secs_f64();
        if seconds > 0.0 { answered as f64 / seconds } else { 0.0 }
    }

    fn table(&self) -> Result<(), Failure> {
        let measured = self.measured;
        let all = measured.tally.all()?;
        output::line(&self.sentence)?;
        output::line(&format!(
            "{}{:.1} s after {:.1} s of warm-up: {} answered, {} failed, {:.1} answers per second",
            if measured.interrupted { "interrupted; " } else { "" },
            measured.elapsed.as_secs_f64(),
            self.load.warm_up.as_secs_f64(),
            all.count(),
            measured.tally.failures(),
            self.throughput(all.count()),
        ))?;
        let mut table = Table::new(["", "p50", "p90", "p99", "p99.9", "max", "calls"]);
        row(&mut table, "latency", &all);
        if self.load.rate.is_none() {
            row(&mut table, "corrected", &all.corrected());
        }
        if measured.tally.answered.len() > 1 {
            for (kind, latencies) in &measured.tally.answered {
                row(&mut table, &format!("  {}", kind.name()), latencies);
            }
        }
        if self.load.rate.is_some() {
            row(&mut table, "begun late", &measured.tally.late);
        }
        output::table(&table)?;
        self.remarks()?;
        for (cause, count) in &measured.tally.failed {
            output::line(&format!("failed: {count} × {}", said(cause)))?;
        }
        Ok(())
    }

    fn remarks(&self) -> Result<(), Failure> {
        output::line(if self.load.rate.is_some() {
            "open loop: latency counts from the moment a call was due, so that waiting for a slow server shows;\n\
             begun late: how much of it passed before the call was sent, for want of a free caller or of processor time here"
        } else {
            "closed loop: each caller waits for its answer before it asks again, so that a stall is one slow call, however \
             long;\ncorrected: as if callers had gone on asking once per median meanwhile. --rate measures it instead"
        })?;
        match &self.measured.server {
            Ok(cost) => {
                let task = cost.per_task.map(|task| format!(", {} per task judged", time(task)));
                output::line(&format!(
                    "server: {} of processor time per call{}",
                    time(cost.per_call),
                    task.unwrap_or_default()
                ))
            }
            Err(why) => output::line(&format!("server: processor time not known ({why})")),
        }
    }

    fn json(&self) -> Result<(), Failure> {
        let (load, measured) = (self.load, self.measured);
        let all = measured.tally.all()?;
        let mut report: Map<String, Value> = self
            .head
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        let kinds = measured.tally.answered.iter();
        let failed = measured.tally.failed.iter();
        let fields = [
            ("loop", json!(if load.rate.is_some() { "open" } else { "closed" })),
            ("rate", json!(load.rate)),
            ("callers", json!(load.callers)),
            ("warm_up_seconds", json!(load.warm_up.as_secs_f64())),
            ("seconds", json!(measured.elapsed.as_secs_f64())),
            ("interrupted", json!(measured.interrupted)),
            ("answered", json!(all.count())),
            ("failed", json!(measured.tally.failures())),
            ("answers_per_second", json!(self.throughput(all.count()))),
            ("latency_seconds", figures(&all)),
            (
                "questions",
                kinds
                    .map(|(kind, latencies)| (kind.name().to_owned(), figures(latencies)))
                    .collect(),
            ),
            (
                "failures",
                failed
                    .map(|(cause, count)| json!({ "code": cause.code, "reason": cause.reason, "calls": count }))
                    .collect(),
            ),
            (
                "server_cpu_seconds_per_call",
                json!(measured.server.as_ref().ok().map(|cost| cost.per_call)),
            ),
            (
                "server_cpu_seconds_per_task",
                json!(measured.server.as_ref().ok().and_then(|cost| cost.per_task)),
            ),
        ];
        report.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        if load.rate.is_some() {
            report.insert("begun_late_seconds".to_owned(), figures(&measured.tally.late));
        } else {
            report.insert("corrected_latency_seconds".to_owned(), figures(&all.corrected()));
        }
        let text = serde_json::to_string_pretty(&Value::Object(report))
            .map_err(|error| Failure::said(format!("error: JSON: {error}")))?;
        output::line(&text)
    }
}

fn said(cause: &Cause) -> String {
    if cause.reason.is_empty() {
        cause.code.clone()
    } else {
        format!("{} ({})", cause.code, cause.reason)
    }
}

fn row(table: &mut Table, name: &str, latencies: &Latencies) {
    let mut row = vec![name.to_owned()];
    row.extend(PERCENTILES.map(|(_, quantile)| time(latencies.quantile(quantile))));
    row.extend([time(latencies.max()), latencies.count().to_string()]);
    table.row(row);
}

fn figures(latencies: &Latencies) -> Value {
    let mut figures: Map<String, Value> = PERCENTILES
        .map(|(name, quantile)| (name.to_owned(), json!(latencies.quantile(quantile))))
        .into_iter()
        .collect();
    figures.insert("max".to_owned(), json!(latencies.max()));
    figures.insert("calls".to_owned(), json!(latencies.count()));
    Value::Object(figures)
}
