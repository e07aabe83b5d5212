//! Callers who mean harm: the program goes on serving others, small and on time.

mod broken_calls;
mod compressed;
#[cfg(target_os = "linux")]
mod connections;
#[cfg(target_os = "linux")]
mod document_costs;
mod documents;
mod extenders;
#[cfg(target_os = "linux")]
mod held_disk;
mod logs;
#[cfg(target_os = "linux")]
mod measure;
mod names;
mod overload;
mod probes;
mod requests;
mod responses;
mod shares;
#[cfg(target_os = "linux")]
mod stopping;
mod streams;
mod terminals;
mod texts;
mod transport;
mod waits;
