//! When leaves are saturated. Few needs differ in a tree: those that are known by number cost a leaf one byte, and a
//! resource that runs out or comes back is judged once per need, not per leaf.

use std::sync::Arc;

use super::bits::Bits;

/// When a leaf is saturated.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Need {
    /// In any case.
    Met,
    /// As soon as one of these is exhausted.
    Any(Bits),
    /// As soon as one of each is exhausted.
    All(Vec<Bits>),
}

impl Need {
    pub(super) fn is_saturated(&self, exhausted: &Bits) -> bool {
        match self {
            Self::Met => true,
            Self::Any(resources) => resources.meets(exhausted),
            Self::All(kinds) => kinds.iter().all(|resources| resources.meets(exhausted)),
        }
    }
}

/// Needs by number, as bits of a word.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The first is [`Need::Met`].
    needs: Arc<Vec<Need>>,
    met: u64,
}

impl Known {
    /// Number of all needs that found no place; each of their leaves is judged by itself.
    pub(super) const OTHER: u8 = 63;

    /// Most numbers. Tests come to the end of them with few resources.
    const MOST: usize = if cfg!(test) { 4 } else { Self::OTHER as usize };

    pub(super) fn new() -> Self {
        Self {
            needs: Arc::new(vec![Need::Met]),
            met: 1,
        }
    }

    /// Which needs are met.
    pub(super) fn met(&self) -> u64 {
        self.met
    }

    /// The number of a need.
    pub(super) fn number(&mut self, need: &Need, exhausted: &Bits) -> u8 {
        let known = self.needs.iter().position(|known| known == need);
        let number = known.or_else(|| {
            (self.needs.len() < Self::MOST).then(|| {
                Arc::make_mut(&mut self.needs).push(need.clone());
                self.judge(exhausted);
                self.needs.len() - 1
            })
        });
        number
            .and_then(|number| u8::try_from(number).ok())
            .unwrap_or(Self::OTHER)
    }

    /// Finds out anew which needs are met.
    pub(super) fn judge(&mut self, exhausted: &Bits) {
        let bits = self.needs.iter().enumerate();
        self.met = bits.fold(0, |met, (at, need)| met | u64::from(need.is_saturated(exhausted)) << at);
    }
}

/// A need by number, as a bit.
pub(super) fn bit(number: u8) -> u64 {
    1 << (number & 63)
}
