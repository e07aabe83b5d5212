//! Parser from tokens to a tree of untyped nodes. Aliases stay references, so an expansion bomb costs nothing here.

use std::collections::BTreeMap;

use super::ErrorCode;
use super::resolve::{LONG_TAG_PREFIX, YamlTag};
use super::scan::{Scanner, Token, TokenKind};
use super::source::TextPosition;
use super::{Mark, YamlError, YamlLimits};

/// Id of a node of a [`YamlTree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct YamlNodeId(usize);

/// Kinds of node in the text, without types.
#[derive(Debug, Clone)]
pub(super) enum RawYamlNode {
    /// Scalar. `plain`: its type may be guessed from the text (no quotes, no tag, or the tag `!`).
    Scalar {
        text: String,
        tag: Option<YamlTag>,
        plain: bool,
    },
    Sequence(Vec<YamlNodeId>),
    Mapping(Vec<(YamlNodeId, YamlNodeId)>),
    Alias(YamlNodeId),
}

/// Tree of one document.
#[derive(Debug)]
pub struct YamlTree {
    nodes: Vec<(RawYamlNode, Mark)>,
    root: Option<YamlNodeId>,
}

static EMPTY_NODE: RawYamlNode = RawYamlNode::Sequence(Vec::new());

impl YamlTree {
    /// Reads the first document of a text; the root is `None` if there is none.
    ///
    /// # Errors
    /// The text is not YAML 1.1, or beyond a limit.
    pub fn read(text: &str, limits: &YamlLimits) -> Result<YamlTree, YamlError> {
        if text.len() > limits.bytes {
            let message = format!("{} bytes are more than the limit of {}", text.len(), limits.bytes);
            return Err(YamlError::limit(Mark::START, message));
        }
        let mut parser = YamlParser::new(text, limits);
        let root = parser.document()?;
        Ok(YamlTree {
            nodes: parser.nodes,
            root,
        })
    }

    /// Reads the second document of a text; `None` if there is none.
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub(crate) fn read_second(text: &str, limits: &YamlLimits) -> Result<Option<YamlTree>, YamlError> {
        let mut parser = YamlParser::new(text, limits);
        parser.document()?;
        while parser.take_if(&TokenKind::DocumentEnd)?.is_some() {}
        parser.anchors.clear();
        parser.tags.clear();
        let root = parser.document()?;
        Ok(root.is_some().then_some(YamlTree {
            nodes: parser.nodes,
            root,
        }))
    }

    /// Root of the document; `None`: the text has none.
    pub fn root(&self) -> Option<YamlNodeId> {
        self.root
    }

    pub(super) fn raw(&self, id: YamlNodeId) -> &RawYamlNode {
        self.nodes.get(id.0).map_or(&EMPTY_NODE, |(raw, _)| raw)
    }

    /// Position of a node's first character.
    pub(crate) fn mark(&self, id: YamlNodeId) -> Mark {
        self.nodes.get(id.0).map_or(Mark::START, |(_, mark)| *mark)
    }
}

struct YamlParser<'t> {
    scanner: Scanner<'t>,
    nodes: Vec<(RawYamlNode, Mark)>,
    anchors: BTreeMap<String, YamlNodeId>,
    tags: Vec<(String, String)>,
    limits: YamlLimits,
    depth: usize,
}

/// Properties before the content of a node.
#[derive(Default)]
struct YamlNodeProperties {
    anchor: Option<String>,
    tag: Option<YamlTag>,
    start: Option<TextPosition>,
}

type YamlParseResult<T = YamlNodeId> = Result<T, YamlError>;

impl<'t> YamlParser<'t> {
    fn new(text: &'t str, limits: &YamlLimits) -> Self {
        Self {
            scanner: Scanner::new(text, limits.depth),
            nodes: Vec::new(),
            anchors: BTreeMap::new(),
            tags: Vec::new(),
            limits: *limits,
            depth: 0,
        }
    }
}

