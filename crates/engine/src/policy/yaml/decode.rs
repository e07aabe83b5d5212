//! Decoder of a tree, in the way of a reader of typed structures: it resolves aliases and merge keys in order, within
//! the limits, and types a scalar only on demand.

use std::collections::BTreeMap;

use super::ErrorCode;
use super::parse::RawYamlNode;
use super::resolve::{self, ResolvedScalar, YamlTag};
use super::value::ScalarKey;
use super::{
    DocumentLocation, DocumentPath, MAX_DIAGNOSTICS, Mark, YamlError, YamlLimits, YamlNode, YamlNodeId, YamlTree,
    YamlValue,
};

/// Number of reads that may come from aliases without a check of their share; the reference's number.
const FREE_ALIAS_READS: usize = 100;
const FREE_READS: usize = 1_000;
/// Number of reads up to which 99 of 100 may come from aliases.
const LOW_READS: usize = 400_000;
/// Number of reads from which 1 of 10 may come from aliases.
const HIGH_READS: usize = 4_000_000;

/// Scalar without a type.
#[derive(Debug, Clone, Copy)]
pub struct YamlScalar<'t> {
    /// Text, with quotes and escapes resolved.
    pub text: &'t str,
    /// Position of its first character.
    pub(crate) mark: Mark,
    tag: Option<YamlTag>,
    plain: bool,
}

impl YamlScalar<'_> {
    /// Type and value of the scalar.
    ///
    /// # Errors
    /// The tag and the text contradict each other.
    pub fn resolve(&self) -> Result<ResolvedScalar, YamlError> {
        resolve::resolve(self.text, self.tag, self.plain)
            .map_err(|message| YamlError::new(ErrorCode::YamlTag, self.mark, message))
    }

    /// True if the scalar is a null that leaves an optional field unset; `Null` and `NULL` do not, see the loader.
    pub(crate) fn is_unset(&self) -> bool {
        match self.tag {
            Some(tag) => tag == YamlTag::Null,
            None => matches!(self.text, "null" | "~") || (self.text.is_empty() && self.plain),
        }
    }

    fn is_merge(&self) -> bool {
        self.text == "<<" && (self.plain || self.tag == Some(YamlTag::Merge))
    }
}

