//! A JSON object of whole numbers, read as strictly as Go's `encoding/json` reads it into `map[string]int`.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a text is no JSON object of whole numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonObjectError {
    /// The text is no JSON object at this byte.
    #[error("no valid JSON at byte {at}: expected {expected}")]
    Syntax {
        /// Offset in bytes.
        at: usize,
        /// Text that is expected at that byte.
        expected: &'static str,
    },
    /// The value of a key is no whole number of 64 bits.
    #[error("the value of `{key}` is {found}, not a whole number of 64 bits")]
    NoInteger {
        /// Name of the member, such as `NVIDIA-H100-80GB`.
        key: String,
        /// Text of the value.
        found: String,
    },
}

/// Reads an object, for example `{"cpu": 1}`; of a repeated key the last value counts, and null is 0, or an empty object.
///
/// # Errors
/// The text is not such an object. Whatever stands behind the first fault is not looked at.
pub(super) fn read_integers(text: &str) -> Result<BTreeMap<Arc<str>, i64>, JsonObjectError> {
    let mut reader = JsonObjectReader { text, at: 0 };
    reader.skip_space();
    let entries = if reader.takes("null") {
        BTreeMap::new()
    } else {
        reader.object()?
    };
    reader.skip_space();
    if reader.at < text.len() {
        return reader.syntax_error("the end");
    }
    Ok(entries)
}

struct JsonObjectReader<'t> {
    text: &'t str,
    /// Position in the text, always on a character boundary.
    at: usize,
}

impl<'t> JsonObjectReader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn syntax_error<T>(&self, expected: &'static str) -> Result<T, JsonObjectError> {
        Err(JsonObjectError::Syntax { at: self.at, expected })
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn take(&mut self, word: &str, expected: &'static str) -> Result<(), JsonObjectError> {
        if self.takes(word) {
            return Ok(());
        }
        self.syntax_error(expected)
    }

    fn object(&mut self) -> Result<BTreeMap<Arc<str>, i64>, JsonObjectError> {
        self.take("{", "a JSON object")?;
        let mut entries = BTreeMap::new();
        self.skip_space();
        if self.takes("}") {
            return Ok(entries);
        }
        loop {
            self.skip_space();
            self.take("\"", "a string as key")?;
            let key = self.string()?;
            self.skip_space();
            self.take(":", "`:`")?;
            self.skip_space();
            let value = self.value(&key)?;
            entries.insert(Arc::from(key), value);
            self.skip_space();
            if self.takes("}") {
                return Ok(entries);
            }
            self.take(",", "`,` or `}`")?;
        }
    }

    fn value(&mut self, key: &str) -> Result<i64, JsonObjectError> {
        if self.takes("null") {
            return Ok(0);
        }
        let rest = self.rest();
        let end = rest.find([',', '}', ' ', '\t', '\n', '\r']).unwrap_or(rest.len());
        let found = rest.get(..end).unwrap_or_default();
        let digits = found.strip_prefix('-').unwrap_or(found);
        let is_plain = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(value) = found.parse().ok().filter(|_| is_plain) else {
            let (key, found) = (key.to_owned(), format!("`{found}`"));
            return Err(JsonObjectError::NoInteger { key, found });
        };
        self.at += end;
        Ok(value)
    }

    /// Rest of a string behind its first quotation mark.
    fn string(&mut self) -> Result<String, JsonObjectError> {
        let mut text = String::new();
        loop {
            match self.rest().chars().next() {
                None => return self.syntax_error("the end of a string"),
                Some('\0'..='\u{1f}') => return self.syntax_error("no control character in a string"),
                Some('"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some('\\') => text.push(self.escape()?),
                Some(plain) => {
                    self.at += plain.len_utf8();
                    text.push(plain);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonObjectError> {
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
        if let Some((_, char)) = SHORT.into_iter().find(|(text, _)| self.takes(text)) {
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
        // A surrogate that has no partner becomes U+FFFD, as in Go.
        self.at = before;
        Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// Reads `\u` and four hexadecimal digits.
    fn unit(&mut self) -> Result<u32, JsonObjectError> {
        self.take("\\u", "an escape")?;
        let digits = self.rest().get(..4);
        let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(unit) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
            return self.syntax_error("four hexadecimal digits");
        };
        self.at += 4;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, i64)>, String> {
        read_integers(text)
            .map(|entries| entries.iter().map(|(key, value)| (key.to_string(), *value)).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn reads_what_go_reads() {
        let one = |key: &str, value| Ok(vec![(key.to_owned(), value)]);
        assert_eq!(read(" {\"a|b\" : -0}\n"), one("a|b", 0));
        assert_eq!(read(r#"{"a":1,"a":null}"#), one("a", 0));
        assert_eq!(read(r#"{"a":1,"a":2}"#), one("a", 2));
        assert_eq!(
            read(r#"{"\u0041\ud83d\ude00\ud800x\/\t":9223372036854775807}"#),
            one("A😀\u{fffd}x/\t", i64::MAX)
        );
        assert_eq!(read(r#"{"\ud800\u0041":1}"#), one("\u{fffd}A", 1));
        assert_eq!(read("null"), Ok(Vec::new()));
        assert_eq!(read("{ }"), Ok(Vec::new()));
    }

    #[test]
    fn rejects_what_go_rejects() {
        let syntax = [
            "",
            " ",
            "[]",
            "1",
            "\"cpu\"",
            "nul",
            "{",
            "{a:1}",
            "{\"a\"}",
            "{\"a\" 1}",
            "{\"a\":1,}",
            "{\"a\":1} x",
            "{}{}",
        ];
        let strings = [
            "{\"a\nb\":1}",
            "{\"\u{1}\":1}",
            "{\"\\x\":1}",
            "{\"\\u00g0\":1}",
            "{\"\\u00",
        ];
        for text in syntax
            .into_iter()
            .chain(strings)
            .chain(["{\"a\":1", "{\"a\":1 \"b\":2}"])
        {
            assert!(
                matches!(read_integers(text), Err(JsonObjectError::Syntax { .. })),
                "{text}"
            );
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
            "{}",
            "[1]",
            "9223372036854775808",
        ] {
            let error = read_integers(&format!("{{\"a\":{value}}}")).unwrap_err();
            assert!(
                matches!(error, JsonObjectError::NoInteger { key, .. } if key == "a"),
                "{value}"
            );
        }
        let error = read(r#"{"A": "2"}"#).unwrap_err();
        assert_eq!(error, "the value of `A` is `\"2\"`, not a whole number of 64 bits");
        let error = read("{\"a\":1,}").unwrap_err();
        assert_eq!(error, "no valid JSON at byte 7: expected a string as key");
    }
}
