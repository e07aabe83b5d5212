//! Files of the audit log, and the thread that writes them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::Notify;

use super::entry::{AuditEntry, AuditOutcome};
use super::export::AuditExporter;
use crate::telemetry::{CollectorTls, Metrics, WarningGate};
use pumice_engine::short_lock::ShortLock;
use pumice_state::{Clock as _, SystemClock};

/// Maximum number of lines that wait for the disk.
const WAITING_LINES: usize = 4_096;
/// Number of refused attempts that are written at once, and in a second.
const REFUSED_BURST: f64 = 200.0;
const REFUSED_RATE: f64 = 20.0;

/// Where the audit log is, and how large it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// Path of the file.
    pub path: PathBuf,
    /// Size at which another file begins, in bytes.
    pub file_bytes: u64,
    /// Number of full files to keep, such as 8.
    pub files: usize,
}

/// The audit log; without options it writes nothing.
#[derive(Debug)]
pub struct AuditLog {
    sender: ShortLock<Option<SyncSender<String>>>,
    ended: Arc<Notify>,
    clock: SystemClock,
    metrics: Arc<Metrics>,
    refused: ShortLock<RefusedBudget>,
    losses: WarningGate,
    has_file: bool,
    exporter: Option<AuditExporter>,
}

/// Budget of lines about refused attempts.
#[derive(Debug)]
struct RefusedBudget {
    left: f64,
    since: Duration,
    suppressed: u64,
}

impl RefusedBudget {
    /// Full budget, as at the start.
    const FULL: Self = Self {
        left: REFUSED_BURST,
        since: Duration::ZERO,
        suppressed: 0,
    };

