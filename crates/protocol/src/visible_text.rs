//! Texts of callers, shown so that they neither move a cursor nor disguise what they say.

use std::borrow::Cow;
use std::fmt::Write as _;

/// True for characters that end a line, move the cursor or turn the direction of text.
pub fn is_disguise(c: char) -> bool {
    let hidden = [
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
    ];
    c.is_control() || c == '\u{feff}' || hidden.iter().any(|range| range.contains(&c))
}

/// Text that is safe on a terminal. Characters that move the cursor, set colours or disguise text are escaped as in
/// JSON, for example ESC as `\u001b`. JSON remains valid JSON. Newlines are not escaped.
pub fn visible_text(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| c == '\n' || !is_disguise(c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if is_shown(c) {
            visible.push(c);
        } else {
            // Writing to a string does not fail.
            let _ = write!(visible, "\\u{:04x}", u32::from(c));
        }
    }
    Cow::Owned(visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_for_a_terminal_is_whole_and_moves_no_cursor() {
        assert_eq!(visible_text("a b\nc é…"), "a b\nc é…");
        assert_eq!(
            visible_text("\u{1b}[2J\r\t\u{9b}\u{202e}\n"),
            "\\u001b[2J\\u000d\\u0009\\u009b\\u202e\n"
        );
        // The escapes are JSON's own: a text of JSON stays JSON.
        assert_eq!(visible_text("{\"\u{9b}\": 1}"), "{\"\\u009b\": 1}");
    }
}
