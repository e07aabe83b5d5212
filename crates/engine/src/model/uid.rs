//! Compact UIDs and creation times: a UUID is stored inline in 16 bytes, any other text on the heap.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::held_bytes::HeldMemory;

/// Incarnation of a record. A UUID in Kubernetes' notation takes no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(UidForm);

/// Forms of a UID in two words. A zero first half marks the form that is not a UUID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UidForm {
    /// UUID in lower case whose first half is not zero.
    Uuid(NonZeroU64, u64),
    /// Any other text; `None`: not reported.
    Other(Option<Arc<Arc<str>>>),
}

impl HeldMemory for Uid {
    fn held_bytes(&self, _: Option<&Self>) -> usize {
        match &self.0 {
            UidForm::Other(text) => text.held_bytes(None),
            UidForm::Uuid(..) => 0,
        }
    }
}

impl Default for Uid {
    fn default() -> Self {
        Self(UidForm::Other(None))
    }
}

impl Uid {
    /// True if the incarnation was not reported.
    pub fn is_empty(&self) -> bool {
        self.0 == UidForm::Other(None)
    }

    /// Copy in memory of its own, if the text needs any.
    #[must_use]
    pub fn copied(&self) -> Self {
        match &self.0 {
            UidForm::Other(Some(text)) => Self::text(Arc::from(&***text)),
            UidForm::Other(None) | UidForm::Uuid(..) => self.clone(),
        }
    }

    fn text(text: Arc<str>) -> Self {
        Self(UidForm::Other(Some(Arc::new(text))))
    }

    /// True if both may be the same incarnation: they are equal, or one of them was not reported.
    pub fn may_equal(&self, other: &Self) -> bool {
        self.is_empty() || other.is_empty() || self == other
    }
}

/// Positions of the dashes.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// Reads a UUID whose canonical notation is this text.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let (mut bytes, mut digits) = ([0; 16], 0);
    for (place, &letter) in text.iter().enumerate() {
        if DASHES.contains(&place) {
            if letter != b'-' {
                return None;
            }
            continue;
        }
        let digit = match letter {
            b'0'..=b'9' => letter - b'0',
            b'a'..=b'f' => letter - b'a' + 10,
            _ => return None,
        };
        let byte: &mut u8 = bytes.get_mut(digits / 2)?;
        *byte = *byte << 4 | digit;
        digits += 1;
    }
    Some(bytes)
}

/// UID without text: an empty one, and most UUIDs.
fn compact_uid(text: &str) -> Option<Uid> {
    if text.is_empty() {
        return Some(Uid::default());
    }
    let [upper, lower] = halves(parse_uuid(text)?);
    Some(Uid(UidForm::Uuid(NonZeroU64::new(upper)?, lower)))
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let number = u128::from_be_bytes(bytes);
    [(number >> 64) as u64, number as u64]
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        compact_uid(text).unwrap_or_else(|| Self::text(text.into()))
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Arc<str>> for Uid {
    fn from(text: Arc<str>) -> Self {
        compact_uid(&text).unwrap_or_else(|| Self::text(text))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidForm::Other(None) => Ok(()),
            UidForm::Other(Some(text)) => out.write_str(text),
            UidForm::Uuid(upper, lower) => {
                let number = u128::from(upper.get()) << 64 | u128::from(*lower);
                for (place, byte) in number.to_be_bytes().iter().enumerate() {
                    if matches!(place, 4 | 6 | 8 | 10) {
                        out.write_str("-")?;
                    }
                    write!(out, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

/// Seconds since 1970, for example 1764288000. An unreported time is older than any other. The earliest representable
/// second is treated as unreported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CreationTime(i64);

impl Default for CreationTime {
    fn default() -> Self {
        Self(i64::MIN)
    }
}

impl CreationTime {
    /// Seconds since 1970, if they were reported.
    pub fn seconds(self) -> Option<i64> {
        (self != Self::default()).then_some(self.0)
    }
}

impl From<Option<i64>> for CreationTime {
    fn from(seconds: Option<i64>) -> Self {
        seconds.map_or_else(Self::default, Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_usual_form_is_taken_for_a_uuid() {
        let usual = "0b7f3f0e-9d5c-4f0e-8a2b-00ff10a0c0de";
        assert!(matches!(Uid::from(usual).0, UidForm::Uuid(..)));
        let nil = "00000000-0000-0000-0000-00ff10a0c0de";
        assert_eq!(
            (Uid::from(nil), Uid::from(nil).to_string()),
            (Uid::text(nil.into()), nil.to_owned())
        );
        for other in [
            "0B7F3F0E-9d5c-4f0e-8a2b-00ff10a0c0de",
            "0b7f3f0e9d5c4f0e8a2b00ff10a0c0de",
            "0b7f3f0e-9d5c-4f0e-8a2b-00ff10a0c0d",
            "0b7f3f0e+9d5c-4f0e-8a2b-00ff10a0c0de",
            "u1",
            "",
        ] {
            assert_eq!(
                (parse_uuid(other), Uid::from(other).to_string()),
                (None, other.to_owned())
            );
        }
        assert!(Uid::from("").may_equal(&"u1".into()) && !Uid::from("u2").may_equal(&"u1".into()));
    }

    #[test]
    fn records_stay_small() {
        assert_eq!((size_of::<Uid>(), size_of::<CreationTime>()), (16, 8));
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|.{0,40}") {
            prop_assert_eq!(Uid::from(text.as_str()).to_string(), text);
        }
    }
}
