//! Origins of policy versions.

/// Origin of a policy version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyOrigin {
    /// Policy embedded in the program.
    BuiltIn,
    /// Policy file, by path.
    File(String),
    /// Policy file, by path, read because the process received SIGHUP.
    Hangup(String),
    /// Caller of `ReloadPolicy`, by address.
    Rpc(String),
    /// Rollback to an earlier version, with its number and the caller.
    Rollback(u64, String),
}

impl PolicyOrigin {
    /// Every value of [`PolicyOrigin::kind`].
    pub const KINDS: [&'static str; 5] = ["built-in", "file", "sighup", "rpc", "rollback"];

    /// Caller who brought the version, or returned to it; empty: none did.
    pub fn caller(&self) -> &str {
        match self {
            Self::BuiltIn | Self::File(_) | Self::Hangup(_) => "",
            Self::Rpc(caller) | Self::Rollback(_, caller) => caller,
        }
    }

    /// Kind of the origin, as one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::File(_) => "file",
            Self::Hangup(_) => "sighup",
            Self::Rpc(_) => "rpc",
            Self::Rollback(..) => "rollback",
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
            // Clients read the number, so that nothing stands behind it.
            Self::Rollback(version, _) => write!(f, "rollback:{version}"),
        }
    }
}
