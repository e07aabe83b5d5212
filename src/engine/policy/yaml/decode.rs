//! Walks a tree as the reader of a typed structure does: follows aliases and merge keys, in order,
//! within the limits, and types scalars only where somebody asks for them.

use std::collections::BTreeMap;

use super::parse::Raw;
use super::resolve::{self, Resolved, Tag};
use super::value::Key;
use super::{Limits, Mark, Node, NodeId, ReadError, Tree, Value};
use crate::engine::policy::findings::{MOST_FINDINGS, Path, code};

/// Reads that may come from aliases without a look at their share; the figures are the reference's.
const FREE_ALIAS_READS: usize = 100;
const FREE_READS: usize = 1_000;
/// Up to this many reads, 99 of 100 may come from aliases.
const LOW_READS: usize = 400_000;
/// From this many reads on, 1 of 10 may.
const HIGH_READS: usize = 4_000_000;

/// A scalar not yet typed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar<'t> {
    /// The text, quotes and escapes undone.
    pub(crate) text: &'t str,
    /// Where it begins.
    pub(crate) mark: Mark,
    tag: Option<Tag>,
    plain: bool,
}

impl Scalar<'_> {
    /// What it is.
    pub(crate) fn resolve(&self) -> Result<Resolved, ReadError> {
        resolve::resolve(self.text, self.tag, self.plain)
            .map_err(|message| ReadError::new(code::YAML_TAG, self.mark, message))
    }

    /// Is it a null that leaves an optional field unset? (`Null` and `NULL` do not, see the loader.)
    pub(crate) fn is_unset(&self) -> bool {
        match self.tag {
            Some(tag) => tag == Tag::Null,
            None => matches!(self.text, "null" | "~") || (self.text.is_empty() && self.plain),
        }
    }

    fn is_merge(&self) -> bool {
        self.text == "<<" && (self.plain || self.tag == Some(Tag::Merge))
    }
}

