//! JSON objects in annotations, read as strictly as Go's `encoding/json` reads them into maps.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a text is no JSON object of whole numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonObjectError {
    /// The text is no JSON at this byte.
    #[error("no valid JSON at byte {at}: expected {expected}")]
    Syntax {
        /// Offset in bytes.
        at: usize,
        /// Text that is expected at that byte.
        expected: &'static str,
    },
    /// The text is JSON, but no object.
    #[error("expected a JSON object, found {found}")]
    NoObject {
        /// Kind of the value.
        found: &'static str,
    },
    /// The value of a key is neither a text nor a number.
    #[error("the value of `{key}` is {found}, not a quantity")]
    NoQuantity {
        /// Name of the member, such as `cpu`.
        key: String,
        /// Kind of the value.
        found: &'static str,
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

/// Reads an object; of a repeated key the last value counts, and null is 0.
///
/// # Errors
/// The text is not such an object. Reading stops at the first error.
pub(super) fn read_integers(text: &str) -> Result<BTreeMap<Arc<str>, i64>, JsonObjectError> {
    read_whole(text, JsonObjectReader::integer)
}

/// Texts of quantities by name.
pub(super) type WrittenQuantities = BTreeMap<Arc<str>, String>;

/// Reads an object of objects of quantities, each a text or a number; of a repeated key the last value counts, and null is
/// an empty object, or 0.
///
/// # Errors
/// The text is not such an object. Reading stops at the first error.
pub(super) fn read_quantities(text: &str) -> Result<BTreeMap<Arc<str>, WrittenQuantities>, JsonObjectError> {
    read_whole(text, |reader, _| reader.object_or_null(JsonObjectReader::quantity))
}

/// Reads an object that is the whole text, value by value.
fn read_whole<'a, T>(text: &'a str, value: ValueReader<'a, T>) -> Result<BTreeMap<Arc<str>, T>, JsonObjectError> {
    let mut reader = JsonObjectReader { text, at: 0 };
    reader.skip_space();
    let entries = reader.object_or_null(value)?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(entries),
        Some(_) => Err(reader.syntax_error("the end")),
    }
}

/// The kind of the value that begins with this byte.
fn value_kind(first: u8) -> Option<&'static str> {
    match first {
        b'"' => Some("a string"),
        b'[' => Some("an array"),
        b'{' => Some("an object"),
        b't' | b'f' => Some("a bool"),
        b'-' | b'0'..=b'9' => Some("a number"),
        _ => None,
    }
}

/// Reads the value of a key.
type ValueReader<'a, T> = fn(&mut JsonObjectReader<'a>, &str) -> Result<T, JsonObjectError>;

