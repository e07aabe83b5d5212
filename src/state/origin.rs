//! Where a version of a policy came from.

/// Who brought a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyOrigin {
    /// Embedded in the program.
    BuiltIn,
    /// Read from a file.
    File(String),
    /// Read from a file because the process was sent SIGHUP.
    Hangup(String),
    /// Sent by a caller.
    Rpc(String),
    /// An earlier version, put in force again.
    Rollback(u64),
}

impl PolicyOrigin {
    /// Every word that [`PolicyOrigin::kind`] says.
    pub const KINDS: [&'static str; 5] = ["built-in", "file", "sighup", "rpc", "rollback"];

    /// Its first word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::File(_) => "file",
            Self::Hangup(_) => "sighup",
            Self::Rpc(_) => "rpc",
            Self::Rollback(_) => "rollback",
        }
    }
}

impl std::fmt::Display for PolicyOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File(path) => write!(f, "file:{path}"),
            Self::Hangup(path) => write!(f, "sighup:{path}"),
            Self::Rpc(identity) => write!(f, "rpc:{identity}"),
            Self::Rollback(version) => write!(f, "rollback:{version}"),
        }
    }
}