/// A node of the text, aliases followed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape<'t> {
    Scalar(Scalar<'t>),
    Sequence(&'t [NodeId]),
    Mapping(&'t [(NodeId, NodeId)]),
}

/// A key that stands twice in one map.
#[derive(Debug, Clone)]
pub(crate) struct Duplicate {
    pub(crate) mark: Mark,
    pub(crate) path: String,
}

/// Called with key and value of a pair, and whether it stands in the map itself (not in a merged one).
pub(crate) type EachPair<'f, 't> = dyn FnMut(&mut Decoder<'t>, NodeId, NodeId, bool) -> Result<(), ReadError> + 'f;

/// Reads a [`Tree`].
#[derive(Debug)]
pub(crate) struct Decoder<'t> {
    tree: &'t Tree,
    limits: Limits,
    reads: usize,
    alias_reads: usize,
    read_bytes: usize,
    depth: usize,
    /// Aliases being followed right now.
    open_aliases: Vec<NodeId>,
    /// Where in the document the reader is.
    pub(crate) path: Path,
    /// Keys that stood twice, as far as this decoder was asked for their map.
    pub(crate) duplicates: Vec<Duplicate>,
}

impl<'t> Decoder<'t> {
    pub(crate) fn new(tree: &'t Tree, limits: &Limits) -> Self {
        Decoder {
            tree,
            limits: *limits,
            // The reference counts the document itself.
            reads: 1,
            alias_reads: 0,
            read_bytes: 0,
            depth: 0,
            open_aliases: Vec::new(),
            path: Path::default(),
            duplicates: Vec::new(),
        }
    }

    /// Where a node begins.
    pub(crate) fn mark(&self, id: NodeId) -> Mark {
        self.tree.mark(id)
    }

    /// Reads one node: aliases followed, limits watched.
    ///
    /// # Errors
    /// For a cycle of aliases, for what is beyond a limit, and what `read` returns.
    pub(crate) fn visit<R>(
        &mut self,
        id: NodeId,
        read: impl FnOnce(&mut Self, Mark, Shape<'t>) -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        let mark = self.tree.mark(id);
        self.count(mark)?;
        let Raw::Alias(target) = *self.tree.raw(id) else {
            return self.visit_target(id, mark, read);
        };
        if self.open_aliases.contains(&id) {
            return Err(ReadError::new(
                code::YAML_ALIAS,
                mark,
                "this alias stands inside of what it stands for",
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
        id: NodeId,
        mark: Mark,
        read: impl FnOnce(&mut Self, Mark, Shape<'t>) -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        let shape = match self.tree.raw(id) {
            Raw::Scalar { text, tag, plain } => Shape::Scalar(Scalar {
                text,
                mark,
                tag: *tag,
                plain: *plain,
            }),
            Raw::Sequence(items) => Shape::Sequence(items),
            Raw::Mapping(pairs) => Shape::Mapping(pairs),
            Raw::Alias(_) => return Err(ReadError::new(code::YAML_ALIAS, mark, "an alias stands for an alias")),
        };
        if let Shape::Scalar(scalar) = shape {
            self.read_bytes += scalar.text.len();
            if self.read_bytes > self.limits.read_bytes {
                let message = format!(
                    "more text than the limit of {} bytes, aliases followed",
                    self.limits.read_bytes
                );
                return Err(ReadError::limit(mark, message));
            }
            return read(self, mark, shape);
        }
        self.depth += 1;
        if self.depth > self.limits.depth {
            let message = format!("nested deeper than the limit of {} levels", self.limits.depth);
            return Err(ReadError::limit(mark, message));
        }
        let result = read(self, mark, shape)?;
        self.depth -= 1;
        Ok(result)
    }

    fn count(&mut self, mark: Mark) -> Result<(), ReadError> {
        self.reads += 1;
        if !self.open_aliases.is_empty() {
            self.alias_reads += 1;
        }
        let excessive = self.alias_reads > FREE_ALIAS_READS
            && self.reads > FREE_READS
            && self.alias_reads as f64 / self.reads as f64 > allowed_alias_share(self.reads);
        if excessive {
            return Err(ReadError::limit(mark, "aliases repeat too much of the document"));
        }
        if self.reads > self.limits.reads {
            let message = format!("more values than the limit of {}, aliases followed", self.limits.reads);
            return Err(ReadError::limit(mark, message));
        }
        Ok(())
    }

    /// Calls `each` for every key and value of a map, merged maps in their place. The last argument
    /// says whether the pair stands in this very map.
    ///
    /// # Errors
    /// For a merge key without a map, and what `each` returns.
    pub(crate) fn pairs(
        &mut self,
        pairs: &'t [(NodeId, NodeId)],
        own: bool,
        each: &mut EachPair<'_, 't>,
    ) -> Result<(), ReadError> {
        for &(key, value) in pairs {
            if self.is_merge_key(key) {
                self.merge(value, each)?;
            } else {
                each(self, key, value, own)?;
            }
        }
        Ok(())
    }

    fn is_merge_key(&self, key: NodeId) -> bool {
        match self.tree.raw(key) {
            Raw::Scalar { text, tag, plain } => Scalar {
                text,
                mark: Mark::START,
                tag: *tag,
                plain: *plain,
            }
            .is_merge(),
            Raw::Sequence(_) | Raw::Mapping(_) | Raw::Alias(_) => false,
        }
    }

    fn merge(&mut self, value: NodeId, each: &mut EachPair<'_, 't>) -> Result<(), ReadError> {
        if let Raw::Sequence(items) = self.tree.raw(value) {
            // The earlier map wins, so it comes last.
            for &item in items.iter().rev() {
                self.merge_map(item, each)?;
            }
            return Ok(());
        }
        self.merge_map(value, each)
    }

    fn merge_map(&mut self, id: NodeId, each: &mut EachPair<'_, 't>) -> Result<(), ReadError> {
        self.check_merge(id)?;
        self.visit(id, |decoder, _, shape| match shape {
            Shape::Mapping(pairs) => decoder.pairs(pairs, false, each),
            Shape::Scalar(_) | Shape::Sequence(_) => Ok(()),
        })
    }

    fn check_merge(&self, id: NodeId) -> Result<(), ReadError> {
        let raw = self.tree.raw(id);
        let target = if let Raw::Alias(target) = raw {
            self.tree.raw(*target)
        } else {
            raw
        };
        match target {
            Raw::Mapping(_) => Ok(()),
            Raw::Scalar { .. } | Raw::Sequence(_) | Raw::Alias(_) => {
                let message = "`<<` merges a map or a list of maps, nothing else";
                Err(ReadError::new(code::YAML_MERGE, self.tree.mark(id), message))
            }
        }
    }

    /// Reads a value of any type.
    ///
    /// # Errors
    /// See [`Decoder::visit`]; also for a list or a map as key, and for a text that is not what its tag says.
    pub(crate) fn node(&mut self, id: NodeId) -> Result<Node, ReadError> {
        self.visit(id, |decoder, mark, shape| {
            let value = match shape {
                Shape::Scalar(scalar) => typed(&scalar)?,
                Shape::Sequence(items) => decoder.list(items)?,
                Shape::Mapping(pairs) => decoder.map(pairs)?,
            };
            Ok(Node { value, mark })
        })
    }

    fn list(&mut self, items: &'t [NodeId]) -> Result<Value, ReadError> {
        let mut nodes = Vec::with_capacity(items.len());
        for (at, &item) in items.iter().enumerate() {
            self.path.push_index(at);
            nodes.push(self.node(item)?);
            self.path.pop();
        }
        Ok(Value::List(nodes))
    }

    fn map(&mut self, pairs: &'t [(NodeId, NodeId)]) -> Result<Value, ReadError> {
        let mut entries: Vec<(Node, Node)> = Vec::with_capacity(pairs.len());
        // Where each key stands in `entries`, and whether this very map gave it.
        let mut index: BTreeMap<Key, (usize, bool)> = BTreeMap::new();
        self.pairs(pairs, true, &mut |decoder, key, value, own| {
            let key = decoder.node(key)?;
            if matches!(key.value, Value::List(_) | Value::Map(_)) {
                let message = format!("{} cannot be the key of a map", key.value.kind());
                return Err(ReadError::new(code::YAML_KEY, key.mark, message));
            }
            decoder.path.push_value(&key.value);
            let value = decoder.node(value)?;
            let known = Key::of(&key.value);
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
        Ok(Value::Map(entries))
    }

    /// Remembers that the key at the end of the path stands twice.
    pub(crate) fn note_duplicate(&mut self, mark: Mark) {
        if self.duplicates.len() < MOST_FINDINGS {
            self.duplicates.push(Duplicate {
                mark,
                path: self.path.to_string(),
            });
        }
    }
}

fn typed(scalar: &Scalar<'_>) -> Result<Value, ReadError> {
    Ok(match scalar.resolve()? {
        Resolved::Null => Value::Null,
        Resolved::Bool(b) => Value::Bool(b),
        Resolved::Int(n) => Value::Int(n),
        Resolved::UInt(n) => Value::UInt(n),
        Resolved::Float(x) => Value::Float(x),
        Resolved::Text => Value::String(scalar.text.to_owned()),
        Resolved::Binary(content) => Value::String(content),
    })
}

/// The largest share of reads that may come from aliases: 99 of 100 in small documents, falling
/// in a straight line to 1 of 10 in large ones.
fn allowed_alias_share(reads: usize) -> f64 {
    let over = reads.clamp(LOW_READS, HIGH_READS) - LOW_READS;
    0.99 - 0.89 * (over as f64 / (HIGH_READS - LOW_READS) as f64)
}
