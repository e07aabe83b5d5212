//! Compatibility: exact behaviour of a release of the reference, or corrected behaviour.

use super::release::{Release, ReleasedScheduler};

/// Compatibility: whether decisions follow a release of the reference exactly, or correct its known defects.
/// `docs/compatibility.md` lists the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Compatibility {
    /// Exactly the results of this release, surprises included.
    Upstream(Release),
    /// The results of the newest release, except where it contradicts its own documents, fails open or repairs silently.
    #[default]
    Corrected,
}

impl Compatibility {
    /// `upstream` in documents: the release to which a policy's kind belongs by default.
    pub const UPSTREAM: Self = Self::Upstream(Release::Default);

    /// One of each kind: whatever does not depend on the release behaves in one of these two ways.
    pub const KINDS: [Self; 2] = [Self::UPSTREAM, Self::Corrected];

    /// All of them, in the order in which messages list them.
    pub const ALL: [Compatibility; Release::ALL.len() + 1] = {
        let mut all = [Self::Corrected; Release::ALL.len() + 1];
        let mut index = 0;
        while index < Release::ALL.len() {
            all[index] = Self::Upstream(Release::ALL[index]);
            index += 1;
        }
        all
    };

    /// Name of the compatibility in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Upstream(release) => release.name(),
            Self::Corrected => "corrected",
        }
    }

    /// Compatibility with this name, such as `upstream`, `volcano-1.15.1` or `corrected`. `None`: another name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }

    /// The same for documents of this scheduler: `upstream` becomes the scheduler's own release. `None`: it is a release
    /// of the other scheduler.
    pub fn of(self, scheduler: ReleasedScheduler) -> Option<Self> {
        match self {
            Self::Upstream(Release::Default) => Some(Self::Upstream(scheduler.default_release())),
            Self::Upstream(release) => (release.scheduler() == Some(scheduler)).then_some(self),
            Self::Corrected => Some(self),
        }
    }

    /// Names that a document of this scheduler may use.
    pub fn names_of(scheduler: ReleasedScheduler) -> Vec<&'static str> {
        let own = Self::ALL.into_iter().filter(|own| own.of(scheduler).is_some());
        own.map(Self::name).collect()
    }

    /// True for each release of a reference.
    pub fn is_upstream(self) -> bool {
        matches!(self, Self::Upstream(_))
    }

    /// Release whose rules decide: the one that is named; of `corrected`, the newest.
    pub fn release(self) -> Release {
        match self {
            Self::Upstream(release) => release,
            Self::Corrected => Release::Default,
        }
    }
}
