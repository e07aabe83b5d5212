//! Measurements of the process itself, from the kernel.

use std::fs;

/// Kernel ticks per second, as user space sees them on every Linux.
pub(super) const TICKS_PER_SECOND: f64 = 100.0;
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

/// Numbers of `/proc/self/stat`: user time and system time in ticks, threads, start in ticks since boot, and bytes of address
/// space. `None`: the kernel gives none.
pub(super) fn stat_fields() -> [Option<u64>; 5] {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, fields)| fields.split_whitespace().collect())
        .unwrap_or_default();
    STAT_FIELDS.map(|at| fields.get(at).and_then(|field| field.parse::<u64>().ok()))
}

/// Start of the machine, in seconds since 1970.
pub(super) fn boot_seconds() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line?.trim().parse().ok()
}
