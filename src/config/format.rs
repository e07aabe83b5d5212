//! How values of settings are read, shown, and described in a schema.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::values::milliseconds;

/// Values of a setting, as a schema describes them.
#[derive(Clone, Copy, Debug)]
pub enum ValueRule {
    /// Milliseconds, or a number with a unit, such as `30s`.
    Time,
    /// Bytes, or a number with a suffix, such as `64Mi`.
    Bytes,
    /// A whole number.
    Count,
    /// A number from 0 to 1.
    Ratio,
    /// One of these words; `true` and `false` need no quotes.
    Words(fn() -> Vec<&'static str>),
    /// Text that matches this pattern.
    Pattern(&'static str),
    /// Any text.
    Text,
}

/// Format of a setting whose value is a `T`.
#[derive(Debug)]
pub(super) struct Format<T: 'static> {
    pub(super) value_name: &'static str,
    pub(super) rule: ValueRule,
    pub(super) read: fn(&str) -> Result<T, String>,
    pub(super) show: fn(&T) -> String,
}

impl<T> Format<T> {
    #[expect(clippy::unused_self, reason = "asked like a format of several values")]
    pub(super) const fn is_list(&self) -> bool {
        false
    }

    /// Same format with a stricter reader.
    pub(super) const fn read_by(self, read: fn(&str) -> Result<T, String>) -> Self {
        Self { read, ..self }
    }

    pub(super) fn put(&self, place: &mut T, values: &[String]) -> Result<(), String> {
        *place = (self.read)(one_value(values)?)?;
        Ok(())
    }

    pub(super) fn values(&self, value: &T) -> Vec<String> {
        vec![(self.show)(value)]
    }
}

/// The value of a setting that takes no list.
pub(super) fn one_value(values: &[String]) -> Result<&str, String> {
    match values {
        [value] => Ok(value),
        _ => Err("takes one value, not a list".to_owned()),
    }
}

/// Format of a setting with several values.
#[derive(Debug)]
pub(super) struct ListFormat<T: 'static> {
    pub(super) value_name: &'static str,
    pub(super) rule: ValueRule,
    pub(super) read: fn(&[String]) -> Result<Vec<T>, String>,
}

impl<T: fmt::Display> ListFormat<T> {
    #[expect(clippy::unused_self, reason = "asked like a format of one value")]
    pub(super) const fn is_list(&self) -> bool {
        true
    }

    pub(super) const fn new(value_name: &'static str, read: fn(&[String]) -> Result<Vec<T>, String>) -> Self {
        Self {
            value_name,
            rule: ValueRule::Text,
            read,
        }
    }

    pub(super) fn put(&self, place: &mut Vec<T>, values: &[String]) -> Result<(), String> {
        *place = (self.read)(values)?;
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "called like the method of a format of one value")]
    pub(super) fn values(&self, values: &[T]) -> Vec<String> {
        values.iter().map(ToString::to_string).collect()
    }
}

/// File or directory; empty: none.
pub(super) const fn path(value_name: &'static str) -> Format<Option<PathBuf>> {
    Format {
        value_name,
        rule: ValueRule::Text,
        read: |value| Ok((!value.is_empty()).then(|| PathBuf::from(value))),
        show: |path| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
    }
}

/// Text, taken without a change; a reader may be stricter.
pub(super) const fn text(value_name: &'static str) -> Format<String> {
    Format {
        value_name,
        rule: ValueRule::Text,
        read: |value| Ok(value.to_owned()),
        show: String::clone,
    }
}

/// Text; empty: none.
pub(super) const fn optional_text(value_name: &'static str) -> Format<Option<String>> {
    Format {
        value_name,
        rule: ValueRule::Text,
        read: |value| Ok((!value.is_empty()).then(|| value.to_owned())),
        show: |value| value.clone().unwrap_or_default(),
    }
}

/// Time of at most a day.
pub(super) const TIME: Format<Duration> = Format {
    value_name: "MS",
    rule: ValueRule::Time,
    read: milliseconds,
    show: |time| time.as_millis().to_string(),
};

/// Value of a few words.
pub(super) trait Words: Copy + PartialEq + 'static {
    /// Each word with its value.
    const WORDS: &'static [(&'static str, Self)];

    /// Word of this value.
    fn word(self) -> &'static str {
        let mut words = Self::WORDS.iter();
        words.find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

impl Words for bool {
    const WORDS: &'static [(&'static str, Self)] = &[("false", false), ("true", true)];
}

/// One of the words of a type.
pub(super) const fn word<T: Words>(value_name: &'static str) -> Format<T> {
    Format {
        value_name,
        rule: ValueRule::Words(|| T::WORDS.iter().map(|(word, _)| *word).collect()),
        read: read_word,
        show: |value| value.word().to_owned(),
    }
}

/// Value of a word.
///
/// # Errors
/// There is no such word.
pub(super) fn read_word<T: Words>(value: &str) -> Result<T, String> {
    let found = T::WORDS.iter().find(|(word, _)| *word == value);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words = T::WORDS.iter().filter(|(word, _)| !word.is_empty());
        let words: Vec<String> = words.map(|(word, _)| format!("`{word}`")).collect();
        format!("`{value}` is not one of {}", words.join(", "))
    })
}
