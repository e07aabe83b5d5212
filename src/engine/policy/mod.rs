//! The policy document: read, checked, compiled, printed again.

pub mod args;
mod check;
mod compile;
pub mod emit;
pub mod findings;
mod kube;
pub mod load;
pub(crate) mod slip;
pub mod spec;
#[cfg(test)]
mod tests;
pub mod yaml;

pub use args::{Argument, ArgumentMap, Arguments};
pub use compile::{CompileOptions, Compiled, Hook, Policy, Registered, UnknownProfileError, compile};
pub use findings::{At, Finding, Kind, NotServed, Path, Report, Severity, code};
pub use load::{LoadOptions, Loaded, load};
pub use spec::{Compatibility, PluginSpec, Spec, Switch, Switches};
pub use yaml::{Limits, Mark, Node, Value};
