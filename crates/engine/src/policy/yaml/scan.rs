//! Scanner from text to tokens: indentation, simple keys and indicators, with the rules of libyaml 1.1.

use std::collections::VecDeque;

use super::YamlError;
use super::source::{CharSource, TextPosition, is_blank, is_break, is_gap};

/// Largest distance, in characters, between the start of a key and its `:`.
const MAX_KEY_CHARS: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenKind {
    StreamEnd,
    Version(u8, u8),
    TagDirective { handle: String, prefix: String },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag { handle: String, suffix: String },
    Scalar { text: String, plain: bool },
}

#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) start: TextPosition,
    pub(super) end: TextPosition,
}

/// Position where a key may have begun whose `:` is not read yet.
#[derive(Debug, Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    required: bool,
    /// True if the token must wait until the `:` is read or ruled out.
    awaited: bool,
    token: usize,
    position: TextPosition,
}

/// Scanner; it makes tokens on demand, never further ahead than one possible key needs.
#[derive(Debug)]
pub(super) struct Scanner<'t> {
    pub(super) source: CharSource<'t>,
    tokens: VecDeque<Token>,
    taken: usize,
    /// Column of the open block collection; -1 outside of all.
    pub(super) indent: isize,
    indents: Vec<isize>,
    pub(super) key_allowed: bool,
    keys: Vec<SimpleKey>,
    pub(super) flow_level: usize,
    depth: usize,
    ended: bool,
}

pub(super) fn signed(column: usize) -> isize {
    isize::try_from(column).unwrap_or(isize::MAX)
}

impl<'t> Scanner<'t> {
    /// Scanner that rejects nesting beyond `depth`.
    pub(super) fn new(text: &'t str, depth: usize) -> Self {
        Scanner {
            source: CharSource::new(text),
            tokens: VecDeque::new(),
            taken: 0,
            indent: -1,
            indents: Vec::new(),
            key_allowed: true,
            keys: vec![SimpleKey::default()],
            flow_level: 0,
            depth,
            ended: false,
        }
    }

    /// Next token, which stays in place.
    pub(super) fn peek(&mut self) -> Result<&Token, YamlError> {
        while !self.ended && (self.tokens.is_empty() || self.head_may_become_key()?) {
            self.fetch()?;
        }
        let here = self.here();
        self.tokens
            .front()
            .ok_or_else(|| YamlError::syntax(here.mark(), "the text ends here"))
    }

    /// Skips the token that `peek` returned.
    pub(super) fn advance(&mut self) {
        if self.tokens.pop_front().is_some() {
            self.taken += 1;
        }
    }

    /// Takes the next token.
    pub(super) fn next(&mut self) -> Result<Token, YamlError> {
        let token = self.peek()?.clone();
        self.advance();
        Ok(token)
    }

