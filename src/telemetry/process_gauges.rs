//! Gauges of the process.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::integer_gauge::IntegerGauge;
use super::process::ProcessStats;

/// Metrics that are read from the operating system when the page is requested.
#[derive(Debug, Default)]
pub(super) struct ProcessGauges {
    resident: IntegerGauge,
    cpu: Counter<f64, AtomicU64>,
    threads: IntegerGauge,
    files: IntegerGauge,
    max_files: IntegerGauge,
    virtual_memory: IntegerGauge,
    start: Gauge<f64, AtomicU64>,
    uptime: Gauge<f64, AtomicU64>,
}

impl ProcessGauges {
    pub(super) fn register(&self, process: &mut Registry) {
        process.register_with_unit("resident_memory", "Memory in use", Unit::Bytes, self.resident.clone());
        process.register_with_unit("cpu", "Processor time used", Unit::Seconds, self.cpu.clone());
        process.register("threads", "Threads", self.threads.clone());
        process.register("open_fds", "Open files and sockets", self.files.clone());
        let help = "Number of files and sockets that may be open at once";
        process.register("max_fds", help, self.max_files.clone());
        let help = "Address space in use";
        process.register_with_unit("virtual_memory", help, Unit::Bytes, self.virtual_memory.clone());
        let help = "Start of the process, since 1970";
        process.register_with_unit("start_time", help, Unit::Seconds, self.start.clone());
        process.register_with_unit("uptime", "Time since the start", Unit::Seconds, self.uptime.clone());
    }

    /// Reads what the process uses; `uptime`: time since its start.
    pub(super) fn read(&self, uptime: Duration) {
        let ProcessStats {
            resident_bytes,
            cpu_seconds,
            threads,
            open_files,
            max_open_files,
            virtual_bytes,
            start_seconds,
        } = ProcessStats::now();
        self.uptime.set(uptime.as_secs_f64());
        self.resident.set(resident_bytes.unwrap_or_default());
        self.threads.set(threads.unwrap_or_default());
        self.files.set(open_files.unwrap_or_default());
        self.max_files.set(max_open_files.unwrap_or_default());
        self.virtual_memory.set(virtual_bytes.unwrap_or_default());
        self.start.set(start_seconds.unwrap_or_default());
        let more = cpu_seconds.unwrap_or_default() - self.cpu.get();
        if more > 0.0 {
            self.cpu.inc_by(more);
        }
    }
}
