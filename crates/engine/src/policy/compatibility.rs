//! Compatibility: exact behaviour of the reference, or corrected behaviour.

/// Compatibility: whether decisions follow the reference exactly, or correct its known defects. `docs/compatibility.md`
/// lists the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Compatibility {
    /// Exactly Volcano's results, surprises included.
    Upstream,
    /// Volcano's results, except where it contradicts its own documents, fails open or repairs silently.
    #[default]
    Corrected,
}

impl Compatibility {
    /// Both.
    pub const ALL: [Compatibility; 2] = [Compatibility::Upstream, Compatibility::Corrected];

    /// Name of the compatibility in documents.
    pub fn name(self) -> &'static str {
        match self {
            Compatibility::Upstream => "upstream",
            Compatibility::Corrected => "corrected",
        }
    }

    /// Compatibility with this name: `upstream` or `corrected`. `None`: another name.
    pub fn from_name(name: &str) -> Option<Self> {
        Compatibility::ALL.into_iter().find(|c| c.name() == name)
    }
}
