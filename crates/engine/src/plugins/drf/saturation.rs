//! Saturation rules: the conditions under which leaves are saturated. A tree has few different rules, so a leaf stores
//! a rule's number in one byte. When a resource runs out or is freed, each rule is judged once, not each leaf.

use std::sync::Arc;

use super::resource_set::ResourceSet;
use crate::held_bytes::{HeldMemory, held_bytes};

/// Condition under which a leaf is saturated.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SaturationRule {
    /// Always saturated.
    Always,
    /// Saturated once any of these resources is exhausted.
    AnyExhausted(ResourceSet),
    /// Saturated once each of these sets has an exhausted resource.
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

impl HeldMemory for SaturationRule {
    fn held_bytes(&self, _: Option<&Self>) -> usize {
        match self {
            Self::Always => 0,
            Self::AnyExhausted(resources) => resources.held_bytes(None),
            Self::EachExhausted(kinds) => kinds.held_bytes(None),
        }
    }
}

/// Rules by number, as bits of a word.
#[derive(Clone, Debug)]
pub(super) struct SaturationRules {
    /// Rules by number; the first is [`SaturationRule::Always`].
    rules: Arc<Vec<SaturationRule>>,
    /// One bit per rule, set while the rule holds.
    pub(super) met_bits: u64,
}

held_bytes! { SaturationRules { rules; met_bits } }

impl SaturationRules {
    /// Number of every rule beyond the table; each of its leaves is judged by itself.
    pub(super) const UNNUMBERED: u8 = 63;

    /// Largest number of rules; small in tests, so that few resources exceed it.
    const MAX_RULES: usize = if cfg!(test) { 4 } else { Self::UNNUMBERED as usize };

    pub(super) fn new() -> Self {
        Self {
            rules: Arc::new(vec![SaturationRule::Always]),
            met_bits: 1,
        }
    }

    /// Position of a rule, which is added if it is new.
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

    /// Updates which rules are met.
    pub(super) fn update_met(&mut self, exhausted: &ResourceSet) {
        let bits = self.rules.iter().enumerate();
        self.met_bits = bits.fold(0, |met, (at, need)| met | u64::from(need.is_saturated(exhausted)) << at);
    }
}

/// Bit of a rule's number.
pub(super) fn rule_bit(number: u8) -> u64 {
    1 << (number & 63)
}
