//! A JSON object of whole numbers, read as strictly as Go's `encoding/json` reads it into `map[string]int`.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a text is no JSON object of whole numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// It is no JSON at this byte.
    #[error("no valid JSON at byte {at}: expected {expected}")]
    Syntax {
        /// Offset in bytes.
        at: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// It is JSON, but no object.
    #[error("expected a JSON object of whole numbers, found {found}")]
    NoObject {
        /// What it is.
        found: &'static str,
    },
    /// The value of a key is no whole number of 64 bits.
    #[error("the value of `{key}` is {found}, not a whole number of 64 bits")]
    NoInteger {
        /// The key.
        key: String,
        /// What it is.
        found: String,
    },
}

/// Reads an object; of a repeated key the last value counts, and null is 0.
///
/// # Errors
/// The text is not such an object. Whatever stands behind the first fault is not looked at.
pub(super) fn integers(text: &str) -> Result<BTreeMap<Arc<str>, i64>, ObjectError> {
    let mut reader = Reader { text, at: 0 };
    reader.skip_space();
    let entries = match reader.peek() {
        Some(b'{') => reader.object()?,
        Some(b'n') => {
            reader.literal("null")?;
            BTreeMap::new()
        }
        Some(first) => {
            return Err(ObjectError::NoObject {
                found: kind(first).ok_or(reader.fault("a JSON object"))?,
            });
        }
        None => return Err(reader.fault("a JSON object")),
    };
    reader.skip_space();
    match reader.peek() {
        None => Ok(entries),
        Some(_) => Err(reader.fault("the end")),
    }
}

/// The kind of the value that begins with this byte.
fn kind(first: u8) -> Option<&'static str> {
    match first {
        b'"' => Some("a string"),
        b'[' => Some("an array"),
        b'{' => Some("an object"),
        b't' | b'f' => Some("a bool"),
        b'-' | b'0'..=b'9' => Some("a number"),
        _ => None,
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fault(&self, expected: &'static str) -> ObjectError {
        ObjectError::Syntax { at: self.at, expected }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), ObjectError> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.fault(expected))
    }

    fn literal(&mut self, word: &'static str) -> Result<(), ObjectError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        Err(self.fault(word))
    }

    fn object(&mut self) -> Result<BTreeMap<Arc<str>, i64>, ObjectError> {
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
            let value = self.value(&key)?;
            entries.insert(Arc::from(key), value);
            self.skip_space();
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(entries);
            }
            self.take(b',', "`,` or `}`")?;
        }
    }

    fn value(&mut self, key: &str) -> Result<i64, ObjectError> {
        let no_integer = |found: &str| ObjectError::NoInteger {
            key: key.to_owned(),
            found: found.to_owned(),
        };
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => {
                let number = self.number()?;
                number.parse().map_err(|_| no_integer(number))
            }
            Some(b'n') => self.literal("null").map(|()| 0),
            Some(first) => Err(kind(first).map_or_else(|| self.fault("a number"), no_integer)),
            None => Err(self.fault("a number")),
        }
    }

    /// A number by JSON's grammar.
    fn number(&mut self) -> Result<&'a str, ObjectError> {
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

    fn digits(&mut self) -> Result<(), ObjectError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.fault("a digit"));
        }
        Ok(())
    }

    fn string(&mut self) -> Result<String, ObjectError> {
        self.take(b'"', "a string as key")?;
        let mut text = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(next) = rest.chars().next() else {
                return Err(self.fault("the end of a string"));
            };
            match next {
                '"' => {
                    self.at += 1;
                    return Ok(text);
                }
                '\\' => text.push(self.escape()?),
                control if u32::from(control) < 0x20 => return Err(self.fault("no control character in a string")),
                plain => {
                    self.at += plain.len_utf8();
                    text.push(plain);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, ObjectError> {
        self.at += 1;
        let Some(letter) = self.peek() else {
            return Err(self.fault("an escape"));
        };
        let plain = match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(self.fault("an escape")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// `uXXXX`, and the second half of a pair; a half that stands alone becomes U+FFFD, as in Go.
    fn unicode(&mut self) -> Result<char, ObjectError> {
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
    fn hex(&mut self) -> Result<u32, ObjectError> {
        let digits = self.text.get(self.at + 1..self.at + 5).unwrap_or_default();
        let four = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u32::from_str_radix(digits, 16) {
            Ok(code) if four => {
                self.at += 5;
                Ok(code)
            }
            _ => Err(self.fault("four hexadecimal digits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, i64)>, String> {
        integers(text)
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
    fn refuses_what_go_refuses() {
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
