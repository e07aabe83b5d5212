//! Gauges of the process.

use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use rustix::process::{Resource, getrlimit};

use super::integer_gauge::{IntegerGauge, count};
use super::process::{TICKS_PER_SECOND, boot_seconds, resident_bytes, stat_fields};

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
        let [user, system, threads, begin, virtual_bytes] = stat_fields();
        self.uptime.set(uptime.as_secs_f64());
        self.resident.set(resident_bytes().unwrap_or_default());
        self.threads.set(threads.unwrap_or_default());
        let files = fs::read_dir("/proc/self/fd");
        self.files.set(files.map_or(0, |files| count(files.count())));
        self.max_files
            .set(getrlimit(Resource::Nofile).current.unwrap_or_default());
        self.virtual_memory.set(virtual_bytes.unwrap_or_default());
        let start = begin.zip(boot_seconds());
        let start = start.map(|(ticks, boot)| boot as f64 + ticks as f64 / TICKS_PER_SECOND);
        self.start.set(start.unwrap_or_default());
        let ticks = user.zip(system).map_or(0, |(user, system)| user + system);
        let more = ticks as f64 / TICKS_PER_SECOND - self.cpu.get();
        if more > 0.0 {
            self.cpu.inc_by(more);
        }
    }
}
