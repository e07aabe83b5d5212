//! Characters of a document, checked window by window, with the position of the next one.

use super::{Mark, YamlError};

/// Number of bytes per check. The reference checks control characters in windows of this size. An invalid character in
/// a later document is therefore found only close to the first document.
const WINDOW: usize = 512;

/// Number of read characters that stay in memory before they are discarded. A large text is therefore not held twice.
const RETAINED_CHARS: usize = 64 * WINDOW;

/// Position in the text: characters, lines and columns from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TextPosition {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

impl TextPosition {
    /// Same position in people's counting.
    pub(super) fn mark(self) -> Mark {
        let from_one = |n: usize| u32::try_from(n.saturating_add(1)).unwrap_or(u32::MAX);
        Mark {
            line: from_one(self.line),
            column: from_one(self.column),
        }
    }
}

/// Source of characters; the end of the text reads as U+0000, which no document may contain.
#[derive(Debug)]
pub(super) struct CharSource<'t> {
    text: &'t str,
    checked_bytes: usize,
    /// Checked characters from number `dropped` on; earlier ones are not needed any more.
    chars: Vec<char>,
    dropped: usize,
    position: TextPosition,
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// True for a line break or the end of the text.
pub(super) fn is_break_or_end(c: char) -> bool {
    c == '\0' || is_break(c)
}

/// True for a blank, a line break or the end of the text.
pub(super) fn is_gap(c: char) -> bool {
    is_blank(c) || is_break_or_end(c)
}

/// True for a character of anchors, handles and directive names.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn is_allowed(c: char) -> bool {
    matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

impl<'t> CharSource<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        CharSource {
            text,
            checked_bytes: 0,
            chars: Vec::new(),
            dropped: 0,
            position: TextPosition::default(),
        }
    }

    pub(super) fn position(&self) -> TextPosition {
        self.position
    }

    /// Makes `count` characters (or the end) available to [`CharSource::peek`].
    pub(super) fn need(&mut self, count: usize) -> Result<(), YamlError> {
        while self.chars.len() < self.next_char_index() + count && self.checked_bytes < self.text.len() {
            self.check_window()?;
        }
        Ok(())
    }

    /// Index of the next character in `chars`.
    fn next_char_index(&self) -> usize {
        self.position.index - self.dropped
    }

    fn check_window(&mut self) -> Result<(), YamlError> {
        if self.next_char_index() > RETAINED_CHARS {
            let behind = self.next_char_index().min(self.chars.len());
            self.chars.drain(..behind);
            self.dropped += behind;
        }
        let mut start = self.checked_bytes;
        let mut end = (start + WINDOW).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        if start == 0 && self.text.starts_with('\u{feff}') {
            start = '\u{feff}'.len_utf8();
            // yaml.v2 would skip the first character of every line after it.
            if self.text.get(start..).is_some_and(|rest| rest.starts_with('\u{feff}')) {
                let message = "a second byte order mark at the start of the document".to_owned();
                return Err(YamlError::syntax(self.position.mark(), message));
            }
        }
        for c in self.text.get(start..end).unwrap_or_default().chars() {
            if !is_allowed(c) {
                let message = format!("control character U+{:04X} is not allowed", u32::from(c));
                return Err(YamlError::syntax(self.position_of_next_unchecked().mark(), message));
            }
            self.chars.push(c);
        }
        self.checked_bytes = end;
        Ok(())
    }

    /// Position of the next unchecked character.
    fn position_of_next_unchecked(&self) -> TextPosition {
        let mut place = self.position;
        let mut before = '\0';
        for &c in self.chars.iter().skip(self.next_char_index()) {
            if is_break(c) && !(before == '\r' && c == '\n') {
                place.line += 1;
            }
            place.column = if is_break(c) { 0 } else { place.column + 1 };
            before = c;
        }
        place
    }

    /// Character `ahead` places after the next one; the end of the text if `need` did not request it.
    pub(super) fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.next_char_index() + ahead).copied().unwrap_or('\0')
    }

    /// Skips one character that is not a line break.
    pub(super) fn skip(&mut self) {
        self.position.index += 1;
        self.position.column += 1;
    }

    /// Takes a line break (CR LF is a single break) and returns its value inside text: U+2028 and U+2029 are kept,
    /// others become a line feed.
    pub(super) fn take_break(&mut self) -> Option<char> {
        let c = self.peek(0);
        if !is_break(c) {
            return None;
        }
        self.position.index += if c == '\r' && self.peek(1) == '\n' { 2 } else { 1 };
        self.position.line += 1;
        self.position.column = 0;
        Some(if matches!(c, '\u{2028}' | '\u{2029}') { c } else { '\n' })
    }

    /// Takes one character that is not a line break.
    pub(super) fn take(&mut self) -> char {
        let c = self.peek(0);
        self.skip();
        c
    }

    pub(super) fn skip_blanks(&mut self) -> Result<(), YamlError> {
        self.need(1)?;
        while is_blank(self.peek(0)) {
            self.skip();
            self.need(1)?;
        }
        Ok(())
    }

    /// Skips a comment, if one begins here, up to its line break.
    pub(super) fn skip_comment(&mut self) -> Result<(), YamlError> {
        if self.peek(0) == '#' {
            while !is_break_or_end(self.peek(0)) {
                self.skip();
                self.need(1)?;
            }
        }
        Ok(())
    }

    /// Indicator `---` or `...` at the start of this line, if white space follows it.
    pub(super) fn at_document_indicator(&self) -> Option<char> {
        let c = self.peek(0);
        let found = self.position.column == 0
            && matches!(c, '-' | '.')
            && self.peek(1) == c
            && self.peek(2) == c
            && is_gap(self.peek(3));
        found.then_some(c)
    }

    /// Treats the end of the text as the end of a line.
    pub(super) fn end_line(&mut self) {
        if self.position.column != 0 {
            self.position.column = 0;
            self.position.line += 1;
        }
    }
}
