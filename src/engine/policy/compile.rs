//! shim
use super::{Compatibility, Limits, Report};
use std::sync::Arc;
/// shim
#[derive(Debug)]
pub struct Policy {
    compatibility: Compatibility,
}
impl Policy {
    /// shim
    pub fn compatibility(&self) -> Compatibility {
        self.compatibility
    }
    /// shim
    pub fn keeps_shares(&self) -> bool {
        false
    }
}
/// shim
#[derive(Debug)]
pub struct CompileOptions {
    /// shim
    pub limits: Limits,
    /// shim
    pub compatibility: Compatibility,
    /// shim
    pub strict: bool,
}
/// shim
#[derive(Debug)]
pub struct Compiled {
    /// shim
    pub policy: Arc<Policy>,
    /// shim
    pub report: Report,
    /// shim
    pub loaded_document: String,
    /// shim
    pub effective_document: String,
}
/// shim
///
/// # Errors
/// shim
pub fn compile(_document: &str, _options: &CompileOptions) -> Result<Compiled, Report> {
    Err(Report::default())
}
