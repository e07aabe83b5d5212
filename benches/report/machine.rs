//! Machine, time and revision of the measurements.

use std::process::Command;

use super::measurements::MeasurementReport;

/// Adds the description to a report.
pub(crate) fn describe(report: &mut MeasurementReport, quick: bool) {
    report.put_value("quick", quick);
    report.put_value("date", first_output_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]));
    report.put_value("rustc", first_output_line("rustc", &["--version"]));
    report.put_value("system", first_output_line("uname", &["-srm"]));
    let changed = !first_output_line("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    let revision = first_output_line("git", &["rev-parse", "--short", "HEAD"]);
    report.put_value("revision", revision + if changed { " with changes" } else { "" });
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    report.put_value("cpu", field(&cpus, "model name"));
    report.put_value("cores", std::thread::available_parallelism().map_or(0, usize::from));
    let [avx2, avx512] = vectors();
    report.put_value("avx2", avx2);
    report.put_value("avx512", avx512);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = field(&memory, "MemTotal")
        .trim_end_matches(" kB")
        .parse()
        .unwrap_or(0.0);
    report.put_value("memory", format!("{:.0} GiB", kibibytes / 1_048_576.0));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    report.put_value("load_average_before", load.split(' ').next().unwrap_or_default());
}

/// First line that a program prints; empty if there is none.
fn first_output_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// Text behind the first `name:`.
fn field(text: &str, name: &str) -> String {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines
        .filter(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim());
    values.next().unwrap_or("?").to_owned()
}

/// Whether the kernels for AVX2 run here, and those for AVX-512 instead.
#[cfg(target_arch = "x86_64")]
fn vectors() -> [bool; 2] {
    let avx512 = std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512bw");
    [std::is_x86_feature_detected!("avx2"), avx512]
}

/// Whether the kernels for AVX2 run here, and those for AVX-512 instead.
#[cfg(not(target_arch = "x86_64"))]
fn vectors() -> [bool; 2] {
    [false; 2]
}
