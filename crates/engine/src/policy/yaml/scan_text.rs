//! Scanner of tokens that are text: block scalars, quoted scalars and plain ones, with their folding.

use super::YamlError;
use super::scan::{Scanner, TokenKind, signed};
use super::source::{TextPosition, is_blank, is_break, is_break_or_end, is_gap};

/// White space between two words that may not belong to the text.
#[derive(Debug, Default)]
struct PendingWhitespace {
    blanks: String,
    first_break: Option<char>,
    more_breaks: String,
}

impl PendingWhitespace {
    /// Appends the folded white space: a single break becomes a blank, further ones stay.
    fn flush(&mut self, text: &mut String) {
        match self.first_break.take() {
            None => text.push_str(&self.blanks),
            Some('\n') if self.more_breaks.is_empty() => text.push(' '),
            Some('\n') => text.push_str(&self.more_breaks),
            Some(line_break) => {
                text.push(line_break);
                text.push_str(&self.more_breaks);
            }
        }
        self.blanks.clear();
        self.more_breaks.clear();
    }
}

/// Treatment of the line breaks at the end of a block scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChompMode {
    Clip,
    Strip,
    Keep,
}

impl Scanner<'_> {
    /// Scalar `|` or `>` with its header.
    pub(super) fn scan_block_text(&mut self) -> Result<TokenKind, YamlError> {
        let literal = self.source.take() == '|';
        let (chomp, increment) = self.scan_block_header()?;
        let outer = usize::try_from(self.indent).unwrap_or(0);
        let mut indent = increment.map_or(0, |n| outer + n);

        let mut text = String::new();
        let mut first_break: Option<char> = None;
        let mut more_breaks = String::new();
        let mut after_blank = false;
        self.scan_block_breaks(&mut indent, &mut more_breaks)?;
        self.source.need(1)?;
        while self.source.position().column == indent && self.source.peek(0) != '\0' {
            let blank = is_blank(self.source.peek(0));
            // Lines that begin with a blank keep their breaks, on both sides.
            if !literal && !after_blank && !blank && first_break == Some('\n') {
                if more_breaks.is_empty() {
                    text.push(' ');
                }
            } else {
                text.extend(first_break);
            }
            text.push_str(&more_breaks);
            more_breaks.clear();
            after_blank = blank;
            while !is_break_or_end(self.source.peek(0)) {
                text.push(self.source.take());
                self.source.need(1)?;
            }
            self.source.need(2)?;
            first_break = self.source.take_break();
            self.scan_block_breaks(&mut indent, &mut more_breaks)?;
        }
        if chomp != ChompMode::Strip {
            text.extend(first_break);
        }
        if chomp == ChompMode::Keep {
            text.push_str(&more_breaks);
        }
        Ok(TokenKind::Scalar { text, plain: false })
    }

    /// Reads the chomping and indentation indicators in either order, then the rest of the line.
    fn scan_block_header(&mut self) -> Result<(ChompMode, Option<usize>), YamlError> {
        let (mut chomp, mut increment) = (None, None);
        for _ in 0..2 {
            self.source.need(1)?;
            match self.source.peek(0) {
                '+' if chomp.is_none() => chomp = Some(ChompMode::Keep),
                '-' if chomp.is_none() => chomp = Some(ChompMode::Strip),
                '0' if increment.is_none() => {
                    return self.error("the indentation of a block scalar cannot be 0");
                }
                c if increment.is_none() && c.is_ascii_digit() => increment = c.to_digit(10),
                _ => break,
            }
            self.source.skip();
        }
        self.source.skip_blanks()?;
        self.source.skip_comment()?;
        if !is_break_or_end(self.source.peek(0)) {
            return self.error("expected the end of the line after `|` or `>`");
        }
        self.source.need(2)?;
        self.source.take_break();
        Ok((chomp.unwrap_or(ChompMode::Clip), increment.map(|n| n as usize)))
    }

    /// Skips indentation and empty lines, and detects the indentation (0: not known yet).
    fn scan_block_breaks(&mut self, indent: &mut usize, breaks: &mut String) -> Result<(), YamlError> {
        let mut widest = 0;
        loop {
            self.source.need(1)?;
            while (*indent == 0 || self.source.position().column < *indent) && self.source.peek(0) == ' ' {
                self.source.skip();
                self.source.need(1)?;
            }
            let column = self.source.position().column;
            widest = widest.max(column);
            if (*indent == 0 || column < *indent) && self.source.peek(0) == '\t' {
                return self.error("found a tab where a block scalar needs indentation by spaces");
            }
            self.source.need(2)?;
            let Some(line_break) = self.source.take_break() else {
                break;
            };
            breaks.push(line_break);
        }
        if *indent == 0 {
            let outer = usize::try_from(self.indent.saturating_add(1)).unwrap_or(0);
            *indent = widest.max(outer).max(1);
        }
        Ok(())
    }

    /// Quoted scalar of either kind.
    pub(super) fn scan_quoted(&mut self) -> Result<TokenKind, YamlError> {
        let start = self.here();
        let quote = self.source.take();
        let mut text = String::new();
        let mut between = PendingWhitespace::default();
        loop {
            self.source.need(4)?;
            let trouble = if self.source.at_document_indicator().is_some() {
                "a document indicator is inside"
            } else if self.source.peek(0) == '\0' {
                "it has no end"
            } else {
                ""
            };
            if !trouble.is_empty() {
                return Err(YamlError::syntax(start.mark(), format!("quoted text: {trouble}")));
            }
            let joined = self.scan_quoted_word(quote, &mut text)?;
            self.source.need(1)?;
            if self.source.peek(0) == quote {
                self.source.skip();
                return Ok(TokenKind::Scalar { text, plain: false });
            }
            self.scan_between(joined, &mut between, None)?;
            if joined {
                // After an escaped line break the next word is appended without a blank; empty lines stay.
                text.push_str(&between.more_breaks);
                between.more_breaks.clear();
            } else {
                between.flush(&mut text);
            }
        }
    }

    /// Reads a quoted scalar up to white space or the closing quote; true after an escaped break.
    fn scan_quoted_word(&mut self, quote: char, text: &mut String) -> Result<bool, YamlError> {
        while !is_gap(self.source.peek(0)) {
            let (c, next) = (self.source.peek(0), self.source.peek(1));
            if c == quote {
                if quote == '"' || next != '\'' {
                    break;
                }
                self.source.skip();
                text.push(self.source.take());
            } else if quote == '"' && c == '\\' {
                if is_break(next) {
                    self.source.need(3)?;
                    self.source.skip();
                    self.source.take_break();
                    return Ok(true);
                }
                self.source.skip();
                text.push(self.scan_escape()?);
            } else {
                text.push(self.source.take());
            }
            self.source.need(2)?;
        }
        Ok(false)
    }

    /// Character of an escape; the backslash is already taken.
    fn scan_escape(&mut self) -> Result<char, YamlError> {
        let c = self.source.peek(0);
        let digits = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        if digits > 0 {
            self.source.skip();
            return self.scan_escaped_code(digits);
        }
        let meant = match c {
            '0' => '\0',
            'a' => '\u{7}',
            'b' => '\u{8}',
            't' | '\t' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            'e' => '\u{1b}',
            ' ' | '"' | '\'' | '\\' => c,
            'N' => '\u{85}',
            '_' => '\u{a0}',
            'L' => '\u{2028}',
            'P' => '\u{2029}',
            _ => return self.error(format!("unknown escape `\\{}` in quoted text", c.escape_debug())),
        };
        self.source.skip();
        Ok(meant)
    }

    fn scan_escaped_code(&mut self, digits: usize) -> Result<char, YamlError> {
        let mut code = 0_u32;
        self.source.need(digits)?;
        for ahead in 0..digits {
            let Some(digit) = self.source.peek(ahead).to_digit(16) else {
                return self.error(format!("expected {digits} hexadecimal digits in an escape"));
            };
            code = (code << 4) | digit;
        }
        let Some(c) = char::from_u32(code) else {
            return self.error(format!("U+{code:04X} is no character"));
        };
        for _ in 0..digits {
            self.source.skip();
        }
        Ok(c)
    }

    /// Collects the white space between two words. `after_break`: a line break was already read, and blanks are
    /// indentation. `tab_limit`: column below which a tab is rejected.
    fn scan_between(
        &mut self,
        mut after_break: bool,
        between: &mut PendingWhitespace,
        tab_limit: Option<isize>,
    ) -> Result<(), YamlError> {
        loop {
            let c = self.source.peek(0);
            if is_blank(c) {
                if after_break {
                    let column = signed(self.source.position().column);
                    if c == '\t' && tab_limit.is_some_and(|limit| column < limit) {
                        return self.error("found a tab where indentation by spaces is needed");
                    }
                    self.source.skip();
                } else {
                    between.blanks.push(self.source.take());
                }
            } else if is_break(c) {
                self.source.need(2)?;
                let line_break = self.source.take_break();
                if after_break {
                    between.more_breaks.extend(line_break);
                } else {
                    between.blanks.clear();
                    between.first_break = line_break;
                    after_break = true;
                }
            } else {
                break;
            }
            self.source.need(1)?;
        }
        Ok(())
    }

    /// Plain scalar, and the position after its last word.
    pub(super) fn scan_plain(&mut self) -> Result<(TokenKind, TextPosition), YamlError> {
        let indent = self.indent.saturating_add(1);
        let in_flow = self.flow_level > 0;
        let mut text = String::new();
        let mut between = PendingWhitespace::default();
        let mut end = self.here();
        loop {
            self.source.need(4)?;
            if self.source.at_document_indicator().is_some() || self.source.peek(0) == '#' {
                break;
            }
            while !is_gap(self.source.peek(0)) {
                let (c, next) = (self.source.peek(0), self.source.peek(1));
                if (c == ':' && is_gap(next)) || (in_flow && ",?[]{}".contains(c)) {
                    break;
                }
                between.flush(&mut text);
                text.push(self.source.take());
                end = self.here();
                self.source.need(2)?;
            }
            if !is_blank(self.source.peek(0)) && !is_break(self.source.peek(0)) {
                break;
            }
            self.source.need(1)?;
            let after_break = between.first_break.is_some();
            self.scan_between(after_break, &mut between, Some(indent))?;
            if !in_flow && signed(self.source.position().column) < indent {
                break;
            }
        }
        if between.first_break.is_some() {
            self.key_allowed = true;
        }
        Ok((TokenKind::Scalar { text, plain: true }, end))
    }
}