    pub(super) fn here(&self) -> TextPosition {
        self.source.position()
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, YamlError> {
        Err(YamlError::syntax(self.here().mark(), message))
    }

    fn head_may_become_key(&mut self) -> Result<bool, YamlError> {
        let here = self.here();
        for key in &mut self.keys {
            if key.possible && key.awaited && key.token == self.taken {
                return still_possible(key, here);
            }
        }
        Ok(false)
    }

    fn push(&mut self, kind: TokenKind, start: TextPosition) {
        let end = self.here();
        self.tokens.push_back(Token { kind, start, end });
    }

    /// Inserts a token before the one with the running number `token`.
    fn insert(&mut self, token: usize, kind: TokenKind, place: TextPosition) {
        // If that token is gone already, the reference appends.
        let at = token
            .checked_sub(self.taken)
            .unwrap_or(usize::MAX)
            .min(self.tokens.len());
        self.tokens.insert(
            at,
            Token {
                kind,
                start: place,
                end: place,
            },
        );
    }

    fn fetch(&mut self) -> Result<(), YamlError> {
        self.skip_to_token()?;
        self.unroll_indent(signed(self.here().column));
        self.source.need(4)?;
        let start = self.here();
        let (c, next) = (self.source.peek(0), self.source.peek(1));
        let in_flow = self.flow_level > 0;
        if c == '\0' {
            return self.fetch_end();
        }
        if start.column == 0 && c == '%' {
            self.leave_blocks()?;
            return self.fetch_with(Self::scan_directive);
        }
        if let Some(indicator) = self.source.at_document_indicator() {
            return self.fetch_document_indicator(indicator);
        }
        match c {
            '[' => self.fetch_flow_start(TokenKind::FlowSequenceStart),
            '{' => self.fetch_flow_start(TokenKind::FlowMappingStart),
            ']' => self.fetch_flow_end(TokenKind::FlowSequenceEnd),
            '}' => self.fetch_flow_end(TokenKind::FlowMappingEnd),
            ',' => self.fetch_flow_entry(),
            '-' if is_gap(next) => self.fetch_block_entry(),
            '?' if in_flow || is_gap(next) => self.fetch_key(),
            ':' if in_flow || is_gap(next) => self.fetch_value(),
            '*' | '&' => {
                self.save_key()?;
                self.fetch_with(Self::scan_anchor)
            }
            '!' => {
                self.save_key()?;
                self.fetch_with(Self::scan_tag)
            }
            '|' | '>' if !in_flow => {
                self.remove_key()?;
                self.key_allowed = true;
                let kind = self.scan_block_text()?;
                self.push(kind, start);
                Ok(())
            }
            '\'' | '"' => {
                self.save_key()?;
                self.fetch_with(Self::scan_quoted)
            }
            _ if starts_plain(c, next, in_flow) => {
                self.save_key()?;
                self.key_allowed = false;
                let (kind, end) = self.scan_plain()?;
                self.tokens.push_back(Token { kind, start, end });
                Ok(())
            }
            '\t' => self.error("a tab cannot indent; write spaces"),
            _ => self.error(format!("`{}` cannot start a value; put it in quotes", c.escape_debug())),
        }
    }

    /// Scans one token after which no key may begin on the same line.
    fn fetch_with(&mut self, scan: fn(&mut Self) -> Result<TokenKind, YamlError>) -> Result<(), YamlError> {
        let start = self.here();
        self.key_allowed = false;
        let kind = scan(self)?;
        self.push(kind, start);
        Ok(())
    }

    /// Skips to the next token. A tab is not indentation: it separates tokens only where a key cannot start.
    fn skip_to_token(&mut self) -> Result<(), YamlError> {
        loop {
            self.source.need(1)?;
            while self.source.peek(0) == ' '
                || ((self.flow_level > 0 || !self.key_allowed) && self.source.peek(0) == '\t')
            {
                self.source.skip();
                self.source.need(1)?;
            }
            self.source.skip_comment()?;
            if !is_break(self.source.peek(0)) {
                return Ok(());
            }
            self.source.need(2)?;
            self.source.take_break();
            if self.flow_level == 0 {
                self.key_allowed = true;
            }
        }
    }

    // Simple keys.

    fn save_key(&mut self) -> Result<(), YamlError> {
        let place = self.here();
        if self.key_allowed {
            self.remove_key()?;
            let required = self.flow_level == 0 && self.indent == signed(place.column);
            let token = self.taken + self.tokens.len();
            if let Some(key) = self.keys.last_mut() {
                *key = SimpleKey {
                    possible: true,
                    required,
                    awaited: true,
                    token,
                    position: place,
                };
            }
        }
        Ok(())
    }

    fn remove_key(&mut self) -> Result<(), YamlError> {
        match self.keys.last_mut() {
            Some(key) if key.possible && key.required => Err(missing_colon(key)),
            Some(key) => {
                key.possible = false;
                Ok(())
            }
            None => Ok(()),
        }
    }

    // Indentation.

    fn roll_indent(
        &mut self,
        column: usize,
        token: Option<usize>,
        kind: TokenKind,
        place: TextPosition,
    ) -> Result<(), YamlError> {
        let column = signed(column);
        if self.flow_level > 0 || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        if self.indents.len() > self.depth {
            return self.too_deep();
        }
        self.insert(token.unwrap_or(usize::MAX), kind, place);
        Ok(())
    }

    fn unroll_indent(&mut self, column: isize) {
        while self.flow_level == 0 && self.indent > column {
            let here = self.here();
            self.push(TokenKind::BlockEnd, here);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn too_deep<T>(&self) -> Result<T, YamlError> {
        let message = format!("nested deeper than the limit of {} levels", self.depth);
        Err(YamlError::limit(self.here().mark(), message))
    }

    // Tokens that are indicators.

    fn leave_blocks(&mut self) -> Result<(), YamlError> {
        self.unroll_indent(-1);
        self.remove_key()
    }

    fn fetch_end(&mut self) -> Result<(), YamlError> {
        self.source.end_line();
        self.leave_blocks()?;
        self.key_allowed = false;
        self.ended = true;
        let here = self.here();
        self.push(TokenKind::StreamEnd, here);
        Ok(())
    }

    fn fetch_indicator(&mut self, kind: TokenKind, width: usize) {
        let start = self.here();
        for _ in 0..width {
            self.source.skip();
        }
        self.push(kind, start);
    }

    fn fetch_document_indicator(&mut self, indicator: char) -> Result<(), YamlError> {
        self.leave_blocks()?;
        self.key_allowed = false;
        let start = indicator == '-';
        let kind = if start {
            TokenKind::DocumentStart
        } else {
            TokenKind::DocumentEnd
        };
        self.fetch_indicator(kind, 3);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: TokenKind) -> Result<(), YamlError> {
        self.save_key()?;
        self.keys.push(SimpleKey {
            token: self.taken + self.tokens.len(),
            ..SimpleKey::default()
        });
        self.flow_level += 1;
        if self.flow_level > self.depth {
            return self.too_deep();
        }
        self.key_allowed = true;
        self.fetch_indicator(kind, 1);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: TokenKind) -> Result<(), YamlError> {
        self.remove_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            self.forget_empty_collection();
        }
        self.key_allowed = false;
        self.fetch_indicator(kind, 1);
        Ok(())
    }

    /// Leaves a flow collection. After an empty collection the reference does not expect a `:`. Therefore `{}` or `[]`
    /// cannot be a key at the top of a document.
    fn forget_empty_collection(&mut self) {
        let closed = self.keys.pop().unwrap_or_default();
        for key in &mut self.keys {
            key.awaited &= key.token != closed.token;
        }
    }

    fn fetch_flow_entry(&mut self) -> Result<(), YamlError> {
        self.remove_key()?;
        self.key_allowed = true;
        self.fetch_indicator(TokenKind::FlowEntry, 1);
        Ok(())
    }

    /// Opens a block collection for an indicator at this position.
    fn open_block(&mut self, kind: TokenKind, what: &str) -> Result<(), YamlError> {
        if self.flow_level > 0 {
            return Ok(());
        }
        if !self.key_allowed {
            return self.error(format!("{what} is not allowed here"));
        }
        let here = self.here();
        self.roll_indent(here.column, None, kind, here)
    }

    fn fetch_block_entry(&mut self) -> Result<(), YamlError> {
        self.open_block(TokenKind::BlockSequenceStart, "a list item")?;
        self.remove_key()?;
        self.key_allowed = true;
        self.fetch_indicator(TokenKind::BlockEntry, 1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), YamlError> {
        self.open_block(TokenKind::BlockMappingStart, "a key")?;
        self.remove_key()?;
        self.key_allowed = self.flow_level == 0;
        self.fetch_indicator(TokenKind::Key, 1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), YamlError> {
        let here = self.here();
        let key = match self.keys.last_mut() {
            Some(key) => {
                let found = still_possible(key, here)?.then_some(*key);
                key.possible = false;
                found
            }
            None => None,
        };
        if let Some(key) = key {
            self.insert(key.token, TokenKind::Key, key.position);
            self.roll_indent(
                key.position.column,
                Some(key.token),
                TokenKind::BlockMappingStart,
                key.position,
            )?;
            self.key_allowed = false;
        } else {
            self.open_block(TokenKind::BlockMappingStart, "`:` after a value")?;
            self.key_allowed = self.flow_level == 0;
        }
        self.fetch_indicator(TokenKind::Value, 1);
        Ok(())
    }
}

fn missing_colon(key: &SimpleKey) -> YamlError {
    YamlError::syntax(key.position.mark(), "expected `:` after this key")
}

/// True if a `:` may still end the key: a key ends on its line and within [`MAX_KEY_CHARS`] characters.
fn still_possible(key: &mut SimpleKey, here: TextPosition) -> Result<bool, YamlError> {
    if key.possible && (key.position.line < here.line || key.position.index + MAX_KEY_CHARS < here.index) {
        if key.required {
            return Err(missing_colon(key));
        }
        key.possible = false;
    }
    Ok(key.possible)
}

fn starts_plain(c: char, next: char, in_flow: bool) -> bool {
    let indicator = is_gap(c) || "-?:,[]{}#&*!|>'\"%@`".contains(c);
    !indicator || (c == '-' && !is_blank(next)) || (!in_flow && matches!(c, '?' | ':') && !is_gap(next))
}
