//! Where the values of settings come from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use pumice_engine::policy::Mark;

/// Origin of a setting's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// Built into the program.
    Default,
    /// Place in the settings file.
    File(PathBuf, Mark),
    /// Variable of the environment.
    Environment(String),
    /// Flag on the command line.
    Flag(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, mark) => write!(f, "{}:{}:{}", path.display(), mark.line, mark.column),
            Self::Environment(variable) => f.write_str(variable),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// Settings of one origin.
pub(super) type SettingLayer = BTreeMap<&'static str, (SettingOrigin, Vec<String>)>;

/// Value that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingProblem {
    /// Origin of the value.
    pub origin: SettingOrigin,
    /// Name of the setting; empty: the whole file.
    pub setting: String,
    /// Problem of the value.
    pub message: String,
}

impl fmt::Display for SettingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.setting.is_empty() && !matches!(self.origin, SettingOrigin::Environment(_) | SettingOrigin::Flag(_)) {
            write!(f, "`{}`: ", self.setting)?;
        }
        f.write_str(&self.message)
    }
}
