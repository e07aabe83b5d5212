//! Annotations with a pod's own strategy and weights.

use std::collections::BTreeMap;

use crate::plugins::allocation::AllocationStrategy;

/// Annotation that names the strategy; empty or missing: the plugin's own applies.
pub(super) const SCORING_TYPE: &str = "volcano.sh/resource-strategy-scoring-type";
/// Annotation with the weights: a JSON object of integers by resource name.
pub(super) const WEIGHT: &str = "volcano.sh/resource-strategy-weight";

/// Strategy of a name.
pub(super) fn parse_strategy(name: &str) -> Option<AllocationStrategy> {
    match name {
        "MostAllocated" => Some(AllocationStrategy::Most),
        "LeastAllocated" => Some(AllocationStrategy::Least),
        _ => None,
    }
}

/// Error: weights that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WeightsError {
    /// Annotation without text.
    #[error("is missing or empty")]
    Missing,
    /// Text that is not a JSON object.
    #[error("is no JSON object")]
    NotAnObject,
    /// Value that is not a 64-bit integer.
    #[error("gives `{0}` a weight that is no 64-bit integer")]
    NotAnInteger(String),
    /// Text that is not JSON.
    #[error("is no valid JSON at byte {0}")]
    Syntax(usize),
}

/// Reads the weights like Go's encoding/json reads a map of integers, for example `{"cpu": 1}`. null is 0, or an empty
/// object. The last of equal names applies. A fraction, an exponent, or text after the object is rejected.
pub(super) fn parse_weights(text: &str) -> Result<BTreeMap<String, i64>, WeightsError> {
    if text.is_empty() {
        return Err(WeightsError::Missing);
    }
    let mut reader = WeightsReader { text, at: 0 };
    reader.skip_space();
    let weights = if reader.take_literal("null") {
        BTreeMap::new()
    } else {
        reader.object()?
    };
    reader.skip_space();
    if reader.at < text.len() {
        return reader.syntax_error();
    }
    Ok(weights)
}

struct WeightsReader<'t> {
    text: &'t str,
    /// Position in the text, always on a character boundary.
    at: usize,
}

impl<'t> WeightsReader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn syntax_error<T>(&self) -> Result<T, WeightsError> {
        Err(WeightsError::Syntax(self.at))
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn take_literal(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn object(&mut self) -> Result<BTreeMap<String, i64>, WeightsError> {
        if !self.take_literal("{") {
            return Err(WeightsError::NotAnObject);
        }
        let mut weights = BTreeMap::new();
        self.skip_space();
        if self.take_literal("}") {
            return Ok(weights);
        }
        loop {
            self.skip_space();
            let name = self.string()?;
            self.skip_space();
            if !self.take_literal(":") {
                return self.syntax_error();
            }
            self.skip_space();
            let weight = self.weight(&name)?;
            weights.insert(name, weight);
            self.skip_space();
            if self.take_literal("}") {
                return Ok(weights);
            }
            if !self.take_literal(",") {
                return self.syntax_error();
            }
        }
    }

    fn weight(&mut self, name: &str) -> Result<i64, WeightsError> {
        if self.take_literal("null") {
            return Ok(0);
        }
        let rest = self.rest();
        let end = rest.find([',', '}', ' ', '\t', '\n', '\r']).unwrap_or(rest.len());
        let (number, _) = rest.split_at_checked(end).unwrap_or_default();
        let digits = number.strip_prefix('-').unwrap_or(number);
        let plain = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
        let weight = number.parse().ok().filter(|_| plain);
        let weight = weight.ok_or_else(|| WeightsError::NotAnInteger(name.to_owned()))?;
        self.at += end;
        Ok(weight)
    }

    fn string(&mut self) -> Result<String, WeightsError> {
        if !self.take_literal("\"") {
            return self.syntax_error();
        }
        let mut string = String::new();
        loop {
            let Some(next) = self.rest().chars().next() else {
                return self.syntax_error();
            };
            match next {
                '\0'..='\u{1f}' => return self.syntax_error(),
                '"' => {
                    self.at += 1;
                    return Ok(string);
                }
                '\\' => string.push(self.escape()?),
                other => {
                    self.at += other.len_utf8();
                    string.push(other);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, WeightsError> {
        const SHORT: [(&str, char); 8] = [
            ("\\\"", '"'),
            ("\\\\", '\\'),
            ("\\/", '/'),
            ("\\b", '\u{8}'),
            ("\\f", '\u{c}'),
            ("\\n", '\n'),
            ("\\r", '\r'),
            ("\\t", '\t'),
        ];
        if let Some((_, char)) = SHORT.into_iter().find(|(text, _)| self.take_literal(text)) {
            return Ok(char);
        }
        let high = self.unit()?;
        let before = self.at;
        if (0xd800..0xdc00).contains(&high)
            && self.rest().starts_with("\\u")
            && let low @ 0xdc00..0xe000 = self.unit()?
        {
            let both = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            return Ok(char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        // The surrogate has no partner.
        self.at = before;
        Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// Reads `\u` and four hexadecimal digits.
    fn unit(&mut self) -> Result<u32, WeightsError> {
        if !self.take_literal("\\u") {
            return self.syntax_error();
        }
        let digits = self
            .rest()
            .get(..4)
            .filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(unit) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
            return self.syntax_error();
        };
        self.at += 4;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        let read = |text: &str| parse_weights(text).map(|weights| weights.into_iter().collect::<Vec<_>>());
        let pair = |name: &str, weight| (name.to_owned(), weight);
        assert_eq!(read(r#"{"cpu":3}"#), Ok(vec![pair("cpu", 3)]));
        assert_eq!(
            read(" { \"a\\u0062\\ud83d\\ude00\" : -2 ,\n\"\\/\\t\":null } "),
            Ok(vec![pair("/\t", 0), pair("ab😀", -2)])
        );
        assert_eq!(read(r#"{"\ud83d":1}"#), Ok(vec![pair("\u{fffd}", 1)]));
        assert_eq!(read("null"), Ok(vec![]));
        assert_eq!(read("{ }"), Ok(vec![]));
        assert_eq!(read(r#"{"a":1,"a":2}"#), Ok(vec![pair("a", 2)]));
        assert_eq!(read(r#"{"a":-0}"#), Ok(vec![pair("a", 0)]));
        assert_eq!(read(r#"{"a":9223372036854775807}"#), Ok(vec![pair("a", i64::MAX)]));
    }

    #[test]
    fn rejects_what_go_rejects() {
        for text in [
            "{\"a\":1",
            "{\"a\":1}x",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\" 1}",
            "{\"\u{1}\":1}",
            "{\"\\x\":1}",
            "{}{}",
        ] {
            assert!(matches!(parse_weights(text), Err(WeightsError::Syntax(_))), "{text}");
        }
        for value in [
            "1.5",
            "2.0",
            "1e2",
            "\"1\"",
            "true",
            "01",
            "+1",
            "",
            "-",
            "[1]",
            "9223372036854775808",
        ] {
            let text = format!("{{\"a\":{value}}}");
            assert_eq!(
                parse_weights(&text),
                Err(WeightsError::NotAnInteger("a".to_owned())),
                "{text}"
            );
        }
        assert_eq!(parse_weights("\"cpu\""), Err(WeightsError::NotAnObject));
        assert_eq!(parse_weights("[]"), Err(WeightsError::NotAnObject));
        assert_eq!(parse_weights(""), Err(WeightsError::Missing));
    }
}
