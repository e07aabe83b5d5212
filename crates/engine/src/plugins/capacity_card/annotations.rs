//! The annotations of queues, jobs and tasks.

use std::sync::Arc;

use super::super::json_object::{self, JsonObjectError};
use super::amounts::{CARD_SEPARATOR, QuotaAmounts};
use crate::model::{TextMap, find_text};
use crate::policy::Compatibility;

/// Of queues: how many of each card they may hold, as a JSON object.
pub const QUOTA: &str = "volcano.sh/card.quota";
/// Of jobs: how many of each card they need, as a JSON object.
pub const REQUEST: &str = "volcano.sh/card.request";

/// Why an annotation does not say how many cards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardsError {
    /// The annotation is not the JSON that is expected.
    #[error("annotation `{annotation}`: {error}")]
    Json {
        /// Key, such as `volcano.sh/card.quota`.
        annotation: &'static str,
        /// Error in the JSON.
        error: JsonObjectError,
    },
    /// A number is below 0 (refused under `compatibility: corrected`).
    #[error("annotation `{annotation}`: the number of `{card}` is {cards}, below 0")]
    Negative {
        /// Key, such as `volcano.sh/card.quota`.
        annotation: &'static str,
        /// Name, such as `NVIDIA-H100-80GB`.
        card: Arc<str>,
        /// The number.
        cards: i64,
    },
    /// A number is larger than thousandths of cards can be (refused under `compatibility: corrected`).
    #[error("annotation `{annotation}`: {cards} of `{card}` are more than can be counted")]
    TooMany {
        /// Key, such as `volcano.sh/card.quota`.
        annotation: &'static str,
        /// Name, such as `NVIDIA-H100-80GB`.
        card: Arc<str>,
        /// The number.
        cards: i64,
    },
}

/// The cards of an annotation, in thousandths; `None`: it is absent or empty.
///
/// Under `upstream` numbers below 0 count as they are, and numbers that are too large wrap around.
///
/// # Errors
/// The annotation cannot be read.
pub fn read_cards(
    annotations: &TextMap,
    annotation: &'static str,
    compatibility: Compatibility,
) -> Result<Option<QuotaAmounts>, CardsError> {
    let Some(text) = find_text(annotations, annotation).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let entries = json_object::read_integers(text).map_err(|error| CardsError::Json { annotation, error })?;
    let mut counts = QuotaAmounts::default();
    for (card, cards) in entries {
        let milli = match compatibility {
            Compatibility::Upstream(_) => cards.wrapping_mul(1000),
            Compatibility::Corrected if cards < 0 => {
                return Err(CardsError::Negative {
                    annotation,
                    card,
                    cards,
                });
            }
            Compatibility::Corrected => match cards.checked_mul(1000) {
                Some(milli) => milli,
                None => {
                    return Err(CardsError::TooMany {
                        annotation,
                        card,
                        cards,
                    });
                }
            },
        };
        match compatibility {
            Compatibility::Upstream(_) => counts.set_card(&card, milli.into()),
            // `A | B|A` and `A|B` name the same choice.
            Compatibility::Corrected => counts.add_card(&normalize_choice(&card), milli.into()),
        }
    }
    Ok(Some(counts))
}

/// A choice of cards as `corrected` reads it: without spaces around the names, empty names and repetitions.
pub fn normalize_choice(name: &str) -> Arc<str> {
    if !name.contains(CARD_SEPARATOR) {
        return Arc::from(name.trim());
    }
    let mut names: Vec<&str> = Vec::new();
    for name in name
        .split(CARD_SEPARATOR)
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Arc::from(names.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, compatibility: Compatibility) -> Result<Option<QuotaAmounts>, CardsError> {
        let texts: TextMap = vec![(Arc::from(REQUEST), Arc::from(text))].into();
        read_cards(&texts, REQUEST, compatibility)
    }

    #[test]
    fn numbers_out_of_range_are_rejected_under_corrected() {
        for text in [r#"{"A": -1}"#, r#"{"A": 9223372036854775807}"#] {
            assert!(of(text, Compatibility::UPSTREAM).unwrap().is_some());
            assert!(of(text, Compatibility::Corrected).is_err());
        }
        let wrapped = of(r#"{"A": 9223372036854775807}"#, Compatibility::UPSTREAM)
            .unwrap()
            .unwrap();
        assert_eq!(wrapped.card("A"), Some(-1000));
        assert_eq!(of("", Compatibility::Corrected), Ok(None));
    }

    #[test]
    fn choices_are_tidied_under_corrected() {
        assert_eq!(&*normalize_choice(" A |B||A|"), "A|B");
        assert_eq!(&*normalize_choice("A "), "A");
        let counts = of(r#"{"A|B": 1, "A|B|": 2}"#, Compatibility::Corrected)
            .unwrap()
            .unwrap();
        assert_eq!(counts.card("A|B"), Some(3000));
    }
}
