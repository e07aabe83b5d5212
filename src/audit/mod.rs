//! The audit log: changes with their callers, and rejected callers, as JSON lines in separate files. For example, a
//! line records that `alice` activated version 5 of the policy `default`.
//!
//! A thread writes the lines, so calls never wait for the disk. Lines that exceed its queue are dropped and recorded in
//! metrics. When a file is full, files are rotated and the oldest is deleted. Rejected attempts have a separate rate
//! limit: a flood of rejections cannot displace other lines.

mod entry;
#[cfg_attr(not(feature = "opentelemetry"), path = "export_absent.rs")]
mod export;
mod log;

pub use entry::{AuditAction, AuditEntry, AuditOutcome};
pub use log::{AuditLog, AuditOptions};
