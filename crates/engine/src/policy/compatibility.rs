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

    /// One of each kind: whatever does not depend on the release behaves in either way.
    pub const KINDS: [Self; 2] = [Self::UPSTREAM, Self::Corrected];

    /// All of them, in the order in which messages list them.
    pub const ALL: [Compatibility; 7] = [
        Self::Upstream(Release::Default),
        Self::Upstream(Release::Volcano1144),
        Self::Upstream(Release::Volcano1151),
        Self::Upstream(Release::VolcanoEd72c7c81),
        Self::Upstream(Release::KubeScheduler136),
        Self::Upstream(Release::KubeScheduler137),
        Self::Corrected,
    ];

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

    /// Compatibility of documents of this scheduler: `upstream` becomes the scheduler's own release. `None`: it is a release
    /// of the other scheduler.
    pub fn of(self, scheduler: ReleasedScheduler) -> Option<Self> {
        match self {
            Self::Upstream(Release::Default) => Some(Self::Upstream(scheduler.default_release())),
            Self::Upstream(release) => {
                let is_own = release.scheduler().is_none_or(|own| own == scheduler);
                is_own.then_some(self)
            }
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

    /// Release whose rules decide. Under `corrected` the newest.
    pub fn release(self) -> Release {
        match self {
            Self::Upstream(release) => release,
            Self::Corrected => Release::Default,
        }
    }
}
