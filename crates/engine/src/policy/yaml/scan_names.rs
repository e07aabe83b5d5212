//! Scanner of tokens made of names: directives, anchors, aliases and tags.

use super::YamlError;
use super::scan::{Scanner, TokenKind};
use super::source::{is_blank, is_break_or_end, is_gap, is_word};

/// Largest number of digits of a number in `%YAML`.
const VERSION_DIGITS: usize = 2;

impl Scanner<'_> {
    fn take_word(&mut self) -> Result<String, YamlError> {
        let mut word = String::new();
        self.source.need(1)?;
        while is_word(self.source.peek(0)) {
            word.push(self.source.take());
            self.source.need(1)?;
        }
        Ok(word)
    }

    /// `%YAML 1.1` or `%TAG handle prefix`, to the end of the line.
    pub(super) fn scan_directive(&mut self) -> Result<TokenKind, YamlError> {
        self.source.skip();
        let name = self.take_word()?;
        if name.is_empty() || !is_gap(self.source.peek(0)) {
            return self.error("expected the name of a directive after `%`");
        }
        let kind = match name.as_str() {
            "YAML" => self.scan_version()?,
            "TAG" => self.scan_tag_directive()?,
            _ => return self.error(format!("unknown directive `%{name}`")),
        };
        self.source.skip_blanks()?;
        self.source.skip_comment()?;
        if !is_break_or_end(self.source.peek(0)) {
            return self.error("expected the end of the line after a directive");
        }
        self.source.need(2)?;
        self.source.take_break();
        Ok(kind)
    }

    fn scan_version(&mut self) -> Result<TokenKind, YamlError> {
        self.source.skip_blanks()?;
        let major = self.scan_version_number()?;
        if self.source.peek(0) != '.' {
            return self.error("expected a version such as 1.1 after `%YAML`");
        }
        self.source.skip();
        let minor = self.scan_version_number()?;
        Ok(TokenKind::Version(major, minor))
    }

    fn scan_version_number(&mut self) -> Result<u8, YamlError> {
        let mut digits = String::new();
        self.source.need(1)?;
        while self.source.peek(0).is_ascii_digit() && digits.len() <= VERSION_DIGITS {
            digits.push(self.source.take());
            self.source.need(1)?;
        }
        match digits.parse() {
            Ok(number) if digits.len() <= VERSION_DIGITS => Ok(number),
            _ => self.error("expected a version such as 1.1 after `%YAML`"),
        }
    }

    fn scan_tag_directive(&mut self) -> Result<TokenKind, YamlError> {
        self.source.skip_blanks()?;
        let handle = self.scan_tag_handle(true)?;
        if !is_blank(self.source.peek(0)) {
            return self.error("expected a blank after the handle of `%TAG`");
        }
        self.source.skip_blanks()?;
        let prefix = self.scan_tag_uri(None)?;
        if !is_gap(self.source.peek(0)) {
            return self.error("expected a blank or a line break after the prefix of `%TAG`");
        }
        Ok(TokenKind::TagDirective { handle, prefix })
    }

    /// `&name` or `*name`. A resource pattern such as `*/gpu` fails here: it needs quotes.
    pub(super) fn scan_anchor(&mut self) -> Result<TokenKind, YamlError> {
        let alias = self.source.take() == '*';
        let name = self.take_word()?;
        let next = self.source.peek(0);
        if name.is_empty() || !(is_gap(next) || "?:,]}%@`".contains(next)) {
            let hint = if alias {
                "`*` starts an alias, and no name of one follows; quote a text that starts with `*`"
            } else {
                "`&` starts an anchor, and no name of one follows; quote a text that starts with `&`"
            };
            return self.error(hint);
        }
        Ok(if alias {
            TokenKind::Alias(name)
        } else {
            TokenKind::Anchor(name)
        })
    }

    /// `!<uri>`, `!handle!suffix`, `!suffix` or `!`.
    pub(super) fn scan_tag(&mut self) -> Result<TokenKind, YamlError> {
        let (handle, suffix);
        self.source.need(2)?;
        if self.source.peek(1) == '<' {
            self.source.skip();
            self.source.skip();
            handle = String::new();
            suffix = self.scan_tag_uri(None)?;
            if self.source.peek(0) != '>' {
                return self.error("expected `>` at the end of a tag");
            }
            self.source.skip();
        } else {
            let start = self.scan_tag_handle(false)?;
            if start.len() > 1 && start.ends_with('!') {
                suffix = self.scan_tag_uri(None)?;
                handle = start;
            } else {
                let rest = self.scan_tag_uri(Some(&start))?;
                // `!` alone is a tag of its own, the non-specific one.
                (handle, suffix) = if rest.is_empty() {
                    (rest, start)
                } else {
                    ("!".into(), rest)
                };
            }
        }
        self.source.need(1)?;
        if !is_gap(self.source.peek(0)) {
            return self.error("expected a blank or a line break after a tag");
        }
        Ok(TokenKind::Tag { handle, suffix })
    }

    fn scan_tag_handle(&mut self, directive: bool) -> Result<String, YamlError> {
        self.source.need(1)?;
        if self.source.peek(0) != '!' {
            return self.error("expected `!` at the start of a tag");
        }
        let mut handle = String::from(self.source.take());
        handle.push_str(&self.take_word()?);
        if self.source.peek(0) == '!' {
            handle.push(self.source.take());
        } else if directive && handle != "!" {
            return self.error("expected `!` at the end of the handle of `%TAG`");
        }
        Ok(handle)
    }

    /// Rest of a tag. `head` is the text that was read as a handle and is none.
    fn scan_tag_uri(&mut self, head: Option<&str>) -> Result<String, YamlError> {
        let mut bytes = head.unwrap_or_default().bytes().skip(1).collect::<Vec<u8>>();
        let mut some = head.is_some();
        self.source.need(1)?;
        loop {
            let c = self.source.peek(0);
            if c == '%' {
                self.scan_uri_escape(&mut bytes)?;
            } else if is_word(c) || ";/?:@&=+$,.!~*'()[]".contains(c) {
                bytes.extend(self.source.take().to_string().bytes());
            } else {
                break;
            }
            some = true;
            self.source.need(1)?;
        }
        if !some {
            return self.error("expected the name of a tag");
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The `%xx` octets of one character.
    fn scan_uri_escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), YamlError> {
        let mut left = None;
        while left != Some(0_usize) {
            self.source.need(3)?;
            let digits = (self.source.peek(1).to_digit(16), self.source.peek(2).to_digit(16));
            let (true, (Some(high), Some(low))) = (self.source.peek(0) == '%', digits) else {
                return self.error("expected `%` and two hexadecimal digits in a tag");
            };
            let octet = u8::try_from(high * 16 + low).unwrap_or_default();
            left = match left {
                None => match octet.leading_ones() {
                    0 => Some(0),
                    ones @ 2..=4 => Some(ones as usize - 1),
                    _ => return self.error("expected an UTF-8 octet in a tag"),
                },
                Some(_) if octet & 0xC0 != 0x80 => {
                    return self.error("expected a trailing UTF-8 octet in a tag");
                }
                Some(n) => Some(n - 1),
            };
            bytes.push(octet);
            for _ in 0..3 {
                self.source.skip();
            }
        }
        Ok(())
    }
}
