//! Measurements of the process itself, from the kernel.

use std::fs;

/// Kernel's measurements of this process; absent where the kernel gives none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessStats {
    /// Memory in use, in bytes.
    pub(super) resident_bytes: Option<u64>,
    /// Processor time used, in seconds.
    pub(super) cpu_seconds: Option<f64>,
    /// Number of operating-system threads.
    pub(super) threads: Option<u64>,
    /// Open files, including sockets.
    pub(super) open_files: Option<u64>,
    /// Number of files that may be open at once.
    pub(super) max_open_files: Option<u64>,
    /// Address space in use, in bytes.
    pub(super) virtual_bytes: Option<u64>,
    /// Start of the process, in seconds since 1970.
    pub(super) start_seconds: Option<f64>,
}

/// Kernel ticks per second, as user space sees them on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Indices in `stat` after the command, which may contain blanks: user time, system time, threads, start of the process
/// in ticks since boot, bytes of address space.
const STAT_FIELDS: [usize; 5] = [11, 12, 17, 19, 20];

/// Memory of the process in bytes, from the kernel.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes = resident.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(kibibytes * 1_024)
}

impl ProcessStats {
    /// Reads the measurements from the kernel.
    pub(super) fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map(|(_, fields)| fields.split_whitespace().collect())
            .unwrap_or_default();
        let [user, system, threads, begin, virtual_bytes] =
            STAT_FIELDS.map(|at| fields.get(at).and_then(|field| field.parse::<u64>().ok()));
        Self {
            resident_bytes: resident_bytes(),
            cpu_seconds: user
                .zip(system)
                .map(|(user, system)| (user + system) as f64 / TICKS_PER_SECOND),
            threads,
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64),
            max_open_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            virtual_bytes,
            start_seconds: begin
                .zip(boot_seconds())
                .map(|(ticks, boot)| boot as f64 + ticks as f64 / TICKS_PER_SECOND),
        }
    }
}

/// Start of the machine, in seconds since 1970.
fn boot_seconds() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line?.trim().parse().ok()
}
