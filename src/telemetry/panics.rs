//! Panics: each panic is logged with its location and recorded in metrics.

use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicU64, Ordering};

use super::LogText;

/// Number of panics of this process.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Makes every panic of this process a line of the log and a count of `pumice_panics_total`.
pub fn report_panics() {
    panic::set_hook(Box::new(report));
}

fn report(panic: &PanicHookInfo<'_>) {
    PANICS.fetch_add(1, Ordering::Relaxed);
    let message = panic.payload_as_str().unwrap_or("no message");
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    tracing::error!(panic = %LogText(message), at, thread, "the program panicked");
}

/// Number of panics up to now.
pub(super) fn panic_count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}