impl YamlParser<'_> {
    fn document(&mut self) -> YamlParseResult<Option<YamlNodeId>> {
        let mut explicit = false;
        while matches!(
            self.scanner.peek()?.kind,
            TokenKind::Version(..) | TokenKind::TagDirective { .. }
        ) {
            explicit = true;
            self.directive()?;
        }
        if self.take_if(&TokenKind::DocumentStart)?.is_some() {
            explicit = true;
        } else if explicit {
            return self.error("expected `---` after directives");
        } else if self.next_is(&[TokenKind::StreamEnd])? {
            return Ok(None);
        }
        for (handle, prefix) in [("!", "!"), ("!!", LONG_TAG_PREFIX)] {
            if !self.tags.iter().any(|(known, _)| known == handle) {
                self.tags.push((handle.into(), prefix.into()));
            }
        }
        let empty = explicit
            && matches!(
                self.scanner.peek()?.kind,
                TokenKind::Version(..)
                    | TokenKind::TagDirective { .. }
                    | TokenKind::DocumentStart
                    | TokenKind::DocumentEnd
                    | TokenKind::StreamEnd
            );
        let root = if empty {
            self.empty_here()?
        } else {
            self.node(true, false)?
        };
        // Later documents are not read, but the next token must be valid.
        self.scanner.peek()?;
        Ok(Some(root))
    }

    fn directive(&mut self) -> YamlParseResult<()> {
        let token = self.scanner.next()?;
        let refuse = |message: &str| Err(YamlError::syntax(token.start.mark(), message));
        let (handle, prefix) = if let TokenKind::TagDirective { handle, prefix } = token.kind {
            (handle, prefix)
        } else if token.kind == TokenKind::Version(1, 1) {
            // An empty handle matches no tag; it records that the version was given.
            (String::new(), String::new())
        } else {
            return refuse("only YAML 1.1 is read here");
        };
        if self.tags.iter().any(|(known, _)| *known == handle) {
            return refuse("this directive appears twice");
        }
        self.tags.push((handle, prefix));
        Ok(())
    }

    fn error<T>(&mut self, message: &str) -> YamlParseResult<T> {
        let mark = self.scanner.peek()?.start.mark();
        Err(YamlError::syntax(mark, message))
    }

    /// Takes the next token if it is of this kind.
    fn take_if(&mut self, kind: &TokenKind) -> YamlParseResult<Option<Token>> {
        if self.scanner.peek()?.kind == *kind {
            self.scanner.next().map(Some)
        } else {
            Ok(None)
        }
    }

    fn next_is(&mut self, kinds: &[TokenKind]) -> YamlParseResult<bool> {
        let kind = &self.scanner.peek()?.kind;
        Ok(kinds.contains(kind))
    }

    fn add(&mut self, raw: RawYamlNode, place: TextPosition) -> YamlParseResult {
        if self.nodes.len() >= self.limits.nodes {
            let message = format!("more values than the limit of {}", self.limits.nodes);
            return Err(YamlError::limit(place.mark(), message));
        }
        self.nodes.push((raw, place.mark()));
        Ok(YamlNodeId(self.nodes.len() - 1))
    }

    fn empty(&mut self, place: TextPosition) -> YamlParseResult {
        self.add(
            RawYamlNode::Scalar {
                text: String::new(),
                tag: None,
                plain: true,
            },
            place,
        )
    }

    fn empty_here(&mut self) -> YamlParseResult {
        let place = self.scanner.peek()?.start;
        self.empty(place)
    }

    /// Node with its properties. `block`: block collections are allowed; `indentless`: a list may begin at the column
    /// of its key.
    fn node(&mut self, block: bool, indentless: bool) -> YamlParseResult {
        if let TokenKind::Alias(name) = &self.scanner.peek()?.kind {
            let name = name.clone();
            return self.alias(&name);
        }
        let YamlNodeProperties { anchor, tag, start } = self.properties()?;
        let token = self.scanner.peek()?;
        let start = start.unwrap_or(token.start);
        if let Some(kind) = collection_start(&token.kind, block, indentless) {
            return self.collection(kind, anchor, start);
        }
        let (text, plain) = if let TokenKind::Scalar { text, plain } = &token.kind {
            let found = (text.clone(), *plain);
            self.scanner.advance();
            found
        } else if anchor.is_some() || tag.is_some() {
            // Properties without content: an empty scalar.
            (String::new(), true)
        } else {
            return self.error("expected a value here");
        };
        let plain = tag.map_or(plain, |tag| tag == YamlTag::NonSpecific);
        let id = self.add(RawYamlNode::Scalar { text, tag, plain }, start)?;
        Ok(self.anchored(anchor, id))
    }

    fn alias(&mut self, name: &str) -> YamlParseResult {
        let place = self.scanner.peek()?.start;
        let Some(&target) = self.anchors.get(name) else {
            let message = format!("there is no anchor `&{name}` before this alias");
            return Err(YamlError::new(ErrorCode::YamlAlias, place.mark(), message));
        };
        self.scanner.advance();
        self.add(RawYamlNode::Alias(target), place)
    }

    fn anchored(&mut self, anchor: Option<String>, id: YamlNodeId) -> YamlNodeId {
        if let Some(name) = anchor {
            self.anchors.insert(name, id);
        }
        id
    }

    /// Anchor and tag, in either order.
    fn properties(&mut self) -> YamlParseResult<YamlNodeProperties> {
        let mut found = YamlNodeProperties::default();
        for _ in 0..2 {
            let token = self.scanner.peek()?.clone();
            if let (TokenKind::Anchor(name), None) = (&token.kind, &found.anchor) {
                found.anchor = Some(name.clone());
            } else if let (TokenKind::Tag { handle, suffix }, None) = (&token.kind, &found.tag) {
                found.tag = Some(self.full_tag(handle, suffix, token.start)?);
            } else {
                break;
            }
            found.start.get_or_insert(token.start);
            self.scanner.advance();
        }
        Ok(found)
    }

    fn full_tag(&self, handle: &str, suffix: &str, place: TextPosition) -> YamlParseResult<YamlTag> {
        if handle.is_empty() {
            return Ok(YamlTag::from_name("", suffix));
        }
        match self.tags.iter().find(|(known, _)| known == handle) {
            Some((_, prefix)) if !(prefix.is_empty() && suffix.is_empty()) => Ok(YamlTag::from_name(prefix, suffix)),
            _ => Err(YamlError::syntax(
                place.mark(),
                format!("no `%TAG` defines the handle `{handle}`"),
            )),
        }
    }

    fn collection(&mut self, kind: YamlCollectionKind, anchor: Option<String>, start: TextPosition) -> YamlParseResult {
        let id = self.add(RawYamlNode::Sequence(Vec::new()), start)?;
        // The anchor is known before the content is read, so that an alias inside is detected as a cycle.
        self.anchored(anchor, id);
        self.depth += 1;
        if self.depth > self.limits.depth {
            let message = format!("nested deeper than the limit of {} levels", self.limits.depth);
            return Err(YamlError::limit(start.mark(), message));
        }
        if kind != YamlCollectionKind::IndentlessSequence {
            self.scanner.advance();
        }
        let raw = match kind {
            YamlCollectionKind::BlockSequence => RawYamlNode::Sequence(self.block_sequence()?),
            YamlCollectionKind::IndentlessSequence => RawYamlNode::Sequence(self.indentless_sequence()?),
            YamlCollectionKind::FlowSequence => RawYamlNode::Sequence(self.flow_sequence()?),
            YamlCollectionKind::BlockMapping => RawYamlNode::Mapping(self.block_mapping()?),
            YamlCollectionKind::FlowMapping => RawYamlNode::Mapping(self.flow_mapping()?),
        };
        self.depth -= 1;
        if let Some(slot) = self.nodes.get_mut(id.0) {
            slot.0 = raw;
        }
        Ok(id)
    }

    fn block_sequence(&mut self) -> YamlParseResult<Vec<YamlNodeId>> {
        let items = self.sequence_items(&[TokenKind::BlockEntry, TokenKind::BlockEnd])?;
        if self.take_if(&TokenKind::BlockEnd)?.is_none() {
            return self.error("expected `-` and the next item of the list, or its end: check the indentation");
        }
        Ok(items)
    }

    /// List whose items have the column of the key above.
    fn indentless_sequence(&mut self) -> YamlParseResult<Vec<YamlNodeId>> {
        self.sequence_items(&[
            TokenKind::BlockEntry,
            TokenKind::Key,
            TokenKind::Value,
            TokenKind::BlockEnd,
        ])
    }

    /// Items of a list. An item before one of `ends` is empty.
    fn sequence_items(&mut self, ends: &[TokenKind]) -> YamlParseResult<Vec<YamlNodeId>> {
        let mut items = Vec::new();
        while let Some(entry) = self.take_if(&TokenKind::BlockEntry)? {
            let none = self.next_is(ends)?;
            items.push(if none {
                self.empty(entry.end)?
            } else {
                self.node(true, false)?
            });
        }
        Ok(items)
    }

    /// Key or value of a block mapping; `place` is the position of an absent one.
    fn block_half(&mut self, place: TextPosition) -> YamlParseResult {
        if self.next_is(&[TokenKind::Key, TokenKind::Value, TokenKind::BlockEnd])? {
            self.empty(place)
        } else {
            self.node(true, true)
        }
    }

    fn block_mapping(&mut self) -> YamlParseResult<Vec<(YamlNodeId, YamlNodeId)>> {
        let mut pairs = Vec::new();
        while let Some(token) = self.take_if(&TokenKind::Key)? {
            let key = self.block_half(token.end)?;
            let value = match self.take_if(&TokenKind::Value)? {
                Some(token) => self.block_half(token.end)?,
                None => self.empty_here()?,
            };
            pairs.push((key, value));
        }
        if self.take_if(&TokenKind::BlockEnd)?.is_none() {
            return self.error("expected the next key of the map, or its end: check the indentation");
        }
        Ok(pairs)
    }

    fn flow_sequence(&mut self) -> YamlParseResult<Vec<YamlNodeId>> {
        let mut items = Vec::new();
        loop {
            let separated = items.is_empty() || self.take_if(&TokenKind::FlowEntry)?.is_some();
            if !separated && !self.next_is(&[TokenKind::FlowSequenceEnd])? {
                return self.error("expected `,` or `]` in a list");
            }
            if self.take_if(&TokenKind::FlowSequenceEnd)?.is_some() {
                return Ok(items);
            }
            items.push(match self.take_if(&TokenKind::Key)? {
                Some(key) => self.flow_pair(key.start)?,
                None => self.node(false, false)?,
            });
        }
    }

    /// Map of one pair, written without braces inside a flow sequence.
    fn flow_pair(&mut self, start: TextPosition) -> YamlParseResult {
        let id = self.add(RawYamlNode::Sequence(Vec::new()), start)?;
        let ends = [TokenKind::Value, TokenKind::FlowEntry, TokenKind::FlowSequenceEnd];
        let key = if self.next_is(&ends)? {
            // The reference also skips the token it looked at, so that `[? ]` has no end.
            let token = self.scanner.next()?;
            self.empty(token.end)?
        } else {
            self.node(false, false)?
        };
        let value = self.flow_value(&TokenKind::FlowSequenceEnd)?;
        if let Some(slot) = self.nodes.get_mut(id.0) {
            slot.0 = RawYamlNode::Mapping(vec![(key, value)]);
        }
        Ok(id)
    }

    fn flow_value(&mut self, end: &TokenKind) -> YamlParseResult {
        if self.take_if(&TokenKind::Value)?.is_some() && !self.next_is(&[TokenKind::FlowEntry, end.clone()])? {
            return self.node(false, false);
        }
        self.empty_here()
    }

    fn flow_mapping(&mut self) -> YamlParseResult<Vec<(YamlNodeId, YamlNodeId)>> {
        let mut pairs = Vec::new();
        loop {
            let separated = pairs.is_empty() || self.take_if(&TokenKind::FlowEntry)?.is_some();
            if !separated && !self.next_is(&[TokenKind::FlowMappingEnd])? {
                return self.error("expected `,` or `}` in a map");
            }
            if self.take_if(&TokenKind::FlowMappingEnd)?.is_some() {
                return Ok(pairs);
            }
            let pair = if self.take_if(&TokenKind::Key)?.is_some() {
                let ends = [TokenKind::Value, TokenKind::FlowEntry, TokenKind::FlowMappingEnd];
                let key = if self.next_is(&ends)? {
                    self.empty_here()?
                } else {
                    self.node(false, false)?
                };
                (key, self.flow_value(&TokenKind::FlowMappingEnd)?)
            } else {
                let key = self.node(false, false)?;
                (key, self.empty_here()?)
            };
            pairs.push(pair);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum YamlCollectionKind {
    BlockSequence,
    IndentlessSequence,
    FlowSequence,
    BlockMapping,
    FlowMapping,
}

/// Kind of collection that begins with this token, if it is allowed here.
fn collection_start(kind: &TokenKind, block: bool, indentless: bool) -> Option<YamlCollectionKind> {
    let starts = [
        (
            TokenKind::BlockEntry,
            indentless,
            YamlCollectionKind::IndentlessSequence,
        ),
        (TokenKind::FlowSequenceStart, true, YamlCollectionKind::FlowSequence),
        (TokenKind::FlowMappingStart, true, YamlCollectionKind::FlowMapping),
        (TokenKind::BlockSequenceStart, block, YamlCollectionKind::BlockSequence),
        (TokenKind::BlockMappingStart, block, YamlCollectionKind::BlockMapping),
    ];
    starts
        .into_iter()
        .find(|(start, allowed, _)| *allowed && start == kind)
        .map(|(.., collection)| collection)
}
