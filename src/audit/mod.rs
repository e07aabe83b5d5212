//! The audit log: who changed or ended what, and who was refused, as JSON lines in files of their own.
//!
//! A thread writes the lines, so that no call waits for the disk. Lines that it cannot take in time are counted. When a file is
//! full, the ones before it move on by one, and the oldest goes. Refused attempts have a rate of their own, so that a flood of
//! them drives nothing else out.

mod entry;
#[cfg_attr(not(feature = "opentelemetry"), path = "export_absent.rs")]
mod export;
mod log;

pub use entry::{AuditAction, AuditEntry, AuditOutcome};
pub use log::{AuditLog, AuditOptions};
