//! Measurements of the process itself, from the kernel.

use std::fs;

/// Kernel's measurements of this process; absent where the kernel gives none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessStats {
    /// Memory in use, in bytes.
    pub(super) resident_bytes: Option<u64>,
    /// Processor time used, in seconds.
    pub(super) cpu_seconds: Option<f64>,
    /// Threads.
    pub(super) threads: Option<u64>,
    /// Open files, including sockets.
    pub(super) open_files: Option<u64>,
}

/// Kernel ticks per second, as user space sees them on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Indices in `stat` after the command, which may contain blanks: user time, system time, threads.
const STAT_FIELDS: [usize; 3] = [11, 12, 17];

impl ProcessStats {
    /// Reads the measurements from the kernel.
    pub(super) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = resident.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map(|(_, fields)| fields.split_whitespace().collect())
            .unwrap_or_default();
        let [user, system, threads] = STAT_FIELDS.map(|at| fields.get(at).and_then(|field| field.parse::<u64>().ok()));
        Self {
            resident_bytes: kibibytes.map(|kibibytes| kibibytes * 1_024),
            cpu_seconds: user
                .zip(system)
                .map(|(user, system)| (user + system) as f64 / TICKS_PER_SECOND),
            threads,
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64),
        }
    }
}