/// Node of the text, with aliases resolved.
#[derive(Debug, Clone, Copy)]
pub enum YamlShape<'t> {
    /// Scalar of the text.
    Scalar(YamlScalar<'t>),
    /// Items of a list.
    Sequence(&'t [YamlNodeId]),
    /// Pairs of a map, in the order of the text, merge keys included.
    Mapping(&'t [(YamlNodeId, YamlNodeId)]),
}

/// Visitor of the pairs of a map: key, value, and whether the pair is in the map itself, not in a merged one.
pub(crate) type PairVisitor<'f, 't> =
    dyn FnMut(&mut YamlDecoder<'t>, YamlNodeId, YamlNodeId, bool) -> Result<(), YamlError> + 'f;

/// Decoder of a [`YamlTree`].
#[derive(Debug)]
pub struct YamlDecoder<'t> {
    tree: &'t YamlTree,
    limits: YamlLimits,
    reads: usize,
    alias_reads: usize,
    read_bytes: usize,
    depth: usize,
    /// Aliases that are being resolved.
    open_aliases: Vec<YamlNodeId>,
    /// Path of the present node in the document.
    pub(crate) path: DocumentPath,
    /// Repeated keys of the maps that were decoded.
    pub(crate) duplicates: Vec<DocumentLocation>,
}

impl<'t> YamlDecoder<'t> {
    /// Decoder at the root of the tree's document.
    pub fn new(tree: &'t YamlTree, limits: &YamlLimits) -> Self {
        YamlDecoder {
            tree,
            limits: *limits,
            // The reference counts the document itself.
            reads: 1,
            alias_reads: 0,
            read_bytes: 0,
            depth: 0,
            open_aliases: Vec::new(),
            path: DocumentPath::default(),
            duplicates: Vec::new(),
        }
    }

    /// Position of a node's first character.
    pub(crate) fn mark(&self, id: YamlNodeId) -> Mark {
        self.tree.mark(id)
    }

    /// Reads one node: resolves aliases and checks limits.
    ///
    /// # Errors
    /// A cycle of aliases, a value beyond a limit, and the errors of `read`.
    pub fn visit<R>(
        &mut self,
        id: YamlNodeId,
        read: impl FnOnce(&mut Self, Mark, YamlShape<'t>) -> Result<R, YamlError>,
    ) -> Result<R, YamlError> {
        let mark = self.tree.mark(id);
        self.count(mark)?;
        let RawYamlNode::Alias(target) = *self.tree.raw(id) else {
            return self.visit_target(id, mark, read);
        };
        if self.open_aliases.contains(&id) {
            return Err(YamlError::new(
                ErrorCode::YamlAlias,
                mark,
                "this alias is inside the value of its own anchor",
            ));
        }
        self.open_aliases.push(id);
        self.count(mark)?;
        let result = self.visit_target(target, self.tree.mark(target), read)?;
        self.open_aliases.pop();
        Ok(result)
    }

    fn visit_target<R>(
        &mut self,
        id: YamlNodeId,
        mark: Mark,
        read: impl FnOnce(&mut Self, Mark, YamlShape<'t>) -> Result<R, YamlError>,
    ) -> Result<R, YamlError> {
        let shape = match self.tree.raw(id) {
            RawYamlNode::Scalar { text, tag, plain } => YamlShape::Scalar(YamlScalar {
                text,
                mark,
                tag: *tag,
                plain: *plain,
            }),
            RawYamlNode::Sequence(items) => YamlShape::Sequence(items),
            RawYamlNode::Mapping(pairs) => YamlShape::Mapping(pairs),
            RawYamlNode::Alias(_) => {
                return Err(YamlError::new(
                    ErrorCode::YamlAlias,
                    mark,
                    "the anchor of this alias is an alias",
                ));
            }
        };
        if let YamlShape::Scalar(scalar) = shape {
            self.read_bytes += scalar.text.len();
            if self.read_bytes > self.limits.read_bytes {
                let message = format!(
                    "more text than the limit of {} bytes, with aliases resolved",
                    self.limits.read_bytes
                );
                return Err(YamlError::limit(mark, message));
            }
            return read(self, mark, shape);
        }
        self.depth += 1;
        if self.depth > self.limits.depth {
            let message = format!("nested deeper than the limit of {} levels", self.limits.depth);
            return Err(YamlError::limit(mark, message));
        }
        let result = read(self, mark, shape)?;
        self.depth -= 1;
        Ok(result)
    }

    fn count(&mut self, mark: Mark) -> Result<(), YamlError> {
        self.reads += 1;
        if !self.open_aliases.is_empty() {
            self.alias_reads += 1;
        }
        let excessive = self.alias_reads > FREE_ALIAS_READS
            && self.reads > FREE_READS
            && self.alias_reads as f64 / self.reads as f64 > allowed_alias_share(self.reads);
        if excessive {
            return Err(YamlError::limit(mark, "aliases repeat too much of the document"));
        }
        if self.reads > self.limits.reads {
            let message = format!(
                "more values than the limit of {}, with aliases resolved",
                self.limits.reads
            );
            return Err(YamlError::limit(mark, message));
        }
        Ok(())
    }

    /// Calls `each` for every key and value of a map, with merged maps in their place. The last argument is true if the
    /// pair is in this map itself.
    ///
    /// # Errors
    /// A merge key without a map, and the errors of `each`.
    pub fn pairs(
        &mut self,
        pairs: &'t [(YamlNodeId, YamlNodeId)],
        own: bool,
        each: &mut PairVisitor<'_, 't>,
    ) -> Result<(), YamlError> {
        for &(key, value) in pairs {
            if self.is_merge_key(key) {
                self.merge(value, each)?;
            } else {
                each(self, key, value, own)?;
            }
        }
        Ok(())
    }

    fn is_merge_key(&self, key: YamlNodeId) -> bool {
        match self.tree.raw(key) {
            RawYamlNode::Scalar { text, tag, plain } => YamlScalar {
                text,
                mark: Mark::START,
                tag: *tag,
                plain: *plain,
            }
            .is_merge(),
            RawYamlNode::Sequence(_) | RawYamlNode::Mapping(_) | RawYamlNode::Alias(_) => false,
        }
    }

    fn merge(&mut self, value: YamlNodeId, each: &mut PairVisitor<'_, 't>) -> Result<(), YamlError> {
        if let RawYamlNode::Sequence(items) = self.tree.raw(value) {
            // The earlier map wins, so it comes last.
            for &item in items.iter().rev() {
                self.merge_map(item, each)?;
            }
            return Ok(());
        }
        self.merge_map(value, each)
    }

    fn merge_map(&mut self, id: YamlNodeId, each: &mut PairVisitor<'_, 't>) -> Result<(), YamlError> {
        self.check_merge(id)?;
        self.visit(id, |decoder, _, shape| match shape {
            YamlShape::Mapping(pairs) => decoder.pairs(pairs, false, each),
            YamlShape::Scalar(_) | YamlShape::Sequence(_) => Ok(()),
        })
    }

    fn check_merge(&self, id: YamlNodeId) -> Result<(), YamlError> {
        let raw = self.tree.raw(id);
        let target = if let RawYamlNode::Alias(target) = raw {
            self.tree.raw(*target)
        } else {
            raw
        };
        match target {
            RawYamlNode::Mapping(_) => Ok(()),
            RawYamlNode::Scalar { .. } | RawYamlNode::Sequence(_) | RawYamlNode::Alias(_) => {
                let message = "`<<` merges a map or a list of maps, nothing else";
                Err(YamlError::new(ErrorCode::YamlMerge, self.tree.mark(id), message))
            }
        }
    }

    /// Reads a value of any type.
    ///
    /// # Errors
    /// The errors of [`YamlDecoder::visit`]; a list or a map as key; a text that does not match its tag.
    pub(crate) fn node(&mut self, id: YamlNodeId) -> Result<YamlNode, YamlError> {
        self.visit(id, |decoder, mark, shape| {
            let value = match shape {
                YamlShape::Scalar(scalar) => typed(&scalar)?,
                YamlShape::Sequence(items) => decoder.list(items)?,
                YamlShape::Mapping(pairs) => decoder.map(pairs)?,
            };
            Ok(YamlNode { value, mark })
        })
    }

    fn list(&mut self, items: &'t [YamlNodeId]) -> Result<YamlValue, YamlError> {
        let mut nodes = Vec::with_capacity(items.len());
        for (at, &item) in items.iter().enumerate() {
            self.path.push_index(at);
            nodes.push(self.node(item)?);
            self.path.pop();
        }
        Ok(YamlValue::List(nodes))
    }

    fn map(&mut self, pairs: &'t [(YamlNodeId, YamlNodeId)]) -> Result<YamlValue, YamlError> {
        let mut entries: Vec<(YamlNode, YamlNode)> = Vec::with_capacity(pairs.len());
        // Position of each key in `entries`, and whether this map itself has it.
        let mut index: BTreeMap<ScalarKey, (usize, bool)> = BTreeMap::new();
        self.pairs(pairs, true, &mut |decoder, key, value, own| {
            let key = decoder.node(key)?;
            if matches!(key.value, YamlValue::List(_) | YamlValue::Map(_)) {
                let message = format!("{} cannot be the key of a map", key.value.kind());
                return Err(YamlError::new(ErrorCode::YamlKey, key.mark, message));
            }
            decoder.path.push_value(&key.value);
            let value = decoder.node(value)?;
            let known = ScalarKey::of(&key.value);
            let before = known.as_ref().and_then(|known| index.get(known)).copied();
            let (at, given_here) = before.unwrap_or((entries.len(), false));
            if given_here && own {
                decoder.note_duplicate(key.mark);
            }
            match entries.get_mut(at) {
                Some(entry) => *entry = (key, value),
                None => entries.push((key, value)),
            }
            index.extend(known.map(|known| (known, (at, given_here || own))));
            decoder.path.pop();
            Ok(())
        })?;
        Ok(YamlValue::Map(entries))
    }

    /// Records that the key at the end of the path appears twice.
    pub(crate) fn note_duplicate(&mut self, mark: Mark) {
        if self.duplicates.len() < MAX_DIAGNOSTICS {
            self.duplicates.push(self.path.at(mark));
        }
    }
}

fn typed(scalar: &YamlScalar<'_>) -> Result<YamlValue, YamlError> {
    Ok(match scalar.resolve()? {
        ResolvedScalar::Null => YamlValue::Null,
        ResolvedScalar::Bool(b) => YamlValue::Bool(b),
        ResolvedScalar::Int(n) => YamlValue::Int(n),
        ResolvedScalar::UInt(n) => YamlValue::UInt(n),
        ResolvedScalar::Float(x) => YamlValue::Float(x),
        ResolvedScalar::Text => YamlValue::String(scalar.text.to_owned()),
        ResolvedScalar::Binary(content) => YamlValue::String(content),
    })
}

/// Largest share of reads that may come from aliases: 99 of 100 in small documents, falling linearly to 1 of 10 in
/// large ones.
fn allowed_alias_share(reads: usize) -> f64 {
    let over = reads.clamp(LOW_READS, HIGH_READS) - LOW_READS;
    0.99 - 0.89 * (over as f64 / (HIGH_READS - LOW_READS) as f64)
}
