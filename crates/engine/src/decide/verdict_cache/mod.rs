//! Cache of verdicts: filters and scores of task classes, chunk by chunk, which later queries about the same chunks use
//! again. A result does not depend on the cache.

mod class_reuse;
mod class_verdicts;
#[cfg(test)]
pub(in crate::decide) mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) use self::class_reuse::ClassReuse;
pub(super) use self::class_verdicts::JudgedTasks;
use self::class_verdicts::{ClassVerdicts, VerdictKey};
use crate::policy::Policy;
use crate::short_lock::ShortLock;

/// Number of fingerprints of classes that were asked about.
const FINGERPRINTS: usize = 4096;
/// Largest number of classes with verdicts.
const MAX_CLASSES: usize = 4096;

/// Cache of verdicts by policy, lineage of cluster states, and task class.
///
/// The first query about a class stores only its fingerprint; the second query stores verdicts. A verdict is reused if
/// the chunk is identical (the same allocation) and every other input of the hooks is equal.
pub struct VerdictCache {
    max_bytes: usize,
    /// Fingerprints of classes that were asked about lately, each at a place of its own.
    asked: Box<[AtomicU64]>,
    classes: ShortLock<CachedClasses>,
    reused_chunks: AtomicU64,
    judged_chunks: AtomicU64,
}

/// Use of a cache by one query. Different lineages of cluster states, such as sessions, do not replace each other's verdicts.
#[derive(Clone, Copy, Debug)]
pub struct VerdictReuse<'a> {
    /// Cache that the query reads and updates.
    pub cache: &'a VerdictCache,
    /// Policy of the query.
    pub policy: &'a Arc<Policy>,
    /// Name of the lineage.
    pub lineage: &'a str,
}

/// Measurements of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCacheUse {
    /// Bytes that the verdicts hold.
    pub bytes: usize,
    /// Number of classes with verdicts.
    pub classes: usize,
    /// Number of times that filters or scores of a chunk were used again.
    pub reused_chunks: u64,
    /// Number of times that filters or scores of a chunk were computed and stored.
    pub judged_chunks: u64,
}

/// Verdicts by the fingerprint of the class.
#[derive(Default)]
struct CachedClasses {
    by_fingerprint: BTreeMap<u64, CachedClass>,
    bytes: usize,
    /// Number of look-ups so far, by which the least recently used class is known.
    clock: u64,
}

/// Verdicts of a class, with the time of their last use.
struct CachedClass {
    verdicts: Arc<ClassVerdicts>,
    bytes: usize,
    used: u64,
}

impl VerdictCache {
    /// Empty cache that holds at most about this many bytes; 0: it stores nothing.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            asked: (0..FINGERPRINTS).map(|_| AtomicU64::new(0)).collect(),
            classes: ShortLock::default(),
            reused_chunks: AtomicU64::new(0),
            judged_chunks: AtomicU64::new(0),
        }
    }

    /// Measurements so far.
    pub fn usage(&self) -> VerdictCacheUse {
        let (bytes, classes) = self
            .classes
            .with(|classes| (classes.bytes, classes.by_fingerprint.len()));
        VerdictCacheUse {
            bytes,
            classes,
            reused_chunks: self.reused_chunks.load(Ordering::Relaxed),
            judged_chunks: self.judged_chunks.load(Ordering::Relaxed),
        }
    }

    /// Verdicts of a class; `None`: nothing is stored of it.
    fn find(&self, key: &VerdictKey<'_>, fingerprint: u64) -> Option<Arc<ClassVerdicts>> {
        let found = self.classes.with(|classes| {
            classes.clock += 1;
            let clock = classes.clock;
            let class = classes.by_fingerprint.get_mut(&fingerprint)?;
            class.used = clock;
            Some(Arc::clone(&class.verdicts))
        });
        found.filter(|verdicts| key.is_of(verdicts))
    }

    /// True if the class was asked about before; from now on it was.
    fn was_asked(&self, fingerprint: u64) -> bool {
        let place = usize::try_from(fingerprint % FINGERPRINTS as u64).unwrap_or(0);
        let place = self.asked.get(place);
        place.is_some_and(|place| place.swap(fingerprint, Ordering::Relaxed) == fingerprint)
    }

    /// Stores verdicts of a class. If there are too many, verdicts of classes that were not used for long are
    /// discarded.
    fn store(&self, fingerprint: u64, verdicts: ClassVerdicts) {
        // They are counted before the lock is taken: their number grows with that of the nodes.
        let bytes = verdicts.bytes();
        if bytes > self.max_bytes {
            return;
        }
        let verdicts = Arc::new(verdicts);
        // The discarded values are dropped after the lock is free.
        let discarded = self.classes.with(|classes| {
            let replaced = classes.insert(fingerprint, verdicts, bytes);
            let mut discarded = classes.shrink(self.max_bytes);
            discarded.extend(replaced);
            discarded
        });
        drop(discarded);
    }

    fn count_chunks(&self, reused: u64, judged: u64) {
        self.reused_chunks.fetch_add(reused, Ordering::Relaxed);
        self.judged_chunks.fetch_add(judged, Ordering::Relaxed);
    }
}

impl CachedClasses {
    fn insert(&mut self, fingerprint: u64, verdicts: Arc<ClassVerdicts>, bytes: usize) -> Option<CachedClass> {
        self.bytes += bytes;
        let class = CachedClass {
            verdicts,
            bytes,
            used: self.clock,
        };
        let replaced = self.by_fingerprint.insert(fingerprint, class);
        self.bytes -= replaced.as_ref().map_or(0, |old| old.bytes);
        replaced
    }

    /// Removes the least recently used classes if there is too much; an eighth of the room is free afterwards.
    fn shrink(&mut self, max_bytes: usize) -> Vec<CachedClass> {
        let mut removed = Vec::new();
        if self.bytes <= max_bytes && self.by_fingerprint.len() <= MAX_CLASSES {
            return removed;
        }
        let classes = self.by_fingerprint.iter();
        let mut by_use: Vec<(u64, u64)> = classes.map(|(fingerprint, class)| (class.used, *fingerprint)).collect();
        by_use.sort_unstable();
        // The class that was stored last stays.
        by_use.pop();
        for (_, fingerprint) in by_use {
            if self.bytes <= max_bytes / 8 * 7 && self.by_fingerprint.len() <= MAX_CLASSES / 8 * 7 {
                break;
            }
            if let Some(class) = self.by_fingerprint.remove(&fingerprint) {
                self.bytes -= class.bytes;
                removed.push(class);
            }
        }
        removed
    }
}

impl fmt::Debug for VerdictCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verdicts of at most {} bytes: {:?}", self.max_bytes, self.usage())
    }
}