    /// Number of attempts that were left out before this one; `None`: this one is left out, too.
    fn take(&mut self, now: Duration) -> Option<u64> {
        let passed = now.saturating_sub(self.since).as_secs_f64();
        self.since = now;
        self.left = (self.left + passed * REFUSED_RATE).min(REFUSED_BURST);
        if self.left < 1.0 {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.left -= 1.0;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl AuditLog {
    /// Opens the log and starts its thread. With a collector and the name of this service, lines are also sent to the
    /// collector; the function must then be called on the runtime.
    ///
    /// # Errors
    /// The file cannot be opened, or the collector's address cannot be used.
    pub fn open(
        options: Option<&AuditOptions>,
        collector: Option<((&str, CollectorTls<'_>), &str)>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Arc<Self>> {
        let export = collector.map(|(collector, service)| AuditExporter::start(collector, service));
        let exporter = export.transpose().map_err(io::Error::other)?;
        let mut log = Self {
            exporter,
            ..Self::silent(metrics)
        };
        if let Some(options) = options {
            let (lines, waiting) = sync_channel(WAITING_LINES);
            let mut files = AuditFiles::open(options.clone())?;
            let (over, counted) = (Arc::clone(&log.ended), Arc::clone(&log.metrics));
            std::thread::Builder::new().name("audit".to_owned()).spawn(move || {
                files.write_lines(&waiting, &counted);
                over.notify_one();
            })?;
            (log.has_file, log.sender) = (true, ShortLock::new(Some(lines)));
        }
        Ok(Arc::new(log))
    }

    /// Log that writes nothing.
    pub fn none(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self::silent(metrics))
    }

    fn silent(metrics: Arc<Metrics>) -> Self {
        Self {
            has_file: false,
            exporter: None,
            sender: ShortLock::default(),
            ended: Arc::default(),
            clock: SystemClock::default(),
            metrics,
            refused: ShortLock::new(RefusedBudget::FULL),
            losses: WarningGate::new(),
        }
    }

    /// Writes an entry, soon.
    pub fn record(&self, mut entry: AuditEntry) {
        if !self.has_file && self.exporter.is_none() {
            return;
        }
        if entry.outcome == AuditOutcome::Refused {
            let now = self.clock.monotonic();
            let Some(suppressed) = self.refused.with(|budget| budget.take(now)) else {
                return;
            };
            if suppressed > 0 {
                entry.details.push(("suppressed", suppressed.into()));
            }
        }
        let time = self.clock.wall();
        let line = entry.line(time);
        if let Some(exporter) = &self.exporter {
            exporter.send(&entry, &line, time);
        }
        let sender = self.sender.with(|sender| sender.clone());
        if let Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) =
            sender.map(|sender| sender.try_send(line))
        {
            self.metrics.security.record_lost_audit();
            if let Some(suppressed) = self.losses.pass() {
                tracing::error!(suppressed, "a line of the audit log is lost: its disk does not keep up");
            }
        }
    }

    /// Writes and sends what waits, within this time, and ends.
    pub async fn stop(self: &Arc<Self>, time: Duration) {
        if self.exporter.is_some() {
            // The exporter blocks, and waits for tasks of this runtime.
            let own = Arc::clone(self);
            let stopped =
                pumice_state::tasks::run_blocking(move || own.exporter.iter().for_each(|own| own.stop(time))).await;
            drop(stopped);
        }
        if self.sender.with(Option::take).is_some() && tokio::time::timeout(time, self.ended.notified()).await.is_err()
        {
            tracing::warn!("the disk of the audit log does not answer; its last lines may be lost");
        }
    }
}

/// The present file, and the full ones before it.
#[derive(Debug)]
struct AuditFiles {
    options: AuditOptions,
    file: Option<File>,
    size: u64,
}

impl AuditFiles {
    fn open(options: AuditOptions) -> io::Result<Self> {
        let (file, size) = open_file(&options.path)?;
        Ok(Self {
            options,
            file: Some(file),
            size,
        })
    }

    /// Writes lines until the channel is closed. A failed line is recorded in metrics; the next line is tried again.
    fn write_lines(&mut self, lines: &Receiver<String>, metrics: &Metrics) {
        let failures = WarningGate::new();
        while let Ok(line) = lines.recv() {
            if let Err(error) = self.write(&line) {
                metrics.security.record_lost_audit();
                self.file = None;
                if let Some(suppressed) = failures.pass() {
                    let path = self.options.path.display();
                    tracing::error!(%path, %error, suppressed, "the audit log cannot be written");
                }
            }
        }
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let bytes = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.size > 0 && self.size.saturating_add(bytes) > self.options.file_bytes {
            self.file = None;
            self.rotate()?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            closed @ None => {
                let (file, size) = open_file(&self.options.path)?;
                self.size = size;
                closed.insert(file)
            }
        };
        file.write_all(line.as_bytes())?;
        self.size = self.size.saturating_add(bytes);
        Ok(())
    }

    /// Moves each file on by one; the oldest is replaced.
    fn rotate(&mut self) -> io::Result<()> {
        let numbered = |number: usize| {
            let mut name = self.options.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.options.files).rev() {
            if let Err(error) = std::fs::rename(numbered(number), numbered(number + 1))
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
        }
        if self.options.files > 0 {
            std::fs::rename(&self.options.path, numbered(1))?;
        } else {
            std::fs::remove_file(&self.options.path)?;
        }
        self.size = 0;
        Ok(())
    }
}

/// Opens a file at its end, private to its owner, and its size. A line that was cut by a crash is ended.
fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .read(true)
        .mode(0o600)
        .open(path)?;
    let size = file.metadata()?.len();
    if size > 0 && !ends_with_newline(&file, size)? {
        file.write_all(b"\n")?;
        return Ok((file, size + 1));
    }
    Ok((file, size))
}

fn ends_with_newline(file: &File, size: u64) -> io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let mut last = [0];
    file.read_exact_at(&mut last, size.saturating_sub(1))?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_rotate_and_the_oldest_goes() {
        let folder = std::env::temp_dir().join(format!("pumice-audit-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("audit.log");
        std::fs::write(&path, "cut").unwrap();
        let options = AuditOptions {
            path,
            file_bytes: 20,
            files: 2,
        };
        let mut files = AuditFiles::open(options).unwrap();
        for number in 0..10 {
            files.write(&format!("line-{number}\n")).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("audit.log"), "line-8\nline-9\n");
        assert_eq!(read("audit.log.1"), "line-6\nline-7\n");
        assert_eq!(read("audit.log.2"), "line-4\nline-5\n");
        assert!(!folder.join("audit.log.3").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_flood_of_rejections_has_a_rate_of_its_own() {
        let mut budget = RefusedBudget::FULL;
        let second = Duration::from_secs(1);
        let taken = (0..10_000).filter_map(|_| budget.take(second)).count();
        assert_eq!(taken, 200);
        assert_eq!(budget.take(second * 2), Some(9_800));
    }
}
