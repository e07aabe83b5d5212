//! Policy document: loaded, checked, compiled, printed.

pub mod action_arguments;
#[cfg(test)]
mod action_tests;
mod args;
mod check;
mod compatibility;
mod compile;
pub mod diagnostics;
pub mod emit;
mod kube;
pub mod load;
mod release;
#[cfg(test)]
mod release_tests;
pub mod spec;
pub mod suggestion;
#[cfg(test)]
mod suggestion_tests;
mod switch;
#[cfg(test)]
mod tests;
mod unserved;
pub mod yaml;

pub use args::{ArgumentMap, PluginArgument, PluginArguments};
pub use compatibility::Compatibility;
pub use compile::{
    CompileOptions, CompiledPolicy, Policy, PolicyHook, PolicyHooks, RegisteredPlugin, UnknownProfileError, compile,
};
pub use diagnostics::{Diagnostic, DiagnosticReport, ErrorCode, PolicyRejectionKind, Severity, UnservedPlugin};
pub use load::{LoadOptions, LoadedSpec, load};
pub use release::{PodRules, Release, ReleaseChange, ReleaseRules, ReleasedScheduler, TrialRules};
pub use spec::{PluginSpec, PluginSwitches, PolicySpec};
pub use switch::Switch;
pub use unserved::{DecisionKind, UnservedEffect, unserved_effect};
pub use yaml::{DocumentLocation, DocumentPath, Mark, YamlLimits, YamlNode, YamlValue};
