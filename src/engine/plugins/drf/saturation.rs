//! When leaves are saturated. Few needs differ in a tree: those that are known by number cost a leaf one byte, and a
//! resource that runs out or comes back is judged once per need, not per leaf.

use std::sync::Arc;

use super::resource_set::ResourceSet;

/// When a leaf is saturated.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SaturationRule {
    /// In any case.
    Always,
    /// As soon as one of these is exhausted.
    AnyExhausted(ResourceSet),
    /// As soon as one of each is exhausted.
    EachExhausted(Vec<ResourceSet>),
}

impl SaturationRule {
    pub(super) fn is_saturated(&self, exhausted: &ResourceSet) -> bool {
        match self {
            Self::Always => true,
            Self::AnyExhausted(resources) => resources.intersects(exhausted),
            Self::EachExhausted(kinds) => kinds.iter().all(|resources| resources.intersects(exhausted)),
        }
    }
}

/// Needs by number, as bits of a word.
#[derive(Clone, Debug)]
pub(super) struct SaturationRules {
    /// The first is [`Need::Met`].
    rules: Arc<Vec<SaturationRule>>,
    met_bits: u64,
}

impl SaturationRules {
    /// Number of all needs that found no place; each of their leaves is judged by itself.
    pub(super) const UNNUMBERED: u8 = 63;

    /// Most numbers. Tests come to the end of them with few resources.
    const MAX_RULES: usize = if cfg!(test) { 4 } else { Self::UNNUMBERED as usize };

    pub(super) fn new() -> Self {
        Self {
            rules: Arc::new(vec![SaturationRule::Always]),
            met_bits: 1,
        }
    }

    /// Which needs are met.
    pub(super) fn met_bits(&self) -> u64 {
        self.met_bits
    }

    /// The number of a need.
    pub(super) fn rule_number(&mut self, need: &SaturationRule, exhausted: &ResourceSet) -> u8 {
        let known = self.rules.iter().position(|known| known == need);
        let number = known.or_else(|| {
            (self.rules.len() < Self::MAX_RULES).then(|| {
                Arc::make_mut(&mut self.rules).push(need.clone());
                self.update_met(exhausted);
                self.rules.len() - 1
            })
        });
        number
            .and_then(|number| u8::try_from(number).ok())
            .unwrap_or(Self::UNNUMBERED)
    }

    /// Finds out anew which needs are met.
    pub(super) fn update_met(&mut self, exhausted: &ResourceSet) {
        let bits = self.rules.iter().enumerate();
        self.met_bits = bits.fold(0, |met, (at, need)| met | u64::from(need.is_saturated(exhausted)) << at);
    }
}

/// A need by number, as a bit.
pub(super) fn rule_bit(number: u8) -> u64 {
    1 << (number & 63)
}