struct JsonObjectReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonObjectReader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn syntax_error(&self, expected: &'static str) -> JsonObjectError {
        JsonObjectError::Syntax { at: self.at, expected }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonObjectError> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.syntax_error(expected))
    }

    fn literal(&mut self, word: &'static str) -> Result<(), JsonObjectError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        Err(self.syntax_error(word))
    }

    fn object_or_null<T>(&mut self, value: ValueReader<'a, T>) -> Result<BTreeMap<Arc<str>, T>, JsonObjectError> {
        match self.peek() {
            Some(b'{') => self.object(value),
            Some(b'n') => self.literal("null").map(|()| BTreeMap::new()),
            Some(first) => Err(JsonObjectError::NoObject {
                found: value_kind(first).ok_or(self.syntax_error("a JSON object"))?,
            }),
            None => Err(self.syntax_error("a JSON object")),
        }
    }

    fn object<T>(&mut self, value: ValueReader<'a, T>) -> Result<BTreeMap<Arc<str>, T>, JsonObjectError> {
        let mut entries = BTreeMap::new();
        self.take(b'{', "`{`")?;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(entries);
        }
        loop {
            self.skip_space();
            let key = self.string()?;
            self.skip_space();
            self.take(b':', "`:`")?;
            self.skip_space();
            let value = value(self, &key)?;
            entries.insert(Arc::from(key), value);
            self.skip_space();
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(entries);
            }
            self.take(b',', "`,` or `}`")?;
        }
    }

    fn quantity(&mut self, key: &str) -> Result<String, JsonObjectError> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number().map(str::to_owned),
            Some(b'n') => self.literal("null").map(|()| "0".to_owned()),
            Some(first) => Err(value_kind(first).map_or_else(
                || self.syntax_error("a quantity"),
                |found| JsonObjectError::NoQuantity {
                    key: key.to_owned(),
                    found,
                },
            )),
            None => Err(self.syntax_error("a quantity")),
        }
    }

    fn integer(&mut self, key: &str) -> Result<i64, JsonObjectError> {
        let no_integer = |found: &str| JsonObjectError::NoInteger {
            key: key.to_owned(),
            found: found.to_owned(),
        };
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => {
                let number = self.number()?;
                number.parse().map_err(|_| no_integer(number))
            }
            Some(b'n') => self.literal("null").map(|()| 0),
            Some(first) => Err(value_kind(first).map_or_else(|| self.syntax_error("a number"), no_integer)),
            None => Err(self.syntax_error("a number")),
        }
    }

    /// A number by JSON's grammar.
    fn number(&mut self) -> Result<&'a str, JsonObjectError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    fn digits(&mut self) -> Result<(), JsonObjectError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.syntax_error("a digit"));
        }
        Ok(())
    }

    fn string(&mut self) -> Result<String, JsonObjectError> {
        self.take(b'"', "a string as key")?;
        let mut text = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(next) = rest.chars().next() else {
                return Err(self.syntax_error("the end of a string"));
            };
            match next {
                '"' => {
                    self.at += 1;
                    return Ok(text);
                }
                '\\' => text.push(self.escape()?),
                control if u32::from(control) < 0x20 => {
                    return Err(self.syntax_error("no control character in a string"));
                }
                plain => {
                    self.at += plain.len_utf8();
                    text.push(plain);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonObjectError> {
        self.at += 1;
        let Some(letter) = self.peek() else {
            return Err(self.syntax_error("an escape"));
        };
        let plain = match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(self.syntax_error("an escape")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// `uXXXX`, and the second half of a pair; a half that stands alone becomes U+FFFD, as in Go.
    fn unicode(&mut self) -> Result<char, JsonObjectError> {
        let first = self.hex()?;
        let rest = self.text.get(self.at..).unwrap_or_default();
        if (0xD800..0xDC00).contains(&first) && rest.starts_with("\\u") {
            let after_first = self.at;
            self.at += 1;
            let second = self.hex()?;
            if (0xDC00..0xE000).contains(&second) {
                let pair = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = after_first;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// `uXXXX`, at the `u`.
    fn hex(&mut self) -> Result<u32, JsonObjectError> {
        let digits = self.text.get(self.at + 1..self.at + 5).unwrap_or_default();
        let four = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u32::from_str_radix(digits, 16) {
            Ok(code) if four => {
                self.at += 5;
                Ok(code)
            }
            _ => Err(self.syntax_error("four hexadecimal digits")),
        }
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
        assert_eq!(
            read(r#"{"\u0041\ud83d\ude00\ud800x":9223372036854775807}"#),
            one("A😀\u{fffd}x", i64::MAX)
        );
        assert_eq!(read(r#"{"\ud800\u0041":1}"#), one("\u{fffd}A", 1));
        assert_eq!(read("null"), Ok(Vec::new()));
        assert_eq!(read("{}"), Ok(Vec::new()));
    }

    #[test]
    fn rejects_what_go_rejects() {
        for text in [
            "",
            " ",
            "[]",
            "1",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":01}",
            "{\"a\":1.0}",
            "{\"a\":1e1}",
            "{\"a\":\"1\"}",
            "{\"a\":true}",
            "{\"a\":{}}",
            "{\"a\":+1}",
            "{\"a\":1} x",
            "{a:1}",
            "{\"a\nb\":1}",
            "nul",
            "{\"a\":9223372036854775808}",
            "{\"\\x\":1}",
            "{\"\\u00g0\":1}",
            "{\"\\u00",
            "{\"a\":-}",
            "{\"a\":1 \"b\":2}",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let error = read(r#"{"A": "2"}"#).unwrap_err();
        assert_eq!(error, "the value of `A` is a string, not a whole number of 64 bits");
        assert_eq!(
            read("{\"a\":1,}").unwrap_err(),
            "no valid JSON at byte 7: expected a string as key"
        );
    }
}
